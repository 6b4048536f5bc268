"""What was asked of `trainingkit advise`, and whether it fits together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainingkit.core.errors import ConfigError
from trainingkit.core.units import parse_seconds

if TYPE_CHECKING:
    from trainingkit.bench.advise.numbers import Numbers
    from trainingkit.netlab import LabSpec
    from trainingkit.sync.auto.forecast import Link

EXAMPLE = "trainingkit advise --params 7e9 --step 2.5s --link 1gbit --ranks 8"


@dataclass(frozen=True)
class Asked:
    """The options of the command, as they were typed."""

    recipe: str | None
    workers: int | None
    ranks: int | None
    link: str | None
    delay: str
    lab: int | None
    params: float | None
    step: str | None
    backward_share: float
    time_codecs: bool

    def check(self) -> None:
        """Raise ConfigError where options miss or exclude each other."""
        self._check_numbers()
        self._check_lab()
        if self.ranks is not None and self.ranks < 2:
            raise _refused("ranks", self.ranks, "2 or more", "One rank sends nothing; leave --ranks out, or raise it.")
        if self.params is None and self.lab is None and (self.ranks is not None or self.delay != "0ms"):
            self._need_link()

    def check_ranks(self, here: int) -> None:
        """Raise ConfigError where `here` ranks measure, and that is one, and the job is of no more."""
        if here == 1 and self.ranks is None:
            raise ConfigError(
                "One worker exchanges nothing, so there is nothing to advise.",
                field="workers",
                found=1,
                expected="2 or more, or a larger job to ask about",
                next_step="Raise --workers; or ask about a job: --ranks 4 --link 100mbit.",
            )

    def numbers(self) -> Numbers:
        """What `--params` and its companions say."""
        from trainingkit.bench.advise.numbers import Numbers

        link = self.stated_link()
        assert self.params is not None and self.step is not None and self.ranks is not None and link is not None
        return Numbers(
            params=round(self.params),
            step_s=parse_seconds(self.step, field="--step"),
            ranks=self.ranks,
            link=link,
            backward_share=self.backward_share,
            code_here=self.time_codecs,
        )

    def stated_link(self) -> Link | None:
        """The link as numbers; None where it is to be measured.

        Raises:
            ConfigError: it cannot be read, or it has no rate.
        """
        if self.link is None:
            return None
        from trainingkit.bench.advise.linking import stated_link

        found = stated_link(self.link, self.delay)
        if found is None:
            raise _refused("link", repr(self.link), "a rate, for example 25mbit", "Name the rate, or leave --link out.")
        return found

    def lab_spec(self) -> LabSpec:
        """The lab that was asked for."""
        from trainingkit.netlab import LabSpec
        from trainingkit.netlab.rates import UNSHAPED

        assert self.lab is not None
        delay_s = parse_seconds(self.delay, field="--delay")
        return LabSpec(hosts=self.lab, link=self.link or UNSHAPED, delay_s=delay_s)

    def _check_numbers(self) -> None:
        if self.params is None:
            if self.step is not None or self.time_codecs:
                raise _refused("params", "nothing, but --step or --time-codecs", "a number", f"For example: {EXAMPLE}")
            return
        if self.recipe is not None or self.workers is not None or self.lab is not None:
            raise _refused("params", "a recipe, --workers or --lab, too", "one of the two", "Leave one out.")
        missing = [
            f"--{name}"
            for name, value in (("step", self.step), ("link", self.link), ("ranks", self.ranks))
            if value is None
        ]
        if missing:
            expected = "--step, --link and --ranks beside it"
            raise _refused("params", f"no {' and no '.join(missing)}", expected, f"For example: {EXAMPLE}")
        if not 1 <= self.params < 1e14:
            raise _refused("params", f"{self.params:g}", "1 or more", f"For example: {EXAMPLE}")
        if not 0 < self.backward_share < 1:
            raise _refused("backward-share", self.backward_share, "between 0 and 1", "Leave it out for two thirds.")
        assert self.step is not None
        if parse_seconds(self.step, field="--step") <= 0:
            raise _refused("step", repr(self.step), "more than nothing", f"For example: {EXAMPLE}")

    def _check_lab(self) -> None:
        if self.lab is None:
            return
        if self.lab < 2:
            raise _refused("lab", self.lab, "2 or more hosts", "Raise it; one host sends nothing.")
        if self.workers is not None or self.ranks is not None:
            found = "--workers or --ranks, too"
            raise _refused("lab", found, "one of the two", "A lab has one rank on each host; leave the other out.")

    def _need_link(self) -> None:
        if self.link is None:
            found = "nothing, but --ranks or --delay"
            raise _refused("link", found, "a rate", "Add it, for example --link 25mbit; or leave the others out.")


def _refused(option: str, found: object, expected: str, next_step: str) -> ConfigError:
    return ConfigError(
        "There is no advice for this.", field=f"--{option}", found=found, expected=expected, next_step=next_step
    )

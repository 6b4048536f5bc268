"""Which settings of a recipe may change when a run is resumed, and what is said of each.

A rule is the longest dotted name that a setting begins with. `FREE` settings leave every number as it would have been;
`SAID` ones take another course from here on, which is allowed and noted with its reason; `KEPT` ones cannot change,
because the snapshot or the data's order would win over them without a word.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainingkit.core import decisions, toml
from trainingkit.core.errors import ConfigError
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.recipe import KitConfig, Recipe, load_recipe, load_run_recipe, resolved_text
from trainingkit.trainer.seal import check_seal

FREE = (
    "run.log_every",
    "run.grace_s",
    "run.restarts",
    "run.min_workers",
    "batch.threads",
    "batch.depth",
    "snapshot",
    "journal",
    "sync.timeout_s",
    "sync.join_s",
)
SAID = {
    "run.steps": "the schedule of the learning rate takes this length from here on",
    "workers": "steps have another number of samples, and what was owed is shared out anew from here on",
    "run.threads": "sums may be taken in another order",
    "run.device": "sums may be taken in another order",
    "precision.compute": "the arithmetic is another one from here on",
    "step.accumulate": "steps have another number of samples from here on",
    "step.clip_norm": "gradients are clipped differently from here on",
    "step.max_aborts": "a run of aborted steps may be given up at another step",
    "batch.size": "steps have another number of samples from here on",
    "schedule": "the learning rate takes another course from here on",
    "eval.every": "evaluations come at other steps, and eval.patience counts them: training may end at another step",
    "eval.patience": "training may end at another step",
    "eval.samples": "evaluations before and after are over different samples",
    "sync.codec": "gradients travel differently from here on",
    "sync.warmup_steps": "gradients travel differently from here on",
    "sync.normalise": "gradients travel differently from here on",
    "sync.adaptive": "gradients travel differently from here on",
    "sync.islands": "sums are taken in another order from here on",
    "sync.max_ratio": "the controller may choose otherwise from here on",
    "sync.min_density": "the controller may choose otherwise from here on",
    "sync.max_every": "the controller may choose otherwise from here on",
    "sync.replay": "the controller may choose otherwise from here on",
    "sync.bucket_mb": "sums may be taken in another order",
    "data.path": "the data must be the same there; their number is checked, and other content is said",
}
KEPT = {
    "name": "the run stays in its folder",
    "run.folder": "the run stays in its folder",
    "run.seed": "the order of the data follows from it",
    "model": "the snapshot's tensors are those of this model",
    "data": "the position in the data counts on their order",
    "optimizer": "the snapshot holds the optimizer's settings, which would win",
}
FREE_REASON = "it changes no number"
OF_THE_FOLDER = ("name", "run.folder")
"""What a script says of the folder in which it goes on: the folder is the same, however it is spelt."""


@dataclass(frozen=True)
class Change:
    """One setting that is changed on resume."""

    setting: str
    old: Any
    new: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.old} -> {self.new} ({self.reason})"


def resumed_recipe(run: RunFolder, overrides: Iterable[str]) -> tuple[Recipe, list[Change]]:
    """The recipe to resume with, and what it changes.

    Args:
        overrides: `section.key=value` texts over the run's own recipe.

    Raises:
        RunFolderError, ConfigError: no recipe to resume, a bad override, or one that may not change.
    """
    old = load_run_recipe(run)
    new = load_recipe(str(run.recipe), overrides)
    before, after = _settings(old), _settings(new)
    anew = f"trainingkit train {shlex.quote(str(run.recipe))} --set run.folder=NEW --set"
    return new, _judged_all(before, after, lambda setting: f"{anew} {setting}=...")


def changes_of_script(run: RunFolder, config: KitConfig) -> list[Change]:
    """What a script changes with which a run goes on, against the settings that the run's folder keeps.

    The folder of an earlier version may lack settings, which had their defaults, or have some that are no more.

    Raises:
        ConfigError: one that may not change; or the folder's own recipe was changed.
    """
    check_seal(run.recipe)
    after = _settings(config)
    before = {**_settings(KitConfig()), **dict(_flat(toml.load(run.recipe), ""))}
    for name in [name for name in before if name not in after and rule_of(name) is None]:
        del before[name]
    for name in OF_THE_FOLDER:
        before[name] = after.get(name)
    return _judged_all(before, after, lambda setting: f"name another run.folder, and set {setting} there.")


def note(run: RunFolder, changes: Iterable[Change], *, step: int) -> None:
    """Keep the changes among the run's decisions.

    Args:
        step: from where they count: the step of the snapshot that the run goes on from.

    Raises:
        RunFolderError: they cannot be written.
    """
    for change in changes:
        reason = f"set on resume instead of {change.old}: {change.reason}"
        with run.written():
            decisions.record(run.decisions, step=step, choice=change.setting, value=change.new, reason=reason)


def rule_of(setting: str) -> str | None:
    """The longest name in `FREE`, `SAID` or `KEPT` that covers a setting; None for one that has no rule."""
    parts = setting.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in FREE or name in SAID or name in KEPT), None)


def _judged_all(before: Mapping[str, Any], after: Mapping[str, Any], anew: Callable[[str], str]) -> list[Change]:
    """What differs, judged; `anew` says how to begin a new run with a setting that may not change."""
    differing = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return [_judged(name, before.get(name), after.get(name), anew(name)) for name in differing]


def _judged(setting: str, old: Any, new: Any, anew: str) -> Change:
    rule = rule_of(setting)
    if rule in FREE:
        return Change(setting, old, new, FREE_REASON)
    if rule in SAID:
        return Change(setting, old, new, SAID[rule])
    reason = KEPT[rule] if rule is not None else "nobody has said that it may"
    raise ConfigError(
        f"This setting cannot change when a run is resumed: {reason}.",
        field=setting,
        found=repr(new),
        expected=f"{old!r}, as the run began",
        next_step=f"Leave it, or begin anew: {anew}",
    )


def _settings(recipe: KitConfig) -> dict[str, Any]:
    """Every setting of a resolved recipe by its dotted name."""
    return dict(_flat(tomllib.loads(resolved_text(recipe)), ""))


def _flat(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value

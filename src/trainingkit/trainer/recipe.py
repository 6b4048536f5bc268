"""Recipes: from a TOML file and overrides to one frozen object, and back to the resolved file in the run folder."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from trainingkit.core import toml
from trainingkit.core.errors import ConfigError, RunFolderError
from trainingkit.core.nearest import nearest
from trainingkit.core.runfolder import RunFolder
from trainingkit.core.section import Section, check, choose
from trainingkit.data import SOURCES
from trainingkit.models import MODELS, ModelSection
from trainingkit.optim import OPTIMIZERS, SCHEDULES, OptimizerSection, ScheduleSection
from trainingkit.precision.section import PrecisionSection
from trainingkit.sync.section import SyncSection
from trainingkit.trainer.seal import check_seal
from trainingkit.trainer.sections import (
    BatchSection,
    EvalSection,
    JournalSection,
    RunSection,
    SnapshotSection,
    StepSection,
)

BUNDLED = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")
"""Where bundled recipes lie: inside an installed wheel, or at the root of a checkout."""


class KitConfig(Section):
    """What a loop of one's own needs (`kit.toml`)."""

    name: str = Field(default="run", min_length=1, description="name of the run, part of its folder")
    run: RunSection = RunSection()
    step: StepSection = StepSection()
    precision: PrecisionSection = PrecisionSection()
    sync: SyncSection = SyncSection()
    snapshot: SnapshotSection = SnapshotSection()
    journal: JournalSection = JournalSection()

    @field_validator("name")
    @classmethod
    def _name_is_one_word(cls, name: str) -> str:
        if "/" in name or name.startswith("."):
            raise ValueError("a name without '/' that does not start with '.'")
        return name


class Recipe(KitConfig):
    """What `trainingkit train` needs. The tables with a `kind` are resolved by their rooms' registries."""

    workers: int = Field(default=2, ge=1, description="worker processes on this host, when there is no outer launcher")
    model: dict[str, Any] = Field(description="table with `kind`")
    data: dict[str, Any] = Field(description="table with `kind`")
    optimizer: dict[str, Any] = Field(default={"kind": "adamw"}, description="table with `kind`")
    schedule: dict[str, Any] = Field(default={"kind": "cosine"}, description="table with `kind`")
    batch: BatchSection = BatchSection()
    eval: EvalSection = EvalSection()

    @field_validator("optimizer", "schedule")
    @classmethod
    def _kind_has_a_default(cls, table: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        assert info.field_name is not None
        return {**cls.model_fields[info.field_name].default, **table}

    def model_section(self) -> ModelSection:
        """The model's settings, by its registry entry."""
        return choose(MODELS, self.model, field="model")

    def data_section(self) -> Any:
        """The data's settings, by its registry entry."""
        return choose(SOURCES, self.data, field="data")

    def optimizer_section(self) -> OptimizerSection:
        """The optimizer's settings, by its registry entry."""
        return choose(OPTIMIZERS, self.optimizer, field="optimizer")

    def schedule_section(self) -> ScheduleSection:
        """The schedule's settings, by its registry entry."""
        return choose(SCHEDULES, self.schedule, field="schedule")


C = TypeVar("C", bound=KitConfig)


def bundled_recipes() -> dict[str, Path]:
    """Bundled recipes by name."""
    found: dict[str, Path] = {}
    for folder in BUNDLED:
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return found


def find_recipe(name: str) -> Path:
    """A file by its path, or a bundled recipe by its name.

    Raises:
        ConfigError: neither exists.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    known = bundled_recipes()
    if name in known:
        return known[name]
    close = nearest(name, known)
    raise ConfigError(
        f"There is no recipe called {name!r}.",
        field="RECIPE",
        found=repr(name),
        expected="a .toml file, or one of: " + ", ".join(sorted(known)),
        next_step=f"Did you mean {close!r}?" if close else "Choose one of these, or write a file.",
    )


def load_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe, apply `section.key=value` overrides, and check every section.

    Raises:
        ConfigError: anything that cannot be used, with field, found, expected and next step.
    """
    path = find_recipe(name)
    recipe = check(Recipe, toml.apply_overrides(_over_its_base(path), overrides), options=True)
    for section in (recipe.model_section, recipe.data_section, recipe.optimizer_section, recipe.schedule_section):
        section()
    if recipe.run.steps is None:
        raise ConfigError(
            "A recipe must say how long to train.",
            field="run.steps",
            found="nothing",
            expected="a number of steps",
            next_step="Add it, for example with --set run.steps=100.",
        )
    return recipe


def _over_its_base(path: Path) -> toml.Table:
    """A recipe laid over what it extends, and that over what it extends itself."""
    path, above, seen = path.resolve(), list[toml.Table](), list[Path]()
    while path not in seen and (own := _extending(path)) is not None:
        seen.append(path)
        above.insert(0, own)
        path = _extended(path, own.pop("extends")).resolve()
    table = toml.load(path)  # extends nothing, or cannot be used: then this says why
    for own in above:
        table = toml.overlay(table, own)
    return table


def _extending(path: Path) -> toml.Table | None:
    """What a file says, with its `extends`; None where it extends nothing by a name or cannot be read."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return table if isinstance(table.get("extends"), str) else None


def _extended(path: Path, name: str) -> Path:
    """The file that `path` extends: one that lies there as seen from `path`, or a bundled recipe by its name.

    Raises:
        ConfigError: neither exists.
    """
    beside = path.parent / name
    known = bundled_recipes()
    if beside.is_file():
        return beside
    if name in known:
        return known[name]
    close = nearest(name, known)
    raise ConfigError(
        f"There is no recipe {name!r} that {path.name} could extend.",
        field="extends",
        found=str(beside),
        expected=f"a file, its path as seen from {path.name}; or one of: {', '.join(sorted(known))}",
        next_step=f'Did you mean extends = "{close}"?' if close else "Choose one of these, or mend the path.",
    )


def load_run_recipe(run: RunFolder) -> Recipe:
    """The resolved recipe in a run folder.

    Raises:
        RunFolderError: the run is that of somebody's own loop (`attach`), which only their script can continue.
        ConfigError: the file was changed, or cannot be used.
    """
    check_seal(run.recipe)
    if "model" not in toml.load(run.recipe):
        raise RunFolderError(
            "This run was made by a script of your own, which knows its model and data.",
            field="RUN",
            found=str(run.root),
            expected="a run that `trainingkit train` made",
            next_step="To continue it, start that script again with the same run.folder.",
        )
    return load_recipe(str(run.recipe))


def load_kit_config(source: str | Path | Mapping[str, Any] | KitConfig | None) -> KitConfig:
    """A kit's settings from a TOML file, a mapping, or the defaults (None).

    Raises:
        ConfigError: no such file, or a setting that cannot be used.
    """
    if source is None:
        return KitConfig()
    if isinstance(source, KitConfig):
        return source
    if isinstance(source, Mapping):
        return check(KitConfig, source)
    remedy = "Pass the path of a TOML file, a mapping, or nothing for the defaults."
    return check(KitConfig, toml.load(Path(source), field="config", remedy=remedy))


def resolved_text(config: KitConfig) -> str:
    """The resolved recipe as TOML, every default written out."""
    table = config.model_dump(mode="json")
    if isinstance(config, Recipe):
        for key, section in (
            ("model", config.model_section()),
            ("data", config.data_section()),
            ("optimizer", config.optimizer_section()),
            ("schedule", config.schedule_section()),
        ):
            table[key] = {"kind": table[key]["kind"], **_anchored(section.model_dump(mode="json"))}
    return toml.dump(table)


def _anchored(table: dict[str, Any]) -> dict[str, Any]:
    """A section whose relative `path`, or `ref` to a Python file, still leads there from another folder."""
    anchored = dict(table)
    if isinstance(table.get("path"), str):
        anchored["path"] = str(Path(table["path"]).absolute())
    file, colon, name = str(table.get("ref", "")).rpartition(":")
    if colon and file.endswith(".py"):
        anchored["ref"] = f"{Path(file).absolute()}:{name}"
    return anchored

"""200 corruptions of a real run folder: each is noticed and said, or changes nothing that a resume would use."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from journal_runs import state_of
from small_runs import FEATURES, batches, config, digest, events, loss_fn, open_rank
from torch import nn

from ranks import Context, Fault, Pool, RankFailed
from trainingkit.core.errors import CheckpointError, TrainingKitError
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import Found, Snapshots, load_new, manifest, newest_good
from trainingkit.recovery.journal import JournalWriter, scan, slots
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.recipe import Recipe, load_recipe, load_run_recipe, resolved_text
from trainingkit.trainer.rng import seed_all
from trainingkit.trainer.seal import sealed

CORRUPTIONS = 200
RANKS = 2
TINY = Path(__file__).with_name("tiny.toml")


def train(context: Context, folder: str) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 96), nn.Tanh(), nn.Linear(96, 96), nn.Linear(96, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    settings = config(
        run={"steps": 6}, snapshot={"every": 2, "keep": 3}, sync={"codec": "all|int4(block=64)", "islands": "off"}
    )
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings) as kit:
        for batch in kit.batches(batches(9, rank=context.rank)):
            kit.step(loss_fn, batch)


def content(found: Found) -> str:
    """A hash over all that the snapshot gives to the ranks that made it."""
    return digest([load_new(found.path, rank=rank, of=rank) for rank in range(RANKS)])


@pytest.fixture(scope="module")
def pristine(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "run"
    pool.run(train, RANKS, str(folder))
    RunFolder(folder).recipe.write_text(sealed(resolved_text(load_recipe(str(TINY)))))
    return folder


@pytest.fixture(scope="module")
def whole(pristine: Path) -> dict[int, str]:
    """Content by step."""
    places = sorted(RunFolder(pristine).snapshots.glob("step-*"))
    return {int(path.name[5:]): content(Found(int(path.name[5:]), path, None, RANKS)) for path in places}


def newest(run: RunFolder) -> Path:
    return max(run.snapshots.glob("step-*"))


def any_file(run: RunFolder, rng: random.Random) -> Path:
    return rng.choice(sorted(path for path in newest(run).iterdir()))


def flip(run: RunFolder, rng: random.Random) -> None:
    flip_in(any_file(run, rng), rng)


def flip_in(path: Path, rng: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    position = rng.randrange(8 * len(raw))
    raw[position // 8] ^= 1 << position % 8
    path.write_bytes(raw)


def zeros(run: RunFolder, rng: random.Random) -> None:
    """A block of the disk that never was written."""
    path = any_file(run, rng)
    raw = bytearray(path.read_bytes())
    begin = rng.randrange(len(raw))
    raw[begin : begin + 64] = bytes(len(raw[begin : begin + 64]))
    path.write_bytes(raw)


def cut(run: RunFolder, rng: random.Random) -> None:
    path = any_file(run, rng)
    os.truncate(path, rng.randrange(path.stat().st_size))


def missing(run: RunFolder, rng: random.Random) -> None:
    any_file(run, rng).unlink()


def missing_snapshot(run: RunFolder, rng: random.Random) -> None:
    shutil.rmtree(newest(run))


def stale_file(run: RunFolder, rng: random.Random) -> None:
    """A file of an older snapshot in its place."""
    path = any_file(run, rng)
    older = rng.choice(sorted(run.snapshots.glob("step-*"))[:-1])
    shutil.copy(older / path.name, path)


def stale_snapshot(run: RunFolder, rng: random.Random) -> None:
    """All of an older snapshot under the name of the newest."""
    older = rng.choice(sorted(run.snapshots.glob("step-*"))[:-1])
    path = newest(run)
    shutil.rmtree(path)
    shutil.copytree(older, path)


def swapped_ranks(run: RunFolder, rng: random.Random) -> None:
    pairs = [("rank-0.json", "rank-1.json"), tuple(sorted(path.name for path in newest(run).glob("shard-*")))]
    first, second = rng.choice([pair for pair in pairs if len(pair) == RANKS])
    folder = newest(run)
    (folder / first).rename(folder / "aside")
    (folder / second).rename(folder / first)
    (folder / "aside").rename(folder / second)


def wrong_world_size(run: RunFolder, rng: random.Random) -> None:
    """A manifest that is right by its own checksum, of another number of ranks; or without one of its ranks."""
    folder = newest(run)
    listed = manifest.read(folder)
    if rng.random() < 0.5:
        listed = replace(listed, world_size=rng.choice([0, 1, 3, 4]))
    else:
        (folder / "rank-1.json").unlink()
        files = {name: record for name, record in listed.files.items() if name != "rank-1.json"}
        listed = replace(listed, files=files)
    (folder / manifest.MANIFEST).write_text(manifest.render(listed))


def recipe_flip(run: RunFolder, rng: random.Random) -> None:
    flip_in(run.recipe, rng)


def recipe_cut(run: RunFolder, rng: random.Random) -> None:
    os.truncate(run.recipe, rng.randrange(run.recipe.stat().st_size))


def recipe_digit(run: RunFolder, rng: random.Random) -> None:
    """Another digit somewhere, so that the file still reads well."""
    text = run.recipe.read_text()
    place = rng.choice([at for at, letter in enumerate(text) if letter in "12345678"])
    run.recipe.write_text(text[:place] + str(int(text[place]) + 1) + text[place + 1 :])


def several(run: RunFolder, rng: random.Random) -> None:
    """The two newest snapshots and the recipe at once."""
    flip(run, rng)
    flip_in(rng.choice(sorted(sorted(run.snapshots.glob("step-*"))[-2].iterdir())), rng)
    recipe_flip(run, rng)


KINDS: list[Callable[[RunFolder, random.Random], None]] = [
    flip,
    zeros,
    cut,
    missing,
    missing_snapshot,
    stale_file,
    stale_snapshot,
    swapped_ranks,
    wrong_world_size,
    recipe_flip,
    recipe_cut,
    recipe_digit,
    several,
]


def verdict(run: RunFolder, whole: dict[int, str], recipe: Recipe) -> str:
    """What a resume would come to. A wrong one fails here."""
    good, passed_over = newest_good(run.snapshots)
    assert good is not None and good.step in whole
    assert content(good) == whole[good.step], "what is taken is as it was written, bit for bit"
    assert all(found.problem and found.step >= good.step for found in passed_over)
    for found in passed_over:
        with pytest.raises(CheckpointError, match=f"{found.path.name} is damaged"):
            load_new(found.path)
    if good.step < max(whole):
        gone = {step for step in whole if step > good.step} - {found.step for found in passed_over}
        assert all(not (run.snapshots / f"step-{step:08d}").exists() for step in gone), "none is passed over in silence"
    try:
        assert load_run_recipe(run) == recipe
    except TrainingKitError as error:
        assert error.next_step and (str(run.recipe) in str(error) or error.field)
        return f"recipe refused, step {good.step}"
    return f"step {good.step}, {len(passed_over)} passed over"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_corruption_goes_unnoticed(
    pristine: Path, whole: dict[int, str], tmp_path: Path, kind: Callable[[RunFolder, random.Random], None]
) -> None:
    recipe = load_run_recipe(RunFolder(pristine))
    found: list[str] = []
    for number in range(-(-CORRUPTIONS // len(KINDS))):
        run = RunFolder(shutil.copytree(pristine, tmp_path / str(number)))
        kind(run, random.Random(f"{kind.__name__}{number}"))
        found.append(verdict(run, whole, recipe))
        shutil.rmtree(run.root)
    harmless = f"step {max(whole)}, 0 passed over"
    if kind in (recipe_flip, recipe_digit):
        assert found.count(f"recipe refused, step {max(whole)}") > len(found) / 2, "but for flips in the seal's words"
    elif kind is not stale_file:
        assert harmless not in found, found


def test_a_changed_recipe_says_what_to_do(pristine: Path, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(pristine, tmp_path / "run"))
    run.recipe.write_text(run.recipe.read_text().replace("steps = 12", "steps = 13"))
    with pytest.raises(TrainingKitError, match="The recipe of this run is not as it was written") as caught:
        load_run_recipe(run)
    assert "delete its first line" in str(caught.value.next_step)
    run.recipe.write_text(run.recipe.read_text().split("\n", 1)[1])
    assert load_run_recipe(run).run.steps == 13


STEPS_KEPT = 9
"""With the steps of the journal: snapshots of 0, 4 and 8, and one step more."""


def journalled(context: Context, folder: str, steps: int) -> dict[int, dict[str, Any]]:
    """Train with a journal; the state by step in hashes, from the step on which it goes on.

    Model with buffers, optimizer, schedule, random numbers and place in the data change in every step.
    """
    seed_all(1)
    model = nn.Sequential(
        nn.Linear(FEATURES, 96), nn.BatchNorm1d(96), nn.Tanh(), nn.Dropout(0.2), nn.Linear(96, 96), nn.Linear(96, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)
    seed_all(2 + context.rank)
    settings = config(
        run={"steps": steps},
        snapshot={"every": 4, "keep": 3},
        sync={"codec": "all|int4(block=64)", "islands": "off"},
        journal={"steps": "squeezed"},
    )
    found: dict[int, dict[str, Any]] = {}
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings, rate=rate) as kit:
        found[kit.step_number] = state_of(kit, optimizer, rate)
        for batch in kit.batches(batches(20, rank=context.rank)):
            context.at_step(kit.step_number + 1)
            kit.step(loss_fn, batch)
            found[kit.step_number] = state_of(kit, optimizer, rate)
            if kit.step_number == STEPS_KEPT and kit.journal is not None:
                wait_for_writers(kit.journal._writer, kit._keeper._snapshots)
    return found


def wait_for_writers(journal: JournalWriter, snapshots: Snapshots) -> None:
    """Until all is on the disk: what comes back is known then, but for the damage."""
    with journal._change:
        journal._change.wait_for(lambda: journal._waiting == 0)
    snapshots.wait()


def spoil_journal(run: RunFolder, rng: random.Random) -> tuple[str, Path]:
    """Damage a segment of one rank's, or of both; how, and the first of them."""
    kinds = ["flip", "cut", "missing", "stale", "swapped", "both cut"]
    kind = rng.choice(kinds)
    segments = sorted((run.root / "journal").glob("rank-*/*.tkj"))
    path = rng.choice(segments)
    twin = path.parent.parent / f"rank-{1 - int(path.parent.name[5:])}" / path.name
    if kind == "flip":
        flip_in(path, rng)
    elif kind == "missing":
        path.unlink()
    elif kind == "stale":
        path.write_bytes(rng.choice(segments).read_bytes())
    elif kind == "swapped":
        path.rename(path.with_suffix(".x"))
        twin.rename(path)
        path.with_suffix(".x").rename(twin)
    else:
        for one in (path, twin) if kind == "both cut" else (path,):
            os.truncate(one, rng.randrange(one.stat().st_size))
    return kind, path


def must_come_back(run: RunFolder, kind: str, path: Path) -> int:
    """The step that a resume must begin with: the last after the newest snapshot that any of the two ranks' files
    holds, because each has both messages. A rank whose newest file was cut behind its opening looks as after a kill,
    so nobody goes on beyond its end.
    """
    base, _ = newest_good(run.snapshots)
    assert base is not None
    found = [scan(slot) for slot in slots(run.journal)]
    held = {entry.step for each in found for entry in each.entries}
    end = next(n for n in itertools.count(base.step) if n + 1 not in held)
    own = next((each for each in found if each.slot.path == path), None)
    if kind == "cut" and own is not None and own.slot.first_step == STEPS_KEPT and own.origin is not None:
        end = own.entries[-1].step if own.entries else STEPS_KEPT - 1
    return end


@pytest.fixture(scope="module")
def journals(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[int, dict[str, Any]]], Path]:
    """The states of an undisturbed run by rank and step, and the folder of one that was killed after step 9."""
    folder = tmp_path_factory.mktemp("journal")
    straight = pool.run(journalled, RANKS, str(folder / "straight"), STEPS_KEPT + 3)
    faults = [Fault(rank, STEPS_KEPT + 1, "kill") for rank in range(RANKS)]
    with pytest.raises(RankFailed):
        pool.run(journalled, RANKS, str(folder / "killed"), STEPS_KEPT + 3, faults=faults)
    return straight, folder / "killed"


@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.slow if n > 2 else ()) for n in range(24)])
def test_a_damaged_journal_never_leads_astray(
    pool: Pool, tmp_path: Path, journals: tuple[list[dict[int, dict[str, Any]]], Path], seed: int
) -> None:
    """A resume ends at the last step that is left of the journal, in the undisturbed run's state; but for the random
    numbers and the pass's order of a rank that is said to have lost its records.
    """
    straight, killed = journals
    run = RunFolder(shutil.copytree(killed, tmp_path / "run"))
    if seed % 2:  # so that the segment before the newest counts, too
        shutil.rmtree(max(run.snapshots.glob("step-*")))
    kind, path = spoil_journal(run, random.Random(seed))
    expected = must_come_back(run, kind, path)
    resumed = pool.run(journalled, RANKS, str(run.root), STEPS_KEPT + 3)
    for rank in range(RANKS):
        first = min(resumed[rank])
        said = [text for _, event, text in events(run.root) if event == "replay"]
        lost = {"random", "passes"} if any(f"The records of rank {rank} are lost" in text for text in said) else set()
        for name, value in straight[rank][first].items():
            assert resumed[rank][first][name] == value or name in lost, f"{kind}: {name} of step {first}, rank {rank}"
        assert first == expected, f"{kind} of {path.parent.name}/{path.name}"

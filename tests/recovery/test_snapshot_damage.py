"""Damaged snapshots are noticed, named, and passed over; old ones go only when they are not needed."""

import os
import random
import shutil

import pytest
import torch

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery import Snapshots, find, layout, load, load_new, newest_good, retention

TENSORS = {"w": torch.arange(3000.0), "b": torch.arange(3000.0) + 1}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "snapshots"
    with Snapshots(folder, keep=5) as snapshots:
        for step in (1, 2):
            snapshots.save(step, {name: t + step for name, t in TENSORS.items()}, {"step": step}, wait=True)
    return folder


@pytest.fixture
def folder(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "snapshots")


def flip(path, rng):
    raw = bytearray(path.read_bytes())
    position = rng.randrange(len(raw) * 8)
    raw[position // 8] ^= 1 << position % 8
    path.write_bytes(raw)


def swap(path, rng):
    other = rng.choice(sorted(p for p in path.parent.iterdir() if p != path))
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def from_other_step(path, rng):
    shutil.copy(path.parent.parent / "step-00000001" / path.name, path)


def as_link(path, rng):
    moved = path.parent.parent / "elsewhere"
    path.rename(moved)
    path.symlink_to(moved)


DAMAGES = {
    "flipped bit": flip,
    "cut": lambda path, rng: os.truncate(path, rng.randrange(path.stat().st_size)),
    "grown": lambda path, rng: path.write_bytes(path.read_bytes() + b"\0"),
    "gone": lambda path, rng: path.unlink(),
    "swapped": swap,
    "of another step": from_other_step,
    "extra file": lambda path, rng: (path.parent / rng.choice(["x.safetensors", ".hidden"])).touch(),
    "extra folder": lambda path, rng: (path.parent / "sub").mkdir(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("seed", range(4))
def test_every_damage_is_noticed_and_the_one_before_is_used(folder, damage, seed):
    rng = random.Random(f"{damage}{seed}")
    newest = folder / "step-00000002"
    files = sorted(newest.iterdir())
    if damage == "of another step":
        files = [path for path in files if path.name != "shared.json"]
    DAMAGES[damage](rng.choice(files), rng)
    found, passed_over = newest_good(folder)
    assert found.step == 1
    assert [bad.step for bad in passed_over] == [2]
    assert passed_over[0].problem
    tensors = {name: torch.zeros_like(t) for name, t in TENSORS.items()}
    with pytest.raises(CheckpointError, match="step-00000002 is damaged"):
        load(newest, tensors)
    assert all(not tensor.any() for tensor in tensors.values())
    assert load_new(found.path)[0]["w"].equal(TENSORS["w"] + 1)


def test_a_file_that_is_a_link_is_no_regular_file(folder):
    as_link(folder / "step-00000002" / "rank-0.json", random.Random(0))
    assert find(folder)[0].problem == "rank-0.json is not a regular file"


def test_problems_say_what_was_found_and_expected(folder):
    newest = folder / "step-00000002"
    size = (newest / "rank-0.json").stat().st_size
    (newest / "rank-0.json").write_bytes(b"x")
    assert find(folder)[0].problem == f"rank-0.json has the wrong size: found 1 bytes, expected {size}"
    (newest / "rank-0.json").write_bytes(b"x" * size)
    assert "rank-0.json has changed: found CRC-32" in str(find(folder)[0].problem)
    (newest / "rank-0.json").unlink()
    assert find(folder)[0].problem == f"rank-0.json is missing, expected {size} bytes"
    (newest / "manifest.json").unlink()
    assert find(folder)[0].problem == "manifest.json: there is none, so the snapshot was not finished"


def test_a_renamed_snapshot_is_noticed(folder):
    (folder / "step-00000002").rename(folder / "step-00000009")
    assert find(folder)[0].problem == "manifest.json is of another snapshot: found step 2, expected 9"


def test_nothing_there(tmp_path):
    assert newest_good(tmp_path / "none") == (None, [])
    (tmp_path / "step-00000001").mkdir()
    found, passed_over = newest_good(tmp_path)
    assert found is None
    assert len(passed_over) == 1


def test_what_was_cut_short_is_reported_and_later_removed(folder):
    layout.begin(folder, 3)
    found, passed_over = newest_good(folder)
    assert (found.step, [bad.step for bad in passed_over]) == (2, [3])
    with Snapshots(folder, keep=2) as snapshots:
        snapshots.save(4, TENSORS, {}, wait=True)
    assert [(f.step, f.problem) for f in find(folder)] == [(4, None), (2, None)]
    assert len(list(folder.iterdir())) == 2


def test_a_set_aside_snapshot_still_counts(folder):
    (folder / "step-00000002").rename(layout.aside(folder, 2, "replaced"))
    assert newest_good(folder)[0].step == 2
    with Snapshots(folder, keep=2) as snapshots:
        snapshots.save(2, TENSORS, {"again": True}, wait=True)
    found = find(folder)
    assert [(f.step, f.path.name) for f in found] == [(2, "step-00000002"), (1, "step-00000001")]
    assert load_new(found[0].path)[1] == {"again": True}


@pytest.mark.parametrize("damaged", [True, False])
def test_the_same_step_again_replaces_the_snapshot(folder, damaged):
    if damaged:
        (folder / "step-00000002" / "rank-0.json").unlink()
    with Snapshots(folder, keep=2) as snapshots:
        snapshots.save(2, TENSORS, {"again": True}, wait=True)
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000001", "step-00000002"]
    assert load_new(newest_good(folder)[0].path)[1] == {"again": True}


def test_the_newest_stay_and_the_last_good_one_is_never_removed(tmp_path):
    with Snapshots(tmp_path, keep=2) as snapshots:
        for step in (5, 10, 15, 20):
            snapshots.save(step, {"w": torch.ones(2)}, {}, wait=True)
        assert [f.step for f in find(tmp_path)] == [20, 15]
        (tmp_path / "step-00000020" / "manifest.json").unlink()
        snapshots.save(17, {"w": torch.ones(2)}, {}, wait=True)
    assert [(f.step, f.problem is None) for f in find(tmp_path)] == [(20, False), (17, True), (15, True)]


def test_damaged_ones_below_the_newest_good_go_with_a_reason(folder):
    (folder / "step-00000001" / "rank-0.json").unlink()
    removed = retention.prune(folder, keep=5, just_written=2)
    assert [(r.step, r.reason.split(",")[0]) for r in removed] == [(1, "damaged: rank-0.json is missing")]


def test_going_back_keeps_what_was_just_written(folder):
    with Snapshots(folder, keep=1) as snapshots:
        snapshots.save(1, TENSORS, {"again": True}, wait=True)
    assert [f.step for f in find(folder)] == [2, 1]

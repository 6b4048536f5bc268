"""One process: what is saved comes back bit for bit, and failures are told at the next call."""

import resource
import subprocess
import threading

import pytest
import torch

from trainingkit.core.errors import CheckpointError, ConfigError
from trainingkit.recovery import Snapshots, diskspace, find, load, load_new, newest_good, read_shared


def same_bits(left, right):
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.contiguous().reshape(-1).view(torch.uint8).equal(right.contiguous().reshape(-1).view(torch.uint8))
    )


def every_kind():
    generator = torch.Generator().manual_seed(0)
    tied = torch.randn(3, 4, generator=generator)
    nan_with_payload = torch.tensor([0x7FC01234], dtype=torch.int32).view(torch.float32)
    return {
        "bf16": torch.randn(5, generator=generator).bfloat16(),
        "f32": torch.tensor([1.5, float("inf"), -0.0]),
        "f64": torch.randn(2, dtype=torch.float64, generator=generator),
        "nan": nan_with_payload,
        "i64": torch.tensor([2**62 + 1, -3]),
        "u8": torch.arange(7, dtype=torch.uint8),
        "flag": torch.tensor([True, False]),
        "scalar": torch.tensor(3.25),
        "empty": torch.empty(0),
        "empty rows": torch.empty(0, 3, dtype=torch.bfloat16),
        "tied": tied,
        "tied again": tied,
        "transposed": torch.randn(4, 3, generator=generator).t(),
        "channels last": torch.randn(2, 3, 2, 2, generator=generator).contiguous(memory_format=torch.channels_last),
        "slice": torch.arange(20.0)[3:15:4],
        "rank-0/own": torch.tensor([7]),
    }


@pytest.fixture
def snapshots(tmp_path):
    with Snapshots(tmp_path / "snapshots", keep=2) as opened:
        yield opened


def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path, snapshots):
    saved = every_kind()
    seconds = snapshots.save(3, saved, {"lr": 0.1, "betas": (0.9, 0.95)}, shared={"epoch": 2}, wait=True)
    assert seconds > 0
    found, passed_over = newest_good(tmp_path / "snapshots")
    assert (found.step, found.world_size, found.problem, passed_over) == (3, 1, None, [])
    new, state = load_new(found.path)
    assert state == {"lr": 0.1, "betas": (0.9, 0.95)}
    assert read_shared(found.path) == {"epoch": 2}
    assert set(new) == set(saved)
    assert all(same_bits(new[name], saved[name]) for name in saved)
    own = {name: torch.ones_like(tensor) for name, tensor in saved.items()}
    addresses = {name: tensor.data_ptr() for name, tensor in own.items()}
    load(found.path, own)
    assert all(same_bits(own[name], saved[name]) for name in saved)
    assert {name: tensor.data_ptr() for name, tensor in own.items()} == addresses


def test_nothing_is_pickled(tmp_path, snapshots):
    snapshots.save(1, every_kind(), {}, wait=True)
    names = {path.name for path in (tmp_path / "snapshots" / "step-00000001").iterdir()}
    assert names == {"manifest.json", "rank-0.json", "shared.json", "shard-00001-model-00001-of-00001.safetensors"}


def test_a_snapshot_without_tensors_is_one(tmp_path, snapshots):
    snapshots.save(1, {}, {"x": 1}, wait=True)
    assert load_new(newest_good(tmp_path / "snapshots")[0].path) == ({}, {"x": 1})


def test_the_copy_is_not_touched_by_later_updates(tmp_path, snapshots):
    weight, state = torch.zeros(200_000), {"order": [0]}
    for step in range(1, 4):
        weight.fill_(step)
        state["order"][0] = step
        snapshots.save(step, {"w": weight}, state)
        weight.fill_(-1)
        state["order"][0] = -1
    snapshots.wait()
    for found in find(tmp_path / "snapshots"):
        tensors, state_back = load_new(found.path)
        assert tensors["w"].unique().tolist() == [found.step]
        assert state_back == {"order": [found.step]}


def test_buffers_are_reused_and_follow_the_tensors(tmp_path, snapshots):
    for step, tensor in enumerate([torch.ones(3), torch.ones(5).bfloat16(), torch.tensor(2)], start=1):
        snapshots.save(step, {"t": tensor, f"only {step}": tensor}, {}, wait=True)
        tensors, _ = load_new(newest_good(tmp_path / "snapshots")[0].path)
        assert set(tensors) == {"t", f"only {step}"}
        assert same_bits(tensors["t"], tensor)


def test_only_a_part_can_be_read(tmp_path, snapshots):
    snapshots.save(1, {"model/w": torch.ones(2), "optim/w/step": torch.tensor(1.0)}, {}, wait=True)
    path = newest_good(tmp_path / "snapshots")[0].path
    assert set(load_new(path, only="model/")[0]) == {"model/w"}
    target = {"model/w": torch.zeros(2)}
    load(path, target, only="model/")
    assert target["model/w"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"a": torch.zeros(2), "c": torch.zeros(1)}, "missing: c; extra: b"),
        ({"a": torch.zeros(3), "b": torch.zeros(1)}, r"found:     \[2\] float32"),
        ({"a": torch.zeros(2, dtype=torch.bfloat16), "b": torch.zeros(1)}, r"expected:  \[2\] bfloat16"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_and_left_alone(tmp_path, snapshots, target, message):
    snapshots.save(1, {"a": torch.ones(2), "b": torch.ones(1)}, {}, wait=True)
    with pytest.raises(CheckpointError, match=message):
        load(newest_good(tmp_path / "snapshots")[0].path, target)
    assert all(not tensor.any() for tensor in target.values())


def test_state_without_json_form_is_refused_at_once(snapshots):
    with pytest.raises(CheckpointError, match=r"state\.sampler"):
        snapshots.save(1, {}, {"sampler": torch.zeros(1)})
    snapshots.wait()


@pytest.mark.parametrize("tensor", [torch.zeros(2).to_sparse(), torch.zeros(2, device="meta")])
def test_tensors_without_dense_data_are_refused(tmp_path, snapshots, tensor):
    with pytest.raises(CheckpointError, match="Only dense tensors"):
        snapshots.save(1, {"w": tensor}, {})
    assert find(tmp_path / "snapshots") == []


def test_names_of_other_ranks_are_refused(snapshots):
    with pytest.raises(CheckpointError, match="rank-1/x"):
        snapshots.save(1, {"rank-1/x": torch.zeros(1)}, {})


def test_keep_must_be_positive(tmp_path):
    with pytest.raises(ConfigError, match=r"snapshot\.keep"):
        Snapshots(tmp_path, keep=0)


def test_a_failure_is_told_at_the_next_call_and_then_saving_goes_on(tmp_path, snapshots):
    folder = tmp_path / "snapshots"
    snapshots.save(1, {"w": torch.ones(2)}, {}, wait=True)
    in_the_way = folder / ".step-00000002.partial"
    in_the_way.write_text("a file where a folder must go")
    snapshots.save(2, {"w": torch.ones(2)}, {})
    with pytest.raises(CheckpointError, match="could not be written"):
        snapshots.save(3, {"w": torch.ones(2)}, {})
    assert newest_good(folder)[0].step == 1
    in_the_way.unlink()
    snapshots.save(3, {"w": torch.ones(2)}, {}, wait=True)
    assert newest_good(folder)[0].step == 3
    assert not any(thread.name == "snapshot-writer" for thread in threading.enumerate())


def test_too_little_room_is_noticed_before_anything_is_written(tmp_path, snapshots):
    huge = diskspace.free_bytes(tmp_path) + 1
    with pytest.raises(CheckpointError, match="the disk is full") as caught:
        diskspace.require(tmp_path, huge)
    assert "free in" in caught.value.found
    assert "at least" in caught.value.expected
    assert "earlier snapshots are intact" in caught.value.next_step
    diskspace.require(tmp_path, 0)


def test_a_write_that_hits_a_limit_leaves_the_earlier_snapshot(tmp_path, snapshots):
    folder = tmp_path / "snapshots"
    snapshots.save(1, {"w": torch.ones(2)}, {}, wait=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="File too large"):
            snapshots.save(2, {"w": torch.ones(100_000)}, {}, wait=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in folder.iterdir()] == ["step-00000001"]
    assert newest_good(folder)[0].step == 1


@pytest.fixture
def small_disk(tmp_path):
    where = tmp_path / "disk"
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a filesystem of one megabyte cannot be mounted here")
    yield where
    subprocess.run(["umount", str(where)], check=True)


@pytest.mark.parametrize("seen_beforehand", [True, False])
def test_a_full_disk(small_disk, seen_beforehand, monkeypatch):
    if not seen_beforehand:
        monkeypatch.setattr(diskspace, "require", lambda folder, needed_bytes: None)
    with Snapshots(small_disk / "snapshots", keep=1) as snapshots:
        snapshots.save(1, {"w": torch.ones(100_000)}, {}, wait=True)
        with pytest.raises(CheckpointError, match="the disk is full") as caught:
            snapshots.save(2, {"w": torch.ones(200_000)}, {}, wait=True)
        assert caught.value.field == "snapshots"
        assert f"B free in {small_disk}" in caught.value.found
        assert ".partial" not in caught.value.found
        assert "800 kB" in caught.value.expected
        assert [path.name for path in (small_disk / "snapshots").iterdir()] == ["step-00000001"]
        snapshots.save(3, {"w": torch.ones(1000)}, {}, wait=True)
    assert newest_good(small_disk / "snapshots")[0].step == 3


def test_no_file_is_larger_than_a_tensor_must_be(tmp_path, monkeypatch):
    """Making a file's bytes holds Python's lock, so files are small."""
    monkeypatch.setattr("trainingkit.recovery.store.FILE_BYTES", 10_000)
    tensors = {f"t{i}": torch.full((1000,), float(i)) for i in range(7)} | {"large": torch.arange(20_000.0)}
    with Snapshots(tmp_path, keep=1) as snapshots:
        snapshots.save(1, tensors, {}, wait=True)
    sizes = sorted(path.stat().st_size for path in (tmp_path / "step-00000001").glob("*.safetensors"))
    assert len(sizes) >= 4 and sizes[-1] < 81_000 and sizes[-2] < 11_000
    back, _ = load_new(newest_good(tmp_path)[0].path)
    assert set(back) == set(tensors) and all(back[name].equal(values) for name, values in tensors.items())

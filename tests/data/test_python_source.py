import numpy as np
import pytest
import torch

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.section import choose
from trainingkit.data import SOURCES, Corpus

PROGRAM = """
import numpy as np, torch
from trainingkit.core.datainfo import DataInfo
from trainingkit.data import Corpus

class Squares(torch.utils.data.Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return {"x": torch.tensor([float(i)]), "y": i * i}

class Own:
    def __len__(self): return 3
    def sample(self, index): return {"input_ids": np.full(4, index)}

class Endless(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(())

def datasets(n=5): return Squares(n), Squares(2)
def lists(): return [{"input_ids": np.arange(6)}] * 4, [{"input_ids": np.arange(6)}]
def corpus(): return Corpus(Own(), Own(), DataInfo("mine", "custom", "00", "MIT", 3, 3))
def sources(): return Own(), Own()
def broken_corpus(): return Corpus(Endless(), Own(), DataInfo("mine", "custom", "00", "MIT", 3, 3))
def nothing(): return None
def single(): return [[1, 2, 3]]
def endless(): return Endless(), Endless()
def tuples(): return [(1, 2)], [(1, 2)]
def texts(): return [{"x": "no"}], [{"x": "no"}]
def empty(): return [], [{"x": 1}]
def raises(): raise ValueError("no luck")
def gradient(): return [{"x": torch.ones(1, requires_grad=True)}], [{"x": 1}]
number = 3
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("mine") / "my_own_data_source.py"
    path.write_text(PROGRAM)
    return str(path)


def open_data(program: str, name: str, **table) -> Corpus:
    return choose(SOURCES, {"kind": "python", "ref": f"{program}:{name}"} | table, field="data").open()


def test_torch_datasets_of_dicts(program: str) -> None:
    corpus = open_data(program, "datasets", args={"n": 7})
    assert (len(corpus.train), len(corpus.validation)) == (7, 2)
    sample = corpus.train.sample(3)
    assert sample["x"].dtype == np.float32 and sample["x"].tolist() == [3.0] and sample["y"] == 9
    assert corpus.info.task == "custom" and "not the content" in corpus.info.notes[0]
    assert corpus.info.sha256 != open_data(program, "datasets", args={"n": 8}).info.sha256


def test_lists_of_language_samples(program: str) -> None:
    info = open_data(program, "lists", vocab_size=11).info
    assert (info.task, info.vocab_size, info.seq_len, info.train_samples) == ("language", 11, 6, 4)


def test_sources_and_a_corpus_are_taken_as_they_are(program: str) -> None:
    assert open_data(program, "sources").train.sample(2)["input_ids"].tolist() == [2] * 4
    assert open_data(program, "corpus").info == DataInfo("mine", "custom", "00", "MIT", 3, 3)


def test_it_feeds_a_loader(program: str) -> None:
    from trainingkit.data.loader import Loader

    batch = next(Loader(open_data(program, "datasets").train, 5, seed=1, threads=0))
    assert sorted(batch["y"].tolist()) == [0, 1, 4, 9, 16] and batch["x"].dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("nothing", "NoneType"),
        ("single", "list of 1 items"),
        ("endless", "Endless without __len__"),
        ("broken_corpus", "Endless"),
        ("tuples", "train[0] is a tuple"),
        ("texts", "dtype <U2"),
        ("empty", "0 samples"),
        ("gradient", "requires grad"),
    ],
)
def test_what_is_no_data_is_explained(program: str, name: str, found: str) -> None:
    with pytest.raises(DataError) as caught:
        open_data(program, name)
    assert found in str(caught.value.found)
    assert "data.ref" in str(caught.value.field) and caught.value.expected and caught.value.next_step


def test_errors_of_the_function_keep_their_cause(program: str) -> None:
    with pytest.raises(DataError, match="raised ValueError: no luck") as caught:
        open_data(program, "raises")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(DataError, match="unexpected keyword argument 'm'"):
        open_data(program, "datasets", args={"m": 1})
    with pytest.raises(ConfigError, match="does not name a function"):
        open_data(program, "number")
    with pytest.raises(ConfigError, match="Did you mean 'corpus'"):
        open_data(program, "corpsu")

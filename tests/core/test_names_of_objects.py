"""`file.py:name` and `package.module:name`: the right object, or a message that says what to do."""

import random
import sys

import pytest

from trainingkit.core.errors import ConfigError
from trainingkit.core.pyref import load_ref


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_file_named_like_a_module_of_python_replaces_nothing(tmp_path):
    (tmp_path / "random.py").write_text("def value():\n    return 41\n")
    ref = f"{tmp_path / 'random.py'}:value"
    assert load_ref(ref, field="data.ref")() == 41
    assert load_ref(ref, field="data.ref") is load_ref(ref, field="data.ref")
    assert sys.modules["random"] is random


def test_two_files_of_one_name_are_two_modules(tmp_path):
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "twin_model.py").write_text(f"number = {number}\n")
    refs = [f"{tmp_path / str(number) / 'twin_model.py'}:number" for number in (1, 2)]
    assert [load_ref(ref, field="model.ref") for ref in (*refs, *refs)] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("module", "does not name a Python object"),
        ("math:sinn", "has no name 'sinn'"),
        ("no_such_module_here:f", "cannot be imported: ModuleNotFoundError"),
        ("no/such/file.py:f", "does not exist"),
    ],
)
def test_bad_references_are_explained(ref, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_ref(ref, field="model.ref")
    assert caught.value.field == "model.ref"
    assert caught.value.next_step


def test_a_file_that_raises_is_told_and_tried_again(tmp_path):
    path = tmp_path / "half_done.py"
    path.write_text("raise RuntimeError('not yet')\n")
    with pytest.raises(ConfigError, match="RuntimeError: not yet"):
        load_ref(f"{path}:f", field="model.ref")
    path.write_text("f = 1  # now it works\n")
    assert load_ref(f"{path}:f", field="model.ref") == 1

"""kind = "python": data from a function of the user's own."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.pyref import load_ref
from trainingkit.core.section import Section
from trainingkit.data.contract import Corpus, Source
from trainingkit.data.items import as_source, first_sample
from trainingkit.data.registry import SOURCES

EXPECTED = "a Corpus, or a pair (train, validation) of Sources, lists of dicts or map-style Datasets of dicts"
NOTE = "sha256 covers the reference, its arguments, the lengths and the samples' names and dtypes, not the content."


@SOURCES.register("python")
class PythonData(Section):
    """The function is called once per worker and must give every worker the same data."""

    ref: str = Field(min_length=1, description="package.module:function, or file.py:function")
    args: dict[str, Any] = Field(default={}, description="keyword arguments of the function")
    vocab_size: int | None = Field(default=None, ge=1, description="number of token ids, where samples are language")
    classes: int | None = Field(default=None, ge=1, description="number of labels, where samples are images")

    def open(self) -> Corpus:
        """Call the function and check what it gives.

        Raises:
            ConfigError: the reference does not name a function, or it does not take these arguments.
            DataError: it raised, or gave something else than data.
        """
        result = self._call()
        if isinstance(result, Corpus):
            first_sample(result.train, "train")
            first_sample(result.validation, "validation")
            return result
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise DataError(
                f"{self.ref} did not return data.",
                field="data.ref",
                found=f"{type(result).__name__}"
                + (f" of {len(result)} items" if isinstance(result, (tuple, list)) else ""),
                expected=EXPECTED,
                next_step="Return two collections whose items are dicts of arrays or tensors.",
            )
        train, validation = as_source(result[0], "train"), as_source(result[1], "validation")
        sample = first_sample(train, "train")
        first_sample(validation, "validation")
        return Corpus(train, validation, self._facts(train, validation, sample))

    def _call(self) -> Any:
        function = load_ref(self.ref, field="data.ref")
        if not callable(function):
            raise ConfigError(
                "This does not name a function.",
                field="data.ref",
                found=f"{self.ref} is a {type(function).__name__}",
                expected="a function",
                next_step="Name the function itself, without calling it.",
            )
        try:
            return function(**self.args)
        except DataError:
            raise
        except Exception as error:
            raise DataError(
                f"The function for the data raised {type(error).__name__}: {error}",
                field="data.ref",
                found=f"{self.ref} called with {self.args}",
                expected=EXPECTED,
                next_step="Call it by hand to see the whole traceback.",
            ) from error

    def _facts(self, train: Source, validation: Source, sample: dict[str, Any]) -> DataInfo:
        ids, pixels = sample.get("input_ids"), sample.get("pixel_values")
        layout = {name: str(value.dtype) for name, value in sorted(sample.items())}
        covered = json.dumps([self.ref, self.args, len(train), len(validation), layout], sort_keys=True, default=str)
        return DataInfo(
            self.ref,
            "language" if ids is not None else "images" if pixels is not None else "custom",
            hashlib.sha256(covered.encode()).hexdigest(),
            "not stated",
            len(train),
            len(validation),
            vocab_size=self.vocab_size,
            seq_len=ids.shape[-1] if ids is not None and ids.ndim else None,
            classes=self.classes,
            image_shape=pixels.shape if pixels is not None and pixels.ndim == 3 else None,
            notes=(NOTE,),
        )

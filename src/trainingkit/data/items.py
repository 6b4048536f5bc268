"""A user's own collection (a list of dicts, a map-style Dataset) as a Source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trainingkit.core.errors import DataError
from trainingkit.data.contract import Source


@dataclass(frozen=True, eq=False)
class Items:
    """`collection[i]` is a dict of numbers, arrays or CPU tensors."""

    collection: Any
    side: str

    def __len__(self) -> int:
        return len(self.collection)

    def sample(self, index: int) -> dict[str, np.ndarray]:
        """The item as NumPy arrays.

        Raises:
            DataError: the item is no dict, or holds something that is no number.
        """
        return _arrays(self.collection[index], f"{self.side}[{index}]")


def as_source(collection: Any, side: str) -> Source:
    """`collection` itself where it is a Source, else wrapped.

    Raises:
        DataError: it has no length or no access by index.
    """
    if isinstance(collection, Source):
        return collection
    missing = [name for name in ("__len__", "__getitem__") if not hasattr(collection, name)]
    if missing or isinstance(collection, (dict, str, bytes)):
        lacks = f" without {' and '.join(missing)}" if missing else ""
        raise _not_data(side, f"{type(collection).__name__}{lacks}", "a collection with a length and access by index")
    return Items(collection, side)


def first_sample(source: Source, side: str) -> dict[str, np.ndarray]:
    """Sample 0 of a user's source, checked.

    Raises:
        DataError: there is none, or it is no dict of arrays.
    """
    if not isinstance(source, Source):
        raise _not_data(side, type(source).__name__, "an object with __len__ and sample(index)")
    if not len(source):
        raise _not_data(side, "0 samples", "at least one sample")
    try:
        sample = source.sample(0)
    except DataError:
        raise
    except Exception as error:
        raise _not_data(side, f"sample 0 raised {type(error).__name__}: {error}", "a dict of arrays") from error
    return _arrays(sample, f"{side}[0]")


def _arrays(item: Any, name: str) -> dict[str, np.ndarray]:
    if not isinstance(item, dict) or not item or not all(isinstance(key, str) for key in item):
        found = f"{name} is a {type(item).__name__}" + (" that is empty or has other keys" * isinstance(item, dict))
        raise _not_data(name, found, "a dict with names as keys, for example input_ids and labels")
    return {key: _array(value, f"{name}[{key!r}]") for key, value in item.items()}


def _array(value: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise _not_data(name, f"{type(error).__name__}: {error}", "a number, an array or a CPU tensor") from error
    if array.dtype.kind not in "biuf":
        raise _not_data(name, f"{type(value).__name__} with dtype {array.dtype}", "integers, floats or booleans")
    return array


def _not_data(field: str, found: str, expected: str) -> DataError:
    return DataError(
        "The user's data cannot be used as samples.",
        field=f"data.ref: {field}",
        found=found,
        expected=expected,
        next_step="Change what the function named by data.ref returns.",
    )

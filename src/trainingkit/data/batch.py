"""Samples (NumPy) put together to batches (torch)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from trainingkit.core.errors import DataError, TrainingKitError
from trainingkit.data.contract import Source

Batch = dict[str, torch.Tensor]


def collate(samples: Sequence[dict[str, np.ndarray]]) -> Batch:
    """Stack samples along a new first dimension.

    Args:
        samples: at least one; all with the same names, and per name the same shape and dtype.

    Returns:
        name -> [len(samples), ...] in the samples' dtype; memory of its own.

    Raises:
        DataError: samples differ, or hold something that is no number.
    """
    first = samples[0]
    for other in samples[1:]:
        if _layout(other) != _layout(first):
            raise DataError(
                "Samples of one batch differ in layout.",
                field="data",
                found=_describe(other),
                expected=_describe(first),
                next_step="Pad, crop or resize samples to one shape, and give all of them the same names.",
            )
    return {name: _tensor(name, [sample[name] for sample in samples]) for name in first}


def gather(source: Source, indices: np.ndarray) -> Batch:
    """The batch of the samples `indices`. Errors of the source become a DataError that names the sample."""
    return collate([read_sample(source, int(index)) for index in indices])


def read_sample(source: Source, index: int) -> dict[str, np.ndarray]:
    """Sample `index` as arrays; what it raises becomes a DataError, with the original as its cause."""
    try:
        return {name: np.asarray(value) for name, value in source.sample(index).items()}
    except TrainingKitError:
        raise
    except Exception as error:
        raise DataError(
            f"Sample {index} cannot be read: {type(error).__name__}: {error}",
            field="data",
            found=f"{type(source).__name__}.sample({index}) raised",
            expected=f"a sample for every index below {len(source)}",
            next_step="Call it by hand to see the whole traceback; it is also in this rank's log.",
        ) from error


def _layout(sample: dict[str, np.ndarray]) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in sample.items()}


def _describe(sample: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{name}: {value.dtype}{list(value.shape)}" for name, value in sample.items())


def _tensor(name: str, values: list[np.ndarray]) -> torch.Tensor:
    stacked = np.stack(values)
    try:
        return torch.from_numpy(stacked)
    except TypeError as error:
        raise DataError(
            f"The values of {name!r} cannot become a tensor.",
            field="data",
            found=f"dtype {stacked.dtype}",
            expected="integers, floats or booleans",
            next_step="Turn text and objects into numbers in the data source.",
        ) from error

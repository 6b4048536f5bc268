"""Pictures as numbers: one array of pixels to the float layout that models take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainingkit.core.errors import ConfigError, DataError


@dataclass(frozen=True)
class Normaliser:
    """(pixel / 255 - mean) / std, per channel.

    Args:
        mean, std: one value for all channels, or one per channel; std above 0.

    Raises:
        ConfigError: the numbers do not fit the channels.
    """

    mean: Sequence[float]
    std: Sequence[float]
    channels: int

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels) or (name == "std" and min(values) <= 0):
                raise ConfigError(
                    "These numbers cannot normalise the images.",
                    field=f"data.{name}",
                    found=list(values),
                    expected=f"1 or {self.channels} numbers" + (" above 0" if name == "std" else ""),
                    next_step=f"Give one number for all channels, for example {name} = [0.5].",
                )

    def sample(self, pixels: np.ndarray, label: int) -> dict[str, np.ndarray]:
        """One sample.

        Args:
            pixels: [H, W] or [H, W, C] uint8.

        Returns:
            `pixel_values`: [C, H, W] float32; `labels`: [] int64.
        """
        planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        mean = np.array(self.mean, dtype=np.float32)[:, None, None]
        std = np.array(self.std, dtype=np.float32)[:, None, None]
        values = (planes.astype(np.float32) / np.float32(255) - mean) / std
        return {"pixel_values": np.ascontiguousarray(values), "labels": np.array(label, dtype=np.int64)}


def channels_of(picture: Any) -> int:
    """1 for a grey pillow image, 3 for any other."""
    return 1 if picture.mode in ("1", "L", "LA") else 3


def pixels_of(picture: Any, channels: int, *, size: tuple[int, int] | None = None) -> np.ndarray:
    """A pillow image as uint8: [H, W] for one channel, [H, W, 3] for three.

    Args:
        size: resize to this height and width.

    Raises:
        ValueError: more than 8 bits a channel, which pillow would clip.
    """
    if picture.mode[0] in "IF":
        raise ValueError(
            f"more than 8 bits a channel (mode {picture.mode!r}) would be clipped; scale it to 8 bits first"
        )
    converted = picture.convert("L" if channels == 1 else "RGB")
    return np.asarray(converted if size is None else converted.resize((size[1], size[0])))


def image_module() -> Any:
    """pillow's Image module.

    Raises:
        DataError: pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            "Reading image files needs pillow, which is not installed.",
            field="data.kind",
            found=str(error),
            expected="the package pillow",
            next_step="Run: pip install 'trainingkit[images]'",
        ) from error
    return Image

"""A small residual network on Fashion-MNIST: accuracy in points on the 10 000 test images.

Three residual blocks (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016) after a stem with stride 2,
with GroupNorm in place of BatchNorm, so that no statistics of batches, which workers would differ in, are part of the
model. Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017) is Debian's package `dataset-fashion-mnist`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from trainingkit.bench.frontier.packages import debian_folder
from trainingkit.bench.frontier.task import TASKS, Metric, Task
from trainingkit.data.batch import Batch
from trainingkit.data.digest import digest_files
from trainingkit.data.files import DataFile
from trainingkit.data.idx import find_idx, read_idx
from trainingkit.data.order import SampleOrder

PACKAGE, FOLDER = "dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist"
LICENCE = "MIT (Expat)"
CLASSES = 10
GROUPS = 8
EVAL_BATCH = 500
MEAN, STD = 0.286, 0.353
"""Of the training images' pixels, as shares of white."""


@TASKS.register("resnet")
class ResnetTask(Task):
    """Settings of the residual network."""

    title: ClassVar[str] = "ResNet on Fashion-MNIST"
    metric: ClassVar[Metric] = "accuracy"

    steps: int = Field(default=400, ge=1, description="steps of a run")
    batch_size: int = Field(default=32, ge=1, description="images of one worker in one step")
    lr: float = Field(default=4e-3, gt=0, description="peak learning rate of AdamW")
    muon_lr: float = Field(default=2e-2, gt=0, description="peak learning rate of Muon's matrices")
    warmup_steps: int = Field(default=20, ge=0, description="steps of linear warm-up")
    weight_decay: float = Field(default=0.05, ge=0, description="decay of matrices")
    width: int = Field(default=24, ge=GROUPS, multiple_of=GROUPS, description="channels of the first block")

    def open(self, cache: Path) -> ResnetJob:
        """The images, fetched with apt-get when the package is not installed.

        Raises:
            DataError: they are not here and cannot be fetched, or are damaged.
        """
        return ResnetJob(self, debian_folder(PACKAGE, FOLDER, cache))


class ResnetJob:
    """The network with its images."""

    def __init__(self, task: ResnetTask, folder: Path) -> None:
        self._task = task
        self._train = _side(folder, "train")
        self._test = _side(folder, "t10k")
        files = [DataFile(path.name, path, path.stat().st_size) for path in sorted(folder.glob("*-ubyte*"))]
        self.facts: dict[str, Any] = {
            "name": "Fashion-MNIST",
            "package": PACKAGE,
            "licence": LICENCE,
            "sha256": digest_files(files),
            "train_samples": len(self._train[1]),
            "test_samples": len(self._test[1]),
        }

    def build(self, seed: int) -> nn.Module:
        """The network, initialised from the seed."""
        torch.manual_seed(seed)
        return SmallResnet(self._task.width)

    def batch(self, number: int, seed: int) -> Batch:
        """`pixels`: [batch_size, 1, 28, 28] fp32, `labels`: [batch_size] int64."""
        size = self._task.batch_size
        rows = SampleOrder(len(self._train[1]), seed).indices(number * size, size)
        return _rows(self._train, rows)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy."""
        return F.cross_entropy(model(batch["pixels"]), batch["labels"])

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        """Accuracy in points over all test images."""
        right = 0
        for rows in np.array_split(np.arange(len(self._test[1])), -(-len(self._test[1]) // EVAL_BATCH)):
            batch = _rows(self._test, rows)
            right += int((model(batch["pixels"]).argmax(dim=1) == batch["labels"]).sum())
        return 100.0 * right / len(self._test[1])


class SmallResnet(nn.Module):
    """Stem, three residual blocks of `width`, 2 and 4 `width` channels, mean over places, linear head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 5, stride=2, padding=2, bias=False), nn.GroupNorm(GROUPS, width))
        self.blocks = nn.Sequential(
            _Block(width, width, 1), _Block(width, 2 * width, 2), _Block(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, CLASSES)

    def forward(self, pixels: Tensor) -> Tensor:
        """[n, 1, 28, 28] fp32 -> [n, 10] fp32 logits."""
        return self.head(self.blocks(F.relu(self.stem(pixels))).mean(dim=(2, 3)))


class _Block(nn.Module):
    """Two convolutions around a shortcut, which is a convolution of size 1 where the shape changes."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(into, out, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(GROUPS, out)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(GROUPS, out)
        changes = stride != 1 or into != out
        self.shortcut = nn.Conv2d(into, out, 1, stride=stride, bias=False) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """[n, into, h, w] -> [n, out, h / stride, w / stride]."""
        inner = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        return F.relu(inner + self.shortcut(x))


Side = tuple[np.ndarray, np.ndarray]


def _side(folder: Path, part: str) -> Side:
    """([n, 28, 28] uint8, [n] uint8) of "train" or "t10k"."""
    names = ((f"{part}-images-idx3-ubyte", 3), (f"{part}-labels-idx1-ubyte", 1))
    images, labels = (read_idx(find_idx(folder, name) or folder / name, dimensions) for name, dimensions in names)
    return images, labels


def _rows(side: Side, rows: np.ndarray) -> Batch:
    images, labels = side
    pixels = torch.from_numpy(images[rows]).unsqueeze(1).float().div_(255).sub_(MEAN).div_(STD)
    return {"pixels": pixels, "labels": torch.from_numpy(labels[rows].astype(np.int64))}

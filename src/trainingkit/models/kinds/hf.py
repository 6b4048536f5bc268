"""Any transformers model: a folder with config.json, and weights if the folder has them.

Nothing is downloaded and no code of the folder is run. The class follows the data's task: a causal language model
for tokens, an image classifier for images; `architecture` picks another class of transformers by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ModelError
from trainingkit.core.nearest import nearest
from trainingkit.models.registry import MODELS, ModelSection

if TYPE_CHECKING:
    from torch import nn

AUTO_CLASSES = {"language": "AutoModelForCausalLM", "images": "AutoModelForImageClassification"}
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


@MODELS.register("hf")
class HfSection(ModelSection):
    """Settings of a transformers model."""

    path: Path = Field(strict=False, description="folder with config.json")
    architecture: str | None = Field(default=None, description="class of transformers, for example BertForMaskedLM")
    from_scratch: bool = Field(default=False, description="ignore weights in the folder and initialise afresh")

    def build(self, info: DataInfo) -> nn.Module:
        """The model in fp32; with the folder's weights unless `from_scratch` or there are none."""
        import torch

        config = self._config(info)
        loader = self._class(info)
        has_weights = any((self.path / name).is_file() for name in WEIGHTS)
        try:
            if has_weights and not self.from_scratch:
                return loader.from_pretrained(self.path, config=config, local_files_only=True, dtype=torch.float32)
            make = loader.from_config if hasattr(loader, "from_config") else loader
            return make(config).float()
        except (ValueError, OSError, RuntimeError, ImportError, KeyError) as error:
            raise ModelError(
                f"transformers cannot build this model: {error}",
                field="model.path",
                found=str(self.path),
                next_step="Check config.json, or name the class with model.architecture.",
            ) from error

    def parameter_count(self, info: DataInfo) -> int | None:
        """Counted on the meta device, which allocates nothing."""
        import torch

        config, loader = self._config(info), self._class(info)
        with torch.device("meta"):
            model = (loader.from_config if hasattr(loader, "from_config") else loader)(config)
        return sum(p.numel() for p in model.parameters())

    def _config(self, info: DataInfo) -> Any:
        from transformers import AutoConfig

        if not (self.path / "config.json").is_file():
            raise ModelError(
                "The model folder has no config.json.",
                field="model.path",
                found=str(self.path),
                expected="a folder that transformers' save_pretrained made",
            )
        try:
            config = AutoConfig.from_pretrained(self.path, local_files_only=True)
        except (ValueError, OSError, KeyError) as error:
            raise ModelError(
                f"config.json cannot be used: {error}", field="model.path", found=str(self.path)
            ) from error
        if hasattr(config, "use_cache"):
            config.use_cache = False
        if info.classes is not None:
            config.num_labels = info.classes
        vocab = getattr(config, "vocab_size", None)
        if info.vocab_size is not None and vocab is not None and vocab < info.vocab_size:
            raise ModelError(
                "The model's vocabulary is smaller than the data's.",
                field="model.path",
                found=f"{vocab} tokens in config.json, {info.vocab_size} in the data",
                expected="a model for these tokens",
                next_step="Build the data with this model's tokenizer: trainingkit data build --tokenizer FOLDER.",
            )
        return config

    def _class(self, info: DataInfo) -> Any:
        import transformers

        name = self.architecture or AUTO_CLASSES.get(info.task)
        if name is None:
            raise ModelError(
                "It is not clear which transformers class fits these data.",
                field="model.architecture",
                found=f"data with task {info.task!r}",
                expected="the name of a transformers class",
            )
        if not hasattr(transformers, name):
            close = nearest(name, dir(transformers))
            raise ModelError(
                f"transformers has no class {name!r}.",
                field="model.architecture",
                found=repr(name),
                expected="a model class, for example LlamaForCausalLM",
                next_step=f"Did you mean {close!r}?" if close else None,
            )
        return getattr(transformers, name)

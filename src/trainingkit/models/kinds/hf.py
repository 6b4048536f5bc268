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
from trainingkit.core.logging import LOG
from trainingkit.core.nearest import nearest
from trainingkit.models.registry import MODELS, ModelSection

if TYPE_CHECKING:
    from torch import nn

AUTO_CLASSES = {"language": "AutoModelForCausalLM", "images": "AutoModelForImageClassification"}
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


@MODELS.register("hf")
class HfSection(ModelSection):
    """Settings of a transformers model."""

    path: Path = Field(strict=False, description="folder with config.json")
    architecture: str | None = Field(default=None, description="class of transformers, for example BertForMaskedLM")
    from_scratch: bool = Field(default=False, description="ignore weights in the folder and initialise afresh")

    def build(self, info: DataInfo) -> nn.Module:
        """The model in fp32; with the folder's weights unless `from_scratch` or there are none.

        Raises:
            ModelError: transformers cannot build it, or its weights would have to be unpickled.
        """
        config = self._config(info)
        loader = self._class(info)
        has_weights = not self.from_scratch and self._has_weights()
        try:
            return self._loaded(loader, config) if has_weights else _fresh(loader, config).float()
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
            model = _fresh(loader, config)
        return sum(p.numel() for p in model.parameters())

    def _has_weights(self) -> bool:
        if any((self.path / name).is_file() for name in WEIGHTS):
            return True
        pickled = next((name for name in PICKLED if (self.path / name).is_file()), None)
        if pickled is not None:
            raise ModelError(
                "The model's weights are pickled, and nothing is unpickled here.",
                field="model.path",
                found=str(self.path / pickled),
                expected="model.safetensors",
                next_step="Load and save it with transformers once, or set model.from_scratch = true to do without.",
            )
        return False

    def _loaded(self, loader: Any, config: Any) -> nn.Module:
        import torch

        model, told = loader.from_pretrained(
            self.path, config=config, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
        for what, names in (("are not in the folder and start afresh", "missing"), ("are not used", "unexpected")):
            if found := sorted(told[f"{names}_keys"]):
                LOG.warning("%s: %d tensors %s: %s", self.path, len(found), what, ", ".join(found[:5]))
        return model

    def _config(self, info: DataInfo) -> Any:
        from transformers import AutoConfig

        if not (self.path / "config.json").is_file():
            raise ModelError(
                "The model folder has no config.json.",
                field="model.path",
                found=str(self.path),
                expected="a folder that transformers' save_pretrained made",
                next_step="Check the path.",
            )
        try:
            config = AutoConfig.from_pretrained(self.path, local_files_only=True)
        except (ValueError, OSError, KeyError) as error:
            raise ModelError(
                f"config.json cannot be used: {error}",
                field="model.path",
                found=str(self.path),
                expected="a configuration that this version of transformers knows",
                next_step="Save the model again with transformers' save_pretrained.",
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
                next_step='Name it, for example model.architecture = "BertForMaskedLM".',
            )
        if not hasattr(transformers, name):
            close = nearest(name, dir(transformers))
            raise ModelError(
                f"transformers has no class {name!r}.",
                field="model.architecture",
                found=repr(name),
                expected="a model class, for example LlamaForCausalLM",
                next_step=f"Did you mean {close!r}?" if close else "Check the spelling.",
            )
        found = getattr(transformers, name)
        if not hasattr(found, "from_config") and not issubclass(found, transformers.PreTrainedModel):
            raise ModelError(
                f"{name} is not a model.",
                field="model.architecture",
                found=repr(name),
                expected="a model class, for example LlamaForCausalLM",
                next_step="Name the class that computes the loss.",
            )
        return found


def _fresh(loader: Any, config: Any) -> nn.Module:
    return (loader.from_config if hasattr(loader, "from_config") else loader)(config)

"""The user's own model: a function that is given the facts of the data and returns a torch module."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pydantic import Field

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ModelError
from trainingkit.core.pyref import load_ref
from trainingkit.models.registry import MODELS, ModelSection

if TYPE_CHECKING:
    from torch import nn


@MODELS.register("python")
class PythonSection(ModelSection):
    """Settings of a model from Python code."""

    ref: str = Field(description="'package.module:function' or 'file.py:function'")
    args: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the function")

    def build(self, info: DataInfo) -> nn.Module:
        """What the function returns. It may take `info`; its module returns the loss, or something with `.loss`."""
        from torch import nn

        function = load_ref(self.ref, field="model.ref")
        arguments = dict(self.args)
        try:
            signature = inspect.signature(function)
            if "info" in signature.parameters:
                arguments["info"] = info
            signature.bind(**arguments)
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"The model function cannot be called like this: {error}",
                field="model.args",
                found=repr(self.args),
                expected=f"the keyword arguments of {self.ref}",
                next_step="Change model.args, or the function.",
            ) from error
        module = function(**arguments)
        if not isinstance(module, nn.Module):
            raise ModelError(
                "The model function must return a torch module.",
                field="model.ref",
                found=type(module).__name__,
                expected="torch.nn.Module",
                next_step="Return the module itself.",
            )
        return module

    def parameter_count(self, info: DataInfo) -> int | None:
        """Not known before the function has run."""
        return None

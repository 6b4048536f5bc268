"""What a kernel implementation is, the registry of them, and the choice between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trainingkit.core.errors import ConfigError
from trainingkit.core.registry import Registry
from trainingkit.kernels.rowplan import RowPlan

if TYPE_CHECKING:
    from torch import Tensor


class Kernel(Protocol):
    """Encode and decode whole rows. All kernels give the same bytes and the same floats, bit for bit.

    Attributes:
        speed: rough speed against the others; "auto" takes the highest that can run.
    """

    speed: int

    @staticmethod
    def missing() -> str | None:
        """Why this kernel cannot run on this machine, or None."""
        ...

    @staticmethod
    def supports(plan: RowPlan) -> bool:
        """Whether this kernel knows the plan's selection, format and packing. Only asked when nothing is missing."""
        ...

    @staticmethod
    def encode(plan: RowPlan, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> bool:
        """Encode y = x + residual.

        Args:
            x: [rows * width] fp32, contiguous, CPU. Not modified.
            residual: like `x`, or None for zeros. Not modified.
            message: [rows * row_bytes] uint8, overwritten.
            new_residual: like `x`, overwritten with y minus what the message says; or None. It holds no meaning where
                y is not finite.

        Returns:
            Whether all of y is finite. What is not is sent as zero.
        """
        ...

    @staticmethod
    def decode(plan: RowPlan, message: Tensor, out: Tensor, weight: float, accumulate: bool) -> bool:
        """Decode: out = weight * values, or out += weight * values, in fp32, the product rounded before the sum.

        Args:
            message: [rows * row_bytes] uint8.
            out: [rows * width] fp32.

        Returns:
            Whether the message is sound. If not, `out` holds no meaning.
        """
        ...


INSTALL = "Run: pip install 'trainingkit[numba]', or choose 'auto'."

KERNELS: Registry[type[Kernel]] = Registry("kernel", "trainingkit.kernels")


def pick(name: str, plan: RowPlan) -> type[Kernel]:
    """The kernel called `name`; for "auto", the fastest that can run `plan` here.

    Raises:
        ConfigError: no such kernel, or it is asked for by name and cannot run `plan` here.
    """
    if name == "auto":
        able = [kernel for kernel in map(KERNELS.get, KERNELS.names()) if _obstacle(kernel, plan) is None]
        return max(able, key=lambda kernel: kernel.speed)
    kernel = KERNELS.get(name, field="kernel")
    obstacle = _obstacle(kernel, plan)
    if obstacle is not None:
        raise ConfigError(
            f"The {name} kernel cannot be used here: {obstacle}.",
            field="kernel",
            found=repr(name),
            expected="a kernel that is installed and knows the codec, or 'auto'",
            next_step=INSTALL if "installed" in obstacle else "Choose 'auto'.",
        )
    return kernel


def _obstacle(kernel: type[Kernel], plan: RowPlan) -> str | None:
    reason = kernel.missing()
    if reason is None and not kernel.supports(plan):
        reason = f"it has no form of {plan.selection}, {plan.bits}-bit {plan.format}"
    return reason

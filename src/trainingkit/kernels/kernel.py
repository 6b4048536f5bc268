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
        speed: rough speed against the others on the same device; "auto" takes the highest that can run.
    """

    speed: int

    @staticmethod
    def missing() -> str | None:
        """Why this kernel cannot run on this machine, or None."""
        ...

    @staticmethod
    def devices() -> tuple[str, ...]:
        """Types of device whose tensors this kernel takes, for example ("cpu",)."""
        ...

    @staticmethod
    def supports(plan: RowPlan) -> bool:
        """Whether this kernel knows the plan's selection, format and packing. Only asked when nothing is missing."""
        ...

    @staticmethod
    def encode(plan: RowPlan, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> bool:
        """Encode y = x + residual.

        Args:
            x: [rows * width] fp32, contiguous, on one of `devices`, as all tensors here. Not modified.
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


KERNELS: Registry[type[Kernel]] = Registry("kernel", "trainingkit.kernels")


def pick(name: str, plan: RowPlan, device: str | None = None) -> type[Kernel]:
    """The kernel called `name`; for "auto", the fastest that can run `plan` here.

    Args:
        device: type of the tensors' device; None: by name any, for "auto" the CPU.

    Raises:
        ConfigError: no such kernel, it is asked for by name and cannot run `plan` here, or none can on this device.
    """
    if name == "auto":
        return _fastest(plan, device or "cpu")
    kernel = KERNELS.get(name, field="kernel")
    obstacle = _obstacle(kernel, plan, device)
    if obstacle is not None:
        raise ConfigError(
            f"The {name} kernel cannot be used here: {obstacle}.",
            field="kernel",
            found=repr(name),
            expected="a kernel that is installed and knows the codec, or 'auto'",
            next_step=_install(name) if "installed" in obstacle else "Choose 'auto'.",
        )
    return kernel


def _fastest(plan: RowPlan, device: str) -> type[Kernel]:
    obstacles = {name: _obstacle(KERNELS.get(name), plan, device) for name in KERNELS.names()}
    able = [KERNELS.get(name) for name, obstacle in obstacles.items() if obstacle is None]
    if able:
        return max(able, key=lambda kernel: kernel.speed)
    raise ConfigError(
        f"No kernel can encode tensors on {device} here.",
        field="kernel",
        found=", ".join(f"{name}: {obstacle}" for name, obstacle in obstacles.items()),
        expected=f"a kernel for {device}",
        next_step="Pass tensors on cpu, or choose another codec.",
    )


def _obstacle(kernel: type[Kernel], plan: RowPlan, device: str | None) -> str | None:
    if device is not None and device not in kernel.devices():
        return f"it takes tensors on {' and '.join(kernel.devices())}, not on {device}"
    reason = kernel.missing()
    if reason is None and not kernel.supports(plan):
        reason = f"it has no form of {plan.selection}, {plan.bits}-bit {plan.format}"
    return reason


def _install(name: str) -> str:
    return f"Run: pip install 'trainingkit[{name}]', or choose 'auto'."

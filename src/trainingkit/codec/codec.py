"""A codec at work: values and residual to message and new residual, and back. It holds no state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainingkit.codec import size
from trainingkit.codec.layout import row_plan, runs
from trainingkit.codec.spec import Spec, parse
from trainingkit.core.errors import ConfigError, StepError
from trainingkit.kernels import Kernel, pick, warm

if TYPE_CHECKING:
    from torch import Tensor


class Codec:
    """Encode and decode by one spec.

    For every finite y = x + residual (summed in fp32): decoded + new_residual == y, exactly (the sign of a zero aside).
    Of a quantiser that is not `exact`, new_residual is y - decoded rounded to fp32: by at most 2**-24 of itself.

    Args:
        spec: for example "all|int4(block=64)".
        kernel: "auto", or the name of one of `trainingkit.kernels.KERNELS`. All give the same bits.

    Raises:
        ConfigError: the spec cannot be read, or the kernel cannot be used here.
    """

    def __init__(self, spec: str | Spec, *, kernel: str = "auto") -> None:
        self.spec = parse(spec)
        self.granule = size.granule(self.spec)
        self._sample = row_plan(self.spec, self.spec.selection.rows(self.granule)[0])
        self._kernel_name = kernel
        pick(kernel, self._sample)
        self._kernels: dict[str, type[Kernel]] = {}

    def message_bytes(self, n: int) -> int:
        """Exact bytes of the message of `n` values."""
        return size.message_bytes(self.spec, n)

    def byte_offset(self, start: int) -> int:
        """Where the values from `start` on begin in any longer message: an owner's slice is a range of bytes.

        Raises:
            ConfigError: `start` is not a multiple of `granule`.
        """
        if start % self.granule:
            raise ConfigError(
                "A message cannot be cut here.",
                field="start",
                found=start,
                expected=f"a multiple of {self.granule} values for {self.spec}",
                next_step="Cut at a multiple of `granule`.",
            )
        return self.message_bytes(start)

    def encode(self, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> bool:
        """Write the message of y = x + residual, and beside the old residual the new one: y minus what was said.

        Args:
            x: [n] fp32, contiguous, on a device that a kernel takes; all others on the same. Not modified.
            residual: [n] fp32, or None for zeros. Not modified, so that a step can be aborted.
            message: [message_bytes(n)] uint8, overwritten.
            new_residual: [n] fp32, overwritten; other memory than `x` and `residual`. None drops it.

        Returns:
            Whether all of y is finite. If not, the message is whole and deterministic, with zeros for what is not
            finite, and the step should be aborted: the new residual holds no meaning.

        Raises:
            ConfigError: a tensor of another dtype, size, layout or device, or memory that must not be shared.
        """
        n = x.numel()
        kernel, device = self._kernel_on(x), str(x.device)
        _expect("x", x, n, "float32", device)
        _expect("message", message, self.message_bytes(n), "uint8", device)
        for name, tensor in (("residual", residual), ("new_residual", new_residual)):
            if tensor is not None:
                _expect(name, tensor, n, "float32", device)
        _expect_apart(new_residual, x, residual)
        finite = True
        for run in runs(self.spec, n):
            part = slice(run.start, run.stop)
            old, new = (None if tensor is None else tensor[part] for tensor in (residual, new_residual))
            finite &= kernel.encode(run.plan, x[part], old, message[run.first_byte : run.end_byte], new)
        return finite

    def decode(self, message: Tensor, out: Tensor, *, weight: float = 1.0, accumulate: bool = False) -> None:
        """Write what a message says: out = weight * values, or out += weight * values.

        The product and the sum are each rounded to fp32. Accumulating a sparse message touches the sent values only.

        Args:
            message: [message_bytes(n)] uint8. Not modified.
            out: [n] fp32, contiguous, on the message's device.
            weight: rounded to fp32.

        Raises:
            ConfigError: a tensor of another dtype, size, layout or device.
            StepError: the message's indices do not ascend or leave their chunk; `out` holds no meaning then.
        """
        n = out.numel()
        kernel, device = self._kernel_on(out), str(out.device)
        _expect("out", out, n, "float32", device)
        _expect("message", message, self.message_bytes(n), "uint8", device)
        for run in runs(self.spec, n):
            code = message[run.first_byte : run.end_byte]
            if not kernel.decode(run.plan, code, out[run.start : run.stop], weight, accumulate):
                raise StepError(
                    "A message is damaged: its indices do not ascend, or leave their chunk.",
                    field="message",
                    found=f"bytes {run.first_byte} to {run.end_byte}",
                    expected=f"a message of {self.spec}",
                    next_step="Check that all ranks run the same version and codec; the step must not be used.",
                )

    def _kernel_on(self, tensor: Tensor) -> type[Kernel]:
        kind = tensor.device.type
        if kind not in self._kernels:
            self._kernels[kind] = pick(self._kernel_name, self._sample, kind)
        return self._kernels[kind]

    def warm(self) -> None:
        """Compile what will be used. Rank 0 does it first; the others then load it from the disk cache."""
        warm(self._kernel_name, self._sample)


def _expect(name: str, tensor: Tensor, n: int, dtype: str, device: str) -> None:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind == dtype and tensor.shape == (n,) and tensor.is_contiguous() and str(tensor.device) == device:
        return
    layout = "contiguous" if tensor.is_contiguous() else "strided"
    raise ConfigError(
        "The codec cannot use this tensor.",
        field=name,
        found=f"{list(tensor.shape)} {kind}, {layout}, on {tensor.device}",
        expected=f"[{n}] {dtype}, contiguous, on {device}",
        next_step="Pass a flat, contiguous tensor of this kind.",
    )


def _expect_apart(new_residual: Tensor | None, x: Tensor, residual: Tensor | None) -> None:
    if new_residual is None or not new_residual.numel():
        return
    for name, tensor in (("x", x), ("residual", residual)):
        if tensor is not None and _overlap(tensor, new_residual):
            raise ConfigError(
                "The new residual needs memory of its own, so that the step can be aborted.",
                field="new_residual",
                found=f"the memory of {name}",
                expected="a second buffer",
                next_step="Keep two buffers and swap them on commit.",
            )


def _overlap(one: Tensor, other: Tensor) -> bool:
    start, start_other = one.data_ptr(), other.data_ptr()
    return start < start_other + 4 * other.numel() and start_other < start + 4 * one.numel()

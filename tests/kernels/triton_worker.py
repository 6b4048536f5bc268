"""A process of its own for the Triton kernels: whether Triton interprets is settled when it is first imported, and
PyTorch may have imported it long before a test runs. With a CUDA device the same functions run on it.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from trainingkit.codec import Codec
from trainingkit.kernels import KERNELS, RowPlan, pick


class Outcome(NamedTuple):
    """All that a kernel says about one encode and two decodes, as bytes."""

    finite: bool
    sound: bool
    message: bytes
    new_residual: bytes
    weighted: bytes
    summed: bytes


def start(**environment: str) -> ProcessPoolExecutor:
    """One worker with these variables in its environment."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=spawn, initializer=_prepare, initargs=(environment,))


def interpreting() -> dict[str, str]:
    """What makes Triton interpret, where there is no device to run on."""
    return {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}


def _prepare(environment: dict[str, str]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)


def round_trip(
    kernel: str, plan: RowPlan, x: np.ndarray, residual: np.ndarray | None, base: np.ndarray, weight: float
) -> Outcome:
    """Encode `x` and `residual`, decode the message with the weight into new memory, and onto `base`."""
    chosen = KERNELS.get(kernel)
    given, old, summed = (_tensor(array, chosen) for array in (x, residual, base))
    n_rows = given.numel() // plan.width
    message = torch.full((n_rows * plan.row_bytes,), 0xA5, dtype=torch.uint8, device=given.device)
    new_residual, weighted = torch.full_like(given, 3.0), torch.full_like(given, -5.0)
    finite = chosen.encode(plan, given, old, message, new_residual)
    sound = chosen.decode(plan, message, weighted, weight, False)
    sound &= chosen.decode(plan, message, summed, weight, True)
    return Outcome(finite, sound, *(_bytes(part) for part in (message, new_residual, weighted, summed)))


def without_new_residual(kernel: str, plan: RowPlan, x: np.ndarray) -> bytes:
    """The message when the residual is dropped."""
    chosen = KERNELS.get(kernel)
    given = _tensor(x, chosen)
    message = torch.zeros(given.numel() // plan.width * plan.row_bytes, dtype=torch.uint8, device=given.device)
    assert chosen.encode(plan, given, None, message, None)
    return _bytes(message)


def decoded(kernel: str, plan: RowPlan, message: np.ndarray, accumulate: bool) -> tuple[bool, bytes, bool]:
    """Whether the message is sound, its values, and whether nothing around their memory was touched."""
    chosen = KERNELS.get(kernel)
    code = torch.from_numpy(message.copy()).to(chosen.devices()[0])
    n = code.numel() // plan.row_bytes * plan.width
    room = torch.full((3 * n,), 4.0, device=code.device)
    sound = chosen.decode(plan, code, room[n : 2 * n], 0.75, accumulate)
    around = torch.cat([room[:n], room[2 * n :]])
    return sound, _bytes(room[n : 2 * n]), bool((around == 4.0).all())


def by_codec(kernel: str, spec: str, x: np.ndarray) -> tuple[bytes, bytes]:
    """Message and values, through the public codec."""
    codec, device = Codec(spec, kernel=kernel), KERNELS.get(kernel).devices()[0]
    given = torch.from_numpy(x.copy()).to(device)
    message = torch.zeros(codec.message_bytes(len(x)), dtype=torch.uint8, device=device)
    out = torch.empty_like(given)
    assert codec.encode(given, None, message, None)
    codec.decode(message, out)
    return _bytes(message), _bytes(out)


def supports(plan: RowPlan) -> bool:
    """What the Triton kernel says about a plan."""
    return KERNELS.get("triton").supports(plan)


def chosen_by_auto(plan: RowPlan, device: str) -> str:
    """The name of the kernel that "auto" takes."""
    chosen = pick("auto", plan, device)
    return next(name for name in KERNELS.names() if KERNELS.get(name) is chosen)


def assembly(plan: RowPlan, capability: int) -> dict[str, str]:
    """PTX of the kernels of a plan by name, compiled for a GPU that need not be there."""
    from trainingkit.kernels.triton_forms.selections import SELECTIONS, all, topk

    found: dict[str, str] = {}

    def compile_instead(kernel: Any, grid: tuple[int, ...], tile: int, *arguments: Any, **constants: Any) -> None:
        found[kernel.__name__] = _ptx(kernel, arguments, constants, capability, tile)

    all.launch = topk.launch = compile_instead
    entry, x = SELECTIONS.get(plan.selection), torch.zeros(2 * plan.width)
    message = torch.zeros(2 * plan.row_bytes, dtype=torch.uint8)
    entry.encode(plan, x, x, message, x.clone())
    entry.decode(plan, message, x, 0.5, True)
    return found


def _ptx(kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any], capability: int, tile: int) -> str:
    """Compile as a launch would, which makes a constant of an integer that is 1."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from trainingkit.kernels.triton_forms.options import options_for

    types = {torch.float32: "*fp32", torch.uint8: "*u8", torch.int32: "*i32"}
    signature, fixed = {}, dict(constants)
    for name, value in zip(kernel.arg_names, arguments, strict=False):
        if isinstance(value, torch.Tensor):
            signature[name] = types[value.dtype]
        elif isinstance(value, int) and value == 1:
            fixed[name] = 1
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    signature |= dict.fromkeys(fixed, "constexpr")
    source = ASTSource(fn=kernel, signature=signature, constexprs=fixed)
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options=options_for(tile)).asm["ptx"]


def _tensor(array: np.ndarray | None, kernel: Any) -> Any:
    return None if array is None else torch.from_numpy(array.copy()).to(kernel.devices()[0])


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()

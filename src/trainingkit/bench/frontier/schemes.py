"""All candidates of the frontier: which codings are compared, on the gradient and on the update, and presets.

An idea that loses keeps its row. How a row is made: a form (what one message says), two-sided feedback around it, and
what is put around that. `dense` is in `reference.py`.

A preset is after a published setting, with differences. All: four workers, short runs, exempt tensors in bf16. DGC:
AdamW in place of SGD with momentum; two densities of warm-up and 1.56 % at the end in place of 0.1 %. SparseLoCo,
MuLoCo and DGC: the owner codes the mean again, where the papers gather all messages. DiLoCo: an exchange every 20
steps in place of 500, and the outer step on carried tensors only. 1-bit Adam: the second moment is not frozen.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from trainingkit.bench.frontier.coder import Coder, Exact
from trainingkit.bench.frontier.coders import (
    FOUR,
    SIGN,
    TERNARY,
    TERNARY_MAX,
    AcpSGD,
    AdaptiveForm,
    Bf16,
    Centroids,
    FewLevels,
    Form,
    Fp8,
    Integers,
    Normalised,
    Outer,
    PackageForm,
    PowerSGD,
    RandomK,
    Rotated,
    TopK,
    TwoSided,
)
from trainingkit.bench.frontier.scheme import Scheme

DECODER = ("decoder",)
TWO = ("decoder", "resnet")

TERNARY_256, FOUR_256, SIGN_256 = (FewLevels(levels, 256) for levels in (TERNARY, FOUR, SIGN))
INT4 = Integers(4)
INT2 = "all|int2(block=256)"
ADAPTIVE_4, ADAPTIVE_3 = "all|int4(block=64)", "all|int3(block=64)"
DGC_DENSITIES = ((0.05, 0.25), (0.1, 0.0625))
"""Of DGC's warm-up, (share of the run, density); then 1.56 %."""


def outer(coder: partial[Coder], rate: float, momentum: float) -> Coder:
    """With an outer step on what is agreed."""
    return Outer(coder(), rate, momentum)


def gradient(name: str, label: str, form: Form, **more: Any) -> Scheme:
    """The form on the gradient."""
    return Scheme(name, label, "gradient", partial(TwoSided, form), **more)


def levelled(name: str, label: str, form: Form, **more: Any) -> Scheme:
    """The form on the gradient in units of the agreed second moment's root."""
    return Scheme(name, f"{label}, normalised", "gradient", partial(Normalised, form), **more)


def adaptive(around: type[TwoSided], spec: str) -> Coder:
    """Each tensor in its own codec, in no more bytes than `spec` takes for all."""
    return around(AdaptiveForm(spec))


def update(name: str, label: str, form: Form, every: int, *, decay: float = 1.0, **more: Any) -> Scheme:
    """The form on the update of `every` local steps."""
    coder = partial(TwoSided, form, decay=decay)
    return Scheme(name, f"{label}, update every {every}", "update", coder, every=every, decay=decay, **more)


def package(name: str, label: str, spec: str, **more: Any) -> Scheme:
    """A codec of the package on the gradient, by its real bytes."""
    return gradient(name, label, PackageForm(spec), in_package=True, spec=spec, **more)


GRADIENT = (
    package("bf16", "bf16", "all|bf16", tasks=DECODER),
    package("int8", "int8", "all|int8(block=64)", tasks=DECODER),
    package("int4", "int4", "all|int4(block=64)"),
    package("int2", "int2", INT2, tasks=TWO, revision=1),
    package("topk5-int4", "top 5 % int4", "topk(density=0.05, chunk=4096)|int4(block=64)", tasks=TWO),
    gradient("fp8", "fp8 e4m3", Fp8(), tasks=DECODER),
    gradient("int4-chance", "int4, stochastic", Integers(4, 64, stochastic=True), tasks=DECODER),
    gradient("int4-bf16res", "int4, residual in bf16", INT4, residual="bf16", tasks=DECODER, revision=1),
    gradient("int3", "int3", Integers(3), tasks=DECODER),
    gradient("ternary-max", "ternary of the maximum", FewLevels(TERNARY_MAX), tasks=TWO),
    gradient("ternary", "ternary", TERNARY_256, tasks=DECODER),
    gradient("hadamard-four", "four levels, rotated", Rotated(FOUR_256), tasks=DECODER),
    gradient("sign", "sign", SIGN_256, tasks=DECODER),
    gradient("blocks10-int4", "top 10 % of groups of 16, int4", TopK(0.1, INT4, 4096, 16), tasks=DECODER),
    gradient("random10-int8", "random 10 % int8", RandomK(0.1, Integers(8)), tasks=DECODER),
    Scheme("powersgd-1", "PowerSGD rank 1", "gradient", partial(PowerSGD, 1), preset=True, tasks=DECODER),
    Scheme("powersgd-4", "PowerSGD rank 4", "gradient", partial(PowerSGD, 4), preset=True),
    Scheme(
        "powersgd-16-int4", "PowerSGD rank 16, int4 factors", "gradient", partial(PowerSGD, 16, INT4), tasks=DECODER
    ),
    Scheme("acp-4", "ACP-SGD rank 4", "gradient", partial(AcpSGD, 4), preset=True, tasks=DECODER),
)

NORMALISED = (
    levelled("level-int4", "int4", INT4, tasks=DECODER),
    levelled("level-int3", "int3", Integers(3), tasks=DECODER),
    levelled("level-int2", "int2", PackageForm(INT2), in_package=True, spec=INT2, revision=1),
    levelled("level-four", "four levels", FOUR_256),
    levelled("level-four-64", "four levels in 64", FewLevels(FOUR, 64), tasks=DECODER),
    levelled("level-ternary", "ternary", TERNARY_256),
    levelled("level-ternary-64", "ternary in 64", FewLevels(TERNARY, 64), tasks=DECODER),
    levelled("level-sign", "sign", SIGN_256, tasks=DECODER),
    levelled("level-topk23-sign", "15 of 64, signs", TopK(15 / 64, SIGN_256, 64), tasks=DECODER),
)

ADAPTIVE = (
    Scheme(
        "adaptive-int4", "adaptive, in int4's bytes", "gradient", partial(adaptive, TwoSided, ADAPTIVE_4), tasks=TWO
    ),
    Scheme(
        "adaptive-int3", "adaptive, in int3's bytes", "gradient", partial(adaptive, TwoSided, ADAPTIVE_3), tasks=TWO
    ),
    Scheme(
        "level-adaptive-int3",
        "adaptive, in int3's bytes, normalised",
        "gradient",
        partial(adaptive, Normalised, ADAPTIVE_3),
        tasks=TWO,
    ),
)
"""Beside int4 and int3: does it help to give some tensors more bits and others fewer?"""

UPDATE = (
    update("u1-int4", "int4", INT4, 1, tasks=DECODER),
    update("u1-ternary", "ternary", TERNARY_256, 1, tasks=DECODER),
    update("u2-four", "four levels", FOUR_256, 2),
    update("u4-int4", "int4", INT4, 4),
    update("u8-int8", "int8", Integers(8), 8, tasks=TWO),
    update("u1-topk5-int4", "top 5 % int4", TopK(0.05, INT4), 1, tasks=TWO),
    update(
        "u1-topk2-four", "64 of 4096, two bits", TopK(1 / 64, Centroids()), 1, decay=0.99, tasks=DECODER, revision=1
    ),
    update("u1-sign", "sign", SIGN_256, 1, tasks=DECODER),
)

CORRECTED = (
    Scheme(
        "corrected-topk6-int4",
        "top 6.25 % int4, momentum on the workers",
        "gradient",
        partial(TwoSided, TopK(1 / 16, INT4)),
        warmup=((0.05, partial(TwoSided, TopK(0.25, INT4))),),
        momentum_correction=0.9,
    ),
)
"""DGC's momentum correction at a density that 1/20 of fp32's bytes leave room for."""

PRESETS = (
    Scheme(
        "loco",
        "LoCo: int4, decay 0.8, residual in int8",
        "gradient",
        partial(TwoSided, INT4, decay=0.8),
        decay=0.8,
        residual="int8",
        preset=True,
        tasks=DECODER,
        revision=1,
    ),
    Scheme(
        "dgc",
        "DGC: warm-up to 1.56 %, momentum correction",
        "gradient",
        partial(TwoSided, TopK(1 / 64, Bf16())),
        warmup=tuple((until, partial(TwoSided, TopK(density, Bf16()))) for until, density in DGC_DENSITIES),
        momentum_correction=0.9,
        preset=True,
        revision=1,
    ),
    Scheme(
        "onebit-adam",
        "1-bit-Adam-like: int4, then signs, normalised",
        "gradient",
        partial(Normalised, SIGN_256),
        warmup=((0.2, partial(Normalised, INT4)),),
        preset=True,
        tasks=DECODER,
        revision=1,
    ),
    Scheme(
        "diloco",
        "DiLoCo with an outer step on what is carried, every 20",
        "update",
        partial(outer, partial(Exact), 0.7, 0.9),
        every=20,
        preset=True,
        tasks=DECODER,
    ),
    Scheme(
        "sparseloco",
        "SparseLoCo, every 20",
        "update",
        partial(TwoSided, TopK(1 / 64, Centroids()), decay=0.95),
        every=20,
        decay=0.95,
        preset=True,
        revision=1,
    ),
    Scheme(
        "muloco",
        "MuLoCo, two bits, every 10",
        "update",
        partial(outer, partial(TwoSided, Centroids(), decay=0.9), 0.7, 0.6),
        optimizer="muon",
        every=10,
        decay=0.9,
        preset=True,
        tasks=DECODER,
        revision=1,
    ),
)

SCHEMES: tuple[Scheme, ...] = (*GRADIENT, *NORMALISED, *ADAPTIVE, *UPDATE, *CORRECTED, *PRESETS)
"""Every candidate, in the order of the tables. Names are unique."""

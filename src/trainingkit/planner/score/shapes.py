"""The model of a row: sizes from its columns; whether the MLP is gated, the head tied, and how many experts, from the
published parameter count."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from trainingkit.planner.models import ConvNet, Model, Transformer
from trainingkit.planner.models.presets import preset
from trainingkit.planner.score.rows import Row

CONV_NAMES = {"resnet-50": "resnet-50", "resnet-101": "resnet-101", "resnet-152": "resnet-152"}
OTHER_CONVS = {"resnext101-32x4d": "resnext-101"}


def model_of(row: Row) -> Model | str:
    """The model, or why there is none."""
    name = row.text("model").lower()
    for known, meant in {**CONV_NAMES, **OTHER_CONVS}.items():
        if name.startswith(known):
            found = preset(meant)
            assert isinstance(found, ConvNet)
            return found
    sizes = {column: row.whole(column) for column in ("layers", "hidden", "ffn_hidden", "heads")}
    missing = [column for column, value in sizes.items() if not value]
    if missing:
        return "no shape: " + ", ".join(missing)
    if name.startswith("vit"):
        return _vision(row)
    return _experts(row) if row.number("params_active_b") else _dense(row)


def _base(row: Row, **more: object) -> Transformer:
    heads, hidden = row.whole("heads") or 1, row.whole("hidden") or 1
    values: dict[str, object] = {
        "name": row.text("model"),
        "family": "encoder" if row.text("model").lower().startswith("bert") else "decoder",
        "layers": row.whole("layers"),
        "hidden": hidden,
        "ffn": row.whole("ffn_hidden"),
        "heads": heads,
        "kv_heads": row.whole("kv_heads") or heads,
        "vocab": row.whole("vocab") or 51200,
        "seq": row.whole("seq_len") or 2048,
    }
    return Transformer(**{**values, **more})  # type: ignore[arg-type]


def _dense(row: Row) -> Transformer:
    """The one of four readings whose parameters are nearest to the published count."""
    choices = [
        _base(row, gated=g, rms=g, bias=not g, dropout=not g, tied=t) for g, t in product((False, True), (True, False))
    ]
    told = row.number("params_b")
    if told is None:
        return choices[2] if "llama" in row.text("model").lower() else choices[0]
    return min(choices, key=lambda model: abs(model.params() / 1e9 - told))


def _vision(row: Row) -> Transformer:
    seq = row.whole("seq_len") or 197
    return _base(row, family="vit", vocab=1000, positions=seq, patch_values=768, bias=True)


def _experts(row: Row) -> Transformer:
    """Experts and those used per token, from all and active parameters."""
    latent = (
        {"q_rank": 1536, "kv_rank": 512, "rope_dim": 64, "head_dim": 128, "expert_islands": 4}
        if not row.whole("kv_heads")
        else {}
    )
    head = {"head_dim": 128} if row.text("model").lower().startswith("qwen") else latent
    core = _base(row, gated=True, rms=True, **head)
    expert = core.layers * core.mlp_params(core.ffn)
    rest = core.params() - expert
    all_told, active = (1e9 * (row.number(column) or 0.0) for column in ("params_b", "params_active_b"))
    count = max(2, round((all_told - rest) / expert))
    used = max(1, round((active - rest) / expert))
    even = min((8, 16, 32, 64, 128, 256, 512), key=lambda n: abs(n - count))
    return replace(core, experts=even, experts_per_token=min(used, even))

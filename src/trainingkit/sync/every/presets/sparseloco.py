"""SparseLoCo: Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025, arXiv:2508.15706.

Every 30 steps the largest 1.56 % of each chunk of 4096 in 2 bits, embeddings included, a residual that decays by 0.95,
no outer momentum. Here: vectors in bf16; two bits are the ternary of `int2`, where the paper looks values up; owners
sum and select again unless `exchange=gather` is set.
"""

from trainingkit.sync.every.presets import PRESETS


@PRESETS.register("sparseloco")
def sparseloco() -> str:
    """The middle of the paper's densities, 1 to 3 %, that large runs used."""
    return "every(30, decay=0.95, embeddings=true)|topk(density=0.015625, chunk=4096)|int2"

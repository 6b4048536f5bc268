"""Local SGD: Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019, arXiv:1805.09767.

Every 8 steps the mean of the workers, in fp32; the paper leaves the number of steps open.
"""

from trainingkit.sync.every.presets import PRESETS


@PRESETS.register("local-sgd")
def local_sgd() -> str:
    """Plain averaging."""
    return "every(8)|none"

"""What does one worker say? A spec such as `topk(density=0.05, chunk=4096)|int4` is selection x quantiser x packing; a
`Codec` turns values and their residual into a message of a size known beforehand, and back. Residuals belong to the
caller. Specs and sizes need no torch; the loops are in `trainingkit.kernels`.
"""

from trainingkit.codec.codec import Codec
from trainingkit.codec.size import message_bytes
from trainingkit.codec.spec import Spec, parse

__all__ = ["Codec", "Spec", "message_bytes", "parse"]

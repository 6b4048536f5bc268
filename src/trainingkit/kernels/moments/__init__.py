"""How is the agreed second moment carried on? Two fused passes behind one registry: a torch reference that is the
oracle, and Numba. The same bits from both. Importing this imports neither.
"""

from trainingkit.kernels.moments.base import MOMENT_KERNELS, MomentKernel, fastest, warm

__all__ = ["MOMENT_KERNELS", "MomentKernel", "fastest", "warm"]

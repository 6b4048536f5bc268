"""How fast on this chip? Implementations of the codec's inner loops behind one registry: a torch reference that is
the oracle, Numba, and Triton for CUDA. The same bits from all; "auto" takes the fastest that can run. Importing this
imports none of them.
"""

from trainingkit.kernels.kernel import KERNELS, Kernel, pick
from trainingkit.kernels.rowplan import RowPlan
from trainingkit.kernels.warming import warm

__all__ = ["KERNELS", "Kernel", "RowPlan", "pick", "warm"]

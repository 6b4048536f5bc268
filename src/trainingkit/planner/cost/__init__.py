"""How long does a step take? Matrix products by shape, elementwise work by bytes, collectives by the links they cross.

`predict` puts them together for one job, cluster and layout.
"""

from trainingkit.planner.cost.step import StepTime, predict

__all__ = ["StepTime", "predict"]

"""Which layout is best? All legal ones, cut by sound bounds; the first K are exactly the K best of the cost model."""

from trainingkit.planner.search.plan import Plan
from trainingkit.planner.search.search import Found, search
from trainingkit.planner.search.space import Space, layouts

__all__ = ["Found", "Plan", "Space", "layouts", "search"]

"""Is it really faster? Contenders alternate inside one set of processes; ratios within a round, with bounds.

`stats` gives intervals, `paired` takes the turns, `result` is the JSON that all benches share; `network` and `codec`
are benches. The page and the table of a result are made by `trainingkit.report`.
"""

from trainingkit.bench.paired import Plan, Turns, measure
from trainingkit.bench.result import Check, Result, read, write
from trainingkit.bench.stats import Interval, median_interval

__all__ = ["Check", "Interval", "Plan", "Result", "Turns", "measure", "median_interval", "read", "write"]

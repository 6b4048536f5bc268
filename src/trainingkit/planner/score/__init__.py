"""How well does the planner predict? Scores a file of measured runs: step time, peak memory, choice of layout.

`score_file` reads, predicts with what the file does not say marginalised, and compares with the repeats' own spread, a
trivial baseline, and factors that are fitted on other rows.
"""

from trainingkit.planner.score.outcome import Score
from trainingkit.planner.score.scoring import score_file

__all__ = ["Score", "score_file"]

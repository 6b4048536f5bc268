"""Which layout is best? Models and clusters as numbers, a cost and RAM model, a search with reasons and error bars.

`plan` ranks layouts; `score.score_file` says how well it predicts measured runs. Never imports torch.
"""

from trainingkit.planner.asking import Answer, plan

__all__ = ["Answer", "plan"]

"""On what is trained: random-access sources, the endless order over them, and loaders that resume to the sample.

`Loader` and `eval_batches` give tensors and are imported from `trainingkit.data.loader` and
`trainingkit.data.evaluation`, so that this package alone does not import torch.
"""

from trainingkit.data.contract import Corpus, Source
from trainingkit.data.order import SampleOrder
from trainingkit.data.registry import SOURCES

__all__ = ["SOURCES", "Corpus", "SampleOrder", "Source"]

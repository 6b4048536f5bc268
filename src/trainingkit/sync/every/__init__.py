"""When do workers meet that train on their own? Every H steps: what they learned since the last agreed model travels.

Texts such as `every(30, decay=0.95)|topk(0.0156)|int2` and their presets need no torch; `every.door` builds from them.
"""

from trainingkit.sync.every.settings import Every
from trainingkit.sync.every.spec import EverySpec, parse_every, trains_apart

__all__ = ["Every", "EverySpec", "parse_every", "trains_apart"]

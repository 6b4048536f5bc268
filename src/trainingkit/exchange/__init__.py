"""How do messages become one result? Each rank encodes, owners sum in rank order, all ranks decode the same bytes.

Usable alone: a `Round` needs a codec and two Gloo groups, no model and no trainer.
"""

from trainingkit.exchange.registry import EXCHANGES as EXCHANGES
from trainingkit.exchange.registry import pick_exchange as pick_exchange

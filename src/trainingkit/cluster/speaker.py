"""Which rank of somebody else's launch speaks: the first that asks. The ranks share no parent of ours that could judge.

The store where the ranks meet counts who asked. It is that of torchrun's agents, which outlives a rank; without agents
rank 0 serves it, so it answers from the moment the ranks have met until rank 0 ends.
"""

from __future__ import annotations

import datetime

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from trainingkit.cluster.place import Place

ASK_S = 3.0


def is_first(place: Place, what: str) -> bool | None:
    """True for the first rank of this attempt that asks for `what`, False for all others, None where nobody answers."""
    if not (place.agent_store or dist.is_initialized()):
        return None
    try:
        store = TCPStore(
            place.master_addr,
            place.master_port,
            is_master=False,
            timeout=datetime.timedelta(seconds=ASK_S),
            wait_for_workers=False,
        )
        return PrefixStore(f"trainingkit/{place.attempt}", store).add(f"first/{what}", 1) == 1
    except RuntimeError:
        return None

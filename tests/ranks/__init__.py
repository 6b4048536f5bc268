"""How do several ranks behave together? A pool of Gloo workers, faults by (rank, step), the CLI as a process.

A test takes the fixture `pool` and calls `pool.run(function, world_size, ...)`; see docs/testing.md.
"""

from ranks.context import Context
from ranks.errors import DeadlineExpired, RankFailed, RankTestError
from ranks.faults import Fault, InjectedFault
from ranks.polling import until
from ranks.pool import Pool

__all__ = ["Context", "DeadlineExpired", "Fault", "InjectedFault", "Pool", "RankFailed", "RankTestError", "until"]

"""How often to take a snapshot: what one costs against what a failure would lose.

J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), equation 37,
which refines J. W. Young's sqrt(2 d M) (CACM 17, 1974): with d seconds that a snapshot costs training and M seconds
between failures,

    t = sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d     for d < 2M, else M
"""

from __future__ import annotations

import math

LEAST_S = 1e-3
"""What is measured or read from records counts at least as much: a clock may have been set back."""


def best_interval_s(cost_s: float, between_failures_s: float) -> float:
    """Seconds of training between two snapshots.

    Args:
        cost_s: seconds that one snapshot keeps training from going on.
        between_failures_s: mean seconds between two failures of the whole job.
            Either counts as a millisecond where it is less.
    """
    cost_s, between_failures_s = max(cost_s, LEAST_S), max(between_failures_s, LEAST_S)
    if cost_s >= 2.0 * between_failures_s:
        return between_failures_s
    share = cost_s / (2.0 * between_failures_s)
    return math.sqrt(2.0 * cost_s * between_failures_s) * (1.0 + math.sqrt(share) / 3.0 + share / 9.0) - cost_s


def between_failures_s(stated_s: float, trained_s: float, failures: int) -> float:
    """Mean seconds between failures: what was stated counts like one failure in that time, then what was seen.

    Args:
        trained_s: seconds that the run was trained so far.
        failures: how often it ended without having been asked to.
    """
    return (stated_s + trained_s) / (1 + failures)

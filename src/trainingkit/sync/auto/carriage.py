"""What does a byte on its way cost the processor? Two rungs that were measured tell, one of gradients and one apart.

    byte = ((measured_g - measured_a) - (forecast_g - forecast_a)) / (carried_g - carried_a), at least 0

with both forecasts at byte = 0: what the rung with more bytes takes longer than its codec and its wire explain is put
down to its bytes. No clock of this process shows it: the kernel moves packets in whatever process is running.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainingkit.sync.auto.forecast import Link, Load, Window, carried_bytes, forecast


@dataclass(frozen=True)
class Timed:
    """A rung that was measured.

    Args:
        step_s: seconds of its step.
    """

    load: Load
    step_s: float


def byte_seconds(window: Window, link: Link, gradients: Timed, apart: Timed) -> float:
    """Seconds of computing that a byte takes; 0 where the rung with more bytes is no longer than is forecast.

    Args:
        window: as one of the two showed it, with what its bytes took still in it; its `byte_s` does not matter.
        gradients: has more bytes a step than `apart`.
    """
    free = replace(window, byte_s=0.0)
    bytes_apart = carried_bytes(free, link, gradients.load) - carried_bytes(free, link, apart.load)
    told_s = forecast(free, link, gradients.load).step_s - forecast(free, link, apart.load).step_s
    unexplained_s = gradients.step_s - apart.step_s - told_s
    if bytes_apart <= 0 or unexplained_s <= 0 or window.shared <= 0:
        return 0.0
    return unexplained_s / (window.shared * bytes_apart)

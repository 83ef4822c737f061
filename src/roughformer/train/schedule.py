"""The learning rate as a function of the step: no state, so nothing to restore on resume."""

import math

__all__ = ["rate_factor"]

_RISE = {"onecycle": 0.3, "cosine": 0.05, "constant": 0.0}


def rate_factor(schedule: str, step: float, total: float) -> float:
    """Share of the highest rate at ``step`` of ``total``.

    onecycle: half a cosine from 1/25 up to 1 over 30 % of the steps, then half a cosine to 1e-4.
    cosine: a line up over 5 %, then half a cosine to 0. constant: 1.
    """
    if schedule == "constant":
        return 1.0
    rise = max(_RISE[schedule] * total, 1.0)
    if step < rise:
        if schedule == "cosine":
            return (step + 1) / (rise + 1)
        return 1.0 - (1.0 - 1 / 25) * 0.5 * (1 + math.cos(math.pi * step / rise))
    along = min((step - rise) / max(total - rise, 1.0), 1.0)
    low = 1e-4 if schedule == "onecycle" else 0.0
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * along))

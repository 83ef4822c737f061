"""A fixed-size memory of each channel on one side of a moment, computed in one pass.

The moment is the end of the past (a forecast) or the time asked for (an interpolation, where the
other side has a memory of its own). With ages a_i ≥ 0 of the observations x_i of a channel and
weights w_i = exp(-a_i / τ), a time scale τ remembers the level Σ w x / Σ w, the slope and the
deviation of the weighted observations, and how much it has seen, Σ w. Besides the time scales a
memory has the nearest observations themselves, the extremes, the mean and the count. All of it is
sums, extremes and a few last values, so its size does not grow with the length of a series.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

_RAW = 6  # nearest observations that are features themselves
_SHRINK = 0.05  # of slopes, in squared time scales: two observations at one time have none


class Memory(NamedTuple):
    """What is kept of one side of a batch of R moments, C channels, K time scales.

    Values are in the units that came in; those among the features are squashed by asinh.

    Attributes
    ----------
    features : Tensor (R, C, F)
        Zero for a channel that was not observed.
    levels : Tensor (R, C, K + 4)
        Nearest value, levels at the time scales, mean, maximum and minimum.
    slopes : Tensor (R, C, K)
        Change of the level over one time scale, towards the moment.
    spread : Tensor (R, C)
        Size of the values: what changes of this series may be measured by.
    seen : Tensor (R, C)
        Whether the channel was observed at all.
    recent : Tensor (R, C, N)
        The nearest observations, nearest first.
    ages : Tensor (R, C, N)
        Their ages; infinite where there are fewer than N.
    """

    features: Tensor
    levels: Tensor
    slopes: Tensor
    spread: Tensor
    seen: Tensor
    recent: Tensor
    ages: Tensor


def memory_feature_count(n_scales: int) -> int:
    """Number of features of a channel."""
    return 9 + 2 * (_RAW - 1) + 4 * n_scales


def remember(values: Tensor, ages: Tensor, scales: Tensor, n_recent: int) -> Memory:
    """Compute the memory of one side.

    Parameters
    ----------
    values : Tensor (R, L, C)
        Scaled values; NaN = not observed.
    ages : Tensor (R, L)
        Time between each point and the moment, in the unit of ``scales``; points with a negative
        or infinite age do not count.
    scales : Tensor (K,)
        Time scales.
    n_recent : int
        Number of observations to keep.

    Returns
    -------
    Memory
    """
    seen = ~values.isnan() & ((ages >= 0) & ages.isfinite()).unsqueeze(-1)
    old = torch.where(seen, ages.unsqueeze(-1), torch.inf)  # (R, L, C)
    size = max(n_recent, _RAW)
    missing = max(size - values.shape[1], 0)
    if missing:
        values = F.pad(values, (0, 0, 0, missing), value=torch.nan)
        seen, old = F.pad(seen, (0, 0, 0, missing)), F.pad(old, (0, 0, 0, missing), value=torch.inf)
        ages = F.pad(ages, (0, missing), value=torch.inf)
    # Equal ages cannot occur within a channel, so that the order is unique.
    nearest = old.transpose(1, 2).topk(size, dim=2, largest=False)
    near_ages = nearest.values
    known = near_ages.isfinite()
    observed = torch.where(seen, values, 0.0)
    recent = torch.where(known, observed.transpose(1, 2).gather(2, nearest.indices), 0.0)
    any_seen = known[..., 0]
    last = recent[..., 0]
    # Relative to the last value, so that deviations of large levels keep their digits.
    moved = torch.where(seen, observed - last.unsqueeze(1), 0.0)
    count = seen.sum(dim=1).to(moved)
    divisor = count.clamp(min=1)
    mean = moved.sum(dim=1) / divisor
    deviation = ((moved**2).sum(dim=1) / divisor - mean**2).clamp(min=0).sqrt()
    high = torch.where(seen, moved, -torch.inf).amax(dim=1).clamp(min=0)
    low = torch.where(seen, moved, torch.inf).amin(dim=1).clamp(max=0)
    mass, level, slope, around = _at_scales(moved, seen.to(moved), ages, scales)
    age = torch.where(known, near_ages, 0.0)
    features = torch.cat(
        [
            torch.stack(
                [
                    last.asinh(), high.asinh(), low.asinh(), mean.asinh(), deviation.asinh(),
                    count.log1p(), age[..., 0].log1p(), any_seen.to(moved), known[..., 1].to(moved),
                ],
                dim=-1,
            ),
            torch.where(known, recent - last.unsqueeze(-1), 0.0)[..., 1:_RAW].asinh(),
            (age - age[..., :1]).clamp(min=0)[..., 1:_RAW].log1p(),
            level.asinh(), slope.asinh(), around.asinh(), (mass + 0.01).log() / 3,
        ],
        dim=-1,
    )  # fmt: skip
    there = any_seen.unsqueeze(-1)
    levels = torch.cat(
        [torch.zeros_like(level[..., :1]), level, torch.stack([mean, high, low], dim=-1)], dim=-1
    )
    return Memory(
        features=torch.where(there, features, 0.0),
        levels=torch.where(there, levels + last.unsqueeze(-1), 0.0),
        slopes=torch.where(there, slope, 0.0),
        spread=torch.where(any_seen, last.abs() + deviation, 0.0),
        seen=any_seen,
        recent=recent[..., :n_recent],
        ages=near_ages[..., :n_recent],
    )


def _at_scales(
    moved: Tensor, seen: Tensor, ages: Tensor, scales: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mass, level, slope and deviation at each time scale, each ``(R, C, K)``."""
    there = ((ages >= 0) & ages.isfinite()).unsqueeze(-1)
    s = torch.where(there, -ages.unsqueeze(-1) / scales, 0.0)  # (R, L, K)
    w = torch.where(there, s.exp(), 0.0)
    k = len(scales)
    by_time = torch.cat([w, w * s, w * s * s], dim=-1).transpose(1, 2)  # (R, 3K, L)
    m0, m1, m2 = (by_time @ seen).transpose(1, 2).chunk(3, dim=-1)
    x0, x1 = (by_time[:, : 2 * k] @ moved).transpose(1, 2).chunk(2, dim=-1)
    xx = (by_time[:, :k] @ moved**2).transpose(1, 2)
    mass = m0.clamp(min=1e-12)
    centre, level = m1 / mass, x0 / mass
    around = (xx / mass - level**2).clamp(min=0).sqrt()
    wide = (m2 / mass - centre**2).clamp(min=0)
    slope = (x1 / mass - centre * level) / (wide + _SHRINK)
    # What is so old that nothing of it is left at a scale has no level there: the last value.
    faded = m0 < 1e-9
    level, slope, around = (torch.where(faded, 0.0, x) for x in (level, slope, around))
    return m0, level, slope, around

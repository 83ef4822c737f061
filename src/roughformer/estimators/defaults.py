"""What "auto" means: token options chosen from the sizes of the training series."""

from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.signatures import word_count
from roughformer.tokens import SpectrumConfig, TokenConfig

__all__ = ["token_config"]

_MOST_WORDS = 600  # features of one view's signature; more are slow to learn from little data
_MOST_POWERS = 4096  # channels x frequencies of a spectrum
_MOST_CLOCKS = 512  # clock words of a token
_NEVER_AUTO = ("views", "time", "lags", "counts", "static")
_LEVELS_TELL = 0.05  # share of a channel's variance between series above which levels are kept
_SPARSE = 0.5  # share of missing values above which frequencies mean little


def token_config(batch: SeriesBatch, options: dict[str, Any], causal: bool) -> TokenConfig:
    """``options`` of an estimator with every "auto" replaced.

    Series whose values are mostly missing get 12 windows and words of their observations, and no
    signature of the path between them. For others, windows: 75, but at least two points in each.
    A causal model gets windows of the duration that cuts the median span into as many: windows by
    count end where the end of the series says, which is the future.
    depth: 2, or 1 where that would be more than 600 words a view. clock: up to 16 per window, as
    many as its points can tell apart. spectrum: 1024 frequencies; none for series of fewer than
    16 points, and none for causal models, because it is of the whole path. basepoint: a signature
    forgets the level that a path starts from; it is kept if in some channel both the means of the
    series and their first values have 5 % of the variance. Series that have been centred
    or that all start from one level have no level to keep. context: of a causal model the windows
    of a usual series, if windows are such that a series may go on: by duration or points.
    """
    chosen = dict(options)
    # What is never "auto" is checked before it is used.
    plain = TokenConfig(**{name: options[name] for name in _NEVER_AUTO})
    chosen |= {name: getattr(plain, name) for name in _NEVER_AUTO}
    channels = max(batch.n_channels, 1)
    median = float(np.median(batch.lengths)) if len(batch) else 0.0
    missing = float(np.isnan(batch.values).mean()) if batch.values.size else 0.0
    sparse = missing > _SPARSE
    if chosen["observations"] == "auto":
        chosen["observations"] = sparse
    if isinstance(chosen["windows"], str):
        if chosen["windows"] != "auto":
            raise InputError(
                "windows must be 'auto', a number of windows, cut times or a rf.Windows; got "
                f"{chosen['windows']!r}"
            )
        count = int(np.clip(median // 2, 2, 12 if sparse else 75))
        chosen["windows"] = {"duration": _median_span(batch) / count} if causal else count
    dimension = channels * (1 + len(chosen["lags"]) + bool(chosen["counts"]))
    dimension += chosen["time"] != "none"
    if chosen["depth"] == "auto":
        chosen["depth"] = 2 if word_count(dimension, 2) <= _MOST_WORDS else 1
        if sparse and chosen["observations"]:
            chosen["depth"] = 0
    if chosen["basepoint"] == "auto":
        chosen["basepoint"] = bool((_between_series(batch) > _LEVELS_TELL).any())
    if chosen["clock"] == "auto":
        clocks = 0
        if "local" in chosen["views"] and not sparse:
            points = median / _n_windows(chosen["windows"], batch)
            clocks = min(16, int(points // 2), _MOST_CLOCKS // (2 * channels))
        chosen["clock"] = clocks
    if chosen["spectrum"] == "auto":
        none = sparse or causal or median < 16
        chosen["spectrum"] = None if none else SpectrumConfig()
    spectrum = chosen["spectrum"]
    if spectrum is not None and "count" not in spectrum.given:
        most = 1024 if spectrum.axis == "linear" else 256
        count = min(most, max(_MOST_POWERS // channels, 16))
        chosen["spectrum"] = SpectrumConfig(**spectrum.given, count=count)
    chosen["hold"] = causal
    chosen["context"] = _context(chosen["context"], chosen["windows"], batch, causal)
    if causal and chosen["time"] == "span":
        raise InputError(
            "a causal model cannot tell time as a share of the series' span, which is not known "
            "before its end; use time='unit'"
        )
    if causal and chosen["spectrum"] is not None:
        raise InputError(
            "a causal model cannot use the spectrum of the whole path, which sees the future; "
            "leave spectrum= out"
        )
    return TokenConfig(**chosen)


def _context(context: Any, windows: Any, batch: SeriesBatch, causal: bool) -> int | None:
    if not causal:
        if context not in ("auto", None):
            raise InputError("context is for causal models; set causal=True, or leave it out")
        return None
    if context == "auto":
        goes_on = TokenConfig(windows=windows).rule.rule in ("duration", "points")
        return round(_n_windows(windows, batch)) if goes_on else None
    return None if context is None else int(context)


def _median_span(batch: SeriesBatch) -> float:
    """Of the series that have one; 1 if none has."""
    start, end = batch.span
    span = end - start
    return float(np.median(span[span > 0])) if (span > 0).any() else 1.0


def _n_windows(windows: Any, batch: SeriesBatch) -> float:
    counts = TokenConfig(windows=windows).rule.place(batch).n_windows
    return max(float(np.median(counts)), 1.0) if len(counts) else 1.0


def _between_series(batch: SeriesBatch) -> npt.NDArray[np.float64]:
    """``(C,)``: the variance of the means of the series, or that of their first observations if it
    is less, as a share of the channel's variance.
    """
    found = np.zeros(batch.n_channels)
    for c in range(batch.n_channels):
        seen = np.flatnonzero(~np.isnan(batch.values[:, c]))
        x = batch.values[seen, c].astype(np.float64)
        owner, first, count = np.unique(
            np.searchsorted(batch.offsets, seen, side="right"),
            return_index=True,
            return_counts=True,
        )
        if len(owner) < 2 or x.var() == 0:
            continue
        means = np.add.reduceat(x - x.mean(), first) / count
        found[c] = min(float(means.var()), float(x[first].var())) / float(x.var())
    return found

"""The oracle of the signature tests: every token from its definition, one window at a time.

Nothing here calls the engine, the lifts or the windows of the package. A lifted path is written
down point by point, cut by ``np.interp`` and handed to ``algebra.path_signature``, which
``test_algebra.py`` holds to the definition of iterated integrals.
"""

import math
from itertools import pairwise

import numpy as np

import roughformer as rf
from roughformer import algebra
from roughformer.signatures.words import bracket, lyndon_words, word_count, word_index

TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}


# ---- random batches and cuts -------------------------------------------------------------------


def make_batch(
    seed, n_series=3, n_channels=2, longest=8, dtype=np.float64, shared=False, nan=0.0, shortest=1
):
    """Random walks at irregular times; ``shared``: all series have the same times."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(min(shortest, longest), longest + 1, size=n_series)
    if shared:
        lengths[:] = longest
    grid = rng.normal() + np.cumsum(rng.uniform(0.1, 1.0, size=longest))
    values, times = [], []
    for n in lengths:
        walk = np.cumsum(rng.normal(size=(n, n_channels)), axis=0).astype(dtype)
        walk[rng.random(walk.shape) < nan] = np.nan
        values.append(walk)
        times.append(rng.normal() + np.cumsum(rng.uniform(0.1, 1.0, size=n)))
    if n_series == 0:
        return rf.SeriesBatch.from_tensor(np.zeros((0, longest, n_channels), dtype))
    return rf.SeriesBatch.from_arrays(values, grid if shared else times)


def random_cuts(rng, times, most=5):
    """2 ... most + 1 cut times: on observations, between them and outside of them."""
    low, high = times[0], times[-1]
    span = max(high - low, 1.0)
    pool = np.concatenate(
        [
            rng.choice(times, size=most),
            rng.uniform(low, high, size=most),
            rng.uniform(low - 0.3 * span, high + 0.3 * span, size=2),
        ]
    )
    chosen = np.unique(rng.choice(pool, size=most + 1))
    # Cuts closer than this measure the rounding of times, not the engine.
    chosen = chosen[np.concatenate([[True], np.diff(chosen) > 1e-4 * span])]
    return chosen if len(chosen) > 1 else np.array([chosen[0], chosen[0] + 0.5 * span])


def cuts_for(seed, batch, most=5, shared=False):
    """One list of cuts for each series; ``shared``: the same ones."""
    rng = np.random.default_rng([seed, 7])
    if shared:
        return [random_cuts(rng, np.sort(batch.times), most)] * len(batch)
    return [random_cuts(rng, batch.series(b)[0], most) for b in range(len(batch))]


# ---- lifted paths ------------------------------------------------------------------------------


def fill(times, column):
    """A channel between its own observations; 0 if there are none."""
    seen = ~np.isnan(column)
    return np.interp(times, times[seen], column[seen]) if seen.any() else np.zeros(len(times))


def lifted_path(times, values, time=None, lags=(), counts=None):
    """Corners ``(t (M,), points (M, d))`` of the lifted path.

    ``time``: "span" or a unit; ``lags``: delays; ``counts``: scale. The order of the channels is
    time, values, lagged values, counts.
    """
    values = np.asarray(values, dtype=np.float64)
    filled = np.stack([fill(times, column) for column in values.T], axis=1)
    knots = np.unique(np.concatenate([times, *(times + delay for delay in lags)]))
    knots = knots[knots <= times[-1]]
    columns = []
    if time is not None:
        span = times[-1] - times[0]
        unit = (span if span > 0 else 1.0) if time == "span" else time
        columns.append((knots - times[0]) / unit)
    for delay in (0.0, *lags):
        columns += [np.interp(knots - delay, times, column) for column in filled.T]
    if counts is not None:
        seen = np.cumsum(~np.isnan(values), axis=0)
        columns += [np.interp(knots, times, column) * counts for column in (seen - seen[:1]).T]
    return knots, np.stack(columns, axis=1)


def window_path(knots, points, start, end):
    """Corners of the path over [start, end]; the path is constant outside its knots."""
    inside = knots[(knots > start) & (knots < end)]
    at = np.concatenate([[start], inside, [end]])
    return np.stack([np.interp(at, knots, column) for column in points.T], axis=1)


def from_origin(path, time):
    """The path with a line from the origin before it; time does not jump."""
    first = np.zeros_like(path[:1])
    if time is not None:
        first[0, 0] = path[0, 0]
    return np.concatenate([first, path])


def window_paths(batch, cuts, view, basepoint=False, time=None, lags=(), counts=None):
    """Explicit corners of every window of the view: a list of lists of ``(M, d)``."""
    found = []
    for b, row in enumerate(cuts):
        times, values = batch.series(b)
        knots, points = lifted_path(times, values, time, lags, counts)
        paths = [
            window_path(knots, points, start if view == "local" else row[0], end)
            for start, end in pairwise(row)
        ]
        found.append([from_origin(p, time) for p in paths] if basepoint else paths)
    return found


def expected_tokens(batch, cuts, depth, view="local", basepoint=False, **lifts):
    """Signatures ``(B, windows, words)`` by the definition, zeros where a series has fewer."""
    paths = window_paths(batch, cuts, view, basepoint, **lifts)
    d = paths[0][0].shape[1]
    out = np.zeros((len(paths), max(map(len, paths)), word_count(d, depth)))
    for b, row in enumerate(paths):
        for k, path in enumerate(row):
            out[b, k] = algebra.path_signature(path, depth)
    return out


# ---- natural scales ----------------------------------------------------------------------------


def variation(points):
    """1-variation of a path, in the norm Σ|x_i|, for which |S_k| <= variation^k / k!."""
    return float(np.abs(np.diff(points, axis=0)).sum())


def variations(batch, cuts, view="local", basepoint=False, **lifts):
    """``(B, windows)``: 1-variation over the pieces of the path that each window touches.

    Whole pieces, because a window within a piece is a difference of two points on it and cannot be
    rounded better than these.
    """
    out = np.zeros((len(cuts), max(len(row) - 1 for row in cuts)))
    for b, row in enumerate(cuts):
        times, values = batch.series(b)
        knots, points = lifted_path(times, values, **lifts)
        total = np.concatenate([[0.0], np.abs(np.diff(points, axis=0)).sum(axis=1).cumsum()])
        starts = row[:-1] if view == "local" else np.full(len(row) - 1, row[0])
        low = np.maximum(np.searchsorted(knots, starts, "right") - 1, 0)
        high = np.minimum(np.searchsorted(knots, row[1:], "left"), len(knots) - 1)
        out[b, : len(row) - 1] = np.maximum(total[high] - total[low], 0.0)
        if basepoint:
            offset = 0 if lifts.get("time") is None else 1
            largest = np.abs(points[:, offset:]).max(axis=0).sum()
            out[b, : len(row) - 1] += largest
    return out


def level_bounds(scale, d, n):
    """(...) -> (..., words): scale^k / k! for each word of length k."""
    scale = np.asarray(scale, dtype=np.float64)
    parts = [
        np.repeat((scale**k / math.factorial(k))[..., None], d**k, axis=-1) for k in range(1, n + 1)
    ]
    return np.concatenate(parts, axis=-1)


def lyndon_bounds(scale, d, n, basis):
    """(...) -> (..., Lyndon words): how large a log-signature coordinate can be.

    Level k of the logarithm is at most scale^k Σ_j (j-1)! {k, j} / k!, {k, j} Stirling numbers;
    changing to the bracket basis adds up as the absolute values of the change of basis do.
    """
    scale = np.asarray(scale, dtype=np.float64)
    words = lyndon_words(d, n)
    constant = {k: sum(_compositions(k, j) / j for j in range(1, k + 1)) for k in range(1, n + 1)}
    parts = np.stack([constant[len(w)] * scale ** len(w) for w in words], axis=-1)
    if basis == "words":
        return parts
    place = {w: i for i, w in enumerate(words)}
    change = np.zeros((len(words), len(words)))
    for j, w in enumerate(words):
        for term, count in bracket(w).items():
            if term in place:
                change[place[term], j] = count
    return parts @ np.abs(np.linalg.inv(change)).T


def _compositions(k, j):
    """Σ over k = k_1 + ... + k_j (all >= 1) of Π 1/k_i!."""
    if j == 0:
        return float(k == 0)
    return sum(_compositions(k - i, j - 1) / math.factorial(i) for i in range(1, k + 1))


def assert_within(got, want, bound, dtype):
    """|got - want| <= tolerance of dtype · bound, everywhere; both must be finite."""
    dtype = np.dtype(dtype)
    got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    limit = TOLERANCE[dtype] * bound + np.finfo(dtype).tiny
    excess = np.abs(got - want) / limit
    if excess.size and not excess.max() <= 1:
        place = tuple(int(i) for i in np.unravel_index(np.argmax(excess), excess.shape))
        raise AssertionError(
            f"off by {excess.max():.3g} tolerances at {place}: {got[place]} against {want[place]}"
        )


def assert_tokens_close(got, want, scale, d, n, dtype):
    """Signatures ``(..., words)`` agree, level by level, at the natural scale ``(...)``."""
    assert_within(got, want, level_bounds(scale, d, n), dtype)


# ---- Lie elements ------------------------------------------------------------------------------


def tensor_of_brackets(coordinates, d, n):
    """Σ coordinate · bracket of its Lyndon word, expanded in words: ``(..., words)``."""
    out = np.zeros((*coordinates.shape[:-1], word_count(d, n)))
    for j, w in enumerate(lyndon_words(d, n)):
        for term, count in bracket(w).items():
            out[..., word_index(term, d)] += count * coordinates[..., j]
    return out


def tensor_exponential(x, d, n):
    """Levels 1 ... n of exp(x) = Σ x^k / k! for any tensor ``(..., words)`` without scalar part."""
    ends = [word_count(d, k) for k in range(n + 1)]
    level = [x[..., ends[k] : ends[k + 1]] for k in range(n)]
    power, total = list(level), list(level)
    for k in range(2, n + 1):
        new = [np.zeros_like(part) for part in level]
        for i in range(1, n + 1):
            for j in range(1, n + 1 - i):
                outer = power[i - 1][..., :, None] * level[j - 1][..., None, :]
                new[i + j - 1] = new[i + j - 1] + outer.reshape(*outer.shape[:-2], -1)
        power = new
        total = [t + p / math.factorial(k) for t, p in zip(total, power, strict=True)]
    return np.concatenate(total, axis=-1)

"""Each lift against the explicitly lifted path, and the clock words against quadrature."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from reference import (
    assert_tokens_close,
    assert_within,
    cuts_for,
    expected_tokens,
    lifted_path,
    make_batch,
    variations,
)
from roughformer import algebra

pytestmark = pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
seeds = st.integers(0, 2**32)
dtypes = st.sampled_from([np.float32, np.float64])
VIEWS = ("global", "local")


def split(tokens):
    return zip(VIEWS, np.split(tokens, 2, axis=-1), strict=True)


def batch_scale(batch, cuts, view, **lifts):
    """Scale of lifts that interpolate values: those round relative to the values' own size."""
    scale = variations(batch, cuts, view, **lifts)
    for b in range(len(batch)):
        times, values = batch.series(b)
        plain = {k: v for k, v in lifts.items() if k != "basepoint"}
        points = lifted_path(times, values, **plain)[1]
        scale[b] += np.where(scale[b] > 0, np.abs(points).max(axis=0).sum(), 0.0)
    return scale


@st.composite
def lift_choices(draw):
    """(lifts for the engine, the same for the oracle)."""
    ours, theirs = [], {}
    time = draw(st.sampled_from([None, "span", 0.5, 20.0]))
    if time is not None:
        ours.append("time" if time == "span" else rf.Time(time))
        theirs["time"] = time
    lags = draw(st.sampled_from([(), (), (0.3,), (0.25, 1.5), (1000.0,)]))
    ours += [rf.Lag(delay) for delay in lags]
    theirs["lags"] = lags
    counts = draw(st.sampled_from([None, None, 1.0, 0.1]))
    if counts is not None:
        ours.append("counts" if counts == 1.0 else rf.Counts(counts))
        theirs["counts"] = counts
    theirs["basepoint"] = draw(st.booleans())
    if theirs["basepoint"]:
        ours.append("basepoint")
    order = draw(st.permutations(ours))  # the order in which lifts are named does not matter,
    if len(lags) < 2:  # but lags come in their own
        ours = order
    return ours, theirs


@given(
    seed=seeds,
    lifts=lift_choices(),
    longest=st.sampled_from([1, 2, 6, 12]),
    channels=st.integers(1, 2),
    depth=st.integers(1, 3),
    dtype=dtypes,
    shared=st.booleans(),
    nan=st.sampled_from([0.0, 0.4]),
)
def test_lifted_tokens_are_the_signatures_of_the_explicitly_lifted_path(
    engine, seed, lifts, longest, channels, depth, dtype, shared, nan
):
    ours, theirs = lifts
    batch = make_batch(seed, 3, channels, longest, dtype, shared, nan)
    cuts = cuts_for(seed, batch, most=3)
    found = rf.multiview_signature(batch, cuts, depth, lifts=ours, engine=engine)
    for view, part in split(found):
        want = expected_tokens(batch, cuts, depth, view, **theirs)
        d = (
            (theirs.get("time") is not None)
            + channels * (1 + len(theirs["lags"]))
            + channels * (theirs.get("counts") is not None)
        )
        scale = batch_scale(batch, cuts, view, **theirs)
        assert_tokens_close(part, want, scale, d, depth, dtype)


def test_time_by_hand_is_the_share_of_the_span(engine):
    batch = rf.SeriesBatch.from_arrays([np.zeros((3, 1))], [[100.0, 101.0, 104.0]])
    span = rf.multiview_signature(batch, [100, 101, 104], 1, "local", lifts=["time"], engine=engine)
    np.testing.assert_allclose(span[0, :, 0], [0.25, 0.75])
    unit = rf.multiview_signature(
        batch, [100, 101, 104], 1, "local", lifts=[rf.Time(2.0)], engine=engine
    )
    np.testing.assert_allclose(unit[0, :, 0], [0.5, 1.5])


def test_time_tells_reparametrised_paths_apart(engine):
    x = np.random.default_rng(0).normal(size=(1, 6, 2))
    times = np.array([0, 1, 2, 3, 4, 5.0]), np.array([0, 3, 3.5, 4, 4.5, 5.0])
    plain = [rf.signature(x, 2, times=t, engine=engine) for t in times]
    np.testing.assert_allclose(*plain, rtol=1e-12)
    timed = [rf.signature(x, 2, times=t, lifts=["time"], engine=engine) for t in times]
    assert np.abs(timed[0] - timed[1]).max() > 0.01


def test_a_lag_by_hand_is_the_value_that_long_ago(engine):
    batch = rf.SeriesBatch.from_arrays([np.array([[0.0], [4.0], [4.0]])], [[0.0, 4.0, 8.0]])
    found = rf.multiview_signature(
        batch, [0, 1, 3, 8], 1, "local", lifts=[rf.Lag(2.0)], engine=engine
    )
    # x runs 0 -> 4 until 4, then stays; x(t - 2) rests until 2, runs until 6, then stays.
    np.testing.assert_allclose(found[0], [[1, 0], [2, 1], [1, 3]])


def test_a_lag_longer_than_the_series_rests(engine):
    batch = make_batch(0, n_series=2, n_channels=1)
    found = rf.signature(batch, 3, lifts=[rf.Lag(1e6)], engine=engine)
    plain = rf.signature(batch, 3, engine=engine)
    np.testing.assert_allclose(found[:, 0], plain[:, 0])
    assert not found[:, 1].any()


def test_counts_by_hand_are_the_observations_after_the_first_point(engine):
    nan = np.nan
    x = np.array([[1.0, nan], [nan, 2.0], [3.0, 3.0], [nan, nan], [5.0, nan]])
    batch = rf.SeriesBatch.from_arrays([x])
    found = rf.multiview_signature(batch, [0, 2, 4], 1, "local", lifts=["counts"], engine=engine)
    np.testing.assert_allclose(found[0, :, 2:], [[1, 2], [1, 0]])
    half = rf.multiview_signature(
        batch, [0, 2, 4], 1, "local", lifts=[rf.Counts(0.5)], engine=engine
    )
    np.testing.assert_allclose(half[0, :, 2:], [[0.5, 1], [0.5, 0]])


def test_a_basepoint_keeps_the_level_of_the_path(engine):
    batch = make_batch(0, n_series=3, shortest=4)
    start, end = batch.span
    middle = (start + end) / 2
    found = rf.multiview_signature(
        batch, np.stack([start, middle, end], axis=1), 1, lifts=["basepoint"], engine=engine
    )
    for b in range(3):
        t, x = batch.series(b)
        here = [np.interp(middle[b], t, c) for c in x.T]
        np.testing.assert_allclose(found[b], [[*here, *here], [*x[-1], *x[-1]]], rtol=1e-12)


@given(seed=seeds, drop=st.sampled_from([0.0, 0.5]))
def test_each_view_has_the_lifts_it_is_given(engine, seed, drop):
    batch = make_batch(seed, 3, 2, 9, nan=0.2)
    lifts = {"global": ["time", "basepoint"], "local": [rf.Lag(0.4), "counts", rf.Clock(2)]}
    options = {"drop": drop, "seed": seed, "engine": engine}
    both = rf.multiview_signature(batch, 3, 2, lifts=lifts, **options)
    glob = rf.multiview_signature(batch, 3, 2, "global", lifts=lifts["global"], **options)
    local = rf.multiview_signature(batch, 3, 2, "local", lifts=lifts["local"], **options)
    np.testing.assert_allclose(both, np.concatenate([glob, local], axis=-1), rtol=1e-12, atol=1e-12)


def test_a_view_that_is_not_mentioned_has_no_lifts(engine):
    batch = make_batch(0)
    found = rf.multiview_signature(batch, 3, 2, lifts={"local": ["time"]}, engine=engine)
    plain = rf.multiview_signature(batch, 3, 2, "global", engine=engine)
    np.testing.assert_array_equal(found[..., :6], plain)
    assert found.shape[-1] == 6 + 12


# ---- clocks ------------------------------------------------------------------------------------

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def quadrature(knots, points, start, end, origin, wave, omega):
    """∫_start^end wave(ω (u - origin)) dx(u) for each channel, piece by piece (Gauss-Legendre)."""
    inside = knots[(knots > start) & (knots < end)]
    total = np.zeros(points.shape[1])
    for a, b in pairwise([start, *inside, end]):
        u = (a + b) / 2 + (b - a) / 2 * NODES
        mean = float(np.sum(WEIGHTS * wave(omega * (u - origin)))) / 2
        moved = [np.interp(b, knots, c) - np.interp(a, knots, c) for c in points.T]
        total += mean * np.array(moved)
    return total


def expected_clock(batch, cuts, view, frequencies):
    """(B, windows, C·count·2) in the order channel, frequency, (cos, sin)."""
    out = []
    for b, row in enumerate(cuts):
        times, values = batch.series(b)
        knots, points = lifted_path(times, values)
        tokens = []
        for start, end in pairwise(row):
            begin = start if view == "local" else row[0]
            words = [
                [quadrature(knots, points, begin, end, begin, wave, w) for wave in (np.cos, np.sin)]
                for w in frequencies(b, start, end)
            ]
            tokens.append(np.transpose(words, (2, 0, 1)).ravel())
        out.append(tokens)
    return np.array(out)


@given(
    seed=seeds,
    view=st.sampled_from(VIEWS),
    count=st.integers(1, 3),
    spacing=st.sampled_from([1.0, 0.5]),
    longest=st.sampled_from([1, 2, 7]),
    channels=st.integers(1, 2),
    dtype=dtypes,
    nan=st.sampled_from([0.0, 0.3]),
)
def test_clock_words_are_the_integrals_of_the_waves_along_the_path(
    engine, seed, view, count, spacing, longest, channels, dtype, nan
):
    batch = make_batch(seed, 2, channels, longest, dtype, nan=nan, shortest=2)
    start, end = batch.span
    if longest == 1:
        start, end = start - 1, end + 1
    middle = start + np.random.default_rng(seed).uniform(0.2, 0.8) * (end - start)
    cuts = np.stack([start, middle, end], axis=1)

    def frequencies(b, a, z):
        period = z - a if view == "local" else end[b] - start[b]
        return [2 * np.pi * j * spacing / period for j in range(1, count + 1)]

    found = rf.multiview_signature(
        batch, cuts, 1, view, lifts=[rf.Clock(count, spacing)], engine=engine
    )
    want = expected_clock(batch, cuts, view, frequencies)
    scale = batch_scale(batch, cuts, view)[..., None]
    assert_within(found[..., channels:], want, np.broadcast_to(scale, want.shape), dtype)


@given(seed=seeds, view=st.sampled_from(VIEWS), drop=st.sampled_from([0.0, 0.5]))
def test_clocks_of_given_frequencies_work_on_any_cuts(engine, seed, view, drop):
    batch = make_batch(seed, 2, 2, 9)
    cuts = cuts_for(seed, batch, most=3)
    most = min(map(len, cuts))
    cuts = [row[:most] for row in cuts]
    omega = (0.3, 5.0)
    found = rf.multiview_signature(
        batch, cuts, 1, view, lifts=[rf.Clock(frequencies=omega)], drop=drop, seed=5, engine=engine
    )
    thinned = batch.drop_points(drop, seed=5)
    want = expected_clock(thinned, cuts, view, lambda b, a, z: omega)
    scale = batch_scale(thinned, cuts, view)[..., None]
    assert_within(found[..., 2:], want, np.broadcast_to(scale, want.shape), np.float64)


def test_clock_words_are_words_of_the_path_lifted_by_the_clock(engine):
    # (cos, x) of the signature is ∫ (cos - 1) dx: the clock word less the increment of x.
    batch = make_batch(4, n_series=1, n_channels=1, shortest=6)
    (t, x), omega = batch.series(0), 2.0
    found = rf.multiview_signature(
        batch, 1, 1, "local", lifts=[rf.Clock(frequencies=[omega])], engine=engine
    )[0, 0]
    fine = np.union1d(t, np.linspace(t[0], t[-1], 20_001))
    phase = omega * (fine - t[0])
    path = np.stack([np.cos(phase), np.sin(phase), np.interp(fine, t, x[:, 0])], axis=1)
    level_two = algebra.path_signature(path, 2)[3:].reshape(3, 3)
    assert found[1] - found[0] == pytest.approx(level_two[0, 2], abs=1e-6)
    assert found[2] == pytest.approx(level_two[1, 2], abs=1e-6)


def test_a_clock_that_stands_still_or_runs_backwards_is_an_honest_clock(engine):
    batch = make_batch(4, n_series=1, n_channels=1, shortest=6)
    found = rf.multiview_signature(
        batch, 1, 1, "local", lifts=[rf.Clock(frequencies=[0.0, 2.0, -2.0])], engine=engine
    )[0, 0]
    moved, (cos0, sin0), (cos, sin), (cos_back, sin_back) = found[0], *found[1:].reshape(3, 2)
    assert (cos0, sin0) == (pytest.approx(moved), 0.0)
    assert (cos_back, sin_back) == (pytest.approx(cos), pytest.approx(-sin))


def test_the_global_clock_has_the_period_from_the_first_to_the_last_cut(engine):
    batch = rf.SeriesBatch.from_arrays([np.array([[0.0], [1.0], [3.0]])], [[0.0, 1.0, 8.0]])
    by_cuts = rf.multiview_signature(
        batch, [0, 2, 4], 1, "global", lifts=[rf.Clock(1)], engine=engine
    )
    by_hand = rf.multiview_signature(
        batch, [0, 2, 4], 1, "global", lifts=[rf.Clock(frequencies=[2 * np.pi / 4])], engine=engine
    )
    np.testing.assert_allclose(by_cuts, by_hand, rtol=1e-12)


def test_sine_waves_show_in_the_clock_of_their_frequency(engine):
    t = np.linspace(0, 1, 2001)
    x = np.sin(2 * np.pi * 5 * t)[None, :, None]
    found = rf.multiview_signature(x, 1, 1, "local", times=t, lifts=[rf.Clock(8)], engine=engine)
    words = found[0, 0, 1:].reshape(8, 2)
    power = np.hypot(*words.T)
    assert np.argmax(power) == 4
    # ∫ cos² · 2π·5 over one unit of time
    assert words[4, 0] == pytest.approx(np.pi * 5, rel=1e-4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rf.Time(0.0), "positive duration, got 0.0"),
        (lambda: rf.Time(float("nan")), "positive duration"),
        (lambda: rf.Lag(-1.0), "positive duration, got -1.0"),
        (lambda: rf.Lag(float("inf")), "positive duration"),
        (lambda: rf.Clock(0), "whole number >= 1, got 0"),
        (lambda: rf.Clock(1.5), "whole number >= 1"),
        (lambda: rf.Clock(spacing=0.0), "must be positive"),
        (lambda: rf.Clock(frequencies=()), "at least one"),
        (lambda: rf.Clock(frequencies=(1.0, float("inf"))), "finite"),
    ],
)
def test_lifts_that_make_no_sense_are_refused_with_words(make, words):
    with pytest.raises(rf.InputError, match=words):
        make()


def test_lifts_by_name_are_those_with_their_defaults(engine):
    batch = make_batch(0)
    for name, lift in {
        "time": rf.Time(),
        "counts": rf.Counts(),
        "basepoint": rf.Basepoint(),
        "clock": rf.Clock(),
    }.items():
        np.testing.assert_array_equal(
            rf.multiview_signature(batch, 3, 2, lifts=[name], engine=engine),
            rf.multiview_signature(batch, 3, 2, lifts=[lift], engine=engine),
        )


def test_tensors_can_be_lifted_too(engine):
    x = torch.randn(3, 9, 2, dtype=torch.float64)
    lifts = ["time", rf.Lag(1.5), "counts", "basepoint", rf.Clock(2)]
    found = rf.multiview_signature(x, 4, 2, lifts=lifts, engine=engine)
    want = rf.multiview_signature(x.numpy(), 4, 2, lifts=lifts, engine=engine)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12, atol=1e-12)

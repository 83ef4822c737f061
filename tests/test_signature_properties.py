"""What the mathematics of signatures promises holds for both engines and both precisions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from reference import (
    assert_tokens_close,
    assert_within,
    cuts_for,
    level_bounds,
    lyndon_bounds,
    tensor_exponential,
    tensor_of_brackets,
    variations,
)
from roughformer import algebra
from roughformer.signatures.words import all_words, lyndon_words, shuffle, word_count, word_index
from signature_cases import cases, rebuilt, span_variations


@given(case=cases(), part=st.floats(0.0, 1.0))
def test_chen_the_signature_splits_at_any_cut(engine, case, part):
    batch, n, _ = case
    d = batch.n_channels
    start, end = batch.span
    middle = start + part * (end - start)
    rows = [np.unique(row) for row in np.stack([start, middle, end + 1], axis=1)]
    tokens = rf.multiview_signature(batch, rows, n, "local", engine=engine)
    product = np.zeros((len(batch), word_count(d, n)))
    for k in range(tokens.shape[1]):
        product = algebra.multiply(product, tokens[:, k].astype(np.float64), d, n)
    found = rf.signature(batch, n, engine=engine)
    assert_tokens_close(product, found, span_variations(batch), d, n, found.dtype)


@given(case=cases(), shared=st.booleans())
def test_the_product_of_the_local_signatures_is_the_global_one(engine, case, shared):
    batch, n, seed = case
    d = batch.n_channels
    cuts = cuts_for(seed, batch, shared=shared)
    windows = cuts[0] if shared else cuts
    tokens = rf.multiview_signature(batch, windows, n, engine=engine).astype(np.float64)
    glob, local = np.split(tokens, 2, axis=-1)
    scale = variations(batch, cuts, "global")
    running = np.zeros_like(local[:, 0])
    for k in range(tokens.shape[1]):
        running = algebra.multiply(running, local[:, k], d, n)
        inside = np.array([k < len(row) - 1 for row in cuts])
        bound = level_bounds(scale[inside, k], d, n)
        assert_within(glob[inside, k], running[inside], bound, batch.values.dtype)


@given(case=cases())
def test_a_path_run_there_and_back_has_signature_one(engine, case):
    batch, n, _ = case
    d = batch.n_channels
    backwards = rf.SeriesBatch.from_arrays(
        [batch.series(b)[1][::-1] for b in range(len(batch))],
        [-batch.series(b)[0][::-1] for b in range(len(batch))],
    )
    forth = rf.signature(batch, n, engine=engine).astype(np.float64)
    back = rf.signature(backwards, n, engine=engine).astype(np.float64)
    joint = algebra.multiply(forth, back, d, n)
    scale = 2 * span_variations(batch)
    assert_tokens_close(joint, np.zeros_like(joint), scale, d, n, batch.values.dtype)


@given(case=cases())
def test_points_on_the_line_between_two_others_change_nothing(engine, case):
    batch, n, seed = case
    d = batch.n_channels
    rng = np.random.default_rng(seed)
    times, values = [], []
    for b in range(len(batch)):
        t, x = batch.series(b)
        more = rng.uniform(t[0], t[-1], size=4) if len(t) > 1 else t
        knots = np.unique(np.concatenate([t, more]))
        times.append(knots)
        values.append(np.stack([np.interp(knots, t, c) for c in x.T.astype(np.float64)], axis=1))
    denser = rf.SeriesBatch.from_arrays(values, times)
    cuts = cuts_for(seed, batch)
    want = rf.multiview_signature(batch, cuts, n, "local", engine=engine)
    found = rf.multiview_signature(denser, cuts, n, "local", engine=engine)
    assert_tokens_close(found, want, variations(batch, cuts), d, n, want.dtype)


@given(case=cases())
def test_without_a_time_channel_the_clock_may_run_as_it_likes(engine, case):
    batch, n, seed = case
    d = batch.n_channels
    rng = np.random.default_rng(seed)
    cuts = cuts_for(seed, batch)
    times, moved = [], []
    for b, row in enumerate(cuts):
        # Observations and cuts keep their order, and cuts their place between observations.
        t = batch.series(b)[0]
        knots = np.unique(np.concatenate([t, row]))
        other = np.cumsum(rng.uniform(0.1, 3.0, size=len(knots))) - 5.0
        slow = np.interp(t, knots, other)
        times.append(slow)
        # Between two observations the clock must be linear, or the path would be another one.
        place = np.clip(np.searchsorted(t, row, "right") - 1, 0, max(len(t) - 2, 0))
        if len(t) > 1:
            share = (row - t[place]) / (t[place + 1] - t[place])
            moved.append(slow[place] + share * (slow[place + 1] - slow[place]))
        else:
            moved.append(np.interp(row, knots, other))
    warped = rebuilt(batch, batch.values, np.concatenate(times))
    want = rf.multiview_signature(batch, cuts, n, engine=engine)
    found = rf.multiview_signature(warped, moved, n, engine=engine)
    for view, part in (("global", 0), ("local", 1)):
        assert_tokens_close(
            np.split(found, 2, axis=-1)[part],
            np.split(want, 2, axis=-1)[part],
            variations(batch, cuts, view),
            d,
            n,
            want.dtype,
        )


@given(case=cases(), shift=st.integers(-1000, 1000))
def test_a_translation_changes_nothing(engine, case, shift):
    batch, n, seed = case
    d = batch.n_channels
    exact = np.round(batch.values * 64) / 64  # the sum with a whole number is exact in float32
    here, there = rebuilt(batch, exact), rebuilt(batch, exact + batch.values.dtype.type(shift))
    cuts = cuts_for(seed, batch)
    want = rf.multiview_signature(here, cuts, n, "local", engine=engine)
    found = rf.multiview_signature(there, cuts, n, "local", engine=engine)
    assert_tokens_close(found, want, variations(here, cuts), d, n, want.dtype)


@given(case=cases(), power=st.integers(-20, 20))
def test_level_k_grows_like_the_kth_power_of_the_path(engine, case, power):
    batch, n, seed = case
    d = batch.n_channels
    factor = batch.values.dtype.type(2.0**power)
    cuts = cuts_for(seed, batch)
    one = rf.multiview_signature(batch, cuts, n, "local", engine=engine, dtype="float64")
    scaled = rebuilt(batch, batch.values * factor)
    found = rf.multiview_signature(scaled, cuts, n, "local", engine=engine, dtype="float64")
    for level, base, k in zip(
        algebra.levels(found, d, n), algebra.levels(one, d, n), range(1, n + 1), strict=True
    ):
        np.testing.assert_allclose(level, base * float(factor) ** k, rtol=1e-12, atol=0)


PAIRS = {
    (d, n): [(u, v) for u in all_words(d, n - 1) for v in all_words(d, n - len(u))]
    for d, n in [(1, 6), (2, 4), (3, 3), (2, 5)]
}


@given(case=cases(sizes=st.sampled_from(sorted(PAIRS)), n_series=(1, 3)))
def test_products_of_coordinates_are_shuffles(engine, case):
    batch, n, _ = case
    d = batch.n_channels
    s = rf.signature(batch, n, engine=engine).astype(np.float64)
    scale = span_variations(batch)
    bounds = level_bounds(2 * scale, d, n)  # |S_u S_v| <= C(k, |u|) V^k / k! <= (2V)^k / k!
    for u, v in PAIRS[d, n]:
        found = sum(c * s[:, word_index(w, d)] for w, c in shuffle(u, v).items())
        want = s[:, word_index(u, d)] * s[:, word_index(v, d)]
        assert_within(found, want, bounds[:, word_index(u + v, d)], batch.values.dtype)


@given(case=cases())
def test_level_k_is_at_most_the_kth_power_of_the_variation_over_k_factorial(engine, case):
    batch, n, seed = case
    d = batch.n_channels
    cuts = cuts_for(seed, batch)
    tokens = rf.multiview_signature(batch, cuts, n, engine=engine).astype(np.float64)
    slack = 1 + (1e-12 if batch.values.dtype == np.float64 else 1e-5)
    for view, part in zip(("global", "local"), np.split(tokens, 2, axis=-1), strict=True):
        scale = variations(batch, cuts, view)
        for k, level in enumerate(algebra.levels(part, d, n), start=1):
            limit = algebra.levels(level_bounds(scale, d, n), d, n)[k - 1][..., 0]
            assert (np.abs(level).sum(axis=-1) <= slack * limit).all()


@given(case=cases())
def test_the_exponential_of_the_bracket_log_signature_is_the_signature(engine, case):
    batch, n, seed = case
    d = batch.n_channels
    cuts = cuts_for(seed, batch)
    options = {"engine": engine, "dtype": "float64"}
    want = rf.multiview_signature(batch, cuts, n, **options)
    logs = rf.multiview_signature(batch, cuts, n, transform="logsignature", **options)
    for part, (view, log) in enumerate(
        zip(("global", "local"), np.split(logs, 2, axis=-1), strict=True)
    ):
        found = tensor_exponential(tensor_of_brackets(log, d, n), d, n)
        # Sums over all words that a bracket has, each as large as the level may be.
        scale = 4 * variations(batch, cuts, view)
        assert_tokens_close(found, np.split(want, 2, axis=-1)[part], scale, d, n, np.float64)


@given(case=cases(), basis=st.sampled_from(["brackets", "words"]))
def test_log_signatures_are_the_lyndon_coordinates_of_the_tensor_logarithm(engine, case, basis):
    batch, n, seed = case
    d = batch.n_channels
    cuts = cuts_for(seed, batch)
    exact = rf.multiview_signature(batch, cuts, n, "local", engine=engine, dtype="float64")
    log = algebra.logarithm(exact, d, n)
    project = algebra.lyndon_brackets if basis == "brackets" else algebra.lyndon_projection
    found = rf.multiview_signature(
        batch, cuts, n, "local", transform="logsignature", basis=basis, engine=engine
    )
    assert found.shape[-1] == len(lyndon_words(d, n))
    bound = lyndon_bounds(variations(batch, cuts), d, n, basis)
    assert_within(found, project(log, d, n), bound, found.dtype)

"""What the mathematics of signatures promises holds for both engines and both precisions."""

import subprocess
import sys

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
    fill,
    level_bounds,
    lyndon_bounds,
    make_batch,
    tensor_exponential,
    tensor_of_brackets,
    variations,
)
from roughformer import algebra
from roughformer.words import all_words, lyndon_words, shuffle, word_count, word_index

seeds = st.integers(0, 2**32)
dtypes = st.sampled_from([np.float32, np.float64])
# (3, 5) and (9, 2) run on the native engine's generic kernel, the others on generated code.
shapes = st.sampled_from([(1, 1), (1, 6), (2, 1), (2, 2), (2, 4), (3, 3), (3, 5), (9, 2)])


@st.composite
def cases(draw, sizes=shapes, n_series=(1, 2, 5, 19), **options):
    """(batch, depth, seed); 19 series fill more than one vector of any instruction set."""
    channels, depth = draw(sizes)
    seed = draw(seeds)
    batch = make_batch(
        seed,
        n_series=draw(st.sampled_from(n_series)),
        n_channels=channels,
        longest=draw(st.sampled_from([1, 2, 5, 12, 70])),
        dtype=draw(dtypes),
        shared=draw(st.booleans()),
        **options,
    )
    return batch, depth, seed


def whole(batch):
    """Cuts that make one window of the whole span of each series."""
    return [batch.series(b)[0][[0, -1]] for b in range(len(batch))]


def span_variations(batch):
    return variations(batch, whole(batch))[:, 0]


def rebuilt(batch, values, times=None):
    """The batch with other values (and times), same lengths."""
    return rf.SeriesBatch(batch.times if times is None else times, values, batch.offsets)


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


@given(case=cases(n_series=(2, 5, 19)), drop=st.sampled_from([0.0, 0.5]))
def test_a_series_does_not_see_the_others_of_its_batch(engine, case, drop):
    batch, n, seed = case
    cuts = cuts_for(seed, batch)
    keep = rf.SeriesBatch(batch.times, batch.values, batch.offsets)  # same batch, no shared grid
    mask = np.random.default_rng(seed).random(batch.n_points) >= drop
    mask[batch.offsets[:-1]] = mask[batch.offsets[1:] - 1] = True
    together = rf.multiview_signature(keep, cuts, n, "local", keep=mask, engine=engine)
    scale = variations(keep.drop_points(mask=mask), cuts)
    for b in range(0, len(batch), 3):
        rows = slice(batch.offsets[b], batch.offsets[b + 1])
        alone = rf.multiview_signature(
            batch[b], cuts[b], n, "local", keep=mask[rows], engine=engine
        )
        w = len(cuts[b]) - 1
        assert_tokens_close(
            together[b, :w], alone[0], scale[b, :w], batch.n_channels, n, alone.dtype
        )
        np.testing.assert_array_equal(together[b, w:], 0)


@given(case=cases(n_series=(2, 5, 19)))
def test_what_stands_in_the_padding_of_a_tensor_does_not_matter(engine, case):
    batch, n, seed = case
    rng = np.random.default_rng(seed)
    lengths = batch.lengths
    x = rng.normal(size=(len(batch), lengths.max(), batch.n_channels)).astype(batch.values.dtype)
    x[...] = rng.choice([np.nan, np.inf, 1e30, 0.0])
    t = np.full(x.shape[:2], rng.choice([np.nan, 0.0, -1e30]))
    for b in range(len(batch)):
        t[b, : lengths[b]], x[b, : lengths[b]] = batch.series(b)
    found = rf.multiview_signature(
        torch.from_numpy(x), 3, n, times=torch.from_numpy(t), lengths=lengths, engine=engine
    )
    want = rf.multiview_signature(batch, 3, n, engine=engine)
    bound = np.broadcast_to(np.abs(want).max(axis=(1, 2), keepdims=True), want.shape)
    assert_within(found.numpy(), want, bound, want.dtype)


@given(case=cases(n_series=(2, 5, 19)))
def test_the_order_of_the_series_does_not_matter(engine, case):
    batch, n, seed = case
    order = np.random.default_rng(seed).permutation(len(batch))
    cuts = cuts_for(seed, batch)
    want = rf.multiview_signature(batch, cuts, n, "local", engine=engine)
    found = rf.multiview_signature(
        batch[order], [cuts[i] for i in order], n, "local", engine=engine
    )
    scale = variations(batch, cuts)[order]
    assert_tokens_close(found, want[order], scale, batch.n_channels, n, want.dtype)


@given(case=cases(), drop=st.sampled_from([0.0, 0.4]), seed=seeds)
def test_two_threads_give_the_same_bits_as_one(native, case, drop, seed):
    batch, n, _ = case
    options = {"lifts": ["time"], "drop": drop, "seed": seed, "engine": native}
    one = rf.multiview_signature(batch, 4, n, threads=1, **options)
    two = rf.multiview_signature(batch, 4, n, threads=2, **options)
    np.testing.assert_array_equal(one, two)


@given(case=cases(nan=0.4))
@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
def test_a_missing_value_lies_on_the_line_between_its_channels_own_observations(engine, case):
    batch, n, seed = case
    parts = []
    for b in range(len(batch)):
        t, x = batch.series(b)
        parts.append(np.stack([fill(t, c) for c in x.T.astype(np.float64)], axis=1))
    dense = rebuilt(batch, np.concatenate(parts))
    cuts = cuts_for(seed, batch)
    want = rf.multiview_signature(dense, cuts, n, "local", engine=engine)
    found = rf.multiview_signature(batch, cuts, n, "local", engine=engine)
    # Filled values are as exact as values are: relative to their size, not to their differences.
    largest = np.abs(dense.values).max(initial=0.0) * batch.n_channels
    scale = variations(dense, cuts)
    scale = np.where(scale > 0, scale + largest, 0.0)
    assert_tokens_close(found, want, scale, batch.n_channels, n, found.dtype)


@given(case=cases(), drop=st.sampled_from([0.0, 0.5]))
def test_float32_results_are_float64_results_rounded(engine, case, drop):
    batch, n, seed = case
    options = {"drop": drop, "seed": seed, "lifts": ["time"], "engine": engine}
    exact = rf.multiview_signature(batch, 3, n, dtype="float64", **options)
    assert exact.dtype == np.float64
    precise = rf.multiview_signature(batch, 3, n, dtype="float32", precise=True, **options)
    assert precise.dtype == np.float32
    np.testing.assert_array_equal(precise, exact.astype(np.float32))


CLOCKS = [2.0**k for k in (-30, -20, -10, 0, 10, 20, 30)]  # 1e-9 ... 1e9


@given(seed=seeds, tick=st.sampled_from(CLOCKS), size=st.sampled_from([(1, 4), (2, 3), (3, 2)]))
def test_the_unit_and_the_origin_of_time_do_not_matter(engine, seed, tick, size):
    channels, n = size
    rng = np.random.default_rng(seed)
    ticks = np.cumsum(rng.integers(1, 50, size=(5, 40)), axis=1).astype(np.float64)
    x = torch.from_numpy(np.cumsum(rng.normal(size=(5, 40, channels)), axis=1).astype(np.float32))

    def tokens(times):
        return rf.multiview_signature(
            x, 7, n, times=times, lifts=["time"], engine=engine, drop=0.3, seed=1
        ).numpy()

    want = tokens(ticks)
    # A multiple of the tick near 1.7e9: the sums are exact as far as float64 can hold them.
    offset = np.floor(1.7e9 / tick) * tick if tick >= 2.0**-20 else 0.0
    stamps = ticks * tick + offset
    assert (np.diff(stamps, axis=1) == np.diff(ticks, axis=1) * tick).all()
    scale = np.abs(np.diff(x.numpy(), axis=1)).sum(axis=(1, 2))[:, None] + 1.0
    bound = level_bounds(np.repeat(scale, 7, axis=1), channels + 1, n)
    assert_within(tokens(stamps), want, np.concatenate([bound, bound], axis=-1), np.float32)


def test_nanosecond_dates_of_today_are_told_apart(engine):
    rng = np.random.default_rng(0)
    ticks = np.cumsum(rng.integers(1, 50, size=40))
    x = [np.cumsum(rng.normal(size=(40, 2)), axis=0).astype(np.float32)]
    dates = np.datetime64("2023-11-14T22:13:20", "ns") + ticks.astype("timedelta64[ns]")
    found = rf.multiview_signature(x, 5, 3, times=[dates], lifts=["time"], engine=engine)
    want = rf.multiview_signature(
        x, 5, 3, times=[ticks.astype(np.float64)], lifts=["time"], engine=engine
    )
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_a_large_offset_of_the_values_costs_no_digits_in_float64(engine):
    batch = make_batch(3, n_series=4, n_channels=2, longest=50)
    exact = np.round(batch.values * 1024) / 1024
    near = rf.multiview_signature(rebuilt(batch, exact), 6, 3, dtype="float32", engine=engine)
    far = rf.multiview_signature(rebuilt(batch, exact + 1e9), 6, 3, dtype="float32", engine=engine)
    np.testing.assert_allclose(far, near, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lifts", [[], ["time", "counts", rf.Lag(0.3), "basepoint", "clock"]])
@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_inputs_are_never_changed(engine, lifts, drop):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 2, 9))
    x[1, 0, 3:6] = np.nan
    times, cuts = np.sort(rng.uniform(size=(3, 9)), axis=1), np.linspace(0, 1, 5)
    before = x.copy(), times.copy(), cuts.copy()
    for transform in ("signature", "logsignature"):
        rf.multiview_signature(
            x, cuts, 3, times=times, lifts=lifts, drop=drop, transform=transform, engine=engine
        )
    tensor = torch.from_numpy(np.nan_to_num(x)).transpose(1, 2).contiguous().requires_grad_()
    copy = tensor.detach().clone()
    rf.multiview_signature(
        tensor, cuts, 2, times=times, lifts=lifts, engine=engine
    ).sum().backward()
    assert torch.equal(tensor.detach(), copy)
    for now, then in zip((x, times, cuts), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("transform", ["signature", "logsignature"])
@pytest.mark.parametrize("lifts", [[], {"local": ["time", "clock"], "global": ["basepoint"]}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_out_is_filled_completely_and_returned(engine, transform, lifts, dtype):
    batch = make_batch(5, n_series=19, n_channels=2, longest=12, shortest=3)
    windows = rf.Windows.by_duration(1.5)  # series have different numbers of windows
    options = {"lifts": lifts, "transform": transform, "engine": engine, "dtype": dtype}
    want = rf.multiview_signature(batch, windows, 3, **options)
    out = np.full(want.shape, np.nan, dtype)
    found = rf.multiview_signature(batch, windows, 3, out=out, **options)
    assert found is out
    np.testing.assert_array_equal(out, want)
    room = np.full((21, *want.shape[1:]), np.nan, dtype)
    rf.multiview_signature(batch, windows, 3, out=room[1:-1], **options)
    np.testing.assert_array_equal(room[1:-1], want)
    assert np.isnan(room[[0, -1]]).all()


def test_out_works_for_whole_signatures_and_for_tensors(engine):
    batch = make_batch(5, n_series=4)
    out = np.full((4, word_count(2, 3)), np.nan)
    found = rf.signature(batch, 3, out=out, engine=engine)
    assert np.shares_memory(found, out)
    np.testing.assert_array_equal(out, rf.signature(batch, 3, engine=engine))
    x = torch.randn(4, 6, 2, dtype=torch.float64)
    rf.signature(x, 3, out=out, engine=engine)
    np.testing.assert_array_equal(out, rf.signature(x, 3, engine=engine).numpy())


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((4, 3, 6), np.float32),
        np.zeros((4, 3, 7)),
        np.zeros((4, 6, 3)).transpose(0, 2, 1),
        np.zeros((8, 3, 6))[::2],
    ],
    ids=["dtype", "shape", "order", "stride"],
)
def test_an_out_that_does_not_fit_is_refused_and_left_alone(engine, bad):
    batch = make_batch(5, n_series=4)
    with pytest.raises(rf.InputError, match=r"C-contiguous float64 array of shape \(4, 3, 6\)"):
        rf.multiview_signature(batch, 3, 2, "local", out=bad, engine=engine)
    assert not bad.any()


def test_out_must_be_writeable(engine):
    batch = make_batch(5, n_series=4)
    out = np.zeros((4, 3, 6))
    out.flags.writeable = False
    with pytest.raises(rf.InputError, match="writeable"):
        rf.multiview_signature(batch, 3, 2, "local", out=out, engine=engine)


def test_views_stand_in_the_order_they_are_asked_for(engine):
    batch = make_batch(5, n_series=4)
    glob = rf.multiview_signature(batch, 3, 2, "global", engine=engine)
    local = rf.multiview_signature(batch, 3, 2, "local", engine=engine)
    for views, parts in (
        (("global", "local"), (glob, local)),
        (("local", "global"), (local, glob)),
    ):
        both = rf.multiview_signature(batch, 3, 2, views, engine=engine)
        np.testing.assert_array_equal(both, np.concatenate(parts, axis=-1))


def test_repeated_calls_do_not_grow_memory(engine):
    batch = make_batch(1, n_series=40, n_channels=4, longest=20, shortest=20)
    x = torch.randn(20, 20, 3, requires_grad=True)

    def work():
        for transform in ("signature", "logsignature"):
            rf.multiview_signature(
                batch,
                20,
                3,
                lifts=["time", rf.Clock(1)],
                transform=transform,
                drop=0.5,
                engine=engine,
            )
        rf.multiview_signature(x, 10, 3, engine=engine).sum().backward()
        running = rf.RunningSignatures(50, 3, 4, engine=engine)
        running.push(np.zeros((50, 3)))
        running.push(np.ones((50, 3)))
        running.close()
        running.read()

    def resident():
        with open("/proc/self/statm") as numbers:
            return int(numbers.read().split()[1]) * 4096

    try:
        resident()
    except OSError:
        pytest.skip("this system does not tell the memory of a process in /proc")
    sizes = []
    for _ in range(12):
        for _ in range(5):
            work()
        sizes.append(resident())
    # The heap may settle or stretch once at any time, a leak grows in every round: a round's
    # results are 20 MB, so half of the rounds without growth rule one out.
    grown = np.diff(sizes) > 1e6
    assert grown.sum() <= len(grown) // 2, [f"{s / 1e6:.1f} MB" for s in sizes]


FIRST_USES = ["signature", "logsignature", "multiview_signature", "RunningSignatures"]


@pytest.mark.parametrize("first", FIRST_USES)
def test_public_names_are_what_they_say_whichever_is_used_first(first):
    # The package roughformer.signatures must not take the place of the function.
    code = f"""
import roughformer as rf
rf.{first}
for name in {FIRST_USES}:
    assert callable(getattr(rf, name)), name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""The engines against pySigLib and against the readable algebra, window by window."""

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
    lyndon_bounds,
    make_batch,
    variations,
    window_paths,
)
from roughformer import algebra
from roughformer.signatures.words import lyndon_count, lyndon_words, word_count

seeds = st.integers(0, 2**32)
dtypes = st.sampled_from([np.float32, np.float64])
VIEWS = ("global", "local")
# Straight-line code of the native kernel, and sizes beyond it, where its generic code runs.
SPECIAL = [(1, 1), (1, 6), (2, 2), (2, 4), (3, 4), (4, 4), (5, 3), (6, 3), (7, 2), (8, 2)]
GENERIC = [(1, 8), (2, 7), (3, 5), (5, 4), (7, 3), (9, 1), (9, 2), (10, 3), (20, 2), (21, 3)]
# pySigLib's log_sig methods: 1 gives coefficients of Lyndon words, 2 coordinates of brackets.
METHOD = {"words": 1, "brackets": 2}


def split(tokens):
    return zip(VIEWS, np.split(tokens, 2, axis=-1), strict=True)


@given(
    seed=seeds,
    size=st.sampled_from([(1, 3), (2, 4), (3, 2), (4, 3), (9, 2)]),
    n_series=st.sampled_from([1, 3, 17]),
    longest=st.sampled_from([1, 2, 7, 20]),
    dtype=dtypes,
    shared=st.booleans(),
)
def test_tokens_are_the_signatures_of_the_explicit_windows(
    engine, seed, size, n_series, longest, dtype, shared
):
    d, n = size
    batch = make_batch(seed, n_series, d, longest, dtype, shared)
    cuts = cuts_for(seed, batch, most=3, shared=shared)
    found = rf.multiview_signature(batch, cuts[0] if shared else cuts, n, engine=engine)
    assert found.dtype == dtype
    for view, part in split(found):
        rows = slice(None, None, 4)  # the oracle is slow: every fourth series
        want = expected_tokens(batch[rows], cuts[rows], n, view)
        scale = variations(batch[rows], cuts[rows], view)
        assert_tokens_close(part[rows, : want.shape[1]], want, scale, d, n, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "n"), SPECIAL + GENERIC)
def test_every_kernel_agrees_with_pysiglib(engine, d, n, dtype):
    pysiglib = pytest.importorskip("pysiglib")
    # Windows longer than the blocks of 64 points in which the kernel reads them.
    batch = make_batch(d * 100 + n, 19, d, 200, dtype, shortest=150)
    if word_count(d, n) > 700:
        batch = batch[:3]
    cuts = cuts_for(n, batch, most=3)
    found = rf.multiview_signature(batch, cuts, n, engine=engine)
    for view, part in split(found):
        scale = variations(batch, cuts, view)
        for b, row in enumerate(window_paths(batch, cuts, view)):
            want = np.stack([pysiglib.sig(path, n) for path in row])
            assert_tokens_close(part[b, : len(row)], want, scale[b, : len(row)], d, n, dtype)
            np.testing.assert_array_equal(part[b, len(row) :], 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("basis", ["words", "brackets"])
@pytest.mark.parametrize(
    ("d", "n"), [(1, 3), (2, 2), (2, 6), (3, 4), (4, 4), (7, 2), (3, 5), (9, 2), (10, 3)]
)
def test_log_signatures_agree_with_pysiglib_in_both_bases(engine, d, n, basis, dtype):
    pysiglib = pytest.importorskip("pysiglib")
    batch = make_batch(d * 100 + n, 7, d, 40, dtype)
    cuts = cuts_for(n, batch, most=3)
    found = rf.multiview_signature(
        batch, cuts, n, transform="logsignature", basis=basis, engine=engine
    )
    assert found.shape[-1] == 2 * lyndon_count(d, n)
    pysiglib.prepare_log_sig(d, n, method=METHOD[basis])
    for view, part in split(found):
        bounds = lyndon_bounds(variations(batch, cuts, view), d, n, basis)
        for b, row in enumerate(window_paths(batch, cuts, view)):
            want = [pysiglib.log_sig(path, n, method=METHOD[basis]) for path in row]
            assert_within(part[b, : len(row)], np.stack(want), bounds[b, : len(row)], dtype)


@pytest.mark.parametrize("basis", ["words", "brackets"])
@pytest.mark.parametrize(("d", "n"), [(2, 3), (3, 3), (2, 4), (4, 4), (2, 5), (3, 5), (2, 6)])
def test_log_signatures_of_float32_have_its_precision_at_any_depth(engine, d, n, basis):
    x = np.random.default_rng(d).normal(size=(1, 500, d)).cumsum(axis=1).astype(np.float32)
    log = algebra.logarithm(algebra.path_signature(x[0].astype(np.float64), n), d, n)
    project = algebra.lyndon_brackets if basis == "brackets" else algebra.lyndon_projection
    want = project(log, d, n)
    inputs = [x, torch.from_numpy(x).requires_grad_()]
    for found in (rf.logsignature(part, n, basis=basis, engine=engine) for part in inputs):
        got = found if isinstance(found, np.ndarray) else found.detach().numpy()
        assert got.dtype == np.float32
        lengths = np.array([len(word) for word in lyndon_words(d, n)])
        for k in range(1, n + 1):
            level = lengths == k
            error = np.abs(got[0] - want)[level].max() / np.abs(want[level]).max()
            assert error < 1e-5, (k, error)


def test_a_whole_log_signature_agrees_with_pysiglib(engine):
    pysiglib = pytest.importorskip("pysiglib")
    x = np.cumsum(np.random.default_rng(0).normal(size=(5, 30, 3)), axis=1)
    for basis, method in METHOD.items():
        pysiglib.prepare_log_sig(3, 4, method=method)
        want = pysiglib.log_sig(x, 4, method=method)
        found = rf.logsignature(torch.from_numpy(x), 4, basis=basis, engine=engine).numpy()
        scale = np.abs(np.diff(x, axis=1)).sum(axis=(1, 2))
        assert_within(found, want, lyndon_bounds(scale, 3, 4, basis), np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("drop", [0.0, 0.5])
@pytest.mark.parametrize(("d", "n"), [(1, 4), (2, 3), (3, 4), (5, 2), (9, 2), (3, 5)])
def test_every_instruction_set_gives_the_same_tokens(instruction_set, d, n, drop, dtype):
    lifts = ["time"] if d > 1 else []
    batch = make_batch(d + n, 37, d - len(lifts), 150, dtype)
    cuts = cuts_for(n, batch, most=6)
    options = {"lifts": lifts, "drop": drop, "seed": 3}
    found = rf.multiview_signature(batch, cuts, n, engine="native", **options)
    want = rf.multiview_signature(batch, cuts, n, engine="torch", dtype="float64", **options)
    thinned = batch.drop_points(drop, seed=3)
    for (view, part), (_, other) in zip(split(found), split(want), strict=True):
        scale = variations(thinned, cuts, view, time="span" if lifts else None)
        assert_tokens_close(part, other, scale, d, n, dtype)


@pytest.mark.parametrize("basis", ["words", "brackets"])
def test_every_instruction_set_gives_the_same_log_signatures(instruction_set, basis):
    batch = make_batch(1, 37, 3, 80)
    cuts = cuts_for(1, batch)
    options = {"transform": "logsignature", "basis": basis}
    found = rf.multiview_signature(batch, cuts, 4, "local", engine="native", **options)
    want = rf.multiview_signature(batch, cuts, 4, "local", engine="torch", **options)
    assert_within(found, want, lyndon_bounds(variations(batch, cuts), 3, 4, basis), np.float64)


@pytest.mark.parametrize("size", [(3, 3), (9, 2)])
def test_every_instruction_set_gives_the_same_gradient_and_running_signatures(
    instruction_set, size
):
    d, n = size
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(37, 20, d)), axis=1)
    grads = []
    for engine in ("native", "torch"):
        tensor = torch.from_numpy(x).requires_grad_()
        tokens = rf.multiview_signature(tensor, 4, n, engine=engine)
        weights = torch.from_numpy(np.random.default_rng(1).normal(size=tuple(tokens.shape)))
        (tokens * weights).sum().backward()
        grads.append(tensor.grad.numpy())
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-9, atol=1e-9 * np.abs(grads[1]).max())
    running = rf.RunningSignatures(37, d, n, dtype=np.float64, engine="native")
    for points in x.transpose(1, 0, 2):
        running.push(points)
    want = rf.multiview_signature(torch.from_numpy(x), 1, n, "local", engine="torch")[:, 0]
    scale = np.abs(np.diff(x, axis=1)).sum(axis=(1, 2))
    assert_tokens_close(running.read("local"), want.numpy(), scale, d, n, np.float64)


def test_a_long_series_keeps_its_digits_in_float32(engine):
    pysiglib = pytest.importorskip("pysiglib")
    x = np.cumsum(np.random.default_rng(0).normal(size=(2, 4000, 3)), axis=1).astype(np.float32)
    found = rf.multiview_signature(torch.from_numpy(x), 3, 3, "local", engine=engine).numpy()
    cuts = np.arange(0, 4000, 1333)
    for b in range(2):
        for k in range(3):
            path = x[b, cuts[k] : cuts[k + 1] + 1].astype(np.float64)
            want = pysiglib.sig(path, 3)
            for low, high in ((0, 3), (3, 12), (12, 39)):  # relative to the level's own maximum
                largest = np.abs(want[low:high]).max()
                assert np.abs(found[b, k, low:high] - want[low:high]).max() <= 1e-5 * largest


def test_pysiglib_and_the_engine_agree_on_the_time_channel(engine):
    pysiglib = pytest.importorskip("pysiglib")
    x = np.cumsum(np.random.default_rng(0).normal(size=(4, 30, 2)), axis=1)
    found = rf.multiview_signature(
        torch.from_numpy(x), 1, 3, "local", lifts=["time"], engine=engine
    ).numpy()[:, 0]
    clock = np.broadcast_to(np.linspace(0, 1, 30)[None, :, None], (4, 30, 1))
    want = pysiglib.sig(np.ascontiguousarray(np.concatenate([clock, x], axis=2)), 3)
    scale = 1 + np.abs(np.diff(x, axis=1)).sum(axis=(1, 2))
    assert_tokens_close(found, want, scale, 3, 3, np.float64)

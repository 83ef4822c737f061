"""Sizes from 0 and 1 up to too large: what must work, what is refused, and with which words."""

import tracemalloc
from itertools import product

import numpy as np
import pytest
import torch

import roughformer as rf
from reference import assert_tokens_close, expected_tokens, make_batch, variations
from roughformer import algebra
from roughformer.signatures.words import lyndon_count, word_count

VIEWS = ("global", "local")


@pytest.mark.parametrize("transform", ["signature", "logsignature"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize("n_series", [1, 3])
def test_every_combination_of_small_sizes_works(engine, n_series, length, dtype, transform):
    count = word_count if transform == "signature" else lyndon_count
    for channels, depth, windows in product([1, 2], [1, 2, 5], [1, 2, 9]):
        batch = make_batch(1, n_series, channels, length, dtype, shared=True)
        found = rf.multiview_signature(batch, windows, depth, transform=transform, engine=engine)
        assert found.shape == (n_series, windows, 2 * count(channels, depth))
        assert found.dtype == dtype
        assert np.isfinite(found).all()
        if length == 1:
            assert not found.any()
        else:
            moved = batch.values[length - 1] - batch.values[0]
            np.testing.assert_allclose(found[0, -1, :channels], moved, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transform", ["signature", "logsignature"])
@pytest.mark.parametrize("windows", [1, 3, [0.0, 1.0, 2.0, 3.0]], ids=["one", "three", "cuts"])
def test_no_series_still_have_their_windows_and_features(engine, windows, transform):
    # So that parts of a batch can be put together again, empty ones too.
    batch = make_batch(1, n_series=0)
    found = rf.multiview_signature(batch, windows, 2, transform=transform, engine=engine)
    size = 2 * (word_count(2, 2) if transform == "signature" else lyndon_count(2, 2))
    assert found.shape == (0, windows if isinstance(windows, int) else 3, size)


def test_a_single_cut_is_no_window(engine):
    batch = make_batch(0, n_series=3)
    for windows in ([1.0], rf.Windows.explicit([[0.0], [1.0], [2.0]])):
        for transform, size in (("signature", 6), ("logsignature", 3)):
            found = rf.multiview_signature(batch, windows, 2, transform=transform, engine=engine)
            assert found.shape == (3, 0, 2 * size)


def test_a_series_without_windows_among_others_has_only_padding(engine):
    batch = make_batch(0, n_series=3, shortest=4)
    cuts = [[0.0], [-1.0, 50.0], [-1.0, 1.5, 50.0]]
    found = rf.multiview_signature(batch, cuts, 2, engine=engine)
    assert found.shape == (3, 2, 12)
    assert not found[0].any()
    assert not found[1, 1].any()
    assert found[1, 0].any()
    assert found[2, 1].any()


def test_no_series_at_all_gives_an_empty_tensor_with_a_gradient(engine):
    x = torch.zeros(0, 5, 2, requires_grad=True)
    found = rf.multiview_signature(x, 3, 2, engine=engine)
    assert tuple(found.shape) == (0, 3, 12)
    found.sum().backward()
    assert tuple(x.grad.shape) == (0, 5, 2)


def test_one_point_per_series_gives_zeros_and_a_zero_gradient(engine):
    x = torch.ones(2, 1, 3, requires_grad=True)
    found = rf.multiview_signature(x, 4, 3, lifts=["time"], layout="time_first", engine=engine)
    assert not found.detach().any()
    found.sum().backward()
    assert not x.grad.any()


def test_a_window_without_observations_inside_is_a_piece_of_a_segment(engine):
    batch = rf.SeriesBatch.from_arrays([np.array([[0.0, 0.0], [8.0, -4.0]])], [[0.0, 8.0]])
    found = rf.multiview_signature(batch, [1.0, 2.0, 4.0], 3, "local", engine=engine)
    for k, moved in enumerate(([1.0, -0.5], [2.0, -1.0])):
        np.testing.assert_allclose(
            found[0, k], algebra.exponential(np.array(moved), 2, 3), rtol=1e-12
        )


def test_a_cut_exactly_on_an_observation_ends_the_window_there(engine):
    batch = make_batch(2, n_series=1, longest=9, shortest=9)
    t, x = batch.series(0)
    found = rf.multiview_signature(batch, [t[0], t[3], t[4], t[8]], 3, "local", engine=engine)
    for k, (a, b) in enumerate(((0, 3), (3, 4), (4, 8))):
        want = algebra.path_signature(x[a : b + 1], 3)
        np.testing.assert_allclose(found[0, k], want, rtol=1e-12, atol=1e-12)


def test_windows_outside_the_span_do_not_move(engine):
    batch = make_batch(2, n_series=2, longest=9, shortest=9)
    start, end = batch.span
    cuts = [[s - 2, s - 1, s, e, e + 1, e + 2] for s, e in zip(start, end, strict=True)]
    for lifts in ([], ["time"]):
        found = rf.multiview_signature(batch, cuts, 2, lifts=lifts, engine=engine)
        glob, local = np.split(found, 2, axis=-1)
        assert not local[:, [0, 1, 3, 4]].any()
        assert not glob[:, :2].any()
        whole = rf.multiview_signature(batch, 1, 2, "local", lifts=lifts, engine=engine)
        np.testing.assert_allclose(local[:, 2], whole[:, 0], rtol=1e-12, atol=1e-14)
        for k in (2, 3, 4):
            np.testing.assert_allclose(glob[:, k], whole[:, 0], rtol=1e-12, atol=1e-14)


def test_a_window_may_reach_beyond_both_ends(engine):
    batch = make_batch(2, n_series=3)
    wide = rf.multiview_signature(batch, [-1e6, 1e6], 3, "local", engine=engine)
    whole = rf.multiview_signature(batch, 1, 3, "local", engine=engine)
    np.testing.assert_allclose(wide, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("channels", "depth"), [(300, 1), (257, 2), (65, 2), (50, 3), (1, 12), (2, 10)]
)
def test_many_channels_and_great_depths_are_exact_too(engine, channels, depth, dtype):
    batch = make_batch(1, 2, channels, 4, dtype, shortest=3)
    cuts = [np.array([t[0], t[1] + 0.05, t[-1]]) for t, _ in (batch.series(b) for b in range(2))]
    found = rf.multiview_signature(batch, cuts, depth, engine=engine)
    for view, part in zip(VIEWS, np.split(found, 2, axis=-1), strict=True):
        want = expected_tokens(batch, cuts, depth, view)
        assert_tokens_close(part, want, variations(batch, cuts, view), channels, depth, dtype)


@pytest.mark.parametrize("n_series", [7, 8, 9, 15, 16, 17, 33])
@pytest.mark.parametrize("length", [63, 64, 65, 66, 129])
def test_sizes_around_vectors_and_blocks_of_the_kernel_are_no_special_case(
    native, n_series, length
):
    batch = make_batch(length, n_series, 2, length, np.float32, shared=True)
    found = rf.multiview_signature(batch, 2, 3, engine=native)
    want = rf.multiview_signature(batch, 2, 3, engine="torch", dtype="float64")
    scale = np.abs(np.diff(batch.values.reshape(n_series, length, 2), axis=1)).sum(axis=(1, 2))
    scale = np.repeat(scale[:, None], 2, axis=1)
    for part, other in zip(np.split(found, 2, -1), np.split(want, 2, -1), strict=True):
        assert_tokens_close(part, other, scale, 2, 3, np.float32)


# ---- counting and naming features ---------------------------------------------------------------

LIFTS = [
    [],
    ["time"],
    ["time", rf.Lag(0.5), rf.Lag(1.0), "counts"],
    {"local": ["time", rf.Clock(3)], "global": [rf.Clock(2), "basepoint"]},
]


@pytest.mark.parametrize("lifts", LIFTS, ids=["none", "time", "many", "per view"])
@pytest.mark.parametrize("transform", ["signature", "logsignature"])
@pytest.mark.parametrize("views", ["global", "local", ("global", "local"), ("local", "global")])
def test_the_feature_count_and_names_are_those_of_the_result(engine, views, transform, lifts):
    if isinstance(lifts, dict):
        lifts = {v: lifts[v] for v in ([views] if isinstance(views, str) else views)}
    batch = make_batch(0, n_series=2)
    found = rf.multiview_signature(
        batch, 3, 3, views, lifts=lifts, transform=transform, engine=engine
    )
    assert rf.feature_count(2, 3, views, lifts, transform) == found.shape[-1]
    names = rf.feature_names(batch.channels, 3, views, lifts, transform)
    assert len(names) == found.shape[-1]
    assert len(set(names)) == len(names)
    assert rf.memory_estimate(2, 3, len(names), 8) == found.nbytes


def test_a_feature_is_the_iterated_integral_that_its_name_tells(engine):
    batch = make_batch(0, n_series=1, shortest=8)
    tokens = rf.multiview_signature(batch, 2, 2, lifts=["time"], engine=engine)
    names = rf.feature_names(("a", "b"), 2, lifts=["time"])
    (t, x), cuts = batch.series(0), np.linspace(*batch.span, 3)[:, 0]
    fine = np.linspace(cuts[1], cuts[2], 200_001)
    path = {
        "time": (fine - t[0]) / (t[-1] - t[0]),
        "a": np.interp(fine, t, x[:, 0]),
        "b": np.interp(fine, t, x[:, 1]),
    }
    for first in path:
        assert tokens[0, 1, names.index(f"local:{first}")] == pytest.approx(
            path[first][-1] - path[first][0]
        )
        for second in path:
            middle = (path[first][1:] + path[first][:-1]) / 2 - path[first][0]
            want = np.sum(middle * np.diff(path[second]))
            got = tokens[0, 1, names.index(f"local:{first}*{second}")]
            assert got == pytest.approx(want, rel=1e-6, abs=1e-8)


# ---- refusals -----------------------------------------------------------------------------------


def test_a_result_beyond_the_limit_is_refused_before_anything_is_allocated(engine):
    batch = make_batch(0, n_series=1, n_channels=50, longest=3, dtype=np.float32)
    tracemalloc.start()
    try:
        with pytest.raises(rf.CapacityError) as caught:
            rf.multiview_signature(batch, 75, 4, max_memory=10**9, engine=engine)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    features = 2 * word_count(50, 4)
    assert f"1 series x 75 windows x {features} features" in text
    assert "3.83 GB" in text  # 75 windows x 2 views x 6,377,550 words x 4 bytes
    assert "1 GB allowed" in text
    for way_out in ("depth", "logsignature", "groups", "fewer windows", "max_memory="):
        assert way_out in text


def test_without_a_limit_the_free_memory_is_the_limit(engine):
    batch = make_batch(0, n_series=200, n_channels=50, longest=3)
    with pytest.raises(rf.CapacityError, match=r"need 1\.53 TB"):
        rf.multiview_signature(batch, 75, 4, engine=engine)


def test_the_limit_counts_the_result_and_the_scratch_of_each_thread(engine):
    batch = make_batch(0, n_series=2)
    size = rf.memory_estimate(2, 3, rf.feature_count(2, 2), 8)
    scratch = 3 * 64 * 6  # three times the six words of 64 bytes of lanes
    room = {"max_memory": size + scratch, "threads": 1, "engine": engine}
    assert rf.multiview_signature(batch, 3, 2, **room).nbytes == size
    with pytest.raises(rf.CapacityError):
        rf.multiview_signature(batch, 3, 2, **(room | {"max_memory": size + scratch - 1}))
    with pytest.raises(rf.CapacityError):
        rf.multiview_signature(batch, 3, 2, max_memory=size - 1, engine=engine)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 0}, "depth must be a whole number from 1 to 12, got 0"),
        ({"depth": 13}, "depth must be a whole number from 1 to 12, got 13"),
        ({"depth": 2.5}, "depth must be a whole number"),
        ({"views": ()}, "views must be"),
        ({"views": ("local", "local")}, "each once"),
        ({"views": "middle"}, "views must be"),
        ({"transform": "log"}, "transform must be 'signature' or 'logsignature'"),
        ({"basis": "hall"}, "basis must be 'brackets' or 'words'"),
        ({"engine": "gpu"}, "engine must be 'auto', 'native' or 'torch'"),
        ({"threads": 0}, "threads must be a whole number >= 1"),
        ({"dtype": "float16"}, "dtype must be float32 or float64"),
        ({"dtype": int}, "dtype must be float32 or float64"),
        ({"drop": 1.0}, r"must be in \[0, 1\), got 1.0"),
        ({"drop": float("nan")}, r"must be in \[0, 1\)"),
        ({"lifts": ["tyme"]}, "unknown lift 'tyme'"),
        ({"lifts": ["time", rf.Time(2.0)]}, "given twice"),
        ({"lifts": {"local": ["time"]}, "views": "global"}, "lifts are given for"),
        ({"lifts": [3]}, "a lift is one of"),
    ],
)
def test_wrong_options_are_refused_with_words(options, words):
    batch = make_batch(0, n_series=2)
    arguments = {"windows": 3, "depth": 2} | options
    with pytest.raises(rf.InputError, match=words):
        rf.multiview_signature(batch, **arguments)


@pytest.mark.parametrize("name", ["windows", "views", "transform"])
def test_whole_signatures_say_which_options_they_do_not_take(name):
    with pytest.raises(rf.InputError, match=f"takes no {name}="):
        rf.logsignature(make_batch(0), 2, **{name: 1})


@pytest.mark.parametrize("name", ["times", "lengths"])
def test_times_beside_a_batch_that_has_its_own_are_refused(engine, name):
    batch = make_batch(0, n_series=2, shared=True)
    other = {"times": np.arange(8.0) ** 2, "lengths": [2, 3]}[name]
    with pytest.raises(rf.InputError, match="already has its times"):
        rf.multiview_signature(batch, 3, 2, engine=engine, **{name: other})

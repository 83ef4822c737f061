"""Signatures that grow point by point are those of the whole series, however the points arrive."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from reference import assert_tokens_close, level_bounds, variation
from roughformer import algebra
from roughformer.signatures.words import word_count

seeds = st.integers(0, 2**32)
dtypes = st.sampled_from([np.float32, np.float64])
shapes = st.sampled_from([(1, 1), (2, 3), (3, 4), (4, 2), (9, 2), (3, 5)])


class Diary:
    """What each stream has been told: all its points, and where its window began."""

    def __init__(self, n):
        self.points = [[] for _ in range(n)]
        self.begun = [0] * n

    def push(self, points, active):
        for i in np.flatnonzero(active):
            self.points[i].append(points[i].astype(np.float64))

    def close(self, which):
        for i in np.flatnonzero(which):
            self.begun[i] = max(len(self.points[i]) - 1, 0)

    def paths(self, i, d):
        """(whole path, path of the open window) of stream i."""
        whole = np.array(self.points[i]).reshape(-1, d)
        return whole, whole[self.begun[i] :]


def assert_reads(running, diary, streams, d, n, dtype):
    tokens = running.read()
    assert tokens.dtype == dtype
    size = word_count(d, n)
    for i in streams:
        for path, part in zip(diary.paths(i, d), (tokens[i, :size], tokens[i, size:]), strict=True):
            want = algebra.path_signature(path, n) if len(path) else np.zeros(size)
            assert_tokens_close(part, want, variation(path) if len(path) else 0.0, d, n, dtype)


@given(
    seed=seeds,
    size=shapes,
    dtype=dtypes,
    n_streams=st.sampled_from([1, 3, 19]),
    steps=st.integers(0, 12),
)
def test_any_order_of_points_and_window_ends_gives_the_signatures_of_the_paths(
    engine, seed, size, dtype, n_streams, steps
):
    d, n = size
    rng = np.random.default_rng(seed)
    running = rf.RunningSignatures(n_streams, d, n, dtype=dtype, engine=engine)
    diary = Diary(n_streams)
    for _ in range(steps):
        points = rng.normal(size=(n_streams, d)).astype(dtype)
        active = np.ones(n_streams, bool) if rng.random() < 0.5 else rng.random(n_streams) < 0.6
        running.push(points, None if active.all() else active)
        diary.push(points, active)
        if rng.random() < 0.4:
            which = np.ones(n_streams, bool) if rng.random() < 0.5 else rng.random(n_streams) < 0.5
            running.close(None if which.all() else which)
            diary.close(which)
    assert_reads(running, diary, range(0, n_streams, 4), d, n, dtype)


@given(
    seed=seeds,
    size=shapes,
    dtype=dtypes,
    ends=st.lists(st.integers(1, 14), min_size=1, max_size=5, unique=True),
)
def test_running_signatures_are_the_tokens_of_the_batch(engine, seed, size, dtype, ends):
    d, n = size
    length = 15
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.normal(size=(4, length, d)), axis=1).astype(dtype)
    cuts = np.array([0, *sorted(ends)], dtype=np.float64)
    batch = rf.SeriesBatch.from_tensor(x)
    want = rf.multiview_signature(batch, cuts, n, engine=engine)
    running = rf.RunningSignatures(4, d, n, dtype=dtype, engine=engine)
    tokens = []
    for i in range(length):
        running.push(x[:, i])
        if i in cuts[1:]:
            tokens.append(running.read())
            running.close()
    found = np.stack(tokens, axis=1)
    scale = np.abs(np.diff(x.astype(np.float64), axis=1)).sum(axis=(1, 2))
    bound = level_bounds(np.repeat(scale[:, None], len(tokens), axis=1), d, n)
    assert found.shape == want.shape
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    assert (np.abs(found - want) <= tolerance * np.concatenate([bound, bound], axis=-1)).all()


def test_streams_may_start_and_pause_at_different_times(engine):
    running = rf.RunningSignatures(3, 1, 2, dtype=np.float64, engine=engine)
    running.push([[5.0], [7.0], [9.0]], active=np.array([True, False, True]))
    running.push([[6.0], [1.0], [0.0]], active=np.array([True, True, False]))
    running.push([[8.0], [2.0], [10.0]])
    np.testing.assert_allclose(running.read("local"), [[3, 4.5], [1, 0.5], [1, 0.5]])


def test_a_window_that_is_closed_twice_is_closed_once(engine):
    running = rf.RunningSignatures(2, 2, 3, dtype=np.float64, engine=engine)
    for points in np.random.default_rng(0).normal(size=(5, 2, 2)):
        running.push(points)
    before = running.read("global")
    running.close()
    running.close()
    np.testing.assert_allclose(running.read("global"), before, rtol=1e-12)
    assert not running.read("local").any()


def test_closing_before_the_first_point_changes_nothing(engine):
    running = rf.RunningSignatures(2, 2, 3, engine=engine)
    running.close()
    assert not running.read().any()


def test_reading_changes_nothing_and_can_write_into_an_array(engine):
    running = rf.RunningSignatures(19, 3, 2, engine=engine)
    for points in np.random.default_rng(0).normal(size=(5, 19, 3)):
        running.push(points)
        running.close(np.arange(19) % 2 == 0)
    first = running.read()
    room = np.full((21, first.shape[1]), np.nan, np.float32)
    assert np.shares_memory(running.read(out=room[1:-1]), room)
    np.testing.assert_array_equal(room[1:-1], first)
    assert np.isnan(room[[0, -1]]).all()
    size = word_count(3, 2)
    np.testing.assert_array_equal(running.read("global"), first[:, :size])
    np.testing.assert_array_equal(running.read("local"), first[:, size:])
    np.testing.assert_array_equal(running.read(("local", "global")), first)


def test_points_given_are_not_changed(engine):
    running = rf.RunningSignatures(2, 2, 2, dtype=np.float64, engine=engine)
    points = np.random.default_rng(0).normal(size=(2, 2))
    copy = points.copy()
    running.push(points)
    points += 1
    running.push(points)
    np.testing.assert_array_equal(points, copy + 1)
    np.testing.assert_allclose(running.read("local")[:, :2], 1.0, rtol=1e-12)


def test_no_streams_at_all_are_fine(engine):
    running = rf.RunningSignatures(0, 2, 2, engine=engine)
    running.push(np.zeros((0, 2)))
    running.close()
    assert running.read().shape == (0, 12)


@pytest.mark.parametrize(("d", "n"), [(70, 2), (20, 3)])
def test_many_channels_stream_too(engine, d, n):
    running = rf.RunningSignatures(3, d, n, dtype=np.float64, engine=engine)
    x = np.random.default_rng(0).normal(size=(4, 3, d))
    for points in x:
        running.push(points)
    for i in range(3):
        want = algebra.path_signature(x[:, i], n)
        assert_tokens_close(running.read("local")[i], want, variation(x[:, i]), d, n, np.float64)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda r: r.push(np.zeros((2, 3))), r"shape \(2, 2\), got \(2, 3\)"),
        (lambda r: r.push([[0.0, np.nan], [0, 0]]), "point of stream 0 must be finite"),
        (lambda r: r.push([[0.0, 0], [0, np.inf]]), "point of stream 1 must be finite"),
        (lambda r: r.push(np.zeros((2, 2)), active=[1, 0]), "active must be a boolean array"),
        (lambda r: r.push(np.zeros((2, 2)), active=np.ones(3, bool)), r"shape \(2,\)"),
        (lambda r: r.close(np.ones(1, bool)), "which must be a boolean array"),
        (lambda r: r.read("middle"), "views must be 'global', 'local' or both"),
        (lambda r: r.read(()), "views must be"),
        (lambda r: r.read(out=np.zeros((2, 12))), "C-contiguous float32"),
        (lambda r: r.read(out=np.zeros((2, 11), np.float32)), r"shape \(2, 12\)"),
    ],
)
def test_wrong_uses_are_refused_with_words_and_change_nothing(engine, use, words):
    running = rf.RunningSignatures(2, 2, 2, engine=engine)
    running.push(np.zeros((2, 2)))
    running.push(np.ones((2, 2)))
    before = running.read()
    with pytest.raises(rf.InputError, match=words):
        use(running)
    np.testing.assert_array_equal(running.read(), before)


def test_a_stream_that_is_left_out_may_hold_anything(engine):
    running = rf.RunningSignatures(2, 1, 2, dtype=np.float64, engine=engine)
    running.push([[0.0], [np.nan]], active=np.array([True, False]))
    running.push([[1.0], [np.inf]], active=np.array([True, False]))
    np.testing.assert_allclose(running.read("local"), [[1, 0.5], [0, 0]])


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((-1, 2, 2), "n_streams must be a whole number >= 0"),
        ((1, 0, 2), "dim must be a whole number >= 1"),
        ((1, 2, 0), "depth must be a whole number from 1 to 12"),
        ((1, 2, 1.5), "depth must be a whole number"),
    ],
)
def test_sizes_that_make_no_stream_are_refused(engine, sizes, words):
    with pytest.raises(rf.InputError, match=words):
        rf.RunningSignatures(*sizes, engine=engine)


def test_streams_beyond_the_memory_are_refused_as_a_matter_of_capacity(engine):
    with pytest.raises(rf.CapacityError):
        rf.RunningSignatures(10**12, 3, 4, engine=engine)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_copy_goes_on_as_the_original_would(engine, dtype, twin_of):
    rng = np.random.default_rng(0)
    running = rf.RunningSignatures(19, 3, 3, dtype=dtype, engine=engine)
    for _ in range(3):
        running.push(rng.normal(size=(19, 3)))
    running.close(rng.random(19) < 0.5)
    before, twin = running.read(), twin_of(running)
    np.testing.assert_array_equal(twin.read(), before)
    point = rng.normal(size=(19, 3))
    twin.push(point)
    np.testing.assert_array_equal(running.read(), before)
    running.push(point)
    np.testing.assert_array_equal(twin.read(), running.read())


def test_a_copy_of_another_instruction_set_says_so(native):
    from roughformer.signatures.library import load

    lib = load()
    usual, names = lib.rf_isa(), rf.engine_info()["available"]
    if len(names) < 2:
        pytest.skip("one instruction set only")
    kept = pickle.dumps(rf.RunningSignatures(2, 2, 2))
    try:
        lib.rf_set_isa(next(name for name in names if name.encode() != usual).encode())
        with pytest.raises(rf.InputError, match="ROUGHFORMER_ISA"):
            pickle.loads(kept)
    finally:
        lib.rf_set_isa(usual)

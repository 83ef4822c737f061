"""A store read series by series is what was written."""

import pickle

import numpy as np
import pyarrow.parquet as pq
import pytest

import roughformer as rf
from roughformer.series import SeriesBatch
from roughformer.store.storage import Place
from roughformer.store.stored import (
    MIXED,
    Manifest,
    RowGroupCache,
    Rows,
    StoredSeries,
    Tokens,
    Totals,
    schema_of,
    shard_name,
    write_shard,
)


def made_up(n, *, ragged=True, static=True, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 30, n) if ragged else np.full(n, 12)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    times = np.concatenate([np.cumsum(rng.uniform(0.1, 1, k)) for k in lengths])
    values = rng.normal(size=(offsets[-1], 2)).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = np.nan
    return SeriesBatch(
        times, values, offsets, channels=("a", "b"), ids=np.array([f"s{i}" for i in range(n)]),
        static=rng.normal(size=(n, 1)) if static else None,
        static_names=("age",) if static else None, labels=rng.integers(0, 3, n),
    )  # fmt: skip


def written(directory, batch, tokenizer, *, holds=("series", "tokens"), shards=3, block=7):
    """A store with row groups of ``block`` series."""
    place = Place.of(directory)
    place.make_directory()
    infos = []
    for k, numbers in enumerate(np.array_split(np.arange(len(batch)), shards)):
        blocks = []
        for i in range(0, max(len(numbers), 1), block):
            part = batch[numbers[i : i + block]]
            inputs = tokenizer.arrays(part)
            windows = tokenizer.config.rule.place(part).n_windows
            real = np.arange(inputs["tokens"].shape[1])[None, :] < windows[:, None]
            tokens = Tokens(
                inputs["tokens"][real], inputs["times"][real],
                np.concatenate([[0], np.cumsum(windows)]), inputs.get("spectrum"),
            )  # fmt: skip
            blocks.append(
                Rows(
                    part.ids, part.n_points, part.labels, part.static,
                    part if "series" in holds else None, tokens if "tokens" in holds else None,
                )
            )  # fmt: skip
        schema = schema_of(blocks[0])
        infos.append(write_shard(place / shard_name(k), "key", k, blocks, schema, lambda: None))
    manifest = Manifest(
        key="key", holds=holds, channels=batch.channels, static_names=batch.static_names,
        labelled=True, tokenizer=tokenizer if "tokens" in holds else None,
        totals=Totals(series=len(batch), points=batch.n_points, windows=0),
        shards=tuple(infos), roughformer=rf.__version__,
    )  # fmt: skip
    manifest.write(place)
    return StoredSeries.open(directory)


@pytest.fixture(scope="module")
def batch():
    return made_up(100)


@pytest.fixture(scope="module")
def tokenizer(batch):
    config = rf.TokenConfig(
        windows={"duration": 2.0}, depth=2, static=("age",),
        spectrum=rf.SpectrumConfig(count=8),
    )  # fmt: skip
    return rf.Tokenizer.fit(config, batch)


@pytest.fixture(scope="module")
def stored(tmp_path_factory, batch, tokenizer):
    return written(tmp_path_factory.mktemp("store"), batch, tokenizer)


WAYS = [
    [5], [99, 0, 50], slice(10, 30), np.arange(100)[::-1], np.arange(100) % 2 == 0, [3, 3, 3], 7,
]  # fmt: skip


@pytest.mark.parametrize("which", [*WAYS, slice(0)], ids=str)
def test_series_are_those_written(stored, batch, which):
    found, expected = stored[which], batch[which]
    assert len(found) == len(expected)
    np.testing.assert_array_equal(found.times, expected.times)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    np.testing.assert_array_equal(found.labels, expected.labels)
    if len(found):
        assert found.ids.tolist() == expected.ids.tolist()
        np.testing.assert_array_equal(found.static, expected.static)


@pytest.mark.parametrize("which", WAYS, ids=str)
def test_tokens_are_those_of_the_tokenizer(stored, batch, tokenizer, which):
    found, expected = stored.inputs(which), tokenizer.arrays(batch[which])
    real = expected.pop("mask", np.ones(expected["times"].shape, bool))
    assert found.pop("mask", np.ones(found["times"].shape, bool)).tolist() == real.tolist()
    assert set(found) == set(expected)
    for name in ("static", "spectrum"):
        np.testing.assert_array_equal(found[name], expected[name])
    for name in ("tokens", "times"):
        np.testing.assert_array_equal(found[name][real], expected[name][real])
        assert (found[name][~real] == 0).all()


def test_parts_know_their_numbers(stored, batch):
    part = stored.part(np.arange(100) % 3 == 1).part([4, 2])
    assert part.labels.tolist() == batch.labels[[13, 7]].tolist()
    np.testing.assert_array_equal(part[:].values, batch[[13, 7]].values)
    assert part.fingerprint() != stored.fingerprint()
    assert part.fingerprint() == stored.part([13, 7]).fingerprint()


def test_a_sample_is_spread_over_all(stored):
    assert stored.sample(3).which.tolist() == [0, 50, 99]
    assert stored.sample(100) is stored


def test_the_order_is_random_but_needs_few_row_groups_at_a_time(tmp_path, batch, tokenizer):
    stored = written(tmp_path, batch, tokenizer, block=1)  # a hundred row groups
    order = stored.shuffled(np.random.default_rng(0), 32)
    assert sorted(order.tolist()) == list(range(100))
    assert order.tolist() == stored.shuffled(np.random.default_rng(0), 32).tolist()
    assert order.tolist() != stored.shuffled(np.random.default_rng(1), 32).tolist()
    # Neighbours in the order come from everywhere, not from one place of the store.
    assert np.abs(np.diff(order)).mean() > 15
    whole = written(tmp_path / "x", batch, tokenizer, shards=1, block=10)
    groups = whole.cache.group_of(whole.shuffled(np.random.default_rng(0), 32))
    # Sixteen lanes of about six series each: a row group is in three of them at the most.
    lanes = np.concatenate(
        [np.arange(32) // 2, np.arange(32) // 2, np.arange(32) // 2, [0, 4, 8, 12]]
    )
    assert max(len(set(lanes[groups == group].tolist())) for group in range(10)) <= 3


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 15, 16])
def test_small_batches_too_have_series_of_everywhere_by_and_by(tmp_path, batch, tokenizer, size):
    stored = written(tmp_path, batch, tokenizer, shards=1, block=10)  # ten row groups
    order = stored.shuffled(np.random.default_rng(0), size)
    assert sorted(order.tolist()) == list(range(100))
    groups = stored.cache.group_of(order)
    few = min(len(set(groups[i : i + 2 * MIXED].tolist())) for i in range(100 - 2 * MIXED))
    assert few >= 9


@pytest.mark.parametrize("block", [1, 3, 6, 20])
@pytest.mark.parametrize("size", [8, 32, 90])
@pytest.mark.parametrize("share", [1.0, 0.8])
def test_a_row_group_is_read_once_an_epoch_where_no_lane_is_cut_through_it(
    tmp_path, tokenizer, monkeypatch, block, size, share
):
    n = 300
    stored = written(tmp_path, made_up(n), tokenizer, shards=2, block=block)
    own = np.sort(np.random.default_rng(1).choice(n, int(share * n), replace=False))
    part = stored.part(own)
    reads = []
    read = RowGroupCache._with_file
    monkeypatch.setattr(
        RowGroupCache,
        "_with_file",
        lambda self, shard, use: reads.append(shard) or read(self, shard, use),
    )
    order = part.shuffled(np.random.default_rng(0), size)
    for first in range(0, len(order), max(size, 128)):  # as training asks for them
        part.inputs(order[first : first + max(size, 128)])
    present = len(np.unique(stored.cache.group_of(own)))
    # Lanes are cut through at most fifteen row groups; a long line of them has no others.
    assert len(reads) <= present + MIXED - 1


@pytest.mark.parametrize(("world", "most"), [(1, 1.0), (2, 0.5), (3, 0.4), (4, 0.25), (16, 1 / 16)])
def test_processes_read_their_part_of_the_row_groups(tmp_path, batch, tokenizer, world, most):
    def share_of(rank, world, size):
        """Neighbours in a batch, as many for each process as can be."""
        return slice(-(-rank * size // world), -(-(rank + 1) * size // world))

    size, n = 32, 100
    stored = written(tmp_path, batch, tokenizer, block=1)
    order = stored.shuffled(np.random.default_rng(0), size)
    read = np.zeros((world, n), dtype=int)
    for first in range(0, n, size):
        part = order[first : first + size]
        for rank in range(world):
            read[rank, stored.cache.group_of(part[share_of(rank, world, len(part))])] += 1
    assert (read.sum(0) == 1).all()
    # A lane may have one series more than another.
    assert read.sum(1).max() <= most * n + 4
    # Row groups of ten series: lanes are cut through some of them.
    whole = written(tmp_path / "x", batch, tokenizer, shards=1, block=10)
    order = whole.shuffled(np.random.default_rng(0), size)
    groups = [set() for _ in range(world)]
    for first in range(0, n, size):
        part = order[first : first + size]
        for rank in range(world):
            own = whole.cache.group_of(part[share_of(rank, world, len(part))])
            groups[rank] |= set(own.tolist())
    assert max(len(some) for some in groups) <= most * 10 + 2


def test_what_is_in_memory_is_bounded(tmp_path, batch, tokenizer):
    stored = written(tmp_path, made_up(200), tokenizer, block=2)
    stored[::2]
    stored.inputs(slice(None, None, 2))
    assert len(stored.cache._held) == 2 * MIXED + 2
    # What was wanted as a whole is not wanted again soon.
    stored.inputs(slice(None))
    assert len(stored.cache._held) <= 2 * MIXED + 2
    assert not any(tokens for _, tokens in stored.cache._held)


def test_another_process_reads_for_itself(stored, batch):
    stored[:10]
    copy = pickle.loads(pickle.dumps(stored))
    assert len(copy.cache._held) == 0
    np.testing.assert_array_equal(copy[3:6].values, batch[3:6].values)


def test_a_store_of_tokens_has_no_series_and_says_so(tmp_path, batch, tokenizer):
    stored = written(tmp_path, batch, tokenizer, holds=("tokens",))
    assert stored.inputs([1])["tokens"].shape[0] == 1
    with pytest.raises(rf.InputError, match="holds tokens only; to have the series too, make it"):
        stored[0]


def test_a_store_of_series_has_no_tokens_and_says_so(tmp_path, batch, tokenizer):
    stored = written(tmp_path, batch, tokenizer, holds=("series",))
    np.testing.assert_array_equal(stored[:].values, batch.values)
    with pytest.raises(rf.InputError, match="holds no tokens"):
        stored.inputs([1])


@pytest.mark.parametrize("n", [0, 1])
def test_few_series(tmp_path, batch, tokenizer, n):
    stored = written(tmp_path, batch[:n], tokenizer, shards=1)
    assert len(stored) == n
    assert len(stored[:]) == n
    assert stored.shuffled(np.random.default_rng(0), 32).tolist() == list(range(n))


def test_a_damaged_or_missing_shard_is_named(tmp_path, batch, tokenizer):
    written(tmp_path, batch, tokenizer)
    (tmp_path / shard_name(1)).write_bytes(b"PAR1 no")
    with pytest.raises(rf.InputError, match=r"shard-00001\.parquet is missing or damaged"):
        StoredSeries.open(tmp_path)
    (tmp_path / shard_name(1)).unlink()
    with pytest.raises(rf.InputError, match=r"shard-00001\.parquet is missing or damaged"):
        StoredSeries.open(tmp_path)
    with pytest.raises(rf.InputError, match=r"is not a complete feature store"):
        StoredSeries.open(tmp_path / "nothing")


@pytest.mark.parametrize("column", ["tokens", "values", "times"])
def test_one_flipped_bit_is_never_read_as_data(tmp_path, batch, tokenizer, column):
    stored = written(tmp_path, batch, tokenizer, shards=1)
    file = tmp_path / shard_name(0)
    whole = file.read_bytes()
    footer = pq.read_metadata(file)
    chunks = [footer.row_group(0).column(k) for k in range(footer.num_columns)]
    (chunk,) = [chunk for chunk in chunks if chunk.path_in_schema == column]
    first, size = chunk.data_page_offset, chunk.total_compressed_size
    for at in np.random.default_rng(0).integers(first + size // 2, first + size, 10):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(at) % 8
        file.write_bytes(damaged)
        with pytest.raises(rf.InputError, match=r"shard-00000\.parquet is missing or damaged"):
            stored.inputs([0]) if column == "tokens" else stored[0]

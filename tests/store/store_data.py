"""Tables of series in every order, and what a store of them must hold."""

import hashlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import roughformer as rf
from roughformer.store import TableColumns, build_store
from roughformer.store.dataset import Sizes
from roughformer.store.storage import Place
from roughformer.store.stored import Manifest, read_rows

COLUMNS = TableColumns("id", "time", ("x", "y"))
SMALL = Sizes(rows=12_000, shard=100_000, piece=12_000, bucket=4_000)  # a few hundred rows a unit
CONFIG = rf.TokenConfig(windows=5, depth=2)


def table(n_series=40, seed=0, texts=False, gaps=False, dates=False, most=120):
    """A wide table, sorted by id and time."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, most, n_series)
    ids = np.repeat(np.arange(n_series) * 3, lengths)
    n = len(ids)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    time = (np.arange(n) - first) + rng.uniform(0, 0.9, n)
    x = rng.normal(size=(n, 2)).cumsum(axis=0).astype(np.float32)
    if gaps:
        x[rng.random(x.shape) < 0.3] = np.nan
    columns = {
        "id": [f"p{i:05d}" for i in ids] if texts else ids,
        "time": time,
        "x": pa.array(x[:, 0], from_pandas=True),
        "y": pa.array(x[:, 1], from_pandas=True),
        "age": (ids % 7).astype(np.float64),
        "kind": [("a", "b", "c")[i % 3] for i in ids.tolist()],
    }
    if dates:
        start = np.datetime64("2024-03-01T12:00", "ns")
        columns["time"] = start + np.rint(time * 1e9).astype("timedelta64[ns]")
    return pa.table(columns)


def shuffled(data, seed=0):
    return data.take(pa.array(np.random.default_rng(seed).permutation(len(data))))


def by_time(data):
    return data.sort_by("time")


def times_mixed(data, seed=0):
    """Series in order, the rows of each in any order."""
    mixed = shuffled(data, seed)
    return mixed.take(pa.array(np.argsort(mixed.column("id").to_numpy(), kind="stable")))


def write(data, directory, files=3, group=150):
    """Cut anywhere into files of small row groups."""
    directory.mkdir(exist_ok=True)
    cuts = np.linspace(0, len(data), files + 1).astype(int)
    for k, (a, b) in enumerate(pairwise(cuts)):
        pq.write_table(
            data.slice(a, b - a),
            directory / f"part-{k}.parquet",
            row_group_size=group,
            write_page_checksum=True,
        )
    return directory


def make(data, out, columns=COLUMNS, config=CONFIG, sizes=SMALL, **options):
    return build_store([data], out, columns, config, sizes=sizes, **options)


def rows_of(out):
    """All rows of a store by id: (series batch or None, tokens (W, F), times (W,), label)."""
    store = Place.of(out)
    manifest = Manifest.read(store)
    found = {}
    for shard in manifest.shards:
        with pq.ParquetFile(out / shard.file) as file:
            rows = read_rows(file, manifest)
        for b, key in enumerate(rows.ids.tolist()):
            assert key not in found
            tokens = times = None
            if rows.tokens is not None:
                part = slice(rows.tokens.offsets[b], rows.tokens.offsets[b + 1])
                tokens, times = rows.tokens.tokens[part], rows.tokens.times[part]
            found[key] = (
                None if rows.series is None else rows.series[b],
                tokens,
                times,
                None if rows.labels is None else rows.labels[b].item(),
            )
    return manifest, found


def expect(out, whole, drop=0.0, seed=0):
    """The store at ``out`` holds exactly the series of the batch ``whole`` and their tokens."""
    manifest, found = rows_of(out)
    assert sorted(found) == sorted(whole.ids.tolist())
    assert manifest.totals.series == len(whole)
    assert manifest.totals.points == whole.n_points
    for b, key in enumerate(whole.ids.tolist()):
        series, tokens, times, label = found[key]
        one = whole[b]
        if series is not None:
            assert np.array_equal(series.values, one.values, equal_nan=True)
            assert np.array_equal(series.times, one.times)
        if manifest.tokenizer is not None:
            inputs = manifest.tokenizer.arrays(one)
            assert np.allclose(tokens, inputs["tokens"][0], rtol=1e-5, atol=1e-5)
            assert np.allclose(times, inputs["times"][0])
        if whole.labels is not None:
            assert label == one.labels[0]
    return manifest


def digests(out):
    """File -> hash of its bytes, of all shards."""
    files = sorted(out.glob("shard-*.parquet"))
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

"""Stores: bit rot in shards and pieces, kills while building."""

import hashlib
import os
import random
import shutil
import signal
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _harness import Target, attack

import roughformer as rf
from roughformer.store import TableColumns, build_store
from roughformer.store.dataset import Sizes
from roughformer.store.ingest import read_bucket
from roughformer.store.storage import Place
from roughformer.store.stored import StoredSeries

SMALL = Sizes(rows=12_000, shard=100_000, piece=12_000, bucket=4_000)


def _table(target: Target, order: str):
    rng = target.rng
    lengths = rng.integers(1, 120, 60)
    ids = np.repeat(np.arange(60), lengths)
    table = pa.table(
        {
            "id": ids,
            "time": np.concatenate([np.arange(n) + 0.5 for n in lengths]),
            "x": rng.normal(size=len(ids)),
            "y": rng.normal(size=len(ids)),
        }
    )
    if order == "shuffled":
        table = table.take(pa.array(rng.permutation(len(table))))
    folder = target.folder / "data"
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "a.parquet", row_group_size=100)
    return folder


def _build(data, out, **options):
    columns = TableColumns("id", "time", ("x", "y"))
    config = rf.TokenConfig(windows=5, depth=2)
    return build_store([data], out, columns, config, series=True, sizes=SMALL, **options)


def _digests(out):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in out.glob("shard-*.parquet")}


def _content(out):
    """Everything that the store holds, as bytes."""
    stored = StoredSeries.open(out)
    everything = np.arange(len(stored))
    batch, inputs = stored[everything], stored.inputs(everything)
    arrays = [batch.values, batch.times, batch.offsets, batch.ids, *inputs.values()]
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


@attack("bit rot in shards", "One flipped bit is refused when read, and --verify mends it")
def shards(target: Target) -> None:
    data, out = _table(target, "sorted"), target.folder / "out"
    _build(data, out)
    expected, content = _digests(out), _content(out)
    files = sorted(out.glob("shard-*"))
    while target.time_left:
        file = files[int(target.rng.integers(len(files)))]
        good = file.read_bytes()
        bad = bytearray(good)
        bad[int(target.rng.integers(len(bad)))] ^= 1 << int(target.rng.integers(8))
        file.write_bytes(bad)
        found = target.expect(lambda: _content(out), (rf.InputError,), file.name)
        target.check(found is None or found == content, f"{file.name}: read as other data")
        if found is None and target.rng.random() < 0.2:
            _build(data, out, verify=True)
            target.check(_digests(out) == expected, "--verify did not mend a shard")
        file.write_bytes(good)


@attack("bit rot in scattered pieces", "One flipped bit is refused when a bucket is read")
def pieces(target: Target) -> None:
    data, out = _table(target, "shuffled"), target.folder / "out"
    kept = target.folder / "pieces"

    def keep(stage, done, total):
        if stage == "tokens" and not kept.exists():
            shutil.copytree(next(out.glob("*/piece-*")).parent, kept)

    _build(data, out, progress=keep)
    files = sorted(kept.iterdir())
    while target.time_left:
        file = files[int(target.rng.integers(len(files)))]
        good, bucket = file.read_bytes(), int(target.rng.integers(5))
        before = read_bucket([Place.of(file)], bucket)
        bad = bytearray(good)
        bad[int(target.rng.integers(len(bad)))] ^= 1 << int(target.rng.integers(8))
        file.write_bytes(bad)
        found = target.expect(
            lambda f=file, b=bucket: read_bucket([Place.of(f)], b), (rf.InputError,), file.name
        )
        target.check(found is None or found.equals(before), f"{file.name}: read as other rows")
        file.write_bytes(good)


@attack("kills while building", "Every visible shard is whole; the end has the same bytes", 1.5)
def kills(target: Target) -> None:
    for order in ("shuffled", "sorted"):
        data = _table(target, order)
        reference = target.folder / f"reference-{order}"
        _build(data, reference)
        started = time.perf_counter()
        _build(data, reference, afresh=True)
        usual, expected = time.perf_counter() - started, _digests(reference)
        draw = random.Random(int(target.rng.integers(2**31)))
        half = target.until if order == "sorted" else (time.monotonic() + target.until) / 2
        number = 0
        while time.monotonic() < half:
            out = target.folder / f"{order}-{number}"
            number += 1
            for attempt in range(6):
                child = os.fork()
                if child == 0:
                    _build(data, out)
                    os._exit(0)
                if attempt < 5:
                    time.sleep(draw.uniform(0, 0.9) * usual)
                    os.kill(child, signal.SIGKILL)
                _, status = os.waitpid(child, 0)
                whole = _digests(out).items() <= expected.items()
                target.check(whole, f"{order}: a shard that is not whole after a kill")
                target.check(os.WIFSIGNALED(status) or status == 0, f"{order}: status {status}")
            target.check(_digests(out) == expected, f"{order}: other bytes in the end")
            shutil.rmtree(out)

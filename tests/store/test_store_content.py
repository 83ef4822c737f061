"""A store holds each series once, whole, with the tokens that its tokenizer makes of it."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_data import COLUMNS, by_time, expect, make, rows_of, shuffled, table, times_mixed, write

import roughformer as rf
from roughformer.errors import InputError
from roughformer.store import TableColumns, build, ingest
from roughformer.store.dataset import Sizes, find_files, open_source
from roughformer.store.ingest import read_groups

ORDERS = {"sorted": lambda t: t, "times": times_mixed, "by time": by_time, "shuffled": shuffled}


def batch_of(data, **roles):
    return rf.SeriesBatch.from_table(
        data, series_id="id", time="time", channels=("x", "y"), **roles
    )


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_rows_gives_the_same_series(tmp_path, order, texts):
    data = table(texts=texts, gaps=True)
    write(ORDERS[order](data), tmp_path / "data")
    built = make(tmp_path / "data", tmp_path / "out", series=True)
    assert built.shuffled == (order in ("by time", "shuffled"))
    manifest = expect(tmp_path / "out", batch_of(data))
    assert len(manifest.shards) > 3
    assert built.made == len(manifest.shards)
    assert [s.file for s in manifest.shards] == sorted(
        f.name for f in (tmp_path / "out").glob("shard-*")
    )
    assert not (tmp_path / "out" / "shuffled").exists()
    assert not (tmp_path / "out" / "building.json").exists()


def test_ids_mixed_within_row_groups_alone_need_no_scattering(tmp_path):
    data = table(30)
    ids = data.column("id").to_numpy()
    half = int(np.flatnonzero(ids >= 45)[0])
    parts = [shuffled(data.slice(0, half)), shuffled(data.slice(half))]
    (tmp_path / "data").mkdir()
    for k, part in enumerate(parts):
        pq.write_table(part, tmp_path / "data" / f"{k}.parquet")
    built = make(tmp_path / "data", tmp_path / "out", series=True)
    assert not built.shuffled
    expect(tmp_path / "out", batch_of(data))


@pytest.mark.parametrize("group", [1, 7, 10_000])
def test_a_series_may_be_spread_over_many_row_groups(tmp_path, group):
    data = table(6, most=60)
    write(data, tmp_path / "data", files=2, group=group)
    make(tmp_path / "data", tmp_path / "out", series=True)
    expect(tmp_path / "out", batch_of(data))


def test_one_long_series_is_one_shard(tmp_path):
    data = table(1, seed=3, most=900)
    write(data, tmp_path / "data", files=5, group=20)
    make(tmp_path / "data", tmp_path / "out")
    assert expect(tmp_path / "out", batch_of(data)).totals.series == 1
    assert len(list((tmp_path / "out").glob("shard-*"))) == 1


def test_files_may_come_in_any_order(tmp_path):
    data = table()
    write(data, tmp_path / "data", files=4)
    for k in range(4):
        (tmp_path / "data" / f"part-{k}.parquet").rename(tmp_path / "data" / f"{'dbca'[k]}.parquet")
    assert not make(tmp_path / "data", tmp_path / "out", series=True).shuffled
    expect(tmp_path / "out", batch_of(data))


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_windows_by_duration_are_ragged(tmp_path, order):
    data = table()
    write(ORDERS[order](data), tmp_path / "data")
    config = rf.TokenConfig(windows={"duration": 7.5}, clock=2, counts=True)
    make(tmp_path / "data", tmp_path / "out", config=config)
    manifest = expect(tmp_path / "out", batch_of(data))
    assert manifest.holds == ("tokens",)


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_labels_and_covariates_come_along(tmp_path, order):
    data = table()
    write(ORDERS[order](data), tmp_path / "data")
    columns = TableColumns("id", "time", ("x", "y"), static=("age",), label="kind")
    config = rf.TokenConfig(windows=4, static=("age",))
    make(tmp_path / "data", tmp_path / "out", columns, config, series=True)
    whole = batch_of(data, static=("age",), label="kind")
    manifest = expect(tmp_path / "out", whole)
    assert manifest.static_names == ("age",)
    assert manifest.labelled
    _, found = rows_of(tmp_path / "out")
    for b, key in enumerate(whole.ids.tolist()):
        assert found[key][0].static.tolist() == whole.static[b : b + 1].tolist()


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_labels_of_a_table_choose_the_series(tmp_path, order):
    data = table(20)
    write(ORDERS[order](data), tmp_path / "data")
    labels = {str(i): float(i) for i in (0, 6, 57, 1000)}
    built = make(tmp_path / "data", tmp_path / "out", labels=labels)
    whole = batch_of(data)
    chosen = whole[np.isin(whole.ids, [0, 6, 57])]
    expect(tmp_path / "out", chosen.with_labels(chosen.ids.astype(float)))
    assert built.left_out == 17


@pytest.mark.parametrize("order", ["sorted", "by time"])
def test_a_long_table_is_the_wide_one(tmp_path, order):
    data = table(12, gaps=False)
    x, y = data.column("x"), data.column("y")
    ids, times = data.column("id"), data.column("time")
    kind = pa.chunked_array([pa.array(["x"] * len(data) + ["y"] * len(data))])
    long = pa.table({
        "id": pa.chunked_array(ids.chunks * 2), "time": pa.chunked_array(times.chunks * 2),
        "what": kind, "v": pa.chunked_array([*x.chunks, *y.chunks]),
    })  # fmt: skip
    # A series that never observes y: some unit may have no row of it at all.
    first = pa.compute.and_(pa.compute.equal(long["id"], 0), pa.compute.equal(long["what"], "y"))
    long = long.filter(pa.compute.invert(first))
    long = long.sort_by([("id", "ascending"), ("time", "ascending")])
    write(ORDERS[order](long), tmp_path / "data")
    columns = TableColumns("id", "time", ("x", "y"), channel="what", value="v")
    built = make(tmp_path / "data", tmp_path / "out", columns, series=True)
    y = pa.compute.if_else(pa.compute.equal(data["id"], 0), pa.scalar(None, pa.float32()), y)
    expect(tmp_path / "out", batch_of(data.set_column(3, "y", y)))
    assert built.unobserved == {"y": 1}


@pytest.mark.parametrize("order", ["sorted", "by time"])
def test_dates_count_from_one_origin_in_all_shards(tmp_path, order):
    data = table(dates=True)
    write(ORDERS[order](data), tmp_path / "data")
    make(tmp_path / "data", tmp_path / "out", series=True)
    whole = batch_of(data)
    manifest, found = rows_of(tmp_path / "out")
    for b, key in enumerate(whole.ids.tolist()):
        ours = found[key][0]
        assert ours.time_origin == manifest.origin
        moved = ours.times + (ours.time_origin - whole.time_origin) / np.timedelta64(1, "s")
        assert np.allclose(moved, whole[b].times, rtol=0, atol=1e-6)


def test_dropped_points_are_chosen_by_id(tmp_path):
    data = table(30)
    kinds = {}
    for order in ("sorted", "shuffled"):
        write(ORDERS[order](data), tmp_path / order)
        make(tmp_path / order, tmp_path / f"out {order}", drop=0.5, seed=3)
        kinds[order] = {k: v[1] for k, v in rows_of(tmp_path / f"out {order}")[1].items()}
    time_units = {
        rows_of(tmp_path / f"out {o}")[0].tokenizer.time_unit for o in ORDERS if o in kinds
    }
    assert len(time_units) == 1  # the sample is all of this little data
    for key, tokens in kinds["sorted"].items():
        assert np.allclose(tokens, kinds["shuffled"][key], rtol=1e-5, atol=1e-5)


def test_a_store_of_series_alone_has_no_tokens(tmp_path):
    data = table()
    write(data, tmp_path / "data")
    make(tmp_path / "data", tmp_path / "out", config=None, series=True)
    manifest = expect(tmp_path / "out", batch_of(data))
    assert manifest.holds == ("series",)
    assert manifest.tokenizer is None


@pytest.mark.filterwarnings("error")
def test_row_groups_are_small(tmp_path):
    data = table(300, most=4)
    write(data, tmp_path / "data", files=1, group=100_000)
    make(tmp_path / "data", tmp_path / "out", sizes=None)
    file = pq.ParquetFile(tmp_path / "out" / "shard-00000.parquet")
    groups = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    assert max(groups) == 64
    assert sum(groups) == 300
    assert COLUMNS.needed == ("id", "time", "x", "y")


def rows(*runs):
    """A table of runs (id, first time, count)."""
    ids = np.concatenate([np.full(n, i, getattr(i, "dtype", np.int64)) for i, _, n in runs])
    time = np.concatenate([t + np.arange(n) for _, t, n in runs]).astype(float)
    x = np.arange(len(ids), dtype=np.float32)
    return pa.table({"id": ids, "time": time, "x": x, "y": -x})


def write_groups(path, groups):
    with pq.ParquetWriter(path, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)


def points_of(tmp_path, groups):
    write_groups(tmp_path / "a.parquet", groups)
    make(tmp_path / "a.parquet", tmp_path / "out", series=True, sizes=Sizes(rows=1))
    return {key: len(row[0].times) for key, row in rows_of(tmp_path / "out")[1].items()}


def test_ids_mixed_beyond_what_a_unit_reads_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "_SLICE", 1)  # slices of 1,024 rows
    first = rows((4, 0, 10), (5, 0, 10))
    second = rows((5, 100, 1500), (6, 0, 1500), (5, 5000, 100), (7, 0, 10))
    assert points_of(tmp_path, [first, second]) == {4: 10, 5: 1610, 6: 1500, 7: 10}


def test_large_ids_are_compared_exactly(tmp_path):
    a, b, c = (np.uint64(2**62 + k) for k in (1, 2, 3))
    groups = [rows((a, 0, 10)), rows((a, 50, 5), (b, 0, 10)), rows((c, 0, 5))]
    assert points_of(tmp_path, groups) == {int(a): 15, int(b): 10, int(c): 5}


def test_how_rows_come_in_slices_does_not_change_what_is_fitted(tmp_path, monkeypatch):
    write(table(n_series=60), tmp_path / "data", files=1, group=10**6)
    monkeypatch.setattr(build, "_POINTS", 400)  # less than a block may have
    monkeypatch.setattr(ingest, "_SLICE", 1)
    found = []
    for count in (50, 500, 1 << 20):
        monkeypatch.setattr(ingest, "_LEAST_ROWS", count)
        make(tmp_path / "data", tmp_path / f"{count}", sizes=Sizes())
        found.append(rows_of(tmp_path / f"{count}"))
    for manifest, rows in found[1:]:
        assert manifest.tokenizer == found[0][0].tokenizer
        assert rows.keys() == found[0][1].keys()
        for key, (_, tokens, times, _) in rows.items():
            np.testing.assert_array_equal(tokens, found[0][1][key][1])
            np.testing.assert_array_equal(times, found[0][1][key][2])


def test_what_is_wrong_with_rows_is_told_with_their_file(tmp_path):
    data = table()
    times = data["time"].to_numpy().copy()
    times[-3] = np.inf
    write(data.set_column(1, "time", pa.array(times)), tmp_path / "data")
    words = r"must be finite, got inf in row \d+.*\(in .*part-2\.parquet; rows count from somewhere"
    with pytest.raises(InputError, match=words):
        make(tmp_path / "data", tmp_path / "out")


def _groups(tmp_path):
    path = tmp_path / "data.parquet"
    rows = np.arange(200_000)
    noise = np.random.default_rng(0).standard_normal(len(rows))
    pq.write_table(
        pa.table({"id": rows // 100, "time": rows % 100 * 1.0, "x": noise}), path,
        row_group_size=20_000,
    )  # fmt: skip
    columns = ("id", "time", "x")
    source = open_source(find_files([path]), columns, "id")
    return path, source.groups, columns, source.schema


@pytest.mark.parametrize("left", [50_000, 0])
def test_a_file_that_is_made_shorter_while_it_is_read_is_damaged(tmp_path, left, monkeypatch):
    monkeypatch.setattr(ingest, "_SLICE", 1 << 16)
    path, groups, *rest = _groups(tmp_path)
    tables = read_groups(groups, *rest)
    next(tables)
    os.truncate(path, left)
    with pytest.raises(rf.InputError, match=r"data\.parquet is damaged, rows cannot be read"):
        list(tables)


def test_a_file_that_is_damaged_before_it_is_read_is_told(tmp_path):
    path, *rest = _groups(tmp_path)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(rf.InputError, match=r"data\.parquet is damaged, rows cannot be read"):
        list(read_groups(*rest))

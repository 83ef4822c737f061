"""Feature stores by a Ray cluster: the same files as by this process, also when a node dies."""

import hashlib
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command import succeeds
from roughformer.errors import InputError
from roughformer.signatures.windows import Windows
from roughformer.store.build import build_store
from roughformer.store.dataset import Sizes, TableColumns
from roughformer.store.workers import run_units
from roughformer.tokens import TokenConfig

pytestmark = pytest.mark.slow
COLUMNS = TableColumns("series_id", "time", ("x", "y"))
SIZES = Sizes(rows=200_000, shard=200_000, piece=200_000, bucket=200_000)


def table(n_series, length, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "series_id": np.repeat(np.arange(n_series), length),
            "time": np.tile(np.arange(length, dtype=np.float64), n_series),
            "x": rng.normal(size=n_series * length).cumsum(),
            "y": rng.normal(size=n_series * length).cumsum(),
        }
    )


def contents(store):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(store.iterdir())}


@pytest.mark.parametrize("order", ["sorted", "mixed"])
def test_a_node_that_dies_changes_no_byte(two_nodes, tmp_path, order):
    data = table(400, 500)
    if order == "mixed":  # rows are shuffled into buckets first
        data = data.take(np.random.default_rng(1).permutation(len(data)))
    pq.write_table(data, tmp_path / "x.parquet", row_group_size=5000)
    config = TokenConfig(windows=20)
    options = {"config": config, "sizes": SIZES}
    local = build_store([tmp_path / "x.parquet"], tmp_path / "local", COLUMNS, **options)
    assert local.made > 8
    assert local.shuffled == (order == "mixed")
    kills, heard = two_nodes.kills, []

    def progress(stage, done, rows):
        heard.append((stage, done))
        if len(heard) == 4:
            two_nodes.kill()

    build_store(
        [tmp_path / "x.parquet"], tmp_path / "ray", COLUMNS, **options, engine="ray", workers=2,
        address=two_nodes.address, progress=progress,
    )  # fmt: skip
    assert two_nodes.kills == kills + 1
    assert heard[-1] == ("tokens", len(data))  # each row counted once
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_the_command_makes_the_same_store(two_nodes, tmp_path):
    data = table(60, 300)  # mixed: rows are shuffled there, too
    data = data.take(np.random.default_rng(1).permutation(len(data)))
    pq.write_table(data, tmp_path / "x.parquet", row_group_size=2000)
    common = [tmp_path / "x.parquet", "--windows", 10, "--workers", 2, "--memory", "64MB"]
    succeeds("features", *common, "--out", tmp_path / "local")
    where = ["--engine", "ray", "--address", two_nodes.address]
    succeeds("features", *common, "--out", tmp_path / "ray", *where)
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    said = succeeds("features", *common, "--out", tmp_path / "ray", *where)
    assert "nothing to do" in said.out


def test_results_come_in_the_order_of_the_units_and_errors_as_they_are(two_nodes):
    where = {"engine": "ray", "workers": 2, "address": two_nodes.address}
    heard = []
    found = run_units([5, 1, 2], Windows.by_count, **where, progress=heard.append)
    assert [windows.amount for windows in found] == [5, 1, 2]
    assert sorted(windows.amount for windows in heard) == [1, 2, 5]
    assert run_units([], Windows.by_count, **where) == []
    with pytest.raises(InputError) as here:
        Windows.by_count(0)
    with pytest.raises(InputError) as there:
        run_units([1, 0], Windows.by_count, **where)
    assert str(there.value) == str(here.value)


def test_without_workers_one_works(two_nodes):
    where = {"engine": "ray", "workers": 0, "address": two_nodes.address}
    assert [w.amount for w in run_units([5, 1], Windows.by_count, **where)] == [5, 1]


def test_an_error_leaves_nothing_running(two_nodes):
    ray = pytest.importorskip("ray")
    ray.init(address=two_nodes.address, logging_level="ERROR", log_to_driver=False)
    try:
        for _ in range(3):
            with pytest.raises((TypeError, OverflowError)):
                run_units(["no", *[2.0] * 40], time.sleep, engine="ray", workers=2)
            # At once, but for what Ray takes to count; the units that are left would take 40 s.
            for _ in range(30):
                if ray.available_resources().get("CPU") == 2:
                    break
                time.sleep(0.1)
            assert ray.available_resources()["CPU"] == 2
    finally:
        ray.shutdown()


def only_here(unit):
    return unit


def test_work_that_the_nodes_do_not_have_is_told(two_nodes):
    where = {"engine": "ray", "workers": 1, "address": two_nodes.address}
    with pytest.raises(InputError, match="all nodes need the same roughformer"):
        run_units([1], only_here, **where)

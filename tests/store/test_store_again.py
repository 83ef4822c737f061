"""The second run: nothing to do, or what is missing, or all of it where something has changed."""

import inspect
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_data import CONFIG, digests, expect, make, shuffled, table, write

import roughformer as rf
from roughformer.errors import CapacityError, InputError
from roughformer.store.build import MARKER, SHUFFLED, build_store
from roughformer.store.dataset import Sizes
from roughformer.store.ingest import _BUCKET, _END
from roughformer.store.workers import run_units


@pytest.fixture(params=["sorted", "shuffled"])
def data(request, tmp_path):
    kind = {"sorted": lambda t: t, "shuffled": shuffled}[request.param]
    return write(kind(table()), tmp_path / "data")


def stamps(out):
    return {file.name: file.stat().st_mtime_ns for file in out.iterdir()}


def test_a_second_run_does_nothing(tmp_path, data):
    first = make(data, tmp_path / "out")
    before = stamps(tmp_path / "out")
    again = make(data, tmp_path / "out")
    assert (again.made, again.kept) == (0, first.made)
    assert again.manifest == first.manifest
    assert stamps(tmp_path / "out") == before


def test_missing_shards_are_made_and_the_others_kept(tmp_path, data):
    first = make(data, tmp_path / "out")
    whole, before = digests(tmp_path / "out"), stamps(tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out" / "shard-00001.parquet").unlink()
    damaged = tmp_path / "out" / "shard-00002.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    (tmp_path / "out" / "shard-00003.parquet.0f.part").write_bytes(b"half")
    again = make(data, tmp_path / "out")
    assert (again.made, again.kept) == (2, first.made - 2)
    assert again.manifest == first.manifest
    assert digests(tmp_path / "out") == whole
    after = stamps(tmp_path / "out")
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"shard-00001.parquet", "shard-00002.parquet", "manifest.json"}


def test_a_shard_that_has_rotted_is_made_again(tmp_path, data):
    first = make(data, tmp_path / "out")
    whole, before = digests(tmp_path / "out"), stamps(tmp_path / "out")
    assert make(data, tmp_path / "out", verify=True).made == 0
    assert stamps(tmp_path / "out") == before
    rotten = tmp_path / "out" / "shard-00002.parquet"
    damaged = bytearray(rotten.read_bytes())
    chunk = pq.read_metadata(rotten).row_group(0).column(1)
    damaged[chunk.data_page_offset + chunk.total_compressed_size - 5] ^= 4
    rotten.write_bytes(damaged)
    again = make(data, tmp_path / "out", verify=True)
    assert (again.made, again.kept) == (1, first.made - 1)
    assert again.manifest == first.manifest
    assert digests(tmp_path / "out") == whole


def test_another_depth_makes_all_of_it_again(tmp_path, data):
    first = make(data, tmp_path / "out")
    deeper = rf.TokenConfig(windows=5, depth=3)
    again = make(data, tmp_path / "out", config=deeper)
    assert again.kept == 0
    assert again.manifest.key != first.manifest.key
    whole = rf.SeriesBatch.from_table(table(), series_id="id", time="time", channels=("x", "y"))
    assert expect(tmp_path / "out", whole).tokenizer.config.depth == 3
    # Fewer shards than before: none of the old ones stays.
    one = make(data, tmp_path / "out", config=CONFIG, sizes=Sizes())
    assert [s.file for s in one.manifest.shards] == ["shard-00000.parquet"]
    assert len(digests(tmp_path / "out")) == 1


def test_changed_data_make_all_of_it_again(tmp_path, data):
    first = make(data, tmp_path / "out")
    file = data / "part-0.parquet"
    pq.write_table(pq.read_table(file), file, row_group_size=150)
    os.utime(file, ns=(1, 1))  # the same bytes at another time count as changed
    again = make(data, tmp_path / "out")
    assert again.kept == 0
    assert again.manifest.key != first.manifest.key
    assert make(data, tmp_path / "out").made == 0
    pq.write_table(table(3, seed=9).slice(0, 0), data / "part-9.parquet")  # a file without rows
    assert make(data, tmp_path / "out").kept == 0


def test_force_makes_all_of_it_again(tmp_path, data):
    make(data, tmp_path / "out")
    again = make(data, tmp_path / "out", afresh=True)
    assert again.kept == 0


def test_two_processes_write_the_same_bytes_as_one(tmp_path):
    data = write(shuffled(table()), tmp_path / "data")
    one = make(data, tmp_path / "one")
    two = make(data, tmp_path / "two", workers=2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert one.manifest == two.manifest
    assert one.made == two.made > 3


def _text(unit):
    """A worker has not imported torch."""
    import sys

    import roughformer.store.build

    assert roughformer.store.build.ShardWork
    assert "torch" not in sys.modules
    return str(unit)


def test_results_come_in_the_order_of_units_from_workers_without_torch():
    told = []
    units = [3, 1, 2]
    assert run_units(units, _text, workers=2, progress=told.append) == ["3", "1", "2"]
    assert sorted(told) == ["1", "2", "3"]
    assert run_units(units, str, workers=1) == ["3", "1", "2"]
    assert run_units([], str, workers=2) == []


def _fail(unit):
    if unit == 2:
        raise InputError("unit 2 is wrong")
    os.kill(os.getpid(), 9)


def test_the_error_of_a_worker_is_the_error_of_all():
    with pytest.raises(InputError, match="unit 2 is wrong"):
        run_units([2], _fail, workers=2)
    with pytest.raises(CapacityError, match="a worker process was killed"):
        run_units(range(2), _fail, workers=2)


def test_progress_counts_rows(tmp_path, data):
    told = []
    make(data, tmp_path / "out", progress=lambda *step: told.append(step))
    rows = len(table())
    for stage in {step[0] for step in told}:
        done = [step[1] for step in told if step[0] == stage]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, rows)
        assert {step[2] for step in told if step[0] == stage} == {rows}


def test_too_little_memory_is_said(tmp_path, data):
    with pytest.raises(CapacityError, match=r"more than a (worker|quarter).*--memory"):
        make(data, tmp_path / "out", memory=1000)


def test_a_table_of_texts_keeps_them(tmp_path):
    data = table(5, texts=True)
    codes = data.set_column(0, "id", data.column("id").combine_chunks().dictionary_encode())
    write(pa.table(codes), tmp_path / "data")
    make(tmp_path / "data", tmp_path / "out")
    assert pq.read_schema(tmp_path / "out" / "shard-00000.parquet").field("series_id").type == (
        pa.string()
    )


def test_a_build_that_is_refused_leaves_a_complete_store_as_it_was(tmp_path, data):
    first = make(data, tmp_path / "out")
    before = stamps(tmp_path / "out")
    with pytest.raises(CapacityError, match="the tokens of one series have"):
        make(data, tmp_path / "out", config=rf.TokenConfig(windows=5, depth=9), memory=1 << 20)
    after = stamps(tmp_path / "out")
    after.pop("shuffled", None)  # what was done of the work is kept
    assert after == before
    again = make(data, tmp_path / "out")
    assert (again.made, again.manifest) == (0, first.manifest)


def test_a_store_within_its_data_is_refused_before_it_is_made(tmp_path, data):
    with pytest.raises(InputError, match="out is within the data: choose an --out"):
        make(data, data / "out")
    assert not (data / "out").exists()


def test_a_marker_that_was_left_behind_goes_with_the_next_run(tmp_path, data):
    make(data, tmp_path / "out")
    (tmp_path / "out" / "building.json").write_text("{}")  # killed after the manifest was written
    assert make(data, tmp_path / "out").made == 0
    assert not (tmp_path / "out" / "building.json").exists()


def test_a_store_where_a_pattern_would_find_it_is_refused(tmp_path, data):
    with pytest.raises(InputError, match="within the data"):
        make(tmp_path / "**" / "*.parquet", tmp_path / "out")


@pytest.mark.parametrize("left", ["another build's marker", "none"])
def test_a_unit_of_a_build_that_is_over_writes_nothing(tmp_path, data, left):
    out, seen = tmp_path / "out", []

    def progress(stage, done, total):
        if stage == "tokens" and done and not seen:  # as if another build had begun
            seen.append({path.name for path in out.glob("shard-*")})
            (out / MARKER).unlink()
            if left != "none":
                (out / MARKER).write_text('{"kind": "roughformer.store.building", "key": "x"}')

    with pytest.raises(InputError, match="is now being made by another build"):
        make(data, out, progress=progress)
    assert {path.name for path in out.glob("shard-*")} == seen[0]
    assert len(seen[0]) >= 1


def test_pieces_of_another_build_are_not_kept(tmp_path):
    data, out, seen = write(shuffled(table()), tmp_path / "data"), tmp_path / "out", []
    (out / SHUFFLED).mkdir(parents=True)
    for name in ("piece-0123456789abcdef-00000.arrow", "piece-00000.arrow.12ab.part"):
        (out / SHUFFLED / name).write_bytes(b"old")

    def progress(stage, done, total):
        if stage == "tokens" and not seen:
            seen.extend(path.read_bytes() for path in (out / SHUFFLED).iterdir())

    make(data, out, progress=progress)
    assert seen
    assert b"old" not in seen


@pytest.mark.parametrize("part", ["data", "index", "footer", "cut"])
def test_a_damaged_piece_is_refused_and_made_again(tmp_path, part):
    data, out = write(shuffled(table()), tmp_path / "data"), tmp_path / "out"
    seen = []

    def damage(stage, done, total):
        if stage != "tokens" or seen:
            return
        piece = sorted((out / SHUFFLED).iterdir())[0]
        content = bytearray(piece.read_bytes())
        n_buckets, _, _ = _END.unpack(content[-_END.size :])
        index = len(content) - _END.size - n_buckets * _BUCKET.itemsize
        place = {"data": index // 2, "index": index + 3, "footer": len(content) - 14, "cut": 0}
        content[place[part]] ^= 1
        piece.write_bytes(content[:-5] if part == "cut" else content)
        seen.append(piece.name)

    with pytest.raises(InputError, match="checksum does not match; run the command again"):
        make(data, out, progress=damage)
    make(data, tmp_path / "undisturbed")
    make(data, out)
    assert digests(out) == digests(tmp_path / "undisturbed")


def test_what_is_scattered_at_once_fits_the_memory_of_a_worker():
    memory = inspect.signature(build_store).parameters["memory"].default
    assert 2.5 * Sizes().piece < memory  # the rows, and their copy in order of buckets

"""Odd but possible inputs: refused in words, before memory is taken, and never misread."""

import decimal
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
import torch

import roughformer as rf
from roughformer.io import read_table


def test_ids_of_a_csv_beyond_64_bits_stay_apart(tmp_path):
    file = tmp_path / "a.csv"
    big = 2**64
    file.write_text(f"id,time,x\n{big + 1},0,1\n{big + 1},1,2\n{big + 2},0,3\n{big + 2},1,4\n")
    batch = read_table(file, series_id="id", time="time")
    assert batch.ids.tolist() == [str(big + 1), str(big + 2)]
    assert batch.values[:, 0].tolist() == [1, 2, 3, 4]
    file.write_text("id,time,x\n1.5,0,1\n1.5,1,2\n,0,3\n")  # those are numbers still
    with pytest.raises(rf.InputError, match="null in row 2"):
        read_table(file, series_id="id", time="time")
    table = {"id": [2.0**60, 2.0**60 + 2**10], "time": [0, 1], "x": [1, 2]}
    with pytest.raises(rf.InputError, match=r"ids in column 'id' .* cannot be told apart"):
        rf.SeriesBatch.from_table(table, series_id="id", time="time")


@pytest.mark.parametrize(
    ("values", "depth", "views"),
    [
        (np.array([0, 1e200]), 2, ("global", "local")),
        (np.array([0, 1e20], np.float32), 2, "local"),
        (np.array([0, 1e20, 0], np.float32), 2, "local"),
        (np.array([-1e308, 1e308]), 1, "global"),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_words_beyond_the_range_of_numbers_are_refused(engine, values, depth, views, grad):
    x = torch.from_numpy(values.reshape(1, -1, 1)).requires_grad_(grad)
    with pytest.raises(rf.InputError, match="signatures of series 0 are beyond the range of float"):
        rf.multiview_signature(x, 2, depth, views, engine=engine)
    some = rf.multiview_signature(x / 1e250, 2, depth, views, engine=engine)
    assert bool(torch.isfinite(some).all())


def test_what_a_narrow_result_cannot_hold_is_refused():
    batch = rf.SeriesBatch.from_arrays([np.array([[0.0], [1.0]]), np.array([[0.0], [1e20], [0.0]])])
    assert np.isfinite(rf.multiview_signature(batch, 2, 2)).all()
    with pytest.raises(rf.InputError, match=r"series 1 are beyond the range of float32"):
        rf.multiview_signature(batch, 2, 2, dtype="float32")


def test_times_that_span_more_than_a_number_holds_are_refused():
    for times in (np.array([-1e308, 1e308]), [np.array([-1e308, 1e308])]):
        with pytest.raises(rf.InputError, match="must span a finite duration"):
            rf.SeriesBatch.of(np.ones((1, 2, 1)), times)


def test_no_series_take_no_memory_however_many_windows():
    nothing = rf.SeriesBatch(np.zeros(0), np.zeros((0, 1)), [0])
    assert rf.multiview_signature(nothing, 10**9, 1).shape == (0, 10**9, 2)


@pytest.mark.parametrize("option", [{"views": None}, {"views": 5}, {"lifts": 5}, {"lifts": [5]}])
def test_options_of_another_kind_are_refused(option):
    with pytest.raises(rf.InputError, match=r"views must be|a lift is"):
        rf.multiview_signature(np.zeros((1, 3, 1)), 2, 2, **option)


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_tensors_without_plain_numbers_are_refused():
    with pytest.raises(rf.InputError, match="meta device"):
        rf.multiview_signature(torch.empty(2, 5, 1, device="meta"))
    with pytest.raises(rf.InputError, match=r"dequantize\(\)"):
        rf.SeriesBatch.of(torch.quantize_per_tensor(torch.rand(2, 5, 1), 0.1, 0, torch.quint8))


def _texts(data):
    ends = pa.py_buffer(np.arange(3, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(data)])


ODD = {
    "whole numbers beyond 64 bits": [10**30, 10**30],
    "lists": pa.array([[1], [1]]),
    "structs": pa.array([{"a": 1}, {"a": 1}]),
    "runs": pa.RunEndEncodedArray.from_arrays([2], [1]),
    "no UTF-8": _texts(b"\xff\xfe"),
    "intervals": pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()),
    "views": pa.array([b"a", b"a"], pa.binary_view()),
    "unions": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 1])]),
    "maps": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64())),
    "decimals": pa.array([decimal.Decimal(10) ** 70] * 2, pa.decimal256(76, 0)),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("role", ["series_id", "time", "label", "static", "channels"])
def test_columns_of_odd_kinds_are_read_or_refused_in_words(kind, role):
    columns = {"id": [1, 1], "when": [0, 1], "x": [1, 1], "odd": ODD[kind]}
    roles = {"series_id": "id", "time": "when", "channels": ["x"]}
    roles[role] = "odd" if role not in ("static", "channels") else ["odd"]
    with suppress(rf.InputError):  # anything else is an error of ours
        rf.SeriesBatch.from_table(columns, **roles)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b""),
        ("a.csv", b"\xff\xfe\x00"),
        ("a.csv", b"\xff,time,x\n1,2,3\n"),
        ("a.csv", b"\0\0\0"),
        ("a.csv", b"id,id,time\n1,1,1\n"),
        ("a.csv.gz", b"this is no gzip"),
        ("a.parquet", b"PAR1xxxxPAR1"),
        ("a.parquet", b""),
        ("a.parquet", b"PAR1" + b"\x15" * 50 + b"\x32\0\0\0PAR1"),
    ],
)
def test_files_that_cannot_be_read_are_refused_by_name(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(rf.InputError, match=r"a\.(csv|parquet)|duplicate"):
        read_table(tmp_path / name, series_id="id", time="time")


def test_values_that_single_precision_cannot_hold_are_refused_by_the_default():
    x = np.array([[[1e20, 0.0], [1e308, 1.0], [-1e38, 1e20], [np.nan, 1e20]]])
    with pytest.raises(rf.InputError, match=r"at most 1e\+37 in size, got 1e\+308 .series 0."):
        rf.RFormerClassifier(n_jobs=1).fit(x, [1])


@pytest.mark.parametrize("options", [{}, {"recipe": "attention", "epochs": 1}])
def test_targets_beyond_single_precision_are_refused(options):
    x = np.random.default_rng(0).normal(size=(6, 8, 1))
    with pytest.raises(rf.InputError, match=r"targets must be at most 1e\+37 in size, got 1e\+308"):
        rf.RFormerRegressor(n_jobs=1, **options).fit(x, [1e308, -1e38, 0.0, 1e20, 1e200, 1.0])

"""SeriesBatch.save and load: one Parquet file, the same batch bit for bit, no half files."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, _fields

FIELDS = ("times", "values", "offsets", "grid", "ids", "static", "labels")


def assert_same_bits(a, b):
    assert a.equals(b)
    assert a.channels == b.channels
    assert a.static_names == b.static_names
    assert a.time_origin == b.time_origin
    for name in FIELDS:
        ours, theirs = getattr(a, name), getattr(b, name)
        if ours is None:
            assert theirs is None, name
        else:
            assert ours.dtype == theirs.dtype, name
            assert ours.shape == theirs.shape, name
            assert ours.tobytes() == theirs.tobytes(), name


LABELS = [
    lambda n: None,
    lambda n: np.arange(n, dtype=np.int16),
    lambda n: np.array([f"klasse ü{i}" for i in range(n)], dtype="U12"),
    lambda n: np.linspace(0, 1, 6 * n).reshape(n, 2, 3).astype(np.float32),
    lambda n: np.arange(n).astype("M8[D]"),
    lambda n: np.arange(n) % 2 == 0,
]
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    n_series=st.integers(0, 5),
    longest=st.integers(1, 6),
    shared=st.booleans(),
    dated=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    channels=st.lists(
        NAMES | st.sampled_from(["series", "time", "a.b"]), min_size=1, unique=True, max_size=3
    ),
    labels=st.sampled_from(LABELS),
    rows=st.sampled_from([1, 4, 1 << 20]),
)
def test_a_saved_batch_is_loaded_bit_for_bit(
    tmp_path, seed, n_series, longest, shared, dated, dtype, channels, labels, rows
):
    rng = np.random.default_rng(seed)
    lengths = np.full(n_series, longest) if shared else rng.integers(1, longest + 1, size=n_series)
    arrays = [rng.normal(size=(n, len(channels))).astype(dtype) for n in lengths]
    for a in arrays:
        a[rng.random(a.shape) < 0.3] = np.nan
        a[rng.random(a.shape) < 0.2] = -0.0
    start = np.datetime64("2021-03-04T05:06:07.000000089", "ns")
    times = [np.cumsum(rng.integers(1, 10**9, size=n)) for n in (*lengths, longest)]
    stamps = times[-1] if shared else times[:-1]
    if dated:
        stamps = start + stamps if shared else [start + t for t in stamps]
    batch = SeriesBatch.from_arrays(
        arrays,
        stamps,
        channels=channels,
        ids=[f"p{i}" for i in range(n_series)] if seed % 2 else None,
        static=rng.normal(size=(n_series, 2)) if seed % 3 else None,
        labels=labels(n_series),
    )
    path = tmp_path / "batch.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fields, "_ROWS", rows)
        batch.save(path)
    assert_same_bits(batch, SeriesBatch.load(path))


def test_nan_payloads_and_signed_zeros_survive(tmp_path):
    bits = np.array([0x7FC00000, 0x7FC00001, 0xFFC12345, 0x80000000, 0], dtype=np.uint32)
    batch = SeriesBatch.from_numpy3d(bits.view(np.float32).reshape(1, 1, 5))
    batch.save(tmp_path / "b.parquet")
    assert SeriesBatch.load(tmp_path / "b.parquet").values.tobytes() == bits.tobytes()


def test_any_parquet_reader_can_read_the_points(tmp_path):
    x = np.arange(6.0).reshape(1, 2, 3)
    SeriesBatch.from_numpy3d(x, [0, 2, 4], channels=["a", "time"]).save(tmp_path / "b.parquet")
    table = pq.read_table(tmp_path / "b.parquet")
    assert table.to_pydict() == {
        "series": [0, 0, 0],
        "_time": [0, 2, 4],
        "a": [0, 1, 2],
        "time": [3, 4, 5],
    }


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "b.parquet"
    batch = SeriesBatch.from_numpy3d(np.ones((2, 1, 3)))
    batch.save(path)

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_fields, "_write_rows", broken)
    with pytest.raises(KeyboardInterrupt):
        batch[:1].save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["b.parquet"]
    assert SeriesBatch.load(path).equals(batch)


def test_files_of_another_kind_are_refused_with_words(tmp_path):
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({"x": [1.0]}), path)
    with pytest.raises(InputError, match=r"SeriesBatch\.save did not write it; read it with"):
        SeriesBatch.load(path)
    path.write_bytes(b"not parquet at all")
    with pytest.raises(InputError, match="is damaged or not a Parquet file"):
        SeriesBatch.load(path)
    with pytest.raises(FileNotFoundError):
        SeriesBatch.load(tmp_path / "absent.parquet")
    head = json.dumps({"version": 99}).encode()
    keys = {_fields._KEY: head, _fields._SUM: _fields._checksum(head)}
    schema = pa.schema([("x", pa.float64())], metadata=keys)
    pq.write_table(pa.table({"x": [1.0]}, schema=schema), path)
    with pytest.raises(
        InputError, match="has format 99, this version of roughformer reads format 1"
    ):
        SeriesBatch.load(path)


def test_a_damaged_file_never_loads_as_something_else(tmp_path):
    path = tmp_path / "b.parquet"
    rng = np.random.default_rng(0)
    batch = SeriesBatch.from_numpy3d(rng.normal(size=(3, 2, 50)), labels=[1, 2, 3])
    batch.save(path)
    whole = path.read_bytes()
    for size in (0, 4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError):
            SeriesBatch.load(path)
    refused = 0
    for at in rng.permutation(len(whole))[:300]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            assert_same_bits(batch, SeriesBatch.load(path))  # the byte did not matter
        except InputError:
            refused += 1
    assert refused > 150


def test_a_changed_name_in_the_footer_is_noticed(tmp_path):
    path = tmp_path / "b.parquet"
    SeriesBatch.from_numpy3d(np.ones((1, 1, 2)), channels=["alpha"]).save(path)
    whole = path.read_bytes()
    at = whole.index(b'"channels": ["alpha"]')
    path.write_bytes(whole[:at] + whole[at:].replace(b"alpha", b"alpho", 1))
    with pytest.raises(InputError, match="its metadata do not match their checksum"):
        SeriesBatch.load(path)

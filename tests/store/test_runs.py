"""Where other ids begin: the native pass and Arrow's say the same."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roughformer.series._table import run_starts
from roughformer.store import ingest
from roughformer.store.ingest import runs_of

KINDS = [pa.int64(), pa.uint64(), pa.int32(), pa.uint32(), pa.int16(), pa.float64(), pa.string()]


@given(
    lengths=st.lists(st.integers(1, 700), max_size=6),
    kind=st.sampled_from(KINDS),
    codes=st.booleans(),
    skip=st.integers(0, 3),
)
def test_runs_are_those_of_arrow(lengths, kind, codes, skip):
    numbers = np.repeat(np.arange(len(lengths)) * 7 % 5, lengths)
    array = pa.array(numbers).cast(kind)
    if codes:
        array = array.dictionary_encode()
    column = pa.chunked_array([array.slice(skip)])
    found = runs_of(column)
    np.testing.assert_array_equal(found, run_starts(column))
    assert found.base is None  # not a view of room for all rows


def test_large_ids_differ_in_their_last_bit():
    ids = pa.chunked_array([pa.array([2**64 - 1, 2**64 - 1, 2**64 - 2], pa.uint64())])
    assert runs_of(ids).tolist() == [0, 2]


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([], pa.int64()),
        pa.chunked_array([pa.array([], pa.int64())]),
        pa.chunked_array([[1, 1], [1, 2]]),
        pa.chunked_array([[1, None, None, 2]]),
    ],
    ids=["no chunk", "no row", "two chunks", "nulls"],
)
def test_other_columns_go_the_usual_way(column):
    np.testing.assert_array_equal(runs_of(column), run_starts(column))


def test_without_the_native_kernel(monkeypatch):
    monkeypatch.setattr(ingest, "load", lambda: None)
    assert runs_of(pa.chunked_array([[4, 4, 5]])).tolist() == [0, 2]

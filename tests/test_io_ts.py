"""``.ts`` files: aeon's loader is the oracle where it is right, written-out values elsewhere."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roughformer.errors import InputError
from roughformer.io import read_ts
from roughformer.series import SeriesBatch


def _aeon_files() -> list[Path]:
    aeon = pytest.importorskip("aeon")
    return sorted((Path(aeon.__file__).parent / "datasets" / "data").rglob("*.ts"))


def _aeon_load(path):
    return pytest.importorskip("aeon.datasets").load_from_ts_file(str(path))


def _written(tmp_path, data: str, **header: str):
    keys = {"timestamps": "false", "equallength": "true", "classlabel": "true a b"} | header
    text = "# a comment\n" + "".join(f"@{k} {v}\n" for k, v in keys.items()) + "@data\n" + data
    path = tmp_path / "made.ts"
    path.write_text(text)
    return path


def _assert_same_as_aeon(path):
    x, y = _aeon_load(path)
    batch = read_ts(path)
    assert len(batch) == len(x)
    for i, series in enumerate(x):
        np.testing.assert_array_equal(batch.series(i)[1], series.T)
    if y.dtype.kind == "f":
        np.testing.assert_array_equal(batch.labels, y)
    else:  # aeon lower-cases classes
        assert [label.lower() for label in batch.labels] == y.tolist()
    return batch


def test_every_file_that_aeon_ships_reads_as_aeon_reads_it():
    files = _aeon_files()
    assert len(files) >= 20
    for path in files:
        _assert_same_as_aeon(path)


def test_unequal_lengths_missing_values_and_blanks_read_as_aeon_reads_them(tmp_path):
    data = "1, 2.5,-3e2 : 4,?,6:a\n7.5:NaN:b\n1e-3,2:3,nan:a\n"
    batch = _assert_same_as_aeon(_written(tmp_path, data, equallength="false", univariate="false"))
    assert batch.lengths.tolist() == [3, 1, 2]
    assert batch.missing
    assert batch.times.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.grid is None


def test_targets_read_as_aeon_reads_them(tmp_path):
    path = _written(tmp_path, "1,2:0.5\n3,4:-1e3\n", classlabel="false", targetlabel="true")
    batch = _assert_same_as_aeon(path)
    assert batch.labels.dtype == np.float64
    assert batch.grid.tolist() == [0.0, 1.0]


def test_a_file_without_labels_has_none(tmp_path):
    path = _written(tmp_path, "1,2:3,4\n5,6:7,8\n", classlabel="false", univariate="false")
    batch = read_ts(path)
    assert batch.labels is None
    assert batch.values.tolist() == [[1, 3], [2, 4], [5, 7], [6, 8]]


def test_classes_keep_the_spelling_of_the_file(tmp_path):
    path = _written(tmp_path, "1,2:Walk\n3,4:run\n", classlabel="true Walk run")
    assert read_ts(path).labels.tolist() == ["Walk", "run"]


def test_the_values_have_the_dtype_asked_for(tmp_path):
    path = _written(tmp_path, "0.1,0.2:a\n")
    assert read_ts(path, dtype=np.float32).values[0, 0] == np.float32(0.1)


def test_number_stamps_of_different_channels_are_merged(tmp_path):
    data = "(0.5,1.0),(2,-2.0):(1,3),(2,?):a\n(-1,5):(7,6),(9,8):b\n"
    path = _written(tmp_path, data, timestamps="true", equallength="false", univariate="false")
    batch = read_ts(path)
    assert batch.times.tolist() == [0.5, 1.0, 2.0, -1.0, 7.0, 9.0]
    expected = [[1, np.nan], [np.nan, 3], [-2, np.nan], [5, np.nan], [np.nan, 6], [np.nan, 8]]
    np.testing.assert_array_equal(batch.values, expected)
    assert batch.labels.tolist() == ["a", "b"]


def test_date_stamps_become_seconds_since_the_earliest(tmp_path):
    data = "(2007-01-01 00:01:00,2.5),(2007-01-01 00:02:00,3.5):b\n(2007-01-01 00:00:00,1.5):a\n"
    path = _written(tmp_path, data, timestamps="true", equallength="false")
    batch = read_ts(path)
    assert batch.time_origin == np.datetime64("2007-01-01T00:00:00", "ns")
    assert batch.times.tolist() == [60.0, 120.0, 0.0]
    _assert_same_as_aeon(path)


@pytest.mark.parametrize(
    ("data", "header", "words"),
    [
        ("1,2:a\n3,4,5:b\n", {}, "series 1 has 3 points, series 0 has 2"),
        ("1,2:3,4:a\n1,2:b\n", {"equallength": "false"}, "series 1 has 1 channels, expected 2"),
        ("1,2:3:a\n", {"equallength": "false"}, r"series 0 have \[2, 1\] values"),
        ("1,x:a\n", {}, "expected decimal numbers"),
        ("1,,2:a\n", {}, "expected decimal numbers"),
        ("1 2,3:a\n", {}, r"series 0: expected decimal numbers.*1 2"),
        ("1,2\n", {}, "series 0 has no class"),
        ("1,2:\n", {}, "series 0 has no class"),
        ("", {}, "at least one series"),
        ("1,inf:a\n", {}, "inf"),
        ("1,2:x\n", {"classlabel": "false", "targetlabel": "true"}, "targets"),
        ("1,2:a\n", {"timestamps": "perhaps"}, "true or false"),
        ("1,2:a\n", {"timestamps": "true"}, "series 0, channel 0: expected .time,value. pairs"),
        ("(2,1),(1,1):a\n", {"timestamps": "true"}, "increasing time stamps"),
        ("(2,1),(2,1):a\n", {"timestamps": "true"}, "increasing time stamps"),
        ("(2,1),(nan,1):a\n", {"timestamps": "true"}, "increasing time stamps"),
        ("(2,1),(yesterday,1):a\n", {"timestamps": "true"}, "all dates"),
        ("(2,one):a\n", {"timestamps": "true"}, "expected decimal numbers"),
    ],
)
def test_what_cannot_be_read_is_refused_with_words(tmp_path, data, header, words):
    with pytest.raises(InputError, match=words):
        read_ts(_written(tmp_path, data, **header))


def test_a_file_that_is_absent_or_no_ts_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="found nothing"):
        read_ts(tmp_path / "absent.ts")
    other = tmp_path / "other.ts"
    other.write_text("1,2,3\n")
    with pytest.raises(InputError, match="@data"):
        read_ts(other)


_numbers = st.floats(allow_infinity=False, width=64)


def as_ts(batch, times, label):
    """The text of a file, with stamps if there are ``times``."""
    head = [
        f"@timeStamps {str(times is not None).lower()}",
        "@equalLength false",
        f"@classLabel {str(label == 'class').lower()}",
        *(["@targetLabel true"] if label == "target" else []),
        "@data",
    ]
    lines = []
    for i in range(len(batch)):
        channels = []
        for column in batch.series(i)[1].T:
            texts = ["?" if x != x else repr(float(x)) for x in column]
            if times is not None:
                dated = times[i].dtype.kind == "M"
                stamps = [str(t).replace("T", " ") if dated else repr(float(t)) for t in times[i]]
                texts = [f"({t},{x})" for t, x in zip(stamps, texts, strict=True)]
            channels.append(",".join(texts))
        end = "" if batch.labels is None else f":{batch.labels[i]}"
        lines.append(":".join(channels) + end)
    return "\n".join([*head, *lines]) + "\n"


@given(
    st.lists(
        st.lists(st.tuples(_numbers, _numbers), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["counted", "numbers", "dates"]),
    st.sampled_from(["none", "class", "target"]),
)
def test_a_file_reads_as_it_was_written_bit_for_bit(tmp_path_factory, rows, dtype, kind, label):
    with np.errstate(over="ignore"):
        arrays = [np.array(series).astype(dtype) for series in rows]
    for array in arrays:
        array[np.isinf(array)] = 0
    times = None
    if kind == "numbers":
        times = [np.cumsum(np.full(len(a), 0.1)) - 1e9 for a in arrays]
    if kind == "dates":
        origin = np.datetime64("1999-12-31T23:59:59.123456789", "ns")
        times = [origin + np.arange(len(a)) * np.timedelta64(1001, "us") for a in arrays]
    n = len(arrays)
    labels = {"none": None, "class": np.arange(n), "target": np.arange(n) / 3}[label]
    batch = SeriesBatch.from_arrays(arrays, times, labels=labels, layout="time_first")
    path = tmp_path_factory.mktemp("ts") / "x.ts"
    path.write_text(as_ts(batch, None if kind == "counted" else times, label))
    again = read_ts(path, dtype=dtype)
    np.testing.assert_array_equal(again.values, batch.values)
    known = ~np.isnan(batch.values)
    np.testing.assert_array_equal(np.signbit(again.values)[known], np.signbit(batch.values)[known])
    np.testing.assert_array_equal(again.times, batch.times)
    np.testing.assert_array_equal(again.offsets, batch.offsets)
    assert again.time_origin == batch.time_origin
    if label == "class":
        assert again.labels.tolist() == [str(i) for i in range(n)]
    elif label == "target":
        np.testing.assert_array_equal(again.labels, labels)
    else:
        assert again.labels is None

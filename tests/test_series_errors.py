"""SeriesBatch: what cannot be used is refused with the place, what arrived and what to do."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, _arrays

NAN, INF = np.nan, np.inf


def build(times, values=None, offsets=(0, 2, 5), **extras):
    values = np.zeros((5, 2)) if values is None else values
    return SeriesBatch(times, values, offsets, **extras)


GOOD = [0.0, 1.0, 0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: build([0, 1, 0, 2, 1]),
            "times must strictly increase within a series, got 1.0 at position 2 of series 1 after "
            "2.0; sort the points of each series by time, e.g. with np.argsort",
        ),
        (
            lambda: build([0, 1, 0, 2, 2], ids=["a", "b"]),
            "times must strictly increase within a series, got 2.0 twice, at position 2 of series "
            "1 (id 'b') and just before; merge the two points or drop one",
        ),
        (
            lambda: build([0, 1, 0, NAN, 2], ids=[7, 8]),
            "times must be finite, got nan at position 1 of series 1 (id 8); "
            "drop the point or give it a time",
        ),
        (
            lambda: build([0, INF, 0, 1, 2]),
            "times must be finite, got inf at position 1 of series 0; "
            "drop the point or give it a time",
        ),
        (
            lambda: build(np.array(["2020", "NaT", "2020", "2021", "2022"], "M8[Y]")),
            "times must be finite, got nan at position 1 of series 0; "
            "drop the point or give it a time",
        ),
        (
            lambda: build(np.array(["2020", "2021", "2022", "2021", "2023"], "M8[Y]")),
            "times must strictly increase within a series, got 2021-01-01T00:00:00.000000000 at "
            "position 1 of series 1 after 2022-01-01T00:00:00.000000000; sort the points of each "
            "series by time, e.g. with np.argsort",
        ),
        (
            lambda: SeriesBatch.from_numpy3d(np.zeros((2, 1, 3)), [0, 2, 1]),
            "times must strictly increase within a series, got 1.0 at position 2 of the shared "
            "times after 2.0; sort the points of each series by time, e.g. with np.argsort",
        ),
        (
            lambda: build(GOOD, [[0, 0], [0, 0], [0, 0], [0, -INF], [0, 0]], channels=["a", "b"]),
            "values must be finite, or NaN for 'not observed', got -inf in channel 'b' (number 1) "
            "at position 1 of series 1; replace it with np.nan or correct it",
        ),
        (
            lambda: build(GOOD, offsets=[0, 2, 2, 5], ids=["a", "b", "c"]),
            "each series needs at least one point, got none in series 1 (id 'b'); "
            "leave such series out",
        ),
        (
            lambda: build(GOOD, offsets=[0, 2, 2, 2, 5]),
            "each series needs at least one point, got none in series 1 and 1 more; "
            "leave such series out",
        ),
        (
            lambda: build(GOOD, offsets=[0, 4]),
            "offsets must run from 0 to the number of points 5, got 0 to 4; "
            "use np.concatenate([[0], np.cumsum(lengths)])",
        ),
        (
            lambda: build(GOOD, offsets=[0, 4, 2, 5]),
            "offsets must not decrease, got 4 and then 2 at series 1; "
            "use np.concatenate([[0], np.cumsum(lengths)])",
        ),
        (
            lambda: build(GOOD, offsets=[0.0, 5.0]),
            "offsets must be a 1-D array of B + 1 integers, got dtype float64 of shape (2,); "
            "series b is points offsets[b]:offsets[b+1]",
        ),
        (
            lambda: build(GOOD, offsets=[]),
            "offsets must be a 1-D array of B + 1 integers, got dtype float64 of shape (0,); "
            "series b is points offsets[b]:offsets[b+1]",
        ),
        (
            lambda: build([0, 1]),
            "times must have shape (5,), one time for each row of values, got (2,)",
        ),
        (
            lambda: build(GOOD, np.zeros(5)),
            "values must have 2 dimensions (N, C), got shape (5,); see SeriesBatch.from_numpy3d, "
            "from_arrays and from_tensor for other layouts",
        ),
        (
            lambda: build(GOOD, np.zeros((5, 0))),
            "values must have at least one channel, got shape (5, 0)",
        ),
        (
            lambda: build(GOOD, np.zeros((5, 2), dtype=complex)),
            "values must be real numbers, got dtype complex128; "
            "give the real and imaginary parts as two channels",
        ),
        (
            lambda: build(GOOD, np.full((5, 2), None)),
            "values must be real numbers, got dtype object; "
            "make all entries numbers, with np.nan for 'not observed'",
        ),
        (
            lambda: build(GOOD, np.full((5, 2), "1")),
            "values must be real numbers, got dtype <U1; convert to float first",
        ),
        (
            lambda: build(["0", "1", "0", "1", "2"]),
            "times must be numbers, datetimes or durations, got dtype <U1; convert them first, "
            "e.g. np.array(..., dtype='datetime64[ns]') for text dates",
        ),
        (
            lambda: build(np.array(["1000", "1001", "1000", "1001", "1002"], "M8[Y]")),
            "times must fit 64-bit nanoseconds (years 1678 to 2262, steps of 1 ns), got dtype "
            "datetime64[Y] outside of that; subtract an origin and give floats",
        ),
        (
            lambda: build(GOOD, channels=["a"]),
            "channels must be 2 names, got 1: 'a'; check the order of the axes",
        ),
        (
            lambda: build(GOOD, channels=["a", "a"]),
            "channels must all differ, got 'a' more than once; rename one",
        ),
        (
            lambda: build(GOOD, channels="ab"),
            "channels must be a sequence of names, got the text 'ab'; use ['ab']",
        ),
        (
            lambda: build(GOOD, ids=["a"]),
            "ids must have one entry for each of the 2 series, got shape (1,)",
        ),
        (
            lambda: build(GOOD, labels=[{}, {}]),
            "labels must be numbers, texts or datetimes, got dtype object; convert them, "
            "e.g. with .astype(str)",
        ),
        (
            lambda: build(GOOD, static=[1, 2]),
            "static must be numbers of shape (2, S), got int64 of shape (2,); one covariate is an "
            "axis of size 1, e.g. static[:, None]",
        ),
        (
            lambda: build(GOOD, static=[[1, 2], [3, INF]], static_names=["age", "size"]),
            "static must be finite, or NaN for 'unknown', got inf in 'size' of series 1; "
            "replace it with np.nan",
        ),
        (
            lambda: SeriesBatch.from_numpy3d(np.zeros((2, 3))),
            "values must have 3 dimensions (B, C, L), got shape (2, 3); for one series add a "
            "leading axis with x[None], for one channel an axis of size 1",
        ),
        (
            lambda: SeriesBatch.from_numpy3d(np.zeros((2, 1, 3)), [0, 1]),
            "times must have shape (3,), shared by all series, or (2, 3), got (2,); "
            "give one time for each of the 3 points of a series",
        ),
        (
            lambda: SeriesBatch.from_tensor(np.zeros((2, 3, 1)), lengths=[3, 4]),
            "lengths must be between 1 and 3, the padded length, got 4 for series 1; "
            "check that time is the second axis",
        ),
        (
            lambda: SeriesBatch.from_tensor(np.zeros((2, 3, 1)), lengths=[3, 0]),
            "each series needs at least one point, got none in series 1; leave such series out",
        ),
        (
            lambda: SeriesBatch.from_tensor(np.zeros((2, 3, 1)), lengths=[1.0, 2.0]),
            "lengths must be 2 integers, one for each series, got dtype float64 of shape (2,)",
        ),
        (
            lambda: SeriesBatch.from_numpy3d(np.zeros((2, 1, 0))),
            "each series needs at least one point, got none in series 0 and 1 more; "
            "leave such series out",
        ),
        (
            lambda: SeriesBatch.from_arrays([np.zeros((2, 1)), np.zeros(3)]),
            "each series must be a 2-D array (L, C), got shape (3,) for series 1; "
            "one channel is an axis of size 1, e.g. x[:, None]",
        ),
        (
            lambda: SeriesBatch.from_arrays([np.zeros((2, 1)), np.zeros((2, 3))]),
            "all series must have the same channels: series 0 has 1, series 1 has 3 (shape (2, 3) "
            "read as (L, C)); fill absent channels with np.nan, or set layout=",
        ),
        (
            lambda: SeriesBatch.from_arrays([np.zeros((2, 1)), np.zeros((3, 1))], [0, 1]),
            "shared times of length 2 need series of that length, got 3 points in series 1; "
            "give a list of times, one array for each series",
        ),
        (
            lambda: SeriesBatch.from_arrays([np.zeros((2, 1))], [[0, 1, 2]]),
            "times of series 0 must have shape (2,), one time for each of its points, got (3,)",
        ),
        (
            lambda: SeriesBatch.from_arrays([np.zeros((2, 1))], [[0, 1], [0, 1]]),
            "times must be one array for each of the 1 series, got 2",
        ),
        (
            lambda: SeriesBatch.from_arrays(
                [np.zeros((1, 1)), np.zeros((1, 1))], [[0], np.array(["2020"], "M8[Y]")]
            ),
            "times must be of one kind in all series, got dtype int64 in series 0 and "
            "datetime64[Y] in series 1; convert them to the same kind",
        ),
        (
            lambda: SeriesBatch.from_arrays([[[1, 2], [3]]]),
            "values of series 0 must have rows of equal length, got list",
        ),
        (
            lambda: SeriesBatch.from_arrays([], layout="rows"),
            "layout must be 'time_first' or 'channels_first', got 'rows'",
        ),
        (
            lambda: SeriesBatch.of(np.zeros((3, 4))),
            "an array of series must be (B, L, C), got shape (3, 4); for B series of one "
            "channel give x[:, :, None], for one series of shape (L, C) give [x]",
        ),
        (
            lambda: SeriesBatch.of({"t": [0.0], "x": [1.0]}),
            "cannot tell which column of the table holds the ids of the series: name it with "
            "series_id= (None: the table is one series). Its columns are 't', 'x'",
        ),
        (
            lambda: SeriesBatch.from_arrays([np.zeros((2, 1))], 3),
            "times must be a list of arrays or an array, got int",
        ),
        (
            lambda: SeriesBatch.of(3),
            "expected a SeriesBatch, an array (B, L, C), a list of 2-D arrays (L, C) or a table, "
            "got int",
        ),
    ],
)
def test_the_error_names_the_place_what_arrived_and_the_remedy(call, words):
    with pytest.raises(InputError, match="^" + re.escape(words)):
        call()


def test_a_misspelt_argument_is_not_swallowed():
    with pytest.raises(TypeError, match="unknown argument 'chanels'; known are channels, ids"):
        SeriesBatch.from_numpy3d(np.zeros((1, 1, 2)), chanels=["a"])


@given(st.integers(1, 40), st.integers(1, 7), st.data())
def test_the_first_wrong_point_is_found_wherever_the_slices_fall(n_points, piece, data):
    cuts = data.draw(st.sets(st.integers(1, n_points), max_size=5))
    offsets = np.array(sorted({0, n_points} | cuts))
    lengths = np.diff(offsets)
    times = np.concatenate([np.arange(n, dtype=float) for n in lengths])
    values = np.zeros((n_points, 1))
    at = data.draw(st.integers(0, n_points - 1))
    series = int(np.searchsorted(offsets, at, "right")) - 1
    place = f"position {at - offsets[series]} of series {series}"
    kind = data.draw(st.sampled_from(["nan", "inf", "twice"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_arrays, "SLICE", piece)
        SeriesBatch(times, values, offsets)
        if kind == "nan":
            times[at] = np.nan
        elif kind == "inf":
            values[at] = np.inf
        elif at > offsets[series]:
            times[at] = times[at - 1]
        else:
            return
        with pytest.raises(InputError, match=f"{place}\\b"):
            SeriesBatch(times, values, offsets)


def test_a_tensor_that_requires_a_gradient_is_not_detached_in_silence():
    torch = pytest.importorskip("torch")
    x = torch.zeros(2, 5, 1, requires_grad=True)
    calls = (
        lambda: SeriesBatch.of(x),
        lambda: SeriesBatch.from_tensor(x),
        lambda: SeriesBatch.of(list(x)),
        lambda: SeriesBatch.of(x.detach(), times=x[0, :, 0].cumsum(0)),
        lambda: SeriesBatch.of(x.detach(), labels=x[:, 0, 0]),
    )
    for call in calls:
        with pytest.raises(InputError, match=r"must not require a gradient.*x\.detach\(\)"):
            call()
    assert SeriesBatch.of(x.detach()).n_points == 10

"""roughformer forecast: learn, keep, load and answer, as tables."""

import numpy as np
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

import roughformer as rf
from command import fails, succeeds

QUICK = ("--steps", "5", "--threads", "1")


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    times = [np.sort(rng.uniform(0, 10, 8)) for _ in range(12)]
    x = [np.column_stack([np.sin(t), t]) for t in times]
    rf.SeriesBatch.from_arrays(x, times, channels=["a", "b"]).save(tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def test_a_model_is_learned_kept_and_used_again(tmp_path, file):
    ask = ("forecast", file, "--ahead", "1,2.5", "--model", tmp_path / "m", *QUICK)
    first = succeeds(*ask, "--out", tmp_path / "first.parquet")
    assert "learning from 12 series" in first.err
    ask = ("forecast", file, "--ahead", "1,2.5", "--model", tmp_path / "m")
    again = succeeds(*ask, "--out", tmp_path / "again.csv")
    assert "learning" not in again.err
    table = pq.read_table(tmp_path / "first.parquet").to_pydict()
    assert list(table) == ["series_id", "time", "channel", "value", "lower", "upper"]
    assert table["channel"][:4] == ["a", "b", "a", "b"]
    assert table["series_id"][:5] == [0, 0, 0, 0, 1]
    assert all(low <= high for low, high in zip(table["lower"], table["upper"], strict=True))
    same = pv.read_csv(tmp_path / "again.csv").to_pydict()
    np.testing.assert_allclose(same["value"], table["value"])
    batch = rf.SeriesBatch.load(file)
    at = batch.times[batch.offsets[1:] - 1][:, None] + [1.0, 2.5]
    found = rf.RFormerForecaster.load(tmp_path / "m").predict(batch, at=at)
    np.testing.assert_allclose(table["value"], found.ravel())


def test_times_may_be_dates_and_default_to_ten_steps_up_to_the_horizon(tmp_path):
    rng = np.random.default_rng(0)
    start = np.datetime64("2024-03-01T00:00")
    times = [start + np.sort(rng.choice(500, 9, replace=False)).astype("m8[m]") for _ in range(6)]
    x = [rng.normal(size=(9, 1)) for _ in times]
    rf.SeriesBatch.from_arrays(x, times).save(tmp_path / "d.parquet")
    ask = ("forecast", tmp_path / "d.parquet", "--out", tmp_path / "o.parquet", *QUICK)
    succeeds(*ask)
    assert pq.read_table(tmp_path / "o.parquet").num_rows == 60
    succeeds(*ask, "--at", "2024-03-01T08:30")
    found = pq.read_table(tmp_path / "o.parquet")
    assert found.column("time").to_numpy()[0] == np.datetime64("2024-03-01T08:30")
    assert "expected dates" in fails(*ask, "--at", "soon")
    for year in ("10", "2024", "-5.0"):
        assert "a year is 2024-01-01" in fails(*ask, "--at", year)
    succeeds(*ask, "--ahead", "90s,30min,2h", "--horizon", "3h")
    found = pq.read_table(tmp_path / "o.parquet").column("time").to_numpy()[:3]
    assert (np.diff(found) / np.timedelta64(1, "s")).tolist() == [1710.0, 5400.0]
    assert "--ahead must be a positive number, a duration" in fails(*ask, "--ahead", "soon")


def test_options_of_learning_are_refused_where_a_model_is_used(tmp_path, file):
    ask = ("forecast", file, "--model", tmp_path / "m", "--out", tmp_path / "o.csv")
    succeeds(*ask, *QUICK)
    for option, value in (("steps", 5), ("horizon", 2), ("train", file), ("known-future", "a")):
        assert f"--{option} is for learning" in fails(*ask, f"--{option}", value)


def test_other_tools_name_the_one_for_forecasters(tmp_path, file):
    ask = ("forecast", file, "--model", tmp_path / "m", "--out", tmp_path / "o.csv")
    succeeds(*ask, *QUICK)
    assert "roughformer forecast DATA --model" in fails("predict", tmp_path / "m", file)
    with pytest.raises(rf.InputError, match="load it with RFormerForecaster"):
        rf.RFormerClassifier.load(tmp_path / "m")


def test_a_note_on_the_horizon_is_told_once(tmp_path, file):
    far = ("forecast", file, "--horizon", "2", "--ahead", "3", "--out", tmp_path / "o.csv")
    assert succeeds(*far, *QUICK).err.count("trained for up to 2 ahead") == 1


def test_a_plan_and_covariates_go_in_by_name_and_are_found_again(tmp_path):
    """Forecasts begin where the target ends, and a kept model knows its columns."""
    rng, table = np.random.default_rng(0), tmp_path / "x.csv"
    rows = ["who,time,sold,open,size"]
    for who in range(12):
        for t in range(20):
            sold = "" if t >= 15 else rng.normal()
            rows.append(f"{who},{t},{sold},{int(rng.random() < 0.5)},{who % 3}")
    table.write_text("\n".join(rows))
    ask = ("forecast", table, "--ahead", "1,2", "--model", tmp_path / "m")
    learn = ("--series-id", "who", "--static", "size", "--known-future", "open", *QUICK)
    succeeds(*ask, *learn, "--out", tmp_path / "first.csv")
    succeeds(*ask, "--out", tmp_path / "again.csv")
    found = pv.read_csv(tmp_path / "first.csv")
    assert found.column("time").to_pylist()[:4] == [15, 15, 16, 16]
    assert found.column("channel").to_pylist()[:2] == ["sold", "open"]
    assert pv.read_csv(tmp_path / "again.csv").equals(found)


def test_what_cannot_be_is_refused_in_words(tmp_path, file):
    assert "give one of them only" in fails(
        "forecast", file, "--at", "1", "--ahead", "1", *QUICK, code=2
    )
    assert "expected numbers" in fails("forecast", file, "--at", "noon", *QUICK)
    assert "must end in .csv or .parquet" in fails("forecast", file, "--out", tmp_path / "x.txt")
    assert "--interval must lie" in fails("forecast", file, "--interval", "90", *QUICK)


def test_a_report_shows_forecasts_beside_what_came(tmp_path):
    rng = np.random.default_rng(0)
    times = [np.sort(rng.uniform(0, 10, 20)) for _ in range(40)]
    batch = rf.SeriesBatch.from_arrays([np.sin(t)[:, None] for t in times], times)
    batch.save(tmp_path / "series.parquet")
    page = tmp_path / "page.html"
    succeeds("forecast", tmp_path / "series.parquet", "--steps", "5", "--horizon", "3",
             "--report", page, "--out", tmp_path / "ahead.csv")  # fmt: skip
    text = page.read_text()
    assert text.count("<img") == 5
    assert "in intervals for 90%" in text
    assert "trained on these very series" in text
    said = fails("forecast", tmp_path / "series.parquet", "--report", tmp_path / "page.pdf")
    assert ".html" in said


def test_a_table_without_ids_whose_times_rise_is_one_series(tmp_path):
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + np.cumsum(rng.integers(1, 3, 80)).astype("timedelta64[D]")
    rows = "".join(f"{d},{i % 7}\n" for i, d in enumerate(days))
    (tmp_path / "one.csv").write_text("date,sales\n" + rows)
    done = succeeds(
        "forecast", tmp_path / "one.csv", "--horizon", "14d", "--ahead", "1d,7d", *QUICK,
        "--out", tmp_path / "out.csv",
    )  # fmt: skip
    assert "learning from 1 series of sales" in done.err
    table = pv.read_csv(tmp_path / "out.csv").to_pydict()
    assert table["channel"] == ["sales"] * 2
    assert "expected a unit, such as 7d" in fails("forecast", tmp_path / "one.csv", "--ahead", "7")
    (tmp_path / "umsatz.csv").write_text("Datum,sales\n" + rows)
    assert "name it with --time. Its" in fails("forecast", tmp_path / "umsatz.csv", *QUICK)
    (tmp_path / "two.csv").write_text("date,sales\n" + rows + rows)
    assert "say --one-series" in fails("forecast", tmp_path / "two.csv", *QUICK)


def test_unsorted_rows_are_one_series_if_it_is_said_so(tmp_path):
    rows = [f"{i / 4},{i % 7}\n" for i in range(80)]
    for name, order in ("sorted", rows), ("backwards", rows[::-1]), ("twice", rows + rows):
        (tmp_path / f"{name}.csv").write_text("time,sales\n" + "".join(order))
    command = ("--horizon", "3", "--ahead", "1,2", *QUICK, "--out")
    succeeds("forecast", tmp_path / "sorted.csv", *command, tmp_path / "a.csv")
    assert "say --one-series" in fails("forecast", tmp_path / "backwards.csv", *QUICK)
    done = succeeds(
        "forecast", tmp_path / "backwards.csv", "--one-series", *command, tmp_path / "b.csv"
    )
    assert "learning from 1 series of sales" in done.err
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    assert "got 0.0 twice" in fails("forecast", tmp_path / "twice.csv", "--one-series", *QUICK)
    both = ("--one-series", "--series-id", "sales")
    assert "give one of them only" in fails("forecast", tmp_path / "sorted.csv", *both, code=2)

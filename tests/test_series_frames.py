"""DataFrames at the door: columns are guessed or said, and mean the same in every library."""

import warnings

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from small import TINY, make

pd = pytest.importorskip("pandas")


def frame(n=12, length=6, first=0):
    """``n`` series of ``length`` rows, with the columns patient, time, hr and spo2."""
    rng = np.random.default_rng(first)
    return pd.DataFrame(
        {
            "patient": np.repeat([f"p{first + i:03}" for i in range(n)], length),
            "time": np.tile(np.arange(length) * 0.5, n),
            "hr": rng.normal(80, 5, n * length),
            "spo2": rng.normal(97, 1, n * length),
        }
    )


def expected(table):
    return SeriesBatch.from_table(table, series_id="patient", time="time", channels=["hr", "spo2"])


def test_usual_names_of_columns_are_guessed_in_pandas_polars_and_arrow():
    table = frame()
    found = [SeriesBatch.of(table), SeriesBatch.of(table.rename(columns=str.upper))]
    found += [SeriesBatch.of(table.to_dict("list"))]
    if pl := pytest.importorskip("polars"):
        found += [
            SeriesBatch.of(pl.from_pandas(table)),
            SeriesBatch.of(pl.from_pandas(table).lazy()),
        ]
    assert found[0].equals(expected(table))
    for batch in found:
        np.testing.assert_array_equal(batch.values, found[0].values)
        assert batch.ids.tolist() == found[0].ids.tolist()


def test_names_that_are_said_come_before_those_that_are_guessed():
    table = frame().assign(id=np.arange(72) % 2, ward=1.0)
    batch = SeriesBatch.of(table, series_id="patient", channels=["spo2"], static=["ward"])
    assert (len(batch), batch.channels, batch.static_names) == (12, ("spo2",), ("ward",))
    one = SeriesBatch.of(frame(n=1).drop(columns="patient"), series_id=None)
    assert (len(one), one.ids) == (1, None)


def test_a_frame_indexed_by_id_and_time_is_wide():
    table = frame()
    for names in (["patient", "time"], ["case", "moment"], [None, None]):
        indexed = table.set_index(["patient", "time"]).rename_axis(names)
        assert SeriesBatch.of(indexed).equals(expected(table))
    turned = table.set_index(["time", "patient"])  # told by their names
    assert SeriesBatch.of(turned).equals(expected(table))
    assert SeriesBatch.of(table.set_index("time")).equals(expected(table))
    hours = table.rename(columns={"time": "hour"}).set_index("hour")
    assert SeriesBatch.of(hours, time="hour").equals(expected(table))
    by_name = SeriesBatch.from_table(indexed.rename_axis(["a", "b"]), series_id="a", time="b")
    assert by_name.equals(expected(table))


def test_a_frame_indexed_by_id_time_and_channel_is_long():
    table = frame()
    long = table.melt(["patient", "time"], var_name="name", value_name="number")
    assert SeriesBatch.of(long.set_index(["patient", "time", "name"])).equals(expected(table))
    two = long.assign(other=1.0).set_index(["patient", "time", "name"])
    with pytest.raises(InputError, match="must have one column of values, got number, other"):
        SeriesBatch.of(two)
    usual = long.rename(columns={"name": "channel", "number": "value"})
    assert SeriesBatch.of(usual).equals(expected(table))


def test_a_series_of_pandas_with_ids_and_times_is_a_frame_of_one_column():
    table = frame()
    long = table.melt(["patient", "time"], var_name="name", value_name="number")
    numbers = long.set_index(["patient", "time", "name"])["number"]
    for column in (numbers, numbers.rename(None)):
        assert SeriesBatch.of(column).equals(expected(table))
    heart = SeriesBatch.of(table.set_index(["patient", "time"])["hr"])
    assert heart.channels == ("hr",)
    np.testing.assert_array_equal(
        rf.SignatureTransformer().fit_transform(numbers),
        rf.SignatureTransformer().fit_transform(expected(table)),
    )
    with pytest.raises(InputError, match="got Series"):
        SeriesBatch.of(table["hr"])


def test_a_list_of_frames_is_refused_with_a_remedy_that_works():
    table = frame()
    parts = [(key, part.drop(columns="patient")) for key, part in table.groupby("patient")]
    ids, frames = [key for key, _ in parts], [part for _, part in parts]
    remedy = r"pd\.concat\(frames, keys=ids, names=\['id'\]\)"
    for read in (SeriesBatch.of, SeriesBatch.from_arrays, rf.SignatureTransformer().fit):
        with pytest.raises(InputError, match=remedy):
            read(frames)
    joined = pd.concat(frames, keys=ids, names=["id"])
    assert SeriesBatch.of(joined).equals(expected(table))
    indexed = pd.concat([part.set_index("time") for part in frames], keys=ids, names=["id"])
    assert SeriesBatch.of(indexed).equals(expected(table))


def test_labels_are_taken_from_a_column_called_label():
    table = frame(n=3).assign(label=np.repeat(["x", "y", "x"], 6))
    batch = SeriesBatch.of(table)
    assert batch.channels == ("hr", "spo2")
    assert batch.labels.tolist() == ["x", "y", "x"]
    assert SeriesBatch.of(table.assign(label=None)).labels is None


def test_an_index_that_parquet_kept_is_never_a_channel(tmp_path):
    table = frame().sample(frac=1, random_state=0)  # the index is no range: pandas keeps it
    table.to_parquet(tmp_path / "x.parquet")
    import pyarrow.parquet as pq

    read = pq.read_table(tmp_path / "x.parquet").replace_schema_metadata()
    assert "__index_level_0__" in read.column_names
    assert SeriesBatch.of(read).channels == ("hr", "spo2")
    by_name = SeriesBatch.from_table(read, series_id="patient", time="time")
    assert by_name.channels == ("hr", "spo2")


def test_a_channel_that_numbers_the_rows_is_pointed_out():
    table = frame()
    with pytest.warns(UserWarning, match="channel 'row' is a running number of the rows"):
        SeriesBatch.of(table.assign(row=np.arange(len(table)) + 7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SeriesBatch.of(table.assign(row=np.tile(np.arange(6), 12)))  # starts anew in each series
        SeriesBatch.of(frame(n=1, length=50).assign(row=np.arange(50)))  # one series: no answer


def test_a_running_number_is_pointed_out_after_a_split_and_in_any_order_of_the_rows():
    table = frame().assign(row=np.arange(72))
    part = table[table["patient"].isin(["p001", "p007", "p004"])]
    for rows in (part, table.sample(frac=1, random_state=0), part.sample(frac=1, random_state=0)):
        with pytest.warns(UserWarning, match="channel 'row' is a running number of the rows"):
            SeriesBatch.of(rows)
    not_by_ones = np.repeat(100 * np.arange(12), 6) + np.tile([0, 2, 1, 3, 4, 5], 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SeriesBatch.of(table.assign(row=not_by_ones))


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "index"])
def test_a_column_named_like_an_index_is_no_channel_if_it_numbers_the_rows(name):
    table = frame().assign(**{name: np.arange(72)})
    part = table[table["patient"] > "p005"].sample(frac=1, random_state=0)
    for rows in (table, part):
        assert SeriesBatch.of(rows).channels == ("hr", "spo2")
        by_name = SeriesBatch.from_table(rows, series_id="patient", time="time")
        assert by_name.channels == ("hr", "spo2")
    one = table[:6].drop(columns="patient")
    assert SeriesBatch.of(one, series_id=None).channels == ("hr", "spo2")
    other = table.assign(**{name: np.arange(72) ** 2})  # an index of shares, say
    assert SeriesBatch.of(other).channels == ("hr", "spo2", name)


def test_to_pandas_and_back_is_the_same_batch():
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(n, 2)).astype(np.float32) for n in (3, 5)]
    values[0][1, 0] = np.nan
    times = [
        np.datetime64("2020-01-01", "ns") + np.arange(n) * np.timedelta64(1, "m") for n in (3, 5)
    ]
    batch = SeriesBatch.from_arrays(
        values, times, channels=["a", "b"], ids=["x", "y"], labels=[0, 1],
        static=[[1.0], [np.nan]], static_names=["age"],
    )  # fmt: skip
    table = batch.to_pandas()
    assert table.index.names == ["series_id", "time"]
    assert table.columns.tolist() == ["a", "b", "age", "label"]
    assert SeriesBatch.of(table, static=["age"]).equals(batch)
    with pytest.raises(InputError, match="two columns would have the same name"):
        batch.to_pandas(time="a")


def test_channels_called_channel_and_value_come_back_from_pandas():
    values = np.random.default_rng(0).normal(size=(2, 5, 2))
    batch = SeriesBatch.of(values, channels=["channel", "value"], ids=["a", "b"])
    assert SeriesBatch.of(batch.to_pandas()).equals(batch)
    long = {"id": ["a", "a"], "t": [0.0, 0.0], "channel": ["x", "y"], "value": [1.0, 2.0]}
    for names in (long["channel"], pd.Categorical(long["channel"])):
        assert SeriesBatch.of(pd.DataFrame(long | {"channel": names})).channels == ("x", "y")


# Estimators


def quick(kind=rf.RFormerRegressor, **options):
    return make(kind, **(TINY | {"epochs": 1} | options))


def test_targets_of_pandas_are_aligned_by_id():
    table = frame()
    ids = table["patient"].unique()
    y = pd.Series(np.arange(12.0), index=ids)
    want = quick().fit(expected(table), y.to_numpy()).predict(expected(table))
    shuffled = y.sample(frac=1, random_state=0)
    model = quick().fit(table, shuffled)
    np.testing.assert_array_equal(model.predict(table), want)
    np.testing.assert_array_equal(quick().fit(expected(table), shuffled).predict(table), want)
    assert model.score(table, shuffled) == model.score(expected(table), y.to_numpy())
    held = (frame(first=50), pd.Series(1.0, index=[f"p{50 + i:03}" for i in range(12)]))
    quick().fit(table, y, validation_data=held, groups=pd.Series(0, index=ids))


def test_weights_of_pandas_are_aligned_by_id():
    table = frame()
    y = np.arange(12.0)
    weight = pd.Series(1.0 + np.arange(12), index=table["patient"].unique())
    want = quick().fit(table, y, sample_weight=weight.to_numpy()).predict(table)
    shuffled = weight.sample(frac=1, random_state=0)
    found = quick().fit(table, y, sample_weight=shuffled).predict(table)
    np.testing.assert_array_equal(found, want)
    with pytest.raises(InputError, match="sample_weight must be indexed by the ids"):
        quick().fit(table, y, sample_weight=weight.reset_index(drop=True))


def test_a_column_that_y_was_taken_from_is_no_channel():
    table = frame()
    died = (table["patient"] > "p005").astype(float)
    leaky = table.assign(died=died, cost=2 * died)
    y = leaky.groupby("patient")["died"].first()
    with pytest.warns(UserWarning, match="not used as channels: 'died';"):
        model = quick().fit(leaky.drop(columns="cost"), y)
    assert model.predictor_.encoder.channels == ("hr", "spo2")
    np.testing.assert_array_equal(model.predict(leaky), model.predict(table))
    with pytest.warns(UserWarning, match="not used as channels: 'died', 'cost';"):
        model = quick().fit(leaky, leaky.groupby("patient")[["died", "cost"]].first())
    assert model.predictor_.encoder.channels == ("hr", "spo2")
    with pytest.raises(InputError, match="names 'died' among the channels, but y has that name"):
        quick().fit(leaky, y, columns={"channels": ["hr", "died"]})
    kept = quick().fit(leaky, y.to_numpy())
    assert kept.predictor_.encoder.channels == ("hr", "spo2", "died", "cost")
    for fit in (rf.SignatureTransformer().fit, rf.SignatureTransformer().fit_transform):
        with pytest.warns(UserWarning, match="not used as channels: 'died';"):
            fit(leaky, y)


def test_targets_without_a_series_and_series_without_a_target_are_named():
    table = frame()
    y = pd.Series(np.arange(12.0), index=table["patient"].unique())
    with pytest.raises(InputError, match=r"has no entry for 'p003'; its index has 'p000'"):
        quick().fit(table, y.drop("p003"))
    more = pd.concat([y, pd.Series([1.0, 2.0], index=["q1", "q2"])])
    with pytest.raises(InputError, match="y has entries without a series: 'q1', 'q2'"):
        quick().fit(table, more)
    with pytest.raises(InputError, match="one entry for each id, got two or more for 'p000'"):
        quick().fit(table, pd.concat([y, y]))
    with pytest.raises(InputError, match=r"give y\.to_numpy\(\)"):
        quick().fit(table, y.reset_index(drop=True))


def test_predict_reads_a_frame_as_fit_did(tmp_path):
    table = frame().rename(columns={"patient": "stay", "time": "hour"})
    table["died"] = (table["stay"] > "p005").astype(int)
    columns = {"series_id": "stay", "time": "hour", "label": "died"}
    model = quick(rf.RFormerClassifier).fit(table, columns=columns)
    want = model.predict_proba(
        SeriesBatch.from_table(table, series_id="stay", time="hour", label="died")
    )
    model.save(tmp_path / "model")
    unknown = table.assign(died=None, note="new").sample(frac=1, random_state=0).sort_values("stay")
    for each in (model, rf.RFormerClassifier.load(tmp_path / "model")):
        np.testing.assert_array_equal(each.predict_proba(table), want)
        np.testing.assert_array_equal(each.predict_proba(unknown), want)
        np.testing.assert_array_equal(each.predict_proba(table.drop(columns="died")), want)
        assert each.score(table) == (each.predict(table) == (np.arange(12) > 5)).mean()
    with pytest.raises(InputError, match="one column 'spo2', got 0"):
        model.predict(table.drop(columns="spo2"))


def test_predict_takes_the_columns_that_the_model_knows_and_leaves_others():
    table = frame()
    more = table.assign(note="new", age=40.0)
    batch = SeriesBatch.of(more.drop(columns="note"), static=["age"])
    model = quick(static=("age",)).fit(batch, np.arange(12.0))
    np.testing.assert_array_equal(model.predict(more), model.predict(batch))
    features = rf.SignatureTransformer().fit(table)
    np.testing.assert_array_equal(features.transform(more), features.transform(table))


def test_columns_are_named_rightly_or_refused():
    with pytest.raises(InputError, match="unknown key 'id'; known are series_id, time"):
        quick().fit(frame(), np.arange(12), columns={"id": "patient"})
    with pytest.raises(InputError, match="one column 'stay', got 0 of that name"):
        quick().fit(frame(), np.arange(12), columns={"series_id": "stay"})
    with pytest.raises(InputError, match="columns are those of a table, but X is ndarray"):
        quick().fit(np.zeros((2, 3, 1)), [0, 1], columns={"time": "t"})
    with pytest.raises(InputError, match="leave times= out"):
        quick().fit(frame(), np.arange(12), times=np.arange(6))


def test_errors_name_the_argument_that_helps_and_every_method_takes_it():
    table = frame().rename(columns={"patient": "stay"})
    columns = {"series_id": "stay"}
    want = SeriesBatch.of(table, **columns)
    for fit in (quick().fit, rf.SignatureTransformer().fit):
        with pytest.raises(InputError, match=r"name it with columns=\{'series_id'"):
            fit(table, np.arange(12.0))
    model = quick().fit(want, np.arange(12.0))  # no table: there is nothing to remember
    with pytest.raises(InputError, match=r"name it with columns=\{'series_id'"):
        model.predict(table)
    np.testing.assert_array_equal(model.predict(table, columns=columns), model.predict(want))
    score = model.score(table, np.arange(12.0), columns=columns)
    assert score == model.score(want, np.arange(12.0))
    with pytest.raises(InputError, match="columns are those of a table, but X is SeriesBatch"):
        model.predict(want, columns=columns)
    features = rf.SignatureTransformer().fit(table, columns=columns)
    np.testing.assert_array_equal(features.transform(table), features.transform(want))
    np.testing.assert_array_equal(
        rf.SignatureTransformer().fit_transform(table, columns=columns), features.transform(want)
    )


def test_static_covariates_of_the_estimator_are_read_as_such():
    table = frame().assign(age=np.repeat(np.arange(12.0), 6))
    model = quick(static=("age",)).fit(table, np.arange(12.0))
    assert model.predictor_.encoder.channels == ("hr", "spo2")
    batch = SeriesBatch.of(table, static=["age"])
    np.testing.assert_array_equal(model.predict(table), model.predict(batch))


def test_a_frame_where_a_list_of_arrays_is_expected_is_told_where_to_go():
    with pytest.raises(InputError, match=r"SeriesBatch\.of\(table\) reads it"):
        SeriesBatch.from_arrays(pd.DataFrame({"id": [1, 1], "time": [0.0, 1.0], "x": [2.0, 3.0]}))


def test_a_frame_or_column_indexed_by_dates_is_one_series():
    dates = pd.date_range("2024-01-01", periods=5, freq="h")
    frame = pd.DataFrame({"y": np.arange(5.0)}, index=dates)
    ids = frame.rename_axis("ds").reset_index().assign(unique_id="a")
    for table in (frame, frame.rename_axis("when"), frame["y"], ids):
        batch = SeriesBatch.of(table)
        assert (len(batch), batch.channels, batch.times.tolist()[:2]) == (1, ("y",), [0, 3600])
    assert SeriesBatch.of(frame.assign(T=np.arange(5.0)[::-1])).channels == ("y", "T")
    with pytest.raises(InputError, match="holds the ids of the series"):
        SeriesBatch.of(pd.concat([frame, frame]))

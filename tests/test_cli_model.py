"""roughformer predict, evaluate and explain: what they say is what the estimator says."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from command import SMALL, fails, succeeds
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.io import write_table
from roughformer.series import SeriesBatch
from small import make_sine


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A classifier on a batch file, a causal one and a regression on tables."""
    where = tmp_path_factory.mktemp("model")
    train = make_sine(36, n_classes=3, length=60)
    test = make_sine(9, n_classes=3, length=60, seed=1)
    train.save(where / "train.parquet")
    test.save(where / "test.parquet")
    write_table(train, where / "train.csv")
    write_table(test, where / "test.csv")
    write_table(test, where / "long.csv", form="long")
    common = (*SMALL, "--drop", "0,0.5", "-q")
    succeeds("train", where / "train.parquet", *common, "--out", where / "classes")
    table = ("train", where / "train.csv", "--channels", "x", *common)
    succeeds(*table, "--causal", "--out", where / "causal")
    number = ("--target", "omega", "--task", "regression")
    succeeds(*table, *number, "--uncertainty", "gaussian", "--out", where / "gauss")
    succeeds(*table, *number, "--uncertainty", "quantile", "--out", where / "quantile")
    return where


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def column(table, name):
    return np.array([float(row[name]) for row in table])


def test_classes_and_probabilities_are_those_of_the_estimator(files):
    test = SeriesBatch.load(files / "test.parquet")
    estimator = RFormerClassifier.load(files / "classes" / "model")
    table = rows(succeeds("predict", files / "classes", files / "test.parquet", "--proba").out)
    assert list(table[0]) == ["series_id", "prediction", "p_0", "p_1", "p_2"]
    assert [int(row["series_id"]) for row in table] == list(range(9))
    assert [int(row["prediction"]) for row in table] == estimator.predict(test).tolist()
    found = np.stack([column(table, f"p_{k}") for k in range(3)], axis=1)
    assert np.allclose(found, estimator.predict_proba(test), atol=1e-6)


def test_a_model_directory_serves_as_well_as_a_run(files):
    of_run = succeeds("predict", files / "classes", files / "test.parquet").out
    assert succeeds("predict", files / "classes" / "model", files / "test.parquet").out == of_run


def test_predictions_go_to_csv_and_parquet(files, tmp_path):
    shown = rows(succeeds("predict", files / "gauss", files / "test.csv").out)
    for name in ("p.csv", "p.parquet"):
        succeeds("predict", files / "gauss", files / "test.csv", "--out", tmp_path / name)
    assert rows((tmp_path / "p.csv").read_text()) == shown
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["series_id", "prediction", "std"]
    assert np.allclose(table.column("prediction").to_numpy(), column(shown, "prediction"))


def test_tables_are_read_as_in_training_whatever_other_columns_they_have(files):
    # test.csv has omega and label beside the channel; long.csv has another form.
    test = SeriesBatch.load(files / "test.parquet")
    estimator = RFormerRegressor.load(files / "gauss" / "model")
    point, deviation = estimator.predict(test, return_std=True)
    for name in ("test.csv", "long.csv"):
        table = rows(succeeds("predict", files / "gauss", files / name).out)
        assert np.allclose(column(table, "prediction"), point, rtol=1e-4)
        assert np.allclose(column(table, "std"), deviation, rtol=1e-4)


def test_quantiles_have_their_level_as_name(files):
    table = rows(succeeds("predict", files / "quantile", files / "test.csv").out)
    assert list(table[0]) == ["series_id", "prediction", "q0.1", "q0.5", "q0.9"]


def test_a_causal_model_predicts_at_every_window(files, tmp_path):
    out = tmp_path / "w.csv"
    options = ("--windows-out", out, "--proba")
    last = rows(succeeds("predict", files / "causal", files / "test.csv", *options).out)
    table = rows(out.read_text())
    assert len(table) == 9 * 6
    first = [row for row in table if row["series_id"] == "0"]
    assert [int(row["window"]) for row in first] == list(range(6))
    assert float(first[-1]["end"]) == pytest.approx(6.0)
    assert float(first[-1]["p_1"]) == pytest.approx(float(last[0]["p_1"]), abs=1e-6)


def test_dropping_depends_on_the_seed(files):
    command = ("predict", files / "gauss", files / "test.csv", "--drop", "0.5")
    assert succeeds(*command).out == succeeds(*command, "--seed", "0").out
    assert succeeds(*command).out != succeeds(*command, "--seed", "1").out


def test_evaluate_scores_at_each_share(files, tmp_path):
    file = tmp_path / "scores.json"
    options = ("--drop", "0,0.5", "--seeds", "2", "--json", file)
    done = succeeds("evaluate", files / "classes", files / "test.parquet", *options)
    assert "50%" in done.out
    assert "±" in done.out
    found = json.loads(file.read_text())
    assert found["series"] == 9
    assert [row["drop"] for row in found["scores"]] == [0, 0.5]
    assert [row["seeds"] for row in found["scores"]] == [1, 2]
    test = SeriesBatch.load(files / "test.parquet")
    estimator = RFormerClassifier.load(files / "classes" / "model")
    assert found["scores"][0]["accuracy"] == estimator.score(test, test.labels)


def test_evaluate_takes_the_target_of_the_training_or_of_another_table(files, tmp_path):
    file = tmp_path / "a.json"
    succeeds("evaluate", files / "gauss", files / "test.csv", "--json", file)
    test = SeriesBatch.load(files / "test.parquet")
    labels = tmp_path / "omega.csv"
    values = test.static[:, 0]
    labels.write_text(
        "series_id,w\n" + "".join(f"{i},{w!r}\n" for i, w in enumerate(values.tolist()))
    )
    other = tmp_path / "b.json"
    options = ("--target", "w", "--labels", labels, "--json", other)
    succeeds("evaluate", files / "gauss", files / "test.parquet", *options)
    one, two = (json.loads(f.read_text())["scores"][0]["rmse"] for f in (file, other))
    assert one == pytest.approx(two, rel=1e-4)


def test_labels_read_as_another_kind_are_the_same_classes(files, tmp_path):
    test = SeriesBatch.load(files / "test.parquet")
    test.with_labels(test.labels.astype(str)).save(tmp_path / "text.parquet")
    found = []
    for path in (files / "test.parquet", tmp_path / "text.parquet"):
        succeeds("evaluate", files / "classes", path, "--json", tmp_path / "e.json")
        found.append(json.loads((tmp_path / "e.json").read_text())["scores"])
    assert found[0] == found[1]


def test_explain_names_windows_channels_and_words(files, tmp_path):
    command = ("explain", files / "classes", files / "test.parquet", "--series", "3")
    done = succeeds(*command, "--out", tmp_path, "--top", "4")
    for word in ("series 3:", "window (4 of 6)", "channel", "word", "importance"):
        assert word in done.out
    assert (tmp_path / "explanation_3.png").read_bytes()[:4] == b"\x89PNG"
    found = json.loads(succeeds(*command, "--json").out)
    assert found["series_id"] == "3"
    assert len(found["windows"]) == 6
    assert len(found["window_edges"]) == 7
    assert list(found["channels"]) == ["x"]


def test_a_damaged_model_is_said_to_be_so(files, tmp_path):
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(files / "classes", copy)
    weights = copy / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    words = fails("predict", copy, files / "test.parquet")
    assert "model.safetensors" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "absent", "test.csv"], "there is no directory"),
        (["predict", ".", "test.csv"], "holds neither a run nor a model"),
        (["predict", "classes/state", "test.csv"], "but not of a trained model"),
        (["predict", "classes", "absent.csv"], "there is no file"),
        (["predict", "classes", "test.csv", "--out", "p.xlsx"], "must end in .csv or .parquet"),
        (["predict", "classes", "test.csv", "--drop", "1"], "must be in [0, 1), got 1.0"),
        (["predict", "classes", "test.csv", "--windows-out", "w.csv"], "train with --causal"),
        (["evaluate", "classes", "test.csv", "--target", "y"], "has no column 'y'; name"),
        (["explain", "classes", "test.parquet", "--series", "x"], "has no series 'x'; its 9"),
        (["explain", "classes", "test.parquet", "--series", "9"], "has no series '9'"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(files, monkeypatch, arguments, words):
    monkeypatch.chdir(files)
    assert words in fails(*arguments)


def test_series_of_other_channels_are_refused(files, tmp_path):
    other = make_sine(3, length=60)
    SeriesBatch(other.times, other.values, other.offsets, channels=["y"]).save(
        tmp_path / "y.parquet"
    )
    words = fails("predict", files / "classes", tmp_path / "y.parquet")
    assert "fitted to the channels ['x'], these series have ['y']" in words


def test_an_unfinished_run_has_no_model(files, tmp_path):
    (tmp_path / "state").mkdir()
    words = fails("predict", tmp_path, files / "test.csv")
    assert "has no model yet: it is not finished; continue it with roughformer train" in words

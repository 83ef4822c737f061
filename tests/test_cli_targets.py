"""Targets on the command line: several, named twice, not known, too few, explained one by one."""

import json

import numpy as np
import pytest

from command import SMALL, fails, succeeds
from roughformer.estimators import RFormerRegressor
from roughformer.io import write_table
from roughformer.series import SeriesBatch
from small import make_sine


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A classifier, and a regression with two targets; a table of targets beside the series."""
    where = tmp_path_factory.mktemp("targets")
    batch = make_sine(24, n_classes=3, length=40)
    batch.save(where / "sine.parquet")
    write_table(batch, where / "sine.csv")
    omega = batch.static[:, 0].tolist()
    rows = [f"{i},{w!r},{-w!r}\n" for i, w in enumerate(omega)]
    (where / "two.csv").write_text("series_id,speed,back\n" + "".join(rows))
    succeeds("train", where / "sine.parquet", *SMALL, "-q", "--out", where / "classes")
    two = ("--labels", where / "two.csv", "--target", "speed,back")
    succeeds("train", where / "sine.parquet", *two, *SMALL, "-q", "--out", where / "numbers")
    return where


def relabelled(batch, labels):
    parts = (batch.times, batch.values, batch.offsets)
    return SeriesBatch(*parts, channels=batch.channels, labels=labels)


def explained(files, run, *options):
    return json.loads(
        succeeds("explain", files / run, files / "sine.parquet", "--json", *options).out
    )


def test_one_of_several_targets_is_explained_by_name_or_number(files):
    batch = SeriesBatch.load(files / "sine.parquet")
    model = RFormerRegressor.load(files / "numbers" / "model")
    for name, number in (("speed", 0), ("back", 1)):
        (want,) = model.explain(batch[:1], target=number)
        by_name = explained(files, "numbers", "--target", name)
        assert by_name == explained(files, "numbers", "--target", str(number))
        assert by_name["target"] == number
        assert by_name["value"] == pytest.approx(want.value, rel=1e-5)
    line = fails("explain", files / "numbers", files / "sine.parquet")
    assert (
        line == "the model predicts several targets: name one with --target, of 0, 1, speed, back"
    )


def test_a_class_is_explained_whether_predicted_or_not(files):
    found = [explained(files, "classes", "--target", label) for label in ("0", "1", "2")]
    assert [one["target"] for one in found] == [0, 1, 2]
    predicted = explained(files, "classes")
    assert predicted == max(found, key=lambda one: one["value"])


@pytest.mark.parametrize(
    ("run", "known"), [("classes", "classes are 0, 1, 2"), ("numbers", "0, 1, speed, back")]
)
def test_a_target_that_the_model_does_not_have_is_not_explained(files, run, known):
    line = fails("explain", files / run, files / "sine.parquet", "--target", "height")
    assert known in line
    assert "got 'height'" in line


def test_a_target_named_twice_is_refused(files, tmp_path):
    two = ("--labels", files / "two.csv", "--target", "speed, speed")
    line = fails("train", files / "sine.parquet", *two, *SMALL, "--out", tmp_path / "run")
    assert line == "--target names 'speed' twice; name each target once"
    assert not (tmp_path / "run").exists()


def test_a_series_without_a_label_is_left_out_and_told(files, tmp_path):
    batch = SeriesBatch.load(files / "sine.parquet")
    labels = batch.labels.astype(float)
    labels[5] = np.nan
    path = tmp_path / "gap.parquet"
    relabelled(batch, labels).save(path)
    note = f"note: 1 of {len(batch)} series have no 'label' and are left out; the first is series 5"
    assert note in succeeds("evaluate", files / "classes", path).err


def test_a_label_that_is_no_class_is_shown_plainly(files, tmp_path):
    batch = SeriesBatch.load(files / "sine.parquet")
    path = tmp_path / "other.parquet"
    relabelled(batch, batch.labels + 7.5).save(path)
    line = fails("evaluate", files / "classes", path)
    assert "np." not in line
    assert "of series 0 is none of the model's classes [0, 1, 2]" in line


def test_one_class_is_noted_once(files, tmp_path):
    batch = SeriesBatch.load(files / "sine.parquet")
    zero = batch[np.flatnonzero(batch.labels == 0)]
    zero.save(tmp_path / "zero.parquet")
    options = ("--task", "classification", *SMALL, "--out", tmp_path / "run")
    done = succeeds("train", tmp_path / "zero.parquet", *options)
    notes = [line for line in done.err.splitlines() if line.startswith("note: ")]
    assert notes == ["note: all labels are 0: the model will always answer that"]


def test_one_series_is_noted_once(files, tmp_path):
    SeriesBatch.load(files / "sine.parquet")[:1].save(tmp_path / "one.parquet")
    options = ("--task", "classification", *SMALL, "--out", tmp_path / "run")
    done = succeeds("train", tmp_path / "one.parquet", *options)
    notes = [line for line in done.err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1
    assert "one series only" in notes[0]


def test_a_series_without_a_group_is_refused(files, tmp_path):
    rows = "".join(f"{i},{i % 3},{'' if i == 4 else i % 4}\n" for i in range(24))
    labels = tmp_path / "labels.csv"
    labels.write_text("series_id,kind,patient\n" + rows)
    options = ("--labels", labels, "--target", "kind", "--group", "patient", *SMALL, "-q")
    line = fails("train", files / "sine.parquet", *options, "--out", tmp_path / "run")
    assert line.startswith("series 4 has no group")


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_a_file_that_cannot_be_written_is_named(files, name):
    path = f"/proc/{name}"
    line = fails("predict", files / "classes", files / "sine.parquet", "--out", path)
    assert line.startswith(f"cannot write {path}: ")
    assert "choose another place" in line

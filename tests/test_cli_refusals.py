"""Commands that are refused leave nothing behind, and say what is wanted."""

import numpy as np
import pytest

from command import SMALL, fails, succeeds
from roughformer.errors import InputError
from roughformer.io import write_table
from roughformer.runs import Columns, read_data
from roughformer.runs.run import parse_assignments
from roughformer.train.validation import classification_scores
from small import make_sine


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    where = tmp_path_factory.mktemp("refusals")
    batch = make_sine(24, n_classes=3, length=40)
    batch.save(where / "sine.parquet")
    write_table(batch, where / "sine.csv")
    succeeds("train", where / "sine.parquet", *SMALL, "--out", where / "run", "-q")
    return where


@pytest.mark.parametrize(
    "wrong",
    [
        ("--set", "model.zz=1"),
        ("--set", "n_heads=3"),
        ("--set", "n_estimators=30"),
    ],
)
def test_a_refused_training_does_not_hold_back_the_corrected_one(files, tmp_path, wrong):
    out = tmp_path / "runs" / "one"
    command = ("train", files / "sine.parquet", *SMALL, "-q", "--out", out)
    fails(*command, *wrong)
    assert list(tmp_path.iterdir()) == []
    succeeds(*command)
    assert (out / "metrics.json").exists()


def test_a_refused_training_leaves_what_was_there(files, tmp_path):
    out = tmp_path / "mine"
    out.mkdir()
    command = ("train", files / "sine.parquet", *SMALL, "-q", "--out", out)
    fails(*command, "--set", "n_heads=3")
    assert list(out.iterdir()) == []
    (out / "notes.txt").write_text("keep")
    assert "is not empty and holds no run" in fails(*command)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]


def test_a_run_that_goes_on_keeps_its_settings_when_refused(files, tmp_path):
    out = tmp_path / "run"
    command = ("train", files / "sine.parquet", *SMALL, "-q", "--out", out)
    succeeds(*command)
    before = {path.name for path in out.iterdir()}
    assert "other settings" in fails(*command, "--set", "n_heads=2", "--resume")
    assert {path.name for path in out.iterdir()} == before


@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        ("predict", "--out", "p.csv"),
        ("evaluate", "--json", "s.json"),
        ("explain", "--out", "pictures"),
    ],
)
def test_no_directory_is_made_for_a_slip_in_a_path(files, tmp_path, command, option, name):
    path = tmp_path / "none" / name
    line = fails(command, files / "run", files / "sine.parquet", option, path)
    assert line.startswith(f"{option}: there is no directory '{tmp_path / 'none'}' to write")
    assert list(tmp_path.iterdir()) == []


def test_features_make_no_directory_but_tell_their_size_without_one(files, tmp_path):
    out = ("--out", tmp_path / "none" / "t.parquet")
    assert "--out: there is no directory" in fails("features", files / "sine.parquet", *out)
    succeeds("features", files / "sine.parquet", *out, "--estimate")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("head", ["series_id,time,a,kind", "series_id,time,channel,value,kind"])
def test_a_table_of_headings_holds_no_series(tmp_path, head):
    (tmp_path / "x.csv").write_text(head + "\n")
    line = fails("train", tmp_path / "x.csv", "--target", "kind", "--out", tmp_path / "run")
    assert line == f"{tmp_path / 'x.csv'} holds no series"


def test_series_whose_label_is_an_empty_cell_are_left_out_and_told(tmp_path):
    rows = "".join(
        f"{i},{t},{t * i},{'' if i == 4 else i % 2}\n" for i in range(9) for t in range(3)
    )
    texts = rows.replace(",1\n", ",yes\n").replace(",0\n", ",no\n")
    for name, text in ("numbers", rows), ("texts", texts):
        (tmp_path / f"{name}.csv").write_text("series_id,time,a,kind\n" + text)
        data = read_data(tmp_path / f"{name}.csv", Columns(), target="kind")
        assert data.batch.ids.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
        assert len(np.unique(data.target)) == 2
        (note,) = data.notes
        assert note == "1 of 9 series have no 'kind' and are left out; the first is series 4"


@pytest.mark.parametrize("text", ['{"a":1}', "{a:1}", "[1, 2"])
def test_values_of_set_are_toml(text):
    with pytest.raises(InputError, match=r"values as TOML writes them, such as \{ step = 4 \}"):
        parse_assignments([f"model={text}"])
    assert parse_assignments(["model={a=1}"]) == {"model": {"a": 1}}


def test_certainty_has_a_loss_of_zero_and_not_of_minus_zero():
    loss = classification_scores(np.ones((3, 1)), np.zeros(3, dtype=int))["log_loss"]
    assert f"{loss:.4g}" == "0"

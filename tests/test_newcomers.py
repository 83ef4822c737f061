"""Files as people have them: read, or refused with the cell and the remedy."""

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators.baselines import _verdict
from roughformer.runs.data import Columns, read_data
from roughformer.train import classification_scores

ROWS = [(i, t, 80 + t, i % 2) for i in range(4) for t in range(3)]


def table(path, header, row, text=None):
    """A file with a line for each of ROWS."""
    lines = [header, *(row.format(i=i, t=t, x=x, y=y) for i, t, x, y in ROWS)]
    path.write_bytes("\n".join(lines).encode(text or "utf-8"))
    return path


@pytest.mark.parametrize(
    "empty", ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "null", "None", "-", "?"]
)
def test_cells_that_mean_nothing_were_not_measured(tmp_path, empty):
    file = table(tmp_path / "x.csv", "id,time,x,y", "{i},{t},{x},{y}")
    file.write_text(file.read_text().replace("0,1,81", f"0,1,{empty}"))
    values = rf.read(file, target="y").batch.values[:, 0]
    assert np.isnan(values).tolist() == [False, True] + [False] * 10


@pytest.mark.parametrize("name", ["PatientID", "Patient-ID", "patient id", "Series ID", "RecordID"])
def test_usual_names_may_be_written_in_any_way(tmp_path, name):
    file = table(tmp_path / "x.csv", f"{name},Date Time,x,y", "{i},{t},{x},{y}")
    columns = rf.read(file, target="y").columns
    assert (columns.series_id, columns.time) == (name, "Date Time")


@pytest.mark.parametrize(
    ("header", "row", "text", "words"),
    [
        ("id,time,x,y", "{i},30.03.2024 1{t}:00:00,{x},{y}", None,
         r"x\.csv: times in column 'time' .* got the text '30.03.2024 10:00:00' in row 0; write"),
        ("id,date,time,x,y", "{i},2024-03-30,1{t}:00:00,{x},{y}", None,
         "'time' must be .*, got times of day; join them with their date in one column"),
        ("id,time,x,y", "{i},{t},{x} bpm,{y}", None,
         r"x\.csv: column 'x' must hold numbers, got the text '80 bpm' in row 0"),
        ("id,time,Größe,y", "{i},{t},{x},{y}", "latin-1", "save it as UTF-8"),
        ("id,time,x,y", "{i},{t},{x},Tod durch Übermut {y}", "latin-1", "save it as UTF-8"),
        ("id,time,x,y", "{i},{t},{x},{y}", "utf-16", "is UTF-16; save it as UTF-8"),
        ("# 2024-03-30", "{i},{t},{x},{y}", None, "the first row must name the columns"),
        ("id,time,x,y", "{i},{t},{x},{t}", None, "write one value in all rows of a series"),
        ("id,patient,time,x,y", "{i}{t},{i},{t},{x},{y}", None,
         "'id' of .* is different in each row, .* with --series-id"),
        (",".join(f"t{k}" for k in range(5000)), "{x}," * 4999 + "{y}", None,
         r"'t11', \.\.\. \(5000 in all\)$"),
    ],
)  # fmt: skip
def test_the_cell_and_the_remedy_are_told(tmp_path, header, row, text, words):
    file = table(tmp_path / "x.csv", header, row, text)
    with pytest.raises(InputError, match=words) as refused:
        rf.read(file, target="y")
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("row", ["{i}, {t}, {x}, {y}", "{i},{t},{x},{y}"])
@pytest.mark.parametrize(
    "header", ["id, time, x, y", "id ,time,x, y", " id,time,x,y,", "id,time,x,y,,"]
)
def test_spaces_and_separators_too_many_do_no_harm(tmp_path, header, row):
    file = table(tmp_path / "x.csv", header, row + "," * (header.count(",") - 3))
    file.write_text(file.read_text().replace("80", "", 1))
    data = rf.read(file, target="y")
    assert data.batch.channels == ("x",)
    assert (data.columns.series_id, data.columns.time) == ("id", "time")
    assert data.target.tolist() == [0, 1, 0, 1]
    assert np.isnan(data.batch.values[:, 0]).tolist() == [True] + [False] * 11


def test_rows_that_are_series_are_read_if_it_is_said_so(tmp_path):
    file = table(tmp_path / "x.csv", "id,time,x,y", "{i}{t},{t},{x},{y}")
    assert len(rf.read(file, target="y", series_id="id").batch) == len(ROWS)


def test_channels_that_never_change_within_a_series_are_told(tmp_path):
    header, row = "id,time,x,discharge,ward,y", "{i},{t},{x},1{y},7,{y}"
    file = table(tmp_path / "x.csv", header, row)
    (note,) = rf.read(file, target="y").notes
    assert "'discharge' never changes within a series" in note
    assert not rf.read(file, target="y", channels=["x", "discharge"]).notes


def test_the_precision_of_the_rarer_class_is_told():
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(0)
    labels = (rng.random(200) < 0.9).astype(int)
    share = np.clip(labels * 0.2 + rng.random(200), 0, 1)
    found = classification_scores(np.stack([1 - share, share], axis=1), labels)
    assert found["auprc"] == pytest.approx(average_precision_score(1 - labels, 1 - share))
    again = classification_scores(np.stack([share, 1 - share], axis=1), 1 - labels)
    assert again == pytest.approx(found)


def test_the_verdict_does_not_say_what_accuracy_alone_cannot():
    def row(accuracy, loss):
        return {"accuracy": accuracy, "log_loss": loss}

    simple = {"majority class": row(0.95, 0.19)}
    rare = _verdict({"model": row(0.95, 0.18), **simple})
    assert "its probabilities are (log loss 0.18, not 0.19)" in rare
    assert "do not tell the target" in _verdict({"model": row(0.95, 0.2), **simple})
    assert "do not tell the target" in _verdict({"model": row(0.94, 0.18), **simple})
    one_class = {"model": row(1, 0), "majority class": row(1, 0)}
    assert "says nothing of the model" in _verdict(one_class)


def test_labels_that_each_stand_once_are_told():
    x = [np.arange(5.0)[:, None] + i for i in range(6)]
    with pytest.warns(UserWarning, match="each series has a label of its own"):
        rf.RFormerClassifier(n_jobs=1, random_state=0).fit(x, list("abcdef"))


def test_a_note_is_shown_once(monkeypatch, capsys):
    import warnings

    from roughformer import cli

    def noisy(*_, **__):
        for _ in range(3):
            warnings.showwarning("the same", UserWarning, "", 0)
        return 0

    monkeypatch.setattr(cli, "app", noisy)
    monkeypatch.setattr("sys.argv", ["roughformer"])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == "note: the same\n"


def test_channels_of_a_long_table_that_a_model_does_not_know_write_no_cells():
    table = {"id": [0] * 4, "t": [0, 0, 1, 1], "name": ["hr", "pulse"] * 2, "v": [1.0, 2, 3, 4]}
    roles = {"series_id": "id", "time": "t", "channel": "name", "value": "v"}
    batch = rf.SeriesBatch.from_table(table, **roles, channels=("hr", "spo2"), absent=True)
    assert batch.values[:, 0].tolist() == [1, 3]
    assert np.isnan(batch.values[:, 1]).all()


def test_a_space_after_each_comma_is_no_part_of_a_label(tmp_path):
    padded, clean = tmp_path / "padded.csv", tmp_path / "clean.csv"
    clean.write_text("id,time,x,y\n0,0,1,up\n0,1,NA,up\n1,0,3,down\n1,1,4,down\n")
    padded.write_text(clean.read_text().replace(",", ", "))
    one, other = (rf.read(path, target="y") for path in (clean, padded))
    assert list(other.target) == list(one.target) == ["up", "down"]
    np.testing.assert_array_equal(one.batch.values, other.batch.values)


def test_row_numbers_of_one_series_are_no_channel(tmp_path):
    path = tmp_path / "sales.csv"
    lines = [f"{k},2024-01-{k + 1:02d},{k % 7}" for k in range(30)]
    path.write_text("\n".join(["id,date,sales", *lines]))
    with pytest.raises(InputError, match="or say --one-series"):
        read_data(path, Columns(), one_series=None)
    batch = read_data(path, Columns(), one_series=True).batch
    assert batch.channels == ("sales",)
    assert len(batch) == 1

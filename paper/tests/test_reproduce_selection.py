"""Which rows stand in a report, how they are printed, and the page of the docs."""

import importlib.util
import json
from pathlib import Path

import pytest

from command import roughformer, succeeds
from roughformer_paper.reproduce import (
    Experiment,
    Wishes,
    experiment_of,
    key_of,
    only_those,
    selected,
)
from roughformer_paper.reproduce.experiment import Page, Table
from roughformer_paper.reproduce.page import _parts, print_table

DOCS = Path(__file__).parents[2] / "docs"


def jobs_of(wishes):
    return [
        {
            "model": m,
            "seed": s,
            "size": wishes.preset,
            "options": {"max_seconds": wishes.seconds or 9.0},
        }
        for m in wishes.models or ("a", "b")
        for s in range(wishes.seeds or 1)
    ]


EXPERIMENT = Experiment(
    "x",
    "X",
    "about",
    jobs_of,
    lambda job, where: {},
    lambda rows, f: Page(),
    models=("a", "b", "c"),
)


def rows_of(wishes, **more):
    return [{"key": key_of(job), "job": job, **more} for job in jobs_of(wishes)]


def shown(rows, wishes=Wishes("full")):  # noqa: B008 - frozen
    chosen = selected(EXPERIMENT, wishes, rows)
    return [
        (r["job"]["model"], r["job"]["seed"], r["job"]["options"]["max_seconds"])
        for r in chosen.rows
    ]


def test_all_models_and_seeds_of_the_preset_are_shown_whatever_was_asked_for():
    rows = rows_of(Wishes("full", seeds=2)) + rows_of(Wishes("full", models=("c",)))
    expected = [("a", 0, 9), ("a", 1, 9), ("b", 0, 9), ("b", 1, 9), ("c", 0, 9)]
    assert shown(rows, Wishes("full", models=("a",), seeds=1)) == expected
    assert shown(rows) == expected


def test_rows_of_another_preset_are_not():
    rows = rows_of(Wishes("full")) + rows_of(Wishes("quick"))
    assert len(shown(rows)) == 2
    assert len(shown(rows, Wishes("quick"))) == 2
    chosen = selected(EXPERIMENT, Wishes("full"), rows)
    assert chosen.left_out == 2
    assert any("2 rows of the file are not shown" in note for note in chosen.notes)


def test_budgets_are_never_mixed_within_a_line():
    short = rows_of(Wishes("full", models=("a",), seconds=3.0))
    rows = rows_of(Wishes("full", seeds=2)) + short
    assert ("a", 0, 3.0) not in shown(rows)
    now = shown(rows, Wishes("full", models=("a",), seconds=3.0))
    assert now == [("b", 0, 9), ("b", 1, 9), ("a", 0, 3.0)]
    longer = rows_of(Wishes("full", models=("a",), seconds=5.0))
    assert shown(short + longer) == [("a", 0, 5.0)]  # the longest, if none has the preset's


def test_what_failed_or_was_never_run_is_told():
    (failed,) = rows_of(Wishes("full", models=("b",)), failed="no luck")
    chosen = selected(EXPERIMENT, Wishes("full"), [failed])
    assert chosen.rows == []
    assert chosen.failed == [failed]
    assert chosen.notes == ["not run: model b, seed 0, size full: no luck"]
    assert chosen.missing == ["model a, size full (1 run)", "model b, size full (1 run)"]
    more = selected(EXPERIMENT, Wishes("full"), rows_of(Wishes("full", models=("a",), seconds=3.0)))
    assert more.missing == ["model b, size full (1 run)"]


@pytest.mark.parametrize("preset", ["tiny", "quick", "full"])
@pytest.mark.parametrize("name", ["sine", "heart-rate", "efficiency", "hyperparameters", "theory"])
def test_every_row_of_a_preset_is_shown_by_its_own_report(name, preset):
    experiment = experiment_of(name)
    rows = [{"key": key_of(j), "job": j} for j in experiment.jobs(Wishes(preset))]
    rows = json.loads(json.dumps(rows))
    chosen = selected(experiment, Wishes(preset), rows)
    assert (len(chosen.rows), chosen.left_out, chosen.missing) == (len(rows), 0, [])


# On the terminal


def test_a_wide_table_is_printed_in_parts_and_nothing_is_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["model", *(f"{10 * i} dropped" for i in range(10)), "seeds"]
    line = ["RFormer, the paper's choices", *(f"{i}.123 ± 0.045" for i in range(10)), 5]
    print_table(Table("Wide", columns, [line], "a note"))
    text = capsys.readouterr().out
    assert all(str(cell) in text for cell in line)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("RFormer") == len(_parts(Table("", columns, [line]), 80)) == 4
    assert text.count("a note") == 1


@pytest.mark.parametrize("n", [0, 1, 2])
def test_parts_hold_every_column_once_beside_the_first(n):
    table = Table("t", ["c" * 30] * n, [["x" * 30] * n])
    for width in (1, 20, 80, 1000):
        parts = _parts(table, width)
        assert sorted(i for part in parts for i in part if i) == list(range(1, n))
        assert all(part[0] == 0 for part in parts)


def test_tables_of_heart_rate_fit_on_80_columns():
    experiment = experiment_of("heart-rate")
    rows = []
    for job in json.loads(json.dumps(experiment.jobs(Wishes("full")))):
        levels = ("0.0", "0.5") if job["drop"] == "both" else (str(job["drop"]),)
        score = dict.fromkeys(levels, 12.345 + job["seed"])
        row = {"job": job, "rmse": score, "median": score, "recordings": {}}
        if job["protocol"] == "patient":
            row["recordings"] = {level: {"7": 12.3} for level in levels}
        if "options" in job:
            row |= {"history": [{"seconds": 1.0, "rmse": 1.0}], "parameters": 246785}
        rows.append(row)
    page = experiment.show(rows, False)
    assert [len(_parts(t, 80)) for t in page.tables] == [2, 2, 2, 2, 2, 1]
    note = next(t.note for t in page.tables if "how they were trained" in t.title)
    for words in (
        "at most 3600 s",
        "known patients: width 128",
        "step 2 depth 2",
        "4 layers",
    ):
        assert words in note


# The command


def test_a_run_of_some_models_leaves_the_others_in_the_report(tmp_path):
    common = ("reproduce", "sine", "--preset", "tiny", "--out", tmp_path)
    succeeds(*common, "--models", "chance,periodogram")
    succeeds(*common, "--models", "1-NN")
    page = (tmp_path / "report.html").read_text()
    assert all(name in page for name in ("chance", "periodogram", "1-NN"))
    succeeds(*common, "--models", "chance", "--again")
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert len(rows) == 6


def test_a_model_named_twice_is_run_once(tmp_path):
    common = ("reproduce", "sine", "--preset", "tiny", "--out", tmp_path)
    assert "2 runs, 0 of them done" in succeeds(*common, "--models", "chance,chance").err


def test_times_measured_side_by_side_are_warned_of(tmp_path, monkeypatch):
    monkeypatch.setattr("roughformer_paper.reproduce.run_jobs", lambda *given, **options: [])
    common = ("reproduce", "efficiency", "--preset", "tiny", "--models", "gru", "--out", tmp_path)
    done = succeeds(*common, "--workers", "2")
    assert "warning: efficiency measures times, and 2 jobs at a time disturb each other" in done.err
    assert "warning" not in roughformer(*common).err


def test_without_data_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.delenv("ROUGHFORMER_DATA", raising=False)
    done = roughformer("reproduce", "heart-rate", "--out", tmp_path)
    assert done.code == 1
    assert done.err.count("was not found") == 1
    assert not list(tmp_path.glob("work/*/"))


# The page of the docs


@pytest.fixture
def writer(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("_reproduced", DOCS / "_reproduced.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "IMAGES", tmp_path / "images")
    return module


def test_the_docs_tell_what_failed_and_do_not_mix_budgets(writer, tmp_path):
    place = {"date": "d", "commit": "c", "threads": 1, "machine": "m", "cores": 2, "torch": "t"}
    jobs = [j for j in experiment_of("sine").jobs(Wishes("full")) if j["seed"] == 0]
    of = {(j["model"], j["drop"]): j for j in jobs}
    good = {"accuracy": 0.75, "history": [{"seconds": 2.0, "accuracy": 0.5}], "parameters": 3}
    gru = of["gru", 0.0]
    rows = [
        {"job": gru, **good},
        {"job": gru | {"max_seconds": 1.0}, **good, "accuracy": 0.0},
        {"job": of["ode-rnn", 0.0], "failed": "killed by signal 9"},
    ]
    rows = [r | {"key": key_of(r["job"]), "seconds": 1.0, "environment": place} for r in rows]
    (tmp_path / "sine.json").write_text(json.dumps({"experiment": "sine", "rows": rows}))
    text = writer.part("sine")
    assert "| GRU | 0.750 |" in text
    assert "not run: model ode-rnn, drop 0.0, seed 0" in text
    assert "killed by signal 9" in text
    assert "1 rows of the file are not shown" in text
    assert "not run: 2 lines of transformer (6 runs)" in text
    assert "Not run yet." in writer.part("theory")


def test_only_those_of_some_fields() -> None:
    jobs = [
        {"protocol": p, "drop": d, "options": {"epochs": 3}}
        for p in ("random", "patient")
        for d in (0.0, 0.5)
    ]
    assert only_those(jobs, []) == jobs
    assert only_those(jobs, ["protocol=patient"]) == jobs[2:]
    assert only_those(jobs, ["drop=0.5", " protocol = random"]) == [jobs[1]]
    with pytest.raises(ValueError, match="one of drop, protocol: 'options=3'"):
        only_those(jobs, ["options=3"])
    with pytest.raises(ValueError, match="protocol is one of random, patient, not 'people'"):
        only_those(jobs, ["protocol=people"])

"""The experiment ``nrde-validation``: its jobs, its scores and its tables."""

import json

import pytest

from roughformer_paper.reproduce.experiment import Wishes, key_of
from roughformer_paper.reproduce.nrde_validation import EXPERIMENT, PAPER


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    jobs = EXPERIMENT.jobs(Wishes("tiny"))
    return [
        {"job": job, **EXPERIMENT.run(job, tmp_path_factory.mktemp(f"job{number}"))}
        for number, job in enumerate(jobs)
    ]


@pytest.mark.parametrize(("preset", "count"), [("tiny", 8), ("quick", 20), ("full", 20)])
def test_jobs_are_the_steps_and_depths_of_both_tasks(preset, count):
    jobs = EXPERIMENT.jobs(Wishes(preset))
    assert len(jobs) == count == len({key_of(j) for j in jobs})
    assert json.loads(json.dumps(jobs)) == jobs
    if preset == "full":
        for task, paper in PAPER.items():
            assert {(j["step"], j["depth"]) for j in jobs if j["task"] == task} == set(paper)
        assert all(j["made_up"] is None for j in jobs if j["task"] == "heart-rate")


def test_wishes_choose_seeds_and_the_budget():
    jobs = EXPERIMENT.jobs(Wishes("tiny", seeds=3, seconds=2.0))
    assert len(jobs) == 24
    assert {j["max_seconds"] for j in jobs} == {2.0}


def test_scores_are_of_the_best_epoch_on_validation_series(rows):
    for row in rows:
        history = row["history"]
        if row["job"]["task"] == "sine":
            assert row["score"] == 100 * max(h["accuracy"] for h in history)
            assert 0 <= row["score"] <= 100
        else:
            assert row["score"] == min(h["rmse"] for h in history)
        assert row["epochs"] == pytest.approx(row["job"]["epochs"])


def test_tables_put_the_paper_beside_ours(rows):
    page = EXPERIMENT.show(rows, False)
    assert [t.title for t in page.tables] == [
        "Sine (Table 4)",
        "Heart rate, random protocol (Table 5)",
    ]
    for table, task in zip(page.tables, PAPER, strict=True):
        assert [tuple(line[:2]) for line in table.rows] == [(4, 2), (4, 3), (16, 2), (16, 3)]
        for line in table.rows:
            assert len(line) == len(table.columns)
            assert tuple(line[-3:]) == PAPER[task][line[0], line[1]]
    assert not page.figures
    assert any("made-up" in note for note in page.notes)


def test_the_best_is_the_highest_accuracy_and_the_lowest_error(rows):
    def scored(task, step, depth, score):
        row = next(r for r in rows if r["job"]["task"] == task)
        return row | {"job": row["job"] | {"step": step, "depth": depth}, "score": score}

    sine = [scored("sine", 2, 2, 40.0), scored("sine", 2, 2, 60.0), scored("sine", 8, 3, 55.0)]
    heart = [scored("heart-rate", 2, 2, 9.0), scored("heart-rate", 4, 3, 3.0)]
    first, second = EXPERIMENT.show(sine + heart, False).tables
    assert first.note.startswith("Best: step 8, depth 3; paper: step 8, depth 3.")
    assert first.rows[0][2] == "50.00 ± 14.14"
    assert second.note.startswith("Best: step 4, depth 3; paper: step 2, depth 2.")


def test_scores_that_are_not_finite_are_dashes(rows):
    broken = [r | {"score": None if r["job"]["step"] == 4 else r["score"]} for r in rows]
    page = EXPERIMENT.show(broken, True)
    for table in page.tables:
        assert [line[2] is None for line in table.rows] == [True, True, False, False]
    nothing = EXPERIMENT.show([r | {"score": None} for r in rows], True)
    assert all(t.note.startswith("Best: none; paper") for t in nothing.tables)


def test_curves_show_ours_and_the_papers_for_each_depth(rows):
    pytest.importorskip("matplotlib")
    page = EXPERIMENT.show(rows, True)
    assert [name for name, _, _ in page.figures] == ["nrde_sine", "nrde_heart_rate"]
    lines = {line.get_label(): line for line in page.figures[0][2].axes[0].lines}
    assert set(lines) == {f"depth {d}, {whose}" for d in (2, 3) for whose in ("ours", "paper")}
    assert list(lines["depth 3, paper"].get_ydata()) == [19.27, 21.59]


def test_no_rows_make_an_empty_page():
    page = EXPERIMENT.show([], True)
    assert (list(page.tables), list(page.figures), list(page.notes)) == ([], [], [])

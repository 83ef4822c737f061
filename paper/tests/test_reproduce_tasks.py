"""The experiments ``sine`` and ``heart-rate``: what is compared with what, and how it is shown."""

import json

import numpy as np
import pytest

from roughformer import SeriesBatch
from roughformer_paper.reproduce import Wishes, experiment_of
from roughformer_paper.reproduce.heart_rate import _of_patient
from roughformer_paper.reproduce.heart_rate_page import MODELS
from roughformer_paper.reproduce.models import TITLES, own_options
from roughformer_paper.reproduce.recipes import recipes_note
from roughformer_paper.reproduce.sine import _curve

SINE, HEART = experiment_of("sine"), experiment_of("heart-rate")


def sine_rows(accuracy=0.5, epochs=3):
    jobs = json.loads(json.dumps(SINE.jobs(Wishes("tiny"))))
    rows = []
    for job in jobs:
        row = {"job": job, "accuracy": accuracy}
        if "epochs" in job:
            scores = {} if accuracy is None else {"accuracy": accuracy}
            row["history"] = [{"seconds": e + 1.0, **scores} for e in range(epochs)]
            row["parameters"] = 7
        rows.append(row)
    return rows


def heart_rows(value=9.0, broken=()):
    rows = []
    for job in json.loads(json.dumps(HEART.jobs(Wishes("tiny")))):
        levels = ("0.0", "0.5") if job["drop"] == "both" else (str(job["drop"]),)
        score = dict.fromkeys(levels, None if job["model"] in broken else value)
        row = {"job": job, "rmse": score, "median": score, "recordings": {}}
        if job["protocol"] == "patient":
            row["recordings"] = {level: {"6": score[level], "7": score[level]} for level in levels}
        if "options" in job:
            row |= {"history": [{"seconds": 1.0}], "parameters": 7}
        rows.append(row)
    return rows


# What is compared


@pytest.mark.parametrize("preset", ["tiny", "quick", "full"])
def test_all_models_have_the_same_budget_of_time(preset):
    for seconds in (None, 7.0):
        jobs = HEART.jobs(Wishes(preset, seconds=seconds))
        budgets = {job["options"]["max_seconds"] for job in jobs if "options" in job}
        assert len(budgets) == 1
        assert seconds is None or budgets == {seconds}


def test_neural_rde_has_the_papers_step_and_depth():
    for job in SINE.jobs(Wishes("full", models=("neural-rde",))):
        assert job["model_options"] == {"step": 8, "depth": 3}
    for job in HEART.jobs(Wishes("full", models=("neural-rde",))):
        assert job["options"]["model_options"] == {"step": 2, "depth": 2}


def test_neural_cde_may_take_a_step_for_each_point_that_is_left():
    assert own_options("neural-cde", "heart-rate", 0.0) == {}
    assert own_options("neural-cde", "heart-rate", 0.5) == {"model_options": {"max_steps": 4096}}
    assert own_options("gru", "heart-rate", 0.5) == {}


def test_quick_has_few_models_and_an_eighth_of_the_windows():
    jobs = HEART.jobs(Wishes("quick"))
    assert {job["every"] for job in jobs} == {8}
    trained = [job for job in jobs if "options" in job]
    assert sum(job["options"]["max_seconds"] for job in trained) <= 300
    (named,) = {job["model"] for job in HEART.jobs(Wishes("quick", models=("transformer",)))}
    assert named == "transformer"


def test_recipes_tell_what_all_have_once_and_the_rest_by_model():
    used = {
        "rformer": [{"d_model": 128, "epochs": 5, "max_seconds": 9.0, "views": ["local"]}],
        "gru": [{"epochs": 5, "max_seconds": 9.0}, {"epochs": 5, "max_seconds": 9.0, "drop": 0.5}],
        "transformer": [{"epochs": 5, "max_seconds": 9.0}],
        "state-space": [{"epochs": 5, "max_seconds": 9.0}],
        "rocket": [{"epochs": 5}],
        "ode-rnn": [],
    }
    note = recipes_note("regression", TITLES, used)
    assert note == (
        "Recipes. If nothing else is said: width 64, 1 layer, batches of 32, learning rate 0.002, "
        "at most 5 epochs, patience 20, at most 9 s of the processor. RFormer: width 128, views "
        "local. State space (S5): 4 layers."
    )
    assert recipes_note("regression", TITLES, {}) == ""


def test_two_recipes_of_a_model_are_both_told():
    used = {"gru": [{}, {}], "neural-cde": [{}, {"model_options": {"max_steps": 9}}]}
    note = recipes_note("regression", TITLES, used)
    assert note.endswith("Neural CDE: nothing else or model_options max_steps 9.")


# How it is shown


def test_the_figures_of_sine_say_what_they_show_and_hide_no_curve():
    pytest.importorskip("matplotlib")
    figures = SINE.show(sine_rows(), True).figures
    assert [name for name, _, _ in figures] == ["sine_epochs", "sine_seconds"]
    for _, caption, figure in figures:
        assert "validation" in caption
        assert figure.axes[0].get_ylabel() == "validation accuracy"
        assert [axes.get_legend() for axes in figure.axes] == [None, None]
        (legend,) = figure.legends  # outside of the panels
        assert len(legend.texts) == len(figure.axes[0].lines)
    for axes in figures[0][2].axes:
        assert all(tick == int(tick) for tick in axes.get_xticks())
    rows = sine_rows()
    for row in rows:  # a tiny training is over in less than a second
        for epoch in row.get("history", ()):
            epoch["seconds"] /= 20
    for axes in SINE.show(rows, True).figures[1][2].axes:
        low, high = axes.get_xlim()
        assert any(low <= tick <= high for tick in axes.get_xticks())


def test_a_curve_of_sine_is_the_mean_over_seeds_up_to_the_shortest():
    def history(*scores, pace):
        epochs = enumerate(scores, start=1)
        return {"history": [{"seconds": e * pace, "accuracy": score} for e, score in epochs]}

    rows = [history(0.1, 0.2, None, pace=2.0), history(0.3, 0.4, None, 0.8, pace=4.0), {}]
    assert _curve(rows, by_time=False) == [(1, 0.2), (2, pytest.approx(0.3))]
    assert _curve(rows, by_time=True) == [(3.0, 0.2), (6.0, pytest.approx(0.3))]
    assert _curve([], by_time=True) == []


@pytest.mark.parametrize("figures", [True, False])
def test_scores_of_sine_that_are_not_finite_are_dashes(figures):
    page = SINE.show(sine_rows(accuracy=None), figures)
    assert {tuple(line[1:4]) for line in page.tables[0].rows} == {(None, None, 0)}


@pytest.mark.parametrize("broken", [("gru",), ("rformer",), (*MODELS,)])
def test_errors_of_heart_rate_that_are_not_finite_are_dashes(broken):
    page = HEART.show(heart_rows(broken=broken), True)
    for line in page.tables[0].rows:
        name = next((n for n, title in MODELS.items() if title == line[0]), None)
        assert (line[2] is None) == (name in broken)


def test_the_papers_figures_have_a_table_of_their_own():
    page = HEART.show(heart_rows(), False)
    (table,) = (t for t in page.tables if "beside the paper's" in t.title)
    name = "RFormer, for known patients"
    lines = [list(row) for row in table.rows]
    assert [name, "9.00", "3.04 ± 0.03", "9.00", "3.31 ± 0.05"] in lines
    assert not any("paper" in column for column in page.tables[0].columns)


@pytest.mark.parametrize("protocol", ["random", "patient"])
def test_a_protocol_that_was_not_run_has_no_table_and_no_panel(protocol):
    pytest.importorskip("matplotlib")
    rows = [row for row in heart_rows() if row["job"]["protocol"] == protocol]
    page = HEART.show(rows, True)
    assert all(table.rows for table in page.tables)
    assert protocol.capitalize() in page.tables[0].title
    assert "were not tuned here" in page.tables[1].note
    ((_, _, figure),) = page.figures
    assert [axes.get_title() for axes in figure.axes] == [f"{protocol} protocol"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == ["full", "50 % dropped"]


def test_heart_rate_says_who_has_which_recipe():
    notes = [t.note for t in HEART.show(heart_rows(), False).tables if "trained" in t.title]
    assert len(notes) == 2
    assert "RFormer, for known patients: width 128, batches of 64" in notes[0]
    assert "RFormer, model of rates: the model of rates" in notes[1]
    assert notes[0].startswith("Recipes. If nothing else is said: width 64, 1 layer")
    assert "GRU: width 64" in notes[1]  # one of two models
    assert "were not tuned here" in notes[0]
    assert "its two columns are two models" in notes[0]


def test_what_the_training_part_tells_of_a_patient():
    def part(owner, begins, labels):
        ids = [f"bidmc{r:02d}:{s:04d}" for r, s in zip(owner, begins, strict=True)]
        return SeriesBatch.from_tensor(
            np.zeros((len(owner), 3, 1), np.float32), labels=labels, ids=ids,
            static=np.array(owner, float)[:, None], static_names=["recording"],
        )  # fmt: skip

    train = part([1, 1, 1, 2], [0, 30, 60, 0], [60.0, 70.0, 80.0, 100.0])
    test = part([1, 1, 2, 3], [3, 54, 99, 0], [0.0] * 4)
    assert _of_patient(train, test, nearest=False).tolist() == [70.0, 70.0, 100.0, 77.5]
    assert _of_patient(train, test, nearest=True).tolist() == [60.0, 80.0, 100.0, 77.5]

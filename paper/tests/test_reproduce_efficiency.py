"""The experiment ``efficiency``: what is timed, how it is scaled, and how it is shown."""

import copy
import json

import numpy as np
import pytest

from roughformer_paper.reproduce.efficiency import EXPERIMENT
from roughformer_paper.reproduce.efficiency_page import LINES, PAPER, PAPER_RATIO, power_of
from roughformer_paper.reproduce.experiment import Wishes, key_of
from roughformer_paper.reproduce.models import TITLES
from roughformer_paper.reproduce.timing import forecast, growth_of, series_of, time_of_epoch

SOME = ("rformer", "transformer", "neural-cde-every", "neural-rde")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    where = tmp_path_factory.mktemp("efficiency")
    jobs = EXPERIMENT.jobs(Wishes("tiny", models=SOME))
    return [{"job": j, "environment": {"threads": 1}, **EXPERIMENT.run(j, where)} for j in jobs]


def table(page, words):
    return next(t for t in page.tables if words in t.title)


def epoch_job(**changes):
    job = next(
        j for j in EXPERIMENT.jobs(Wishes("tiny", models=("rformer",))) if j["part"] == "epoch"
    )
    return job | changes


# Jobs


@pytest.mark.parametrize(
    ("preset", "epochs"), [("tiny", 2 * 8 + 2 * 2), ("quick", 2 * 2 * 8), ("full", 2 * 2 * 8 + 2)]
)
def test_each_model_is_timed_on_both_tasks_and_once_for_its_growth(preset, epochs):
    jobs = EXPERIMENT.jobs(Wishes(preset))
    assert sum(j["part"] == "epoch" for j in jobs) == epochs
    grown = {j["model"] for j in jobs if j["part"] == "growth"}
    assert grown | {"rocket"} == set(TITLES) | ({"neural-cde-every"} if preset == "full" else set())
    assert set(LINES) - grown <= {"neural-cde-every"}
    assert len({key_of(j) for j in jobs}) == len(jobs)
    assert json.loads(json.dumps(jobs)) == jobs


def test_the_full_preset_has_the_sizes_of_the_issue():
    jobs = EXPERIMENT.jobs(Wishes("full"))
    sizes = {(j["task"], j["n"], j["length"]) for j in jobs if j["part"] == "epoch"}
    assert sizes == {("sine", 1000, 2000), ("heart-rate", 5500, 4000)}
    assert {j["batch_size"] for j in jobs if j["part"] == "epoch"} == {32}
    growth = [j for j in jobs if j["part"] == "growth"]
    assert {tuple(j["lengths"]) for j in growth} == {tuple(250 * 2**k for k in range(8))}
    assert {(j["batch_size"], j["most_mb"]) for j in growth} == {(8, 8192)}
    assert {j["width"] for j in jobs} == {64}


def test_every_line_is_a_model_that_the_estimators_know():
    from roughformer import get_model
    from roughformer_paper.reproduce.timing import KINDS

    for model in EXPERIMENT.models:
        get_model(KINDS.get(model, model))
    assert "rocket" not in EXPERIMENT.models  # it has no epochs


def test_the_two_lines_of_neural_cde_are_timed_only_where_they_differ():
    from roughformer_paper.baselines.neural_cde import PathEncoder

    def strides(job):
        batch = series_of(job["task"], 2, job["length"])
        return PathEncoder.fit(batch, **(job["model_options"] or {})).stride

    both = EXPERIMENT.jobs(Wishes("full", models=("neural-cde", "neural-cde-every")))
    of = {(j["task"], j["model"], j["drop"]): strides(j) for j in both if j["part"] == "epoch"}
    assert of["sine", "neural-cde", 0.0] == of["sine", "neural-cde-every", 0.0] == 1
    assert of["heart-rate", "neural-cde", 0.0] == 2
    assert of["heart-rate", "neural-cde", 0.5] == 1  # 2,000 points are left
    assert of["heart-rate", "neural-cde-every", 0.0] == 1
    timed = EXPERIMENT.jobs(Wishes("full"))
    tasks = {j["task"] for j in timed if j["model"] == "neural-cde-every" and j["part"] == "epoch"}
    assert tasks == {"heart-rate"}


def test_models_have_the_shapes_of_the_other_experiments():
    for job in EXPERIMENT.jobs(Wishes("full")):
        assert job["n_layers"] == (4 if job["model"] == "state-space" else 1)
        if job["model"] == "neural-rde":
            step_depth = {"sine": (8, 3), "heart-rate": (2, 2)}[job["task"]]
            assert tuple(job["model_options"].values()) == step_depth


def test_wishes_choose_models_repeats_and_the_budget():
    jobs = EXPERIMENT.jobs(Wishes("quick", seeds=2, models=("gru",), seconds=7.0))
    assert len(jobs) == 2 * (2 * 2 + 1)
    assert {j["seconds"] for j in jobs if j["part"] == "epoch"} == {7.0}


# Measuring


@pytest.mark.parametrize("task", ["sine", "heart-rate"])
@pytest.mark.parametrize("n", [2, 300])
def test_series_have_the_sizes_asked_for(task, n):
    batch = series_of(task, n, 40)
    assert len(batch) == n == len(batch.labels)
    assert set(batch.lengths) == {40}
    assert batch.n_channels == {"sine": 1, "heart-rate": 2}[task]


def test_made_up_series_repeat_themselves_beyond_256():
    batch = series_of("heart-rate", 258, 8)
    np.testing.assert_array_equal(batch[1].values, batch[257].values)
    assert batch.labels[1] == batch.labels[257]


def test_an_epoch_that_is_not_affordable_is_scaled_from_three_steps():
    found = time_of_epoch(epoch_job(n=40, batch_size=4, seconds=1e-9))
    assert (found["steps"], found["steps_of_epoch"], len(found["epoch_seconds"])) == (3, 10, 1)


def test_whole_epochs_are_timed_as_often_as_wanted_if_they_are_affordable():
    found = time_of_epoch(epoch_job(n=10, batch_size=4, seconds=1e6, epochs=3))
    assert (found["steps"], found["steps_of_epoch"], len(found["epoch_seconds"])) == (9, 3, 3)


def test_inputs_are_part_of_an_epoch_with_dropping_only():
    full, dropped = time_of_epoch(epoch_job()), time_of_epoch(epoch_job(drop=0.5))
    assert full["inputs_seconds"] > 0
    assert full["inputs_share"] is None
    assert dropped["inputs_seconds"] is None
    assert dropped["inputs_share"] > 0


def test_memory_of_inputs_is_that_of_all_series():
    # A token of a sample has value, whether seen, and gap; its time goes beside it: 4 float32.
    found = time_of_epoch(epoch_job(model="transformer", n=6, length=50))
    assert found["inputs_mb"] == pytest.approx(6 * 50 * 4 * 4 / 2**20)


def test_growth_stops_before_the_first_length_that_is_too_slow():
    job = EXPERIMENT.jobs(Wishes("tiny", models=("rformer",)))[-1] | {"seconds": 1e-9}
    found = growth_of(job)
    assert [p["length"] for p in found["points"]] == job["lengths"][:1]
    assert found["stopped"]["length"] == job["lengths"][1]
    assert "a step would take about" in found["stopped"]["why"]


def test_growth_stops_before_the_first_length_that_needs_too_much_memory(monkeypatch):
    peaks = iter([100.0, 300.0])
    monkeypatch.setattr("roughformer_paper.reproduce.timing.peak_mb", lambda: next(peaks))
    job = EXPERIMENT.jobs(Wishes("tiny", models=("rformer",)))[-1] | {"most_mb": 799.0}
    found = growth_of(job)
    assert [p["peak_mb"] for p in found["points"]] == [200.0]
    assert found["stopped"] == {"length": 48, "why": "a step would need about 1 GB"}


def test_a_forecast_follows_the_power_of_the_last_two_points_between_1_and_2():
    def at(*values):
        return [{"length": 100 * 2**k, "s": v} for k, v in enumerate(values)]

    assert forecast([], "s", 100) == 0
    assert forecast(at(None), "s", 200) == 0
    assert forecast(at(3.0), "s", 200) == pytest.approx(12.0)
    assert forecast(at(9.0, 1.0, 2.0**1.5), "s", 800) == pytest.approx(2.0**3)
    assert forecast(at(5.0, 5.0), "s", 400) == pytest.approx(10.0)
    assert forecast(at(1.0, 64.0), "s", 400) == pytest.approx(256.0)


def test_the_power_of_growth_is_exact_for_powers():
    assert power_of({n: 3 * n**1.7 for n in (250, 500, 1000, 2000)}) == pytest.approx(1.7)
    assert power_of({250: 1.0}) is None
    assert power_of({}) is None
    assert power_of({250: 0.0, 500: 0.0}) is None


# Showing


def test_the_papers_ratios_are_those_of_its_seconds():
    for task, ratio in PAPER_RATIO.items():
        paper = PAPER[task]["transformer"] / PAPER[task]["rformer"]
        assert paper == pytest.approx(ratio, rel=0.005)


def test_tables_hold_every_model_and_the_ratio(rows):
    page = EXPERIMENT.show(rows, False)
    assert not page.figures
    sine = table(page, "Sine: seconds")
    assert [line[0] for line in sine.rows] == [LINES[m] for m in LINES if m in SOME]
    column = {name: k for k, name in enumerate(sine.columns)}
    ours, theirs = sine.rows[0], sine.rows[1]
    assert ours[column[": RFormer"]] == 1
    assert ours[column["first"]] > ours[column["full"]]
    assert ours[column["paper"]] == 0.55
    assert ours[column["steps timed"]].endswith("/ 2")
    ratio = table(page, "beside the Transformer").rows[0]
    assert ratio[0] == "Sine, full"
    assert ratio[1] == pytest.approx(theirs[column["full"]] / ours[column["full"]])
    assert (ratio[2], ratio[3]) == (None, 1.4)
    times = table(page, "Milliseconds")
    assert times.columns[1:-1] == ["24", "48"]
    assert all(ms > 0 for line in times.rows for ms in line[1:-1])
    assert all(len(line) == len(t.columns) for t in page.tables for line in t.rows)


def test_repeats_are_averaged_over_all_their_epochs(rows):
    row = next(r for r in rows if r["job"]["part"] == "epoch" and r["job"]["drop"] == 0)
    pair = [row | {"epoch_seconds": [1.0, 3.0]}, row | {"epoch_seconds": [8.0]}]
    assert EXPERIMENT.show(pair, False).tables[0].rows[0][1] == pytest.approx(4.0)


def test_what_was_not_run_and_a_busy_machine_are_told(rows):
    row = next(r for r in rows if r["job"]["part"] == "growth")
    stopped = {"length": 8000, "why": "a step would take about 99 s"}
    page = EXPERIMENT.show([row | {"stopped": stopped, "cpu_share": 0.3}], False)
    assert "not run: RFormer from 8,000 points on: a step would take about 99 s" in page.notes
    assert any(
        note.startswith("1 of 1 runs had less than 80% of a processor") for note in page.notes
    )
    quiet = EXPERIMENT.show([row | {"stopped": None, "cpu_share": 1.0}], False)
    assert list(quiet.notes) == ["Threads of a run: 1."]


def test_no_rows_make_an_empty_page():
    page = EXPERIMENT.show([], True)
    assert (page.tables, page.figures, page.notes) == ([], [], [])


def test_growth_is_drawn_on_logarithmic_axes(rows):
    pytest.importorskip("matplotlib")
    # In one process the peak may not rise again.
    rows = copy.deepcopy([r for r in rows if r["job"]["part"] == "growth"])
    for row in rows:
        for point in row["points"]:
            point["peak_mb"] = 0.0
    page = EXPERIMENT.show(rows, True)
    assert [name for name, _, _ in page.figures] == ["growth_time"]
    axes = page.figures[0][2].axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert len(axes.lines) == len(SOME)
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    times = table(page, "Milliseconds").rows
    np.testing.assert_allclose(drawn["RFormer"], times[0][1:-1])
    row["points"][1]["peak_mb"] = 5.0
    name, _, figure = EXPERIMENT.show(rows, True).figures[1]
    (line,) = figure.axes[0].lines
    assert (name, list(line.get_xdata()), list(line.get_ydata())) == ("growth_memory", [48], [5.0])

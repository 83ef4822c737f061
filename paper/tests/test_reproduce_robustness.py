"""Series sampled otherwise, and the experiment that tests models on them."""

import json

import numpy as np
import pytest

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer_paper.reproduce import Results, Wishes, experiment_of, key_of, run_jobs
from roughformer_paper.reproduce.drawing import look
from roughformer_paper.reproduce.resampling import finer, jittered, poisson, rarer, without_channel
from roughformer_paper.reproduce.robustness import DROPS, NAMES, _conditions

EXPERIMENT = experiment_of("robustness")


def batch(lengths=(50, 1, 2, 33), straight=False):
    rng = np.random.default_rng(0)
    times = [np.cumsum(rng.uniform(0.1, 1.0, n)) for n in lengths]
    if straight:
        values = [np.stack([2 * t + 1, -t], axis=1) for t in times]
    else:
        values = [rng.standard_normal((n, 2)) for n in lengths]
    return SeriesBatch.from_arrays(
        values, times, channels=["a", "b"], labels=np.arange(len(lengths)),
        static=np.arange(len(lengths))[:, None] * 1.0, static_names=["s"],
    )  # fmt: skip


CHANGES = {
    "poisson": lambda x: poisson(x, 3),
    "finer": finer,
    "rarer": lambda x: rarer(x, 4),
    "jittered": lambda x: jittered(x, 3),
    "hidden": lambda x: without_channel(x, "b"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_keep_spans_labels_and_the_batch_itself(name):
    given = batch()
    before = given.times.copy(), given.values.copy()
    new = CHANGES[name](given)
    assert np.array_equal(given.times, before[0])
    assert np.array_equal(given.values, before[1])
    assert np.array_equal(new.span, given.span)
    assert np.array_equal(new.labels, given.labels)
    assert np.array_equal(new.static, given.static)
    assert new.channels == given.channels
    assert new.values.dtype == given.values.dtype
    for b in range(len(new)):
        assert (np.diff(new.series(b)[0]) > 0).all()


@pytest.mark.parametrize("name", CHANGES)
def test_no_series_stay_no_series(name):
    assert len(CHANGES[name](batch()[:0])) == 0


@pytest.mark.parametrize("name", ["poisson", "finer", "rarer"])
def test_straight_lines_stay_straight(name):
    new = CHANGES[name](batch(straight=True))
    assert np.allclose(new.values[:, 0], 2 * new.times + 1)
    assert np.allclose(new.values[:, 1], -new.times)


def test_values_between_are_those_of_each_channels_own_line():
    nan = np.nan
    given = SeriesBatch.from_arrays(
        [np.array([[0.0, 0.0], [nan, 3.0], [4.0, 3.0]])], [np.array([0.0, 1.0, 4.0])]
    )
    new = finer(given)
    assert new.times.tolist() == [0.0, 0.5, 1.0, 2.5, 4.0]
    assert new.values[:, 0].tolist() == [0.0, 0.5, 1.0, 2.5, 4.0]
    assert new.values[:, 1].tolist() == [0.0, 1.5, 3.0, 3.0, 3.0]


def test_poisson_times_have_the_mean_rate_and_uniform_places():
    given = batch(lengths=(402,) * 50)
    new = poisson(given, 1)
    inner = new.lengths - 2
    assert abs(inner.mean() - 400) < 4 * 20 / 50**0.5
    assert 0.4 < inner.var() / 400 < 2
    start, end = new.span
    share = np.concatenate(
        [(new.series(b)[0][1:-1] - start[b]) / (end[b] - start[b]) for b in range(50)]
    )
    assert np.allclose(np.histogram(share, 10, (0, 1))[0] / len(share), 0.1, atol=0.01)
    assert np.array_equal(poisson(given, 1).times, new.times)
    assert not np.array_equal(poisson(given, 2).times[:100], new.times[:100])


def test_rarer_keeps_every_nth_point_and_the_last():
    given = batch()
    new = rarer(given, 4)
    old = given.series(0)[0]
    assert np.array_equal(new.series(0)[0], np.append(old[:49:4], old[49]))
    assert np.array_equal(rarer(given, 1).times, given.times)
    assert new.lengths.tolist() == [14, 1, 2, 9]
    with pytest.raises(InputError, match="factor must be 1 or more, got 0"):
        rarer(given, 0)


def test_finer_has_a_point_more_in_each_step():
    given = batch()
    new = finer(given)
    assert new.lengths.tolist() == [99, 1, 3, 65]
    assert np.allclose(rarer(new, 2).values, given.values)


def test_stamps_move_by_less_than_half_a_step_and_values_stay():
    given = batch(lengths=(2000,))
    new = jittered(given, 7)  # not the seed of the times, whose steps would be the moves
    assert np.array_equal(new.values, given.values)
    moved = new.times - given.times
    step = np.diff(given.times)
    assert (moved[:-1] <= step / 2).all()
    assert (moved[1:] >= -step / 2).all()
    assert moved[0] == moved[-1] == 0
    # Uniform up to half a step: a quarter of a step in the mean.
    assert np.abs(moved).mean() == pytest.approx(0.25 * step.mean(), rel=0.05)


def test_a_hidden_channel_is_not_observed_and_others_are_as_before():
    given = batch()
    new = without_channel(given, "b")
    assert np.isnan(new.values[:, 1]).all()
    assert np.array_equal(new.values[:, 0], given.values[:, 0])
    with pytest.raises(InputError, match="no channel 'c'; there are a, b"):
        without_channel(given, "c")


def test_conditions_hide_channels_only_beside_others():
    assert len(_conditions(("x",))) == len(DROPS) + 5
    two = _conditions(("PPG", "ECG"))
    assert list(two)[-2:] == ["no PPG", "no ECG"]
    given = batch()
    assert two["0% dropped"](given, 0) is given
    assert two["90% dropped"](given, 0).lengths.tolist() == [5, 1, 2, 3]


# The experiment


@pytest.mark.parametrize("preset", ["tiny", "quick", "full"])
def test_jobs_are_json_and_differ(preset):
    jobs = EXPERIMENT.jobs(Wishes(preset))
    assert json.loads(json.dumps(jobs)) == jobs
    assert len({key_of(job) for job in jobs}) == len(jobs)
    assert {job["model"] for job in jobs if job["task"] == "sine"} == set(NAMES)
    for job in jobs:
        drop = job.get("options", {}).get("drop", 0)
        assert drop == ([0.0, 0.8] if job["model"] == "rformer-all-rates" else 0)


def test_wishes_choose_models_seeds_and_budget():
    jobs = EXPERIMENT.jobs(Wishes("full", seeds=4, models=("gru", "yardstick"), seconds=9.0))
    assert len(jobs) == 2 * (4 + 1)
    assert {job["options"]["max_seconds"] for job in jobs if job["model"] == "gru"} == {9.0}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    out = tmp_path_factory.mktemp("robustness")
    results = Results(out / "results.json", "robustness")
    jobs = EXPERIMENT.jobs(Wishes("tiny"))
    run_jobs(EXPERIMENT, jobs, results, out / "work", in_process=True)
    return json.loads((out / "results.json").read_text())["rows"]


def test_every_model_meets_every_condition(rows):
    for row in rows:
        sine = row["job"]["task"] == "sine"
        titles = _conditions(("x",) if sine else ("PPG", "ECG"))
        assert list(row["scores"]) == list(titles)
        assert all(0 <= score <= (1 if sine else np.inf) for score in row["scores"].values())


def test_points_on_the_path_between_points_change_nothing_for_rformer(rows):
    """Signatures are of the path: more points on it are the same path."""
    for row in rows:
        if row["job"]["model"] in ("rformer", "rformer-paper"):
            full, finer = row["scores"]["0% dropped"], row["scores"]["twice the rate"]
            assert finer == pytest.approx(full, rel=1e-3)


def test_the_blind_score_is_chance_or_the_spread_of_the_labels(rows):
    found = {row["job"]["task"]: row["blind"] for row in rows}
    assert found["sine"] == 0.5
    assert 5 < found["heart-rate"] < 40


@pytest.mark.parametrize("figures", [True, False])
def test_the_page_has_two_tables_and_a_figure_for_each_task(rows, figures):
    page = EXPERIMENT.show(rows, figures)
    assert len(page.tables) == 4
    assert len(page.figures) == (2 if figures else 0)
    assert all(len(line) == len(t.columns) for t in page.tables for line in t.rows)
    assert [line[0] for line in page.tables[0].rows] == list(NAMES.values())
    assert page.tables[0].columns[:3] == ["model", "full", "10%"]


def test_scores_that_are_not_finite_are_dashes(rows):
    own = [row for row in rows if row["job"]["model"] == "gru"]
    broken = [row | {"scores": dict.fromkeys(row["scores"])} for row in own]
    page = EXPERIMENT.show(broken, True)
    assert set(page.tables[0].rows[0][1:-1]) == {None}


def test_no_two_lines_of_a_figure_look_alike(rows):
    pytest.importorskip("matplotlib")
    sine = [row for row in rows if row["job"]["task"] == "sine"]
    assert {row["job"]["model"] for row in sine} == set(NAMES)
    (figure,) = (f for _, _, f in EXPERIMENT.show(sine, True).figures)
    lines = [x for x in figure.axes[0].lines if x.get_label() in NAMES.values()]
    assert len({(x.get_color(), x.get_marker()) for x in lines}) == len(lines) == len(NAMES)
    assert len({x.get_color() for x in lines}) == len(lines)
    assert len({tuple(look(n).items()) for n in range(143)}) == 143


def test_tables_tell_the_recipes(rows):
    page = EXPERIMENT.show(rows, False)
    heart = next(t for t in page.tables if t.title.startswith("Heart rate"))
    assert "If nothing else is said: width 128" in heart.note  # two of three models
    assert "GRU: width 64" in heart.note
    sine = page.tables[0].note
    assert "step 8 depth 3" in sine
    assert "State space (S5): 4 layers" in sine


def test_the_page_of_nothing_is_empty():
    page = EXPERIMENT.show([], True)
    assert not page.tables
    assert not page.figures

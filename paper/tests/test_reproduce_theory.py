"""The experiment ``theory``: its jobs, its page, and the facts its numbers must show."""

import json
from pathlib import Path

import numpy as np
import pytest

from roughformer.signatures.algebra import path_signature
from roughformer_paper.reproduce import Wishes, experiment_of, key_of, theory_chen, theory_decay
from roughformer_paper.reproduce.theory_aliasing import folded
from roughformer_paper.reproduce.theory_common import deviation, random_paths, ridge, verdict
from roughformer_paper.reproduce.theory_invariance import random_clock, with_more_points
from roughformer_paper.reproduce.theory_reconstruction import PART as RECONSTRUCTION
from roughformer_paper.reproduce.theory_reconstruction import words_with_x_once
from roughformer_paper.reproduce.theory_universal import EXACT_FROM, FUNCTIONALS

EXPERIMENT = experiment_of("theory")
PARTS = ("decay", "universality", "invariance", "chen", "reconstruction", "aliasing")


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    jobs = EXPERIMENT.jobs(Wishes("tiny"))
    found = [{"job": job, **EXPERIMENT.run(job, Path())} for job in jobs]
    return json.loads(json.dumps(found))  # as they come back from results.json


def of(rows: list[dict], part: str) -> list[dict]:
    return [row for row in rows if row["job"]["part"] == part]


# Jobs and page


@pytest.mark.parametrize("preset", ["tiny", "quick", "full"])
def test_jobs_are_json_and_differ(preset):
    jobs = EXPERIMENT.jobs(Wishes(preset))
    assert json.loads(json.dumps(jobs)) == jobs
    assert len({key_of(job) for job in jobs}) == len(jobs)
    assert {job["part"] for job in jobs} == set(PARTS)


def test_seeds_and_parts_can_be_chosen():
    assert EXPERIMENT.models == PARTS
    jobs = EXPERIMENT.jobs(Wishes("quick", seeds=2, models=("chen", "decay")))
    assert {job["part"] for job in jobs} == {"chen", "decay"}
    assert {job["seed"] for job in jobs} == {0, 1}
    assert len(jobs) == 2 * len(EXPERIMENT.jobs(Wishes("quick", seeds=1, models=("chen", "decay"))))


def test_a_job_run_again_gives_the_same_row(rows):
    row = of(rows, "universality")[0]
    assert json.loads(json.dumps(EXPERIMENT.run(row["job"], Path()))) == {
        k: v for k, v in row.items() if k != "job"
    }


def test_the_page_of_no_rows_is_empty():
    page = EXPERIMENT.show([], True)
    assert not page.tables
    assert not page.figures


@pytest.mark.parametrize("part", PARTS)
def test_the_page_of_one_part_stands_alone(rows, part):
    page = EXPERIMENT.show(of(rows, part), False)
    assert page.tables
    assert not page.figures
    for table in page.tables:
        assert all(len(line) == len(table.columns) for line in table.rows)


def test_every_claim_has_a_verdict_and_most_hold(rows):
    tables = EXPERIMENT.show(rows, False).tables
    notes = [t.note for t in tables if t.note.startswith("Claim: ")]
    assert len(notes) == 7
    assert sum("Holds here: " in n for n in notes) == 5
    assert sum("Holds in part: " in n for n in notes) == 1  # robust because invariant
    assert sum("Does not hold here: " in n for n in notes) == 1  # aliasing


def test_figures_are_drawn(rows):
    pytest.importorskip("matplotlib")
    page = EXPERIMENT.show(rows, True)
    names = [name for name, _, _ in page.figures]
    assert names == [
        "theory_decay", "theory_universality", "theory_dropping", "theory_reconstruction",
    ]  # fmt: skip
    assert all(figure.axes for _, _, figure in page.figures)


def test_two_seeds_are_averaged(rows):
    one = of(rows, "aliasing")
    other = [{**r, "job": {**r["job"], "seed": 1}, "regular": r["regular"] - 0.2} for r in one]
    table = EXPERIMENT.show(one + other, False).tables[0]
    at = list(table.columns).index("regular: found")
    for line, row in zip(table.rows, one, strict=True):
        assert line[at] == pytest.approx(row["regular"] - 0.1)


# What the numbers must show


def test_no_level_is_above_its_bound_and_a_line_attains_it(rows):
    found = of(rows, "decay")[0]["families"]
    levels = [level for family in found.values() for level in family["levels"]]
    assert sum(level["violations"] for level in levels) == 0
    for level in found["straight line of length 2"]["levels"]:
        assert level["closest"] == pytest.approx(1.0, abs=1e-10)
        assert level["norm"] == pytest.approx(level["bound"], rel=1e-10)
    assert all(level["closest"] < 1 for level in found["random walk"]["levels"])


def test_variation_is_the_length_of_a_path():
    there_and_back = np.array([[[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]])
    assert theory_decay.variation(there_and_back) == pytest.approx([10.0])
    assert theory_decay.variation(there_and_back[:, :1]) == pytest.approx([0.0])


def test_errors_fall_with_depth_and_vanish_where_the_algebra_says(rows):
    row = of(rows, "universality")[0]
    for i, name in enumerate(FUNCTIONALS):
        error = [line[i] for line in row["rmse"]]
        assert error[-1] < error[0]
        if name in EXACT_FROM:
            depth = EXACT_FROM[name]
            assert max(error[depth - 1 :]) < 1e-9
            assert min(error[: depth - 1]) > 0.1
            assert row["larger"][-1][i] < 1e-9  # exact is exact everywhere
        else:
            assert min(error) > 1e-3
            assert row["larger"][-1][i] > error[-1]  # fitted on a compact set only


def test_functionals_have_their_closed_forms():
    t = np.linspace(0.0, 1.0, 2001)
    x, y = np.cos(2 * np.pi * t)[None], np.sin(2 * np.pi * t)[None]
    value = {name: float(f(x, y)[0]) for name, f in FUNCTIONALS.items()}
    assert value["area ½∫(x dy − y dx)"] == pytest.approx(np.pi, rel=1e-5)
    assert value["∫ x² dt"] == pytest.approx(0.5, rel=1e-5)
    assert value["tanh(2 ∫ x y dt)"] == pytest.approx(0.0, abs=1e-9)
    assert value["cos(2 x(½))"] == pytest.approx(np.cos(2.0))
    assert value["max x"] == 1.0
    assert value["largest fall of x"] == pytest.approx(2.0)


def test_only_time_and_windows_see_the_speed(rows):
    row = of(rows, "invariance")[0]
    plain, timed, windows = row["changes"]["another speed, the same points"]
    assert plain == 0.0
    assert min(timed, windows) > 0.05
    assert max(row["changes"]["as many points more, on the path"]) < 1e-12
    assert 0 < row["changes"]["another speed, the curve sampled anew"][0] < 0.05


def test_dropping_more_changes_more_and_smooth_paths_least(rows):
    dropping = of(rows, "invariance")[0]["dropping"]
    for line in dropping.values():
        assert line == sorted(line)
    smooth = dropping.pop("smooth, 4 modes")
    assert all(a < b for line in dropping.values() for a, b in zip(smooth, line, strict=True))


def test_chen_holds_and_slices_of_samples_break_it(rows):
    for row in of(rows, "chen"):
        found = row["deviation"]
        for name in ("float64", "one pass", "two pieces", "backwards"):
            assert found[name] < 1e-12
        assert found["float32"] < 1e-5
        assert (found["slices"] > 0.1) == (row["job"]["windows"] > 1)


def test_running_products_are_signatures_of_growing_pieces():
    x = random_paths(1, 4, 2, 3, np.random.default_rng(0))[0]
    pieces = np.stack([path_signature(x[k : k + 2], 3) for k in range(3)])[None]
    found = theory_chen.product(pieces, 2, 3)[0]
    for k in range(3):
        assert found[k] == pytest.approx(path_signature(x[: k + 2], 3), abs=1e-12)


def test_reconstruction_is_exact_once_there_are_as_many_words_as_modes():
    # 6 modes and a start: 7 numbers. windows x depth words tell as many.
    job = {"n_train": 60, "n_test": 20, "modes": 6, "depth": 4, "seed": 0}
    for windows in (1, 2, 7):
        error = RECONSTRUCTION.run({**job, "windows": windows})["error"]
        for view in ("local", "global", "both"):
            exact = [bool(e < 1e-9) for e in error[view]]
            assert exact == [windows * depth > 6 for depth in (1, 2, 3, 4)]


def test_words_with_x_once_are_n_of_level_n():
    chosen = words_with_x_once(3)  # t x | tt tx xt xx | ttt ttx txt txx xtt ...
    assert chosen.tolist() == [
        False, True, False, True, True, False, False, True, True, False, True, False, False, False,
    ]  # fmt: skip


def test_random_dropping_does_not_alias_and_regular_thinning_does(rows):
    by = {row["job"]["every"]: row for row in of(rows, "aliasing")}
    for row in by.values():
        assert row["random"] >= 0.99
        assert row["regular"] + row["mirror"] >= 0.99  # what is missed is found at a mirror
    assert by[1]["regular"] == by[2]["regular"] == 1.0
    assert by[2]["nyquist"] > 500
    assert by[4]["regular"] < 0.8
    assert by[4]["nyquist"] < 500


def test_mirrors_have_the_same_samples():
    sampling, step = 10.0, 2 * np.pi / 10.0
    omega = np.array([1.0, 9.0, 11.0, 5.0, 0.0, 10.0])
    assert folded(omega, sampling) == pytest.approx([1, 1, 1, 5, 0, 0])
    t = np.arange(20) * step
    assert np.cos(9.0 * t) == pytest.approx(np.cos(1.0 * t), abs=1e-12)


# The tools


@pytest.mark.parametrize(("n", "p"), [(40, 5), (20, 60)])
def test_ridge_finds_a_linear_map_and_leaves_constants_out(n, p):
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((n + 30, 4))  # all columns hang on four numbers
    x = hidden @ rng.standard_normal((4, p)) * 10.0 ** rng.integers(-6, 6, p) + 3.0
    x[:, 0] = 7.0
    y = hidden @ rng.standard_normal((4, 2)) + 1.0
    predict = ridge(x[:n], y[:n], x[n : n + 10], y[n : n + 10])
    assert predict(x[n + 10 :]) == pytest.approx(y[n + 10 :], abs=1e-6)


def test_ridge_of_noise_is_the_mean():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 40)), rng.standard_normal((60, 1)) + 5.0
    predict = ridge(x[:30], y[:30], x[30:], y[30:])
    assert np.abs(predict(x[30:]) - 5.0).max() < 1.5
    constant = ridge(np.ones((30, 2)), y[:30], np.ones((30, 2)), y[30:])
    assert constant(np.ones((3, 2))) == pytest.approx(np.full((3, 1), y[:30].mean()))


def test_many_modes_make_brownian_motion():
    x = random_paths(4000, 11, 1, 200, np.random.default_rng(0))[..., 0]
    moved = x - x[:, :1]
    t = np.linspace(0, 1, 11)
    assert np.cov(moved.T) == pytest.approx(np.minimum(t[:, None], t), abs=0.06)
    assert moved[:, 0] == pytest.approx(np.zeros(4000))


def test_a_clock_runs_from_0_to_1_and_never_back():
    t = random_clock(5, 9, np.random.default_rng(0))
    assert t.shape == (5, 9)
    assert (np.diff(t, axis=1) > 0).all()
    assert t[:, 0].tolist() == [0.0] * 5
    assert t[:, -1] == pytest.approx(np.ones(5))


def test_more_points_keep_the_old_ones_and_the_signature():
    rng = np.random.default_rng(0)
    t, x = random_clock(3, 6, rng), random_paths(3, 6, 2, 4, rng)
    times, points = with_more_points(t, x, 4, rng)
    for i in range(3):
        assert points[i].shape == (10, 2)
        assert np.isin(t[i], times[i]).all()
        assert path_signature(points[i], 3) == pytest.approx(path_signature(x[i], 3), abs=1e-12)
    same_times, _ = with_more_points(t, x, 0, rng)
    assert [len(s) for s in same_times] == [6, 6, 6]


def test_deviation_is_that_of_the_worst_level():
    expected = np.array([[3.0, 4.0, 1.0, 0.0, 0.0, 0.0]])
    found = expected + np.array([[0.0, 0.5, 0.2, 0.0, 0.0, 0.0]])
    assert deviation(found, expected, 2, 2) == pytest.approx(0.2)
    assert deviation(expected, expected, 2, 2) == 0.0


def test_a_verdict_says_claim_answer_and_evidence():
    assert verdict("a.", True, "b") == "Claim: a. Holds here: b"
    assert verdict("a.", False, "b") == "Claim: a. Does not hold here: b"
    assert verdict("a.", None, "b") == "Claim: a. Holds in part: b"

"""The benchmark on the archive: grids, scores, ranks, and the page that is made of the rows."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.metrics import log_loss as sklearn_log_loss

import roughformer as rf

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _archive_data import Grid, choose_grid, read_set, resample, set_sizes  # noqa: E402
from _archive_models import MODELS, SUMMARIES, inputs_for, summaries  # noqa: E402
from _archive_page import page, with_lead  # noqa: E402
from _archive_ridge import GramRidge, GramRidgeClassifier  # noqa: E402
from _archive_rows import key_of, read_rows  # noqa: E402
from _archive_scores import (  # noqa: E402
    calibration_error,
    class_scores,
    log_loss,
    mean_ranks,
    number_scores,
    wins,
)

sys.path.remove(str(ROOT / "benchmarks"))


def write_set(path, lengths, times=None, task="classification", **more):
    rng = np.random.default_rng(0)
    n = sum(lengths)
    y = np.array([f"c{b % 2}" for b in range(len(lengths))])
    np.savez(
        path,
        values=rng.normal(size=(n, 2)).astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        y=y if task == "classification" else rng.normal(size=len(lengths)),
        split=np.array(["train", "train", "test", "test"][: len(lengths)]),
        task=task,
        source="made up",
        **({} if times is None else {"times": times}),
        **more,
    )
    return path


def test_equal_series_keep_their_own_samples(tmp_path):
    data = read_set(write_set(tmp_path / "a.npz", [12] * 4))
    assert data.grid == Grid(12, own_span=False)
    x = resample(data.train, data.grid)
    np.testing.assert_array_equal(x[1], data.train.series(1)[1].T)
    assert list(data.train.labels) == ["c0", "c1"]
    assert len(data.test) == 2


def test_dropped_points_lie_on_the_line_between_their_neighbours(tmp_path):
    path = write_set(tmp_path / "a.npz", [12] * 4)
    full, data = read_set(path), read_set(path, drop=0.5, seed=3)
    assert data.grid == full.grid
    assert set(data.train.lengths) == {6}
    times, values = data.train.series(0)
    x = resample(data.train, data.grid)
    assert x.shape == (2, 2, 12)
    for c in range(2):
        np.testing.assert_allclose(
            x[0, c], np.interp(np.arange(12), times, values[:, c]), rtol=1e-6
        )


def test_the_seed_alone_decides_which_points_go(tmp_path):
    paths = [write_set(tmp_path / f"{name}.npz", [40] * 4) for name in "ab"]
    a, b = (read_set(p, 0.5, seed=1) for p in paths)
    np.testing.assert_array_equal(a.test.times, b.test.times)
    assert not np.array_equal(a.test.times, read_set(paths[0], 0.5, seed=2).test.times)


def test_ragged_series_are_resampled_over_their_own_span(tmp_path):
    data = read_set(write_set(tmp_path / "a.npz", [20, 40, 2, 50]))
    assert data.grid == Grid(30, own_span=True)
    x = resample(data.test, data.grid)
    values = data.test.series(0)[1]
    np.testing.assert_allclose(x[0, 0, [0, -1]], values[:, 0], rtol=1e-6)
    np.testing.assert_allclose(np.diff(x[0, 0]), (values[1, 0] - values[0, 0]) / 29, atol=1e-6)


@pytest.mark.parametrize(
    ("length", "own_times", "grid"),
    [(5, True, Grid(16, True)), (5000, True, Grid(1024, True)), (5, False, Grid(9, False))],
)
def test_grids_have_limits(length, own_times, grid):
    assert choose_grid(np.array([length] * 3), np.array([True] * 3), own_times) == grid


def test_short_series_are_held_at_their_end_and_missing_channels_are_filled():
    values = np.array([[1.0, np.nan, np.nan], [np.nan, 5.0, np.nan], [3.0, np.nan, np.nan]])
    batch = rf.SeriesBatch(np.arange(3), values, [0, 3])
    x = resample(batch, Grid(9, own_span=False))
    np.testing.assert_allclose(x[0], [[1, 2, *[3] * 7], [5] * 9, [0] * 9])


def test_sets_come_from_small_to_large(tmp_path):
    write_set(tmp_path / "large.npz", [30] * 4)
    write_set(tmp_path / "small.npz", [10] * 4)
    assert set_sizes(tmp_path) == {"small": 80, "large": 240}


def test_summaries_are_those_of_the_observations():
    t = np.array([0.0, 1.0, 3.0, 4.0])
    x = np.stack([2 * t + 1, [np.nan] * 4], axis=1)
    found = summaries(rf.SeriesBatch(t, x, [0, 4])).reshape(2, len(SUMMARIES))
    first = dict(zip(SUMMARIES, found[0], strict=True))
    assert first["mean"] == 5
    assert first["last"] == 9
    assert first["q0.5"] == 5
    assert first["duration"] == 4
    assert first["count"] == 4
    assert first["slope"] == pytest.approx(2)
    assert first["trend"] == pytest.approx(8)
    assert first["largest increment"] == 4
    assert first["time of maximum"] == 4
    assert found[1, SUMMARIES.index("count")] == 0
    assert np.isnan(found[1, SUMMARIES.index("mean")])


def test_one_point_has_summaries_too():
    assert np.isfinite(summaries(rf.SeriesBatch([1.0], [[2.0]], [0, 1]))).all()


def test_calibration_error_is_the_gap_between_confidence_and_accuracy():
    assert calibration_error([0.9] * 10, [1] * 9 + [0]) == pytest.approx(0)
    assert calibration_error([1.0] * 4, [1, 1, 0, 0]) == pytest.approx(0.5)
    # two bins, each with a gap of its own sign: they do not cancel
    assert calibration_error([0.95, 0.55], [0, 1]) == pytest.approx((0.95 + 0.45) / 2)


def test_class_scores():
    classes, labels = np.array(["a", "b"]), np.array(["a", "b", "b"])
    p = np.array([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
    scores = class_scores(labels, classes[p.argmax(axis=1)], p, classes)
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert scores["log_loss"] == pytest.approx(sklearn_log_loss(labels, p))
    assert log_loss(p[:1], classes, np.array(["never seen"])) == pytest.approx(-np.log(1e-6))
    assert class_scores(labels, labels, None, classes) == {"accuracy": 1.0}


def test_number_scores():
    scores = number_scores(np.array([0.0, 2.0]), np.array([1.0, 2.0]))
    assert scores == {"rmse": pytest.approx(np.sqrt(0.5)), "mae": 0.5, "r2": 0.5}


def test_ties_share_their_rank_and_are_both_wins():
    scores = [[0.9, 0.9, 0.1], [0.2, 0.5, 0.4]]
    np.testing.assert_allclose(mean_ranks(scores, larger_is_better=True), [2.25, 1.25, 2.5])
    np.testing.assert_array_equal(wins(scores, larger_is_better=True), [1, 2, 0])
    np.testing.assert_array_equal(wins(scores, larger_is_better=False), [1, 0, 1])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_ridge_in_little_memory_is_that_of_scikit_learn(n_classes):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, n_classes, 60)
    x = (rng.normal(size=(60, 3000)) + 5).astype(np.float32)
    x[:, :40] += labels[:, None]
    new = (rng.normal(size=(50, 3000)) + 5).astype(np.float32)
    alphas = np.logspace(-3, 5, 9)
    known, ours = (
        RidgeClassifierCV(alphas).fit(x, labels),
        GramRidgeClassifier(alphas).fit(x, labels),
    )
    assert known.alpha_ == ours.alpha_
    np.testing.assert_array_equal(known.predict(new), ours.predict(new))
    y = x[:, :3].sum(axis=1) + rng.normal(size=60)
    known, ours = RidgeCV(alphas).fit(x, y), GramRidge(alphas).fit(x, y)
    assert known.alpha_ == ours.alpha_
    np.testing.assert_allclose(known.predict(new), ours.predict(new), rtol=1e-4)


@pytest.mark.parametrize("name", ["majority", "boosting", "quant"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_models_take_what_they_see(tmp_path, name, task):
    if MODELS[name].sees == "grid":
        pytest.importorskip("aeon")
    data = read_set(write_set(tmp_path / "a.npz", [20, 40, 17, 50], task=task), drop=0.5)
    model = MODELS[name]
    estimator = model.make(data, 0).fit(inputs_for(model, data, data.train), data.train.labels)
    assert len(estimator.predict(inputs_for(model, data, data.test))) == 2


def row(name, model, accuracy, **more):
    known = {"task": "classification", "drop": 0.0, "seed": 0, "accuracy": accuracy}
    spent = {"fit_seconds": 2.0, "predict_seconds": 1.0, "commit": "abc", "date": "2026-01-01"}
    spent |= {"processor": "some", "versions": {"numpy": "2"}}
    return {"set": name, "model": model} | known | spent | more


def test_the_page_has_means_over_seeds_and_what_is_behind():
    rows = [
        row("One", "rformer", 0.6, ece=0.02, n_test=100),
        row("One", "rformer", 0.7, seed=1, ece=0.04, fit_seconds=70.0),
        row("One", "quant", 0.95, ece=0.5, n_test=100),
        row("Two", "rformer", 0.9, ece=0.01),
        row("Two", "quant", 0.85, ece=0.5),
        row("Two", "minirocket", 0.8),
        row("One", "minirocket", 0.0, error="time limit") | {"task": None},
    ]
    text = page({key_of(r): r for r in rows})
    assert "| **roughformer** | 0.775 | 1.50 | 1 | 0.020 |  | 4 | 2 |" in text
    assert "| One | 0.650 | 0.950 (QUANT) | 30 of 100 test series, 5.7 standard errors of" in text
    assert "| full: mean accuracy at least 0.01 above the best peer's | -0.125 | no |" in text
    assert "| MiniRocket | 1 | 0.800 | 0.900 |" in text
    assert "| MiniRocket | time limit | One (0 % dropped, seed 0) |" in text


def test_the_last_row_of_a_run_counts(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row("One", "quant", x)) + "\n" for x in (0.1, 0.2)))
    assert [r["accuracy"] for r in read_rows(path).values()] == [0.2]
    assert read_rows(tmp_path / "none") == {}


def test_the_readme_leads_with_the_published_rows():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == with_lead(readme, read_rows(ROOT / "results" / "archive.jsonl")), (
        "run: python benchmarks/archive.py --page"
    )


def test_the_page_is_that_of_the_published_rows():
    text = (ROOT / "docs" / "archive.md").read_text(encoding="utf-8")
    assert text == page(read_rows(ROOT / "results" / "archive.jsonl")), (
        "run: python benchmarks/archive.py --page"
    )


def test_every_set_of_the_archive_can_be_read():
    root = os.environ.get("ROUGHFORMER_DATA")
    paths = sorted((Path(root) / "archive").glob("*.npz")) if root else []
    if not paths:
        pytest.skip("needs the archive: set ROUGHFORMER_DATA to the directory above archive/")
    data = read_set(min(paths, key=lambda p: p.stat().st_size), drop=0.5, seed=0)
    assert np.isfinite(resample(data.test, data.grid)).all()

"""RFormerForecaster: forecasts, interpolation and intervals of irregular series."""

import copy
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import roughformer as rf
from roughformer.errors import CheckpointError, InputError
from roughformer.inference.calibration import LevelCalibration, level_of, value_at
from roughformer.model import QUANTILES
from roughformer.model.forecaster import _solved, memory_feature_count, remember

SPEED = 0.5  # at which the made-up process returns to its mean


def ornstein_uhlenbeck(n, seed, length=30, span=15.0, level=0.0, size=1.0):
    """Stationary series at random times: a value's forecast is its last times exp(-SPEED h)."""
    rng = np.random.default_rng(seed)
    series, times = [], []
    for _ in range(n):
        t = np.sort(rng.uniform(0, span, length))
        x = [rng.normal()]
        for gap in np.diff(t):
            keep = np.exp(-SPEED * gap)
            x.append(keep * x[-1] + np.sqrt(1 - keep**2) * rng.normal())
        series.append(level + size * np.array(x)[:, None])
        times.append(t)
    return series, times


def two_channels(n=60, seed=0):
    """Ragged series of two channels, a third of the values missing."""
    rng = np.random.default_rng(seed)
    times = [np.sort(rng.uniform(0, 10, rng.integers(5, 15))) for _ in range(n)]
    series = [np.column_stack([np.sin(t), 50 + 10 * np.cos(t)]) for t in times]
    for x in series:
        x[rng.random(x.shape) < 0.3] = np.nan
    return series, times


TINY = {"steps": 20, "horizon": 8.0, "d_model": 16, "n_layers": 1, "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def fitted():
    x, t = ornstein_uhlenbeck(1000, seed=0, level=100.0, size=20.0)
    options = TINY | {"steps": 400, "horizon": 4.0, "learning_rate": 4e-3}
    return rf.RFormerForecaster(**options).fit(x, t)


@pytest.fixture(scope="module")
def small():
    x, t = two_channels()
    return rf.RFormerForecaster(**TINY).fit(x, t)


def goods(n, seed, length=60):
    """Sales of goods of very different size, with a season of 12."""
    rng = np.random.default_rng(seed)
    t = np.arange(float(length))
    season = 1 + 0.4 * np.sin(2 * np.pi * t / 12 + rng.uniform(0, 6.3, (n, 1)))
    size = 10 ** rng.uniform(0, 4, (n, 1))
    return (size * season * (1 + 0.05 * rng.normal(size=(n, length))))[..., None], np.tile(
        t, (n, 1)
    )


@pytest.fixture(scope="module")
def sales():
    x, t = goods(40, 0)
    return rf.RFormerForecaster(**TINY | {"steps": 60, "horizon": 12.0}).fit(x[:, :48], t[:, :48])


def test_small_series_beside_large_ones_are_forecast_as_well(sales):
    assert sales.predictor_.networks[0].config.relative == (0,)
    x, t = goods(40, 0)
    forecast = sales.predict(x[:, :48], t[:, :48], at=t[:, 48:])
    error = np.abs(np.stack(forecast) - x[:, 48:]).mean(axis=(1, 2))
    naive = np.abs(x[:, 12:48] - x[:, :36]).mean(axis=(1, 2))
    assert np.median(error / naive) < 1
    smallest = np.argsort(x.mean(axis=(1, 2)))[:10]
    assert np.median((error / naive)[smallest]) < 1


def test_the_unit_of_a_series_of_its_own_size_does_not_matter(sales):
    x, t = goods(3, 1)
    for method in (sales.predict, sales.predict_interval):
        one, other = (np.asarray(method(f * x, t, at=t + 48)) for f in (1.0, 1e3))
        np.testing.assert_allclose(other, 1e3 * one, rtol=1e-3)


def test_a_series_of_its_own_size_that_is_zero_or_unknown_is_forecast_so(sales):
    t = np.arange(36.0)
    zero, unknown = np.zeros((36, 1)), np.full((36, 1), np.nan)
    smallest = min(x.mean() for x in goods(40, 0)[0])
    answers = np.asarray(sales.predict_interval([zero], [t], at=t[-1] + np.array([1.0, 5.0])))
    assert np.abs(answers).max() < 20 * smallest
    guess = sales.predict([unknown], [t], at=t[-1] + np.array([1.0]))
    mean = np.mean([x[:48].mean() for x in goods(40, 0)[0]])
    assert 0.2 * mean < np.asarray(guess).item() < 3 * mean


def test_series_of_one_size_share_their_unit(small):
    assert small.predictor_.networks[0].config.relative == ()
    rng = np.random.default_rng(0)
    few = 10 ** rng.uniform(0, 4, (30, 1, 1)) * rng.uniform(1, 2, (30, 5, 1))  # too few values
    levels = 10 ** rng.uniform(0, 4, (30, 1, 1)) + rng.normal(size=(30, 20, 1))  # one deviation
    rain = 10 ** rng.uniform(0, 4, (30, 1, 1)) * (rng.random((30, 20, 1)) < 0.1)
    for x in (few, levels, rain):
        model = rf.RFormerForecaster(**TINY | {"steps": 1, "horizon": 1.0}).fit(x)
        assert model.predictor_.networks[0].config.relative == ()


@pytest.fixture(scope="module")
def later():
    """New series cut after 20 points, the times within 4 of the cut, and the values there."""
    x, t = ornstein_uhlenbeck(1000, seed=1, level=100.0, size=20.0)
    at = [s[20:][s[20:] <= s[19] + 4] for s in t]
    true = np.concatenate([v[20 : 20 + len(a), 0] for v, a in zip(x, at, strict=True)])
    return [v[:20] for v in x], [s[:20] for s in t], at, true


def test_forecasts_of_a_known_process_are_near_the_optimum(fitted, later):
    past, times, at, true = later
    found = np.concatenate(fitted.predict(past, times, at=at))[:, 0]
    ahead = np.concatenate([a - t[-1] for a, t in zip(at, times, strict=True)])
    last = np.concatenate([np.repeat(v[-1], len(a)) for v, a in zip(past, at, strict=True)])
    best = 100 + (last - 100) * np.exp(-SPEED * ahead)
    assert np.mean((found - true) ** 2) < 1.05 * np.mean((best - true) ** 2)


def test_intervals_cover_as_many_values_of_new_series_as_was_asked(fitted, later):
    past, times, at, true = later
    lower, upper = (np.concatenate(x)[:, 0] for x in fitted.predict_interval(past, times, at=at))
    assert 0.88 <= np.mean((lower <= true) & (true <= upper)) <= 0.92
    lower, upper = (
        np.concatenate(x)[:, 0] for x in fitted.predict_interval(past, times, at=at, coverage=0.5)
    )
    assert 0.47 <= np.mean((lower <= true) & (true <= upper)) <= 0.53


def test_intervals_widen_with_the_horizon(fitted, later):
    past, times, _, _ = later
    at = np.stack([t[-1] + np.array([0.1, 1.0, 4.0]) for t in times])
    lower, upper = fitted.predict_interval(past, times, at=at)
    width = (upper - lower)[..., 0].mean(axis=0)
    assert width[0] < width[1] < width[2]


def test_quantiles_increase_with_their_level(fitted, later):
    past, times, at, _ = later
    found = np.concatenate(
        fitted.predict_quantiles(past, times, at=at, levels=[0.01, 0.2, 0.5, 0.8, 0.99])
    )
    assert found.shape[1:] == (1, 5)
    assert (np.diff(found, axis=-1) >= 0).all()


def test_interpolation_is_ahead_of_the_straight_line(fitted):
    x, t = ornstein_uhlenbeck(200, seed=2, level=100.0, size=20.0)
    rng = np.random.default_rng(0)
    hidden = [np.r_[False, rng.random(len(s) - 2) < 0.5, False] for s in t]
    given = [np.where(h[:, None], np.nan, v) for h, v in zip(hidden, x, strict=True)]
    filled = fitted.impute(given, t)
    ours, line = [], []
    for b, (h, v, s) in enumerate(zip(hidden, x, t, strict=True)):
        ours.append(filled.series(b)[1][h, 0] - v[h, 0])
        line.append(np.interp(s[h], s[~h], v[~h, 0]) - v[h, 0])
    assert np.mean(np.concatenate(ours) ** 2) < np.mean(np.concatenate(line) ** 2)


def test_impute_keeps_what_was_observed_and_leaves_no_gap(small):
    x, t = two_channels(8, seed=3)
    batch = rf.SeriesBatch.from_arrays(x, t)
    filled = small.impute(batch)
    seen = ~np.isnan(batch.values)
    np.testing.assert_array_equal(filled.values[seen], batch.values[seen])
    assert np.isfinite(filled.values).all()


def test_an_observed_value_is_returned_as_it_is_with_no_width(small):
    x, t = [np.array([[1.0, 2.0], [3.0, np.nan]])], [np.array([0.0, 1.0])]
    found = small.predict(x, t, at=[0.0, 1.0])[0]
    np.testing.assert_array_equal(found[0], [1.0, 2.0])
    assert found[1, 0] == 3.0
    assert np.isfinite(found[1, 1])
    lower, upper = small.predict_interval(x, t, at=[0.0])
    np.testing.assert_array_equal(lower, upper)


def test_a_batch_is_answered_as_its_series_one_by_one_in_any_order(small):
    x, t = two_channels(9, seed=4)
    at = [np.array([s[-1] + 1.0, 5.05, s[-1] + 0.2]) for s in t]
    together = small.predict(x, t, at=at)
    backwards = small.predict(x[::-1], t[::-1], at=at[::-1])[::-1]
    for b in range(len(x)):
        alone = small.predict([x[b]], [t[b]], at=[at[b]])[0]
        np.testing.assert_allclose(alone, together[b], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(backwards[b], together[b], rtol=1e-5, atol=1e-5)


def test_an_answer_does_not_depend_on_what_else_is_asked(small):
    x, t = two_channels(3, seed=5)
    many = small.predict(x, t, at=np.linspace(10, 14, 9))
    one = small.predict(x, t, at=[12.0], channels=["x1"])
    np.testing.assert_allclose(one[:, 0, 0], many[:, 4, 1], rtol=1e-5)


def test_forecasts_look_at_nothing_after_the_past(small):
    x, t = two_channels(3, seed=5)
    longer = [np.vstack([v, [[9.0, 9.0]]]) for v in x]
    later = [np.append(s, s[-1] + 5) for s in t]
    at = [[s[-1] + 0.5] for s in t]
    forecast = np.stack(small.predict(x, t, at=at))
    within = np.stack(small.predict(longer, later, at=at))
    assert (forecast != within).any()


def test_the_cost_of_a_forecast_does_not_grow_with_the_past():
    x, t = two_channels()
    model = rf.RFormerForecaster(**TINY | {"context": 64}).fit(x, t)
    rng = np.random.default_rng(0)
    long, times = rng.normal(size=(3000, 2)), np.arange(3000.0)
    whole = model.predict([long], [times], at=[3001.0, 2990.5])
    tail = model.predict([long[-100:]], [times[-100:]], at=[3001.0, 2990.5])
    np.testing.assert_allclose(tail, whole, rtol=1e-6)


def test_times_may_be_shared_ragged_an_array_or_one(small):
    x, t = two_channels(3, seed=6)
    assert small.predict(x, t, at=11.0).shape == (3, 1, 2)
    assert small.predict(x, t, at=[11.0, 12.0]).shape == (3, 2, 2)
    assert small.predict(x, t, at=np.full((3, 4), 11.0)).shape == (3, 4, 2)
    found = small.predict(x, t, at=[[11.0], [], [11.0, 12.0, 13.0]], channels=[1])
    assert [one.shape for one in found] == [(1, 1), (0, 1), (3, 1)]


def test_a_series_of_one_point_and_a_channel_never_seen_have_finite_answers(small):
    found = small.predict([np.array([[1.0, np.nan]])], [[3.0]], at=[3.5, 5.0])
    assert np.isfinite(found).all()
    nothing = small.predict([np.array([[np.nan, np.nan]])], [[3.0]], at=[3.5])
    assert np.isfinite(nothing).all()


def test_no_queries_and_no_series_give_empty_answers(small):
    x, t = two_channels(2)
    assert small.predict(x, t, at=[]).shape == (2, 0, 2)
    lower, upper = small.predict_interval(x, t, at=[[], []])
    assert [a.shape for a in lower + upper] == [(0, 2)] * 4


def test_a_channel_without_training_values_is_nan_and_told(later):
    x, t = two_channels(20)
    x = [np.column_stack([v, np.full(len(v), np.nan)]) for v in x]
    with pytest.warns(UserWarning, match="never observed in the training series.*x2"):
        model = rf.RFormerForecaster(**TINY).fit(x, t)
    found = model.predict(x[:2], t[:2], at=[11.0])
    assert np.isnan(found[..., 2]).all()
    assert np.isfinite(found[..., :2]).all()


def test_beyond_the_horizon_a_forecast_stays_and_a_warning_says_so(fitted):
    x, t = [np.array([[110.0], [130.0]])], [[0.0, 1.0]]
    with pytest.warns(UserWarning, match="trained for up to 4 ahead, and is asked for 49"):
        found = fitted.predict(x, t, at=[5.0, 50.0])
    np.testing.assert_allclose(found[0, 0], found[0, 1], rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(x, t, at=[5.0])


def test_channels_that_are_rarely_seen_can_be_calibrated_and_saved(tmp_path):
    x, t = two_channels(200, seed=10)
    for v in x[::2]:
        v[:, 1] = np.nan
    model = rf.RFormerForecaster(**TINY).fit(x, t)
    model.save(tmp_path / "model")
    lower, upper = rf.RFormerForecaster.load(tmp_path / "model").predict_interval(x, t, at=[5.05])
    assert (lower <= upper).all()


def noisy_days(n=600, seed=4):
    """One long series at uneven times: a season of 24 with noise of deviation 0.2."""
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.uniform(0.5, 1.5, n))
    return (np.sin(2 * np.pi * t / 24) + 0.2 * rng.normal(size=n))[:, None], t


def test_one_long_series_is_learned_from_and_its_end_calibrates_intervals():
    x, t = noisy_days()
    model = rf.RFormerForecaster(
        horizon=24.0, periods=[24.0], steps=150, learning_rate=5e-3, random_state=0, n_jobs=1
    ).fit([x[:500]], [t[:500]])
    of = model.predictor_.calibration["forecast"]
    assert of.n_held > 1000
    assert 3 <= of.n_groups <= 5  # a fifth of 500 hours, by days
    at = t[500:523]
    found = model.predict([x[:500]], [t[:500]], at=at)[0, :, 0]
    assert np.sqrt(np.mean((found - np.sin(2 * np.pi * at / 24)) ** 2)) < 0.2
    with pytest.warns(UserWarning, match="calibrated on . held-out series .or groups, or horizons"):
        lower, upper = model.predict_interval([x[:500]], [t[:500]], at=at, coverage=0.9)
    assert np.mean((lower[0] <= x[500:523]) & (x[500:523] <= upper[0])) > 0.7
    assert np.mean(upper[0] - lower[0]) < 1.5


def test_a_summary_compares_forecasts_of_what_was_held_out_with_baselines(fitted, tmp_path):
    x, t = noisy_days()
    options = TINY | {"horizon": 24.0, "periods": [24.0], "steps": 1}
    model = rf.RFormerForecaster(**options).fit([x], [t])
    scores = model.predictor_.metadata["held_out"]
    assert list(scores) == ["model", "last value", "value 24 before", "training mean"]
    # Of a sine with noise of 0.2: noise of two values, at most 0.75 h apart from the same hour.
    spread = model.predictor_.networks[0].spread.item()
    assert scores["value 24 before"]["rmse"] * spread == pytest.approx(0.2 * 2**0.5, rel=0.25)
    assert scores["training mean"]["rmse"] * spread == pytest.approx((0.5 + 0.04) ** 0.5, rel=0.15)
    assert scores["model"]["mae"] < scores["value 24 before"]["mae"]  # before training, too
    scores["model"]["mae"] = scores["value 24 before"]["mae"] + 1e-6
    assert "not better than the value 24 before" in model.summary()
    fitted.save(tmp_path / "model")
    loaded = rf.RFormerForecaster.load(tmp_path / "model")
    assert loaded.summary() == fitted.summary()
    assert "smaller mae than every baseline" in loaded.summary()
    with pytest.raises(NotFittedError):
        rf.RFormerForecaster().summary()


def test_what_calibrates_intervals_of_few_series_is_not_learned_from():
    x, t = noisy_days(100)
    changed = np.where(t[:, None] > t[0] + 0.8 * (t[-1] - t[0]), 5.0, 1.0) * x
    one, other = (rf.RFormerForecaster(**TINY).fit([v], [t]) for v in (x, changed))
    ask = {"X": [x[:50]], "times": [t[:50]], "at": t[50:54]}
    np.testing.assert_array_equal(one.predict(**ask), other.predict(**ask))
    assert not np.array_equal(
        one.predictor_.calibration["forecast"].table, other.predictor_.calibration["forecast"].table
    )


def test_ends_are_not_held_out_where_a_channel_has_nothing_else():
    x, t = noisy_days(100)
    late = np.where(np.arange(100) < 90, np.nan, 5 + x[:, 0])
    model = rf.RFormerForecaster(**TINY)
    with pytest.warns(UserWarning, match="too few values are held out"):
        model.fit([np.column_stack([x, late])] * 3, [t] * 3)
    both = np.column_stack([x, late])
    assert np.isfinite(model.predict([both], [t], at=[t[-1] + 1])).all()


def test_the_end_that_is_held_out_is_not_that_of_a_known_future():
    x, t = noisy_days(100)
    plan = np.column_stack([np.where(np.arange(100) < 70, x[:, 0], np.nan), np.ones(100)])
    model = rf.RFormerForecaster(**TINY, known_future=[1]).fit([plan], [t])
    assert model.predictor_.calibration["forecast"].n_held > 0
    found = model.backtest([plan], [t])
    np.testing.assert_array_equal(np.unique(found.series), [0])
    assert t[60] < found.time.max() <= t[69]  # within a horizon of the last origin


def test_a_table_of_one_series_is_read_as_in_fit():
    x, t = noisy_days(100)
    table = {"time": t, "load": x[:, 0]}
    model = rf.RFormerForecaster(**TINY).fit(table)
    batch = rf.SeriesBatch(t, x, [0, 100], channels=["load"])
    expected = model.predict(batch, at=[t[-1] + 1])
    shuffled = {name: column[::-1] for name, column in table.items()}
    for given in (table, shuffled, table | {"id": np.full(100, 7)}):
        np.testing.assert_array_equal(model.predict(given, at=[t[-1] + 1]), expected)
    with pytest.raises(InputError, match="holds the ids of the series"):
        rf.RFormerForecaster(**TINY).fit(shuffled)
    with pytest.raises(InputError, match="holds the ids of the series"):
        rf.RFormerForecaster(**TINY).fit(table | {"machine": np.arange(100) // 10})


def test_a_channel_that_is_constant_in_training_has_a_scale_of_its_size():
    x, t = noisy_days(100)
    flat = np.where(np.arange(100) < 90, 37.2, 74.4)
    model = rf.RFormerForecaster(**TINY).fit([np.column_stack([x, flat])], [t])
    assert model.predictor_.networks[0].spread[1] == pytest.approx(37.2)
    assert np.isfinite(list(model.predictor_.metadata["held_out"]["model"].values())).all()
    before = model.summary()
    with pytest.raises(InputError, match="too few values to calibrate"):
        model.calibrate([x[:1].repeat(2, axis=1)], [t[:1]])
    assert model.summary() == before


def test_the_default_horizon_of_long_series_is_a_hundred_gaps():
    t = np.arange(1000.0)
    model = rf.RFormerForecaster(**TINY | {"horizon": None, "steps": 1})
    assert model.fit([np.sin(t)[:, None]], [t]).horizon_ == 100
    assert model.fit([np.sin(t[:40])[:, None]], [t[:40]]).horizon_ == pytest.approx(19.5, rel=0.3)


def rising_season(n=144, seed=6, period=12):
    """One series without times: a line, a season and a little noise."""
    rng, t = np.random.default_rng(seed), np.arange(n)
    return (20 + 0.1 * t + 3 * np.sin(2 * np.pi * t / period) + 0.2 * rng.normal(size=n))[:, None]


def test_a_season_and_a_trend_go_on_without_any_option():
    """Before training, and beyond the horizon, too."""
    x = rising_season()
    model = rf.RFormerForecaster(steps=1, random_state=0, n_jobs=1).fit([x[:120]])
    network = model.predictor_.networks[0]
    assert network.periods.tolist() == pytest.approx([12], rel=0.05)
    error = model.predict([x[:120]], at=np.arange(120, 144))[0] - x[120:]
    assert np.abs(error).mean() < 0.7  # a season ago: 1.2; the last value: more than 2
    short = rf.RFormerForecaster(steps=1, horizon=6.0, periods=[12.0], random_state=0, n_jobs=1)
    short.fit([x[:120]])
    with pytest.warns(UserWarning, match="beyond its horizon"):
        found = short.predict([x[:120]], at=np.arange(126, 144))[0, :, 0]
    season = 3 * np.sin(2 * np.pi * np.arange(126, 144) / 12)
    assert np.abs(found - season - (found - season).mean()).max() < 0.5


def test_a_year_is_found_in_months():
    months = np.arange("2010-01", "2022-01", dtype="datetime64[M]").astype("datetime64[s]")
    x = rising_season()
    model = rf.RFormerForecaster(steps=1, random_state=0, n_jobs=1).fit([x[:120]], [months[:120]])
    assert model.predictor_.networks[0].periods.tolist() == [365.2425 * 86400]
    error = model.predict([x[:120]], [months[:120]], at=months[120:132])[0] - x[120:132]
    assert np.abs(error).mean() < 0.5


@pytest.mark.parametrize("seed", range(5))
def test_no_season_is_found_in_a_random_walk(seed):
    x = np.cumsum(np.random.default_rng(seed).normal(size=200))[:, None]
    model = rf.RFormerForecaster(steps=1, random_state=0, n_jobs=1).fit([x])
    assert model.predictor_.networks[0].config.n_periods == 0


def test_training_ends_when_what_is_held_out_is_not_forecast_better():
    x = np.random.default_rng(0).normal(size=(120, 1))
    model = rf.RFormerForecaster(**TINY | {"steps": 3000, "learning_rate": 1e-2}).fit([x[:100]])
    assert model.history_[-1]["step"] < 1500
    found = model.predict([x[:100]], at=np.arange(100, 108))
    assert np.abs(found - x.mean()).max() < 0.6  # noise is not learned by heart


def test_seasons_are_those_of_a_ridge_regression():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 2, 5, 5))
    gram, right = root @ root.swapaxes(-1, -2) + 0.1 * np.eye(5), rng.normal(size=(3, 2, 5, 1))
    found = _solved(torch.from_numpy(gram), torch.from_numpy(right))
    np.testing.assert_allclose(found, np.linalg.solve(gram, right)[..., 0], rtol=1e-8)


def test_too_few_values_to_calibrate_intervals_are_told():
    x, t = two_channels(3)
    few, seen = [v[:4] for v in x], [s[:4] for s in t]
    with pytest.warns(UserWarning, match="too few values are held out"):
        rf.RFormerForecaster(**TINY).fit(few, seen)


def test_units_of_values_and_times_do_not_matter():
    x, t = ornstein_uhlenbeck(40, seed=7)
    plain = rf.RFormerForecaster(**TINY).fit(x, t)
    scaled = rf.RFormerForecaster(**TINY | {"horizon": 8 * 3600.0})
    scaled.fit([1000 * v + 5 for v in x], [3600 * s for s in t])
    found = plain.predict(x, t, at=[16.0])
    other = scaled.predict([1000 * v + 5 for v in x], [3600 * s for s in t], at=[16 * 3600.0])
    np.testing.assert_allclose((other - 5) / 1000, found, rtol=1e-3, atol=1e-3)


def test_dates_are_taken_and_seasons_follow_them():
    rng = np.random.default_rng(0)
    hours = [np.sort(rng.choice(24 * 8, 60, replace=False)) for _ in range(80)]
    start = np.datetime64("2024-01-01T00:00")
    begin = [start + np.timedelta64(int(rng.integers(0, 1000)), "h") for _ in hours]
    times = [b + h.astype("timedelta64[h]") for b, h in zip(begin, hours, strict=True)]
    since = [(s - start) / np.timedelta64(1, "h") for s in times]
    x = [np.sin(2 * np.pi * s / 24)[:, None] for s in since]
    options = TINY | {"steps": 150, "horizon": "48h", "learning_rate": 5e-3}
    model = rf.RFormerForecaster(**options).fit(x, times)
    assert model.horizon_ == 48 * 3600
    at = [s[-1] + np.array([6, 12, 24], dtype="timedelta64[h]") for s in times]
    true = [np.sin(2 * np.pi * (a - start) / np.timedelta64(1, "h") / 24) for a in at]
    found = np.stack(model.predict(x, times, at=at))[..., 0]
    assert np.mean((found - np.stack(true)) ** 2) < 0.1  # the variance is 0.5
    with pytest.raises(InputError, match="times of the series are dates"):
        model.predict(x, times, at=[3.0])
    with pytest.raises(InputError, match="fitted to times that are dates, got numbers"):
        model.predict(x, hours, at=[300.0])


def test_static_covariates_are_used_and_asked_for():
    rng = np.random.default_rng(0)
    level = rng.normal(size=(120, 1))
    times = [np.sort(rng.uniform(0, 10, 8)) for _ in level]
    x = [np.r_[[[0.0]], np.full((7, 1), s)] for s in level[:, 0]]  # unknown until the second point
    options = TINY | {"steps": 200, "learning_rate": 1e-2, "horizon": 12.0}
    model = rf.RFormerForecaster(**options).fit(x, times, static=level)
    found = model.predict([v[:1] for v in x], [t[:1] for t in times], at=[12.0], static=level)
    assert np.corrcoef(found[:, 0, 0], level[:, 0])[0, 1] > 0.8
    with pytest.raises(InputError, match="takes 1 static covariates, got 0"):
        model.predict(x, times, at=[12.0])
    with pytest.raises(InputError, match=r"static must have shape \(120, S\)"):
        model.predict(x, times, at=[12.0], static=level[:3])


def test_saved_and_loaded_it_answers_the_same(small, tmp_path):
    x, t = two_channels(5, seed=8)
    small.save(tmp_path / "model")
    loaded = rf.RFormerForecaster.load(tmp_path / "model")
    assert loaded.get_params() == small.get_params()
    at = [5.0, 11.0]
    np.testing.assert_array_equal(loaded.predict(x, t, at=at), small.predict(x, t, at=at))
    np.testing.assert_array_equal(
        loaded.predict_interval(x, t, at=at), small.predict_interval(x, t, at=at)
    )
    assert not list((tmp_path / "model").glob("*.p*kl*"))
    (tmp_path / "model" / "member0.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="damaged"):
        rf.RFormerForecaster.load(tmp_path / "model")


def test_a_model_of_another_kind_is_refused(tmp_path):
    rf.RFormerRegressor(recipe="attention", windows=2, depth=1, epochs=1).fit(
        np.random.default_rng(0).normal(size=(8, 5, 1)), np.arange(8.0)
    ).save(tmp_path / "model")
    with pytest.raises(InputError, match="not a forecaster"):
        rf.RFormerForecaster.load(tmp_path / "model")


def test_fitting_twice_with_a_seed_gives_the_same_and_clones_are_not_fitted(small):
    x, t = two_channels()
    again = clone(small)
    with pytest.raises(NotFittedError):
        again.predict(x, t, at=[11.0])
    again.fit(x, t)
    np.testing.assert_array_equal(again.predict(x, t, at=[11.0]), small.predict(x, t, at=[11.0]))


def test_levels_far_from_all_training_values_go_on_where_they_are(small):
    x, t = two_channels(10, seed=11)
    at = [[5.05, s[-1] + 2.0] for s in t]
    for levels in ([1e3, 2e3], [-1e3, 5e3]):
        high, higher = (
            np.array(small.predict([v + level for v in x], t, at=at)) - level for level in levels
        )
        np.testing.assert_allclose(high, higher, atol=0.01)
        assert np.abs(high - [0, 50]).max() < 40  # no way back to the training mean


def test_levels_within_the_training_range_are_answered_as_they_are(small):
    x, t = two_channels()
    free = copy.deepcopy(small)
    for network in free.predictor_.networks:
        network.fit_scaling(lowest=[-1e9, -1e9], highest=[1e9, 1e9])
    at = [[5.05, s[-1] + 2.0] for s in t]
    np.testing.assert_array_equal(small.predict(x, t, at=at), free.predict(x, t, at=at))


def test_inputs_stay_as_they_are_and_torch_keeps_its_state():
    x, t = two_channels(20)
    before, state = [v.copy() for v in x], torch.random.get_rng_state()
    rf.RFormerForecaster(**TINY).fit(x, t).impute(x, t)
    for old, new in zip(before, x, strict=True):
        np.testing.assert_array_equal(old, new)
    assert torch.equal(state, torch.random.get_rng_state())


def test_members_answer_together():
    x, t = two_channels(30)
    model = rf.RFormerForecaster(**TINY | {"n_estimators": 2}).fit(x, t)
    each = []
    for network in model.predictor_.networks:
        one = clone(model).fit(x, t)
        one.predictor_.networks = [network]
        each.append(one.predict(x, t, at=[11.0]))
    np.testing.assert_allclose(model.predict(x, t, at=[11.0]), np.mean(each, axis=0), rtol=1e-6)


def test_a_score_is_the_share_of_variance_that_is_explained(fitted):
    x, t = ornstein_uhlenbeck(100, seed=9, level=100.0, size=20.0)
    assert 0 < fitted.score(x, t) < 1
    with pytest.raises(InputError, match="at least two points"):
        fitted.score([[[1.0]]], [[0.0]])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"steps": 0}, "steps must be a whole number from 1 on"),
        ({"horizon": -1.0}, "horizon must be a positive number"),
        ({"d_model": 30}, "d_model must be a multiple of 4"),
        ({"horizon": "12h"}, "horizon must be a positive number, got '12h'"),
        ({"learning_rate": -1}, "learning_rate must be a number from 0 on"),
        ({"validation": "some"}, r"validation must be a number in \[0, 1\)"),
        ({"periods": "weekly"}, "periods must be 'auto' or a list of numbers"),
        ({"periods": 24.0}, "periods must be 'auto' or a list of numbers"),
        ({"periods": [0.0]}, "periods must be positive"),
        ({"validation": 1.0}, r"validation must be in \[0, 1\)"),
    ],
)
def test_wrong_options_are_refused_in_words(options, match):
    x, t = two_channels(4)
    with pytest.raises(InputError, match=match):
        rf.RFormerForecaster(**TINY | options).fit(x, t)


def test_what_cannot_be_learned_or_asked_is_refused_in_words(small):
    x, t = two_channels(40)
    with pytest.raises(InputError, match="no series has two points"):
        rf.RFormerForecaster(**TINY).fit([[[1.0]], [[2.0]]], [[0.0], [1.0]])
    with pytest.raises(InputError, match="unknown channel 'x7'"):
        small.predict(x, t, at=[11.0], channels=["x7"])
    with pytest.raises(InputError, match=r"unknown channel 0\.7"):
        small.predict(x, t, at=[11.0], channels=[0.7])
    with pytest.raises(InputError, match="levels must be a list of numbers"):
        small.predict_quantiles(x, t, at=[11.0], levels=0.5)
    with pytest.raises(InputError, match="times for 2 series, but there are 40"):
        small.predict(x, t, at=[[11.0], [12.0]])
    with pytest.raises(InputError, match="at must be finite"):
        small.predict(x, t, at=[np.nan])
    with pytest.raises(InputError, match="coverage must lie between 0 and 1"):
        small.predict_interval(x, t, at=[11.0], coverage=90)
    forecasts = rf.RFormerForecaster(**TINY | {"interpolation": False}).fit(x, t)
    with pytest.raises(InputError, match="fitted for forecasts only"):
        forecasts.predict(x, t, at=[5.0])


# Parts


def test_a_memory_has_the_weighted_levels_that_its_formula_says():
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(1, 12, 1))).float()
    ages = torch.from_numpy(np.sort(rng.uniform(0, 9, (1, 12)))[:, ::-1].copy()).float()
    scales = torch.tensor([1.0, 4.0])
    memory = remember(values, ages, scales, 4)
    weight = torch.exp(-ages[0] / scales[:, None])
    expected = (weight * values[0, :, 0]).sum(1) / weight.sum(1)
    torch.testing.assert_close(memory.levels[0, 0, 1:3], expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(memory.levels[0, 0, 0], values[0, -1, 0])
    torch.testing.assert_close(memory.levels[0, 0, 3], values.mean())
    torch.testing.assert_close(memory.levels[0, 0, 4:], torch.stack([values.max(), values.min()]))
    torch.testing.assert_close(memory.recent[0, 0], values[0, -4:, 0].flip(0))
    assert memory.features.shape == (1, 1, memory_feature_count(2))


def test_a_line_has_its_slope_at_every_time_scale():
    ages = torch.linspace(50, 0, 400).unsqueeze(0)
    memory = remember(-3 * ages.unsqueeze(-1), ages, torch.tensor([2.0, 5.0]), 2)
    torch.testing.assert_close(memory.slopes[0, 0], torch.tensor([6.0, 15.0]), rtol=0.1, atol=0.0)


def test_points_of_the_other_side_and_padding_leave_no_trace():
    values = torch.tensor([[[1.0], [2.0], [9.0], [torch.nan]]])
    ages = torch.tensor([[2.0, 1.0, -1.0, torch.nan]])
    alone = remember(values[:, :2], ages[:, :2], torch.tensor([1.0]), 3)
    both = remember(values, ages, torch.tensor([1.0]), 3)
    for one, other in zip(alone, both, strict=True):
        torch.testing.assert_close(one, other)


def test_levels_and_values_of_a_distribution_are_inverse_to_each_other():
    rng = np.random.default_rng(0)
    levels = np.array(QUANTILES)
    quantiles = np.sort(rng.normal(size=(200, len(levels))), axis=1)
    asked = rng.uniform(0.001, 0.999, 200)
    np.testing.assert_allclose(
        level_of(value_at(asked, quantiles, levels), quantiles, levels), asked, atol=1e-9
    )


def test_calibration_mends_levels_that_are_off_by_horizon():
    rng = np.random.default_rng(0)
    horizon = rng.uniform(0, 1, 20_000)
    true = rng.uniform(size=20_000) ** np.where(horizon < 0.5, 1.0, 3.0)
    found = LevelCalibration.fit(true[:10_000], horizon[:10_000])
    for half in (horizon[10_000:] < 0.5, horizon[10_000:] >= 0.5):
        level = found.level(0.9, horizon[10_000:])[half]
        assert abs(np.mean(true[10_000:][half] <= level) - 0.9) < 0.02
    plain = LevelCalibration.fit(np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(plain.level(0.9, np.ones(2)), 0.9)


def test_intervals_of_few_series_whose_values_err_alike_are_wider():
    rng = np.random.default_rng(0)

    def draw(n_series, n_values):
        level, size = rng.normal(size=(n_series, 1)), np.exp(0.5 * rng.normal(size=(n_series, 1)))
        return norm.cdf(level + size * rng.normal(size=(n_series, n_values)))

    def covered(group):
        inside = []
        for _ in range(200):
            held, new = draw(10, 200).ravel(), draw(300, 5).ravel()
            found = LevelCalibration.fit(held, np.zeros(2000), group)
            low, high = (found.level(level, np.zeros(1)) for level in (0.05, 0.95))
            inside.append(np.mean((low <= new) & (new <= high)))
        return np.mean(inside)

    assert covered(None) < 0.88
    assert 0.89 < covered(np.repeat(np.arange(10), 200)) < 0.92
    # Where values are independent nothing changes.
    level = rng.random(20_000)
    group = np.repeat(np.arange(100), 200)
    alone, grouped = (LevelCalibration.fit(level, np.zeros(20_000), g) for g in (None, group))
    assert np.abs(alone.table - grouped.table).max() < 2e-3


def test_intervals_of_one_held_out_series_are_wide_and_do_not_promise():
    x, t = ornstein_uhlenbeck(300, seed=11, length=40)
    options = TINY | {"horizon": 4.0, "steps": 60, "learning_rate": 5e-3, "validation": 0.1}
    covered = []
    for seed in range(3):
        few = slice(10 * seed, 10 * seed + 10)
        model = rf.RFormerForecaster(**options | {"random_state": seed}).fit(x[few], t[few])
        covered.append(model.backtest(x[100:], t[100:]).covered.mean())
    assert np.mean(covered) > 0.9
    with pytest.warns(
        UserWarning, match="on 1 held-out series.*0.9 cannot be promised by fewer .* 9"
    ):
        model.predict_interval(x[:1], t[:1], at=[16.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_interval(x[:1], t[:1], at=[16.0], coverage=0.5)


def test_series_of_one_group_count_as_one_for_the_width_of_intervals():
    rng = np.random.default_rng(1)
    times = [np.arange(20.0)] * 60
    weeks = [rng.normal(size=(20, 1)) * np.exp(rng.normal()) for _ in range(6)]
    X, group = (
        [weeks[i % 6] + 0.01 * rng.normal(size=(20, 1)) for i in range(60)],
        np.arange(60) % 6,
    )
    model = rf.RFormerForecaster(steps=5, d_model=8, random_state=0, n_jobs=1, horizon=3.0)
    model.fit(X, times)
    width = []
    for groups in (None, group):
        model.calibrate(X, times, groups=groups)
        lower, upper = model.predict_interval(X[:6], times[:6], at=[20.5])
        width.append(np.mean(upper - lower))
    assert width[1] > 1.05 * width[0]


def driven(n, seed, length=24):
    """y(t) = 2 u(t) + noise, where u jumps at random: the past of y does not tell its future."""
    rng = np.random.default_rng(seed)
    times = [np.sort(rng.uniform(0, 12, length)) for _ in range(n)]
    plan = [rng.choice([-1.0, 1.0], size=length) for _ in times]
    return [np.column_stack([2 * u + 0.1 * rng.normal(size=length), u]) for u in plan], times


@pytest.fixture(scope="module")
def planned():
    x, t = driven(300, seed=0)
    options = TINY | {"steps": 250, "horizon": 4.0, "interpolation": False, "learning_rate": 5e-3}
    return rf.RFormerForecaster(**options, known_future=["x1"]).fit(x, t)


def cut(x, t, n, known=True):
    """The first n points; of the others the plan, if it is known."""
    if not known:
        return [v[:n] for v in x], [s[:n] for s in t]
    return [np.column_stack([np.r_[v[:n, 0], np.full(len(v) - n, np.nan)], v[:, 1]]) for v in x], t


def test_a_known_future_is_used(planned):
    x, t = driven(100, seed=1)
    at = [s[16:20] for s in t]
    true = np.stack([v[16:20, 0] for v in x])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        known = np.stack(planned.predict(*cut(x, t, 16), at=at, channels=["x0"]))[..., 0]
        alone = planned.predict(*cut(x, t, 16, known=False), at=at, channels=["x0"])
        lower, upper = planned.predict_interval(*cut(x, t, 16), at=at, channels=["x0"])
    assert np.mean((known - true) ** 2) < 0.3 < 3 < np.mean((np.stack(alone)[..., 0] - true) ** 2)
    inside = (np.stack(lower)[..., 0] <= true) & (true <= np.stack(upper)[..., 0])
    assert inside.mean() > 0.8
    assert planned.score(x, t) > 0.9


def test_a_known_future_is_returned_as_given_and_linear_between(planned):
    x = [np.array([[1.0, 1.0], [2.0, 1.0], [np.nan, -1.0], [np.nan, 1.0]])]
    t = [np.array([0.0, 1.0, 2.0, 3.0])]
    found = planned.predict(x, t, at=[2.0, 2.5, 3.5])[0]
    np.testing.assert_allclose(found[:2, 1], [-1.0, 0.0])
    assert np.isfinite(found).all()


def test_a_forecast_does_not_see_the_future_of_other_channels(planned):
    """Values of y after the end would move the end; the plan does not."""
    x, t = driven(3, seed=2)
    given, _ = cut(x, t, 16)
    np.testing.assert_array_equal(
        planned.predictor_.ends(rf.SeriesBatch.from_arrays(given, t)), [s[15] for s in t]
    )
    data = planned.predictor_._scaled(rf.SeriesBatch.from_arrays(x, t), np.zeros((3, 0)))
    moments, _ = data.moments(np.arange(3), np.array([s[15] for s in t]), both_sides=False)
    late = (moments.times > 0).numpy()
    assert late.any()
    assert np.isnan(moments.values[..., 0].numpy()[late]).all()
    assert not np.isnan(moments.values[..., 1].numpy()[late]).any()


def test_a_model_with_a_known_future_is_saved_and_loaded(planned, tmp_path):
    x, t = driven(3, seed=3)
    given = cut(x, t, 16)
    planned.save(tmp_path / "model")
    loaded = rf.RFormerForecaster.load(tmp_path / "model")
    assert list(loaded.known_future) == ["x1"]
    at = [s[15] + np.array([0.5, 1.0]) for s in t]
    for a, b in zip(planned.predict(*given, at=at), loaded.predict(*given, at=at), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_series_that_has_only_a_plan_is_forecast_from_its_first_row(planned):
    plan = np.column_stack([np.full(6, np.nan), [1.0, -1.0] * 3])
    times = np.arange(6) / 2
    found = planned.predict([plan], [times], at=times, channels=["x0"])[0, :, 0]
    assert np.abs(found - 2 * plan[:, 1]).max() < 1
    stream = rf.ForecastStream(planned)
    stream.push(times, plan)
    np.testing.assert_allclose(stream.forecast(times).value[:, 0], found, atol=1e-5)


def test_known_future_must_name_some_channels_but_not_all():
    x, t = two_channels()
    with pytest.raises(InputError, match="nothing to forecast"):
        rf.RFormerForecaster(**TINY, known_future=[0, 1]).fit(x, t)
    with pytest.raises(InputError, match="unknown channel 'rain'"):
        rf.RFormerForecaster(**TINY, known_future=["rain"]).fit(x, t)


def test_groups_are_held_out_whole():
    from roughformer.estimators.forecaster import _held_out

    groups = np.repeat(["a", "b", "c", "d", "e"], 4)
    for seed in range(5):
        held, used = _held_out(4, 20, groups, seed)
        assert len(held) == 4
        assert not set(groups[held]) & set(groups[used])
        np.testing.assert_array_equal(np.sort(np.r_[held, used]), np.arange(20))
    assert len(_held_out(0, 20, groups, 0)[0]) == 0
    with pytest.raises(InputError, match="two groups"):
        _held_out(4, 20, np.zeros(20), 0)
    with pytest.raises(InputError, match=r"shape \(20,\)"):
        _held_out(4, 20, np.zeros(3), 0)


def test_intervals_of_clones_hold_only_if_groups_are_held_out():
    """Four copies of each series: without groups, those held out have been seen in training."""
    x, t = ornstein_uhlenbeck(30, seed=5, length=20, span=10.0)
    new, when = ornstein_uhlenbeck(300, seed=6, length=20, span=10.0)
    clones, moments = [v for v in x for _ in range(4)], [s for s in t for _ in range(4)]
    options = TINY | {"steps": 500, "horizon": 3.0, "learning_rate": 5e-3, "interpolation": False}
    options |= {"d_model": 32, "dropout": 0.0, "batch_size": 32}
    past, at = [v[:10] for v in new], [s[10:][s[10:] <= s[9] + 3] for s in when]
    before = [s[:10] for s in when]
    true = np.concatenate([v[10 : 10 + len(a), 0] for v, a in zip(new, at, strict=True)])
    covered = []
    for groups in (None, np.repeat(np.arange(30), 4)):
        model = rf.RFormerForecaster(**options).fit(clones, moments, groups=groups)
        lower, upper = (
            np.concatenate(z)[:, 0] for z in model.predict_interval(past, before, at=at)
        )
        covered.append(np.mean((lower <= true) & (true <= upper)))
    assert covered[0] + 0.03 < covered[1]
    assert covered[1] > 0.8


def test_calibrate_widens_intervals_for_series_that_vary_more(small):
    x, t = two_channels(200, seed=7)
    rng = np.random.default_rng(0)
    noisy = [v + rng.normal(size=v.shape) * [1.0, 10.0] for v in x]
    model = copy.deepcopy(small)
    at = [s[-1] + 1.0 for s in t]
    before = model.predict_interval(noisy, t, at=np.array(at)[:, None])
    assert model.calibrate(noisy, t) is model
    after = model.predict_interval(noisy, t, at=np.array(at)[:, None])
    assert np.mean(after[1] - after[0]) > 1.2 * np.mean(before[1] - before[0])
    with pytest.raises(InputError, match="too few values"):
        model.calibrate([v[:1] for v in noisy], [s[:1] for s in t])
    np.testing.assert_array_equal(model.predict_interval(noisy, t, at=np.array(at)[:, None]), after)


def test_a_backtest_forecasts_the_last_part_and_sees_none_of_it(small):
    x, t = two_channels(12, seed=8)
    found = small.backtest(x, t, coverage=0.8)
    changed = [
        np.where((s <= (s[0] + s[-1]) / 2)[:, None], v, v + 100) for v, s in zip(x, t, strict=True)
    ]
    other = small.backtest(changed, t, coverage=0.8)
    np.testing.assert_array_equal(found.value, other.value)
    np.testing.assert_array_equal(found.last, other.last)
    np.testing.assert_allclose(found.true + 100, other.true)
    assert (found.lower <= found.upper).all()
    assert ((found.ahead > 0) & (found.ahead <= 8.0)).all()
    b = found.series[0]
    cut = found.time[0] - found.ahead[0]
    assert cut in t[b]
    alone = small.predict([x[b][t[b] <= cut]], [t[b][t[b] <= cut]], at=[found.time[0]])
    assert alone[0, 0, found.channel[0]] == pytest.approx(found.value[0], abs=1e-5)
    with pytest.raises(InputError, match="coverage"):
        small.backtest(x, t, coverage=1.0)


def test_plots_of_a_backtest_show_its_values_and_bands(small):
    x, t = two_channels(30, seed=9)
    batch = rf.SeriesBatch.from_arrays(x, t)
    found = small.backtest(batch)
    figure = rf.plot_forecast(found, batch, 2, channels=["x1"])
    (axes,) = figure.axes
    mine = (found.series == 2) & (found.channel == 1)
    drawn = axes.lines[-2].get_ydata()
    np.testing.assert_allclose(np.sort(drawn), np.sort(found.value[mine]))
    assert len(axes.collections) == 1
    left, right = rf.plot_horizon(found).axes
    shares = right.lines[0].get_ydata()
    assert shares.min() <= 100 * found.covered.mean() <= shares.max()
    assert len(left.lines) == 2
    with pytest.raises(InputError, match=r"there is no channel .y.; there are x0, x1"):
        rf.plot_forecast(found, batch, channels=["y"])

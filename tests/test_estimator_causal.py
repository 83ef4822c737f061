"""Causal models: a prediction at every window, from the past only."""

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from small import TINY, make, make_sine, ragged, walks


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
@pytest.mark.parametrize("model", ["rformer", "transformer"])
def test_the_last_window_says_what_predict_says(kind, model):
    series, times = ragged()
    options = TINY | {"windows": rf.Windows.by_points(3), "causal": True, "model": model}
    found = make(kind, **options).fit(series, np.arange(24) % 2, times=times)
    each = found.predict_windows(series, times)
    whole = found.predict_proba if kind is RFormerClassifier else found.predict
    last = whole(series, times)
    for b, (ends, said) in enumerate(each):
        n = max(-(-(len(series[b]) - 1) // 3), 1) if model == "rformer" else len(series[b])
        assert len(ends) == len(said) == n
        assert (np.diff(ends) > 0).all()
        assert ends[-1] == times[b][-1]
        np.testing.assert_allclose(said[-1], last[b], atol=1e-6)


@pytest.mark.parametrize("model", ["rformer", "transformer"])
def test_the_past_does_not_depend_on_the_future(model):
    x = walks(24, length=17)
    options = TINY | {"windows": rf.Windows.by_points(4), "causal": True, "model": model}
    found = make(RFormerRegressor, **options).fit(x, np.arange(24.0))
    other = x.copy()
    other[:, 9:] = 5 * np.random.default_rng(1).normal(size=other[:, 9:].shape)
    seen = 2 if model == "rformer" else 9
    for full, changed, cut in zip(
        found.predict_windows(x),
        found.predict_windows(other),
        found.predict_windows(x[:, :9]),
        strict=True,
    ):
        np.testing.assert_allclose(changed[1][:seen], full[1][:seen], atol=1e-5)
        np.testing.assert_allclose(cut[1], full[1][:seen], atol=1e-5)
        assert not np.allclose(changed[1][seen:], full[1][seen:], atol=1e-3)


def test_targets_of_each_window():
    x = walks(40, length=17)
    options = TINY | {"windows": rf.Windows.by_points(4), "causal": True, "epochs": 3}
    numbers = np.cumsum(np.ones((40, 4, 2)), axis=1)
    numbers[0, 1] = np.nan
    each = make(RFormerRegressor, **options).fit(x, numbers).predict_windows(x)
    assert all(said.shape == (4, 2) for _, said in each)
    classes = np.where(np.arange(4) < 2, "calm", "storm") + np.zeros((40, 1), dtype="<U1")
    options |= {"epochs": 20, "learning_rate": 0.02, "basepoint": False}
    model = make(RFormerClassifier, **options).fit(x, classes)
    share = np.array([said[:, 1] for _, said in model.predict_windows(x)])
    assert (share[:, 0] < 0.5).mean() > 0.9
    assert (share[:, 3] > 0.5).mean() > 0.9


def test_only_causal_models_predict_at_every_window():
    model = make(RFormerRegressor, **TINY).fit(walks(), np.arange(24))
    with pytest.raises(InputError, match="fit with causal=True"):
        model.predict_windows(walks())
    with pytest.raises(InputError, match="sees the future"):
        make(RFormerRegressor, **(TINY | {"causal": True, "spectrum": "linear"})).fit(
            walks(), np.arange(24)
        )


def test_targets_of_samples_are_not_used_while_samples_are_dropped():
    batch = make_sine(12, n_classes=2, length=20)
    y = np.zeros((12, 20), dtype=int)
    model = make(RFormerClassifier, "transformer", causal=True, drop=0.5, epochs=1)
    with pytest.raises(InputError, match="while samples are dropped"):
        model.fit(batch, y)


def test_a_causal_model_of_incomplete_series_does_not_see_the_future():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((10, 60, 2)).cumsum(axis=1)
    x[rng.random(x.shape) < 0.3] = np.nan
    t = np.cumsum(rng.uniform(0.5, 1.5, (10, 60)), axis=1)
    options = {"windows": rf.Windows.by_duration(7.0), "causal": True, "epochs": 1, "d_model": 8}
    options |= {"random_state": 0}
    model = make(RFormerClassifier, **options, n_heads=2).fit(x, np.arange(10) % 2, times=t)
    before = model.predict_windows(x, times=t)
    changed = x.copy()
    for b in range(10):
        changed[b, t[b] > before[b][0][3]] += 5
    after = model.predict_windows(changed, times=t)
    for (_, p), (_, q) in zip(before, after, strict=True):
        assert np.allclose(p[:4], q[:4], atol=1e-6)
        assert not np.allclose(p[4:], q[4:], atol=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.8])
def test_automatic_windows_of_a_causal_model_do_not_depend_on_where_the_series_ends(missing):
    rng = np.random.default_rng(0)
    lengths = rng.integers(40, 80, 24)
    times = [np.cumsum(rng.uniform(0.5, 1.5, n)) for n in lengths]
    series = [rng.normal(size=(n, 2)).cumsum(axis=0) for n in lengths]
    for x in series:
        x[rng.random(x.shape) < missing] = np.nan
    options = TINY | {"windows": "auto", "depth": "auto", "causal": True}
    model = make(RFormerClassifier, **options).fit(series, np.arange(24) % 2, times=times)
    rule = model.predictor_.encoder.config.rule
    assert rule.rule == "duration"
    most = 12 if missing else 75
    seen = [b for b in range(24) if b not in model.validation_index_]
    spans = [times[b][-1] - times[b][0] for b in seen]
    count = min(np.median(lengths[seen]) // 2, most)
    assert rule.amount == pytest.approx(np.median(spans) / count)
    # So far = what a series that has just come to the end of its fifth window says.
    cut = [t <= t[0] + 5 * rule.amount for t in times]
    early = [x[c] for x, c in zip(series, cut, strict=True)]
    stamps = [t[c] for t, c in zip(times, cut, strict=True)]
    for (ends, whole), (now, said) in zip(
        model.predict_windows(series, times), model.predict_windows(early, stamps), strict=True
    ):
        np.testing.assert_allclose(now[:4], ends[:4])
        np.testing.assert_allclose(said[:4], whole[:4], atol=1e-5)


def test_series_of_equal_span_have_as_many_automatic_windows_causal_or_not():
    x = walks(24, length=33)
    options = TINY | {"windows": "auto", "spectrum": None}
    counts = []
    for causal in (False, True):
        model = make(RFormerRegressor, **options, causal=causal).fit(x, np.arange(24.0))
        batch = rf.SeriesBatch.of(x)
        counts.append(model.predictor_.encoder.config.rule.place(batch).most)
    assert counts == [16, 16]


def test_series_of_one_point_have_one_automatic_window():
    x = list(walks(24, length=1))
    model = make(RFormerRegressor, **(TINY | {"windows": "auto", "causal": True})).fit(
        x, np.arange(24.0), layout="time_first"
    )
    assert [len(ends) for ends, _ in model.predict_windows(x)] == [1] * 24


STEPS = {"causal": True, "warp": 0.3, "epochs": 1}


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (rf.Windows.by_duration(4.0), "windows by a duration"),
        ([0.0, 4.0, 8.0, 15.0], "windows by cut times"),
    ],
)
@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
def test_warped_series_would_leave_the_targets_of_their_windows(kind, windows, words):
    rule = windows if isinstance(windows, rf.Windows) else rf.Windows.of(windows)
    most = rule.place(rf.SeriesBatch.from_tensor(walks())).most
    y = np.arange(24 * most).reshape(24, most) % 2
    y = y if kind is RFormerClassifier else y[..., None]
    options = TINY | STEPS | {"windows": windows}
    with pytest.raises(InputError, match=words):
        make(kind, **options).fit(walks(), y)
    make(kind, **(options | {"warp": 0.0})).fit(walks(), y)
    make(kind, **options).fit(walks(), np.arange(24) % 2)  # a target of a series goes along


@pytest.mark.parametrize("windows", [4, rf.Windows.by_points(4)])
def test_windows_by_count_and_by_points_hold_the_same_observations_when_warped(windows):
    series = rf.SeriesBatch.from_tensor(walks())
    slow = series.with_times(series.times * 1.3)
    rule = rf.Windows.of(windows)
    for b in range(3):
        np.testing.assert_allclose(rule.place(slow).of(b), 1.3 * rule.place(series).of(b))
    y = np.arange(96).reshape(24, 4) % 2
    make(RFormerClassifier, **(TINY | STEPS | {"windows": windows})).fit(walks(), y)

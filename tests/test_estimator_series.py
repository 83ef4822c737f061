"""Series of every shape: ragged, with times and gaps, padded, none, with covariates, thinned."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from small import TINY, make, make_sine, ragged, walks


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
@pytest.mark.parametrize("windows", [3, rf.Windows.by_duration(5.0), rf.Windows.by_points(4)])
def test_ragged_series_with_times_and_gaps(kind, windows):
    series, times = ragged()
    model = make(kind, **(TINY | {"windows": windows})).fit(series, np.arange(24) % 2, times=times)
    together = model.predict(series, times)
    alone = [model.predict([x], [t])[0] for x, t in zip(series, times, strict=True)]
    backwards = model.predict(series[::-1], times[::-1])[::-1]
    if kind is RFormerClassifier:
        np.testing.assert_array_equal(together, alone)
        np.testing.assert_array_equal(together, backwards)
    else:
        np.testing.assert_allclose(together, alone, atol=1e-5)
        np.testing.assert_allclose(together, backwards, atol=1e-5)


def test_padded_tensors_are_the_same_as_lists():
    series, times = ragged()
    lengths = np.array([len(x) for x in series])
    padded, stamps = torch.full((24, 20, 2), 7.0, dtype=torch.float64), np.zeros((24, 20))
    for b, (x, t) in enumerate(zip(series, times, strict=True)):
        padded[b, : len(x)], stamps[b, : len(t)] = torch.from_numpy(x), t
    y = np.arange(24.0)
    one = make(RFormerRegressor, **TINY).fit(series, y, times=times)
    other = make(RFormerRegressor, **TINY).fit(padded, y, times=stamps, lengths=lengths)
    np.testing.assert_array_equal(
        one.predict(series, times), other.predict(padded, stamps, lengths)
    )


@pytest.mark.parametrize("listed", [False, True])
def test_the_layout_of_fit_is_that_of_predict_if_none_is_given(listed, tmp_path):
    x = walks()
    turned = list(x.transpose(0, 2, 1)) if listed else x.transpose(0, 2, 1)
    y = np.arange(24.0)
    options = TINY | {"epochs": 1}
    want = make(RFormerRegressor, **options).fit(x, y).predict(x)
    model = make(RFormerRegressor, **options).fit(turned, y, layout="channels_first")
    model.save(tmp_path / "model")
    for each in (model, RFormerRegressor.load(tmp_path / "model")):
        np.testing.assert_array_equal(each.predict(turned), want)
        np.testing.assert_array_equal(each.predict(x, layout="time_first"), want)
        np.testing.assert_array_equal(each.predict(rf.SeriesBatch.of(x)), want)
        assert each.score(turned, y) == each.score(x, y, layout="time_first")
    held = make(RFormerRegressor, **options)
    held.fit(turned, y, layout="channels_first", validation_data=(rf.SeriesBatch.of(x), y))
    features = rf.SignatureTransformer().fit(turned, layout="channels_first")
    np.testing.assert_array_equal(
        features.transform(turned), features.transform(rf.SeriesBatch.of(x))
    )
    with pytest.raises(InputError, match="already has its times, layout and names"):
        model.predict(rf.SeriesBatch.of(x), layout="time_first")


def test_no_series_have_no_predictions():
    model = make(RFormerClassifier, **TINY).fit(walks(), np.arange(24) % 2)
    assert model.predict_proba(walks(0)).shape == (0, 2)
    assert model.predict(walks(0)).shape == (0,)


def test_static_covariates_are_used_only_if_asked_for():
    def batch(static):
        return rf.SeriesBatch.from_tensor(walks(), static=static, static_names=("age", "answer"))

    static = np.random.default_rng(0).normal(size=(24, 2))
    static[3, 0] = np.nan
    y = np.arange(24.0)
    without = make(RFormerRegressor, **TINY).fit(batch(static), y)
    np.testing.assert_array_equal(
        without.predict(batch(static)), without.predict(batch(static + 100))
    )
    model = make(RFormerRegressor, **TINY, static=("age",)).fit(batch(static), y)
    found = model.predict(batch(static))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, model.predict(batch(static * [1, 5])))
    assert not np.allclose(found, model.predict(batch(static * [5, 1])))
    with pytest.raises(InputError, match="static"):
        model.predict(walks())
    with pytest.raises(InputError, match="weight"):
        make(RFormerRegressor, **TINY, static=("weight",)).fit(batch(static), y)


def test_targets_of_ragged_windows_are_padded_to_the_longest_series():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, 1)) for n in (10, 40, 25, 31, 18, 22)]
    batch = rf.SeriesBatch.from_arrays(arrays)
    windows = rf.Windows.by_points(5)
    most = windows.place(batch).most
    options = {"windows": windows, "causal": True, "epochs": 2, "batch_size": 2, "d_model": 8}
    y = rng.standard_normal((6, most, 1))
    model = make(RFormerRegressor, **options, n_heads=2, validation=0.3).fit(batch, y)
    assert [len(end) for end, _ in model.predict_windows(batch)] == [2, 8, 5, 6, 4, 5]
    for wrong in (y[:, :3], np.concatenate([y, y], axis=1)):
        with pytest.raises(InputError, match="the series with most windows has 8"):
            make(RFormerRegressor, **options, n_heads=2, validation=0.0).fit(batch, wrong)


@pytest.mark.parametrize(
    "options", [{}, {"model": "transformer"}, {"model": "tempo"}, {"observations": True}]
)
def test_a_series_has_its_own_draw_of_dropped_points_wherever_the_batch_is_cut(options):
    batch = make_sine(12, n_classes=12, length=200, low=10, high=30)
    rates = batch.static[:, 0] / (2 * np.pi)
    model = make(RFormerRegressor, windows=4, epochs=1, d_model=8, n_heads=2, **options)
    predictor = model.fit(batch, rates).predictor_
    whole = predictor.forward(batch, drop=0.5, seed=3)[0]
    inputs = predictor.encoder.encode(batch[7:9], drop=0.5, seed=3, series=np.array([7, 8]))
    with torch.no_grad():
        assert torch.allclose(predictor.model(**inputs), whole[7:9], atol=1e-5)
    assert predictor.forward(batch[:0])[0].shape == (0, *whole.shape[1:])


def test_one_series_without_the_axis_of_series_is_told_so():
    model = make(rf.RFormerClassifier, **TINY).fit(walks(), np.arange(24) % 2)
    with pytest.raises(rf.InputError, match=r"if it is one series, give x\[None\]"):
        model.predict(walks()[0])
    with pytest.raises(rf.InputError, match=r"if it is one series, give x.T\[None\]"):
        model.predict(walks()[0].T)


def test_a_tensor_of_two_axes_is_read_as_an_array_is():
    x, y = walks()[:, :, 0], np.arange(24) % 2
    model = make(rf.RFormerClassifier, **TINY).fit(torch.tensor(x), y)
    again = make(rf.RFormerClassifier, **TINY).fit(x, y)
    np.testing.assert_array_equal(model.predict_proba(x), again.predict_proba(torch.tensor(x)))
    with pytest.raises(rf.InputError, match="expected many series"):
        model.predict(torch.tensor(x[0]))


def test_a_table_of_one_series_a_row_and_a_dict_of_series_are_told_what_to_give():
    import pandas as pd

    y = np.arange(24) % 2
    with pytest.raises(rf.InputError, match=r"rows are series of one channel, give X.to_numpy\(\)"):
        rf.RFormerClassifier().fit(pd.DataFrame(walks()[:, :, 0]), y)
    with pytest.raises(rf.InputError, match=r"give list\(x.values\(\)\)"):
        rf.RFormerClassifier().fit(dict(enumerate(walks())), y)


def test_one_function_is_a_callback_and_a_wrong_drop_is_told():
    seen = []
    make(rf.RFormerClassifier, **TINY, callbacks=seen.append).fit(walks(), np.arange(24) % 2)
    assert [record["epoch"] for record in seen] == [1, 2]
    with pytest.raises(rf.InputError, match=r"drop must be a number in .* or a range of two"):
        rf.TrainConfig(drop="half")

"""What is held out, and what it decides."""

import numpy as np
import pytest
from sklearn.base import clone

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from small import TINY, make, make_sine, walks


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
@pytest.mark.parametrize("seed", range(2))
def test_no_group_is_on_both_sides(kind, seed):
    groups = np.array([f"patient {i}" for i in np.arange(24) // 3])
    options = TINY | {"epochs": 1, "random_state": seed, "validation": 0.3}
    model = make(kind, **options).fit(walks(), np.arange(24) % 2, groups=groups)
    held = model.validation_index_
    inside = np.setdiff1d(np.arange(24), held)
    assert 0 < len(held) < 24
    assert not set(groups[held]) & set(groups[inside])
    assert model.predictor_.metadata["trained_on"] == len(inside)


def test_groups_that_are_none():
    for groups, words in ((np.zeros(24), "one group only"), (np.zeros(3), "each of 24 series")):
        with pytest.raises(InputError, match=words):
            make(RFormerRegressor, **TINY).fit(walks(), np.arange(24), groups=groups)


def test_validation_data_keeps_all_series_for_training():
    held = (walks(8, seed=5), np.arange(8.0), np.arange(16.0))
    model = make(RFormerRegressor, **TINY).fit(walks(), np.arange(24), validation_data=held)
    assert model.predictor_.metadata["trained_on"] == 24
    assert len(model.validation_index_) == 0
    best = min(record["valid_metric"] for record in model.history_)
    error = model.predict(held[0], held[2]) - held[1]
    assert np.sqrt((error**2).mean()) == pytest.approx(best, rel=1e-5)
    for wrong in (walks(8), (walks(8),), "all"):
        with pytest.raises(InputError, match="validation_data must be"):
            make(RFormerRegressor, **TINY).fit(walks(), np.arange(24), validation_data=wrong)


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
def test_without_validation_everything_is_trained_on(kind):
    model = make(kind, **TINY, validation=0.0).fit(walks(), np.arange(24) % 2)
    assert model.predictor_.metadata["trained_on"] == 24
    assert model.predictor_.calibration == 1.0
    one = make(kind, **TINY).fit(walks(1), [1])
    assert one.predict(walks(1)).shape == (1,)


def test_a_validation_part_of_one_class_is_judged_by_its_loss(tmp_path):
    batch = make_sine(12, n_classes=2, length=20)
    zero = batch[np.flatnonzero(batch.labels == 0)]
    options = {"windows": 4, "epochs": 2, "d_model": 8, "n_heads": 2, "metric": "auroc"}
    model = make(RFormerClassifier, **options, run_dir=tmp_path)
    model.fit(batch, validation_data=(zero, zero.labels))
    assert [r["metric"] for r in model.history_] == ["loss", "loss"]


def test_members_share_encoder_and_target_scale_and_have_feature_scales_of_their_own():
    y = np.arange(24.0) ** 2
    model = make(RFormerRegressor, **TINY, n_estimators=3).fit(walks(), y)
    predictor = model.predictor_
    assert predictor.targets.mean == (pytest.approx(y.mean()),)
    assert predictor.targets.scale == (pytest.approx(y.std()),)
    # Every series is held out by one member.
    assert sorted(model.validation_index_) == list(range(24))
    tokens = predictor.encoder.encode(rf.SeriesBatch.of(walks()))["tokens"]
    first = np.setdiff1d(np.arange(24), model.validation_index_[:8])
    inside = predictor.model.members[0].standardize.mean
    assert np.allclose(inside, tokens[first].mean(dim=(0, 1)), atol=1e-5)
    assert not np.allclose(inside, tokens.mean(dim=(0, 1)), atol=1e-5)


def test_balanced_weights_are_those_of_each_members_own_part(monkeypatch):
    y = (np.arange(24) % 5 == 0).astype(int)
    seen = []
    plain = RFormerClassifier._calibration

    def watched(self, *arguments):
        seen.append(self._weight.numpy())
        return plain(self, *arguments)

    monkeypatch.setattr(RFormerClassifier, "_calibration", watched)
    model = make(RFormerClassifier, **TINY, n_estimators=3, class_weight="balanced").fit(walks(), y)
    for held, weight in zip(np.split(model.validation_index_, 3), seen, strict=True):
        counts = np.bincount(np.delete(y, held))
        np.testing.assert_allclose(weight, counts.sum() / (2 * counts), rtol=1e-6)


def windows_known_of(n_known):
    y = np.full((30, 4), np.nan)
    y[:n_known] = [0, 1, 0, 1]
    return y


@pytest.mark.parametrize("calibrate", [True, False])
@pytest.mark.parametrize(
    ("model", "y", "held"),
    [
        (make(RFormerRegressor, **TINY), np.arange(30.0), np.full(30, np.nan)),
        (make(RFormerClassifier, **TINY, causal=True), windows_known_of(30), windows_known_of(0)),
    ],
)
def test_a_validation_part_without_targets_is_told_and_the_last_weights_are_kept(
    model, y, held, calibrate
):
    x = walks(30)
    model = clone(model).set_params(epochs=3)
    model.set_params(training__patience=1, training__calibrate=calibrate)
    with pytest.warns(UserWarning, match="no target of the validation part is known"):
        model.fit(x, y, validation_data=(x, held))
    assert [record["valid_loss"] for record in model.history_] == [None] * 3
    alone = clone(model).set_params(validation=0.0).fit(x, y)
    both = [
        m.predict(x) if hasattr(m, "uncertainty") else m.predict_proba(x) for m in (model, alone)
    ]
    np.testing.assert_array_equal(*both)


def test_targets_known_only_where_no_window_is_are_not_known():
    x = [walks(1, length=n)[0] for n in [17] + [5] * 29]  # four windows, and one
    y = np.full((30, 4), np.nan)
    y[0], y[1:, 0] = [0, 1, 0, 1], 1
    held = np.full((5, 4), np.nan)
    held[1:, 2] = 1.0
    options = TINY | {"windows": rf.Windows.by_points(4), "causal": True}
    with pytest.warns(UserWarning, match="no target of the validation part is known"):
        make(RFormerClassifier, **options).fit(x, y, validation_data=(x[:5], held))


def test_series_with_known_targets_are_on_both_sides():
    y = windows_known_of(4)
    for seed in range(6):
        options = TINY | {"causal": True, "epochs": 1, "random_state": seed}
        model = make(RFormerClassifier, **options).fit(walks(30), y)
        assert 0 < (model.validation_index_ < 4).sum() < 4
        assert model.history_[0]["valid_loss"] > 0

"""The training loop: a stopped training resumes bit for bit, draws are repeatable."""

import json

import numpy as np
import pytest
import torch

from roughformer.errors import CheckpointError, InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.train.data import join
from roughformer.train.loop import rate_factor
from roughformer.train.validation import (
    better,
    classification_scores,
    fold_validation,
    regression_scores,
    split_validation,
)
from small import make, make_sine, read_log

TINY = {
    "windows": 5, "d_model": 8, "n_heads": 2, "epochs": 4, "batch_size": 8, "random_state": 3,
    "n_jobs": 1, "spectrum": {"count": 16},
}  # fmt: skip


def data(n=40):
    return make_sine(n, n_classes=3, length=40, seed=1)


def weights(estimator):
    return estimator.predictor_.model.state_dict()


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a) and a.keys() == b.keys()


@pytest.mark.parametrize("drop", [0.0, (0.1, 0.6)])
def test_the_same_seed_gives_the_same_weights_and_another_seed_does_not(drop):
    batch = data()
    one, two = (make(RFormerClassifier, **TINY, drop=drop).fit(batch) for _ in range(2))
    other = make(RFormerClassifier, **(TINY | {"random_state": 4}), drop=drop).fit(batch)
    assert same(weights(one), weights(two))
    assert not same(weights(one), weights(other))


def test_training_leaves_the_users_random_numbers_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    make(RFormerClassifier, **TINY).fit(data())
    assert torch.equal(before, torch.get_rng_state())


class Stop(Exception):
    pass


@pytest.mark.parametrize("drop", [0.0, 0.5])
@pytest.mark.parametrize("after", [1, 3, 7, 11])
def test_a_stopped_training_resumes_bit_for_bit(tmp_path, monkeypatch, drop, after):
    from roughformer.train import loop

    batch = data()
    whole = make(RFormerClassifier, **TINY, drop=drop).fit(batch)
    saves = []
    real = loop.save_state

    def save_then_stop(*args):
        real(*args)
        saves.append(1)
        if len(saves) == after:
            raise Stop

    monkeypatch.setattr(loop, "save_state", save_then_stop)
    monkeypatch.setattr(loop.TrainConfig.model_fields["save_seconds"], "default", 0.0)
    signature = loop.TrainConfig.__signature__  # pydantic makes another one when it rebuilds
    loop.TrainConfig.model_rebuild(force=True)
    try:
        broken = make(RFormerClassifier, **TINY, drop=drop, run_dir=tmp_path)
        with pytest.raises(Stop):
            broken.fit(batch)
    finally:
        monkeypatch.undo()
        loop.TrainConfig.model_rebuild(force=True)
        loop.TrainConfig.__signature__ = signature
    resumed = make(RFormerClassifier, **TINY, drop=drop, run_dir=tmp_path, resume=True).fit(batch)
    assert same(weights(whole), weights(resumed))
    assert whole.predictor_.calibration == resumed.predictor_.calibration
    losses = [[r["train_loss"] for r in m.history_] for m in (whole, resumed)]
    assert losses[0] == losses[1]
    assert [r["epoch"] for r in read_log(tmp_path)] == [1, 2, 3, 4]


def test_resuming_with_other_data_or_options_is_refused(tmp_path):
    make(RFormerClassifier, **TINY, run_dir=tmp_path).fit(data())
    with pytest.raises(CheckpointError, match="other data or another configuration"):
        make(RFormerClassifier, **TINY, run_dir=tmp_path, resume=True).fit(data(41))
    with pytest.raises(CheckpointError, match="other data or another configuration"):
        make(RFormerClassifier, **(TINY | {"epochs": 5}), run_dir=tmp_path, resume=True).fit(data())


def test_resume_needs_a_directory_and_starts_anew_in_an_empty_one(tmp_path):
    with pytest.raises(InputError, match="run_dir"):
        make(RFormerClassifier, **TINY, resume=True).fit(data())
    make(RFormerClassifier, **TINY, run_dir=tmp_path, resume=True).fit(data())


def test_a_finished_run_resumes_to_the_same_model_without_training(tmp_path):
    first = make(RFormerClassifier, **TINY, run_dir=tmp_path).fit(data())
    again = make(RFormerClassifier, **TINY, run_dir=tmp_path, resume=True).fit(data())
    assert same(weights(first), weights(again))
    assert len(again.history_) == 4


def test_the_log_is_json_lines_and_tensorboard_writes_beside_it(tmp_path):
    make(RFormerClassifier, **TINY, run_dir=tmp_path, tensorboard=True).fit(data())
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 4]
    assert list((tmp_path / "tensorboard").iterdir())


def test_the_best_weights_are_kept():
    model = make(RFormerClassifier, **(TINY | {"epochs": 12, "learning_rate": 0.05})).fit(data())
    best = min(r["valid_metric"] for r in model.history_)
    assert best <= model.history_[-1]["valid_metric"]
    held = model.predictor_
    assert held.model.training is False


def test_patience_ends_training_early():
    model = make(RFormerClassifier, **(TINY | {"epochs": 50, "patience": 1, "learning_rate": 1.0}))
    assert len(model.fit(data()).history_) < 50


def test_a_budget_of_time_ends_training():
    model = make(
        RFormerClassifier, **(TINY | {"epochs": 100_000, "patience": None}), max_seconds=0.5
    )
    assert 1 <= len(model.fit(data()).history_) < 100_000


def test_progress_is_plain_lines_when_not_a_terminal(capsys):
    make(RFormerClassifier, **TINY, verbose=1).fit(data())
    error = capsys.readouterr().err
    assert "epoch 4/4" in error
    assert "log_loss" in error
    assert "series/s" in error
    assert "\x1b" not in error


def test_bfloat16_is_accepted_and_float32_after_it():
    half = make(RFormerClassifier, **TINY, precision="bfloat16").fit(data())
    assert np.isfinite(half.predict_proba(data())).all()
    make(RFormerClassifier, **TINY).fit(data())


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(device):
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if available[device]:
        pytest.skip(f"{device} is here")
    with pytest.raises(InputError, match=f"device='{device}'"):
        make(RFormerClassifier, **TINY, device=device).fit(data())


def test_a_diverging_training_says_so():
    with pytest.raises(InputError, match="lower the learning rate"):
        make(
            RFormerRegressor,
            windows=5,
            d_model=8,
            n_heads=2,
            epochs=5,
            learning_rate=1e30,
            spectrum=None,
        ).fit(data(), np.arange(40.0))


@pytest.mark.parametrize("options", [{"jitter": 0.1}, {"channel_dropout": 0.5}, {"warp": 0.2}])
def test_every_augmentation_trains_and_is_repeatable(options):
    batch = make_sine(20, n_classes=2, length=30, seed=0)
    two = batch.values.repeat(2, axis=1)
    from roughformer import SeriesBatch

    wide = SeriesBatch(batch.times, two, batch.offsets, labels=batch.labels)
    first, again = (make(RFormerClassifier, **TINY, **options).fit(wide) for _ in range(2))
    assert same(weights(first), weights(again))
    plain = make(RFormerClassifier, **TINY).fit(wide)
    assert not same(weights(first), weights(plain))


def test_a_few_draws_are_made_once():
    model = make(RFormerClassifier, **TINY, drop=(0.0, 0.5), draws=2).fit(data())
    later = [r["encode_seconds"] for r in model.history_[1:]]
    assert later == [0.0] * len(later)


# The parts


@pytest.mark.parametrize("schedule", ["onecycle", "cosine", "constant"])
def test_rates_are_in_range_and_end_low(schedule):
    rates = [rate_factor(schedule, step, 100) for step in range(100)]
    assert all(0 < r <= 1 for r in rates)
    assert max(rates) > 0.95
    if schedule != "constant":
        assert rates[-1] < 0.01
        assert rates[0] < 0.2
    assert rate_factor(schedule, 0, 1) > 0


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 50])
def test_a_split_covers_everything_once(n, fraction):
    train, valid = split_validation(n, fraction, 0, classes=np.arange(n) % 3)
    assert sorted([*train, *valid]) == list(range(n))
    assert len(train) >= min(n, 1)


def test_groups_are_never_on_both_sides():
    groups = np.repeat(np.arange(10), [1, 9, 2, 8, 3, 7, 4, 6, 5, 5])
    for seed in range(20):
        train, valid = split_validation(50, 0.2, seed, groups=groups)
        assert not set(groups[train]) & set(groups[valid])
        assert 1 <= len(valid) < 50
    with pytest.raises(InputError, match="one group only"):
        split_validation(5, 0.2, 0, groups=np.zeros(5))
    with pytest.raises(InputError, match="each of 5 series"):
        split_validation(5, 0.2, 0, groups=np.zeros(4))


def test_classes_give_their_share_and_single_ones_stay():
    classes = np.array([0] * 50 + [1] * 10 + [2])
    train, valid = split_validation(61, 0.2, 0, classes=classes)
    assert 2 in classes[train]
    assert (classes[valid] == 0).sum() == 10
    assert (classes[valid] == 1).sum() == 2
    assert list(split_validation(61, 0.2, 0, classes=classes)[1]) == list(valid)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_fractions_that_are_none_are_refused(fraction):
    with pytest.raises(InputError, match="validation fraction"):
        split_validation(10, fraction, 0)


def test_scores_of_classes_agree_with_scikit_learn():
    from sklearn import metrics

    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50)
    y = rng.integers(0, 3, 50)
    found = classification_scores(p, y)
    assert found["log_loss"] == pytest.approx(metrics.log_loss(y, p))
    assert found["accuracy"] == metrics.accuracy_score(y, p.argmax(1))
    assert found["balanced_accuracy"] == metrics.balanced_accuracy_score(y, p.argmax(1))
    assert found["auroc"] == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"))
    two = classification_scores(p[:, :2] / p[:, :2].sum(1, keepdims=True), y % 2)
    share = p[:, 1] / p[:, :2].sum(1)
    assert two["auprc"] == pytest.approx(metrics.average_precision_score(y % 2, share))


def test_scores_without_data_or_with_one_class_are_nan_not_errors():
    assert np.isnan(classification_scores(np.zeros((0, 2)), np.zeros(0, int))["accuracy"])
    assert np.isnan(classification_scores(np.full((3, 2), 0.5), np.zeros(3, int))["auroc"])
    assert np.isnan(regression_scores(np.zeros((2, 1)), np.full((2, 1), np.nan))["rmse"])


def test_scores_of_numbers_agree_with_scikit_learn():
    from sklearn import metrics

    rng = np.random.default_rng(0)
    y, p = rng.normal(size=(2, 30, 1))
    found = regression_scores(p, y)
    assert found["rmse"] == pytest.approx(metrics.mean_squared_error(y, p) ** 0.5)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(y, p))
    assert found["r2"] == pytest.approx(metrics.r2_score(y, p))


def test_better_knows_directions_and_nan():
    assert better("accuracy", 0.9, 0.8)
    assert not better("rmse", 0.9, 0.8)
    assert better("rmse", 0.9, None)
    assert not better("rmse", float("nan"), None)
    assert better("rmse", 1.0, float("nan"))


def test_joined_inputs_of_other_lengths_are_padded_and_masked():
    short = {"tokens": torch.ones(2, 3, 4), "times": torch.ones(2, 3)}
    long = {"tokens": torch.ones(1, 5, 4), "times": torch.ones(1, 5)}
    both = join([short, long])
    assert both["tokens"].shape == (3, 5, 4)
    assert both["mask"].sum(dim=1).tolist() == [3, 3, 5]
    assert "mask" not in join([short, short])


# Committees


def test_a_committee_answers_with_the_mean_of_its_members_and_survives_a_disk(tmp_path):
    batch = data()
    model = make(RFormerClassifier, **TINY, n_estimators=3, run_dir=tmp_path / "run").fit(batch)
    committee = model.predictor_.model
    assert len(committee.members) == 3
    inputs = model.predictor_.encoder.encode(batch)
    with torch.no_grad():
        each = [
            (m(**inputs) / t).softmax(dim=-1)
            for m, t in zip(committee.members, committee.temperature, strict=True)
        ]
    expected = torch.stack(each).mean(dim=0).numpy()
    assert np.allclose(model.predict_proba(batch), expected, atol=1e-6)
    again = RFormerClassifier.load(tmp_path / "run" / "model")
    assert np.array_equal(again.predict_proba(batch), model.predict_proba(batch))
    assert model.explain(batch[:1])[0].windows.shape == (5,)
    resumed = make(RFormerClassifier, **TINY, n_estimators=3, run_dir=tmp_path / "run", resume=True)
    assert same(weights(resumed.fit(batch)), weights(model))


def test_every_series_validates_one_member_and_groups_stay_together():
    groups = np.repeat(np.arange(8), 5)
    folds = fold_validation(40, 4, 0, groups=groups)
    assert sorted(np.concatenate([held for _, held in folds])) == list(range(40))
    assert all(not set(groups[a]) & set(groups[b]) for a, b in folds)
    with pytest.raises(InputError, match="members need as many groups"):
        fold_validation(40, 9, 0, groups=groups)
    with pytest.raises(InputError, match="members need at least as many series"):
        fold_validation(2, 3, 0)


@pytest.mark.parametrize("uncertainty", ["none", "gaussian", "quantile"])
def test_numbers_of_a_committee_are_means(uncertainty):
    batch, y = data(), np.arange(40.0)
    options = {k: v for k, v in TINY.items() if k != "epochs"} | {"epochs": 1}
    model = make(RFormerRegressor, **options, n_estimators=2, uncertainty=uncertainty).fit(batch, y)
    assert np.isfinite(model.predict(batch)).all()

"""GRU and ODE-RNN in the estimators."""

import numpy as np
import pytest

from recurrent_cases import series
from roughformer import RFormerClassifier, RFormerRegressor, SeriesBatch
from roughformer.errors import InputError
from small import make

TINY = {"d_model": 8, "n_heads": 2, "batch_size": 16, "random_state": 0, "n_jobs": 1}


def two_classes(n=48, seed=0):
    """Walks that drift up or down, of several lengths, with values missing."""
    batch = series(np.random.default_rng(seed).integers(5, 15, n), missing=0.2, seed=seed)
    y = np.arange(n) % 2
    row = np.repeat(np.arange(n), batch.lengths)
    drift = np.where(y[row] == 1, 0.5, -0.5) * (batch.times - batch.span[0][row])
    return SeriesBatch(batch.times, batch.values + drift[:, None], batch.offsets), y


KINDS = [
    ("gru", {}),
    ("gru", {"fill": "mean"}),
    ("ode-rnn", {}),
    ("ode-rnn", {"solver": "rk4", "substeps": 2}),
    ("transformer", {"fill": "forward"}),
]


@pytest.mark.parametrize(("model", "options"), KINDS)
def test_training_lowers_the_loss_and_a_saved_model_answers_the_same(model, options, tmp_path):
    x, y = two_classes()
    fit = make(RFormerClassifier, model, epochs=8, learning_rate=0.01, **options, **TINY).fit(x, y)
    losses = [record["train_loss"] for record in fit.history_]
    assert losses[-1] < 0.8 * losses[0]
    fit.save(tmp_path / "model")
    again = type(fit).load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(x), fit.predict_proba(x))


@pytest.mark.parametrize("model", ["gru", "ode-rnn"])
def test_causal_models_with_dropping_predict_at_each_sample(model):
    x, y = two_classes(24)
    fit = make(
        RFormerRegressor, model, causal=True, drop=0.5, uncertainty="gaussian", epochs=1, **TINY
    ).fit(x, y.astype(float))
    found = fit.predict_windows(x)
    assert [len(ends) for ends, _ in found] == x.lengths.tolist()


@pytest.mark.parametrize("model", ["gru", "ode-rnn"])
def test_answers_of_a_model_with_a_state_can_be_explained(model):
    x, y = two_classes(24)
    # That a sample has no observation at all cannot be hidden: here each has one.
    values = np.where(np.isnan(x.values).all(axis=1, keepdims=True), 0.0, x.values)
    x = x.with_values(values)
    fit = make(RFormerClassifier, model, epochs=2, dropout=0.0, **TINY).fit(x, y)
    for found in fit.explain(x[:2], n_words=None):
        total = sum(found.words.values())
        assert total == pytest.approx(found.value - found.baseline, abs=0.02)


@pytest.mark.parametrize("model", ["gru", "ode-rnn"])
def test_training_in_bfloat16_is_finite(model):
    x, y = two_classes(24)
    fit = make(RFormerClassifier, model, epochs=1, precision="bfloat16", **TINY).fit(x, y)
    assert np.isfinite(fit.predict_proba(x)).all()


def test_an_adjoint_model_trains_in_the_estimator():
    pytest.importorskip("torchdiffeq")
    x, y = two_classes(16)
    options = {"solver": "euler", "adjoint": True}
    fit = make(RFormerClassifier, "ode-rnn", epochs=1, **options, **TINY).fit(x, y)
    assert np.isfinite(fit.predict_proba(x)).all()


@pytest.mark.parametrize("model", ["gru", "ode-rnn"])
def test_targets_of_each_sample_are_refused_while_samples_are_dropped(model):
    x, _ = two_classes(8)
    y = np.arange(8 * x.lengths.max()).reshape(8, -1) % 2
    with pytest.raises(InputError, match="targets of each sample cannot be used while samples"):
        make(RFormerClassifier, model, causal=True, drop=0.5, epochs=1, **TINY).fit(x, y)

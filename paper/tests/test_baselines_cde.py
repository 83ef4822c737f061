"""Neural CDE: the model, alone and in a batch, causal, trained, saved."""

import numpy as np
import pytest
import torch

import roughformer as rf
from controlled_cases import model_of, walks
from roughformer.errors import InputError
from roughformer_paper import baselines
from roughformer_paper.baselines.neural_cde import PathEncoder

SOLVERS = ["euler", "midpoint", "rk4", "dopri5"]


@pytest.mark.parametrize("options", [
    {}, {"interpolation": "linear"}, {"interpolation": "rectilinear"}, {"max_steps": 4},
])  # fmt: skip
@pytest.mark.parametrize("solver", ["midpoint", "dopri5"])
def test_a_series_has_the_same_answer_alone_and_in_a_ragged_batch(options, solver):
    batch = walks(n=4, missing=0.3, ragged=True)
    encoder = PathEncoder.fit(batch, **options)
    # Adaptive steps are chosen for all series of a batch: they agree up to the tolerance.
    model = model_of(encoder, solver=solver, rtol=1e-6, n_layers=0)
    inputs = encoder.encode(batch)
    with torch.no_grad():
        together = model(**inputs)
        alone = torch.cat([model(**encoder.encode(batch[b])) for b in range(4)])
        # What stands behind the mask is nothing.
        inputs["tokens"][~inputs["mask"]] = torch.nan
        spoiled = model(**inputs)
    tolerance = 1e-5 if solver == "midpoint" else 1e-4
    torch.testing.assert_close(together, alone, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(spoiled, together)


def test_long_series_take_steps_over_several_samples():
    batch = walks(length=13)  # 12 steps
    strides = [PathEncoder.fit(batch, max_steps=n).stride for n in (None, 12, 11, 4, 1)]
    assert strides == [1, 1, 2, 3, 12]
    every_third = PathEncoder.fit(batch, interpolation="linear", max_steps=4)
    # The same as the path through every third sample alone.
    keep = np.tile(np.arange(13) % 3 == 0, 3)
    thin = batch.drop_points(mask=keep)
    model, fine = model_of(every_third), model_of(every_third, stride=1)
    with torch.no_grad():
        torch.testing.assert_close(
            model(**every_third.encode(batch)), fine(**every_third.encode(thin)),
            rtol=1e-5, atol=1e-5,
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["natural", "linear", "rectilinear"])
@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("solver", SOLVERS)
def test_series_of_one_and_two_points_have_answers(kind, length, solver):
    batch = rf.SeriesBatch.from_arrays(
        [np.array([[1.0, np.nan], [2.0, 0.5]])[:length]] * 2, layout="time_first"
    )
    encoder = PathEncoder.fit(batch, interpolation=kind)
    inputs = encoder.encode(batch)
    answer = model_of(encoder, solver=solver)(**inputs)
    assert answer.shape == (2, 3)
    assert answer.isfinite().all()


def test_no_series_have_no_answers():
    batch = walks()
    encoder = PathEncoder.fit(batch)
    answer = model_of(encoder)(**encoder.encode(batch[:0]))
    assert answer.shape == (0, 3)


@pytest.mark.parametrize("solver", ["midpoint", "dopri5"])
def test_a_causal_answer_does_not_know_what_comes_later(solver):
    batch = walks(n=2, length=10, missing=0.3)
    encoder = PathEncoder.fit(batch, interpolation="rectilinear")
    model = model_of(encoder, causal=True, solver=solver, rtol=1e-7)
    changed = np.array(batch.values)
    later = np.tile(np.arange(10) >= 6, 2)
    changed[later] = 5.0
    with torch.no_grad():
        before = model(**encoder.encode(batch))
        after = model(**encoder.encode(batch.with_values(changed)))
    assert before.shape == (2, 10, 3)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=1e-5, atol=1e-5)
    assert (after[:, 6:] - before[:, 6:]).abs().amin(dim=(0, 2)).max() > 1e-4


def test_the_last_causal_answer_is_that_of_the_series():
    batch = walks(n=3, ragged=True)
    encoder = PathEncoder.fit(batch, interpolation="rectilinear")
    inputs = encoder.encode(batch)
    with torch.no_grad():
        every = model_of(encoder, causal=True)(**inputs)
        last = model_of(encoder)(**inputs)
    at = batch.lengths - 1
    torch.testing.assert_close(every[torch.arange(3), torch.from_numpy(at)], last)


def test_static_covariates_change_the_state_at_the_start():
    rng = np.random.default_rng(0)
    batch = rf.SeriesBatch.from_arrays(
        [rng.standard_normal((5, 1)) for _ in range(4)],
        static=np.array([[0.5], [2.5], [np.nan], [1.0]]), static_names=["age"],
    )  # fmt: skip
    encoder = PathEncoder.fit(batch, ("age",))
    assert encoder.static == ("age", "age unknown")
    model, inputs = model_of(encoder), encoder.encode(batch)
    model.fit_scaling(inputs)
    other = inputs | {"static": inputs["static"].roll(1, 0)}
    assert model(**inputs).isfinite().all()
    assert not torch.allclose(model(**other), model(**inputs))
    with pytest.raises(ValueError, match="takes 2 static covariates"):
        model(inputs["tokens"], inputs["times"])


def test_what_cannot_be_is_refused_with_words():
    batch = walks()
    with pytest.raises(InputError, match=r"must be one of natural, linear, rectilinear, got 'cub"):
        PathEncoder.fit(batch, interpolation="cubic")
    for wrong in (0, 2.5, "none"):
        with pytest.raises(InputError, match=r"max_steps \(or None\) must be a whole number >= 1"):
            PathEncoder.fit(batch, max_steps=wrong)
    with pytest.raises(ValueError, match="time_range"):
        PathEncoder.fit(batch, time_range=0)
    with pytest.raises(InputError, match="at least one series"):
        PathEncoder.fit(batch[:0])
    with pytest.raises(InputError, match=r"fitted to the channels \['x0', 'x1'\]"):
        PathEncoder.fit(batch).encode(walks(channels=1))
    with pytest.raises(ValueError, match="does not look ahead, got interpolation 'natural'"):
        model_of(PathEncoder.fit(batch), causal=True)
    with pytest.raises(ValueError, match="dopri5 chooses its steps itself"):
        model_of(PathEncoder.fit(batch), solver="dopri5", substeps=2)
    thin = PathEncoder.fit(batch, interpolation="rectilinear", max_steps=4)
    with pytest.raises(ValueError, match="steps over 3 samples"):
        model_of(thin, causal=True)
    labels = np.arange(3) % 2
    with pytest.raises(InputError, match="does not look ahead"):
        baselines.NeuralCDEClassifier(causal=True, validation=0).fit(batch, labels)


def spirals(n=128, length=24, seed=0):
    """Two classes: turning left and turning right."""
    rng = np.random.default_rng(seed)
    turn = np.arange(n) % 2
    t = np.sort(rng.uniform(0, 1, (n, length)), axis=1)
    angle = 2 * np.pi * (rng.uniform(size=(n, 1)) + (2 * turn - 1)[:, None] * t)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.1 * rng.standard_normal((n, 2, length))
    x[rng.random(x.shape) < 0.2] = np.nan
    return rf.SeriesBatch.from_numpy3d(x, t), turn


@pytest.mark.parametrize("options", [{}, {"interpolation": "rectilinear", "max_steps": None}])
def test_training_lowers_the_loss_and_a_saved_model_answers_the_same(options, tmp_path):
    batch, turn = spirals()
    causal = "interpolation" in options
    classifier = baselines.NeuralCDEClassifier(
        model={"d_model": 12, **options}, epochs=12, training={"batch_size": 16},
        learning_rate=0.01, validation=0.25, random_state=0, causal=causal, n_jobs=1,
    )  # fmt: skip
    classifier.fit(batch, turn)
    losses = [record["train_loss"] for record in classifier.history_]
    assert losses[-1] < 0.75 * losses[0]
    held, truth = spirals(n=60, seed=1)
    assert classifier.score(held, truth) > 0.65  # 0.5 by chance
    classifier.save(tmp_path / "model")
    again = baselines.NeuralCDEClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(held), classifier.predict_proba(held))
    explained = classifier.explain(held[:1])[0]
    assert len(explained.windows) == 24
    assert sum(classifier.explain(held[:1], n_words=None)[0].words.values()) == pytest.approx(
        explained.value - explained.baseline, rel=0.1, abs=0.1
    )
    if causal:
        windows = classifier.predict_windows(held)
        assert [len(when) for when, _ in windows] == held.lengths.tolist()

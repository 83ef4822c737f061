"""Neural CDE: paths against torchcde, solutions against closed forms and torchcde's solver."""

import numpy as np
import pytest
import torch
import torchcde
from torch import nn

import roughformer as rf
from roughformer.baselines import neural_cde
from roughformer.baselines.cde_solver import VectorField, chords, derivative, solve
from roughformer.baselines.neural_cde import NeuralCDE, NeuralCDEConfig, PathEncoder
from roughformer.baselines.splines import natural_pieces
from roughformer.errors import InputError

SOLVERS = ["euler", "midpoint", "rk4", "dopri5"]


class LinearField(nn.Module):
    """dz = Σ_i A_i z dX_i."""

    def __init__(self, matrices):
        super().__init__()
        self.matrices = nn.Parameter(matrices)

    def forward(self, z, dx):
        return torch.einsum("bi,ide,be->bd", dx, self.matrices, z)


def walks(n=3, length=12, channels=2, missing=0.0, seed=0, ragged=False):
    rng = np.random.default_rng(seed)
    arrays, times = [], []
    for b in range(n):
        size = length - (2 * b if ragged else 0)
        x = rng.standard_normal((size, channels)).cumsum(axis=0)
        x[rng.random(x.shape) < missing] = np.nan
        arrays.append(x)
        times.append(np.cumsum(rng.uniform(0.2, 2.0, size)))
    return rf.SeriesBatch.from_arrays(arrays, times)


def model_of(encoder, seed=0, **options):
    torch.manual_seed(seed)
    shape = {"d_model": 6, "n_outputs": 3} | encoder.shape | options
    config = NeuralCDEConfig(n_features=encoder.n_features, n_static=len(encoder.static), **shape)
    return NeuralCDE(config).eval()


def smooth_field(d_model):
    """Without hidden layers, hence without kinks that would spoil the order of a method."""
    torch.manual_seed(0)
    return VectorField(d_model, 2, 1, 0).double()


def linear_pieces(batch_size=2, count=7, channels=2, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return 0.4 * torch.randn(batch_size, count, 1, channels, generator=rng, dtype=torch.float64)


# The solver


@pytest.mark.parametrize("solver", ["rk4", "dopri5"])
def test_commuting_matrices_give_the_exponential_of_the_whole_increment(solver):
    a = torch.tensor([[0.1, 0.7], [-0.7, 0.1]], dtype=torch.float64)
    field = LinearField(torch.stack([a, 0.3 * a @ a]))
    pieces = linear_pieces()
    z0 = torch.tensor([[1.0, 0.5], [-0.3, 2.0]], dtype=torch.float64)
    found = solve(field, z0, pieces, solver=solver, substeps=16, rtol=1e-10, atol=1e-12)
    total = torch.einsum("bi,ide->bde", pieces.sum(dim=(1, 2)), field.matrices)
    wanted = (torch.matrix_exp(total) @ z0.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("solver", "substeps", "error"),
    [("euler", 500, 2e-2), ("midpoint", 100, 1e-4), ("rk4", 32, 1e-7), ("dopri5", 1, 1e-7)],
)
def test_other_matrices_give_the_product_of_the_exponentials_of_the_pieces(solver, substeps, error):
    matrices = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(1)).double()
    field, pieces = LinearField(matrices), linear_pieces(count=4)
    z0 = torch.ones(2, 3, dtype=torch.float64)
    with torch.no_grad():
        found = solve(
            field, z0, pieces, solver=solver, substeps=substeps, rtol=1e-9, atol=1e-11, every=True
        )
    z, wanted = z0, [z0]
    for k in range(4):
        step = torch.einsum("bi,ide->bde", pieces[:, k, 0], matrices)
        z = (torch.matrix_exp(step) @ z.unsqueeze(-1)).squeeze(-1)
        wanted.append(z)
    torch.testing.assert_close(found, torch.stack(wanted, dim=1), rtol=error, atol=error)


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_errors_of_fixed_steps_fall_with_the_order_of_the_method(solver, order):
    field = smooth_field(4)
    pieces = torch.randn(1, 3, 3, 2, dtype=torch.float64)  # cubic, smooth within a piece
    z0 = torch.randn(1, 4, dtype=torch.float64)
    with torch.no_grad():
        exact = solve(field, z0, pieces, solver="rk4", substeps=200)
        coarse, fine = (
            (solve(field, z0, pieces, solver=solver, substeps=n) - exact).norm() for n in (16, 32)
        )
    assert float(torch.log2(coarse / fine)) == pytest.approx(order, abs=0.4)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_the_solution_is_that_of_torchcde(missing):
    batch = walks(n=1, length=7, missing=missing)
    time, values = batch.series(0)
    time = torch.from_numpy(time - time[0])
    coefficients = torchcde.natural_cubic_coeffs(
        torch.from_numpy(np.array(values)).unsqueeze(0), time
    )
    field = smooth_field(5)
    z0 = torch.randn(1, 5, dtype=torch.float64)

    def as_torchcde_takes_it(_, z):
        return field.layers(z).view(-1, 2, 5).transpose(1, 2)

    with torch.no_grad():
        wanted = torchcde.cdeint(
            torchcde.CubicSpline(coefficients, time), as_torchcde_takes_it, z0, time[[0, -1]],
            adjoint=False, method="dopri5", rtol=1e-9, atol=1e-11,
        )[:, -1]  # fmt: skip
        pieces = natural_pieces(time.numpy(), values, batch.offsets)[1:]
        pieces = torch.from_numpy(pieces).unsqueeze(0)
        for options in ({"solver": "rk4", "substeps": 40}, {"solver": "dopri5", "rtol": 1e-9}):
            found = solve(field, z0, pieces, atol=1e-11, **options)
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("solver", ["rk4", "dopri5"])
def test_the_gradient_of_the_adjoint_is_the_direct_one(solver):
    field = smooth_field(3)
    pieces = torch.cat([linear_pieces(count=4), linear_pieces(count=4, seed=1)], dim=2)
    start = torch.randn(2, 3, dtype=torch.float64)
    found = []
    for adjoint in (False, True):
        z0 = start.clone().requires_grad_()
        z = solve(
            field, z0, pieces, solver=solver, substeps=20, adjoint=adjoint, rtol=1e-9, atol=1e-11
        )
        found.append(torch.autograd.grad(z.square().sum(), [z0, *field.parameters()]))
    for direct, backwards in zip(*found, strict=True):
        torch.testing.assert_close(backwards, direct, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("solver", ["euler", "midpoint", "rk4"])
def test_gradients_are_those_of_differences(solver, order):
    torch.manual_seed(0)
    field = VectorField(2, 2, 3, 1).double()
    pieces = torch.randn(1, 2, order, 2, dtype=torch.float64, requires_grad=True)
    z0 = torch.randn(1, 2, dtype=torch.float64, requires_grad=True)
    weights = list(field.parameters())
    names = [name for name, _ in field.named_parameters()]

    def run(z0, pieces, *weights):
        def bound(z, dx):
            return torch.func.functional_call(
                field, dict(zip(names, weights, strict=True)), (z, dx)
            )

        return solve(bound, z0, pieces, solver=solver, every=True)

    assert torch.autograd.gradcheck(run, (z0, pieces, *weights))


@pytest.mark.parametrize("solver", ["euler", "midpoint", "rk4"])
@pytest.mark.parametrize("n_layers", [0, 1, 2])
@pytest.mark.parametrize("every", [False, True])
def test_steps_by_hand_are_those_of_autograd(solver, n_layers, every):
    torch.manual_seed(0)
    field = VectorField(4, 2, 5, n_layers).double()
    pieces = torch.randn(3, 4, 3, 2, dtype=torch.float64)
    start, weight = torch.randn(3, 4).double(), torch.randn(3, *([5] if every else []), 4)
    found = []
    for how in (field, lambda z, dx: field(z, dx)):  # only the field itself goes by hand
        z0 = start.clone().requires_grad_()
        z = solve(how, z0, pieces, solver=solver, substeps=2, every=every)
        grads = torch.autograd.grad((z * weight).sum(), [z0, *field.parameters()])
        found.append([z, *grads])
    for by_hand, by_autograd in zip(*found, strict=True):
        torch.testing.assert_close(by_hand, by_autograd)
    with torch.no_grad():
        torch.testing.assert_close(
            solve(field, start, pieces, solver=solver, substeps=2, every=every), found[0][0]
        )


def test_the_speed_at_which_a_path_is_passed_does_not_matter():
    field = smooth_field(4)
    pieces, z0 = linear_pieces(), torch.randn(2, 4, dtype=torch.float64)
    share = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)
    # Each line in three uneven parts: the same path, slow and fast.
    parts = (pieces.unsqueeze(2) * share[:, None, None]).flatten(1, 2)
    # And each line as a cubic s -> 3 s² - 2 s³ of its parameter.
    eased = torch.cat([0 * pieces, 6 * pieces, -6 * pieces], dim=2)
    with torch.no_grad():
        ends = [solve(field, z0, p, solver="rk4", substeps=40) for p in (pieces, parts, eased)]
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(ends[2], ends[0], rtol=1e-7, atol=1e-7)


def test_chords_have_the_increments_of_what_they_replace():
    pieces = torch.randn(2, 7, 3, 2, dtype=torch.float64)
    s = torch.linspace(0, 1, 2001, dtype=torch.float64)
    rises = torch.stack(
        [torch.trapezoid(torch.stack([derivative(p, x) for x in s]), s, dim=0) for p in pieces]
    )
    by_three = chords(pieces, 3)
    assert by_three.shape == (2, 3, 1, 2)
    torch.testing.assert_close(chords(pieces)[:, :, 0], rises, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(by_three[:, 1, 0], rises[:, 3:6].sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(by_three[:, 2, 0], rises[:, 6], rtol=1e-5, atol=1e-5)


# Paths


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("length", [2, 3, 15])
def test_natural_splines_are_those_of_torchcde(missing, length):
    batch = walks(n=6, length=length, channels=3, missing=missing, seed=length)
    pieces = natural_pieces(batch.times, batch.values, batch.offsets)
    for b in range(len(batch)):
        time, values = batch.series(b)
        t = torch.from_numpy(np.array(time))
        spline = torchcde.CubicSpline(
            torchcde.natural_cubic_coeffs(torch.from_numpy(np.array(values)), t), t
        )
        own = torch.from_numpy(pieces[batch.offsets[b] : batch.offsets[b + 1]])
        assert (own[0] == 0).all()
        value = spline.evaluate(t[0])
        for k in range(1, len(time)):
            gap = time[k] - time[k - 1]
            for s in (0.0, 0.3, 0.999):
                at = t[k - 1] + s * gap
                slope = derivative(own[k], s) / gap
                if k > 1 or s > 0:
                    torch.testing.assert_close(slope, spline.derivative(at), rtol=1e-7, atol=1e-7)
                rise = own[k, 0] * s + own[k, 1] * s**2 / 2 + own[k, 2] * s**3 / 3
                torch.testing.assert_close(value + rise, spline.evaluate(at), rtol=1e-7, atol=1e-7)
            value = value + own[k, 0] + own[k, 1] / 2 + own[k, 2] / 3


def test_splines_of_long_ragged_batches_do_not_mix_series():
    batch = walks(n=5, length=40, missing=0.3, ragged=True)
    whole = natural_pieces(batch.times, batch.values, batch.offsets)
    for b in range(5):
        one = batch[b]
        alone = natural_pieces(one.times, one.values, one.offsets)
        there = whole[batch.offsets[b] : batch.offsets[b + 1]]
        np.testing.assert_allclose(there, alone, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["linear", "rectilinear"])
def test_lines_are_those_of_torchcde(kind):
    batch = walks(n=1, length=9, missing=0.4)
    values = np.array(batch.values)
    values[0] = [1.0, -1.0]  # torchcde cannot fill forward from nothing
    batch = batch.with_values(values)
    encoder = PathEncoder.fit(batch, interpolation=kind, counts=False)
    tokens = encoder.encode(batch)["tokens"]
    scaled = (values - np.array(encoder.mean)) / np.array(encoder.scale)
    time = 10 * (batch.times - batch.times[0]) / encoder.time_unit
    path = torch.from_numpy(np.column_stack([time, scaled])).unsqueeze(0)
    if kind == "linear":
        knots = torchcde.linear_interpolation_coeffs(path, torch.from_numpy(time))
    else:
        knots = torchcde.linear_interpolation_coeffs(path, rectilinear=0)
    torch.testing.assert_close(tokens[:, 0], knots[:, 0].float())
    pieces = model_of(encoder).pieces(tokens[:, 1:])[:, :, 0]
    torch.testing.assert_close(pieces, knots.diff(dim=1).float())


def test_counts_tell_how_often_a_channel_was_observed():
    values = np.array([[1.0, np.nan], [np.nan, np.nan], [2.0, 1.0], [3.0, np.nan]])
    batch = rf.SeriesBatch.from_arrays([values])
    encoder = PathEncoder.fit(batch, interpolation="linear")
    assert encoder.path_names == ("time", "x0", "x1", "#x0", "#x1")
    steps = encoder.encode(batch)["tokens"][0, :, 3:] * 4  # in units of the usual length
    assert steps.tolist() == [[0, 0], [0, 0], [1, 1], [1, 0]]
    assert not PathEncoder.fit(batch, counts=False).counts
    assert not PathEncoder.fit(walks()).counts


@pytest.mark.parametrize("kind", ["natural", "linear", "rectilinear"])
def test_a_channel_that_is_never_observed_stays_at_the_mean(kind):
    batch = walks(n=2, missing=0.2)
    values = np.array(batch.values)
    values[:12, 1] = np.nan
    encoder = PathEncoder.fit(batch, interpolation=kind, counts=True)
    tokens = encoder.encode(batch.with_values(values))["tokens"][0]
    assert (tokens[:, [i for i, name in enumerate(encoder.names) if "x1" in name]] == 0).all()


@pytest.mark.parametrize("kind", ["natural", "linear", "rectilinear"])
def test_parts_of_a_batch_are_encoded_as_the_whole(kind, monkeypatch):
    batch = walks(n=5, missing=0.2, ragged=True)
    encoder = PathEncoder.fit(batch, interpolation=kind)
    whole = encoder.encode(batch)
    monkeypatch.setattr(neural_cde, "blocks", lambda offsets: [(0, 2), (2, 3), (3, 5)])
    for name, part in encoder.encode(batch).items():
        torch.testing.assert_close(part, whole[name])


def test_dropping_points_is_the_same_wherever_a_batch_is_cut():
    batch = walks(n=4, length=20, missing=0.2)
    encoder = PathEncoder.fit(batch)
    whole = encoder.encode(batch, drop=0.5, seed=3)
    part = encoder.encode(batch[2:], drop=0.5, seed=3, series=[2, 3])
    assert whole["tokens"].shape[1] == 10
    torch.testing.assert_close(part["tokens"], whole["tokens"][2:], rtol=1e-6, atol=1e-6)


def test_the_scale_of_the_values_does_not_matter():
    batch = walks(missing=0.2)
    moved = batch.with_values(1e5 + 30 * batch.values).with_times(1e9 + 4 * batch.times)
    found = [PathEncoder.fit(b).encode(b)["tokens"] for b in (batch, moved)]
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


# The model


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
    batch = rf.SeriesBatch.from_arrays([np.array([[1.0, np.nan], [2.0, 0.5]])[:length]] * 2)
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
    with pytest.raises(InputError, match="max_steps must be"):
        PathEncoder.fit(batch, max_steps=0)
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
        rf.RFormerClassifier(model="neural-cde", causal=True, validation=0).fit(batch, labels)


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
    classifier = rf.RFormerClassifier(
        model="neural-cde", model_options=options, d_model=12, epochs=12, batch_size=16,
        learning_rate=0.01, validation=0.25, random_state=0, causal=causal, n_jobs=1,
    )  # fmt: skip
    classifier.fit(batch, turn)
    losses = [record["train_loss"] for record in classifier.history_]
    assert losses[-1] < 0.75 * losses[0]
    held, truth = spirals(n=60, seed=1)
    assert classifier.score(held, truth) > 0.65  # 0.5 by chance
    classifier.save(tmp_path / "model")
    again = rf.RFormerClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(held), classifier.predict_proba(held))
    explained = classifier.explain(held[:1])[0]
    assert len(explained.windows) == 24
    assert sum(classifier.explain(held[:1], n_words=None)[0].words.values()) == pytest.approx(
        explained.value - explained.baseline, rel=0.1, abs=0.1
    )
    if causal:
        windows = classifier.predict_windows(held)
        assert [len(when) for when, _ in windows] == held.lengths.tolist()

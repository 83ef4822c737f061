"""Neural RDE: the log-ODE method against the equation it stands for."""

import numpy as np
import pytest
import torch
from torch import nn

import controlled_cases
import roughformer as rf
from roughformer.errors import InputError
from roughformer.signatures.words import bracket, lyndon_count, lyndon_words
from roughformer_paper import baselines
from roughformer_paper.baselines.cde_solver import solve
from roughformer_paper.baselines.neural_cde import NeuralCDE, NeuralCDEConfig, PathEncoder
from roughformer_paper.baselines.neural_rde import LogSignatureEncoder, NeuralRDE, NeuralRDEConfig


def walks(length=33, **options):
    return controlled_cases.walks(length=length, shorter=4, **options)


def model_of(encoder, seed=0, **options):
    torch.manual_seed(seed)
    shape = {"d_model": 6, "n_outputs": 3} | encoder.shape | options
    config = NeuralRDEConfig(n_features=encoder.n_features, n_static=len(encoder.static), **shape)
    return NeuralRDE(config).eval()


class BracketField(nn.Module):
    """What drives a linear equation dz = Σ_i A_i z dX_i along a log-signature: each Lyndon bracket
    with the A_i in place of its letters, later letters to the left.
    """

    def __init__(self, matrices, depth):
        super().__init__()
        found = []
        for word in lyndon_words(len(matrices), depth):
            total = torch.zeros_like(matrices[0])
            for letters, coefficient in bracket(word).items():
                product = torch.eye(matrices.shape[1], dtype=matrices.dtype)
                for letter in letters:
                    product = matrices[letter] @ product
                total = total + coefficient * product
            found.append(total)
        self.matrices = torch.stack(found)

    def forward(self, z, dx):
        return torch.einsum("bw,wde,be->bd", dx, self.matrices, z)


def test_deeper_log_signatures_come_closer_to_the_solution_over_large_steps():
    batch = walks(n=4, length=65)
    matrices = 0.4 * torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    z0 = torch.ones(4, 3, dtype=torch.float64)
    steps = (
        LogSignatureEncoder.fit(batch, step=1, depth=1, time_range=1)
        .encode(batch)["tokens"]
        .double()
    )
    exact = z0
    for k in range(1, 65):
        flow = torch.einsum("bi,ide->bde", steps[:, k], matrices)
        exact = (torch.matrix_exp(flow) @ exact.unsqueeze(-1)).squeeze(-1)
    errors = []
    for depth in (1, 2, 3):
        encoder = LogSignatureEncoder.fit(batch, step=8, depth=depth, time_range=1)
        moves = encoder.encode(batch)["tokens"][:, 1:].double()
        field = BracketField(matrices, depth)
        found = solve(field, z0, moves.unsqueeze(2), solver="rk4", substeps=8)
        errors.append(float((found - exact).norm() / exact.norm()))
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] < 0.5 * errors[1]


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("solver", ["euler", "midpoint", "rk4"])
def test_step_one_and_depth_one_are_a_neural_cde_with_a_linear_path(counts, solver):
    batch = walks(missing=0.3, ragged=True)
    lines = PathEncoder.fit(batch, interpolation="linear", counts=counts)
    words = LogSignatureEncoder.fit(batch, step=1, depth=1, counts=counts)
    cde_inputs, rde_inputs = lines.encode(batch), words.encode(batch)
    for name in ("tokens", "mask"):
        torch.testing.assert_close(rde_inputs[name], cde_inputs[name], rtol=1e-4, atol=1e-5)
    rde = model_of(words, solver=solver)
    rde.fit_scaling(rde_inputs)
    config = NeuralCDEConfig(
        n_features=lines.n_features, d_model=6, n_outputs=3, solver=solver, **lines.shape
    )
    cde = NeuralCDE(config).eval()
    assert (rde.standardize.scale == 1).all()
    cde.load_state_dict(rde.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(rde(**rde_inputs), cde(**cde_inputs), rtol=1e-4, atol=1e-4)


def test_tokens_are_the_log_signatures_of_windows_of_observations():
    batch = walks(n=2, length=12, missing=0.2)
    encoder = LogSignatureEncoder.fit(batch, step=4, depth=3, counts=False)
    tokens = encoder.encode(batch)["tokens"]
    assert tokens.shape == (2, 4, encoder.n_features)  # X(t_0) and windows of 4, 4 and 3 steps
    assert len(encoder.names) == len(encoder.feature_channels()) == encoder.n_features
    scaled = batch.with_values((batch.values - np.array(encoder.mean)) / np.array(encoder.scale))
    for b in range(2):
        time = 10 * (batch[b].times - batch[b].times[0]) / encoder.time_unit
        path = np.column_stack([time, rf.fill_gaps(scaled[b])])
        np.testing.assert_allclose(tokens[b, 0, :3], path[0], rtol=1e-5, atol=1e-6)
        assert (tokens[b, 0, 3:] == 0).all()
        for k, (low, high) in enumerate([(0, 5), (4, 9), (8, 12)]):
            wanted = rf.logsignature(rf.SeriesBatch.from_arrays([path[low:high]]), 3)[0]
            np.testing.assert_allclose(tokens[b, k + 1], wanted, rtol=1e-4, atol=1e-5)


def test_levels_have_the_same_size_after_scaling():
    batch = walks(n=8, ragged=True)
    encoder = LogSignatureEncoder.fit(batch, step=4, depth=3)
    inputs = encoder.encode(batch)
    model = model_of(encoder)
    model.fit_scaling(inputs)
    real = inputs["mask"][:, 1:]
    moves = model.standardize(inputs["tokens"])[:, 1:][real]
    sizes = [moves[:, low:high].square().mean() for low, high in [(0, 3), (3, 6), (6, 14)]]
    torch.testing.assert_close(torch.stack(sizes), sizes[0].expand(3), rtol=1e-4, atol=0)
    torch.testing.assert_close(moves[:, :3], inputs["tokens"][:, 1:, :3][real])


def test_dropping_points_is_the_same_wherever_a_batch_is_cut():
    batch = walks(n=4, missing=0.2)
    encoder = LogSignatureEncoder.fit(batch, step=4)
    whole = encoder.encode(batch, drop=0.5, seed=3)
    part = encoder.encode(batch[2:], drop=0.5, seed=3, series=[2, 3])
    kept = batch.drop_points(0.5, seed=3)
    assert whole["tokens"].shape[1] == encoder.n_positions(kept) < encoder.n_positions(batch)
    torch.testing.assert_close(part["tokens"], whole["tokens"][2:], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(encoder.encode(kept)["tokens"], whole["tokens"])


@pytest.mark.parametrize("solver", ["rk4", "dopri5"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_series_has_the_same_answer_alone_and_in_a_ragged_batch(solver, depth):
    batch = walks(n=4, missing=0.3, ragged=True)
    encoder = LogSignatureEncoder.fit(batch, step=4, depth=depth)
    model, inputs = model_of(encoder, solver=solver, rtol=1e-6, n_layers=0), encoder.encode(batch)
    model.fit_scaling(inputs)
    with torch.no_grad():
        together = model(**inputs)
        alone = torch.cat([model(**encoder.encode(batch[b])) for b in range(4)])
        inputs["tokens"][~inputs["mask"]] = torch.nan
        spoiled = model(**inputs)
    torch.testing.assert_close(together, alone, rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(spoiled, together)


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("solver", ["rk4", "dopri5"])
def test_series_of_one_and_two_points_have_answers(length, solver):
    batch = rf.SeriesBatch.from_arrays(
        [np.array([[1.0, 0.3], [2.0, 0.5]])[:length]] * 2, layout="time_first"
    )
    encoder = LogSignatureEncoder.fit(batch)
    model, inputs = model_of(encoder, solver=solver), encoder.encode(batch)
    model.fit_scaling(inputs)
    answer = model(**inputs)
    assert answer.shape == (2, 3)
    assert answer.isfinite().all()
    assert model(**encoder.encode(batch[:0])).shape == (0, 3)


def test_the_gradient_of_the_adjoint_is_the_direct_one():
    batch = walks(missing=0.2)
    encoder = LogSignatureEncoder.fit(batch, time_range=1)
    inputs = encoder.encode(batch)
    inputs = {name: x.double() for name, x in inputs.items()}
    found = []
    for adjoint in (False, True):
        model = model_of(encoder, adjoint=adjoint, substeps=16, n_layers=0).double()
        loss = model(**inputs).square().sum()
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    for direct, backwards in zip(*found, strict=True):
        torch.testing.assert_close(backwards, direct, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_is_refused_with_words():
    batch = walks()
    with pytest.raises(InputError, match=r"step must be .* got 0"):
        LogSignatureEncoder.fit(batch, step=0)
    with pytest.raises(InputError, match=r"depth must be .* got 0"):
        LogSignatureEncoder.fit(batch, depth=0)
    with pytest.raises(InputError, match="at least one series"):
        LogSignatureEncoder.fit(batch[:0])
    with pytest.raises(InputError, match=r"fitted to the channels"):
        LogSignatureEncoder.fit(batch).encode(walks(channels=1))
    with pytest.raises(ValueError, match="answers once for a series"):
        model_of(LogSignatureEncoder.fit(batch), causal=True)
    with pytest.raises(ValueError, match=r"depth 12 of 5 channels .* words, .* a smaller depth"):
        NeuralRDEConfig(n_features=lyndon_count(5, 12), n_channels=5, depth=12, n_outputs=2)


def test_training_lowers_the_loss_and_a_saved_model_answers_the_same(tmp_path):
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 1, (64, 40)), axis=1)
    speed = rng.uniform(1, 3, 64)
    x = np.sin(2 * np.pi * (speed[:, None] * t + rng.uniform(size=(64, 1))))[:, None]
    x[rng.random(x.shape) < 0.2] = np.nan
    batch = rf.SeriesBatch.from_numpy3d(x, t)
    regressor = baselines.NeuralRDERegressor(
        model={"step": 4, "depth": 2, "d_model": 12}, epochs=20,
        training={"batch_size": 16}, learning_rate=0.01, validation=0.25, drop=(0.0, 0.3),
        random_state=0, n_jobs=1,
    )  # fmt: skip
    regressor.fit(batch, speed)
    losses = [record["train_loss"] for record in regressor.history_]
    assert losses[-1] < 0.9 * losses[0]
    regressor.save(tmp_path / "model")
    again = baselines.NeuralRDERegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(batch), regressor.predict(batch))
    assert again.predictor_.encoder.step == 4
    explained = regressor.explain(batch[:2])[0]
    assert len(explained.windows) == 1 + 10  # the first point, and windows of 4 steps of 39
    assert explained.window_edges[[0, 1, -1]].tolist() == t[0, [0, 0, -1]].tolist()

"""GRU and ODE-RNN against torch, torchdiffeq, closed forms and themselves."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from recurrent_cases import NAN, both_models, double, fitted, gru, ode_rnn, series
from roughformer import SeriesBatch
from roughformer_paper.baselines import (
    ODERNN,
    ForwardEncoder,
    GRUConfig,
    ODERNNConfig,
    SampleEncoder,
    StateSpaceConfig,
)
from roughformer_paper.baselines.gru_states import _evolve, _maps, gru_states, runge_kutta
from roughformer_paper.baselines.ode_rnn import _with_stops
from roughformer_paper.baselines.samples import gaps_of_samples

# The recurrence


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 150])
def test_states_and_gradients_are_those_of_torch(length):
    torch.manual_seed(length)
    theirs = nn.GRU(3, 4).double()
    x = torch.randn(length, 2, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(length, 2, 4, dtype=torch.float64)
    results = []
    for states in (theirs(x)[0], gru_states(x, tuple(theirs.parameters()))):
        slopes = torch.autograd.grad((states * weight).sum(), [x, *theirs.parameters()])
        results.append([states, *slopes])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("solver", "substeps"), [("euler", 1), ("rk4", 1), ("midpoint", 2)])
@pytest.mark.parametrize("hidden", [1, 2])
def test_gradients_of_the_recurrence_are_right(solver, substeps, hidden):
    torch.manual_seed(0)
    length, batch, d = 3, 2, 2
    sizes = [(3 * d, 2), (3 * d, d), (3 * d,), (3 * d,), (3, d), (3,)]
    sizes += [(3, 3), (3,)] * (hidden - 1) + [(d, 3), (d,)]
    weights = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in sizes]
    x = torch.randn(length, batch, 2, dtype=torch.float64, requires_grad=True)
    gap = torch.rand(length, batch, dtype=torch.float64, requires_grad=True)
    hold = torch.tensor([[False, False], [True, False], [False, False]])

    def run(x, gap, *weights):
        method = runge_kutta(solver, substeps)
        return gru_states(x, weights[:4], hold=hold, gap=gap, field=weights[4:], method=method)

    assert torch.autograd.gradcheck(run, (x, gap, *weights))


def test_substeps_are_steps_over_parts_of_the_gap():
    torch.manual_seed(0)
    model, _, _ = fitted(ode_rnn, SampleEncoder, series(), d_model=4)
    h, gap = torch.randn(3, 4, dtype=torch.float64), torch.rand(3, 1, dtype=torch.float64)
    for solver in ("euler", "midpoint", "rk4"):
        # A cell that holds shows where the ODE alone goes.
        def moved(h, gap, substeps, solver=solver):
            maps = _maps(tuple(model.field.parameters()))
            return _evolve(h, gap, maps, runge_kutta(solver, substeps)).end

        y = h
        for _ in range(3):
            y = moved(y, gap / 3, 1)
        torch.testing.assert_close(moved(h, gap, 3), y, rtol=1e-12, atol=1e-12)


# GRU


def test_gru_is_torchs_gru_on_the_same_features():
    model, inputs, _ = fitted(gru, ForwardEncoder, series((6, 6)), n_layers=2)
    states = model.gru(model.standardize(inputs["tokens"]).transpose(0, 1))[0]
    torch.testing.assert_close(model(**inputs), model.head(states[-1]))


def test_gru_needs_a_layer():
    with pytest.raises(ValidationError, match="n_layers"):
        GRUConfig(n_features=3, n_outputs=2, n_layers=0)


# ODE-RNN


def cell_states(model, inputs, evolve):
    """The last states of an ODE-RNN, sample by sample and series by series."""
    found = []
    c = model.config.n_channels
    features = model.standardize(inputs["tokens"])[..., : 2 * c]
    lengths = inputs["mask"].sum(dim=1) if "mask" in inputs else [features.shape[1]] * len(features)
    for b, length in enumerate(lengths):
        h = features.new_zeros(1, model.config.d_model)
        for t in range(int(length)):
            if t:
                gap = inputs["times"][b, t] - inputs["times"][b, t - 1]
                h = evolve(h, model.config.time_range * gap)
            if inputs["tokens"][b, t, c : 2 * c].any():
                h = model.cell(features[b, t : t + 1], h)
        found.append(h[0])
    return torch.stack(found)


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_ode_rnn_that_does_not_move_is_a_gru_cell(missing):
    model, inputs, _ = fitted(ode_rnn, SampleEncoder, series(missing=missing))
    with torch.no_grad():
        for weight in model.field[-1].parameters():
            weight.zero_()
    wanted = model.head(cell_states(model, inputs, lambda h, gap: h))
    torch.testing.assert_close(model(**inputs), wanted)


def test_ode_rnn_moves_by_the_matrix_exponential_if_linear():
    options = {"solver": "dopri5", "rtol": 1e-10, "atol": 1e-12}
    batch = series((4, 2), missing=0.4)
    model, inputs, _ = fitted(ode_rnn, SampleEncoder, batch, **options)
    matrix = torch.randn(5, 5, dtype=torch.float64)
    model.field = nn.Sequential(nn.Linear(5, 5, bias=False)).double()
    with torch.no_grad():
        model.field[0].weight.copy_(matrix)
        found = model(**inputs)
        wanted = cell_states(model, inputs, lambda h, gap: h @ torch.matrix_exp(matrix * gap).T)
        torch.testing.assert_close(found, model.head(wanted), rtol=1e-7, atol=1e-7)


def answer_and_slopes(model, inputs):
    inputs = inputs | {"tokens": inputs["tokens"].clone().requires_grad_()}
    output = model(**inputs)
    weights = [p for p in model.parameters() if p.requires_grad]
    return [output, *torch.autograd.grad(output.square().sum(), [inputs["tokens"], *weights])]


def like(model, **options):
    """The same weights under other options."""
    other = ODERNN(model.config.model_copy(update=options)).double().eval()
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("solver", ["euler", "midpoint", "rk4"])
@pytest.mark.parametrize("substeps", [1, 2])
def test_own_solvers_are_those_of_torchdiffeq(solver, substeps):
    pytest.importorskip("torchdiffeq")
    options = {"solver": solver, "substeps": substeps, "n_layers": 2, "d_hidden": 3}
    options["max_step"] = None
    model, inputs, _ = fitted(ode_rnn, SampleEncoder, series(missing=0.4), **options)
    own = answer_and_slopes(model, inputs)

    def states(features, tokens, times, mask):
        gap = model.config.time_range * tokens[..., 4].detach()
        hold = (tokens[..., 2:4] == 0).all(dim=-1) | ~mask
        parts = (features[..., :4], gap, hold)
        return model._solved(*(part.transpose(0, 1) for part in parts)).transpose(0, 1)

    model.states = states
    for one, other in zip(own, answer_and_slopes(model, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_gradients_by_the_adjoint_are_the_direct_ones():
    tight = {"solver": "dopri5", "rtol": 1e-9, "atol": 1e-11}
    model, inputs, _ = fitted(ode_rnn, SampleEncoder, series((5, 3), missing=0.2), **tight)
    direct = answer_and_slopes(model, inputs)
    adjoint = answer_and_slopes(like(model, adjoint=True), inputs)
    for one, other in zip(direct, adjoint, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_solvers_agree_when_steps_are_small():
    small = {"solver": "rk4", "substeps": 8, "time_range": 1.0}
    model, inputs, _ = fitted(ode_rnn, SampleEncoder, series(), **small)
    exact = like(model, solver="dopri5", substeps=1, rtol=1e-9, atol=1e-11)(**inputs)
    torch.testing.assert_close(model(**inputs), exact, rtol=1e-6, atol=1e-7)
    errors = [
        float((like(model, solver="euler", substeps=n)(**inputs) - exact).abs().max().detach())
        for n in (16, 32)
    ]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)  # of first order


def test_gaps_matter_to_an_ode_rnn():
    batch = series()
    model, inputs, encoder = fitted(ode_rnn, SampleEncoder, batch)

    def at(times):
        moved = SeriesBatch(times, batch.values, batch.offsets, channels=batch.channels)
        return model(**double(encoder.encode(moved)))

    assert (at(batch.times * 2) - model(**inputs))[:2].abs().min() > 1e-4
    torch.testing.assert_close(at(batch.times + 4), model(**inputs))  # not when it began


def test_a_sample_without_observations_moves_the_state_but_is_no_sample():
    times = [0.0, 1.0, 2.0, 4.0]
    values = np.array([[1.0], [2.0], [NAN], [3.0]])
    batch = SeriesBatch.from_arrays([values], [times])
    small = {"solver": "rk4", "substeps": 8, "time_range": 1.0}
    model, inputs, encoder = fitted(ode_rnn, SampleEncoder, batch, **small)
    without = SeriesBatch.from_arrays([values[[0, 1, 3]]], [[0.0, 1.0, 4.0]])
    fewer = double(encoder.encode(without))
    # Exact solutions would be equal: f does not depend on time.
    torch.testing.assert_close(model(**inputs), model(**fewer), rtol=1e-6, atol=1e-6)


def stops(batch, share, unit):
    """The same series with samples without observations in gaps longer than that share of the time
    since they began, or of ``unit`` if that is longer.
    """
    values, times = [], []
    for b in range(len(batch)):
        own = slice(*batch.offsets[b : b + 2])
        rows, at = [batch.values[own][0]], [batch.times[own][0]]
        for value, time in zip(batch.values[own][1:], batch.times[own][1:], strict=True):
            before = at[-1]
            parts = int(np.ceil((time - before) / (share * max(unit, time - at[0]))))
            at += [before + (time - before) * k / parts for k in range(1, parts + 1)]
            rows += [np.full_like(value, NAN)] * (parts - 1) + [value]
        values.append(np.array(rows))
        times.append(np.array(at))
    return SeriesBatch.from_arrays(values, times)


@pytest.mark.parametrize("solver", ["euler", "rk4"])
def test_long_gaps_are_cut_as_by_samples_without_observations(solver):
    batch = series((7, 4, 1, 12), missing=0.3)
    options = {"solver": solver, "max_step": 0.1}
    model, inputs, encoder = fitted(ode_rnn, SampleEncoder, batch, **options)
    cut = double(encoder.encode(stops(batch, 0.1, encoder.time_unit)))
    assert cut["tokens"].shape[1] > inputs["tokens"].shape[1]
    plain = like(model, max_step=None)
    torch.testing.assert_close(model(**inputs), plain(**cut), rtol=1e-6, atol=1e-6)
    assert (model(**inputs) - plain(**inputs)).abs().max() > 1e-4
    theirs = like(model, adjoint=True)(**inputs)  # torchdiffeq goes over the same parts
    torch.testing.assert_close(model(**inputs), theirs, rtol=1e-9, atol=1e-11)


def test_a_series_is_cut_alike_in_any_batch_and_at_any_length():
    batch = series((7, 4, 1, 12), missing=0.3)
    model, inputs, encoder = fitted(ode_rnn, SampleEncoder, batch, causal=True)
    found = model(**inputs)
    for b, length in enumerate(batch.lengths):
        alone = model(**double(encoder.encode(batch[b : b + 1])))
        torch.testing.assert_close(alone[0], found[b, :length], rtol=1e-10, atol=1e-10)


def test_the_default_solver_solves_the_ode_of_sparse_series():
    """One step a gap did not: answers were those of another model."""
    batch = series((4, 6, 5))
    model, inputs, _ = fitted(ode_rnn, SampleEncoder, batch)
    with torch.no_grad():
        for weight in model.field.parameters():
            weight.mul_(3)  # as training leaves it
        exact = like(model, solver="dopri5", rtol=1e-9, atol=1e-11)(**inputs)
        answers = model(**inputs), like(model, max_step=None)(**inputs)
    error = [float((answer - exact).abs().max()) for answer in answers]
    assert error[0] < 0.2 * error[1]


def test_a_gap_of_many_spans_takes_a_bounded_number_of_steps():
    batch = SeriesBatch.from_arrays([np.ones((3, 1))], [[0.0, 1.0, 2.0]])
    model, _, encoder = fitted(ode_rnn, SampleEncoder, batch)
    for times in ([0.0, 1.0, 1e9], np.arange(3000) * 24.0):  # a gap of many spans, or many gaps
        far = SeriesBatch.from_arrays([np.ones((len(times), 1))], [times])
        inputs = double(encoder.encode(far))
        gap = gaps_of_samples(inputs["tokens"], inputs["times"], None, 1)
        features = inputs["tokens"][..., :2]
        x, cut, hold, at = _with_stops(features, gap, torch.zeros_like(gap, dtype=bool), 0.02)
        bound = (1 + np.log(float(gap.sum()))) / 0.02
        assert 0 < x.shape[1] - len(times) < bound
        torch.testing.assert_close(cut.sum(), gap.sum())
        assert torch.equal(x.gather(1, at.unsqueeze(-1).expand(1, len(times), 2)), features)
        assert int((~hold).sum()) == len(times)
    assert model(**inputs).isfinite().all()


@pytest.mark.parametrize("make", [ODERNNConfig, StateSpaceConfig])
def test_models_of_gaps_want_tokens_with_the_gap(make):
    with pytest.raises(ValidationError, match="odd number of features, got 4"):
        make(n_features=4, n_outputs=2)


def test_gaps_of_long_recordings_are_not_of_rounded_times():
    short = SeriesBatch.from_arrays([np.zeros((1000, 1))], [np.arange(1000) / 100])
    encoder = SampleEncoder.fit(short)
    times = np.arange(3) / 100 + np.array([[0.0], [86400.0]])  # a day later
    long = SeriesBatch.from_arrays([np.zeros((6, 1))], [times.ravel()])
    inputs = encoder.encode(long)
    usual = 0.01 / encoder.time_unit
    gaps = gaps_of_samples(inputs["tokens"], inputs["times"], None, 1)[0]
    torch.testing.assert_close(gaps[[1, 2, 4, 5]], torch.full((4,), usual), rtol=1e-5, atol=0)
    hidden = gaps_of_samples(inputs["tokens"] * NAN, inputs["times"], None, 1)[0]
    torch.testing.assert_close(hidden, inputs["times"][0].diff(prepend=torch.zeros(1)))


def test_wrong_shapes_of_an_ode_rnn_are_told():
    options = {"n_features": 5, "n_outputs": 2}
    with pytest.raises(ValidationError, match="chooses its own steps; leave substeps out"):
        ODERNNConfig(**options, solver="dopri5", substeps=2)
    with pytest.raises(ValidationError, match="solver"):
        ODERNNConfig(**options, solver="magic")


# Both


@both_models
@pytest.mark.parametrize("causal", [False, True])
def test_a_batch_is_its_series_one_by_one(make, encoder_class, causal):
    batch = series((5, 3, 1, 70), missing=0.3)
    model, inputs, encoder = fitted(make, encoder_class, batch, causal=causal)
    together = model(**inputs)
    for b in range(len(batch)):
        alone = model(**double(encoder.encode(batch[b : b + 1])))[0]
        mine = together[b, : batch.lengths[b]] if causal else together[b]
        torch.testing.assert_close(mine, alone)


@both_models
def test_padding_is_not_looked_at(make, encoder_class):
    model, inputs, _ = fitted(make, encoder_class, series())
    hidden = ~inputs["mask"]
    garbage = inputs | {
        "tokens": inputs["tokens"].masked_fill(hidden.unsqueeze(-1), 7.0),
        "times": inputs["times"].masked_fill(hidden, 9.0),
    }
    torch.testing.assert_close(model(**garbage), model(**inputs), rtol=0, atol=0)


@both_models
def test_an_empty_batch_has_no_outputs(make, encoder_class):
    encoder = encoder_class.fit(series())
    assert make(encoder)(torch.zeros(0, 1, 5), torch.zeros(0, 1)).shape == (0, 3)


@both_models
def test_outputs_of_a_causal_model_rest_on_the_past(make, encoder_class):
    model, inputs, _ = fitted(make, encoder_class, series((9, 9)), causal=True)
    before = model(**inputs)
    tokens, times = inputs["tokens"].clone(), inputs["times"].clone()
    tokens[:, 5:] += 1
    times[:, 5:] += 1
    after = model(**(inputs | {"tokens": tokens, "times": times}))
    assert before.shape == (2, 9, 3)
    torch.testing.assert_close(after[:, :5], before[:, :5], rtol=0, atol=0)
    assert (after[:, 5:] - before[:, 5:]).abs().amax(dim=-1).min() > 0


@both_models
def test_gradients_of_the_model_are_right(make, encoder_class):
    batch = series((4, 2), missing=0.3)
    model, inputs, _ = fitted(make, encoder_class, batch, d_model=3)
    weights = dict(model.named_parameters())
    names = list(weights)

    def run(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (), inputs)

    assert torch.autograd.gradcheck(run, tuple(weights.values()))


@both_models
def test_static_covariates_are_seen_and_may_be_unknown(make, encoder_class):
    _, inputs, _ = fitted(make, encoder_class, series())
    with_static = make(encoder_class.fit(series()), n_static=2).double()
    static = torch.tensor([[1.0, 2.0], [3.0, NAN], [NAN, 0.0]]).double()
    with_static.fit_scaling(inputs | {"static": static})
    found = with_static(**inputs, static=static)
    assert found.isfinite().all()
    assert (with_static(**inputs, static=static + 1) - found).abs().amax(dim=-1).min() > 0
    with pytest.raises(ValueError, match="takes 2 static covariates"):
        with_static(**inputs)


@both_models
def test_answers_begin_at_the_frequencies_of_the_classes(make, encoder_class):
    model = make(encoder_class.fit(series()))
    frequency = torch.tensor([0.5, 0.25, 0.25])
    model.fit_prior(frequency)
    torch.testing.assert_close(model.head.map.bias.softmax(dim=0), frequency)

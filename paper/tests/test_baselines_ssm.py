"""The linear scan, and the state-space model on it."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer_paper import baselines
from roughformer_paper.baselines import scan
from roughformer_paper.baselines.scan import linear_scan
from roughformer_paper.baselines.state_space import (
    StateSpace,
    StateSpaceConfig,
    System,
    hippo_frequencies,
)

TINY = {"n_features": 3, "n_outputs": 2, "d_model": 8, "d_state": 6, "n_layers": 2, "dropout": 0.0}


def recurrence(decay, inputs):
    """The definition, one step after the other."""
    state, found = torch.zeros_like(inputs[0]), []
    for a, b in zip(decay, inputs, strict=True):
        state = a * state + b
        found.append(state)
    return torch.stack(found)


def problem(length, batch=3, states=4, seed=0, shared=False):
    rng = torch.Generator().manual_seed(seed)
    rate = torch.complex(
        -torch.rand(states, generator=rng, dtype=torch.float64),
        3 * torch.randn(states, generator=rng, dtype=torch.float64),
    )
    gap = torch.rand(length, 1 if shared else batch, 1, generator=rng, dtype=torch.float64)
    b = torch.randn(length, batch, states, generator=rng, dtype=torch.complex128)
    return torch.exp(rate * gap), b


@pytest.fixture(params=["steps", "chunks"])
def way(request, monkeypatch):
    """Both ways of the scan, whatever the sizes."""
    few = 1 << 30 if request.param == "steps" else 0
    monkeypatch.setattr(scan, "_LARGE_SLAB", 0)
    monkeypatch.setattr(scan, "_FEW_STEPS", few)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 16, 97, 1000])
@pytest.mark.usefixtures("way")
def test_the_scan_is_the_recurrence(length, shared):
    decay, inputs = problem(length, shared=shared)
    torch.testing.assert_close(
        linear_scan(decay, inputs), recurrence(decay, inputs), rtol=0, atol=1e-10
    )
    backwards = recurrence(decay.flip(0), inputs.flip(0)).flip(0)
    torch.testing.assert_close(
        linear_scan(decay, inputs, reverse=True), backwards, rtol=0, atol=1e-10
    )


@pytest.mark.usefixtures("way")
def test_a_scan_over_nothing_is_empty():
    decay, inputs = problem(0)
    assert linear_scan(decay, inputs).shape == (0, 3, 4)
    assert linear_scan(*problem(5, batch=0)).shape == (5, 0, 4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.usefixtures("way")
def test_gradients_of_the_scan_are_exact(length, shared, reverse):
    decay, inputs = problem(length, batch=2, states=2, shared=shared)
    decay.requires_grad_()
    inputs.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: linear_scan(a, b, reverse), (decay, inputs))


@pytest.mark.usefixtures("way")
def test_gradients_of_a_long_scan_are_those_of_the_recurrence():
    for reverse in (False, True):
        decay, inputs = problem(150)
        found, expected = [], []
        for run, out in ((linear_scan, found), (recurrence, expected)):
            a, b = decay.clone().requires_grad_(), inputs.clone().requires_grad_()
            if run is linear_scan:
                states = linear_scan(a, b, reverse)
            else:
                states = recurrence(a.flip(0), b.flip(0)).flip(0) if reverse else recurrence(a, b)
            (states.abs() ** 2).sum().backward()
            out += [a.grad, b.grad]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_single_precision_is_stable_over_32000_steps_with_slow_decays():
    decay, inputs = problem(32_000, batch=1)
    decay = decay**0.001  # half-lives of thousands of steps
    exact = linear_scan(decay, inputs)
    single = linear_scan(decay.to(torch.complex64), inputs.to(torch.complex64))
    assert (single - exact).abs().max() < 1e-4 * exact.abs().max()


def test_frequencies_are_those_of_the_hippo_matrix():
    n = 8
    root = torch.sqrt(torch.arange(n) + 0.5)
    normal = (
        -0.5 * torch.eye(n) - torch.outer(root, root).tril(-1) + torch.outer(root, root).triu(1)
    )
    eigenvalues = torch.linalg.eigvals(normal.double())
    torch.testing.assert_close(eigenvalues.real, torch.full((n,), -0.5, dtype=torch.float64))
    positive = eigenvalues.imag[eigenvalues.imag > 0].sort().values
    torch.testing.assert_close(hippo_frequencies(n).double(), positive, rtol=1e-5, atol=1e-5)


def system(seed=0, **options):
    torch.manual_seed(seed)
    return System(StateSpaceConfig(**(TINY | options))).double()


def continuous(layer):
    """(λΔ, B Δ): the system in units of the gaps."""
    step = layer.log_step.exp()
    rate = torch.complex(-layer.log_decay.exp(), layer.omega)
    return rate * step, torch.complex(*layer.to_state) * step[:, None]


def test_states_solve_the_continuous_system_over_irregular_gaps():
    layer = system()
    rate, into = continuous(layer)
    u = torch.randn(6, 1, 8, dtype=torch.float64)
    gap = torch.tensor([9.0, 0.3, 2.0, 0.0, 11.0, 1e-3], dtype=torch.float64)
    states = layer.states(u, gap[:, None, None])[:, 0]
    # (z, u)' = [[λ, B], [0, 0]] (z, u), solved by the matrix exponential of each gap.
    p, d = into.shape
    generator = torch.zeros(p + d, p + d, dtype=torch.complex128)
    generator[:p, :p], generator[:p, p:] = torch.diag(rate), into
    z = torch.zeros(p, dtype=torch.complex128)
    for k in range(6):
        if k:
            held = torch.cat([z, u[k - 1, 0].to(z.dtype)])
            z = (torch.linalg.matrix_exp(generator * gap[k]) @ held)[:p]
        torch.testing.assert_close(states[k], z, rtol=1e-9, atol=1e-9)


def test_a_point_more_within_a_gap_changes_no_later_state_if_the_input_is_held():
    layer = system()
    u = torch.randn(4, 2, 8, dtype=torch.float64)
    gap = torch.rand(4, 2, 1, dtype=torch.float64)
    more = torch.cat([u[:2], u[1:2], u[2:]])
    split = torch.cat([gap[:2], 0.3 * gap[2:3], 0.7 * gap[2:3], gap[3:]])
    torch.testing.assert_close(layer.states(more, split)[3:], layer.states(u, gap)[2:])


def test_backwards_is_forwards_in_reversed_time():
    layer = system()
    u = torch.randn(5, 2, 8, dtype=torch.float64)
    gap = torch.rand(5, 2, 1, dtype=torch.float64)
    turned = torch.cat([gap[:1], gap[1:].flip(0)])
    torch.testing.assert_close(layer(u, gap, reverse=True), layer(u.flip(0), turned).flip(0))


def test_decays_stay_below_one_whatever_is_learned():
    layer = system()
    with torch.no_grad():
        layer.log_decay.fill_(-3.0)
        layer.omega.fill_(50.0)
    u = torch.ones(3000, 1, 8, dtype=torch.float64)
    states = layer.states(u, torch.full((3000, 1, 1), 7.0, dtype=torch.float64))
    rate, into = continuous(layer)
    bound = 2 * (into.sum(dim=1) / rate).abs()
    assert (states.abs() <= bound * (1 + 1e-9)).all()


def model(seed=0, **options):
    torch.manual_seed(seed)
    return StateSpace(StateSpaceConfig(**(TINY | options))).eval()


def inputs(lengths, seed=0, n_static=0):
    rng = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    found = {
        "tokens": torch.randn(len(lengths), longest, 3, generator=rng) * mask.unsqueeze(-1),
        "times": torch.rand(len(lengths), longest, generator=rng).cumsum(dim=1) * mask,
        "mask": mask,
    }
    if n_static:
        found["static"] = torch.randn(len(lengths), n_static, generator=rng)
    return found


OPTIONS = [
    {},
    {"bidirectional": True},
    {"causal": True},
    {"pooling": "last"},
    {"n_static": 2},
    {"n_layers": 0},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_series_is_answered_alike_alone_and_in_a_padded_batch(options):
    net, lengths = model(**options), [7, 1, 12, 2]
    given = inputs(lengths, n_static=options.get("n_static", 0))
    together = net(**given)
    for b, n in enumerate(lengths):
        alone = {"tokens": given["tokens"][b : b + 1, :n], "times": given["times"][b : b + 1, :n]}
        if "static" in given:
            alone["static"] = given["static"][b : b + 1]
        expected = net(**alone)[0]
        found = together[b, :n] if options.get("causal") else together[b]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
def test_what_stands_in_the_padding_does_not_matter(options):
    net, lengths = model(**options), [5, 9]
    given = inputs(lengths, n_static=options.get("n_static", 0))
    before = net(**given)
    given["tokens"][0, 5:] = 1e3
    given["times"][0, 5:] = -7.0
    after = net(**given)
    if options.get("causal"):
        before, after = before[given["mask"]], after[given["mask"]]
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_a_causal_model_does_not_look_ahead():
    net = model(causal=True)
    given = inputs([10])
    del given["mask"]
    before = net(**given)
    given["tokens"][:, 6:] += 5.0
    given["times"][:, 6:] += 3.0
    after = net(**given)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0, atol=0)
    assert (after[:, 6:] - before[:, 6:]).abs().max() > 1e-3


def test_one_shared_grid_is_answered_as_a_grid_for_each():
    net = model()
    given = inputs([8, 8])
    given["times"][1] = given["times"][0]
    del given["mask"]
    shared = net(**given)
    other = {name: torch.cat([x, x[:1] * 2]) for name, x in given.items()}  # a third, other times
    torch.testing.assert_close(net(**other)[:2], shared, rtol=1e-5, atol=1e-6)


def test_in_pieces_is_at_once(monkeypatch):
    net, given = model(n_static=1), inputs([6, 3, 8, 2, 8], n_static=1)
    whole = net(**given)
    monkeypatch.setattr("roughformer_paper.baselines.state_space._AT_ONCE", 17)
    with torch.no_grad():
        torch.testing.assert_close(net(**given), whole.detach(), rtol=1e-5, atol=1e-6)


def test_the_unit_of_time_does_not_matter_once_fitted():
    given = inputs([9, 6])
    first, second = model(), model()
    first.fit_scaling(given)
    other = given | {"times": 1000 * given["times"]}
    second.fit_scaling(other)
    torch.testing.assert_close(second(**other), first(**given), rtol=1e-4, atol=1e-5)


def test_half_precision_is_about_as_good():
    net, given = model(), inputs([20, 20])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = net(**given)
        found.sum().backward()
    torch.testing.assert_close(found.float(), net(**given), rtol=0.1, atol=0.05)


def test_a_model_with_static_covariates_asks_for_them():
    with pytest.raises(ValueError, match="takes 2 static covariates"):
        model(n_static=2)(torch.zeros(1, 2, 3), torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"d_state": 5}, "d_state must be even"),
        ({"step_low": 1.0}, "step_low must not exceed step_high"),
        ({"causal": True, "bidirectional": True}, "causal model cannot be bidirectional"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        StateSpaceConfig(**(TINY | options))


def waves(n=60, seed=0):
    """Slow or fast waves at irregular times, ragged, one channel in two missing at times."""
    rng = np.random.default_rng(seed)
    values, times, labels = [], [], np.arange(n) % 2
    for label in labels:
        t = np.sort(rng.uniform(0, 4, rng.integers(30, 50)))
        x = np.stack([np.sin((2 + 6 * label) * t + rng.uniform(0, 6)), rng.normal(size=len(t))], 1)
        x[rng.random(x.shape) < 0.1] = np.nan
        values.append(x)
        times.append(t)
    return rf.SeriesBatch.from_arrays(values, times, labels=labels)


def test_the_estimator_trains_saves_and_loads_it(tmp_path):
    train, test = waves(120), waves(seed=1)
    net = baselines.StateSpaceClassifier(
        model={"d_state": 16, "d_model": 16, "n_layers": 2}, epochs=15, learning_rate=1e-2,
        random_state=0,
    )  # fmt: skip
    net.fit(train)
    assert net.score(test, test.labels) > 0.85
    assert isinstance(net.predictor_.model, StateSpace)
    net.save(tmp_path / "model")
    again = baselines.StateSpaceClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(test), net.predict_proba(test))


def test_the_regressor_trains_it_with_dropping():
    train = waves(20)
    net = baselines.StateSpaceRegressor(model={"d_model": 8}, epochs=1, drop=0.5, random_state=0)
    net.fit(train, train.labels.astype(float))
    assert np.isfinite(net.predict(train)).all()

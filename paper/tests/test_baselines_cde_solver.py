"""Controlled equations: solutions against closed forms and torchcde's solver, gradients."""

import numpy as np
import pytest
import torch
import torchcde

from controlled_cases import LinearField, linear_pieces, smooth_field, walks
from roughformer_paper.baselines.cde_solver import VectorField, chords, derivative, solve
from roughformer_paper.baselines.splines import natural_pieces


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

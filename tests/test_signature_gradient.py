"""Gradients with respect to the values: by finite differences, and native against torch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import roughformer as rf
from roughformer.series import keep_mask

LENGTHS = [6, 4, 1, 5]
MASK = keep_mask([6, 6, 6, 6], 0.4, 1)
CASES = {
    "plain": {},
    "only global": {"views": "global"},
    "only local": {"views": "local"},
    "local first": {"views": ("local", "global")},
    "irregular times": {"times": np.array([0.0, 0.1, 1.0, 1.5, 4.0, 4.2])},
    "ragged": {"lengths": LENGTHS},
    "mask": {"keep": MASK},
    "rate": {"drop": 0.4, "seed": 3},
    "ragged rate": {"lengths": LENGTHS, "drop": 0.4, "seed": 3},
    "time": {"lifts": ["time"]},
    "time, ragged rate": {"lifts": ["time"], "lengths": LENGTHS, "drop": 0.3, "seed": 2},
    "basepoint": {"lifts": ["basepoint"]},
    "basepoint, rate": {"lifts": ["time", "basepoint"], "drop": 0.4, "seed": 1},
    "basepoint of one view": {"lifts": {"local": ["basepoint"]}},
    "lag": {"lifts": [rf.Lag(1.3)]},
    "lag, rate": {"lifts": [rf.Lag(1.3)], "drop": 0.4, "seed": 1},
    "counts": {"lifts": ["counts"]},
    "clock": {"lifts": [rf.Clock(2)]},
    "clock, ragged mask": {"lifts": [rf.Clock(1), "time"], "drop": 0.4, "lengths": LENGTHS},
    "log brackets": {"transform": "logsignature"},
    "log words": {"transform": "logsignature", "basis": "words"},
    "log, ragged rate": {"transform": "logsignature", "lengths": LENGTHS, "drop": 0.4},
    "cuts": {"windows": [-1.0, 0.5, 0.75, 2.0, 3.5, 9.0]},
    "one window": {"windows": 1},
    "cuts of each": {"windows": [[0.0, 1.5], [0.2, 0.4, 3.0], [1.0, 2.0], [-3.0, -1.0, 2.0, 2.5]]},
    "durations": {"windows": rf.Windows.by_duration(1.7), "lengths": LENGTHS},
    "points": {"windows": rf.Windows.by_points(2), "lengths": LENGTHS},
}


def walk(seed, *shape):
    x = np.cumsum(np.random.default_rng(seed).normal(size=shape), axis=1)
    return torch.from_numpy(x)


def gradients_hold(function, x, engine):
    """One random direction where torch differentiates itself, all of them for the kernel."""
    return gradcheck(function, x, fast_mode=engine == "torch")


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_limits_of_finite_differences(engine, name):
    # Lifted paths have more channels; depth 2 keeps their Jacobians small.
    options = {"windows": 3, "depth": 2 if "lifts" in CASES[name] else 3} | CASES[name]
    x = walk(0, 4, 6, 2).requires_grad_()
    assert gradients_hold(lambda v: rf.multiview_signature(v, engine=engine, **options), x, engine)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_are_right_at_every_depth(engine, channels, depth):
    x = walk(1, 2, 4, channels).requires_grad_()
    assert gradients_hold(lambda v: rf.multiview_signature(v, 2, depth, engine=engine), x, engine)


@pytest.mark.parametrize(("d", "n"), [(9, 2), (10, 3), (3, 5)])
def test_gradients_of_the_generic_kernel_are_limits_of_finite_differences(engine, d, n):
    # One random direction each: the full Jacobian of a thousand words would take minutes.
    x = walk(2, 2, 4, d).requires_grad_()
    options = {"engine": engine, "layout": "time_first"}
    assert gradcheck(lambda v: rf.multiview_signature(v, 2, n, **options), x, fast_mode=True)


@pytest.mark.parametrize("basis", ["brackets", "words"])
def test_whole_log_signatures_have_gradients(engine, basis):
    x = walk(3, 2, 5, 2).requires_grad_()
    assert gradients_hold(lambda v: rf.logsignature(v, 3, basis=basis, engine=engine), x, engine)


def test_second_derivatives_are_those_of_the_definition(engine):
    x = walk(4, 1, 4, 2).requires_grad_()
    assert gradgradcheck(lambda v: rf.multiview_signature(v, 2, 2, engine=engine), x)


def gradients(x, engine, **options):
    x = x.detach().clone().requires_grad_()
    tokens = rf.multiview_signature(x, engine=engine, **options)
    weights = np.random.default_rng(7).normal(size=tuple(tokens.shape))
    (tokens * torch.from_numpy(weights).to(tokens.dtype)).sum().backward()
    return tokens.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("drop", [0.0, 0.5])
@pytest.mark.parametrize(
    ("d", "n"), [(1, 1), (1, 4), (2, 6), (3, 4), (7, 2), (9, 2), (10, 3), (3, 5), (21, 2)]
)
def test_native_gradients_are_those_of_torch(native, d, n, drop, dtype):
    # A path of length about 1, so that all levels weigh in.
    x = (walk(5, 19, 80, d) / (10 * d)).to(dtype)
    lengths = np.random.default_rng(0).integers(1, 81, size=19)
    options = {
        "windows": 6, "depth": n, "lengths": lengths, "drop": drop, "seed": 1,
        "times": np.cumsum(np.random.default_rng(1).uniform(0.1, 1, size=80)),
    }  # fmt: skip
    tokens, found = gradients(x, native, **options)
    same_tokens, want = gradients(x, "torch", **options)
    tolerance = 1e-11 if dtype == torch.float64 else 1e-4
    scale = np.abs(want).max()
    assert np.abs(found - want).max() <= tolerance * scale
    np.testing.assert_allclose(tokens, same_tokens, rtol=tolerance, atol=tolerance)
    # Padding has no influence, hence no gradient.
    padding = np.arange(80) >= lengths[:, None]
    assert not found[padding].any()


@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([(1, 2), (2, 3), (3, 2), (9, 2)]),
    length=st.sampled_from([2, 5, 20]),
    lifts=st.sampled_from([[], ["time"], ["basepoint"], ["time", rf.Lag(0.7)], [rf.Clock(1)]]),
    drop=st.sampled_from([0.0, 0.6]),
    windows=st.sampled_from([1, 4, 15]),
)
def test_both_engines_have_the_same_gradient_in_any_case(
    native, seed, size, length, lifts, drop, windows
):
    d, n = size
    x = walk(seed, 3, length, d) / np.sqrt(length)
    times = np.cumsum(np.random.default_rng(seed).uniform(0.1, 1, size=length))
    options = {
        "windows": windows, "depth": n, "lifts": lifts, "drop": drop, "seed": seed, "times": times,
    }  # fmt: skip
    found = gradients(x, native, **options)
    want = gradients(x, "torch", **options)
    for mine, theirs in zip(found, want, strict=True):
        assert np.abs(mine - theirs).max() <= 1e-11 * max(np.abs(theirs).max(), 1e-3)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_gradient_does_not_depend_on_threads(native, threads):
    x = walk(6, 40, 30, 3)
    found = gradients(x, native, windows=5, depth=3, threads=threads)[1]
    want = gradients(x, native, windows=5, depth=3)[1]
    np.testing.assert_array_equal(found, want)


def test_translations_have_no_influence_hence_no_gradient(engine):
    grad = gradients(walk(7, 3, 9, 2), engine, windows=4, depth=3)[1]
    np.testing.assert_allclose(grad.sum(axis=1), 0, atol=1e-10 * np.abs(grad).max())


def test_dropped_points_have_no_gradient(engine):
    mask = keep_mask([9, 9, 9], 0.5, 0)
    grad = gradients(walk(8, 3, 9, 2), engine, windows=4, depth=3, keep=mask)[1]
    assert not grad.reshape(-1, 2)[~mask].any()
    assert grad.reshape(-1, 2)[mask].any()


def test_points_outside_all_windows_have_no_gradient(engine):
    grad = gradients(walk(9, 2, 10, 2), engine, windows=[3.0, 4.5, 6.0], depth=2)[1]
    assert not grad[:, :3].any()
    assert not grad[:, 7:].any()
    assert grad[:, 3:7].any()


def test_the_result_is_the_same_with_and_without_a_gradient(engine):
    x = walk(10, 19, 30, 2)
    for transform in ("signature", "logsignature"):
        options = {"windows": 5, "depth": 3, "transform": transform, "lifts": ["time", rf.Clock(1)]}
        plain = rf.multiview_signature(x, engine=engine, **options)
        tracked = rf.multiview_signature(x.clone().requires_grad_(), engine=engine, **options)
        assert tracked.requires_grad
        assert not plain.requires_grad
        np.testing.assert_allclose(tracked.detach().numpy(), plain.numpy(), rtol=1e-11, atol=1e-11)


def test_gradients_come_in_the_type_of_the_values(engine):
    x = walk(11, 2, 6, 2).float().requires_grad_()
    for dtype in (torch.float32, torch.float64):
        tokens = rf.multiview_signature(x, 2, 2, dtype=dtype, engine=engine)
        assert tokens.dtype == dtype
        x.grad = None
        tokens.sum().backward()
        assert x.grad.dtype == torch.float32


def test_a_transposed_view_has_its_gradient_in_its_own_layout(engine):
    base = walk(12, 2, 3, 7).requires_grad_()  # (B, C, L)
    rf.multiview_signature(base.transpose(1, 2), 2, 2, engine=engine).sum().backward()
    copy = base.detach().transpose(1, 2).contiguous().requires_grad_()
    rf.multiview_signature(copy, 2, 2, engine=engine).sum().backward()
    np.testing.assert_allclose(base.grad.transpose(1, 2).numpy(), copy.grad.numpy(), rtol=1e-12)


def test_channels_first_has_its_gradient_in_its_own_layout(engine):
    x = walk(12, 2, 3, 7).requires_grad_()  # (B, C, L)
    found = rf.multiview_signature(x, 2, 2, engine=engine, layout="channels_first")
    found.sum().backward()
    turned = x.detach().transpose(1, 2).contiguous().requires_grad_()
    want = rf.multiview_signature(turned, 2, 2, engine=engine)
    want.sum().backward()
    assert torch.equal(found, want)
    np.testing.assert_allclose(x.grad.transpose(1, 2).numpy(), turned.grad.numpy(), rtol=1e-12)


def test_out_is_filled_or_refused_but_not_ignored_when_a_gradient_is_wanted(engine):
    x = walk(13, 2, 6, 2).requires_grad_()
    out = np.full((2, 3, 6), np.nan)
    try:
        rf.multiview_signature(x, 3, 2, "local", out=out, engine=engine)
    except rf.InputError:
        return
    assert np.isfinite(out).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lengths": LENGTHS},
        {"drop": 0.4, "seed": 1},
        {"lifts": ["time", "basepoint"], "drop": 0.4, "seed": 2},
        {"lifts": [rf.Lag(1.3)]},
        {"lifts": [rf.Clock(1)]},
        {"transform": "logsignature"},
    ],
    ids=["plain", "ragged", "rate", "basepoint", "lag", "clock", "log"],
)
@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
def test_gradients_flow_through_gaps_to_the_observations_around_them(engine, options):
    x = walk(14, 4, 6, 2).requires_grad_()
    gaps = torch.from_numpy(np.random.default_rng(3).random((4, 6, 2)) < 0.4)
    gaps[3, :, 1] = True  # a channel that is never observed

    def tokens(v):
        missing = torch.full_like(v, float("nan"))
        return rf.multiview_signature(torch.where(gaps, missing, v), 3, 2, engine=engine, **options)

    assert gradients_hold(tokens, x, engine)


def test_training_on_signatures_finds_a_path_with_the_wanted_ones(engine):
    # What gradients are for, end to end: descend from a straight line to a given area.
    x = torch.tensor([[[0.0, 0], [1, 0.1], [2, -0.1], [3, 0]]], dtype=torch.float64)
    x.requires_grad_()
    want = torch.tensor([[3.0, 0.0, 1.0]], dtype=torch.float64)  # increments and Lévy area
    descent = torch.optim.LBFGS([x], max_iter=60, line_search_fn="strong_wolfe")

    def loss():
        descent.zero_grad()
        value = (rf.logsignature(x, 2, engine=engine) - want).square().sum()
        value.backward()
        return value

    descent.step(loss)
    assert loss().item() < 1e-10

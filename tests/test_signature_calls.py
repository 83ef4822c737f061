"""Calls keep their promises: inputs untouched, out filled, memory steady."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import roughformer as rf
from reference import (
    make_batch,
)
from roughformer.signatures.words import word_count


@pytest.mark.parametrize("lifts", [[], ["time", "counts", rf.Lag(0.3), "basepoint", "clock"]])
@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_inputs_are_never_changed(engine, lifts, drop):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 9, 2))
    x[1, 3:6, 0] = np.nan
    times, cuts = np.sort(rng.uniform(size=(3, 9)), axis=1), np.linspace(0, 1, 5)
    before = x.copy(), times.copy(), cuts.copy()
    for transform in ("signature", "logsignature"):
        rf.multiview_signature(
            x, cuts, 3, times=times, lifts=lifts, drop=drop, transform=transform, engine=engine
        )
    tensor = torch.from_numpy(np.nan_to_num(x)).requires_grad_()
    copy = tensor.detach().clone()
    rf.multiview_signature(
        tensor, cuts, 2, times=times, lifts=lifts, engine=engine
    ).sum().backward()
    assert torch.equal(tensor.detach(), copy)
    for now, then in zip((x, times, cuts), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("transform", ["signature", "logsignature"])
@pytest.mark.parametrize("lifts", [[], {"local": ["time", "clock"], "global": ["basepoint"]}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_out_is_filled_completely_and_returned(engine, transform, lifts, dtype):
    batch = make_batch(5, n_series=19, n_channels=2, longest=12, shortest=3)
    windows = rf.Windows.by_duration(1.5)  # series have different numbers of windows
    options = {"lifts": lifts, "transform": transform, "engine": engine, "dtype": dtype}
    want = rf.multiview_signature(batch, windows, 3, **options)
    out = np.full(want.shape, np.nan, dtype)
    found = rf.multiview_signature(batch, windows, 3, out=out, **options)
    assert found is out
    np.testing.assert_array_equal(out, want)
    room = np.full((21, *want.shape[1:]), np.nan, dtype)
    rf.multiview_signature(batch, windows, 3, out=room[1:-1], **options)
    np.testing.assert_array_equal(room[1:-1], want)
    assert np.isnan(room[[0, -1]]).all()


def test_out_works_for_whole_signatures_and_for_tensors(engine):
    batch = make_batch(5, n_series=4)
    out = np.full((4, word_count(2, 3)), np.nan)
    found = rf.signature(batch, 3, out=out, engine=engine)
    assert np.shares_memory(found, out)
    np.testing.assert_array_equal(out, rf.signature(batch, 3, engine=engine))
    x = torch.randn(4, 6, 2, dtype=torch.float64)
    rf.signature(x, 3, out=out, engine=engine)
    np.testing.assert_array_equal(out, rf.signature(x, 3, engine=engine).numpy())


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((4, 3, 6), np.float32),
        np.zeros((4, 3, 7)),
        np.zeros((4, 6, 3)).transpose(0, 2, 1),
        np.zeros((8, 3, 6))[::2],
    ],
    ids=["dtype", "shape", "order", "stride"],
)
def test_an_out_that_does_not_fit_is_refused_and_left_alone(engine, bad):
    batch = make_batch(5, n_series=4)
    with pytest.raises(rf.InputError, match=r"C-contiguous float64 array of shape \(4, 3, 6\)"):
        rf.multiview_signature(batch, 3, 2, "local", out=bad, engine=engine)
    assert not bad.any()


def test_out_must_be_writeable(engine):
    batch = make_batch(5, n_series=4)
    out = np.zeros((4, 3, 6))
    out.flags.writeable = False
    with pytest.raises(rf.InputError, match="writeable"):
        rf.multiview_signature(batch, 3, 2, "local", out=out, engine=engine)


def test_views_stand_in_the_order_they_are_asked_for(engine):
    batch = make_batch(5, n_series=4)
    glob = rf.multiview_signature(batch, 3, 2, "global", engine=engine)
    local = rf.multiview_signature(batch, 3, 2, "local", engine=engine)
    for views, parts in (
        (("global", "local"), (glob, local)),
        (("local", "global"), (local, glob)),
    ):
        both = rf.multiview_signature(batch, 3, 2, views, engine=engine)
        np.testing.assert_array_equal(both, np.concatenate(parts, axis=-1))


def test_repeated_calls_do_not_grow_memory(engine):
    batch = make_batch(1, n_series=40, n_channels=4, longest=20, shortest=20)
    x = torch.randn(20, 20, 3, requires_grad=True)

    def work():
        for transform in ("signature", "logsignature"):
            rf.multiview_signature(
                batch,
                20,
                3,
                lifts=["time", rf.Clock(1)],
                transform=transform,
                drop=0.5,
                engine=engine,
            )
        rf.multiview_signature(x, 10, 3, engine=engine).sum().backward()
        running = rf.RunningSignatures(50, 3, 4, engine=engine)
        running.push(np.zeros((50, 3)))
        running.push(np.ones((50, 3)))
        running.close()
        running.read()

    def resident():
        with open("/proc/self/statm") as numbers:
            return int(numbers.read().split()[1]) * 4096

    try:
        resident()
    except OSError:
        pytest.skip("this system does not tell the memory of a process in /proc")
    sizes = []
    for _ in range(12):
        for _ in range(5):
            work()
        sizes.append(resident())
    # The heap may settle or stretch once at any time, a leak grows in every round: a round's
    # results are 20 MB, so half of the rounds without growth rule one out.
    grown = np.diff(sizes) > 1e6
    assert grown.sum() <= len(grown) // 2, [f"{s / 1e6:.1f} MB" for s in sizes]


FIRST_USES = ["signature", "logsignature", "multiview_signature", "RunningSignatures"]


@pytest.mark.parametrize("first", FIRST_USES)
def test_public_names_are_what_they_say_whichever_is_used_first(first):
    # The package roughformer.signatures must not take the place of the function.
    code = f"""
import roughformer as rf
rf.{first}
for name in {FIRST_USES}:
    assert callable(getattr(rf, name)), name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

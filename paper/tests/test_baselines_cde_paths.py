"""Control paths of a Neural CDE, against torchcde's."""

import numpy as np
import pytest
import torch
import torchcde

import roughformer as rf
from controlled_cases import model_of, walks
from roughformer_paper.baselines import neural_cde
from roughformer_paper.baselines.cde_solver import derivative
from roughformer_paper.baselines.neural_cde import PathEncoder
from roughformer_paper.baselines.splines import natural_pieces


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
    monkeypatch.setattr(neural_cde, "series_blocks", lambda lengths: [(0, 2), (2, 3), (3, 5)])
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

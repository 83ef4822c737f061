"""Spectra of whole paths and of windows."""

import math

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.errors import InputError
from roughformer.signatures.spectrum import spectrum_words
from roughformer.tokens import SpectrumConfig
from roughformer.tokens.padded import log_power
from roughformer.tokens.tempo import TempoEncoder, pieces_between, with_variation
from roughformer.tokens.tokenizer import frequencies, spectrum_range
from small import make_sine, ragged_batch


def power_of(batch, config, **options):
    """The spectrum (B, C, J) of a batch."""
    words = spectrum_words(batch, frequencies(config), **options)
    return log_power(torch.from_numpy(words), config.floor)


def test_the_spectrum_of_a_sine_peaks_at_its_frequency_full_and_dropped():
    t = np.linspace(0, 10, 800)
    batch = rf.SeriesBatch.from_numpy3d(np.sin(2 * np.pi * 3.0 * t)[None, None], times=t)
    config = spectrum_range(SpectrumConfig(count=200), batch)
    turns = frequencies(config) / (2 * np.pi)
    for drop in (0.0, 0.5):
        power = power_of(batch, config, drop=drop, seed=1)[0, 0].numpy()
        assert abs(turns[power.argmax()] - 3.0) <= 0.05


def test_the_linear_axis_has_half_turns_over_the_span_and_stops_at_half_a_turn_a_step():
    batch = make_sine(3, n_classes=3, length=100, t_max=2.0)
    config = spectrum_range(SpectrumConfig(count=1024), batch)
    assert config.low == pytest.approx(0.25)
    assert config.high <= 0.5 * 99 / 2.0 + 1e-9
    assert config.count == 99


def test_gain_does_not_change_the_spectrum_and_a_flat_channel_has_none():
    batch = ragged_batch()
    config = spectrum_range(SpectrumConfig(count=16), batch)
    louder = batch.with_values(batch.values * 7)
    a, b = power_of(batch, config), power_of(louder, config)
    assert np.allclose(a, b, atol=1e-3)
    flat = batch.with_values(np.ones_like(batch.values))
    assert (power_of(flat, config) == 0).all()


def tone(frequency, seconds=20.0, rate=50.0, channels=1):
    t = np.arange(0, seconds, 1 / rate)
    x = np.stack([np.sin(2 * np.pi * frequency * t + c) for c in range(channels)])
    return rf.SeriesBatch.from_numpy3d(x[None], times=t)


def made(**options):
    return TempoEncoder(**({"channels": ("x0",), "low": 0.5, "n_rates": 80} | options))


def test_pieces_have_the_signature_of_the_path_between_their_cuts():
    batch = ragged_batch()
    start, end = batch.span
    cuts = start[:, None] + (end - start)[:, None] * np.array([0.1, 0.35, 0.9])[None, :]
    pieces = pieces_between(batch, cuts)
    expected = rf.multiview_signature(batch, rf.Windows.explicit(cuts), 3, "local")
    found = rf.signature(pieces, 3).reshape(expected.shape)
    assert np.allclose(found, expected, atol=1e-9)


def test_pieces_between_the_ends_are_the_series_and_cuts_on_points_are_not_doubled():
    batch = ragged_batch(n=3)
    start, end = batch.span
    whole = pieces_between(batch, np.stack([start, end], axis=1))
    assert np.array_equal(whole.times, batch.times)
    assert np.array_equal(whole.values, batch.values)
    middle = batch.times[batch.offsets[:-1] + 5]
    halves = pieces_between(batch, np.stack([start, middle, end], axis=1))
    assert halves.n_points == batch.n_points + 3


def test_window_spectra_peak_at_the_tone():
    encoder = made()
    spectra = encoder.encode(tone(1.1))["spectra"].numpy()
    assert spectra.shape == (1, 8, 2, encoder.n_frequencies)
    axis = 0.5 * np.exp(0.02 * np.arange(encoder.n_frequencies))
    for k in range(8):
        assert abs(math.log(axis[spectra[0, k, 0].argmax()] / 1.1)) < 0.06


def test_a_hann_window_is_what_its_clock_words_say():
    # The tapered integral, once more by brute force on a fine grid.
    rng = np.random.default_rng(0)
    t = np.sort(np.r_[0.0, rng.uniform(0, 8, 60), 8.0])
    x = rng.standard_normal(len(t)).cumsum()
    batch = rf.SeriesBatch.from_arrays([x[:, None]], [t])
    encoder = made(n_windows=0, n_rates=20)
    lifted = batch.with_values(batch.values)
    power = encoder._power(lifted, np.array([[0.0, 8.0]]), None)[0, 0, 0]
    u = np.linspace(0, 8, 400_001)
    middle = (u[1:] + u[:-1]) / 2
    slope = np.diff(np.interp(u, t, x)) / np.diff(u) - (x[-1] - x[0]) / 8
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * middle / 8)
    omega = 2 * np.pi * 0.5 * np.exp(0.02 * np.arange(encoder.n_frequencies))
    for j in (0, 7, 19):
        z = (slope * hann * np.exp(1j * omega[j] * middle)).sum() * (u[1] - u[0])
        assert power[j] == pytest.approx(abs(z) ** 2, rel=2e-3, abs=1e-6)


def test_playing_faster_moves_the_spectrum_by_the_logarithm():
    encoder = made()
    slow = tone(1.0, rate=200.0)
    steps = 15
    factor = math.exp(encoder.step * steps)
    fast = slow.with_times(slow.times / factor)
    a, b = (encoder.encode(x)["spectra"].numpy() for x in (slow, fast))
    assert np.allclose(a[..., :-steps] - a.mean(), b[..., steps:] - a.mean(), atol=0.35)
    moved, rounded = encoder.warp(encoder.encode(slow), np.array([factor * 1.001]))
    assert rounded[0] == pytest.approx(factor)
    assert np.array_equal(moved["spectra"].numpy()[..., steps:], a[..., :-steps])


def test_spectra_hardly_change_when_half_the_points_are_dropped():
    encoder = made()
    batch = tone(1.0, rate=100.0)
    a, b = encoder.encode(batch)["spectra"], encoder.encode(batch, drop=0.5, seed=3)["spectra"]
    assert (a.argmax(-1)[:, :, 0] - b.argmax(-1)[:, :, 0]).abs().max() <= 1


def test_spectra_do_not_depend_on_the_level_of_the_values():
    encoder, batch = made(), tone(1.0, rate=100.0)
    a = encoder.encode(batch)["spectra"]
    b = encoder.encode(batch.with_values(batch.values + 2.0**20))["spectra"]
    assert (a - b).abs().max() < 1e-2


def test_variation_never_falls_and_starts_at_zero():
    lifted = with_variation(ragged_batch(missing=0.3))
    assert lifted.n_channels == 4
    for b in range(len(lifted)):
        v = lifted.series(b)[1][:, 2:]
        assert (v[0] == 0).all()
        assert (np.diff(v, axis=0) >= 0).all()


def test_series_without_duration_and_empty_batches_have_no_spectrum():
    encoder = made()
    point = rf.SeriesBatch.from_arrays([np.ones((1, 1))], [[3.0]])
    assert (encoder.encode(point)["spectra"] == 0).all()
    assert encoder.encode(point[:0])["spectra"].shape[0] == 0


def test_rates_that_the_series_are_too_short_for_are_refused():
    with pytest.raises(InputError, match="rate_unit"):
        TempoEncoder.fit(tone(1.0), np.array([0.01]))
    with pytest.raises(InputError, match="positive"):
        TempoEncoder.fit(tone(1.0), np.array([-1.0, 1.0]))


def test_gain_does_not_matter_to_a_spectrum_however_small():
    words = torch.randn(1, 2, 30, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        log_power(1e-20 * words, 0.5), log_power(words, 0.5), atol=1e-3, rtol=0
    )
    assert (log_power(0 * words, 0.5) == 0).all()

"""Tokens as a fitted step: spectra, windows of spectra, observations, static covariates."""

import json
import math

import numpy as np
import pytest
from pydantic import ValidationError

import roughformer as rf
from roughformer.errors import InputError
from roughformer.io import make_sine
from roughformer.tokens import SpectrumConfig, TokenConfig, Tokenizer
from roughformer.tokens.config import plain_windows
from roughformer.tokens.holding import held_at_cuts, last_values
from roughformer.tokens.observations import WORDS, ValueRange, observation_words
from roughformer.tokens.pieces import pieces_between
from roughformer.tokens.spectrum import frequencies, log_power, spectrum_range
from roughformer.tokens.static import StaticEncoder
from roughformer.tokens.tempo import TempoEncoder, with_variation


def ragged(n=5, channels=2, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 40, n)
    times = [np.cumsum(rng.uniform(0.5, 1.5, m)) for m in lengths]
    values = [rng.standard_normal((m, channels)).cumsum(axis=0) for m in lengths]
    for v in values:
        v[rng.random(v.shape) < missing] = np.nan
    return rf.SeriesBatch.from_arrays(values, times)


# Configuration


@pytest.mark.parametrize(
    "windows",
    [12, rf.Windows.by_count(3), rf.Windows.by_duration(2.5), rf.Windows.by_points(7), [0.0, 1, 5]],
)
def test_a_tokenizer_survives_json_and_gives_the_same_tokens(windows):
    batch = ragged()
    config = TokenConfig(windows=windows, clock=3, spectrum=SpectrumConfig(count=8), counts=True)
    first = Tokenizer.fit(config, batch)
    again = Tokenizer.model_validate(json.loads(first.model_dump_json()))
    assert again == first
    a, b = first.encode(batch), again.encode(batch)
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[k], b[k], equal_nan=k != "mask") for k in a)
    assert a["tokens"].shape[-1] == first.n_features == len(first.names)
    assert len(first.feature_channels()) == first.n_features


def test_windows_that_fit_only_some_series_cannot_be_stored():
    with pytest.raises(InputError, match="one rule for all series"):
        plain_windows(rf.Windows.explicit([[0.0, 1.0], [0.0, 2.0]]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"views": ("global",), "clock": 3}, "clock words belong to the local view"),
        ({"depth": 0}, "observations=True only"),
        ({"hold": True, "counts": True}, "no gaps to count"),
        ({"lags": (0.0,)}, "lags are positive"),
        ({"views": ("local", "local")}, "views must be"),
        ({"spectrum": {"low": 2.0, "high": 1.0}}, "low must be below its high"),
        ({"depths": 3}, "Extra inputs"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ValidationError, match=words):
        TokenConfig(**options)


def test_tokens_are_the_signatures_with_the_fitted_unit_of_time():
    batch = ragged()
    tokenizer = Tokenizer.fit(TokenConfig(windows=4, depth=2), batch)
    expected = rf.multiview_signature(
        batch, 4, 2, lifts=rf.Time(tokenizer.time_unit), dtype=np.float32
    )
    assert np.array_equal(tokenizer.encode(batch)["tokens"].numpy(), expected)
    start, end = batch.span
    assert tokenizer.time_unit == np.median(end - start)
    last = tokenizer.encode(batch)["times"][:, -1].numpy()
    assert np.allclose(last, (end - start) / tokenizer.time_unit)


def test_ragged_windows_are_masked():
    batch = ragged()
    inputs = Tokenizer.fit(TokenConfig(windows={"duration": 3.0}), batch).encode(batch)
    counts = rf.Windows.by_duration(3.0).place(batch).n_windows
    assert inputs["mask"].sum(dim=1).tolist() == counts.tolist()
    assert (inputs["tokens"][~inputs["mask"]] == 0).all()


def test_other_channels_than_fitted_are_refused():
    tokenizer = Tokenizer.fit(TokenConfig(windows=3), ragged())
    with pytest.raises(InputError, match=r"fitted to the channels \['x0', 'x1'\]"):
        tokenizer.encode(ragged(channels=3))
    with pytest.raises(InputError, match="at least one series"):
        Tokenizer.fit(TokenConfig(windows=3), ragged()[:0])


def test_an_empty_batch_has_empty_tokens():
    config = TokenConfig(windows=3, clock=2, observations=True, spectrum=SpectrumConfig(count=4))
    tokenizer = Tokenizer.fit(config, ragged())
    inputs = tokenizer.encode(ragged()[:0])
    assert inputs["tokens"].shape == (0, 3, tokenizer.n_features)
    assert inputs["spectrum"].shape == (0, 2, 4)


# Spectrum


def test_the_spectrum_of_a_sine_peaks_at_its_frequency_full_and_dropped():
    t = np.linspace(0, 10, 800)
    batch = rf.SeriesBatch.from_numpy3d(np.sin(2 * np.pi * 3.0 * t)[None, None], times=t)
    config = spectrum_range(SpectrumConfig(count=200), batch)
    turns = frequencies(config) / (2 * np.pi)
    for drop in (0.0, 0.5):
        power = log_power(batch, config, drop=drop, seed=1)[0, 0].numpy()
        assert abs(turns[power.argmax()] - 3.0) <= 0.05


def test_the_linear_axis_has_half_turns_over_the_span_and_stops_at_half_a_turn_a_step():
    batch = make_sine(3, n_classes=3, length=100, t_max=2.0)
    config = spectrum_range(SpectrumConfig(count=1024), batch)
    assert config.low == pytest.approx(0.25)
    assert config.high <= 0.5 * 99 / 2.0 + 1e-9
    assert config.count == 99


def test_gain_does_not_change_the_spectrum_and_a_flat_channel_has_none():
    batch = ragged()
    config = spectrum_range(SpectrumConfig(count=16), batch)
    louder = batch.with_values(batch.values * 7)
    a, b = log_power(batch, config), log_power(louder, config)
    assert np.allclose(a, b, atol=1e-3)
    flat = batch.with_values(np.ones_like(batch.values))
    assert (log_power(flat, config) == 0).all()


# Windows of spectra


def tone(frequency, seconds=20.0, rate=50.0, channels=1):
    t = np.arange(0, seconds, 1 / rate)
    x = np.stack([np.sin(2 * np.pi * frequency * t + c) for c in range(channels)])
    return rf.SeriesBatch.from_numpy3d(x[None], times=t)


def made(**options):
    return TempoEncoder(**({"channels": ("x0",), "low": 0.5, "n_rates": 80} | options))


def test_pieces_have_the_signature_of_the_path_between_their_cuts():
    batch = ragged()
    start, end = batch.span
    cuts = start[:, None] + (end - start)[:, None] * np.array([0.1, 0.35, 0.9])[None, :]
    pieces = pieces_between(batch, cuts)
    expected = rf.multiview_signature(batch, rf.Windows.explicit(cuts), 3, "local")
    found = rf.signature(pieces, 3).reshape(expected.shape)
    assert np.allclose(found, expected, atol=1e-9)


def test_pieces_between_the_ends_are_the_series_and_cuts_on_points_are_not_doubled():
    batch = ragged(n=3)
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


def test_variation_never_falls_and_starts_at_zero():
    lifted = with_variation(ragged(missing=0.3))
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


# Observations


def brute_force(batch, cuts, values, view):
    """Words of each window by looping over everything."""
    found = []
    for b in range(len(batch)):
        t, x = batch.series(b)
        edges = cuts.of(b)
        span = 7.0
        rows = []
        for k in range(1, len(edges)):
            row = []
            for c in range(batch.n_channels):
                low = edges[0] if view == "global" else edges[k - 1]
                closed = view == "global" or k == 1
                inside = ((t >= low) if closed else (t > low)) & (t <= edges[k])
                inside &= ~np.isnan(x[:, c])
                z, when = values(x[inside, c].astype(float), np.full(inside.sum(), c)), t[inside]
                nan = float("nan")
                row += [np.log1p(len(z)), *([z.mean(), z.min(), z.max()] if len(z) else [nan] * 3)]
                if view == "global":
                    apart = len(z) > 1 and when.std() > 0.01 * span
                    slope = np.polyfit(when / span, z, 1)[0] if apart else nan
                    row += [z[0], z[-1]] if len(z) else [nan, nan]
                    row += [z.std() if len(z) > 1 else nan, slope]
                    row += [z[-1] - z[0] if len(z) > 1 else nan]
                    row += [(edges[k] - when[-1]) / span if len(z) else nan]
                    for size in (2, 1):
                        after = edges[max(k - size, 0)]
                        late = z[(when > after) | ((k <= size) & (when >= after))]
                        some = len(late) > 0
                        mean = late.mean() if some else nan
                        if size == 2:
                            row += [np.log1p(len(late)), mean]
                            row += [late.min() if some else nan, late.max() if some else nan]
                        else:
                            row += [mean]
            rows.append(row)
        found.append(rows)
    return np.array(found)


@pytest.mark.parametrize("windows", [rf.Windows.by_count(4), rf.Windows.explicit([-3.0, 5, 9, 50])])
@pytest.mark.parametrize("views", [("local",), ("global", "local")])
def test_observation_words_agree_with_a_loop(windows, views):
    batch = ragged(missing=0.7)
    values, cuts = ValueRange.fit(batch), windows.place(batch)
    found = observation_words(batch, cuts, views, values, 2, 7.0)
    expected = np.concatenate([brute_force(batch, cuts, values, v) for v in views], axis=-1)
    assert np.allclose(found, expected, atol=1e-5, equal_nan=True)


def test_a_value_range_is_blunt_to_errors_and_knows_nothing_of_empty_channels():
    batch = ragged(n=40)
    wrong = batch.values.copy()
    wrong[7, 0], wrong[:, 1] = 1e9, np.nan
    values = ValueRange.fit(batch.with_values(wrong))
    z = values(wrong[:, 0].astype(float), np.zeros(len(wrong), int))
    assert abs(z.mean()) < 1e-9
    assert z.max() < 50
    assert values(np.array([3.0]), np.array([1])).tolist() == [0.0]


def test_observations_need_no_signature_and_name_their_features():
    batch = ragged(missing=0.8)
    tokenizer = Tokenizer.fit(TokenConfig(windows=3, depth=0, observations=True), batch)
    assert tokenizer.n_features == 2 * (len(WORDS["global"]) + len(WORDS["local"]))
    assert tokenizer.names[:2] == ["global:log n of x0", "global:mean of x0"]
    assert tokenizer.encode(batch)["tokens"].shape == (5, 3, tokenizer.n_features)
    both = Tokenizer.fit(TokenConfig(windows=3, depth=1, observations=True), batch)
    assert both.n_features == tokenizer.n_features + 2 * 3
    assert [c for c in both.feature_channels() if c not in ((), (0,), (1,))] == []


def test_dropped_points_are_not_observed():
    batch = ragged()
    tokenizer = Tokenizer.fit(TokenConfig(windows=1, depth=0, observations=True), batch)
    thin = tokenizer.encode(batch, drop=0.5, seed=1)["tokens"].numpy()
    direct = tokenizer.encode(batch.drop_points(0.5, 1))["tokens"].numpy()
    assert np.array_equal(thin, direct, equal_nan=True)


# Static covariates


def test_static_covariates_become_numbers_levels_and_marks():
    static = np.array([[1, 70.5, 0], [2, np.nan, 1], [4, 50.0, 1], [2, 1000.0, 0]] * 30)
    batch = rf.SeriesBatch.from_numpy3d(
        np.zeros((120, 1, 3)), static=static, static_names=["kind", "weight", "sex"]
    )
    encoder = StaticEncoder.fit(batch, ("kind", "weight", "sex"))
    assert encoder.names == ["kind=1", "kind=2", "kind=4", "weight", "weight unknown", "sex"]
    found = encoder.encode(batch)
    assert found[1].tolist()[:3] == [0.0, 1.0, 0.0]
    assert np.isnan(found[1, 3])
    assert found[1, 4] == 1.0
    assert StaticEncoder().encode(batch).shape == (120, 0)
    tokenizer = Tokenizer.fit(TokenConfig(windows=2, static=("kind",)), batch)
    assert tokenizer.encode(batch)["static"].shape == (120, 3)
    with pytest.raises(InputError, match="are not in these series"):
        Tokenizer.fit(TokenConfig(windows=2, static=("age",)), batch)


# Holding


@pytest.mark.parametrize("windows", [{"duration": 3.3}, {"points": 4}, (0.0, 4.0, 9.5, 14.0)])
@pytest.mark.parametrize("drop", [0.0, 0.4])
def test_held_tokens_do_not_know_what_comes_after_their_window(windows, drop):
    batch = ragged(n=4, missing=0.4)
    config = TokenConfig(windows=windows, depth=3, hold=True, clock=2, counts=False)
    tokenizer = Tokenizer.fit(config, batch)
    cuts = config.rule.place(batch)
    before = tokenizer.encode(batch, drop=drop, seed=1)
    changed = batch.values.copy()
    third = np.array([cuts.of(b)[2] for b in range(len(batch))])
    later = batch.times > np.repeat(third, batch.lengths)
    changed[later] = changed[later] * 3 + 1
    after = tokenizer.encode(batch.with_values(changed), drop=drop, seed=1)
    assert np.array_equal(before["tokens"][:, :2], after["tokens"][:, :2])
    assert not np.array_equal(before["tokens"], after["tokens"])


def test_without_gaps_and_with_cuts_at_points_holding_changes_nothing():
    batch = ragged(n=3)
    plain, held = (
        Tokenizer.fit(TokenConfig(windows={"points": 5}, hold=hold), batch).encode(batch)["tokens"]
        for hold in (False, True)
    )
    assert np.allclose(plain, held, atol=1e-6)


def test_gaps_are_filled_with_the_last_value_and_zero_before_the_first():
    nan = np.nan
    values = np.array([[nan, 1], [2, nan], [nan, nan], [nan, 5], [7, nan]], dtype=float)
    batch = rf.SeriesBatch(np.arange(5.0), values, [0, 3, 5])
    assert last_values(batch).tolist() == [[0, 1], [2, 1], [2, 1], [0, 5], [7, 5]]
    held = Tokenizer.fit(TokenConfig(windows=2, hold=True), batch)
    assert held.encode(batch[:0])["tokens"].shape[0] == 0
    assert held_at_cuts(batch[:0], rf.Windows.by_count(2).place(batch[:0])).n_points == 0


@pytest.mark.parametrize("duration", [0.1, 0.3, 0.7])
def test_cuts_that_round_onto_points_are_not_doubled(duration):
    times = [7.0 * i + 0.1 * np.arange(60) for i in range(5)]
    batch = rf.SeriesBatch.from_arrays([np.arange(60.0)[:, None]] * 5, times)
    config = TokenConfig(windows={"duration": duration}, hold=True)
    assert Tokenizer.fit(config, batch).encode(batch)["tokens"].isfinite().all()


def test_a_series_of_one_point_can_be_held():
    batch = rf.SeriesBatch.from_arrays([np.ones((1, 1)), np.ones((9, 1))])
    tokenizer = Tokenizer.fit(TokenConfig(windows=3, hold=True), batch)
    assert tokenizer.encode(batch)["tokens"].isfinite().all()


def test_what_a_series_says_so_far_does_not_depend_on_whether_it_goes_on():
    batch = ragged(n=3, missing=0.3)
    config = TokenConfig(windows=(0.0, 3.0, 7.0, 11.0, 15.0), hold=True, basepoint=True)
    tokenizer = Tokenizer.fit(config, batch)
    whole = tokenizer.encode(batch)["tokens"]
    known = batch.times <= 11.0
    lengths = np.bincount(np.repeat(np.arange(3), batch.lengths)[known], minlength=3)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    prefix = rf.SeriesBatch(batch.times[known], batch.values[known], offsets)
    assert np.allclose(tokenizer.encode(prefix)["tokens"][:, :3], whole[:, :3], atol=1e-5)

"""Words of each channel on the clock of its own observations."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.signatures.points import pad
from roughformer.signatures.torch_backend import Placed, observed
from roughformer.tokens import TokenConfig, Tokenizer
from roughformer.tokens.fitted import WORDS, ValueRange
from roughformer.tokens.padded import observation_words, scaled
from small import ragged_batch


def z_of(x, values, channel):
    """Values (M,) of one channel, scaled."""
    low, high, mean, scale = (
        part[channel] for part in (values.low, values.high, values.mean, values.scale)
    )
    return (np.clip(x, low, high) - mean) / scale


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
                z, when = z_of(x[inside, c].astype(float), values, c), t[inside]
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
    batch = ragged_batch(missing=0.7)
    values, cuts = ValueRange.fit(batch), windows.place(batch)
    placed = Placed.of(cuts, batch.span[0])
    found = observation_words(observed(*pad(batch)), placed, views, values, 2, 7.0)
    expected = np.concatenate([brute_force(batch, cuts, values, v) for v in views], axis=-1)
    assert np.allclose(found, expected, atol=1e-5, equal_nan=True)


def test_a_value_range_is_blunt_to_errors_and_knows_nothing_of_empty_channels():
    batch = ragged_batch(n=40)
    wrong = batch.values.copy()
    wrong[7, 0], wrong[:, 1] = 1e9, np.nan
    values = ValueRange.fit(batch.with_values(wrong))
    z = scaled(torch.from_numpy(wrong.astype(float)), values)[:, 0]
    assert abs(z.mean()) < 1e-9
    assert z.max() < 50
    assert scaled(torch.tensor([[0.0, 3.0]]), values)[0, 1] == 0.0


def test_observations_need_no_signature_and_name_their_features():
    batch = ragged_batch(missing=0.8)
    tokenizer = Tokenizer.fit(TokenConfig(windows=3, depth=0, observations=True), batch)
    assert tokenizer.n_features == 2 * (len(WORDS["global"]) + len(WORDS["local"]))
    assert tokenizer.names[:2] == ["global:log n of x0", "global:mean of x0"]
    assert tokenizer.encode(batch)["tokens"].shape == (5, 3, tokenizer.n_features)
    both = Tokenizer.fit(TokenConfig(windows=3, depth=1, observations=True), batch)
    assert both.n_features == tokenizer.n_features + 2 * 3
    assert [c for c in both.feature_channels() if c not in ((), (0,), (1,))] == []


def test_dropped_points_are_not_observed():
    batch = ragged_batch()
    tokenizer = Tokenizer.fit(TokenConfig(windows=1, depth=0, observations=True), batch)
    thin = tokenizer.encode(batch, drop=0.5, seed=1)["tokens"].numpy()
    direct = tokenizer.encode(batch.drop_points(0.5, 1))["tokens"].numpy()
    assert np.array_equal(thin, direct, equal_nan=True)

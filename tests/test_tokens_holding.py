"""Held paths: tokens that do not know what comes after their window."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.signatures.points import pad
from roughformer.signatures.torch_backend import held_points, observed
from roughformer.tokens import TokenConfig, Tokenizer
from small import ragged_batch


@pytest.mark.parametrize("windows", [{"duration": 3.3}, {"points": 4}, (0.0, 4.0, 9.5, 14.0)])
@pytest.mark.parametrize("drop", [0.0, 0.4])
def test_held_tokens_do_not_know_what_comes_after_their_window(windows, drop):
    batch = ragged_batch(n=4, missing=0.4)
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
    batch = ragged_batch(n=3)
    plain, held = (
        Tokenizer.fit(TokenConfig(windows={"points": 5}, hold=hold), batch).encode(batch)["tokens"]
        for hold in (False, True)
    )
    assert np.allclose(plain, held, atol=1e-6)


def test_gaps_are_filled_with_the_last_value_and_zero_before_the_first():
    nan = np.nan
    values = np.array([[nan, 1], [2, nan], [nan, nan], [nan, 5], [7, nan]], dtype=float)
    batch = rf.SeriesBatch(np.arange(5.0), values, [0, 3, 5])
    held = held_points(observed(*pad(batch)), torch.zeros(2, 1, dtype=torch.float64)).x
    assert held[0, 1:].tolist() == [[0, 1], [2, 1], [2, 1]]
    assert held[1, 1:3].tolist() == [[0, 5], [7, 5]]
    held = Tokenizer.fit(TokenConfig(windows=2, hold=True), batch)
    assert held.encode(batch[:0])["tokens"].shape[0] == 0


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
    batch = ragged_batch(n=3, missing=0.3)
    config = TokenConfig(windows=(0.0, 3.0, 7.0, 11.0, 15.0), hold=True, basepoint=True)
    tokenizer = Tokenizer.fit(config, batch)
    whole = tokenizer.encode(batch)["tokens"]
    known = batch.times <= 11.0
    lengths = np.bincount(np.repeat(np.arange(3), batch.lengths)[known], minlength=3)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    prefix = rf.SeriesBatch(batch.times[known], batch.values[known], offsets)
    assert np.allclose(tokenizer.encode(prefix)["tokens"][:, :3], whole[:, :3], atol=1e-5)

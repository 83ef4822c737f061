"""Tokens of streams: the kernel has those of the step that defines them, however rows come in."""

from typing import Any

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.tokens import streams
from roughformer.tokens.padded import scaled
from roughformer.tokens.streams import StreamTokens, TokenStep, stream_tokens
from stream_cases import CASES, series

WIDE: dict[str, dict[str, Any]] = {
    **CASES,
    "many clocks": {"clock": 19, "context": 6},
    "deep": {"depth": 5, "context": 11, "basepoint": True},
    "points, observations": {"windows": {"points": 2}, "observations": True, "clock": 1},
    "local first": {"views": ("local", "global"), "clock": 2, "observations": True},
    "local log": {"views": ("local",), "transform": "logsignature", "clock": 1},
}


def tokenizer_of(options: dict[str, Any], channels: int = 2) -> rf.Tokenizer:
    config = {"windows": {"duration": 0.5}, "hold": True, "depth": 2} | options
    return rf.Tokenizer.fit(rf.TokenConfig(**config), series(channels=channels))


def memory(tokenizer: rf.Tokenizer, n: int) -> dict[str, np.ndarray]:
    return {
        name: np.zeros((n, *shape))
        for name, shape in TokenStep(tokenizer.for_padded()).shapes.items()
    }


def pushed(tokens: StreamTokens, batch: rf.SeriesBatch, seed: int, rows_each: int) -> list[Any]:
    """Rows in random pieces -> for each stream the tokens of its windows and when those ended."""
    rng = np.random.default_rng(seed)
    n, at = len(batch), batch.offsets[:-1].copy()
    found: list[Any] = [[] for _ in range(n)]
    while (at < batch.offsets[1:]).any():
        size = np.minimum(rng.integers(0, rows_each + 1, n), batch.offsets[1:] - at)
        slots = np.flatnonzero(size)
        if len(slots) == 0:
            continue
        rows = np.concatenate([np.arange(at[b], at[b] + size[b]) for b in slots])
        offsets = np.concatenate([[0], np.cumsum(size[slots])])
        begun = tokens.arrays["points"][slots]
        first = batch.times[rows[offsets[:-1]]]
        start = np.where(begun > 0, tokens.arrays["start"][slots], first)
        last = batch.times[rows[offsets[1:] - 1]] - start
        count = tokens.ended(last, begun + size[slots]) - tokens.arrays["window"][slots]
        owner = np.repeat(slots, count.astype(int))
        parts = list(
            tokens.advance(slots, offsets, batch.times[rows], batch.values[rows], len(owner))
        )
        made = [row for part in parts for row in part.tokens.numpy()]
        ends = [end for part in parts for end in part.ends]
        for b, token, end in zip(owner, made, ends, strict=True):
            found[b].append(np.append(token, end))
        at = at + size
    return found


def differences(a: list[Any], b: list[Any]) -> float:
    assert [len(x) for x in a] == [len(x) for x in b]
    gaps = [
        np.abs(np.nan_to_num(p - q)).max() / max(1.0, np.nanmax(np.abs(p)))
        for x, y in zip(a, b, strict=True)
        for p, q in zip(x, y, strict=True)
    ]
    for x, y in zip(a, b, strict=True):
        for p, q in zip(x, y, strict=True):
            np.testing.assert_array_equal(np.isnan(p), np.isnan(q))
    return max(gaps, default=0.0)


@pytest.mark.parametrize("case", WIDE)
def test_the_kernel_has_the_tokens_of_the_step(case, instruction_set):
    tokenizer = tokenizer_of(WIDE[case])
    batch = series(n=7, seed=5, points=60)
    slow = StreamTokens(tokenizer.for_padded(), memory(tokenizer, len(batch)))
    fast = stream_tokens(tokenizer.for_padded(), memory(tokenizer, len(batch)))
    assert type(fast) is not StreamTokens
    want = pushed(slow, batch, 0, 9)
    assert differences(want, pushed(fast, batch, 1, 30)) < 1e-6
    for name, rows in slow.arrays.items():
        np.testing.assert_allclose(fast.arrays[name], rows, rtol=1e-9, atol=1e-9, err_msg=name)
    open_ = [tokens.open_windows(np.arange(7)) for tokens in (slow, fast)]
    torch.testing.assert_close(
        open_[1].tokens, open_[0].tokens, rtol=1e-6, atol=1e-6, equal_nan=True
    )
    np.testing.assert_allclose(open_[1].ends, open_[0].ends, atol=1e-12)


@pytest.mark.parametrize("late", [1e3, 1e7, 3e9])
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-7, 1e-3])
def test_slopes_of_what_is_first_seen_late_are_known_or_nan(late, spread, instruction_set):
    tokenizer = tokenizer_of({"observations": True, "depth": 0, "windows": {"points": 1}})
    # The first channel is seen early, the second at the end of a long stream only.
    seen = np.arange(3) if spread else np.zeros(1)
    factors = np.random.default_rng(0).uniform(1, 2, size=20)  # rounding goes either way
    since = [np.concatenate([[0.0, 0.3], 1 + spread * seen]) * late * f for f in factors]
    times = np.concatenate(since) * tokenizer.time_unit
    n, size = len(factors), len(since[0])
    values = np.full((n, size, 2), np.nan)
    values[:, :2, 0], values[:, 2:, 1] = 1.0, seen / 3
    slope = [i for i, name in enumerate(tokenizer.names) if "slope" in name]
    said = []
    for make in (StreamTokens, stream_tokens):
        tokens = make(tokenizer.for_padded(), memory(tokenizer, n))
        offsets, count = np.arange(n + 1) * size, n * (size - 1)
        rows = tokens.advance(np.arange(n), offsets, times, values.reshape(-1, 2), count)
        ended = torch.cat([part.tokens for part in rows]).reshape(n, size - 1, -1)
        said.append(ended[:, -1][:, slope])
    torch.testing.assert_close(said[1], said[0], rtol=1e-5, atol=1e-6, equal_nan=True)
    assert float(said[1][:, 0].abs().max()) < 1e-12  # constant
    z = scaled(torch.from_numpy(values[0]), tokenizer.value_range)[2:, 1].numpy()
    for i in range(n):
        known = np.std(since[i][2:]) > 0.01
        expected = np.polyfit(since[i][2:] - since[i][2], z, 1)[0] if known else np.nan
        np.testing.assert_allclose(said[1][i, 1], expected, rtol=1e-4)


@pytest.mark.parametrize("case", ["all", "points", "observations"])
def test_tokens_do_not_depend_on_how_rows_come_in(case, engine, monkeypatch):
    tokenizer = tokenizer_of(CASES[case])
    batch = series(n=4, seed=6)
    make = stream_tokens if engine == "native" else StreamTokens
    at_once = make(tokenizer.for_padded(), memory(tokenizer, 4))
    want = pushed(at_once, batch, 0, 1000)
    one_by_one = make(tokenizer.for_padded(), memory(tokenizer, 4))
    assert differences(want, pushed(one_by_one, batch, 0, 1)) < 1e-6
    # Results that do not fit into one call of the kernel come in several.
    monkeypatch.setattr(streams, "_NUMBERS", 1)
    little_room = make(tokenizer.for_padded(), memory(tokenizer, 4))
    assert differences(want, pushed(little_room, batch, 0, 1000)) == 0.0
    for name, rows in at_once.arrays.items():
        np.testing.assert_array_equal(little_room.arrays[name], rows)


def test_open_windows_are_told_of_and_left_as_they_are():
    tokenizer = tokenizer_of(CASES["all"] | {"observations": True})
    tokens = stream_tokens(tokenizer.for_padded(), memory(tokenizer, 3))
    pushed(tokens, series(n=3, seed=2), 0, 5)
    before = {name: rows.copy() for name, rows in tokens.arrays.items()}
    a, b = (tokens.open_windows(np.array(slots)) for slots in ([2, 0, 2], [0, 2]))
    np.testing.assert_array_equal(a.tokens[[1, 0]].numpy(), b.tokens.numpy())
    np.testing.assert_array_equal(a.ends[2], a.ends[0])
    for name, rows in tokens.arrays.items():
        np.testing.assert_array_equal(rows, before[name])

"""The vanilla Transformer: attention over the samples themselves, at a cost of L² for L samples.

It is made of the same blocks, scaling, pooling and head as RFormer; only its tokens differ.
"""

from typing import Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from roughformer.errors import InputError
from roughformer.model import RFormer
from roughformer.series import SeriesBatch
from roughformer.tokens.thinning import thinned
from roughformer.tokens.tokenizer import check_series

__all__ = ["SampleEncoder", "Transformer"]


class SampleEncoder(BaseModel):
    """Series -> one token per sample: its values (0 where missing), which of them were observed,
    and the time since the sample before. Plain data.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: tuple[str, ...] = Field(min_length=1)
    static: tuple[str, ...] = ()
    time_unit: float = Field(gt=0, description="Median span of the training series.")

    @classmethod
    def fit(cls, batch: SeriesBatch, static: tuple[str, ...] = ()) -> Self:
        """Take names and the unit of time from ``batch``."""
        if len(batch) == 0:
            raise InputError("a model needs at least one series to be fitted to, got none")
        start, end = batch.span
        span = end - start
        unit = float(np.median(span[span > 0])) if (span > 0).any() else 1.0
        return cls(channels=batch.channels, static=static, time_unit=unit)

    def n_positions(self, batch: SeriesBatch) -> int:
        """Tokens of the longest series."""
        return int(batch.lengths.max(initial=0))

    @property
    def n_features(self) -> int:
        """Numbers of a token: 2 C + 1."""
        return 2 * len(self.channels) + 1

    @property
    def names(self) -> list[str]:
        """A name for each of them."""
        return [*self.channels, *(f"seen {c}" for c in self.channels), "gap"]

    def feature_channels(self) -> list[tuple[int, ...]]:
        """For each of them, the number of its channel; the gap has none."""
        each = [(c,) for c in range(len(self.channels))]
        return [*each, *each, ()]

    @property
    def n_spectrum(self) -> int:
        """It has no spectrum."""
        return 0

    def encode(
        self,
        batch: SeriesBatch,
        *,
        drop: float = 0.0,
        seed: int = 0,
        series: Any = None,
        threads: int | None = None,
    ) -> dict[str, Tensor]:
        """``tokens (B, L, 2C + 1)``, ``times (B, L)``, ``mask (B, L)`` if lengths differ, and
        ``static (B, S)``; L is the longest series after dropping.
        """
        check_series(batch, self.channels, self.static)
        batch = thinned(batch, drop, seed, series)
        n, longest, c = len(batch), int(batch.lengths.max(initial=1)), batch.n_channels
        row = np.repeat(np.arange(n), batch.lengths)
        column = np.arange(batch.n_points) - np.repeat(batch.offsets[:-1], batch.lengths)
        since = (batch.times - batch.span[0][row]) / self.time_unit
        gap = np.diff(since, prepend=0.0)
        gap[batch.offsets[:-1]] = 0.0
        seen = ~np.isnan(batch.values)
        tokens = np.zeros((n, longest, 2 * c + 1), dtype=np.float32)
        tokens[row, column, :c] = np.where(seen, batch.values, 0)
        tokens[row, column, c : 2 * c] = seen
        tokens[row, column, 2 * c] = gap
        times = np.zeros((n, longest), dtype=np.float32)
        times[row, column] = since
        inputs = {"tokens": torch.from_numpy(tokens), "times": torch.from_numpy(times)}
        if (batch.lengths != longest).any():
            inputs["mask"] = torch.from_numpy(np.arange(longest) < batch.lengths[:, None])
        if self.static:
            assert batch.static is not None
            at = [batch.static_names.index(name) for name in self.static]
            inputs["static"] = torch.from_numpy(batch.static[:, at].astype(np.float32))
        return inputs


class Transformer(RFormer):
    """The blocks of RFormer on the tokens of ``SampleEncoder``."""

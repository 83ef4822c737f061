"""Series as their samples: one token for each, as the baselines that work on samples take them."""

from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from roughformer import InputError
from roughformer.series import SeriesBatch
from roughformer.tokens import check_series, thinned

__all__ = ["ForwardEncoder", "SampleEncoder", "channels_of_samples", "gaps_of_samples", "last_seen"]

Fill = Literal["mean", "forward"]


class SampleEncoder(BaseModel):
    """Series -> one token per sample: its values, which of them were observed, and the time since
    the sample before. Plain data.

    What was not observed is NaN, which models scale to the mean of the training part, or the last
    observed value (NaN before the first) with ``fill="forward"``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens_are_samples: ClassVar[bool] = True

    channels: tuple[str, ...] = Field(min_length=1)
    static: tuple[str, ...] = ()
    time_unit: float = Field(gt=0, description="Median span of the training series.")
    fill: Fill = Field("mean", description="What stands for a value that was not observed.")
    ages: bool = Field(
        False, description="Tokens tell for each channel the time since its observation before."
    )
    centre: tuple[float, ...] = Field(
        (), description="Means of the channels in the training series; nothing: 0."
    )
    usual_gap: float = Field(
        0.0, ge=0, description="Mean time between samples of the training series, in time_unit."
    )

    @classmethod
    def fit(
        cls, batch: SeriesBatch, static: tuple[str, ...] = (), fill: Fill | None = None
    ) -> Self:
        """Take names, means and the unit of time from ``batch``; ``fill=None``: the encoder's own.

        With ``fill="forward"`` tokens tell ages if a value of ``batch`` is missing.
        """
        if len(batch) == 0:
            raise InputError("a model needs at least one series to be fitted to, got none")
        start, end = batch.span
        span = end - start
        unit = float(np.median(span[span > 0])) if (span > 0).any() else 1.0
        gaps = int((batch.lengths - 1).sum())
        fill = cls.model_fields["fill"].default if fill is None else fill
        missing = np.isnan(batch.values)
        seen = np.maximum((~missing).sum(axis=0), 1)
        return cls(
            channels=batch.channels,
            static=static,
            time_unit=unit,
            fill=fill,
            ages=fill == "forward" and bool(missing.any()),
            centre=tuple((np.nansum(batch.values, axis=0, dtype=np.float64) / seen).tolist()),
            usual_gap=float(span.sum()) / gaps / unit if gaps else 0.0,
        )

    def n_positions(self, batch: SeriesBatch) -> int:
        """Tokens of the longest series."""
        return int(batch.lengths.max(initial=0))

    @property
    def n_features(self) -> int:
        """Numbers of a token: 2 C + 1, and C ages."""
        return len(self.names)

    @property
    def names(self) -> list[str]:
        """A name for each of them."""
        ages = [f"age of {c}" for c in self.channels] if self.ages else []
        return [*self.channels, *(f"seen {c}" for c in self.channels), "gap", *ages]

    def feature_channels(self) -> list[tuple[int, ...]]:
        """For each of them, the number of its channel; the gap has none."""
        each = [(c,) for c in range(len(self.channels))]
        return [*each, *each, (), *(each if self.ages else [])]

    def least_scale(self, inputs: dict[str, Tensor]) -> Tensor:
        """For each of them, what differs by less is alike (0: nothing): on an even grid gaps vary
        by rounding only, and by that measure one that is twice as long would be beyond all bounds.
        """
        c = len(self.channels)
        return torch.tensor([0.0] * (2 * c) + [self.usual_gap] * (1 + (c if self.ages else 0)))

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
        """``tokens (B, L, n_features)``, ``times (B, L)``, ``mask (B, L)`` if lengths differ, and
        ``static (B, S)``; L is the longest series after dropping.
        """
        check_series(batch, self.channels, self.static)
        batch = thinned(batch, drop, seed, series)
        n, longest, c = len(batch), int(batch.lengths.max(initial=1)), batch.n_channels
        row = np.repeat(np.arange(n), batch.lengths)
        first = np.repeat(batch.offsets[:-1], batch.lengths)
        column = np.arange(batch.n_points) - first
        since = (batch.times - batch.span[0][row]) / self.time_unit
        before = np.where(column > 0, np.arange(batch.n_points) - 1, first)
        seen = ~np.isnan(batch.values)
        # Large means leave in float64: float32 would keep little of what varies around them.
        values = batch.values - np.asarray(self.centre or [0.0] * c)
        last = last_seen(seen, first) if self.fill == "forward" or self.ages else None
        if last is not None and self.fill == "forward":
            carried = np.take_along_axis(values, np.maximum(last, 0), axis=0)
            values = np.where(last < 0, np.nan, carried)
        tokens = np.zeros((n, longest, self.n_features), dtype=np.float32)
        tokens[row, column, :c] = values
        tokens[row, column, c : 2 * c] = seen
        tokens[row, column, 2 * c] = since - since[before]
        if last is not None and self.ages:
            # Until the sample before; counted from the first sample if not observed until then.
            known = np.where(last[before] < 0, first[:, None], last[before])
            known = np.where((column == 0)[:, None], first[:, None], known)
            tokens[row, column, 2 * c + 1 :] = since[:, None] - since[known]
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


class ForwardEncoder(SampleEncoder):
    """``SampleEncoder`` that carries values forward unless told otherwise."""

    fill: Fill = Field("forward", description="What stands for a value that was not observed.")


def channels_of_samples(n_features: int, model: str) -> int:
    """C of tokens with 2 C + 1 features; ValueError for a ``model`` that is given others."""
    if n_features < 3 or n_features % 2 == 0:
        raise ValueError(
            f"{model} takes the tokens of SampleEncoder without ages: values, flags and the "
            f"gap, which are an odd number of features, got {n_features}"
        )
    return n_features // 2


def gaps_of_samples(tokens: Tensor, times: Tensor, mask: Tensor | None, n_channels: int) -> Tensor:
    """``(B, L)`` time since the sample before, in usual spans; 0 at the first and at padding.

    The token's, which is a difference of float64 times: those of float32 ``times (B, L)`` lose
    their digits in recordings that are many times as long as the usual one, and are taken only
    where the token's is NaN, hidden for an explanation. Steps of a solver: no gradient is wanted.
    """
    told = tokens[..., 2 * n_channels].detach()
    gap = torch.where(told.isnan(), times.diff(dim=1, prepend=times[:, :1]).to(told), told)
    return gap if mask is None else gap * mask


def last_seen(seen: npt.NDArray[np.bool_], first: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each point and channel the number ``(N, C)`` of the last point of its series at which
    the channel was observed, itself included; -1 = not yet. ``first (N,)``: where series begin.
    """
    numbers = np.where(seen, np.arange(len(seen))[:, None], -1)
    last = np.maximum.accumulate(numbers, axis=0) if len(seen) else numbers
    return np.where(last < first[:, None], -1, last)

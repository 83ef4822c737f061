"""Inputs of an ensemble on whole paths: words of even cells, and a summary of the observations."""

from itertools import combinations
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from roughformer.series import SeriesBatch
from roughformer.signatures import Windows, pad, padded_cells, path_cells
from roughformer.signatures.torch_backend import Observed, number, observed
from roughformer.tokens.fitted import (
    StaticEncoder,
    ValueRange,
    check_series,
    encoded_static,
    thinned,
)
from roughformer.tokens.intervals import coarser, n_coarser
from roughformer.tokens.padded import PaddedInputs
from roughformer.tokens.rhythm import FREQUENCIES, RHYTHM, rhythm
from roughformer.tokens.summary import CONTRASTS, PLAIN, SUMMARY, contrasts, summaries

__all__ = ["CellEncoder"]

_FEWEST, _USUAL, _MOST = 16, 512, 4096  # cells of a path
_FINE = 5e-4  # of the variance of a path, between neighbours, that makes finer cells worth having
_PROBED = 256  # series that this is asked of
_NUMBERS = 1 << 28  # of the cells of all training series
_FINE_NUMBERS = 1 << 26  # of these, if there are more cells than usual
_AT_ONCE = 1 << 22  # numbers of padded series
_LARGEST = 1e30  # of a summary
_COMPARED = 8  # channels, up to which each is compared with each
_UNEVEN = 0.1  # of the gaps between samples that differ from the next, and by how much
_RHYTHMS = 512  # series at once
_EXPLAINED = 12  # windows that explanations refer to


class CellEncoder(BaseModel):
    """Words of even cells of each span (see ``signatures.functionals``), and summaries.

    Where series last differently long, the cells of a second view have one duration for all of
    them: shape is what the first view sees, tempo what the second does.

    A summary has the words of ``tokens.summary`` for each channel, the duration, the number of
    samples, differences between channels (if there are at most eight), the static covariates, and
    the words of ``tokens.rhythm`` for the channels that are
    usually observed often enough; what is not known is the training part's median.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: tuple[str, ...]
    n_cells: int
    duration: float | None
    rhythmic: tuple[int, ...]
    time_unit: float
    value_range: ValueRange
    static_encoder: StaticEncoder
    usual: tuple[float, ...]

    @classmethod
    def fit(cls, batch: SeriesBatch, static: tuple[str, ...] = ()) -> Self:
        """As many cells as a series usually has samples, twice as many if these are uneven in time,
        from 16 to 4,096; more than 512 only while a path differs between neighbouring cells. The
        second view where one series in ten is over by 90 % of the time that one in twenty needs.
        """
        check_series(batch, batch.channels, static)
        usual = int(np.median(batch.lengths)) * (1 + _uneven(batch)) if len(batch) else _FEWEST
        room = _NUMBERS // max(2 * len(batch) * batch.n_channels, 1)
        start, end = batch.span
        spans = (end - start)[end > start]
        seen = (~np.isnan(batch.values)).cumsum(axis=0)
        seen = np.concatenate([np.zeros((1, batch.n_channels), np.int64), seen])[batch.offsets]
        often = np.median(np.diff(seen, axis=0), axis=0) if len(batch) else np.zeros(0)
        short, long = np.quantile(spans, (0.1, 0.95)) if len(spans) else (0.0, 0.0)
        encoder = cls(
            channels=batch.channels,
            n_cells=_resolution(batch, int(np.clip(min(usual, room), _FEWEST, _MOST))),
            duration=float(long) if short < 0.9 * long else None,
            rhythmic=tuple(np.flatnonzero(often >= _FEWEST).tolist()),
            time_unit=float(np.median(spans)) if len(spans) else 1.0,
            value_range=ValueRange.fit(batch),
            static_encoder=StaticEncoder.fit(batch, static),
            usual=(),
        )
        table = encoder._summary(batch)
        known = torch.where(table.isfinite(), table, torch.nan).nanmedian(dim=0).values
        filled = torch.where(known.isnan(), 0.0, known)
        return encoder.model_copy(update={"usual": tuple(filled.tolist())})

    @property
    def static(self) -> tuple[str, ...]:
        """Names of the static covariates."""
        return tuple(column.name for column in self.static_encoder.columns)

    @property
    def spans(self) -> tuple[float, ...]:
        """The shortest span that cells are of, for each view."""
        return (0.0,) if self.duration is None else (0.0, self.duration)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of words of a cell."""
        views = ("", " by duration")[: len(self.spans)]
        return tuple(f"{word}{view}" for word in ("level", "increment") for view in views)

    @property
    def summary_names(self) -> list[str]:
        """Names of the numbers of a summary."""
        words = [f"{word} of {channel}" for channel in self.channels for word in SUMMARY]
        rhythms = list(RHYTHM)
        if self.duration is not None:
            rhythms += [f"{RHYTHM[i]} by duration" for i in FREQUENCIES]
        words += ["duration", "log samples"]
        named = [(self.channels[a], self.channels[b]) for a, b in self._pairs]
        words += [f"{word} of {a} - {b}" for a, b in named for word in CONTRASTS]
        words += self.static_encoder.names
        return words + [f"{word} of {self.channels[c]}" for c in self.rhythmic for word in rhythms]

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        """Channels that are compared."""
        count = len(self.channels)
        return list(combinations(range(count), 2)) if count <= _COMPARED else []

    def n_positions(self, batch: SeriesBatch) -> int:
        """Outputs of a series."""
        return 1

    def window_edges(self, batch: SeriesBatch) -> list[npt.NDArray[np.float64]]:
        """Twelve even windows of each series, which explanations refer to."""
        cuts = Windows.by_count(_EXPLAINED).place(batch)
        return [cuts.of(b) for b in range(len(batch))]

    def encode(
        self,
        batch: SeriesBatch,
        *,
        drop: float = 0.0,
        seed: int = 0,
        series: Any = None,
        threads: int | None = None,
    ) -> dict[str, Tensor]:
        """``cells (B, R, N)``, ``summary (B, S)`` and ``times (B, 1)``, the durations. The rows of
        cells are the levels in each view, and then the increments.
        """
        check_series(batch, self.channels, self.static)
        batch = thinned(batch, drop, seed, series)
        views = [
            torch.from_numpy(path_cells(batch, self.n_cells, threads, least_span=span))
            for span in self.spans
        ]
        cells = _by_kind(views)
        rhythms = [self._rhythm(part) for part in torch.split(cells, _RHYTHMS)]
        return self._inputs(cells, self._summary(batch), torch.cat(rhythms))

    def padded(self, data: Observed, static: Tensor | None = None) -> PaddedInputs:
        """``encode`` of padded series, in torch."""
        known = None
        if static is not None:
            known = encoded_static(self.static_encoder.columns, static.double())
        views = [padded_cells(data, self.n_cells, span) for span in self.spans]
        cells = _by_kind(views)
        return self._inputs(cells, self._table(data, known), self._rhythm(cells)), None

    def sparse(self, summary: Tensor) -> bool:
        """Whether channels usually have a value in less than half of the samples."""
        each = summary[:, : len(self.channels) * len(SUMMARY) : len(SUMMARY)].expm1()
        samples = summary[:, len(self.channels) * len(SUMMARY) + 1].exp()
        return bool((2 * each.round() < samples.round().unsqueeze(1)).double().mean() > 0.5)

    @property
    def plain(self) -> list[int]:
        """Columns of a summary that boosting sees where most values are missing."""
        count = len(self.channels) * len(SUMMARY)
        words = [i for i in range(count) if SUMMARY[i % len(SUMMARY)] in PLAIN]
        return words + list(range(count, len(self.usual)))

    def _summary(self, batch: SeriesBatch) -> Tensor:
        """``(B, S)``, a block of series at a time; NaN = not known."""
        longest = int(batch.lengths.max(initial=1))
        size = max(1, _AT_ONCE // (longest * len(self.channels)))
        static = torch.from_numpy(self.static_encoder.encode(batch)) if self.static else None
        parts = [
            self._table(
                observed(*pad(batch[i : i + size])),
                None if static is None else static[i : i + size],
            )
            for i in range(0, max(len(batch), 1), size)
        ]
        return torch.cat(parts)

    def _table(self, data: Observed, static: Tensor | None) -> Tensor:
        centre, scale = (
            torch.tensor(part, dtype=torch.float64, device=data.since.device)
            for part in (self.value_range.mean, self.value_range.scale)
        )
        words = summaries(data, centre, scale, self.time_unit)
        duration = data.span / number(self.time_unit, words)
        parts = [words.flatten(1), duration.unsqueeze(1), data.lengths.double().log().unsqueeze(1)]
        if self._pairs:
            pairs = torch.tensor(self._pairs, device=words.device)
            parts.append(contrasts(words, centre, scale, pairs))
        if static is not None:
            parts.append(static.double())
        return torch.cat(parts, dim=1).float()

    def _inputs(self, cells: Tensor, summary: Tensor, words: Tensor) -> dict[str, Tensor]:
        usual = torch.tensor(self.usual, device=summary.device)
        known = torch.where(summary.isnan(), usual, summary).clamp(-_LARGEST, _LARGEST)
        place = len(self.channels) * len(SUMMARY)
        duration = known[:, place : place + 1]
        if self.duration is not None:
            log_duration = duration.double().clamp(min=1e-9).log().unsqueeze(-1)
            words = torch.cat([words, words[..., FREQUENCIES] - log_duration], dim=-1)
        summary = torch.cat([known, words.flatten(1).float()], dim=1)
        return {"cells": cells, "summary": summary, "times": duration}

    def _rhythm(self, cells: Tensor) -> Tensor:
        """``(B, R, words)`` of those channels, in the first view."""
        rows = torch.tensor(self.rhythmic, dtype=torch.int64, device=cells.device)
        cells = coarser(cells)
        return rhythm(cells[:, rows], cells[:, cells.shape[1] // 2 + rows])


def _resolution(batch: SeriesBatch, n_cells: int) -> int:
    """As many cells, or half as often as nearly all of the variance is between pairs of them: what
    finer cells tell then is mostly noise.
    """
    room = _FINE_NUMBERS // max(2 * len(batch) * batch.n_channels, 1)
    n_cells = min(n_cells, max(room, _USUAL))
    some = batch[:: max(1, len(batch) // _PROBED)]
    while n_cells > _USUAL:
        levels = path_cells(some, n_cells)[:, : batch.n_channels, : n_cells // 2 * 2]
        within = np.square(levels[..., ::2] - levels[..., 1::2]).mean(axis=(0, 2)) / 4
        if np.any(within > _FINE * levels.var(axis=2).mean(axis=0)):
            break
        n_cells = max(n_cells // 2, _USUAL)
    return n_cells - n_cells % n_coarser(n_cells)


def _uneven(batch: SeriesBatch) -> bool:
    """Whether one in ten gaps between samples differs by a tenth from the one after it."""
    gaps = np.diff(batch.times)
    inside = np.ones(max(len(batch.times) - 2, 0), bool)
    for shift in (1, 2):  # pairs of gaps that reach over the end of a series
        ends = batch.offsets[1:-1] - shift
        inside[ends[(ends >= 0) & (ends < len(inside))]] = False
    first, second = gaps[:-1][inside], gaps[1:][inside]
    if not len(first):
        return False
    return bool(np.mean(np.abs(first - second) > _UNEVEN * np.maximum(first, second)) > _UNEVEN)


def _by_kind(views: list[Tensor]) -> Tensor:
    """Levels of all views, and then their increments."""
    if len(views) == 1:
        return views[0]
    words = zip(*(view.chunk(2, dim=1) for view in views), strict=True)
    return torch.cat([part for word in words for part in word], dim=1)

"""Inputs of an ensemble on whole paths: words of even cells, and a summary of the observations."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from roughformer.series import SeriesBatch
from roughformer.signatures.functionals import padded_cells, path_cells
from roughformer.signatures.padded import Observed
from roughformer.tokens.config import TokenConfig
from roughformer.tokens.padded import PaddedInputs, PaddedTokens
from roughformer.tokens.thinning import thinned
from roughformer.tokens.tokenizer import Tokenizer, check_series
from roughformer.windows import Windows

__all__ = ["UNKNOWN", "CellEncoder"]

_FEWEST, _MOST = 16, 512  # cells of a path
_NUMBERS = 1 << 28  # of the cells of all training series
_WINDOWS = 4  # that the observations of a series are summarised over
_EXPLAINED = 12
UNKNOWN = -10.0  # what nothing tells, in standard deviations: trees can split it off


class CellEncoder(BaseModel):
    """Words of even cells of each span (see ``signatures.functionals``), and summaries.

    A summary has the words of observations (see ``tokens.observations``) of each channel since the
    start and in each of four windows, the duration, the number of samples and the static
    covariates.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_cells: int
    words: Tokenizer

    @classmethod
    def fit(cls, batch: SeriesBatch, static: tuple[str, ...] = ()) -> Self:
        """As many cells as a series usually has samples, from 16 to 512."""
        usual = int(np.median(batch.lengths)) if len(batch) else _FEWEST
        room = _NUMBERS // max(2 * len(batch) * batch.n_channels, 1)
        config = TokenConfig(windows=_WINDOWS, depth=0, observations=True, static=static)
        return cls(
            n_cells=int(np.clip(min(usual, room), _FEWEST, _MOST)),
            words=Tokenizer.fit(config, batch),
        )

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels."""
        return self.words.channels

    @property
    def static(self) -> tuple[str, ...]:
        """Names of the static covariates."""
        return self.words.config.static

    @property
    def n_summary(self) -> int:
        """Numbers of a summary."""
        local = len(self.channels) * 4
        return self.words.n_features + (_WINDOWS - 1) * local + 2 + len(self.words.static)

    def window_edges(self, batch: SeriesBatch) -> list[npt.NDArray[np.float64]]:
        """Twelve even windows of each series, which explanations refer to."""
        cuts = Windows.by_count(_EXPLAINED).place(batch)
        return [cuts.of(b) for b in range(len(batch))]

    def n_positions(self, batch: SeriesBatch) -> int:
        """Outputs of a series."""
        return 1

    def encode(
        self,
        batch: SeriesBatch,
        *,
        drop: float = 0.0,
        seed: int = 0,
        series: Any = None,
        threads: int | None = None,
    ) -> dict[str, Tensor]:
        """``cells (B, 2 · C, N)``, ``summary (B, S)`` and ``times (B, 1)``, the durations."""
        check_series(batch, self.channels, self.static)
        batch = thinned(batch, drop, seed, series)
        words = self.words.encode(batch, threads=threads)
        cells = torch.from_numpy(path_cells(batch, self.n_cells, threads))
        lengths = torch.from_numpy(np.asarray(batch.lengths, dtype=np.int64))
        return self._inputs(cells, words, lengths)

    def padded(self, data: Observed, static: Tensor | None = None) -> PaddedInputs:
        """``encode`` of padded series, in torch."""
        words, _ = PaddedTokens.of(self.words)(data, static)
        return self._inputs(padded_cells(data, self.n_cells), words, data.lengths), None

    def _inputs(
        self, cells: Tensor, words: dict[str, Tensor], lengths: Tensor
    ) -> dict[str, Tensor]:
        tokens, times = words["tokens"], words["times"][:, -1:]
        before = tokens[:, :-1, self.words.n_features - len(self.channels) * 4 :]
        parts = [tokens[:, -1], before.flatten(1), times, lengths.unsqueeze(1).log()]
        if "static" in words:
            parts.append(words["static"])
        summary = torch.cat([part.float() for part in parts], dim=1)
        return {
            "cells": cells,
            "summary": torch.where(summary.isnan(), UNKNOWN, summary),
            "times": times,
        }

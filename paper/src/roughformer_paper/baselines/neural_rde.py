"""Neural rough differential equations (Morrill et al. 2021): the log-ODE method.

Over windows of ``step`` observations the path X = (time, values[, counts]) is replaced by its
log-signature up to ``depth``, in coordinates of the Lyndon brackets, and the state follows

    dz/ds = f(z) LogSig_k(X),   s in [0, 1],

so that a long path takes few steps. With step 1 and depth 1 this is a Neural CDE with linear path.
"""

import itertools
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor

from roughformer import (
    Counts,
    Lift,
    Time,
    Windows,
    feature_count,
    feature_names,
    fill_gaps,
    multiview_signature,
)
from roughformer.series import SeriesBatch
from roughformer.signatures import lyndon_count, lyndon_words
from roughformer_paper.baselines.cde_solver import Solver
from roughformer_paper.baselines.control import TIME_RANGE, ControlEncoder
from roughformer_paper.baselines.controlled import Controlled, ControlledConfig
from roughformer_paper.common import whole_number

__all__ = ["LogSignatureEncoder", "NeuralRDE", "NeuralRDEConfig"]

_MOST_WEIGHTS = 1 << 30  # of the vector field: 4 GB, and as much again three times in training


class LogSignatureEncoder(ControlEncoder):
    """Series -> one token per window: the log-signature of its path, in Lyndon coordinates.

    Token 0 holds X(t_0), then zeros. Missing values are linear between a channel's observations
    and constant outside of them.
    """

    step: int = Field(8, ge=1, description="Observations of a window.")
    depth: int = Field(2, ge=1, description="Truncation level of the log-signatures.")

    @classmethod
    def fit(
        cls,
        batch: SeriesBatch,
        static: tuple[str, ...] = (),
        *,
        step: int = 8,
        depth: int = 2,
        counts: bool | None = None,
        time_range: float = TIME_RANGE,
    ) -> Self:
        """Take names, units and scales from ``batch``; ``counts`` (numbers of observations as
        channels of the path) None: if values are missing. ``time_range``: how far time moves over
        a usual series; like ``step`` and ``depth`` worth choosing on validation.
        """
        step, depth = whole_number(step, "step", 1), whole_number(depth, "depth", 1)
        return cls._fitted(batch, static, counts, step=step, depth=depth, time_range=time_range)

    @property
    def _lifts(self) -> tuple[Lift, ...]:
        counts = (Counts(1.0 / self.count_unit),) if self.counts else ()
        return (Time(self.time_unit / self.time_range), *counts)

    def n_positions(self, batch: SeriesBatch) -> int:
        """Windows of the series that has most, and the token before them."""
        return Windows.by_points(self.step).place(batch).most + 1

    def window_edges(self, batch: SeriesBatch) -> list[npt.NDArray[np.float64]]:
        """For each series the edges ``(L + 1,)`` of what its tokens stand for, in the unit of its
        times; the first token stands for the first point.
        """
        cuts = Windows.by_points(self.step).place(batch)
        each = (cuts.of(b) for b in range(len(batch)))
        return [np.concatenate([edges[:1], edges]) for edges in each]

    @property
    def shape(self) -> dict[str, Any]:
        """What the model must know of the tokens."""
        return {"n_channels": len(self.path_names), "depth": self.depth}

    @property
    def n_features(self) -> int:
        """Lyndon words of the channels of X up to the depth."""
        return feature_count(self.channels, self.depth, "local", self._lifts, "logsignature")

    @property
    def names(self) -> list[str]:
        """A name for each of them."""
        return feature_names(self.channels, self.depth, "local", self._lifts, "logsignature")

    def feature_channels(self) -> list[tuple[int, ...]]:
        """For each of them, the numbers of the channels in its word; time has none."""
        of_letter = self._path_channels()
        return [
            tuple(sorted({c for letter in word for c in of_letter[letter]}))
            for word in lyndon_words(len(self.path_names), self.depth)
        ]

    def encode(
        self,
        batch: SeriesBatch,
        *,
        drop: float = 0.0,
        seed: int = 0,
        series: Any = None,
        threads: int | None = None,
    ) -> dict[str, Tensor]:
        """``tokens (B, L, n_features)``, ``times (B, L)`` of window ends, ``mask (B, L)`` if the
        numbers of windows differ, and ``static (B, S)``; windows are of points that are kept.
        """
        batch = self._standardized(self._kept(batch, drop, seed, series))
        cuts = Windows.by_points(self.step).place(batch)
        tokens = np.zeros((len(batch), cuts.most + 1, self.n_features), dtype=np.float32)
        if len(batch) == 0:
            return self._inputs(batch, tokens, np.zeros(tokens.shape[:2]), cuts.n_windows)
        start = fill_gaps(batch)[batch.offsets[:-1]]
        tokens[:, 0, 1 : 1 + len(self.channels)] = start  # time and counts begin at 0
        tokens[:, 1:] = multiview_signature(
            batch,
            Windows.by_points(self.step),
            self.depth,
            "local",
            lifts=self._lifts,
            transform="logsignature",
            dtype=np.float32,
            threads=threads,
        )
        times = cuts.since(batch.span[0]) / self.time_unit
        return self._inputs(batch, tokens, times, cuts.n_windows + 1)


class NeuralRDEConfig(ControlledConfig):
    """Shape of a Neural RDE; ``depth`` is that of its encoder."""

    depth: int = Field(2, ge=1, description="Level of the log-signatures.")
    solver: Solver = Field(
        "rk4", description="euler, midpoint or rk4 in fixed steps, dopri5 in adaptive ones."
    )

    @model_validator(mode="after")
    def _field_fits(self) -> Self:
        weights = self.n_features * self.d_model * (self.d_hidden or self.d_model)
        if weights > _MOST_WEIGHTS:
            raise ValueError(
                f"log-signatures of depth {self.depth} of {self.n_channels} channels (with time "
                f"and counts) have {self.n_features} words, and the vector field would have "
                f"{weights:.1e} weights; take a smaller depth, or fewer channels"
            )
        return self

    @model_validator(mode="after")
    def _answers_once(self) -> Self:
        if self.causal:
            raise ValueError(
                "a Neural RDE answers once for a series; for an answer at every sample use "
                "a Neural CDE with model={'interpolation': 'rectilinear', 'max_steps': None}"
            )
        return self


class NeuralRDE(Controlled):
    """A Neural RDE on the tokens of ``LogSignatureEncoder``.

    Level k of a log-signature is smaller than level 1 by a factor like (length of a window)^(k-1):
    levels above the first are multiplied so that all have the same mean square in the training
    part. Level 1 stays as it is, the increments of the path.
    """

    config: NeuralRDEConfig

    def __init__(self, config: NeuralRDEConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__(config, config.n_features)

    def pieces(self, moves: Tensor) -> Tensor:
        """(B, K, n_features) -> (B, K, 1, n_features)."""
        return moves.unsqueeze(2)

    @torch.no_grad()
    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Also the size of each level."""
        super().fit_scaling(inputs)
        moves = inputs["tokens"][:, 1:]
        if "mask" in inputs:
            moves = moves[inputs["mask"][:, 1:]]
        rows = moves.reshape(-1, self.config.n_features).double()
        c = self.config.n_channels
        ends = [0, *(lyndon_count(c, level) for level in range(1, self.config.depth + 1))]
        levels = list(itertools.pairwise(ends))
        sizes = [float(rows[:, low:high].square().mean().sqrt()) for low, high in levels]
        for (low, high), size in zip(levels[1:], sizes[1:], strict=True):
            # A level of nothing, or no windows at all (NaN), stays as it is.
            if size > 0 and sizes[0] > 0:
                self.standardize.scale[low:high] = sizes[0] / size

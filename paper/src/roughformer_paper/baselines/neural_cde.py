"""Neural controlled differential equations (Kidger et al. 2020): dz = f(z) dX.

X is a path through the samples: a natural cubic spline ("natural"), straight lines ("linear"), or
first time alone and then the values alone ("rectilinear"), which at every sample knows that sample
and those before it only.
"""

from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor

from roughformer import InputError, fill_gaps
from roughformer.series import SeriesBatch
from roughformer_paper.baselines.cde_solver import chords
from roughformer_paper.baselines.control import TIME_RANGE, ControlEncoder
from roughformer_paper.baselines.controlled import Controlled, ControlledConfig
from roughformer_paper.baselines.samples import last_seen
from roughformer_paper.baselines.splines import natural_pieces
from roughformer_paper.common import series_blocks, whole_number

__all__ = ["NeuralCDE", "NeuralCDEConfig", "PathEncoder"]

Interpolation = Literal["natural", "linear", "rectilinear"]
_KNOWN = ("natural", "linear", "rectilinear")


class PathEncoder(ControlEncoder):
    """Series -> one token per sample: the piece of the path that ends at it.

    The token of sample k >= 1 holds X(t_k) - X(t_{k-1}) of a linear or rectilinear path, or the
    three coefficients of dX/ds of a natural spline; that of sample 0 X(t_0), then zeros. Missing
    values are interpolated as the path is; a rectilinear path holds the last value, and the mean of
    the training part before the first one.
    """

    tokens_are_samples: ClassVar[bool] = True

    interpolation: Interpolation = "natural"
    stride: int = Field(1, ge=1, description="Samples to a step of the solver.")

    @classmethod
    def fit(
        cls,
        batch: SeriesBatch,
        static: tuple[str, ...] = (),
        *,
        interpolation: Interpolation = "natural",
        counts: bool | None = None,
        max_steps: int | None = 2048,
        time_range: float = TIME_RANGE,
    ) -> Self:
        """Take names, units and scales from ``batch``.

        ``counts``: whether numbers of observations are channels of the path (Kidger et al.'s
        observational intensity); None: if values are missing. ``max_steps``: series of usual length
        take at most so many steps; if need be each goes over several samples, along their chord,
        whatever the interpolation. None: one step for each sample. ``time_range``: how far time
        moves over a usual series, which is worth choosing on validation.
        """
        if interpolation not in _KNOWN:
            raise InputError(
                f"interpolation must be one of {', '.join(_KNOWN)}, got {interpolation!r}"
            )
        if max_steps is not None:
            max_steps = whole_number(max_steps, "max_steps (or None)", 1)
        usual = int(np.median(batch.lengths)) - 1 if len(batch) else 0
        stride = 1 if max_steps is None else max(-(-usual // max_steps), 1)
        return cls._fitted(
            batch,
            static,
            counts,
            interpolation=interpolation,
            stride=stride,
            time_range=time_range,
        )

    def n_positions(self, batch: SeriesBatch) -> int:
        """Tokens of the longest series."""
        return int(batch.lengths.max(initial=0))

    @property
    def shape(self) -> dict[str, Any]:
        """What the model must know of the tokens."""
        return {
            "n_channels": len(self.path_names),
            "interpolation": self.interpolation,
            "stride": self.stride,
        }

    @property
    def _orders(self) -> tuple[str, ...]:
        return ("slope", "bend", "twist") if self.interpolation == "natural" else ("step",)

    @property
    def n_features(self) -> int:
        """Numbers of a token: the channels of X, three times for a spline."""
        return len(self._orders) * len(self.path_names)

    @property
    def names(self) -> list[str]:
        """A name for each of them."""
        return [f"{order} of {name}" for order in self._orders for name in self.path_names]

    def feature_channels(self) -> list[tuple[int, ...]]:
        """For each of them, the number of its channel; time has none."""
        return self._path_channels() * len(self._orders)

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
        batch = self._kept(batch, drop, seed, series)
        n, longest = len(batch), int(batch.lengths.max(initial=1))
        tokens = np.zeros((n, longest, self.n_features), dtype=np.float32)
        times = np.zeros((n, longest), dtype=np.float32)
        # A part at a time: what a spline is worked out from is several times its size.
        for b0, b1 in series_blocks(batch.lengths):
            part = self._standardized(batch[b0:b1])
            row = np.repeat(np.arange(b0, b1), part.lengths)
            column = np.arange(part.n_points) - np.repeat(part.offsets[:-1], part.lengths)
            tokens[row, column] = self._rows(part)
            times[row, column] = self._time(part)
        return self._inputs(batch, tokens, times, batch.lengths)

    def _held(self, batch: SeriesBatch) -> npt.NDArray[np.floating]:
        """Values ``(N, C)`` with gaps filled by the last observation; 0 before the first one."""
        last = last_seen(~np.isnan(batch.values), np.repeat(batch.offsets[:-1], batch.lengths))
        carried = np.take_along_axis(batch.values, np.maximum(last, 0), axis=0)
        return np.where(last < 0, batch.values.dtype.type(0), carried)

    def _rows(self, batch: SeriesBatch) -> npt.NDArray[np.float64]:
        """The tokens, flat: ``(N, n_features)``."""
        time, first = self.time_range * self._time(batch), batch.offsets[:-1]
        held = self.interpolation == "rectilinear"
        dense = self._held(batch) if held else fill_gaps(batch)
        counted = self._counted(batch)
        knots = np.column_stack([time, dense, counted])
        steps, start = np.diff(knots, axis=0, prepend=0.0), knots[first]
        if self.interpolation != "natural":
            steps[first] = start
            return np.asarray(steps)
        curves = natural_pieces(time, np.column_stack([batch.values, counted]), batch.offsets)
        # Time is a spline of itself: a straight line.
        line = np.zeros((len(time), 3, 1))
        line[:, 0, 0] = steps[:, 0]
        pieces = np.concatenate([line, curves], axis=2)
        pieces[first] = 0.0
        pieces[first, 0] = start
        return np.asarray(pieces.reshape(len(time), self.n_features))

    def _counted(self, batch: SeriesBatch) -> npt.NDArray[np.float64]:
        """Observations of each channel behind the first point so far ``(N, C)``, in units; without
        columns if they are not wanted.
        """
        if not self.counts:
            return np.zeros((batch.n_points, 0))
        total = np.cumsum(~np.isnan(batch.values), axis=0)
        first = np.repeat(batch.offsets[:-1], batch.lengths)
        return np.asarray((total - total[first]) / self.count_unit)


class NeuralCDEConfig(ControlledConfig):
    """Shape of a Neural CDE; ``interpolation`` and ``stride`` are those of its encoder."""

    interpolation: Interpolation = "natural"
    stride: int = Field(
        1, ge=1, description="Samples to a step; over several the path is their chord."
    )

    @model_validator(mode="after")
    def _path_fits(self) -> Self:
        if self.causal and self.interpolation != "rectilinear":
            raise ValueError(
                f"a causal Neural CDE needs a path that does not look ahead, got interpolation "
                f"{self.interpolation!r}; use model={{'interpolation': 'rectilinear', "
                "'max_steps': None}"
            )
        if self.causal and self.stride > 1:
            raise ValueError(
                "a causal Neural CDE has a state at every sample, got steps over "
                f"{self.stride} samples; use model={{'max_steps': None, ...}}"
            )
        return self


class NeuralCDE(Controlled):
    """A Neural CDE on the tokens of ``PathEncoder``."""

    config: NeuralCDEConfig

    def __init__(self, config: NeuralCDEConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__(config, config.n_channels)

    def pieces(self, moves: Tensor) -> Tensor:
        """(B, L - 1, n_features) -> (B, K, order, n_channels)."""
        config = self.config
        order = moves.shape[2] // config.n_channels
        parts = moves.reshape(*moves.shape[:2], order, config.n_channels)  # (B, L - 1, order, c)
        if config.stride > 1:
            return chords(parts, config.stride)
        if config.interpolation != "rectilinear":
            return parts
        # First time passes, then the values jump: (B, L - 1, 2, c) -> (B, 2 (L - 1), 1, c).
        wait, jump = torch.zeros_like(parts), parts.clone()
        wait[..., 0], jump[..., 0] = parts[..., 0], 0.0
        return torch.cat([wait, jump], dim=2).flatten(1, 2).unsqueeze(2)

    def at_tokens(self, states: Tensor) -> Tensor:
        """A rectilinear path has two pieces to each sample behind the first."""
        return states[:, ::2]

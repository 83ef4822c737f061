"""Batches of inputs for training: made once when sampling is fixed, else while training runs."""

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.train.augment import (
    augment_series,
    changes_series,
    channel_scale,
    draw_drop,
    draw_warp,
)
from roughformer.train.config import TrainConfig
from roughformer.train.feed import share_of
from roughformer.train.inputs import SAMPLE_WEIGHT, Encoder, Index, Inputs, Stopwatch, join, take

__all__ = ["Encoder", "Inputs", "Source", "Stopwatch", "join", "take"]

_AHEAD = 2  # groups of batches made while the model works on the one before
_SERIES_AT_ONCE = 128  # batches are made in groups of about so many series: calls cost time too


@dataclass
class Source:
    """The training part, cut into batches in an order that (seed, epoch) decides.

    ``weight (B,)``: of the series; it goes with the inputs, as ``sample_weight``.
    ``rate_like``: targets ``(B, m)`` are rates, per unit of time: warping scales them. Targets are
    given as they are in the world; ``to_target`` maps them to what the loss takes.
    """

    encoder: Encoder
    batch: SeriesBatch
    target: Tensor
    config: TrainConfig
    weight: Tensor | None = None
    rate_like: bool = False
    to_target: Any = None
    threads: int | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)
    _copies: list[tuple[Inputs, Tensor]] | None = None
    _scale: npt.NDArray[np.float64] | None = None

    @property
    def makers(self) -> int:
        """Threads that make inputs while the model works."""
        return 1

    @property
    def _measured(self) -> SeriesBatch:
        """Series that the scale of the channels is taken from."""
        return self.batch

    @property
    def n_steps(self) -> int:
        """Steps of one epoch."""
        return -(-len(self.batch) // self.config.batch_size)

    @property
    def fixed(self) -> bool:
        """Whether inputs are made once: nothing in the series changes, or a few copies are kept."""
        augment = self.config
        changes = augment.drop[1] > 0 or augment.jitter > 0 or augment.channel_dropout > 0
        changes = changes or (augment.warp > 0 and not self._warps_inputs)
        return not changes or augment.draws > 0

    @property
    def _warps_inputs(self) -> bool:
        """Whether the encoder can warp what it has made, without making it again."""
        return hasattr(self.encoder, "warp")

    def sample(self, n: int) -> Inputs:
        """Inputs of the first ``n`` series, about as training will see them: for scaling."""
        if self.fixed:
            copies = self._made()
            return take(copies[len(copies) // 2][0], slice(0, n))
        low, high = self.config.drop
        seed = self.config.seed
        return self.encoder.encode(self.batch[:n], drop=(low + high) / 2, seed=seed)

    def epoch(
        self, epoch: int, first: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Inputs and targets of the batches ``first, first + 1, ...`` of an epoch; of each batch
        the share of process ``rank`` of ``world``, which may be none.
        """
        ours = partial(share_of, rank, world)
        rng = np.random.default_rng([self.config.seed, epoch])
        order = self._order(rng)
        size = self.config.batch_size
        parts = [order[i : i + size] for i in range(0, len(order), size)]
        steps = list(enumerate(parts))[first:]
        if self.fixed:
            copies = self._made()
            for step, part in steps:
                yield self._from_copies(copies, epoch, step, part, ours(len(part)))
            return
        together = max(_SERIES_AT_ONCE // size, 1)
        groups = [
            (g, parts[g * together : (g + 1) * together])
            for g in range(first // together, -(-len(parts) // together))
        ]
        skip = first % together
        ahead = _AHEAD * self.makers
        with ThreadPoolExecutor(self.makers, thread_name_prefix="roughformer-encode") as worker:
            waiting = [worker.submit(self._fresh, epoch, *group, ours) for group in groups[:ahead]]
            for k in range(len(groups)):
                start = time.perf_counter()
                made = waiting.pop(0).result()
                self.watch.waiting += time.perf_counter() - start
                if k + ahead < len(groups):
                    group = groups[k + ahead]
                    waiting.append(worker.submit(self._fresh, epoch, *group, ours))
                yield from made[skip:]
                skip = 0

    def _made(self) -> list[tuple[Inputs, Tensor]]:
        """The copies of the training part and their targets, made on first use."""
        if self._copies is None:
            augment = self.config
            count = max(augment.draws, 1)
            low, high = augment.drop
            rates = np.linspace(low, high, count) if count > 1 else [(low + high) / 2]
            self._copies = [
                self._changed(
                    np.arange(len(self.batch)),
                    np.arange(len(self.batch)),
                    np.random.default_rng([self.config.seed, 2**32 + i]),
                    float(rate),
                    None,
                )
                for i, rate in enumerate(rates)
            ]
        return self._copies

    def _from_copies(
        self,
        copies: list[tuple[Inputs, Tensor]],
        epoch: int,
        step: int,
        part: Index,
        share: slice,
    ) -> tuple[Inputs, Tensor]:
        rng = np.random.default_rng([self.config.seed, epoch, step])
        inputs, target = copies[int(rng.integers(len(copies)))]
        which = torch.from_numpy(part[share])
        inputs, target = take(inputs, which), target[which]
        if self.config.warp and self._warps_inputs:
            faster = draw_warp(self.config, len(part), rng)[share]
            inputs, faster = self.encoder.warp(inputs, faster)  # type: ignore[attr-defined]
            target = self._scaled(target, faster)
        return self._weighted(inputs, part[share]), self._aim(target)

    def _fresh(
        self, epoch: int, group: int, parts: list[Index], share: Callable[[int], slice]
    ) -> list[tuple[Inputs, Tensor]]:
        """The shares of a few batches, changed and thinned as (seed, epoch, group) say."""
        rng = np.random.default_rng([self.config.seed, epoch, group])
        drop = draw_drop(self.config, rng)
        ends = np.cumsum([len(part) for part in parts])
        places = [
            np.arange(end)[-len(part) :][share(len(part))]
            for end, part in zip(ends, parts, strict=True)
        ]
        ours = np.concatenate(places)
        if len(ours) == 0:
            return [({}, self.target[:0]) for _ in parts]
        inputs, target = self._changed(np.concatenate(parts), ours, rng, drop, self.threads)
        if self.config.warp and self._warps_inputs:
            faster = draw_warp(self.config, int(ends[-1]), rng)[ours]
            inputs, faster = self.encoder.warp(inputs, faster)  # type: ignore[attr-defined]
            target = self._scaled(target, faster)
        target = self._aim(target)
        inputs = self._weighted(inputs, np.concatenate(parts)[ours])
        ends = np.cumsum([len(place) for place in places])
        slices = [slice(end - len(place), end) for end, place in zip(ends, places, strict=True)]
        return [(take(inputs, s), target[s]) for s in slices]

    def _changed(
        self,
        which: Index,
        ours: Index,
        rng: np.random.Generator,
        drop: float,
        threads: int | None,
    ) -> tuple[Inputs, Tensor]:
        """Inputs of some series as augmentation changes them, and their targets.

        The inputs are those of the series at the places ``ours`` of ``which``. A place decides what
        is drawn, so a series is changed alike whoever takes it.
        """
        augment = self.config
        seed = int(rng.integers(2**62))
        faster = np.ones(len(which))
        if augment.warp and not self._warps_inputs:
            faster = draw_warp(augment, len(which), rng)
        if self._scale is None:
            self._scale = channel_scale(self._measured)
        # The kernel works in this thread alone (threads=1) while the model trains.
        clock = time.thread_time if threads == 1 else time.perf_counter
        start = clock()
        with warnings.catch_warnings():
            if augment.channel_dropout:
                # A hidden channel is never observed, which is what was wanted.
                warnings.simplefilter("ignore", UnobservedWarning)
            series = self._series(which[ours])
            if changes_series(augment, faster):
                changes = int(rng.integers(2**62))
                series = augment_series(series, augment, self._scale, faster[ours], changes, ours)
            inputs = self.encoder.encode(series, drop=drop, seed=seed, series=ours, threads=threads)
        self.watch.encoding += clock() - start
        target = self.target[torch.from_numpy(which[ours])]
        return inputs, self._scaled(target, faster[ours])

    def close(self) -> None:
        """Let go of what was needed to make batches."""

    def _order(self, rng: np.random.Generator) -> Index:
        """Of the series in an epoch."""
        return rng.permutation(len(self.batch))

    def _series(self, which: Index) -> SeriesBatch:
        """Some series; all of them in their order are not copied."""
        everything = len(which) == len(self.batch) and bool((np.diff(which) == 1).all())
        return self.batch if everything else self.batch[which]

    def _weighted(self, inputs: Inputs, which: Index) -> Inputs:
        """Inputs with the weights of their series, if there are weights."""
        if self.weight is None:
            return inputs
        return inputs | {SAMPLE_WEIGHT: self.weight[torch.from_numpy(which)]}

    def _scaled(self, target: Tensor, faster: npt.NDArray[np.float64]) -> Tensor:
        """Targets of series played faster."""
        if not self.rate_like:
            return target
        factor = torch.from_numpy(faster).to(target.dtype)
        return target * factor.reshape(-1, *[1] * (target.dim() - 1))

    def _aim(self, target: Tensor) -> Tensor:
        return target if self.to_target is None else self.to_target(target)

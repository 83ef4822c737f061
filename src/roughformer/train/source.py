"""Batches of inputs for training: made once when sampling is fixed, else while training runs."""

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.train.augment import augment_series, channel_scale, draw_drop, draw_warp
from roughformer.train.config import TrainConfig

__all__ = ["Encoder", "Inputs", "Source", "Stopwatch", "join", "take"]

Inputs = dict[str, Tensor]
_AHEAD = 2  # groups of batches made while the model works on the one before
_SERIES_AT_ONCE = 128  # batches are made in groups of about so many series: calls cost time too


class Encoder(Protocol):
    """What turns series into the inputs of a model, each with the series as its first axis."""

    def encode(
        self,
        batch: SeriesBatch,
        *,
        drop: float = 0.0,
        seed: int = 0,
        series: Any = None,
        threads: int | None = None,
    ) -> Inputs:
        """Inputs of all series of a batch."""


@dataclass
class Stopwatch:
    """Seconds of work in making inputs, and seconds that the model had to wait for them.

    Work is time of the processor: beside a busy model the clock would count the model's time too.
    """

    encoding: float = 0.0
    waiting: float = 0.0


def take(inputs: Inputs, which: Tensor | slice) -> Inputs:
    """The inputs of some series."""
    return {name: tensor[which] for name, tensor in inputs.items()}


def join(parts: list[Inputs]) -> Inputs:
    """Inputs of several batches as one; token axes of other lengths are padded and masked."""
    length = [part["times"].shape[1] for part in parts]
    ragged = len(set(length)) > 1
    if ragged or any("mask" in part for part in parts):
        parts = [
            {"mask": torch.ones(part["times"].shape, dtype=torch.bool)} | part for part in parts
        ]
    joined = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        if ragged and name in ("tokens", "times", "mask"):
            most = max(length)
            tensors = [
                torch.cat([t, t.new_zeros(len(t), most - t.shape[1], *t.shape[2:])], dim=1)
                for t in tensors
            ]
        joined[name] = torch.cat(tensors)
    return joined


@dataclass
class Source:
    """The training part, cut into batches in an order that (seed, epoch) decides.

    ``rate_like``: targets ``(B, m)`` are rates, per unit of time: warping scales them. Targets are
    given as they are in the world; ``to_target`` maps them to what the loss takes.
    """

    encoder: Encoder
    batch: SeriesBatch
    target: Tensor
    config: TrainConfig
    rate_like: bool = False
    to_target: Any = None
    threads: int | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)
    _copies: list[tuple[Inputs, Tensor]] | None = None
    _scale: npt.NDArray[np.float64] | None = None

    @property
    def n_steps(self) -> int:
        """Steps of one epoch."""
        return -(-len(self.batch) // self.config.batch_size)

    @property
    def fixed(self) -> bool:
        """Whether inputs are made once: nothing in the series changes, or a few copies are kept."""
        augment = self.config.augment
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
        low, high = self.config.augment.drop
        seed = self.config.seed
        return self.encoder.encode(self.batch[:n], drop=(low + high) / 2, seed=seed)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
        """Inputs and targets of the batches ``first, first + 1, ...`` of an epoch."""
        rng = np.random.default_rng([self.config.seed, epoch])
        order = rng.permutation(len(self.batch))
        size = self.config.batch_size
        parts = [order[i : i + size] for i in range(0, len(order), size)]
        steps = list(enumerate(parts))[first:]
        if self.fixed:
            copies = self._made()
            for step, part in steps:
                yield self._from_copies(copies, epoch, step, part)
            return
        together = max(_SERIES_AT_ONCE // size, 1)
        groups = [
            (g, parts[g * together : (g + 1) * together])
            for g in range(first // together, -(-len(parts) // together))
        ]
        skip = first % together
        with ThreadPoolExecutor(1, thread_name_prefix="roughformer-encode") as worker:
            waiting = [worker.submit(self._fresh, epoch, *group) for group in groups[:_AHEAD]]
            for k in range(len(groups)):
                start = time.perf_counter()
                made = waiting.pop(0).result()
                self.watch.waiting += time.perf_counter() - start
                if k + _AHEAD < len(groups):
                    waiting.append(worker.submit(self._fresh, epoch, *groups[k + _AHEAD]))
                yield from made[skip:]
                skip = 0

    def _made(self) -> list[tuple[Inputs, Tensor]]:
        """The copies of the training part and their targets, made on first use."""
        if self._copies is None:
            augment = self.config.augment
            count = max(augment.draws, 1)
            low, high = augment.drop
            rates = np.linspace(low, high, count) if count > 1 else [(low + high) / 2]
            self._copies = [
                self._changed(
                    self.batch,
                    self.target,
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
        part: npt.NDArray[np.int64],
    ) -> tuple[Inputs, Tensor]:
        rng = np.random.default_rng([self.config.seed, epoch, step])
        inputs, target = copies[int(rng.integers(len(copies)))]
        which = torch.from_numpy(part)
        inputs, target = take(inputs, which), target[which]
        if self.config.augment.warp and self._warps_inputs:
            faster = draw_warp(self.config.augment, len(part), rng)
            inputs, faster = self.encoder.warp(inputs, faster)  # type: ignore[attr-defined]
            target = self._scaled(target, faster)
        return inputs, self._aim(target)

    def _fresh(
        self, epoch: int, group: int, parts: list[npt.NDArray[np.int64]]
    ) -> list[tuple[Inputs, Tensor]]:
        """A few batches, changed and thinned as (seed, epoch, group) say."""
        rng = np.random.default_rng([self.config.seed, epoch, group])
        drop = draw_drop(self.config.augment, rng)
        which = np.concatenate(parts)
        target = self.target[torch.from_numpy(which)]
        inputs, target = self._changed(self.batch[which], target, rng, drop, self.threads)
        target = self._aim(target)
        ends = np.cumsum([len(part) for part in parts])
        slices = [slice(end - len(part), end) for end, part in zip(ends, parts, strict=True)]
        return [(take(inputs, s), target[s]) for s in slices]

    def _changed(
        self,
        series: SeriesBatch,
        target: Tensor,
        rng: np.random.Generator,
        drop: float,
        threads: int | None,
    ) -> tuple[Inputs, Tensor]:
        """Inputs of series as augmentation changes them, and their targets."""
        augment = self.config.augment
        seed = int(rng.integers(2**62))
        faster = np.ones(len(series))
        if augment.warp and not self._warps_inputs:
            faster = draw_warp(augment, len(series), rng)
        if self._scale is None:
            self._scale = channel_scale(self.batch)
        # The kernel works in this thread alone (threads=1) while the model trains.
        clock = time.thread_time if threads == 1 else time.perf_counter
        start = clock()
        with warnings.catch_warnings():
            if augment.channel_dropout:
                # A hidden channel is never observed, which is what was wanted.
                warnings.simplefilter("ignore", UnobservedWarning)
            series = augment_series(series, augment, self._scale, faster, rng)
            inputs = self.encoder.encode(series, drop=drop, seed=seed, threads=threads)
        self.watch.encoding += clock() - start
        return inputs, self._scaled(target, faster)

    def _scaled(self, target: Tensor, faster: npt.NDArray[np.float64]) -> Tensor:
        """Targets of series played faster."""
        if not self.rate_like:
            return target
        factor = torch.from_numpy(faster).to(target.dtype)
        return target * factor.reshape(-1, *[1] * (target.dim() - 1))

    def _aim(self, target: Tensor) -> Tensor:
        return target if self.to_target is None else self.to_target(target)

"""What a model learns from: batches of inputs, made once or while training runs."""

import hashlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.model import OutputConfig
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.store import StoredSeries, encode_in_worker, encode_inputs, encode_worker
from roughformer.tokens import Tokenizer
from roughformer.train.config import Augmentation, TrainConfig
from roughformer.train.distributed import ProcessGroup

Inputs = dict[str, Tensor]
SAMPLE_WEIGHT = "sample_weight"  # name of the series' weights (B,) beside the inputs of the model
Index = npt.NDArray[np.int64]


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


# What the loop needs of a source of batches.


class BatchSource(Protocol):
    """Batches in an order that (seed, epoch) decides, whatever the number of processes."""

    watch: Stopwatch

    @property
    def n_steps(self) -> int:
        """Steps of one epoch: batches of all processes together."""

    def sample(self, n: int) -> Inputs:
        """Inputs of ``n`` series at most, about as training will see them; the same for all."""

    def epoch(
        self, epoch: int, first: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Of each of the batches ``first, first + 1, ...`` the share of process ``rank`` of
        ``world``, the series ``share_of(rank, world, size)`` of the batch, with their targets.

        What is drawn for a series depends on its place in the batch, never on ``world``. A share
        without series is yielded too; nobody looks at its inputs.
        """


def share_of(rank: int, world: int, size: int) -> slice:
    """The places of a batch that process ``rank`` of ``world`` takes: neighbours, as many for each
    as can be. A store has its neighbours in the same row groups, so that a process reads few.
    """
    return slice(-(-rank * size // world), -(-(rank + 1) * size // world))


@dataclass(frozen=True)
class Share:
    """Inputs and targets of the series of a batch that this process takes, or why it has none."""

    inputs: Inputs
    target: Tensor
    problem: Exception | None = None


def shares(source: BatchSource, epoch: int, first: int, processes: ProcessGroup) -> Iterator[Share]:
    """The shares of this process. An error in making one is handed over, and the last: others wait
    for this process and must be told.
    """
    batches = source.epoch(epoch, first, processes.rank, processes.size)
    while True:
        try:
            share = Share(*next(batches))
        except StopIteration:
            return
        except Exception as error:
            if processes.alone:
                raise
            yield Share({}, torch.zeros(0), error)
            return
        yield share


# Random changes of training series, decided by the generator that is handed in.


def channel_scale(batch: SeriesBatch) -> npt.NDArray[np.float64]:
    """Standard deviation of each channel ``(C,)`` over all that was observed."""
    values = batch.values
    seen = ~np.isnan(values)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, values, 0).sum(axis=0, dtype=np.float64) / count
    square = np.where(seen, (values - mean) ** 2, 0).sum(axis=0, dtype=np.float64) / count
    return np.asarray(np.sqrt(square))


def draw_drop(config: Augmentation, rng: np.random.Generator) -> float:
    """The share of points to drop from a batch."""
    low, high = config.drop
    return float(rng.uniform(low, high)) if high > low else low


def draw_warp(config: Augmentation, n: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """For each series the factor by which time runs faster, log-uniform within 1 ± warp."""
    if config.warp == 0:
        return np.ones(n)
    return np.asarray(np.exp(rng.uniform(np.log1p(-config.warp), np.log1p(config.warp), n)))


def changes_series(config: Augmentation, faster: npt.NDArray[np.float64]) -> bool:
    """Whether ``augment_series`` does anything."""
    return bool((faster != 1).any() or config.jitter or config.channel_dropout)


def augment_series(
    batch: SeriesBatch,
    config: Augmentation,
    scale: npt.NDArray[np.float64],
    faster: npt.NDArray[np.float64],
    seed: int,
    places: npt.NDArray[np.int64],
) -> SeriesBatch:
    """Warp time, add noise, hide channels; ``scale`` as ``channel_scale`` of the training part.

    Time counts from each series' first point: t_0 + (t - t_0) / faster. What is drawn for a series
    follows from ``seed`` and its place ``places (B,)`` alone: a process that has some of the
    series changes them as one that has all.
    """
    draws = [np.random.default_rng([seed, place]) for place in places.tolist()]
    if (faster != 1).any():
        start = np.repeat(batch.span[0], batch.lengths)
        since = (batch.times - start) / np.repeat(faster, batch.lengths)
        batch = batch.with_times(start + since)
    if config.jitter:
        noise = np.empty(batch.values.shape, dtype=np.float32)
        for draw, first, end in zip(draws, batch.offsets, batch.offsets[1:], strict=False):
            draw.standard_normal(out=noise[first:end], dtype=np.float32)
        step = (config.jitter * scale).astype(batch.values.dtype)
        batch = batch.with_values(batch.values + step * noise.astype(batch.values.dtype))
    if config.channel_dropout:
        hide = np.zeros((len(batch), batch.n_channels), dtype=bool)
        for own, draw in zip(hide, draws, strict=True):
            own[:] = draw.random(len(own)) < config.channel_dropout
            # One channel stays: a series without any says nothing.
            own[draw.integers(len(own))] = False
        hidden = np.repeat(hide, batch.lengths, axis=0)
        batch = batch.with_values(np.where(hidden, np.nan, batch.values))
    return batch


# Batches of inputs for training: made once when sampling is fixed, else while training runs.

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


# Batches of a store: read, thinned and tokenised while training runs, in bounded memory.

_FOR_SCALE = 256  # series that the scale of the channels is taken from
_FOR_SCALING = 1024  # series that the scaling of features is taken from: they are in memory


def source_of(
    encoder: Any,
    series: SeriesBatch | StoredSeries,
    target: Tensor,
    config: TrainConfig,
    *,
    num_workers: int = 0,
    **options: Any,
) -> Source:
    """Batches of series in memory or in a store; ``options`` as of ``Source``."""
    if isinstance(series, StoredSeries):
        return StoredSource(encoder, series, target, config, **options, num_workers=num_workers)
    return Source(encoder, series, target, config, **options)


@dataclass
class StoredSource(Source):
    """A part of a store. Stored tokens are taken as they are, unless the series are changed in
    training: then tokens are made of the stored series, anew in each epoch.

    ``num_workers`` processes read and tokenise; with 0 a thread of this process does. Each has its
    part of every batch, and so its own row groups (``StoredSeries.shuffled``).
    """

    batch: StoredSeries  # type: ignore[assignment]
    num_workers: int = 0
    _processes: list[ProcessPoolExecutor] = field(default_factory=list)
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """``InputError`` if the store cannot give what training asks for."""
        augment = self.config
        if augment.draws:
            raise InputError(
                "draws keeps copies of all series in memory, which a store is too large for; "
                "set draws=0"
            )
        if augment.changes and not self.batch.holds_series:
            raise InputError(
                f"the store {self.batch.cache.place} holds tokens only, and drop, jitter, "
                "channel_dropout and warp change series; make it with roughformer features "
                "--series, or set them to 0"
            )

    @property
    def fixed(self) -> bool:
        """Nothing is kept."""
        return False

    @property
    def makers(self) -> int:
        """Threads that wait for processes: these have their next wish when one is made."""
        return 2 if self._in_processes else 1

    @property
    def _measured(self) -> SeriesBatch:
        return self.batch.sample(_FOR_SCALE)[:]

    @property
    def _as_stored(self) -> bool:
        """Whether the stored tokens are the inputs."""
        return self.batch.tokenizer == self.encoder and not self.config.changes

    @property
    def _in_processes(self) -> bool:
        """Changes other than dropping, and encoders of other models, are work of this process."""
        augment = self.config
        plain = not (augment.jitter or augment.channel_dropout or augment.warp)
        return self.num_workers > 0 and plain and isinstance(self.encoder, Tokenizer)

    def sample(self, n: int) -> Inputs:
        """Inputs of ``n`` series at most, spread over the store: for scaling."""
        sample = self.batch.sample(min(n, _FOR_SCALING))
        if self._as_stored:
            return tensors(sample.inputs(slice(None)))
        low, high = self.config.drop
        return self.encoder.encode(sample[:], drop=(low + high) / 2, seed=self.config.seed)

    def close(self) -> None:
        """Let the processes go."""
        for process in self._processes:
            process.shutdown(wait=False, cancel_futures=True)
        self._processes = []

    def _order(self, rng: np.random.Generator) -> Index:
        return self.batch.shuffled(rng, self.config.batch_size)

    def _series(self, which: Index) -> SeriesBatch:
        return self.batch[which]

    def _changed(
        self,
        which: Index,
        ours: Index,
        rng: np.random.Generator,
        drop: float,
        threads: int | None,
    ) -> tuple[Inputs, Tensor]:
        if not (self._as_stored or self._in_processes):
            return super()._changed(which, ours, rng, drop, threads)
        seed = int(rng.integers(2**62))
        tokenizer = None if self._as_stored else self.encoder
        assert tokenizer is None or isinstance(tokenizer, Tokenizer)
        start = time.thread_time()
        if self._in_processes:
            inputs = self._asked(tokenizer, which[ours], drop, seed, ours)
        else:
            inputs = tensors(encode_inputs(self.batch, tokenizer, which[ours], drop, seed, ours))
        self.watch.encoding += time.thread_time() - start
        return inputs, self.target[torch.from_numpy(which[ours])]

    def _asked(
        self, tokenizer: Tokenizer | None, which: Index, drop: float, seed: int, places: Index
    ) -> Inputs:
        """Inputs that the processes made, each those of neighbours in the batches."""
        with self._starting:
            if not self._processes:
                self._processes = [
                    encode_worker(self.batch, tokenizer) for _ in range(self.num_workers)
                ]
        place = places % self.config.batch_size
        first = int(place.min())
        reader = (place - first) * self.num_workers // (int(place.max()) + 1 - first)
        parts = [np.flatnonzero(reader == k) for k in range(self.num_workers)]
        try:
            jobs = [
                process.submit(encode_in_worker, which[part], drop, seed, places[part])
                for process, part in zip(self._processes, parts, strict=True)
                if len(part)
            ]
            made = join([tensors(job.result()) for job in jobs])
        except BrokenProcessPool:
            raise InputError(
                "a process that reads the store was killed, perhaps for want of memory; set "
                "num_workers=0, or fewer of them, and resume"
            ) from None
        return take(made, torch.from_numpy(np.argsort(np.concatenate(parts))))


def tensors(inputs: dict[str, Any]) -> Inputs:
    """Arrays as a model takes them; memory is shared."""
    return {name: torch.from_numpy(array) for name, array in inputs.items()}


# What a model learns from.

Scores = Callable[[Tensor, Tensor], dict[str, float]]


@dataclass(frozen=True)
class TrainingData:
    """What a model learns from.

    ``valid``: inputs and targets (as the loss takes them) of the validation part, or None;
    ``scores(outputs, targets)`` in units of the world, of which ``metric`` decides. ``key``: a
    hash of data and configuration, which a training that goes on must share. ``valid_weight``: of
    the series of the validation part.
    """

    source: BatchSource
    outputs: OutputConfig
    valid: tuple[Inputs, Tensor] | None = None
    scores: Scores | None = None
    metric: str = ""
    class_weight: Tensor | None = None
    key: str = ""
    valid_weight: Tensor | None = None


# Raised when series come in another order, or are changed by other draws: a training that goes on
# in the middle of an epoch would see some of them twice.
_ORDER = 2
# Options that change nothing in the state of a training.
_NO_MATTER = {"save_seconds", "num_workers", "tensorboard", "calibrate", "metric", "baselines"}


def run_fingerprint(*parts: Any) -> str:
    """Hash data (series, tensors) and configuration (pydantic models, text): a run resumes only
    with the same ones.
    """
    digest = hashlib.blake2b(bytes([_ORDER]), digest_size=16)
    for part in parts:
        if isinstance(part, SeriesBatch):
            for array in (part.times, part.values, part.offsets, part.static):
                if array is not None:
                    digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        elif isinstance(part, StoredSeries):
            digest.update(part.key.encode())
        elif isinstance(part, str):
            digest.update(part.encode())
        elif isinstance(part, Tensor):
            digest.update(part.contiguous().numpy().tobytes())
        else:
            digest.update(part.model_dump_json(exclude=_NO_MATTER).encode())
    return digest.hexdigest()

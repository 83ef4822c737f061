"""How a model is trained, and what it learns from: ``TrainConfig``, and batches of inputs."""

import hashlib
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.util.groups import Group

Callback = Callable[[dict[str, Any]], Any]


def _as_range(rate: Any) -> Any:
    """One number is the range from itself to itself."""
    number = isinstance(rate, int | float | np.number) and not isinstance(rate, bool)
    if not number and not isinstance(rate, tuple | list | np.ndarray):
        raise ValueError(f"drop must be a number in [0, 1) or a range of two, got {rate!r}")
    return (rate, rate) if number else rate


def _as_callbacks(callbacks: Any) -> Any:
    """One function is one callback."""
    return (callbacks,) if callable(callbacks) else callbacks


class TrainConfig(Group):
    """Augmentation, optimiser, schedule and stopping. The defaults are the best recipe we know.

    In an estimator, ``seed`` and ``device`` are set by its parameters ``random_state`` and
    ``device``.
    """

    set_by: ClassVar[dict[str, str]] = {"seed": "random_state", "device": "device"}

    drop: Annotated[tuple[float, float], BeforeValidator(_as_range)] = Field(
        (0.0, 0.0),
        description="Share of the points left out: a number, or a range that shares are drawn "
        "from, anew for every few batches.",
    )
    jitter: float = Field(
        0.0, ge=0, description="Noise on the values, in standard deviations of their channel."
    )
    channel_dropout: float = Field(
        0.0, ge=0, lt=1, description="Chance that a channel of a series is not observed at all."
    )
    warp: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Time runs faster by a factor between 1 - warp and 1 + warp; the target of "
        "a RateRegressor is scaled along.",
    )

    draws: int = Field(
        0,
        ge=0,
        description="0: everything is drawn anew in each epoch. n: n changed copies of the "
        "training part are made once and used in turn, their drop rates evenly over the range.",
    )
    epochs: int = Field(60, ge=1, description="Maximum number of passes over the training part.")
    batch_size: int = Field(32, ge=1, description="Series in a step.")
    learning_rate: float = Field(2e-3, gt=0, description="Highest rate of the schedule.")
    weight_decay: float = Field(0.01, ge=0, description="Of AdamW.")
    schedule: Literal["onecycle", "cosine", "constant"] = Field(
        "onecycle", description="onecycle: up over 30 % and down; cosine: up over 5 % and down."
    )
    clip_norm: float = Field(1.0, gt=0, description="Largest norm of the gradient.")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="Share of the label given to all classes alike."
    )
    metric: str = Field(
        "auto",
        description="Score of the validation part that chooses the best epoch. auto: log_loss, "
        "rmse, or the loss of a model of rates.",
    )
    patience: int | None = Field(
        20,
        ge=1,
        description="Stop after this many epochs without a better validation; None: never.",
    )
    n_estimators: int = Field(
        1,
        ge=1,
        description="Number of models, each validated on another part, whose predictions are "
        "averaged.",
    )
    max_seconds: float | None = Field(
        None,
        gt=0,
        description="A budget of time: the schedule is compressed to it. What fits in depends on "
        "the machine, so a run with a budget is not repeatable bit for bit.",
    )
    seed: int = Field(0, ge=0, lt=2**63)
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="bfloat16 where the device is fast at it."
    )
    compile: bool = Field(False, description="torch.compile: slower on a CPU at usual sizes.")
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    resume: bool = Field(
        False, exclude=True, description="Continue the interrupted run in run_dir."
    )
    save_seconds: float = Field(
        60.0, ge=0, description="Seconds after which the state is saved inside an epoch."
    )
    calibrate: bool = Field(
        True, description="Fit a temperature, or a factor on deviations, to the validation part."
    )
    num_workers: int = Field(
        0, ge=0, description="Processes that read a feature store; 0: a thread does."
    )
    baselines: bool = Field(
        True,
        description="Fit simple baselines to the same parts as a network, for summary() and the "
        "report.",
    )
    tensorboard: bool = Field(False, description="Write events for TensorBoard to run_dir.")
    callbacks: Annotated[tuple[Callback, ...], BeforeValidator(_as_callbacks)] = Field(
        (),
        exclude=True,
        description="Functions that get the record of each epoch; one that returns True ends the "
        "training. They are not saved with the model.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        low, high = self.drop
        if not 0 <= low <= high < 1:
            raise ValueError(f"drop must be in [0, 1), a range increasing, got {self.drop}")
        return self

    @property
    def changes(self) -> bool:
        """Whether the series change from epoch to epoch."""
        return self.drop[1] > 0 or self.jitter > 0 or self.channel_dropout > 0 or self.warp > 0


Inputs = dict[str, Tensor]
SAMPLE_WEIGHT = "sample_weight"  # name of the series' weights (B,) beside the inputs of the model
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
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


class EncodeWorker(Protocol):
    """A process that reads and encodes series."""

    def submit(self, which: Index, drop: float, seed: int, places: Index) -> Future[Any]:
        """Start ``LazySeries.encode`` with these arguments."""

    def close(self) -> None:
        """End the process."""


@runtime_checkable
class LazySeries(Protocol):
    """Series that are read when they are asked for, such as those of a feature store."""

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels."""

    @property
    def n_channels(self) -> int:
        """Number of channels."""

    @property
    def labels(self) -> Array | None:
        """Labels ``(B,)``, in memory."""

    @property
    def place(self) -> Any:
        """Where they are read from; its text is for people."""

    @property
    def tokenizer(self) -> Any:
        """What made the stored tokens; None if there are none."""

    @property
    def holds_series(self) -> bool:
        """Whether more than tokens is stored."""

    def __len__(self) -> int:
        """Number of series."""

    def __getitem__(self, which: Any) -> SeriesBatch:
        """Read series by number, slice, list, array or mask."""

    def fingerprint(self) -> str:
        """Hash the data, and which series of them these are."""

    def part(self, which: Any) -> Self:
        """Select series without reading them."""

    def sample(self, n: int) -> Self:
        """Select at most ``n`` series, spread over all."""

    def shuffled(self, rng: np.random.Generator, size: int) -> Index:
        """Draw an order for batches of ``size`` in which they are read fast."""

    def inputs(self, which: Any) -> dict[str, Array]:
        """Read stored tokens."""

    def encode(
        self, tokenizer: Any, which: Index, drop: float, seed: int, places: Index
    ) -> dict[str, Array]:
        """Tokens by ``tokenizer``; None: those that are stored."""

    def worker(self, tokenizer: Any) -> EncodeWorker:
        """Start a process that encodes these series."""


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


def tensors(inputs: dict[str, Any]) -> Inputs:
    """Arrays as a model takes them; memory is shared."""
    return {name: torch.from_numpy(array) for name, array in inputs.items()}


def join(parts: list[Inputs]) -> Inputs:
    """Inputs of several batches as one; token axes of other lengths are padded and masked."""
    lengths = [part["times"].shape[1] for part in parts]
    ragged = len(set(lengths)) > 1
    if ragged or any("mask" in part for part in parts):
        parts = [
            {"mask": torch.ones(part["times"].shape, dtype=torch.bool)} | part for part in parts
        ]
    joined = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        if ragged and name in ("tokens", "times", "mask"):
            tensors = [
                torch.cat([t, t.new_zeros(len(t), max(lengths) - t.shape[1], *t.shape[2:])], dim=1)
                for t in tensors
            ]
        joined[name] = torch.cat(tensors)
    return joined


# Random changes of training series, decided by the generator that is handed in.


def channel_scale(batch: SeriesBatch) -> Floats:
    """Standard deviation of each channel ``(C,)`` over all that was observed; 0 if nothing was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        deviation: Floats = np.nanstd(batch.values, axis=0, dtype=np.float64)
    return np.nan_to_num(deviation)


def draw_speeds(config: TrainConfig, n: int, rng: np.random.Generator) -> Floats:
    """For each series the factor by which time runs faster, log-uniform within 1 ± warp."""
    if config.warp == 0:
        return np.ones(n)
    return np.asarray(np.exp(rng.uniform(np.log1p(-config.warp), np.log1p(config.warp), n)))


def augment_series(
    batch: SeriesBatch,
    config: TrainConfig,
    scale: Floats,
    speed: Floats,
    seed: int,
) -> SeriesBatch:
    """Warp time, add noise, hide channels; ``scale`` as ``channel_scale`` of the training part.

    Time counts from each series' first point: t_0 + (t - t_0) / speed. What is drawn for a series
    follows from ``seed`` and its place in the batch.
    """
    draws = [np.random.default_rng([seed, place]) for place in range(len(batch))]
    if (speed != 1).any():
        start = np.repeat(batch.span[0], batch.lengths)
        since = (batch.times - start) / np.repeat(speed, batch.lengths)
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

    makers = 1  # threads that make inputs while the model works

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

    @cached_property
    def _scale(self) -> Floats:
        return channel_scale(self.batch)

    @cached_property
    def _copies(self) -> list[tuple[Inputs, Tensor]]:
        """Inputs and targets of all series, once for each of the fixed drop rates."""
        low, high = self.config.drop
        count = max(self.config.draws, 1)
        rates = np.linspace(low, high, count).tolist() if count > 1 else [(low + high) / 2]
        everything = np.arange(len(self.batch))
        return [
            self._encoded(everything, np.random.default_rng([self.config.seed, 2**32 + i]), rate)
            for i, rate in enumerate(rates)
        ]

    def sample(self, n: int) -> Inputs:
        """Inputs of the first ``n`` series, about as training will see them: for scaling."""
        if self.fixed:
            return take(self._copies[len(self._copies) // 2][0], slice(0, n))
        return self.encoder.encode(
            self.batch[:n], drop=sum(self.config.drop) / 2, seed=self.config.seed
        )

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
        """Inputs and targets of the batches ``first, first + 1, ...`` of an epoch."""
        order = self._order(np.random.default_rng([self.config.seed, epoch]))
        size = self.config.batch_size
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        if self.fixed:
            for step in range(first, len(batches)):
                yield self._from_copies(epoch, step, batches[step])
            return
        together = max(_SERIES_AT_ONCE // size, 1)
        groups = range(first // together, -(-len(batches) // together))
        skip = first % together
        ahead = _AHEAD * self.makers
        with ThreadPoolExecutor(self.makers, thread_name_prefix="roughformer-encode") as pool:

            def submit(group: int) -> Future[list[tuple[Inputs, Tensor]]]:
                part = batches[group * together : (group + 1) * together]
                return pool.submit(self._fresh, epoch, group, part)

            waiting = deque(map(submit, groups[:ahead]))
            for group in groups:
                start = time.perf_counter()
                made = waiting.popleft().result()
                self.watch.waiting += time.perf_counter() - start
                if group + ahead in groups:
                    waiting.append(submit(group + ahead))
                yield from made[skip:]
                skip = 0

    def close(self) -> None:
        """Let go of what was needed to make batches."""

    def _from_copies(self, epoch: int, step: int, series: Index) -> tuple[Inputs, Tensor]:
        """One batch."""
        rng = np.random.default_rng([self.config.seed, epoch, step])
        inputs, target = self._copies[int(rng.integers(len(self._copies)))]
        which = torch.from_numpy(series)
        return self._finished(take(inputs, which), target[which], series, rng)

    def _fresh(self, epoch: int, group: int, batches: list[Index]) -> list[tuple[Inputs, Tensor]]:
        """A few batches, changed and thinned as (seed, epoch, group) say."""
        rng = np.random.default_rng([self.config.seed, epoch, group])
        low, high = self.config.drop
        drop = float(rng.uniform(low, high)) if high > low else low
        series = np.concatenate(batches)
        # The kernel works in this thread alone (threads=1) while the model trains.
        inputs, target = self._encoded(series, rng, drop, self.threads)
        inputs, target = self._finished(inputs, target, series, rng)
        ends = np.cumsum([len(batch) for batch in batches])
        slices = [slice(end - len(batch), end) for end, batch in zip(ends, batches, strict=True)]
        return [(take(inputs, part), target[part]) for part in slices]

    def _encoded(
        self,
        series: Index,
        rng: np.random.Generator,
        drop: float,
        threads: int | None = None,
    ) -> tuple[Inputs, Tensor]:
        """Inputs and targets of series as augmentation changes them."""
        augment = self.config
        seed = int(rng.integers(2**62))
        speed = np.ones(len(series))
        if not self._warps_inputs:
            speed = draw_speeds(augment, len(series), rng)
        clock = time.thread_time if threads == 1 else time.perf_counter
        start = clock()
        with warnings.catch_warnings():
            if augment.channel_dropout:
                # A hidden channel is never observed, which is what was wanted.
                warnings.simplefilter("ignore", UnobservedWarning)
            batch = self._series(series)
            if (speed != 1).any() or augment.jitter or augment.channel_dropout:
                changes = int(rng.integers(2**62))
                batch = augment_series(batch, augment, self._scale, speed, changes)
            places = np.arange(len(series))
            inputs = self.encoder.encode(
                batch, drop=drop, seed=seed, series=places, threads=threads
            )
        self.watch.encoding += clock() - start
        return inputs, self._scaled(self.target[torch.from_numpy(series)], speed)

    def _finished(
        self,
        inputs: Inputs,
        target: Tensor,
        series: Index,
        rng: np.random.Generator,
    ) -> tuple[Inputs, Tensor]:
        """Inputs of series, warped if the encoder can do that and with their weights, and targets
        as the loss takes them.
        """
        if self.config.warp and self._warps_inputs:
            speed = draw_speeds(self.config, len(series), rng)
            inputs, speed = self.encoder.warp(inputs, speed)  # type: ignore[attr-defined]
            target = self._scaled(target, speed)
        if self.weight is not None:
            inputs = inputs | {SAMPLE_WEIGHT: self.weight[torch.from_numpy(series)]}
        return inputs, target if self.to_target is None else self.to_target(target)

    def _order(self, rng: np.random.Generator) -> Index:
        """The series of an epoch, one batch after the other."""
        return rng.permutation(len(self.batch))

    def _series(self, which: Index) -> SeriesBatch:
        everything = len(which) == len(self.batch) and bool((np.diff(which) == 1).all())
        return self.batch if everything else self.batch[which]  # without a copy if it is all

    def _scaled(self, target: Tensor, speed: Floats) -> Tensor:
        """Targets of series played faster."""
        if not self.rate_like:
            return target
        factor = torch.from_numpy(speed).to(target.dtype)
        return target * factor.reshape(-1, *[1] * (target.dim() - 1))


# Batches of a store: read, thinned and tokenised while training runs, in bounded memory.

_FOR_SCALE = 256  # series that the scale of the channels is taken from
_FOR_SCALING = 1024  # series that the scaling of features is taken from: they are in memory


@dataclass
class StoredSource(Source):
    """A part of a store. Stored tokens are taken as they are, unless the series are changed in
    training: then tokens are made of the stored series, anew in each epoch.

    ``num_workers`` processes read and tokenise; with 0 a thread of this process does. Each has its
    part of every batch, and so its own row groups (``shuffled``).
    """

    batch: LazySeries  # type: ignore[assignment]
    num_workers: int = 0
    _workers: list[EncodeWorker] = field(default_factory=list)
    _starting: threading.Lock = field(default_factory=threading.Lock)

    fixed = False  # nothing is kept

    def __post_init__(self) -> None:
        """``InputError`` if the store cannot give what training asks for."""
        if self.config.draws:
            raise InputError(
                "draws keeps copies of all series in memory, which a store is too large for; "
                "set draws=0"
            )
        if self.config.changes and not self.batch.holds_series:
            raise InputError(
                f"the store {self.batch.place} holds tokens only, and drop, jitter, "
                "channel_dropout and warp change series; make it with roughformer features "
                "--series, or set them to 0"
            )

    @property
    def makers(self) -> int:  # type: ignore[override]
        """Threads that wait for processes: these have their next request when one is done."""
        return 2 if self._in_processes else 1

    @cached_property
    def _scale(self) -> Floats:
        return channel_scale(self.batch.sample(_FOR_SCALE)[:])

    @property
    def _as_stored(self) -> bool:
        """Whether the stored tokens are the inputs."""
        return bool(self.batch.tokenizer == self.encoder) and not self.config.changes

    @property
    def _in_processes(self) -> bool:
        """Changes other than dropping, and encoders of other models, are work of this process."""
        augment = self.config
        plain = not (augment.jitter or augment.channel_dropout or augment.warp)
        return self.num_workers > 0 and plain and hasattr(self.encoder, "arrays")

    def sample(self, n: int) -> Inputs:
        """Inputs of ``n`` series at most, spread over the store: for scaling."""
        sample = self.batch.sample(min(n, _FOR_SCALING))
        if self._as_stored:
            return tensors(sample.inputs(slice(None)))
        return self.encoder.encode(sample[:], drop=sum(self.config.drop) / 2, seed=self.config.seed)

    def close(self) -> None:
        """Let the processes go."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _order(self, rng: np.random.Generator) -> Index:
        return self.batch.shuffled(rng, self.config.batch_size)

    def _series(self, which: Index) -> SeriesBatch:
        return self.batch[which]

    def _encoded(
        self,
        series: Index,
        rng: np.random.Generator,
        drop: float,
        threads: int | None = None,
    ) -> tuple[Inputs, Tensor]:
        if not (self._as_stored or self._in_processes):
            return super()._encoded(series, rng, drop, threads)
        seed, places = int(rng.integers(2**62)), np.arange(len(series))
        tokenizer = None if self._as_stored else self.encoder
        start = time.thread_time()
        if self._in_processes:
            inputs = self._from_workers(tokenizer, series, drop, seed, places)
        else:
            inputs = tensors(self.batch.encode(tokenizer, series, drop, seed, places))
        self.watch.encoding += time.thread_time() - start
        return inputs, self.target[torch.from_numpy(series)]

    def _from_workers(
        self, tokenizer: Any, which: Index, drop: float, seed: int, places: Index
    ) -> Inputs:
        """Inputs that the processes made, each those of neighbours in the batches."""
        with self._starting:
            if not self._workers:
                self._workers = [self.batch.worker(tokenizer) for _ in range(self.num_workers)]
        place = places % self.config.batch_size
        first = int(place.min())
        owner = (place - first) * self.num_workers // (int(place.max()) + 1 - first)
        parts = [np.flatnonzero(owner == k) for k in range(self.num_workers)]
        try:
            jobs = [
                worker.submit(which[part], drop, seed, places[part])
                for worker, part in zip(self._workers, parts, strict=True)
                if len(part)
            ]
            joined = join([tensors(job.result()) for job in jobs])
        except BrokenProcessPool:
            raise InputError(
                "a process that reads the store was killed, perhaps for want of memory; set "
                "num_workers=0, or fewer of them, and resume"
            ) from None
        return take(joined, torch.from_numpy(np.argsort(np.concatenate(parts))))


def source_of(
    encoder: Any,
    series: SeriesBatch | LazySeries,
    target: Tensor,
    config: TrainConfig,
    *,
    num_workers: int = 0,
    **options: Any,
) -> Source:
    """Batches of series in memory or in a store; ``options`` as of ``Source``."""
    if isinstance(series, LazySeries):
        return StoredSource(encoder, series, target, config, **options, num_workers=num_workers)
    return Source(encoder, series, target, config, **options)


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
        elif isinstance(part, LazySeries):
            digest.update(part.fingerprint().encode())
        elif isinstance(part, str):
            digest.update(part.encode())
        elif isinstance(part, Tensor):
            digest.update(part.contiguous().numpy().tobytes())
        else:
            digest.update(part.model_dump_json(exclude=_NO_MATTER).encode())
    return digest.hexdigest()

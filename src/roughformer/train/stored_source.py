"""Batches of a store: read, thinned and tokenised while training runs, in bounded memory."""

import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.store.making import made_in_process, make_inputs, making_process
from roughformer.store.stored import StoredSeries
from roughformer.tokens import Tokenizer
from roughformer.train.config import TrainConfig
from roughformer.train.inputs import Index, Inputs, join, take
from roughformer.train.source import Source

__all__ = ["StoredSource", "source_of", "tensors"]

_FOR_SCALE = 256  # series that the scale of the channels is taken from
_FOR_SCALING = 1024  # series that the scaling of features is taken from: they are in memory


def source_of(
    encoder: Any,
    series: SeriesBatch | StoredSeries,
    target: Tensor,
    config: TrainConfig,
    *,
    readers: int = 0,
    **options: Any,
) -> Source:
    """Batches of series in memory or in a store; ``options`` as of ``Source``."""
    if isinstance(series, StoredSeries):
        return StoredSource(encoder, series, target, config, **options, readers=readers)
    return Source(encoder, series, target, config, **options)


@dataclass
class StoredSource(Source):
    """A part of a store. Stored tokens are taken as they are, unless the series are changed in
    training: then tokens are made of the stored series, anew in each epoch.

    ``readers`` processes read and tokenise; with 0 a thread of this process does. Each has its part
    of every batch, and so its own row groups (``StoredSeries.shuffled``).
    """

    batch: StoredSeries  # type: ignore[assignment]
    readers: int = 0
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
                f"the store {self.batch.shelf.place} holds tokens only, and drop, jitter, "
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
        return self.readers > 0 and plain and isinstance(self.encoder, Tokenizer)

    def sample(self, n: int) -> Inputs:
        """Inputs of ``n`` series at most, spread over the store: for scaling."""
        some = self.batch.sample(min(n, _FOR_SCALING))
        if self._as_stored:
            return tensors(some.inputs(slice(None)))
        low, high = self.config.drop
        return self.encoder.encode(some[:], drop=(low + high) / 2, seed=self.config.seed)

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
            inputs = tensors(make_inputs(self.batch, tokenizer, which[ours], drop, seed, ours))
        self.watch.encoding += time.thread_time() - start
        return inputs, self.target[torch.from_numpy(which[ours])]

    def _asked(
        self, tokenizer: Tokenizer | None, which: Index, drop: float, seed: int, places: Index
    ) -> Inputs:
        """Inputs that the processes made, each those of neighbours in the batches."""
        with self._starting:
            if not self._processes:
                self._processes = [
                    making_process(self.batch, tokenizer) for _ in range(self.readers)
                ]
        place = places % self.config.batch_size
        first = int(place.min())
        reader = (place - first) * self.readers // (int(place.max()) + 1 - first)
        parts = [np.flatnonzero(reader == k) for k in range(self.readers)]
        try:
            asked = [
                process.submit(made_in_process, which[part], drop, seed, places[part])
                for process, part in zip(self._processes, parts, strict=True)
                if len(part)
            ]
            made = join([tensors(some.result()) for some in asked])
        except BrokenProcessPool:
            raise InputError(
                "a process that reads the store was killed, perhaps for want of memory; set "
                "readers=0, or fewer of them, and resume"
            ) from None
        return take(made, torch.from_numpy(np.argsort(np.concatenate(parts))))


def tensors(inputs: dict[str, Any]) -> Inputs:
    """Arrays as a model takes them; memory is shared."""
    return {name: torch.from_numpy(array) for name, array in inputs.items()}

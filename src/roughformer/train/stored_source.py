"""Batches of a store: read, thinned and tokenised while training runs, in bounded memory."""

import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.store.making import made_in_pool, make_inputs, making_pool
from roughformer.store.stored import StoredSeries
from roughformer.tokens import Tokenizer
from roughformer.train.config import TrainConfig
from roughformer.train.inputs import Index, Inputs
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

    ``readers`` processes read and tokenise; with 0 a thread of this process does.
    """

    batch: StoredSeries  # type: ignore[assignment]
    readers: int = 0
    _pool: ProcessPoolExecutor | None = None

    def __post_init__(self) -> None:
        """``InputError`` if the store cannot give what training asks for."""
        augment = self.config.augment
        if augment.draws:
            raise InputError(
                "draws keeps copies of all series in memory, which a store is too large for; "
                "set draws=0"
            )
        if augment and not self.batch.holds_series:
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
        """One thread for each process, to wait for it."""
        return max(self.readers, 1) if self._in_processes else 1

    @property
    def _measured(self) -> SeriesBatch:
        return self.batch.sample(_FOR_SCALE)[:]

    @property
    def _as_stored(self) -> bool:
        """Whether the stored tokens are the inputs."""
        return self.batch.tokenizer == self.encoder and not self.config.augment

    @property
    def _in_processes(self) -> bool:
        """Changes other than dropping, and encoders of other models, are work of this process."""
        augment = self.config.augment
        plain = not (augment.jitter or augment.channel_dropout or augment.warp)
        return self.readers > 0 and plain and isinstance(self.encoder, Tokenizer)

    def sample(self, n: int) -> Inputs:
        """Inputs of ``n`` series at most, spread over the store: for scaling."""
        some = self.batch.sample(min(n, _FOR_SCALING))
        if self._as_stored:
            return tensors(some.inputs(slice(None)))
        low, high = self.config.augment.drop
        return self.encoder.encode(some[:], drop=(low + high) / 2, seed=self.config.seed)

    def close(self) -> None:
        """Let the processes go."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

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
        wish = (which[ours], drop, seed, ours)
        start = time.thread_time()
        if self._in_processes:
            made = self._asked(tokenizer, wish)
        else:
            made = make_inputs(self.batch, tokenizer, *wish)
        self.watch.encoding += time.thread_time() - start
        return tensors(made), self.target[torch.from_numpy(which[ours])]

    def _asked(self, tokenizer: Tokenizer | None, wish: tuple[Any, ...]) -> dict[str, Any]:
        """Inputs that one of the processes made."""
        if self._pool is None:
            self._pool = making_pool(self.batch, tokenizer, self.readers)
        try:
            return self._pool.submit(made_in_pool, *wish).result()
        except BrokenProcessPool:
            raise InputError(
                "a process that reads the store was killed, perhaps for want of memory; set "
                "readers=0, or fewer of them, and resume"
            ) from None


def tensors(inputs: dict[str, Any]) -> Inputs:
    """Arrays as a model takes them; memory is shared."""
    return {name: torch.from_numpy(array) for name, array in inputs.items()}

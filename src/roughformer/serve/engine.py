"""What the worker's thread does with the jobs of one round."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch
from roughformer.serve.metrics import Metrics
from roughformer.serve.model import ServedModel
from roughformer.serve.refusal import Refusal
from roughformer.serve.streams import Pushed, Streams
from roughformer.serve.worker import Done, Job

__all__ = ["Engine"]

Deliver = Callable[[Done], None]


class Engine:
    """The model and the streams, behind ``handle``."""

    def __init__(self, model: ServedModel, streams: Streams | None, metrics: Metrics) -> None:
        """``streams`` None: the model has none."""
        self.model, self.streams, self.metrics = model, streams, metrics

    def _nobody(self) -> npt.NDArray[np.bool_]:
        return np.zeros(0 if self.streams is None else self.streams.batch.n, dtype=bool)

    def handle(self, jobs: list[Job], deliver: Deliver) -> None:
        """Streams first, in order of arrival, then whole series; each group is answered as soon as
        it is done.
        """
        together: list[tuple[Job, Any]] = []
        busy = self._nobody()
        for job in jobs:
            if job.kind == "push":
                assert self.streams is not None
                try:
                    slots = self.streams.slots_of(job.work)
                except Refusal as refusal:
                    deliver([(job, refusal)])
                    continue
                if busy[slots].any():  # two pushes to one stream: one after the other
                    self._push(together, deliver)
                    together, busy[:] = [], False
                busy[slots] = True
                together.append((job, slots))
            elif job.kind == "call":
                self._push(together, deliver)
                deliver([(job, _result(job.work))])
                together = []
                busy = self._nobody()  # there may be more slots now
        self._push(together, deliver)
        self._predict([job for job in jobs if job.kind == "predict"], deliver)

    def _push(self, pushes: list[tuple[Job, Any]], deliver: Deliver) -> None:
        if not pushes or self.streams is None:
            return
        streams = self.streams
        found = _result(lambda: streams.push([(job.work, slots) for job, slots in pushes]))
        if isinstance(found, BaseException):
            found = [found] * len(pushes)
        self.metrics.push_size.observe(len(pushes))
        for one in found:
            if isinstance(one, Pushed):
                self.metrics.observations.inc(one.rows - one.dropped)
                self.metrics.windows.inc(len(one.events))
        deliver([(job, one) for (job, _), one in zip(pushes, found, strict=True)])

    def _predict(self, jobs: list[Job], deliver: Deliver) -> None:
        if not jobs:
            return
        for group in self.model.together([job.work for job in jobs]):
            chosen = [jobs[i] for i in group]
            self.metrics.batch_size.observe(len(chosen))
            found = _result(partial(self._answers, [job.work for job in chosen]))
            if not isinstance(found, BaseException):
                deliver(list(zip(chosen, found, strict=True)))
            elif len(chosen) == 1:
                deliver([(chosen[0], found)])
            else:  # one of them is at fault: let each have its own answer
                for job in chosen:
                    one = _result(partial(self._answers, [job.work]))
                    deliver([(job, one if isinstance(one, BaseException) else one[0])])

    def _answers(self, batches: list[SeriesBatch]) -> list[list[dict[str, Any]]]:
        whole = batches[0] if len(batches) == 1 else SeriesBatch.concatenate(batches)
        told = self.model.predict(whole)
        self.metrics.series.inc(len(told))
        found = []
        for batch in batches:
            found.append(told[: len(batch)])
            told = told[len(batch) :]
        return found


def _result(work: Callable[[], Any]) -> Any:
    """What it gives, or the error as a client may see it."""
    try:
        return work()
    except (InputError, CapacityError) as error:
        return Refusal(400, str(error))
    except Exception as error:
        return error

"""What the worker's thread does with the jobs of one round."""

import time
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
_ROUND = 0.25  # seconds of work for streams after which clients have their turns again


class Engine:
    """The model and the streams, behind ``handle``."""

    def __init__(self, model: ServedModel, streams: Streams | None, metrics: Metrics) -> None:
        """``streams`` None: the model has none."""
        self.model, self.streams, self.metrics = model, streams, metrics

    def _nobody(self) -> npt.NDArray[np.bool_]:
        return np.zeros(0 if self.streams is None else self.streams.batch.n, dtype=bool)

    def handle(self, jobs: list[Job], deliver: Deliver) -> list[Job]:
        """Streams first, in the order given, then whole series; each group is answered as soon as
        it is done. What streams want beyond a moment's work is returned: it waits for the next
        round, in which others have their turn.
        """
        until = time.monotonic() + _ROUND
        together: list[tuple[Job, Any]] = []
        busy, windows = self._nobody(), 0.0
        later: list[Job] = []
        for number, job in enumerate(jobs):
            if job.kind == "push":
                assert self.streams is not None
                try:
                    slots = self.streams.slots_of(job.work)
                except Refusal as refusal:
                    deliver([(job, refusal)])
                    continue
                more = self.streams.windows_of(job.work, slots)
                # Two pushes to one stream are done one after the other, and much work in parts.
                if busy[slots].any() or windows + more > self.streams.most_windows:
                    self._push(together, deliver)
                    together, busy[:], windows = [], False, 0.0
            elif job.kind == "call":
                self._push(together, deliver)
                together, windows = [], 0.0
            if job.kind == "predict":
                continue
            if time.monotonic() > until:
                later = [job for job in jobs[number:] if job.kind != "predict"]
                break
            if not job.begin():
                continue
            if job.kind == "push":
                busy[slots], windows = True, windows + more
                together.append((job, slots))
            else:
                deliver([(job, _result(job.work))])
                busy = self._nobody()  # there may be more slots now
        self._push(together, deliver)
        self._predict([job for job in jobs if job.kind == "predict" and job.begin()], deliver)
        return later

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

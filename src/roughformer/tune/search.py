"""The search itself: asks the study for trials, has an engine run them, tells the study."""

from collections.abc import Callable
from typing import Any

from roughformer.tune.jobs import Ended, Engine, Job, Reported
from roughformer.tune.study import Study

__all__ = ["search"]


def search(
    study: Study,
    engine: Engine,
    settings: dict[str, Any],
    trials: int,
    told: Callable[[Reported | Ended], None] | None = None,
) -> None:
    """Go on until ``trials`` of the study have ended; those that a killed search left come first.

    ``settings``: of the estimator, which each trial changes; ``told``: of all that happens, after
    the study knows it.
    """
    left = study.unfinished()
    stopped: set[int] = set()
    running = 0
    try:
        while True:
            while running < engine.slots and (left or len(study) < trials):
                number = left.pop(0) if left else study.ask()
                if not study.begin(number):  # it has killed its process too often
                    continue
                engine.start(Job(number, settings | study.values(number)))
                running += 1
            if not running:
                return
            event = engine.wait()
            if isinstance(event, Reported):
                stop = study.report(event.number, event.epoch, event.score)
                if stop:
                    stopped.add(event.number)
                engine.answer(event.number, stop=stop)
            else:
                running -= 1
                study.end(event, pruned=event.number in stopped)
            if told is not None:
                told(event)
    finally:
        engine.close()

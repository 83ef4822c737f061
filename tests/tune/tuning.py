"""What the tests of searches share: an engine that trains nothing, and small commands."""

from collections import deque

from roughformer.tune import Choice, Ended, Range, Reported, Space, open_study

SPACE = Space(learning_rate=Range(1e-4, 1e-1, log=True), d_model=Choice((8, 16)))
START = {"learning_rate": 2e-3, "d_model": 16}
EPOCHS = 8
TINY_SPACE = """
learning_rate = { low = 1e-3, high = 1e-2, log = true }
d_model = [8, 16]
"""
TINY = (
    "--epochs", "2", "--set", "windows=4", "--set", "depth=1", "--set", "spectrum=none",
    "--set", "clock=0", "--set", "n_heads=2", "--set", "device=cpu", "--threads", "1",
    "--no-plots",
)  # fmt: skip


class Killed(Exception):
    """The process of the search is gone."""


class MadeUp:
    """Runs trials one epoch at a time: ``score(settings, epoch)`` is what they report, an
    exception in it is how they fail. After ``dies_after`` events the search itself is killed.
    """

    def __init__(self, score, slots=1, dies_after=None):
        self.score, self.slots, self.dies_after = score, slots, dies_after
        self.jobs, self.events, self.epochs, self.scores = {}, deque(), {}, {}
        self.started, self.closed = [], False

    def start(self, job):
        self.started.append(job.number)
        self.jobs[job.number], self.epochs[job.number] = job, 0
        self._next(job.number)

    def _next(self, number):
        epoch = self.epochs[number] = self.epochs[number] + 1
        try:
            score = self.score(self.jobs[number].settings, epoch)
        except ValueError as error:
            self.events.append(Ended(number, failed=str(error)))
            return
        self.scores[number] = score
        self.events.append(Reported(number, epoch, score))

    def wait(self):
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                raise Killed
        return self.events.popleft()

    def answer(self, number, *, stop):
        if stop:
            self.events.append(Ended(number))
        elif self.epochs[number] < EPOCHS:
            self._next(number)
        else:
            result = {
                "score": self.scores[number], "scores": {}, "best_epoch": EPOCHS,
                "epochs": EPOCHS, "weights": 1, "seconds": 0.0,
            }  # fmt: skip
            self.events.append(Ended(number, result=result))

    def close(self):
        self.closed = True


def study_in(where, *, resume=False, space=SPACE, configuration=None, **more):
    usual = {"start": START, "maximize": False, "seed": 0, "epochs": EPOCHS}
    return open_study(where, configuration or {"seed": 0}, space, resume=resume, **(usual | more))


def by_rate(settings, epoch):
    """Better with the rate, and with each epoch."""
    return 1 / settings["learning_rate"] + 1 / epoch

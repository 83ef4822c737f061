"""Trials in processes: what they report, how they stop, fail, die and go on."""

import os
import signal

import pytest

from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier
from roughformer.io import make_sine
from roughformer.tune import Ended, Job, Problem, Reported
from roughformer.tune.search import LocalEngine, Stopped, run_job
from small import TINY

SETTINGS = RFormerClassifier.settings(TINY | {"metric": "auto", "device": "cpu"})


@pytest.fixture(scope="module")
def problem():
    batch = make_sine(24, n_classes=2, length=30)
    return Problem("classification", batch, batch.labels)


def test_a_trial_reports_each_epoch_and_its_result_is_of_the_best(problem):
    seen = []
    found = run_job(problem, SETTINGS, lambda *told: seen.append(told))
    assert [epoch for epoch, _ in seen] == [1, 2]
    assert found["score"] == min(score for _, score in seen)
    assert found["epochs"] == 2
    assert found["scores"]["log_loss"] == found["score"]


def test_a_trial_that_is_told_to_stop_stops(problem):
    with pytest.raises(Stopped):
        run_job(problem, SETTINGS, lambda epoch, score: True)


def test_a_stopped_trial_goes_on_from_its_last_epoch(problem, tmp_path):
    whole, part, rest = [], [], []

    def dies(epoch, score):
        part.append(score)
        if epoch == 2:
            raise KeyboardInterrupt

    settings = SETTINGS | {"epochs": 3}
    run_job(problem, settings, lambda e, s: whole.append(s))
    with pytest.raises(KeyboardInterrupt):
        run_job(problem, settings, dies, tmp_path / "a")
    found = run_job(problem, settings, lambda e, s: rest.append((e, s)), tmp_path / "a")
    assert part == whole[:2]
    assert dict(rest) == dict(enumerate(whole, 1))  # what may not have been heard is told again
    assert found["epochs"] == 3


def test_a_metric_that_is_not_defined_fails_the_trial():
    batch = make_sine(24, n_classes=2, length=30)
    one = batch[batch.labels == batch.labels[0]]
    problem = Problem("classification", batch, batch.labels, held=(one, one.labels))
    with pytest.raises(InputError, match="auroc is not defined on the validation part"):
        run_job(problem, SETTINGS | {"metric": "auroc"}, lambda e, s: False)


@pytest.mark.slow
def test_processes_run_trials_stop_them_and_tell_why_they_failed(problem, tmp_path):
    engine = LocalEngine(problem, tmp_path, workers=1, threads=1)
    try:
        engine.start(Job(0, SETTINGS))
        assert engine.wait() == Reported(0, 1, pytest.approx(0.7, abs=0.6))
        engine.answer(0, stop=True)
        assert engine.wait() == Ended(0)

        engine.start(Job(1, SETTINGS | {"model__n_heads": 3}))
        assert "n_heads" in engine.wait().failed

        engine.start(Job(2, SETTINGS))
        assert isinstance(engine.wait(), Reported)
        (process,) = [worker.process for worker in engine._busy.values()]
        os.kill(process.pid, signal.SIGKILL)
        engine.answer(2, stop=False)
        assert "its process was killed by signal 9" in engine.wait().failed

        engine.start(Job(3, SETTINGS))  # in a new process
        assert isinstance(engine.wait(), Reported)
    finally:
        engine.close()
    assert not process.is_alive()

"""The clock of a training: other work on the machine must not shorten a comparison."""

import time

import torch

from roughformer.train.loop import now, processor_time


def _of_a_pause(seconds: float) -> float:
    since = now()
    time.sleep(seconds)
    return now() - since


def test_the_wall_goes_on_while_nothing_is_done_and_the_processor_does_not() -> None:
    assert _of_a_pause(0.2) >= 0.2
    with processor_time():
        assert _of_a_pause(0.2) < 0.1
    assert _of_a_pause(0.01) >= 0.01  # of the wall again


def test_processor_time_is_shared_by_the_threads() -> None:
    with processor_time():
        since, own = now(), time.process_time()
        while time.process_time() - own < 0.1:
            pass
        used, spent = now() - since, time.process_time() - own
    assert abs(used - spent / torch.get_num_threads()) < 0.01

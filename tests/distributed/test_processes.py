"""Two processes train as one does: the same curves, the same model, the same errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from distributed_cases import CASES, Stop, report, resumed, stopped_after, whole

from roughformer.util.checkpoint import load_checkpoint
from small import read_log

HERE = Path(__file__).parent


def started(*command):
    """A process of Python."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return subprocess.Popen(
        [sys.executable, *map(str, command)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What both processes found; and where they worked."""
    where = tmp_path_factory.mktemp("distributed")
    with pytest.raises(Stop):
        stopped_after(7, where / "one")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2")
    process = started(*torchrun, HERE / "distributed_cases.py", where)
    try:
        _, error = process.communicate(timeout=600)
    finally:
        process.terminate()  # does nothing to one that has ended
    assert process.returncode == 0, error
    told = [json.loads((where / f"found-{rank}.json").read_text()) for rank in (0, 1)]
    assert [(t["rank"], t["size"]) for t in told] == [(0, 2), (1, 2)]
    return told, where


@pytest.fixture(scope="module")
def alone():
    """What one process finds, made when it is asked for."""
    made = {}

    def result(name):
        if name not in made:
            made[name] = report(CASES[name](None)) if name in CASES else whole()
        return made[name]

    return result


def assert_same(one, other):
    for a, b in zip(one["curves"], other["curves"], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-7)
    np.testing.assert_allclose(one["said"], other["said"], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_learn_what_one_does(found, alone, name):
    told, _ = found
    assert_same(told[0][name], alone(name))


@pytest.mark.parametrize("name", CASES)
def test_both_processes_end_with_the_same_bits(found, name):
    (first, second), _ = found
    assert first[name] == second[name]


def test_only_the_first_process_writes_and_its_model_is_a_usual_one(found, alone):
    from distributed_cases import series

    from roughformer.estimators import RFormerClassifier

    _, where = found
    assert not (where / "plain" / "1").exists()
    run = where / "plain" / "0"
    assert len(read_log(run)) == 2
    said = RFormerClassifier.load(run / "model").predict_proba(series())
    np.testing.assert_allclose(said, alone("plain")["said"], rtol=2e-5, atol=2e-6)


def test_two_processes_go_on_where_one_stopped(found, alone):
    told, _ = found
    assert_same(told[0]["from one"], alone("whole"))


def test_one_process_goes_on_where_two_stopped(found, alone):
    told, where = found
    state = load_checkpoint(where / "two" / "state").config["state"]
    assert (state["epoch"], state["step"]) == (1, 1)
    assert_same(resumed(where / "two"), alone("whole"))
    assert told[0]["stopped"] == "Stop: enough"
    assert told[1]["stopped"] == "InputError: process 1 of 2 failed: enough"


def test_dropout_is_repeated_bit_for_bit_by_as_many_processes(found, alone):
    told, _ = found
    assert told[0]["noise stopped"] == "Stop: enough"
    for one in told:
        assert one["noise resumed"] == one["noise"]
    assert told[0]["noise"]["curves"] != alone("whole")["curves"]


def test_an_error_of_one_process_is_told_by_all(found):
    (first, second), _ = found
    assert second["one failed"] == "InputError: a broken file"
    assert first["one failed"] == "InputError: process 2 of 2 failed: a broken file"


@pytest.mark.parametrize(
    ("name", "words"),
    [("diverged", "lower the learning rate"), ("other data", "different data or configurations")],
)
def test_what_all_find_wrong_they_say_alike(found, name, words):
    (first, second), _ = found
    assert words in first[name]
    assert first[name] == second[name]


def test_the_clock_of_the_first_process_decides_for_all(found):
    (first, second), _ = found
    assert first["budget"] == second["budget"] >= 1


def test_without_a_seed_all_take_that_of_the_first(found):
    (first, second), _ = found
    assert first["no seed"] == second["no seed"]

"""The command as one of several processes, and as one that a launcher starts again."""

import pytest

from command import SMALL, fails, succeeds
from roughformer.cli.common import rank_zero_output
from roughformer.errors import InputError
from roughformer.train.distributed import ProcessLost
from small import make_sine

OPTIONS = (*SMALL, "--quiet")


@pytest.fixture
def data(tmp_path):
    make_sine(24, n_classes=2, length=20, seed=0).save(tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def test_a_run_goes_on_when_its_own_launcher_starts_it_again(tmp_path, data, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    run = tmp_path / "run"
    succeeds("train", data, "--out", run, *OPTIONS)
    before = (run / "model" / "model.safetensors").read_bytes()
    succeeds("train", data, "--out", run, *OPTIONS)
    assert (run / "model" / "model.safetensors").read_bytes() == before
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "two")
    assert "holds a finished run" in fails("train", data, "--out", run, *OPTIONS)
    succeeds("train", data, "--out", run, "--force", *OPTIONS)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert "holds a finished run" in fails("train", data, "--out", run, *OPTIONS)


def test_a_refused_run_leaves_no_trace_of_its_launcher(tmp_path, data, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    run = tmp_path / "run"
    fails("train", data, "--out", run, "--set", "d_model=7", *OPTIONS)
    assert not run.exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_errors_of_later_processes_say_whose_they_are(monkeypatch, rank):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    words = "^no such thing$" if rank == 0 else "^process 2 of 2: no such thing$"
    with pytest.raises(InputError, match=words), rank_zero_output():
        raise InputError("no such thing")
    with pytest.raises(InputError, match=f"^process {rank + 1} of 2: another"), rank_zero_output():
        raise ProcessLost("another process was lost")


def test_one_process_speaks_as_it_is(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ProcessLost), rank_zero_output():
        raise ProcessLost("x")

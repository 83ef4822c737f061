"""Signatures of numpy data need no torch: only numpy and the native kernel."""

import subprocess
import sys

import pytest

import roughformer as rf

PROGRAM = """
import sys
sys.modules["torch"] = None  # importing it raises ImportError
import numpy as np
import roughformer as rf

x = np.random.default_rng(0).normal(size=(3, 50, 2)).cumsum(axis=1)
batch = rf.SeriesBatch.of(x)
x[0, 5:9, 0] = np.nan
for data in (x, list(x), batch):
    assert rf.multiview_signature(data, 4, 2, lifts=[rf.Time(), rf.Clock(3)]).shape == (3, 4, 48)
assert rf.signature(x, 3, drop=0.3).shape == (3, 14)
assert rf.logsignature(x, 3).shape == (3, 5)
assert not np.isnan(rf.fill_gaps(rf.SeriesBatch.of(x))).any()
assert rf.engine_info()["engine"] == "native"
running = rf.RunningSignatures(2, 2, 2)
running.push(np.zeros((2, 2)))
assert running.read().shape == (2, 12)
try:
    rf.multiview_signature(x, 4, 2, lifts=[rf.Lag(0.5)])
except ImportError as error:
    assert "pip install torch" in str(error), error
else:
    raise AssertionError
"""


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_signatures_of_arrays_need_no_torch(engine, monkeypatch):
    monkeypatch.setenv("ROUGHFORMER_ENGINE", "torch" if engine == "torch" else "")
    if engine == "native" and rf.engine_info()["engine"] != "native":
        pytest.skip("no native engine here")
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    if engine == "native":
        assert ended.returncode == 0, ended.stderr
    else:
        assert "neither the native kernel nor torch" in ended.stderr

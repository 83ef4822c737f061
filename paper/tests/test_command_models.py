"""Each model that ``--model`` names can be trained, searched and used from the command line."""

import json

import pytest

from command import succeeds
from roughformer.io import write_table
from roughformer_paper.baselines.estimators import BASELINES
from roughformer_paper.datasets import make_sine

MODELS = ("rformer", "tempo", *dict.fromkeys(cls.kind for cls in BASELINES))
QUICK = (
    "--target", "omega", "--task", "regression", "--channels", "x", "--epochs", "1",
    "--threads", "1", "--set", "device=cpu", "--no-plots", "-q",
)  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "sine.csv"
    write_table(make_sine(16, n_classes=2, length=24), path)
    return path


@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains_and_predicts(table, tmp_path, model):
    run = tmp_path / "run"
    succeeds("train", table, "--model", model, *QUICK, "--out", run)
    assert json.loads((run / "metrics.json").read_text())["epochs"] == 1
    assert len(succeeds("predict", run, table).out.splitlines()) == 17


@pytest.mark.parametrize("model", ["tempo", "gru"])
def test_a_model_without_tokens_can_be_searched_in_its_default_space(table, tmp_path, model):
    out = tmp_path / "search"
    succeeds("tune", table, "--model", model, *QUICK, "--trials", "1", "--out", out)
    assert (out / "best" / "metrics.json").exists()

"""Trained models and their exported files, made once: an export takes seconds."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
from export_models import series

import roughformer as rf
from command import succeeds
from small import make

SMALL = {
    "d_model": 8,
    "n_heads": 2,
    "epochs": 1,
    "random_state": 0,
    "n_jobs": 1,
    "calibrate": False,
}


@pytest.fixture(autouse=True, scope="session")
def quiet():
    """pytest would keep every line that torch's exporters trace."""
    logging.disable(logging.WARNING)
    logging.getLogger("torch.__trace").propagate = False
    yield
    logging.getLogger("torch.__trace").propagate = True
    logging.disable(logging.NOTSET)


def exported(folder, model, batch, *options):
    """A trained model, and what ``roughformer export`` made of it."""
    model.save(folder / "model")
    batch.save(folder / "series.parquet")
    file = folder / "model.onnx"
    printed = succeeds("export", folder / "model", "--out", file, *options)
    return SimpleNamespace(
        folder=folder, file=file, step=folder / "model.step.onnx", printed=printed, model=model,
        predictor=model.predictor_,
    )  # fmt: skip


@pytest.fixture(scope="session")
def causal(tmp_path_factory):
    """A causal classifier with covariates, as a graph and as a step, checked on its series."""
    folder = tmp_path_factory.mktemp("causal")
    batch = series(24, 16, seed=7, shortest=4)
    model = make(rf.RFormerClassifier,
        causal=True, windows=rf.Windows.by_duration(1.7), depth=1, clock=0, context=3,
        observations=True, basepoint=False, static=("age", "kind"), **SMALL,
    )  # fmt: skip
    model.fit(batch, np.array(["low", "high"] * 12))
    data = folder / "series.parquet"
    return exported(folder, model, batch, "--dtype", "float32", "--data", data)


@pytest.fixture(scope="session")
def lifted(tmp_path_factory):
    """A model of numbers that looks at series as a whole, with nearly everything in its tokens."""
    batch = series(24, 16, seed=8, shortest=4)
    model = make(rf.RFormerRegressor,
        windows=rf.Windows.by_points(3), depth=2, transform="logsignature", lags=(0.7,),
        basepoint=True, clock=1, spectrum={"count": 8}, scaling="rank", wide=4,
        uncertainty="quantile", **SMALL,
    )  # fmt: skip
    model.fit(batch, np.linspace(50.0, 90.0, 24))
    return exported(tmp_path_factory.mktemp("lifted"), model, batch)

"""One small causal model, and one server of it, for all tests of the service."""

from types import SimpleNamespace

import numpy as np
import pytest

import roughformer as rf

pytest.importorskip("fastapi")
pytest.importorskip("msgspec")

from wards import CHANNELS, WELL, recording

from roughformer.serve.config import Limits, StreamOptions
from serving import running
from small import make


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    series = [recording(seed, 40) for seed in range(24)]
    batch = rf.SeriesBatch.from_arrays(
        [x for _, x in series], [t for t, _ in series], channels=CHANNELS
    )
    estimator = make(rf.RFormerClassifier,
        windows=rf.Windows.by_duration(2.0), depth=2, clock=0, spectrum=None, d_model=8, n_heads=2,
        epochs=2, learning_rate=0.05, random_state=0, n_jobs=1, causal=True, calibrate=False,
    )  # fmt: skip
    estimator.fit(batch, np.where(np.arange(24) % 2, "well", "sick"))
    directory = tmp_path_factory.mktemp("served") / "model"
    estimator.save(directory)
    return SimpleNamespace(
        estimator=estimator, predictor=estimator.predictor_, directory=directory, batch=batch
    )


@pytest.fixture(scope="session")
def server(model):
    limits = Limits(
        max_body=400_000, max_series=40, max_length=5000, max_streams=40, max_rows=2000,
        max_windows=500, max_leap=50, body_seconds=1.0, send_buffer=30_000, max_message=300_000,
    )  # fmt: skip
    options = StreamOptions(alarms=(WELL,))
    with running(model.predictor, model.directory, limits, streams=options) as found:
        yield found


@pytest.fixture
def name(request, server):
    """An open stream, which is deleted at the end."""
    found = f"s-{abs(hash(request.node.name)) % 10**9}"
    assert server.http.post("/v1/streams", json={"id": found}).status_code == 201
    yield found
    server.http.delete(f"/v1/streams/{found}")

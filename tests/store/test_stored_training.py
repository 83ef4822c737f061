"""Training from a store: what it learns, whoever reads it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_stored import made_up, written

import roughformer as rf
from small import make

SMALL = {
    "d_model": 8, "n_heads": 2, "n_layers": 1, "epochs": 3, "dropout": 0.0, "random_state": 0,
    "validation": 0.2, "n_jobs": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def batch():
    return made_up(120, static=False)


@pytest.fixture(scope="module")
def tokenizer(batch):
    return rf.Tokenizer.fit(rf.TokenConfig(windows=6, depth=2), batch)


@pytest.fixture(scope="module")
def stores(tmp_path_factory, batch, tokenizer):
    place = tmp_path_factory.mktemp("stores")
    ways = {"tokens": ("tokens",), "series": ("series",), "both": ("series", "tokens")}
    return {k: written(place / k, batch, tokenizer, holds=v) for k, v in ways.items()}


def curve(model):
    return [(r["train_loss"], r["valid_loss"], r["valid_metric"]) for r in model.history_]


def fitted(x, **options):
    return make(rf.RFormerClassifier, **(SMALL | options)).fit(x)


def test_one_batch_is_that_of_training_in_memory(stores, batch, tokenizer):
    """With all series in one batch the order does not matter."""
    options = {"windows": 6, "depth": 2, "clock": 0, "spectrum": None, "basepoint": False}
    memory = fitted(batch, batch_size=1000, **options)
    stored = fitted(stores["series"], batch_size=1000, **options)
    np.testing.assert_allclose(curve(stored), curve(memory), rtol=1e-4)
    np.testing.assert_allclose(stored.predict_proba(batch), memory.predict_proba(batch), atol=1e-3)


def test_stored_tokens_are_as_good_as_stored_series(stores, batch):
    of_tokens, of_both = fitted(stores["tokens"]), fitted(stores["both"])
    assert curve(of_tokens) == curve(of_both)
    # The model takes raw series, as if it had been trained on them.
    assert of_tokens.predict(batch).shape == (120,)


@pytest.mark.parametrize("kind", ["tokens", "series"])
def test_processes_that_read_change_nothing(stores, kind):
    options = {} if kind == "tokens" else {"drop": (0.0, 0.5), "windows": 6, "spectrum": None}
    alone = fitted(stores[kind], **options)
    for num_workers in (1, 3):
        assert curve(fitted(stores[kind], num_workers=num_workers, **options)) == curve(alone)


def test_dropping_draws_anew_in_each_epoch(stores):
    fixed = fitted(stores["series"], learning_rate=1e-12)
    dropped = fitted(stores["series"], learning_rate=1e-12, drop=0.5)
    losses = [r["train_loss"] for r in fixed.history_]
    assert np.ptp(losses) < 1e-6
    assert np.ptp([r["train_loss"] for r in dropped.history_]) > 1e-6


def test_a_training_goes_on_where_it_stopped(stores, tmp_path):
    whole = fitted(stores["both"], drop=0.3)

    class Enough(Exception):
        pass

    def stop(record):
        if record["epoch"] == 2:
            raise Enough

    begun = make(rf.RFormerClassifier, **(SMALL | {"drop": 0.3}), run_dir=tmp_path)
    begun.set_params(training__callbacks=[stop])
    with pytest.raises(Enough):
        begun.fit(stores["both"])
    resumed = make(rf.RFormerClassifier, **(SMALL | {"drop": 0.3}), run_dir=tmp_path, resume=True)
    assert curve(resumed.fit(stores["both"])) == curve(whole)


def test_regression_and_a_baseline_read_stores_too(stores):
    model = make(rf.RFormerRegressor, **(SMALL | {"epochs": 1})).fit(stores["both"])
    assert len(model.history_) == 1
    assert len(fitted(stores["series"], model="gru", epochs=1).history_) == 1


def test_validation_data_may_be_a_store(stores, batch):
    part = stores["both"].part(np.arange(20))
    model = make(rf.RFormerClassifier, **SMALL)
    model.fit(stores["both"].part(np.arange(20, 120)), validation_data=(part, None))
    in_memory = make(rf.RFormerClassifier, **SMALL)
    in_memory.fit(
        stores["both"].part(np.arange(20, 120)), validation_data=(batch[:20], batch.labels[:20])
    )
    np.testing.assert_allclose(curve(model), curve(in_memory), rtol=1e-5)


def _has_torch():
    return "torch" in sys.modules


def test_processes_that_make_tokens_do_without_torch(stores, tokenizer):
    worker = stores["series"].worker(tokenizer)
    made = worker.submit(np.arange(5), 0.5, 1, np.arange(5)).result()
    assert not worker._pool.submit(_has_torch).result()
    worker.close()
    expected = tokenizer.arrays(stores["series"][:5], drop=0.5, seed=1, series=np.arange(5))
    np.testing.assert_array_equal(made["tokens"], expected["tokens"])


_PARENT = """
import os, sys, time
from roughformer.store.stored import StoredSeries

if __name__ == "__main__":
    worker = StoredSeries.open(sys.argv[1]).worker(None)
    print(worker._pool.submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_that_read_do_not_outlive_their_training(stores, tmp_path, number):
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    command = [sys.executable, str(script), stores["tokens"].cache.place.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        reader = int(parent.stdout.readline())
        os.kill(reader, 0)  # it is there
        parent.send_signal(number)
        parent.wait()
    for _ in range(600):
        try:
            os.kill(reader, 0)
        except ProcessLookupError:
            return
        state = Path(f"/proc/{reader}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return  # dead; nobody has asked for it yet
        time.sleep(0.05)
    os.kill(reader, signal.SIGKILL)
    pytest.fail("the reader lived on")


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("tokens", {"drop": 0.5}, "holds tokens only, and drop, jitter"),
        ("tokens", {"depth": 3}, "are made already, so depth cannot be chosen"),
        ("tokens", {"causal": True}, "are made already, so causal cannot be chosen"),
        ("tokens", {"model": "gru"}, "'gru' reads the samples, and the store"),
        ("series", {"drop": 0.5, "draws": 2}, "draws keeps copies of all series in memory"),
        ("series", {"n_estimators": 2}, "a store is 1"),
        (
            "series",
            {"num_workers": -1},
            "num_workers: Input should be .* 0, got -1",
        ),
    ],
)
def test_what_a_store_cannot_give_is_said(stores, kind, options, words):
    with pytest.raises(rf.InputError, match=words):
        fitted(stores[kind], **options)

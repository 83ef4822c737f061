"""Saved models that were tampered with, runs and fits that meet in one place."""

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import roughformer as rf
from command import SMALL, fails, succeeds
from roughformer.errors import CheckpointError
from roughformer.inference.predictor import Predictor
from roughformer.util import checkpoint
from roughformer.util.atomic import holding
from small import make, make_sine


@pytest.fixture(scope="module")
def data():
    x = np.random.default_rng(0).normal(size=(24, 20, 2)).cumsum(axis=1)
    return x, np.arange(24) % 2


def fitted(data, **options):
    given = {"windows": 4, "d_model": 8, "n_heads": 2, "epochs": 2, "random_state": 0, "n_jobs": 1}
    return make(rf.RFormerClassifier, **(given | options)).fit(*data)


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved") / "model"
    fitted(data).save(directory)
    return directory


def sealed_again(directory, name):
    """The manifest as if the file had been saved like this."""
    head = json.loads((directory / "manifest.json").read_bytes())
    head.pop("sha256")
    data = (directory / name).read_bytes()
    head["files"][name] |= {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    (directory / "manifest.json").write_bytes(checkpoint.seal(head))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"d_model": 1_000_000}}, "the configuration asks for weights of shape"),
        ({"model": {"n_layers": 10**9}}, "more layers or members than there are weights"),
        ({"members": 10**12}, "more layers or members than there are weights"),
        ({"members": 0}, "more layers or members than there are weights"),
        ({"members": 2}, "the configuration asks for no weights"),
    ],
)
def test_sizes_are_compared_before_a_model_is_built(saved, tmp_path, monkeypatch, change, words):
    config = json.loads((saved / "config.json").read_bytes())
    for name, value in change.items():
        config[name] = config[name] | value if isinstance(value, dict) else value
    copied(saved, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    sealed_again(tmp_path, "config.json")
    fill = torch.nn.init.kaiming_uniform_

    def on_meta(tensor, *rest, **more):
        assert tensor.device.type == "meta", "memory was taken"
        return fill(tensor, *rest, **more)

    monkeypatch.setattr(torch.nn.init, "kaiming_uniform_", on_meta)  # by each linear layer
    with pytest.raises(CheckpointError, match=words):
        Predictor.load(tmp_path)


def copied(saved, directory):
    for file in saved.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(saved, tmp_path, number):
    copied(saved, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = next(name for name, tensor in weights.items() if tensor.is_floating_point())
    weights[name].view(-1)[0] = number
    save_file(weights, tmp_path / "model.safetensors")
    sealed_again(tmp_path, "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{name} is not finite"):
        Predictor.load(tmp_path)


def test_a_saved_model_does_not_say_where_it_was_trained(data, tmp_path):
    model = fitted(data, run_dir=tmp_path / "secret-place")
    model.save(tmp_path / "model")
    for file in (tmp_path / "model", tmp_path / "secret-place" / "model"):
        assert "secret-place" not in (file / "config.json").read_text()
    assert rf.RFormerClassifier.load(tmp_path / "model").run_dir is None


def test_fits_in_threads_are_those_of_one_thread(data):
    alone = fitted(data, dropout=0.2).predict_proba(data[0])
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda _: fitted(data, dropout=0.2), range(3)))
    for model in together:
        np.testing.assert_array_equal(model.predict_proba(data[0]), alone)


def test_a_second_training_in_one_directory_is_refused(tmp_path):
    make_sine(24, n_classes=2, length=40).save(tmp_path / "x.parquet")
    out = tmp_path / "run"
    command = ("train", tmp_path / "x.parquet", "--out", out, *SMALL)
    succeeds(*command)
    files = sorted(path.name for path in out.iterdir())
    assert "run.lock" not in files
    taken, over = threading.Event(), threading.Event()

    def other():
        with holding(out / "run.lock") as mine:
            assert mine
            taken.set()
            over.wait(60)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(other)
        assert taken.wait(60)
        for how in ("--resume", "--force"):
            assert "another process is training in" in fails(*command, "--quiet", how)
        over.set()
        first.result()
    assert sorted(path.name for path in out.iterdir()) == files
    succeeds(*command, "--resume")

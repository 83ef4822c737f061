"""Models and commands that other packages bring."""

import dataclasses
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from torch import nn

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import estimator_class
from roughformer.inference import predictor


def plugin(tmp_path, text):
    """A package with entry points, as pip would install it into ``tmp_path``."""
    (tmp_path / "plugged.py").write_text("import typer\ndef hello():\n    typer.echo('hi there')\n")
    about = tmp_path / "plugged-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[roughformer.commands]\n{text}\n")


def run(tmp_path, *arguments):
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from roughformer.cli import main; "
    command = [sys.executable, "-c", code + "main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_package_brings_a_command(tmp_path):
    plugin(tmp_path, "hello = plugged:hello")
    assert run(tmp_path, "hello").stdout == "hi there\n"


def test_a_broken_command_does_not_break_the_others(tmp_path):
    plugin(tmp_path, "hello = plugged_nowhere:hello")
    done = run(tmp_path, "--version")
    assert done.stdout == f"roughformer {rf.__version__}\n"
    assert "note: the command 'hello' cannot be loaded" in done.stderr


def test_a_model_is_found_where_an_entry_point_says(monkeypatch):
    spec = dataclasses.replace(rf.get_model("rformer"), model=nn.Linear)
    monkeypatch.setattr(predictor, "_MODELS", dict(predictor._MODELS))
    entry = EntryPoint("linear", "json", "roughformer.models")
    monkeypatch.setattr(EntryPoint, "load", lambda self: rf.register_model(self.name, spec))
    monkeypatch.setattr(predictor, "entry_points", lambda group: [entry])
    assert "linear" in predictor.model_names()
    assert rf.get_model("linear") is spec
    assert predictor.model_name(nn.Linear(1, 1)) == "linear"
    with pytest.raises(InputError, match="there is no model 'linear' for classification"):
        estimator_class("classification", "linear")


def test_a_name_is_taken_once_only():
    with pytest.raises(InputError, match="there is a model named 'rformer' already"):
        rf.register_model("rformer", rf.get_model("tempo"))
    with pytest.raises(InputError, match=r"unknown model 'lstm'; known are rformer.*paper"):
        rf.get_model("lstm")

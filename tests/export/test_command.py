"""``roughformer export`` and its example, as a user meets them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from export_models import predictor

import roughformer as rf
from command import fails, succeeds
from roughformer.errors import InputError
from roughformer.export import export_model, export_step

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_command_checks_what_it_writes(causal):
    lines = causal.printed.out.strip().splitlines()
    names = [line.split(" differs from the model by at most ")[0] for line in lines]
    assert names == [
        "model.onnx: probabilities",
        "model.onnx: window_probabilities",
        "model.step.onnx: probabilities",
    ]
    for line in lines:
        assert line.endswith(" on 24 series")
        assert float(line.split()[-4]) < 1e-5
    for file in (causal.file, causal.step):
        assert f"wrote {file} and {file}.json" in causal.printed.err


def test_the_command_says_why_there_is_no_step(lifted):
    assert "no step graph: this model looks at a series as a whole; train one with causal=True" in (
        lifted.printed.err
    )
    assert "model.step.onnx" not in lifted.printed.out + lifted.printed.err
    line = fails("export", lifted.folder / "model", "--out", lifted.folder / "n.onnx", "--step")
    assert line.startswith("--step: this model looks at a series as a whole")
    assert not (lifted.folder / "n.onnx").exists()


def test_the_file_says_what_its_numbers_mean(causal):
    session = runtime.InferenceSession(str(causal.file))
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == ["high", "low"]
    assert json.loads(about["channels"]) == ["a", "b"]
    assert json.loads(about["static"]) == ["age", "kind"]
    assert about["task"] == "classification"
    assert about["made_by"] == f"roughformer {rf.__version__}"
    assert float(about["calibration"]) == causal.predictor.calibration
    beside = json.loads(Path(f"{causal.file}.json").read_text())
    assert beside["inputs"]["values"] == {"type": "float32", "shape": ["batch", "length", 2]}
    shapes = {x.name: (x.type, x.shape) for x in session.get_inputs()}
    assert shapes["values"] == ("tensor(float)", ["batch", "length", 2])
    assert shapes["times"] == ("tensor(double)", ["batch", "length"])
    assert shapes["lengths"] == ("tensor(int64)", ["batch"])


def test_the_step_says_what_its_numbers_mean(causal):
    session = runtime.InferenceSession(str(causal.step))
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == ["high", "low"]
    assert json.loads(about["windows"]) == {"duration": 1.7}
    assert json.loads(about["max_windows"]) is None  # the model has a context
    shapes = {x.name: (x.type, x.shape) for x in [*session.get_inputs(), *session.get_outputs()]}
    beside = json.loads(Path(f"{causal.step}.json").read_text())
    size = beside["inputs"]["state"]["shape"][1]
    assert shapes["values"] == ("tensor(float)", ["batch", "points", 2])
    assert shapes["state"] == shapes["next_state"] == ("tensor(double)", ["batch", size])
    assert shapes["ended"] == ("tensor(bool)", ["batch"])


def run_example(name, file):
    """Its output, in a process that can import neither torch nor roughformer."""
    refuse = (
        "import sys, runpy\n"
        "class Refuse:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('torch', 'roughformer'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        f"sys.argv = [{name!r}, {str(file)!r}]\n"
        f"runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", refuse], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len((EXAMPLES / name).read_text().splitlines()) <= 26
    return done.stdout


def test_the_examples_need_neither_torch_nor_roughformer(causal, lifted):
    assert run_example("predict_onnx.py", causal.file).startswith("['high', 'low']\n[[0.")
    assert run_example("predict_onnx.py", lifted.file).startswith("point\n[[")
    lines = run_example("stream_onnx.py", causal.step).splitlines()
    assert len(lines) > 40
    ends = np.array([float(line.split()[0]) for line in lines])
    assert np.diff(ends) == pytest.approx(1.7, abs=0.011)
    assert lines[0].split()[1:3] == ["probabilities", "[0." + lines[0].split("[0.")[1].split()[0]]


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("roughformer.export.files.serialized", lambda *_: b"")
    wrong = {"probabilities": np.full((8, 3), 1 / 3)}
    monkeypatch.setattr(
        "roughformer.export.files.open_graph",
        lambda *_: lambda inputs: {k: x[: len(inputs["lengths"])] for k, x in wrong.items()},
    )
    with pytest.raises(InputError, match=r"differs from the model by more than 1e-05.*nothing was"):
        export_model(predictor(), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays_unless_told(causal, tmp_path):
    model = causal.folder / "model"
    for name in ("model.onnx", "model.onnx.json", "model.step.onnx"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("mine")
        line = fails("export", model, "--out", folder / "model.onnx")
        assert f"{name}' exists; replace it with --force, or choose another place with" in line
        assert (folder / name).read_text() == "mine"
    (tmp_path / "dir.onnx").mkdir()
    assert "is a directory" in fails("export", model, "--out", tmp_path / "dir.onnx", "--force")


def test_refusals(tmp_path, causal, monkeypatch):
    with pytest.raises(InputError, match="format must be 'onnx' or 'torch', got 'tflite'"):
        export_model(predictor(), tmp_path / "m", format="tflite")
    with pytest.raises(InputError, match="dtype must be 'float32' or 'float64', got 'int8'"):
        export_model(predictor(), tmp_path / "m", dtype="int8")
    with pytest.raises(InputError, match=r"no step graph can be made of this model: .*whole"):
        export_step(predictor(), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="max_windows"):
        export_step(causal.predictor, tmp_path / "m.onnx", max_windows=0)
    model = causal.folder / "model"
    assert "no directory" in fails("export", model, "--out", tmp_path / "x/m.onnx")
    assert "no directory" in fails("export", tmp_path / "nothing", "--out", tmp_path / "m.onnx")
    wrong = fails("export", model, "--format", "torch", "--out", tmp_path / "m.onnx", code=2)
    assert "a file of format torch is called ....pt2, got 'm.onnx'" in wrong
    for package in ("onnx", "onnxruntime"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            line = fails("export", model, "--out", tmp_path / "m.onnx")
            assert f"needs the package {package}" in line
            assert "pip install 'roughformer[export]'" in line
    assert list(tmp_path.iterdir()) == []


def test_help_answers():
    text = " ".join(succeeds("export", "--help").out.split())
    for word in ("--format", "--step", "--force", "state in, state out", "the extra 'export'"):
        assert word in text

"""The command line, as a user meets it."""

import json
import subprocess
import sys

import pytest


def roughformer(*arguments, **options):
    code = "from roughformer.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options
    )


def test_info_names_the_engine():
    facts = json.loads(roughformer("info", "--json").stdout)
    assert facts["engine"]["engine"] in ("native", "torch")
    assert facts["packages"]["torch"] != "not installed"


def test_info_says_why_the_twin_serves(monkeypatch):
    monkeypatch.setenv("ROUGHFORMER_ENGINE", "torch")
    facts = json.loads(roughformer("info", "--json").stdout)
    assert facts["engine"]["engine"] == "torch"
    assert "ROUGHFORMER_ENGINE" in facts["engine"]["reason"]


def test_demo_draws_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    small = ("--series", "20", "--length", "100", "--windows", "5", "--out", str(tmp_path))
    done = roughformer("demo", *small)
    assert done.returncode == 0, done.stderr
    assert "20 x 5 x 12" in done.stdout
    assert (tmp_path / "multiview.png").read_bytes()[:4] == b"\x89PNG"


def test_an_error_is_one_line_and_exit_code_1(monkeypatch, tmp_path):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    blocked = tmp_path / "file"
    blocked.write_text("")
    code = "import sys; sys.modules['matplotlib'] = None\nfrom roughformer.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "demo", "--series", "3", "--length", "20"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "roughformer: the demo draws a picture: pip install 'roughformer[plots]'"
    )


def test_a_wrong_option_is_exit_code_2():
    assert roughformer("demo", "--series", "0").returncode == 2

"""The command line as a whole: help, info, and how errors look."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from command import fails, roughformer, succeeds
from roughformer.cli.common import describe
from roughformer.errors import CapacityError, InputError, MissingDataError

COMMANDS = ("train", "predict", "evaluate", "explain", "features", "forecast", "demo", "info")


def in_a_process(*arguments, code="", **options):
    code += "\nfrom roughformer.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options
    )


def test_every_command_answers_help_without_torch_and_numpy():
    code = (
        "import sys\n"
        "from roughformer.cli import main\n"
        f"for command in {COMMANDS}:\n"
        "    sys.argv = ['roughformer', command, '--help']\n"
        "    try:\n        main()\n    except SystemExit as ended:\n        assert not ended.code\n"
        "heavy = ('torch', 'numpy', 'pyarrow', 'sklearn', 'matplotlib')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_names_the_exit_codes(command):
    text = " ".join(succeeds(command, "--help").out.split())
    assert "0 done, 1 error in the input or the data, 2 wrong usage, 130 interrupted" in text


def test_without_a_command_the_commands_are_listed():
    text = succeeds().out
    assert all(command in text for command in COMMANDS)


def test_version():
    import roughformer as package

    assert succeeds("--version").out.strip() == f"roughformer {package.__version__}"


def test_info_names_the_engine_and_the_packages():
    facts = json.loads(succeeds("info", "--json").out)
    assert facts["engine"]["engine"] in ("native", "torch")
    for name in ("torch", "scikit-learn", "safetensors"):
        assert facts["packages"][name] != "not installed"
    assert "safetensors" in succeeds("info").out


def test_info_says_why_the_torch_engine_is_used(monkeypatch):
    monkeypatch.setenv("ROUGHFORMER_ENGINE", "torch")
    facts = json.loads(in_a_process("info", "--json").stdout)
    assert facts["engine"]["engine"] == "torch"
    assert "ROUGHFORMER_ENGINE" in facts["engine"]["reason"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], "Missing argument 'DATA'; see: roughformer train --help"),
        (["nonsense"], "No such command 'nonsense'"),
        (["train", "x.csv", "--nonsense"], "No such option: --nonsense"),
        (["train", "x.csv", "--epochs", "0"], "Invalid value for '--epochs'"),
        (["train", "x.csv", "--drop", "half"], "expected comma-separated numbers, got 'half'"),
        (["train", "x.csv", "--drop", "0,0.1,0.2"], "a share or a range such as 0,0.7"),
        (["train", "x.csv", "--windows", "5", "--window-points", "9"], "give one of them only"),
        (["evaluate", "run", "x.csv", "--drop", "1.5"], "shares from 0 to below 1, got '1.5'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, words):
    assert words in fails(*arguments, code=2)


@pytest.mark.parametrize("place", [0, 2])
def test_debug_shows_the_traceback_wherever_it_stands(place):
    arguments = ["train", "absent.csv"]
    arguments.insert(place, "--debug")
    with pytest.raises(InputError, match=r"there is no file 'absent\.csv'"):
        roughformer(*arguments)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MissingDataError("get it there"), "get it there"),
        (CapacityError("too large\n  lower it"), "too large lower it"),
        (FileNotFoundError(2, "x", "a.csv"), "a.csv: there is no such file; check the path"),
        (PermissionError(13, "x", "a"), "a: permission denied; check the rights, or choose"),
        (IsADirectoryError(21, "x", "a"), "a: this is a directory, a file is needed"),
        (FileExistsError(17, "x", "a"), "a: a file is in the way; choose another place"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), "there is not enough memory"),
        (KeyError("x"), "unexpected KeyError: 'x' (this is a bug"),
    ],
)
def test_errors_of_all_kinds_become_one_line(error, line):
    text, code = describe(error)
    assert text.startswith(line)
    assert "\n" not in text
    assert code == 1


def test_what_pydantic_finds_becomes_one_line():
    from pydantic import BaseModel, ValidationError

    class Two(BaseModel):
        size: int

    with pytest.raises(ValidationError) as caught:
        Two(size="x")
    text, code = describe(caught.value)
    assert text.startswith("size: Input should be a valid integer")
    assert code == 1


def test_ctrl_c_is_one_line_and_exit_code_130(monkeypatch):
    def stop():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr("roughformer.cli.collect", stop)
    # A shell's background jobs are born deaf to Ctrl-C, and so would be the tests in one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = roughformer("info")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.code == 130
    assert done.err.strip() == "roughformer: interrupted"


def test_an_interrupted_training_says_how_to_go_on(monkeypatch, tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("roughformer.runs.run_training", stop)
    words = fails("train", "x.csv", "--out", tmp_path, code=130)
    assert words.startswith("interrupted; no epoch was saved in ")
    (tmp_path / "state").mkdir()
    words = fails("train", "x.csv", "--out", tmp_path, code=130)
    assert words == (
        f"interrupted; the last epoch's state is saved in {tmp_path}: the same command with "
        "--resume continues"
    )

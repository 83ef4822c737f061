"""The command line called within the tests' own process: importing torch takes seconds."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from roughformer.cli import main

SMALL = (
    "--windows", "6", "--epochs", "2", "--threads", "1", "--device", "cpu", "--no-plots",
    "--set", "baselines=false",
)  # fmt: skip


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


def roughformer(*arguments):
    out, err = io.StringIO(), io.StringIO()
    argv = ["roughformer", *map(str, arguments)]
    with mock.patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            return Done(ended.code, out.getvalue(), err.getvalue())
    raise AssertionError("main always exits")


def succeeds(*arguments):
    done = roughformer(*arguments)
    assert done.code == 0, done.err
    return done


def fails(*arguments, code=1):
    """The one line that says why."""
    done = roughformer(*arguments)
    assert done.code == code, (done.code, done.err)
    lines = done.err.strip().splitlines()
    assert lines[-1].startswith("roughformer: "), done.err
    assert len([line for line in lines if not line.startswith("note: ")]) == 1, done.err
    assert "unexpected" not in lines[-1], done.err
    return lines[-1].removeprefix("roughformer: ")

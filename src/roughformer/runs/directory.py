"""The directory of a run: what is in it, when it may be written, how its model is found.

config.toml, log.jsonl, state/ (to resume), model/ (the checkpoint), plots/, report.html, and last
of all metrics.json: a run that has it is finished. A run that torchrun started also has launch.txt.
"""

import json
import math
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from roughformer.errors import CheckpointError, InputError
from roughformer.estimators import TrainedEstimator, estimator_class
from roughformer.util.atomic import holding, write_file
from roughformer.util.checkpoint import load_checkpoint

_PARTS = (
    "metrics.json", "report.html", "model", "state", "log.jsonl", "log.tmp", "plots", "config.toml",
    "tensorboard", "launch.txt",
)  # fmt: skip
_REPLACED = ".replaced"  # where an earlier run waits until the one in its place has begun
_LOCK = "run.lock"  # held by the process that trains there
_MEMBER = "member-"  # a directory for each of several models that answer as one
Estimator = TrainedEstimator


def prepare_run(out: Path, *, resume: bool, force: bool) -> None:
    """Make the directory, or say why it must not be written."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose a directory with --out")
    inside = {p.name for p in out.iterdir() if p.name != _LOCK} if out.exists() else set()
    ours = {name for name in inside if _is_ours(name)}
    if resume and (ours or not inside):
        pass  # nothing is touched before it is clear that the run can go on
    elif force:
        for name in ours - {_REPLACED}:
            _remove(out / name)
    elif "metrics.json" in inside:
        raise InputError(
            f"{out} holds a finished run; choose another directory with --out, or replace it with "
            "--force"
        )
    elif ours:
        raise InputError(
            f"{out} holds a run that did not finish; go on with --resume, start it anew with "
            "--force, or choose another directory with --out"
        )
    elif inside:
        raise InputError(f"{out} is not empty and holds no run; choose another directory (--out)")
    out.mkdir(parents=True, exist_ok=True)


def _launch() -> str | None:
    """What tells one start of torchrun from another; its processes started anew have the same."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if name is None else f"{name} on {socket.gethostname()}, process {os.getppid()}"


def is_restart(out: Path) -> bool:
    """Whether the launcher of this process began the run before: it starts processes again, with
    the same command, when one was lost.
    """
    with suppress(OSError):
        return (out / "launch.txt").read_text() == _launch()
    return False


@contextmanager
def started_run(
    out: Path, *, resume: bool, force: bool, held: ExitStack | None = None
) -> Iterator[None]:
    """``prepare_run``; ``held`` keeps other processes out of the directory.

    A run that is refused before its first state is saved leaves no traces, so that the corrected
    command is not held back by them; what was there before stays.
    """
    made = [path for path in (out, *out.parents) if not path.exists()]
    if out.is_dir():
        _hold(out, held)
    if force and not resume:
        _set_aside(out)
    prepare_run(out, resume=resume, force=force)
    if made:
        _hold(out, held)
    before = {path.name for path in out.iterdir()}
    launch = _launch()
    if launch is not None:
        write_file(out / "launch.txt", launch.encode())
    try:
        yield
    except BaseException as error:
        # What was interrupted may go on from its configuration, unless an earlier run waits.
        if not _begun(out) and (isinstance(error, Exception) or (out / _REPLACED).exists()):
            for path in list(out.iterdir()):
                if path.name not in before and _is_ours(path.name):
                    _remove(path)
            _put_back(out)
            (out / _LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # something else is in there now
                for path in made:
                    path.rmdir()
        if _begun(out):
            _remove(out / _REPLACED)
        raise
    _remove(out / _REPLACED)


def _hold(out: Path, held: ExitStack | None) -> None:
    if held is not None and not held.enter_context(holding(out / _LOCK)):
        raise InputError(
            f"another process is training in {out}; wait for it, end it, or choose another "
            "directory with --out"
        )


def _begun(out: Path) -> bool:
    """Whether a state of a training is there."""
    return any(out.glob("state")) or any(out.glob(f"{_MEMBER}*/state"))


def _set_aside(out: Path) -> None:
    """The parts of an earlier run into a directory of their own."""
    ours = [path for path in out.iterdir() if _is_ours(path.name)] if out.is_dir() else []
    parts = [path for path in ours if path.name != _REPLACED]
    if (out / _REPLACED).exists() and not _begun(out):
        for path in parts:  # traces of a run that was killed before it began: the other one counts
            _remove(path)
    elif parts:
        _remove(out / _REPLACED)
        (out / _REPLACED).mkdir()
        for path in parts:
            path.rename(out / _REPLACED / path.name)


def _put_back(out: Path) -> None:
    for path in list((out / _REPLACED).iterdir()) if (out / _REPLACED).is_dir() else ():
        _remove(out / path.name)
        path.rename(out / path.name)
    _remove(out / _REPLACED)


def _is_ours(name: str) -> bool:
    return name in (*_PARTS, _REPLACED) or name.startswith(_MEMBER)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def model_directory(path: Path) -> Path:
    """``path`` if it is a model's directory, or the model's directory of the run ``path``."""
    if not path.is_dir():
        raise InputError(f"there is no directory {str(path)!r}; give that of a run or of a model")
    if (path / "manifest.json").exists():
        return path
    if (path / "model").is_dir():
        return path / "model"
    if (path / "state").is_dir() or (path / "config.toml").exists():
        raise InputError(
            f"the run {path} has no model yet: it is not finished; continue it with roughformer "
            "train ... --resume"
        )
    raise CheckpointError(f"{path} holds neither a run nor a model; give the --out of a training")


def is_forecaster(path: Path) -> bool:
    """Whether a directory holds a forecaster."""
    return load_checkpoint(model_directory(path)).config.get("kind") == "forecaster"


def load_model(path: Path, threads: int | None = None, device: str = "cpu") -> Estimator:
    """The estimator of a run or of a model's directory."""
    directory = model_directory(path)
    config = load_checkpoint(directory).config
    task = config.get("facts", {}).get("task")
    if task not in ("classification", "regression"):
        raise CheckpointError(
            f"{directory} is a checkpoint, but not of a trained model; give the model of a run"
        )
    estimator = estimator_class(task, config["kind"]).load(directory, device)
    estimator.set_params(n_jobs=threads)
    return estimator


def write_json(path: Path, data: Any) -> None:
    """JSON that every reader takes: NaN and infinity are null."""
    write_file(path, (json.dumps(_finite(data), indent=2) + "\n").encode())


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(k): _finite(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(v) for v in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data

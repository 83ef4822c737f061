"""``train --engine ray``: the same training in each worker of a Ray cluster, by Ray Train.

Ray starts the workers, joins them into a process group and starts them again when one is lost; the
run's own state, which the first worker saves in the directory of the run, is what they go on from.
So data and ``--out`` must be on a disk that all nodes see.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from roughformer.cli._errors import describe
from roughformer.cli._processes import one_voice
from roughformer.cli._requests import TrainingRequest
from roughformer.cli._runs import prepare_run
from roughformer.cli._training import run_training
from roughformer.errors import InputError
from roughformer.ray_cluster import connected
from roughformer.train.team import ProcessLost

__all__ = ["train_on_ray"]

_LOSSES = 20  # of workers or nodes, after which the training is given up
_REFUSED = "refused.json"


def train_on_ray(
    request: TrainingRequest, *, workers: int, threads: int, address: str | None
) -> dict[str, Any]:
    """Train with ``workers`` processes of ``threads`` processors each, or with fewer while nodes
    are missing; what ``metrics.json`` holds.
    """
    request = _absolute(request)
    flags = {"n_jobs": threads} | request.flags
    # A lost worker's successor must go on, so --force is spent before the first one.
    asked = replace(request, flags=flags, resume=True, force=False)
    with connected(address):
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        if not request.resume:
            prepare_run(request.out, resume=False, force=request.force)
        # From one up: after the loss of a node the others go on. Its type knows whole numbers only.
        count: Any = (1, workers) if workers > 1 else 1
        aside = request.out.parent / f".{request.out.name}.ray"
        trainer = TorchTrainer(
            _each,
            train_loop_config={"request": asked, "aside": str(aside)},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=count, resources_per_worker={"CPU": threads}),
            run_config=RunConfig(
                name="run",
                storage_path=str(aside),
                failure_config=FailureConfig(max_failures=_LOSSES),
            ),
        )
        try:
            aside.mkdir(parents=True, exist_ok=True)
            trainer.fit()
            refused = aside / _REFUSED
            if refused.exists():
                _clean(request.out)
                raise InputError(json.loads(refused.read_text()))
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    found: dict[str, Any] = json.loads((request.out / "metrics.json").read_text())
    return found


def _each(told: dict[str, Any]) -> None:
    """One worker. What is wrong with the input will be wrong again: it ends the job."""
    try:
        with one_voice():
            run_training(told["request"])
    except Exception as error:
        if _is_lost(error):
            raise
        line, _ = describe(error)
        (Path(told["aside"]) / _REFUSED).write_text(json.dumps(line))


def _is_lost(error: BaseException | None) -> bool:
    """Whether another worker is gone, which is a reason to begin again."""
    while error is not None:
        if isinstance(error, ProcessLost):
            return True
        error = error.__cause__
    return False


def _absolute(request: TrainingRequest) -> TrainingRequest:
    """Workers have directories of their own, so paths must not depend on where one is."""
    names = ("data", "out", "labels", "valid", "test", "config")
    found = {name: getattr(request, name) for name in names}
    return replace(request, **{name: path.absolute() for name, path in found.items() if path})


def _clean(out: Path) -> None:
    """What was refused before its first epoch leaves no empty directory behind."""
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()

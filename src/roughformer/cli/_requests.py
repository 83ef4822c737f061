"""What a user asks to be learnt: the request, and the data and settings that it leads to."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.cli._columns import Columns
from roughformer.cli._data import Data, read_data
from roughformer.cli._options import say, words_of
from roughformer.cli._settings import choose_task, read_config
from roughformer.errors import InputError
from roughformer.train import current_process_group

__all__ = ["Asked", "TrainingRequest", "named_weights", "read_request"]

_OF_RUN = ("target", "group", "task", "preset", "model")  # keys of [data] that are no columns


@dataclass(frozen=True)
class TrainingRequest:
    """What the user asked for; None: not said."""

    data: Path
    out: Path
    columns: Columns = field(default_factory=Columns)
    target: str | None = None
    task: str | None = None
    preset: str | None = None
    model: str | None = None
    group: str | None = None
    labels: Path | None = None
    valid: Path | None = None
    test: Path | None = None
    config: Path | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    resume: bool = False
    force: bool = False
    quiet: bool = False
    plots: bool = True
    command: str = ""


@dataclass(frozen=True)
class Asked:
    """A request whose data are read. ``given``: settings of its configuration file; ``held`` and
    ``test``: the series to validate and to score on, if it names files of them; ``about``: the
    table [data] of a configuration that asks for the same.
    """

    data: Data
    target: npt.NDArray[Any]
    task: str
    model: str
    preset: str
    given: dict[str, Any]
    held: Data | None
    test: Data | None
    about: dict[str, Any]


def read_request(request: TrainingRequest) -> Asked:
    """Read the configuration and the data."""
    given = {} if request.config is None else read_config(request.config)
    chosen = _with_config(request, given.pop("data", {}))
    static = request.flags.get("static", given.get("static", ()))
    if not isinstance(static, str | list | tuple):
        raise InputError(f"static must be names of covariates, got {static!r}")
    static = words_of(static) if isinstance(static, str) else tuple(static)
    name = chosen.target or "label"
    if set(static) & set(words_of(name)):
        raise InputError(f"{name!r} is the target: it cannot be a static covariate as well")
    columns = replace(chosen.columns, static=static)
    data = _read(chosen, chosen.data, columns, name, group=chosen.group)
    assert data.target is not None
    task = choose_task(data.target, chosen.task or "auto")
    known = replace(data.columns, static=())
    others = replace(known, static=static) if static else known

    def part(path: Path | None) -> Data | None:
        return None if path is None else _read(chosen, path, others, name)

    about = known.plain() | {"target": name, "task": task}
    about |= {} if chosen.group is None else {"group": chosen.group}
    about |= {} if chosen.model is None else {"model": chosen.model}
    return Asked(
        data, data.target, task, chosen.model or "rformer", chosen.preset or "default", given,
        part(chosen.valid), part(chosen.test), about,
    )  # fmt: skip


def named_weights(weights: dict[Any, float], target: npt.NDArray[Any]) -> dict[Any, float]:
    """TOML has texts as keys; classes may be numbers."""
    by_text = {str(label): label for label in np.unique(target).tolist()}
    return {by_text.get(str(key), key): weight for key, weight in weights.items()}


def _with_config(request: TrainingRequest, said: Any) -> TrainingRequest:
    """What the table ``[data]`` of the configuration says, where no option does."""
    if not isinstance(said, dict):
        raise InputError("data must be a table in the configuration: [data]")
    wrong = [k for k in _OF_RUN if k in said and not isinstance(said[k], str)]
    if wrong:
        raise InputError(f"[data] {wrong[0]} must be a text, got {said[wrong[0]]!r}")
    columns = Columns.of({k: v for k, v in said.items() if k not in _OF_RUN})
    found: dict[str, Any] = {k: getattr(request, k) or said.get(k) for k in _OF_RUN}
    return replace(request, columns=request.columns.over(columns), **found)


def _read(
    request: TrainingRequest, path: Path, columns: Columns, target: str, group: str | None = None
) -> Data:
    data = read_data(path, columns, target=target, group=group, labels=request.labels, lazily=True)
    for note in data.notes if current_process_group().first else ():
        say(f"note: {note}")
    if len(data.batch) == 0:
        raise InputError(f"{path} holds no series")
    return data

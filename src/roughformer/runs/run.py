"""A run: its directory, and the settings of its estimator.

The directory has config.toml, log.jsonl, state/ (to resume), model/ (the checkpoint), plots/,
report.html, and last of all metrics.json: a run that has it is finished.

Settings come from a preset, a TOML file and assignments, checked by name and type. They are
parameters under the names that ``set_params`` takes: ``depth``, ``tokens__clock``.
"""

import json
import math
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from roughformer.errors import InputError
from roughformer.util.atomic import holding, write_file
from roughformer.util.groups import Group

_PARTS = (
    "metrics.json", "report.html", "model", "state", "log.jsonl", "log.tmp", "plots", "config.toml",
    "tensorboard",
)  # fmt: skip
_REPLACED = ".replaced"  # where an earlier run waits until the one in its place has begun
_LOCK = "run.lock"  # held by the process that trains there
_MEMBER = "member-"  # a directory for each of several models that answer as one


@contextmanager
def started_run(
    out: Path, *, resume: bool, force: bool, held: ExitStack | None = None
) -> Iterator[None]:
    """Make the directory of a run, or say why it must not be written; ``held`` keeps other
    processes out of it.

    A run that is refused before its first state is saved leaves no traces, so that the corrected
    command is not held back by them; what was there before stays.
    """
    made = [path for path in (out, *out.parents) if not path.exists()]
    if out.is_dir():
        _hold(out, held)
    if force and not resume:
        _set_aside(out)
    _check_directory(out, resume=resume, force=force)
    out.mkdir(parents=True, exist_ok=True)
    if made:
        _hold(out, held)
    before = {path.name for path in out.iterdir()}
    try:
        yield
    except BaseException as error:
        if _begun(out):
            _remove(out / _REPLACED)
        # What was interrupted may go on from its configuration, unless an earlier run waits.
        elif isinstance(error, Exception) or (out / _REPLACED).exists():
            for path in list(out.iterdir()):
                if path.name not in before and _is_ours(path.name):
                    _remove(path)
            _put_back(out)
            (out / _LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # something else is in there now
                for path in made:
                    path.rmdir()
        raise
    _remove(out / _REPLACED)


def _check_directory(out: Path, *, resume: bool, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose a directory with --out")
    inside = {path.name for path in out.iterdir() if path.name != _LOCK} if out.exists() else set()
    ours = any(map(_is_ours, inside))
    if not inside or force or (resume and ours):
        return
    if "metrics.json" in inside:
        raise InputError(
            f"{out} holds a finished run; choose another directory with --out, or replace it with "
            "--force"
        )
    if ours:
        raise InputError(
            f"{out} holds a run that did not finish; go on with --resume, start it anew with "
            "--force, or choose another directory with --out"
        )
    raise InputError(f"{out} is not empty and holds no run; choose another directory (--out)")


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


# Said by options of their own, because they belong to a run and not to a model.
_NOT_HERE = ("run_dir", "resume", "verbose", "callbacks")
# Task and model of the settings that not all have.
_HOMES = {
    "class_weight": ("classification", "rformer"),
    "uncertainty": ("regression", "rformer"),
    "quantiles": ("regression", "rformer"),
    "rate_unit": ("regression", "tempo"),
}
_FEW = 20  # distinct whole numbers that are surely classes


def choose_task(target: npt.NDArray[Any], task: str) -> str:
    """``task``, or for "auto" what the targets look like."""
    if task in ("classification", "regression"):
        return task
    if task != "auto":
        raise InputError(f"--task must be auto, classification or regression, got {task!r}")
    if target.ndim > 1 and target.shape[1] > 1:
        return "regression"
    if target.dtype.kind not in "iuf":
        return "classification"
    known = target[np.isfinite(target)]
    if (known != np.round(known)).any():
        return "regression"
    distinct = len(np.unique(known))
    if distinct <= _FEW and distinct < max(len(known), 3):
        return "classification"
    if distinct > len(known) / 2:
        return "regression"
    raise InputError(
        f"the target has {distinct} distinct whole numbers: are they classes or quantities? "
        "Give --task classification or --task regression"
    )


def read_config(path: Path) -> dict[str, Any]:
    """A TOML file: parameters of the estimator, and a table ``[data]``."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}; check --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no valid TOML: {error}") from None


def parse_assignments(pairs: list[str]) -> dict[str, Any]:
    """``["name=value", ...]``: a value is TOML, or words parted by commas, or a word.

    ``tokens.clock=8`` is one option of a group.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set takes name=value, e.g. --set tokens.clock=8; got {pair!r}")
        whole, dot, entry = name.strip().replace("-", "_").partition(".")
        value = _value(text.strip())
        if not dot:
            settings[whole] = value
        elif isinstance(settings.setdefault(whole, {}), dict):
            settings[whole][entry] = value
        else:
            raise InputError(f"--set {whole}=... and --set {whole}.{entry}=... do not go together")
    return settings


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError as error:
        if text.startswith(("{", "[")):
            raise InputError(
                f"--set takes values as TOML writes them, such as {{ step = 4 }} or [0.1, 0.9]; "
                f"{text} is none: {error}"
            ) from None
        return [_value(part.strip()) for part in text.split(",")] if "," in text else text


def settings_of(cls: Any, preset: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of the estimators ``cls``: their own, the preset's, then each layer over the one
    before.
    """
    settings = cls.usual_settings() | cls.preset_settings(preset) | {"random_state": 0}
    hints = get_type_hints(cls.__init__)
    for layer in layers:
        try:
            given = cls.settings(layer)
        except InputError:
            _check_task(cls, layer)
            raise
        for name, value in given.items():
            option = name.rpartition("__")[2]
            if option in _NOT_HERE:
                raise InputError(
                    f"{option!r} is no parameter of a model; it is an option of roughformer train, "
                    "or of Python only"
                )
            group = cls.shortcuts.get(name) or name.partition("__")[0]
            if group in cls.groups:
                hint = cls.groups[group].model_fields[option].rebuild_annotation()
            else:
                hint = hints[name]
            settings[name] = _checked(name.replace("__", "."), value, hint)
    return {name: v for name, v in settings.items() if name.rpartition("__")[2] not in _NOT_HERE}


def _check_task(cls: Any, layer: Mapping[str, Any]) -> None:
    """Say so if a setting belongs to another task or model."""
    known = {setting.rpartition("__")[2] for setting in cls.usual_settings()}
    for name, (task, model) in _HOMES.items():
        if name in layer and name not in known:
            changes = [] if cls.task == task else [f"--task {task}"]
            if cls.task == task or model == "tempo":
                changes.append(f"--model {model}")
            raise InputError(
                f"{name!r} is no parameter of a {cls.task} by this model; leave it out, or use "
                f"{' '.join(changes)}"
            )


def _checked(name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, str) and value == "auto":
        return value
    # TOML has no null: "none" says it, unless the parameter has a choice of that name.
    if isinstance(value, str) and value == "none" and "none" not in _choices(hint):
        value = None
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, str) and "tuple[" in str(hint):
        value = tuple(part.strip() for part in value.split(","))
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{name}: {message}, got {value!r}") from None


def _choices(hint: Any) -> list[Any]:
    """The literal values among a type's choices."""
    inside = get_args(hint)
    return [*inside, *(choice for part in inside for choice in _choices(part))]


def to_toml(settings: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """``settings`` at the top and in tables of their groups, then each table under its name; None
    is "none".
    """
    flat = {name: value for name, value in settings.items() if "__" not in name}
    lines = [f"{name} = {_toml(value)}" for name, value in flat.items()]
    groups: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        group, nested, option = name.partition("__")
        if nested:
            groups.setdefault(group, {})[option] = value
    tables = groups | dict(tables)
    for title, table in tables.items():
        lines += ["", f"[{title}]", *(f"{_key(k)} = {_toml(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _key(name: Any) -> str:
    text = str(name)
    plain = text.replace("_", "").replace("-", "")
    return text if plain.isascii() and plain.isalnum() else _toml(text)


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Group):
        value = value.given
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")

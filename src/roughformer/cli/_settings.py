"""Parameters of an estimator from a preset, a TOML file, flags and ``--set``, checked by name and
kind; and the way back to TOML.
"""

import difflib
import inspect
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.kinds import none_is_a_choice

__all__ = [
    "choose_task",
    "estimator_class",
    "parse_assignments",
    "read_config",
    "settings_of",
    "to_toml",
]

# Said by options of their own, because they belong to a run and not to a model.
_NOT_HERE = ("run_dir", "resume", "tensorboard", "verbose")
_FEW = 20  # distinct whole numbers that are surely classes


def estimator_class(task: str) -> Any:
    """The estimator of a task."""
    return RFormerClassifier if task == "classification" else RFormerRegressor


def choose_task(target: npt.NDArray[Any], wish: str) -> str:
    """``wish``, or for "auto" what the targets look like."""
    if wish in ("classification", "regression"):
        return wish
    if wish != "auto":
        raise InputError(f"--task must be auto, classification or regression, got {wish!r}")
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

    ``model_options.step=4`` is one entry of a parameter that is a dict.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set takes name=value, e.g. --set d_model=128; got {pair!r}")
        whole, dot, entry = name.strip().replace("-", "_").partition(".")
        value = _value(text.strip())
        if not dot:
            found[whole] = value
        elif isinstance(found.setdefault(whole, {}), dict):
            found[whole][entry] = value
        else:
            raise InputError(f"--set {whole}=... and --set {whole}.{entry}=... do not go together")
    return found


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


def settings_of(task: str, preset: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters: the estimator's own, the preset's, then each layer over the one before."""
    cls = estimator_class(task)
    hints = get_type_hints(cls.__init__)
    known = [n for n in inspect.signature(cls.__init__).parameters if n != "self"]
    known = [name for name in known if name not in _NOT_HERE]
    given: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if name not in known:
                raise InputError(_unknown(name, known, task))
            given[name] = _checked(name, value, hints.get(name, Any))
    start = cls.from_preset(preset, random_state=0).get_params()
    return {name: given.get(name, start[name]) for name in known}


def _unknown(name: str, known: list[str], task: str) -> str:
    other = estimator_class("regression" if task == "classification" else "classification")
    if name in _NOT_HERE:
        return f"{name!r} is no parameter of a model; it is an option of roughformer train"
    if name in inspect.signature(other.__init__).parameters:
        return f"{name!r} is no parameter of a {task}; leave it out, or change --task"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"unknown parameter {name!r}; did you mean {near[0]!r}? Known are {', '.join(known)}"


def _checked(name: str, value: Any, hint: Any) -> Any:
    # TOML has no null: "none" says it, unless the parameter has a choice of that name.
    if value == "none" and "none" not in get_args(hint):
        value = None
    if name == "model_options" and isinstance(value, dict):
        value = {
            option: None if entry == "none" and not none_is_a_choice(option) else entry
            for option, entry in value.items()
        }
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, str) and str(hint).startswith("tuple[") and hint != Any:
        value = tuple(part.strip() for part in value.split(","))
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{name}: {first['msg']}, got {value!r}") from None


def to_toml(settings: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """``settings`` at the top, then each table under its name; None is "none"."""
    lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
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
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")

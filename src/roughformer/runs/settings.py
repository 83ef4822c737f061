"""Settings of an estimator from a preset, a TOML file and assignments, checked by name and type.

Settings are parameters under the names that ``set_params`` takes: ``depth``, ``tokens__clock``.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from roughformer.errors import InputError
from roughformer.estimators import TrainedEstimator, estimator_class
from roughformer.util.groups import Group

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
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set takes name=value, e.g. --set tokens.clock=8; got {pair!r}")
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


def settings_of(
    task: str, preset: str, *layers: Mapping[str, Any], model: str = "rformer"
) -> dict[str, Any]:
    """All settings: the estimator's own, the preset's, then each layer over the one before."""
    cls = estimator_class(task, model)
    found = cls.usual_settings() | cls.preset_settings(preset) | {"random_state": 0}
    hints = get_type_hints(cls.__init__)
    for layer in layers:
        try:
            given = cls.settings(layer)
        except InputError:
            _check_task(task, model, layer)
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
            found[name] = _checked(name.replace("__", "."), value, hint)
    return {name: v for name, v in found.items() if name.rpartition("__")[2] not in _NOT_HERE}


def _check_task(task: str, model: str, layer: Mapping[str, Any]) -> None:
    """Say so if a setting belongs to another task or model."""
    for name, (its_task, its_model) in _HOMES.items():
        known = {s.rpartition("__")[2] for s in estimator_class(task, model).usual_settings()}
        if name in layer and name not in known:
            changes = [] if task == its_task else [f"--task {its_task}"]
            if task == its_task or its_model == "tempo":
                changes.append(f"--model {its_model}")
            raise InputError(
                f"{name!r} is no parameter of a {task} by this model; leave it out, or use "
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


def by_setting(cls: type[TrainedEstimator], table: dict[str, Any]) -> dict[str, Any]:
    """What a space says of each parameter, under its one name."""
    found: dict[str, Any] = {}
    for name, said in table.items():
        inside = said if name in cls.groups and isinstance(said, dict) else None
        parts = {name: said} if inside is None else {f"{name}.{o}": v for o, v in inside.items()}
        found |= {cls.setting_name(part): value for part, value in parts.items()}
    return found


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

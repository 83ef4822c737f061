"""Parameters of an estimator as JSON, beside the model that they made, and back as they were."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from roughformer.signatures.windows import Windows
from roughformer.util.groups import Group

__all__ = ["from_plain", "to_plain"]

# What JSON does not know is a dict of one key, which says what it was.
_TUPLE, _PAIRS, _ARRAY, _PATH = "$tuple", "$pairs", "$array", "$path"
_WINDOWS, _GROUP = "$windows", "$group"


def to_plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Those that JSON can hold; the others (random generators) were for fitting only.

    ``from_plain`` gives back equal values of the same kind; numbers of numpy become Python's.
    """
    found = {}
    for name, value in parameters.items():
        try:
            found[name] = _plain(value)
        except TypeError:
            continue
    return found


def from_plain(
    stored: dict[str, Any], known: Collection[str], groups: Mapping[str, type[Group]] = {}
) -> dict[str, Any]:
    """The way back; ``ValueError`` if a name is not ``known``. ``groups``: the classes of
    parameters that are groups of options.
    """
    unknown = [name for name in stored if name not in known]
    if unknown:
        raise ValueError(f"there is no parameter {', '.join(unknown)} any more")
    found = {name: _python(value) for name, value in stored.items()}
    for name, group in groups.items():
        plain = stored.get(name)
        if isinstance(plain, dict) and _GROUP in plain:
            found[name] = group(**plain[_GROUP])
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return float(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(item) for item in value]}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _plain(item) for key, item in value.items()}
        # JSON would make texts of the keys.
        return {_PAIRS: [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufUM":
        if value.dtype.kind == "M":
            return {_ARRAY: [value.dtype.str, value.astype(np.int64).tolist()]}
        return {_ARRAY: [value.dtype.str, _plain(value.tolist())]}
    if isinstance(value, Path):
        return {_PATH: str(value)}
    if isinstance(value, Windows):
        cuts = [_plain(row) for row in value.cuts]
        return {_WINDOWS: [value.rule, value.amount, cuts, value.shared]}
    if isinstance(value, Group):
        return {_GROUP: value.model_dump(mode="json", exclude_unset=True)}
    raise TypeError(f"no plain form of {type(value).__name__}")


def _python(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_python(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) != 1 or not next(iter(plain)).startswith("$"):
        return {key: _python(item) for key, item in plain.items()}
    ((kind, inside),) = plain.items()
    if kind == _TUPLE:
        return tuple(_python(item) for item in inside)
    if kind == _PAIRS:
        return {_python(key): _python(item) for key, item in inside}
    if kind == _ARRAY:
        return np.array(inside[1], dtype=inside[0])
    if kind == _PATH:
        return Path(inside)
    if kind == _WINDOWS:
        rule, amount, cuts, shared = inside
        return Windows(rule, amount, tuple(_python(row) for row in cuts), shared)
    if kind == _GROUP:
        return inside  # the parameter knows its class
    raise ValueError(f"parameters of an unknown kind {kind!r}")

"""Parameters of an estimator as JSON, beside the model that they made."""

import json
from typing import Any

from pydantic import BaseModel

from roughformer.tokens.config import plain_windows
from roughformer.windows import Windows

__all__ = ["from_plain", "to_plain"]


def to_plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Those that JSON can hold; the others were for fitting only.

    A dict whose keys are no texts (labels -> weights) becomes ``{"pairs": [[key, value], ...]}``,
    because JSON would make texts of them.
    """
    found = {}
    for name, given in parameters.items():
        value = given
        if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
            value = {"pairs": [[_python(k), v] for k, v in value.items()]}
        try:
            found[name] = json.loads(json.dumps(value, allow_nan=False, default=_plain))
        except (TypeError, ValueError):
            continue
    return found


def from_plain(stored: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The way back, for the parameters that ``defaults`` has; lists are tuples where those are."""
    found = {}
    for name, value in stored.items():
        if name not in defaults:
            continue
        if isinstance(value, dict) and set(value) == {"pairs"}:
            value = dict(value["pairs"])
        if isinstance(value, list) and isinstance(defaults[name], tuple):
            value = tuple(value)
        found[name] = value
    return found


def _plain(value: Any) -> Any:
    """What JSON does not know: numbers and arrays of numpy, windows, options of the spectrum."""
    if isinstance(value, Windows):
        return plain_windows(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"no plain form of {type(value).__name__}")


def _python(label: Any) -> Any:
    """Python's own number for one of numpy's."""
    return label.item() if hasattr(label, "item") else label

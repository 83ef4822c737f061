"""Sets of parameters by name."""

from typing import Any

from roughformer.errors import InputError

__all__ = ["preset"]

_PAPER: dict[str, Any] = {
    "windows": 75, "time": "span", "clock": 0, "spectrum": None, "basepoint": False,
    "learning_rate": 1e-3, "schedule": "constant", "epochs": 100,
    "patience": None,
}  # fmt: skip
_PAPER_TASKS: dict[str, dict[str, Any]] = {
    "classification": {"depth": 2, "views": ("global", "local")},
    "regression": {"depth": 4, "views": ("local",)},
}


def preset(name: str, task: str) -> dict[str, Any]:
    """Parameters of an estimator of ``task`` that differ from its defaults."""
    presets: dict[str, dict[str, Any]] = {"default": {}, "paper": _PAPER | _PAPER_TASKS[task]}
    if name not in presets:
        raise InputError(f"presets are {', '.join(presets)}; got {name!r}")
    return presets[name]

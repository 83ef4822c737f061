"""Optional packages, imported when they are first needed."""

import importlib
from typing import Any

from roughformer.errors import InputError

__all__ = ["optional"]


def optional(module: str, extra: str) -> Any:
    """Import ``module``, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"this needs the package {module}, which cannot be imported ({error}); install it "
            f"with: pip install 'roughformer[{extra}]'"
        ) from error

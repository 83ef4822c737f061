"""The native kernel: C++ sources, what compiles them, and where the library stands."""

import platform
from pathlib import Path

INTERFACE = Path(__file__).with_name("abi.h")


def library_path() -> Path:
    """Where the compiled library stands (whether or not it exists)."""
    ending = {"Darwin": "dylib", "Windows": "dll"}.get(platform.system(), "so")
    return Path(__file__).with_name(f"libroughformer.{ending}")

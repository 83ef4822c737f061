"""The paper is a client of the library: it takes only what the library exports."""

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import roughformer
import roughformer_paper

SOURCES = sorted(Path(roughformer_paper.__file__).parent.rglob("*.py"))


def imported(path):
    """(module, name) of everything that a file takes from roughformer."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "roughformer":
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from ((name, None) for name in names if name.startswith("roughformer."))


def is_public(module, name):
    """Whether ``name`` is exported by the package, one of its folders or a public module."""
    modules = {x.__name__ for x in map(roughformer.__getattr__, roughformer._MODULES)}
    inside = module.partition(".")[2]
    if name is None or ("." in inside and module not in modules):
        return False
    exporter = import_module(module)
    folder = Path(roughformer.__file__).parent / str(name) / "__init__.py"
    if not (hasattr(exporter, "__path__") or module in modules):
        return False
    if not inside and (name in exporter.__all__ or folder.exists()):
        return True
    is_module = isinstance(getattr(exporter, name, None), ModuleType)
    return hasattr(exporter, name) and not name.startswith("_") and not is_module


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_only_public_names_of_the_library_are_used(path):
    private = [pair for pair in imported(path) if not is_public(*pair)]
    assert not private


def test_the_check_knows_private_from_public():
    assert is_public("roughformer", "SeriesBatch")
    assert is_public("roughformer.signatures.words", "word_count")
    assert is_public("roughformer.plots", "BLUE")
    assert not is_public("roughformer.plots._figure", "BLUE")
    assert not is_public("roughformer.util.checks", "whole_number")
    assert not is_public("roughformer.tokens", "no_such_name")
    assert not is_public("roughformer.signatures.windows", "values_at")

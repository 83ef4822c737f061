"""The paper is a client of the library: it takes only what the library exports."""

import ast
from importlib import import_module
from pathlib import Path

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
    inside = module.partition(".")[2]
    if not inside:
        found = roughformer
    elif "." in inside or name is None:
        return False
    else:
        found = import_module(module)
        if not hasattr(found, "__path__") and inside not in roughformer.__all__:
            return False  # a module of its own that is not among the public names
    public = found.__all__
    package = Path(roughformer.__file__).parent / str(name)
    return name in public or (found is roughformer and (package / "__init__.py").exists())


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
    assert not is_public("roughformer.signatures.path", "values_at")

"""The package as a whole: public names, direction of imports, cost of importing it."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import roughformer as rf

ROOT = Path(__file__).parents[1]


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_every_public_name_can_be_loaded():
    for name in rf.__all__:
        assert getattr(rf, name) is not None


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        rf.nonsense  # noqa: B018


def test_the_type_checker_sees_exactly_the_public_names():
    source = Path(rf.__file__).read_text()
    typed = {
        line.split(" as ")[1]
        for line in source.splitlines()
        if " import " in line and " as " in line
    }
    assert typed == set(rf.__all__) - {"__version__"}


def test_importing_the_package_loads_nothing_heavy():
    heavy = ("torch", "numpy", "pyarrow", "typer", "pandas")
    found = f"[m for m in {heavy} if m in sys.modules]"
    assert json.loads(run(f"import sys, json, roughformer; print(json.dumps({found}))")) == []


def test_the_estimators_do_not_load_torchs_compiler():
    # It takes as long as all of torch, in every process that starts.
    code = "import sys, roughformer.estimators; print('torch._dynamo' in sys.modules)"
    assert run(code).strip() == "False"


def test_the_command_line_answers_help_without_torch():
    code = (
        "import sys\n"
        "sys.argv = ['roughformer', '--help']\n"
        "from roughformer.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert run(code).strip().endswith("False")


def test_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {rf.__version__}\n" in citation
    paper = tomllib.loads((ROOT / "paper/pyproject.toml").read_text())
    assert paper["project"]["version"] == rf.__version__


def test_users_may_have_a_newer_torch_than_the_one_the_tests_run_with():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (torch,) = (r for r in map(Requirement, project["dependencies"]) if r.name == "torch")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    (tested,) = (Requirement(line) for line in lines if line.startswith("torch"))
    assert version("torch") in tested.specifier
    assert version("torch") in torch.specifier
    assert "99.0" in torch.specifier


def test_every_install_of_make_heeds_the_constraints():
    steps = (ROOT / "Makefile").read_text().splitlines()
    installs = [line for line in steps if "pip install" in line and "--upgrade pip" not in line]
    assert installs == ["INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt"]


def test_the_contract_has_no_exceptions_and_names_every_module():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers, *others = contract["contracts"]
    assert not any("ignore_imports" in other for other in others)
    assert layers["ignore_imports"] == []
    named = {part.strip() for row in layers["layers"] for part in row.split("|")}
    package = ROOT / "src" / "roughformer"
    modules = {p.stem for p in package.glob("*.py")} | {
        p.parent.name for p in package.glob("*/__init__.py")
    }
    assert {f"roughformer.{m}" for m in modules - {"__init__"}} == named


def test_the_lowest_versions_that_are_tested_are_those_that_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {}
    for line in [*project["dependencies"], *extras["serve"], *extras["tables"]]:
        wanted = Requirement(line)
        (bound,) = wanted.specifier
        assert bound.operator == ">="
        declared[wanted.name] = bound.version
    declared.pop("torch")  # of which one version is at hand
    lines = (ROOT / "lowest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert tested == declared

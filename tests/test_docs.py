"""README and documentation: every Python block runs, in order, each page in one namespace."""

import importlib.util
import itertools
import os
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import grimp
import pytest

import roughformer as rf
from roughformer import RFormerClassifier, RFormerRegressor, errors
from roughformer.errors import MissingDataError
from roughformer_paper import datasets

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *TUTORIALS]
WITH_CODE = [p for p in PAGES if "```python" in p.read_text()]
DATA = os.environ.get("ROUGHFORMER_DATA") or ROOT.parent / "shared/data"


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: p.name)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch, capsys):
    text = page.read_text()
    if "load_heart_rate(" in text:
        pytest.importorskip("wfdb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROUGHFORMER_DATA", str(DATA))
    monkeypatch.setitem(sys.modules, "mlflow", MagicMock())  # tests/test_callbacks.py looks at it
    if page.name == "icu.md":  # training on as many stays as the page shows takes a minute
        load = datasets.load_physionet2012
        monkeypatch.setattr(datasets, "load_physionet2012", lambda **given: load(**given)[:300])
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        try:
            exec(compile(block, str(page), "exec"), namespace)
        except MissingDataError as error:
            pytest.skip(f"{page.name} needs data: {error}")
    assert capsys.readouterr().out.strip(), "each page with code prints something"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page):
    text = page.read_text()
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    for target in targets + re.findall(r"\{literalinclude\} (\S+)", text):
        file = page.parent / target
        assert file.exists(), f"{page.name} links to {target}"
        assert file.is_dir() or file.stat().st_size > 0, f"{target} is empty"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_headings_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*\.md)?#([^)]+)\)", page.read_text()):
        there = page.parent / target if target else page
        titles = re.findall(r"^#+ (.+)$", there.read_text(), flags=re.MULTILINE)
        anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
        assert anchor in anchors, f"{page.name} links to {target}#{anchor}, there is {anchors}"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.name)
def test_tutorials_show_what_their_code_printed(page):
    text = page.read_text()
    assert text.count("```text") >= 5, f"run: python docs/_outputs.py {page.stem}"
    for picture in re.findall(r'path="([^"]+\.png)"', text):
        assert f"images/tutorials/{picture})" in text, f"{page.name} does not show {picture}"


def test_the_tutorials_are_in_the_table_of_contents():
    listed = (DOCS / "index.md").read_text()
    for page in [*DOCS.glob("*.md"), *TUTORIALS]:
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert name == "index" or f"\n{name}\n" in listed, f"{name} is not in index.md"


@pytest.fixture(autouse=True)
def scripts_find_each_other(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)


def script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_parameter_of_the_estimators_is_in_the_tables_and_no_other():
    classes = (RFormerClassifier, RFormerRegressor, rf.RateRegressor)
    known = {name for cls in classes for name in cls().get_params(deep=False)}
    assert set(script("_tables").PARAMETERS) == known
    page = (DOCS / "estimators.md").read_text() + (DOCS / "training.md").read_text()
    known |= {name.rpartition("__")[2] for name in RFormerClassifier.usual_settings()}
    assert [name for name in known if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("page", ["estimators.md", "training.md"])
def test_the_tables_on_the_page_are_those_of_the_code(page):
    assert (DOCS / page).read_text() == script("_tables").with_tables(page), (
        "run: python docs/_tables.py"
    )


@pytest.mark.parametrize("name", ["findings", "live", "scaled"])
def test_pages_of_measurements_have_the_published_numbers(name):
    assert (DOCS / f"{name}.md").read_text() == script(f"_{name}").page(), (
        f"run: python docs/_{name}.py"
    )


def test_a_finding_that_its_numbers_no_longer_support_is_not_written():
    findings = script("_findings")
    words, numbers = (DOCS / "_findings.txt").read_text(), findings.numbers(findings.Tables())
    findings.check_claims(words, numbers)
    with pytest.raises(ValueError, match="no longer support 'It is faster"):
        findings.check_claims(words, numbers | {"sine_ratio": "0.9"})
    with pytest.raises(ValueError, match="no longer says 'It is faster"):
        findings.check_claims(words.replace("It is faster", "It is slower"), numbers)


def test_every_public_name_is_in_the_reference():
    page = (DOCS / "reference.md").read_text()
    names = [n for n in rf.__all__ if n not in ("__version__", "nn")]
    names += [f"nn.{n}" for n in rf.nn.__all__]
    of_errors = [n for n in names if n in errors.__all__]
    assert "automodule:: roughformer.errors\n" in page
    missing = [n for n in names if n not in of_errors and f"roughformer.{n}\n" not in page]
    assert missing == []


def test_the_drawing_of_the_architecture_is_that_of_the_import_graph():
    architecture = script("_architecture")
    picture = architecture.PICTURE.read_text()
    assert picture == architecture.drawing(), "run: python docs/_architecture.py"
    row_of = {name: i for i, row in enumerate(architecture.layers()) for name in row}
    graph = grimp.build_graph("roughformer")
    folders = {name.split(".")[1] for name in graph.find_children("roughformer")}
    assert set(row_of) == folders - {"__main__"}
    for above, below in itertools.permutations(row_of, 2):
        if graph.direct_import_exists(
            importer=f"roughformer.{above}", imported=f"roughformer.{below}", as_packages=True
        ):
            assert row_of[above] < row_of[below], f"{above} imports {below}"


def test_the_places_that_the_architecture_names_are_there():
    page = (DOCS / "architecture.md").read_text()
    package = Path(rf.__file__).parent
    for file in re.findall(r"`([a-z_]+/[\w/]+\.(?:py|h|cpp))`", page):
        assert (package / file).exists(), f"architecture.md names {file}"
    sources = "\n".join(file.read_text() for file in package.rglob("*.py"))
    for name in re.findall(r"`([A-Za-z_]+)`", page):
        known = re.search(rf"\b(def|class) {name}\b|\b{name}:|\b{name} =", sources)
        assert known or (package / name).is_dir() or name in ("roughformer", "uncertainty"), name

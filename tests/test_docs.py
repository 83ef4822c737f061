"""README and documentation: every Python block runs, in order, each page in one namespace."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_CODE = [p for p in PAGES if "```python" in p.read_text()]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: p.name)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), namespace)
    assert capsys.readouterr().out.strip(), "each page with code prints something"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        file = page.parent / target
        assert file.exists(), f"{page.name} links to {target}"
        assert file.is_dir() or file.stat().st_size > 0, f"{target} is empty"

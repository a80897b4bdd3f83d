"""The pages on the paper run from top to bottom and print what they say, and every page links to what is there."""

import re

import pytest

from tests.examples import ROOT, python_blocks, smaller

DOCS = ROOT / "notebooks" / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("departures", "theory", "verdict")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    """One after another, each with the names of those before it; what is made smaller may print other numbers."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for code, printed in python_blocks(page):
        small = smaller(code)
        exec(compile(small, page.name, "exec"), names)
        output = capsys.readouterr().out
        if printed and small == code:
            assert output == printed


OTHERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]


@pytest.mark.parametrize("page", [*sorted(DOCS.rglob("*.md")), *OTHERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page):
    """As they are read there; tests/test_site.py says where they lead on the site."""
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_there_are_pages_and_blocks():
    assert {"departures", "theory"} <= {page.stem for page in PAGES}
    assert python_blocks(ROOT / "notebooks" / "docs" / "theory.md")

"""The site: every block of code on it runs, at a smaller size, and every algorithm has a page with all its parts."""

import importlib.util
import os
import re
import runpy
import shlex
import shutil
import tomllib
from xml.etree import ElementTree

import duckdb
import pytest
import typer

import fedbandit_jax as fb
from fedbandit_jax.cli import sweep_file
from fedbandit_jax.cli.main import app
from fedbandit_jax.results.drawing import COLORS
from tests import archives
from tests.examples import ROOT, blocks, smaller

DOCS = ROOT / "notebooks" / "docs"
PAGES = sorted([*DOCS.glob("*/*.md"), *(DOCS / f"{name}.md" for name in ("index", "getting-started", "inside"))])
SHELL = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
TOML = [block for page in PAGES for block in blocks(page, "toml")]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "notebooks" / "docs_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def registry():
    """Algorithms that a page makes are gone after it."""
    before = set(fb.REGISTRY)
    yield
    for name in set(fb.REGISTRY) - before:
        fb.REGISTRY.pop(name)


def play(code, folder):
    file = folder / "page.py"
    file.write_text(smaller(code))
    return runpy.run_path(str(file), run_name="__main__")


@pytest.mark.thorough
@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "notebooks" / "data", "results/readings")  # as `fedbandit reproduce --readings` writes it
    archives.pack(archives.movielens(), tmp_path).rename("ml-latest-small.zip")
    archives.pack(archives.conlinucb(), tmp_path, "folder", inside="").rename("conlinucb-lastfm")
    code = "\n".join(blocks(page)).replace('("ml-latest-small.zip")', '("ml-latest-small.zip", num_arms=40, dim=5)')
    play(code, tmp_path)
    for query in blocks(page, "sql"):
        assert duckdb.sql(query).fetchall()


@pytest.mark.parametrize("line", [line for line in SHELL if "fedbandit " in line])
def test_a_command_is_one_that_there_is(line):
    words = shlex.split(line[line.index("fedbandit ") :], comments=True)[1:]
    command, name = typer.main.get_command(app), ""
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = command.commands[name]
    command.make_context(name, words)  # an option that is not known, or a value that cannot be, is an error


def test_other_lines_are_targets_and_extras_that_there_are():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = re.findall(r"^(\S+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for line in (line for line in SHELL if "fedbandit " not in line):
        words = shlex.split(line, comments=True)
        assert words[0] in ("make", "pip"), line
        assert words[0] != "make" or words[1] in targets, line
        assert set(re.findall(r"\[(\w+)\]", line.partition("#")[0])) <= set(extras), line


@pytest.mark.parametrize("block", TOML)
def test_a_file_is_one_that_a_sweep_reads(block, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(block)
    assert sweep_file.read(file, fb.tune).algorithms


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_of_the_site_lead_to_its_pages(page, hooks):
    """Those to files elsewhere in the repository become links to pages that the build makes."""
    made = {os.path.normpath(DOCS / target) for target in hooks.pages_of().values()}
    for found in hooks.LINK.finditer(hooks.for_site(page.read_text(), page.relative_to(DOCS).as_posix())):
        path = os.path.normpath(page.parent / found["to"])
        assert path in made or (path.startswith(str(DOCS)) and os.path.exists(path)), found["to"]


def test_the_build_makes_these_pages(hooks):
    made = {target for target in hooks.pages_of().values() if not target.endswith(".ipynb")}
    others = {"benchmarks.md", "changelog.md", "figures/headline.png"}
    assert made == others | {f"algorithms/{name}.md" for name in hooks.algorithms()}
    index = hooks.for_site((DOCS / "index.md").read_text(), "index.md")
    assert "(figures/headline.png)" in index
    assert "(notebooks/01_first_regret_curve.ipynb)" in index
    assert "(../benchmarks.md)" in hooks.for_site((DOCS / "guides" / "gpus.md").read_text(), "guides/gpus.md")
    gallery = hooks.for_site((DOCS / "algorithms" / "index.md").read_text(), "algorithms/index.md")
    assert all(f"[{name}]({name}.md)" in gallery for name in hooks.algorithms())


def test_there_are_blocks():
    assert len(PAGES) >= 15
    assert len(TOML) == 3
    assert len([line for line in SHELL if line.startswith("fedbandit ")]) > 15


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text() for page in DOCS.glob("reference/*.md"))
    shown = set(re.findall(r"^::: fedbandit_jax\.(?:results\.)?(\w+)", pages, flags=re.MULTILINE))
    assert shown == set(fb.__all__)


# ---- the gallery


@pytest.fixture(scope="module")
def figures(hooks, tmp_path_factory):
    """Those of some: with a colour of their own and without, with constants of their own, and of every world."""
    everyone, catalog = hooks.algorithms(), fb.datasets.synthetic(0, dim=5, num_arms=40, num_key_terms=20, num_users=10)
    homes = {str(kind.home()): name for name, kind in everyone.items()}
    some = {name: everyone[name] for name in sorted({*hooks.COLOURED, *hooks.DRAWN, *homes.values(), "FedPE"})}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hooks, "algorithms", lambda: some)
        drawn = hooks.figures(tmp_path_factory.mktemp("gallery"), catalog, arms=10, horizon=300)
    assert set(drawn) == set(some)
    return drawn


@pytest.mark.thorough
def test_every_algorithm_has_a_figure(hooks, figures):
    own = {name for name, kind in fb.REGISTRY.items() if kind.__module__.startswith("fedbandit_jax.")}
    assert set(hooks.algorithms()) == own
    for name, path in figures.items():
        picture = path.read_text()
        assert "<svg" in picture
        assert len(picture) > 5_000, f"{name} has no curves"
        assert f"({name}.svg)" in hooks.cards()


@pytest.mark.parametrize("name", [n for n, kind in fb.REGISTRY.items() if kind.__module__.startswith("fedbandit_jax.")])
def test_an_algorithm_has_a_page_with_all_its_parts(name, hooks):
    text, said = hooks.page(name), hooks.parts(fb.REGISTRY[name])
    assert hooks.EQUATION.search(said["text"]), "an equation between $$"
    assert re.search(r"(19|20)\d\d", said["paper"]), "a paper, with its year"
    assert said["when"].endswith(".")
    assert len(said["first"]) < 140, "a first sentence"
    for part in (said["first"], said["paper"], said["when"], said["text"], f"![Regret of {name}]({name}.svg)"):
        assert part in text
    for parameter, value in fb.REGISTRY[name]().hyperparameters().items():
        assert f"| `{parameter}` | `{value!r}` | " in text


def test_the_example_of_an_algorithm_runs(hooks, tmp_path, monkeypatch):
    """One for all: the pages differ in a name."""
    monkeypatch.chdir(tmp_path)
    texts = {name: hooks.page(name) for name in hooks.algorithms() if name not in hooks.COMPANY}
    codes = {name: blocks(text)[0].replace(f"{hooks.call(name)}, ", "") for name, text in texts.items()}
    (code,) = {re.sub(r", world=fb.World\(.*?\)", "", code) for code in codes.values()}
    assert "[fb.LinUCB(), fb.Uniform()]" in code
    assert len(play(code, tmp_path)["results"].final()) == 2 * 10
    assert (tmp_path / "regret.png").exists()


@pytest.mark.thorough
def test_an_algorithm_has_its_colour_on_every_card(hooks, figures):
    """A curve of the colour that the algorithm has in the order of all; those without one have the next."""
    assert set(hooks.COLOURED) < set(hooks.algorithms())
    for name in figures:
        for drawn in (name, *hooks.COMPANY):
            place = hooks.COLOURED.index(drawn) if drawn in hooks.COLOURED else len(hooks.COLOURED)
            assert f"stroke: {COLORS[place].lower()}" in figures[name].read_text(), f"{drawn} on the card of {name}"


def test_equations_as_browsers_draw_them(hooks):
    """Limits of max below it, arg beside it, bars that stay as they are, and room around log."""
    name = "{" + hooks.MATHML + "}"
    given = (
        f'<math xmlns="{hooks.MATHML}" display="block"><mrow><mi>\\arg</mi><msub><mo>max</mo><mi>b</mi></msub>'
        "<mo>|</mo><mi>log</mi><mi>T</mi><mi>log</mi><mo>(</mo></mrow></math>"
    )
    (row,) = ElementTree.fromstring(hooks.for_browsers(given))
    below, bar, log, _, tight, _ = row
    assert (below.tag, below[0].text, below[0].get("movablelimits")) == (f"{name}munder", "arg max", "true")
    assert bar.get("stretchy") == "false"
    assert (log.tag, log.get("rspace"), tight.get("rspace")) == (f"{name}mo", "0.17em", "0")


def test_the_site_fetches_nothing_to_search():
    """The plugin `offline` would fetch a script of that name unless there is one."""
    assert "polyfills: [iframe-worker.js]" in (ROOT / "notebooks" / "mkdocs.yml").read_text()
    assert (DOCS / "iframe-worker.js").exists()


def test_words_of_a_table(hooks):
    table = hooks.table(fb.ConUCB)
    assert "| `lam` | `0.5` | (0, 1) | 0.05 to 0.95 |" in table
    assert '| `alpha` | `0.25` | [0, ∞), `"theory"` | 0.01 to 2, log |' in table
    assert "| `sigma` | `None` | [0, ∞), `None` |  |" in table
    assert '| `schedule` | `\'log\'` | `"log"`, `"linear"`, a function b(t) | |' in table
    assert "| ceil or unbiased |" in hooks.table(fb.LinPE)

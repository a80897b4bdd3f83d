"""The pages on the paper run from top to bottom and print what they say; pages name what there is, and all of it."""

import re
from collections import Counter

import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.optimistic import is_optimistic
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


every_page = pytest.mark.parametrize(
    "page", [*sorted(DOCS.rglob("*.md")), *OTHERS], ids=lambda page: str(page.relative_to(ROOT))
)


@every_page
def test_links_within_the_repository_lead_somewhere(page):
    """As they are read there; tests/test_site.py says where they lead on the site."""
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), link


PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?)`")
MADE = ("build", "results", "input_data")  # folders that commands write, and one of a public repository


@every_page
def test_paths_that_a_page_names_are_there(page):
    """From the root of the repository, or from that of the package."""
    for path in PATH.findall(page.read_text()):
        found = any((root / path).exists() for root in (ROOT, ROOT / "fedbandit_jax"))
        assert found or path.split("/")[0] in MADE, path


def test_some_pages_name_paths():
    assert len(PATH.findall((DOCS / "guides" / "own-algorithm.md").read_text())) > 4


# ---- lists of algorithms

OWN = {name: kind for name, kind in fb.REGISTRY.items() if kind.__module__.startswith("fedbandit_jax.")}
SHARING = {name for name, kind in OWN.items() if not kind.independent_clients}
# Columns of the table of worlds: a field, and the values that "yes" stands for.
WORLDS = {
    "redrawn arms": ("contexts", "redrawn"),
    "common arms": ("arm_sets", "common"),
    "one at a time": ("arrivals", "one"),
    "clicks": ("rewards", "bernoulli", "zero-one"),
    "shared noise": ("shared_noise", True),
    '`answers="max"`': ("answers", "max"),
    '`candidates="related"`': ("candidates", "related"),
    "`charged=True`": ("charged", True),
}


def named(text):
    """How often each algorithm of the package stands in backticks."""
    return Counter(name for name in re.findall(r"`(\w+)`", text) if name in OWN)


def table_after(heading, page):
    """The first table of a section: rows of cells."""
    lines = page.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]


def plays(kind, field, *values):
    """In its own world but for this field."""
    try:
        for value in values:
            kind().check_world(kind.home().replace(**{field: value}))
    except ValueError:
        return False
    return True


def cell_of(kind, field, *values):
    if not plays(kind, field, *values):
        return "no"
    return "yes" if plays(kind, field, getattr(fb.World(), field)) else "only"


def test_the_table_of_worlds_is_that_of_the_registry():
    header, _, *rows = table_after("## Who plays where", DOCS / "guides" / "worlds.md")
    assert header == ["", *WORLDS]
    found = [(name, cells) for names, *cells in rows for name in named(names).elements()]
    assert len(found) == len(OWN), "each algorithm once"
    assert dict(found) == {name: [cell_of(kind, *world) for world in WORLDS.values()] for name, kind in OWN.items()}


@pytest.mark.parametrize("name", OWN)
def test_all_play_with_different_users_and_uniform_rewards(name):
    assert plays(OWN[name], "preferences", "own", 2)
    assert plays(OWN[name], "rewards", "uniform")


def test_the_clients_that_share_are_those_of_the_registry():
    page = (DOCS / "guides" / "sweeps.md").read_text()
    (sentence,) = re.findall(r"Clients share what they learn in (.*?);", page, flags=re.DOTALL)
    assert named(sentence) == Counter(SHARING)


@pytest.mark.parametrize("heading", ["## Who talks when", "## What is counted"])
def test_federated_algorithms_are_in_the_tables(heading):
    names = ", ".join(row[0] for row in table_after(heading, DOCS / "guides" / "federated.md"))
    assert named(names) == Counter(SHARING)


def test_algorithms_that_ask_are_in_the_table():
    names = ", ".join(row[0] for row in table_after("## Who asks what", DOCS / "guides" / "conversational.md"))
    asking = {name for name, kind in OWN.items() if kind.asks_key_terms or kind.asks_by_schedule()}
    assert named(names) == Counter(asking)


def test_algorithms_of_the_kernel_are_in_the_table():
    rows = dict(row[:2] for row in table_after("## One kernel for many rounds", DOCS / "guides" / "gpus.md"))
    in_rounds = {name: kind() for name, kind in OWN.items() if issubclass(kind, fb.RoundAlgorithm)}
    assert named(rows["who"]) == Counter(name for name, learner in in_rounds.items() if is_optimistic(learner))


def test_the_readme_names_every_algorithm():
    (row,) = (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| [Algorithms]"))
    assert named(row) == Counter(OWN.keys())


# ---- the first table


def test_scalars_of_the_first_table():
    """SharedLinUCB's follow from the call: every round M clients send d + 1 and receive d^2 + d."""
    page = (DOCS / "getting-started.md").read_text()
    printed = page.partition("```text\n")[2].partition("```")[0]

    def means(label):
        return [int(x.replace(",", "")) for x in re.findall(rf"{label} +10 +([\d,]+) ", printed)]

    def scalars(M, d, T):
        return M * T * (d + 1 + d**2 + d)

    M, T = (int(re.search(rf"{name}=(\d+)", page)[1]) for name in ("clients", "horizon"))
    shared = scalars(M, fb.datasets.synthetic(seed=0).dim, T)
    assert shared == means("SharedLinUCB")[-1]
    assert f"{round(shared / means('FedConPE')[-1])} times as much" in page
    assert f"regret is {means('FedConPE')[0]:,} on average" in page
    small = fb.datasets.synthetic(seed=0, dim=3, num_arms=20, num_key_terms=5, num_users=2)
    results = fb.simulate(small, fb.SharedLinUCB(), clients=2, arms=4, horizon=30, users=1, progress=False)
    assert results.final()["communication"].tolist() == [scalars(2, 3, 30)]


def test_there_are_pages_and_blocks():
    assert {"departures", "theory"} <= {page.stem for page in PAGES}
    assert python_blocks(ROOT / "notebooks" / "docs" / "theory.md")

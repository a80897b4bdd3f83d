"""What `mkdocs build` adds to the pages in docs/: a page per algorithm with a figure, the notebooks, and equations.

Links in docs/ lead to files of the repository, so that its pages can be read there, too. Where the site has a page for
such a file, the link becomes one to that page.

Pages of algorithms are made from their classes: docstring, equation, hyperparameters. Figures are of one small sweep,
kept in build/gallery, so that only the first build plays it. Equations become MathML, which browsers draw themselves.
"""

import dataclasses
import html
import inspect
import math
import os
import posixpath
import re
from pathlib import Path
from typing import Any

import fedbandit_jax as fb
from fedbandit_jax._parameters import Between, OneOf, Parameter, declared

HERE = Path(__file__).parent
ROOT = HERE.parent
ELSEWHERE = {
    "benchmarks.md": "benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
    "figures/headline.png": "notebooks/figures/headline.png",
}
CATALOG = {"seed": 0, "dim": 10, "num_arms": 1000, "num_key_terms": 200, "num_users": 20}
SETTING: dict[str, Any] = {"clients": 5, "arms": 50, "horizon": 2000, "users": 5, "seeds": 2}
COMPANY = ("LinUCB", "Uniform")  # whom an algorithm is drawn beside
# Who takes the first colours: as in the figure of the first page, as far as that goes. The others share the next one,
# as no card has two of them.
COLOURED = ("FedConPE", "LinUCB", "ArmCon", "ConUCB", "ConLinUCB", "LinPE", "FedLinPE", "SharedLinUCB", "Uniform")
DRAWN: dict[str, dict[str, Any]] = {"DELB": {"C1": 10}}  # where the defaults say nothing at this horizon
LINK = re.compile(r"\]\((?P<to>[^)#\s:]+)(?=[)#])")
MATHML = "http://www.w3.org/1998/Math/MathML"
RANGING = ("max", "min", "\N{N-ARY SUMMATION}")
BARS = ("|", "\N{DOUBLE VERTICAL LINE}")
EQUATION = re.compile(r"\$\$(.*?)\$\$", re.DOTALL)
PART = re.compile(r"^(When|Paper): (.*?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


# ---- the gallery


def algorithms() -> dict[str, type[fb.Algorithm]]:
    """The algorithms of the package, by name."""
    return {name: kind for name, kind in sorted(fb.REGISTRY.items()) if kind.__module__.startswith("fedbandit_jax.")}


def parts(kind: type) -> dict[str, str]:
    """The docstring of an algorithm, apart: its first sentence, its text with equations, when to use it, its paper."""
    text = inspect.getdoc(kind) or ""
    said = {name.lower(): " ".join(words.split()) for name, words in PART.findall(text)}
    first, _, rest = PART.sub("", text).strip().partition("\n\n")
    return {"first": " ".join(first.split()), "text": rest.strip(), **said}


def interval(about: Parameter) -> str:
    """What a hyperparameter may be, in words of a table."""
    allowed = [f'`"{word}"`' for word in about.words]
    if about.low is not None:
        left, right = about.ends
        high = "∞" if math.isinf(about.high) else f"{about.high:g}"
        allowed.insert(0, f"{left}{about.low:g}, {high}{')' if high == '∞' else right}")
    return ", ".join([*allowed, *(["`None`"] if about.optional else [])])


def searched(space: Between | OneOf | None) -> str:
    """Where a tuner looks, in words of a table."""
    if space is None:
        return ""
    if isinstance(space, OneOf):
        return " or ".join(space.words)
    return f"{space.low:g} to {space.high:g}{', log' if space.log else ''}"


def table(kind: type) -> str:
    """The hyperparameters of an algorithm: its own first."""
    about = declared(kind)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    rows = [f"| `{name}` | `{defaults[name]!r}` | {interval(a)} | {searched(a.search)} |" for name, a in about.items()]
    for name in defaults.keys() - about.keys():
        allowed = '`"log"`, `"linear"`, a function b(t)' if name == "schedule" else ""
        rows.append(f"| `{name}` | `{defaults[name]!r}` | {allowed} | |")
    if not rows:
        return "It has no hyperparameters."
    return "\n".join(["| name | default | allowed | tuned over |", "| --- | --- | --- | --- |", *rows])


def family(kind: type) -> str:
    """Where inherited hyperparameters are explained: in another page, or here if the parent has none."""
    for parent in kind.__mro__[1:]:
        if parent.__name__ in algorithms():
            return f"The others are those of [{parent.__name__}]({parent.__name__}.md)."
        if declared(parent) if dataclasses.is_dataclass(parent) else {}:
            return (inspect.getdoc(parent) or "").partition("\n\n")[2]
    return ""


def call(name: str) -> str:
    """How an algorithm is made for its figure."""
    return f"fb.{name}({as_arguments(DRAWN.get(name, {}))})"


def page(name: str) -> str:
    """The page of an algorithm."""
    kind, said = algorithms()[name], parts(algorithms()[name])
    beside = [other for other in COMPANY if other != name]
    played = ", ".join(call(one) for one in (name, *beside))
    home = kind.home()
    world = "" if home == fb.World() else f", world=fb.{home!r}"
    constants = f"{name} with {as_arguments(DRAWN[name])}, the others" if name in DRAWN else "all"
    return f"""# {name}

{said["first"]}

**When to use it:** {said["when"]}

**Paper:** {said["paper"]}

```python
import fedbandit_jax as fb

catalog = fb.datasets.synthetic({as_arguments(CATALOG)})
algorithms = [{played}]
results = fb.simulate(catalog, algorithms, {as_arguments(SETTING)}{world})
print(results.summary())
results.plot.curves("regret", y="log").figure.savefig("regret.png")
```

![Regret of {name}]({name}.svg){{ .figure }}

*What these lines play: {name} beside {" and ".join(beside)}, {constants} with their defaults, {in_words()}. Means, with
95 % intervals. Other constants, more clients or another horizon may turn the order around.*

## How it plays

{said["text"]}

## Hyperparameters

{table(kind)}

{family(kind)}

[Reference](../reference/algorithms.md#fedbandit_jax.{name}){{ .md-button }}
"""


def in_words() -> str:
    told = "synthetic data, d = {dim}, M = {clients}, K = {arms}, T = {horizon}, {users} users x {seeds} seeds"
    return told.format(**CATALOG | SETTING)


def as_arguments(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in given.items())


def cards() -> str:
    """The gallery: a card for each algorithm."""
    found = [
        f"-   [![{name}]({name}.svg)]({name}.md)\n\n    **[{name}]({name}.md)**: {parts(kind)['first']}\n"
        for name, kind in algorithms().items()
    ]
    beside = " and ".join(COMPANY)
    told = f"*Each beside {beside}, with the constants of its page: regret against the round, {in_words()}.*\n"
    return "\n".join([told, '<div class="grid cards" markdown>\n', *found, "</div>\n"])


def figures(folder: Path, catalog: fb.Catalog | None = None, **smaller: Any) -> dict[str, Path]:
    """A figure for each algorithm, of runs that the folder keeps."""
    catalog = catalog or fb.datasets.synthetic(**CATALOG)
    everyone = {name: kind(**DRAWN.get(name, {})) for name, kind in algorithms().items()}
    titles = {name: algorithm.title for name, algorithm in everyone.items()}
    worlds = {str(algorithm.home()): algorithm.home() for algorithm in everyone.values()}
    drawn = {}
    for i, (told, world) in enumerate(worlds.items()):
        at_home = [name for name, algorithm in everyone.items() if str(algorithm.home()) == told]
        playing = [everyone[name] for name in dict.fromkeys((*at_home, *COMPANY))]
        runs = folder / ("runs" if i == 0 else f"runs-{i}")
        results = fb.sweep(catalog, playing, world=world, **SETTING | smaller, out=runs, progress=False)
        for name in at_home:
            order = [titles[one] for one in dict.fromkeys((*COLOURED, name))]
            drawn[name] = draw(results, [titles[name], *COMPANY], order, folder / f"{name}.svg")
    return drawn


def draw(results: fb.Results, labels: list[str], order: list[str], path: Path) -> Path:
    """Regret of some algorithms, in the colours that they have among all."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels = list(dict.fromkeys(labels))
    with fb.plots.style(figure_figsize=(4.6, 3.0), svg_hashsalt="fedbandit"):
        axes = fb.plots.Plots(results.only(*labels), order).curves("regret", y="log")
        axes.figure.savefig(path, metadata={"Date": None})
        plt.close(axes.figure)
    return path


# ---- equations


def mathml(text: str) -> str:
    """Equations that arithmatex has marked, as MathML."""
    from latex2mathml.converter import convert

    def one(found: re.Match) -> str:
        display = "block" if found["open"] == "\\[" else "inline"
        return for_browsers(convert(html.unescape(found["latex"]).strip(), display=display))

    marked = r'<(?P<tag>span|div) class="arithmatex">(?P<open>\\[\[(])(?P<latex>.*?)\\[\])]</(?P=tag)>'
    return re.sub(marked, one, text, flags=re.DOTALL)


def for_browsers(equation: str) -> str:
    """What latex2mathml leaves: arg, limits below max and sums, bars that do not grow apart, room around log."""
    from xml.etree import ElementTree

    ElementTree.register_namespace("", MATHML)
    root = ElementTree.fromstring(equation)
    for parent in list(root.iter()):
        for before, part, after in zip([None, *parent], list(parent), [*parent, None][1:], strict=False):
            operator = part[0] if len(part) else part
            if operator.text == "log":
                operator.tag = f"{{{MATHML}}}mo"
                tight = after is not None and after.text == "("
                operator.attrib.update(form="prefix", lspace="0.17em", rspace="0" if tight else "0.17em")
            if operator.text in BARS and "stretchy" not in operator.attrib:
                operator.attrib.update(stretchy="false", lspace="0", rspace="0")
            if operator.text not in RANGING:
                continue
            if before is not None and before.text == "\\arg":
                parent.remove(before)
                operator.text = f"arg {operator.text}"
            if part.tag == f"{{{MATHML}}}msub":
                part.tag = f"{{{MATHML}}}munder"
            operator.set("movablelimits", "true")  # beside it in a line of text
    return ElementTree.tostring(root, encoding="unicode")


def at_home(text: str) -> str:
    """A notebook without the script that would be fetched for equations, its links those of the site."""
    text = re.sub(r"<!-- Load mathjax -->.*?<!-- End of mathjax configuration -->", "", text, flags=re.DOTALL)
    text = re.sub(r'href="(\w+)\.ipynb', r'href="\1.html', text)
    return text.replace("../CONTRIBUTING.md", "../guides/own-algorithm.html")


# ---- links


def pages_of() -> dict[Path, str]:
    """Files of the repository that stand elsewhere than in docs/, and their page on the site."""
    own = {Path(inspect.getfile(kind)): f"algorithms/{name}.md" for name, kind in algorithms().items()}
    notebooks = {path: f"{HERE.name}/{path.name}" for path in HERE.glob("*.ipynb")}
    return {ROOT / source: target for target, source in ELSEWHERE.items()} | notebooks | own


def for_site(text: str, page: str) -> str:
    """The text of a page of docs/, its links to such files as the site has them."""
    known = pages_of()

    def one(found: re.Match) -> str:
        target = known.get(Path(os.path.normpath(HERE / "docs" / posixpath.dirname(page) / found["to"])))
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}" if target else found[0]

    return LINK.sub(one, text)


# ---- what mkdocs calls


def on_config(config: Any) -> Any:
    """The pages of the algorithms join the section of their gallery."""
    (section,) = (pages for entry in config.nav for name, pages in entry.items() if name == "Algorithms")
    section.extend({name: f"algorithms/{name}.md"} for name in algorithms())
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the gallery, the notebooks, and what stands elsewhere in the repository."""
    from mkdocs.structure.files import File

    elsewhere = {target: ROOT / source for target, source in ELSEWHERE.items()}
    elsewhere |= {f"algorithms/{name}.svg": path for name, path in figures(ROOT / "build" / "gallery").items()}
    for target, path in elsewhere.items():
        files.append(File.generated(config, target, abs_src_path=str(path)))
    for name in algorithms():
        files.append(File.generated(config, f"algorithms/{name}.md", content=page(name)))
    for path in sorted(HERE.glob("*.ipynb")):  # as files of another folder: the plugin reads them itself
        files.append(File(f"{HERE.name}/{path.name}", str(ROOT), config.site_dir, config.use_directory_urls))
    return files


on_files.mkdocs_priority = 100  # type: ignore[attr-defined]  # before the plugins, so that they see the notebooks


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:
    return for_site(text, page.file.src_uri).replace("<!-- cards -->", cards())


def on_page_content(text: str, page: Any, config: Any, files: Any) -> str:
    return at_home(text) if page.file.src_uri.endswith(".ipynb") else mathml(text)

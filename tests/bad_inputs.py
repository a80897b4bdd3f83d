"""Every argument of the package with every bad value: each is accepted, or refused in one sentence that names it.

    python -m tests.bad_inputs               # all of them, with counts by outcome
    python -m tests.bad_inputs sweep tune    # those of entry points whose name contains one of these words
    python -m tests.bad_inputs 20000         # so many, drawn with a fixed seed

An input is one entry point with one value of `tests.bad_values`, all other arguments being right. Its outcome is
"accepted" if the call returns or gets as far as compiling, "refused" if it ends in one sentence that names the
argument, and else "internals".
"""

import collections
import contextlib
import dataclasses
import inspect
import io
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

os.environ.setdefault("FEDBANDIT_COMPILE_CACHE", "false")

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import typer

import fedbandit_jax as fb
from fedbandit_jax.cli import main as shell
from fedbandit_jax.cli import sweep_file
from fedbandit_jax.engine import calls
from fedbandit_jax.worlds.world import FIELDS
from tests import frames
from tests.bad_values import IN_TOML, TEXTS, VALUES

MEMORY = 8 * 2**30  # bytes that all of them may take
SECONDS = 2.0  # of processor time that one input may take
LONGEST = 700  # letters of a sentence
SMALL: dict[str, Any] = {"clients": 2, "arms": 7, "horizon": 600, "users": 2, "seeds": 1, "checkpoints": 4}
REFUSALS = (ValueError, FileNotFoundError, NotImplementedError, OSError)  # errors that are sentences


class Stopped(BaseException):
    """Raised where a call would compile or compute: its arguments were accepted."""


class TooSlow(BaseException):
    """Raised when an input has taken its time."""


class Input(NamedTuple):
    """A call with one bad value."""

    entry: str  # "fb.sweep(clients)"
    argument: str  # which a refusal has to name
    value: str
    make: Callable[[], Any]
    call: Callable[[Any], Any]

    def __str__(self) -> str:
        return f"{self.entry} <- {self.value}"


class Outcome(NamedTuple):
    """What an input led to."""

    kind: str  # "accepted", "refused" or "internals"
    words: str


# -------------------------------------------------------------------------------------------------- entry points


@cache
def catalog() -> fb.Catalog:
    """That of the fixture `catalog`."""
    return fb.datasets.synthetic(seed=0, dim=6, num_arms=60, num_key_terms=30, num_users=6)


@cache
def results() -> fb.Results:
    """Two algorithms, one with two values of N, for two numbers of clients and of arms, with phases."""
    rows = [
        {**row, "N": N}
        for label, N in (("FedConPE N=1", 1.0), ("FedConPE N=2", 2.0), ("LinUCB", None))
        for clients in (2, 3)
        for arms in (5, 6)
        for row in frames.runs(label, np.arange(1.0, 7).reshape(3, 2) + clients, clients=clients, arms=arms)
    ]
    place = {"dataset": "made up", **frames.PLACE, "user": 0, "seed": 0, "N": 1.0}
    told = {"active_mean": 3.0, "eps": 0.5, "questions": 2.0, "theta_error": 0.1, "good_event": True}
    phases = [{"algorithm": "FedConPE", "label": "FedConPE N=1", **place, "phase": p, **told} for p in (1, 2)]
    found = frames.made_of(rows, phases)
    return fb.Results(found.to_pandas()[order(found)], found.phases(), {})


def order(found: fb.Results) -> list[str]:
    """The columns as a sweep has them: hyperparameters behind the noise."""
    columns = list(found.to_pandas())
    columns.remove("N")
    columns.insert(columns.index("noise") + 1, "N")
    return columns


def entry_points(folder: Path) -> Iterator[tuple[str, str, Callable[[Any], Any], Mapping[str, Callable[[], Any]]]]:
    """(name, argument, call, values) of everything that takes an argument."""
    for name, argument, call in (*of_algorithms(), *of_calls(), *of_catalogs(folder), *of_results(), *of_theory()):
        values = {value: make for value, make in VALUES.items() if argument != "progress" or value not in RAISING}
        yield f"{name}({argument})", argument, call, values
    for name, argument, call in of_files(folder):
        yield f"{name}: {argument} =", argument, call, IN_TOML
    for name, argument, call in of_shell(folder):
        yield f"{name} {argument}", argument.lstrip("-").replace("-", "_"), call, TEXTS


# Functions that raise when they are called with a record: their own error is the user's.
RAISING = (
    "lambda t: -t",
    "lambda t: array",
    "a function that fails",
    "a function of a class",
    "math.sqrt",
    "int",
    "calls fail",
    "everything fails",
)


def of_algorithms() -> Iterator[tuple[str, str, Callable]]:
    """Every hyperparameter of every algorithm, alone and in a list, and every field of a world."""
    own = {name: kind for name, kind in fb.REGISTRY.items() if kind.__module__.startswith("fedbandit_jax.")}
    for name, kind in own.items():
        for field in dataclasses.fields(kind):
            yield f"fb.{name}", field.name, partial(play_hyperparameter, kind, field.name)
    for field in FIELDS:
        yield "fb.World", field, lambda value, field=field: swept(world=fb.World(**{field: value}))
        yield "list in fb.World", field, lambda value, field=field: swept(world=fb.World(**{field: ["all", value]}))
    for name in ("alpha", "lam", "schedule"):
        yield "list in fb.ConUCB", name, partial(play_in_list, fb.ConUCB, name)


def play_hyperparameter(kind: type[fb.Algorithm], name: str, value: Any) -> None:
    swept(kind(**{name: value}), world=kind.home())


def play_in_list(kind: type[fb.Algorithm], name: str, value: Any) -> None:
    swept(kind(**{name: [getattr(kind(), name), value]}), world=kind.home())


def swept(algorithms: Any = None, **changes: Any) -> None:
    fb.sweep(catalog(), fb.Uniform() if algorithms is None else algorithms, **SMALL | changes)


def of_calls() -> Iterator[tuple[str, str, Callable]]:
    """Every argument of simulate, sweep and tune; the first two come by place."""
    setting = {name: value for name, value in SMALL.items() if name != "checkpoints"}
    tuned = setting | {"trials": 2}
    for call, given in ((fb.sweep, SMALL), (fb.simulate, setting), (fb.tune, tuned)):
        names = [name for name in inspect.signature(call).parameters if name != "options"]
        names += [] if call is fb.sweep else ["checkpoints", "dtype", "spacing", "memory"]
        for name in dict.fromkeys(names):
            yield f"fb.{call.__name__}", name, partial(call_with, call, given, name)
    for name in ("clients", "arms", "horizon", "noise", "users", "seeds", "checkpoints", "world", "algorithms"):
        yield "list in fb.sweep", name, lambda value, name=name: call_with(fb.sweep, SMALL, name, [value])
    for name in ("low", "high", "log"):
        yield "fb.Between", name, lambda value, name=name: fb.Between(**{"low": 0.5, "high": 1e30} | {name: value})
    yield "fb.OneOf", "words", lambda value: fb.OneOf(value)


def call_with(call: Callable, given: Mapping[str, Any], name: str, value: Any) -> Any:
    arguments = {"catalog": catalog(), "algorithms": fb.LinUCB(), **given} | {name: value}
    return call(arguments.pop("catalog"), arguments.pop("algorithms"), **arguments)


def of_catalogs(folder: Path) -> Iterator[tuple[str, str, Callable]]:
    """Catalogs: made of arrays, drawn, loaded, saved."""
    given = {"arms": np.eye(3), "key_terms": np.eye(3)[:2], "users": np.eye(3)}
    for name in inspect.signature(fb.Catalog.from_arrays).parameters:
        yield "Catalog.from_arrays", name, lambda value, name=name: fb.Catalog.from_arrays(**given | {name: value})
    for make in (fb.datasets.synthetic, fb.datasets.synthetic_relative):
        for name in inspect.signature(make).parameters:
            small = {size: value for size, value in DATA.items() if size != name}
            yield f"datasets.{make.__name__}", name, lambda v, make=make, s=small, n=name: make(**s, **{n: v})
    nowhere = folder / "nowhere.zip"
    for load in (fb.datasets.movielens, fb.datasets.lastfm, fb.datasets.yelp, fb.datasets.conlinucb, fb.datasets.load):
        names = [name for name in inspect.signature(load).parameters if name != "options"]
        names += [] if load is not fb.datasets.load else ["num_arms", "num_users", "dim", "features", "user_norm"]
        for name in names:
            yield f"datasets.{load.__name__}", name, partial(load_with, load, nowhere, name)
    yield "Catalog.load", "path", fb.Catalog.load
    yield "Catalog.save", "path", lambda value: catalog().save(value)


def load_with(load: Callable, nowhere: Path, name: str, value: Any) -> None:
    """Options are checked before the file is opened: that it is not there says that they are right."""
    try:
        load(**{"path": nowhere} | {name: value})
    except FileNotFoundError as error:
        if name == "path" or not str(error).startswith(str(nowhere)):
            raise


def of_results() -> Iterator[tuple[str, str, Callable]]:
    """Tables, figures and filters of results."""
    methods: dict[str, dict[str, Any]] = {
        "phase_means": {},
        "summary": {},
        "quantiles": {},
        "exponent": {"parameter": "clients"},
        "compare": {"label": "LinUCB"},
        "pareto": {},
        "save": {},
        "load": {},
    }
    for name, given in methods.items():
        for argument in inspect.signature(getattr(fb.Results, name)).parameters:
            if argument != "self":
                yield f"Results.{name}", argument, partial(call_method, name, given, argument)
    for setting in ("label", "algorithm", "clients", "noise", "N", "user", "dataset"):
        yield "Results.only", setting, lambda value, setting=setting: results().only(**{setting: value})
    yield "Results.only()", "label", lambda value: results().only(value)
    figures: dict[str, dict[str, Any]] = {
        "regret": {},
        "conversations": {},
        "theta_error": {},
        "curves": {"metric": "regret"},
        "against": {"parameter": "clients"},
        "heatmap": {"x": "clients", "y": "arms", "label": "LinUCB"},
        "tradeoff": {},
        "phases": {},
    }
    for name, given in figures.items():
        for argument in inspect.signature(getattr(fb.plots.Plots, name)).parameters:
            if argument != "self":
                yield f"Results.plot.{name}", argument, partial(draw, name, given, argument)


def call_method(name: str, given: Mapping[str, Any], argument: str, value: Any) -> Any:
    return getattr(results(), name)(**given | {argument: value})


def draw(name: str, given: Mapping[str, Any], argument: str, value: Any) -> None:
    """Up to the point where a figure would be made."""
    getattr(results().plot, name)(**given | {argument: value})


def of_theory() -> Iterator[tuple[str, str, Callable]]:
    """The bounds."""
    right = {"horizon": 100, "dim": 3, "clients": 2, "arms": 5, "eps": 0.5, "lambda_min": 0.1, "N": 1.0, "C": 1.0}
    for name, bound in inspect.getmembers(fb.theory, inspect.isfunction):
        if name.endswith("_bound"):
            names = inspect.signature(bound).parameters
            given = {argument: right[argument] for argument in names if argument in right}
            for argument in names:
                yield f"theory.{name}", argument, lambda v, bound=bound, g=given, a=argument: bound(**g | {a: v})


DATA = {"dim": 6, "num_arms": 60, "num_key_terms": 30, "num_users": 6}


def of_files(folder: Path) -> Iterator[tuple[str, str, Callable]]:
    """Every key of a sweep written down as TOML."""
    keys = [name for name in inspect.signature(fb.sweep).parameters if name not in sweep_file.NOT_IN_FILES]
    for key in (*keys, "algorithms", "data", "world"):
        yield "sweep file", key, partial(play_file, folder, "", key)
    for table, known in (
        ("data", sweep_file.DATA),
        ("world", FIELDS),
        *((f"algorithms.{kind.__name__}", [f.name for f in dataclasses.fields(kind)]) for kind in (fb.ConUCB, fb.PLS)),
    ):
        for key in known:
            yield f"[{table}] of a sweep file", key, partial(play_file, folder, table, key)
    yield "[[algorithms]] of a sweep file", "name", partial(play_file, folder, "algorithms.", "name")


def play_file(folder: Path, table: str, key: str, text: str) -> None:
    """Write a file with that text behind `key =`, and play it as the shell command does."""
    head: dict[str, Any] = {name: str(value) for name, value in SMALL.items()} | {"out": '"runs"'}
    data: dict[str, Any] = {name: str(value) for name, value in DATA.items()}
    kind = table.removeprefix("algorithms.") if table.startswith("algorithms.") else "Uniform"
    tables = {"data": data, "world": {}, "algorithms": {"name": f'"{kind}"'}}
    changed = tables[table.partition(".")[0]] if table else head
    changed[key] = text
    if (table, key) == ("data", "path"):
        data.pop("num_key_terms")  # which only the synthetic catalog takes
    if not table:
        tables.pop(key, None)
    brackets = {"data": "[data]", "world": "[world]", "algorithms": "[[algorithms]]"}
    lines = [f"{name} = {value}" for name, value in head.items()]
    for name, content in tables.items():
        lines += [brackets[name], *(f"{one} = {value}" for one, value in content.items())]
    path = folder / "bad.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run_shell(["sweep", str(path)])


def of_shell(folder: Path) -> Iterator[tuple[str, str, Callable]]:
    """Options of the shell command."""
    prepared, written = folder / "catalog.npz", folder / "right.toml"
    catalog().save(prepared)
    head = "clients = 2\narms = 7\nhorizon = 600\nusers = 2\n"
    written.write_text(f'{head}[data]\npath = "catalog.npz"\n[[algorithms]]\nname = "LinUCB"\n', encoding="utf-8")
    run = ["run", "--data", str(prepared), "--users", "2", "--arms", "7", "--out", str(folder / "run")]
    shown = ["reproduce", "--dry-run", "--data", f"made={prepared}"]
    of = {
        "run": (
            run,
            "--data --algorithm --clients --arms --horizon --noise --users --seeds --N --C --delta --null-space "
            "--seed --out",
        ),
        "sweep": (["sweep", str(written), "--out", str(folder / "swept")], "--out --memory"),
        "tune": (["tune", str(written), "--out", str(folder / "tuned")], "--out --trials"),
        "data describe": (
            ["data", "describe", str(prepared)],
            "--kind --num-arms --num-users --dim --features --user-norm --seed",
        ),
        "reproduce": (shown, "--preset --data --seeds --trials --budget --horizon --world"),
        "reproduce arena": (["reproduce", "arena", *shown[1:]], "--preset --seeds --trials --horizon --world"),
    }
    for command, (start, options) in of.items():
        for option in options.split():
            yield f"fedbandit {command}", option, lambda text, s=start, o=option: run_shell([*s, f"{o}={text}"])
    for command in ("sweep", "tune", "report"):
        argument = "DIR" if command == "report" else "file"
        yield f"fedbandit {command}", argument, lambda text, c=command: run_shell([c, "--", text])
    for argument, start in (("path", ["data", "describe"]), ("experiment", ["reproduce", "--dry-run"])):
        yield f"fedbandit {' '.join(start)}", argument, lambda text, s=start: run_shell([*s, "--", text])
    yield "fedbandit bench", "suite", lambda text: run_shell(["bench", "--", text])


def run_shell(arguments: list[str]) -> None:
    """A command, with errors as exceptions; what Click itself refuses is a sentence, too."""
    command = typer.main.get_command(shell.app)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            command.main(arguments, prog_name="fedbandit", standalone_mode=False)
        except Exception as error:
            if hasattr(error, "format_message"):
                raise ValueError(" ".join(error.format_message().split())) from None
            raise


# ------------------------------------------------------------------------------------------------------ outcomes


def stop_before_compiling(batches: Any, *_: Any, **__: Any) -> None:
    """In place of compiling: the numbers of all lanes must be Python's own, and fit into arrays."""
    for batch in batches:
        for given in (batch.algorithms, batch.worlds):
            leaves = jax.tree.leaves(given)
            assert all(type(leaf) in (int, float) for leaf in leaves), f"{leaves} are not numbers"
            jax.tree.map(lambda *values: np.asarray(values, "float32"), *given)
        hash(batch.key)
    raise Stopped


def stop_before_drawing(dim: int, rows: dict[str, int]) -> None:
    """In place of drawing a large catalog."""
    CHECK_MEMORY(dim, rows)
    if dim * sum(rows.values()) > 10**5:
        raise Stopped


DRAWN = [sys.modules[f"fedbandit_jax.datasets.{name}"] for name in ("synthetic", "synthetic_relative")]
CHECK_MEMORY = DRAWN[0].check_memory


@contextlib.contextmanager
def stopped_early(folder: Path) -> Iterator[None]:
    """No call compiles, draws a large catalog, or writes outside a folder."""
    before = os.getcwd()
    with (
        mock.patch.object(calls, "compile_side_by_side", stop_before_compiling),
        mock.patch.object(DRAWN[0], "check_memory", stop_before_drawing),
        mock.patch.object(DRAWN[1], "check_memory", stop_before_drawing),
        warnings.catch_warnings(),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        (folder / "here").mkdir()
        os.chdir(folder / "here")
        try:
            yield
        finally:
            os.chdir(before)


def too_slow(*_: Any) -> None:
    raise TooSlow


def outcome(given: Input) -> Outcome:
    """Make the call, for a limited time."""
    value = given.make()
    before = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)  # again, as code that catches everything may miss one
    try:
        try:
            given.call(value)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except Stopped:
        return Outcome("accepted", "")
    except TooSlow:
        return Outcome("internals", f"took more than {SECONDS:g} s")
    except REFUSALS as error:
        return judged(given, error)
    except Exception as error:
        return Outcome("internals", f"{type(error).__name__}: {text_of(error)[:150]}")
    finally:
        signal.signal(signal.SIGPROF, before)
        plt.close("all")
        for left in os.scandir():  # what one input has written, the next should not find
            shutil.rmtree(left) if left.is_dir(follow_symlinks=False) else os.unlink(left)
    return Outcome("accepted", "")


def judged(given: Input, error: Exception) -> Outcome:
    """A refusal is one line, not too long, and names the argument."""
    words = text_of(error)
    names = [given.argument, given.argument.replace("_", "-"), given.argument.removeprefix("num_")]
    if given.argument in ("path", "data", "file", "folder", "DIR"):
        names += ["path", "folder", "does not exist", "holds no", "has no file"]
    names += ["bad.toml"]  # what is no TOML has no arguments
    names += ["alpha of LinUCB"]  # of an algorithm that is given with a bad hyperparameter
    named = any(re.search(rf"(?<![a-z]){re.escape(name)}", words, re.I) for name in names)
    for wrong, why in (
        (not words, "says nothing"),
        ("\n" in words, "has several lines"),
        (len(words) > LONGEST, f"has {len(words)} letters"),
        ("Errno" in words, "is the system's"),
        (not named, "does not name the argument"),
    ):
        if wrong:
            return Outcome("internals", f"{type(error).__name__} {why}: {words[:150]}")
    return Outcome("refused", words)


def text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def inputs(folder: Path) -> list[Input]:
    """All of them, in a fixed order."""
    return [
        Input(name, argument, value, make, call)
        for name, argument, call, values in entry_points(folder)
        for value, make in values.items()
    ]


def main(words: list[str]) -> int:
    """Print counts by outcome and every input that led to internals; their number is the exit code, up to 1."""
    matplotlib.use("Agg")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    began, count, wrong = time.perf_counter(), collections.Counter[str](), []
    with tempfile.TemporaryDirectory() as place, stopped_early(Path(place)):
        given = inputs(Path(place))
        if len(words) == 1 and words[0].isdecimal():
            given = random.Random(0).sample(given, int(words[0]))
        elif words:
            given = [one for one in given if any(word in one.entry for word in words)]
        for one in given:
            found = outcome(one)
            count[found.kind] += 1
            if found.kind == "internals":
                wrong.append(f"{one}: {found.words}")
                print(wrong[-1].encode("unicode_escape").decode(), flush=True)
    print(f"{len(given)} inputs in {time.perf_counter() - began:.0f} s: {dict(count)}")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

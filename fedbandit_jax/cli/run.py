"""The shell command `fedbandit run`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import fedbandit_jax as fb
from fedbandit_jax import _checks
from fedbandit_jax.cli.data import DATA_HELP
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.results.numbers import number, reason

console = Console()
OTHERS = {"conversations": "questions", "communication": "scalars", "theta_error": "error"}


def run(
    data: Annotated[str, typer.Option(help=DATA_HELP)] = "synthetic",
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            help="FedConPE, a baseline such as ConLinUCB-BS, SharedLinUCB or Uniform; may be repeated; all by default.",
            show_default=False,
        ),
    ] = None,
    clients: Annotated[int, typer.Option(help="M, clients in the federation.")] = 10,
    arms: Annotated[int, typer.Option(help="K, arms of each client.")] = 100,
    horizon: Annotated[int, typer.Option(help="T, rounds; up to 10^9.")] = 6000,
    noise: Annotated[float, typer.Option(help="Standard deviation of rewards and answers.")] = 0.1,
    users: Annotated[int, typer.Option(help="Preference vectors, the first of the catalog.")] = 10,
    seeds: Annotated[int, typer.Option(help="Draws of arm sets and noise for each user.")] = 1,
    n: Annotated[float, typer.Option("--N", help="FedConPE's N: larger asks less and loses more.")] = 1.0,
    c: Annotated[float, typer.Option("--C", help="FedConPE's C, in (0, 1].")] = 1.0,
    delta: Annotated[float, typer.Option(help="FedConPE's probability of failure.")] = 0.1,
    null_space: Annotated[
        str,
        typer.Option(help="FedConPE's questions about directions that no active arm has: skip, or ask as in Python."),
    ] = "skip",
    seed: Annotated[int, typer.Option(help="Seed of everything, a catalog that is not prepared yet included.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for tables and the figure.")] = Path("results/run"),
) -> None:
    """The paper's headline: FedConPE, its six baselines, a learner that shares everything, and uniform play.

    The defaults are the reading of the paper that comes closest to its figures on the synthetic data: users as drawn,
    N = C = 1, sigma the noise, counts rounded up, questions about directions that no active arm has skipped (in Python
    fb.FedConPE() asks them), baselines with the constants of their public code.

    Prints a table and writes regret.png, final.csv, summary.csv, and what Results.load reads: curves.parquet,
    phases.parquet, settings.json and their SHA256SUMS.
    """
    catalog = fb.datasets.load(data, seed=seed)
    ours = fb.FedConPE(N=n, C=c, delta=delta, null_space=null_space)
    algorithms = line_up(ours, algorithm)
    setting: dict[str, Any] = {
        "clients": clients,
        "arms": arms,
        "horizon": horizon,
        "noise": noise,
        "users": users,
        "seeds": seeds,
        "seed": seed,
    }
    make_sweep(catalog, algorithms, **setting)  # checks it
    _checks.folder("out", out)  # what cannot be written to should be known now
    say(
        f"{catalog.name}: d={catalog.dim}, {len(catalog.arms)} arms, {len(catalog.key_terms)} key terms, users of norm "
        f"up to {catalog.user_bound:.3g}. M={clients}, K={arms}, T={horizon}, noise {noise:g}, {users} users x "
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}."
    )
    results = fb.simulate(catalog, algorithms, **setting)
    save(results, out)
    show_table(results)
    if ours in algorithms:
        show_headline(results)
        show_phases(results, catalog, c)
        show_bound(results, ours, catalog)
    told = results.settings
    say(
        f"{len(results.final())} runs in {told['run_seconds']:.1f} s, after {told['compile_seconds']:.1f} s of "
        f"compilation. Curves: {out / 'regret.png'}"
    )
    say(
        "Next: fedbandit run --help for other settings, fedbandit sweep --help for grids, fedbandit reproduce --quick "
        "for the paper's claims."
    )


def line_up(ours: Algorithm, names: list[str] | None) -> list[Algorithm]:
    """FedConPE, its baselines and two to measure them by, or those that are named."""
    from fedbandit_jax.papers.fedconpe import LINE_UP

    found = {one.title: one for one in (ours, *LINE_UP[1:], fb.SharedLinUCB(), fb.Uniform())}
    for name in names or ():
        _checks.choice("algorithm", name, found)
    return [one for title, one in found.items() if title in (names or found)]


def show_table(results: fb.Results) -> None:
    """Regret with its interval, and means of the rest, in 80 columns."""
    table = Table(title="At the last round, means")
    for heading in ("", "regret", "95 % interval", *OTHERS.values()):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    regret = results.summary(columns="all").set_index("label")
    others = [results.summary(metric).set_index("label")["mean"] for metric in OTHERS]
    for label, row in regret.iterrows():
        known = row["low"] == row["low"]
        interval = f"[{number(row['low'])}, {number(row['high'])}]" if known else reason(row).replace(" of ", "/")
        questions, scalars, error = (column[label] for column in others)
        told = number(questions), number(scalars), f"{error:.3g}"
        table.add_row(str(label), number(row["mean"]), escape(interval), *told)
    console.print(table)


def show_headline(results: fb.Results) -> None:
    """How far FedConPE is from the best of the paper's baselines."""
    from fedbandit_jax.papers.fedconpe import BASELINES
    from fedbandit_jax.papers.verdict import US, apart

    played = set(results.final()["label"])
    if not played & set(BASELINES):
        return
    table = results.compare(US, columns="all")
    table = table[table["other"].isin(BASELINES)]
    best = table.loc[table["percent_below"].idxmin()]
    told = apart(best, best["other"])
    those = "the paper's six baselines" if played >= set(BASELINES) else "the paper's baselines here"
    say(f"FedConPE's regret is {told}, the best of {those}.")
    if "SharedLinUCB" in played:
        say("SharedLinUCB is apart: its clients send everything every round.")


def show_phases(results: fb.Results, catalog: fb.Catalog, C: float) -> None:
    """What the phases tell of the theory."""
    phases = results.phases()
    phases = phases[phases["algorithm"] == "FedConPE"]
    whole = phases[phases["complete"]]
    per_run = phases.groupby(["user", "seed"])
    judged = whole.groupby(["user", "seed"])["good_event"].all()
    good = f"in {judged.mean():.0%} of the runs" if len(judged) else "not judged, as no phase was whole"
    say(
        f"FedConPE's phases: {per_run['phase'].max().mean():.1f} a run. Good event {good}, best arm kept in "
        f"{per_run['best_arm_active'].all().mean():.0%}. The eigenvalue lemma's bound held in "
        f"{phases['lemma_holds'].mean():.0%} of the phases.{assumption_2(catalog, C)}"
    )


def assumption_2(catalog: fb.Catalog, C: float) -> str:
    """A sentence where the key terms offer less than C, which the eigenvalue lemma assumes; else nothing."""
    offered = catalog.realised_C
    return f" What it assumes fails here: C={C:g}, but the key terms offer {offered:.3g}." if offered < C else ""


def show_bound(results: fb.Results, ours: fb.FedConPE, catalog: fb.Catalog) -> None:
    """Where the theorem's bound says nothing."""
    final = results.final()
    uniform = final.loc[final["label"] == "Uniform", "regret"].mean()
    clients, arms, horizon, noise = (final[name].iloc[0] for name in ("clients", "arms", "horizon", "noise"))
    of_theorem = {"delta": ours.delta, "N": ours.N, "sigma": noise}
    bound = float(fb.theory.regret_upper_bound(horizon, dim=catalog.dim, clients=clients, arms=arms, **of_theorem))
    if catalog.user_bound > 1:
        say(f"The theorem bounds the regret by {bound:,.0f} for users of norm 1 at most: these are longer.")
    elif bound > uniform:
        say(f"The theorem's bound says nothing here: {bound:,.0f}, and uniform play loses {uniform:,.0f}.")


def save(results: fb.Results, out: Path) -> None:
    """Tables and the figure."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results.save(out)
    results.final().to_csv(out / "final.csv", index=False)
    results.summary(columns="all").to_csv(out / "summary.csv", index=False)
    figure: Any = results.plot.curves("regret", y="log").figure
    figure.savefig(out / "regret.png", dpi=150)
    plt.close(figure)


def say(text: str) -> None:
    console.print(text, highlight=False, markup=False)

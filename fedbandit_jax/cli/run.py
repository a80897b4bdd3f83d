"""The shell command `fedbandit run`."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import fedbandit_jax as fb
from fedbandit_jax import _checks
from fedbandit_jax.cli.data import DATA_HELP
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.results.numbers import number, with_half

console = Console()


def run(
    data: Annotated[str, typer.Option(help=DATA_HELP)] = "synthetic",
    clients: Annotated[int, typer.Option(help="M, clients in the federation.")] = 10,
    arms: Annotated[int, typer.Option(help="K, arms of each client.")] = 100,
    horizon: Annotated[int, typer.Option(help="T, rounds; up to 10^9.")] = 6000,
    noise: Annotated[float, typer.Option(help="Standard deviation of rewards and answers.")] = 0.1,
    users: Annotated[int, typer.Option(help="Preference vectors, the first of the catalog.")] = 10,
    seeds: Annotated[int, typer.Option(help="Draws of arm sets and noise for each user.")] = 8,
    n: Annotated[float, typer.Option("--N", help="FedConPE's N: larger asks less and loses more.")] = 1.0,
    c: Annotated[float, typer.Option("--C", help="FedConPE's C, in (0, 1].")] = 1.0,
    delta: Annotated[float, typer.Option(help="FedConPE's probability of failure.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of everything, a catalog that is not prepared yet included.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for tables and the figure.")] = Path("results/run"),
) -> None:
    """FedConPE on one data set, against uniform play and the paper's regret bound.

    Prints a table and writes curves.parquet, phases.parquet, settings.json, final.csv, summary.csv and regret.png.
    """
    catalog = fb.datasets.load(data, seed=seed)
    algorithms = [fb.FedConPE(N=n, C=c, delta=delta), fb.Uniform()]
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
    console.print(
        f"{catalog.name}: d={catalog.dim}, {len(catalog.arms)} arms, {len(catalog.key_terms)} key terms. "
        f"M={clients}, K={arms}, T={horizon}, noise {noise:g}, {users} users x {seeds} seeds.",
        highlight=False,
    )
    results = fb.simulate(catalog, algorithms, **setting)
    bound = fb.theory.regret_upper_bound(
        results.to_pandas()["round"].unique(),
        dim=catalog.dim,
        clients=clients,
        arms=arms,
        delta=delta,
        N=n,
        sigma=noise,
    )
    show_summary(results, float(bound[-1]))
    save_run(results, bound, out)
    seconds = results.settings
    console.print(
        f"{len(results.final())} federations in {seconds['run_seconds']:.1f} s, after "
        f"{seconds['compile_seconds']:.1f} s of compilation. Tables and regret.png are in {out}",
        highlight=False,
    )


def show_summary(results: fb.Results, bound: float) -> None:
    """The table of `run`, and what the phases tell."""
    table = Table(title="At the last round, mean and 95 % interval")
    for heading in ("", "regret", "questions per client", "scalars sent", "error of theta"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    metrics = ("regret", "conversations", "communication", "theta_error")
    columns = [results.summary(metric).set_index("label") for metric in metrics]
    for label in columns[0].index:
        cells = []
        for column in columns:
            mean, high = column.loc[label, ["mean", "high"]]
            cells.append(with_half(mean, high - mean))
        table.add_row(label, *cells)
    table.add_row("upper bound (Theorem)", number(bound), "", "", "")
    console.print(table)

    phases = results.phases()
    whole = phases[phases["complete"]]
    per_run = phases.groupby(["user", "seed"])
    judged = whole.groupby(["user", "seed"])["good_event"].all()
    good = f"in {judged.mean():.1%} of the runs" if len(judged) else "not judged, as no phase was whole"
    console.print(
        f"Phases: {per_run['phase'].max().mean():.1f} a run. Good event {good}, best arm kept in "
        f"{per_run['best_arm_active'].all().mean():.1%}. The eigenvalue lemma's bound held in "
        f"{phases['lemma_holds'].mean():.1%} of the phases.",
        highlight=False,
    )
    uniform = columns[0].loc["Uniform", "mean"]
    if bound > uniform:
        console.print(
            f"The upper bound says nothing here: it exceeds what uniform play loses ({bound:,.0f} > {uniform:,.0f}).",
            highlight=False,
        )


def save_run(results: fb.Results, bound: np.ndarray, out: Path) -> None:
    """Tables and the figure of `run`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results.save(out)
    results.final().to_csv(out / "final.csv", index=False)
    results.summary(columns="all").to_csv(out / "summary.csv", index=False)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    results.only("FedConPE").plot.regret(left)
    results.plot.regret(right)
    right.plot(results.to_pandas()["round"].unique(), bound, color="black", linestyle=":", label="upper bound")
    right.set_yscale("log")
    right.autoscale(axis="y")
    right.legend(frameon=False)
    figure.savefig(out / "regret.png", dpi=150)
    plt.close(figure)

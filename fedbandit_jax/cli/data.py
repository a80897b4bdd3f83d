"""The shell commands `fedbandit data`."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fedbandit_jax as fb
from fedbandit_jax.worlds.catalog import check_npz

DATA_HELP = "'synthetic', a catalog prepared as .npz, or an archive or folder of MovieLens, Last.fm, Yelp or ConLinUCB."

app = typer.Typer(no_args_is_help=True, help="Look at data sets and prepare them.")
console = Console()

Data = Annotated[str, typer.Argument(metavar="PATH", help=DATA_HELP, show_default=False)]
Kind = Annotated[str | None, typer.Option(help="movielens, lastfm, yelp or conlinucb; by default the content tells.")]
NumArms = Annotated[int | None, typer.Option(help="Arms to take, at most; 5000 by default.")]
NumUsers = Annotated[int | None, typer.Option(help="Users to take, at most; 200 by default.")]
Dim = Annotated[int | None, typer.Option(help="Dimensions of the features; 50 by default.")]
Features = Annotated[str | None, typer.Option(help="How features are made: svd (default) or logistic.")]
UserNorm = Annotated[str | None, typer.Option(help="Norm of users: drawn, svd, scaled, given, unit or a number.")]
Normalise = Annotated[bool | None, typer.Option("--normalise", help="Of conlinucb: unit norms of arms and key terms.")]
Seed = Annotated[int, typer.Option(help="Seed of the features, or of the synthetic catalog.")]


@app.command()
def describe(
    path: Data,
    kind: Kind = None,
    num_arms: NumArms = None,
    num_users: NumUsers = None,
    dim: Dim = None,
    features: Features = None,
    user_norm: UserNorm = None,
    normalise: Normalise = None,
    seed: Seed = 0,
) -> None:
    """Print sizes, density, singular values, norms, and how well key terms cover the space."""
    sizes = {"num_arms": num_arms, "num_users": num_users, "dim": dim}
    options = sizes | {"features": features, "user_norm": user_norm, "normalise": normalise}
    catalog = load(path, kind, seed=seed, **options)
    show(catalog)


@app.command()
def prepare(
    path: Data,
    out: Annotated[Path, typer.Argument(metavar="OUT.npz", help="The file to write.", show_default=False)],
    kind: Kind = None,
    num_arms: NumArms = None,
    num_users: NumUsers = None,
    dim: Dim = None,
    features: Features = None,
    user_norm: UserNorm = None,
    normalise: Normalise = None,
    seed: Seed = 0,
) -> None:
    """Make a catalog once and keep it: other commands take OUT.npz in place of the archive."""
    check_npz(out)
    sizes = {"num_arms": num_arms, "num_users": num_users, "dim": dim}
    options = sizes | {"features": features, "user_norm": user_norm, "normalise": normalise}
    catalog = load(path, kind, seed=seed, **options)
    catalog.save(out)
    show(catalog)
    console.print(f"Written to {out}", highlight=False, markup=False, soft_wrap=True)


def load(path: str, kind: str | None, *, seed: int, **options: Any) -> fb.Catalog:
    given = {name: value for name, value in options.items() if value is not None}
    with suppress(KeyError, ValueError):  # a word, then
        given["user_norm"] = float(given["user_norm"])
    return fb.datasets.load(path, kind=kind, seed=seed, **given)


def show(catalog: fb.Catalog) -> None:
    console.print(str(catalog.describe()), highlight=False, markup=False, soft_wrap=True)

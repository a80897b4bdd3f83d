"""Where catalogs come from: drawn, prepared earlier, or made of a publisher's archive."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit_jax import _checks
from fedbandit_jax.datasets.conlinucb import Given, conlinucb, read_conlinucb
from fedbandit_jax.datasets.feedback import Options
from fedbandit_jax.datasets.files import Source, open_source
from fedbandit_jax.datasets.lastfm import lastfm, read_lastfm
from fedbandit_jax.datasets.movielens import movielens, read_movielens
from fedbandit_jax.datasets.synthetic import synthetic
from fedbandit_jax.datasets.synthetic_relative import synthetic_relative
from fedbandit_jax.datasets.yelp import read_yelp, yelp
from fedbandit_jax.worlds.catalog import Catalog

__all__ = ["conlinucb", "lastfm", "load", "movielens", "synthetic", "synthetic_relative", "yelp"]


class Kind(NamedTuple):
    """A kind of raw data: its reader, and the options of it as a dataclass that checks them."""

    read: Callable[[Source, Any], Catalog]
    options: type


KINDS = {
    "movielens": Kind(read_movielens, Options),
    "lastfm": Kind(read_lastfm, Options),
    "yelp": Kind(read_yelp, Options),
    "conlinucb": Kind(read_conlinucb, Given),
}
# One of these files tells what an archive is.
SIGNS = {
    "ratings.csv": "movielens",
    "ratings.dat": "movielens",
    "user_taggedartists.dat": "lastfm",
    "yelp_academic_dataset_review.json": "yelp",
    "review.json": "yelp",
    "arm_suparm_relation.txt": "conlinucb",
}


def load(path: str | Path, *, kind: str | None = None, seed: int = 0, **options: Any) -> Catalog:
    """The catalog that `path` stands for: "synthetic", a prepared .npz, or an archive or folder of raw data.

    `kind` of raw data is "movielens", "lastfm", "yelp" or "conlinucb"; by default it is told from the content.
    `options` go to the loader: num_arms, num_users, dim, user_norm and, for raw data, features; normalise and user_norm
    for "conlinucb", which has its features already. A prepared catalog takes none.
    """
    if kind is not None:
        _checks.choice("kind", kind, KINDS)
    path = _checks.path("path", path, "an archive, a folder or a prepared catalog, or 'synthetic'")
    if str(path) == "synthetic":
        if "features" in options:
            _checks.fail("features", options["features"], "the synthetic catalog is drawn, not made of feedback")
        check_options(options, list(inspect.signature(synthetic).parameters)[1:])
        return synthetic(seed, **options)
    if path.suffix == ".npz":
        if options:
            _checks.fail(*next(iter(options.items())), f"{path} is prepared already, with the options of that time")
        return Catalog.load(path)
    if not path.exists() and _checks.nearest(str(path), ["synthetic"]):
        raise FileNotFoundError(f"{path} does not exist: did you mean 'synthetic'?")
    checked = {one: checked_options(KINDS[one], options, seed) for one in ([kind] if kind else KINDS)}
    wrong = {one: found for one, found in checked.items() if isinstance(found, ValueError)}
    if len(wrong) == len(checked) and not path.is_dir():  # an archive may take long to open
        raise next(iter(wrong.values()))
    with open_source(path) as source:
        kind = kind or guess_kind(source)
        if kind in wrong:
            raise wrong[kind]
        return KINDS[kind].read(source, checked[kind])


def checked_options(kind: Kind, given: dict[str, Any], seed: int) -> Any:
    """The options of a kind of data, or what is wrong with them."""
    known = [field.name for field in dataclasses.fields(kind.options)]
    try:
        check_options(given, [name for name in known if name != "seed"])
        return kind.options(**given, **({"seed": seed} if "seed" in known else {}))
    except ValueError as error:
        return error


def check_options(given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"{name!r} is not an option of this data set: {_checks.hint(name, known)}")


def guess_kind(source: Source) -> str:
    """Which data set the files belong to."""
    found = {kind for name, kind in SIGNS.items() if source.has(name)}
    if len(found) != 1:
        what = " and ".join(sorted(found)) or "no known data set"
        raise ValueError(f"{source.path} holds {what}; it must hold one of {', '.join(SIGNS)}")
    return found.pop()

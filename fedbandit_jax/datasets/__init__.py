"""Where catalogs come from: drawn, prepared earlier, or made of a publisher's archive."""

import dataclasses
import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedbandit_jax import _checks
from fedbandit_jax.datasets.feedback import Options
from fedbandit_jax.datasets.files import Source, open_source
from fedbandit_jax.datasets.lastfm import lastfm, read_lastfm
from fedbandit_jax.datasets.movielens import movielens, read_movielens
from fedbandit_jax.datasets.synthetic import synthetic
from fedbandit_jax.datasets.yelp import read_yelp, yelp
from fedbandit_jax.worlds.catalog import Catalog

__all__ = ["lastfm", "load", "movielens", "synthetic", "yelp"]

READERS = {"movielens": read_movielens, "lastfm": read_lastfm, "yelp": read_yelp}
# One of these files tells what an archive is.
SIGNS = {
    "ratings.csv": "movielens",
    "ratings.dat": "movielens",
    "user_taggedartists.dat": "lastfm",
    "yelp_academic_dataset_review.json": "yelp",
    "review.json": "yelp",
}


def load(path: str | Path, *, kind: str | None = None, seed: int = 0, **options: Any) -> Catalog:
    """The catalog that `path` stands for: "synthetic", a prepared .npz, or an archive or folder of raw data.

    `kind` of raw data is "movielens", "lastfm" or "yelp"; by default it is told from the content. `options` go to
    the loader: num_arms, num_users, dim, user_norm and, for raw data, features. A prepared catalog takes none.
    """
    if kind is not None:
        _checks.choice("kind", kind, READERS)
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
    check_options(options, [field.name for field in dataclasses.fields(Options) if field.name != "seed"])
    checked = Options(**options, seed=seed)
    with open_source(path) as source:
        return READERS[kind or guess_kind(source)](source, checked)


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

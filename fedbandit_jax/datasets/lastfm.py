"""Last.fm (HetRec 2011): artists are arms, tags are key terms, to tag an artist is to like it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedbandit_jax.datasets.feedback import Counts, Options, Piece, make_catalog
from fedbandit_jax.datasets.files import Source, open_source
from fedbandit_jax.datasets.tables import read_pieces, read_rows
from fedbandit_jax.worlds.catalog import Catalog

ASSIGNMENT = {"userID": int, "artistID": int, "tagID": int}


def lastfm(
    path: str | Path,
    *,
    num_arms: int = 5000,
    num_users: int = 200,
    dim: int = 50,
    features: str = "svd",
    seed: int = 0,
    user_norm: str | float = "svd",
) -> Catalog:
    """A catalog from the archive hetrec2011-lastfm-2k or its folder.

    It takes the users and artists with most tag assignments, up to the numbers given. `features` is "svd" or
    "logistic". An artist's key terms are the tags that anyone gave it. With R = Theta S A', `user_norm` is "svd" (rows
    of Theta), "scaled" (of Theta S), "unit" or a positive number.
    """
    options = Options(num_arms, num_users, dim, features, seed, user_norm)
    with open_source(path) as source:
        return read_lastfm(source, options)


def read_lastfm(source: Source, options: Options) -> Catalog:
    assignments = source.find("user_taggedartists.dat")
    artists, tags = source.find("artists.dat"), source.find("tags.dat")
    names = {int(artist): name for artist, name in read_rows(source, artists, ("id", "name"), separator="\t")}
    words = {
        int(tag): word
        for tag, word in read_rows(source, tags, ("tagID", "tagValue"), separator="\t", encoding="latin-1")
    }
    tagged: dict[int, set[int]] = {}
    for piece in read_pieces(source, assignments, "reading", ASSIGNMENT, separator="\t"):
        pairs = np.unique(np.stack([piece["artistID"].to_numpy(), piece["tagID"].to_numpy()]), axis=1)
        for artist, tag in pairs.T.tolist():
            tagged.setdefault(artist, set()).add(tag)

    def stream(task: str) -> Iterator[Piece]:
        for piece in read_pieces(source, assignments, task, ASSIGNMENT, separator="\t"):
            yield Piece(piece["userID"], piece["artistID"], np.ones(len(piece), bool))

    def raw(counts: Counts) -> dict[str, int]:
        return {
            "users": len(counts.users),
            "artists": len(names),
            "artists tagged": len(tagged),
            "tagged artists without a name": len(tagged.keys() - names.keys()),
            "tag assignments": counts.total,
        }

    return make_catalog(
        "lastfm",
        source.path,
        options,
        stream=stream,
        terms={a: sorted({words.get(tag, f"tag {tag}") for tag in given}) for a, given in tagged.items()},
        arm_name=lambda artist: names.get(artist, f"artist {artist}"),
        raw=raw,
    )

"""MovieLens: movies are arms, genres are key terms, a rating above 3 is liking."""

from collections.abc import Iterator
from pathlib import Path

from fedbandit_jax.datasets.feedback import Counts, Options, Piece, likes, make_catalog
from fedbandit_jax.datasets.files import Member, Source, open_source
from fedbandit_jax.datasets.tables import read_pieces, read_rows
from fedbandit_jax.worlds.catalog import Catalog

NO_GENRES = "(no genres listed)"
RATING = {"userId": int, "movieId": int, "rating": float}
MOVIE = ("movieId", "title", "genres")


def movielens(
    path: str | Path,
    *,
    num_arms: int = 5000,
    num_users: int = 200,
    dim: int = 50,
    features: str = "svd",
    seed: int = 0,
    user_norm: str | float = "svd",
) -> Catalog:
    """A catalog from a MovieLens archive or folder: every release with .csv (latest, 20M, 25M, 32M) or :: (1M, 10M).

    It takes the users and movies with most ratings, up to the numbers given. `features` is "svd" or "logistic". With
    R = Theta S A', `user_norm` is "svd" (rows of Theta), "scaled" (of Theta S), "unit" or a positive number.
    """
    options = Options(num_arms, num_users, dim, features, seed, user_norm)
    with open_source(path) as source:
        return read_movielens(source, options)


def read_movielens(source: Source, options: Options) -> Catalog:
    ratings = source.find("ratings.csv", "ratings.dat")
    movies = source.find(ratings.name.rpartition("/")[2].replace("ratings", "movies"))
    titles, genres = read_movies(source, movies)

    def stream(task: str) -> Iterator[Piece]:
        return read_ratings(source, ratings, task)

    def raw(counts: Counts) -> dict[str, int]:
        return {
            "users": len(counts.users),
            "movies": len(titles),
            "movies rated": len(counts.arms),
            "ratings": counts.total,
            "ratings above 3": counts.positive,
        }

    return make_catalog(
        "movielens", source.path, options, stream=stream, terms=genres, arm_name=titles.__getitem__, raw=raw
    )


def read_movies(source: Source, member: Member) -> tuple[dict[int, str], dict[int, list[str]]]:
    """Titles and genres by movie id."""
    if member.name.endswith(".csv"):
        rows = read_rows(source, member, MOVIE, separator=",")
    else:
        rows = read_rows(source, member, MOVIE, separator="::", header=False, encoding="latin-1")
    titles: dict[int, str] = {}
    genres: dict[int, list[str]] = {}
    for movie, title, listed in rows:
        titles[int(movie)] = title
        genres[int(movie)] = [] if listed == NO_GENRES else sorted({genre for genre in listed.split("|") if genre})
    return titles, genres


def read_ratings(source: Source, member: Member, task: str) -> Iterator[Piece]:
    if member.name.endswith(".csv"):
        pieces = read_pieces(source, member, task, RATING, separator=",")
    else:
        pieces = read_pieces(source, member, task, RATING, separator="::", names=[*RATING, "timestamp"])
    for piece in pieces:
        yield Piece(piece["userId"], piece["movieId"], likes(piece["rating"]))

"""Yelp: businesses are arms, categories are key terms, a review with more than 3 stars is liking."""

import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.json

from fedbandit_jax.datasets.feedback import Counts, Options, Piece, likes, make_catalog
from fedbandit_jax.datasets.files import Block, Member, Source, numbered_lines, open_source
from fedbandit_jax.datasets.tables import all_finite, parse_object
from fedbandit_jax.worlds.catalog import Catalog

PREFIX = "yelp_academic_dataset_"  # some releases have it, some not
REVIEW = pa.schema([("user_id", pa.string()), ("business_id", pa.string()), ("stars", pa.float64())])
PARSE_BYTES = 4 << 20  # pyarrow parses pieces of this size side by side


def yelp(
    path: str | Path,
    *,
    num_arms: int = 5000,
    num_users: int = 200,
    dim: int = 50,
    features: str = "svd",
    seed: int = 0,
    user_norm: str | float = "svd",
) -> Catalog:
    """A catalog from the archive of the Yelp Open Dataset or its folder.

    It takes the users and businesses with most reviews, up to the numbers given. `features` is "svd" or "logistic".
    Of several reviews of a business by one user, one that likes it is enough. With R = Theta S A', `user_norm` is
    "svd" (rows of Theta), "scaled" (of Theta S), "unit" or a positive number.
    """
    options = Options(num_arms, num_users, dim, features, seed, user_norm)
    with open_source(path) as source:
        return read_yelp(source, options)


def read_yelp(source: Source, options: Options) -> Catalog:
    reviews = source.find(f"{PREFIX}review.json", "review.json")
    businesses = source.find(f"{PREFIX}business.json", "business.json")
    names, categories = read_businesses(source, businesses)

    def stream(task: str) -> Iterator[Piece]:
        return read_reviews(source, reviews, task)

    def raw(counts: Counts) -> dict[str, int]:
        return {
            "users": len(counts.users),
            "businesses": len(names),
            "businesses reviewed": len(counts.arms),
            "reviews": counts.total,
            "reviews above 3 stars": counts.positive,
        }

    return make_catalog(
        "yelp", source.path, options, stream=stream, terms=categories, arm_name=names.__getitem__, raw=raw
    )


def read_businesses(source: Source, member: Member) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Names and categories by business id."""
    names: dict[str, str] = {}
    categories: dict[str, list[str]] = {}
    for number, line in source.lines(member):
        business = parse_object(source, member, number, line)
        if not isinstance(business.get("business_id"), str):
            raise ValueError(f"{source.place(member, number)} has no text for business_id")
        listed = business.get("categories") or []
        if isinstance(listed, str):
            listed = listed.split(",")
        if not isinstance(listed, list) or not all(isinstance(category, str) for category in listed):
            raise ValueError(f"{source.place(member, number)} has categories that are not text, a list of text or null")
        names[business["business_id"]] = str(business.get("name", business["business_id"]))
        categories[business["business_id"]] = sorted({c.strip() for c in listed if c.strip()})
    return names, categories


def read_reviews(source: Source, member: Member, task: str) -> Iterator[Piece]:
    """Who gave what how many stars, a block of the file at a time; the texts are skipped."""
    for block in source.blocks(member, task):
        if not block.data.strip():
            continue
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(block.data),
                read_options=pyarrow.json.ReadOptions(block_size=PARSE_BYTES),
                parse_options=pyarrow.json.ParseOptions(explicit_schema=REVIEW, unexpected_field_behavior="ignore"),
            ).combine_chunks()
            if any(column.null_count for column in table.columns) or not all_finite(table["stars"]):
                raise pa.ArrowInvalid("a field is missing or not finite")
        except pa.ArrowInvalid as error:
            explain(source, member, block)
            raise ValueError(f"{source.place(member, block.first_line)} or one after it is wrong: {error}") from error
        users, businesses, stars = (column.chunk(0) for column in table.columns)
        yield Piece(users, businesses, likes(stars))


def explain(source: Source, member: Member, block: Block) -> None:
    """Name the first line that is not a review; pyarrow does not say which it is."""
    for number, line in numbered_lines(block):
        review = parse_object(source, member, number, line)
        for name in REVIEW.names[:2]:
            if not isinstance(review.get(name), str):
                raise ValueError(f"{source.place(member, number)} has no text for {name}")
        stars = review.get("stars")
        if isinstance(stars, bool) or not isinstance(stars, int | float) or not math.isfinite(stars):
            raise ValueError(f"{source.place(member, number)} has stars {stars!r}; it must be a number")

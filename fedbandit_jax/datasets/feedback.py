"""From a stream of feedback to a catalog: count, select, factorise.

The stream is read twice, once to count and once to collect, so that no more than a piece of it is held at a time.
"""

import heapq
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedbandit_jax import _checks
from fedbandit_jax.datasets.features import (
    FEATURES,
    USER_NORMS,
    Feedback,
    key_term_means,
    logistic_factors,
    scale_users,
    svd_factors,
    term_weights,
)
from fedbandit_jax.worlds.catalog import Catalog

POSITIVE_ABOVE = 3  # a rating above it is liking
NO_DIRECTION = 1e-8  # a row shorter than this share of the longest is rounding


@dataclass(frozen=True)
class Options:
    """How much of a data set to take, and how to make features of it."""

    num_arms: int = 5000
    num_users: int = 200
    dim: int = 50
    features: str = "svd"
    seed: int = 0
    user_norm: str | float = "svd"

    def __post_init__(self) -> None:
        arms, users = _checks.whole("num_arms", self.num_arms), _checks.whole("num_users", self.num_users, 2)
        dim = _checks.whole("dim", self.dim, 1, min(arms, users), "the least of num_arms and num_users")
        _checks.choice("features", self.features, FEATURES)
        seed = _checks.whole("seed", self.seed, 0, 2**31 - 1)
        norm = _checks.real_or_word("user_norm", self.user_norm, 0, float("inf"), "()", USER_NORMS)
        checked = {"num_arms": arms, "num_users": users, "dim": dim, "seed": seed, "user_norm": norm}
        for name, number in checked.items():
            object.__setattr__(self, name, number)  # plain numbers, which `origin` keeps


class Piece(NamedTuple):
    """Some of the feedback: a row each, ids as the files have them."""

    users: pa.Array
    arms: pa.Array
    positive: np.ndarray  # bool


class Counts(NamedTuple):
    """How much feedback there is of each user and on each arm."""

    users: Counter
    arms: Counter
    total: int
    positive: int


Stream = Callable[[str], Iterator[Piece]]  # starts from the beginning; the word is for its progress bar


def likes(ratings: pa.Array) -> np.ndarray:
    """Which ratings are positive feedback."""
    return ratings.to_numpy() > POSITIVE_ABOVE


def count(stream: Stream) -> Counts:
    """First pass."""
    users: Counter = Counter()
    arms: Counter = Counter()
    total = positive = 0
    for piece in stream("counting"):
        for counter, ids in ((users, piece.users), (arms, piece.arms)):
            values, counts = pc.value_counts(ids).flatten()
            counter.update(dict(zip(values.to_pylist(), counts.to_pylist(), strict=True)))
        total += len(piece.positive)
        positive += int(piece.positive.sum())
    return Counts(users, arms, total, positive)


def collect(stream: Stream, users: Sequence[Any], arms: Sequence[Any]) -> Feedback:
    """Second pass: the binary matrix of who likes what, (users, arms)."""
    from scipy import sparse

    user_set, arm_set = pa.array(users), pa.array(arms)
    rows, columns = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for piece in stream("collecting"):
        mine = pc.and_(pc.is_in(piece.users, value_set=user_set), pa.array(piece.positive))
        column = pc.index_in(piece.arms.filter(mine), value_set=arm_set)
        known = column.is_valid()
        columns.append(column.filter(known).to_numpy(zero_copy_only=False))
        rows.append(pc.index_in(piece.users.filter(mine).filter(known), value_set=user_set).to_numpy())
    where = (np.concatenate(rows), np.concatenate(columns))
    liked = sparse.csr_matrix((np.ones(len(where[0]), bool), where), shape=(len(users), len(arms)))
    liked.sum_duplicates()  # a user may have tagged or rated an arm twice
    return liked


def most_frequent(counts: Mapping[Any, int], limit: int) -> list[Any]:
    """The ids with the highest counts; of equal ones the smaller id."""
    return heapq.nsmallest(limit, counts, key=lambda key: (-counts[key], key))


def make_catalog(
    name: str,
    path: Path,
    options: Options,
    *,
    stream: Stream,
    terms: Mapping[Any, Sequence[str]],
    arm_name: Callable[[Any], str],
    raw: Callable[[Counts], dict[str, int]],
) -> Catalog:
    """Count, select, factorise.

    Users are those with most feedback, arms those with most feedback among the ones that have key terms (`terms`) and
    that one of these users likes: the others would have no features. `raw` gives the numbers of the whole data set.
    """
    counts = count(stream)
    if not counts.positive:
        raise ValueError(f"{path} has no positive feedback (a tag or a rating above 3) in its {counts.total:,} rows")
    if len(counts.users) == 1:
        raise ValueError(f"{path} has one user only; features need at least 2, and at least dim={options.dim}")
    user_ids = most_frequent(counts.users, options.num_users)
    with_terms = [arm for arm in counts.arms if terms.get(arm)]
    everything = collect(stream, user_ids, with_terms)
    fans = dict(zip(with_terms, np.bincount(everything.indices, minlength=len(with_terms)).tolist(), strict=True))
    arm_ids = most_frequent({arm: counts.arms[arm] for arm in with_terms if fans[arm]}, options.num_arms)
    column = {arm: i for i, arm in enumerate(with_terms)}
    R = everything[:, [column[arm] for arm in arm_ids]]
    kept = np.diff(R.indptr) > 0
    dropped = {
        "arms without key terms": len(counts.arms) - len(with_terms),
        "arms that no chosen user likes": len(with_terms) - sum(n > 0 for n in fans.values()),
        "chosen users who like no chosen arm": int((~kept).sum()),
    }
    R = R[kept]
    user_ids = [user for user, keep in zip(user_ids, kept, strict=True) if keep]
    for what, number in zip(("users", "arms"), R.shape, strict=True):
        asked = {"users": options.num_users, "arms": options.num_arms}[what]
        if number < options.dim:
            raise ValueError(f"{path} has {number} {what} with positive feedback, fewer than dim={options.dim}")
        if number < asked:
            warnings.warn(f"{path} has {number:,} {what} to take, fewer than num_{what}={asked:,}", stacklevel=3)

    factorise = {"svd": svd_factors, "logistic": logistic_factors}[options.features]
    factors = factorise(R, options.dim, options.seed)
    users, user_ids = with_direction(factors.users, user_ids)
    arms, arm_ids = with_direction(factors.arms, arm_ids)
    term_names = sorted({term for arm in arm_ids for term in terms[arm]})
    index = {term: i for i, term in enumerate(term_names)}
    carried = [np.array([index[term] for term in terms[arm]]) for arm in arm_ids]
    unit = arms / np.linalg.norm(arms, axis=1, keepdims=True)
    weights = term_weights(carried, len(term_names))
    key_terms, columns = with_direction(key_term_means(unit, carried, len(term_names)), range(len(term_names)))
    term_names = [term_names[i] for i in columns]
    dropped |= {
        "key terms without a chosen arm": len({t for arm in counts.arms for t in terms.get(arm, ())}) - len(term_names),
        "rows without a direction": sum(R.shape) - len(users) - len(arms),
    }
    return Catalog.from_arrays(
        arms,
        key_terms,
        scale_users(factors, users, options.user_norm),
        weights=weights[:, columns],
        user_norm="given" if options.user_norm in ("svd", "scaled") else options.user_norm,
        name=name,
        arm_names=[arm_name(arm) for arm in arm_ids],
        key_term_names=term_names,
        user_ids=[str(user) for user in user_ids],
        origin={
            "raw": raw(counts),
            "dropped": dropped,
            "options": asdict(options),
            "matrix": {"users": R.shape[0], "arms": R.shape[1], "likes": R.nnz},
            "density": R.nnz / (R.shape[0] * R.shape[1]),
            "singular_values": factors.singular_values.tolist(),
            **({"held_out_log_loss": factors.log_loss} if factors.log_loss else {}),
        },
    )


def with_direction(rows: np.ndarray, ids: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    """The rows that can be scaled to unit norm, and their ids."""
    norms = np.linalg.norm(rows, axis=1)
    kept = norms > NO_DIRECTION * norms.max()
    return rows[kept], [i for i, keep in zip(ids, kept, strict=True) if keep]

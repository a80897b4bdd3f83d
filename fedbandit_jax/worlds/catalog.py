"""Catalog: the pool of arms, key terms and users that federations are drawn from.

Axis letters: J key terms, U users, A arms of the pool, d dimensions.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.worlds.weights import (
    Weights,
    check_weights,
    frozen,
    key_terms_per_arm,
    links_of,
    weights_as_arrays,
    weights_of_arrays,
)

PROBES = 10_000  # unit vectors tried for the realised C
MATRICES = ("arms", "key_terms", "users")
NAMES = ("arm_names", "key_term_names", "user_ids")
DESCRIBED = {
    "name": "data set",
    "key_terms": "key terms",
    "dim": "dimensions",
    "raw": "in the raw data",
    "singular_values": "singular values",
    "held_out_log_loss": "held-out log-loss",
    "norms": "norms before scaling",
    "kept_norms": "norms",
    "key_terms_per_arm": "key terms an arm",
    "key_term_rank": "key terms span",
    "realised_C": "realised C",
}
COUNTED = ("raw", "dropped", "matrix")


class Description(dict[str, Any]):
    """What `Catalog.describe` finds, by name."""

    def __str__(self) -> str:
        rows = [
            (DESCRIBED.get(key, key), self.line(key, value)) for key, value in self.items() if key != "key_terms_span"
        ]
        width = max((len(label) for label, _ in rows), default=0)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)

    __repr__ = __str__

    def line(self, key: str, value: Any) -> str:
        if key == "key_term_rank":
            return f"{value} of {self['dim']} dimensions" + ("" if self["key_terms_span"] else ": not all of R^d")
        if key == "realised_C":
            return f"{value:.4g} (the least over many unit vectors v of max |k.v|)"
        if key in ("norms", "kept_norms"):
            spread = "{} {:.3g} to {:.3g}, median {:.3g}"
            return "; ".join(spread.format(DESCRIBED.get(of, of), *value[of][::2], value[of][1]) for of in value)
        if key == "key_terms_per_arm":
            return "{:g} to {:g}, median {:g}".format(*value[::2], value[1])
        if key in COUNTED:
            return ", ".join(f"{number:,} {of}" for of, number in value.items() if number) or "nothing"
        return in_words(value)


def in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(part)}" for key, part in value.items())
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, Sequence):
        texts = [in_words(part) for part in value]
        return ", ".join(texts if len(texts) <= 6 else [*texts[:3], "...", *texts[-2:], f"{len(texts)} in all"])
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


@dataclass(frozen=True, eq=False)
class Catalog:
    """What federations are drawn from; build it with `from_arrays` or a loader in `datasets`."""

    arms: np.ndarray  # (A, d) float64
    key_terms: np.ndarray  # (J, d); J is 0 where nobody asks
    users: np.ndarray  # (U, d): each row is one possible theta
    name: str = "custom"
    arm_names: tuple[str, ...] | None = None
    key_term_names: tuple[str, ...] | None = None
    user_ids: tuple[str, ...] | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)  # what it was made from, as plain JSON
    weights: Weights | None = None  # (A, J), sparse: of each arm on its key terms; None where nobody knows

    def __post_init__(self) -> None:
        for name in MATRICES:
            matrix = np.array(getattr(self, name))  # a copy that nobody can change, as its hash is taken once
            matrix.setflags(write=False)
            object.__setattr__(self, name, matrix)
        if self.weights is not None:
            object.__setattr__(self, "weights", frozen(self.weights))

    @classmethod
    def from_arrays(
        cls,
        arms: Any,
        key_terms: Any = None,
        users: Any = None,
        *,
        weights: Any = None,
        normalise: bool = True,
        user_norm: str | float = "given",
        name: str = "custom",
        arm_names: Sequence[str] | None = None,
        key_term_names: Sequence[str] | None = None,
        user_ids: Sequence[str] | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> "Catalog":
        """Check three feature matrices (one row an item) and scale their rows.

        Arms and key terms get unit norm, unless normalise=False. Users keep the norms that they have, as these decide
        how large gaps are beside the noise; `user_norm` "unit" or a positive number gives all of them that norm.
        `key_terms` may be None where nobody asks. `weights` of arms (rows) on key terms (columns), sparse or dense, and
        names are optional. `origin` is kept for `describe`, with the norms that the rows had added.
        """
        _checks.flag("normalise", normalise)
        user_norm = _checks.real_or_word("user_norm", user_norm, 0, float("inf"), "()", ("unit", "given"))
        if users is None:  # a default has to follow that of key_terms
            _checks.fail("users", users, "it must be a rectangular array of numbers with one row a user")
        given = dict(zip(MATRICES, (arms, key_terms, users), strict=True))
        scaled = {of: _rows(of, value) for of, value in given.items() if of != "key_terms" or value is not None}
        wanted = dict(zip(MATRICES, (*["unit" if normalise else "given"] * 2, user_norm), strict=True))
        checked = {of: _with_norm(of, rows, wanted[of]) for of, rows in scaled.items()}
        dims = {argument: value.shape[1] for argument, value in checked.items()}
        if len(set(dims.values())) > 1:
            sizes = ", ".join(f"{argument} has {dim}" for argument, dim in dims.items())
            raise ValueError(f"arms, key_terms and users must have the same number of columns, but {sizes}")
        checked = {of: checked.get(of, np.zeros((0, dims["arms"]))) for of in MATRICES}
        named: dict[str, Any] = dict(zip(NAMES, (arm_names, key_term_names, user_ids), strict=True))
        for (argument, names), (of, rows) in zip(named.items(), checked.items(), strict=True):
            named[argument] = names if names is None else _names(argument, names, of, len(rows))
        name = _checks.plain(name)
        if not isinstance(name, str) or not name:
            _checks.fail("name", name, "it must be a word")
        if origin is not None and not isinstance(origin, Mapping):
            _checks.fail("origin", origin, "it must be a table of plain JSON, or None")
        try:
            told = json.loads(json.dumps(origin)) or {}
        except Exception as error:  # methods of a user's own classes may raise anything
            raise ValueError(f"origin={_checks.shown(origin)} is not allowed: it must be plain JSON") from error
        quantiles = {argument: _spread(rows.norms) for argument, rows in scaled.items()}
        links = check_weights(weights, len(checked["arms"]), len(checked["key_terms"]))
        fields: dict[str, Any] = checked | {"weights": links}
        return cls(**fields, **named, name=name, origin={**told, "norms": quantiles})

    @property
    def dim(self) -> int:
        return int(self.arms.shape[1])

    @cached_property
    def links(self) -> np.ndarray | None:
        """The key terms of each arm, (A, n), padded with J; None where nobody knows."""
        return None if self.weights is None else links_of(self.weights)

    @cached_property
    def key_term_rank(self) -> int:
        """Dimension of the span of the key terms; below `dim`, no question can reach every direction."""
        return int(np.linalg.matrix_rank(self.key_terms)) if len(self.key_terms) else 0

    @cached_property
    def realised_C(self) -> float:  # noqa: N802, the paper's letter
        """The least of max_k |k.v| over many unit vectors v: an upper bound of Assumption 2's C.

        The vectors are PROBES random ones and the right singular vectors of the key terms; where key terms do not
        span R^d, one that is orthogonal to all of them gives 0.
        """
        if self.key_term_rank < self.dim:
            return 0.0
        random = np.random.default_rng(0).normal(size=(PROBES, self.dim))
        random /= np.linalg.norm(random, axis=1, keepdims=True)
        probes = np.concatenate([random, np.linalg.svd(self.key_terms, full_matrices=False)[2]])
        parts = np.array_split(probes, 1 + (len(probes) * len(self.key_terms) >> 22))  # of 32 MB of products
        return min(float(np.abs(part @ self.key_terms.T).max(axis=1).min()) for part in parts)

    @cached_property
    def user_bound(self) -> float:
        """S, the largest norm of the users; 1 exactly where rounding alone tells it from 1."""
        largest = float(np.linalg.norm(self.users, axis=1).max())
        return 1.0 if abs(largest - 1) < 1e-12 else largest

    @property
    def _text(self) -> str:
        """All that is not numbers, in one fixed spelling."""
        return json.dumps({key: getattr(self, key) for key in ("name", *NAMES, "origin")})

    @property
    def _weights(self) -> dict[str, np.ndarray]:
        """The weights as plain arrays; none where there are no weights."""
        return {} if self.weights is None else weights_as_arrays(self.weights)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the whole content: two catalogs with the same are the same."""
        digest = hashlib.sha256(self._text.encode())
        for matrix in (self.arms, self.key_terms, self.users):
            digest.update(f"{matrix.shape}".encode())
            digest.update(np.ascontiguousarray(matrix, "<f8").tobytes())
        for part in self._weights.values():  # a catalog without them has the fingerprint of earlier releases
            digest.update(f"{part.shape}".encode())
            digest.update(part.tobytes())
        return digest.hexdigest()[:32]

    def describe(self) -> Description:
        """Sizes, origin, norms, links, and how well the key terms cover R^d; prints as a table."""
        norms = {of: np.linalg.norm(getattr(self, of), axis=1) for of in MATRICES if len(getattr(self, of))}
        links = {}
        if self.weights is not None:
            links = {"links": self.weights.nnz, "key_terms_per_arm": _spread(key_terms_per_arm(self.weights))}
        return Description(
            {
                "name": self.name,
                "fingerprint": self.fingerprint,
                "arms": len(self.arms),
                "key_terms": len(self.key_terms),
                "users": len(self.users),
                "dim": self.dim,
                **self.origin,
                "kept_norms": {of: _spread(lengths) for of, lengths in norms.items()},
                **links,
                "key_term_rank": self.key_term_rank,
                "key_terms_span": self.key_term_rank == self.dim,
                "realised_C": self.realised_C,
            }
        )

    def save(self, path: str | Path) -> Path:
        """Write everything into one .npz file, whole or not at all."""
        path = check_npz(path)
        content = {matrix: getattr(self, matrix) for matrix in MATRICES} | self._weights
        texts = {"text": self._text, "fingerprint": self.fingerprint}
        content |= {key: np.frombuffer(text.encode(), np.uint8) for key, text in texts.items()}
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        with _checks.reasons("path", str(path)):
            try:
                with unfinished.open("wb") as file:
                    np.savez(file, **content)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Catalog":
        """Read what `save` wrote; a file whose content does not match its fingerprint is an error."""
        path = _checks.path("path", path, "a catalog written by Catalog.save")
        if not path.is_file():
            raise _checks.missing(path, "a catalog written by Catalog.save")
        with path.open("rb") as stream:
            try:
                with np.load(stream, allow_pickle=False) as file:
                    content = {key: file[key] for key in (*MATRICES, "text", "fingerprint")}
                    links = {key: file[key] for key in file.files if key.startswith("weights_")}
                text, saved = (content.pop(key).tobytes().decode() for key in ("text", "fingerprint"))
                fields: dict[str, Any] = json.loads(text)
                fields |= {key: tuple(fields[key]) for key in NAMES if fields[key] is not None}
                if links:
                    fields["weights"] = weights_of_arrays(links, (len(content["arms"]), len(content["key_terms"])))
                catalog = cls(**content, **fields)
                found = catalog.fingerprint
            except Exception as error:  # a damaged archive raises whatever its reader stumbles over
                raise ValueError(f"{path} is not a catalog written by Catalog.save, or it was altered") from error
        if found != saved:
            raise ValueError(f"{path} was altered: its content has the fingerprint {found}, not {saved} as when saved")
        return catalog

    def __repr__(self) -> str:
        return (
            f"Catalog({self.name!r}: {len(self.arms)} arms, {len(self.key_terms)} key terms, "
            f"{len(self.users)} users, d={self.dim})"
        )


def check_npz(path: str | Path) -> Path:
    """A path that `Catalog.save` can write to."""
    path = _checks.path("path", path, "a file that ends in .npz")
    if path.suffix != ".npz" or path.is_dir():
        _checks.fail("path", str(path), "it must be a file that ends in .npz")
    if not path.parent.is_dir():
        _checks.fail("path", str(path), f"its folder {path.parent} does not exist")
    return path


class Rows(NamedTuple):
    """Rows as they are given, scaled to unit norm, and the norms that they have."""

    given: np.ndarray
    unit: np.ndarray
    norms: np.ndarray


def _rows(argument: str, value: Any) -> Rows:
    """The rows of a matrix, checked."""
    if _checks.masked(value):
        raise ValueError(f"{argument} is a masked array; it must be a plain one, such as {argument}.filled(0)")
    rows = _checks.floats(value)
    if rows is None:
        found = f", but it is {_checks.shown(value)}"
        raise ValueError(f"{argument} must be a rectangular array of numbers with one row an item{found}")
    if rows.ndim != 2 or rows.size == 0:
        also = ", or None where nobody asks" if argument == "key_terms" else ""
        raise ValueError(f"{argument} has shape {rows.shape}; it must be 2-D with at least one row and column{also}")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(f"{argument}[{row}, {column}]={rows[row, column]} is not a finite number")
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if (largest == 0).any():
        raise ValueError(f"{argument}[{np.argmin(largest)}] is a zero row; every row must have a direction")
    exponent = np.frexp(largest)[1]
    scaled = np.ldexp(rows, -exponent)  # squares of very large and small entries would leave float64's range
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return Rows(rows, scaled / norms, np.ldexp(norms, exponent))


def _names(argument: str, given: Any, of: str, count: int) -> tuple[str, ...]:
    """A name for each row."""
    must = f"it must be a list of names, one for each of {count} {of}"
    if not _checks.is_list(given):
        _checks.fail(argument, given, must)
    try:
        length = len(given)
        names = tuple(map(str, itertools.islice(given, count)))
    except Exception as error:  # a user's own methods may raise anything
        raise ValueError(f"{argument}={_checks.shown(given)} is not allowed: {must}") from error
    if length != count:
        raise ValueError(f"{argument} has {length} entries; it must have one for each of {count} {of}")
    return names


def _with_norm(argument: str, rows: Rows, wanted: str | float) -> np.ndarray:
    """The rows as given, of unit norm, or of another norm."""
    if wanted != "given":
        return rows.unit if isinstance(wanted, str) else rows.unit * wanted
    fits = ((rows.norms >= _checks.SMALLEST) & (rows.norms <= _checks.LARGEST)).ravel()
    if not fits.all():
        row = int(np.argmin(fits))
        sizes = f"from {_checks.SMALLEST:g} to {_checks.LARGEST:g}"
        allowed = f"it must be {sizes}, as programs compute in single precision"
        _checks.fail(f"the norm of {argument}[{row}]", float(rows.norms[row, 0]), allowed)
    return rows.given


def _spread(norms: np.ndarray) -> list[float]:
    """Least, median and largest."""
    found: list[float] = np.quantile(norms, (0, 0.5, 1)).tolist()
    return found

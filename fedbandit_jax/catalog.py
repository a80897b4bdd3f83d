"""Catalog: the pool of arms, key terms and users that federations are drawn from.

Axis letters: J key terms, U users, A arms of the pool, d dimensions.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Catalog:
    """Unit vectors to draw federations from; build it with `from_arrays` or a loader in `datasets`."""

    arms: np.ndarray  # (A, d) float64
    key_terms: np.ndarray  # (J, d)
    users: np.ndarray  # (U, d): each row is one possible theta
    name: str = "custom"

    @classmethod
    def from_arrays(cls, arms: Any, key_terms: Any, users: Any, *, name: str = "custom") -> "Catalog":
        """Check three feature matrices (one row an item) and scale their rows to unit norm."""
        checked = {"arms": arms, "key_terms": key_terms, "users": users}
        checked = {argument: _unit_rows(argument, value) for argument, value in checked.items()}
        dims = {argument: value.shape[1] for argument, value in checked.items()}
        if len(set(dims.values())) > 1:
            sizes = ", ".join(f"{argument} has {dim}" for argument, dim in dims.items())
            raise ValueError(f"arms, key_terms and users must have the same number of columns, but {sizes}")
        return cls(**checked, name=name)

    @property
    def dim(self) -> int:
        return int(self.arms.shape[1])

    @cached_property
    def key_term_rank(self) -> int:
        """Dimension of the span of the key terms; below `dim`, no question can reach every direction."""
        return int(np.linalg.matrix_rank(self.key_terms))

    def __repr__(self) -> str:
        return (
            f"Catalog({self.name!r}: {len(self.arms)} arms, {len(self.key_terms)} key terms, "
            f"{len(self.users)} users, d={self.dim})"
        )


def _unit_rows(argument: str, value: Any) -> np.ndarray:
    try:
        rows = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{argument} must be a rectangular array of numbers with one row an item") from error
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"{argument} has shape {rows.shape}; it must be 2-D with at least one row and column")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(f"{argument}[{row}, {column}]={rows[row, column]} is not a finite number")
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if (largest == 0).any():
        raise ValueError(f"{argument}[{np.argmin(largest)}] is a zero row; every row must have a direction")
    rows = np.ldexp(rows, -np.frexp(largest)[1])  # squares of very large and small entries would leave float64's range
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)

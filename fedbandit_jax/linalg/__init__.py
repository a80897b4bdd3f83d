"""Mathematics that knows no bandit: optimal designs, ridge regression, eigenvalues, spanners, argmax."""

from jaxtyping import Array, Float, Int

Real = Float[Array, ""] | Int[Array, ""] | float | int  # a number, traced or not

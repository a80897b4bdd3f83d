"""World: how arms, users, arrivals and rewards come about; the default is the world of FedConPE's paper.

Axis letters: K arms of a client, A arms of the pool, n of any vectors, d dimensions.
"""

import math
import warnings
from dataclasses import Field, dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Configured, Hyperparameter, check_no_methods, declared, param
from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.sampling import binomial, draw_many, sum_of_signs, sum_of_uniforms
from fedbandit_jax.worlds.catalog import Catalog

SLACK = 1e-6  # rounding of unit vectors


@dataclass(frozen=True, kw_only=True, repr=False)
class World(Configured):
    """Where algorithms play; in a sweep every field may be a list.

    Args:
        contexts: "fixed": a client's K arms are drawn once. "redrawn": anew, without replacement, every round.
        arm_sets: "own": every client has its own arms. "common": all have the same.
        preferences: "shared": all clients serve the sweep's user. "own": each its own. A number c: c groups of clients,
            one user each; client i is in group i mod c. The sweep's user is that of the first client or group; the
            others are drawn from the catalog, none twice while there are more.
        arrivals: "all": all clients play in every round. "one": one of them, drawn at random; T counts all plays.
        rewards: "gaussian", of the sweep's `noise`. "bernoulli": +1 or -1 with mean x.theta, which is 1-subgaussian, so
            that learners are told a noise of 1. "uniform": bounded, with the variance noise^2. "zero-one": 1 with
            probability x.theta, clipped to [0, 1], else 0; learners are told a noise of 1/2.
        shared_noise: True: one draw per client and round serves its pull and all its questions.
        answers: "mean": asked about a key term k, the user says k.theta, with noise. "max": `discount` times the
            largest mean of the arms in the catalog that carry the key term.
        discount: a number in (0, 1]; 1 unless `answers` is "max".
        candidates: "all": every key term may be asked about. "related": those that an arm of the round carries; all, if
            none carries any.
        charged: True: a question about a key term costs regret, the best expected answer of the candidates less its
            own; one about an arm costs what a pull of it would.

    A world of one's own is a subclass, a frozen dataclass with whatever fields it needs. It may have its own
    `theta_at`, `mean`, `reward`, `sigma`, `draw` and `arms`. All of them are pure JAX functions.
    """

    revision: ClassVar[int] = 1  # another number when it plays otherwise than before

    contexts: Hyperparameter = param("fixed", words=("fixed", "redrawn"))
    arm_sets: Hyperparameter = param("own", words=("own", "common"))
    preferences: Hyperparameter = param("shared", low=1, words=("shared", "own"))
    arrivals: Hyperparameter = param("all", words=("all", "one"))
    rewards: Hyperparameter = param("gaussian", words=("gaussian", "bernoulli", "uniform", "zero-one"))
    shared_noise: Hyperparameter = False
    answers: Hyperparameter = param("mean", words=("mean", "max"))
    discount: Hyperparameter = param(1.0, low=0, high=1, ends="(]")
    candidates: Hyperparameter = param("all", words=("all", "related"))
    charged: Hyperparameter = False

    def __init_subclass__(cls) -> None:
        check_no_methods(f"a field of {cls.__name__}", cls)
        super().__init_subclass__()

    def __repr__(self) -> str:
        """The fields that are not as by default."""
        told = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if not self.is_default(field)]
        return f"{type(self).__name__}({', '.join(told)})"

    def is_default(self, field: Field) -> bool:
        value = getattr(self, field.name)
        return type(value) is type(field.default) and bool(value == field.default)

    # --------------------------------------------------------------------------------- what one's own may change

    def theta_at(self, theta: Float[Array, " d"], t: Int[Array, ""]) -> Float[Array, " d"]:
        """The preference in the client's round t, counted from 0; the same in all of them by default."""
        return theta

    def mean(self, x: Float[Array, "n d"], theta: Float[Array, " d"]) -> Float[Array, " n"]:
        """Expected rewards of arms, or answers about key terms."""
        return jnp.clip(x @ theta, 0, 1) if self.rewards == "zero-one" else x @ theta

    def reward(self, mean: Float[Array, "*n"], u: Float[Array, "*n"], noise: Float[Array, ""]) -> Float[Array, "*n"]:
        """A reward or answer of that mean, made from a number u that is uniform in (-1, 1)."""
        if self.rewards == "bernoulli":
            return jnp.where(u < mean, 1, -1).astype(mean.dtype)
        if self.rewards == "zero-one":
            return (u < 2 * mean - 1).astype(mean.dtype)
        if self.rewards == "uniform":
            return mean + noise * math.sqrt(3) * u
        return mean + noise * normal(u)

    def sum_of_rewards(
        self,
        counts: Float[Array, " n"],
        means: Float[Array, " n"],
        noise: Float[Array, ""],
        z: Float[Array, " n"],
        key: Key[Array, ""] | None,
    ) -> Float[Array, " n"]:
        """Sums of `counts` rewards of each mean at once, as phases need them; a standard normal z or a key each.

        Gaussian, bernoulli and zero-one sums are exact, the latter two binomial; uniform ones to 24 binary digits, each
        of which is binomial. A world with its own `reward` plays no phases unless it has its own sums.
        """
        if self.rewards == "gaussian":
            return counts * means + noise * jnp.sqrt(counts) * z
        assert key is not None
        if self.rewards == "bernoulli":
            return sum_of_signs(key, counts, means)
        if self.rewards == "zero-one":
            return binomial(key, counts, means)
        return counts * means + noise * math.sqrt(3) * sum_of_uniforms(key, counts)

    def sigma(self, noise: Real) -> Any:
        """The subgaussian constant that learners are told."""
        return {"bernoulli": 1.0, "zero-one": 0.5}.get(self.rewards, noise)

    def draw(self, keys: Key[Array, " n"], pool: Float[Array, "A d"], K: int) -> Any:
        """What to keep of the K arms of n rounds until they are played, from a key each; a leading axis n.

        A smaller K must give a prefix.
        """
        return draw_many(keys, len(pool), K)

    def arms(self, drawn: Any, pool: Float[Array, "A d"]) -> Float[Array, "K d"]:
        """The arms of a round, from what `draw` has kept for it."""
        return pool.at[drawn].get(mode="promise_in_bounds")

    # ------------------------------------------------------------------------------------------------- properties

    @property
    def fixed(self) -> bool:
        return self.contexts == "fixed"

    @property
    def stationary(self) -> bool:
        """Do expected rewards stay as they are?"""
        return type(self).theta_at is World.theta_at

    @property
    def knows_sums(self) -> bool:
        """Can the rewards of a whole phase be drawn at once?"""
        return self.stationary and self.sums_up

    @property
    def sums_up(self) -> bool:
        """Is `sum_of_rewards` that of `reward`?"""
        return type(self).sum_of_rewards is not World.sum_of_rewards or type(self).reward is World.reward

    @property
    def linear(self) -> bool:
        """True if E[reward] = x.theta (clipped for zero-one rewards)."""
        return type(self).mean is World.mean

    @property
    def of_pool(self) -> bool:
        """Are the arms of a client taken from the catalog's, so that their key terms are known?"""
        return type(self).draw is World.draw and type(self).arms is World.arms

    def check(self, catalog: Catalog, *, clients: int, horizon: int) -> None:
        """Raise ValueError, in one sentence, for what makes no sense, in itself or in a setting."""
        for name, parameter in declared(type(self)).items():
            parameter.check(name, getattr(self, name))
        for name in ("shared_noise", "charged"):
            _checks.flag(name, getattr(self, name))
        if not isinstance(self.preferences, str):
            _checks.whole("preferences", self.preferences, 1, clients, "the clients, as a group has one at least")
        if self.rewards == "bernoulli" and type(self).reward is World.reward:
            if not self.stationary:
                _checks.fail("rewards", self.rewards, "means that change may leave [-1, 1]: `reward` must be its own")
            if self.linear:
                check_bounded(catalog)
        if self.answers == "mean" and self.discount != 1:
            _checks.fail("discount", self.discount, "it is of answers='max' alone, and 1 with answers='mean'")
        for name, word in (("answers", "max"), ("candidates", "related")):
            if getattr(self, name) == word and catalog.weights is None:
                _checks.fail(name, word, f"{catalog.name} has no weights, which say what key terms an arm carries")
        if self.candidates == "related" and not self.of_pool:
            _checks.fail(
                "candidates", self.candidates, "the arms of a round must be the catalog's, not the world's own"
            )
        if self.arrivals == "one" and horizon < clients:
            warnings.warn(
                f"horizon={horizon} counts the plays of all clients with arrivals='one': of {clients}, some never come",
                stacklevel=2,
            )


FIELDS = tuple(field.name for field in fields(World))
# Fields that came later than the first folders of runs: where they are as by default, a run is what it was.
LATER = {name: getattr(World(), name) for name in ("answers", "discount", "candidates", "charged")}


def content_of(world: World) -> dict[str, Any]:
    """What tells a world from others: the name of its class, as `world`, and its fields."""
    told = {name: str(value) if callable(value) else value for name, value in world.hyperparameters().items()}
    return {"world": type(world).__name__} | told


@lru_cache(maxsize=16)
def check_bounded(catalog: Catalog) -> None:
    """Clicks have means between -1 and 1."""
    means = {of: getattr(catalog, of) @ catalog.users.T for of in ("arms", "key_terms")}
    largest, of = max((np.abs(x).max(initial=0), of) for of, x in means.items())
    if largest > 1 + SLACK:
        _checks.fail(
            "rewards",
            "bernoulli",
            f"a click has a mean between -1 and 1, but x.theta of the {of.replace('_', ' ')} of {catalog.name} reaches "
            f"{largest:.3g}; user_norm='unit' scales users, normalise=True arms and key terms",
        )


def normal(u: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The standard normal at a place u in (-1, 1), as jax.random.normal makes it; in float32, whatever u is."""
    return (np.float32(np.sqrt(2)) * lax.erf_inv(u.astype(jnp.float32))).astype(u.dtype)

"""The user whom a client serves: knows theta, which no learner does, and answers with noise."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

BLOCK = 64  # rounds whose noise is drawn at a time


class User(NamedTuple):
    """What rewards and answers are made of, in one run of one client.

    `reward_key` may have an axis: of the users of several clients that are played as one.
    """

    theta: Float[Array, " d"]
    noise: Float[Array, ""]  # standard deviation
    reward_key: Key[Array, "*n"]
    question_key: Key[Array, ""]

    def reward_noise(self, block: Int[Array, ""] | int) -> Float[Array, "BLOCK *n"]:
        """What is added to the mean rewards of the rounds 64 block + 1, ..., 64 block + 64."""
        draw = jax.vmap(block_noise, in_axes=(0, None, None), out_axes=1) if self.reward_key.ndim else block_noise
        return self.noise * draw(self.reward_key, block, self.noise.dtype)

    def answer(self, question: Int[Array, ""] | int, x: Float[Array, " d"]) -> Float[Array, ""]:
        """What the user says of an arm or key term; questions of a run are numbered from 0."""
        return x @ self.theta + self.noise * question_noise(self.question_key, question, x.dtype)


def block_noise(key: Key[Array, ""], block: Int[Array, ""] | int, dtype: Any) -> Float[Array, " BLOCK"]:
    """Standard normals; in float32, so that both precisions play the same run."""
    return jax.random.normal(jax.random.fold_in(key, block), (BLOCK,), jnp.float32).astype(dtype)


def question_noise(key: Key[Array, ""], question: Int[Array, ""] | int, dtype: Any) -> Float[Array, ""]:
    """Standard normal of a question's answer."""
    return jax.random.normal(jax.random.fold_in(key, question), (), jnp.float32).astype(dtype)


def sum_of_answers(
    counts: Float[Array, " n"], means: Float[Array, " n"], noise: Float[Array, ""], z: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Sums of `counts` answers to each of n questions at once, exact in distribution, from one standard normal each."""
    return counts * means + noise * jnp.sqrt(counts) * z

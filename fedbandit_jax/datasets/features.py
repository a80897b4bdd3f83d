"""Features shared by the data sets: factors of a feedback matrix, and key terms as means of their arms.

Axis letters: U users, A arms, J key terms, d dimensions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks, _runtime
from fedbandit_jax._progress import tqdm
from fedbandit_jax.worlds.weights import Weights

Feedback = (
    Any  # a scipy.sparse.csr_matrix, (U, A); SciPy and optax are slow to import, so that only the users of them do
)
FEATURES = ("svd", "logistic")
USER_NORMS = ("svd", "scaled", "unit")

HELD_OUT = 0.1  # share of the cells on which the logistic factors are scored
# Of the logistic factors' squared norms, in units of the largest singular value that noise of the same density has;
# of the values tried on Last.fm and MovieLens, the one with the least held-out log-loss that still fills 50 dimensions.
PENALTY = 0.5
STEPS = 200
LEARNING_RATE = 0.1
CELLS_PER_STEP = 1 << 22


class Factors(NamedTuple):
    """Rows for users and arms whose products picture the feedback, and how well they do."""

    users: np.ndarray  # (U, d)
    arms: np.ndarray  # (A, d)
    singular_values: np.ndarray  # (d,), descending
    log_loss: dict[str, float]  # on held-out cells; {} where none were held out


def key_term_means(arms: np.ndarray, terms: Sequence[np.ndarray], num_key_terms: int) -> np.ndarray:
    """Weighted mean of the arms that carry each key term, (J, d); a zero row where none does.

    `terms[i]` lists the key terms of arm i, each of weight 1 / len(terms[i]).
    """
    owner, term, weight = links(terms)
    total = np.zeros((num_key_terms, arms.shape[1]))
    np.add.at(total, term, weight[:, None] * arms[owner])
    mass = np.bincount(term, weights=weight, minlength=num_key_terms)
    return total / np.where(mass > 0, mass, 1)[:, None]


def term_weights(terms: Sequence[np.ndarray], num_key_terms: int) -> Weights:
    """The weights of `key_term_means`, (A, J)."""
    from scipy import sparse

    owner, term, weight = links(terms)
    return sparse.csr_array((weight, (owner, term)), shape=(len(terms), num_key_terms))


def links(terms: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arm, key term and weight of every link."""
    carried = np.array([len(t) for t in terms])
    owner = np.repeat(np.arange(len(terms)), carried)
    return owner, np.concatenate(terms), 1.0 / carried[owner]


def svd_factors(R: Feedback, dim: int, seed: int) -> Factors:
    """The first `dim` singular vectors of R = Theta S A', (U, A), columns of Theta and A."""
    if dim < min(R.shape):
        from scipy.sparse.linalg import svds

        start = np.random.default_rng(seed).uniform(-1, 1, min(R.shape))
        left, values, right = svds(R.astype(np.float64), k=dim, v0=start)
    else:  # ARPACK cannot find all singular vectors
        left, values, right = np.linalg.svd(R.toarray().astype(np.float64), full_matrices=False)
    order = np.argsort(-values)
    users, arms, values = left[:, order], right[order].T, values[order]
    check_rank(values, dim, max(R.shape) * float(np.finfo(np.float64).eps), "the feedback has rank")
    return Factors(*fix_signs(users, arms), values, {})


def scale_users(factors: Factors, users: np.ndarray, user_norm: str | float) -> np.ndarray:
    """Rows of users, of R = Theta S A' those of Theta ("svd") or Theta S ("scaled"); else as they are."""
    if user_norm not in ("svd", "scaled"):
        return users
    lengths = np.linalg.norm(factors.users, axis=0)  # 1 for singular vectors; logistic factors are Theta sqrt(S)
    return users / lengths * (factors.singular_values if user_norm == "scaled" else 1)


def check_rank(values: np.ndarray, dim: int, tolerance: float, what: str) -> None:
    """Singular vectors whose singular value is only rounding point anywhere."""
    rank = int((values > tolerance * values[0]).sum())
    if rank < dim:
        _checks.fail("dim", dim, f"{what} {rank}, so it must be at most {rank}")


def fix_signs(users: np.ndarray, arms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turn each pair of columns so that the largest entry of the arms' is positive.

    Of entries that are equally large but for rounding the first counts: two machines agree.
    """
    size = np.abs(arms)
    largest = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)
    sign = np.sign(arms[largest, np.arange(arms.shape[1])])
    return users * sign, arms * sign


class LogisticModel(NamedTuple):
    """P(user u likes arm a) = sigmoid(intercept + x_u . y_a)."""

    users: Float[Array, "U d"]
    arms: Float[Array, "A d"]
    intercept: Float[Array, ""]


def logistic_factors(R: Feedback, dim: int, seed: int) -> Factors:
    """Logistic matrix factorisation of R, (U, A), scored on cells held out from the fit.

    Minimises  sum log-loss(R_ua, sigmoid(m + x_u . y_a)) + lam / 2 (|X|^2 + |Y|^2)  over the other cells with Adam, a
    batch of users a step; lam = PENALTY sqrt(p (1 - p)) (sqrt U + sqrt A), p the density of R. Of the many X, Y with
    the same products X Y' = P S Q' it returns P sqrt(S) and Q sqrt(S). The log-loss is also given for two models
    without factors: one probability for all cells, and one for each arm.
    """
    import optax

    _runtime.devices()  # sets up the backend for the simulations to come, if this is the first use of it
    num_users, num_arms = R.shape
    batch = min(num_users, max(1, CELLS_PER_STEP // num_arms))
    data_key, start_key = jax.random.split(jax.random.key(seed))
    density = min(R.nnz, R.shape[0] * R.shape[1] - 1) / (num_users * num_arms)
    penalty = PENALTY * np.sqrt(density * (1 - density)) * (np.sqrt(num_users) + np.sqrt(num_arms))
    user_key, arm_key = jax.random.split(start_key)
    model = LogisticModel(
        0.1 * jax.random.normal(user_key, (num_users, dim), jnp.float32),
        0.1 * jax.random.normal(arm_key, (num_arms, dim), jnp.float32),
        jnp.asarray(np.log(density / (1 - density)), jnp.float32),
    )
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, STEPS))
    state = optimizer.init(model)

    @jax.jit
    def step(
        model: LogisticModel,
        state: Any,
        chosen: Int[Array, " B"],
        liked: Bool[Array, "B A"],
        fitted: Bool[Array, "B A"],
    ) -> tuple[LogisticModel, Any]:
        gradient = jax.grad(penalised_loss)(model, float(penalty), chosen, liked, fitted)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(model, updates), state

    order = np.random.default_rng(seed).permutation(num_users)
    cells: tuple = ()
    for i in tqdm(range(STEPS), desc="logistic factors", unit="step", delay=2, disable=None):
        if not cells or batch < num_users:
            chosen = jnp.asarray(order.take(np.arange(i * batch, (i + 1) * batch), mode="wrap"))
            liked = jnp.asarray(R[np.asarray(chosen)].toarray().astype(bool))
            cells = (chosen, liked, ~held_out_cells(data_key, chosen, num_arms))
        model, state = step(model, state, *cells)

    users, arms, values = balanced(np.asarray(model.users, np.float64), np.asarray(model.arms, np.float64))
    check_rank(values, dim, 1e-5, "the logistic factors fill")
    return Factors(*fix_signs(users, arms), values, held_out_loss(model, data_key, R, batch))


def held_out_cells(key: Key[Array, ""], users: Int[Array, " B"], num_arms: int) -> Bool[Array, "B A"]:
    """Which cells of these users' rows are for scoring; it depends on the key, the user and the arm alone."""
    return jax.vmap(lambda u: jax.random.bernoulli(jax.random.fold_in(key, u), HELD_OUT, (num_arms,)))(users)


def cell_losses(logits: Float[Array, "B A"], liked: Bool[Array, "B A"]) -> Float[Array, "B A"]:
    import optax

    return optax.sigmoid_binary_cross_entropy(logits, liked.astype(logits.dtype))


def penalised_loss(
    model: LogisticModel,
    penalty: float,
    chosen: Int[Array, " B"],
    liked: Bool[Array, "B A"],
    fitted: Bool[Array, "B A"],
) -> Float[Array, ""]:
    """The objective of `logistic_factors` over the fitted cells of a batch of users, per cell."""
    share = len(chosen) / len(model.users)
    rows = model.users[chosen]
    losses = cell_losses(model.intercept + rows @ model.arms.T, liked)
    norms = (rows**2).sum() + share * (model.arms**2).sum()
    return (jnp.where(fitted, losses, 0).sum() + penalty / 2 * norms) / liked.size


def balanced(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P sqrt(S), Q sqrt(S) and S of X Y' = P S Q', without forming the product."""
    (user_basis, user_part), (arm_basis, arm_part) = np.linalg.qr(X), np.linalg.qr(Y)
    left, values, right = np.linalg.svd(user_part @ arm_part.T)
    return user_basis @ left * np.sqrt(values), arm_basis @ right.T * np.sqrt(values), values


def held_out_loss(model: LogisticModel, key: Key[Array, ""], R: Feedback, batch: int) -> dict[str, float]:
    """Mean log-loss on the held-out cells of the model and of probabilities learned without factors."""
    num_users, num_arms = R.shape
    held, likes = np.zeros(num_arms), np.zeros(num_arms)  # held-out cells of each arm, and the likes among them
    factors = 0.0
    for first in range(0, num_users, batch):
        chosen = jnp.arange(first, min(first + batch, num_users))
        liked = jnp.asarray(R[first : first + batch].toarray().astype(bool))
        scored = held_out_cells(key, chosen, num_arms)
        losses = cell_losses(model.intercept + model.users[chosen] @ model.arms.T, liked)
        factors += float(jnp.where(scored, losses, 0).sum())
        held += np.asarray(scored.sum(axis=0))
        likes += np.asarray((scored & liked).sum(axis=0))
    trained = num_users - held
    trained_likes = np.asarray(R.sum(axis=0), np.float64).ravel() - likes
    overall = trained_likes.sum() / trained.sum()
    # The arm's own rate, with one more cell of the overall rate: no probability is 0 or 1.
    by_arm = (trained_likes + overall) / (trained + 1)

    def loss(probability: np.ndarray | float) -> float:
        return float(-(likes * np.log(probability) + (held - likes) * np.log1p(-probability)).sum() / held.sum())

    return {
        "factors": factors / float(held.sum()),
        "a rate for each arm": loss(by_arm),
        "one rate for all": loss(overall),
    }

"""G-optimal design on a masked arm set.

Minimise g(pi) = max_a a' V(pi)^-1 a over weights pi on the active arms, V(pi) = sum_a pi(a) a a'. By
Kiefer and Wolfowitz the least value is r, the rank of the active arms, so g(pi) <= (1 + tol) r certifies pi.
Several clients that look for one theta share V(pi) and the least value, see `multi_client_design`.

All solvers work in whitened coordinates (designs do not change under linear maps) and are pure functions of
fixed shapes: batch them with `vmap`.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax import _checks
from fedbandit_jax.linalg.portable import by_device, in_turn


class Design(NamedTuple):
    weights: Float[Array, "*M K"]  # pi, zero off the mask
    value: Float[Array, ""]  # g(pi) of the arms as given, from a fresh factorisation of V(pi)
    rank: Int[Array, ""]  # numerical rank of the active arms; cutoff RESOLUTION
    iterations: Int[Array, ""]


RESOLUTION = {"float32": 1e-5, "float64": 1e-10}  # directions of which arms have less do not take part in a design
LEAST_SHARE = 1e-3  # relative weight below which an arm is dropped, when each supported arm costs a message
TIED = 1e-5  # parts as large as each other
SPANNED = 1e-3  # of an arm's norm: with no more left, it is a combination of others
FEW = 16  # rows that are worked on apart from the others, on CPU, where no others matter
ROUNDING = 16  # units in the last place: by rounding, arms seem to have up to 8 of a direction that they do not have

Solution = tuple[Float[Array, " K"], Float[Array, ""], Int[Array, ""]]  # weights, g, iterations


class Whitened(NamedTuple):
    """Active arms as rows u_a with sum_a u_a u_a' / n = I on `rank` of c = min(K, d) columns; the others are 0."""

    rows: Float[Array, "K c"]
    mask: Bool[Array, " K"]
    uncounted: Float[Array, " c"]  # 1 on the columns beyond the rank

    @property
    def rank(self) -> Int[Array, ""]:
        return (self.uncounted == 0).sum(dtype=jnp.int32)

    @property
    def bound(self) -> Float[Array, ""]:
        """r as a float, at least 1 so that an empty arm set divides by nothing."""
        return jnp.maximum(self.rank, 1).astype(self.rows.dtype)

    @property
    def uniform(self) -> Float[Array, " K"]:
        return self.mask / jnp.maximum(self.mask.sum(), 1).astype(self.rows.dtype)

    def information(self, weights: Float[Array, " K"]) -> Float[Array, "c c"]:
        """V(pi), made regular by 1 on the uncounted diagonal."""
        return weighted_gram(self.rows, weights) + jnp.diag(self.uncounted)

    def g(self, weights: Float[Array, " K"]) -> Float[Array, " K"]:
        """u_a' V(pi)^-1 u_a for every arm; 0 off the mask."""
        # A product with L^-1 is faster than a triangular solve: it has K right-hand sides, not d.
        return ((self.rows @ half_inverse(self.information(weights)).T) ** 2).sum(axis=1)


def weighted_gram(rows: Float[Array, "n d"], weights: Float[Array, " n"]) -> Float[Array, "d d"]:
    """sum_i w_i x_i x_i'."""
    return (weights[:, None] * rows).T @ rows


def factor(V: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """L with V = L L', lower triangular; NaN unless V is positive definite."""
    # V is symmetric: its transpose is V in the order of columns that LAPACK wants, without a copy.
    return jnp.linalg.cholesky(V.T, symmetrize_input=False)


def half_inverse(V: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """L^-1 with V = L L'."""
    return lax.linalg.triangular_solve(factor(V), jnp.eye(len(V), dtype=V.dtype), left_side=True, lower=True)


@lru_cache
def random_rotation(dim: int) -> np.ndarray:
    """A fixed random rotation."""
    return np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]


def pivoted_qr(A: Float[Array, "n d"]) -> tuple[Float[Array, "n c"], Float[Array, " c"]]:
    """Rank-revealing Q and |diagonal of R|, by LAPACK's column pivoting (CPU); no more columns than rows."""
    Q, R, _ = lax.linalg.qr(A, full_matrices=False, pivoting=True)
    return Q, jnp.abs(jnp.diagonal(R))


def alternating_qr(A: Float[Array, "n d"]) -> tuple[Float[Array, "n c"], Float[Array, " c"]]:
    """Rank-revealing Q and |diagonal of R| from plain QR steps, which exist on every device.

    A random rotation makes a plain QR rank-revealing up to a heavy-tailed factor (Demmel, Dumitriu and Holtz
    2007); two more QR steps on R' and its factor square the factor away (Stewart's QLP, 1999). The tall Q is A R^-1,
    as GPUs make it of reflections one matrix after another where n > 128; twice, as what is weak is inexact at first.
    Columns of which A has no more than rounding stay near 0, and there are no more than rows.
    """
    n, d = A.shape
    if n < d:
        Q, diagonal = alternating_qr(jnp.pad(A, ((0, d - n), (0, 0))))
        return Q[:n, :n], diagonal[:n]
    rotation = jnp.asarray(random_rotation(A.shape[1]), A.dtype)
    _, R = jnp.linalg.qr(A @ rotation)
    turn, L = jnp.linalg.qr(R.T)
    _, R = jnp.linalg.qr(L.T)
    diagonal = jnp.abs(jnp.diagonal(R))
    missing = diagonal <= jnp.finfo(A.dtype).eps * diagonal.max()

    def divided(X: Float[Array, "n d"], R: Float[Array, "d d"]) -> Float[Array, "n d"]:
        regular = jnp.where(jnp.diag(missing), 1, R)
        return lax.linalg.triangular_solve(regular, X, left_side=False, lower=False)

    Q = divided(A @ (rotation @ turn), R)
    return divided(Q, jnp.linalg.qr(Q)[1]), diagonal


def whiten(arms: Float[Array, "K d"], mask: Bool[Array, " K"]) -> Whitened:
    """Orthonormal coordinates of the active arms and their rank."""
    return at_resolution(*orthonormal(arms, mask), mask, RESOLUTION[str(arms.dtype)])


def orthonormal(arms: Float[Array, "K d"], mask: Bool[Array, " K"]) -> tuple[Float[Array, "K c"], Float[Array, " c"]]:
    """Orthonormal columns that span the active arms, and how much the arms have of each, by a rank-revealing QR.

    Eigenvalues of the Gram matrix would square the condition number, which float32 does not survive.
    """
    active = jnp.where(mask[:, None], arms, 0)
    return by_device(active, cpu=pivoted_qr, default=alternating_qr)


def at_resolution(
    Q: Float[Array, "K c"], diagonal: Float[Array, " c"], mask: Bool[Array, " K"], resolution: float
) -> Whitened:
    """The columns of which the arms have more than a share of the first."""
    counted = diagonal > resolution * jnp.maximum(diagonal.max(), jnp.finfo(Q.dtype).tiny)
    n = mask.sum().astype(Q.dtype)
    rows = jnp.where(mask[:, None] & counted[None, :], jnp.sqrt(n) * Q, 0)
    return Whitened(rows, mask, (~counted).astype(Q.dtype))


def _multiplicative(white: Whitened, tol: Float[Array, ""], max_iterations: int, clients: int = 1) -> Solution:
    """pi <- pi (g/r)^a, normalised, with a Barzilai-Borwein exponent a in [1, 20].

    a = 1 is monotone (Titterington 1976, Yu 2010): a step that is not finite is taken again with it. With several
    clients, the rows are theirs one after another, as many each; the weights of each are normalised, side by side, and
    g adds up the largest of each.
    """
    r = white.bound
    n = white.mask.sum().astype(r.dtype)

    def of_client(x: Float[Array, " K"]) -> Float[Array, "*K"]:
        """The sum over a client's rows, at each of them; of several clients, 1 for those without any."""
        if clients == 1:
            return x.sum()
        total = x.reshape(clients, -1).sum(axis=1)
        return jnp.repeat(jnp.where(total > 0, total, 1), len(x) // clients)

    def value_of(g: Float[Array, " K"]) -> Float[Array, ""]:
        return g.max() if clients == 1 else g.reshape(clients, -1).max(axis=1).sum()

    def log_ratio(g: Float[Array, " K"], weights: Float[Array, " K"]) -> Float[Array, " K"]:
        level = r if clients == 1 else of_client(weights * g)  # its mean over the design, which is r in all
        return jnp.where(white.mask, jnp.log(jnp.maximum(g, jnp.finfo(g.dtype).tiny) / level), 0)

    def unfinished(state: tuple) -> Bool[Array, ""]:
        *_, best, i = state
        return (best > (1 + tol) * r) & (i < max_iterations)

    def step(state: tuple) -> tuple:
        weights, h, a, best_weights, best, i = state
        s = jnp.clip(a * h, -3, 3)
        grown = weights * jnp.exp(s)
        total = of_client(grown)
        new = grown / total
        g = white.g(new)
        new_h = log_ratio(g, new)
        # Norms weighted by pi: without the weights it takes 3 to 5 times the iterations.
        change = jnp.where(white.mask, s - jnp.log(total), 0)
        new_a = jnp.sqrt((new * change**2).sum() / (new * (new_h - h) ** 2).sum())
        value = value_of(g)
        sound = jnp.isfinite(value)
        better = sound & (value < best)
        return (
            jnp.where(sound, new, weights),
            jnp.where(sound, new_h, h),
            jnp.where(sound & jnp.isfinite(new_a), jnp.clip(new_a, 1, 20), 1),
            jnp.where(better, new, best_weights),
            jnp.where(better, value, best),
            i + 1,
        )

    if clients == 1:
        start = white.uniform
        g = (white.rows**2).sum(axis=1)  # V(uniform) = I
    else:
        start = white.mask / of_client(white.mask.astype(r.dtype))
        g = white.g(start)
    init = (start, log_ratio(g, start), jnp.clip(n / r, 1, 3), start, value_of(g), jnp.int32(0))
    *_, weights, value, iterations = lax.while_loop(unfinished, step, init)
    return weights, value, iterations


def _frank_wolfe(white: Whitened, tol: Float[Array, ""], max_iterations: int, refresh: int = 512) -> Solution:
    """Frank-Wolfe on log det V(pi) with exact line search and away steps (Wynn, Fedorov, Atwood).

    Toward the arm of largest g, or away from the arm of least g in the support, by
    gamma = (g_a - r) / (r (g_a - 1)), pi <- (1 - gamma) pi + gamma e_a; an arm with g_a <= 1 only takes up weight and
    is dropped. V^-1 and g follow by the rank-one formula and are recomputed every `refresh` steps and before a design
    is accepted.
    """
    r = white.bound

    def exact(weights: Float[Array, " K"]) -> tuple[Float[Array, "c c"], Float[Array, " K"]]:
        half = half_inverse(white.information(weights))
        return half.T @ half, ((white.rows @ half.T) ** 2).sum(axis=1)

    def step(state: tuple) -> tuple:
        weights, inverse, g, i, steps = state
        ahead = jnp.argmax(jnp.where(white.mask, g, -jnp.inf))
        away = jnp.argmin(jnp.where(weights > 0, g, jnp.inf))
        a = jnp.where(g[ahead] - r >= r - g[away], ahead, away)
        useful = g[a] > 1
        gamma = jnp.where(useful, (g[a] - r) / (r * jnp.where(useful, g[a] - 1, 1)), -jnp.inf)
        # An away step ends where the arm leaves the support; an arm that is the whole support stays.
        lowest = jnp.where(weights[a] < 1, -weights[a] / jnp.maximum(1 - weights[a], 1e-30), 0)
        dropped = gamma <= lowest
        gamma = jnp.maximum(gamma, lowest)
        weights = (1 - gamma) * weights
        weights = weights.at[a].set(jnp.where(dropped, 0, weights[a] + gamma))
        u = inverse @ white.rows[a]
        scale = gamma / (1 - gamma + gamma * g[a])
        projections = white.rows @ u
        inverse = (inverse - scale * jnp.outer(u, u)) / (1 - gamma)
        g = (g - scale * projections**2) / (1 - gamma)
        return weights, inverse, g, i + 1, steps + 1

    def stretch(state: tuple) -> tuple:
        weights, _, i = state
        inverse, g = exact(weights)

        def moving(inner: tuple) -> Bool[Array, ""]:
            _, _, g, i, steps = inner
            return (g.max() > (1 + tol) * r) & (i < max_iterations) & (steps < refresh)

        weights, *_, i, _ = lax.while_loop(moving, step, (weights, inverse, g, i, jnp.int32(0)))
        return weights, white.g(weights).max(), i

    def unfinished(state: tuple) -> Bool[Array, ""]:
        _, value, i = state
        return (value > (1 + tol) * r) & (i < max_iterations)

    start = white.uniform
    return lax.while_loop(unfinished, stretch, (start, white.g(start).max(), jnp.int32(0)))


def _gradient(white: Whitened, tol: Float[Array, ""], max_iterations: int) -> Solution:
    """Adam on -log det V(softmax(x)); the gradient comes from automatic differentiation."""
    import optax

    r = white.bound
    optimiser = optax.adam(optax.exponential_decay(0.3, transition_steps=1000, decay_rate=0.3))

    def weights_of(logits: Float[Array, " K"]) -> Float[Array, " K"]:
        shares = jax.nn.softmax(jnp.where(white.mask, logits, -jnp.inf))
        return jnp.where(white.mask, shares, 0)

    def loss(logits: Float[Array, " K"]) -> Float[Array, ""]:
        return -2 * jnp.log(jnp.diagonal(factor(white.information(weights_of(logits))))).sum()

    def unfinished(state: tuple) -> Bool[Array, ""]:
        _, _, _, value, i = state
        return (value > (1 + tol) * r) & (i < max_iterations)

    def step(state: tuple) -> tuple:
        logits, memory, best_weights, best, i = state
        updates, memory = optimiser.update(jax.grad(loss)(logits), memory)
        logits = jnp.asarray(optax.apply_updates(logits, updates))
        weights = weights_of(logits)
        value = white.g(weights).max()
        better = value < best
        return (
            logits,
            memory,
            jnp.where(better, weights, best_weights),
            jnp.where(better, value, best),
            i + 1,
        )

    start = white.uniform
    logits = jnp.zeros_like(start)
    init = (logits, optimiser.init(logits), start, white.g(start).max(), jnp.int32(0))
    _, _, weights, value, iterations = lax.while_loop(unfinished, step, init)
    return weights, value, iterations


METHODS: dict[str, tuple[Callable[..., Solution], int]] = {  # solver, most iterations
    "multiplicative": (_multiplicative, 500),
    "frank-wolfe": (_frank_wolfe, 50_000),
    "optax": (_gradient, 20_000),
}


def g_optimal_design(
    arms: Float[Array, "K d"],
    mask: Bool[Array, " K"],
    tol: Float[Array, ""] | float = 1e-2,
    *,
    method: str = "multiplicative",
) -> Design:
    """Weights pi on the arms in `mask` with g(pi) <= (1 + tol) r.

    Rank-deficient, duplicate and single arms are fine: the design lives on the span of the active arms.
    A design that misses its tolerance after the method's last iteration says so by its `value`, and so does one of arms
    that are told apart only by directions too weak to take part.
    """
    solve, max_iterations = METHODS[_checks.choice("method", method, METHODS)]

    def of_all(arms: Float[Array, "K d"], mask: Bool[Array, " K"], tol: Float[Array, ""]) -> Design:
        basis = orthonormal(arms, mask)
        white = at_resolution(*basis, mask, RESOLUTION[str(arms.dtype)])
        weights, value, iterations = solve(white, tol, max_iterations)
        as_given = at_resolution(*basis, mask, ROUNDING * float(jnp.finfo(arms.dtype).eps))
        true_value = as_given.g(weights).max()  # NaN where weights vanish that a weak direction needs
        true_value = jnp.where(jnp.isnan(true_value), jnp.inf, true_value)
        return Design(weights, jnp.where(as_given.rank > white.rank, true_value, value), white.rank, iterations)

    def of_few(arms: Float[Array, "K d"], mask: Bool[Array, " K"], tol: Float[Array, ""]) -> Design:
        chosen = first_few(mask)
        found = of_all(arms[chosen], mask[chosen], tol)
        return found._replace(weights=jnp.zeros(len(arms), arms.dtype).at[chosen].set(found.weights))

    def by_number(arms: Float[Array, "K d"], mask: Bool[Array, " K"], tol: Float[Array, ""]) -> Design:
        return lax.cond(mask.sum() <= FEW, of_few, of_all, arms, mask, tol)

    given = arms, mask, jnp.asarray(tol, arms.dtype)
    on_cpu = of_all if min(arms.shape) <= 2 * FEW else partial(in_turn, by_number)
    return by_device(*given, cpu=on_cpu, default=of_all)


def first_few(mask: Bool[Array, " n"]) -> Int[Array, " few"]:
    """Where a mask is true for the first `FEW` times; if that is less often, some other places behind them."""
    return lax.top_k(mask.astype(jnp.float32), FEW)[1]


def multi_client_design(
    arms: Float[Array, "M K d"], mask: Bool[Array, "M K"], tol: Float[Array, ""] | float = 1e-2
) -> Design:
    """Weights pi_i on each client's arms in `mask`, each with sum 1, for one estimate from the pulls of all.

    With V(pi) = sum_i sum_a pi_i(a) a a', over all clients, sum_i max_a a' V(pi)^-1 a <= (1 + tol) r, where r, the rank
    of all active arms, is the least that there is (Huang, Wu, Yang and Shen, NeurIPS 2021). One client's is its
    G-optimal design. A client without active arms has no weights. `value` tells what was reached.
    """
    M, K, d = arms.shape
    white = whiten(arms.reshape(M * K, d), mask.ravel())
    _, max_iterations = METHODS["multiplicative"]
    weights, value, iterations = _multiplicative(white, jnp.asarray(tol, arms.dtype), max_iterations, clients=M)
    return Design(weights.reshape(M, K), value, white.rank, iterations)


def on_support(weights: Float[Array, "*M K"]) -> Float[Array, "*M K"]:
    """Weights without those below a thousandth of the largest, and with the same sum."""
    kept = jnp.where(weights >= LEAST_SHARE * weights.max(axis=-1, keepdims=True), weights, 0)
    total, left = (x.sum(axis=-1, keepdims=True) for x in (weights, kept))
    return kept * (total / jnp.where(left > 0, left, 1))


def spanning_design(arms: Float[Array, "K d"], mask: Bool[Array, " K"], size: Int[Array, ""]) -> Float[Array, " K"]:
    """Equal weights on `size` arms that span what the arms in `mask` span, or on all if there are no more.

    Each is the one of which those before it span least; when they span all, from the start again among the others. A
    zero vector is never picked.
    """
    norms = jnp.linalg.norm(arms, axis=1)

    def pick(_: Int[Array, ""], state: tuple) -> tuple:
        free, rest = state  # arms that are not picked yet; what of each arm is not spanned yet
        left = jnp.where(free, jnp.linalg.norm(rest, axis=1), 0)
        again = ~(left > SPANNED * norms).any()
        rest, left = jnp.where(again, arms, rest), jnp.where(again, jnp.where(free, norms, 0), left)
        a = jnp.argmax(left >= (1 - TIED) * left.max())  # the first of equals: unit vectors differ by rounding
        direction = rest[a] / jnp.where(left[a] > 0, left[a], 1)
        return free.at[a].set(free[a] & (left[a] <= 0)), rest - (rest @ direction)[:, None] * direction[None, :]

    free, _ = lax.fori_loop(0, size, pick, (mask, arms))
    picked = mask & ~free
    return picked / jnp.maximum(picked.sum(), 1).astype(arms.dtype)

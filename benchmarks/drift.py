"""How far float32 updates drift from float64, by the rounds between exact recomputations.

Both precisions see the same pulls and rewards over 100,000 rounds; the arms are those that float32 chooses. Of LinUCB,
whose updates have rank one, of SharedLinUCB with ten clients, whose updates have rank ten, and of ConUCB after 40
questions, which also has the spread of arms. Printed: the largest error of means, widths and spreads of all arms at the
end, relative to the largest mean and to each width and spread.

    python -m benchmarks.drift
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import fedbandit_jax as fb  # first: it protects the backend
from fedbandit_jax.linalg import regression, spread
from fedbandit_jax.linalg.portable import argmax


def drift(arms, theta, key, rounds, refresh, prior=1.0, alpha=0.5, noise=0.1):
    """The errors after `rounds` of clients with arms (M, K, d), refreshing float32 every `refresh`."""
    M, K, d = arms.shape
    first, arms = K * jnp.arange(M, dtype=jnp.int32), arms.reshape(M * K, d)
    narrow, wide = (regression.start(arms.astype(t), prior) for t in (jnp.float32, jnp.float64))

    def add(ridge, arm, reward):
        own = arms.astype(reward.dtype)
        if M == 1:
            return regression.pull(ridge, own, arm[0], reward[0])
        return regression.pull_together(ridge, own, own.T, arm, reward, M)

    def one(t, states):
        narrow, wide = states
        scores = narrow.means + jnp.float32(alpha) * narrow.lengths()
        arm = first + jax.vmap(argmax)(scores.reshape(M, K))
        reward = arms[arm] @ theta + noise * jax.random.normal(jax.random.fold_in(key, t), (M,))
        return add(narrow, arm, reward.astype(jnp.float32)), add(wide, arm, reward)

    def stretch(i, states):
        narrow, wide = lax.fori_loop(i * refresh, (i + 1) * refresh, one, states)
        return regression.recompute(narrow, arms.astype(jnp.float32), jnp.float32(prior)), wide

    whole = rounds // refresh
    narrow, wide = lax.fori_loop(0, whole, stretch, (narrow, wide))
    narrow, wide = lax.fori_loop(whole * refresh, rounds, one, (narrow, wide))
    wide = regression.recompute(wide, arms, prior)
    means = jnp.abs(narrow.means - wide.means).max() / jnp.abs(wide.means).max()
    widths = (jnp.abs(narrow.widths - wide.widths) / wide.widths).max()
    return means, widths


def drift_of_spread(arms, terms, theta, key, rounds, refresh, lam=0.5, alpha=0.25, noise=0.1):
    """As `drift`, of one client with arms (K, d) that has asked about some key terms."""
    W = jnp.eye(arms.shape[1]) + terms.T @ terms
    root, prior = jnp.linalg.cholesky(W), 1 - lam
    half, inverse = jnp.linalg.inv(root), jnp.linalg.inv(W)

    def begin(dtype):
        ridge = regression.start(arms.astype(dtype), prior)
        return spread.of(ridge, *(x.astype(dtype) for x in (arms, root, half)))

    def add(known, arm, reward):
        dtype = reward.dtype
        return spread.pull(known, inverse.astype(dtype), arms.astype(dtype), arm, reward, jnp.asarray(lam, dtype))

    def again(known):
        own, L, H = (x.astype(known.spread.dtype) for x in (arms, root, half))
        return spread.of(regression.recompute(known.ridge, own, prior, lam), own, L, H)

    def one(t, states):
        narrow, wide = states
        means, widths, spreads = spread.means_widths_and_spread(narrow, arms, 1.0)
        bonus = lam * regression.square_root(widths) + (1 - lam) * regression.square_root(spreads)
        arm = argmax(means + jnp.float32(alpha) * bonus)
        reward = arms[arm] @ theta + noise * jax.random.normal(jax.random.fold_in(key, t))
        return add(narrow, arm, reward.astype(jnp.float32)), add(wide, arm, reward)

    def stretch(i, states):
        narrow, wide = lax.fori_loop(i * refresh, (i + 1) * refresh, one, states)
        return again(narrow), wide

    whole = rounds // refresh
    narrow, wide = lax.fori_loop(0, whole, stretch, (begin(jnp.float32), begin(jnp.float64)))
    narrow, wide = lax.fori_loop(whole * refresh, rounds, one, (narrow, wide))
    wide = again(wide)
    means = jnp.abs(narrow.ridge.means - wide.ridge.means).max() / jnp.abs(wide.ridge.means).max()
    widths = (jnp.abs(narrow.ridge.widths - wide.ridge.widths) / wide.ridge.widths).max()
    return means, widths, (jnp.abs(narrow.spread - wide.spread) / wide.spread).max()


def main(rounds=100_000, runs=8):
    catalog = fb.datasets.synthetic(seed=0)
    print(f"d={catalog.dim}, K=100, {rounds} rounds, worst of {runs} runs")
    print("clients | refresh every | means  | widths | spreads")
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        thetas = jnp.asarray(catalog.users[:runs])
        keys = jax.random.split(jax.random.key(0), runs)
        for clients in (1, 10):
            shape = (runs, clients, 100)
            chosen = [rng.choice(5000, 100, replace=False) for _ in range(runs * clients)]
            arms = jnp.asarray(catalog.arms[np.stack(chosen).reshape(shape)])
            for refresh in (512, 1024, 2048, 4096, rounds):
                last = rounds // refresh * refresh - 1  # one round short of a refresh: the worst moment
                play = jax.jit(jax.vmap(lambda a, t, k, r=refresh, last=last: drift(a, t, k, last, r)))
                means, widths = play(arms, thetas, keys)
                name = "never" if refresh == rounds else refresh
                print(f"{clients:>7} | {name!s:>13} | {float(means.max()):.0e} | {float(widths.max()):.0e}")
        arms, terms = (
            jnp.asarray(x[: runs * n].reshape(runs, n, -1)) for x, n in ((catalog.arms, 100), (catalog.key_terms, 40))
        )
        for refresh in (2048, rounds):
            last = rounds // refresh * refresh - 1
            play = jax.jit(jax.vmap(lambda a, k, t, key, r=refresh, last=last: drift_of_spread(a, k, t, key, last, r)))
            means, widths, spreads = (float(x.max()) for x in play(arms, terms, thetas, keys))
            name = "never" if refresh == rounds else refresh
            print(f" ConUCB | {name!s:>13} | {means:.0e} | {widths:.0e} | {spreads:.0e}")


if __name__ == "__main__":
    main()

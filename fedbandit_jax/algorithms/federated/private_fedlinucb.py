"""Private-FedLinUCB (Zhou and Chowdhury 2024): sharing after every batch of rounds, with noise that hides the users."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.federation import Federation, Member, Setting, Synchronised, choices_of, synchronise
from fedbandit_jax.clocks.rounds import Client, Info
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.pooling import Sums
from fedbandit_jax.worlds.stage import uniforms
from fedbandit_jax.worlds.world import normal

LEVELS = 31  # of the tree: more batches than 2^31 are never played


class Noise(NamedTuple):
    """How much a kind of privacy takes."""

    std: Float[Array, ""]  # of an entry that the server adds to a sum over all clients
    lam: Float[Array, ""]  # ridge that keeps V positive definite all the same


@dataclass(frozen=True, kw_only=True)
class PrivateFedLinUCB(Synchronised):
    r"""LinUCB whose clients share sums with noise after every batch of B rounds.

    $$ V_i = \lambda I + \sum_{j : \, \mathrm{bit}_j(k) = 1} \left( G_j + Z_j \right) + W_i, \qquad
       x_t = \arg\max_x \; x^\top \hat\theta_i + \alpha \sqrt{x^\top V_i^{-1} x} $$

    After batch k = 1, 2, ... the sums of all batches so far are released as a tree does it: as the sums G_j over blocks
    of 2^j batches, one for each bit of k that is set, and the noise Z_j of a block is drawn once. W_i is what client i
    saw since. So the noise in V grows with the number of bits, not of batches.

    privacy is "none"; "ldp", noise added by every client; "sdp-amplified" and "sdp-vector-sum", less noise, where a
    shuffler hides who sent what. eps and delta_privacy say how private. batch is B or "theory", sqrt(T/M). lam="theory"
    is as large as the noise demands, sqrt(M) without privacy. alpha="theory" is scale (sqrt(lam) S +
    sigma sqrt(d log(1 + t M/(d lam)) + log(1/delta))) in round t. A batch costs d^2 + d scalars up and down for each
    client, so that messages tell nothing of the users.

    The constants are those of the paper's public code, smaller than its theorems'. With them lam is in the hundreds or
    thousands at eps = 1, and nothing is learned before a client has played as many rounds: eps is the constant to
    scale, and then `scale`.

    When: to see what privacy costs.

    Paper: Zhou and Chowdhury, "On Differentially Private Federated Linear Contextual Bandits", ICLR 2024,
    [arXiv 2302.13945](https://arxiv.org/abs/2302.13945). The noise of the vector sum, a binomial one there, is Gaussian
    of the same variance here.
    """

    optimistic: ClassVar[bool] = True
    made_for: ClassVar[MadeFor] = {"arrivals": ("shares after batches that end together for all clients", ("all",))}

    privacy: Hyperparameter = param("ldp", words=("none", "ldp", "sdp-amplified", "sdp-vector-sum"))
    eps: Hyperparameter = param(1.0, low=0, ends="()")
    delta_privacy: Hyperparameter = param(0.1, low=0, high=1, ends="()")
    batch: Hyperparameter = param(25, low=1, ends="[)", words=("theory",))
    lam: Hyperparameter = param("theory", low=0, ends="()", words=("theory",))
    alpha: Hyperparameter = param("theory", low=0, ends="[)", words=("theory",))
    scale: Hyperparameter = param(1.0, low=0, ends="()", search=Between(0.01, 2))
    delta: Hyperparameter = param(0.01, low=0, high=1, ends="()")
    sigma: Hyperparameter = param(None, low=0, ends="[)")

    def check(self, **setting: Any) -> None:
        super().check(**setting)
        if not isinstance(self.batch, str):
            _checks.whole("batch", self.batch)

    def rounds_of_batch(self, setting: Setting) -> Float[Array, ""]:
        """B, a whole number."""
        if isinstance(self.batch, str):
            return jnp.maximum(jnp.round(jnp.sqrt(setting.horizon / setting.clients)), 1)
        return jnp.asarray(self.batch, setting.horizon.dtype)

    def noise(self, setting: Setting, dim: int) -> Noise:
        """What `privacy` takes; kappa is the number of levels of the tree."""
        M, T = setting.clients, setting.horizon
        if self.privacy == "none":
            return Noise(jnp.zeros_like(M), jnp.sqrt(M))
        batches = T / self.rounds_of_batch(setting)
        kappa = jnp.maximum((2.0 ** jnp.arange(LEVELS) <= batches).sum().astype(M.dtype), 1)
        eps, secret = self.eps, jnp.log(1 / self.delta_privacy)
        spread = jnp.sqrt(kappa + jnp.log(1 / self.delta)) + jnp.sqrt(dim)
        if self.privacy == "sdp-vector-sum":
            s = jnp.sqrt(kappa * secret) * jnp.log(kappa * dim**2 / self.delta_privacy) / eps
            entry = jnp.sqrt(3 / 16) * jnp.log(dim**2 / self.delta_privacy) / eps
            return Noise(entry, jnp.sqrt(kappa) * s * spread)
        if self.privacy == "ldp":
            std = jnp.sqrt(kappa * (secret + eps)) / eps
        else:
            logs = secret * jnp.log1p(kappa / (T * self.delta_privacy)) * jnp.log(M * kappa / self.delta_privacy)
            std = jnp.sqrt(kappa * logs) / (eps * jnp.sqrt(M))
        return Noise(jnp.sqrt(M) * std, jnp.sqrt(M * kappa) * std * spread)

    def prior(self, setting: Setting, dim: int) -> Float[Array, ""]:
        if isinstance(self.lam, str):
            return self.noise(setting, dim).lam
        return jnp.asarray(self.lam, setting.horizon.dtype)

    def choose(self, state: Federation, client: Client, key: Key[Array, ""]) -> Int[Array, "*M"]:
        return choices_of(self.ucb, state.members, client)

    def ucb(self, member: Member, client: Client) -> Float[Array, " K"]:
        means, widths = regression.means_and_widths(member.ridge, client.arms)
        scores = means + self.radius_of(member, client) * regression.square_root(widths)
        return jnp.where(client.mask, scores, -jnp.inf)

    def radius_of(self, member: Member, client: Client) -> Float[Array, ""]:
        setting, shared = client.context, member.ridge.observations - member.unsent
        t = shared / setting.clients + member.unsent + 1
        return self.width(setting, client, member.ridge.theta.size, t)

    def width(self, setting: Setting, client: Client, dim: int, t: Float[Array, ""]) -> Float[Array, ""]:
        """alpha of the formulas in round t."""
        if not isinstance(self.alpha, str):
            return jnp.asarray(self.alpha, t.dtype)
        sigma, lam = client.noise if self.sigma is None else self.sigma, self.prior(setting, dim)
        growth = dim * jnp.log1p(t * setting.clients / (dim * lam)) + jnp.log(1 / self.delta)
        return self.scale * (jnp.sqrt(lam) * client.user_bound + sigma * jnp.sqrt(growth))

    def limit(self, client: Client, unsent: Float[Array, ""], t: Int[Array, ""]) -> Float[Array, ""]:
        ends = t % self.rounds_of_batch(client.context).astype(jnp.int32) == 0
        return jnp.where(ends, -jnp.inf, jnp.inf).astype(unsent.dtype)

    def exchange(self, state: Federation, client: Client, t: Int[Array, ""]) -> tuple[Federation, Info]:
        setting, dim = client.context, len(state.server.moment)
        batches = t // self.rounds_of_batch(setting).astype(jnp.int32)
        std = self.noise(setting, dim).std

        def add_noise(sums: Sums) -> Sums:
            if self.privacy == "none":
                return sums
            gram, moment = tree_noise(setting.key, batches, dim, std)
            return sums.plus(Sums(gram, moment, jnp.zeros_like(moment), jnp.zeros_like(std)))

        return synchronise(state, client, add_noise)


def tree_noise(
    key: Key[Array, ""], k: Int[Array, ""], dim: int, std: Float[Array, ""]
) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
    """The noise in what is released after batch k: of one block for each bit of k that is set.

    A block ends with the batch whose number is k without the lower bits; it has its noise from then on. In a Gram
    matrix that is (E + E') / 2, E of independent entries: off the diagonal their variance is half as large.
    """
    upper = dim * (dim + 1) // 2

    def add_block(carry: tuple) -> tuple:
        block, total = carry
        return block & (block - 1), total + normal(uniforms(jax.random.fold_in(key, block), (upper + dim,), std.dtype))

    z = std * lax.while_loop(lambda carry: carry[0] > 0, add_block, (k, jnp.zeros(upper + dim, std.dtype)))[1]
    row, column = np.triu_indices(dim)
    place = np.zeros((dim, dim), int)
    place[row, column] = place[column, row] = np.arange(upper)
    return z[place] * np.where(np.eye(dim, dtype=bool), 1, np.sqrt(0.5)).astype(std.dtype), z[upper:]

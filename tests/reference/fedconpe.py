"""FedConPE (arXiv 2405.02881), its relatives without questions, FedLinPE and LinPE, and MACO, pull by pull."""

from dataclasses import dataclass, replace

import numpy as np

from tests.reference.linalg import first_argmax, frank_wolfe, gram
from tests.reference.world import Rewards


@dataclass
class FedConPESettings:
    """Constants of FedConPE; sigma=None means the problem's noise, C a number or "realised"."""

    N: float = 1.0
    C: float | str = 1.0
    delta: float = 0.1
    sigma: float | None = None
    exploration_scale: float = 1.0
    elimination_scale: float = 1.0
    rounding: str = "ceil"
    key_term_rule: str = "absolute"
    null_space: str = "ask"
    ridge: float = 0.0


@dataclass
class FedRun:
    """Curves at the checkpoints, each (P,), and the diagnostics of every phase."""

    regret: np.ndarray
    conversations: np.ndarray
    communication: np.ndarray
    theta_error: np.ndarray
    phases: list


def round_counts(x, rounding, u):
    """Whole numbers for x (n,) -> (n,), in order of the index.

    "ceil": max(1, ceil(x - 1e-4)), so 2.00001 is 2. "unbiased": floor(c_a + u) - floor(c_{a-1} + u), with c
    the cumulative sum of x and one u in [0, 1): the right mean, and the total is kept.
    """
    if rounding == "ceil":
        return np.maximum(1, np.ceil(x - 1e-4))
    return np.diff(np.floor(np.concatenate([[0.0], np.cumsum(x)]) + u))


def pull_counts(pi, amount, rounding, u):
    """How often each arm is pulled: amount * pi(a), amount = 2 d sigma^2 LOG / eps^2. pi (K,) -> (K,) int."""
    supported = pi >= 1e-6
    x = np.where(supported, amount * pi, 0.0)
    if rounding == "unbiased":  # at least one pull in all; without noise it is drawn from the design
        x = x * max(1.0, 1 / x.sum()) if x.sum() > 0 else np.where(supported, pi, 0.0) / pi[supported].sum()
    counts = np.where(supported, round_counts(x, rounding, u), 0).astype(int)
    if counts.sum() == 0:  # x sums to 1 but for the last bit
        counts[np.flatnonzero(supported)[-1]] = 1
    return counts


def choose_key_terms(key_terms, vectors, settings):
    """The server's key term for each uploaded eigenvector, and the constant c in its repetitions.

    k = argmax |k.v| ("absolute") or argmax k.v ("signed"); c = C, or |k.v| if C is "realised".
    key_terms (J, d), vectors (d, n) columns -> indices (n,), c (n,).
    """
    indices, constants = [], []
    for v in vectors.T:
        inner = key_terms @ v
        k = first_argmax(np.abs(inner) if settings.key_term_rule == "absolute" else inner)
        indices.append(k)
        constants.append(max(abs(inner[k]), 1e-6) if settings.C == "realised" else settings.C)
    return np.array(indices, dtype=int), np.array(constants, dtype=float)


def observe(sequence, means, rewards, raw, rng):
    """How often each item occurs in the sequence, and the sum of its noisy observations.

    With `raw` given, the observations of an item are drawn at once, see `Rewards.at_once`; else each one alone.
    sequence (L,) indices, means (n,) -> counts (n,), sums (n,).
    """
    counts = np.bincount(sequence, minlength=len(means))
    if raw is not None:
        return counts, rewards.at_once(counts, means, raw)
    observations = rewards.one_by_one(means[sequence], rng)
    return counts, np.bincount(sequence, weights=observations, minlength=len(means))


def fedconpe(
    arms,
    key_terms,
    theta,
    noise,
    horizon,
    settings,
    checkpoints,
    *,
    design=frank_wolfe,
    eigen=np.linalg.eigh,
    randomness=None,
    rng=None,
    max_phases=48,
    key_terms_used=True,
    num_arms=None,
    server=True,
    first_client=0,
    with_each_term=2,
    any_coverage=False,
):
    """FedConPE for one federation: phases l = 1, 2, ... with eps = 2^-l.

    arms: M arrays (K_i, d); key_terms (J, d); theta (d,), or one of each client, (M, d); noise: a number, Gaussian, or
    the `Rewards` of a world; checkpoints (P,), the last one the horizon.
    design(arms_i, active_i) -> pi (K_i,); eigen(V) -> ascending values (d,), vectors (d, d) as columns.
    randomness: pull_noise(phase, client) and question_noise(phase, client, uploaded), as `Rewards.at_once` needs them
    for the K_i arms and for the eigenpairs that are uploaded, and rounding_uniforms(phase, client) -> two floats; None
    draws from rng, observation by observation.
    num_arms is K in LOG (default: the largest K_i). server=False counts no messages. first_client is the
    number by which the first client is known to `randomness`. with_each_term: scalars that the server sends beside a
    key term. any_coverage: C may be below 1 / sqrt(N).
    """
    arms = [np.asarray(a, dtype=float) for a in arms]
    M, d, T = len(arms), key_terms.shape[1], int(horizon)
    thetas = np.broadcast_to(theta, (M, d))
    rewards = noise if isinstance(noise, Rewards) else Rewards("gaussian", noise)
    N, sigma = settings.N, rewards.told() if settings.sigma is None else settings.sigma
    if T < 2:
        raise ValueError(f"horizon must be at least 2, got {T}")
    if key_terms_used and not any_coverage and settings.C != "realised" and N * settings.C**2 < 1 - 1e-9:
        raise ValueError(f"N C^2 must be at least 1, got {N * settings.C**2}")
    K = max(len(a) for a in arms) if num_arms is None else num_arms
    LOG = np.log(2 * K * M * np.log(T) / settings.delta)
    means = [rewards.mean(a @ own) for a, own in zip(arms, thetas, strict=True)]
    gaps = [np.max(mean) - mean for mean in means]

    active = [np.ones(len(a), dtype=bool) for a in arms]
    G, W, theta_hat = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    # What happens in each round; index 0 is "before the first round".
    regret, questions, messages = np.zeros(T + 1), np.zeros(T + 1), np.zeros(T + 1)
    theta_error = np.full(T + 1, np.mean([np.linalg.norm(theta_hat - own) for own in thetas]))
    phases, start = [], 0

    while start < T:
        phase = len(phases) + 1
        eps = 2.0**-phase
        s = 3 / (4 * (1 - eps**2) * d * N)
        amount = settings.exploration_scale * 2 * d * sigma**2 * LOG / eps**2
        clients = []  # the diagnostics of each client

        # Clients: design, eigenpairs below s. Server: key terms and repetitions.
        for i in range(M):
            u_pulls, u_questions = None, None
            if settings.rounding == "unbiased":
                u_pulls, u_questions = (
                    rng.random(2) if randomness is None else randomness.rounding_uniforms(phase, first_client + i)
                )
            pi = design(arms[i], active[i])
            V = gram(arms[i], pi)
            values, vectors = eigen(V)
            # With "skip", directions outside the span of the active arms are nobody's business.
            span = values >= (1e-5 * np.max(values) if settings.null_space == "skip" else -np.inf)
            uploaded = np.flatnonzero((values < s) & span) if key_terms_used else np.array([], dtype=int)
            terms, c = choose_key_terms(key_terms, vectors[:, uploaded], settings)
            shortfall = (s - values[uploaded]) / c**2
            counts = pull_counts(pi, amount, settings.rounding, u_pulls)
            repetitions = round_counts(amount * shortfall, settings.rounding, u_questions)
            repetitions = np.minimum(repetitions, T).astype(int)
            V_after = V + gram(key_terms[terms], shortfall)
            clients.append(
                dict(
                    pi=pi,
                    counts=counts,
                    uploaded=uploaded,
                    key_terms=terms.tolist(),
                    repetitions=repetitions,
                    lambda_min=float(np.min(values[span])),
                    lambda_min_after=float(np.linalg.eigvalsh(vectors[:, span].T @ V_after @ vectors[:, span])[0]),
                )
            )
            if server:
                messages[start + 1] += len(uploaded) * (1 + d) + len(terms) * (d + with_each_term)  # pairs, terms

        # Phases end together, with the slowest client, or at the horizon.
        planned = max(int(client["counts"].sum()) for client in clients)
        length = T - start if phase == max_phases else min(planned, T - start)
        end = start + length

        # Clients: pull and ask, then upload G_i and W_i.
        for i, client in enumerate(clients):
            asked_about = key_terms[np.array(client["key_terms"], dtype=int)]
            pull_z, question_z = None, None
            if randomness is not None:
                pull_z = randomness.pull_noise(phase, first_client + i)
                question_z = randomness.question_noise(phase, first_client + i, client["uploaded"])
            blocks = np.repeat(np.arange(len(arms[i])), client["counts"])
            pulled = np.resize(blocks, length)  # replayed from the start if too short, cut if too long
            pulls, pull_sums = observe(pulled, means[i], rewards, pull_z, rng)
            regret[start + 1 : end + 1] += gaps[i][pulled]

            wanted = np.repeat(np.arange(len(asked_about)), client["repetitions"])
            asked = wanted[:length]  # one a round
            asks, answer_sums = observe(asked, rewards.mean(asked_about @ thetas[i]), rewards, question_z, rng)
            questions[start + 1 : start + 1 + len(asked)] += 1

            G_i = gram(arms[i], pulls) + gram(asked_about, asks)
            W_i = arms[i].T @ pull_sums + asked_about.T @ answer_sums
            G, W = G + G_i, W + W_i
            client.update(pulls=pulls, asked=len(asked), dropped=len(wanted) - len(asked))
            if server:
                messages[end] += d**2 + d + d  # G_i and W_i up, theta_hat down

        # Server: estimate. Clients: eliminate.
        theta_hat = np.linalg.pinv(G + settings.ridge * np.eye(d), rcond=1e-10, hermitian=True) @ W
        theta_error[end:] = np.mean([np.linalg.norm(theta_hat - own) for own in thetas])
        radius = np.sqrt(N / M) * eps
        active_after = []
        for a, on in zip(arms, active, strict=True):
            estimates = a @ theta_hat
            near_best = np.max(estimates[on]) - estimates <= settings.elimination_scale * 2 * radius
            active_after.append(on & near_best)

        per_client = {name: [client[name] for client in clients] for name in clients[0]}
        phases.append(
            per_client
            | dict(
                start=start,
                length=length,
                complete=planned <= length,
                eps=eps,
                s=s,
                theta_hat=theta_hat,
                unseen=d - np.linalg.matrix_rank(G + settings.ridge * np.eye(d), rtol=1e-10, hermitian=True),
                active=active,
                active_after=active_after,
                good_event=all(
                    np.all(np.abs(a[on] @ theta_hat - mean[on]) <= radius)
                    for a, mean, on in zip(arms, means, active, strict=True)
                ),
                best_arm_active=all(np.any(gap[on] <= 1e-9) for gap, on in zip(gaps, active_after, strict=True)),
                max_gap=max(float(np.max(gap[on])) for gap, on in zip(gaps, active, strict=True)),
            )
        )
        active, start = active_after, end

    at = np.asarray(checkpoints, dtype=int)
    return FedRun(np.cumsum(regret)[at], np.cumsum(questions)[at] / M, np.cumsum(messages)[at], theta_error[at], phases)


def uniform_design(arms, active):
    """The same weight on every active arm. arms (K, d), active (K,) bool -> pi (K,)."""
    return active / active.sum()


def maco(arms, key_terms, theta, noise, horizon, settings, checkpoints, **options):
    """MACO (arXiv 2501.01849): FedConPE whose design is uniform over the active arms. settings.C is its beta.

    N = 1, so h_p = 3 / (4 (1 - 2^-2p) d) and the radius is 2^-p / sqrt(M). The paper's noise is 1-subgaussian and its
    rule signed: settings.sigma = 1, key_term_rule = "signed". With a key term goes its number of repetitions alone.
    """
    one = replace(settings, N=1.0)
    told = dict(design=uniform_design, with_each_term=1, any_coverage=True)
    return fedconpe(arms, key_terms, theta, noise, horizon, one, checkpoints, **told, **options)


def fedlinpe(arms, theta, noise, horizon, settings, checkpoints, **options):
    """Naive federated LinPE: FedConPE without key terms; G and W pooled, threshold 2 sqrt(N/M) eps."""
    return fedconpe(
        arms,
        np.zeros((0, np.shape(theta)[-1])),
        theta,
        noise,
        horizon,
        settings,
        checkpoints,
        key_terms_used=False,
        **options,
    )


def linpe(arms, theta, noise, horizon, settings, checkpoints, **options):
    """LinPE: each client alone, threshold 2 eps, M = 1 in LOG, its own phases, no messages.

    regret is the sum over clients, theta_error the mean; `phases` is a list, one per client, of lists.
    K in LOG is the client's own number of arms unless num_arms is given.
    """
    alone = replace(settings, N=1.0)
    runs = [
        fedlinpe([a], own, noise, horizon, alone, checkpoints, server=False, first_client=i, **options)
        for i, (a, own) in enumerate(zip(arms, np.broadcast_to(theta, (len(arms), np.shape(theta)[-1])), strict=True))
    ]
    nothing = np.zeros(len(checkpoints))
    return FedRun(
        sum(run.regret for run in runs),
        nothing,
        nothing.copy(),
        np.mean([run.theta_error for run in runs], axis=0),
        [run.phases for run in runs],
    )

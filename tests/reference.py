"""Slow NumPy float64 reference of federated conversational linear bandits.

FedConPE (arXiv 2405.02881), its phase-elimination relatives and the round-based baselines. Nothing is
incremental: every phase builds its list of pulled arms, every round inverts its matrices afresh.
Letters: M clients, K arms of a client, J key terms, d dimensions, T horizon, P checkpoints.
"""

from dataclasses import dataclass, replace

import numpy as np


def first_argmax(scores):
    """First index whose score is within 1e-9 of the largest. scores (n,) -> int."""
    return int(np.flatnonzero(scores >= scores.max() - 1e-9)[0])


def gram(rows, weights):
    """sum_a weights_a a a'. rows (n, d), weights (n,) -> (d, d)."""
    return rows.T @ (weights[:, None] * rows)


def quadratic(rows, A):
    """a' A a of each row. rows (n, d), A (d, d) -> (n,)."""
    return np.sum((rows @ A) * rows, axis=1)


# ---------------------------------------------------------------- G-optimal design, barycentric spanner


def coordinates_in_span(rows):
    """Coordinates of the rows in an orthonormal basis of their span. rows (n, d) -> (n, r), r the rank."""
    _, singular, basis = np.linalg.svd(rows, full_matrices=False)
    return rows @ basis[singular > 1e-10 * singular[0]].T


def frank_wolfe(arms, active, tol=1e-2):
    """G-optimal design: pi on the active arms with max_a a' V(pi)^-1 a <= (1 + tol) r, r = their rank.

    Step toward the arm with the largest g = a' V^-1 a; the exact line search for log det V gives
    gamma = (g / r - 1) / (g - 1). arms (K, d), active (K,) bool -> pi (K,), zero off the mask.
    """
    x = coordinates_in_span(arms[active])
    n, r = x.shape
    weights = np.full(n, 1 / n)
    for _ in range(1_000_000):
        inverse = np.linalg.inv(gram(x, weights))
        g = quadratic(x, inverse)
        best = np.argmax(g)
        if g[best] <= (1 + tol) * r:
            pi = np.zeros(len(arms))
            pi[active] = weights
            return pi
        gamma = (g[best] / r - 1) / (g[best] - 1)
        weights = (1 - gamma) * weights
        weights[best] += gamma
    raise RuntimeError("Frank-Wolfe did not reach its tolerance")


def barycentric_spanner(key_terms, c=2.0):
    """Awerbuch-Kleinberg c-approximate barycentric spanner. key_terms (J, d), c > 1 -> indices (r,).

    Every key term is a combination of the chosen ones with coefficients in [-c, c]. By Cramer's rule the
    coefficient of x on basis vector i is det(basis with x in place i) / det(basis). The basis starts as
    the identity; when the rank r is below d, everything happens in coordinates of the span.
    """
    x = np.asarray(key_terms, dtype=float)
    if np.linalg.matrix_rank(x) < x.shape[1]:
        x = coordinates_in_span(x)
    r = x.shape[1]
    basis = np.eye(r)
    chosen = np.zeros(r, dtype=int)
    for i in range(r):  # replace the identity, place by place, by the row of largest determinant
        coefficients = np.linalg.solve(basis.T, x.T)  # (r, J): x_j = sum_i coefficients[i, j] basis[i]
        chosen[i] = first_argmax(np.abs(coefficients[i]))
        basis[i] = x[chosen[i]]
    while True:  # each swap multiplies |det| by more than c, so this ends
        coefficients = np.abs(np.linalg.solve(basis.T, x.T))
        if coefficients.max() <= c:
            return chosen
        i, j = np.unravel_index(np.argmax(coefficients), coefficients.shape)
        chosen[i], basis[i] = j, x[j]


# ---------------------------------------------------------------- FedConPE


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


def observe(sequence, means, noise, z, rng):
    """How often each item occurs in the sequence, and the sum of its noisy observations.

    With z (n,) given, n_a observations sum to n_a mu_a + noise sqrt(n_a) z_a; else each one is drawn alone.
    sequence (L,) indices, means (n,) -> counts (n,), sums (n,).
    """
    counts = np.bincount(sequence, minlength=len(means))
    if z is not None:
        return counts, counts * means + noise * np.sqrt(counts) * z
    observations = means[sequence] + noise * rng.standard_normal(len(sequence))
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
):
    """FedConPE for one federation: phases l = 1, 2, ... with eps = 2^-l.

    arms: M arrays (K_i, d); key_terms (J, d); theta (d,); checkpoints (P,), the last one the horizon.
    design(arms_i, active_i) -> pi (K_i,); eigen(V) -> ascending values (d,), vectors (d, d) as columns.
    randomness: pull_noise(phase, client) -> (K_i,), question_noise(phase, client) -> (d,),
    rounding_uniforms(phase, client) -> two floats; None draws from rng, observation by observation.
    num_arms is K in LOG (default: the largest K_i). server=False counts no messages. first_client is the
    number by which the first client is known to `randomness`.
    """
    arms = [np.asarray(a, dtype=float) for a in arms]
    M, d, T = len(arms), len(theta), int(horizon)
    N, sigma = settings.N, noise if settings.sigma is None else settings.sigma
    if T < 2:
        raise ValueError(f"horizon must be at least 2, got {T}")
    if key_terms_used and settings.C != "realised" and N * settings.C**2 < 1 - 1e-9:
        raise ValueError(f"N C^2 must be at least 1, got {N * settings.C**2}")
    K = max(len(a) for a in arms) if num_arms is None else num_arms
    LOG = np.log(2 * K * M * np.log(T) / settings.delta)
    gaps = [np.max(a @ theta) - a @ theta for a in arms]

    active = [np.ones(len(a), dtype=bool) for a in arms]
    G, W, theta_hat = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    # What happens in each round; index 0 is "before the first round".
    regret, questions, messages = np.zeros(T + 1), np.zeros(T + 1), np.zeros(T + 1)
    theta_error = np.full(T + 1, np.linalg.norm(theta_hat - theta))
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
            uploaded = np.flatnonzero(values < s) if key_terms_used else np.array([], dtype=int)
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
                    lambda_min=float(np.min(values)),
                    lambda_min_after=float(np.linalg.eigvalsh(V_after)[0]),
                )
            )
            if server:
                messages[start + 1] += len(uploaded) * (1 + d) + len(terms) * (d + 2)  # pairs up, terms down

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
                question_z = randomness.question_noise(phase, first_client + i)[client["uploaded"]]
            blocks = np.repeat(np.arange(len(arms[i])), client["counts"])
            pulled = np.resize(blocks, length)  # replayed from the start if too short, cut if too long
            pulls, rewards = observe(pulled, arms[i] @ theta, noise, pull_z, rng)
            regret[start + 1 : end + 1] += gaps[i][pulled]

            wanted = np.repeat(np.arange(len(asked_about)), client["repetitions"])
            asked = wanted[:length]  # one a round
            asks, answers = observe(asked, asked_about @ theta, noise, question_z, rng)
            questions[start + 1 : start + 1 + len(asked)] += 1

            G_i = gram(arms[i], pulls) + gram(asked_about, asks)
            W_i = arms[i].T @ rewards + asked_about.T @ answers
            G, W = G + G_i, W + W_i
            client.update(pulls=pulls, asked=len(asked), dropped=len(wanted) - len(asked))
            if server:
                messages[end] += d**2 + d + d  # G_i and W_i up, theta_hat down

        # Server: estimate. Clients: eliminate.
        theta_hat = np.linalg.pinv(G, rcond=1e-10, hermitian=True) @ W
        theta_error[end:] = np.linalg.norm(theta_hat - theta)
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
                active=active,
                active_after=active_after,
                good_event=all(
                    np.all(np.abs(a[on] @ (theta_hat - theta)) <= radius) for a, on in zip(arms, active, strict=True)
                ),
                best_arm_active=all(np.any(gap[on] <= 1e-9) for gap, on in zip(gaps, active_after, strict=True)),
                max_gap=max(float(np.max(gap[on])) for gap, on in zip(gaps, active, strict=True)),
            )
        )
        active, start = active_after, end

    at = np.asarray(checkpoints, dtype=int)
    return FedRun(np.cumsum(regret)[at], np.cumsum(questions)[at] / M, np.cumsum(messages)[at], theta_error[at], phases)


def fedlinpe(arms, theta, noise, horizon, settings, checkpoints, **options):
    """Naive federated LinPE: FedConPE without key terms; G and W pooled, threshold 2 sqrt(N/M) eps."""
    return fedconpe(
        arms,
        np.zeros((0, len(theta))),
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
        fedlinpe([a], theta, noise, horizon, alone, checkpoints, server=False, first_client=i, **options)
        for i, a in enumerate(arms)
    ]
    nothing = np.zeros(len(checkpoints))
    return FedRun(
        sum(run.regret for run in runs),
        nothing,
        nothing.copy(),
        np.mean([run.theta_error for run in runs], axis=0),
        [run.phases for run in runs],
    )


# ---------------------------------------------------------------- Round-based learners


@dataclass
class RoundRun:
    """arms pulled (T,), questions asked (list of indices), cumulative regret (T,), theta_error (T,).

    For shared_linucb, arms is (T, M) and regret the sum over clients.
    """

    arms: np.ndarray
    questions: list
    regret: np.ndarray
    theta_error: np.ndarray


def schedule(kind, T):
    """Questions allowed by round t = 1..T: b(t) = 5 floor(log t) ("log") or floor(t / 50) ("linear")."""
    t = np.arange(1, T + 1)
    return 5 * np.floor(np.log(t)).astype(int) if kind == "log" else t // 50


class Ridge:
    """V = lam I + sum x x', y = sum x r, theta_hat = V^-1 y, with the radius of its confidence set."""

    def __init__(self, d, lam, alpha, delta, sigma):
        self.V, self.y, self.n = lam * np.eye(d), np.zeros(d), 0
        self.d, self.lam, self.alpha, self.delta, self.sigma = d, lam, alpha, delta, sigma

    def add(self, x, r):
        """One observation r of x.theta."""
        self.V, self.y, self.n = self.V + np.outer(x, x), self.y + r * x, self.n + 1

    def theta_hat(self):
        """V^-1 y, (d,)."""
        return np.linalg.solve(self.V, self.y)

    def radius(self):
        """alpha, or sigma sqrt(2 log(1/delta) + d log(1 + n/(lam d))) + sqrt(lam)."""
        if self.alpha != "theory":
            return self.alpha
        growth = self.d * np.log(1 + self.n / (self.lam * self.d))
        return self.sigma * np.sqrt(2 * np.log(1 / self.delta) + growth) + np.sqrt(self.lam)

    def squared_widths(self, rows):
        """x' V^-1 x of each row. (n, d) -> (n,)."""
        return quadratic(rows, np.linalg.inv(self.V))

    def ucb(self, rows):
        """x.theta_hat + alpha sqrt(x' V^-1 x) of each row. (n, d) -> (n,)."""
        return rows @ self.theta_hat() + self.radius() * np.sqrt(self.squared_widths(rows))


def ridge_rounds(ridge, arms, theta, noise_z, sigma_noise, horizon, b, items, choose_item, question_z):
    """The rounds of every LinUCB-like learner: b(t) - b(t-1) questions, then the arm with the largest UCB.

    items (J, d) is what can be asked about; choose_item(q) -> index of the q-th question, q from 0.
    """
    pulled, asked, errors = [], [], []
    for t in range(1, horizon + 1):
        for _ in range(b[t - 1] - (b[t - 2] if t > 1 else 0)):
            q = len(asked)
            k = choose_item(q)
            ridge.add(items[k], items[k] @ theta + sigma_noise * question_z[q])
            asked.append(k)
        a = first_argmax(ridge.ucb(arms))
        ridge.add(arms[a], arms[a] @ theta + sigma_noise * noise_z[t - 1])
        pulled.append(a)
        errors.append(np.linalg.norm(ridge.theta_hat() - theta))
    gaps = np.max(arms @ theta) - arms @ theta
    return RoundRun(np.array(pulled), asked, np.cumsum(gaps[pulled]), np.array(errors))


def linucb(arms, theta, noise_z, sigma_noise, horizon, *, alpha=0.5, lam=1.0, delta=0.1, sigma=None):
    """LinUCB for one client: argmax x.theta_hat + alpha sqrt(x' V^-1 x). arms (K, d), noise_z (T,)."""
    ridge = Ridge(len(theta), lam, alpha, delta, sigma_noise if sigma is None else sigma)
    no_questions = np.zeros(horizon, dtype=int)
    return ridge_rounds(ridge, arms, theta, noise_z, sigma_noise, horizon, no_questions, None, None, None)


def armcon(arms, theta, noise_z, question_z, sigma_noise, horizon, *, b, alpha=0.5, lam=1.0, delta=0.1, sigma=None):
    """Arm-Con: LinUCB whose questions are about the arm with the largest UCB. b (T,), question_z (b(T),)."""
    ridge = Ridge(len(theta), lam, alpha, delta, sigma_noise if sigma is None else sigma)
    return ridge_rounds(
        ridge,
        arms,
        theta,
        noise_z,
        sigma_noise,
        horizon,
        b,
        arms,
        lambda q: first_argmax(ridge.ucb(arms)),
        question_z,
    )


def conlinucb(
    strategy,
    arms,
    key_terms,
    theta,
    noise_z,
    question_z,
    sigma_noise,
    horizon,
    *,
    b,
    alpha=0.1,
    lam=None,
    delta=0.1,
    sigma=None,
    spanner=None,
    spanner_picks=None,
    spanner_c=2.0,
    rng=None,
):
    """ConLinUCB: LinUCB whose questions about key terms enter the same V.

    "BS": the q-th question is spanner[spanner_picks[q]] (uniform picks from rng if None);
    "MCR": argmax_k k' V^-1 k; "UCB": argmax_k k.theta_hat + alpha sqrt(k' V^-1 k).
    key_terms (J, d), spanner (r,) indices of key terms; lam=None is 0.15, or 0.2 for "UCB".
    """
    if lam is None:
        lam = 0.2 if strategy == "UCB" else 0.15
    ridge = Ridge(len(theta), lam, alpha, delta, sigma_noise if sigma is None else sigma)
    if strategy == "BS":
        spanner = barycentric_spanner(key_terms, spanner_c) if spanner is None else spanner
        if spanner_picks is None:
            spanner_picks = rng.integers(len(spanner), size=b[horizon - 1])
    choose = {
        "BS": lambda q: int(spanner[spanner_picks[q]]),
        "MCR": lambda q: first_argmax(ridge.squared_widths(key_terms)),
        "UCB": lambda q: first_argmax(ridge.ucb(key_terms)),
    }[strategy]
    return ridge_rounds(ridge, arms, theta, noise_z, sigma_noise, horizon, b, key_terms, choose, question_z)


def conucb(
    arms,
    key_terms,
    theta,
    noise_z,
    question_z,
    sigma_noise,
    horizon,
    *,
    b,
    lam=0.5,
    lam_t=1.0,
    alpha=0.25,
    alpha_t=0.25,
    delta=0.1,
    sigma=None,
):
    """ConUCB: a regression on key terms (Mt, tt) and, drawn toward it, one on arms (M, th).

    Mt = lam_t I + sum k k', tt = Mt^-1 sum k r; M = (1-lam) I + lam sum x x',
    th = M^-1 (lam sum x r + (1-lam) tt).
    alpha="theory": sigma sqrt(d log((1 + lam t / ((1-lam) d)) / delta)), t the pulls so far;
    alpha_t="theory": sigma sqrt(2 (d log 6 + log(2 (questions + 1) / delta))) + 2 sqrt(lam_t).
    arms (K, d), key_terms (J, d), noise_z (T,), question_z (b(T),), b (T,).
    """
    d = len(theta)
    sigma = sigma_noise if sigma is None else sigma
    M, xr = (1 - lam) * np.eye(d), np.zeros(d)
    Mt, kr = lam_t * np.eye(d), np.zeros(d)
    pulled, asked, errors = [], [], []
    for t in range(1, horizon + 1):
        for _ in range(b[t - 1] - (b[t - 2] if t > 1 else 0)):
            Mt_inv = np.linalg.inv(Mt)
            gain = arms @ np.linalg.inv(M) @ Mt_inv @ key_terms.T  # (K, J)
            k = first_argmax(np.sum(gain**2, axis=0) / (1 + quadratic(key_terms, Mt_inv)))
            answer = key_terms[k] @ theta + sigma_noise * question_z[len(asked)]
            Mt, kr = Mt + np.outer(key_terms[k], key_terms[k]), kr + answer * key_terms[k]
            asked.append(k)

        M_inv, Mt_inv = np.linalg.inv(M), np.linalg.inv(Mt)
        tt = Mt_inv @ kr
        th = M_inv @ (lam * xr + (1 - lam) * tt)
        a, at = alpha, alpha_t
        if alpha == "theory":
            a = sigma * np.sqrt(d * np.log((1 + lam * len(pulled) / ((1 - lam) * d)) / delta))
        if alpha_t == "theory":
            noise_part = np.sqrt(2 * (d * np.log(6) + np.log(2 * (len(asked) + 1) / delta)))
            at = sigma * noise_part + 2 * np.sqrt(lam_t)
        arm_widths = np.sqrt(quadratic(arms, M_inv))
        term_widths = np.sqrt(quadratic(arms, M_inv @ Mt_inv @ M_inv))
        x = first_argmax(arms @ th + lam * a * arm_widths + (1 - lam) * at * term_widths)
        reward = arms[x] @ theta + sigma_noise * noise_z[t - 1]
        M, xr = M + lam * np.outer(arms[x], arms[x]), xr + reward * arms[x]
        pulled.append(x)
        errors.append(np.linalg.norm(np.linalg.solve(M, lam * xr + (1 - lam) * tt) - theta))
    gaps = np.max(arms @ theta) - arms @ theta
    return RoundRun(np.array(pulled), asked, np.cumsum(gaps[pulled]), np.array(errors))


def shared_linucb(arms_list, theta, noise_z, sigma_noise, horizon, *, alpha=0.5, lam=1.0, delta=0.1, sigma=None):
    """LinUCB with one V and y for all clients: all choose with the last round's, then all are added.

    arms_list: M arrays (K_i, d); noise_z (T, M).
    """
    ridge = Ridge(len(theta), lam, alpha, delta, sigma_noise if sigma is None else sigma)
    gaps = [np.max(arms @ theta) - arms @ theta for arms in arms_list]
    pulled, regret, errors = [], [], []
    for t in range(1, horizon + 1):
        choices = [first_argmax(ridge.ucb(arms)) for arms in arms_list]
        for i, (arms, a) in enumerate(zip(arms_list, choices, strict=True)):
            ridge.add(arms[a], arms[a] @ theta + sigma_noise * noise_z[t - 1, i])
        pulled.append(choices)
        regret.append(sum(gap[a] for gap, a in zip(gaps, choices, strict=True)))
        errors.append(np.linalg.norm(ridge.theta_hat() - theta))
    return RoundRun(np.array(pulled), [], np.cumsum(regret), np.array(errors))

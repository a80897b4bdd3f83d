"""PLS (Salgia and Zhao, ICML 2023): estimates travel as differences of few bits, pull by pull."""

import numpy as np

from tests.reference.federated import Sums
from tests.reference.federated_phases import Ledger, whole
from tests.reference.linalg import barycentric_spanner, first_argmax, gram


def quantise(x, r, eps, u=None):
    """Of each coordinate of x (d,) the end of an interval near it, and the bits of its code. -> (d,), int.

    [-r, r] has l = ceil(2 r sqrt(d) / eps) intervals. With u (d,), uniform in [0, 1), the upper end is taken with the
    probability that makes the mean x; without u the nearer end. The value number n, counted from the middle, has
    3 + ceil(|n|) bits.
    """
    intervals = whole(2 * r * np.sqrt(len(x)) / eps)
    h = 2 * r / intervals
    values, bits = [], 0
    for m in range(len(x)):
        place = min(max(x[m] / h + intervals / 2, 0), intervals)
        below = int(np.floor(place))
        i = int(np.floor(place + 0.5)) if u is None else below + (u[m] < place - below)
        i = min(i, intervals)
        values.append(-r + i * h)
        bits += 3 + int(np.ceil(abs(i - intervals / 2)))
    return np.array(values), bits


def exploration_length(k, C, *, M, d, T, sigma, delta, bases):
    """s_k, how often each arm of a basis is played in epoch k. bases: M arrays (r, d).

    C="theory": 40 (sigma / lambda_B)^2 d log(8 M K_e / delta) 4^k, lambda_B the least eigenvalue of sum x x' of a
    basis, in its span, and K_e the last epoch that can begin before the horizon. Else C sigma^2 d log(M log2 T) 4^k.
    """
    if C != "theory":
        return whole(C * sigma**2 * d * np.log(max(M * np.log2(max(T, 2)), 2)) * 4.0**k)
    least = []
    for basis in bases:
        values = np.linalg.eigvalsh(basis.T @ basis)
        least.append(min(value for value in values if value >= 1e-6 * values[-1]))
    factor = 40 * (sigma / min(least)) ** 2 * d
    K_e = max(n for n in range(1, 49) if factor * np.log(8 * M * n / delta) * (4.0**n - 4) <= T)
    return whole(factor * np.log(8 * M * K_e / delta) * 4.0**k)


def pls(
    clients,
    horizon,
    *,
    pulls,
    uniforms,
    C=6.0,
    alpha_0=2.0,
    beta_0=1.0,
    tau=1.0,
    B_1=1.5,
    gamma=3.0,
    lam=1.0,
    exploit_rounds=30_000,
    delta=0.1,
    sigma=None,
    S=1.0,
    max_epochs=48,
):
    """PLS: in epoch k all clients play a basis of theirs, agree on thetabar by differences of few bits, then exploit.

    Clients have fixed arms. pulls(k, j): what `Rewards.at_once` needs for the arms of client j; uniforms(k, j) (d,), in
    [0, 1), of its quantiser. The rewards of exploited rounds are the client's own, by the number of the round.
    tau_k = tau 2^-(k+1) / sqrt(M); R_k = 2^-k; B_k = 5 tau_k, but B_1 S at first. A client's estimate is sent as its
    difference from the last thetabar, in [-R_k - B_k, R_k + B_k], to the resolution alpha_0 sigma sqrt(d / s_k), and
    the server's update, their mean, in [-B_k - tau_k, B_k + tau_k], to the resolution beta_0 tau_k. Once the server's
    estimate is as long as 4 tau_k, mu_0 long, this and all later epochs exploit for M s_k^2 mu_0^2 rounds, the last one
    to the horizon: LinUCB, of width gamma sigma, on the arms that thetabar leaves and what it does not explain of their
    rewards. sigma > 0: without noise a resolution would take infinitely many bits.
    """
    M, d, T = len(clients), len(clients[0].theta), int(horizon)
    sigma = clients[0].sigma if sigma is None else sigma
    arms = [client.see(0) for client in clients]
    bases = [sorted(barycentric_spanner(a).tolist()) for a in arms]
    ledger = Ledger(clients, T)
    thetabar, mu_0, start, k = np.zeros(d), None, 0, 0

    while start < T:
        k += 1
        tau_k = tau * 2.0 ** -(k + 1) / np.sqrt(M)
        s = exploration_length(
            k, C, M=M, d=d, T=T, sigma=sigma, delta=delta, bases=[a[rows] for a, rows in zip(arms, bases, strict=True)]
        )
        B_k = B_1 * S if k == 1 else 5 * tau_k
        planned = max(len(rows) for rows in bases) * s
        length = min(planned, T - start)
        row = dict(
            phase=k,
            start=start,
            length=length,
            complete=start + planned <= T,
            s_k=s,
            exploited=0,
            tau_k=tau_k,
            norm=0.0,
            clipped=0,
            retained_mean=np.mean([len(a) for a in arms]),
            best_arm_active=True,
            theta_error=ledger.error(thetabar),
            bits_up=0,
            bits_down=0,
        )
        ledger.phases.append(row)

        # Clients: explore, and send the difference from what all know.
        sent = []
        for j, client in enumerate(clients):
            blocks = np.repeat(bases[j], min(s, T))
            sequence = np.resize(blocks, length)  # a smaller basis is played again
            ledger.play(start, j, sequence)
            if not row["complete"]:
                continue
            n = np.bincount(sequence, minlength=len(arms[j]))
            sums = client.rewards.at_once(n, arms[j] @ client.theta, pulls(k, j))
            theta_j = np.linalg.pinv(gram(arms[j], n), rcond=1e-10, hermitian=True) @ (arms[j].T @ sums)
            r = 2.0**-k + B_k
            value, bits = quantise(theta_j - thetabar, r, alpha_0 * sigma * np.sqrt(d / s), uniforms(k, j))
            sent.append(value)
            row["bits_up"] += bits
            row["clipped"] += int(np.sum(np.abs(theta_j - thetabar) > r))
        start += length
        if not row["complete"]:
            break

        # Server: the mean, in few bits.
        update = np.mean(sent, axis=0)
        theta_serv = thetabar + update
        broadcast, row["bits_down"] = quantise(update, B_k + tau_k, beta_0 * tau_k)
        thetabar = thetabar + broadcast
        ledger.send(start, uploads=M, scalars_up=M * d, bits_up=row["bits_up"])
        ledger.send(start, downloads=1, scalars_down=d, bits_down=row["bits_down"])
        ledger.know(start, thetabar)
        if mu_0 is None and np.linalg.norm(theta_serv) >= 4 * tau_k:
            mu_0 = np.linalg.norm(theta_serv)

        # Clients: what is left of the arms, and LinUCB on it.
        retained = [np.flatnonzero(a @ thetabar >= max(a @ thetabar) - 2 * tau_k) for a in arms]
        exploited = 0
        if k == max_epochs:
            exploited = T - start
        elif mu_0 is not None:
            exploited = min(whole(M * float(s) ** 2 * mu_0**2), T - start)
        for j, client in enumerate(clients):
            left, data = arms[j][retained[j]], Sums.none(d)
            for t in range(start, start + min(exploited, exploit_rounds)):
                ridge = data.ridge(lam, gamma * sigma)
                a = first_argmax(left @ thetabar + ridge.ucb(left))
                data += Sums.of(left[a], client.reward(t, left[a]) - left[a] @ thetabar)
                ledger.play(t, j, [retained[j][a]])
            greedy = first_argmax(left @ (thetabar + data.ridge(lam, 0).theta_hat()))
            rest = max(exploited - exploit_rounds, 0)
            ledger.play(start + exploited - rest, j, [retained[j][greedy]] * rest)
        start += exploited
        row.update(
            length=length + exploited,
            exploited=exploited,
            norm=np.linalg.norm(theta_serv),
            retained_mean=np.mean([len(left) for left in retained]),
            best_arm_active=all(
                max(a[left] @ client.theta) >= max(a @ client.theta) - 1e-9
                for a, left, client in zip(arms, retained, clients, strict=True)
            ),
            theta_error=ledger.error(thetabar),
        )
    return ledger.run()

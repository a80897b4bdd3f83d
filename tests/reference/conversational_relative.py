"""RelativeConUCB (arXiv 2208.09837): ConUCB whose user is shown two key terms and says which is preferred."""

import numpy as np

from tests.reference.conversational_levels import TwoLevels
from tests.reference.linalg import first_argmax
from tests.reference.rounds import RoundRun

VARIANTS = ("pos", "pos-neg", "difference", "difference-fast")


def pair_to_show(levels, variant, arms, key_terms, mask):
    """The two key terms of the next question. arms (K, d), key_terms (J, d), mask (J,) bool: who may be shown.

    "pos" and "pos-neg": the largest credit, then the largest as if the first had been asked about; it may be the first.
    "difference": the pair k <= l with the largest credit of x_k - x_l, ties by k, then by l.
    "difference-fast": the largest credit, then the largest credit of its difference to that.
    """
    J = len(key_terms)
    if variant == "difference":
        pairs = [(k, m) for k in range(J) for m in range(k, J) if mask[k] and mask[m]]
        differences = np.array([key_terms[k] - key_terms[m] for k, m in pairs])
        return pairs[first_argmax(levels.credit(arms, differences))]
    first = first_argmax(np.where(mask, levels.credit(arms, key_terms), -1.0))
    x = key_terms[first]
    if variant == "difference-fast":
        credit = levels.credit(arms, key_terms - x)
    else:
        credit = levels.credit(arms, key_terms, Mt=levels.Mt + np.outer(x, x))
    return first, first_argmax(np.where(mask, credit, -1.0))


def told_by(variant, winner, loser):
    """The observations (x, r) that follow from an answer. winner, loser (d,)."""
    if variant == "pos":
        return [(winner, 1.0)]
    if variant == "pos-neg":
        return [(winner, 1.0), (loser, 0.0)]
    return [(winner - loser, 1.0)]


def steps_of(meeting, present, budget):
    """What happens in a round, in order: ("ask", clients who ask one question each at once) and ("pull", client).

    present: list of (client, own round); budget: client -> its questions. "in turn": each asks, then pulls, before the
    next; "questions first": each asks in turn, then all pull; "together": all ask at once, then all pull.
    """
    who, steps = [i for i, _ in present], []
    if meeting == "in turn":
        for i in who:
            steps += [("ask", [i])] * budget[i] + [("pull", i)]
        return steps
    if meeting == "questions first":
        for i in who:
            steps += [("ask", [i])] * budget[i]
    else:
        for j in range(max(budget.values(), default=0)):
            steps.append(("ask", [i for i in who if budget[i] > j]))
    return steps + [("pull", i) for i in who]


def relative_conucb(
    clients,
    key_terms,
    rounds,
    *,
    variant,
    b,
    prefers=None,
    feedback="individual",
    registration="early",
    meeting="in turn",
    cost=None,
    sigma=None,
    **settings,
):
    """RelativeConUCB for a federation. rounds: of `who_plays`; b (T,): by a client's own rounds.

    variant: one of VARIANTS. prefers(i, t, q, k, l) -> bool: does the user of client i say, to its q-th question,
    before the pull of its own round t, that k is better than l? None asks the client.
    feedback: what a client hears is its own ("individual") or everybody's ("shared"); then, with registration="early",
    of all clients, else ("late") of those who have come so far, itself among them.
    cost(i, t, k, l): the regret of a question; None is nothing.
    settings: of `TwoLevels`. The run's arms are a list for each round, its questions a list (k, l, k won) for each
    client; regret is the sum over clients, asked and theta_error the mean.
    """
    d, M = key_terms.shape[1], len(clients)
    levels = [TwoLevels(d, sigma=client.sigma if sigma is None else sigma, **settings) for client in clients]
    asked, arms_of_rounds, lost, so_far, errors, come = [[] for _ in clients], [], [], [], [], set()

    def ask(group, own):
        """All choose with what was known before, then all is heard. Says what it costs."""
        answers, spent = [], 0.0
        for i in group:
            t, q = own[i], len(asked[i])
            mask = np.array(clients[i].candidates(t, len(key_terms)))
            k, m = pair_to_show(levels[i], variant, clients[i].see(t), key_terms, mask)
            won = clients[i].compare(q, k, m, key_terms) if prefers is None else prefers(i, t, q, k, m)
            spent += 0.0 if cost is None else cost(i, t, k, m)
            asked[i].append((k, m, bool(won)))
            winner, loser = (k, m) if won else (m, k)
            answers.append((i, told_by(variant, key_terms[winner], key_terms[loser])))
        for i, observations in answers:
            listeners = [i] if feedback == "individual" else range(M) if registration == "early" else sorted(come)
            for listener in listeners:
                for x, r in observations:
                    levels[listener].hear(x, r)
        return spent

    for present in rounds:
        own = dict(present)
        come |= set(own)
        budget = {i: b[t] - (b[t - 1] if t > 0 else 0) for i, t in present}
        pulled, spent = {}, 0.0
        for what, who in steps_of(meeting, present, budget):
            if what == "ask":
                spent += ask(who, own)
            else:
                arms = clients[who].see(own[who])
                pulled[who] = first_argmax(levels[who].scores(arms))
                x = arms[pulled[who]]
                levels[who].pull(x, clients[who].reward(own[who], x))
        arms_of_rounds.append([pulled[i] for i, _ in present])
        lost.append(spent + sum(clients[i].regret(t, clients[i].see(t)[pulled[i]]) for i, t in present))
        so_far.append(np.mean([len(questions) for questions in asked]))
        errors.append(np.mean([c.error(level.theta_hat()) for c, level in zip(clients, levels, strict=True)]))
    return RoundRun(arms_of_rounds, asked, np.cumsum(lost), np.array(so_far), np.array(errors))


def shared_relative_conucb(clients, key_terms, rounds, **given):
    """RelativeConUCB whose clients hear what all users say, from the start: all ask in turn, then all pull."""
    return relative_conucb(clients, key_terms, rounds, feedback="shared", meeting="questions first", **given)

"""Features shared by the data sets."""

from collections.abc import Sequence

import numpy as np


def key_term_means(arms: np.ndarray, terms: Sequence[np.ndarray], num_key_terms: int) -> np.ndarray:
    """Weighted mean of the arms that carry each key term, (J, d); a zero row where none does.

    `terms[i]` lists the key terms of arm i, each of weight 1 / len(terms[i]).
    """
    carried = np.array([len(t) for t in terms])
    owner = np.repeat(np.arange(len(terms)), carried)
    term = np.concatenate(terms)
    weight = 1.0 / carried[owner]
    total = np.zeros((num_key_terms, arms.shape[1]))
    np.add.at(total, term, weight[:, None] * arms[owner])
    mass = np.bincount(term, weights=weight, minlength=num_key_terms)
    return total / np.where(mass > 0, mass, 1)[:, None]

"""Quadratic forms, in all the ways in which they are worked out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.linalg import forms


@pytest.mark.parametrize("d", [1, 7, 23, 24, 25, 47, 48, 50, 72, 100])
def test_quadratic_forms_are_the_same_by_blocks_at_once_and_by_products(d):
    """Dimensions of one, two and three blocks, and those in between."""
    rng = np.random.default_rng(d)
    rows, root = rng.normal(size=(9, d)), rng.normal(size=(d, d))
    expected = np.einsum("ni,ij,nj->n", rows, root + root.T, rows)
    with jax.enable_x64(True):
        by_products = lambda rows, A: forms.forms_by_products(forms.entry_products(rows), A)  # noqa: E731
        for form in (forms.quadratic_forms, forms._forms_by_blocks, forms._forms_at_once, by_products):
            found = form(jnp.asarray(rows), jnp.asarray(root + root.T))
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)

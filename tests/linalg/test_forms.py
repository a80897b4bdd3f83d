"""Quadratic forms, in all the ways in which they are worked out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.linalg import forms


@pytest.mark.parametrize("d", [1, 7, 23, 24, 25, 47, 48, 50, 72, 100])
def test_quadratic_forms_are_the_same_by_blocks_at_once_and_of_columns(d):
    """Dimensions of one, two and three blocks, and those in between."""
    rng = np.random.default_rng(d)
    rows, root = rng.normal(size=(9, d)), rng.normal(size=(d, d))
    expected = np.einsum("ni,ij,nj->n", rows, root + root.T, rows)
    with jax.enable_x64(True):
        rows, matrix = jnp.asarray(rows), jnp.asarray(root + root.T)
        of_rows = [
            jax.jit(form)(rows, matrix)
            for form in (forms.quadratic_forms, forms._forms_by_blocks, forms._forms_at_once)
        ]
        of_batch = jax.jit(jax.vmap(forms.forms_of_columns, in_axes=(None, 0)))(rows.T, jnp.stack([matrix, -matrix]))
        of_columns = [jax.jit(forms.forms_of_columns)(rows.T, matrix), of_batch[0], -of_batch[1]]
    for found in of_rows + of_columns:
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)

"""Where catalogs come from."""

from fedbandit_jax.datasets.synthetic import synthetic

__all__ = ["synthetic"]

"""The algorithms; importing this package fills the registry."""

from fedbandit_jax.algorithms.base import REGISTRY, Algorithm, Trace
from fedbandit_jax.algorithms.fedconpe import FedConPE
from fedbandit_jax.algorithms.uniform import Uniform

__all__ = ["REGISTRY", "Algorithm", "FedConPE", "Trace", "Uniform"]

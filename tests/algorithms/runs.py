"""The compiled run that tests of algorithms share, and with it the programs it is compiled to."""

import jax


@jax.jit
def run(algorithm, key, problem, checkpoints):
    return algorithm.run(key, problem, checkpoints)

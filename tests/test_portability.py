"""The programs of a sweep lower for devices that are not here."""

import re
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import engine

ALGORITHMS = {
    "FedConPE": fb.FedConPE(),
    "FedConPE, every word changed": fb.FedConPE(
        sigma=0.1, C="realised", rounding="unbiased", key_term_rule="signed", design_method="frank-wolfe"
    ),
    "FedConPE, optax": fb.FedConPE(design_method="optax"),
    **{
        algorithm.title: algorithm.prepare(500)
        for algorithm in (
            fb.FedLinPE(),
            fb.LinPE(),
            fb.LinUCB(),
            fb.ArmCon(alpha="theory"),
            fb.ConUCB(alpha="theory", alpha_t="theory", schedule="linear"),
            *(fb.ConLinUCB(strategy=strategy) for strategy in ("BS", "MCR", "UCB")),
            fb.SharedLinUCB(),
            fb.Uniform(),
        )
    },
}


def make_program(algorithm, catalog, real=np.float32):
    """The program of a batch of two runs, and its arguments."""
    batch = engine.Run(
        *(np.full(2, x) for x in (np.int32(2), np.int32(5), real(0.1), np.int32(0), np.int32(0), np.int32(0)))
    )
    algorithms = jax.tree.map(lambda x: np.full(2, x, real), algorithm)
    pool = engine.Pool(*(np.asarray(x, real) for x in (catalog.arms, catalog.key_terms, catalog.users)))
    rounds = np.linspace(50, 500, 10, dtype=real)
    play = jax.vmap(partial(engine.run_one, max_clients=3, max_arms=7), in_axes=(0, 0, None, None, None))

    def program(numbers, batch, pool, rounds, seed):
        filled = jax.tree.unflatten(jax.tree.structure(algorithms), numbers)
        return play(filled, batch, pool, rounds, jax.random.key(seed))

    return jax.jit(program), (jax.tree.leaves(algorithms), batch, pool, rounds, jnp.uint32(0))


def test_all_algorithms_are_here():
    assert {type(algorithm).__name__ for algorithm in ALGORITHMS.values()} == set(fb.REGISTRY)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_programs_lower_for_accelerators(catalog, name, platform):
    program, arguments = make_program(ALGORITHMS[name], catalog)
    exported = jax.export.export(program, platforms=[platform])(*arguments)
    text, outputs = exported.mlir_module(), exported.out_avals
    assert {str(x.dtype) for x in outputs} == {"float32"}
    assert (2, 10) in [x.shape for x in outputs]
    assert not re.search(r"\bf64\b|xf64>", text), "float64 in a float32 program"
    targets = set(re.findall(r"custom_call @([\w.$]+)", text))
    assert not [t for t in targets if "callback" in t], "a call back to Python"
    assert not [t for t in targets if t.startswith("lapack")], "a routine of CPUs"
    if name.startswith("FedConPE"):
        # Were the expressions above to find nothing, they would prove nothing.
        assert "xf32>" in text
        assert any("syev" in t or "igh" in t for t in targets), f"no eigendecomposition among {targets}"


def test_the_checks_would_find_what_they_look_for(catalog):
    program, arguments = make_program(fb.FedConPE(), catalog)
    text = program.trace(*arguments).lower(lowering_platforms=("cpu",)).as_text()
    assert [t for t in re.findall(r"custom_call @([\w.$]+)", text) if t.startswith("lapack")]

    def with_callback(x):
        return jax.pure_callback(lambda y: np.asarray(y, np.float64), jax.ShapeDtypeStruct((3,), np.float64), x)

    with jax.enable_x64(True):
        text = jax.jit(with_callback).lower(np.ones(3)).as_text()
    assert [t for t in re.findall(r"custom_call @([\w.$]+)", text) if "callback" in t]
    assert re.search(r"\bf64\b|xf64>", text)


@pytest.mark.parametrize("name", ["ArmCon", "FedConPE"])
def test_the_forms_for_gpus_play_the_same_runs(catalog, name, monkeypatch):
    """Where the code has another form for GPUs than for CPUs, take it here: the same runs, to rounding."""

    def play():
        program, arguments = make_program(ALGORITHMS[name], catalog, np.float64)
        return jax.tree.map(np.asarray, program(*arguments))

    taken = []

    def as_on_a_gpu(*operands, default=None, **forms):
        taken.append(forms.get("cuda", default))
        return taken[-1](*operands)

    with jax.enable_x64(True):
        expected = play()
        monkeypatch.setattr(jax.lax, "platform_dependent", as_on_a_gpu)
        found = play()
    assert taken, "no form for GPUs was met"
    assert expected.regret[0, -1] > 0
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9), found, expected)

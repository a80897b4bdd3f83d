"""Every program of a sweep lowers for devices that are not here: no routine of CPUs, no callback, no stray float64."""

import re
from dataclasses import fields
from functools import partial

import jax
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine import program as engine
from fedbandit_jax.linalg import portable

pytestmark = pytest.mark.thorough

THEORY = {"alpha": "theory"}
PHASE_WORDS = ({"sigma": 0.1, "rounding": "unbiased"}, {"design_method": "frank-wolfe"}, {"design_method": "optax"})
VARIANTS = {  # hyperparameters that make other programs: words, and None for a number
    "FedConPE": ({}, {"C": "realised"}, {"key_term_rule": "signed", "null_space": "skip"}, *PHASE_WORDS),
    "DELB": ({"C1": 1.0}, {"design": "spanning", "sigma": 0.1}, {"design_method": "frank-wolfe"}),
    "FedPE": ({}, {"enhanced": True, "init": "none"}, {"alpha": 0.5, "sigma": 0.1, "design": "spanning"}),
    "FedLinPE": ({}, PHASE_WORDS[0] | PHASE_WORDS[1]),
    "LinPE": ({}, PHASE_WORDS[0] | PHASE_WORDS[1]),
    "PLS": ({}, {"C": "theory", "sigma": 0.1}),
    "LinUCB": ({}, THEORY, THEORY | {"sigma": 0.1}),
    "ArmCon": ({}, THEORY | {"schedule": "linear"}, {"schedule": lambda t: t // 7}),
    "ConUCB": ({}, THEORY | {"alpha_t": "theory", "schedule": "linear", "sigma": 0.1}),
    "ConLinUCB": (
        *({"strategy": strategy} for strategy in ("BS", "MCR", "UCB")),
        {"strategy": "UCB", "schedule": "linear", "lam": 1.0} | THEORY,
    ),
    "MACO": ({}, {"beta": 0.5, "key_term_rule": "signed", "rounding": "unbiased", "design_method": "multiplicative"}),
    "CLiSK": ({}, {"alpha": 0.5, "R": 0.5, "schedule": "1 every 10"}, {"normalise_smoothed": True}),
    "CLiME": ({"c0": 0.5}, {"c0": 0.5, "alpha": 0.5, "checks": "interval"}, {"c0": 0.5, "checks": "continuous"}),
    "CLiSKME": ({"c0": 0.5}, {"c0": 0.5, "alpha": 0.5, "R": 0.5, "checks": "interval"}),
    "RelativeConUCB": (
        {},
        {"variant": "difference", "schedule": "linear"},
        {"variant": "pos"},
        {"variant": "pos-neg"},
    ),
    "SharedRelativeConUCB": ({}, {"variant": "pos-neg", "schedule": "linear"}),
    "GraphConUCB": ({}, {"design": "G", "graph_feedback": False, "schedule": "linear"}),
    "HierLinUCB": ({}, THEORY),
    "CtoFConUCB": ({}, {"schedule": "linear", "lloyd": 0}),
    "ConDuel": ({}, {"strategy": "max", "schedule": "log"}, {"strategy": "random"}),
    "SharedLinUCB": ({}, THEORY),
    "DisLinUCB": ({}, THEORY | {"D": 3.0}),
    "AsyncLinUCB": ({}, THEORY | {"gamma_U": 2.0}),
    "FedLinUCB": ({}, THEORY | {"beta": "theory"}),
    "FedSupLinUCB": ({}, {"mode": "sync", "C": "theory", "D": 3.0, "sigma": 0.1}),
    "PrivateFedLinUCB": (
        {},
        {"privacy": "none", "alpha": 0.5, "lam": 1.0},
        {"privacy": "sdp-amplified"},
        {"privacy": "sdp-vector-sum", "batch": "theory"},
    ),
    "FCLUB": ({}, {"servers": 2, "beta": "theory"}),
    "HetoFedBandit": ({}, THEORY | {"D": 3.0, "sigma": 0.1}),
    "Uniform": ({},),
}
# Those of each clock, and of each routine of a library: precision meets neither words nor the steps of an algorithm.
DOUBLE = ("FedConPE", "FedPE", "PLS", "LinUCB", "ConUCB", "CLiME", "ConDuel", "SharedLinUCB", "DisLinUCB", "FCLUB")
KERNEL = "__gpu$xla.gpu.triton"  # not a library's: linalg/pulls.py
ALLOWED = {  # library calls, by platform; a new one must exist there, and be fit for batches
    "cuda": {"cusolver_potrf_ffi", "cusolver_geqrf_ffi", "cusolver_orgqr_ffi", "cusolver_syevd_ffi", KERNEL},
    "tpu": {"Qr", "ProductOfElementaryHouseholderReflectors", "Eigh"},
}
FLOAT64 = re.compile(r"\bf64\b|xf64>")
CALLS = re.compile(r"custom_call @\"?([\w.$]+)")


@pytest.fixture(autouse=True)
def forms_for_gpus(monkeypatch):
    """Programs are traced as where a GPU is."""
    monkeypatch.setattr(portable, "ELSEWHERE", ("cuda", "tpu"))


def cases():
    for name, variants in VARIANTS.items():
        for i, words in enumerate(variants):
            label = ", ".join(f"{k}={'function' if callable(v) else v}" for k, v in words.items())
            for dtype in ("float32", "float64") if i == 0 and name in DOUBLE else ("float32",):
                yield pytest.param(name, words, dtype, id=f"{name}({label}) {dtype}")


def plays_in_a_kernel(name, words):
    if name in ("CLiSK", "CLiME", "CLiSKME"):  # "theory" is a matter of log det V with them
        return words.get("alpha") != "theory"
    return name in ("LinUCB", "ArmCon", "ConLinUCB", "DisLinUCB", "AsyncLinUCB", "PrivateFedLinUCB")


def make_program(algorithm, catalog, dtype=np.float32, world=None):
    """The program of a batch of two runs, and its arguments."""
    numbers = (np.int32(2), np.int32(5), dtype(0.1), np.int32(0), np.int32(0))
    batch = engine.LaneInputs(*(np.full(2, x) for x in numbers), keys=engine.keys_of_runs(0, np.zeros(2), np.arange(2)))
    settings = jax.tree.map(lambda x: np.full(2, x, dtype), (algorithm, world or fb.World()))
    features = (np.asarray(x, dtype) for x in (catalog.arms, catalog.key_terms, catalog.users, 1))
    pool = engine.DeviceCatalog(*features, links=catalog.links)
    rounds = np.linspace(50, 500, 10, dtype=dtype)
    play = jax.vmap(partial(engine.run_one, max_clients=3, max_arms=7), in_axes=(0, 0, 0, None, None, None))

    def program(numbers, batch, pool, rounds):
        filled = jax.tree.unflatten(jax.tree.structure(settings), numbers)
        return play(*filled, batch, None, pool, rounds)  # draws its federations itself

    return jax.jit(program), (jax.tree.leaves(settings), batch, pool, rounds)


def test_all_algorithms_and_words_are_here():
    assert set(VARIANTS) == set(fb.REGISTRY)
    for name, variants in VARIANTS.items():
        made = [fb.REGISTRY[name](**words).hyperparameters() for words in variants]
        for field in fields(fb.REGISTRY[name]):
            if isinstance(field.default, str):
                values = {str(hyperparameters[field.name]) for hyperparameters in made}
                assert len(values) > 1, f"{name}: {field.name} has one value only in the tests"


@pytest.mark.parametrize(("name", "words", "dtype"), list(cases()))
def test_programs_lower_for_accelerators(catalog, name, words, dtype):
    with jax.enable_x64(dtype == "float64"):
        algorithm = fb.REGISTRY[name](**words).prepare(500)
        program, arguments = make_program(algorithm, catalog, np.dtype(dtype).type, algorithm.home())
        in_a_kernel = dtype == "float32" and plays_in_a_kernel(name, words)
        together = [("cuda",), ("tpu",)] if in_a_kernel else [("cuda", "tpu")]  # JAX lowers a kernel for all of them
        traced = program.trace(*arguments)
        text = "".join(traced.lower(lowering_platforms=platforms).as_text() for platforms in together)
    outputs = jax.tree.leaves(traced.out_info)
    assert {str(x.dtype) for x in outputs} == {dtype}
    assert (2, 10) in [x.shape for x in outputs]
    targets = set(CALLS.findall(text))
    assert targets <= ALLOWED["cuda"] | ALLOWED["tpu"]
    assert (KERNEL in targets) == in_a_kernel
    assert bool(FLOAT64.search(text)) == (dtype == "float64")
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert all("precision = [HIGHEST, HIGHEST]" in line for line in products), "rounded to a few digits there"
    if name == "FedConPE":
        assert products
        # Were the expressions above to find nothing, they would prove nothing.
        assert "xf32>" in text
        assert targets & ALLOWED["cuda"]
        assert targets & ALLOWED["tpu"]


def test_the_checks_would_find_what_they_look_for(catalog):
    program, arguments = make_program(fb.LinUCB(), catalog)
    text = program.trace(*arguments).lower(lowering_platforms=("cpu",)).as_text()
    assert [t for t in CALLS.findall(text) if t.startswith("lapack")]

    def with_callback(x):
        return jax.pure_callback(lambda y: np.asarray(y, np.float64), jax.ShapeDtypeStruct((3,), np.float64), x)

    with jax.enable_x64(True):
        text = jax.jit(with_callback).lower(np.ones(3)).as_text()
    assert not set(CALLS.findall(text)) <= ALLOWED["cuda"] | ALLOWED["tpu"]
    assert FLOAT64.search(text)


@pytest.mark.parametrize(
    "algorithm", [fb.ArmCon(alpha="theory"), fb.FedConPE(), fb.PLS(C=0.1)], ids=lambda algorithm: algorithm.name
)
def test_the_forms_for_gpus_play_the_same_runs(catalog, algorithm, monkeypatch):
    """Where the code has another form for GPUs than for CPUs, take it here: the same runs, to rounding."""

    def play():
        program, arguments = make_program(algorithm.prepare(500), catalog, np.float64)
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

"""Catalogs without key terms: who asks is refused; who does not, plays as ever (algorithms/test_protocol.py)."""

import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine.sweep import make_sweep

WORLD = fb.World(arm_sets="common")  # where all play
RUN = {"clients": 2, "arms": 6, "horizon": 200, "users": 2, "noise": 0.2, "checkpoints": 4, "world": WORLD}
OTHER = {"DELB": {"C1": 0.1}}  # the paper's constants warn
OWN = [
    kind(**OTHER.get(name, {})) for name, kind in fb.REGISTRY.items() if kind.__module__.startswith("fedbandit_jax.")
]
QUIET, ASKING = ([one for one in OWN if one.asks_key_terms is asks] for asks in (False, True))


def without_key_terms(catalog):
    return fb.Catalog.from_arrays(catalog.arms, users=catalog.users, name="bare")


def test_who_asks_and_who_does_not():
    assert {one.name for one in QUIET} >= {"ArmCon", "FedLinPE", "LinPE", "LinUCB", "SharedLinUCB", "Uniform"}
    assert {one.name for one in ASKING} >= {"ConLinUCB", "ConUCB", "FedConPE"}


@pytest.mark.parametrize("algorithm", [*ASKING, fb.FedConPE(C="catalog")], ids=lambda one: f"{one.name}")
def test_who_asks_is_refused(catalog, nothing_traced, algorithm):
    sentence = rf"^algorithms='{algorithm.name}' is not allowed: it must not ask about .* catalog 'bare' has none$"
    with pytest.raises(ValueError, match=sentence):
        fb.simulate(without_key_terms(catalog), [fb.Uniform(), algorithm], **RUN)
    with pytest.raises(ValueError, match=sentence):
        make_sweep([catalog, without_key_terms(catalog)], algorithm, **RUN)

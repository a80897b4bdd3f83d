"""Worlds in sweeps: what every algorithm claims and refuses, bad input, columns, files, programs."""

import dataclasses
import hashlib
import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import _runtime
from fedbandit_jax.engine import store
from fedbandit_jax.engine.code import code_of
from fedbandit_jax.engine.identity import run_ids
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.worlds.world import LATER, content_of
from tests.algorithms.test_protocol import ALGORITHMS

CATALOG = fb.datasets.synthetic(seed=1, dim=4, num_arms=20, num_key_terms=8, num_users=5, user_norm="unit")
SETTING = {"clients": 3, "arms": 5, "horizon": 130, "users": 2, "seeds": 1, "checkpoints": 8, "noise": 0.2}
VALUES = {
    "contexts": ("fixed", "redrawn"),
    "arm_sets": ("own", "common"),
    "preferences": ("shared", "own", 1, 2, 3),
    "arrivals": ("all", "one"),
    "rewards": ("gaussian", "bernoulli", "uniform", "zero-one"),
    "shared_noise": (False, True),
    "answers": ("mean", "max"),
    "discount": (1.0,),  # of answers="max" alone
    "candidates": ("all", "related"),
    "charged": (False, True),
}
PHASES = {
    "contexts='redrawn'": "plays phases on fixed arms",
    "arrivals='one'": "plays phases that end together for all clients",
}
TOO_LARGE = "asks about perturbed key terms, whose means may be too large for clicks"
NO_CLICKS = {f"rewards={clicks!r}": TOO_LARGE for clicks in ("bernoulli", "zero-one")}
REFUSED = {
    "DELB": PHASES | {"arm_sets='own'": "divides the pulls of arms that all clients have"},
    **dict.fromkeys(
        ("FedConPE", "MACO"),
        PHASES
        | {
            "shared_noise=True": "sums up the answers of a whole phase",
            "answers='max'": "learns from answers that are linear in theta",
            "candidates='related'": "asks about any key term",
            "charged=True": "does not tell what its questions cost",
        },
    ),
    "FedLinPE": PHASES,
    "FedPE": PHASES,
    "LinPE": PHASES,
    "PLS": {
        "contexts='redrawn'": "plays a basis of fixed arms",
        "arrivals='one'": "plays epochs that end together for all clients",
    },
    "PrivateFedLinUCB": {"arrivals='one'": "shares after batches that end together for all clients"},
    **{name: {} for name in ("LinUCB", "ArmCon", "ConUCB", "ConLinUCB", "SharedLinUCB", "Uniform")},
    **{name: {} for name in ("CLiME", "RelativeConUCB", "GraphConUCB")},
    **dict.fromkeys(("CLiSK", "CLiSKME"), NO_CLICKS | {"answers='max'": "asks about perturbed key terms"}),
    "SharedRelativeConUCB": {"arrivals='one'": "asks all clients before a round"},
    "HierLinUCB": {
        "contexts='redrawn'": "counts the pulls of the arms that it starts with",
        "answers='mean'": "takes answers for those of the best arm",
    },
    "CtoFConUCB": {
        "contexts='redrawn'": "clusters the arms that it starts with",
        "answers='max'": "asks about vectors",
        "candidates='related'": "asks about any key term",
        "charged=True": "does not tell what its questions cost",
    },
    "ConDuel": {
        "answers='max'": "compares key terms as vectors",
        "candidates='related'": "asks about any key term",
    },
    **{name: {} for name in ("DisLinUCB", "AsyncLinUCB", "FedLinUCB", "FedSupLinUCB", "FCLUB", "HetoFedBandit")},
}
ONE_EACH = {type(algorithm).__name__: algorithm for algorithm in reversed(ALGORITHMS)}
each_algorithm = pytest.mark.parametrize("name", REFUSED)


@pytest.fixture(autouse=True)
def few_lanes(monkeypatch):
    monkeypatch.setattr(_runtime, "l2_cache", lambda: 2**12)


def told(call, *given, **named):
    """The one sentence that a call ends with."""
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        call(*given, **named)
    return str(caught.value)


def is_refused(name, world):
    return any(f"{field}={value!r}" in REFUSED[name] for field, value in world.hyperparameters().items())


# ----------------------------------------------------------------------------------------------------- the protocol


def test_all_fields_and_algorithms_are_here():
    assert list(VALUES) == [field.name for field in dataclasses.fields(fb.World)]
    assert set(REFUSED) == {n for n, kind in fb.REGISTRY.items() if kind.__module__.startswith("fedbandit_jax.")}


@each_algorithm
@pytest.mark.parametrize("field", VALUES)
def test_a_world_is_claimed_or_refused_in_one_sentence(name, field, nothing_traced):
    """Each value alone, and beside another that is refused; before anything is traced."""
    home = ONE_EACH[name].home()
    for value in VALUES[field]:
        world, why = home.replace(**{field: value}), REFUSED[name].get(f"{field}={value!r}")
        if why is None:
            make_sweep(CATALOG, ONE_EACH[name], world=world, **SETTING)
        else:
            sentence = told(fb.sweep, CATALOG, ONE_EACH[name], world=[home, world], **SETTING)
            assert sentence == f"{ONE_EACH[name].title} {why}, so {field}={value!r} is not allowed"


def test_the_example_of_the_manual(nothing_traced):
    sentence = told(fb.simulate, CATALOG, fb.FedConPE(), world=fb.World(contexts="redrawn"), **SETTING)
    assert sentence == "FedConPE plays phases on fixed arms, so contexts='redrawn' is not allowed"


@each_algorithm
def test_made_for_is_what_is_refused(name):
    """The table of this file, and what the classes say."""
    made_for = fb.REGISTRY[name].made_for
    for field, values in VALUES.items():
        allowed = made_for.get(field, ("", values))[1]
        assert [v for v in values if v not in allowed] == [v for v in values if f"{field}={v!r}" in REFUSED[name]]


def test_an_algorithm_of_ones_own_is_made_for_the_default_unless_it_says_more(nothing_traced):
    """What an author has not thought of is refused: a learner that keeps to its first arms, a run of one's own."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(fb.RoundAlgorithm, abstract=True):
        pass

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Whole(fb.Algorithm, abstract=True):
        pass

    asking = ("contexts='redrawn'", "answers='max'", "candidates='related'")
    refused = {Mine: asking, Whole: (*asking, "arrivals='one'", "rewards='uniform'")}
    for kind, words in refused.items():
        for word in words:
            field, value = re.fullmatch(r"(\w+)='(\w+)'", word).groups()
            sentence = told(fb.sweep, CATALOG, kind(), world=fb.World(**{field: value}), **SETTING)
            assert sentence.startswith(f"{kind.__name__} ")
            assert sentence.endswith(f", so {word} is not allowed")


@pytest.mark.thorough
@each_algorithm
def test_the_wildest_world_that_is_claimed(name):
    """All fields at once: finite, regret that never falls, no more questions than rounds."""
    wild = fb.World(
        **{"contexts": "redrawn", "arm_sets": "common", "preferences": 2, "arrivals": "one", "rewards": "bernoulli"},
        **{"shared_noise": True, "answers": "max", "candidates": "related", "charged": True},
    )
    claimed = {
        field: getattr(wild if f"{field}={getattr(wild, field)!r}" not in REFUSED[name] else fb.World(), field)
        for field in VALUES
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="horizon=130 is shorter than the first phase")
        results = fb.simulate(CATALOG, ONE_EACH[name], world=fb.World(**claimed), **SETTING)
    for _, run in results.to_pandas().groupby(["user", "seed"]):
        for metric in ("regret", "conversations", "communication", "theta_error"):
            assert np.isfinite(run[metric]).all()
            assert (run[metric] >= 0).all()
            assert metric == "theta_error" or (run[metric].diff().dropna() >= -1e-4).all(), metric
        assert (run["conversations"] <= run["round"]).all()
        assert run["regret"].iloc[-1] > 0


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.usefixtures("without_type_checks")
class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "start"),
        [
            ({"contexts": "drawn"}, "contexts='drawn' is not allowed: "),
            ({"contexts": 1}, "contexts=1 is not allowed: "),
            ({"arm_sets": "shared"}, "arm_sets='shared' is not allowed: "),
            ({"preferences": "mine"}, "preferences='mine' is not allowed: "),
            ({"preferences": 0}, "preferences=0 is not allowed: "),
            ({"preferences": -2}, "preferences=-2 is not allowed: "),
            ({"preferences": 1.5}, "preferences=1.5 is not allowed: it must be a whole number"),
            ({"preferences": float("nan")}, "preferences=nan is not allowed: "),
            ({"preferences": True}, "preferences=True is not allowed: "),
            ({"preferences": None}, "preferences=None is not allowed: "),
            ({"preferences": 4}, "preferences=4 is not allowed: it must be a whole number of at least 1 and at most 3"),
            ({"arrivals": "two"}, "arrivals='two' is not allowed: "),
            ({"rewards": "clicks"}, "rewards='clicks' is not allowed: "),
            ({"shared_noise": "yes"}, "shared_noise='yes' is not allowed: it must be True or False"),
            ({"shared_noise": 1}, "shared_noise=1 is not allowed: it must be True or False"),
            ({"charged": "yes"}, "charged='yes' is not allowed: it must be True or False"),
            ({"answers": "best"}, "answers='best' is not allowed: it must be 'mean' or 'max'"),
            ({"candidates": "some"}, "candidates='some' is not allowed: it must be 'all' or 'related'"),
            ({"discount": 0.5}, "discount=0.5 is not allowed: it is of answers='max' alone"),
            ({"answers": "max", "discount": 0}, "discount=0 is not allowed: it must be a number in (0, 1]"),
            ({"answers": "max", "discount": 1.5}, "discount=1.5 is not allowed: it must be a number in (0, 1]"),
            ({"answers": "max", "discount": "half"}, "discount='half' is not allowed: it must be a number in (0, 1]"),
            ({"contexts": []}, "contexts of World=[] is not allowed: it must not be empty"),
            ({"contexts": ["fixed", "drawn"]}, "contexts='drawn' is not allowed: "),
            ({"preferences": [[1, 2]]}, "preferences of World=[1, 2] is not allowed: it must be a number or a word"),
        ],
        ids=str,
    )
    def test_fields(self, fields, start, nothing_traced):
        assert told(fb.sweep, CATALOG, fb.Uniform(), world=fb.World(**fields), **SETTING).startswith(start)

    @pytest.mark.parametrize(
        ("world", "start"),
        [
            ("redrawn", "world='redrawn' is not allowed: it must be a World, such as World(contexts='redrawn')"),
            (fb.World, "world=<class 'fedbandit_jax.worlds.world.World'> is not allowed: it must be a World, such as"),
            ([], "world=[] is not allowed: it must name at least one world"),
            ({"contexts": "redrawn"}, "world={'contexts': 'redrawn'} is not allowed: it must be a World"),
            ([fb.World(), "one"], "world='one' is not allowed: it must be a World"),
            ([fb.World(), fb.World()], "world=World() is not allowed: it is there twice"),
            ([fb.World(), fb.World(contexts=["fixed", "redrawn"])], "world=World() is not allowed: it is there twice"),
        ],
        ids=str,
    )
    def test_worlds(self, world, start, nothing_traced):
        sentence = told(fb.sweep, CATALOG, fb.Uniform(), world=world, **SETTING)
        assert sentence.startswith(start)
        assert "it is there twice" in sentence or "World(contexts='fixed'" not in start

    @pytest.mark.parametrize("fields", [{"answers": "max"}, {"candidates": "related"}], ids=str)
    def test_catalogs_that_do_not_know_what_arms_carry(self, fields, nothing_traced):
        bare = fb.Catalog.from_arrays(CATALOG.arms, CATALOG.key_terms, CATALOG.users, name="bare")
        ((name, word),) = fields.items()
        sentence = told(fb.sweep, bare, fb.ConUCB(), world=fb.World(**fields), **SETTING)
        assert sentence == (
            f"{name}={word!r} is not allowed: bare has no weights, which say what key terms an arm carries"
        )
        make_sweep(bare, fb.ConUCB(), world=fb.World(charged=True), **SETTING)

    def test_worlds_whose_arms_carry_nothing(self, nothing_traced):
        world = own_world(arms=lambda self, drawn, pool: pool[drawn])(contexts="redrawn", candidates="related")
        sentence = told(fb.sweep, CATALOG, fb.ConUCB(), world=world, **SETTING)
        assert sentence.startswith("candidates='related' is not allowed: ")

    def test_simulate_takes_one_world(self, nothing_traced):
        for world in ([fb.World(), fb.World(contexts="redrawn")], fb.World(preferences=[1, 2])):
            sentence = told(fb.simulate, CATALOG, fb.Uniform(), world=world, **SETTING)
            assert sentence.endswith("is not allowed: simulate takes one world; use sweep for a list")

    @pytest.mark.parametrize("contexts", ["fixed", "redrawn"])
    def test_more_arms_than_there_are(self, contexts, nothing_traced):
        sentence = told(fb.sweep, CATALOG, fb.Uniform(), world=fb.World(contexts=contexts), **SETTING | {"arms": 21})
        assert sentence.startswith("arms=21 is not allowed: it must be a whole number of at least 1 and at most 20")

    def test_more_groups_than_the_fewest_clients(self, nothing_traced):
        sentence = told(fb.sweep, CATALOG, fb.Uniform(), world=fb.World(preferences=3), **SETTING | {"clients": [5, 2]})
        assert sentence.startswith(
            "preferences=3 is not allowed: it must be a whole number of at least 1 and at most 2"
        )

    @pytest.mark.parametrize("what", ["arms", "key terms"])
    def test_vectors_that_no_click_answers(self, what, nothing_traced):
        """One that keeps its length, 1.5, in the direction of a user."""
        far = {"arms": CATALOG.arms, "key terms": CATALOG.key_terms}
        far[what] = np.concatenate([far[what], 1.5 * CATALOG.users[:1]])
        catalog = fb.Catalog.from_arrays(*far.values(), CATALOG.users, normalise=False, name="far")
        sentence = told(fb.sweep, catalog, fb.Uniform(), world=fb.World(rewards="bernoulli"), **SETTING)
        assert sentence.startswith(
            "rewards='bernoulli' is not allowed: a click has a mean between -1 and 1, but x.theta of the "
            f"{what} of far reaches 1.5"
        )
        for world in (fb.World(), fb.World(rewards="uniform")):
            make_sweep(catalog, fb.Uniform(), world=world, **SETTING)

    def test_users_whom_no_click_pleases(self, nothing_traced):
        """As drawn, they are longer than 1."""
        drawn = fb.datasets.synthetic(seed=1, dim=20, num_arms=20, num_key_terms=8, num_users=5)
        sentence = told(fb.sweep, drawn, fb.Uniform(), world=fb.World(rewards="bernoulli"), **SETTING)
        assert sentence.startswith("rewards='bernoulli' is not allowed: ")
        assert sentence.endswith("; user_norm='unit' scales users, normalise=True arms and key terms")

    def test_fewer_rounds_than_clients(self):
        setting = SETTING | {"clients": 9, "horizon": 6, "checkpoints": 2}
        with pytest.warns(UserWarning, match=r"^horizon=6 counts the plays of all clients with arrivals='one': of 9"):
            results = fb.simulate(CATALOG, fb.Uniform(), world=fb.World(arrivals="one"), **setting)
        assert np.isfinite(results.final()["regret"]).all()


# --------------------------------------------------------------------------------------------- sweeps and their files


def counts(results):
    return results.settings["runs_found"], results.settings["runs_computed"]


def test_a_sweep_over_worlds_resumes(tmp_path):
    """Another world is another run; the same world is found, however it is written."""
    first = [fb.World(), fb.World(preferences=2)]
    before = fb.sweep(CATALOG, fb.Uniform(), world=first, out=tmp_path, **SETTING)
    assert counts(before) == (0, 4)
    again = fb.sweep(CATALOG, fb.Uniform(), world=fb.World(preferences=["shared", 2]), out=tmp_path, **SETTING)
    assert counts(again) == (4, 0)
    more = fb.sweep(
        CATALOG,
        fb.Uniform(),
        world=[*first, fb.World(preferences=3), fb.World(rewards="uniform")],
        out=tmp_path,
        **SETTING,
    )
    assert counts(more) == (4, 4)
    default = fb.sweep(CATALOG, fb.Uniform(), out=tmp_path, **SETTING)
    assert counts(default) == (2, 0)
    np.testing.assert_array_equal(default.final()["regret"], before.final()["regret"][:2])
    loaded = fb.Results.load(tmp_path)
    assert len(loaded.final()) >= 2


def test_a_run_is_what_it_was_before_there_were_channels(tmp_path, monkeypatch):
    """Fields that came later, as by default, are neither in the hash of a run nor columns of older folders."""
    before = fb.sweep(CATALOG, fb.Uniform(), out=tmp_path, **SETTING)
    sweep = make_sweep(CATALOG, fb.Uniform(), world=[fb.World(), fb.World(charged=True)], **SETTING)
    cell = sweep.cells[0]
    content = [CATALOG.fingerprint, "Uniform", code_of(fb.Uniform), 3, 5, 130, 0.2, code_of(fb.World)]
    content += [[name, value] for name, value in sorted(cell.world.hyperparameters().items()) if name not in LATER]
    wanted = [hashlib.sha256(f"{json.dumps(content)} {user} 0".encode()).hexdigest()[:20] for user in (0, 1)]
    found = run_ids(sweep).tolist()
    assert found[:2] == wanted
    assert len(set(found)) == 4
    older = lambda world: {name: value for name, value in content_of(world).items() if name not in LATER}  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(store, "content_of", older)
        fb.sweep(CATALOG, fb.Uniform(), out=tmp_path / "older", **SETTING)
    fb.sweep(CATALOG, fb.Uniform(), out=tmp_path / "older", **SETTING | {"clients": 2})
    loaded = fb.Results.load(tmp_path / "older").final()
    assert not {*VALUES, "world"} & set(loaded.columns)
    np.testing.assert_array_equal(loaded["regret"][loaded["clients"] == 3], before.final()["regret"])


KEYS = ["contexts", "preferences", "user"]


def test_a_column_for_each_field_that_varies_and_no_other(tmp_path):
    worlds = fb.World(contexts=["fixed", "redrawn"], preferences=["shared", 2])
    results = fb.sweep(CATALOG, fb.Uniform(), world=worlds, out=tmp_path, **SETTING)
    loaded = fb.Results.load(tmp_path)
    for table in (results.to_pandas(), results.final(), loaded.to_pandas(), loaded.final()):
        assert [name for name in (*VALUES, "world") if name in table.columns] == ["contexts", "preferences"]
        assert set(table["contexts"]) == {"fixed", "redrawn"}
        assert {str(value) for value in table["preferences"]} == {"shared", "2"}
        assert len(table.groupby(KEYS)) == 8
    ordered = [table.final().astype({"preferences": str}).sort_values(KEYS) for table in (loaded, results)]
    np.testing.assert_array_equal(ordered[0]["regret"], ordered[1]["regret"])
    one = fb.sweep(CATALOG, fb.Uniform(), world=fb.World(contexts="redrawn"), **SETTING).final()
    assert not {*VALUES, "world"} & set(one.columns)
    rows = results.final()
    chosen = rows[(rows["contexts"] == "redrawn") & (rows["preferences"] == "shared")]
    np.testing.assert_array_equal(chosen["regret"], one["regret"])


def test_numbers_share_a_program_and_words_do_not(traced):
    """preferences=[2, 3] is one program; every other word is another."""
    setting = SETTING | {"arms": 7}  # of no other test
    results = fb.sweep(CATALOG, fb.Uniform(), world=fb.World(preferences=[2, 3]), **setting)
    assert (len(traced), results.settings["programs"]) == (1, 1)
    traced.clear()
    fb.sweep(CATALOG, fb.Uniform(), world=fb.World(preferences=1), **setting | {"noise": 0.3})
    assert not traced
    words = [fb.World(**{field: values[-1]}) for field, values in VALUES.items() if field != "preferences"]
    results = fb.sweep(CATALOG, fb.Uniform(), world=[fb.World(preferences="own"), *words], **setting)
    assert (len(traced), results.settings["programs"]) == (10, 10)
    traced.clear()
    fb.sweep(CATALOG, fb.Uniform(), world=fb.World(answers="max", discount=[0.5, 1]), **setting)
    assert not traced


CONLINUCB = Path(__file__).parents[3] / "shared" / "data" / "conlinucb-lastfm"


@pytest.mark.skipif(not CONLINUCB.is_dir(), reason="the features published with ConLinUCB are not here")
def test_regret_on_the_features_published_with_conlinucb():
    """Constants of its first public configuration, 100 users, 50 arms redrawn, T=200; reference values have s.e. 0.25.

    They were computed with the formulas of the public classes on other draws, so differences have about sqrt(2) times
    that error.
    """
    catalog = fb.datasets.conlinucb(CONLINUCB)
    users = np.random.default_rng(123).permutation(500)[:100]
    learners = [fb.LinUCB(), fb.ConLinUCB(strategy="MCR", alpha=0.1, lam=0.1)]
    world = fb.World(contexts="redrawn", shared_noise=True)
    results = fb.simulate(catalog, learners, clients=1, arms=50, horizon=200, users=users, world=world)
    found = results.summary().set_index("label")["mean"]
    assert found["LinUCB"] == pytest.approx(10.35, abs=4 * 0.25 * np.sqrt(2))
    assert found["ConLinUCB-MCR"] == pytest.approx(8.53, abs=4 * 0.25 * np.sqrt(2))


# ----------------------------------------------------------------------------------------------- worlds of one's own


def own_world(**content):
    return dataclass(frozen=True, kw_only=True)(type("Mine", (fb.World,), content))


@pytest.mark.parametrize(
    ("content", "fields", "sentence"),
    [
        (
            {"mean": lambda self, x, theta: x},
            {},
            r"^Mine.mean returned float32\[5,\d+\]: it must return the expected rewards",
        ),
        ({"mean": lambda self, x: x}, {}, r"^Mine.mean\(x\) is not allowed: it must take \(x, theta\)"),
        (
            {"theta_at": lambda self, theta, t: t},
            {},
            r"^Mine.theta_at returned int32\[\]: it must return the preference",
        ),
        ({"reward": lambda self, mean, u, noise: (mean, u)}, {}, r"^Mine.reward returned .*: it must return a reward"),
        (
            {"sigma": lambda self, noise: None},
            {},
            r"^Mine.sigma is not allowed: it must be a method sigma\(self, noise\)",
        ),
        (
            {"arms": lambda self, drawn, pool: pool[:3]},
            {},
            r"^contexts of Mine='fixed' is not allowed: it has its own arms",
        ),
        (
            {"arms": lambda self, drawn, pool: pool[:3]},
            {"contexts": "redrawn"},
            r"^Mine.arms returned float32\[3,\d+\]: it must return the arms of a round, 5 rows of \d+ numbers",
        ),
        (
            {"theta_at": lambda self, theta, t: 2 * theta},
            {"rewards": "bernoulli"},
            r"^rewards='bernoulli' is not allowed: means",
        ),
    ],
)
def test_a_wrong_method_of_a_world_is_one_sentence(nothing_traced, content, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        fb.simulate(CATALOG, fb.LinUCB(), world=own_world(**content)(**fields), **SETTING | {"arms": 5})


def test_fields_do_not_hide_methods():
    with pytest.raises(ValueError, match=r"^a field of Mine='fixed' is not allowed: that name is a method of World$"):
        own_world(fixed=0.5, __annotations__={"fixed": float})


def test_means_that_are_not_numbers_do_not_pass():
    """Not even of arms that a learner never pulls."""
    world = own_world(mean=lambda self, x, theta: jnp.log(x @ theta))()
    with pytest.raises(FloatingPointError, match="2 of 2 runs are not finite: regret, theta_error of LinUCB"):
        fb.simulate(CATALOG, fb.LinUCB(), world=world, **SETTING)


def test_a_world_without_sums_plays_no_phases(nothing_traced):
    world = own_world(reward=lambda self, mean, u, noise: mean)()
    with pytest.raises(
        ValueError, match=r"^LinPE cannot play in Mine: a phase needs means that stay, and `sum_of_rewards`"
    ):
        fb.simulate(CATALOG, fb.LinPE(), world=world, **SETTING)


def test_another_mean_is_what_regret_and_good_events_are_of():
    """Half of x.theta: half the regret of an algorithm that does not learn, and an estimate of half of theta."""
    world = own_world(mean=lambda self, x, theta: x @ theta / 2)()
    setting = SETTING | {"horizon": 2000, "noise": 0.2}
    half, whole = (
        fb.simulate(CATALOG, fb.Uniform(), world=w, **setting).final()["regret"] for w in (world, fb.World())
    )
    np.testing.assert_allclose(half, whole / 2, rtol=1e-5)
    phases = fb.simulate(CATALOG, fb.FedLinPE(), world=world, **setting).phases()
    assert phases["good_event"].mean() > 0.9


def test_worlds_print_what_is_not_as_by_default():
    assert repr(fb.World(contexts="redrawn", preferences=2)) == "World(contexts='redrawn', preferences=2)"

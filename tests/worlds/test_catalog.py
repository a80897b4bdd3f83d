"""Catalogs: the paper's synthetic one, and the checks of one's own arrays."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

ROWS = np.random.default_rng(0).normal(size=(4, 3))


def unit(rows):
    return rows / np.sqrt((rows**2).sum(axis=1))[:, None]


# --------------------------------------------------------------------------------------------------- synthetic


def synthetic_by_the_letter(seed, dim, num_arms, num_key_terms, num_users):
    """The appendix's recipe, one arm and one key term after another."""
    rng = np.random.default_rng(seed)
    pseudo = rng.uniform(-1, 1, (num_key_terms, dim))
    counts = rng.integers(1, 6, num_arms)
    carried = [rng.choice(num_key_terms, n, replace=False) for n in counts]
    noise = rng.normal(size=(num_arms, dim))
    arms = [sum(pseudo[k] / len(terms) for k in terms) + e for terms, e in zip(carried, noise, strict=True)]
    key_terms = []
    for k in range(num_key_terms):
        owners = [i for i in range(num_arms) if k in carried[i]]
        weights = [1 / len(carried[i]) for i in owners]
        mean = sum(w * arms[i] for w, i in zip(weights, owners, strict=True)) / sum(weights) if owners else pseudo[k]
        key_terms.append(mean)
    users = rng.uniform(-1, 1, (num_users, dim))
    weights = np.array([[(k in terms) / len(terms) for k in range(num_key_terms)] for terms in carried])
    return np.array(arms), np.array(key_terms), users, weights


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("sizes", [(6, 60, 30, 6), (3, 5, 40, 2)])  # the second leaves most key terms without an arm
def test_synthetic_follows_the_recipe(seed, sizes):
    names = ("dim", "num_arms", "num_key_terms", "num_users")
    catalog = fb.datasets.synthetic(seed, **dict(zip(names, sizes, strict=True)))
    arms, key_terms, users, weights = synthetic_by_the_letter(seed, *sizes)
    wanted = (unit(arms), unit(key_terms), users, weights)
    for found, expected in zip(
        (catalog.arms, catalog.key_terms, catalog.users, catalog.weights.toarray()), wanted, strict=True
    ):
        # float64 sums of at most 60 terms of size 1 in another order.
        np.testing.assert_allclose(found, expected, atol=1e-12)
    # A key term is the mean of its arms as drawn, before they are scaled.
    carried = weights.any(axis=0)
    np.testing.assert_allclose(unit((catalog.weights.T @ arms)[carried]), catalog.key_terms[carried], atol=1e-12)


def test_synthetic_has_the_papers_sizes():
    catalog = fb.datasets.synthetic()
    assert catalog.arms.shape == (5000, 50)
    assert catalog.key_terms.shape == (1000, 50)
    assert catalog.users.shape == (200, 50)
    assert (catalog.dim, catalog.key_term_rank, catalog.name) == (50, 50, "synthetic")
    for rows in (catalog.arms, catalog.key_terms):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-12)
    # A user's coordinates are independent and U(-1, 1): mean 0, second moment I / 3, and products of two of them have a
    # variance of at most 1 / 9. Five standard errors, for the largest of 2500 entries.
    n, d = catalog.users.shape
    assert np.abs(catalog.users.mean(axis=0)).max() < 5 / np.sqrt(3 * n)
    assert np.abs(catalog.users.T @ catalog.users / n - np.eye(d) / 3).max() < 5 / (3 * np.sqrt(n))


def test_norms_of_synthetic_users():
    """As drawn, |theta|^2 of coordinates U(-1, 1) has mean d / 3: a norm of about 4.1 in 50 dimensions."""
    drawn, unit_users, two = (fb.datasets.synthetic(7, user_norm=norm) for norm in ("drawn", "unit", 2))
    norms = np.linalg.norm(drawn.users, axis=1)
    assert np.mean(norms**2) == pytest.approx(50 / 3, rel=0.02)
    assert np.abs(drawn.users).max() <= 1
    assert drawn.user_bound == norms.max()
    assert 4.05 < np.median(norms) < 4.15
    assert drawn.fingerprint == fb.datasets.synthetic(7).fingerprint, "the appendix does not scale them"
    np.testing.assert_allclose(unit_users.users, drawn.users / norms[:, None], rtol=1e-14)
    np.testing.assert_allclose(two.users, 2 * unit_users.users, rtol=1e-14)
    for other in (drawn, two):
        np.testing.assert_array_equal(other.arms, unit_users.arms)
        np.testing.assert_array_equal(other.key_terms, unit_users.key_terms)
    with pytest.raises(ValueError, match=r"^user_norm='svd' is not allowed: .* or 'drawn' or 'unit'$"):
        fb.datasets.synthetic(user_norm="svd")


def test_few_key_terms_limit_what_an_arm_carries():
    catalog = fb.datasets.synthetic(0, dim=4, num_arms=30, num_key_terms=2, num_users=1)
    assert catalog.key_terms.shape == (2, 4)
    assert catalog.key_term_rank == 2


def test_seeds_of_the_synthetic_catalog():
    sizes = {"dim": 4, "num_arms": 10, "num_key_terms": 5, "num_users": 3}
    first, again, other = (fb.datasets.synthetic(seed, **sizes) for seed in (1, 1, 2))
    for name in ("arms", "key_terms", "users"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        assert (getattr(first, name) != getattr(other, name)).all()


@pytest.mark.parametrize("name", ["seed", "dim", "num_arms", "num_key_terms", "num_users"])
def test_synthetic_checks_its_sizes(name):
    with pytest.raises(ValueError, match=rf"^{name}=-1 is not allowed: it must be a whole number of at least [01]$"):
        fb.datasets.synthetic(**{name: -1})


@pytest.mark.parametrize("name", ["dim", "num_arms", "num_key_terms", "num_users"])
def test_a_catalog_that_no_machine_holds_is_refused(name):
    message = rf"^{name}=1000000000000 is not allowed: the catalog takes .* GB, and this machine has .* GB$"
    with pytest.raises(ValueError, match=message):
        fb.datasets.synthetic(**{name: 10**12})


@pytest.mark.usefixtures("without_type_checks")
def test_sizes_may_be_any_whole_number():
    plain, other = (
        fb.datasets.synthetic(1, **sizes)
        for sizes in (
            {"dim": 3, "num_arms": 20, "num_key_terms": 9, "num_users": 2},
            {"dim": 3.0, "num_arms": np.array(20), "num_key_terms": jnp.int32(9), "num_users": np.float64(2)},
        )
    )
    assert plain.fingerprint == other.fingerprint


# ------------------------------------------------------------------------------------------------- from_arrays


def test_arms_and_key_terms_are_scaled_to_unit_norm():
    arms = [[3.0, 4.0], [0.0, -2.0]]
    catalog = fb.Catalog.from_arrays(arms, [[1, 1]], np.array([[5, 0]], np.float32), name="mine")
    np.testing.assert_allclose(catalog.arms, [[0.6, 0.8], [0, -1]], rtol=1e-15)
    np.testing.assert_allclose(catalog.key_terms, [[0.5**0.5, 0.5**0.5]], rtol=1e-15)
    np.testing.assert_array_equal(catalog.users, [[5, 0]])
    assert catalog.arms.dtype == catalog.users.dtype == np.float64
    assert repr(catalog) == "Catalog('mine': 2 arms, 1 key terms, 1 users, d=2)"
    assert (catalog.dim, catalog.key_term_rank) == (2, 1)
    assert arms == [[3.0, 4.0], [0.0, -2.0]], "the caller's list was changed"


def test_norms_of_users():
    """As given, or scaled like the others or to a number; S is the largest."""
    norms = {
        "unit": np.ones(4),
        "given": np.linalg.norm(ROWS, axis=1),
        2.5: np.full(4, 2.5),
    }
    for user_norm, expected in norms.items():
        catalog = fb.Catalog.from_arrays(ROWS, ROWS, ROWS, user_norm=user_norm)
        np.testing.assert_allclose(catalog.users, unit(ROWS) * expected[:, None], rtol=1e-14)
        np.testing.assert_allclose(catalog.arms, unit(ROWS), rtol=1e-14)
        assert catalog.user_bound == pytest.approx(expected.max(), rel=1e-14)
        assert catalog.describe()["kept_norms"]["users"] == pytest.approx(np.quantile(expected, (0, 0.5, 1)))
    assert fb.Catalog.from_arrays(ROWS, ROWS, ROWS, user_norm="unit").user_bound == 1.0, "to the bit"
    plain = fb.Catalog.from_arrays(ROWS, ROWS, ROWS)
    np.testing.assert_array_equal(plain.users, ROWS)
    assert plain.fingerprint == fb.Catalog.from_arrays(ROWS, ROWS, ROWS, user_norm="given").fingerprint


def test_nothing_is_scaled_without_normalise():
    catalog = fb.Catalog.from_arrays(3 * ROWS, 2 * ROWS, ROWS, normalise=False)
    for found, given in ((catalog.arms, 3 * ROWS), (catalog.key_terms, 2 * ROWS), (catalog.users, ROWS)):
        np.testing.assert_array_equal(found, given)
    scaled = fb.Catalog.from_arrays(ROWS, ROWS, ROWS, normalise=False, user_norm=2)
    assert scaled.user_bound == pytest.approx(2)
    np.testing.assert_array_equal(scaled.arms, ROWS)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "drawn", True, [1, 2]])
def test_bad_norms_are_refused(value):
    allowed = r"is not allowed: it must be a number in \(0, infinity\) or 'unit' or 'given'$"
    with pytest.raises(ValueError, match=r"^user_norm=.* " + allowed):
        fb.Catalog.from_arrays(ROWS, ROWS, ROWS, user_norm=value)
    with pytest.raises(ValueError, match=r"^normalise=2 is not allowed: it must be True or False$"):
        fb.Catalog.from_arrays(ROWS, ROWS, ROWS, normalise=2)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_rows_of_any_size_keep_their_direction(scale):
    """Squares of these leave the range of float64."""
    catalog = fb.Catalog.from_arrays(scale * ROWS, ROWS, ROWS)
    np.testing.assert_allclose(catalog.arms, unit(ROWS), rtol=1e-13)


def changed(row, column, value):
    rows = ROWS.copy()
    rows[row, column] = value
    return rows


BAD = {
    "zero row": (np.vstack([ROWS, np.zeros(3)]), r"{}\[4\] is a zero row"),
    "NaN": (changed(1, 2, np.nan), r"{}\[1, 2\]=nan is not a finite number"),
    "infinite": (changed(3, 0, -np.inf), r"{}\[3, 0\]=-inf is not a finite number"),
    "ragged": ([[1.0, 2.0, 3.0], [1.0, 2.0]], "{} must be a rectangular array of numbers"),
    "words": ([["a", "b", "c"]], r"{} must be a rectangular array of numbers .*, but it is \[\['a', 'b', 'c'\]\]$"),
    "numbers as words": (ROWS.astype(str), "{} must be a rectangular array of numbers"),
    "complex": (ROWS + 1j, r"{} must be a rectangular array of numbers .*, but it is array\(\[\[.*\+1\.j.*\]\]\)$"),
    "dates": (np.array([["2020-01-01"]], "M8[D]"), "{} must be a rectangular array of numbers"),
    "masked": (np.ma.array(ROWS, mask=ROWS > 1), r"{0} is a masked array; it must be a plain one, such as {0}.filled"),
    "objects": ([[object(), 1, 2]], "{} must be a rectangular array of numbers"),
    "beyond floats": ([[10**400, 1, 1]], "{} must be a rectangular array of numbers"),
    "a table": ({"a": 1}, "{} must be a rectangular array of numbers"),
    "nothing": (None, r"{}.*(2-D|rectangular)"),
    "1-D": (ROWS[0], r"{} has shape \(3,\); it must be 2-D"),
    "3-D": (ROWS[None], r"{} has shape \(1, 4, 3\); it must be 2-D"),
    "no rows": (np.zeros((0, 3)), r"{} has shape \(0, 3\); .* at least one row and column"),
    "no columns": (np.zeros((3, 0)), r"{} has shape \(3, 0\); .* at least one row and column"),
    "empty list": ([], r"{} has shape \(0,\)"),
}


@pytest.mark.parametrize(
    ("argument", "case"),
    [pair for pair in itertools.product(("arms", "key_terms", "users"), BAD) if pair != ("key_terms", "nothing")],
)
def test_bad_features_are_refused(argument, case):
    value, message = BAD[case]
    good = {"arms": ROWS, "key_terms": ROWS, "users": ROWS}
    with pytest.raises(ValueError, match="^" + message.format(argument)) as caught:
        fb.Catalog.from_arrays(**good | {argument: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("argument", ["arms", "key_terms", "users"])
def test_dimensions_must_agree(argument):
    good = {"arms": ROWS, "key_terms": ROWS, "users": ROWS}
    with pytest.raises(ValueError, match=rf"same number of columns, but .*{argument} has 2"):
        fb.Catalog.from_arrays(**good | {argument: ROWS[:, :2]})


def test_a_catalog_may_have_no_key_terms():
    catalog = fb.Catalog.from_arrays(3 * ROWS, users=ROWS, name="bare")
    assert fb.Catalog.from_arrays(3 * ROWS, None, ROWS, name="bare").fingerprint == catalog.fingerprint
    assert (catalog.key_terms.shape, catalog.key_terms.dtype) == ((0, 3), np.float64)
    assert (catalog.key_term_rank, catalog.realised_C) == (0, 0.0)
    assert repr(catalog) == "Catalog('bare': 4 arms, 0 key terms, 4 users, d=3)"
    found = catalog.describe()
    assert found["key_terms"] == 0
    assert set(found["norms"]) == set(found["kept_norms"]) == {"arms", "users"}
    assert "key terms span        0 of 3 dimensions: not all of R^d" in str(found).splitlines()
    with pytest.raises(ValueError, match=r"^users=None is not allowed: it must be a rectangular array .* a user$"):
        fb.Catalog.from_arrays(ROWS, ROWS)
    with pytest.raises(ValueError, match=r"^key_term_names has 1 entries; it must have one for each of 0 key_terms$"):
        fb.Catalog.from_arrays(ROWS, users=ROWS, key_term_names=["x"])
    with pytest.raises(ValueError, match=r"^key_terms has shape \(0, 3\); it must be .* or None where nobody asks$"):
        fb.Catalog.from_arrays(ROWS, np.zeros((0, 3)), ROWS)
    with pytest.raises(ValueError, match="same number of columns, but arms has 3, users has 2"):
        fb.Catalog.from_arrays(ROWS, users=ROWS[:, :2])


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arm_names": 3}, r"^arm_names=3 is not allowed: it must be a list of names, one for each of 4 arms$"),
        (
            {"user_ids": "abcd"},
            r"^user_ids='abcd' is not allowed: it must be a list of names, one for each of 4 users$",
        ),
        ({"name": None}, r"^name=None is not allowed: it must be a word$"),
        ({"name": ""}, r"^name='' is not allowed: it must be a word$"),
    ],
)
def test_names_are_words(changes, message):
    with pytest.raises(ValueError, match=message):
        fb.Catalog.from_arrays(ROWS, ROWS, ROWS, **changes)

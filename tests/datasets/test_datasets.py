"""Real data sets: formats, selection, features, and every bad input with its sentence."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.datasets import feedback, files
from tests import archives
from tests.archives import MAKERS, load

SHARED = Path(__file__).parents[3] / "shared" / "data"

pytestmark = pytest.mark.filterwarnings("ignore:.*to take, fewer than num_")


def expected_matrix(rows, arms, users):
    """The binary matrix of the paper, cell by cell."""
    liked = {(u, a) for u, a, rating in rows if rating > 3}
    return np.array([[(u, a) in liked for a in arms] for u in users], float)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# --------------------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize("form", ["zip", "tar", "tgz", "folder", "zip around tar"])
@pytest.mark.parametrize("kind", MAKERS)
def test_every_packing_gives_the_same_catalog(kind, form, tmp_path):
    whole = load(archives.pack(MAKERS[kind](), tmp_path, "folder", inside=""))
    other = tmp_path / "other"
    other.mkdir()
    packed = archives.pack(MAKERS[kind](), other, form)
    assert load(packed).fingerprint == whole.fingerprint
    sizes = {"num_arms": archives.ARMS, "num_users": archives.USERS, "dim": archives.DIM}
    assert getattr(fb.datasets, kind)(packed, **sizes).fingerprint == whole.fingerprint
    assert whole.name == kind


@pytest.mark.parametrize("kind", MAKERS)
def test_reading_in_small_pieces_changes_nothing(kind, tmp_path, monkeypatch):
    path = archives.pack(MAKERS[kind](), tmp_path)
    whole = load(path)
    monkeypatch.setattr(files, "BLOCK_BYTES", 257)  # a few lines
    with files.open_source(path) as source:
        member = max(source.members, key=lambda m: m.size)
        blocks = list(source.blocks(member))
        assert len(blocks) > 20
        assert b"".join(block.data for block in blocks) == member.open().read()
        before = np.cumsum([0, *(block.data.count(b"\n") for block in blocks[:-1])])
        assert [block.first_line for block in blocks] == (1 + before).tolist()
    assert load(path).fingerprint == whole.fingerprint


def test_both_spellings_of_movielens_agree(tmp_path):
    (tmp_path / "dat").mkdir()
    csv = load(archives.pack(archives.movielens(), tmp_path))
    dat = load(archives.pack(archives.movielens(release="dat"), tmp_path / "dat"))  # its titles are in latin-1
    assert csv.fingerprint == dat.fingerprint
    assert archives.title(1) in csv.arm_names


@pytest.mark.parametrize(("categories", "prefix"), [("list", "yelp_academic_dataset_"), ("string", ""), ("list", "")])
def test_every_spelling_of_yelp_agrees(categories, prefix, tmp_path):
    current = load(archives.pack(archives.yelp(), tmp_path))
    older = load(archives.pack(archives.yelp(categories=categories, prefix=prefix), tmp_path, "tar"))
    assert older.fingerprint == current.fingerprint
    assert current.origin["dropped"]["arms without key terms"] == 1  # categories: null


def test_lastfm_keeps_names_that_look_quoted_and_artists_without_one(tmp_path):
    catalog = load(archives.pack(archives.lastfm(), tmp_path))
    assert {'"1\u0416', "artist 3"} <= set(catalog.arm_names)
    assert catalog.key_term_names == tuple(sorted(f"{genre} \u00e9" for genre in archives.GENRES))
    assert catalog.origin["raw"]["tagged artists without a name"] == 1


# --------------------------------------------------------------------------------------------------- selection


def test_takes_the_users_and_arms_with_most_feedback(tmp_path):
    rows = archives.ratings()
    catalog = load(archives.pack(archives.movielens(rows), tmp_path), num_users=12, num_arms=15)
    user_count, arm_count = Counter(u for u, _, _ in rows), Counter(a for _, a, _ in rows)
    users = sorted(user_count, key=lambda u: (-user_count[u], u))[:12]
    liked = {a for u, a, rating in rows if u in users and rating > 3}
    arms = sorted((a for a in arm_count if archives.genres(a) and a in liked), key=lambda a: (-arm_count[a], a))[:15]
    assert catalog.user_ids == tuple(map(str, users))
    assert catalog.arm_names == tuple(archives.title(a) for a in arms)
    assert catalog.origin["raw"] == {
        "users": len(user_count),
        "movies": archives.ARMS,
        "movies rated": len(arm_count),
        "ratings": len(rows),
        "ratings above 3": sum(rating > 3 for _, _, rating in rows),
    }
    likes = expected_matrix(rows, arms, users).sum()
    assert catalog.origin["matrix"] == {"users": 12, "arms": 15, "likes": likes}
    assert catalog.origin["density"] == likes / (12 * 15)


def test_features_are_the_papers(tmp_path):
    """SVD of the binary matrix and key terms as weighted means, each step spelled out densely."""
    rows = archives.ratings()
    catalog = load(archives.pack(archives.movielens(rows), tmp_path))
    arms = [int(name.split('"')[1].removesuffix("th")) for name in catalog.arm_names]
    R = expected_matrix(rows, arms, map(int, catalog.user_ids))
    left, values, right = np.linalg.svd(R, full_matrices=False)
    np.testing.assert_allclose(catalog.origin["singular_values"], values[: archives.DIM], rtol=1e-10)
    # Signs are free in the SVD: products of features are not. The gaps between the values are near 0.1.
    kept = slice(archives.DIM)
    sign = np.sign(np.sum(right[kept].T * catalog.arms, axis=0))
    np.testing.assert_allclose(catalog.arms, unit(right[kept].T) * sign, atol=1e-9)
    np.testing.assert_allclose(catalog.users, left[:, kept] * sign, atol=1e-9)
    for name, vector in zip(catalog.key_term_names, catalog.key_terms, strict=True):
        weights = np.array([(name in archives.genres(a)) / len(archives.genres(a)) for a in arms])
        mean = weights @ catalog.arms
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-12)


@pytest.mark.parametrize("kind", MAKERS)
def test_weights_give_the_key_terms(kind, tmp_path):
    """An arm has the weight 1/n on each of its n key terms; key terms are means of the arms that are kept."""
    catalog = load(archives.pack(MAKERS[kind](), tmp_path), num_arms=25)
    weights = catalog.weights.toarray()
    assert weights.shape == (len(catalog.arms), len(catalog.key_terms))
    for name, row in zip(catalog.arm_names, weights, strict=True):
        listed = archives.genres(int("".join(filter(str.isdecimal, name))))
        wanted = {genre: 1 / len(listed) for genre in listed}
        found = {term.split()[0]: weight for term, weight in zip(catalog.key_term_names, row, strict=True) if weight}
        assert found == wanted
    np.testing.assert_allclose(unit(weights.T @ catalog.arms), catalog.key_terms, atol=1e-12)


def test_weights_leave_out_key_terms_without_a_direction(tmp_path, monkeypatch):
    """Their columns go, and an arm's other weights stay what they were when the means were taken."""
    whole = load(archives.pack(archives.movielens(), tmp_path))
    means = feedback.key_term_means

    def cancelled(arms, terms, count):
        found = means(arms, terms, count)
        found[2] = 0
        return found

    monkeypatch.setattr(feedback, "key_term_means", cancelled)
    fewer = load(archives.pack(archives.movielens(), tmp_path))
    kept = [0, 1, 3, 4]
    assert fewer.key_term_names == tuple(whole.key_term_names[k] for k in kept)
    np.testing.assert_array_equal(fewer.weights.toarray(), whole.weights.toarray()[:, kept])


def test_says_what_is_dropped(tmp_path):
    rows = [row for row in archives.ratings() if row[1] != 40]
    rows += [(99, arm, 1.0) for arm in range(1, 40)]  # the user with most ratings likes nothing
    rows += [(1, 40, 2.0)]  # and nobody likes movie 40
    catalog = load(archives.pack(archives.movielens(rows), tmp_path), num_users=31)
    dropped = catalog.origin["dropped"]
    liked = {a for _, a, rating in rows if rating > 3 and archives.genres(a)}
    assert dropped == {
        "arms without key terms": 1,
        "arms that no chosen user likes": 39 - len(liked),
        "chosen users who like no chosen arm": 31 - len(catalog.users),
        "key terms without a chosen arm": 0,
        "rows without a direction": 0,
    }
    assert "99" not in catalog.user_ids
    assert archives.title(40) not in catalog.arm_names
    few = load(archives.pack(archives.movielens(rows), tmp_path), num_arms=5, dim=2)
    carried = {genre for name in few.arm_names for genre in archives.genres(int(name.split('"')[1].removesuffix("th")))}
    assert few.key_term_names == tuple(sorted(carried))
    assert few.origin["dropped"]["key terms without a chosen arm"] == len(archives.GENRES) - len(carried)


def test_drops_rows_that_the_features_do_not_reach(tmp_path):
    """A user and a movie with nobody but each other: their singular vector is not among the first."""
    rows = [row for row in archives.ratings() if row[1] != 40] + [(99, 40, 5.0)]
    catalog = load(archives.pack(archives.movielens(rows), tmp_path), num_users=31)
    assert catalog.origin["dropped"]["rows without a direction"] == 2
    assert "99" not in catalog.user_ids
    assert archives.title(40) not in catalog.arm_names


@pytest.mark.filterwarnings("default:.*to take, fewer than num_")
def test_says_when_there_is_less_than_asked_for(tmp_path):
    path = archives.pack(archives.movielens(), tmp_path)
    with pytest.warns(UserWarning, match=r"packed.zip has \d+ arms to take, fewer than num_arms=5,000$"):
        catalog = load(path, num_arms=5000)
    assert len(catalog.arms) < archives.ARMS


@pytest.mark.parametrize("features", ["svd", "logistic"])
def test_norms_of_users(features, tmp_path):
    """Of R = Theta S A', rows of Theta, of Theta S, or scaled: always the same arms."""
    path = archives.pack(archives.movielens(), tmp_path)
    found = {norm: load(path, features=features, user_norm=norm) for norm in ("svd", "scaled", "unit", 3)}
    theta, values = found["svd"].users, np.array(found["svd"].origin["singular_values"])
    np.testing.assert_allclose(theta.T @ theta, np.eye(archives.DIM), atol=1e-10)  # no user was dropped
    np.testing.assert_allclose(found["scaled"].users, theta * values, rtol=1e-10)
    own = theta * (1 if features == "svd" else np.sqrt(values))
    np.testing.assert_allclose(found["unit"].users, own / np.linalg.norm(own, axis=1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(found[3].users, 3 * found["unit"].users, rtol=1e-12)
    assert len({catalog.fingerprint for catalog in found.values()}) == 4
    for norm, catalog in found.items():
        np.testing.assert_array_equal(catalog.arms, found["unit"].arms)
        assert catalog.origin["options"]["user_norm"] == norm
        assert f"user_norm {norm}" in str(catalog.describe())
    assert load(path, features=features).fingerprint == found["svd"].fingerprint


# --------------------------------------------------------------------------------------------------- loading by name


def test_load_takes_synthetic_prepared_and_raw(tmp_path):
    drawn = fb.datasets.load("synthetic", seed=3, dim=4, num_arms=20, num_key_terms=8, num_users=5)
    same = fb.datasets.synthetic(3, dim=4, num_arms=20, num_key_terms=8, num_users=5)
    assert drawn.fingerprint == same.fingerprint
    with pytest.raises(ValueError, match=r"^features='svd' is not allowed: the synthetic catalog is drawn"):
        fb.datasets.load("synthetic", features="svd")
    prepared = drawn.save(tmp_path / "drawn.npz")
    assert fb.datasets.load(prepared).fingerprint == drawn.fingerprint
    with pytest.raises(ValueError, match=r"^dim=3 is not allowed: .*drawn\.npz is prepared already"):
        fb.datasets.load(prepared, dim=3)
    path = archives.pack(archives.movielens(), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no file user_taggedartists\.dat$"):
        load(path, kind="lastfm")


def run_shell(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_shell_prepares_and_describes(tmp_path):
    raw, out = archives.pack(archives.yelp(), tmp_path), tmp_path / "yelp.npz"
    sizes = ("--num-arms", archives.ARMS, "--num-users", archives.USERS, "--dim", archives.DIM)
    prepared = run_shell("data", "prepare", raw, out, *sizes)
    assert prepared.exit_code == 0
    catalog = fb.Catalog.load(out)
    assert catalog.fingerprint == load(raw).fingerprint
    for shown in (prepared.output, run_shell("data", "describe", out).output):
        assert str(catalog.describe()) in shown
    for norm, bound in (("scaled", load(raw, user_norm="scaled").user_bound), ("2.5", 2.5)):
        assert run_shell("data", "prepare", raw, out, *sizes, "--user-norm", norm).exit_code == 0
        assert fb.Catalog.load(out).user_bound == pytest.approx(bound)


def test_shell_writes_nothing_when_the_input_is_bad(tmp_path):
    raw, out = (
        archives.pack(archives.yelp() | {"yelp_academic_dataset_review.json": b"{"}, tmp_path),
        tmp_path / "yelp.npz",
    )
    failed = run_shell("data", "prepare", raw, out, "--dim", archives.DIM)
    assert isinstance(failed.exception, ValueError)
    assert list(tmp_path.iterdir()) == [raw]
    early = run_shell("data", "prepare", tmp_path / "nowhere.zip", tmp_path / "no" / "yelp.npz")
    assert "its folder" in str(early.exception)  # before the archive is looked for


# --------------------------------------------------------------------------------------------------- simulation


def test_warns_when_key_terms_do_not_span(tmp_path, monkeypatch, recwarn):
    catalog = load(archives.pack(archives.movielens(), tmp_path), dim=10)
    run = {"clients": 2, "arms": 5, "horizon": 20, "users": 1}
    recwarn.clear()
    results = fb.simulate(catalog, fb.Uniform(), **run)
    assert not recwarn.list  # it asks about no key terms
    assert results.settings["catalogs"] == {catalog.name: catalog.fingerprint}
    monkeypatch.setattr(fb.Uniform, "asks_key_terms", True)
    with pytest.warns(UserWarning, match="the 5 key terms of movielens span 5 of its 10 dimensions: .* other 5"):
        fb.simulate(catalog, fb.Uniform(), **run)
    assert fb.FedConPE.asks_key_terms


# --------------------------------------------------------------------------------------------------- real archives


def archive(name):
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"{name} is not in {SHARED}")
    return path


def test_movielens_latest_small():
    catalog = fb.datasets.load(archive("ml-latest-small.zip"))
    raw = catalog.origin["raw"]
    assert (raw["users"], raw["movies"], raw["ratings"]) == (610, 9742, 100_836)
    assert (catalog.arms.shape, catalog.users.shape, catalog.name) == ((5000, 50), (200, 50), "movielens")
    assert catalog.user_ids[:2] == ("414", "599")
    assert catalog.arm_names[:2] == ("Forrest Gump (1994)", "Shawshank Redemption, The (1994)")
    assert len(catalog.key_term_names) == catalog.key_term_rank == 19
    assert catalog.origin["dropped"]["arms without key terms"] == 34


def test_lastfm_hetrec_2011():
    catalog = fb.datasets.load(archive("hetrec2011-lastfm-2k.zip"))
    raw = catalog.origin["raw"]
    assert (raw["users"], raw["artists"], raw["artists tagged"]) == (1892, 17_632, 12_523)
    assert (raw["tagged artists without a name"], raw["tag assignments"]) == (390, 186_479)
    assert (catalog.arms.shape, catalog.users.shape, catalog.name) == ((5000, 50), (200, 50), "lastfm")
    dropped = catalog.origin["dropped"]["key terms without a chosen arm"]
    assert len(catalog.key_terms) + dropped == 9749
    assert catalog.key_term_rank == 50
    assert 0.2 < catalog.realised_C < 0.6

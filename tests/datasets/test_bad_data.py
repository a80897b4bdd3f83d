"""Every bad input of the data sets: one sentence that names the file, the line and what is allowed."""

import tarfile
import zipfile

import pytest

from fedbandit_jax.datasets import files
from tests import archives
from tests.archives import MAKERS, load

pytestmark = pytest.mark.filterwarnings("ignore:.*to take, fewer than num_")


def changed(kind, name, old, new):
    """The files of a data set with one change in one of them."""
    made = MAKERS[kind]()
    assert old in made[name]
    return made | {name: made[name].replace(old, new, 1)}


def broken_line(kind, name, line, new):
    made = MAKERS[kind]()
    lines = made[name].split(b"\n")
    lines[line - 1] = new
    return made | {name: b"\n".join(lines)}


def without(kind, name):
    return {key: data for key, data in MAKERS[kind]().items() if key != name}


ASSIGNED, REVIEW = "user_taggedartists.dat", "yelp_academic_dataset_review.json"
BUSINESS = "yelp_academic_dataset_business.json"
SENTENCES = {
    "missing file": (without("movielens", "movies.csv"), r"has no file movies\.csv$"),
    "missing file of Last.fm": (without("lastfm", "tags.dat"), r"has no file tags\.dat$"),
    "missing file of Yelp": (without("yelp", BUSINESS), rf"has no file {BUSINESS} or business\.json$"),
    "no data set": ({"notes.txt": b"hello"}, r"holds no known data set; it must hold one of ratings\.csv, "),
    "two data sets": (archives.movielens() | archives.lastfm(), "holds lastfm and movielens; it must hold one of"),
    "wrong column": (
        changed("movielens", "ratings.csv", b"rating", b"score"),
        r"line 1 of ratings\.csv names the columns userId, movieId, score, timestamp; it must name rating too$",
    ),
    "wrong column of Last.fm": (
        changed("lastfm", "artists.dat", b"name", b"title"),
        r"line 1 of artists\.dat names the columns id, title, url, pictureURL; it must name name too$",
    ),
    "empty file": (
        archives.movielens() | {"ratings.csv": b""},
        r"line 1 of ratings\.csv names the columns nothing; it must name userId and movieId and rating too$",
    ),
    "rating that is no number": (
        broken_line("movielens", "ratings.csv", 7, b"1,2,good,3"),
        r"line 7 of ratings\.csv has rating 'good'; it must be a number$",
    ),
    "rating that is NaN": (
        broken_line("movielens", "ratings.csv", 7, b"1,2,nan,3"),
        r"line 7 of ratings\.csv has rating 'nan'; it must be a number$",
    ),
    "user that is no number": (
        broken_line("movielens", "ratings.csv", 9, b"Bob,2,4,3"),
        r"line 9 of ratings\.csv has userId 'Bob'; it must be a whole number$",
    ),
    "short row": (
        broken_line("movielens", "ratings.csv", 8, b"1,2"),
        r"line 8 of ratings\.csv has 2 columns; it must have 4 \(userId, movieId, rating, timestamp\)$",
    ),
    "short row of ::": (
        archives.movielens(release="dat") | {"ratings.dat": b"1::2::4::5\n1::2\n"},
        r"line 2 of ratings\.dat has 2 columns; it must have 4",
    ),
    "movie that is no number": (
        broken_line("movielens", "movies.csv", 3, b"x,Title,War"),
        r"line 3 of movies\.csv has movieId 'x'; it must be a whole number$",
    ),
    "tag that is no number": (
        broken_line("lastfm", ASSIGNED, 4, b"2\t3\tmetal\t1\t4\t2009"),
        rf"line 4 of {ASSIGNED} has tagID 'metal'; it must be a whole number$",
    ),
    "invalid UTF-8": (
        changed("movielens", "movies.csv", 'Caf\u00e9, the ""5'.encode(), b'Caf\xe9, the ""5'),
        r"line 6 of movies\.csv is not valid UTF-8$",
    ),
    "invalid UTF-8 in a review": (
        broken_line("yelp", REVIEW, 5, b'{"text": "\xff"}'),
        rf"line 5 of {REVIEW} is not valid UTF-8$",
    ),
    "broken JSON": (
        broken_line("yelp", REVIEW, 6, b'{"user_id": "u0001", "stars"'),
        rf"line 6 of {REVIEW} is not valid JSON \(Expecting ':' delimiter\)$",
    ),
    "broken JSON in the businesses": (
        broken_line("yelp", BUSINESS, 2, b"{"),
        rf"line 2 of {BUSINESS} is not valid JSON \(Expecting property name",
    ),
    "JSON that is no object": (
        broken_line("yelp", REVIEW, 6, b"[1]"),
        rf"line 6 of {REVIEW} is not a JSON object$",
    ),
    "review without a user": (
        broken_line("yelp", REVIEW, 6, b'{"business_id": "b0001", "stars": 4}'),
        rf"line 6 of {REVIEW} has no text for user_id$",
    ),
    "stars that are no number": (
        broken_line("yelp", REVIEW, 6, b'{"user_id": "u0001", "business_id": "b0001", "stars": "five"}'),
        rf"line 6 of {REVIEW} has stars 'five'; it must be a number$",
    ),
    "stars that are NaN": (
        broken_line("yelp", REVIEW, 6, b'{"user_id": "u0001", "business_id": "b0001", "stars": NaN}'),
        rf"line 6 of {REVIEW} has stars nan; it must be a number$",
    ),
    "categories that are a number": (
        broken_line("yelp", BUSINESS, 2, b'{"business_id": "b0002", "name": "x", "categories": 5}'),
        rf"line 2 of {BUSINESS} has categories that are not text, a list of text or null$",
    ),
    "no positive feedback": (
        archives.movielens([(u, a, 3.0) for u, a, _ in archives.ratings()]),
        r"has no positive feedback \(a tag or a rating above 3\) in its \d+ rows$",
    ),
    "no feedback": (
        archives.lastfm([]),
        r"has no positive feedback \(a tag or a rating above 3\) in its 0 rows$",
    ),
    "one user only": (
        archives.movielens([(1, a, 5.0) for a in range(1, 40)]),
        r"has one user only; features need at least 2, and at least dim=5$",
    ),
    "fewer users than dim": (
        archives.movielens([row for row in archives.ratings() if row[0] < 4]),
        r"has 3 users with positive feedback, fewer than dim=5$",
    ),
    "fewer arms than dim": (
        archives.movielens([row for row in archives.ratings() if row[1] < 4]),
        r"has 3 arms with positive feedback, fewer than dim=5$",
    ),
    "less variety than dim": (
        archives.movielens([(u, a, 5.0) for u in range(1, 11) for a in range(1, 11)]),
        r"^dim=5 is not allowed: the feedback has rank 1, so it must be at most 1$",
    ),
}


@pytest.mark.parametrize("form", ["zip", "folder"])
@pytest.mark.parametrize("case", SENTENCES)
def test_bad_content_ends_in_one_sentence(case, form, tmp_path):
    made, sentence = SENTENCES[case]
    path = archives.pack(made, tmp_path, form)
    with pytest.raises((ValueError, FileNotFoundError), match=sentence) as caught:
        load(path)
    assert str(path) in str(caught.value) or str(caught.value).startswith("dim=")
    assert "\n" not in str(caught.value)


def test_bad_line_is_counted_across_pieces(tmp_path, monkeypatch):
    made = broken_line("movielens", "ratings.csv", 300, b"1,2,good,3")
    monkeypatch.setattr(files, "BLOCK_BYTES", 257)
    with pytest.raises(ValueError, match=r"line 300 of ratings\.csv has rating 'good'"):
        load(archives.pack(made, tmp_path))
    endless = archives.movielens() | {"ratings.csv": b"x" * 2000}
    with pytest.raises(ValueError, match=r"line 1 of ratings\.csv is longer than"):
        load(archives.pack(endless, tmp_path))


@pytest.mark.parametrize("form", ["zip", "tar", "tgz"])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_truncated_archive(form, share, tmp_path):
    path = archives.pack(archives.movielens(), tmp_path, form)
    whole = path.read_bytes().rstrip(b"\0")  # a .tar ends in zeros that carry nothing
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=rf"packed\.{form} is damaged or cut short \([^)]*\)$"):
        load(path)


@pytest.mark.parametrize("form", ["zip", "tgz"])
def test_corrupt_archive(form, tmp_path):
    path = archives.pack(archives.movielens(), tmp_path, form)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"packed\.{form} is damaged or cut short"):
        load(path)


def test_not_an_archive(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_bytes(archives.movielens()["ratings.csv"])
    with pytest.raises(ValueError, match=r"ratings\.csv is not a folder or an archive \(\.zip, \.tar, \.tgz\)$"):
        load(path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.zip does not exist; it must be a folder or an archive"):
        load(tmp_path / "nowhere.zip")


@pytest.mark.parametrize("name", ["../ratings.csv", "/etc/ratings.csv", "a/../../x", "C:/x", "..\\x"])
@pytest.mark.parametrize("form", ["zip", "tar", "tgz"])
def test_member_that_leaves_the_folder(form, name, tmp_path):
    path = archives.pack(archives.movielens() | {name: b""}, tmp_path, form, inside="")
    with pytest.raises(ValueError, match=r"has a member .* whose path leaves the folder; such an archive is not read$"):
        load(path)


def test_link_that_leaves_the_folder(tmp_path):
    path = archives.pack(archives.movielens(), tmp_path, "tar")
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("data/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../secret"
        archive.addfile(link)
    with pytest.raises(ValueError, match=r"has a member '\.\./\.\./secret' whose path leaves the folder"):
        load(path)


def test_file_that_is_there_twice(tmp_path):
    path = archives.pack(archives.movielens(), tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("old/ratings.csv", "")
    with pytest.raises(ValueError, match=r"has ratings\.csv more than once: data/ratings\.csv, old/ratings\.csv$"):
        load(path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_arms": 0}, "num_arms=0 is not allowed: it must be a whole number of at least 1$"),
        ({"num_users": 1}, "num_users=1 is not allowed: it must be a whole number of at least 2$"),
        ({"dim": 31}, r"dim=31 is not allowed: .* at most 30 \(the least of num_arms and num_users\)$"),
        ({"features": "pca"}, "features='pca' is not allowed: it must be 'svd' or 'logistic'$"),
        ({"seed": -1}, "seed=-1 is not allowed"),
        ({"user_norm": "drawn"}, r"user_norm='drawn' .* in \(0, infinity\) or 'svd' or 'scaled' or 'unit'$"),
        ({"user_norm": 0}, "user_norm=0 is not allowed"),
        (
            {"kind": "netflix"},
            "kind='netflix' is not allowed: it must be 'movielens' or .* or 'conlinucb'$",
        ),
    ],
)
def test_bad_options_fail_before_the_file_is_opened(options, sentence, tmp_path):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        load(tmp_path / "nowhere.zip", **options)

"""Small data sets in the publishers' formats, made of one table of who rated what."""

import io
import json
import tarfile
import zipfile

import numpy as np

import fedbandit_jax as fb

USERS, ARMS, DIM = 30, 40, 5
GENRES = ("Action", "Comedy", "Drama", "Film-Noir", "War")


def ratings(seed=0):
    """Rows (user, arm, rating): every rating is 1.0 to 5.0 in halves; low numbers rate and are rated most."""
    rng = np.random.default_rng(seed)
    chance = 0.9 * np.outer(0.97 ** np.arange(USERS), 0.97 ** np.arange(ARMS))
    users, arms = np.nonzero(rng.random((USERS, ARMS)) < chance)
    return [(int(u) + 1, int(a) + 1, float(rng.integers(2, 11)) / 2) for u, a in zip(users, arms, strict=True)]


def genres(arm):
    """One to three of them; none for arm 7."""
    return [] if arm == 7 else sorted({GENRES[arm % 5], GENRES[arm * arm % 5], GENRES[arm // 9]})


def title(arm):
    return f'Caf\u00e9, the "{arm}th"'


def movielens(rows=None, release="csv"):
    rows = ratings() if rows is None else rows
    listed = {arm: "|".join(genres(arm)) or "(no genres listed)" for arm in range(1, ARMS + 1)}
    if release == "csv":
        quoted = {arm: '"{}"'.format(title(arm).replace('"', '""')) for arm in listed}
        movies = ["movieId,title,genres", *(f"{arm},{quoted[arm]},{listed[arm]}" for arm in listed)]
        lines = ["userId,movieId,rating,timestamp", *(f"{u},{a},{r},964982703" for u, a, r in rows)]
        return {"ratings.csv": text(lines), "movies.csv": text(movies)}
    movies = [f"{arm}::{title(arm)}::{listed[arm]}" for arm in listed]
    lines = [f"{u}::{a}::{r:g}::978300760" for u, a, r in rows]
    return {"ratings.dat": text(lines), "movies.dat": "\n".join([*movies, ""]).encode("latin-1")}


def lastfm(rows=None):
    """A user tags an artist once with each of its genres; arm 3 is missing from artists.dat."""
    rows = ratings() if rows is None else rows
    artists = [
        "id\tname\turl\tpictureURL",
        *(f'{a}\t"{a}\u0416\thttp://x\thttp://y' for a in range(1, ARMS + 1) if a != 3),
    ]
    tags = ["tagID\ttagValue", *(f"{i}\t{genre} \u00e9" for i, genre in enumerate(GENRES))]
    assigned = [f"{u}\t{a}\t{GENRES.index(g)}\t1\t4\t2009" for u, a, _ in rows for g in genres(a)]
    return {
        "artists.dat": "\n".join([*artists, ""]).encode(),
        "tags.dat": "\r\n".join([*tags, ""]).encode("latin-1"),
        "user_taggedartists.dat": text(["userID\tartistID\ttagID\tday\tmonth\tyear", *assigned]),
    }


def yelp(rows=None, categories="string", prefix="yelp_academic_dataset_"):
    rows = ratings() if rows is None else rows

    def spelled(arm):
        if not genres(arm):
            return None if categories != "list" else []
        return ", ".join(genres(arm)) if categories == "string" else genres(arm)

    business = [
        {"business_id": f"b{a:04d}", "name": title(a), "city": "M\u00fcnchen", "categories": spelled(a)}
        for a in range(1, ARMS + 1)
    ]
    review = [
        {"review_id": f"r{i}", "user_id": f"u{u:04d}", "business_id": f"b{a:04d}", "stars": r, "votes": {"cool": [1]}}
        | {"text": 'Good {food},\n"caf\u00e9" \u4e2d'}
        for i, (u, a, r) in enumerate(rows)
    ]
    files = {"business.json": business, "review.json": review}
    spell = {name: [json.dumps(o, ensure_ascii=False) for o in objects] for name, objects in files.items()}
    return {prefix + name: "\n".join([*lines, ""]).encode() for name, lines in spell.items()}


def conlinucb(arms=12, users=5, dim=4, seed=0):
    """Arm i has two to four key terms, whose ids are 3, 6, ..., 30; no vector has unit norm."""
    rng = np.random.default_rng(seed)
    chosen = [3 * (1 + rng.choice(10, rng.integers(2, 5), replace=False)) for _ in range(arms)]

    def rows(name, vector, count):
        objects = [{name: i, vector: [[x] for x in rng.normal(size=dim).tolist()]} for i in range(count)]
        return text([json.dumps(one) for one in objects])

    return {
        "arm_info.txt": rows("a_id", "fv", arms),
        "arm_suparm_relation.txt": text([f"{i}\t" + "".join(f"{k}," for k in terms) for i, terms in enumerate(chosen)]),
        "user_preference.txt": rows("uid", "preference_v", users),
    }


def text(lines):
    return "\r\n".join([*lines, ""]).encode()


def pack(files, folder, form="zip", inside="data/"):
    """Write the files as an archive of some form, or as a folder; return its path."""
    if form == "folder":
        root = folder / "unpacked"
        for name, data in files.items():
            (root / inside / name).parent.mkdir(parents=True, exist_ok=True)
            (root / inside / name).write_bytes(data)
        return root
    if form == "zip around tar":
        return pack({"data.tar": pack(files, folder, "tar", inside).read_bytes(), "terms.pdf": b"%PDF"}, folder, "zip")
    path = folder / f"packed.{form}"
    if form == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(inside + name, data)
        return path
    with tarfile.open(path, "w:gz" if form == "tgz" else "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(inside + name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


MAKERS = {"movielens": movielens, "lastfm": lastfm, "yelp": yelp}


def load(path, **options):
    """The catalog of such a data set, with sizes that fit it."""
    return fb.datasets.load(path, **({"num_arms": ARMS, "num_users": USERS, "dim": DIM} | options))

"""Time and peak memory of the loaders on files of the size of MovieLens-25M and Yelp.

    python -m benchmarks.datasets [--scale 0.1] [--only movielens] [--folder DIR]

The files are generated with random content in a temporary folder and deleted afterwards (at full scale they need
12 GB for a while). Each loader runs in a process of its own; its peak memory includes Python and JAX.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from tqdm import tqdm

RATINGS, RATERS, MOVIES = 25_000_095, 162_541, 62_423
REVIEWS, REVIEWERS, BUSINESSES = 6_990_280, 1_987_897, 150_346
TARGETS = {"movielens": "60 s, 3 GB", "yelp": "240 s, 2 GB"}
CHUNK = 1_000_000

MEASURE = """
import json, resource, sys, time
import fedbandit_jax as fb
began = time.perf_counter()
catalog = fb.datasets.load(sys.argv[1])
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"seconds": seconds, "peak": peak, "catalog": repr(catalog)}))
"""


def popular(rng: np.random.Generator, count: int, size: int, skew: float) -> np.ndarray:
    """Indices below `count`, the first ones drawn most often."""
    return (count * rng.random(size) ** skew).astype(np.int64)


def sized(scale: float, *numbers: int) -> list[int]:
    return [max(1000, int(number * scale)) for number in numbers]


def write_movielens(folder: Path, scale: float) -> tuple[Path, int, int]:
    """An archive laid out like ml-25m.zip; returns it, its rows and the bytes of ratings.csv."""
    ratings, raters, movies = sized(scale, RATINGS, RATERS, MOVIES)
    rng = np.random.default_rng(0)
    file = folder / "ratings.csv"
    with pyarrow.csv.CSVWriter(
        file,
        pa.schema(
            [("userId", pa.int64()), ("movieId", pa.int64()), ("rating", pa.float64()), ("timestamp", pa.int64())]
        ),
        write_options=pyarrow.csv.WriteOptions(quoting_style="none"),
    ) as writer:
        for first in tqdm(range(0, ratings, CHUNK), desc="generating ratings.csv", disable=None):
            size = min(CHUNK, ratings - first)
            columns = {
                "userId": 1 + popular(rng, raters, size, 1.5),
                "movieId": 1 + popular(rng, movies, size, 2.5),
                "rating": rng.integers(1, 11, size) / 2,
                "timestamp": rng.integers(10**9, 16 * 10**8, size),
            }
            writer.write_table(pa.table(columns))
    genres = np.array(["Action", "Comedy", "Drama", "Horror", "Romance", "Thriller", "War", "Western"])
    lines = (
        f'{i},"Movie, the {i}th (2000)",{"|".join(rng.choice(genres, 3, replace=False))}' for i in range(1, movies + 1)
    )
    archive = folder / "ml-25m.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("ml-25m/movies.csv", "\r\n".join(["movieId,title,genres", *lines, ""]))
        packed.write(file, "ml-25m/ratings.csv")
    size = file.stat().st_size
    file.unlink()
    return archive, ratings, size


def write_yelp(folder: Path, scale: float) -> tuple[Path, int, int]:
    """An archive laid out like yelp_dataset.tar; returns it, its rows and the bytes of the review file."""
    reviews, reviewers, businesses = sized(scale, REVIEWS, REVIEWERS, BUSINESSES)
    rng = np.random.default_rng(0)
    words = ["".join(map(chr, rng.integers(97, 123, n))) for n in rng.integers(2, 11, 5000)] + [
        "caf\u00e9",
        '"good"',
        "\n",
    ]
    texts = [json.dumps(" ".join(rng.choice(words, n)), ensure_ascii=False) for n in rng.integers(10, 160, 3000)]
    file = folder / "yelp_academic_dataset_review.json"
    with file.open("w", encoding="utf-8") as out:
        for first in tqdm(range(0, reviews, CHUNK), desc="generating reviews", disable=None):
            size = min(CHUNK, reviews - first)
            drawn = zip(
                range(first, first + size),
                popular(rng, reviewers, size, 3).tolist(),
                popular(rng, businesses, size, 2.5).tolist(),
                rng.integers(1, 6, size).tolist(),
                rng.integers(0, len(texts), size).tolist(),
                strict=True,
            )
            out.writelines(
                f'{{"review_id":"r{i:021d}","user_id":"u{user:021d}","business_id":"b{business:021d}","stars":{stars}.0,'
                f'"useful":0,"funny":0,"cool":0,"text":{texts[text]},"date":"2018-07-07 22:09:11"}}\n'
                for i, user, business, stars, text in drawn
            )
    categories = [f"Category {i}" for i in range(1000)]
    lines = (
        json.dumps(
            {"business_id": f"b{i:021d}", "name": f"No. {i}", "categories": ", ".join(rng.choice(categories, 4))}
        )
        for i in range(businesses)
    )
    listing = folder / "yelp_academic_dataset_business.json"
    listing.write_text("\n".join([*lines, ""]))
    archive = folder / "yelp_dataset.tar"
    with tarfile.open(archive, "w") as packed:
        for part in (listing, file):
            packed.add(part, part.name)
    size = file.stat().st_size
    file.unlink()
    listing.unlink()
    return archive, reviews, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the real sizes, in (0, 1]")
    parser.add_argument("--only", choices=list(TARGETS), help="one data set instead of both")
    parser.add_argument("--folder", type=Path, help="where to put the temporary folder")
    options = parser.parse_args()
    if not 0 < options.scale <= 1:
        parser.error(f"--scale {options.scale} is not allowed: it must be above 0 and at most 1")
    writers = {"movielens": write_movielens, "yelp": write_yelp}
    print(f"{'data set':<10} {'rows':>11} {'MB':>6} {'seconds':>8} {'peak GB':>8}  target")
    for name in [options.only] if options.only else list(writers):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            began = time.perf_counter()
            archive, rows, size = writers[name](Path(folder), options.scale)
            print(f"{name}: generated in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            run = subprocess.run([sys.executable, "-c", MEASURE, str(archive)], check=True, stdout=subprocess.PIPE)
        found = json.loads(run.stdout)
        print(
            f"{name:<10} {rows:>11,} {size / 1e6:>6,.0f} {found['seconds']:>8.1f} {found['peak'] / 1e9:>8.2f}  "
            f"{TARGETS[name] if options.scale == 1 else 'for full scale only'}"
        )


if __name__ == "__main__":
    main()

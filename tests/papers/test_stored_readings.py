"""The verdict that the pages give is that of the stored rows."""

import pytest

from fedbandit_jax.papers.readings import findings, readings
from tests.examples import ROOT

PAGE = (ROOT / "notebooks" / "docs" / "verdict.md").read_text()


@pytest.fixture(scope="module")
def stored():
    return readings.read(ROOT / "notebooks" / "data")


def test_the_page_counts_what_is_stored(stored):
    tally = findings.tally(stored[0])
    assert len(tally) == 2 * len(readings.CLAIMS)
    for _, row in tally.iterrows():
        counts = " | ".join(str(row[word]) for word in findings.WORDS)
        assert f"| {readings.CLAIMS[row['claim']]} | {row['dataset']} | {counts} |" in PAGE


def test_the_page_says_what_was_found(stored):
    for sentence in findings.in_words(*stored):
        assert f"- {sentence}\n" in PAGE


def test_the_first_command_plays_the_reading_that_is_closest_on_its_data(stored):
    best = findings.closest(stored[0][stored[0]["dataset"] == "synthetic"]).iloc[0]
    assert best["users"] == "as in the appendix"
    assert best[["sigma", "N", "null_space", "rounding", "baselines"]].tolist() == [
        "noise",
        "1",
        "skip",
        "ceil",
        "released",
    ]

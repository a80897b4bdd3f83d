"""What of a program for a GPU is launched as CUDA graphs, by XLA's own listing of what the host does."""

import re
from pathlib import Path

LISTING = "*thunk_sequence_after_thunk_passes.txt"
GRAPH, LOOP = "kCommandBuffer", "kWhile"


def loops_in_graphs(folder):
    """How many loops are inside one another, at most, within one graph; of the program that XLA dumped there."""
    (listing,) = Path(folder).glob(LISTING)
    around, most = [], 0  # what the present line is inside of, with its indentation
    for indent, kind in re.findall(r"^( *)\d+: (k\w+)", listing.read_text(), re.MULTILINE):
        around = [(n, outer) for n, outer in around if n < len(indent)]
        around.append((len(indent), kind))
        kinds = [outer for _, outer in around]
        if GRAPH in kinds:
            most = max(most, kinds[kinds.index(GRAPH) :].count(LOOP))
    return most

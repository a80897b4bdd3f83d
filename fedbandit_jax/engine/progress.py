"""How far a sweep is: a bar on a terminal, or records for a function."""

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax._progress import tqdm

SECONDS_BETWEEN_RECORDS = 1.0
LONG = 60.0  # seconds that one should know of beforehand

Listener = Callable[[dict[str, Any]], None]


class Progress:
    """Counts finished runs, by their rows in the table of runs; used with `with`.

    `shown` is True or False for a bar, None for one on terminals only, or a function that gets a record, about once
    a second: cells and runs done and in all, client-rounds per second, seconds left, and what is going on. A call that
    takes more than a minute says so after its first chunk, unless `shown` is False.
    """

    def __init__(self, shown: bool | Listener | None, num_cells: int, runs: pd.DataFrame) -> None:
        self.listener = shown if callable(shown) else None
        disabled = None if shown is None else callable(shown) or not shown
        layout = "{desc}{percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
        self.cell_of_run, self.clients_of_run = runs["cell"].to_numpy(), runs["clients"].to_numpy()
        self.clients, self.clients_done = int(self.clients_of_run.sum()), 0
        self.bar = tqdm(total=self.clients, delay=2, disable=disabled, bar_format=layout)
        self.left = np.bincount(self.cell_of_run, minlength=num_cells)  # runs of each cell
        self.runs = len(runs)
        self.played, self.played_clients, self.busy = 0.0, 0, 0.0  # client-rounds, clients and seconds of this call
        self.reported, self.since, self.doing = 0.0, time.perf_counter(), ""
        self.silent, self.started = shown is False, self.since
        self.clients_here, self.done_here, self.begun_here = 0, 0, self.since  # of the program that is played

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.close()
        if error is None:
            self.report(last=True)

    def begin(self, doing: str, rows: Sequence[int] | np.ndarray = ()) -> None:
        """What is going on now, with which runs; time that passes before `count` is not played."""
        self.doing, self.since = doing, time.perf_counter()
        self.clients_here, self.done_here, self.begun_here = (
            int(self.clients_of_run[np.asarray(rows, int)].sum()),
            0,
            self.since,
        )
        self.bar.set_description(doing)
        self.report()

    def find(self, rows: np.ndarray) -> None:
        """Runs that need not be played."""
        clients = self.take_off(rows)
        if not self.bar.disable:
            self.bar.initial += clients  # they say nothing about speed
        self.report()

    def count(self, rows: np.ndarray, horizon: int) -> None:
        """Runs that were played."""
        now = time.perf_counter()
        self.busy, self.since = self.busy + now - self.since, now
        clients = self.take_off(rows)
        self.played += float(clients) * horizon
        self.played_clients += clients
        self.done_here += clients
        self.say_if_long()
        self.bar.set_postfix_str(self.text(), refresh=False)
        self.report()

    def take_off(self, rows: np.ndarray) -> int:
        """Take runs off what is left; how many clients they have."""
        clients = int(self.clients_of_run[rows].sum())
        np.subtract.at(self.left, self.cell_of_run[rows], 1)
        self.clients_done += clients
        self.bar.update(clients)
        return clients

    def say_if_long(self) -> None:
        """Once, as soon as this program's first runs tell; programs to come are taken to be as fast as those so far."""
        now = time.perf_counter()
        left_here = self.clients_here - self.done_here
        left_after = self.clients - self.clients_done - left_here
        left = left_here * (now - self.begun_here) / self.done_here + left_after * self.busy / self.played_clients
        whole = now - self.started + left
        if self.silent or whole <= LONG:
            return
        self.silent = True
        if self.listener is not None:
            self.listener({"event": "estimate", "seconds": whole, "seconds_left": left})
        else:
            text = f"this will take about {duration(whole)}, by the first runs of {self.doing}"
            self.bar.write(text, file=sys.stderr)

    @property
    def rate(self) -> float:
        """Client-rounds per second of play."""
        return self.played / self.busy if self.busy else 0.0

    def text(self) -> str:
        cells, runs = f"{(self.left == 0).sum()}/{len(self.left)}", f"{self.runs - self.left.sum()}/{self.runs}"
        return f"{cells} cells, {runs} runs, {self.rate / 1e6:.2f}M client-rounds/s"

    def report(self, last: bool = False) -> None:
        now = time.perf_counter()
        if self.listener is None or (now - self.reported < SECONDS_BETWEEN_RECORDS and not last):
            return
        self.reported = now
        speed = self.played_clients / self.busy if self.busy else None
        self.listener(
            {
                "event": "progress",
                "doing": self.doing,
                "cells_done": int((self.left == 0).sum()),
                "cells": len(self.left),
                "runs_done": int(self.runs - self.left.sum()),
                "runs": self.runs,
                "client_rounds_per_second": self.rate,
                "seconds_left": 0.0 if last else (self.clients - self.clients_done) / speed if speed else None,
            }
        )


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

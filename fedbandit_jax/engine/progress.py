"""How far a sweep is: a bar on a terminal, or records for a function."""

import inspect
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax._progress import tqdm

SECONDS_BETWEEN_RECORDS = 1.0
LONG = 60.0  # seconds of play that one should know of beforehand

Listener = Callable[[dict[str, Any]], None]


def check_progress(given: Any) -> None:
    """True, False, None, or a function of one argument."""
    if given is None or isinstance(given, bool):
        return
    try:
        inspect.signature(given).bind({})
    except Exception:  # not a function, or one of other arguments
        _checks.fail("progress", given, "it must be True, False, None or a function that takes a record")


class Progress:
    """Counts finished runs, by their rows in the table of runs; used with `with`.

    `shown` is True or False for a bar, None for one on terminals only, or a function that gets a record, about once
    a second: cells and runs done and in all, client-rounds per second, seconds left, and what is going on. Where more
    than a minute is left, the first chunk says so, unless `shown` is False. Time to compile is in none of these.
    """

    def __init__(self, shown: bool | Listener | None, num_cells: int, runs: pd.DataFrame) -> None:
        self.listener = shown if callable(shown) else None
        disabled = None if shown is None else callable(shown) or not shown
        layout = "{desc}{percentage:3.0f}%|{bar}| [{elapsed}{postfix}]"  # tqdm's rate would count compilation
        self.cell_of_run, self.clients_of_run = runs["cell"].to_numpy(), runs["clients"].to_numpy()
        self.pulls_of_run = runs["pulls"].to_numpy()  # in a round
        self.clients, self.clients_done = int(self.clients_of_run.sum()), 0
        self.bar = tqdm(total=self.clients, delay=2, disable=disabled, bar_format=layout)
        self.left = np.bincount(self.cell_of_run, minlength=num_cells)  # runs of each cell
        self.runs = len(runs)
        self.played, self.played_clients, self.busy = 0.0, 0, 0.0  # client-rounds, clients and seconds of this call
        self.reported, self.since, self.doing = 0.0, time.perf_counter(), ""
        self.silent = shown is False
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
        self.bar.update(self.take_off(rows))
        self.report()

    def count(self, rows: np.ndarray, horizon: int) -> None:
        """Runs that were played."""
        now = time.perf_counter()
        self.busy, self.since = self.busy + now - self.since, now
        clients = self.take_off(rows)
        self.played += float(self.pulls_of_run[rows].sum()) * horizon
        self.played_clients += clients
        self.done_here += clients
        self.say_if_long()
        self.bar.set_postfix_str(self.text(), refresh=False)
        self.bar.update(clients)
        self.report()

    def take_off(self, rows: np.ndarray) -> int:
        """Take runs off what is left; how many clients they have."""
        clients = int(self.clients_of_run[rows].sum())
        np.subtract.at(self.left, self.cell_of_run[rows], 1)
        self.clients_done += clients
        return clients

    def say_if_long(self) -> None:
        """Once, as soon as this program's first runs tell."""
        left = self.seconds_left()
        if self.silent or left is None or left <= LONG:
            return
        self.silent = True
        if self.listener is not None:
            self.listener({"event": "estimate", "seconds": self.busy + left, "seconds_left": left})
        else:
            text = f"this will take about {duration(left)} more, by the first runs of {self.doing}"
            self.bar.write(text, file=sys.stderr)

    def seconds_left(self) -> float | None:
        """Seconds of play, once something was played; programs to come are taken to be as fast as those so far."""
        if not self.played_clients:
            return None
        average = self.busy / self.played_clients
        here = (self.since - self.begun_here) / self.done_here if self.done_here else average
        left_here = self.clients_here - self.done_here
        return left_here * here + (self.clients - self.clients_done - left_here) * average

    @property
    def rate(self) -> float:
        """Client-rounds per second of play."""
        return self.played / self.busy if self.busy else 0.0

    def text(self) -> str:
        """The end of the bar, in 80 columns with all before it; a pull is a round of a client."""
        left = tqdm.format_interval(self.seconds_left() or 0)
        return f"{left} left, {self.runs - self.left.sum()}/{self.runs} runs, {self.rate / 1e6:.1f}M pulls/s"

    def report(self, last: bool = False) -> None:
        now = time.perf_counter()
        if self.listener is None or (now - self.reported < SECONDS_BETWEEN_RECORDS and not last):
            return
        self.reported = now
        self.listener(
            {
                "event": "progress",
                "doing": self.doing,
                "cells_done": int((self.left == 0).sum()),
                "cells": len(self.left),
                "runs_done": int(self.runs - self.left.sum()),
                "runs": self.runs,
                "client_rounds_per_second": self.rate,
                "seconds_left": 0.0 if last else self.seconds_left(),
            }
        )


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

"""How far a sweep is: a bar on a terminal, or records for a function."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from fedbandit_jax._progress import tqdm

SECONDS_BETWEEN_RECORDS = 1.0

Listener = Callable[[dict[str, Any]], None]


class Progress:
    """Counts finished runs; used with `with`.

    `shown` is True or False for a bar, None for one on terminals only, or a function that gets a record, about once
    a second: cells and runs done and in all, client-rounds per second, seconds left, and what is going on.
    """

    def __init__(self, shown: bool | Listener | None, cells: int, runs_per_cell: int, clients: int) -> None:
        self.listener = shown if callable(shown) else None
        disabled = None if shown is None else callable(shown) or not shown
        layout = "{desc}{percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
        self.bar = tqdm(total=clients, delay=2, disable=disabled, bar_format=layout)
        self.left = np.full(cells, runs_per_cell)  # runs of each cell
        self.runs = cells * runs_per_cell
        self.clients, self.clients_done = clients, 0
        self.played, self.played_clients, self.busy = 0.0, 0, 0.0  # client-rounds, clients and seconds of this call
        self.told, self.since, self.doing = 0.0, time.perf_counter(), ""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.close()

    def begin(self, doing: str) -> None:
        """What is going on now; time that passes before `count` is not played."""
        self.doing, self.since = doing, time.perf_counter()
        self.bar.set_description(doing)
        self.tell()

    def find(self, cells: np.ndarray, clients: int) -> None:
        """Runs, by their cells, that need not be played."""
        np.subtract.at(self.left, cells, 1)
        self.clients_done += clients
        self.bar.update(clients)
        if not self.bar.disable:
            self.bar.initial += clients  # they say nothing about speed
        self.tell()

    def count(self, cells: np.ndarray, clients: int, horizon: int) -> None:
        """Runs, by their cells, that were played."""
        now = time.perf_counter()
        self.busy, self.since = self.busy + now - self.since, now
        self.played += float(clients) * horizon
        self.played_clients += clients
        self.clients_done += clients
        np.subtract.at(self.left, cells, 1)
        self.bar.set_postfix_str(self.text(), refresh=False)
        self.bar.update(clients)
        self.tell()

    @property
    def rate(self) -> float:
        """Client-rounds per second of play."""
        return self.played / self.busy if self.busy else 0.0

    def text(self) -> str:
        cells, runs = f"{(self.left == 0).sum()}/{len(self.left)}", f"{self.runs - self.left.sum()}/{self.runs}"
        return f"{cells} cells, {runs} runs, {self.rate / 1e6:.2f}M client-rounds/s"

    def tell(self) -> None:
        now = time.perf_counter()
        if self.listener is None or now - self.told < SECONDS_BETWEEN_RECORDS:
            return
        self.told = now
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
                "seconds_left": (self.clients - self.clients_done) / speed if speed else None,
            }
        )

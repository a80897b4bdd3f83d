"""Client-rounds and federations a second of every algorithm, compilation apart, and of a whole call of `simulate`."""

import warnings
from typing import Any

import fedbandit_jax as fb

from .measure import Effort, Found, Skipped, Timing, time_in_turn, why
from .programs import Prepared, algorithms, catalog, shelf

TOGETHER = 10  # clients of a federation


def setting(effort: Effort) -> dict[str, int]:
    return effort.pick({"arms": 8, "horizon": 300}, {"arms": 100, "horizon": 6000}, {"arms": 100, "horizon": 6000})


def throughput(effort: Effort) -> Found:
    data, sizes = catalog(effort), setting(effort)
    prepared: dict[str, Prepared] = {}
    for clients in effort.pick((1,), (1, TOGETHER), (1, TOGETHER)):
        for algorithm in algorithms(effort):
            if clients > 1 and (algorithm.independent_clients or (effort.level == 1 and algorithm.name != "FedConPE")):
                continue  # a client that is alone is played the same way whatever M is
            case = f"{algorithm.title} M={clients} K={sizes['arms']} d={data.dim} T={sizes['horizon']}"
            yield f"compiling {case}"
            try:
                prepared[case] = shelf.get(data, algorithm, clients=clients, **sizes)
            except Exception as error:
                yield Skipped(case, why(error))
    yield f"measuring all of them, {effort.repeats} times in turn"
    timings = time_in_turn({case: program.play for case, program in prepared.items()}, effort.repeats)
    for case, timing in timings.items():
        prepared[case].timing = timing
        yield from rates(case, prepared[case], timing)
    yield from whole_calls(effort, data, sizes)


def rates(case: str, program: Prepared, timing: Timing) -> Found:
    about = {"algorithm": program.algorithm.title, "clients": program.clients, "runs": program.runs}
    yield timing.row(case, "client-rounds/s", program.client_rounds, "higher", **about)
    yield timing.row(case, "federations/s", program.runs, "higher", **about)


def whole_calls(effort: Effort, data: fb.Catalog, sizes: dict[str, int]) -> Found:
    """`simulate` from call to table, so that what the host adds to the programs above can be seen."""
    runs = effort.pick(2, 64, 256)

    def call(algorithm: fb.Algorithm, clients: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fb.simulate(data, algorithm, clients=clients, users=1, seeds=runs, progress=False, **sizes).settings

    cases = {"simulate(LinUCB)": (fb.LinUCB(), 1), "simulate(FedConPE)": (fb.FedConPE(), TOGETHER)}
    if effort.level < 2:
        del cases["simulate(LinUCB)" if effort.level else "simulate(FedConPE)"]
    calls = {name: lambda given=given: call(*given) for name, given in cases.items()}
    for name, timing in time_in_turn(calls, effort.repeats).items():
        clients = cases[name][1]
        case = f"{name} M={clients} K={sizes['arms']} d={data.dim} T={sizes['horizon']} runs={runs}"
        yield timing.row(case, "federations/s", runs, "higher", clients=clients, runs=runs)

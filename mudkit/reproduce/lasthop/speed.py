"""L7: how long a virtual year takes, beside the same model in simpy."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from mudkit.errors import EnvironmentProblem
from mudkit.processes import PROCESSES, spread_out
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import FIGURES, Forwarding, Scenario, simulate, sweep

__all__ = ["measure"]

_MOST: Final = 8
_LIMIT: Final = 16
_OUTAGE: Final = 0.5


def measure(
    say: Say = say_nothing,
    *,
    days: int = 365,
    runs: int = 25,
    fleets: int = 3,
    seeds: Sequence[int] = range(10),
    processes: int = PROCESSES,
    over: dict[str, Sequence[Any]] | None = None,
) -> Measured:
    """Measure row L7.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    days : int
        The length of each run, in days of virtual time.
    runs : int
        How many runs are measured, each with a seed of its own; ours and simpy's in turn.
    fleets : int
        How many runs the kernel drives, each with a seed of its own.
    seeds : sequence of int
        The seeds with which Figure 3 is computed.
    processes : int
        The number of processes that share Figure 3.
    over : mapping, optional
        Parameters whose values are to differ from those of Figure 3, with these values.

    Raises
    ------
    EnvironmentProblem
        There is no simpy.
    """
    if importlib.util.find_spec("simpy") is None:
        raise EnvironmentProblem(
            "The peer that row L7 compares the simulator with is missing.",
            found="no package simpy in this environment",
            expected="simpy, which mudkit itself does not need",
            remedy="run `make setup` in a checkout, or `pip install simpy`",
        )
    say(f"runs of {days} days beside simpy")
    pairs = [_pair(seed, days) for seed in range(runs + 1)][1:]  # the first one warms up
    driven = []
    for seed in range(fleets):
        say(f"a fleet of one device, {seed + 1} of {fleets}")
        driven.append(_driven(seed, days))
    say(f"Figure 3 with {len(seeds)} seeds, {processes} processes")
    began_s = time.perf_counter()
    with spread_out(processes) as over_processes:
        settings = FIGURES[3]["fixed"] | {"days": days}
        table = sweep(over or FIGURES[3]["over"], settings, seeds, map=over_processes)
    figure_s = time.perf_counter() - began_s
    figures = {
        "ms for a run of two scenarios": Figure.of(1e3 * ours for ours, _, _ in pairs),
        "ms for the same in simpy": Figure.of(1e3 * theirs for _, theirs, _ in pairs),
        "times simpy's time": Figure.of(ours / theirs for ours, theirs, _ in pairs),
        "share of runs in which simpy's model forwards and reads the same": Figure.of(
            [sum(same for _, _, same in pairs) / len(pairs)]
        ),
        "s for a year driven by the kernel": Figure.of(each for each, _ in driven),
        "share of years in which the kernel forwards and reads the same": Figure.of(
            [sum(same for _, same in driven) / len(driven)]
        ),
        "s for Figure 3 with ten seeds": Figure.of([figure_s]),
        "runs of Figure 3": Figure.of([len(table)]),
    }
    parameters = {
        "a run": f"{days} days, 32 messages and 2 reads of {_MOST} a day, {_OUTAGE:.0%} downtime, 12 outages "
        f"a day; on-line, and prefetching up to {_LIMIT}; drawing the events counts on both sides",
        "driven by the kernel": f"a device, a server and an ideal link; prefetching up to {_LIMIT}",
        "runs": runs,
        "fleets": fleets,
        "Figure 3": table.attrs["parameters"],
        "processes": processes,
    }
    return Measured(figures, parameters)


def _pair(seed: int, days: int) -> tuple[float, float, bool]:
    """Time one run in both ways; say whether the same came of it."""
    from mudkit.reproduce.lasthop.simpy_peer import simulate_in_simpy

    began_s = time.perf_counter()
    run = simulate(outage=_OUTAGE, max=_MOST, policy="buffer", prefetch_limit=_LIMIT, days=days, seed=seed)
    middle_s = time.perf_counter()
    drawn = Scenario(outages=Outages(_OUTAGE), days=days).draw(seed)
    theirs = [simulate_in_simpy(drawn, _MOST, limit) for limit in (math.inf, _LIMIT)]
    end_s = time.perf_counter()
    ours = [(list(each.forwarded_ids), list(each.read_ids)) for each in (run.online, run.outcome)]
    return middle_s - began_s, end_s - middle_s, ours == theirs


def _driven(seed: int, days: int) -> tuple[float, bool]:
    """Time one policy on a fleet; say whether the same came of it as of the simulator."""
    from mudkit.reproduce.lasthop.fleet import Fleet

    policy = Forwarding("buffer", _LIMIT)
    drawn = Scenario(outages=Outages(_OUTAGE), days=days).draw(seed)
    began_s = time.perf_counter()
    fleet = Fleet(drawn, policy, _MOST)
    fleet.run()
    taken_s = time.perf_counter() - began_s
    alone = simulate(outage=_OUTAGE, max=_MOST, policy=policy, days=days, seed=seed)
    same = (fleet.forwarded, fleet.read) == (list(alone.forwarded_ids), list(alone.read_ids))
    return taken_s * 365 / days, same

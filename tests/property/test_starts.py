"""Memory of machines after many starts of another one: at most `MAX_INCARNATIONS` of them are remembered."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from machine_copies import measure_memory
from places import SYSTEM_LABS, SystemLab

from mudkit.delivery.inbox import MAX_INCARNATIONS

STARTS = MAX_INCARNATIONS + 6
MAX_GROWTH_BYTES = 16 * STARTS
"""Growth by as many starts again, in the difference to a machine that runs on: less than an entry for each start.
Names of items that contain the start are a few bytes longer."""


@functools.cache
def measure_growth(kind: Callable[[], SystemLab], host: str | None) -> dict[str, int]:
    """Return the growth of each machine's memory over the last third of the starts of a host, or of as long a run.

    Each third sends the same texts: records of MUD, which name a start of the store, become no more.
    """
    place = kind()
    lab = place.lab
    lab.run(minutes=1)
    processes = {
        f"{other.name} {process.name}": process
        for other in lab.world.hosts.values()
        for process in other.processes
    }
    sizes: list[dict[str, int]] = []
    for _ in range(3):
        for number in range(STARTS):
            place.send(f"text {number:03d}")
            lab.run(minutes=0.5)
            if host is not None:
                lab.faults.kill(host)
                lab.faults.restart(host)
            lab.run(minutes=0.5)
        sizes.append({name: measure_memory(process) for name, process in processes.items()})
    return {name: sizes[2][name] - sizes[1][name] for name in processes}


@pytest.mark.soak(keep=5)
@pytest.mark.parametrize(
    ("kind", "host"), [(kind, host) for kind in SYSTEM_LABS for host in kind.hosts.values()]
)
def test_memory_does_not_grow_with_the_starts_of_another_machine(
    kind: Callable[[], SystemLab], host: str
) -> None:
    steady, growth = measure_growth(kind, None), measure_growth(kind, host)
    growing = {name: growth[name] - steady[name] for name in growth if not name.startswith(f"{host} ")}
    assert max(growing.values()) < MAX_GROWTH_BYTES, growing

"""Memory of machines after many starts of another one: at most `MAX_INCARNATIONS` of them are remembered."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from machine_copies import measure_memory
from places import SYSTEM_LABS, SystemLab

from mudkit.delivery.inbox import MAX_INCARNATIONS

FEWER_INCARNATIONS = 32
"""Starts that a machine remembers in `make test`, in place of `MAX_INCARNATIONS`: half of the time."""
MORE_STARTS = 6
MAX_GROWTH_BYTES = 16
"""Growth by a start, in the difference to a machine that runs on: less than an entry. Names of items that contain
the start are a few bytes longer."""


@contextmanager
def remembered(count: int) -> Iterator[None]:
    """Set how many starts of another one all machines remember."""
    with pytest.MonkeyPatch.context() as patch:
        for module in [module for name, module in sys.modules.items() if name.startswith("mudkit.")]:
            for name in ("MAX_INCARNATIONS", "_MAX_INCARNATIONS"):
                if name in vars(module):
                    patch.setattr(module, name, count)
        yield


@functools.cache
def measure_growth(kind: Callable[[], SystemLab], host: str | None, starts: int) -> dict[str, int]:
    """Return the growth of each machine's memory over the second half of the starts of a host, or of as long a run."""
    place = kind()
    lab = place.lab
    lab.run(minutes=1)
    processes = {
        f"{other.name} {process.name}": process
        for other in lab.world.hosts.values()
        for process in other.processes
    }
    sizes: list[dict[str, int]] = []
    for _ in range(2):
        for number in range(starts):
            place.send(f"text {len(sizes)} {number:03d}")
            lab.run(minutes=0.5)
            if host is not None:
                lab.faults.kill(host)
                lab.faults.restart(host)
            lab.run(minutes=0.5)
        sizes.append({name: measure_memory(process) for name, process in processes.items()})
    return {name: sizes[1][name] - sizes[0][name] for name in processes}


@pytest.mark.soak(keep=8)
@pytest.mark.parametrize(
    ("kind", "host"), [(kind, host) for kind in SYSTEM_LABS for host in kind.hosts.values()]
)
def test_memory_does_not_grow_with_the_starts_of_another_machine(
    kind: Callable[[], SystemLab], host: str, scaled: Callable[[int, int], int]
) -> None:
    incarnations = scaled(MAX_INCARNATIONS, FEWER_INCARNATIONS)
    starts = incarnations + MORE_STARTS
    with remembered(incarnations):
        steady, growth = measure_growth(kind, None, starts), measure_growth(kind, host, starts)
    growing = {name: growth[name] - steady[name] for name in growth if not name.startswith(f"{host} ")}
    assert max(growing.values()) < MAX_GROWTH_BYTES * starts, growing

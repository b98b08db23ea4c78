"""M3: what MUD adds to a write and to a read, on the device and over a network.

On the device it is a matter of speed; over a network, in virtual time, it comes out the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.reproduce.mobius.overhead_local import REFERENCE_US, local
from mudkit.reproduce.mobius.overhead_remote import remote
from mudkit.reproduce.row import Measured, Say, say_nothing

__all__ = ["measure_local", "measure_remote"]

_SEEDS: Final = (1, 2, 3, 4, 5)


def measure_local(
    say: Say = say_nothing,
    *,
    writes: int = 2000,
    durable: int = 600,
    reads: int = 4000,
    held: int = 1000,
    seeds: Sequence[int] = _SEEDS,
    reference_us: float = REFERENCE_US,
) -> Measured:
    """Measure row M3 on the device.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    writes, durable, reads, held, reference_us : int or float
        See :func:`mudkit.reproduce.mobius.overhead_local.local`.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    figures, about = local(
        say, writes=writes, durable=durable, reads=reads, held=held, seeds=seeds, reference_us=reference_us
    )
    return Measured(figures, about | {"seeds": list(seeds)})


def measure_remote(say: Say = say_nothing, *, requests: int = 500, seeds: Sequence[int] = _SEEDS) -> Measured:
    """Measure row M3 over a network.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    requests : int
        See :func:`mudkit.reproduce.mobius.overhead_remote.remote`.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    figures, about = remote(say, requests=requests, seeds=seeds)
    return Measured(figures, about | {"seeds": list(seeds)})

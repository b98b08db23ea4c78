"""M3: what MUD adds to a write and to a read, on the device and over a network."""

from __future__ import annotations

from collections.abc import Sequence

from mudkit.reproduce.overhead_local import local
from mudkit.reproduce.overhead_remote import remote
from mudkit.reproduce.row import Measured, Say, nothing_said

__all__ = ["measure"]


def measure(
    say: Say = nothing_said, *, writes: int = 2000, durable: int = 600, reads: int = 4000, held: int = 1000,
    requests: int = 500, seeds: Sequence[int] = (1, 2, 3, 4, 5),
) -> Measured:  # fmt: skip
    """Measure row M3.

    Parameters
    ----------
    say : callable
        Told what is being measured.
    writes, durable, reads, held : int
        On the device, see :func:`mudkit.reproduce.overhead_local.local`.
    requests : int
        Over a network, see :func:`mudkit.reproduce.overhead_remote.remote`.
    seeds : sequence of int
    """
    here, about_here = local(say, writes=writes, durable=durable, reads=reads, held=held, seeds=seeds)
    there, about_there = remote(say, requests=requests, seeds=seeds)
    return Measured(here | there, about_here | about_there | {"seeds": list(seeds)})

"""Replay: what is in the cache depends on what the policy did before.

A device's cache holds the last answer that it fetched. A read that the cached answer has no label for is
sent: the answer is older than the horizon, or has served as many reads as it may.
:mod:`~mudkit.learning.bound` chooses the sends with hindsight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from mudkit.learning.pairs import Pairs

SENT = -1


def replay(pairs: Pairs, local: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the pair that serves each read, or ``SENT``, under a policy's decision for each pair."""
    served = np.full(len(pairs.device), SENT, dtype=np.int64)
    first, cached = pairs.first.tolist(), pairs.cached.tolist()
    decision = local.tolist()
    for rows in pairs.devices():
        last = -1
        for read in range(rows.start, rows.stop):
            a, b = first[read], first[read + 1]
            # Earlier reads of a device are consecutive, so the pair with the last send is found by counting.
            pair = a + last - cached[a] if b > a else -1
            if a <= pair < b and decision[pair]:
                served[read] = pair
            else:
                last = read
    return served


def replay_steps(
    pairs: Pairs, policies: int, decide: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Replay many policies at once; yield the first reads of all devices, then the second ones, and so on.

    Parameters
    ----------
    pairs : Pairs
    policies : int
        Number of policies.
    decide : function
        Decides for reads, of shape (reads,), and pairs that could serve them, of shape (reads, policies),
        which are served. Pairs that no cache holds are asked about, too.

    Yields
    ------
    reads : ndarray of int64, shape (devices,)
        One read of each device that still has one.
    served : ndarray of int64, shape (devices, policies)
        The pair that serves each, or ``SENT``, as :func:`replay` returns it.
    """
    if not len(pairs.device):
        return
    rows = sorted(pairs.devices(), key=lambda of: of.start - of.stop)
    starts = np.array([of.start for of in rows])
    counts = np.array([of.stop - of.start for of in rows])
    last = np.full((len(rows), policies), -1, dtype=np.int64)
    for step in range(int(counts[0])):
        devices = int(np.searchsorted(-counts, -step, side="left"))
        reads = starts[:devices] + step
        first, past = pairs.first[reads], pairs.first[reads + 1]
        cached = pairs.cached[np.minimum(first, len(pairs.cached) - 1)] if len(pairs.cached) else first
        # Earlier reads of a device are consecutive, so the pair with the last send is found by counting.
        pair = last[:devices] + (first - cached)[:, None]
        known = (last[:devices] >= 0) & (pair >= first[:, None]) & (pair < past[:, None])
        if known.any():
            known &= decide(reads, np.where(known, pair, 0))
        last[:devices] = np.where(known, last[:devices], reads[:, None])
        yield reads, np.where(known, pair, SENT)


def stale_reads(stale: NDArray[np.bool_], served: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which reads :func:`replay` served with a stale answer."""
    is_local: NDArray[np.bool_] = served != SENT
    if len(stale):
        is_local &= stale[np.where(is_local, served, 0)]
    return is_local


def stale_answers(stale: NDArray[np.bool_], served: NDArray[np.int64]) -> int:
    """Return the number of reads that :func:`replay` served with a stale answer."""
    return int(np.count_nonzero(stale[served[served != SENT]]))

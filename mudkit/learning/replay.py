"""Replay: what is in the cache depends on what the policy did before.

A device's cache holds the last answer that it fetched. A read that the cached answer has no label for is
sent. The bound chooses the sends with hindsight.
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


def fewest_sends(
    pairs: Pairs, stale: NDArray[np.bool_], devices: list[slice], budget: int
) -> NDArray[np.int64]:
    """Choose the sends of some devices with hindsight: the fewest with at most ``budget`` stale answers.

    Dynamic programming gives each device's fewest sends for every number of stale answers, then divides the
    budget; so the result is exact. It has the form of :func:`replay`; reads of other devices are ``SENT``.
    """
    tables = [_device_table(pairs, stale, rows, budget) for rows in devices]
    best = np.zeros(1, dtype=np.int64)
    choices = []
    for sends, _ in tables:
        best, choice = _joined(best, sends, budget)
        choices.append(choice)
    served = np.full(len(pairs.device), SENT, dtype=np.int64)
    left = budget
    for rows, (_, schedules), choice in zip(devices[::-1], tables[::-1], choices[::-1], strict=True):
        spent = int(choice[min(left, len(choice) - 1)])
        left -= spent
        _follow(pairs, served, rows, schedules, spent)
    return served


def fewest_sends_by_stale(pairs: Pairs, stale: NDArray[np.bool_], budget: int) -> NDArray[np.int64]:
    """Return the fewest sends of all devices with 0, 1, … stale answers, while more of them save any."""
    best = np.zeros(1, dtype=np.int64)
    for rows in pairs.devices():
        best, _ = _joined(best, _device_table(pairs, stale, rows, budget)[0], budget)
    return best


def _joined(
    best: NDArray[np.int64], sends: NDArray[np.int32], budget: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Add a device to the fewest sends by stale answers allowed; return how many it spends of each, too."""
    size = min(budget, len(best) + len(sends) - 2) + 1
    total = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
    choice = np.zeros(size, dtype=np.int64)
    grown = np.concatenate([best, np.full(max(0, size - len(best)), best[-1])])[:size]
    for spent, count in enumerate(sends[:size].tolist()):
        candidate = grown[: size - spent] + count
        better = candidate < total[spent:]
        total[spent:][better] = candidate[better]
        choice[spent:][better] = spent
    return total, choice


def _device_table(
    pairs: Pairs, stale: NDArray[np.bool_], rows: slice, budget: int
) -> tuple[NDArray[np.int32], list[tuple[NDArray[np.int32], NDArray[np.int32]]]]:
    """Return the fewest sends of one device by stale answers allowed, and how each is reached.

    ``schedules[i]`` holds, for "read i is sent" (the last entry: the end), the send before it and the stale
    answers in between, by the number of stale answers up to there.
    """
    n = rows.stop - rows.start
    most = min(budget, n)
    far = n + 1
    # Half the bytes: a device with thousands of reads has tables of that size squared.
    sends = np.full((n + 1, most + 1), far, dtype=np.int32)
    before = np.full((n + 1, most + 1), -1, dtype=np.int32)
    between = np.zeros((n + 1, most + 1), dtype=np.int32)
    sends[0] = 1  # the first read has nothing cached
    first, cached = pairs.first, pairs.cached
    for i in range(n):
        stales = 0
        for j in range(i + 1, n + 1):
            cost = sends[i, : most + 1 - stales] + (j < n)
            better = cost < sends[j, stales:]
            sends[j, stales:][better] = cost[better]
            before[j, stales:][better] = i
            between[j, stales:][better] = stales
            if j == n:
                break
            a, b = int(first[rows.start + j]), int(first[rows.start + j + 1])
            pair = a + rows.start + i - int(cached[a]) if b > a else -1
            if not a <= pair < b:
                break
            stales += bool(stale[pair])
            if stales > most:
                break
    last = int(np.argmax(sends[n] == sends[n, -1])) + 1
    return sends[n, :last], list(zip(before, between, strict=True))


def _follow(
    pairs: Pairs,
    served: NDArray[np.int64],
    rows: slice,
    schedules: list[tuple[NDArray[np.int32], NDArray[np.int32]]],
    stales: int,
) -> None:
    """Write one device's schedule into ``served``, from its end."""
    j = rows.stop - rows.start
    while j > 0:
        before, between = schedules[j]
        i = int(before[stales])
        for read in range(rows.start + i + 1, rows.start + j):
            served[read] = pairs.first[read] + rows.start + i - pairs.cached[pairs.first[read]]
        stales -= int(between[stales])
        j = i

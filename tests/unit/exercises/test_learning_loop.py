"""Judge of chapter 14: the rule of what is fetched in advance is accepted and likely mistakes rejected."""

import pytest
from judged import check_accepted, check_rejected

CHAPTER = "14_learning_loop"


def solution(reads, days, min_devices, min_share):
    readers, hits = {}, {}
    for device, day, hour, query in reads:
        readers.setdefault(query, set()).add(device)
        hits.setdefault((query, hour), set()).add((device, day))
    return {
        (query, hour)
        for (query, hour), read_on in hits.items()
        if len(readers[query]) >= min_devices and len(read_on) >= min_share * len(readers[query]) * days
    }


def count_reads(reads, days, min_devices, min_share):
    """Count each read: who looks twice in an hour counts twice."""
    pairs = set()
    for _, _, hour, query in reads:
        readers = {read[0] for read in reads if read[3] == query}
        hits = sum(read[2:] == (hour, query) for read in reads)
        if len(readers) >= min_devices and hits >= min_share * len(readers) * days:
            pairs.add((query, hour))
    return pairs


def name_everybody(reads, days, min_devices, min_share):
    """Fetch what a single device reads."""
    return solution(reads, days, 1, min_share)


def divide_by_all(reads, days, min_devices, min_share):
    """Divide by the days of all devices, also of those that never read the query."""
    devices = {read[0] for read in reads}
    kept = solution(reads, days, min_devices, 0.0)
    hits = {pair: {read[:2] for read in reads if (read[3], read[2]) == pair} for pair in kept}
    return {pair for pair in kept if len(hits[pair]) >= min_share * len(devices) * days}


def test_solution_passes():
    check_accepted(CHAPTER, solution)


@pytest.mark.parametrize(
    ("piece", "problem"),
    [
        (count_reads, "is fetched: it is read on"),
        (name_everybody, "it shows what a few do"),
        (divide_by_all, "is missing: it is read on"),
        (lambda reads, days, min_devices, min_share: set(), "is missing: it is read on"),
        (lambda reads, days, min_devices, min_share: {"bus"}, "expected pairs of a query and an hour"),
        (lambda reads, days, min_devices, min_share: [], "expected a set of pairs"),
    ],
)
def test_judge_rejects(piece, problem):
    check_rejected(CHAPTER, piece, problem)

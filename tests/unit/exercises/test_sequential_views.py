"""Judge of chapter 03: correct checks are accepted and likely mistakes rejected."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from judged import check_accepted, check_rejected, mark_soak

from mudkit.consistency import History
from mudkit.exercises.sequential_views import EXERCISE, _Move, _written

CHAPTER = "03_fork_sequential_views"


def list_pairs(operations):
    return ((a, b) for a in operations for b in operations if b["kind"] == "read")


def solution(operations):
    return any(
        a["client"] == b["client"] and a["end"] <= b["begin"] and b["version"] < a["version"]
        for a, b in list_pairs(operations)
    )


def track_newest_version(operations):
    """Compare each read with the newest version that its client has seen before."""
    for read in operations:
        if read["kind"] == "read":
            earlier = [e for e in operations if e["client"] == read["client"] and e["end"] <= read["begin"]]
            if read["version"] < max((e["version"] for e in earlier), default=0):
                return True
    return False


def ignore_writes(operations):
    return solution([operation for operation in operations if operation["kind"] == "read"])


def ignore_reads(operations):
    return any(a["kind"] == "write" and solution([a, b]) for a, b in list_pairs(operations))


def ignore_clients(operations):
    return solution([operation | {"client": "all"} for operation in operations])


def compare_begins(operations):
    return any(
        a["client"] == b["client"] and a["begin"] < b["begin"] and b["version"] < a["version"]
        for a, b in list_pairs(operations)
    )


def compare_ends(operations):
    return any(
        a["client"] == b["client"] and a["end"] < b["end"] and b["version"] < a["version"]
        for a, b in list_pairs(operations)
    )


def refuse_equal_versions(operations):
    return any(
        a["client"] == b["client"] and a["end"] <= b["begin"] and b["version"] <= a["version"]
        for a, b in list_pairs(operations)
    )


def let_touching_operations_cross(operations):
    return any(
        a["client"] == b["client"] and a["end"] < b["begin"] and b["version"] < a["version"]
        for a, b in list_pairs(operations)
    )


def order_operations_that_overlap_by_a_column(operations):
    return any(
        a["client"] == b["client"] and a["end"] - 1000 <= b["begin"] and b["version"] < a["version"]
        for a, b in list_pairs(operations)
    )


def ignore_version_0(operations):
    return solution([operation for operation in operations if operation["version"] > 0])


def compare_adjacent(operations):
    return any(
        solution([a, b])
        for client in ("ann", "bob")
        for own_operations in [[operation for operation in operations if operation["client"] == client]]
        for a, b in pairwise(own_operations)
    )


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("piece", [solution, track_newest_version])
def test_judge_accepts(piece):
    check_accepted(CHAPTER, piece)


@pytest.mark.parametrize(
    ("piece", "operations", "problem"),
    mark_soak(
        [
            (lambda operations: False, 2, "does not hold"),
            (lambda operations: None, 1, "returned None; expected True or False"),
            (lambda operations: True, 1, "no client's reads go back"),
            (ignore_writes, 2, "read-your-writes does not hold"),
            (ignore_reads, 3, "monotonic-reads does not hold"),
            (ignore_clients, 2, "returns True"),
            (compare_begins, 2, "returns True"),
            (compare_ends, 2, "returns True"),
            (refuse_equal_versions, 2, "returns True"),
            (ignore_version_0, 2, "returns False"),
            (let_touching_operations_cross, 2, "returns False"),
            (order_operations_that_overlap_by_a_column, 2, "returns True"),
            (compare_adjacent, 3, "returns False"),
            (lambda operations: operations[0]["versoin"] > 0, 1, "it raises KeyError: 'versoin' (line"),
        ]
    ),
)
def test_judge_rejects(piece, operations, problem):
    verdict = check_rejected(CHAPTER, piece, problem)
    text = "\n".join(verdict.failure.scenario.splitlines()[1:])
    # Hypothesis minimizes step by step, and may stop one operation above the minimum.
    assert operations <= len(History.parse(text)) <= operations + 1, text
    assert "smallest history that fails" in verdict.diagram().layout.title.text


def test_notation_matches_the_moves():
    rng = random.Random(3)
    outcomes = Counter()
    for _ in range(300):
        moves = [
            _Move(
                rng.choice(("ann", "bob")),
                rng.choice((None, 0, 1, 2)),
                rng.randint(1, 4),
                rng.choice((-3, -1, 0, 1)),
            )
            for _ in range(rng.randint(2, 8))
        ]
        history = History.parse(_written(moves))
        assert [operation.client for operation in history] == [move.client for move in moves]
        assert [operation.is_write for operation in history] == [move.back is None for move in moves]
        for number, (move, operation) in enumerate(zip(moves, history, strict=True)):
            begins = [other.invoked_us for other in history.operations[number:]]
            during = sum(begin < operation.answered_us for begin in begins)
            touching = sum(begin == operation.answered_us for begin in begins)
            is_next = number + move.length < len(moves)
            assert during == min(move.length, len(moves) - number) + (is_next and move.end > 0)
            assert touching == (is_next and move.end == 0)
        for piece in (solution, track_newest_version):
            assert EXERCISE.play(piece, moves).problem is None
        operations = []
        EXERCISE.play(operations.extend, moves)
        outcomes[solution(operations)] += 1
    assert min(outcomes.values()) > 50, "both answers are asked for often"

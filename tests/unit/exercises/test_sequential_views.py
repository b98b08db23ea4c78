"""The judge of chapter 03 tells a right answer from each mistake that is likely, by a history that shows it."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from judged import accepted, most_telling, rejected

from mudkit.consistency import History
from mudkit.exercises.sequential_views import EXERCISE, _Move, _written

CHAPTER = "03_fork_sequential_views"


def pairs(operations):
    return ((a, b) for a in operations for b in operations if b["kind"] == "read")


def solution(operations):
    return any(
        a["client"] == b["client"] and a["end"] < b["begin"] and b["version"] < a["version"]
        for a, b in pairs(operations)
    )


def remembers(operations):
    """The same by what a client has to remember: the newest version that it has seen, when it has seen it."""
    for read in operations:
        if read["kind"] == "read":
            over = [e for e in operations if e["client"] == read["client"] and e["end"] < read["begin"]]
            if read["version"] < max((e["version"] for e in over), default=0):
                return True
    return False


def without_writes(operations):
    return solution([each for each in operations if each["kind"] == "read"])


def without_reads(operations):
    return any(a["kind"] == "write" and solution([a, b]) for a, b in pairs(operations))


def whoever(operations):
    return solution([each | {"client": "all"} for each in operations])


def by_beginning(operations):
    return any(
        a["client"] == b["client"] and a["begin"] < b["begin"] and b["version"] < a["version"]
        for a, b in pairs(operations)
    )


def by_end(operations):
    return any(
        a["client"] == b["client"] and a["end"] < b["end"] and b["version"] < a["version"]
        for a, b in pairs(operations)
    )


def the_same_again(operations):
    return any(
        a["client"] == b["client"] and a["end"] < b["begin"] and b["version"] <= a["version"]
        for a, b in pairs(operations)
    )


def nothing_is_not_old(operations):
    return solution([each for each in operations if each["version"] > 0])


def only_the_one_before(operations):
    return any(
        solution([a, b])
        for client in ("ann", "bob")
        for mine in [[each for each in operations if each["client"] == client]]
        for a, b in pairwise(mine)
    )


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("piece", [solution, remembers])
def test_judge_accepts(piece):
    accepted(CHAPTER, piece)


@pytest.mark.parametrize(
    ("piece", "operations", "problem"),
    most_telling(
        [
            (lambda operations: False, 2, "does not hold"),
            (lambda operations: None, 1, "returned None; expected True or False"),
            (lambda operations: True, 1, "no client's reads go back"),
            (without_writes, 2, "read-your-writes does not hold"),
            (without_reads, 3, "monotonic-reads does not hold"),
            (whoever, 2, "returns True"),
            (by_beginning, 2, "returns True"),
            (by_end, 2, "returns True"),
            (the_same_again, 2, "returns True"),
            (nothing_is_not_old, 2, "returns False"),
            (only_the_one_before, 3, "returns False"),
            (lambda operations: operations[0]["versoin"] > 0, 1, "it raises KeyError: 'versoin' (line"),
        ]
    ),
)
def test_judge_rejects(piece, operations, problem):
    verdict = rejected(CHAPTER, piece, problem)
    text = "\n".join(verdict.failure.scenario.splitlines()[1:])
    # Hypothesis makes it small step by step, and may stop one above the smallest.
    assert operations <= len(History.parse(text)) <= operations + 1, text
    assert "smallest history that fails" in verdict.diagram().layout.title.text


def test_notation_matches_the_moves():
    rng = random.Random(3)
    outcomes = Counter()
    for _ in range(300):
        moves = [
            _Move(rng.choice(("ann", "bob")), rng.choice((None, 0, 1, 2)), rng.randint(1, 4))
            for _ in range(rng.randint(1, 7))
        ]
        history = History.parse(_written(moves))
        assert [each.client for each in history] == [move.client for move in moves]
        assert [each.is_write for each in history] == [move.back is None for move in moves]
        for number, (move, each) in enumerate(zip(moves, history, strict=True)):
            others = [other for other in history.operations[number:] if other.invoked_us <= each.answered_us]
            assert len(others) == min(move.length, len(moves) - number)
        for piece in (solution, remembers):
            assert EXERCISE.play(piece, moves).problem is None
        asked = []
        EXERCISE.play(asked.extend, moves)
        outcomes[solution(asked)] += 1
    assert min(outcomes.values()) > 50, "both answers are asked for often"

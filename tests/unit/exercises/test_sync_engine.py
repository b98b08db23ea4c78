"""Judge of chapter 12: the choice with the fewest wake-ups passes, likely mistakes are rejected."""

import pytest
from judged import check_accepted, check_rejected

from mudkit.exercises.sync_engine import play_hour, wakeups

CHAPTER = "12_sync_engine"


def solution(lists):
    chosen = [name for name, (looks, changes) in lists.items() if looks > changes]
    saved = sum(lists[name][0] - lists[name][1] for name in chosen)
    return chosen if saved > 3 else []


def test_solution_passes():
    check_accepted(CHAPTER, solution)


@pytest.mark.parametrize(
    ("piece", "problem"),
    [
        (lambda lists: [], "the radio wakes"),
        (list, "listens to nothing, 0 would do"),
        (
            lambda lists: [name for name, (looks, changes) in lists.items() if looks > changes],
            "listens to nothing",
        ),
        (
            lambda lists: [name for name in lists if name in solution({name: lists[name]})],
            "listens to a and b",
        ),
        (lambda lists: solution(lists) * 2, "each at most once"),
        (lambda lists: ["z"], "expected a list of names"),
        (lambda lists: None, "Your function returned None; expected a list of names."),
    ],
)
def test_judge_rejects(piece, problem):
    check_rejected(CHAPTER, piece, problem)


@pytest.mark.parametrize("listened", [[], ["a"], ["b"], ["a", "b"]])
def test_phone_of_the_lab_wakes_as_often_as_the_judge_counts(listened):
    """Mobius 5: changes are pushed to who listens, and its connection needs a heartbeat every 20 minutes."""
    lists = {"a": (5, 2), "b": (1, 4)}
    assert play_hour(lists, listened)[1] == wakeups(lists, listened)


def test_diagram_shows_the_messages_of_the_phone():
    verdict = check_rejected(CHAPTER, lambda lists: [], "the radio wakes")
    assert verdict.diagram().data

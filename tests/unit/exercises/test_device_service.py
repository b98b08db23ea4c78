"""Judge of chapter 13: the rule of a shared store is accepted and likely mistakes rejected."""

import pytest
from judged import check_accepted, check_rejected

CHAPTER = "13_device_service"


def solution(received_s, budget):
    kept = {app: list(times) for app, times in received_s.items()}
    share = budget // len(kept)
    while sum(len(times) for times in kept.values()) > budget:
        above = [app for app, times in kept.items() if len(times) > share]
        kept[min(above, key=lambda app: kept[app][0])].pop(0)
    return kept


def evict_oldest_of_all(received_s, budget):
    """Evict without shares: an app that fills the store takes all of it."""
    kept = {app: list(times) for app, times in received_s.items()}
    while sum(len(times) for times in kept.values()) > budget:
        kept[min((app for app in kept if kept[app]), key=lambda app: kept[app][0])].pop(0)
    return kept


def evict_of_the_largest(received_s, budget):
    kept = {app: list(times) for app, times in received_s.items()}
    while sum(len(times) for times in kept.values()) > budget:
        kept[max(kept, key=lambda app: len(kept[app]))].pop(0)
    return kept


def divide(received_s, budget):
    """Divide the budget, so that room stays free."""
    share = budget // len(received_s)
    return {app: times[len(times) - min(share, len(times)) :] for app, times in received_s.items()}


def evict_newest(received_s, budget):
    kept = {app: list(times) for app, times in received_s.items()}
    share = budget // len(kept)
    while sum(len(times) for times in kept.values()) > budget:
        above = [app for app, times in kept.items() if len(times) > share]
        kept[min(above, key=lambda app: kept[app][0])].pop()
    return kept


def test_solution_passes():
    check_accepted(CHAPTER, solution)


@pytest.mark.parametrize(
    ("piece", "problem"),
    [
        (evict_oldest_of_all, "less than its share of"),
        (evict_of_the_largest, "by the rule it keeps"),
        (divide, "where there is room for more"),
        (evict_newest, "by the rule it keeps"),
        (lambda received_s, budget: received_s, "are kept, more than the budget"),
        (
            lambda received_s, budget: {app: [] for app in received_s},
            "of 1 records, less than its share of 1",
        ),
        (lambda received_s, budget: solution(received_s, max(budget - 1, 0)), "less than its share of"),
        (lambda received_s, budget: {}, "expected a dict with the apps mail"),
        (lambda received_s, budget: {app: [0] for app in received_s}, "expected a list of its own times"),
        (lambda received_s, budget: dict.fromkeys(received_s, 1), "expected a list of its own times"),
        (
            lambda received_s, budget: {app: times + times for app, times in received_s.items()},
            "keeps a record twice",
        ),
        (lambda received_s, budget: None, "Your function returned None; expected a dict of lists."),
    ],
)
def test_judge_rejects(piece, problem):
    check_rejected(CHAPTER, piece, problem)

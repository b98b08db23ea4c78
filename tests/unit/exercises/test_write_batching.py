"""Judge of chapter 10: minimal batches are accepted and likely mistakes rejected."""

import math

import pytest
from judged import check_accepted, check_rejected

CHAPTER = "10_write_batching"


def solution(times_s, delay_s):
    messages = []
    for time in times_s:
        if messages and time - messages[-1][0] <= delay_s:
            messages[-1].append(time)
        else:
            messages.append([time])
    return messages


def round_waits(times_s, delay_s):
    """Round half up, unlike round()."""
    messages = []
    for time in times_s:
        if messages and math.floor(time - messages[-1][0] + 0.5) <= delay_s:
            messages[-1].append(time)
        else:
            messages.append([time])
    return messages


def test_solution_passes():
    check_accepted(CHAPTER, solution)


@pytest.mark.parametrize(
    ("piece", "problem"),
    [
        (lambda times_s, delay_s: [[time] for time in times_s], "2 messages are sent, where 1 would do"),
        (lambda times_s, delay_s: [times_s] if times_s else [], "waits until"),
        (lambda times_s, delay_s: [], "each must occur once"),
        (lambda times_s, delay_s: times_s, "expected a list of lists"),
        (lambda times_s, delay_s: [[], *solution(times_s, delay_s)], "a message is empty"),
        (lambda times_s, delay_s: solution(times_s, delay_s + 1), "waits until"),
        (lambda times_s, delay_s: solution(times_s, delay_s - 1), "messages are sent, where"),
        (lambda times_s, delay_s: solution(times_s, delay_s + 0.25), "waits until 0.125 s"),
        (lambda times_s, delay_s: solution(times_s, delay_s - 0.25), "messages are sent, where"),
        (round_waits, "waits until 0.125 s"),
        (lambda times_s, delay_s: None, "Your function returned None; expected a list of lists."),
    ],
)
def test_judge_rejects(piece, problem):
    verdict = check_rejected(CHAPTER, piece, problem)
    assert "a write may wait for" in verdict.failure.scenario

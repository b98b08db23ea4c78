"""Exercise of chapter 10: send writes in as few messages as the delay allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mudkit import words
from mudkit.exercises.judging import Exercise, PlayedScenario

_MAX_S: Final = 3600
_BEYOND_S: Final = 1 / 8
"""Distance of times just beside the delay: below half a unit, so that rounding shows; exact in binary."""


class _Scenario(NamedTuple):
    """Ascending times of writes, and the longest time a write may wait."""

    times_s: Sequence[float]
    delay_s: int

    def __str__(self) -> str:
        times = ", ".join(f"{time:,.9g} s" for time in self.times_s) or "no write"
        return f"writes at {times}; a write may wait for {words.duration(self.delay_s)}."


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Call the function on a scenario, and return the outcome."""
    answer = piece(list(scenario.times_s), scenario.delay_s)
    return PlayedScenario(str(scenario), _problem(answer, scenario))


def _problem(answer: Any, scenario: _Scenario) -> str | None:
    """Return the property that does not hold, or None."""
    if not isinstance(answer, list) or not all(isinstance(batch, list) for batch in answer):
        return f"it returns {answer!r:.80}; expected a list of lists of times."
    if any(not batch for batch in answer):
        return "a message is empty."
    sent = [time for batch in answer for time in batch]
    if sent != list(scenario.times_s):
        return f"the messages contain the writes at {sent or 'no time'}: each must occur once, in order."
    for batch in answer:
        if batch[-1] - batch[0] > scenario.delay_s:
            return f"the write at {batch[0]:,.9g} s waits until {batch[-1]:,.9g} s."
    fewest = _fewest(scenario)
    if len(answer) > fewest:
        return f"{words.count(len(answer), 'message')} are sent, where {fewest} would do."
    return None


def _fewest(scenario: _Scenario) -> int:
    """Return the smallest number of messages: each waits as long as its first write allows."""
    count, until_s = 0, -1.0
    for time_s in scenario.times_s:
        if time_s > until_s:
            count, until_s = count + 1, time_s + scenario.delay_s
    return count


@st.composite
def _scenarios(draw: st.DrawFn) -> _Scenario:
    """Draw a scenario; gaps at the delay and just beside it are as likely as others."""
    delay_s = draw(st.integers(0, _MAX_S))
    gap = st.sampled_from([delay_s, delay_s + _BEYOND_S, max(delay_s - _BEYOND_S, 0)]) | st.integers(
        0, _MAX_S
    )
    times_s = accumulate(draw(st.lists(gap, max_size=8)))
    return _Scenario(list(times_s), delay_s)


EXERCISE: Final = Exercise(
    signature="batches(times_s, delay_s) -> list of lists: the times of the writes in each message; "
    "a message is sent with its last write",
    property="Each write is in one message, in order; none waits longer than delay_s; and the number of "
    "messages is minimal.",
    scenarios=_scenarios(),
    play=_play,
    returns="a list of lists",
)

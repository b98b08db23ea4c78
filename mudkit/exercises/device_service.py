"""Exercise of chapter 13: whose records a phone's store evicts, so that no app takes another one's share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mudkit import words
from mudkit.exercises.judging import Exercise, PlayedScenario

_APPS: Final = ("mail", "news", "chat")


class _Scenario(NamedTuple):
    """Times at which each app received its records, ascending, and the budget of the store."""

    received_s: Mapping[str, list[int]]
    budget: int

    @property
    def share(self) -> int:
        """Records that an app may hold whatever the others do."""
        return self.budget // len(self.received_s)

    def __str__(self) -> str:
        records = "; ".join(
            f"{app}: {', '.join(map(str, times)) or 'none'}" for app, times in self.received_s.items()
        )
        return f"records received at, in s: {records}. Budget: {words.count(self.budget, 'record')}."


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Call the function on a scenario, and return the outcome."""
    answer = piece({app: list(times) for app, times in scenario.received_s.items()}, scenario.budget)
    return PlayedScenario(str(scenario), _problem(answer, scenario))


def _problem(answer: Any, scenario: _Scenario) -> str | None:
    """Return the property that does not hold, or None."""
    received_s, share = scenario.received_s, scenario.share
    if not isinstance(answer, dict) or set(answer) != set(received_s):
        return f"it returns {answer!r:.80}; expected a dict with the apps {', '.join(received_s)}."
    for app, times in received_s.items():
        if not isinstance(answer[app], list) or any(time not in times for time in answer[app]):
            return f"{app} keeps {answer[app]!r:.80}; expected a list of its own times."
        if len(set(answer[app])) < len(answer[app]):
            return f"{app} keeps a record twice: {answer[app]}."
    total = sum(map(len, answer.values()))
    if total > scenario.budget:
        return f"{words.count(total, 'record')} are kept, more than the budget."
    for app, times in received_s.items():
        if len(answer[app]) < min(len(times), share):
            return f"{app} keeps {len(answer[app])} of {len(times)} records, less than its share of {share}."
    expected = _keep(scenario)
    if total < sum(map(len, expected.values())):
        return f"{words.count(total, 'record')} are kept, where there is room for more."
    for app in received_s:
        if sorted(answer[app]) != expected[app]:
            return f"{app} keeps {sorted(answer[app])}; by the rule it keeps {expected[app]}."
    return None


def _keep(scenario: _Scenario) -> dict[str, list[int]]:
    """Return what the apps keep by the rule."""
    kept = {app: list(times) for app, times in scenario.received_s.items()}
    while sum(map(len, kept.values())) > scenario.budget:
        _, victim = min((times[0], app) for app, times in kept.items() if len(times) > scenario.share)
        kept[victim].pop(0)
    return kept


@st.composite
def _scenarios(draw: st.DrawFn) -> _Scenario:
    """Draw a scenario; no two records were received at the same time."""
    apps = _APPS[: draw(st.integers(1, len(_APPS)))]
    owners = draw(st.lists(st.sampled_from(apps), max_size=14))
    received_s = {app: [time for time, owner in enumerate(owners, start=1) if owner == app] for app in apps}
    return _Scenario(received_s, draw(st.integers(0, 12)))


EXERCISE: Final = Exercise(
    signature="keep(received_s, budget) -> dict: by app, the list of the times of the records that stay; "
    "received_s has by app the times at which its records were received, ascending",
    property="At most budget records stay, and none goes without need. An app evicts that holds more than "
    "its share, budget // number of apps; of these the one whose record is the oldest, first that record.",
    scenarios=_scenarios(),
    play=_play,
    returns="a dict of lists",
)

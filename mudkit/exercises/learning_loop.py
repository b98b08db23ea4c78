"""Exercise of chapter 14: what phones fetch in advance, so that no policy shows what a few people do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mudkit import words
from mudkit.exercises.judging import Exercise, PlayedScenario

_DEVICES: Final = ("ann", "bob", "cy", "dora")
_QUERIES: Final = ("bus", "news")
_HOURS: Final = (7, 8)


class _Read(NamedTuple):
    """A read that was reported."""

    device: str
    day: int
    hour: int
    query: str


class _Scenario(NamedTuple):
    """Reads of some days, and the limits of the learner."""

    reads: Sequence[_Read]
    days: int
    min_devices: int
    min_share: float

    def __str__(self) -> str:
        reads = "; ".join(
            f"{device}, day {day}, {hour} h, {query}" for device, day, hour, query in self.reads
        )
        return (
            f"{words.count(self.days, 'day')}, min_devices {self.min_devices}, min_share {self.min_share}. "
            f"Reads: {reads or 'none'}."
        )


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Call the function on a scenario, and return the outcome."""
    reads = [tuple(read) for read in scenario.reads]
    answer = piece(reads, scenario.days, scenario.min_devices, scenario.min_share)
    return PlayedScenario(str(scenario), _problem(answer, scenario))


def _problem(answer: Any, scenario: _Scenario) -> str | None:
    """Return the property that does not hold, or None."""
    if not isinstance(answer, set | frozenset):
        return f"it returns {answer!r:.80}; expected a set of pairs of a query and an hour."
    expected, readers = _fetched(scenario), _readers(scenario)
    for query, hour in sorted(expected - answer):
        return f"{query!r} at {hour} h is missing: {_share(scenario, query, hour)}."
    for pair in sorted(answer - expected, key=repr):
        query, hour = pair if isinstance(pair, tuple) and len(pair) == 2 else (pair, 0)
        if query not in _QUERIES or hour not in _HOURS:
            return f"{pair!r:.80} is fetched; expected pairs of a query and an hour that were read."
        count = len(readers[query])
        if count < scenario.min_devices:
            readers_shown = words.count(count, "device")
            return f"{query!r} is fetched, which only {readers_shown} read: it shows what a few do."
        return f"{query!r} at {hour} h is fetched: {_share(scenario, query, hour)}."
    return None


def _readers(scenario: _Scenario) -> dict[str, set[str]]:
    """Return the devices that have read each query."""
    return {query: {read.device for read in scenario.reads if read.query == query} for query in _QUERIES}


def _hits(scenario: _Scenario, query: str, hour: int) -> int:
    """Return on how many days of a device a query was read in an hour."""
    return len({read[:2] for read in scenario.reads if (read.query, read.hour) == (query, hour)})


def _share(scenario: _Scenario, query: str, hour: int) -> str:
    """Return the share of days of devices on which a query was read in an hour, in words."""
    days = words.count(len(_readers(scenario)[query]) * scenario.days, "day")
    return f"it is read on {_hits(scenario, query, hour)} of {days} of the devices that read it"


def _fetched(scenario: _Scenario) -> set[tuple[str, int]]:
    """Return the pairs by the rule."""
    return {
        (query, hour)
        for query, devices in _readers(scenario).items()
        for hour in _HOURS
        if len(devices) >= max(scenario.min_devices, 1)
        and _hits(scenario, query, hour) >= max(scenario.min_share * len(devices) * scenario.days, 1)
    }


@st.composite
def _scenarios(draw: st.DrawFn) -> _Scenario:
    """Draw a scenario; a device may read a query twice in an hour."""
    days = draw(st.integers(1, 4))
    read = st.builds(
        _Read,
        st.sampled_from(_DEVICES),
        st.integers(1, days),
        st.sampled_from(_HOURS),
        st.sampled_from(_QUERIES),
    )
    reads = draw(st.lists(read, max_size=16))
    return _Scenario(reads, days, draw(st.integers(1, 3)), draw(st.sampled_from([0.25, 0.5, 0.75])))


EXERCISE: Final = Exercise(
    signature="fetch(reads, days, min_devices, min_share) -> set of (query, hour); reads is a list of "
    "(device, day, hour, query)",
    property="A query is fetched in an hour if at least min_devices devices have read it at any hour, and it "
    "was read in that hour on at least min_share of the days of these devices. Two reads of a device in one "
    "hour of a day count once.",
    scenarios=_scenarios(),
    play=_play,
    returns="a set of pairs",
)

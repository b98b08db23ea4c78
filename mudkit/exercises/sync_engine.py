"""Exercise of chapter 12: choose for each list whether to listen to it or to ask for it at each look.

A change of a list that is listened to wakes the radio, and so does a look at one that is not; a phone that
listens to anything sends heartbeats besides (Mobius 5). The judge counts these; the diagram of a scenario
that fails is of a lab, whose phone wakes as often.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import chain, combinations
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures, words
from mudkit.exercises.judging import FAILURE_TITLE, Exercise, PlayedScenario
from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud, freshness

HEARTBEATS: Final = 3
"""Heartbeats in an hour of a phone that listens."""
_APP: Final = "jobs"
_MAX_EVENTS: Final = 8
_GAP_S: Final = 60
_OFFSET_S: Final = 30
"""Distance of the events from the heartbeats, which are at whole minutes: no two share a wake-up."""


class _List(NamedTuple):
    """Looks at a list, and changes of it by others, in an hour."""

    looks: int
    changes: int


class _Scenario(NamedTuple):
    """The lists of a phone, by name."""

    lists: Mapping[str, _List]

    def __str__(self) -> str:
        rates = [
            f"{name}: {words.count(looks, 'look')} and {words.count(changes, 'change')}"
            for name, (looks, changes) in self.lists.items()
        ]
        return f"{'; '.join(rates) or 'no list'}."


def wakeups(lists: Mapping[str, tuple[int, int]], listened: Collection[str]) -> int:
    """Return how often the radio wakes in an hour, if a phone listens to some of its lists."""
    heartbeats = HEARTBEATS if listened else 0
    return heartbeats + sum(
        changes if name in listened else looks for name, (looks, changes) in lists.items()
    )


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Call the function on a scenario, and return the outcome."""
    answer = piece({name: tuple(rates) for name, rates in scenario.lists.items()})
    problem = _problem(answer, scenario)
    picture = partial(_drawn, scenario, answer) if problem and _is_usable(answer, scenario) else None
    return PlayedScenario(str(scenario), problem, picture=picture)


def _is_usable(answer: Any, scenario: _Scenario) -> bool:
    """Return whether an answer is a list of different names."""
    is_list = isinstance(answer, list) and all(isinstance(name, str) for name in answer)
    return is_list and len(set(answer)) == len(answer) and set(answer) <= set(scenario.lists)


def _problem(answer: Any, scenario: _Scenario) -> str | None:
    """Return the property that does not hold, or None."""
    if not _is_usable(answer, scenario):
        return f"it returns {answer!r:.80}; expected a list of names, each at most once."
    woken = wakeups(scenario.lists, answer)
    names = list(scenario.lists)
    choices = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
    best = min(choices, key=partial(wakeups, scenario.lists))
    fewest = wakeups(scenario.lists, best)
    if woken == fewest:
        return None
    other = f"listens to {words.joined(best)}" if best else "listens to nothing"
    return f"the radio wakes {words.count(woken, 'time')}; with a phone that {other}, {fewest} would do."


def play_hour(lists: Mapping[str, tuple[int, int]], listened: Collection[str]) -> tuple[Lab, int]:
    """Run an hour of a phone; return the lab, and how often the phone's radio woke."""
    lab = Lab(seed=1)
    cloud = Cloud(lab, replicas=0, gateways=1, processors=1, notification_servers=1)
    token = lab.token(user="jane", app=_APP)
    office = Client(lab.device("office", link="ideal"), cloud, app=_APP, token=token)
    phone = Client(lab.device("phone"), cloud, app=_APP, token=token)
    office.create(_APP, writer_predicates=False).result()
    for name in listened:
        phone.read(_APP, f"list = '{name}'", "continuous", sync_timestamp=0).result()
    lab.run(minutes=1)
    before = _wakeups_of_phone(lab)
    events: list[Callable[[], object]] = []
    for name, (looks, changes) in lists.items():
        query = f"list = '{name}'"
        events += [partial(phone.read, _APP, query, utility=freshness(_GAP_S / 2))] * looks
        events += [partial(office.write, _APP, name, {"list": name})] * changes
    for number, event in enumerate(events):
        lab.schedule(event, seconds=_OFFSET_S + _GAP_S * number)
    lab.run(hours=1)
    return lab, _wakeups_of_phone(lab) - before


def _wakeups_of_phone(lab: Lab) -> int:
    """Return how often the phone's radio woke."""
    bill = lab.bill()
    return int(bill.loc[bill["device"] == "phone", "wakeups"].sum())


def _drawn(scenario: _Scenario, listened: Collection[str]) -> go.Figure:
    """Draw the messages of the phone."""
    lab, _ = play_hour(scenario.lists, listened)
    lanes = ("phone", "mud-gateway-1", "mud-notifications-1")
    return figures.message_diagram(lab, lanes=lanes, devices=("phone",), title=FAILURE_TITLE)


_RATES: Final = st.builds(_List, st.integers(0, _MAX_EVENTS), st.integers(0, _MAX_EVENTS))

EXERCISE: Final = Exercise(
    signature="listens(lists) -> list of names; lists maps each name to (looks, changes), both in an hour",
    property="The radio wakes as seldom as any choice allows: once for each change of a list that the phone "
    "listens to, for each look at another one, and for three heartbeats if it listens to any.",
    scenarios=st.lists(_RATES, max_size=3).map(
        lambda rates: _Scenario(dict(zip("abc", rates, strict=False)))
    ),
    play=_play,
    returns="a list of names",
)

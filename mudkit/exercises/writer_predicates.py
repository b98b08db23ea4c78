"""Exercise of chapter 02: write the predicate of a record, so that exactly the intended readers see it.

Data that a reader sends about itself saves messages; only a token proves its user. A reader that omits
required data is not intended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.errors import MudkitError
from mudkit.exercises.judging import FAILURE_TITLE, Exercise, PieceError, PlayedScenario, new_lab
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.systems.mud import Client, Cloud
from mudkit.units import KM_PER_DEGREE, distance_km

_PLACES: Final = ((30.27, -97.74), (40.71, -74.01))
_USERS: Final = ("bob", "o'hara")
_TABLE, _KEY = "board", "a"


@dataclass(frozen=True)
class _Reader:
    """Data that a reader claims, and its token."""

    age: Any
    north_km: float | None
    """Claimed distance north of the record's place; None: no claim."""
    claims: str | None
    """User that it claims to be."""
    proves: str | None
    """User of its token; None: it has none."""
    app: str = "board"

    def data(self, place: tuple[float, float]) -> dict[str, Any]:
        """Return what the reader says of itself, with places relative to ``place``."""
        loc = None if self.north_km is None else (place[0] + self.north_km / KM_PER_DEGREE, place[1])
        data = {"age": self.age, "loc": loc, "user": self.claims}
        return {name: value for name, value in data.items() if value is not None}

    def __str__(self) -> str:
        claims = [f"says age={self.age!r}"] if self.age is not None else []
        claims += [f"says that it is {self.north_km:g} km away"] if self.north_km is not None else []
        claims += [f"says user={self.claims!r}"] if self.claims is not None else []
        claims += [f"has a token of {self.proves!r} and app {self.app!r}" if self.proves else "has no token"]
        return " and ".join(claims)


@dataclass(frozen=True)
class _Scenario:
    """Intended readers of a record, and a reader."""

    min_age: int | None
    place: tuple[float, float]
    km: float | None
    users: tuple[str, ...] | None
    apps: tuple[str, ...] | None
    reader: _Reader

    @property
    def who(self) -> dict[str, Any]:
        """Argument of the function under test."""
        return {
            "min_age": self.min_age,
            "place": None if self.km is None else self.place,
            "km": self.km,
            "users": None if self.users is None else list(self.users),
            "apps": None if self.apps is None else list(self.apps),
        }

    @property
    def is_intended(self) -> bool:
        """True if the reader must see the record; computed without a predicate."""
        reader = self.reader
        is_number = isinstance(reader.age, int | float)
        if self.min_age is not None and not (is_number and reader.age >= self.min_age):
            return False
        if self.km is not None:
            loc = reader.data(self.place).get("loc")
            if loc is None or float(distance_km(*self.place, *loc)) > self.km:
                return False
        if self.users is not None and reader.proves not in self.users:
            return False
        return self.apps is None or (reader.proves is not None and reader.app in self.apps)

    def __str__(self) -> str:
        conditions = [f"{name}={value!r}" for name, value in self.who.items() if value is not None]
        return f"the record is for {', '.join(conditions) or 'everybody'}; the reader {self.reader}."


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Write a record with the function's predicate in a lab, and read it as the reader.

    Return the outcome.
    """
    story = str(scenario)
    try:
        text = piece(scenario.who)
    except PieceError as error:
        return PlayedScenario(story, str(error))
    lab = new_lab()
    cloud = Cloud(lab, replicas=0, gateways=1, processors=1, notification_servers=1)
    jane = Client(lab.device("jane"), cloud, app="board", token=lab.token("jane", "board"))
    proves = scenario.reader.proves
    token = None if proves is None else lab.token(proves, scenario.reader.app)
    reader = Client(lab.device("reader"), cloud, app=scenario.reader.app, token=token)
    jane.create(_TABLE, acl="public").result()
    try:
        jane.write(_TABLE, _KEY, {"text": "hello"}, predicate=_predicate(text, scenario.who)).result()
        records = reader.read(_TABLE, data=scenario.reader.data(scenario.place), latest=True).result().records
    except (MudkitError, TypeError) as error:
        return PlayedScenario(
            f"{story} The predicate is {text!r}.",
            f"it is rejected: {error}",
            lab,
            picture=partial(_drawn, lab),
        )
    problem = None
    if bool(records) != scenario.is_intended:
        problem = "the reader does not see the record, but the record is for it."
        if records:
            problem = "the reader sees the record, but the record is not for it."
    return PlayedScenario(f"{story} The predicate is {text!r}.", problem, lab, picture=partial(_drawn, lab))


def _drawn(lab: Lab) -> go.Figure:
    """Draw the requests of both devices and what they return."""
    table = lab.frame("messages")
    table = table[table["source"].isin(_LANES) & table["target"].isin(_LANES)]
    return figures.message_diagram(table, lanes=_LANES, kinds=_SHOWN, title=FAILURE_TITLE)


def _predicate(text: Any, who: Mapping[str, Any]) -> Predicate:
    """Build the predicate with the constants that its text names."""
    if not isinstance(text, str):
        raise TypeError(f"a predicate is a string, not {type(text).__name__}")
    return Predicate(text, **{name: who[name] for name in who if re.search(rf":{name}\b", text)})


_LANES: Final = ("jane", "mud-gateway-1", "reader")
_SHOWN: Final = ("ask", "outcome", "part")
"""Kinds of messages in the diagram: requests, the answer to a write, and the records that a read returns."""

EXERCISE: Final = Exercise(
    signature="writer_predicate(who) -> str: the text of a predicate for who['min_age'], who['place'] and "
    "who['km'], who['users'] and who['apps'], each None when it does not apply; :min_age, :place, :km, "
    ":users and :apps in the text stand for them",
    property="A reader sees the record if and only if it claims to be old enough and near enough, and proves "
    "that it is one of the users and one of the apps; a condition that is None does not apply.",
    # Values that admit a reader are repeated: otherwise few readers fail by a single condition, and a mistake
    # in that condition shows once in a hundred scenarios. Others miss a limit by less than its unit, and a
    # reader at the place itself is just near enough for 0 km.
    scenarios=st.builds(
        _Scenario,
        st.sampled_from([None, 21, 18]),
        st.sampled_from(_PLACES),
        st.sampled_from([None, 1.6, 0.5, 0.0]),
        st.sampled_from([None, ("bob",), _USERS]),
        st.sampled_from([None, ("board",), ("board", "news")]),
        st.builds(
            _Reader,
            st.sampled_from([30, 30, 30, None, 21, 18, 20.5, 17.5, "30"]),
            st.sampled_from([0.0, None, 0.49, 0.51, 1.59, 1.61]),
            st.sampled_from([None, *_USERS, *_USERS]),
            st.sampled_from([*_USERS, None, None, "eve"]),
            st.sampled_from(["board", "news", "spy"]),
        ),
    ),
    play=_play,
    returns="the text of a predicate",
)

"""The exercise of chapter 06: write an aggregability function for friends, hazards and everybody else.

The first example of Radiator 2.2 (friends at once, strangers after up to 40 seconds), with a hazard that
matters to those near by. The judge applies Algorithm 3 with the reader's function and with one of its own to
the same contexts, and compares when each message goes to each receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.exercises.judging import Exercise, PieceError, Played
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.systems.radiator import (
    Aggregability,
    Client,
    ClientLists,
    Context,
    Message,
    People,
    Server,
    Time,
    Volume,
    broadcast,
    distance_km,
)
from mudkit.units import KM_PER_DEGREE

__all__ = ["EXERCISE"]

_NAMES: Final = ("ann", "bob", "cy")
_LANES: Final = ("ann", "radiator", "bob", "cy")
_PLACE: Final = (30.27, -97.74)
_WAIT_S: Final = 40.0
_NEAR_KM: Final = 2.0
_LONGEST_S: Final = 600.0
_LONGEST_US: Final = round(_LONGEST_S * 1e6)
_TOLERANCE_S: Final = 1.0


class _Move(NamedTuple):
    """Somebody says where she is."""

    gap_s: int
    """Since the one before; no sum of them comes near to 40 s."""
    who: str
    east_km: float | None
    """None: she does not say."""
    hazard: bool

    def __str__(self) -> str:
        where = "without a place" if self.east_km is None else f"{self.east_km:g} km east"
        return f"{self.who} {where}{', a hazard' if self.hazard else ''}"


class _Case(NamedTuple):
    """A scenario."""

    friends: str | None
    """Of ann's; None: she has none."""
    moves: tuple[_Move, ...]

    def __str__(self) -> str:
        t_s, moves = 0, []
        for move in self.moves:
            t_s += move.gap_s
            moves.append(f"at {t_s} s {move}")
        friends = f"{self.friends} is a friend of ann's" if self.friends else "nobody has friends"
        return f"{friends}; {'; '.join(moves)}."

    @property
    def attributes(self) -> dict[str, dict[str, Any]]:
        """What each says at registration: friends, and no place."""
        return {
            name: {"friends": [self.friends] if name == "ann" and self.friends else []} for name in _NAMES
        }

    @property
    def said(self) -> list[tuple[int, str, Context]]:
        """When, µs, who says what."""
        t_us, said = 0, []
        for number, (gap_s, who, east_km, hazard) in enumerate(self.moves, start=1):
            t_us += gap_s * 1_000_000
            attributes: dict[str, Any] = {"message": number, "hazard": hazard}
            if east_km is not None:
                attributes["loc"] = [_PLACE[0], _PLACE[1] + _degrees(east_km)]
            said.append((t_us, who, Context(frozenset((who,)), attributes)))
        return said


def _degrees(east_km: float) -> float:
    """Give kilometres eastward as degrees of longitude where the exercise is."""
    return east_km / float(KM_PER_DEGREE) / 0.8637  # the cosine of the latitude


def _reference(sender: Context, receiver: Context) -> Time | Volume:
    """Give what is asked for."""
    is_friend = bool(receiver.people & {*sender["friends"]})
    here, there = sender.get("loc"), receiver.get("loc")
    is_near = here is not None and there is not None and distance_km(here, there) <= _NEAR_KM
    return Volume(1) if is_friend or (sender.get("hazard") and is_near) else Time(seconds=_WAIT_S)


def _sent_messages(
    function: Callable[..., Any], case: _Case
) -> dict[tuple[int, str], tuple[float, tuple[int, ...]]]:
    """Give when each message goes to each receiver, s, and with which others."""
    lists = ClientLists(Aggregability(function), _LONGEST_US)
    for name, given in case.attributes.items():
        lists.register(0, name, given)
    said = [
        Message(number, who, t_us, context.with_span(t_us))
        for number, (t_us, who, context) in enumerate(case.said, start=1)
    ]
    gone = {}
    for each in broadcast(lists, said, until_us=case.said[-1][0] + _LONGEST_US):
        together = tuple(message.number for message in each.batch)
        for number in together:
            for name in each.recipients:
                gone[number, name] = each.sent_us / 1e6, together
    return gone


def _play(piece: Callable[..., Any], case: _Case) -> Played:
    raised: list[str] = []

    def watched(sender: Context, receiver: Context) -> Any:
        try:
            given = piece(sender, receiver)
        except PieceError as error:
            raised.append(str(error))
            raise
        if not isinstance(given, Volume | People | Time):
            raised.append(f"it returned {given!r}; expected a Volume, People or Time")
        return given

    sent, expected = _sent_messages(watched, case), _sent_messages(_reference, case)
    problem = raised[0].splitlines()[0] if raised else _problem(sent, expected, case)
    return Played(str(case), problem, picture=partial(_drawn, piece, case))


def _problem(
    sent: dict[tuple[int, str], tuple[float, tuple[int, ...]]],
    expected: dict[tuple[int, str], tuple[float, tuple[int, ...]]],
    case: _Case,
) -> str | None:
    for number, name in expected:
        was_s = case.said[number - 1][0] / 1e6
        should_s = expected[number, name][0] - was_s
        sender = case.moves[number - 1].who
        if (number, name) not in sent:
            return f"{name} never gets {sender}'s message {number}."
        came_s = sent[number, name][0] - was_s
        if abs(came_s - should_s) > _TOLERANCE_S:
            return f"{name} gets {sender}'s message {number} {_after(came_s)}, not {_after(should_s)}."
    return None


def _after(seconds: float) -> str:
    return f"after {seconds:.0f} s" if seconds >= _TOLERANCE_S else "at once"


def _drawn(piece: Callable[..., Any], case: _Case) -> go.Figure:
    """Play it in a lab, for its messages."""
    lab = Lab(seed=1)
    lab.world.on_failure = raise_failure  # a piece that raises has not passed
    server = Server(lab, piece, max_retention_s=_LONGEST_S)
    clients = {
        name: Client(lab.device(name, link="ideal"), server, attributes=given)
        for name, given in case.attributes.items()
    }
    lab.run(seconds=1)
    began_us = lab.world.now_us
    for t_us, who, context in case.said:
        lab.world.run(began_us + t_us)
        clients[who].propagate_context(context)
    lab.run(seconds=2 * _WAIT_S)
    return figures.message_diagram(
        figures.radiator_pushes(lab.frame("messages")),
        lab.frame("incidents"),
        lanes=_LANES,
        title="The smallest scenario that fails",
    )


def _cases() -> st.SearchStrategy[_Case]:
    move = st.builds(
        _Move,
        st.sampled_from([6, 15, 33]),
        st.sampled_from(_NAMES),
        st.sampled_from([0.0, 1.5, 2.5, None]),
        st.booleans(),
    )
    moves: st.SearchStrategy[Sequence[_Move]] = st.lists(move, min_size=1, max_size=6)
    return st.builds(
        lambda friends, drawn: _Case(friends, tuple(drawn)), st.sampled_from([None, "bob"]), moves
    )


EXERCISE: Final = Exercise(
    signature="g(sender, receiver) -> Volume, People or Time, of two Contexts with sender['friends'] (names),"
    " sender['hazard'] (a bool, once it has said something) and 'loc' (a place, where it says one); "
    "receiver.people are the receiver's names",
    property=f"A message goes at once to the sender's friends and, while the sender reports a hazard, to "
    f"whoever is within {_NEAR_KM:g} km of it; to everybody else when the oldest that waits has waited "
    f"{_WAIT_S:g} s.",
    scenarios=_cases(),
    play=_play,
    returns="a Volume, People or Time",
)

"""Exercise of chapter 06: an aggregability function for friends, hazards and everybody else.

The first example of Radiator 2.2 (friends at once, strangers after up to 40 seconds), extended by hazards
that concern people nearby. The judge applies Algorithm 3 to the same contexts with the reader's function and
with a reference, and compares when each message is sent to each receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.exercises.judging import FAILURE_TITLE, Exercise, PieceError, PlayedScenario, new_lab
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

_NAMES: Final = ("ann", "bob", "cy")
_LANES: Final = ("ann", "radiator", "bob", "cy")
_PLACE: Final = (30.27, -97.74)
_WAIT_S: Final = 40.0
_NEAR_KM: Final = 2.0
_MAX_RETENTION_S: Final = 600.0
_MAX_RETENTION_US: Final = round(_MAX_RETENTION_S * 1e6)
_TOLERANCE_S: Final = 0.01


class _Move(NamedTuple):
    """Context sent by one person."""

    gap_s: int
    """Time since the previous one; no sum of gaps comes near 40 s."""
    who: str
    east_km: float | None
    """Position east of the common place; None: not sent."""
    hazard: bool

    def __str__(self) -> str:
        place = "the middle of town"
        if self.east_km != 0:
            place = f"{self.east_km:g} km east of the middle" if self.east_km else "an unknown place"
        return f"{self.who} reports {'a hazard ' if self.hazard else ''}from {place}"


class _Case(NamedTuple):
    """Friend of ann, if she has one, and the contexts that are sent."""

    friends: str | None
    """Friend of ann; None: she has none."""
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
        """Attributes of each person at registration: friends, and no place."""
        return {
            name: {"friends": [self.friends] if name == "ann" and self.friends else []} for name in _NAMES
        }

    @property
    def contexts(self) -> list[tuple[int, str, Context]]:
        """Time (µs), sender and content of each context."""
        t_us, contexts = 0, []
        for number, (gap_s, who, east_km, hazard) in enumerate(self.moves, start=1):
            t_us += gap_s * 1_000_000
            attributes: dict[str, Any] = {"message": number, "hazard": hazard}
            if east_km is not None:
                attributes["loc"] = [_PLACE[0], _PLACE[1] + _degrees(east_km)]
            contexts.append((t_us, who, Context(frozenset((who,)), attributes)))
        return contexts


def _degrees(east_km: float) -> float:
    """Convert kilometres eastward to degrees of longitude at the common place."""
    return east_km / float(KM_PER_DEGREE) / 0.8637  # the cosine of the latitude


def _reference(sender: Context, receiver: Context) -> Time | Volume:
    """Return what a correct function returns."""
    is_friend = bool(receiver.people & {*sender["friends"]})
    origin, target = sender.get("loc"), receiver.get("loc")
    is_near = origin is not None and target is not None and distance_km(origin, target) <= _NEAR_KM
    return Volume(1) if is_friend or (sender.get("hazard") and is_near) else Time(seconds=_WAIT_S)


def _sent_messages(
    function: Callable[..., Any], case: _Case
) -> dict[tuple[int, str], tuple[float, tuple[int, ...]]]:
    """Return the time (s) at which each message is sent to each receiver, and the messages of its batch."""
    lists = ClientLists(Aggregability(function), _MAX_RETENTION_US)
    for name, attributes in case.attributes.items():
        lists.register(0, name, attributes)
    messages = [
        Message(number, who, t_us, context.with_span(t_us))
        for number, (t_us, who, context) in enumerate(case.contexts, start=1)
    ]
    sent = {}
    for push in broadcast(lists, messages, until_us=case.contexts[-1][0] + _MAX_RETENTION_US):
        batch = tuple(message.number for message in push.batch)
        for number in batch:
            for name in push.recipients:
                sent[number, name] = push.sent_us / 1e6, batch
    return sent


def _play(piece: Callable[..., Any], case: _Case) -> PlayedScenario:
    """Run the server's rules with the function and with the reference on a case, and return the outcome."""
    raised: list[str] = []

    def checked(sender: Context, receiver: Context) -> Any:
        try:
            answer = piece(sender, receiver)
        except PieceError as error:
            raised.append(str(error))
            raise
        if not isinstance(answer, Volume | People | Time):
            raised.append(f"it returned {answer!r}; expected a Volume, People or Time")
        return answer

    sent, expected = _sent_messages(checked, case), _sent_messages(_reference, case)
    problem = raised[0].splitlines()[0] if raised else _problem(sent, expected, case)
    return PlayedScenario(str(case), problem, picture=partial(_drawn, piece, case))


def _problem(
    sent: dict[tuple[int, str], tuple[float, tuple[int, ...]]],
    expected: dict[tuple[int, str], tuple[float, tuple[int, ...]]],
    case: _Case,
) -> str | None:
    """Return the first message that comes at another time than expected, in words, or None."""
    for number, name in expected:
        created_s = case.contexts[number - 1][0] / 1e6
        expected_s = expected[number, name][0] - created_s
        sender = case.moves[number - 1].who
        if (number, name) not in sent:
            return f"{name} never gets {sender}'s message {number}."
        delay_s = sent[number, name][0] - created_s
        if abs(delay_s - expected_s) > _TOLERANCE_S:
            return f"{name} gets {sender}'s message {number} {_after(delay_s)}, not {_after(expected_s)}."
    return None


def _after(seconds: float) -> str:
    """Return in words how long after a message it is received."""
    return f"after {round(seconds, 2):g} s" if seconds >= _TOLERANCE_S else "at once"


def _drawn(piece: Callable[..., Any], case: _Case) -> go.Figure:
    """Run the scenario in a lab and draw its messages."""
    lab = new_lab()
    server = Server(lab, piece, max_retention_s=_MAX_RETENTION_S)
    clients = {
        name: Client(lab.device(name, link="ideal"), server, attributes=attributes)
        for name, attributes in case.attributes.items()
    }
    lab.run(seconds=1)
    start_us = lab.world.now_us
    for t_us, who, context in case.contexts:
        lab.world.run(start_us + t_us)
        clients[who].propagate_context(context)
    lab.run(seconds=2 * _WAIT_S)
    return figures.message_diagram(
        figures.radiator_pushes(lab.frame("messages")),
        lab.frame("incidents").drop_duplicates(["ts", "device", "incident"]),  # one per receiver
        lanes=_LANES,
        title=FAILURE_TITLE,
    )


def _cases() -> st.SearchStrategy[_Case]:
    """Return the strategy that draws cases; distances are just within and just beyond the limit."""
    move = st.builds(
        _Move,
        st.sampled_from([6, 15, 33]),
        st.sampled_from(_NAMES),
        st.sampled_from([0.0, 1.99, 2.01, None]),
        st.booleans(),
    )
    moves: st.SearchStrategy[Sequence[_Move]] = st.lists(move, min_size=1, max_size=6)
    return st.builds(
        lambda friends, drawn: _Case(friends, tuple(drawn)), st.sampled_from([None, "bob"]), moves
    )


EXERCISE: Final = Exercise(
    signature="g(sender, receiver) -> Volume, People or Time, of two Contexts with sender['friends'] "
    "(names), sender['hazard'] (a bool, once it has sent a context) and 'loc' (a place, where it sends one); "
    "receiver.people are the receiver's names",
    property=f"A message goes at once to the sender's friends and, while the sender reports a hazard, to "
    f"everybody within {_NEAR_KM:g} km of it; to everybody else when the oldest waiting message has waited "
    f"{_WAIT_S:g} s.",
    scenarios=_cases(),
    play=_play,
    returns="a Volume, People or Time",
)

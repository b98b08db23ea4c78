"""A device's session with its server: what it says until it is heard, and from where it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.stream import Incoming
from mudkit.events import Complete, Effect, Ports, Send, size_bytes
from mudkit.systems.lasthop.device.event_log import EventLog
from mudkit.systems.lasthop.messages import Body, DeviceFacts, Hello, Wants
from mudkit.systems.lasthop.messages import Session as SessionName

__all__ = ["AGAIN", "FACTS", "HELLO", "PATIENCE_US", "Ask", "Session"]

AGAIN: Final = "again"
PATIENCE_US: Final = 15_000_000
"""So long a reader waits for better messages."""
HELLO: Final = 0
"""The key of a hello among what waits for an answer; reads have their numbers, from 1 on."""
FACTS: Final = -1
"""The key of the facts that were told."""


class Ask(msgspec.Struct):
    """A read that waits for the server.

    Parameters
    ----------
    topic : str
    op_id : int
    since_us : int
    """

    topic: str
    op_id: int
    since_us: int


class Session:
    """Says hello, tells facts and asks again, as long as the server has not answered.

    Parameters
    ----------
    ports : Ports
        What its host gives it.
    me : str
        Its name, which stays when its address changes.
    server : str
        The server's address.
    capacity : int or None
        The number of messages that have room; None: any number has.
    """

    def __init__(self, ports: Ports, me: str, server: str, capacity: int | None) -> None:
        self._me, self._server = me, server
        self._capacity = capacity
        self._facts = EventLog(ports)
        self._incarnation = ""
        self._life = self._count = 0
        self._stream: Incoming[Body] = Incoming()
        self._overtaken: Sequence[int] = ()
        """Numbers of what is missing if it has not come when the timer fires."""
        self._after: tuple[str, int] | None = None
        """The last session in which the server has spoken, and up to where it has come."""
        self._is_welcome = False
        self._is_asked = False
        """True if the next hello carries all subscriptions."""
        self._answered = ""
        """Incarnation of the server's start whose question was answered last."""
        self._telling = 0
        """The last fact of those that were told and may be on their way; 0: none are."""
        self._unanswered: RetransmitTimer[int] = RetransmitTimer(AGAIN)
        self._calls: dict[int, int] = {}  # op_id by number of the fact
        self._asks: dict[int, Ask] = {}
        self._now_us = 0

    def _held(self) -> dict[str, dict[str, float]]:
        """Give what is there, by topic, with its ranks."""
        raise NotImplementedError

    def _wants(self) -> Wants:
        """Return all that is subscribed to."""
        raise NotImplementedError

    def _ask(self, number: int) -> Sequence[Effect]:
        """Ask for the messages of a read."""
        raise NotImplementedError

    def _read_what_is_there(self, numbers: Iterable[int]) -> list[Effect]:
        """Let reads be answered with what is there."""
        raise NotImplementedError

    @property
    def _session(self) -> SessionName:
        return self._incarnation, self._life, self._count

    @property
    def _name(self) -> str:
        return f"{self._incarnation} {self._life}.{self._count}"

    def _hello(self) -> Sequence[Effect]:
        """Begin a session."""
        self._lose_session()
        self._count += 1
        self._stream, self._overtaken = Incoming(), ()
        self._telling = 0
        stop = self._unanswered.answered(self._now_us, FACTS)
        return [*stop, *self._say_hello()]

    def _welcome(self) -> Sequence[Effect]:
        """Go on, now that the server knows of this session."""
        if self._is_welcome:
            return ()
        self._is_welcome, self._is_asked = True, False
        stop = self._unanswered.answered(self._now_us, HELLO)
        return [*stop, *(effect for number in self._asks for effect in self._ask(number))]

    def _lose_session(self) -> None:
        """Remember up to where it has come."""
        if self._is_welcome:
            self._after = self._name, self._stream.last_seq
            self._is_welcome = False

    def _say_hello(self) -> Sequence[Effect]:
        """Say up to where the last session has come, or everything that is there."""
        holds = {} if self._after is not None else self._held()
        facts = self._facts.as_sent()
        wants = self._wants() if self._is_asked and self._after is None else UNSET
        hello = Hello(self._me, self._session, self._capacity, self._after, holds, facts, wants)
        return self._send(HELLO, hello)

    def _tell(self) -> Sequence[Effect]:
        if not self._is_welcome:
            return ()
        facts = self._facts.as_sent()
        self._telling = facts[-1][0]
        return self._send(FACTS, DeviceFacts(self._me, self._session, facts))

    def _acked(self, seq: int) -> list[Effect]:
        """Hear up to which fact the server knows them."""
        effects: list[Effect] = []
        if seq >= self._telling:
            self._telling = 0
            effects += self._unanswered.answered(self._now_us, FACTS)
        gone = self._facts.acked(seq)
        return [*effects, *(Complete(self._calls.pop(each)) for each in gone if each in self._calls)]

    def _again(self) -> Sequence[Effect]:
        """Say again what should have been answered by now."""
        effects: list[Effect] = []
        for key in self._unanswered.overdue(self._now_us):
            if key not in self._unanswered:  # what was said before has ended it
                continue
            if key == HELLO:
                effects += self._say_hello()
            elif key == FACTS:
                effects += self._tell()
            elif self._now_us - self._asks[key].since_us >= PATIENCE_US:
                effects += self._read_what_is_there([key])
            else:
                effects += self._ask(key)
        return [*effects, *self._unanswered.fired(self._now_us)]

    def _send(self, key: int, message: msgspec.Struct) -> Sequence[Effect]:
        """Send the server something, again if nobody answers."""
        due = self._unanswered.sent(self._now_us, key, size_bytes(message))
        return Send(self._server, message), *due

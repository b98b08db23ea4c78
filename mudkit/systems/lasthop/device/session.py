"""A device's session with its server: what it says until it is heard, and from where it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mudkit.events import (
    Complete,
    Effect,
    Ports,
    Send,
    SetTimer,
    size_bytes,
)
from mudkit.systems.lasthop.device.event_log import EventLog
from mudkit.systems.lasthop.servers.phone import AGAIN_US, AGAIN_US_PER_BYTE
from mudkit.systems.stream import Incoming

__all__ = ["AGAIN", "PATIENCE_US", "Ask", "Session"]

AGAIN: Final = "again"
PATIENCE_US: Final = 15_000_000
"""So long a reader waits for better messages."""


@dataclass
class Ask:
    """A read that waits for the server."""

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
        self._facts = EventLog(ports.store)
        self._incarnation = ""
        self._life = self._count = 0
        self._stream = Incoming({"first": 1})
        self._overtaken: Sequence[int] = ()
        """Numbers of what is missing if it has not come when the timer fires."""
        self._after: list[Any] | None = None
        """The last session in which the server has spoken, and up to where it has come."""
        self._is_welcome = self._is_again_set = False
        self._telling = 0
        """The last fact of those that were told and may be on their way; 0: none are."""
        self._hello_us = self._told_us = 0
        """When to say it again."""
        self._calls: dict[int, int] = {}  # op_id by number of the fact
        self._asks: dict[int, Ask] = {}
        self._now_us = 0
        self._effects: list[Effect] = []

    def _held(self) -> dict[str, Any]:
        """Give what is there, by topic."""
        raise NotImplementedError

    def _ask(self, number: int) -> None:
        """Ask for the messages of a read."""
        raise NotImplementedError

    def _read_what_is_there(self, numbers: Sequence[int]) -> None:
        """Let reads be answered with what is there."""
        raise NotImplementedError

    @property
    def _session(self) -> list[str | int]:
        return [self._incarnation, self._life, self._count]

    @property
    def _name(self) -> str:
        return f"{self._incarnation} {self._life}.{self._count}"

    def _hello(self) -> None:
        """Begin a session."""
        self._lose_session()
        self._count += 1
        self._stream, self._overtaken = Incoming({"first": 1}), ()
        self._telling = 0
        self._say_hello()

    def _welcome(self) -> None:
        """Go on, now that the server knows of this session."""
        if not self._is_welcome:
            self._is_welcome = True
            for number in self._asks:
                self._ask(number)

    def _lose_session(self) -> None:
        """Remember up to where it has come."""
        if self._is_welcome:
            self._after = [self._name, self._stream.last]
            self._is_welcome = False

    def _say_hello(self) -> None:
        """Say up to where the last session has come, or everything that is there."""
        holds = {} if self._after is not None else self._held()
        self._hello_us = self._send(
            "hello", room=self._capacity, after=self._after, holds=holds, facts=self._facts.as_sent()
        )
        self._set_again()

    def _tell(self) -> None:
        if self._is_welcome:
            self._telling = max(self._facts.pending)
            self._told_us = self._send("told", facts=self._facts.as_sent())
            self._set_again()

    def _heard(self, number: int) -> None:
        if number >= self._telling:
            self._telling = 0
        for each in self._facts.heard(number):
            if each in self._calls:
                self._effects.append(Complete(self._calls.pop(each)))

    def _again(self) -> None:
        """Say again what nobody has answered."""
        self._is_again_set = False
        if not self._is_welcome:
            if self._now_us >= self._hello_us:
                self._say_hello()
        elif self._telling and self._now_us >= self._told_us:
            self._tell()
        for number, ask in list(self._asks.items()):
            if self._now_us - ask.since_us >= PATIENCE_US:
                self._read_what_is_there([number])
            else:
                self._ask(number)
        if not self._is_welcome or self._telling or self._asks:
            self._set_again()

    def _set_again(self) -> None:
        if not self._is_again_set:
            self._is_again_set = True
            self._effects.append(SetTimer(AGAIN, AGAIN_US))

    def _send(self, kind: str, **more: Any) -> int:
        """Send the server something, and say when it is late if nobody has answered."""
        message = {"kind": kind, "device": self._me, "session": self._session, **more}
        self._effects.append(Send(self._server, message))
        return self._now_us + AGAIN_US + AGAIN_US_PER_BYTE * size_bytes(message)

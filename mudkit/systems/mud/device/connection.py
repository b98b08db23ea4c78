"""A client's way to the gateways: what it asks is sent again until it is answered.

Each thing that is asked has a time by which it should be answered: what is asked after it does not put that
off, and an answer to something else does not either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mudkit.events import CancelTimer, Effect, Send, SetTimer, size_bytes
from mudkit.systems.mud.tables.partitioning import netid_of
from mudkit.tokens import Claims, claimed

__all__ = ["RETRY", "Ask", "Connection"]

RETRY: Final = "retry"
_RETRY_US: Final = 10_000_000
_RETRY_US_PER_BYTE: Final = 400
"""A slow link takes 100 µs a byte, and others may be in front."""
_LOST_US: Final = 1_000_000
"""After a gateway could not be reached, the next is tried."""
_TABLES: Final = ("create", "alter", "drop")
_PARTS: Final = {
    "read": "part",
    "register": "registered",
    "update_data": "registered",
    "unregister": "registered",
}
"""In which messages the parts of an answer come, by what is asked."""


class Ask(msgspec.Struct):
    """Something asked and not yet answered.

    Parameters
    ----------
    identity : str
    what : callable
        Gives what is asked, as of now: it is called for each sending.
    answered : callable
        Takes the last message of the answer, and the parts that came before it.
    asked : mapping
        What was asked when it was sent last.
    due_us : int
        When it is sent again, if it is not answered before; -1: it is not sent yet.
    """

    identity: str
    what: Callable[[], dict[str, Any]]
    answered: Callable[[Mapping[str, Any], dict[Any, Mapping[str, Any]]], Sequence[Effect]]
    parts: dict[Any, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    asked: Mapping[str, Any] = msgspec.field(default_factory=dict)
    size_bytes: int = 0
    due_us: int = -1


class Connection:
    """What is under way between a client and its gateways.

    Parameters
    ----------
    endpoint : str
        ``netid/appid``.
    token : str or None
    gateways : sequence of str
        Addresses.
    first : int
        Which of them is asked as long as it can be reached.
    """

    def __init__(self, endpoint: str, token: str | None, gateways: Sequence[str], first: int) -> None:
        self.endpoint = endpoint
        self.netid = netid_of(endpoint)
        self.token: str | None
        self.claimed: Claims | None
        self.use(token)
        self.is_up = False
        self.now_us = 0
        """When what is handled now happens."""
        self.life = ""
        """What no other life of this machine has, whatever became of its store."""
        self.incarnation = ""
        """Of its store."""
        self._gateways = gateways
        self._turn = first
        self._asks: dict[str, Ask] = {}
        self._count = 0
        self._is_set = False
        """Whether the timer is set."""
        self._under_way_bytes = 0

    def ask(
        self,
        what: Callable[[], dict[str, Any]],
        answered: Callable[[Mapping[str, Any], dict[Any, Mapping[str, Any]]], Sequence[Effect]],
    ) -> Sequence[Effect]:
        """Ask for something: now, if there is a link, and again until it is answered."""
        self._count += 1
        ask = Ask(f"{self.endpoint} {self.life}.{self._count}", what, answered)
        self._asks[ask.identity] = ask
        return (self._send(ask), *self._wait()) if self.is_up else ()

    def use(self, token: str | None) -> None:
        """Show another token from now on."""
        self.token, self.claimed = token, claimed(token)

    def together(self, effects: Sequence[Effect]) -> list[Effect]:
        """Put what is asked into one message; whatever else is to be done stays as it is."""
        asks = [each for each in effects if isinstance(each, Send)]
        if len(asks) < 2:
            return list(effects)
        message = {
            "kind": "asks",
            "client": self.endpoint,
            "token": self.token,
            "asks": [{"id": each.message["id"], "what": each.message["what"]} for each in asks],
        }
        return [Send(self._gateway(), message), *(each for each in effects if not isinstance(each, Send))]

    def up(self) -> Sequence[Effect]:
        """Send everything: there is a link, perhaps at another address than before."""
        self.is_up = True
        return self._send_all(self._asks.values())

    def down(self) -> Sequence[Effect]:
        """Wait for a link."""
        self.is_up = self._is_set = False
        return (CancelTimer(RETRY),)

    def fired(self) -> Sequence[Effect]:
        """Send again what should have been answered by now."""
        self._is_set = False
        return self._send_all([ask for ask in self._asks.values() if ask.due_us <= self.now_us])

    def failed(self, to: str) -> Sequence[Effect]:
        """Try another gateway soon, when this is the one that could not be reached."""
        if not self.is_up or not self._asks or to != self._gateway():
            return ()
        self._turn += 1
        for ask in self._asks.values():
            ask.due_us = min(ask.due_us, self.now_us + _LOST_US)
        self._is_set = True
        return (SetTimer(RETRY, _LOST_US),)

    def fits(self, message: Mapping[str, Any]) -> bool:
        """Say whether a message can be of the answer to what is asked; one to what nobody asks may come."""
        ask = self._asks.get(message["id"])
        if ask is None or message["kind"] == "refused":
            return True
        asked, op, kind = ask.asked, ask.asked.get("op", ""), message["kind"]
        if kind == _PARTS.get(op):
            return (
                op != "read" or "error" in message or ("state" in message) == (asked["aggregate"] is not None)
            )
        if kind == "complete":
            return op in _PARTS and message["table"]["name"] == asked["name"]
        if kind == "administered":
            table = message.get("table")
            return op in _TABLES and (table is None or table["name"] == asked["name"])
        return bool(op == "write" and kind == "outcome" and message["key"] == asked["key"])

    def take(self, message: Mapping[str, Any]) -> Sequence[Effect]:
        """Take a message of an answer."""
        ask = self._asks.get(message["id"])
        if ask is None:
            return ()
        if message["kind"] in ("part", "registered") and "error" not in message:
            ask.parts[message["place"]] = message
            return ()
        del self._asks[ask.identity]
        self._under_way_bytes -= ask.size_bytes
        effects = ask.answered(message, ask.parts)
        if self._asks or not self._is_set:
            return effects
        self._is_set = False
        return [*effects, CancelTimer(RETRY)]

    def _send_all(self, asks: Iterable[Ask]) -> Sequence[Effect]:
        sent = [self._send(ask) for ask in asks]
        return [*sent, *self._wait()]

    def _wait(self) -> Sequence[Effect]:
        """Set the timer for what should be answered first, unless it is set."""
        if self._is_set or not self._asks:
            return ()
        self._is_set = True
        return (SetTimer(RETRY, max(min(ask.due_us for ask in self._asks.values()) - self.now_us, 1)),)

    def _gateway(self) -> str:
        return self._gateways[self._turn % len(self._gateways)]

    def _send(self, ask: Ask) -> Send:
        ask.parts.clear()
        ask.asked = ask.what()
        message = {
            "kind": "ask",
            "id": ask.identity,
            "client": self.endpoint,
            "token": self.token,
            "what": ask.asked,
        }
        self._under_way_bytes -= ask.size_bytes
        ask.size_bytes = size_bytes(message)
        self._under_way_bytes += ask.size_bytes
        # As long as an answer may take behind all that is under way.
        ask.due_us = self.now_us + _RETRY_US + _RETRY_US_PER_BYTE * self._under_way_bytes
        return Send(self._gateway(), message)

"""A client's way to the gateways: what it asks is sent again until it is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mudkit.events import CancelTimer, Effect, Send, SetTimer, size_bytes

__all__ = ["RETRY", "Ask", "Connection"]

RETRY: Final = "retry"
_RETRY_US: Final = 10_000_000
_RETRY_US_PER_BYTE: Final = 400
"""A slow link takes 100 µs a byte, and others may be in front."""
_LOST_US: Final = 1_000_000
"""After a gateway could not be reached, the next is tried."""


class Ask(msgspec.Struct):
    """Something asked and not yet answered.

    Parameters
    ----------
    identity : str
    what : callable
        Gives what is asked, as of now: it is called for each sending.
    answered : callable
        Takes the last message of the answer, and the parts that came before it.
    """

    identity: str
    what: Callable[[], dict[str, Any]]
    answered: Callable[[Mapping[str, Any], dict[Any, Mapping[str, Any]]], Sequence[Effect]]
    parts: dict[Any, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    size_bytes: int = 0


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
        self.netid = endpoint.split("/")[0]
        self.has_token = token is not None
        self.is_up = False
        self.life = 0
        self._token = token
        self._gateways = gateways
        self._turn = first
        self._asks: dict[str, Ask] = {}
        self._count = 0

    def ask(
        self,
        what: Callable[[], dict[str, Any]],
        answered: Callable[[Mapping[str, Any], dict[Any, Mapping[str, Any]]], Sequence[Effect]],
    ) -> Sequence[Effect]:
        """Ask for something: now, if there is a link, and again until it is answered."""
        self._count += 1
        ask = Ask(f"{self.endpoint} {self.life}.{self._count}", what, answered)
        self._asks[ask.identity] = ask
        return (self._send(ask), self.retry()) if self.is_up else ()

    def together(self, effects: Sequence[Effect]) -> list[Effect]:
        """Put what is asked into one message; whatever else is to be done stays as it is."""
        asks = [each for each in effects if isinstance(each, Send)]
        if len(asks) < 2:
            return list(effects)
        message = {
            "kind": "asks", "client": self.endpoint, "token": self._token,
            "asks": [{"id": each.message["id"], "what": each.message["what"]} for each in asks],
        }  # fmt: skip
        rest = [each for each in effects if not isinstance(each, Send | SetTimer)]
        return [Send(self._gateway(), message), *rest, self.retry()]

    def up(self) -> Sequence[Effect]:
        """Send everything: there is a link, perhaps at another address than before."""
        self.is_up = True
        sent = [self._send(ask) for ask in self._asks.values()]
        return [*sent, self.retry()] if sent else ()

    def down(self) -> Sequence[Effect]:
        """Wait for a link."""
        self.is_up = False
        return (CancelTimer(RETRY),)

    def failed(self, to: str) -> Sequence[Effect]:
        """Try another gateway, when this is the one that could not be reached."""
        if not self.is_up or not self._asks or to != self._gateway():
            return ()
        self._turn += 1
        return (SetTimer(RETRY, _LOST_US),)

    def take(self, message: Mapping[str, Any]) -> Sequence[Effect]:
        """Take a message of an answer."""
        ask = self._asks.get(message["id"])
        if ask is None:
            return ()
        if message["kind"] in ("part", "registered") and "error" not in message:
            ask.parts[message["place"]] = message
            return ()
        del self._asks[ask.identity]
        effects = ask.answered(message, ask.parts)
        return effects if self._asks else [*effects, CancelTimer(RETRY)]

    def retry(self) -> SetTimer:
        """Wait as long as an answer may take."""
        under_way = sum(ask.size_bytes for ask in self._asks.values())
        return SetTimer(RETRY, _RETRY_US + _RETRY_US_PER_BYTE * under_way)

    def _gateway(self) -> str:
        return self._gateways[self._turn % len(self._gateways)]

    def _send(self, ask: Ask) -> Send:
        ask.parts.clear()
        message = {
            "kind": "ask", "id": ask.identity, "client": self.endpoint, "token": self._token,
            "what": ask.what(),
        }  # fmt: skip
        ask.size_bytes = size_bytes(message)
        return Send(self._gateway(), message)

"""A stream of messages from one machine to another: each once, in order, whatever is lost, late or repeated.

The sender numbers them and sends them again until the receiver has said that it has them. The receiver keeps
what has overtaken something, and says up to where it has everything: what is late need not be sent again, nor
what has overtaken it. It may say what it misses: then only that is sent again. A stream belongs to a life of
its sender: another life begins another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from mudkit.events import Effect, Send, SetTimer

__all__ = ["MOST_AHEAD", "Incoming", "Outgoing", "RetransmitTimer"]

MOST_AHEAD: Final = 256
"""A receiver keeps what is so far ahead of the last that it gave; what is further ahead has to come again."""


class Outgoing:
    """The sender's end.

    Parameters
    ----------
    name : str
        Which no other stream has.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._last = 0
        self.waiting: deque[tuple[int, int, Any]] = deque()
        """Number, time in µs and content of what nobody has confirmed, the oldest first."""

    def add(self, now_us: int, body: Any) -> dict[str, Any]:
        """Take the next one, and give the message to be sent."""
        self._last += 1
        self.waiting.append((self._last, now_us, body))
        return self._message(self._last, body)

    def acked(self, number: int) -> None:
        """Forget what has come."""
        while self.waiting and self.waiting[0][0] <= number:
            self.waiting.popleft()

    def again(self) -> list[dict[str, Any]]:
        """Give all messages that nobody has confirmed."""
        return [self._message(number, body) for number, _, body in self.waiting]

    def missing(self, numbers: Collection[int]) -> list[dict[str, Any]]:
        """Give those that the receiver misses, as far as it has not said since that it has them."""
        return [self._message(number, body) for number, _, body in self.waiting if number in numbers]

    def overdue(self, now_us: int, after_us: int) -> list[dict[str, Any]]:
        """Give the same, if the first of them has waited for so long; else nothing: it may be on its way."""
        is_late = bool(self.waiting) and now_us - self.waiting[0][1] >= after_us
        return self.again() if is_late else []

    def _message(self, number: int, body: Any) -> dict[str, Any]:
        first = self.waiting[0][0]
        return {"kind": "stream", "stream": self.name, "number": number, "first": first, "body": body}


class RetransmitTimer:
    """The timer by which a machine sends again what nobody has confirmed: traffic does not put it off.

    Parameters
    ----------
    every_us : int
    """

    NAME: Final = "again"

    def __init__(self, every_us: int) -> None:
        self.every_us = every_us
        self._is_set = False

    def soon(self) -> Sequence[Effect]:
        """Set it, unless it is set."""
        if self._is_set:
            return ()
        self._is_set = True
        return (SetTimer(self.NAME, self.every_us),)

    def again(self, now_us: int, streams: Mapping[str, Outgoing]) -> Sequence[Effect]:
        """Send again what is overdue, when it has fired, and set it anew as long as something waits.

        Parameters
        ----------
        now_us : int
        streams : mapping of str to Outgoing
            The streams, by the address of the receiver.
        """
        self.fired()
        late = (
            (to, each) for to, stream in streams.items() for each in stream.overdue(now_us, self.every_us)
        )
        sent = [Send(to, each) for to, each in late]
        return [*sent, *self.soon()] if any(stream.waiting for stream in streams.values()) else ()

    def fired(self) -> None:
        """Take note that it has fired."""
        self._is_set = False


class Incoming:
    """The receiver's end of one stream.

    Parameters
    ----------
    message : mapping
        The first that came: what its sender had to say before it, another life of this receiver has
        confirmed.
    """

    def __init__(self, message: Mapping[str, Any]) -> None:
        self.last: int = message["first"] - 1
        self.ahead: dict[int, Any] = {}
        """Content, by number, of what has overtaken something: it is not confirmed, and may be forgotten."""

    def take(self, message: Mapping[str, Any]) -> Sequence[Any]:
        """Give what the message brings, and what has waited for it.

        Nothing when it came before, or when one before it is missing: then it waits.
        """
        self.last = max(self.last, message["first"] - 1)  # what another life of this receiver has confirmed
        self.ahead[message["number"]] = message["body"]
        given = []
        while self.last + 1 in self.ahead:
            self.last += 1
            given.append(self.ahead.pop(self.last))
        if self.ahead:
            most = self.last + MOST_AHEAD
            self.ahead = {number: body for number, body in self.ahead.items() if self.last < number <= most}
        return tuple(given)

    def forget(self) -> None:
        """Forget what has overtaken something: the sender sends it again, unless its life is over."""
        self.ahead.clear()

    def confirm(self, to: str, stream: str) -> Send:
        """Tell the sender what has come."""
        return Send(to, {"kind": "confirmed", "stream": stream, "number": self.last})

    @property
    def missing(self) -> Sequence[int]:
        """Numbers of what was overtaken and has not come, the first first."""
        return [each for each in range(self.last + 1, max(self.ahead, default=0)) if each not in self.ahead]

"""What a machine is: events in, effects out, and the ports that it is given.

A machine decides and does nothing else: it has no clock, no randomness and no socket. Whoever runs it, the
simulated fleet or a real network, hands it events one at a time and carries out the effects that it answers
with. Both sets are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

__all__ = [
    "Call",
    "CancelTimer",
    "Complete",
    "ContextChanged",
    "Effect",
    "Entropy",
    "Event",
    "LinkDown",
    "LinkUp",
    "Machine",
    "Notify",
    "Ports",
    "Received",
    "Record",
    "Send",
    "SendFailed",
    "SetTimer",
    "Store",
    "TimerFired",
    "size_bytes",
]


class Received(msgspec.Struct, frozen=True):
    """A message has arrived.

    Parameters
    ----------
    source : str
        Address of the machine that sent it, as it was when it sent.
    message : object
        What was sent, as it is: machines never change a message.
    """

    source: str
    message: Any


class SendFailed(msgspec.Struct, frozen=True):
    """A message did not arrive and never will: no link, a link that broke, or nobody at the address."""

    to: str
    message: Any


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that the machine set has run out."""

    name: str


class LinkUp(msgspec.Struct, frozen=True):
    """The device has a network: at the start, after an outage, and after a change of network.

    Parameters
    ----------
    address : str
        Where the machine can be reached from now on.
    network : str
        Name of the link's profile.
    """

    address: str
    network: str


class LinkDown(msgspec.Struct, frozen=True):
    """The device has lost its network."""


class ContextChanged(msgspec.Struct, frozen=True):
    """What the device knows of itself has changed: place, battery, display, and what its user entered."""

    context: Mapping[str, Any]


class Call(msgspec.Struct, frozen=True):
    """An application asks for something; the machine answers with :class:`Complete`, now or later."""

    op_id: int
    operation: str
    arguments: Mapping[str, Any]


class Send(msgspec.Struct, frozen=True):
    """Send a message to an address: either Received there or SendFailed here follows, unless a machine dies.

    Nobody acknowledges: who must know whether it arrived asks for an answer.
    """

    to: str
    message: Any


class SetTimer(msgspec.Struct, frozen=True):
    """Set a timer; one of that name that is running is replaced."""

    name: str
    delay_us: int


class CancelTimer(msgspec.Struct, frozen=True):
    """Stop a timer; nothing happens when there is none."""

    name: str


class Complete(msgspec.Struct, frozen=True):
    """Answer a call, once: with a result, or with an error that is then raised."""

    op_id: int
    result: Any = None
    error: BaseException | None = None


class Notify(msgspec.Struct, frozen=True):
    """Tell an application of the device something that it did not ask for now."""

    app: str
    payload: Any


class Record(msgspec.Struct, frozen=True):
    """Write a row into a table of the run's trace."""

    table: str
    row: Mapping[str, Any]


Event: TypeAlias = Received | SendFailed | TimerFired | LinkUp | LinkDown | ContextChanged | Call
Effect: TypeAlias = Send | SetTimer | CancelTimer | Complete | Notify | Record


class Machine(Protocol):
    """One role of a system."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event and decide.

        Nothing that it answers with happens before everything that it stored is committed.
        """
        ...


class Store(Protocol):
    """What outlives a machine that is killed; everything that one ``handle`` does is one transaction."""

    def get(self, key: str) -> Any:
        """Give what is stored under a key, ``None`` when nothing is."""
        ...

    def put(self, key: str, value: Any) -> None:
        """Store something that JSON can hold."""
        ...

    def delete(self, key: str) -> None:
        """Forget a key; nothing happens when it is not there."""
        ...

    def items(self, prefix: str = "") -> Sequence[tuple[str, Any]]:
        """Give what is stored under the keys that begin so, in their order."""
        ...

    def crash_point(self, name: str) -> None:
        """Name a place at which a test may kill the machine."""
        ...


Entropy: TypeAlias = Callable[[int], bytes]
"""``entropy(n)`` gives n random bytes: a named stream in a lab, the operating system's elsewhere."""


class Ports(msgspec.Struct, frozen=True):
    """What a machine is given when it is made, also when it is made again after it was killed."""

    store: Store
    entropy: Entropy
    address: str


_encode = msgspec.json.Encoder().encode


def size_bytes(message: Any) -> int:
    """Give the size of a message as it is sent: bytes as they are, anything else as JSON in UTF-8.

    Raises
    ------
    TypeError
        JSON cannot hold it.
    """
    return len(message) if type(message) is bytes else len(_encode(message))

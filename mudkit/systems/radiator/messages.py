"""What goes over the network between clients and server, and from peer to peer (Radiator 3.2, 4.1, 4.2).

All of it is packed as :mod:`mudkit.systems.radiator.packing` says. Whoever receives a message reads it as one
of those that its sender may send; who the sender is, the network says: a server takes nothing in which
``device`` is another than the device that sent it. What cannot be read is dropped, and recorded.

Contexts are numbered by client, device and incarnation. The incarnation is told at registration. Contexts and
their acknowledgements carry it only where there is something to tell apart: once the server has seen another
one of this client and device, and has said so (``another``). A server that begins anew learns that from the
client. What it cannot tell apart is a late copy from a device that was wiped when the server had just begun
anew, too, and had heard nothing of the wiped one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from mudkit.events import Effect, Received, SendFailed
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.packing import inflated, unpack
from mudkit.systems.receiving import Count, Name, dropped
from mudkit.wire import Fields, Value, is_too_deep

__all__ = [
    "FROM_CLIENTS",
    "FROM_PEERS",
    "FROM_SERVER",
    "PUSHES",
    "ContextFields",
    "DeliveryAck",
    "FromClients",
    "FromServer",
    "Identify",
    "PassedPush",
    "Propagate",
    "Push",
    "Refused",
    "Register",
    "Registered",
    "Taken",
    "Unknown",
    "Unreachable",
    "Unregister",
    "Unregistered",
    "odd",
    "read",
]

Moment = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class ContextFields(msgspec.Struct, frozen=True):
    """A context, as :meth:`Context.describe` gives it; a part of messages."""

    people: list[str]
    attributes: dict[str, Value]
    span_us: tuple[Moment, Moment] | None

    def __post_init__(self) -> None:
        if self.span_us is not None and self.span_us[0] > self.span_us[1]:
            raise ValueError("it ends before it begins")  # so it cannot be read

    def context(self) -> Context:
        """Give the context."""
        return Context(frozenset(self.people), self.attributes, self.span_us)

    @classmethod
    def of(cls, context: Context) -> ContextFields:
        """Write a context as it is sent."""
        return cls(sorted(context.people), dict(context.attributes), context.span_us)


class _FromClient(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    client: Name
    device: Name


class Register(_FromClient, frozen=True, tag="register"):
    """Client to server: it is there, at the address from which this comes (4.1).

    Parameters
    ----------
    attributes : dict
    incarnation : str
        Incarnation of the client: of this start of its machine.
    turn : int
        Number of the registration or unregistration in this store: the highest of an incarnation counts.
    first : int
        Number of the first pending context: those with lower numbers will not come any more.
    oldest : str
        Incarnation of the first pending context; absent: ``incarnation``.
    challenge : str
        Challenge of the :class:`Identify` that this answers; absent: of none.
    another : bool
        Whether this client has had another incarnation: contexts name theirs then. Absent: no.
    """

    attributes: Fields
    incarnation: Name
    turn: Count
    first: Count
    oldest: Name | msgspec.UnsetType = msgspec.UNSET
    challenge: Name | msgspec.UnsetType = msgspec.UNSET
    another: bool | msgspec.UnsetType = msgspec.UNSET


class Unregister(_FromClient, frozen=True, tag="unregister"):
    """Client to server: it leaves (4.1); the fields are as in :class:`Register`."""

    incarnation: Name
    turn: Count
    first: Count
    oldest: Name | msgspec.UnsetType = msgspec.UNSET
    challenge: Name | msgspec.UnsetType = msgspec.UNSET
    another: bool | msgspec.UnsetType = msgspec.UNSET


class Propagate(_FromClient, frozen=True, tag="context"):
    """Client to server: a context for all (3.1).

    Parameters
    ----------
    seq : int
        Contexts of an incarnation are numbered from 1 on.
    first : int
        Those with lower numbers are not waited for by the client.
    incarnation : str
        Incarnation that numbered it; absent: the only one that the client has had.
    """

    seq: Count = msgspec.field(name="number")
    first: Count
    context: ContextFields
    incarnation: Name | msgspec.UnsetType = msgspec.UNSET


class DeliveryAck(_FromClient, frozen=True, tag="got"):
    """Client to server: it has this aggregate."""

    aggregate: Name


class Unreachable(_FromClient, frozen=True, tag="unreachable"):
    """A member of a chain to the server: it could not pass an aggregate on (3.2).

    Parameters
    ----------
    who, address : str
        The next of the chain, and where it was tried.
    rest : list of str
        Who comes after it; the server knows the chain itself.
    """

    aggregate: Name
    who: Name
    address: Name
    rest: list[Name]


class Push(msgspec.Struct, frozen=True, tag_field="kind", tag="push"):
    """Server to a client: an aggregate (3.2).

    Parameters
    ----------
    aggregate : str
        Its id.
    context : ContextFields
    chain : list of (str, str)
        The clients and addresses to which it is to be passed on, one after the other.
    """

    aggregate: Name
    context: ContextFields
    chain: list[tuple[Name, Name]]


class PassedPush(msgspec.Struct, frozen=True, tag_field="kind", tag="push"):
    """Peer to peer: an aggregate that is passed on (3.2), as :class:`Push`, with the one that it goes to."""

    aggregate: Name
    context: ContextFields
    chain: list[tuple[Name, Name]]
    to: Name


class Registered(msgspec.Struct, frozen=True, tag_field="kind", tag="registered"):
    """Server to client: the answer to the :class:`Register` of this turn.

    Parameters
    ----------
    another : bool
        Whether there was another incarnation; absent: no.
    """

    incarnation: Name
    turn: Count
    another: bool | msgspec.UnsetType = msgspec.UNSET


class Unregistered(msgspec.Struct, frozen=True, tag_field="kind", tag="unregistered"):
    """Server to client: the answer to the :class:`Unregister` of this turn."""

    incarnation: Name
    turn: Count


class Refused(msgspec.Struct, frozen=True, tag_field="kind", tag="refused"):
    """Server to client: the id of the :class:`Register` of this turn is that of another live device (4.1)."""

    incarnation: Name
    turn: Count
    device: Name


class Identify(msgspec.Struct, frozen=True, tag_field="kind", tag="identify"):
    """Server to client: the server knows another incarnation, or a newer turn; say this turn again.

    A late copy of an old registration does not have the challenge.
    """

    incarnation: Name
    turn: Count
    challenge: Name


class Taken(msgspec.Struct, frozen=True, tag_field="kind", tag="taken"):
    """Server to client: it has the contexts of an incarnation up to a number.

    Parameters
    ----------
    incarnation : str
        As in the contexts.
    """

    seq: Count = msgspec.field(name="number")
    incarnation: Name | msgspec.UnsetType = msgspec.UNSET


class Unknown(msgspec.Struct, frozen=True, tag_field="kind", tag="unknown"):
    """Server to a device: such a client is not registered; it has to register first (4.2)."""


FromClients: TypeAlias = Register | Unregister | Propagate | DeliveryAck | Unreachable
FromServer: TypeAlias = Registered | Unregistered | Refused | Identify | Taken | Unknown | Push
FROM_CLIENTS: Final = msgspec.json.Decoder(FromClients)
FROM_SERVER: Final = msgspec.json.Decoder(FromServer)
FROM_PEERS: Final = msgspec.json.Decoder(PassedPush)
PUSHES: Final = msgspec.json.Decoder(Push)
"""What a server reads of its own messages that did not arrive."""
_T = TypeVar("_T")


def read(event: Received | SendFailed, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    """Read what has come as one of the messages that its sender may send; None: it is none of them."""
    text = inflated(event.message) if isinstance(event.message, bytes) else None
    try:
        decoded = None if text is None else decoder.decode(text)
        return None if decoded is None or is_too_deep(decoded) else decoded
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def odd(event: Received) -> Sequence[Effect]:
    """Write down that something was dropped, with its kind, if it has one."""
    sent = unpack(event.message) if isinstance(event.message, bytes) else event.message
    return dropped(Received(event.source, sent, event.host))

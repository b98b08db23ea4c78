"""Messages between clients, server and peers, their encoding, and typed operations (Radiator 3.2, 4.1-4.4).

Messages are JSON, gzip-compressed by default, requests included. A receiver decodes a message against the
union of the kinds that its sender may send. A server rejects a message whose ``device`` differs from the
device that the network names as the sender. Messages that cannot be decoded are dropped and recorded.

Contexts are numbered per (client, device, incarnation). A client announces its incarnation at registration.
Contexts, aggregates and their acknowledgements carry it only after the server has seen another incarnation of
the same client and device and has reported it (``another``). A restarted server learns this from the client.
One case stays ambiguous: a late copy from or to a wiped device, when the server has restarted, too, and has
not heard of the wiped incarnation.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from mudkit.errors import ParameterError
from mudkit.events import Effect, Received, SendFailed
from mudkit.systems.radiator.context import Context
from mudkit.systems.receiving import Count, Name, record_dropped
from mudkit.wire import Fields, Value, is_too_deep

MAX_BYTES: Final = 1 << 24
"""Maximum size of a message as JSON; a few kilobytes of gzip can expand to gigabytes."""
_GZIP_LEVEL: Final = 6
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ENVELOPE_BYTES: Final = 1 << 20
"""Part of MAX_BYTES reserved for the fields beside a context."""

_encode_json = msgspec.json.Encoder(order="sorted").encode
_decode_json = msgspec.json.Decoder().decode

Moment = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class ContextFields(msgspec.Struct, frozen=True):
    """Wire form of a context, as :meth:`Context.to_dict` returns it; a part of messages."""

    people: list[str]
    attributes: dict[str, Value]
    span_us: tuple[Moment, Moment] | None

    def __post_init__(self) -> None:
        if self.span_us is not None and self.span_us[0] > self.span_us[1]:
            raise ValueError("it ends before it begins")  # msgspec turns it into a DecodeError

    def context(self) -> Context:
        """Return the context that this wire form describes."""
        return Context(frozenset(self.people), self.attributes, self.span_us)

    @classmethod
    def of(cls, context: Context) -> ContextFields:
        """Return the wire form of a context."""
        return cls(sorted(context.people), dict(context.attributes), context.span_us)


class _FromClient(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Base of messages of a client; the network must name the same device as their sender."""

    client: Name
    device: Name


class _Registration(_FromClient, frozen=True, kw_only=True):
    """Base of Register and Unregister: which start of the client sends it, and its first pending context."""

    incarnation: Name
    """Incarnation of this start of the client."""
    seq: Count = msgspec.field(name="turn")
    """Number of the registration or unregistration in this store; the highest of an incarnation counts."""
    first: Count
    """Number of the first pending context; the client never sends lower ones again."""
    oldest: Name | msgspec.UnsetType = msgspec.UNSET
    """Incarnation of the first pending context; absent: ``incarnation``."""
    nonce: Name | msgspec.UnsetType = msgspec.field(name="challenge", default=msgspec.UNSET)
    """Nonce of the :class:`Identify` that this answers."""
    another: bool | msgspec.UnsetType = msgspec.UNSET
    """True if the client has had another incarnation, so that contexts name theirs; absent: no."""


class Register(_Registration, frozen=True, tag="register", kw_only=True):
    """Client to server: register from the sending address (4.1)."""

    attributes: Fields


class Unregister(_Registration, frozen=True, tag="unregister"):
    """Client to server: unregister (4.1)."""


class Propagate(_FromClient, frozen=True, tag="context"):
    """Client to server: a context for all other clients (3.1)."""

    number: Count
    """Number in the incarnation, from 1 on."""
    first: Count
    """Number of the first pending context; the server does not wait for lower ones."""
    context: ContextFields
    incarnation: Name | msgspec.UnsetType = msgspec.UNSET
    """Incarnation that numbered the context; absent: the only one of this client."""


class DeliveryAck(_FromClient, frozen=True, tag="got"):
    """Client to server: acknowledge an aggregate."""

    aggregate: Name
    incarnation: Name | msgspec.UnsetType = msgspec.UNSET
    """Incarnation of the client; absent: it has had no other."""


class Unreachable(_FromClient, frozen=True, tag="unreachable"):
    """Member of a chain to the server: passing an aggregate on has failed (3.2)."""

    aggregate: Name
    who: Name
    """Next client of the chain."""
    address: Name
    """Address that was tried."""
    rest: list[Name]
    """Clients after ``who``; informative, because the server stores the chain."""


class Push(msgspec.Struct, frozen=True, tag_field="kind", tag="push"):
    """Server to client: an aggregate (3.2)."""

    aggregate: Name
    """Id of the aggregate."""
    context: ContextFields
    chain: list[tuple[Name, Name]]
    """Clients and addresses of the next hops, in order."""
    receivers: dict[Name, Name] | msgspec.UnsetType = msgspec.UNSET
    """Incarnations of those receivers that have had another one; absent: none has."""


class PassedPush(msgspec.Struct, frozen=True, tag_field="kind", tag="push"):
    """Peer to peer: an aggregate passed along a chain (3.2), as :class:`Push`."""

    aggregate: Name
    context: ContextFields
    chain: list[tuple[Name, Name]]
    to: Name
    """Client that this hop is addressed to."""
    receivers: dict[Name, Name] | msgspec.UnsetType = msgspec.UNSET


class _Answer(msgspec.Struct, frozen=True, tag_field="kind"):
    """Base of answers to a registration or unregistration; the client ignores those to earlier ones."""

    incarnation: Name
    seq: Count = msgspec.field(name="turn")
    """Number of the :class:`Register` or :class:`Unregister` that this answers."""


class Registered(_Answer, frozen=True, tag="registered"):
    """Server to client: accept a registration."""

    another: bool | msgspec.UnsetType = msgspec.UNSET
    """True if the server has seen another incarnation; absent: no."""


class Unregistered(_Answer, frozen=True, tag="unregistered"):
    """Server to client: confirm an unregistration."""


class RegistrationRefused(_Answer, frozen=True, tag="refused"):
    """Server to client: reject a registration, because another live device has the id (4.1)."""

    device: Name


class Identify(_Answer, frozen=True, tag="identify"):
    """Server to client: repeat this registration with the nonce, which late copies lack."""

    nonce: Name = msgspec.field(name="challenge")


class ContextAck(msgspec.Struct, frozen=True, tag_field="kind", tag="taken"):
    """Server to client: acknowledge all contexts up to a number; cumulative."""

    number: Count
    incarnation: Name | msgspec.UnsetType = msgspec.UNSET
    """Incarnation of the acknowledged :class:`Propagate`."""


class Unknown(msgspec.Struct, frozen=True, tag_field="kind", tag="unknown"):
    """Server to device: the client is not registered and must register first (4.2)."""


FromClients: TypeAlias = Register | Unregister | Propagate | DeliveryAck | Unreachable
FromServer: TypeAlias = (
    Registered | Unregistered | RegistrationRefused | Identify | ContextAck | Unknown | Push
)
FROM_CLIENTS: Final = msgspec.json.Decoder(FromClients)
FROM_SERVER: Final = msgspec.json.Decoder(FromServer)
FROM_PEERS: Final = msgspec.json.Decoder(PassedPush)
PUSHES: Final = msgspec.json.Decoder(Push)
"""Decoder of the server's own pushes that failed."""
_T = TypeVar("_T")


class RegisterClient(msgspec.Struct, frozen=True, tag_field="operation", tag="register"):
    """Operation of a client: register, or register again with other attributes (4.1)."""

    attributes: Fields


class UnregisterClient(msgspec.Struct, frozen=True, tag_field="operation", tag="unregister"):
    """Operation of a client: unregister (4.1)."""


class PropagateContext(msgspec.Struct, frozen=True, tag_field="operation", tag="propagate"):
    """Operation of a client: propagate a context to all others (3.1)."""

    context: ContextFields


class ListClients(msgspec.Struct, frozen=True, tag_field="operation", tag="clients"):
    """Operation of the server: return whether each registered client is believed to be reachable."""


class CountPending(msgspec.Struct, frozen=True, tag_field="operation", tag="waiting"):
    """Operation of the server: return the number of pending messages by client."""


class GetCounters(msgspec.Struct, frozen=True, tag_field="operation", tag="counts"):
    """Operation of the server: return its counters."""


def pack(message: Value | msgspec.Struct, compress: bool) -> bytes:
    """Encode a message for the network.

    Parameters
    ----------
    message : object
        Plain data or a struct.
    compress : bool
        Whether to compress the bytes with gzip.

    Raises
    ------
    TypeError
        JSON cannot encode the message.
    """
    text = _encode_json(message)
    return gzip.compress(text, _GZIP_LEVEL, mtime=0) if compress else text


def unpack(sent: bytes) -> Value:
    """Decode what :func:`pack` encoded; tuples become lists.

    Parameters
    ----------
    sent : bytes

    Returns
    -------
    object
        None if the bytes are no such message, or more than :data:`MAX_BYTES` when inflated.
    """
    try:
        text = inflate(sent)
        return None if text is None else _decode_json(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def inflate(sent: bytes) -> bytes | None:
    """Return the JSON text of a message; None if it is too large or not compressed as :func:`pack` does."""
    if sent[:2] == _GZIP_MAGIC:
        inflater = zlib.decompressobj(31)
        try:
            text = inflater.decompress(sent, MAX_BYTES)
        except zlib.error:
            return None
        return text if inflater.eof and not inflater.unused_data else None
    return sent if len(sent) <= MAX_BYTES else None


def check_size(where: str, text: bytes) -> None:
    """Raise a ParameterError if a context is too large for a message."""
    if len(text) > MAX_BYTES - _ENVELOPE_BYTES:
        raise ParameterError(
            "This is too large to be sent.",
            where=where,
            found=f"{len(text):,} bytes as JSON",
            expected=f"{MAX_BYTES - _ENVELOPE_BYTES:,} at most",
        )


def decode(event: Received | SendFailed, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    """Return the message of an event as one of a kind that its sender may send; None if it is not."""
    text = inflate(event.message) if isinstance(event.message, bytes) else None
    try:
        decoded = None if text is None else decoder.decode(text)
        return None if decoded is None or is_too_deep(decoded) else decoded
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def record_dropped_message(event: Received) -> Sequence[Effect]:
    """Return an incident: a message was dropped, of which the kind is named if it has one."""
    sent = unpack(event.message) if isinstance(event.message, bytes) else event.message
    return record_dropped(Received(event.source, sent, event.host))

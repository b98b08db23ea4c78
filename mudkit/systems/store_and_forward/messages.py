"""Messages of store and forward, and the operations of a client.

A message is named by the incarnation of the sender that has accepted it, and its number there
(:mod:`mudkit.delivery.session`). A field that names a device must agree with the network, which knows the
sender of each message. A session lasts from a hello of an incarnation that the relay has verified to the next
start of either side; a copy of a message that arrives in a later session has no effect.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from mudkit.systems.receiving import Accepts, Count

MAX_LETTERS: Final = 512
"""Maximum length of the name of a device or an item."""
_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LETTERS, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
"""Name without control characters: store keys join names by line feeds."""
_Incarnation = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
_Nonce = _Incarnation
_Seq = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]


# -- operations: from the application to the client


class SendText(msgspec.Struct, frozen=True, tag_field="operation", tag="send"):
    """Operation: send a text to a device.

    ``item`` is its name in the deliveries, by default sender and number.
    """

    to: str
    text: str
    item: str | None = None


class Read(msgspec.Struct, frozen=True, tag_field="operation", tag="read"):
    """Operation: return the messages received since the last read, which did not return them."""


# -- client to relay


class Upload(msgspec.Struct, frozen=True, tag_field="kind", tag="send"):
    """Sender to relay: a message for a device, to be stored and delivered."""

    number: _Seq
    incarnation: _Incarnation
    key: _Line
    sender: _Line = msgspec.field(name="from")
    to: _Line
    text: str


class DeliveryAck(msgspec.Struct, frozen=True, tag_field="kind", tag="delivered"):
    """Receiver to relay: the message is in the inbox.

    ``incarnation`` is the message's, ``receiver`` the receiver's own.
    """

    number: _Seq
    incarnation: _Incarnation
    receiver: _Incarnation
    key: _Line
    sender: _Line = msgspec.field(name="from")
    to: _Line


class DeliveryGap(msgspec.Struct, frozen=True, tag_field="kind", tag="lacks"):
    """Receiver to relay: a delivery arrived before its predecessor.

    ``number`` is the last one in the inbox of this incarnation of the sender; 0: none. If an earlier
    incarnation of the receiver has acknowledged later ones, its store was emptied or restored from a backup.
    ``hello`` is the number of the receiver's last hello.
    """

    number: Count
    incarnation: _Incarnation
    receiver: _Incarnation
    hello: _Seq
    sender: _Line = msgspec.field(name="from")
    to: _Line


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Client to relay: the device is at the address that this comes from; deliver, unless its user is busy.

    ``seq`` counts the hellos of this incarnation; the relay ignores an older one that arrives late.
    ``first`` is the number of the first message in the outbox, where a relay that lost its store resumes, and
    ``oldest`` the incarnation of that message; absent: ``incarnation``. The relay accepts messages of these
    two. ``answer``: the relay must acknowledge. ``nonce``: that of the :class:`Identify` that this answers;
    absent: none. ``another``: a relay has said that the client has had another incarnation; absent: no.
    """

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation
    device: _Line
    busy: bool
    first: _Seq
    oldest: _Incarnation | msgspec.UnsetType = msgspec.UNSET
    answer: bool | msgspec.UnsetType = msgspec.UNSET
    nonce: _Nonce | msgspec.UnsetType = msgspec.UNSET
    another: Literal[True] | msgspec.UnsetType = msgspec.UNSET


# -- relay to client


class _ToIncarnation(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Base of messages to one incarnation of a client, ``receiver``; absent: it has had no other."""

    receiver: _Incarnation | msgspec.UnsetType = msgspec.UNSET


class UploadAck(_ToIncarnation, frozen=True, tag="accepted", kw_only=True):
    """Relay to sender: the message is stored; the sender may delete it."""

    number: _Seq
    incarnation: _Incarnation
    key: _Line


class UploadGap(_ToIncarnation, frozen=True, tag="missing", kw_only=True):
    """Relay to sender: a message arrived before the one of this number; retransmit from there."""

    number: _Seq
    incarnation: _Incarnation


class Deliver(_ToIncarnation, frozen=True, tag="deliver", kw_only=True):
    """Relay to receiver: a message that another device has sent to it.

    ``after`` is the number of its predecessor: the last message of the same incarnation of the sender that
    this receiver has, or gets before this one; 0: none.
    """

    number: _Seq
    incarnation: _Incarnation
    key: _Line
    sender: _Line = msgspec.field(name="from")
    to: _Line
    text: str
    after: Count


class Welcome(msgspec.Struct, frozen=True, tag_field="kind", tag="welcome"):
    """Relay to client: acknowledges the hello of this number.

    ``another``: the client may have had another incarnation, so that messages name this one; absent: no.
    """

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation
    another: Literal[True] | msgspec.UnsetType = msgspec.UNSET


class Identify(msgspec.Struct, frozen=True, tag_field="kind", tag="identify"):
    """Relay to client: send a hello with this nonce.

    Sent when the relay starts, and when a message comes from an incarnation that has not answered since, for
    instance from a device that was restarted or wiped. A late copy of a hello does not have the nonce.
    """

    nonce: _Nonce


# -- without a relay


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag="message"):
    """Sender to receiver, without a relay: a text, sent once."""

    key: _Line
    text: str


FROM_CLIENT: Final = Accepts[Upload | DeliveryAck | DeliveryGap | Hello](
    Upload, DeliveryAck, DeliveryGap, Hello
)
FROM_RELAY: Final = Accepts[UploadAck | UploadGap | Deliver | Welcome | Identify](
    UploadAck, UploadGap, Deliver, Welcome, Identify
)
FROM_PEER: Final = Accepts[Message](Message)

"""What goes over the network in store and forward, a struct for each kind of message.

A sender numbers what it sends, and a number holds in one incarnation of its store
(:mod:`mudkit.delivery.session`): ``incarnation`` is that of the client that numbered. Fields that say who
somebody is must agree with the network, which knows who has sent a message.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from mudkit.systems.receiving import Accepts, Count

__all__ = [
    "FROM_CLIENT",
    "FROM_PEER",
    "FROM_RELAY",
    "MOST_LETTERS",
    "Accepted",
    "Deliver",
    "Delivered",
    "Hello",
    "Identify",
    "Message",
    "Missing",
    "Send",
    "Welcome",
]

MOST_LETTERS: Final = 512
"""Of the name of a device or an item."""
_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_LETTERS, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
"""A name. It has no control characters: lines of them are the keys of stores."""
_Incarnation = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
_Nonce = _Incarnation
_Seq = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]


class Send(msgspec.Struct, frozen=True, tag_field="kind", tag="send"):
    """Sender to relay: a message for a device."""

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation
    key: _Line
    sender: _Line = msgspec.field(name="from")
    to: _Line
    text: str


class Accepted(msgspec.Struct, frozen=True, tag_field="kind", tag="accepted"):
    """Relay to sender: it has the message, and the sender need not keep it any longer."""

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation
    key: _Line


class Missing(msgspec.Struct, frozen=True, tag_field="kind", tag="missing"):
    """Relay to sender: a message has overtaken the one of this sequence number; send from there on."""

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation


class Deliver(msgspec.Struct, frozen=True, tag_field="kind", tag="deliver"):
    """Relay to receiver: a message for it.

    ``after`` is the number of the one before it that this receiver has had from this incarnation of the
    sender, or gets before it; 0: there is none.
    """

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation
    key: _Line
    sender: _Line = msgspec.field(name="from")
    to: _Line
    text: str
    after: Count


class Delivered(msgspec.Struct, frozen=True, tag_field="kind", tag="delivered"):
    """Receiver to relay: the message is in the inbox.

    ``incarnation`` is that of who has sent the message, ``receiver`` that of who has it now.
    """

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation
    receiver: _Incarnation
    key: _Line
    sender: _Line = msgspec.field(name="from")
    to: _Line


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Client to relay: the device is at the address that this comes from; deliver, unless its user is busy.

    ``seq`` counts the hellos of this incarnation: an older one, which comes late, changes nothing.
    ``first`` is the number of the first message that it still has to send: a relay that has lost its store
    goes on there. ``answer``: the relay is to say that it has heard this; absent: it need not. ``nonce`` is
    that of the :class:`Identify` that this answers; absent: of none.
    """

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation
    device: _Line
    busy: bool
    first: _Seq
    answer: bool | msgspec.UnsetType = msgspec.UNSET
    nonce: _Nonce | msgspec.UnsetType = msgspec.UNSET


class Welcome(msgspec.Struct, frozen=True, tag_field="kind", tag="welcome"):
    """Relay to client: it has heard the hello of this sequence number."""

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation


class Identify(msgspec.Struct, frozen=True, tag_field="kind", tag="identify"):
    """Relay to client: say hello, with this nonce.

    So speaks a relay that does not know a device because it has lost its store; or that hears of another
    incarnation of a device than it knows: only who lives now can answer, a late copy cannot.
    """

    nonce: _Nonce


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag="message"):
    """Sender to receiver, without a relay: the baseline."""

    key: _Line
    text: str


FROM_CLIENT: Final = Accepts[Send | Delivered | Hello](Send, Delivered, Hello)
FROM_RELAY: Final = Accepts[Accepted | Missing | Deliver | Welcome | Identify](
    Accepted, Missing, Deliver, Welcome, Identify
)
FROM_PEER: Final = Accepts[Message](Message)

"""What goes over the network in store and forward, a struct for each kind of message.

The name of a message is the incarnation of the sender's start that accepted it, and its number in that
(:mod:`mudkit.delivery.session`): the fields ``incarnation`` and ``seq``. Fields that say who somebody is must
agree with the network, which knows who has sent a message.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from mudkit.systems.receiving import Accepts, Count

__all__ = [
    "FROM_CLIENT",
    "FROM_PEER",
    "FROM_RELAY",
    "MAX_LETTERS",
    "Accepted",
    "Deliver",
    "Delivered",
    "Hello",
    "Identify",
    "Lacks",
    "Message",
    "Missing",
    "Send",
    "Welcome",
]

MAX_LETTERS: Final = 512
"""Of the name of a device or an item."""
_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LETTERS, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
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


class Lacks(msgspec.Struct, frozen=True, tag_field="kind", tag="lacks"):
    """Receiver to relay: a delivery follows one that is not in the inbox.

    ``seq`` is the last one in the inbox, of the incarnation of the sender; 0: none. A relay that has
    seen later ones acknowledged knows by this that the receiver's store is an old backup, or empty.
    """

    seq: Count = msgspec.field(name="number")
    incarnation: _Incarnation
    receiver: _Incarnation
    sender: _Line = msgspec.field(name="from")
    to: _Line


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Client to relay: the device is at the address that this comes from; deliver, unless its user is busy.

    ``seq`` counts the hellos of this incarnation: an older one, which comes late, changes nothing.
    ``first`` is the number of the first message that it still has to send: a relay that has lost its store
    goes on there. ``oldest`` is the incarnation of that message; absent: it is ``incarnation``. ``answer``:
    the relay acknowledges this; absent: it need not. ``nonce`` is that of the :class:`Identify` that this
    answers; absent: of none.
    """

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation
    device: _Line
    busy: bool
    first: _Seq
    oldest: _Incarnation | msgspec.UnsetType = msgspec.UNSET
    answer: bool | msgspec.UnsetType = msgspec.UNSET
    nonce: _Nonce | msgspec.UnsetType = msgspec.UNSET


class Welcome(msgspec.Struct, frozen=True, tag_field="kind", tag="welcome"):
    """Relay to client: it has heard the hello of this sequence number."""

    seq: _Seq = msgspec.field(name="number")
    incarnation: _Incarnation


class Identify(msgspec.Struct, frozen=True, tag_field="kind", tag="identify"):
    """Relay to client: say hello, with this nonce.

    A relay asks when it starts, when it does not know the device or its address, and when a message comes
    from another incarnation than the known one. A late copy of a hello does not have the nonce.
    """

    nonce: _Nonce


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag="message"):
    """Sender to receiver, without a relay: the baseline."""

    key: _Line
    text: str


FROM_CLIENT: Final = Accepts[Send | Delivered | Lacks | Hello](Send, Delivered, Lacks, Hello)
FROM_RELAY: Final = Accepts[Accepted | Missing | Deliver | Welcome | Identify](
    Accepted, Missing, Deliver, Welcome, Identify
)
FROM_PEER: Final = Accepts[Message](Message)

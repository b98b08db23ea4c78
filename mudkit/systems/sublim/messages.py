"""What goes over the network in SUBLIM, a struct for each kind of message (sections 3 and 4).

The publish server, the access points and the clients know each other's addresses. What speaks for a
subscriber must come from its device, which the network says. A client numbers its attachments, reports and
policies, and the numbers hold in one incarnation of its store (:mod:`mudkit.systems.incarnation`).
Messages are numbered by the publish server; deliveries by the state of a subscriber, wherever that is.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from mudkit.systems.receiving import Accepts, Count, Name

__all__ = [
    "FROM_CLIENT",
    "FROM_PLAIN_CLIENT",
    "FROM_POINT",
    "FROM_PUBLISHER",
    "TO_CLIENT",
    "TO_PLAIN_CLIENT",
    "TO_PUBLISHER",
    "Ask",
    "Attach",
    "Attached",
    "Automatic",
    "Behind",
    "Bye",
    "Deliver",
    "Got",
    "Have",
    "Hello",
    "Join",
    "Left",
    "Messages",
    "Moved",
    "Plain",
    "PolicySet",
    "Replay",
    "Report",
    "Reported",
    "SetPolicy",
    "Stale",
    "StateTransfer",
    "StateTransferAck",
]

_Subscriber = Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
"""A name of a device. It has no control characters: lines of them are the keys of stores."""
_Incarnation = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
_Measured = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_Time = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_MOST_LETTERS: Final = 65_536
_Text = Annotated[str, msgspec.Meta(max_length=_MOST_LETTERS)]


class Automatic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The automatic variables; what the device does not know is absent. A part of messages."""

    battery: _Measured | msgspec.UnsetType = msgspec.UNSET
    bandwidth_kbps: _Measured | msgspec.UnsetType = msgspec.UNSET
    display_px: _Measured | msgspec.UnsetType = msgspec.UNSET


class Published(msgspec.Struct, frozen=True):
    """A message as it was published; a part of messages."""

    number: Count
    item: str
    created_us: Count
    at_s: _Time
    body: dict[str, Any]


class Entry(msgspec.Struct, frozen=True):
    """What waits for a subscriber: a body, or why its policy was stopped. A part of messages."""

    number: Count
    item: str
    body: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    problem: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if (self.body is msgspec.UNSET) is (self.problem is msgspec.UNSET):
            raise ValueError("a body or a problem")


class Kept(msgspec.Struct, frozen=True):
    """What an access point keeps of a subscriber; a part of messages."""

    incarnation: str
    epoch: Count
    address: str
    report: Count
    automatic: Automatic
    variables: dict[str, Any]
    next: Count
    last: Count
    policy: Count
    stopped: Count
    skipped: Count


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a policy was refused; a part of messages."""

    summary: str
    where: str | None
    found: str | None


# -- publish server and access points


class Join(msgspec.Struct, frozen=True, tag_field="kind", tag="join"):
    """Access point to publish server: it is there."""


class Replay(msgspec.Struct, frozen=True, tag_field="kind", tag="replay"):
    """Access point to publish server: send the messages from a number on."""

    first: Count = msgspec.field(name="from")


class Have(msgspec.Struct, frozen=True, tag_field="kind", tag="have"):
    """Access point to publish server: it has heard of all messages up to a number."""

    last: Count


class Messages(msgspec.Struct, frozen=True, tag_field="kind", tag="messages"):
    """Publish server to access points: some messages, the last number, and the first that is still kept."""

    last: Count
    first: Count
    messages: list[Published]


# -- clients and access points


class Attach(msgspec.Struct, frozen=True, tag_field="kind", tag="attach"):
    """Client to access point: serve this subscriber from now on.

    ``origin`` has served it before; ``fresh``: nobody has, as far as this incarnation knows.
    """

    subscriber: _Subscriber
    incarnation: _Incarnation
    epoch: Count
    origin: Name = msgspec.field(name="from")
    fresh: bool
    report: Count
    automatic: Automatic


class Attached(msgspec.Struct, frozen=True, tag_field="kind", tag="attached"):
    """Access point to client: it serves it, and knows its automatic variables of a report."""

    incarnation: _Incarnation
    epoch: Count
    report: Count


class Behind(msgspec.Struct, frozen=True, tag_field="kind", tag="behind"):
    """Access point to client: another incarnation of it had got as far as this epoch; go on from there.

    Only who lives now can do so: a late copy of what an older one has sent changes nothing.
    """

    incarnation: _Incarnation
    epoch: Count


class Report(msgspec.Struct, frozen=True, tag_field="kind", tag="report"):
    """Client to access point: the automatic variables."""

    subscriber: _Subscriber
    incarnation: _Incarnation
    number: Count
    automatic: Automatic


class Reported(msgspec.Struct, frozen=True, tag_field="kind", tag="reported"):
    """Access point to client: it has the report."""

    incarnation: _Incarnation
    number: Count


class SetPolicy(msgspec.Struct, frozen=True, tag_field="kind", tag="policy"):
    """Client to access point: decide by this policy."""

    subscriber: _Subscriber
    incarnation: _Incarnation
    number: Count
    policy: dict[str, Any]


class PolicySet(msgspec.Struct, frozen=True, tag_field="kind", tag="policy set"):
    """Access point to client: it has the policy; with a problem, it goes on with the one before."""

    incarnation: _Incarnation
    number: Count
    problem: Problem | msgspec.UnsetType = msgspec.UNSET


class Deliver(Entry, frozen=True, tag_field="kind", tag="deliver", kw_only=True):
    """Access point to client: the next message, or why there is none; before ``first`` nothing waits."""

    subscriber: _Subscriber
    first: Count


class Got(msgspec.Struct, frozen=True, tag_field="kind", tag="got"):
    """Client to access point: it has all deliveries up to a number."""

    subscriber: _Subscriber
    number: Count


class Left(msgspec.Struct, frozen=True, tag_field="kind", tag="left"):
    """Client to access point: this incarnation is served elsewhere; what is kept of another one is over."""

    subscriber: _Subscriber
    incarnation: _Incarnation


# -- access points among themselves


class Ask(msgspec.Struct, frozen=True, tag_field="kind", tag="ask"):
    """Access point to another one: hand the subscriber over."""

    subscriber: _Subscriber
    incarnation: _Incarnation
    epoch: Count
    fresh: bool


class StateTransfer(msgspec.Struct, frozen=True, tag_field="kind", tag="parcel"):
    """Access point to another one: state, policy and queue of a subscriber."""

    subscriber: _Subscriber
    epoch: Count
    record: Kept
    policy: dict[str, Any] | None
    out: list[Entry]


class StateTransferAck(msgspec.Struct, frozen=True, tag_field="kind", tag="parcel has come"):
    """Access point to another one: the parcel is here, and need not be kept."""

    subscriber: _Subscriber
    epoch: Count


class Moved(msgspec.Struct, frozen=True, tag_field="kind", tag="moved"):
    """Access point to another one: the subscriber has gone on from here."""

    subscriber: _Subscriber
    epoch: Count
    to: Name


class Stale(msgspec.Struct, frozen=True, tag_field="kind", tag="stale"):
    """Access point to another one: the client has gone on since then."""

    subscriber: _Subscriber
    epoch: Count


# -- without state


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Plain client to access point: send it what its predicate is TRUE of."""

    subscriber: _Subscriber
    filter: _Text


class Bye(msgspec.Struct, frozen=True, tag_field="kind", tag="bye"):
    """Plain client to access point: no longer from here."""

    subscriber: _Subscriber


class Plain(msgspec.Struct, frozen=True, tag_field="kind", tag="plain"):
    """Access point to plain client: a message."""

    number: Count
    item: str
    body: dict[str, Any]


TO_PUBLISHER: Final = Accepts(Join, Replay, Have)
FROM_PUBLISHER: Final = Accepts(Messages)
FROM_PLAIN_CLIENT: Final = Accepts(Hello, Bye)
FROM_CLIENT: Final = Accepts(Attach, Report, SetPolicy, Got, Left, Hello, Bye)
FROM_POINT: Final = Accepts(Ask, StateTransfer, StateTransferAck, Moved, Stale)
TO_CLIENT: Final = Accepts(Attached, Behind, Reported, PolicySet, Deliver)
TO_PLAIN_CLIENT: Final = Accepts(Plain)

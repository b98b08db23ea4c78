"""Messages of SUBLIM and the operations of its machines."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec

from mudkit.delivery.session import Lineage
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.wire import Value

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
    "Body",
    "Bye",
    "Deliver",
    "DeliveryAck",
    "Entry",
    "Have",
    "Hello",
    "InstallPolicy",
    "Join",
    "Kept",
    "Left",
    "Messages",
    "Moved",
    "Plain",
    "PolicySet",
    "PolicyText",
    "Problem",
    "Publish",
    "Published",
    "Read",
    "ReadState",
    "Replay",
    "Report",
    "Reported",
    "Served",
    "SetPolicy",
    "Stale",
    "StateTransfer",
    "StateTransferAck",
]

Body: TypeAlias = dict[str, Value]
"""What is published, and what a policy keeps in its variables: the application's own."""
PolicyText: TypeAlias = dict[str, Value]
"""A policy as JSON can hold it, see :meth:`Policy.describe`; or the name of a function."""
_Subscriber = Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
"""A name of a device. It has no control characters: lines of them are the keys of stores."""
_Incarnation = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
_Measured = (
    Annotated[int, msgspec.Meta(ge=-(10**15), le=10**15)] | Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
)
_Time = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_MAX_LETTERS: Final = 65_536
_Text = Annotated[str, msgspec.Meta(max_length=_MAX_LETTERS)]


class Automatic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The automatic variables; what the device does not know is absent. A part of messages."""

    battery: _Measured | msgspec.UnsetType = msgspec.UNSET
    bandwidth_kbps: _Measured | msgspec.UnsetType = msgspec.UNSET
    display_px: _Measured | msgspec.UnsetType = msgspec.UNSET

    def known(self) -> dict[str, float]:
        """Give those that the device knows, by name."""
        given = {
            "battery": self.battery,
            "bandwidth_kbps": self.bandwidth_kbps,
            "display_px": self.display_px,
        }
        return {name: value for name, value in given.items() if not isinstance(value, msgspec.UnsetType)}


class Published(msgspec.Struct, frozen=True):
    """A message as it was published; a part of messages."""

    seq: Count = msgspec.field(name="number")
    item: str
    created_us: Count
    at_s: _Time
    body: Body


class Entry(msgspec.Struct, frozen=True):
    """What waits for a subscriber: a body, or why its policy was stopped. A part of messages."""

    seq: Count = msgspec.field(name="number")
    item: str
    body: Body | msgspec.UnsetType = msgspec.UNSET
    problem: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_either(self)


class Kept(msgspec.Struct, frozen=True):
    """What an access point keeps of a subscriber; a part of messages."""

    epoch: Count
    address: str
    report: Count
    automatic: Automatic
    variables: Body
    next_seq: Count = msgspec.field(name="next")
    last_seq: Count = msgspec.field(name="last")
    policy: Count
    stopped: Count
    skipped: Count
    incarnation: str
    lineage: Lineage | msgspec.UnsetType = msgspec.UNSET
    """Lineage of the publish server's log in which ``next_seq`` counts; absent: it is empty."""
    since_us: Count | msgspec.UnsetType = msgspec.UNSET
    """Start of an access point whose store may be an old one; absent: its client has attached since."""


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a policy was refused; a part of messages."""

    summary: str
    where: str | None
    found: str | None


# -- operations: from the application to a machine


class Served(TypedDict):
    """What an access point keeps of a subscriber: the fields of ``Kept`` on the wire, and its time."""

    epoch: int
    address: str
    report: int
    automatic: dict[str, float]
    variables: Body
    next: int
    last: int
    policy: int
    stopped: int
    skipped: int
    incarnation: str
    lineage: NotRequired[dict[str, int]]
    now_us: int


class Publish(msgspec.Struct, frozen=True, tag_field="operation", tag="publish"):
    """Publish a message at the server.

    Parameters
    ----------
    body : dict
    item : str or None
        What the deliveries call it; None: its number.
    """

    body: Body
    item: str | None


class ReadState(msgspec.Struct, frozen=True, tag_field="operation", tag="state"):
    """Tell what an access point keeps of a subscriber."""

    subscriber: str


class InstallPolicy(msgspec.Struct, frozen=True, tag_field="operation", tag="set_policy"):
    """Let the subscriber's messages be decided by a policy from now on."""

    policy: PolicyText


class Read(msgspec.Struct, frozen=True, tag_field="operation", tag="read"):
    """Give what has come to the subscriber since the last time."""


# -- publish server and access points


class Join(msgspec.Struct, frozen=True, tag_field="kind", tag="join"):
    """Access point to publish server: it is there."""


class Replay(msgspec.Struct, frozen=True, tag_field="kind", tag="replay"):
    """Access point to publish server: send the messages from a number on."""

    first: Count = msgspec.field(name="from")


class Have(msgspec.Struct, frozen=True, tag_field="kind", tag="have"):
    """Access point to publish server: it has heard of all messages up to a number.

    ``start`` is the last start in the lineage that it knows; absent: the lineage is empty.
    """

    last: Count
    start: _Incarnation | msgspec.UnsetType = msgspec.UNSET


class Messages(msgspec.Struct, frozen=True, tag_field="kind", tag="messages"):
    """Publish server to access points: some messages, the last number, and the first that is still kept.

    ``lineage`` is that of the server's log (:func:`mudkit.delivery.session.shared_seq`); absent: it is empty.
    """

    last: Count
    first: Count
    messages: list[Published]
    lineage: Lineage | msgspec.UnsetType = msgspec.UNSET


# -- clients and access points


class Attach(msgspec.Struct, frozen=True, tag_field="kind", tag="attach"):
    """Client to access point: serve this subscriber from now on.

    ``origin`` has served it before; ``fresh``: nobody has, as far as this incarnation knows. ``seen`` is the
    number of the last delivery that it has, ``policy`` that of the last policy that was set; absent: none.
    """

    subscriber: _Subscriber
    epoch: Count
    origin: Name = msgspec.field(name="from")
    fresh: bool
    report: Count
    automatic: Automatic
    incarnation: _Incarnation
    seen: Count | msgspec.UnsetType = msgspec.UNSET
    policy: Count | msgspec.UnsetType = msgspec.UNSET


class Attached(msgspec.Struct, frozen=True, tag_field="kind", tag="attached"):
    """Access point to client: it serves it, and knows its automatic variables of a report.

    ``policy`` is the number of its policy, if the client has set a later one, which is lost; else absent.
    """

    incarnation: _Incarnation
    epoch: Count
    report: Count
    policy: Count | msgspec.UnsetType = msgspec.UNSET


class Identify(msgspec.Struct, frozen=True, tag_field="kind", tag="identify"):
    """Access point to client: attach again, because the access point has started again or has no state."""

    incarnation: _Incarnation


class Behind(msgspec.Struct, frozen=True, tag_field="kind", tag="behind"):
    """Access point to client: another incarnation, or a later store of it, had reached this epoch.

    The client continues after it; a late copy of an older message cannot.
    """

    incarnation: _Incarnation
    epoch: Count


class Report(msgspec.Struct, frozen=True, tag_field="kind", tag="report"):
    """Client to access point: the automatic variables."""

    subscriber: _Subscriber
    seq: Count = msgspec.field(name="number")
    automatic: Automatic
    incarnation: _Incarnation


class Reported(msgspec.Struct, frozen=True, tag_field="kind", tag="reported"):
    """Access point to client: it has the report."""

    incarnation: _Incarnation
    seq: Count = msgspec.field(name="number")


class SetPolicy(msgspec.Struct, frozen=True, tag_field="kind", tag="policy"):
    """Client to access point: decide by this policy."""

    subscriber: _Subscriber
    seq: Count = msgspec.field(name="number")
    policy: PolicyText
    incarnation: _Incarnation


class PolicySet(msgspec.Struct, frozen=True, tag_field="kind", tag="policy set"):
    """Access point to client: it has the policy; with a problem, it goes on with the one before.

    ``taken``: numbers up to this one are of other policies, which the client has forgotten.
    """

    incarnation: _Incarnation
    seq: Count = msgspec.field(name="number")
    problem: Problem | msgspec.UnsetType = msgspec.UNSET
    taken: Literal[True] | msgspec.UnsetType = msgspec.UNSET


class Deliver(msgspec.Struct, frozen=True, tag_field="kind", tag="deliver"):
    """Access point to client: the next message, or why there is none; before ``first`` nothing waits."""

    subscriber: _Subscriber
    first: Count
    seq: Count = msgspec.field(name="number")
    item: str
    body: Body | msgspec.UnsetType = msgspec.UNSET
    problem: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_either(self)


class DeliveryAck(msgspec.Struct, frozen=True, tag_field="kind", tag="got"):
    """Client to access point: it has all deliveries up to a number."""

    subscriber: _Subscriber
    seq: Count = msgspec.field(name="number")


class Left(msgspec.Struct, frozen=True, tag_field="kind", tag="left"):
    """Client to access point: it is served elsewhere since this epoch; older state is obsolete.

    So is the state of another incarnation. ``epoch`` 0: it is not attached elsewhere yet.
    """

    subscriber: _Subscriber
    incarnation: _Incarnation
    epoch: Count


# -- access points among themselves


class Ask(msgspec.Struct, frozen=True, tag_field="kind", tag="ask"):
    """Access point to another one: hand the subscriber over."""

    subscriber: _Subscriber
    epoch: Count
    fresh: bool
    incarnation: _Incarnation


class StateTransfer(msgspec.Struct, frozen=True, tag_field="kind", tag="parcel"):
    """Access point to another one: state, policy and queue of a subscriber."""

    subscriber: _Subscriber
    epoch: Count
    record: Kept
    policy: PolicyText | None
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


class Missing(msgspec.Struct, frozen=True, tag_field="kind", tag="missing"):
    """Access point to another one: it has lost the state of the subscriber, if it ever had it.

    ``start_us`` is the time of its start, ``start_seq`` the last message that was published before.
    """

    subscriber: _Subscriber
    epoch: Count
    start_us: Count
    start_seq: Count


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

    seq: Count = msgspec.field(name="number")
    item: str
    body: Body


def _check_either(message: Entry | Deliver) -> None:
    """Refuse what holds both a body and a problem, or neither."""
    if (message.body is msgspec.UNSET) is (message.problem is msgspec.UNSET):
        raise ValueError("a body or a problem")


TO_PUBLISHER: Final = Accepts[Join | Replay | Have](Join, Replay, Have)
FROM_PUBLISHER: Final = Accepts[Messages](Messages)
FROM_PLAIN_CLIENT: Final = Accepts[Hello | Bye](Hello, Bye)
FROM_CLIENT: Final = Accepts[Attach | Report | SetPolicy | DeliveryAck | Left | Hello | Bye](
    Attach, Report, SetPolicy, DeliveryAck, Left, Hello, Bye
)
FROM_POINT: Final = Accepts[Ask | StateTransfer | StateTransferAck | Moved | Stale | Missing](
    Ask, StateTransfer, StateTransferAck, Moved, Stale, Missing
)
TO_CLIENT: Final = Accepts[Attached | Behind | Identify | Reported | PolicySet | Deliver](
    Attached, Behind, Identify, Reported, PolicySet, Deliver
)
TO_PLAIN_CLIENT: Final = Accepts[Plain](Plain)

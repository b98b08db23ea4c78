"""Messages of SUBLIM (sections 3 and 4), and the operations of its machines.

The publish server, the access points and the clients know each other's addresses. A message that names a
subscriber must come from its device, which the network identifies. Attachments, reports and policies are
numbered within a store id of the client (:mod:`mudkit.delivery.session`), messages by the publish
server, deliveries by the state of a subscriber, which keeps its count when it moves.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec

from mudkit.delivery.session import Lineage
from mudkit.delivery.submission import Submission, SubmitAck, SubmitHello, SubmitUnknown, SubmitWelcome
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.wire import Value

Body: TypeAlias = dict[str, Value]
"""Fields of a message, or manual variables: values of the application."""
PolicyText: TypeAlias = dict[str, Value]
"""Policy as JSON, see :meth:`Policy.to_dict`; or the name of a function."""
_Subscriber = Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
"""Name of a device, without control characters: store keys join names by line feeds."""
_StoreId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
_Incarnation = _StoreId
_Nonce = _StoreId
_Measured = (
    Annotated[int, msgspec.Meta(ge=-(10**15), le=10**15)] | Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
)
_Time = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_MAX_LETTERS: Final = 65_536
_Text = Annotated[str, msgspec.Meta(max_length=_MAX_LETTERS)]


class Automatic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Automatic variables; absent: unknown to the device. Part of messages."""

    battery: _Measured | msgspec.UnsetType = msgspec.UNSET
    bandwidth_kbps: _Measured | msgspec.UnsetType = msgspec.UNSET
    display_px: _Measured | msgspec.UnsetType = msgspec.UNSET

    def known(self) -> dict[str, float]:
        """Return the variables that the device knows, by name."""
        variables = {
            "battery": self.battery,
            "bandwidth_kbps": self.bandwidth_kbps,
            "display_px": self.display_px,
        }
        return {name: value for name, value in variables.items() if not isinstance(value, msgspec.UnsetType)}


class PublishedMessage(msgspec.Struct, frozen=True):
    """Message as the publish server stores and floods it, with its number in the log. Part of messages."""

    lsn: Count = msgspec.field(name="number")
    item: str
    created_us: Count
    at_s: _Time
    body: Body


class QueueEntry(msgspec.Struct, frozen=True):
    """Delivery in the queue of a subscriber: a message, or why its policy failed. Part of messages."""

    seq: Count = msgspec.field(name="number")
    item: str
    body: Body | msgspec.UnsetType = msgspec.UNSET
    problem: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_either(self)


class SubscriberRecord(msgspec.Struct, frozen=True):
    """State of a subscriber at an access point. Part of messages."""

    epoch: Count
    address: str
    report: Count
    automatic: Automatic
    variables: Body
    next_lsn: Count = msgspec.field(name="next")
    last_seq: Count = msgspec.field(name="last")
    policy: Count
    stopped: Count
    skipped: Count
    store_id: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{8})?\Z")] = msgspec.field(name="incarnation")
    lineage: Lineage | msgspec.UnsetType = msgspec.UNSET
    """Lineage of the publish server's log in which ``next_lsn`` counts; absent: empty."""
    taken: dict[Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{8})?\Z")], Count] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    """Last number decided of each start of that log, in former lineages, too; absent: there was no other."""
    since_us: Count | msgspec.UnsetType = msgspec.UNSET
    """Messages published before are not decided: a store that was lost may have; absent: all are."""


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reason why an access point has refused a client's policy. Part of messages."""

    summary: str
    where: str | None
    actual: str | None = msgspec.field(name="found")


# -- operations: from the application to a machine


class SubscriberState(TypedDict):
    """State of a subscriber that the application gets: a ``SubscriberRecord``, and the time there."""

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
    """Operation: publish a message, at the publish server or on the device of a publisher.

    ``item`` is its name in the deliveries; by default its number there, or the name of the submission.
    """

    body: Body
    item: str | None


class CountSubmissions(msgspec.Struct, frozen=True, tag_field="operation", tag="submissions"):
    """Operation: count the messages of a publisher that are pending, and those that were refused."""


class ReadState(msgspec.Struct, frozen=True, tag_field="operation", tag="state"):
    """Operation: return what an access point has stored of a subscriber; None if it does not serve it."""

    subscriber: str


class InstallPolicy(msgspec.Struct, frozen=True, tag_field="operation", tag="set_policy"):
    """Operation: set the policy of this device; completed when the access point has answered."""

    policy: PolicyText


class Read(msgspec.Struct, frozen=True, tag_field="operation", tag="read"):
    """Operation: return the messages received since the last read."""


# -- publish server and access points


class Join(msgspec.Struct, frozen=True, tag_field="kind", tag="join"):
    """Access point to publish server: started.

    ``nonce`` asks for the lineage of the log as it is now; absent: no question.
    """

    nonce: _Nonce | msgspec.UnsetType = msgspec.UNSET


class ReplayRequest(msgspec.Struct, frozen=True, tag_field="kind", tag="replay"):
    """Access point to publish server: send the stored messages again, starting at this number."""

    first_lsn: Count = msgspec.field(name="from")


class Whereabouts(msgspec.Struct, frozen=True):
    """Address and store id of a subscriber; empty: it is a plain one. Part of messages."""

    address: str
    store_id: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{8})?\Z")] = msgspec.field(name="incarnation")


class MessagesAck(msgspec.Struct, frozen=True, tag_field="kind", tag="have"):
    """Access point to publish server: acknowledges all messages up to a number.

    ``log_incarnation`` is the last one in the lineage that it knows; absent: the lineage is empty. ``moved``:
    its subscribers with another address than the server has noted; absent: none. ``lost``: its subscribers to
    whose addresses it sends nothing more, as asked (``taken``); absent: none. ``nonce`` as in :class:`Join`.
    """

    last_lsn: Count = msgspec.field(name="last")
    log_incarnation: _Incarnation | msgspec.UnsetType = msgspec.field(name="start", default=msgspec.UNSET)
    moved: dict[_Subscriber, Whereabouts] | msgspec.UnsetType = msgspec.UNSET
    lost: list[_Subscriber] | msgspec.UnsetType = msgspec.UNSET
    nonce: _Nonce | msgspec.UnsetType = msgspec.UNSET


class Messages(msgspec.Struct, frozen=True, tag_field="kind", tag="messages"):
    """Publish server to access points: some messages, the last number, and the first one still stored.

    ``lineage`` is that of the server's log (:func:`mudkit.delivery.session.shared_lsn`); absent: empty.
    ``served``, in the answer to Join: the subscribers that this access point had; absent: none. ``taken``:
    addresses of its subscribers that others have attached from at another access point; absent: none.
    ``nonce`` is that of the question that this answers.
    """

    last_lsn: Count = msgspec.field(name="last")
    first_lsn: Count = msgspec.field(name="first")
    messages: list[PublishedMessage]
    lineage: Lineage | msgspec.UnsetType = msgspec.UNSET
    served: dict[_Subscriber, Whereabouts] | msgspec.UnsetType = msgspec.UNSET
    taken: dict[_Subscriber, str] | msgspec.UnsetType = msgspec.UNSET
    nonce: _Nonce | msgspec.UnsetType = msgspec.UNSET


class AddressesNoted(msgspec.Struct, frozen=True, tag_field="kind", tag="noted"):
    """Publish server to access point: the addresses that it has sent (:class:`MessagesAck`) are stored."""

    subscribers: dict[_Subscriber, Whereabouts]


# -- publishers and publish server

# Sessions and acknowledgements: :mod:`mudkit.delivery.submission`, for the publishers of section 3.


class SubmittedMessage(msgspec.Struct, frozen=True):
    """Message that a publisher submits; ``item`` as in :class:`Publish`."""

    body: Body
    item: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_LETTERS)] | None


FromPublisher: TypeAlias = SubmitHello | Submission[SubmittedMessage]
"""Publisher to publish server: begin a session; publish a message, once and in order (section 3)."""
ToPublisher: TypeAlias = SubmitWelcome | SubmitAck | SubmitUnknown
"""Publish server to publisher: the name of the session; published or refused; say hello again."""


# -- clients and access points


class _AboutSubscriber(msgspec.Struct, frozen=True, tag_field="kind"):
    """Base of messages that name a subscriber; a client may name its own device only."""

    subscriber: _Subscriber


class _AboutEpoch(_AboutSubscriber, frozen=True):
    """Base of messages about one attachment of a subscriber: its client counts them in ``epoch``."""

    epoch: Count


class _ToStore(msgspec.Struct, frozen=True, tag_field="kind"):
    """Base of messages to a client that are meant for one of its stores only, and ignored after a wipe."""

    store_id: _StoreId = msgspec.field(name="incarnation")


class Attach(_AboutEpoch, frozen=True, tag="attach"):
    """Client to access point: serve this subscriber.

    ``origin`` is the access point that served it before. ``fresh``: none has, as far as this store
    knows. ``seen`` is the number of its last delivery, ``policy`` that of the last policy set; absent: none.
    ``nonce`` is that of the question that this answers; absent: none.
    """

    origin: Name = msgspec.field(name="from")
    fresh: bool
    report: Count
    automatic: Automatic
    store_id: _StoreId = msgspec.field(name="incarnation")
    seen: Count | msgspec.UnsetType = msgspec.UNSET
    policy: Count | msgspec.UnsetType = msgspec.UNSET
    nonce: _Nonce | msgspec.UnsetType = msgspec.UNSET


class Attached(_ToStore, frozen=True, tag="attached"):
    """Access point to client: serves it, and knows its automatic variables of this report.

    ``policy`` is the number of its policy if the client has set a later one, which is lost; else absent.
    ``session`` is the nonce with which this store has identified itself there, which later messages of
    both repeat; absent: it had not to.
    """

    epoch: Count
    report: Count
    policy: Count | msgspec.UnsetType = msgspec.UNSET
    session: _Nonce | msgspec.UnsetType = msgspec.UNSET


class Identify(_ToStore, frozen=True, tag="identify"):
    """Access point to client: attach again, with this nonce, which a late copy of an attachment lacks.

    Sent when the access point has restarted or has no state, and when another store attaches or leaves.
    """

    nonce: _Nonce


class Behind(_ToStore, frozen=True, tag="behind"):
    """Access point to client: another store, or a later state of this one, had reached this epoch.

    The client continues at the next epoch. ``report``: its store had reached this report, too, unless the
    attachment that this answers was a late copy; absent: this is not known.
    """

    epoch: Count
    report: Count | msgspec.UnsetType = msgspec.UNSET


class Report(_AboutSubscriber, frozen=True, tag="report"):
    """Client to access point: the automatic variables; ``session`` as in :class:`Attached`."""

    seq: Count = msgspec.field(name="number")
    automatic: Automatic
    store_id: _StoreId = msgspec.field(name="incarnation")
    session: _Nonce | msgspec.UnsetType = msgspec.UNSET


class ReportAck(_ToStore, frozen=True, tag="reported"):
    """Access point to client: acknowledges a report."""

    seq: Count = msgspec.field(name="number")


class SetPolicy(_AboutSubscriber, frozen=True, tag="policy"):
    """Client to access point: use this policy; ``session`` as in :class:`Attached`."""

    seq: Count = msgspec.field(name="number")
    policy: PolicyText
    store_id: _StoreId = msgspec.field(name="incarnation")
    session: _Nonce | msgspec.UnsetType = msgspec.UNSET


class PolicyAck(_ToStore, frozen=True, tag="policy set"):
    """Access point to client: acknowledges a policy; with ``problem``, the previous one stays.

    ``taken``: the numbers up to this one belong to other policies, which the client has forgotten.
    """

    seq: Count = msgspec.field(name="number")
    problem: Problem | msgspec.UnsetType = msgspec.UNSET
    taken: Literal[True] | msgspec.UnsetType = msgspec.UNSET


class Deliver(_AboutSubscriber, frozen=True, tag="deliver"):
    """Access point to client: the next message, or why there is none; nothing is queued before ``first``.

    ``session`` as in :class:`Attached`.
    """

    first: Count
    seq: Count = msgspec.field(name="number")
    item: str
    body: Body | msgspec.UnsetType = msgspec.UNSET
    problem: str | msgspec.UnsetType = msgspec.UNSET
    session: _Nonce | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_either(self)


class DeliveryAck(_AboutSubscriber, frozen=True, tag="got"):
    """Client to access point: acknowledges all deliveries of a session up to a number."""

    seq: Count = msgspec.field(name="number")
    session: _Nonce | msgspec.UnsetType = msgspec.UNSET


class Left(_AboutSubscriber, frozen=True, tag="left"):
    """Client to access point: served elsewhere since this epoch (0: not attached yet); delete older state.

    The same for the state of another store. ``nonce`` is that of the :class:`Identify` that this
    answers; absent: none, and nothing is deleted before the client has repeated it with one.
    """

    store_id: _StoreId = msgspec.field(name="incarnation")
    epoch: Count
    nonce: _Nonce | msgspec.UnsetType = msgspec.UNSET


# -- access points among themselves


class StateRequest(_AboutEpoch, frozen=True, tag="ask"):
    """Access point to another: a client has attached here, transfer its state to me."""

    fresh: bool
    store_id: _StoreId = msgspec.field(name="incarnation")


class StateTransfer(_AboutEpoch, frozen=True, tag="parcel"):
    """Access point to another: state, policy and queue of a subscriber."""

    record: SubscriberRecord
    policy: PolicyText | None
    out: list[QueueEntry]


class StateTransferAck(_AboutEpoch, frozen=True, tag="parcel has come"):
    """Access point to another: the state is stored; the sender may delete it."""


class Moved(_AboutEpoch, frozen=True, tag="moved"):
    """Access point to another: the subscriber has moved on to ``to``."""

    to: Name


class Stale(_AboutEpoch, frozen=True, tag="stale"):
    """Access point to another: the client has attached elsewhere since that epoch."""


class Missing(_AboutEpoch, frozen=True, tag="missing"):
    """Access point to another: the state of the subscriber is lost, if it ever was here.

    ``start_us`` is the time of its start, ``start_lsn`` the last message published before.
    """

    start_us: Count
    start_lsn: Count = msgspec.field(name="start_seq")


# -- without state


class Hello(_AboutSubscriber, frozen=True, tag="hello"):
    """Plain client to access point: send the messages that match this predicate."""

    filter: _Text


class Bye(_AboutSubscriber, frozen=True, tag="bye"):
    """Plain client to access point: unsubscribe."""


class PlainMessage(msgspec.Struct, frozen=True, tag_field="kind", tag="plain"):
    """Access point to plain client: a published message that matches its predicate.

    ``log_incarnation`` is that of the publish server's log that has numbered it; absent: the first.
    """

    lsn: Count = msgspec.field(name="number")
    item: str
    body: Body
    log_incarnation: _Incarnation | msgspec.UnsetType = msgspec.field(name="start", default=msgspec.UNSET)


def _check_either(message: QueueEntry | Deliver) -> None:
    """Raise ValueError unless exactly one of body and problem is present."""
    if (message.body is msgspec.UNSET) is (message.problem is msgspec.UNSET):
        raise ValueError("a body or a problem")


TO_PUBLISHER: Final = Accepts[Join | ReplayRequest | MessagesAck](Join, ReplayRequest, MessagesAck)
"""Messages that the publish server accepts from access points."""
SUBMITTED: Final = Accepts[FromPublisher](SubmitHello, Submission[SubmittedMessage])
"""Messages that the publish server accepts from publishers."""
TO_SUBMITTER: Final = Accepts[ToPublisher](SubmitWelcome, SubmitAck, SubmitUnknown)
FROM_PUBLISHER: Final = Accepts[Messages | AddressesNoted](Messages, AddressesNoted)
FROM_PLAIN_CLIENT: Final = Accepts[Hello | Bye](Hello, Bye)
FROM_CLIENT: Final = Accepts[Attach | Report | SetPolicy | DeliveryAck | Left | Hello | Bye](
    Attach, Report, SetPolicy, DeliveryAck, Left, Hello, Bye
)
FROM_POINT: Final = Accepts[StateRequest | StateTransfer | StateTransferAck | Moved | Stale | Missing](
    StateRequest, StateTransfer, StateTransferAck, Moved, Stale, Missing
)
TO_CLIENT: Final = Accepts[Attached | Behind | Identify | ReportAck | PolicyAck | Deliver](
    Attached, Behind, Identify, ReportAck, PolicyAck, Deliver
)
TO_PLAIN_CLIENT: Final = Accepts[PlainMessage | Identify](PlainMessage, Identify)
"""Identify is for a former owner of its address."""

"""Messages of Contrail, one struct per kind, and the operations that applications call on a module.

Fields that a cloud cannot read are :class:`~mudkit.events.Opaque`. Names contain no control characters,
because store keys are composed of them. None is sent as null; an absent field is ``UNSET``. Unknown fields
are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from mudkit.events import Opaque
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.wire import Value, wire_fields

_MAX_LISTED: Final = 100_000
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern="^[^\x00-\x1f\x7f\ud800-\udfff]+$")]
_Incarnation = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
_StorageIncarnations = list[_Incarnation] | UnsetType
"""Incarnations of the storages that answered; absent: none has restarted."""
_StorageIncarnation = _Incarnation | UnsetType
"""Incarnation of the storage that holds the queue; absent: it has not restarted."""
_Version = Annotated[int, msgspec.Meta(ge=0, le=1 << 26)]
"""Number of moves of a queue; the numbers of its entries begin with it."""


Unread: TypeAlias = Any
"""A message as a cloud delivered it; the receiver decodes and verifies it, see :mod:`.crypto`."""


class _Message(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """Message of Contrail; its tag is the field ``kind`` on the wire."""

    @property
    def kind(self) -> str:
        """Tag of the struct, as on the wire."""
        return str(self.__struct_config__.tag)


# -- from device to device, through a cloud (3.1, 3.3)


class Destination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Destination of an item (Figure 3): endpoint, expiry there (None: never), and authentication tag."""

    device: _Text
    port: _Text
    expires_us: Count | None
    tag: Opaque


class SealedFor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Destination of a filter or key, and the content sealed for it."""

    device: _Text
    port: _Text
    sealed: Opaque
    signature: Opaque


class Data(_Message, frozen=True, tag="data"):
    """Device to device: an item (3.1, 4.1); in a queue it has one destination and its body (4.2.2).

    Without a body, the provider inserts the body from its cache (3.4.1).
    """

    source: _Text = msgspec.field(name="from")
    port: _Text
    item: _Text
    seq: Count
    epoch: Count
    to: Annotated[list[Destination], msgspec.Meta(max_length=_MAX_LISTED)]
    body: Opaque | None


class SealedMessage(_Message, frozen=True):
    """Fields of all messages that are sealed for each destination; in a queue there is one destination.

    ``number`` is unique among the sealed messages of a device. A later message of the same ``slot`` replaces
    this one. ``group`` is None for a message to devices, ``expires_us`` for one without an end.
    """

    source: _Text = msgspec.field(name="from")
    port: _Text
    number: Count
    slot: Count
    group: _Text | None
    expires_us: Count | None
    to: Annotated[list[SealedFor], msgspec.Meta(max_length=_MAX_LISTED)]


class Filter(SealedMessage, frozen=True, tag="filter"):
    """Device to device or group: a filter (3.1, 3.4.3); ``slot`` is its number there."""


class ChannelKey(SealedMessage, frozen=True, tag="key"):
    """Sender of a channel to a receiver: the channel's key (3.3); ``slot`` is the epoch."""


class ItemKey(SealedMessage, frozen=True, tag="item key"):
    """Sender to a receiver without the channel's key: the key of one item; ``slot`` is its number."""


DeviceMessage: TypeAlias = Data | Filter | ChannelKey | ItemKey


# -- between a device and a gateway (4.1, 4.2.2)


class _NumberedRequest(_Message, frozen=True):
    """Request of a device that is retransmitted until the answer repeats its ``number``."""

    device: _Text
    number: Count


class _VisitMessage(_Message, frozen=True):
    """Message of one visit of a device: from its first request of a page to its :class:`Bye`."""

    device: _Text
    visit: Count


class OpenQueue(_NumberedRequest, frozen=True, tag="join"):
    """Device to gateway: create the queue of the device; show the white-list (3.3) or do not (None)."""

    friends: Annotated[list[_Text], msgspec.Meta(max_length=_MAX_LISTED)] | None


class Push(_NumberedRequest, frozen=True, tag="send"):
    """Device to gateway: push a message for other devices (4.1)."""

    message: DeviceMessage


class Membership(_NumberedRequest, frozen=True, tag="group"):
    """Device to gateway: join a group of publishers, or leave it (3.4.3)."""

    group: _Text
    joins: bool


class Withdraw(_NumberedRequest, frozen=True, tag="withdraw"):
    """Device to gateway: remove this device's messages from the queue of a former friend.

    Not in the paper; it follows from the rule that only friends communicate (3.3).
    """

    receiver: _Text


class Pull(_VisitMessage, frozen=True, tag="pull"):
    """Device to gateway: acknowledge the entries ``got`` and request the next page (4.1).

    ``hold``: keep the connection open when the queue is empty. Visit numbers increase across restarts of the
    device. ``storage_incarnation`` is the incarnation of the storage that delivered the acknowledged entries.
    """

    got: Annotated[list[Count], msgspec.Meta(max_length=_MAX_LISTED)]
    hold: bool
    storage_incarnation: _StorageIncarnation = msgspec.field(name="start", default=UNSET)


class Probe(_VisitMessage, frozen=True, tag="probe"):
    """Device to gateway: a page takes long; :class:`Filled` answers, behind a page that was sent."""


class Bye(_VisitMessage, frozen=True, tag="bye"):
    """Device to gateway: the connection of a visit is closed."""


class PushAnswer(_Message, frozen=True, tag="sent"):
    """Gateway to device: a numbered request is executed.

    ``results`` has the outcomes by endpoint. None instead: the item is not cached, send its body.
    """

    number: Count
    results: Annotated[list[tuple[str, str, str]], msgspec.Meta(max_length=_MAX_LISTED)] | None
    storage_incarnations: _StorageIncarnations = msgspec.field(name="starts", default=UNSET)


class Deliver(_Message, frozen=True, tag="deliver"):
    """Gateway to device: a page of queue entries.

    Each is decoded alone, for a cloud may have changed any (3.3).
    """

    visit: Count
    page: Annotated[list[tuple[Count, Unread]], msgspec.Meta(max_length=_MAX_LISTED)]
    more: bool
    storage_incarnation: _StorageIncarnation = msgspec.field(name="start", default=UNSET)


class Filled(_Message, frozen=True, tag="filled"):
    """Gateway to device: the queue is not empty, pull over the open connection; also answers a probe."""


Request: TypeAlias = OpenQueue | Push | Membership | Withdraw | Pull


# -- between a gateway and the other tiers (4.2.2)


class RoutedRequest(_Message, frozen=True, tag="ask"):
    """Gateway to compute instance: request ``what`` of a device at ``client``; ``tries`` counts sendings."""

    gateway: Name
    client: Name
    what: Request
    tries: Count


class RoutedAnswer(_Message, frozen=True, tag="tell"):
    """Compute instance to gateway: an answer for the device at the address ``to``."""

    to: Name
    message: Deliver | PushAnswer


class QueueFilled(_Message, frozen=True, tag="filled"):
    """Storage to gateway: a device's queue is not empty; ``client`` is its address, after a restart."""

    device: _Text
    client: Name | UnsetType = UNSET


class ServerRestarted(_Message, frozen=True, tag="restarted"):
    """Gateway to storage, storage to gateway or storage: the sender restarted, perhaps from a backup."""


class NotConnected(_Message, frozen=True, tag="gone"):
    """Gateway to storage, as an answer to :class:`QueueFilled`: the device holds no connection here."""

    device: _Text


# -- between compute instances and storages (4.2.2)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entry for a queue; replaces an older entry of the same slot."""

    slot: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    seq: Count
    expires_us: Count | None
    message: DeviceMessage


class QueueEntry(Entry, frozen=True):
    """Entry in a queue; ``number`` orders it against a :class:`Withdraw` of its sender."""

    number: Count


class _Op(msgspec.Struct, frozen=True, tag_field="op", kw_only=True, forbid_unknown_fields=True):
    """Operation that a compute instance lets a storage execute; a request becomes one or several."""

    version: _Version | UnsetType = UNSET
    """Version of the queue at the redirection to this storage; absent: not redirected."""


class ShowFriends(_Op, frozen=True, tag="join"):
    """Store the white-list of a device in its storage."""

    device: _Text
    friends: list[_Text] | None


class AppendEntry(_Op, frozen=True, tag="append"):
    """Append an entry to the queue of a device, in place of the one in its slot, or refuse it."""

    device: _Text
    entry: Entry


class ReadQueue(_Op, frozen=True, tag="read"):
    """Read the first page of a device's queue; entries that have expired are removed.

    The storage stores ``watcher``, the gateway that holds the device's connection, as the one to notify, and
    counts a visit with its first page, which ``begins``. ``here`` is the storage nearest to the compute
    instance.
    """

    device: _Text
    watcher: Name | None
    most_bytes: Count
    here: Name
    begins: bool


class DropEntries(_Op, frozen=True, tag="drop"):
    """Remove the entries of a device's queue that it has acknowledged."""

    device: _Text
    numbers: list[Count]
    storage_incarnation: _StorageIncarnation = msgspec.field(name="start", default=UNSET)


class FindItem(_Op, frozen=True, tag="cached"):
    """Look up the body of an item in the cache."""

    source: _Text
    port: _Text
    item: _Text
    seq: Count
    epoch: Count


class CacheItem(FindItem, frozen=True, tag="cache"):
    """Store the body of an item in the cache."""

    body: Opaque


class _MemberOp(_Op, frozen=True):
    """Operation on the membership of a device in a group of publishers."""

    group: _Text
    member: _Text


class AddMember(_MemberOp, frozen=True, tag="member"):
    """Add a device to a group."""


class RemoveMember(_MemberOp, frozen=True, tag="unmember"):
    """Remove a device from a group."""


class SpreadFilter(_Op, frozen=True, tag="spread"):
    """Store a filter for a group; the storage answers with the copies for its present members."""

    group: _Text
    filter: Filter


class WithdrawFrom(_Op, frozen=True, tag="withdraw"):
    """Remove what ``source`` has sent to ``device`` up to a number."""

    device: _Text
    source: _Text
    number: Count


class MoveQueue(_Op, frozen=True, tag="move"):
    """Move the queue of a device to the storage of another data centre."""

    device: _Text
    to: Name


Op: TypeAlias = (
    ShowFriends
    | AppendEntry
    | ReadQueue
    | DropEntries
    | CacheItem
    | FindItem
    | AddMember
    | RemoveMember
    | SpreadFilter
    | WithdrawFrom
    | MoveQueue
)


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answer to :class:`ReadQueue`; ``times`` counts consecutive visits of the device to this data centre."""

    page: list[tuple[Count, DeviceMessage]]
    more: bool
    times: Count
    storage_incarnation: _StorageIncarnation = msgspec.field(name="start", default=UNSET)


class QueueMoved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answer to any operation on a queue that has moved to the storage ``moved``."""

    moved: Name
    version: _Version


if TYPE_CHECKING:
    Answer: TypeAlias = str | bytes | list[Filter] | Page | QueueMoved | None
else:
    Answer = Any  # ambiguous for msgspec; read_answers decodes by the operation


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request in progress; travels with each :class:`ExecuteOps` and its :class:`OpsExecuted`."""

    gateway: Name
    client: Name
    what: Request
    step: Literal["join", "send", "group", "withdraw", "pull", "data", "named", "spread", "append", "moved"]
    doing: list[tuple[Name, Op]] = msgspec.field(default_factory=list, name="asked")
    todo: list[tuple[Name, Op]] = []
    results: list[tuple[Op, Answer]] = []
    storage_incarnations: _StorageIncarnations = msgspec.field(name="starts", default=UNSET)


class ExecuteOps(_Message, frozen=True, tag="do"):
    """Compute instance to storage: operations to be executed in one transaction."""

    ops: list[Op]
    task: Task = msgspec.field(name="ctx")


class OpsExecuted(_Message, frozen=True, tag="done"):
    """Storage to compute instance: the answers, one for each operation of :class:`ExecuteOps`."""

    results: list[Answer]
    task: Task = msgspec.field(name="ctx")


_ANSWERS: Final[dict[type[Op], Any]] = {
    AppendEntry: Literal["ok", "obsolete", "backlogged", "stranger"],
    ReadQueue: Page,
    FindItem: Opaque | None,
    AddMember: list[Filter],
    SpreadFilter: list[Filter],
}
"""Type of the answer by operation; ``ok`` for all others."""


def read_answers(done: OpsExecuted) -> list[tuple[Op, Answer]] | None:
    """Return all operations of a task with their answers so far; None if an answer does not fit."""
    task = done.task
    if len(done.results) != len(task.doing):
        return None
    new = zip((op for _, op in task.doing), done.results, strict=True)
    try:
        return [(op, _read_answer(op, answer)) for op, answer in (*task.results, *new)]
    except (msgspec.ValidationError, RecursionError):
        return None


def _read_answer(op: Op, answer: Answer) -> Answer:
    """Return an answer in the type of its operation; raise ValidationError if it does not fit."""
    kind = QueueMoved if "moved" in wire_fields(answer) else _ANSWERS.get(type(op), Literal["ok"])
    read: Answer = msgspec.convert(answer, kind)
    return read


# -- between the storages of data centres (4.2.2)


class QueueTransfer(_Message, frozen=True, tag="moving"):
    """Storage to storage: the moved queue of a device, with its white-list and withdrawals.

    ``number`` is the sequence number of the move, scoped to (receiver, incarnation of ``origin``);
    ``open_from`` is that of the oldest unacknowledged move. ``friends_number`` is the number of the
    :class:`OpenQueue` with the white-list. ``withdrawn`` is absent if there are no withdrawals.
    """

    origin: Name
    incarnation: _Incarnation
    number: Count
    device: _Text
    version: _Version
    friends: list[_Text] | None
    friends_number: Count
    entries: list[QueueEntry]
    open_from: Count
    withdrawn: dict[_Text, Count] | UnsetType = UNSET


class HoldsQueue(_Message, frozen=True, tag="holds"):
    """Storage to a restarted storage: the sender holds the queue of a device, with this version."""

    device: _Text
    version: _Version


class QueueAdopted(_Message, frozen=True, tag="adopted"):
    """Storage to storage: acknowledgement of a :class:`QueueTransfer`, after which the sender forgets it."""

    incarnation: _Incarnation
    number: Count


DEVICE_FROM_GATEWAY: Final = Accepts[Deliver | Filled | PushAnswer](Deliver, Filled, PushAnswer)
DEVICE_FROM_DEVICE: Final = Accepts[DeviceMessage](Data, Filter, ChannelKey, ItemKey)
"""Messages in a :class:`Deliver`."""
GATEWAY_FROM_DEVICE: Final = Accepts[Request | Probe | Bye](
    OpenQueue, Push, Membership, Withdraw, Pull, Probe, Bye
)
GATEWAY_FROM_COMPUTE: Final = Accepts[RoutedAnswer](RoutedAnswer)
GATEWAY_FROM_STORAGE: Final = Accepts[QueueFilled | ServerRestarted](QueueFilled, ServerRestarted)
COMPUTE_FROM_GATEWAY: Final = Accepts[RoutedRequest](RoutedRequest)
COMPUTE_FROM_STORAGE: Final = Accepts[OpsExecuted](OpsExecuted)
STORAGE_FROM_COMPUTE: Final = Accepts[ExecuteOps](ExecuteOps)
STORAGE_FROM_STORAGE: Final = Accepts[QueueTransfer | QueueAdopted | HoldsQueue | ServerRestarted](
    QueueTransfer, QueueAdopted, HoldsQueue, ServerRestarted
)
STORAGE_FROM_GATEWAY: Final = Accepts[NotConnected | ServerRestarted](NotConnected, ServerRestarted)


# -- operations: from an application to the module of its device (3.1 to 3.4, 4.1)

PredicateJson: TypeAlias = dict[str, Value]
"""A predicate as :mod:`mudkit.predicates.exchange` encodes it."""


class _Operation(msgspec.Struct, frozen=True, tag_field="operation"):
    """Operation that an application calls on the module of its device."""


class _PortOperation(_Operation, frozen=True):
    """Operation on an open port, or the one that opens it."""

    port: str


class _PortParameters(_PortOperation, frozen=True):
    """Operation with the parameters of a port: polling interval, idle timeout and batch size."""

    polling_us: int
    idle_us: int
    batch: int


class _ItemsOperation(_PortOperation, frozen=True):
    """Operation on the received items of a port."""

    numbers: Sequence[int]
    """Numbers of the items that the application has processed; they are deleted."""


class OpenPort(_PortParameters, frozen=True, tag="open"):
    """Open a port; ``asks``: its application accepts or rejects filters (3.2)."""

    asks: bool


class ConfigurePort(_PortParameters, frozen=True, tag="configure"):
    """Change the parameters of a port (4.1)."""


class Listen(_PortOperation, frozen=True, tag="listen"):
    """Subscribe the application to the items of a port."""


class Publish(_PortOperation, frozen=True, tag="publish"):
    """Publish an item, encoded by :func:`~mudkit.systems.contrail.items.pack` (3.2).

    ``item`` None: a unique name. ``only``: devices among those with a filter; None: all.
    """

    packed: bytes
    item: str | None
    expires_us: int | None
    only: Sequence[str] | None


class InstallFilter(_PortOperation, frozen=True, tag="install"):
    """Install a filter on a device, or on the friends in a group (3.1, 3.4.3); the other target is None.

    ``item_expires_us``: time for which a matching item is useful; ``lifetime_us``: time until the filter
    ends; ``slot``: number of the filter to replace.
    """

    to: str | None
    group: str | None
    remote: str
    predicate: PredicateJson
    item_expires_us: int | None
    lifetime_us: int | None
    slot: int | None


class RemoveFilter(_Operation, frozen=True, tag="remove"):
    """Operation: remove an installed filter, by its number."""

    slot: int


class ReceiveItem(_ItemsOperation, frozen=True, tag="receive"):
    """Return the next item of a port when there is one; delete the processed ones (``numbers``)."""


class ReceiveAll(_ItemsOperation, frozen=True, tag="receive all"):
    """Return all items of a port; delete the processed ones (``numbers``)."""


class DeleteItems(_ItemsOperation, frozen=True, tag="taken"):
    """Delete items of a port that the application has processed."""


class DecideFilter(_Operation, frozen=True, tag="decide"):
    """Operation: accept or reject a received filter by the key of its :class:`~.device.filters.Question`."""

    key: str
    accepted: bool


class Befriend(_Operation, frozen=True, tag="befriend"):
    """Operation: add a device to the white-list, or remove it (3.3)."""

    device: str
    is_friend: bool


class JoinGroup(_Operation, frozen=True, tag="join"):
    """Operation: join a group, or be a member while its rule is true (3.4.3)."""

    group: str
    rule: str | None


class LeaveGroup(_Operation, frozen=True, tag="leave"):
    """Operation: leave a group (3.4.3)."""

    group: str


class GetCounts(_Operation, frozen=True, tag="counts"):
    """Operation: return the numbers of dropped messages and of other problems, by reason."""


class FollowFriends(_Operation, frozen=True, tag="follow"):
    """Operation: look for restarted friends in the directory; called when a friend registers its keys."""


class GetPublicKeys(_Operation, frozen=True, tag="public"):
    """Operation: return the public keys of the device (3.3)."""

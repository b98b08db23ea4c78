"""Messages of Contrail, one struct per kind: between devices, gateways, compute instances and storages.

What a cloud cannot read is :class:`~mudkit.events.Opaque`. Names contain no control characters, because they
are parts of store keys. An explicit null stays a field of the message; an absent field is ``UNSET``. Fields
that a struct does not name are refused: a store may not be able to hold them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from mudkit.events import Opaque
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.wire import wire_fields

__all__ = [
    "COMPUTE_FROM_GATEWAY",
    "COMPUTE_FROM_STORAGE",
    "DEVICE_FROM_DEVICE",
    "DEVICE_FROM_GATEWAY",
    "GATEWAY_FROM_COMPUTE",
    "GATEWAY_FROM_DEVICE",
    "GATEWAY_FROM_STORAGE",
    "STORAGE_FROM_COMPUTE",
    "STORAGE_FROM_GATEWAY",
    "STORAGE_FROM_STORAGE",
    "AddMember",
    "Adopted",
    "Answer",
    "Append",
    "Ask",
    "Bye",
    "CacheItem",
    "Data",
    "Deliver",
    "Destination",
    "DeviceMessage",
    "Do",
    "Done",
    "Drop",
    "Entry",
    "Filled",
    "Filter",
    "FindItem",
    "Gone",
    "Holds",
    "ItemKey",
    "Join",
    "Key",
    "Membership",
    "MoveQueue",
    "Moved",
    "Moving",
    "Op",
    "Page",
    "Pull",
    "QueueEntry",
    "QueueFilled",
    "ReadQueue",
    "RemoveMember",
    "Request",
    "Restarted",
    "SealedFor",
    "SealedMessage",
    "Send",
    "Sent",
    "ShowFriends",
    "Spread",
    "Task",
    "Tell",
    "Unread",
    "Withdraw",
    "WithdrawFrom",
    "read_answers",
]

_MAX_LISTED: Final = 100_000
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern="^[^\x00-\x1f\x7f\ud800-\udfff]+$")]
_Incarnation = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
_Starts = list[_Incarnation] | UnsetType
"""Starts of storages that have answered; absent: they have never started again."""
_Start = _Incarnation | UnsetType
"""Start of the storage of the queue; absent: its first one."""
_Version = Annotated[int, msgspec.Meta(ge=0, le=1 << 26)]
"""Number of moves of a queue; the numbers of its entries begin with it."""


Unread: TypeAlias = Any
"""A message as a cloud has delivered it: its receiver decodes it, see :mod:`.envelopes`."""


class _Message(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
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
    """Device to device: an item (3.1, 4.1).

    Without a body, the provider takes the body from its cache (3.4.1). In a queue the item has one
    destination and its body (4.2.2).
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


class Key(SealedMessage, frozen=True, tag="key"):
    """Sender of a channel to a receiver: the channel's key (3.3); ``slot`` is the epoch."""


class ItemKey(SealedMessage, frozen=True, tag="item key"):
    """Sender to a receiver without the channel's key: the key of one item; ``slot`` is its number."""


DeviceMessage: TypeAlias = Data | Filter | Key | ItemKey


# -- between a device and a gateway (4.1, 4.2.2)


class Join(_Message, frozen=True, tag="join"):
    """Device to gateway: create the queue; show the white-list (3.3) or do not (None)."""

    device: _Text
    number: Count
    friends: Annotated[list[_Text], msgspec.Meta(max_length=_MAX_LISTED)] | None


class Send(_Message, frozen=True, tag="send"):
    """Device to gateway: push a message for other devices (4.1)."""

    device: _Text
    number: Count
    message: DeviceMessage


class Membership(_Message, frozen=True, tag="group"):
    """Device to gateway: join a group of publishers, or leave it (3.4.3)."""

    device: _Text
    number: Count
    group: _Text
    joins: bool


class Withdraw(_Message, frozen=True, tag="withdraw"):
    """Device to gateway: remove what this device has sent to a former friend from the queue of that.

    The paper has no such message; it says that only friends communicate (3.3).
    """

    device: _Text
    number: Count
    receiver: _Text


class Pull(_Message, frozen=True, tag="pull"):
    """Device to gateway: fetch what waits, acknowledge entries, keep the connection open or not (4.1).

    Visits are numbered over all starts of the device. ``start`` is that of the page with these entries.
    """

    device: _Text
    visit: Count
    got: Annotated[list[Count], msgspec.Meta(max_length=_MAX_LISTED)]
    hold: bool
    start: _Start = UNSET


class Bye(_Message, frozen=True, tag="bye"):
    """Device to gateway: the connection of a visit is closed."""

    device: _Text
    visit: Count


class Sent(_Message, frozen=True, tag="sent"):
    """Gateway to device: outcome of a push by endpoint; None: the cache has no body, send it."""

    number: Count
    results: Annotated[list[tuple[str, str, str]], msgspec.Meta(max_length=_MAX_LISTED)] | None
    starts: _Starts = UNSET


class Deliver(_Message, frozen=True, tag="deliver"):
    """Gateway to device: entries of its queue, by number.

    The receiver decodes each message on its own: a cloud may have changed any of them (3.3).
    """

    visit: Count
    page: Annotated[list[tuple[Count, Unread]], msgspec.Meta(max_length=_MAX_LISTED)]
    more: bool
    start: _Start = UNSET


class Filled(_Message, frozen=True, tag="filled"):
    """Gateway to device: something waits, fetch it over the open connection."""


Request: TypeAlias = Join | Send | Membership | Withdraw | Pull


# -- between a gateway and the other tiers (4.2.2)


class Ask(_Message, frozen=True, tag="ask"):
    """Gateway to compute instance: the request of a device; ``client`` is the address to answer to."""

    gateway: Name
    client: Name
    what: Request
    tries: Count


class Tell(_Message, frozen=True, tag="tell"):
    """Compute instance to gateway: a message for the device at an address."""

    to: Name
    message: Deliver | Sent


class QueueFilled(_Message, frozen=True, tag="filled"):
    """Storage to gateway: something waits for a device.

    ``client``: its address, if the gateway has started again and may not know it.
    """

    device: _Text
    client: Name | UnsetType = UNSET


class Restarted(_Message, frozen=True, tag="restarted"):
    """Gateway to storage, storage to gateway or storage: it has started again, perhaps with an old store."""


class Gone(_Message, frozen=True, tag="gone"):
    """Gateway to storage: the device holds no connection here."""

    device: _Text


# -- between compute instances and storages (4.2.2)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entry for a queue; it replaces an older entry of the same slot."""

    slot: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    seq: Count
    expires_us: Count | None
    message: DeviceMessage


class QueueEntry(Entry, frozen=True):
    """Entry in a queue, with the number by which its sender may withdraw it."""

    number: Count


class _Op(msgspec.Struct, frozen=True, tag_field="op", kw_only=True, forbid_unknown_fields=True):
    version: _Version | UnsetType = UNSET
    """Move of the queue by which the instance was redirected here; absent: it was not."""


class ShowFriends(_Op, frozen=True, tag="join"):
    """Store the white-list of a device."""

    device: _Text
    friends: list[_Text] | None


class Append(_Op, frozen=True, tag="append"):
    """Append an entry to the queue of a device."""

    device: _Text
    entry: Entry


class ReadQueue(_Op, frozen=True, tag="read"):
    """Read a queue; ``watcher`` is the gateway that holds the device's connection."""

    device: _Text
    watcher: Name | None
    most_bytes: Count
    here: Name
    begins: bool


class Drop(_Op, frozen=True, tag="drop"):
    """Remove entries that a device has acknowledged."""

    device: _Text
    numbers: list[Count]
    start: _Start = UNSET


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


class AddMember(_Op, frozen=True, tag="member"):
    """Add a device to a group."""

    group: _Text
    member: _Text


class RemoveMember(_Op, frozen=True, tag="unmember"):
    """Remove a device from a group."""

    group: _Text
    member: _Text


class Spread(_Op, frozen=True, tag="spread"):
    """Store a filter for the members of a group."""

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
    | Append
    | ReadQueue
    | Drop
    | CacheItem
    | FindItem
    | AddMember
    | RemoveMember
    | Spread
    | WithdrawFrom
    | MoveQueue
)


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answer to :class:`ReadQueue`; ``times``: consecutive visits of the device to one data centre."""

    page: list[tuple[Count, DeviceMessage]]
    more: bool
    times: Count
    start: _Start = UNSET


class Moved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answer to any operation on a queue that has moved to the storage ``moved``."""

    moved: Name
    version: _Version


if TYPE_CHECKING:
    Answer: TypeAlias = str | bytes | list[Filter] | Page | Moved | None
else:
    Answer = Any  # msgspec cannot tell these apart by themselves; read_answers does, by the operation


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request that a compute instance works on; it travels with each :class:`Do` and its :class:`Done`."""

    gateway: Name
    client: Name
    what: Request
    step: Literal["join", "send", "group", "withdraw", "pull", "data", "named", "spread", "append", "moved"]
    asked: list[tuple[Name, Op]] = []
    todo: list[tuple[Name, Op]] = []
    results: list[tuple[Op, Answer]] = []
    starts: _Starts = UNSET


class Do(_Message, frozen=True, tag="do"):
    """Compute instance to storage: operations of one transaction."""

    ops: list[Op]
    task: Task = msgspec.field(name="ctx")


class Done(_Message, frozen=True, tag="done"):
    """Storage to compute instance: one answer per operation."""

    results: list[Answer]
    task: Task = msgspec.field(name="ctx")


_ANSWERS: Final[dict[type[Op], Any]] = {
    Append: Literal["ok", "obsolete", "backlogged", "stranger"],
    ReadQueue: Page,
    FindItem: Opaque | None,
    AddMember: list[Filter],
    Spread: list[Filter],
}
"""Type of the answer by operation; of all others it is ``ok``."""


def read_answers(done: Done) -> list[tuple[Op, Answer]] | None:
    """Return all operations answered so far with their answers; None if an answer does not fit."""
    task = done.task
    if len(done.results) != len(task.asked):
        return None
    new = zip((op for _, op in task.asked), done.results, strict=True)
    try:
        return [(op, _read_answer(op, answer)) for op, answer in (*task.results, *new)]
    except (msgspec.ValidationError, RecursionError):
        return None


def _read_answer(op: Op, answer: Answer) -> Answer:
    kind = Moved if "moved" in wire_fields(answer) else _ANSWERS.get(type(op), Literal["ok"])
    read: Answer = msgspec.convert(answer, kind)
    return read


# -- between the storages of data centres (4.2.2)


class Moving(_Message, frozen=True, tag="moving"):
    """Storage to storage: the queue of a device, with its white-list and what was withdrawn from it.

    ``number`` counts the moves from this incarnation of ``origin`` to the receiver; ``open_from`` is the
    number of the oldest that is not acknowledged. ``friends_number`` is that of the :class:`Join` with the
    white-list. ``withdrawn`` is absent if nothing was.
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


class Holds(_Message, frozen=True, tag="holds"):
    """Storage to a storage that has started again: the queue of a device is here since this move."""

    device: _Text
    version: _Version


class Adopted(_Message, frozen=True, tag="adopted"):
    """Storage to storage: a queue has arrived."""

    incarnation: _Incarnation
    number: Count


DEVICE_FROM_GATEWAY: Final = Accepts[Deliver | Filled | Sent](Deliver, Filled, Sent)
DEVICE_FROM_DEVICE: Final = Accepts[DeviceMessage](Data, Filter, Key, ItemKey)
"""What a module takes out of a :class:`Deliver`."""
GATEWAY_FROM_DEVICE: Final = Accepts[Request | Bye](Join, Send, Membership, Withdraw, Pull, Bye)
GATEWAY_FROM_COMPUTE: Final = Accepts[Tell](Tell)
GATEWAY_FROM_STORAGE: Final = Accepts[QueueFilled | Restarted](QueueFilled, Restarted)
COMPUTE_FROM_GATEWAY: Final = Accepts[Ask](Ask)
COMPUTE_FROM_STORAGE: Final = Accepts[Done](Done)
STORAGE_FROM_COMPUTE: Final = Accepts[Do](Do)
STORAGE_FROM_STORAGE: Final = Accepts[Moving | Adopted | Holds | Restarted](Moving, Adopted, Holds, Restarted)
STORAGE_FROM_GATEWAY: Final = Accepts[Gone | Restarted](Gone, Restarted)

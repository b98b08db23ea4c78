"""Every message of Contrail on the wire: who sends it, who takes it, and the section of the paper.

Machines check what has come against these before they look at it. Nothing here can be decrypted: what is
sealed or encrypted is bytes. Names hold no control characters, as they are parts of the keys of stores.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from mudkit.systems.receiving import Count, Name

__all__ = [
    "ANSWERS",
    "Adopted",
    "Ask",
    "Bye",
    "Data",
    "DataCopy",
    "Deliver",
    "Destination",
    "Do",
    "Done",
    "Filled",
    "Filter",
    "FilterCopy",
    "Gone",
    "ItemKey",
    "ItemKeyCopy",
    "Join",
    "Key",
    "KeyCopy",
    "Membership",
    "Moved",
    "Moving",
    "Page",
    "Pull",
    "QueueFilled",
    "SealedFor",
    "Send",
    "Sent",
    "Tell",
    "Withdraw",
]

_MOST_BODY: Final = 1_200_000
"""An item of 1 MiB, what the deliveries call it, and what encryption adds."""
_MOST_LISTED: Final = 100_000

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern="^[^\x00-\x1f\x7f\ud800-\udfff]+$")]
Body = Annotated[bytes, msgspec.Meta(max_length=_MOST_BODY)]
Moves = Annotated[int, msgspec.Meta(ge=0, le=1 << 26)]
"""How often a queue has moved: numbers of what waits in it begin with that."""
Slot = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class _Typed(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """A message; what it does not name is not taken: a store may not be able to hold it."""


# -- what devices send each other


class Destination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an item goes (Figure 3): an end-point, when it expires there (None: never), and a tag for it."""

    device: Text
    port: Text
    expires_us: Count | None
    tag: Body


class SealedFor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a filter or a key goes, and what only that device can read."""

    device: Text
    port: Text
    sealed: Body
    signature: Body


class Data(_Typed, frozen=True, tag="data", rename={"source": "from"}):
    """An item, from device to device (3.1, 4.1); without its body, a provider has it in its cache (3.4.1)."""

    source: Text
    port: Text
    item: Text
    seq: Count
    epoch: Count
    to: Annotated[list[Destination], msgspec.Meta(max_length=_MOST_LISTED)]
    body: Body | None


class DataCopy(Data, frozen=True, tag="data"):
    """An item as it lies in a queue: for one destination (4.2.2)."""

    to: Annotated[list[Destination], msgspec.Meta(min_length=1, max_length=1)]
    body: Body


class Filter(_Typed, frozen=True, tag="filter", rename={"source": "from"}):
    """A filter, from device to device or to a group (3.1, 3.4.3); ``slot`` is its number there.

    ``group`` is None for a filter on devices, ``expires_us`` for one that lasts.
    """

    source: Text
    port: Text
    number: Count
    slot: Count
    group: Text | None
    expires_us: Count | None
    to: Annotated[list[SealedFor], msgspec.Meta(max_length=_MOST_LISTED)]


class FilterCopy(Filter, frozen=True, tag="filter"):
    """A filter as it lies in a queue: for one destination (4.2.2)."""

    to: Annotated[list[SealedFor], msgspec.Meta(min_length=1, max_length=1)]


class Key(_Typed, frozen=True, tag="key", rename={"source": "from"}):
    """The key of a channel, from its sender to a receiver (3.3); ``slot`` is the epoch."""

    source: Text
    port: Text
    number: Count
    slot: Count
    group: None
    expires_us: None
    to: Annotated[list[SealedFor], msgspec.Meta(max_length=_MOST_LISTED)]


class KeyCopy(Key, frozen=True, tag="key"):
    """The key of a channel as it lies in a queue: for one destination (4.2.2)."""

    to: Annotated[list[SealedFor], msgspec.Meta(min_length=1, max_length=1)]


class ItemKey(Key, frozen=True, tag="item key"):
    """The key of one item, for a receiver who came too late for the channel's; ``slot`` is its number."""


class ItemKeyCopy(KeyCopy, frozen=True, tag="item key"):
    """The key of one item as it lies in a queue: for one destination (4.2.2)."""


# -- what a device and a gateway send each other (4.1, 4.2.2)


class Join(_Typed, frozen=True, tag="join"):
    """A device makes itself known, and shows its white-list (3.3) or does not (None)."""

    device: Text
    number: Count
    friends: Annotated[list[Text], msgspec.Meta(max_length=_MOST_LISTED)] | None


class Send(_Typed, frozen=True, tag="send"):
    """A device pushes a message for others."""

    device: Text
    number: Count
    message: Data | Filter | Key | ItemKey


class Membership(_Typed, frozen=True, tag="group"):
    """A device joins a group of publishers, or leaves it (3.4.3)."""

    device: Text
    number: Count
    group: Text
    joins: bool


class Withdraw(_Typed, frozen=True, tag="withdraw"):
    """A device takes back what it has sent to another one and waits there: they are friends no more.

    The paper has no such message: it says that communication is between friends only (3.3).
    """

    device: Text
    number: Count
    receiver: Text


class Pull(_Typed, frozen=True, tag="pull"):
    """A device asks for what waits, says what it has got, and whether the connection is to stay open."""

    device: Text
    visit: Count
    got: Annotated[list[Count], msgspec.Meta(max_length=_MOST_LISTED)]
    hold: bool


class Bye(_Typed, frozen=True, tag="bye"):
    """A device closes its connection."""

    device: Text


class Sent(_Typed, frozen=True, tag="sent"):
    """What became of a push, by end-point; None: the item is not in the cache, its body is needed."""

    number: Count
    results: Annotated[list[tuple[str, str, str]], msgspec.Meta(max_length=_MOST_LISTED)] | None


class Page(_Typed, frozen=True, tag="deliver"):
    """What waits for a device, by number; a cloud may have changed it: the module looks for itself."""

    visit: Count
    page: Annotated[list[Any], msgspec.Meta(max_length=_MOST_LISTED)]
    more: bool


class Filled(_Typed, frozen=True, tag="filled"):
    """Something waits for a device that holds a connection."""


# -- what the tiers of a cloud send each other (4.2.2)

_Copy = DataCopy | FilterCopy | KeyCopy | ItemKeyCopy
_What = Join | Send | Membership | Withdraw | Pull


class Deliver(Page, frozen=True, tag="deliver"):
    """A page, from a compute instance."""

    page: list[tuple[Count, _Copy]]


class Tell(_Typed, frozen=True, tag="tell"):
    """From a compute instance to a gateway: this is for a device at an address."""

    to: Name
    message: Deliver | Sent


class QueueFilled(_Typed, frozen=True, tag="filled"):
    """From storage to a gateway: something waits for a device."""

    device: Text


class Gone(_Typed, frozen=True, tag="gone"):
    """From a gateway to storage: a device holds no connection here."""

    device: Text


class Ask(_Typed, frozen=True, tag="ask"):
    """From a gateway to a compute instance: what a device at an address asks for."""

    gateway: Name
    client: Name
    what: _What
    tries: Count


class _Op(msgspec.Struct, frozen=True, tag_field="op", kw_only=True, forbid_unknown_fields=True):
    """What storage does. ``version``: the move of a queue by which the instance was sent here."""

    version: Moves = 0


class _OpJoin(_Op, frozen=True, tag="join"):
    device: Text
    friends: list[Text] | None


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    slot: Slot
    seq: Count
    expires_us: Count | None
    message: _Copy


class _OpAppend(_Op, frozen=True, tag="append"):
    device: Text
    entry: _Entry


class _OpRead(_Op, frozen=True, tag="read"):
    device: Text
    watcher: Name | None
    most_bytes: Count
    here: Name
    begins: bool


class _OpDrop(_Op, frozen=True, tag="drop"):
    device: Text
    numbers: list[Count]


class _OpCache(_Op, frozen=True, tag="cache"):
    source: Text
    port: Text
    item: Text
    seq: Count
    epoch: Count
    body: Body


class _OpCached(_Op, frozen=True, tag="cached"):
    source: Text
    port: Text
    item: Text
    seq: Count
    epoch: Count


class _OpMember(_Op, frozen=True, tag="member"):
    group: Text
    member: Text


class _OpUnmember(_Op, frozen=True, tag="unmember"):
    group: Text
    member: Text


class _OpSpread(_Op, frozen=True, tag="spread"):
    group: Text
    filter: Filter


class _OpWithdraw(_Op, frozen=True, tag="withdraw"):
    device: Text
    source: Text
    number: Count


class _OpMove(_Op, frozen=True, tag="move"):
    device: Text
    to: Name


_AnyOp = (
    _OpJoin
    | _OpAppend
    | _OpRead
    | _OpDrop
    | _OpCache
    | _OpCached
    | _OpMember
    | _OpUnmember
    | _OpSpread
    | _OpWithdraw
    | _OpMove
)


class _Ctx(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a compute instance has begun: it comes back with the answer."""

    gateway: Name
    client: Name
    what: _What
    step: Literal["join", "send", "group", "withdraw", "pull", "data", "named", "spread", "append", "moved"]
    asked: list[tuple[Name, _AnyOp]]
    todo: list[tuple[Name, _AnyOp]]
    results: list[tuple[_AnyOp, Any]]


class Do(_Typed, frozen=True, tag="do"):
    """From a compute instance to storage: what is to be done, in one transaction."""

    ops: list[_AnyOp]
    ctx: _Ctx


class Done(_Typed, frozen=True, tag="done"):
    """From storage to a compute instance: the answers, of each operation one (``ANSWERS``)."""

    results: list[Any]
    ctx: _Ctx


class _Waiting(_Entry, frozen=True):
    """As it waits: with the number by which its sender may withdraw it."""

    number: Count


class Moving(_Typed, frozen=True, tag="moving"):
    """From storage to that of another data centre: the queue of a device, and what was withdrawn from it."""

    origin: Name
    number: Count
    to: Name
    device: Text
    version: Moves
    friends: list[Text] | None
    entries: list[_Waiting]
    open_from: Count
    withdrawn: dict[Text, Count] = {}


class Adopted(_Typed, frozen=True, tag="adopted"):
    """From storage to that of another data centre: a queue has arrived."""

    number: Count


class Moved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer of storage: the queue has gone to another data centre."""

    moved: Name
    version: Moves


class _Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    page: list[tuple[Count, _Copy]]
    more: bool
    times: Count


ANSWERS: Final[dict[str, Any]] = {
    "append": Literal["ok", "obsolete", "backlogged", "stranger"],
    "read": _Read,
    "cached": Body | None,
    "member": list[FilterCopy],
    "spread": list[FilterCopy],
}
"""What storage answers, by operation; else it is ``ok``."""

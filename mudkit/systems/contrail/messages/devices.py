"""What devices and the gateways of a cloud send each other.

Names hold no control characters, as they are parts of the keys of stores.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from mudkit.systems.receiving import Count

__all__ = [
    "AnyCopy",
    "Body",
    "Bye",
    "Data",
    "DataCopy",
    "Destination",
    "Filled",
    "Filter",
    "FilterCopy",
    "ItemKey",
    "ItemKeyCopy",
    "Join",
    "Key",
    "KeyCopy",
    "Membership",
    "Moves",
    "Page",
    "Pull",
    "Request",
    "SealedFor",
    "Send",
    "Sent",
    "Slot",
    "Text",
    "TypedMessage",
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


class TypedMessage(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
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


class Data(TypedMessage, frozen=True, tag="data", rename={"source": "from"}):
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


class Filter(TypedMessage, frozen=True, tag="filter", rename={"source": "from"}):
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


class Key(TypedMessage, frozen=True, tag="key", rename={"source": "from"}):
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


class Join(TypedMessage, frozen=True, tag="join"):
    """A device makes itself known, and shows its white-list (3.3) or does not (None)."""

    device: Text
    number: Count
    friends: Annotated[list[Text], msgspec.Meta(max_length=_MOST_LISTED)] | None


class Send(TypedMessage, frozen=True, tag="send"):
    """A device pushes a message for others."""

    device: Text
    number: Count
    message: Data | Filter | Key | ItemKey


class Membership(TypedMessage, frozen=True, tag="group"):
    """A device joins a group of publishers, or leaves it (3.4.3)."""

    device: Text
    number: Count
    group: Text
    joins: bool


class Withdraw(TypedMessage, frozen=True, tag="withdraw"):
    """A device takes back what it has sent to another one and waits there: they are friends no more.

    The paper has no such message: it says that communication is between friends only (3.3).
    """

    device: Text
    number: Count
    receiver: Text


class Pull(TypedMessage, frozen=True, tag="pull"):
    """A device asks for what waits, says what it has got, and whether the connection is to stay open."""

    device: Text
    visit: Count
    got: Annotated[list[Count], msgspec.Meta(max_length=_MOST_LISTED)]
    hold: bool


class Bye(TypedMessage, frozen=True, tag="bye"):
    """A device closes its connection."""

    device: Text


class Sent(TypedMessage, frozen=True, tag="sent"):
    """What became of a push, by end-point; None: the item is not in the cache, its body is needed."""

    number: Count
    results: Annotated[list[tuple[str, str, str]], msgspec.Meta(max_length=_MOST_LISTED)] | None


class Page(TypedMessage, frozen=True, tag="deliver"):
    """What waits for a device, by number; a cloud may have changed it: the module looks for itself."""

    visit: Count
    page: Annotated[list[Any], msgspec.Meta(max_length=_MOST_LISTED)]
    more: bool


class Filled(TypedMessage, frozen=True, tag="filled"):
    """Something waits for a device that holds a connection."""


# -- what the tiers of a cloud send each other (4.2.2)

AnyCopy = DataCopy | FilterCopy | KeyCopy | ItemKeyCopy
Request = Join | Send | Membership | Withdraw | Pull

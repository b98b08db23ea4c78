"""Operations of applications on the client module of their device."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mudkit.systems.contrail.device.filters import PredicateJson

__all__ = [
    "Befriend",
    "Configure",
    "Counts",
    "Decide",
    "Follow",
    "Install",
    "Join",
    "Leave",
    "Listen",
    "Open",
    "Public",
    "Publish",
    "Receive",
    "ReceiveAll",
    "Remove",
    "Taken",
]


class Open(msgspec.Struct, frozen=True, tag_field="operation", tag="open"):
    """Open a port; ``asks``: its application decides about filters (Contrail 3.2)."""

    port: str
    polling_us: int
    idle_us: int
    batch: int
    asks: bool


class Configure(msgspec.Struct, frozen=True, tag_field="operation", tag="configure"):
    """Change the parameters of a port (4.1)."""

    port: str
    polling_us: int
    idle_us: int
    batch: int


class Listen(msgspec.Struct, frozen=True, tag_field="operation", tag="listen"):
    """Notify the application of the items of a port from now on."""

    port: str


class Publish(msgspec.Struct, frozen=True, tag_field="operation", tag="publish"):
    """Publish an item (3.2).

    Parameters
    ----------
    port : str
    packed : bytes
        The item, see :func:`~mudkit.systems.contrail.items.pack`.
    item : str or None
        Its name; None: a unique name.
    expires_us : int or None
        Time until it expires, in µs; None: never.
    only : sequence of str or None
        Receiving devices among those with a filter; None: all.
    """

    port: str
    packed: bytes
    item: str | None
    expires_us: int | None
    only: Sequence[str] | None


class Install(msgspec.Struct, frozen=True, tag_field="operation", tag="install"):
    """Install a filter on a device, or on the friends in a group (3.1, 3.4.3).

    Parameters
    ----------
    port : str
    to, group : str or None
        The device, or the group; the other is None.
    remote : str
        The port there.
    predicate : dict
    item_expires_us : int or None
        Time for which a matching item is wanted, in µs; None: its own.
    lifetime_us : int or None
        Time until the filter ends, in µs; None: never.
    slot : int or None
        Number of the filter that it replaces; None: a new filter.
    """

    port: str
    to: str | None
    group: str | None
    remote: str
    predicate: PredicateJson
    item_expires_us: int | None
    lifetime_us: int | None
    slot: int | None


class Remove(msgspec.Struct, frozen=True, tag_field="operation", tag="remove"):
    """Remove an installed filter, by its number."""

    slot: int


class Receive(msgspec.Struct, frozen=True, tag_field="operation", tag="receive"):
    """Wait for the next item of a port; ``numbers``: items that the application has taken."""

    port: str
    numbers: Sequence[int]


class ReceiveAll(msgspec.Struct, frozen=True, tag_field="operation", tag="receive all"):
    """Return the items of a port; ``numbers``: items that the application has taken."""

    port: str
    numbers: Sequence[int]


class Taken(msgspec.Struct, frozen=True, tag_field="operation", tag="taken"):
    """Forget items of a port that the application has taken."""

    port: str
    numbers: Sequence[int]


class Decide(msgspec.Struct, frozen=True, tag_field="operation", tag="decide"):
    """Accept or reject a received filter, by the key of the question."""

    key: str
    accepted: bool


class Befriend(msgspec.Struct, frozen=True, tag_field="operation", tag="befriend"):
    """Add a device to the white-list, or remove it (3.3)."""

    device: str
    is_friend: bool


class Join(msgspec.Struct, frozen=True, tag_field="operation", tag="join"):
    """Join a group, or follow its rule from now on (3.4.3)."""

    group: str
    rule: str | None


class Leave(msgspec.Struct, frozen=True, tag_field="operation", tag="leave"):
    """Leave a group (3.4.3)."""

    group: str


class Counts(msgspec.Struct, frozen=True, tag_field="operation", tag="counts"):
    """Return the numbers of dropped messages by reason."""


class Follow(msgspec.Struct, frozen=True, tag_field="operation", tag="follow"):
    """Follow a friend that has started again, as the directory shows it."""


class Public(msgspec.Struct, frozen=True, tag_field="operation", tag="public"):
    """Return the public keys of the device (3.3)."""

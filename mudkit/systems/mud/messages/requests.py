"""What clients ask of gateways, and say to notification servers (Mobius 3.1, 4.2)."""

from __future__ import annotations

from typing import Literal

import msgspec

from mudkit.systems.mud.messages.parts import Endpoint, Fields, Predicate
from mudkit.systems.receiving import Count, Name

__all__ = [
    "Administer",
    "Alter",
    "Ask",
    "Asked",
    "Asks",
    "Confirmed",
    "Create",
    "Drop",
    "Hello",
    "OfContinuousRead",
    "Read",
    "Register",
    "Unregister",
    "UpdateData",
    "What",
    "Write",
]


class Read(msgspec.Struct, frozen=True, tag_field="op", tag="read"):
    """A read (Mobius 3.1)."""

    name: Name
    table: Count | None
    predicate: Predicate | None
    keys: list[str] | None
    reader: Fields
    aggregate: str | None
    latest: bool
    seen: dict[str, Count]


class Write(msgspec.Struct, frozen=True, tag_field="op", tag="write"):
    """A write or a delete (Mobius 3.1)."""

    name: Name
    table: Count | None
    key: Name
    type: Literal["blind", "conditional"]
    data: Fields | None
    predicate: Predicate | None
    reader: Fields
    replaces: Count | None
    number: Count
    known: Count
    incarnation: Name


class Administer(msgspec.Struct, frozen=True):
    """What is asked about a table as a whole has this."""

    name: Name
    properties: Fields


class Create(Administer, frozen=True, tag_field="op", tag="create"):
    """Create a table."""


class Alter(Administer, frozen=True, tag_field="op", tag="alter"):
    """Alter the properties of a table."""


class Drop(Administer, frozen=True, tag_field="op", tag="drop"):
    """Drop a table."""


class OfContinuousRead(msgspec.Struct, frozen=True):
    """What is asked about a continuous read has this."""

    name: Name
    handle: Name
    reader: Fields
    data_seq: Count


class Register(OfContinuousRead, frozen=True, tag_field="op", tag="register"):
    """Register a continuous read (Mobius 4.2)."""

    request: Count
    session: Name
    predicate: Predicate
    since: dict[str, Count]
    held: list[Name]
    sync_us: Count | None
    table: Count | None


class UpdateData(OfContinuousRead, frozen=True, tag_field="op", tag="update_data"):
    """Replace the reader's data of a continuous read."""


class Unregister(OfContinuousRead, frozen=True, tag_field="op", tag="unregister"):
    """End a continuous read."""


What = Read | Write | Create | Alter | Drop | Register | UpdateData | Unregister


class Asked(msgspec.Struct, frozen=True):
    """One request of a client."""

    id: Name
    what: What


class Ask(Asked, frozen=True, tag_field="kind", tag="ask"):
    """Client to gateway: something is asked, again and again until it is answered."""

    client: Endpoint
    token: str | None


class Asks(msgspec.Struct, frozen=True, tag_field="kind", tag="asks"):
    """Client to gateway: the same for several."""

    client: Endpoint
    token: str | None
    asks: list[Asked]


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Client to notification server: where it is, and that it lives (Mobius 5)."""

    endpoint: Endpoint
    session: str | None
    is_new: bool
    policies: dict[str, Count]


class Confirmed(msgspec.Struct, frozen=True, tag_field="kind", tag="confirmed"):
    """Receiver to sender of a stream: up to where it has everything."""

    stream: Name
    number: Count

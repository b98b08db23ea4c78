"""What the machines of the cloud send each other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mudkit.systems.mud.messages.parts import (
    Claims,
    Endpoint,
    Error,
    Fields,
    Number,
    Predicate,
    Row,
    Table,
    fit_together,
)
from mudkit.systems.receiving import Count, Name

__all__ = [
    "Admin",
    "Administered",
    "Describe",
    "Described",
    "Document",
    "DropEntry",
    "Follow",
    "Followed",
    "Gone",
    "Has",
    "Life",
    "Log",
    "Outcome",
    "Part",
    "PassedOfContinuousRead",
    "PassedRead",
    "PassedRegister",
    "PassedUnregister",
    "PassedUpdate",
    "PassedWrite",
    "Policy",
    "PolicyFor",
    "Registered",
    "Remove",
    "RowEntry",
    "State",
    "Stream",
    "StreamOfGenerator",
    "StreamOfProcessor",
    "TableEntry",
    "Tell",
    "ToProcessor",
    "Upsert",
]


class Describe(msgspec.Struct, frozen=True, tag_field="kind", tag="describe"):
    """Gateway to back end: what a table is, and those that a read looks into."""

    id: Name
    name: Name
    claims: Claims | None
    joined: list[str] | UnsetType = UNSET


class Admin(msgspec.Struct, frozen=True, tag_field="kind", tag="admin"):
    """Gateway to back end: create, alter or drop a table."""

    id: Name
    op: Literal["create", "alter", "drop"]
    name: Name
    properties: Fields
    claims: Claims | None


class ToProcessor(msgspec.Struct, frozen=True):
    """What a gateway sends to a processor has this."""

    id: Name
    reply: Name


class PassedRead(ToProcessor, frozen=True, tag_field="kind", tag="read"):
    """Gateway to processor to replica or back end: a partition's part of a read."""

    name: Name
    table: Count
    partition: Count
    predicate: Predicate | None
    keys: list[str] | None
    reader: Fields
    auth: dict[str, str]
    aggregate: str | None
    latest: bool
    least: Count


class PassedWrite(ToProcessor, frozen=True, tag_field="kind", tag="write"):
    """Gateway to processor to back end: a write; ``refused``: its token is not valid any more."""

    client: Endpoint
    incarnation: Name
    claims: Claims | None
    refused: Error | None
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


class PassedOfContinuousRead(ToProcessor, frozen=True):
    """What a gateway passes on about a continuous read has this."""

    endpoint: Endpoint
    handle: Name
    reader: Fields
    data_seq: Count


class PassedRegister(PassedOfContinuousRead, frozen=True, tag_field="kind", tag="register"):
    """Gateway to processor: a continuous read on some partitions of a table."""

    name: Name
    request: Count
    session: Name
    predicate: Predicate
    since: dict[str, Count]
    held: list[Name]
    sync_us: Count | None
    table: Count
    partitions: list[Count]
    auth: dict[str, str]
    claims: Claims | None
    expires_s: float | None
    least: Count

    def __post_init__(self) -> None:
        fit_together(self.expires_s == (None if self.claims is None else self.claims.expires_s))


class PassedUpdate(PassedOfContinuousRead, frozen=True, tag_field="kind", tag="update_data"):
    """Gateway to processor: what a reader says of itself from now on."""


class PassedUnregister(PassedOfContinuousRead, frozen=True, tag_field="kind", tag="unregister"):
    """Gateway to processor: a continuous read is over."""


class Follow(msgspec.Struct, frozen=True, tag_field="kind", tag="follow"):
    """Follower to back end, or notification server to generator: it begins, and asks for all there is."""

    turn: str = ""


class Has(msgspec.Struct, frozen=True, tag_field="kind", tag="has"):
    """Follower to back end: up to where it has the log."""

    lsn: Number


class RowEntry(msgspec.Struct, frozen=True, tag_field="op", tag="row"):
    """An entry of the log: a version of a record."""

    lsn: Count
    name: Name
    row: Row

    def __post_init__(self) -> None:
        fit_together(self.row.lsn == self.lsn)


class TableEntry(msgspec.Struct, frozen=True, tag_field="op", tag="table"):
    """An entry of the log: a table as it is from here on."""

    lsn: Count
    table: Table


class DropEntry(msgspec.Struct, frozen=True, tag_field="op", tag="drop"):
    """An entry of the log: a table that is gone from here on."""

    lsn: Count
    name: Name


class Log(msgspec.Struct, frozen=True, tag_field="kind", tag="log"):
    """Back end to follower: the next entries of the log."""

    entries: list[RowEntry | TableEntry | DropEntry]


class State(msgspec.Struct, frozen=True, tag_field="kind", tag="state"):
    """Back end to follower: all tables and rows."""

    turn: str
    lsn: Count
    tables: list[Table]
    rows: list[tuple[Name, Row]]


class Described(msgspec.Struct, frozen=True, tag_field="kind", tag="described"):
    """Back end to gateway: a table, or why not."""

    id: Name
    table: Table | None
    error: Error | None
    joined: list[Table] | UnsetType = UNSET

    def __post_init__(self) -> None:
        fit_together((self.table is None) is not (self.error is None))


class Administered(msgspec.Struct, frozen=True, tag_field="kind", tag="administered"):
    """Back end to gateway to client: what came of it."""

    id: Name
    table: Table | UnsetType | None = UNSET
    dropped: Count | UnsetType = UNSET
    error: Error | UnsetType = UNSET
    claims: Claims | None = None

    def __post_init__(self) -> None:
        fit_together((self.table is UNSET) is not (self.error is UNSET))
        fit_together(self.table is not None or self.dropped is not UNSET)


class Outcome(msgspec.Struct, frozen=True, tag_field="kind", tag="outcome"):
    """Back end to gateway to client: what came of a write: a version, a conflict, or an error."""

    id: Name
    key: Name
    ver: Count | UnsetType = UNSET
    conflict: Row | UnsetType | None = UNSET
    lsn: Count | UnsetType = UNSET
    partition: Count | UnsetType = UNSET
    table: Count | UnsetType = UNSET
    error: Error | UnsetType = UNSET
    claims: Claims | None = None

    def __post_init__(self) -> None:
        fit_together((self.ver, self.conflict, self.error).count(UNSET) == 2)
        fit_together(self.error is not UNSET or UNSET not in (self.lsn, self.partition, self.table))


class Part(msgspec.Struct, frozen=True, tag_field="kind", tag="part"):
    """Back end or replica to gateway to client: a partition's part of an answer."""

    id: Name
    partition: Count
    lsn: Count
    rows: list[Row] | UnsetType = UNSET
    state: list[Any] | UnsetType = UNSET
    error: Error | UnsetType = UNSET

    def __post_init__(self) -> None:
        fit_together((self.rows, self.state, self.error).count(UNSET) == 2)


class Registered(msgspec.Struct, frozen=True, tag_field="kind", tag="registered"):
    """Processor to gateway to client: it has a continuous read, its reader's data, or has ended it."""

    id: Name
    life: Count
    lsn: Number
    data_seq: Count
    error: Error | UnsetType = UNSET


class Upsert(msgspec.Struct, frozen=True, tag_field="op", tag="upsert"):
    """A change of a continuous read: a record is new to it, or has another version."""

    key: Name
    ver: Count
    data: Fields


class Remove(msgspec.Struct, frozen=True, tag_field="op", tag="remove"):
    """A change of a continuous read: a record is no more for it."""

    key: Name
    ver: Count | None


class Tell(msgspec.Struct, frozen=True, tag_field="what", tag="tell"):
    """Processor to notification server: what a continuous read is to be told."""

    endpoint: Endpoint
    session: Name
    handle: Name
    processor: Name
    life: Count
    table: Count
    change: Upsert | Remove | UnsetType = UNSET
    lsn: Count | UnsetType | None = UNSET
    synced: Count | UnsetType = UNSET
    ended: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        fit_together((self.change, self.synced, self.ended).count(UNSET) == 2)
        fit_together((self.change is UNSET) is (self.lsn is UNSET))


class Life(msgspec.Struct, frozen=True, tag_field="what", tag="life"):
    """Processor to notification server: it was restarted, and this is its number since."""

    processor: Name
    life: Count


class Document(msgspec.Struct, frozen=True):
    """A policy as it is shipped; its version is looked at on the way."""

    version: Count


class Policy(msgspec.Struct, frozen=True, tag_field="what", tag="policy"):
    """Policy generator to notification server: a policy for devices."""

    app: str
    policy: str
    document: Document


class PolicyFor(msgspec.Struct, frozen=True):
    """Notification server to client: a policy for its device."""

    what: Literal["policy"]  # msgspec does not ask for the tag of a struct that is alone
    app: str
    policy: str
    document: Document
    to: list[str] | None


class Stream(msgspec.Struct, frozen=True):
    """A message of a numbered stream."""

    stream: Name
    number: Annotated[int, Meta(ge=1, le=1 << 62)]
    first: Annotated[int, Meta(ge=1, le=1 << 62)]

    def __post_init__(self) -> None:
        fit_together(self.first <= self.number)


class StreamOfProcessor(Stream, frozen=True, tag_field="kind", tag="stream"):
    """Processor to notification server: what is to be told, and that a life has begun."""

    body: Tell | Life


class StreamOfGenerator(Stream, frozen=True, tag_field="kind", tag="stream"):
    """Generator to notification server: a policy, and the devices that it is for."""

    body: PolicyFor


class Followed(msgspec.Struct, frozen=True, tag_field="kind", tag="followed"):
    """Generator to notification server: it will tell what was shipped."""


class Gone(msgspec.Struct, frozen=True, tag_field="kind", tag="gone"):
    """Notification server to processor: a client was given up, or one says that it has another's session."""

    session: Name
    endpoint: Endpoint | UnsetType = UNSET

"""Every message of MUD tables on the wire: who sends it to whom, and what it holds.

Machines check what comes against what its sender may send, at one place each (the names at the end); what is
odd is dropped. That its fields fit each other is checked here, too; that it fits what a machine knows, there.
A record, a reader's data and the properties of a table are the application's, and are checked where they are
used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mudkit.systems.receiving import Accepts, Count, Name

__all__ = [
    "ANSWERS", "ASKS", "FOR_BACK_END", "FOR_CLIENTS", "FOR_PROCESSORS", "FROM_CLIENTS", "FROM_FOLLOWERS",
    "FROM_MASTER", "FROM_RECEIVERS", "FROM_STORE", "GONE", "PARTS", "POLICIES", "READS", "REGISTERED",
    "TELLS", "TO_STORE",
]  # fmt: skip

_Fields = Mapping[str, Any]
_Number = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
_Endpoint = Annotated[str, Meta(max_length=1024, pattern=r"\A[^\n]+/[^/\n]+\Z")]
"""``netid/appid``."""


def _check(fits: bool) -> None:
    """Refuse a message whose fields do not fit each other: msgspec makes a ValidationError of it."""
    if not fits:
        raise ValueError("its fields do not fit each other")


class _Predicate(msgspec.Struct, frozen=True):
    """A predicate as it is sent."""

    text: str
    constants: list[Any]


class _Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gateway has found that a token proves."""

    app: str
    user: str | None
    device: str | None
    expires_s: float


class _Error(msgspec.Struct, frozen=True):
    """An error of :mod:`mudkit.errors`."""

    kind: str
    summary: str
    found: str | UnsetType = UNSET
    expected: str | UnsetType = UNSET
    remedy: str | UnsetType = UNSET
    where: str | UnsetType = UNSET


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a table, see :class:`mudkit.systems.mud.tables.Table`."""

    name: Name
    owner: str
    acl: Literal["public", "app", "user"]
    apps: list[str] | None
    split: list[str]
    schema: dict[str, str] | None
    removed: dict[str, Count | None]
    number: Count
    lsn: Count


class _Row(msgspec.Struct, frozen=True):
    """A record at the store; no data: it is deleted."""

    key: Name
    ver: Count
    data: _Fields | None
    predicate: _Predicate | None
    ts_us: Count
    lsn: Count


# -- what clients ask of gateways (Mobius 3.1, 4.2)


class _Read(msgspec.Struct, frozen=True, tag_field="op", tag="read"):
    name: Name
    table: Count | None
    predicate: _Predicate | None
    keys: list[str] | None
    reader: _Fields
    aggregate: str | None
    latest: bool
    seen: dict[str, Count]


class _Write(msgspec.Struct, frozen=True, tag_field="op", tag="write"):
    name: Name
    table: Count | None
    key: Name
    type: Literal["blind", "conditional"]
    data: _Fields | None
    predicate: _Predicate | None
    reader: _Fields
    replaces: Count | None
    number: Count
    known: Count
    incarnation: Name


class _Administer(msgspec.Struct, frozen=True):
    name: Name
    properties: _Fields


class _Create(_Administer, frozen=True, tag_field="op", tag="create"):
    pass


class _Alter(_Administer, frozen=True, tag_field="op", tag="alter"):
    pass


class _Drop(_Administer, frozen=True, tag_field="op", tag="drop"):
    pass


class _OfContinuousRead(msgspec.Struct, frozen=True):
    name: Name
    handle: Name
    reader: _Fields
    data_seq: Count


class _Register(_OfContinuousRead, frozen=True, tag_field="op", tag="register"):
    request: Count
    session: Name
    predicate: _Predicate
    since: dict[str, Count]
    held: list[Name]
    sync_us: Count | None
    table: Count | None


class _UpdateData(_OfContinuousRead, frozen=True, tag_field="op", tag="update_data"):
    pass


class _Unregister(_OfContinuousRead, frozen=True, tag_field="op", tag="unregister"):
    pass


_What = _Read | _Write | _Create | _Alter | _Drop | _Register | _UpdateData | _Unregister


class _Asked(msgspec.Struct, frozen=True):
    id: Name
    what: _What


class _Ask(_Asked, frozen=True, tag_field="kind", tag="ask"):
    """Client to gateway: something is asked, again and again until it is answered."""

    client: _Endpoint
    token: str | None


class _Asks(msgspec.Struct, frozen=True, tag_field="kind", tag="asks"):
    """Client to gateway: the same for several."""

    client: _Endpoint
    token: str | None
    asks: list[_Asked]


class _Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Client to notification server: where it is, and that it lives (Mobius 5)."""

    endpoint: _Endpoint
    session: str | None
    is_new: bool
    policies: dict[str, Count]


class _Confirmed(msgspec.Struct, frozen=True, tag_field="kind", tag="confirmed"):
    """Receiver to sender of a stream: up to where it has everything."""

    stream: Name
    number: Count


# -- within the cloud


class _Describe(msgspec.Struct, frozen=True, tag_field="kind", tag="describe"):
    """Gateway to back end: what a table is, and those that a read looks into."""

    id: Name
    name: Name
    claims: _Claims | None
    joined: list[str] | UnsetType = UNSET


class _Admin(msgspec.Struct, frozen=True, tag_field="kind", tag="admin"):
    """Gateway to back end: create, alter or drop a table."""

    id: Name
    op: Literal["create", "alter", "drop"]
    name: Name
    properties: _Fields
    claims: _Claims | None


class _ToProcessor(msgspec.Struct, frozen=True):
    id: Name
    reply: Name


class _PassedRead(_ToProcessor, frozen=True, tag_field="kind", tag="read"):
    """Gateway to processor to replica or back end: a partition's part of a read."""

    name: Name
    table: Count
    partition: Count
    predicate: _Predicate | None
    keys: list[str] | None
    reader: _Fields
    auth: dict[str, str]
    aggregate: str | None
    latest: bool
    least: Count


class _PassedWrite(_ToProcessor, frozen=True, tag_field="kind", tag="write"):
    """Gateway to processor to back end: a write; ``refused``: its token is not valid any more."""

    client: _Endpoint
    incarnation: Name
    claims: _Claims | None
    refused: _Error | None
    name: Name
    table: Count | None
    key: Name
    type: Literal["blind", "conditional"]
    data: _Fields | None
    predicate: _Predicate | None
    reader: _Fields
    replaces: Count | None
    number: Count
    known: Count


class _PassedOfContinuousRead(_ToProcessor, frozen=True):
    endpoint: _Endpoint
    handle: Name
    reader: _Fields
    data_seq: Count


class _PassedRegister(_PassedOfContinuousRead, frozen=True, tag_field="kind", tag="register"):
    """Gateway to processor: a continuous read on some partitions of a table."""

    name: Name
    request: Count
    session: Name
    predicate: _Predicate
    since: dict[str, Count]
    held: list[Name]
    sync_us: Count | None
    table: Count
    partitions: list[Count]
    auth: dict[str, str]
    claims: _Claims | None
    expires_s: float | None
    least: Count

    def __post_init__(self) -> None:
        _check(self.expires_s == (None if self.claims is None else self.claims.expires_s))


class _PassedUpdate(_PassedOfContinuousRead, frozen=True, tag_field="kind", tag="update_data"):
    """Gateway to processor: what a reader says of itself from now on."""


class _PassedUnregister(_PassedOfContinuousRead, frozen=True, tag_field="kind", tag="unregister"):
    """Gateway to processor: a continuous read is over."""


class _Follow(msgspec.Struct, frozen=True, tag_field="kind", tag="follow"):
    """Follower to back end, or notification server to generator: it begins, and asks for all there is."""

    turn: str = ""


class _Has(msgspec.Struct, frozen=True, tag_field="kind", tag="has"):
    """Follower to back end: up to where it has the log."""

    lsn: _Number


class _RowEntry(msgspec.Struct, frozen=True, tag_field="op", tag="row"):
    lsn: Count
    name: Name
    row: _Row

    def __post_init__(self) -> None:
        _check(self.row.lsn == self.lsn)


class _TableEntry(msgspec.Struct, frozen=True, tag_field="op", tag="table"):
    lsn: Count
    table: _Table


class _DropEntry(msgspec.Struct, frozen=True, tag_field="op", tag="drop"):
    lsn: Count
    name: Name


class _Log(msgspec.Struct, frozen=True, tag_field="kind", tag="log"):
    """Back end to follower: the next entries of the log."""

    entries: list[_RowEntry | _TableEntry | _DropEntry]


class _State(msgspec.Struct, frozen=True, tag_field="kind", tag="state"):
    """Back end to follower: all tables and rows."""

    turn: str
    lsn: Count
    tables: list[_Table]
    rows: list[tuple[Name, _Row]]


class _Described(msgspec.Struct, frozen=True, tag_field="kind", tag="described"):
    """Back end to gateway: a table, or why not."""

    id: Name
    table: _Table | None
    error: _Error | None
    joined: list[_Table] | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check((self.table is None) is not (self.error is None))


class _Administered(msgspec.Struct, frozen=True, tag_field="kind", tag="administered"):
    """Back end to gateway to client: what came of it."""

    id: Name
    table: _Table | UnsetType | None = UNSET
    dropped: Count | UnsetType = UNSET
    error: _Error | UnsetType = UNSET
    claims: _Claims | None = None

    def __post_init__(self) -> None:
        _check((self.table is UNSET) is not (self.error is UNSET))
        _check(self.table is not None or self.dropped is not UNSET)


class _Outcome(msgspec.Struct, frozen=True, tag_field="kind", tag="outcome"):
    """Back end to gateway to client: what came of a write: a version, a conflict, or an error."""

    id: Name
    key: Name
    ver: Count | UnsetType = UNSET
    conflict: _Row | UnsetType | None = UNSET
    lsn: Count | UnsetType = UNSET
    partition: Count | UnsetType = UNSET
    table: Count | UnsetType = UNSET
    error: _Error | UnsetType = UNSET
    claims: _Claims | None = None

    def __post_init__(self) -> None:
        _check((self.ver, self.conflict, self.error).count(UNSET) == 2)
        _check(self.error is not UNSET or UNSET not in (self.lsn, self.partition, self.table))


class _Part(msgspec.Struct, frozen=True, tag_field="kind", tag="part"):
    """Back end or replica to gateway to client: a partition's part of an answer."""

    id: Name
    partition: Count
    lsn: Count
    rows: list[_Row] | UnsetType = UNSET
    state: list[Any] | UnsetType = UNSET
    error: _Error | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check((self.rows, self.state, self.error).count(UNSET) == 2)


class _Registered(msgspec.Struct, frozen=True, tag_field="kind", tag="registered"):
    """Processor to gateway to client: it has a continuous read, its reader's data, or has ended it."""

    id: Name
    life: Count
    lsn: _Number
    data_seq: Count
    error: _Error | UnsetType = UNSET


class _Upsert(msgspec.Struct, frozen=True, tag_field="op", tag="upsert"):
    key: Name
    ver: Count
    data: _Fields


class _Remove(msgspec.Struct, frozen=True, tag_field="op", tag="remove"):
    key: Name
    ver: Count | None


class _Tell(msgspec.Struct, frozen=True, tag_field="what", tag="tell"):
    endpoint: _Endpoint
    session: Name
    handle: Name
    processor: Name
    life: Count
    table: Count
    change: _Upsert | _Remove | UnsetType = UNSET
    lsn: Count | UnsetType | None = UNSET
    synced: Count | UnsetType = UNSET
    ended: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check((self.change, self.synced, self.ended).count(UNSET) == 2)
        _check((self.change is UNSET) is (self.lsn is UNSET))


class _Life(msgspec.Struct, frozen=True, tag_field="what", tag="life"):
    processor: Name
    life: Count


class _Document(msgspec.Struct, frozen=True):
    version: Count


class _Policy(msgspec.Struct, frozen=True, tag_field="what", tag="policy"):
    app: str
    policy: str
    document: _Document


class _PolicyFor(msgspec.Struct, frozen=True):
    what: Literal["policy"]  # msgspec does not ask for the tag of a struct that is alone
    app: str
    policy: str
    document: _Document
    to: list[str] | None


class _Stream(msgspec.Struct, frozen=True):
    stream: Name
    number: Annotated[int, Meta(ge=1, le=1 << 62)]
    first: Annotated[int, Meta(ge=1, le=1 << 62)]

    def __post_init__(self) -> None:
        _check(self.first <= self.number)


class _StreamOfProcessor(_Stream, frozen=True, tag_field="kind", tag="stream"):
    """Processor to notification server: what is to be told, and that a life has begun."""

    body: _Tell | _Life


class _StreamOfGenerator(_Stream, frozen=True, tag_field="kind", tag="stream"):
    """Generator to notification server: a policy, and the devices that it is for."""

    body: _PolicyFor


class _Followed(msgspec.Struct, frozen=True, tag_field="kind", tag="followed"):
    """Generator to notification server: it will tell what was shipped."""


class _Gone(msgspec.Struct, frozen=True, tag_field="kind", tag="gone"):
    """Notification server to processor: a client was given up, or one says that it has another's session."""

    session: Name
    endpoint: _Endpoint | UnsetType = UNSET


# -- what clients are told


class _Refused(msgspec.Struct, frozen=True, tag_field="kind", tag="refused"):
    """Gateway to client: why not."""

    id: Name
    error: _Error


class _Complete(msgspec.Struct, frozen=True, tag_field="kind", tag="complete"):
    """Gateway to client: all parts were sent."""

    id: Name
    table: _Table
    claims: _Claims | None
    places: list[Count | Name]


class _PartOfAnswer(_Part, frozen=True, tag_field="kind", tag="part", kw_only=True):
    """Gateway to client: the same."""

    place: Count


class _RegisteredAt(_Registered, frozen=True, tag_field="kind", tag="registered", kw_only=True):
    """Gateway to client: the same, and which processor it is."""

    place: Name


class _StreamOfServer(_Stream, frozen=True, tag_field="kind", tag="stream"):
    """Notification server to client: what changed, and policies."""

    body: _Tell | _Life | _Policy


class _Welcome(msgspec.Struct, frozen=True, tag_field="kind", tag="welcome"):
    """Notification server to client: the session that goes on or begins."""

    session: Name


class _Redirect(msgspec.Struct, frozen=True, tag_field="kind", tag="redirect"):
    """Notification server to client: who is responsible."""

    to: Name


# -- who may send what to whom

ASKS: Final = Accepts(_Ask, _Asks)
"""Clients to gateways."""
FROM_CLIENTS: Final = Accepts(_Hello, _Confirmed)
"""Clients to notification servers."""
ANSWERS: Final = Accepts(_PartOfAnswer, _RegisteredAt, _Refused, _Complete, _Outcome, _Administered)
"""Gateways to clients."""
FOR_CLIENTS: Final = Accepts(_Welcome, _Redirect, _StreamOfServer)
"""Notification servers to clients."""
FOR_BACK_END: Final = Accepts(_Describe, _Admin)
"""Gateways to the back end."""
FOR_PROCESSORS: Final = Accepts(_PassedRead, _PassedWrite, _PassedRegister, _PassedUpdate, _PassedUnregister)
"""Gateways to processors."""
TO_STORE: Final = Accepts(_PassedRead, _PassedWrite, _Follow, _Has)
"""Processors to the back end."""
READS: Final = Accepts(_PassedRead)
"""Processors to replicas."""
FROM_FOLLOWERS: Final = Accepts(_PassedRead, _Follow, _Has)
"""Replicas to the back end."""
FROM_MASTER: Final = Accepts(_Log, _State)
"""The back end to its followers."""
FROM_STORE: Final = Accepts(_Described, _Administered, _Outcome, _Part)
"""The back end to gateways."""
PARTS: Final = Accepts(_Part)
"""Replicas to gateways."""
REGISTERED: Final = Accepts(_Registered)
"""Processors to gateways."""
TELLS: Final = Accepts(_StreamOfProcessor)
"""Processors to notification servers."""
POLICIES: Final = Accepts(_StreamOfGenerator, _Followed)
"""The generator to notification servers."""
GONE: Final = Accepts(_Gone, _Confirmed)
"""Notification servers to processors."""
FROM_RECEIVERS: Final = Accepts(_Follow, _Confirmed)
"""Notification servers to the generator."""

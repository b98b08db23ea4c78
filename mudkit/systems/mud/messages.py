"""Operations of applications, and messages between the roles of MUD tables (Mobius 3 to 6).

Each machine decodes messages in one place, against the union of those that the sender's role may send (the
constants at the end). A struct checks that its fields are consistent; machines check that they fit their
state. The data of a record, the data of a reader and the properties of a table are the application's
mappings, checked where they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, TypeAlias
from zlib import crc32

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mudkit.delivery.session import Lineage
from mudkit.delivery.stream import StreamAck, StreamItem
from mudkit.errors import (
    AccessDenied,
    MudkitError,
    ParameterError,
    PredicateError,
    TableProblem,
    TokenExpired,
)
from mudkit.predicates import Predicate
from mudkit.systems.mud.policies.utility import Utility
from mudkit.systems.mud.tables.changes import Changes
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Table
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.tokens import Claims
from mudkit.wire import Fields, Value

# -- operations of applications


class Create(Struct, frozen=True, tag_field="operation", tag="create"):
    """Operation: create a table (Mobius 3.1), in the cloud or on the device alone."""

    table: str
    properties: Fields
    where: Literal["cloud", "device"] = "cloud"


class Alter(Struct, frozen=True, tag_field="operation", tag="alter"):
    """Operation: alter the properties of a table (Mobius 3.1)."""

    table: str
    properties: Fields


class Drop(Struct, frozen=True, tag_field="operation", tag="drop"):
    """Operation: drop a table (Mobius 3.1)."""

    table: str


class Write(Struct, frozen=True, tag_field="operation", tag="write"):
    """Operation: write a record, or delete it if ``record`` is None (Mobius 3.1).

    ``key`` None: a new one; ``type``: blind or conditional; ``utility``: input of the write policy;
    ``reader``: the writer's own data as a reader; ``may_write``: the rule of who may write the record
    afterwards, None: as before; ``version``: the one that a conditional write replaces, None: the device's;
    ``changes``: changes of columns in place of a record; None: the write is of the whole record.
    """

    table: str
    key: str | None
    record: Fields | None
    type: str
    predicate: Predicate | None
    utility: Utility | None
    reader: Fields
    may_write: Predicate | None = None
    version: int | None = None
    changes: Changes | None = None


class Delete(Write, frozen=True, tag_field="operation", tag="delete"):
    """Operation: delete a record (Mobius 3.1): a write without a record."""


class Update(Write, frozen=True, tag_field="operation", tag="update"):
    """Operation: change columns of a record: a write with changes in place of a record."""


class CommitBatch(Struct, frozen=True, tag_field="operation", tag="batch"):
    """Operation: commit writes of several records of a table together, all or none."""

    table: str
    parts: Sequence[Write]


Offline: TypeAlias = Literal["answer", "wait", "fail"]
"""Choice of a read without a network: answer with what the device holds, wait for one, or fail."""


class Read(Struct, frozen=True, tag_field="operation", tag="read"):
    """Operation: read records once (Mobius 3.1).

    ``predicate`` None: all records; ``type``: uncommitted, committed or committed_wio; ``utility`` None: no
    cached answer is fresh; ``latest``: only the store's latest versions; ``aggregate``: aggregates to return
    instead of records; ``offline``: what to do without a network; ``selection`` None: all columns of all
    records.
    """

    table: str
    predicate: Predicate | None
    type: str
    reader: Fields
    utility: Utility | None
    latest: bool
    aggregate: str | None
    offline: Offline = "answer"
    selection: Selection | None = None


class Register(Struct, frozen=True, tag_field="operation", tag="register"):
    """Operation: register a continuous read (Mobius 5).

    ``sync_timestamp`` is the commit time at the store, in seconds, from which existing records are delivered;
    None: none of them. ``listener`` is notified of the handle as soon as the read is stored; empty: the
    application has no callback for changes. ``aggregate``: aggregates of which it is notified instead of
    records. ``selection``: columns of which it is notified, or a window, which is of all records; None: of
    all columns of all records.
    """

    table: str
    predicate: Predicate
    reader: Fields
    sync_timestamp: float | None
    listener: str
    type: Literal["continuous"] = "continuous"
    aggregate: str | None = None
    selection: Selection | None = None


class Listen(Struct, frozen=True, tag_field="operation", tag="listen"):
    """Operation: notify the listener of the continuous read with this handle, which was registered again.

    ``is_afresh``: of what comes from now on; the result has the records that the read has.
    """

    handle: int
    is_afresh: bool = False


class AwaitSynced(Struct, frozen=True, tag_field="operation", tag="await_synced"):
    """Operation: wait until the existing records that a continuous read asked for have been delivered."""

    handle: int


class ListReads(Struct, frozen=True, tag_field="operation", tag="continuous_reads"):
    """Operation: list the continuous reads."""


class UpdateData(Struct, frozen=True, tag_field="operation", tag="update_data"):
    """Operation: replace the reader's data of the continuous read with this handle."""

    handle: int
    reader: Fields


class Unregister(Struct, frozen=True, tag_field="operation", tag="unregister"):
    """Operation: end the continuous read with this handle."""

    handle: int


class Renew(Struct, frozen=True, tag_field="operation", tag="renew"):
    """Operation: use another token of the same app and user."""

    token: str


class ListPolicies(Struct, frozen=True, tag_field="operation", tag="policies"):
    """Operation: list the shipped policies in use."""


class ListPending(Struct, frozen=True, tag_field="operation", tag="pending"):
    """Operation: list the writes that the cloud has not answered."""


class ListHeld(Struct, frozen=True, tag_field="operation", tag="held"):
    """Operation: list the versions of a table's records that the device holds."""

    table: str
    reader: Fields


class Ship(Struct, frozen=True, tag_field="operation", tag="ship"):
    """Operation: ship a policy, as JSON, to the clients of an app (Mobius 6); ``to`` None: on all devices."""

    app: str
    document: Fields
    to: Sequence[str] | None


ClientOperation = (
    Create | Alter | Drop | Write | Delete | Update | CommitBatch | Read | Register | Listen | AwaitSynced
    | ListReads | UpdateData | Unregister | Renew | ListPolicies | ListPending | ListHeld
)  # fmt: skip
"""Operations of a client."""


Lsn: TypeAlias = Annotated[int, Meta(ge=-1, le=1 << 62)]
"""Position in the log; -1: the follower has no state yet."""
Endpoint: TypeAlias = Annotated[str, Meta(max_length=1024, pattern=r"\A[^\n]+/[^/\n]+\Z")]
"""``netid/appid``."""


PORT: Final = "mud"
"""Name of each server's machine, and of a device's service; that of an app's machine ends with the app."""


def is_of_service(source: str) -> bool:
    """Return whether an address is that of a device's service, for which the device vouches."""
    return source.rpartition("/")[2] == PORT


def netid_of(endpoint: str) -> str:
    """Return the device of an endpoint; names of devices may contain a slash, those of apps none."""
    return endpoint.rpartition("/")[0]


def app_of(endpoint: str) -> str:
    """Return the app of an endpoint."""
    return endpoint.rpartition("/")[2]


def processor_index(table: int, partition: int, processors: int) -> int:
    """Return the index of the processor that is responsible for a partition."""
    return (table + partition) % processors


def server_index(netid: str, servers: int) -> int:
    """Return the index of the notification server of a device: each has a range of the netids' hashes."""
    return crc32(netid.encode()) * servers >> 32


def _check_consistent(is_consistent: bool) -> None:
    """Raise ValueError, which msgspec turns into a ValidationError, unless the fields are consistent."""
    if not is_consistent:
        raise ValueError("the fields are not consistent")


# -- parts of messages


class EncodedError(Struct, frozen=True, rename={"got": "found"}):
    """A MudkitError as a part of messages (:func:`encode_error`, :func:`decode_error`)."""

    kind: str
    summary: str
    got: str | UnsetType = UNSET
    expected: str | UnsetType = UNSET
    remedy: str | UnsetType = UNSET
    where: str | UnsetType = UNSET


_KINDS: Final[dict[str, type[MudkitError]]] = {
    kind.__name__: kind for kind in (AccessDenied, ParameterError, PredicateError, TableProblem, TokenExpired)
}


def encode_error(error: MudkitError) -> EncodedError:
    """Return an error as a part of a message, for :func:`decode_error`."""
    texts = (error.found, error.expected, error.remedy, error.where)
    given = (UNSET if text is None else text for text in texts)
    return EncodedError(type(error).__name__, error.summary, *given)


def decode_error(error: EncodedError) -> MudkitError:
    """Decode an error of a message; of an unknown kind, it is a MudkitError."""
    got, expected, remedy, where = (
        None if text is UNSET else text for text in (error.got, error.expected, error.remedy, error.where)
    )
    kind = _KINDS.get(error.kind, MudkitError)
    return kind(error.summary, found=got, expected=expected, remedy=remedy, where=where)


class Row(Struct, frozen=True):
    """Version of a record at the store; a part of messages.

    ``data`` is None after a delete, which keeps the writer predicate of the deleted version: a reader who
    could not see that version does not see the delete either. ``predicate`` None: every reader sees it.
    ``may_write`` is the rule of who may write it, which clients are not sent; absent: whom the table admits.
    """

    key: Name
    ver: Count
    data: Fields | None
    predicate: SentPredicate | None
    ts_us: Count
    lsn: Count
    may_write: SentPredicate | UnsetType = UNSET


# -- services to gateways


class ReadRequest(Struct, frozen=True, tag_field="op", tag="read", kw_only=True):
    """A read (Mobius 3.1).

    ``table`` is the number of the table, None if the client does not know it; ``keys``: the only keys that
    can match, None: any; ``seen_lsns``: the log position that the client has seen of each partition.
    ``selection`` absent: all columns of all records.
    """

    name: Name
    table: Count | None
    predicate: SentPredicate | None
    keys: list[str] | None
    reader: Fields
    aggregate: str | None
    latest: bool
    seen_lsns: dict[str, Count] = field(name="seen")
    selection: Selection | UnsetType = UNSET


class WritePart(Struct, frozen=True, kw_only=True):
    """Write of another record in a :class:`WriteRequest`, as its fields of the same names say."""

    key: Name
    type: Literal["blind", "conditional"]
    data: Fields | None
    predicate: SentPredicate | None
    replaces: Count | None
    may_write: SentPredicate | UnsetType = UNSET
    changes: Changes | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent(self.changes is UNSET or (self.data is None and self.type == "blind"))


class WriteRequest(Struct, frozen=True, tag_field="op", tag="write", kw_only=True):
    """A write, or a delete if ``data`` is None (Mobius 3.1).

    ``name`` and ``table`` are the name and the number of the table, None: the client knows no number.
    ``replaces`` is the version that a conditional write replaces, 0: none; None: that of a write that failed.
    ``incarnation`` and ``number`` identify the write (:class:`mudkit.delivery.outbox.ItemId`); ``first`` is
    the number of the first pending one of this incarnation: the outcomes of earlier ones are acknowledged.
    ``follows`` is the number of the unanswered write of this record and incarnation that it is based on,
    whose version it replaces; absent: there is none. ``absorbed`` counts the blind writes of the record that
    it has absorbed, which were never sent; absent: none. ``may_write`` is the rule of who may write the
    record afterwards; absent: as before. ``changes`` of columns take the place of ``data``; then ``replaces``
    is the version that the device knows. Absent: the write is of the whole record. ``asks_read_interval``:
    the outcome is to have the interval between reads; absent: it is not.
    ``others`` are the other parts of its batch, whose numbers follow ``number``; absent: it is no batch.
    """

    name: Name
    table: Count | None
    key: Name
    type: Literal["blind", "conditional"]
    data: Fields | None
    predicate: SentPredicate | None
    reader: Fields
    replaces: Count | None
    number: Count
    first: Count = field(name="known")
    incarnation: Name
    follows: Count | UnsetType = UNSET
    absorbed: Count | UnsetType = UNSET
    may_write: SentPredicate | UnsetType = UNSET
    changes: Changes | UnsetType = UNSET
    others: list[WritePart] | UnsetType = UNSET
    asks_read_interval: Literal[True] | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent(self.changes is UNSET or (self.data is None and self.type == "blind"))


class _AdministrationRequest(Struct, frozen=True):
    """Fields of all requests about a table as a whole.

    ``first`` is the number of the first unanswered one of this start of the client: it has the results of the
    earlier ones. Absent: it has none.
    """

    name: Name
    properties: Fields
    first: Count | UnsetType = field(name="known", default=UNSET)


class CreateRequest(_AdministrationRequest, frozen=True, tag_field="op", tag="create"):
    """Request to create a table."""

    op: ClassVar[Literal["create"]] = "create"


class AlterRequest(_AdministrationRequest, frozen=True, tag_field="op", tag="alter"):
    """Request to alter the properties of a table."""

    op: ClassVar[Literal["alter"]] = "alter"


class DropRequest(_AdministrationRequest, frozen=True, tag_field="op", tag="drop"):
    """Request to drop a table."""

    op: ClassVar[Literal["drop"]] = "drop"


_DELIVERED: Final = {"delivered": "held"}
"""Name on the wire of the keys that were delivered."""


class _OfContinuousRead(Struct, frozen=True, kw_only=True):
    """Fields of all requests about a continuous read; ``data_seq`` numbers the reader's data."""

    name: Name
    handle: Name
    reader: Fields
    data_seq: Count


class RegisterRequest(
    _OfContinuousRead, frozen=True, tag_field="op", tag="register", kw_only=True, rename=_DELIVERED
):
    """Request to register a continuous read (Mobius 4.2).

    ``since_lsns`` has the last log position received from each processor, and ``log_incarnations`` the
    incarnation of the log in which it counts, absent: the first one. ``delivered`` are the keys of the
    records that were delivered before; ``digests`` has, by bucket (:meth:`Table.buckets_of`), the digest of
    those that are not named. ``begun_lsns`` comes with it: the log position of each processor from which the
    read began. ``aggregate`` are the aggregates of which the reader is notified instead of records, absent:
    of records. ``sync_us`` is the commit time from which existing records are delivered, None: none of them.
    ``table`` is None at the first registration. ``selection`` has the columns that are sent, or is a window:
    with a limit, the first records of each processor are sent; absent: all columns of all records.
    """

    request: Count
    session: Name
    predicate: SentPredicate
    since_lsns: dict[str, Count] = field(name="since")
    delivered: list[Name]
    sync_us: Count | None
    table: Count | None
    log_incarnations: dict[str, str] | UnsetType = field(name="starts", default=UNSET)
    digests: list[tuple[Count, str]] | UnsetType = UNSET
    begun_lsns: dict[str, Count] | UnsetType = field(name="begun", default=UNSET)
    aggregate: str | UnsetType = UNSET
    selection: Selection | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent(UNSET in (self.aggregate, self.selection))


class UpdateDataRequest(_OfContinuousRead, frozen=True, tag_field="op", tag="update_data", kw_only=True):
    """Request to replace the reader's data of a continuous read."""


class UnregisterRequest(_OfContinuousRead, frozen=True, tag_field="op", tag="unregister", kw_only=True):
    """Request to end a continuous read."""


AdministrationRequest: TypeAlias = CreateRequest | AlterRequest | DropRequest
ContinuousReadRequest: TypeAlias = RegisterRequest | UpdateDataRequest | UnregisterRequest
Request: TypeAlias = ReadRequest | WriteRequest | AdministrationRequest | ContinuousReadRequest


class IdentifiedRequest(Struct, frozen=True):
    """A request with its identifier; a part of :class:`AskBatch`."""

    id: Name
    what: Request


class Ask(Struct, frozen=True, tag_field="kind", tag="ask"):
    """Client to gateway, by its device's service: one request, retransmitted until it is answered.

    ``token`` None: no token.
    ``log_incarnation`` is the last one of the back end's log that the client knows; absent: the first.
    """

    id: Name
    client: Endpoint
    token: str | None
    what: Request
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)


class AskBatch(Struct, frozen=True, tag_field="kind", tag="asks"):
    """Client to gateway, by its device's service: several requests at once, each as in :class:`Ask`."""

    client: Endpoint
    token: str | None
    asks: list[IdentifiedRequest]
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)


class AppsBatch(Struct, frozen=True, tag_field="kind", tag="asks of apps"):
    """Service of a device to gateway: requests of its apps at once, each part as an app's own message."""

    parts: list[Ask | AskBatch]


# -- gateways to processors, replicas and back end


class Describe(Struct, frozen=True, tag_field="kind", tag="describe", kw_only=True):
    """Gateway to back end: request for the properties of a table.

    ``joined`` names the tables that a read looks up records in; absent: none.
    """

    id: Name
    name: Name
    claims: Claims | None
    joined: list[str] | UnsetType = UNSET
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)


class Administer(Struct, frozen=True, tag_field="kind", tag="admin", kw_only=True):
    """Gateway to back end: create, alter or drop a table."""

    id: Name
    op: Literal["create", "alter", "drop"]
    name: Name
    properties: Fields
    claims: Claims | None
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    first: Count | UnsetType = field(name="known", default=UNSET)


class PartitionRead(Struct, frozen=True, tag_field="kind", tag="read", kw_only=True):
    """Gateway to processor to replica or back end: the part of a read that concerns one partition.

    ``reply`` is the gateway's address; the answer must be at least as new as the log position ``min_lsn``.
    """

    id: Name
    reply: Name
    name: Name
    table: Count
    partition: Count
    predicate: SentPredicate | None
    keys: list[str] | None
    reader: Fields
    auth: dict[str, str]
    aggregate: str | None
    latest: bool
    min_lsn: Count = field(name="least")
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    selection: Selection | UnsetType = UNSET


class RoutedWrite(Struct, frozen=True, tag_field="kind", tag="write", kw_only=True):
    """Gateway to processor to back end: a write, see :class:`WriteRequest`.

    ``token_error`` is the error if the token has expired, else None: such a write is only answered with its
    result if it was applied before. The processor adds ``read_interval_ms``, see :class:`WriteOutcome`.
    """

    id: Name
    reply: Name
    client: Endpoint
    incarnation: Name
    claims: Claims | None
    token_error: EncodedError | None = field(name="refused")
    name: Name
    table: Count | None
    key: Name
    type: Literal["blind", "conditional"]
    data: Fields | None
    predicate: SentPredicate | None
    reader: Fields
    replaces: Count | None
    number: Count
    first: Count = field(name="known")
    follows: Count | UnsetType = UNSET
    absorbed: Count | UnsetType = UNSET
    may_write: SentPredicate | UnsetType = UNSET
    changes: Changes | UnsetType = UNSET
    others: list[WritePart] | UnsetType = UNSET
    asks_read_interval: Literal[True] | UnsetType = UNSET
    read_interval_ms: Count | UnsetType = UNSET
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)


class _RoutedOfContinuousRead(Struct, frozen=True, kw_only=True):
    """Fields of all messages from a gateway to a processor about a continuous read."""

    id: Name
    reply: Name
    endpoint: Endpoint
    handle: Name
    reader: Fields
    data_seq: Count


class Registration(
    _RoutedOfContinuousRead, frozen=True, tag_field="kind", tag="register", kw_only=True, rename=_DELIVERED
):
    """Gateway to processor: a continuous read on some partitions of a table; see :class:`RegisterRequest`.

    The processor's log must have reached the position ``min_lsn``. ``address`` is that of the client.
    """

    request: Count
    session: Name
    address: Name
    name: Name
    table: Count
    partitions: list[Count]
    predicate: SentPredicate
    since_lsns: dict[str, Count] = field(name="since")
    delivered: list[Name]
    sync_us: Count | None
    claims: Claims | None
    min_lsn: Count = field(name="least")
    log_incarnations: dict[str, str] | UnsetType = field(name="starts", default=UNSET)
    digests: list[tuple[Count, str]] | UnsetType = UNSET
    begun_lsns: dict[str, Count] | UnsetType = field(name="begun", default=UNSET)
    aggregate: str | UnsetType = UNSET
    selection: Selection | UnsetType = UNSET


class ReaderDataUpdate(
    _RoutedOfContinuousRead, frozen=True, tag_field="kind", tag="update_data", kw_only=True
):
    """Gateway to processor: the reader's data of a continuous read."""


class Unregistration(_RoutedOfContinuousRead, frozen=True, tag_field="kind", tag="unregister", kw_only=True):
    """Gateway to processor: end of a continuous read."""


# -- back end and followers of its log (replicas and processors)


class FollowLog(Struct, frozen=True, tag_field="kind", tag="follow"):
    """Follower to back end: request for the whole state; ``incarnation`` is the follower's."""

    incarnation: Name = field(name="turn")


class LogAck(Struct, frozen=True, tag_field="kind", tag="has"):
    """Follower to back end: acknowledgement of the log up to an entry.

    ``log_incarnation`` is as in :class:`Ask`; ``nonce`` asks for the lineage of the log as it is now; absent:
    no question.
    """

    lsn: Lsn
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    nonce: Name | UnsetType = UNSET


class RowEntry(Struct, frozen=True, tag_field="op", tag="row"):
    """Entry of the log: a version of a record in the table ``name``.

    ``following`` is the number of entries of the same batch that follow; absent: none.
    """

    lsn: Count
    name: Name
    row: Row
    following: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent(self.row.lsn == self.lsn)


class TableEntry(Struct, frozen=True, tag_field="op", tag="table"):
    """Entry of the log: the properties of a table from here on."""

    lsn: Count
    table: Table


class DropEntry(Struct, frozen=True, tag_field="op", tag="drop"):
    """Entry of the log: a table was dropped."""

    lsn: Count
    name: Name


class CollectEntry(Struct, frozen=True, tag_field="op", tag="collect"):
    """Entry of the log: the tombstones of a table up to the position ``until_lsn`` were removed."""

    lsn: Count
    name: Name
    until_lsn: Count = field(name="until")


LogEntry: TypeAlias = RowEntry | TableEntry | DropEntry | CollectEntry


class Log(Struct, frozen=True, tag_field="kind", tag="log"):
    """Back end to follower: the next entries of the log; none: the follower is to ask for the state.

    ``lineage`` is that of the log; absent: it is empty. ``nonce`` is that of :class:`LogAck`, in the answer.
    """

    entries: list[LogEntry]
    lineage: Lineage | UnsetType = UNSET
    nonce: Name | UnsetType = UNSET


class TablesState(Struct, frozen=True, tag_field="kind", tag="state"):
    """Back end to follower: all tables and rows at a position of the log, in answer to :class:`FollowLog`."""

    incarnation: str = field(name="turn")
    lsn: Count
    tables: list[Table]
    rows: list[tuple[Name, Row]]
    lineage: Lineage | UnsetType = UNSET


# -- answers of the cloud


class Described(Struct, frozen=True, tag_field="kind", tag="described", kw_only=True):
    """Back end to gateway: the properties of a table, or an error.

    ``joined`` has those of the tables that a read looks up records in; absent: none.
    """

    id: Name
    table: Table | None = None
    error: EncodedError | None = None
    joined: list[Table] | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent((self.table is None) is not (self.error is None))


class LogRestarted(Struct, frozen=True, tag_field="kind", tag="restarted", kw_only=True):
    """Back end to gateway to client: the client knows another incarnation of the log; it asks again.

    ``former_log_incarnation`` is the one that the client named; its log is the same up to ``shared_lsn``.
    """

    id: Name
    log_incarnation: str = field(name="start")
    former_log_incarnation: str = field(name="before")
    shared_lsn: Count = field(name="shared")


class TableResult(Struct, frozen=True, kw_only=True):
    """Table after a change, or an error; a part of messages, and stored by the back end.

    ``table`` is None after a drop; then ``dropped`` is its number.
    """

    table: Table | UnsetType | None = UNSET
    dropped: Count | UnsetType = UNSET
    error: EncodedError | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent((self.table is UNSET) is not (self.error is UNSET))
        _check_consistent(self.table is not None or self.dropped is not UNSET)


class Administered(TableResult, frozen=True, tag_field="kind", tag="administered", kw_only=True):
    """Back end to gateway to client: the result of create, alter or drop.

    The gateway adds ``claims``, which the token proves; None: there is no token.
    """

    id: Name
    claims: Claims | UnsetType | None = UNSET


class WriteResult(Struct, frozen=True, kw_only=True):
    """Version, conflict or error of a write; a part of messages, and stored by the back end.

    ``conflict`` is the row at the store, None if its writer does not show it. With a version or a conflict
    come the log position, the partition and the number of the table. ``absorbed`` is that of the write.
    ``row`` is the record after changes of columns; absent: the device knows the version that they changed.
    ``place`` comes with the conflict or error of a batch: that of the part that is refused, from 0.
    """

    ver: Count | UnsetType = UNSET
    conflict: Row | UnsetType | None = UNSET
    lsn: Count | UnsetType = UNSET
    partition: Count | UnsetType = UNSET
    table: Count | UnsetType = UNSET
    error: EncodedError | UnsetType = UNSET
    absorbed: Count | UnsetType = UNSET
    row: Row | UnsetType = UNSET
    place: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent((self.ver, self.conflict, self.error).count(UNSET) == 2)
        _check_consistent(self.place is UNSET or self.ver is UNSET)
        _check_consistent(self.error is not UNSET or UNSET not in (self.lsn, self.partition, self.table))
        _check_consistent(self.row is UNSET or self.ver is not UNSET)


class WriteOutcome(WriteResult, frozen=True, tag_field="kind", tag="outcome", kw_only=True):
    """Back end to gateway to client: the result of a write. ``claims`` as in :class:`Administered`.

    ``read_interval_ms`` is the mean interval between reads of the record's partition, in ms, 0: continuous
    reads are notified at once; absent: the client has not asked for it. ``others`` are the results of
    the other parts of a batch that was applied; absent: of a single write, or after a refusal.
    """

    id: Name
    key: Name
    read_interval_ms: Count | UnsetType = UNSET
    claims: Claims | UnsetType | None = UNSET
    others: list[WriteResult] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        results = [self, *(self.others or ())]
        _check_consistent(len(results) == 1 or all(result.ver is not UNSET for result in results))


class Part(Struct, frozen=True, tag_field="kind", tag="part", kw_only=True):
    """Back end or replica to gateway: rows, the state of aggregates, or an error of one partition."""

    id: Name
    partition: Count
    lsn: Count
    rows: list[Row] | UnsetType = UNSET
    state: list[Value] | UnsetType = UNSET
    error: EncodedError | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent((self.rows, self.state, self.error).count(UNSET) == 2)


class PlacedPart(Part, frozen=True, tag_field="kind", tag="part", kw_only=True):
    """Gateway to client: a :class:`Part` of the answer to a read; ``place`` is the partition."""

    place: Count


class ContinuousReadAck(Struct, frozen=True, tag_field="kind", tag="registered", kw_only=True):
    """Processor to gateway: acknowledgement of a registration, of reader data, or of the end; or an error.

    ``generation`` is that of the processor, ``lsn`` its log position in ``log_incarnation``, ``data_seq`` the
    number of the data in effect. ``unknown`` are the buckets whose digests the processor does not know: it
    has not registered the read, and needs their keys.
    """

    id: Name
    generation: Count = field(name="life")
    lsn: Lsn
    data_seq: Count
    error: EncodedError | UnsetType = UNSET
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    unknown: list[Count] | UnsetType = UNSET


class PlacedContinuousReadAck(
    ContinuousReadAck, frozen=True, tag_field="kind", tag="registered", kw_only=True
):
    """Gateway to client: a :class:`ContinuousReadAck`; ``place`` is the processor that sent it."""

    place: Name


class RequestRefused(Struct, frozen=True, tag_field="kind", tag="refused"):
    """Gateway to client: the error for which the gateway has not passed a request on."""

    id: Name
    error: EncodedError


class PartsComplete(Struct, frozen=True, tag_field="kind", tag="complete", kw_only=True):
    """Gateway to client: all parts have been sent; ``places`` are those that must have arrived.

    Partitions for a read. For a continuous one processors, in the order of the partitions, which they take in
    turns: partition n is at the place n modulo their number.
    """

    id: Name
    table: Table
    claims: Claims | None
    places: list[Count | Name]


# -- notifications


class Hello(Struct, frozen=True, tag_field="kind", tag="hello", kw_only=True):
    """Service of a device to notification server: its current address and a sign of life (Mobius 5).

    ``endpoint`` has the device and the first of its apps that are to be notified. ``session`` None: it has
    none. ``is_new`` False: a heartbeat. ``policies`` has the version of each kind of policy that the first
    app follows, and ``others`` those of each other app; absent: there is none, or it is a heartbeat. ``seq``
    counts the hellos of a start of the service, which ``incarnation`` identifies. ``nonce`` is that of the
    last :class:`Identify`; absent: there was none since the last welcome. ``tokens`` has the token of each
    app of the device that has one; absent in a heartbeat.
    """

    endpoint: Endpoint
    session: str | None
    is_new: bool
    policies: dict[str, Count]
    incarnation: Name
    seq: Count
    nonce: Name | UnsetType = UNSET
    tokens: dict[Name, str] | UnsetType = UNSET
    others: dict[Name, dict[str, Count]] | UnsetType = UNSET

    @property
    def apps(self) -> dict[str, dict[str, int]]:
        """Versions of the policies of each app that is to be notified."""
        others = {} if self.others is UNSET else self.others
        return {app_of(self.endpoint): self.policies, **others}


class Welcome(Struct, frozen=True, tag_field="kind", tag="welcome"):
    """Notification server to service: the session, which is also the name of its stream.

    ``incarnation`` and ``seq`` are those of the hello.
    """

    session: Name
    incarnation: Name
    seq: Count


class Identify(Struct, frozen=True, tag_field="kind", tag="identify"):
    """Notification server to service: request for a hello with a nonce.

    Sent at a start of the server, and after a hello of another start of the device, which may be a late copy.
    """

    endpoint: Endpoint
    nonce: Name


class Redirect(Struct, frozen=True, tag_field="kind", tag="redirect"):
    """Notification server to service: the address of the responsible server."""

    to: Name


class Upsert(Struct, frozen=True, tag_field="op", tag="upsert"):
    """Change in a continuous read: a new version of a record, or one that has come into its window.

    The fields are those of :class:`Row`; ``data`` has the columns of the read.
    """

    key: Name
    ver: Count
    data: Fields
    predicate: SentPredicate | None
    ts_us: Count
    lsn: Count


class LeftRead(Struct, frozen=True, tag_field="op", tag="remove"):
    """Change in a continuous read: a record that the reader was sent has left it, or its window.

    ``ver`` None: the reader holds the record and may not know whether it still exists.
    """

    key: Name
    ver: Count | None


class Tell(Struct, frozen=True, tag_field="what", tag="tell", kw_only=True):
    """Processor to notification server to device: a change, aggregates, the end of synchronisation or read.

    ``state`` is that of the aggregates of the processor's records, for :meth:`Aggregates.combine`.
    ``lsn`` comes with a change; None: the record existed before the registration. ``also`` has the changes of
    the same moment: those of the other records of a batch, and of a window the record that has come into it
    or left it in exchange. ``synced_lsn`` is the log
    position up to which everything was sent. ``ended`` is the reason; ``is_alone`` comes with it and is True
    if other processors have no reason to end the read, else absent. ``log_incarnation`` is the one in which
    positions count; absent: the first one.
    """

    endpoint: Endpoint
    session: Name
    handle: Name
    processor: Name
    generation: Count = field(name="life")
    table: Count
    change: Upsert | LeftRead | UnsetType = UNSET
    lsn: Count | UnsetType | None = UNSET
    synced_lsn: Count | UnsetType = field(name="synced", default=UNSET)
    ended: str | UnsetType = UNSET
    is_alone: bool | UnsetType = UNSET
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    state: list[Value] | UnsetType = UNSET
    also: list[Upsert | LeftRead] | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_consistent((self.change, self.synced_lsn, self.ended, self.state).count(UNSET) == 3)
        _check_consistent(self.also is UNSET or self.change is not UNSET)
        _check_consistent((self.change is UNSET) is (self.lsn is UNSET))


class NewGeneration(Struct, frozen=True, tag_field="what", tag="life"):
    """Processor to notification server to devices: its generation, after a start."""

    processor: Name
    generation: Count = field(name="life")


def _version_of(document: Fields) -> int:
    """Return the version of a policy's document; raise ValueError if it has none."""
    version = document.get("version")
    if type(version) is not int or not 0 <= version < 1 << 62:
        raise ValueError("the document has no version")
    return version


class PolicyUpdate(Struct, frozen=True, tag_field="what", tag="policy", kw_only=True):
    """Generator to notification server: a policy; ``to`` None: for all devices, else the devices' names."""

    app: str
    policy: str
    document: Fields
    to: list[str] | None

    def __post_init__(self) -> None:
        _version_of(self.document)

    @property
    def version(self) -> int:
        """Version of the policy."""
        return _version_of(self.document)


class Policy(Struct, frozen=True, tag_field="what", tag="policy", kw_only=True):
    """Notification server to service: a policy of a kind for an app."""

    app: str
    policy: str
    document: Fields

    def __post_init__(self) -> None:
        _version_of(self.document)


class Whereabouts(Struct, frozen=True, tag_field="what", tag="whereabouts"):
    """Processor to notification server: last known address of a device whose session the server has lost.

    ``is_proven``: the app has registered with a token.
    """

    endpoint: Endpoint
    address: Name
    is_proven: bool = False


Notification: TypeAlias = Tell | NewGeneration | Policy
"""Body of the stream from a notification server to a device's service."""
ServerNotification: TypeAlias = Tell | NewGeneration | Whereabouts | PolicyUpdate
"""Body of the stream from a processor (or of the generator: PolicyUpdate) to a notification server."""


class PoliciesRequest(Struct, frozen=True, tag_field="kind", tag="follow"):
    """Notification server to generator: request for all shipped policies."""


class PoliciesFollow(Struct, frozen=True, tag_field="kind", tag="followed"):
    """Generator to notification server: acknowledges the request; the policies follow in a new stream."""


class SessionGone(Struct, frozen=True, tag_field="kind", tag="gone"):
    """Notification server to processor: a session has ended; with ``endpoint``: it is not this app's."""

    session: Name
    endpoint: Endpoint | UnsetType = UNSET


class DeviceMoved(Struct, frozen=True, tag_field="kind", tag="moved"):
    """Notification server to processor: new address of a session's device; sent back to acknowledge it."""

    session: Name
    endpoint: Endpoint
    address: Name


class Occupied(Struct, frozen=True, tag_field="kind", tag="occupied"):
    """Notification server to another one: one of its devices has this address now."""

    address: Name


class Vacated(Struct, frozen=True, tag_field="kind", tag="vacated"):
    """Acknowledges :class:`Occupied`: nothing for its devices is sent to this address any more."""

    address: Name


# -- accepted messages, by receiver and sender

SERVICE_FROM_GATEWAY: Final = Accepts[
    PlacedPart
    | PlacedContinuousReadAck
    | RequestRefused
    | PartsComplete
    | WriteOutcome
    | Administered
    | LogRestarted
](
    PlacedPart,
    PlacedContinuousReadAck,
    RequestRefused,
    PartsComplete,
    WriteOutcome,
    Administered,
    LogRestarted,
)
SERVICE_FROM_NOTIFICATION_SERVER: Final = Accepts[Welcome | Redirect | Identify | StreamItem[Notification]](
    Welcome, Redirect, Identify, StreamItem[Notification]
)
GATEWAY_FROM_SERVICE: Final = Accepts[Ask | AskBatch | AppsBatch](Ask, AskBatch, AppsBatch)
GATEWAY_FROM_BACK_END: Final = Accepts[Described | Administered | WriteOutcome | Part | LogRestarted](
    Described, Administered, WriteOutcome, Part, LogRestarted
)
GATEWAY_FROM_REPLICA: Final = Accepts[Part](Part)
GATEWAY_FROM_PROCESSOR: Final = Accepts[ContinuousReadAck](ContinuousReadAck)
PROCESSOR_FROM_GATEWAY: Final = Accepts[
    PartitionRead | RoutedWrite | Registration | ReaderDataUpdate | Unregistration
](PartitionRead, RoutedWrite, Registration, ReaderDataUpdate, Unregistration)
PROCESSOR_FROM_NOTIFICATION_SERVER: Final = Accepts[SessionGone | DeviceMoved | StreamAck](
    SessionGone, DeviceMoved, StreamAck
)
FOLLOWER_FROM_BACK_END: Final = Accepts[Log | TablesState](Log, TablesState)
REPLICA_FROM_PROCESSOR: Final = Accepts[PartitionRead](PartitionRead)
BACK_END_FROM_GATEWAY: Final = Accepts[Describe | Administer](Describe, Administer)
BACK_END_FROM_PROCESSOR: Final = Accepts[PartitionRead | RoutedWrite | FollowLog | LogAck](
    PartitionRead, RoutedWrite, FollowLog, LogAck
)
BACK_END_FROM_REPLICA: Final = Accepts[PartitionRead | FollowLog | LogAck](PartitionRead, FollowLog, LogAck)
NOTIFICATION_SERVER_FROM_SERVICE: Final = Accepts[Hello | StreamAck](Hello, StreamAck)
NOTIFICATION_SERVER_FROM_CLOUD: Final = Accepts[
    PoliciesFollow | DeviceMoved | StreamItem[ServerNotification]
](PoliciesFollow, DeviceMoved, StreamItem[ServerNotification])
"""From processors and the generator."""
NOTIFICATION_SERVER_FROM_ANOTHER: Final = Accepts[Occupied | Vacated](Occupied, Vacated)
GENERATOR_FROM_NOTIFICATION_SERVER: Final = Accepts[PoliciesRequest | StreamAck](PoliciesRequest, StreamAck)

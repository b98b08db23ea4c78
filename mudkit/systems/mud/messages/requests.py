"""Requests of the apps of a device, which its service sends to a gateway, and the answers of the cloud.

Servers pass a request on as it is (:class:`mudkit.systems.mud.messages.servers.Routed`), and an answer, too.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

from mudkit.systems.mud.messages.partitions import Partitions, read_partitions
from mudkit.systems.mud.messages.parts import EncodedError, Endpoint, Lsn, Row, check_consistent
from mudkit.systems.mud.messages.usage import UsageReport
from mudkit.systems.mud.tables.changes import Changes
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Table
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.tokens import Claims
from mudkit.wire import Fields, Value


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
        check_consistent(self.changes is UNSET or (self.data is None and self.type == "blind"))


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
        check_consistent(self.changes is UNSET or (self.data is None and self.type == "blind"))


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

    ``since_lsns`` has the last log position received of each partition, and ``log_incarnations`` the
    incarnation of the log in which it counts, absent: the first one; partitions of the same value are named
    together. ``delivered`` are the keys of the records that were delivered before; ``digests`` has, by bucket
    (:meth:`Table.buckets_of`), the digest of those that are not named. ``begun_lsns`` comes with it: the log
    position of each partition from which the read began. ``aggregate`` are the aggregates of which the reader
    is notified instead of records, absent: of records. ``sync_us`` is the commit time from which existing
    records are delivered, None: none of them.
    ``table`` is None at the first registration. ``selection`` has the columns that are sent, or is a window:
    with a limit, the first records of each processor are sent; absent: all columns of all records.
    """

    request: Count
    session: Name
    predicate: SentPredicate
    since_lsns: dict[Partitions, Count] = field(name="since")
    delivered: list[Name]
    sync_us: Count | None
    table: Count | None
    log_incarnations: dict[Partitions, str] | UnsetType = field(name="starts", default=UNSET)
    digests: list[tuple[Count, str]] | UnsetType = UNSET
    begun_lsns: dict[Partitions, Count] | UnsetType = field(name="begun", default=UNSET)
    aggregate: str | UnsetType = UNSET
    selection: Selection | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_consistent(UNSET in (self.aggregate, self.selection))
        for grouped in (self.since_lsns, self.log_incarnations or {}, self.begun_lsns or {}):
            for partitions in grouped:
                read_partitions(partitions)


class UpdateDataRequest(_OfContinuousRead, frozen=True, tag_field="op", tag="update_data", kw_only=True):
    """Request to replace the reader's data of a continuous read."""


class UnregisterRequest(_OfContinuousRead, frozen=True, tag_field="op", tag="unregister", kw_only=True):
    """Request to end a continuous read."""


AdministrationRequest: TypeAlias = CreateRequest | AlterRequest | DropRequest

ContinuousReadRequest: TypeAlias = RegisterRequest | UpdateDataRequest | UnregisterRequest

Request: TypeAlias = ReadRequest | WriteRequest | AdministrationRequest | ContinuousReadRequest | UsageReport


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


class RequestRefused(Struct, frozen=True, tag_field="kind", tag="refused"):
    """Gateway to client: the error for which the gateway has not passed a request on."""

    id: Name
    error: EncodedError


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
        check_consistent((self.table is UNSET) is not (self.error is UNSET))
        check_consistent(self.table is not None or self.dropped is not UNSET)


class Administered(TableResult, frozen=True, tag_field="kind", tag="administered", kw_only=True):
    """Back end to gateway to client: the result of create, alter or drop.

    ``claims`` are those that the token proves; None: there is no token.
    """

    id: Name
    claims: Claims | None


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
        has_version, has_error = self.ver is not UNSET, self.error is not UNSET
        check_consistent(has_version + has_error + (self.conflict is not UNSET) == 1)
        check_consistent(not (has_version and self.place is not UNSET))
        check_consistent(
            has_error or not (self.lsn is UNSET or self.partition is UNSET or self.table is UNSET)
        )
        check_consistent(has_version or self.row is UNSET)


class WriteOutcome(WriteResult, frozen=True, tag_field="kind", tag="outcome", kw_only=True):
    """Back end to gateway to client: the result of a write. ``claims`` as in :class:`Administered`.

    ``read_interval_ms`` is the mean interval between reads of the record's partition, in ms, 0: continuous
    reads are notified at once; absent: the client has not asked for it. ``others`` are the results of
    the other parts of a batch that was applied; absent: of a single write, or after a refusal.
    """

    id: Name
    key: Name
    read_interval_ms: Count | UnsetType = UNSET
    claims: Claims | None
    others: list[WriteResult] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.others:
            check_consistent(all(result.ver is not UNSET for result in (self, *self.others)))


class Part(Struct, frozen=True, tag_field="kind", tag="part", kw_only=True):
    """Back end or replica to gateway to client: a part of the answer to a read, that of one partition.

    It has rows, the state of aggregates, or an error. ``place`` is the partition, too.
    """

    id: Name
    partition: Count
    lsn: Count
    rows: list[Row] | UnsetType = UNSET
    state: list[Value] | UnsetType = UNSET
    error: EncodedError | UnsetType = UNSET
    place: Count

    def __post_init__(self) -> None:
        check_consistent((self.rows, self.state, self.error).count(UNSET) == 2)
        check_consistent(self.place == self.partition)


class ContinuousReadAck(Struct, frozen=True, tag_field="kind", tag="registered", kw_only=True):
    """Processor to gateway to client: acknowledgement of a registration, reader data or the end; or an error.

    ``processor`` is the address of the processor, ``partitions`` are those that it answers for,
    ``generation`` is its generation, ``lsn`` its log position in ``log_incarnation``, ``data_seq`` the number
    of the data in effect. ``unknown`` are the buckets whose digests the processor does not know: it has not
    registered the read, and needs their keys.
    """

    id: Name
    generation: Count = field(name="life")
    lsn: Lsn
    data_seq: Count
    error: EncodedError | UnsetType = UNSET
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    unknown: list[Count] | UnsetType = UNSET
    processor: Name = field(name="place")
    partitions: Partitions = field(name="of")

    def __post_init__(self) -> None:
        read_partitions(self.partitions)


class PartsComplete(Struct, frozen=True, tag_field="kind", tag="complete", kw_only=True):
    """Gateway to client: all parts have been sent; ``places`` are the partitions that must have arrived."""

    id: Name
    table: Table
    claims: Claims | None
    places: list[Count]


class UsageTaken(Struct, frozen=True, tag_field="kind", tag="usage taken"):
    """Policy generator to gateway to client: it has a report of usage."""

    id: Name


GATEWAY_FROM_SERVICE: Final = Accepts[Ask | AskBatch | AppsBatch](Ask, AskBatch, AppsBatch)
SERVICE_FROM_GATEWAY: Final = Accepts[
    Part
    | ContinuousReadAck
    | RequestRefused
    | PartsComplete
    | WriteOutcome
    | Administered
    | LogRestarted
    | UsageTaken
](
    Part,
    ContinuousReadAck,
    RequestRefused,
    PartsComplete,
    WriteOutcome,
    Administered,
    LogRestarted,
    UsageTaken,
)

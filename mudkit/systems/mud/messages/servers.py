"""Messages between gateways, processors, replicas and the back end: requests on their route, and the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

from mudkit.delivery.session import Lineage
from mudkit.systems.mud.messages.holdings import Holding
from mudkit.systems.mud.messages.naming import Assignments
from mudkit.systems.mud.messages.parts import EncodedError, Endpoint, Lsn, Row, check_consistent
from mudkit.systems.mud.messages.requests import (
    Administered,
    AdministrationRequest,
    ContinuousReadAck,
    ContinuousReadRequest,
    LogRestarted,
    Part,
    ReadRequest,
    Request,
    WriteOutcome,
    WriteRequest,
)
from mudkit.systems.mud.messages.standbys import Mastership
from mudkit.systems.mud.messages.usage import UsageReport
from mudkit.systems.mud.tables.table import Table
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.tokens import Claims


class Route(Struct, frozen=True, kw_only=True):
    """Way of a request through the cloud, and of its answer back.

    ``reply`` is the gateway, to which the answer goes. ``partitions`` are those of the table of number
    ``table`` that the receiver answers for; 0 and empty: it finds the record or table by the request.
    The answer must be at least as new as the log position ``min_lsn``, and if ``is_latest`` the latest, which
    the back end alone has. ``log_incarnation`` is the last one of the back end's log that the client knows;
    absent: the first. The processor of a write adds ``read_interval_ms`` (:class:`WriteOutcome`) if the
    client asks for it.
    """

    reply: Name
    table: Count = 0
    partitions: list[Count] = []
    min_lsn: Count = field(name="least", default=0)
    is_latest: bool = field(name="latest", default=False)
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    read_interval_ms: Count | UnsetType = UNSET


class Verified(Struct, frozen=True, kw_only=True):
    """Sender of a request, as a gateway has verified it.

    The network vouches for the device of ``endpoint``, and for ``address``, that of its service. ``claims``
    are those of the token, which is of the app of ``endpoint``; None: there is none, and the app is not
    proven. ``token_error`` is the error of a token that has expired: a write with it is only answered with
    its result if it was applied before, and no other request is passed on. None: it has not expired.
    """

    endpoint: Endpoint
    address: Name
    claims: Claims | None
    token_error: EncodedError | None = field(name="refused", default=None)

    @property
    def auth(self) -> Mapping[str, str]:
        """App and user of the token, ``auth.…`` in predicates; empty: there is no token."""
        return {} if self.claims is None else self.claims.auth


_R = TypeVar("_R", bound=Request, covariant=True)


class Routed(Struct, Generic[_R], frozen=True, tag_field="kind", tag="routed"):
    """Server to server: a request as its client has sent it, with its route and its verified sender.

    A server passes ``what`` and ``verified`` on unchanged, and accepts it from servers alone.
    """

    id: Name
    what: _R
    route: Route
    verified: Verified


ReadOrWrite: TypeAlias = ReadRequest | WriteRequest


class FollowLog(Struct, frozen=True, tag_field="kind", tag="follow"):
    """Follower to back end: request for the whole state; ``incarnation`` is the follower's.

    A gateway follows the entries of tables only: its state has no rows. One of several processors requests
    the rows of its ``holding``, but those that are in all ``formers``, if any, which it has: these were its
    holdings, one after the other. It numbers such requests, behind its incarnation.
    """

    incarnation: Name = field(name="turn")
    holding: Holding | UnsetType = UNSET
    formers: list[Holding] | UnsetType = UNSET


class LogAck(Struct, frozen=True, tag_field="kind", tag="has"):
    """Follower to back end: acknowledgement of the log up to an entry.

    ``log_incarnation`` is the last one that the follower knows; absent: the first. ``nonce`` asks for the
    lineage of the log as it is now, and for the entries that the follower lacks; absent: no question. One of
    several processors says which rows it holds, whose entries it is sent.
    """

    lsn: Lsn
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    nonce: Name | UnsetType = UNSET
    holding: Holding | UnsetType = UNSET


class RowEntry(Struct, frozen=True, tag_field="op", tag="row"):
    """Entry of the log: a version of a record in the table ``name``.

    ``following`` is the number of entries of the same batch that follow; absent: none.

    The back end has stored its row before it, so that a store need not decode what it has encoded.
    """

    is_plain: ClassVar[bool] = True

    lsn: Count
    name: Name
    row: Row
    following: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_consistent(self.row.lsn == self.lsn)


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


class LookupEntry(Struct, frozen=True, tag_field="op", tag="lookup"):
    """Entry of the log: a writer predicate of the table ``name`` looks up records in ``looked_up``.

    It is put before the first such version if there are several processors. Those that serve a partition of
    ``name`` hold the other table whole from here on; ``rows`` are all that it has. Others are sent no rows.
    """

    lsn: Count
    name: Name
    looked_up: Name
    rows: list[Row] = []


LogEntry: TypeAlias = RowEntry | TableEntry | DropEntry | CollectEntry | LookupEntry


class Log(Struct, frozen=True, tag_field="kind", tag="log"):
    """Back end to follower: the next entries of the log, none: a question.

    A follower that has no state requests it (:class:`FollowLog`), another one says its position. ``lineage``
    is that of the log; absent: it is empty. ``nonce`` is that of :class:`LogAck`, in the answer: if the
    follower knows this incarnation of the log, with all entries after the position ``after_lsn`` and up to
    ``through_lsn``, the last one at the answer. A gateway is sent those of tables, always with these two;
    one of several processors is sent those of its rows and of all tables, with these two, and with the digest
    of the ``holding`` that they were chosen by; other followers are sent all entries, which have no gaps.
    Absent: it is no answer, or the follower is only asked for its position. A follower other than a gateway
    that is before ``after_lsn``, and is sent no entries, lacks some that were deleted: it requests the state.
    """

    entries: list[LogEntry]
    lineage: Lineage | UnsetType = UNSET
    nonce: Name | UnsetType = UNSET
    after_lsn: Count | UnsetType = field(name="after", default=UNSET)
    through_lsn: Count | UnsetType = field(name="through", default=UNSET)
    holding: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_consistent((self.after_lsn is UNSET) is (self.through_lsn is UNSET))


class TablesState(Struct, frozen=True, tag_field="kind", tag="state"):
    """Back end to follower: all tables and rows at a position of the log, in answer to :class:`FollowLog`.

    A gateway is sent no rows, and the tables also if it lacks more entries than the back end still has. One
    of several processors is sent the rows that it has requested, with the digest of its holdings, and by
    table the tables that writer predicates look up records in.
    """

    incarnation: str = field(name="turn")
    lsn: Count
    tables: list[Table]
    rows: list[tuple[Name, Row]]
    lineage: Lineage | UnsetType = UNSET
    holding: Count | UnsetType = UNSET
    lookups: dict[Name, list[Name]] | UnsetType = UNSET


GATEWAY_FROM_BACK_END: Final = Accepts[
    Administered | WriteOutcome | Part | LogRestarted | Log | TablesState | Mastership
](Administered, WriteOutcome, Part, LogRestarted, Log, TablesState, Mastership)
GATEWAY_FROM_REPLICA: Final = Accepts[Part](Part)
GATEWAY_FROM_PROCESSOR: Final = Accepts[ContinuousReadAck | Assignments](ContinuousReadAck, Assignments)
PROCESSOR_FROM_GATEWAY: Final = Accepts[Routed[ReadOrWrite | ContinuousReadRequest] | Assignments](
    Routed[ReadOrWrite | ContinuousReadRequest], Assignments
)
PROCESSOR_FROM_BACK_END: Final = Accepts[Log | TablesState | Mastership | Assignments](
    Log, TablesState, Mastership, Assignments
)
REPLICA_FROM_BACK_END: Final = Accepts[Log | TablesState | Mastership](Log, TablesState, Mastership)
REPLICA_FROM_PROCESSOR: Final = Accepts[Routed[ReadRequest]](Routed[ReadRequest])
GENERATOR_FROM_GATEWAY: Final = Accepts[Routed[UsageReport]](Routed[UsageReport])
BACK_END_FROM_GATEWAY: Final = Accepts[Routed[AdministrationRequest] | FollowLog | LogAck](
    Routed[AdministrationRequest], FollowLog, LogAck
)
BACK_END_FROM_PROCESSOR: Final = Accepts[Routed[ReadOrWrite] | FollowLog | LogAck | Assignments](
    Routed[ReadOrWrite], FollowLog, LogAck, Assignments
)
BACK_END_FROM_REPLICA: Final = Accepts[Routed[ReadRequest] | FollowLog | LogAck](
    Routed[ReadRequest], FollowLog, LogAck
)

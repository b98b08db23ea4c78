"""Followers of the back end's log: a position in it, and a copy of the tables for replicas and processors.

One of several processors has a copy of the rows of its holding only, and is sent their entries. A message of
the back end names the holding by which they were chosen: those of another one are not taken, and the
acknowledgement has the present one. A holding that gains rows is followed from the present position on, and
the rows that lack are requested: they come as of another position. Of two versions of a record the later one
stays, so that the copy has them when it has come to that position, too. Until then no read of them begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Follower, Lineage, last_incarnation, last_lsn_of, shared_lsn
from mudkit.events import Effect, Entropy, Send
from mudkit.systems.mud.messages.holdings import Holding, digest_of, is_in_all
from mudkit.systems.mud.messages.servers import (
    CollectEntry,
    DropEntry,
    FollowLog,
    Log,
    LogAck,
    LogEntry,
    LookupEntry,
    RowEntry,
    TableEntry,
    TablesState,
)
from mudkit.systems.mud.tables.replica import TableReplica
from mudkit.systems.mud.tables.table import Table

BEGIN: Final = "begin"
"""Name of the timer until the back end has sent its state."""
_BEGIN_US: Final = 200_000
QUESTIONS_US: Final = 50_000
MAX_QUESTIONS: Final = 10
"""Questions in that time, at most, that messages open: damaged copies may open many without an end."""
_Layout: TypeAlias = tuple[int, tuple[str, ...]]
"""Number and split of a table, which never change."""


class HeardLog:
    """Position of a follower in the back end's log, and what it knows of the log's lineage."""

    def __init__(self, back_end: str, entropy: Entropy) -> None:
        self.back_end = back_end
        """Address of the master."""
        self._entropy = entropy
        self._incarnation = entropy(8).hex()
        self.lsn = -1
        """Last entry received, whether or not the copy has applied it; -1: no state yet."""
        self.confirmed_us: int | None = None
        """Time at which the question was first sent whose answer came last, and all entries that it names.

        What was committed before is in this log. None: nothing is confirmed.
        """
        self._history = Follower()
        self._asked_us: int | None = None
        """Time at which the open question was first sent; None: it was not sent, or there is none."""
        self._since_us, self._questions = 0, 0
        """Number of questions since a time."""
        self._answered_us: int | None = None
        """Time at which the question was first sent that the last message answers; None: it answers none."""

    @property
    def lineage(self) -> Lineage:
        """Last known lineage of the log."""
        return self._history.lineage

    @property
    def log_incarnation(self) -> str:
        """Last known incarnation of the log; empty: the first one."""
        return last_incarnation(self.lineage)

    def accept_log(self, message: Log | TablesState) -> bool:
        """Follow the lineage of a message; return False if the message may be a late copy.

        It may be one if it has another lineage and does not answer the open question. Then there is an open
        question, which :meth:`acknowledge` sends.

        Discard the state if the log was restored from a backup and does not contain all of it. Discard it,
        too, if the log does not contain its last incarnation: this copy has gone back with it, and the log
        may have removed entries that were acknowledged before.
        """
        before, log_incarnation, question = self.lineage, self.log_incarnation, self._history.nonce
        lineage: Lineage = {} if message.lineage is UNSET else message.lineage
        nonce = message.nonce if isinstance(message, Log) and message.nonce is not UNSET else None
        self._answered_us = None
        if not self._history.accept_lineage(lineage, 0, nonce):
            self._history.open_question(self._entropy)
            return False
        if question is not None and nonce == question:
            self._answered_us, self._asked_us = self._asked_us, None
        is_abandoned = bool(log_incarnation) and log_incarnation not in lineage
        if is_abandoned or self.lsn > shared_lsn(before, self.lsn, lineage, self.lsn):
            self._discard()
        return True

    def _discard(self) -> None:
        """Discard the state."""
        self.lsn, self.confirmed_us = -1, None

    @property
    def is_asking(self) -> bool:
        """True while a question that was sent is open."""
        return self._asked_us is not None

    def ask_position(self, now_us: int) -> Send:
        """Build the question which entries the log has by now; one that is open is sent again."""
        self._history.open_question(self._entropy)
        self._questions = 0
        return self.acknowledge(now_us)

    def acknowledge(self, now_us: int) -> Send:
        """Build the acknowledgement of the log up to the last entry received.

        The open question is sent with it, unless too many were sent just now: the back end repeats what is
        not acknowledged, and the sender of a request asks again.
        """
        nonce = self._history.nonce
        if now_us >= self._since_us + QUESTIONS_US:
            self._since_us, self._questions = now_us, 0
        if nonce is not None:
            self._questions += 1
            nonce = nonce if self._questions <= MAX_QUESTIONS else None
        if nonce is not None and self._asked_us is None:
            self._asked_us = now_us
        return Send(self.back_end, LogAck(self.lsn, self.log_incarnation or UNSET, nonce or UNSET))


class LogFollower(HeardLog):
    """Copy of the tables that follows the back end's log, in order, across restarts of either side.

    A state that an earlier incarnation of the machine requested is too old. ``holding`` has the rows of the
    copy; None: all rows.
    """

    def __init__(self, back_end: str, entropy: Entropy, holding: Holding | None = None) -> None:
        super().__init__(back_end, entropy)
        self.copy = TableReplica()
        self._use(holding)
        self.lookups: dict[str, set[str]] = {}
        """Tables in which writer predicates look up records, by the table that they are of."""
        self._formers: list[Holding] = []
        """Holdings since the copy had all rows of one: it has those that are in all, and in the present."""
        self._complete_lsn: int | None = None
        """Position at which the copy has all rows again; None: it is not known yet."""
        self._collected_lsns: dict[str, int] = {}
        """Position up to which tombstones were removed while rows lack, by table."""
        self._requests = 0
        """Requests of other holdings."""
        self._tables: dict[str, _Layout] = {}
        """Tables that exist at the last entry received, by name."""
        self._request: RetransmitTimer[str] = RetransmitTimer(BEGIN, _BEGIN_US, _BEGIN_US, 0)

    def accept_log(self, message: Log | TablesState) -> bool:
        """Follow the lineage of a message; discard the state if the back end has deleted what it lacks.

        Discard it, too, if rows have come of a later position, which the log may have lost.
        """
        lineage = self.lineage
        is_accepted = super().accept_log(message)
        if self._complete_lsn is not None and self.lineage != lineage:
            self._discard()
        is_empty = is_accepted and isinstance(message, Log) and not message.entries
        after_lsn = message.after_lsn if is_empty and isinstance(message, Log) else UNSET
        if after_lsn is not UNSET and 0 <= self.lsn < after_lsn:
            self._discard()
        return is_accepted

    def _discard(self) -> None:
        """Discard the state, with the copy."""
        super()._discard()
        self.copy, self._tables, self.lookups = TableReplica(), {}, {}
        self._forget_formers()

    def _forget_formers(self) -> None:
        """Regard no rows as lacking besides those of the request that comes next."""
        self._formers, self._complete_lsn, self._collected_lsns = [], None, {}
        self._requests += self.holding is not None

    # -- the rows of a processor

    def _use(self, holding: Holding | None) -> None:
        """Use a holding from now on."""
        self.holding = holding
        self._digest: int | UnsetType = UNSET if holding is None else digest_of(holding)

    def has_rows(self, table: Table, partitions: Iterable[int], looked_up: Collection[str] = ()) -> bool:
        """Return whether the copy has all rows of partitions, and of the tables that are ``looked_up``."""
        if self.holding is None:
            return True
        holdings = [self.holding, *self._formers]
        return all(is_in_all(holdings, table, partition) for partition in partitions) and all(
            name in holding.tables for name in looked_up for holding in holdings
        )

    def count_partitions(self, table: Table) -> int:
        """Return how many partitions of a table are in the holding."""
        if self.holding is None:
            return table.partitions
        return sum(self.holding.has(table, partition) for partition in range(table.partitions))

    def change_holding(self, now_us: int, holding: Holding) -> Sequence[Effect]:
        """Follow other rows from now on: discard those that are followed no more, and request new ones."""
        former = self.holding
        if former is None or holding == former:
            return ()
        self._use(holding)
        if self.lsn < 0:
            self._forget_formers()
            return self.request_state(now_us) if len(self._request) else ()
        self.copy.discard_rows_besides(holding)
        self._formers.append(former)
        self._complete_lsn = None
        if self._has_all_rows():
            self._forget_formers()
            return self.acknowledge(now_us), *self._request.clear()
        self._requests += 1
        return self.request_state(now_us)

    def keep_looked_up(self, entry: LookupEntry) -> None:
        """Follow a table whole from an entry on that has its rows, if a partition needs it."""
        if self.holding is None or not self.holding.serves_any(self.copy.tables[entry.name]):
            return
        table = self.copy.tables.get(entry.looked_up)
        if table is not None and not self.has_rows(table, range(table.partitions)):
            self.copy.replace_rows(table, entry.rows)
        if entry.looked_up not in self.holding.tables:
            self._use(self.holding.with_tables([entry.looked_up]))
            self._formers = [former.with_tables([entry.looked_up]) for former in self._formers]

    def _has_all_rows(self) -> bool:
        """Return whether no row of the holding lacks."""
        return all(
            self.has_rows(table, [partition])
            for table in self.copy.tables.values()
            for partition in range(table.partitions)
            if self.holding is None or self.holding.has(table, partition)
        )

    def _complete(self) -> None:
        """Note that no rows lack if the copy has come to the position of those that came."""
        if self._complete_lsn is not None and self.lsn >= self._complete_lsn:
            self._formers, self._complete_lsn, self._collected_lsns = [], None, {}

    def acknowledge(self, now_us: int) -> Send:
        """Build the acknowledgement of the log up to the last entry received, with question and holding."""
        acknowledgement = super().acknowledge(now_us)
        if self.holding is None:
            return acknowledgement
        return Send(acknowledgement.to, replace(acknowledgement.message, holding=self.holding))

    # -- the log

    def shared_lsn(self, log_incarnation: str) -> int:
        """Return the last position of an incarnation that is still in the log."""
        return last_lsn_of(self.lineage, log_incarnation, self.lsn)

    def is_consistent(self, message: Log | TablesState) -> bool:
        """Return whether a state, or the new ones of some entries, can be applied: rows have tables."""
        if isinstance(message, Log):
            return self.lsn < 0 or self._is_applicable(self._next_entries(message))
        tables = _layouts_of(message.tables)
        has_own_numbers = len({number for number, _ in tables.values()}) == len(message.tables)
        has_tables = all(name in tables for name in message.lookups or ())
        return has_own_numbers and has_tables and all(name in tables for name, _ in message.rows)

    def _next_entries(self, message: Log) -> list[LogEntry]:
        """Return the entries of a message that are next in order; none, if some between them may lack."""
        entries: list[LogEntry] = []
        if self.holding is None:
            for entry in message.entries:
                if entry.lsn == self.lsn + 1 + len(entries):
                    entries.append(entry)
        elif self._is_chosen(message):
            entries += [entry for entry in message.entries if entry.lsn > self.lsn]
        return entries

    def _is_chosen(self, message: Log) -> bool:
        """Return whether a message has all entries of the holding from the present position on."""
        after_lsn = message.after_lsn
        return message.holding == self._digest and after_lsn is not UNSET and after_lsn <= self.lsn

    def _is_applicable(self, entries: Sequence[LogEntry]) -> bool:
        """Return whether entries are in order, and change tables that exist."""
        tables: dict[str, _Layout] | None = self._tables
        lsn = self.lsn
        for entry in entries:
            tables = None if tables is None or entry.lsn <= lsn else _layouts_after(tables, entry)
            lsn = entry.lsn
        return tables is not None

    def request_state(self, now_us: int) -> Sequence[Effect]:
        """Request the state, or the rows that lack, from the back end; repeated until it has arrived."""
        if self.lsn >= 0 and (not self._formers or self._complete_lsn is not None):
            return ()
        name = self._request_name
        superseded = () if name in self._request else self._request.clear()
        request = FollowLog(name, UNSET if self.holding is None else self.holding, self._formers or UNSET)
        return *superseded, Send(self.back_end, request), *self._request.start(now_us, name)

    @property
    def _request_name(self) -> str:
        """Name of the last request: the incarnation, with a number behind it after the first one."""
        return f"{self._incarnation}.{self._requests}" if self._requests else self._incarnation

    def retransmit_request(self, now_us: int) -> Sequence[Effect]:
        """Repeat an overdue request after the timer fired."""
        effects = self.request_state(now_us) if self._request.overdue(now_us) else ()
        return [*effects, *self._request.restart(now_us)]

    def load_state(self, now_us: int, message: TablesState) -> Sequence[Effect]:
        """Load the state, or the rows that lack, into the copy, and acknowledge it.

        Empty, without effect: another start, or another request, has asked for it.
        """
        name = self._request_name
        requested = UNSET if self.holding is None else digest_of(self.holding, *self._formers)
        if message.incarnation != name or message.holding != requested:
            return ()
        if self.lsn < 0:
            self.copy.load(message.lsn, message.tables, message.rows)
            self.lsn = self.copy.lsn
            self._tables = _layouts_of(message.tables)
            self.lookups = {table: {*looked_up} for table, looked_up in (message.lookups or {}).items()}
        elif self._formers and self._complete_lsn is None:
            self.copy.add_rows(message.tables, message.rows, self._collected_lsns)
            self._complete_lsn = message.lsn
            self._complete()
        return self.acknowledge(now_us), *self._request.settle(now_us, name)

    def take_entries(self, message: Log) -> Iterator[LogEntry]:
        """Yield the entries of a message that are next in order, and advance; the caller applies them.

        If the holding changes meanwhile, the others were chosen by the former one, and are sent again.
        """
        if self.lsn < 0:
            return
        holding, is_chosen = self.holding, self.holding is not None and self._is_chosen(message)
        entries = self._next_entries(message)
        is_applicable = self._is_applicable(entries)
        for entry in entries:
            if is_applicable:
                self._tables = _layouts_after(self._tables, entry) or {}
            self.lsn = entry.lsn
            if self._formers and isinstance(entry, CollectEntry):
                self._collected_lsns[entry.name] = entry.until_lsn
            yield entry
            if self.holding is not holding:
                return
        if is_chosen and message.through_lsn is not UNSET:
            self.lsn = self.copy.lsn = max(self.lsn, message.through_lsn)
        self._complete()

    def apply(self, entry: LogEntry) -> None:
        """Apply an entry to the copy, unless it is one of a row that is not held."""
        match entry:
            case RowEntry():
                table = self.copy.tables[entry.name]
                if self.holding is not None and not self.holding.has(
                    table, table.partition_of(entry.row.key)
                ):
                    self.copy.lsn = entry.lsn
                    return
            case LookupEntry():
                self.lookups.setdefault(entry.name, set()).add(entry.looked_up)
            case DropEntry():
                self.lookups.pop(entry.name, None)
        self.copy.apply(entry)

    def confirm(self, message: Log) -> bool:
        """Note what an answer confirms whose entries were taken; return whether it confirms something."""
        through_lsn = message.through_lsn
        if self._answered_us is None or through_lsn is UNSET or self.lsn < through_lsn:
            return False
        self.confirmed_us = self._answered_us
        return True


def _layouts_after(tables: dict[str, _Layout], entry: LogEntry) -> dict[str, _Layout] | None:
    """Return the tables after an entry; None: it does not fit them."""
    match entry:
        case RowEntry() | LookupEntry() | CollectEntry():
            return tables if entry.name in tables else None
        case DropEntry():
            without = {name: layout for name, layout in tables.items() if name != entry.name}
            return without if entry.name in tables else None
        case TableEntry():
            ((name, layout),) = _layouts_of([entry.table]).items()
            known = tables.get(name)
            is_taken = any(number == layout[0] for number, _ in tables.values())
            return None if known != layout and (known is not None or is_taken) else {**tables, name: layout}


def _layouts_of(tables: Iterable[Table]) -> dict[str, _Layout]:
    """Return number and split of each table, by name."""
    return {table.name: (table.number, tuple(table.split)) for table in tables}

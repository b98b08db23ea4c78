"""Replica: a copy of the master's tables with a lag, which answers reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Follower, Lineage, last_incarnation, last_lsn_of, shared_lsn
from mudkit.errors import MudkitError, TableProblem
from mudkit.events import Effect, Entropy, Event, LinkUp, Ports, Received, Send, SetTimer, TimerFired
from mudkit.systems.mud.messages import (
    FOLLOWER_FROM_BACK_END,
    REPLICA_FROM_PROCESSOR,
    DropEntry,
    FollowLog,
    Log,
    LogAck,
    LogEntry,
    Part,
    PartitionRead,
    State,
    TableEntry,
    encode_error,
)
from mudkit.systems.mud.tables.replica import TableReplica, aggregate, claims_of
from mudkit.systems.mud.tables.table import Table, no_such_table
from mudkit.systems.receiving import Accepts, record_dropped

BEGIN: Final = "begin"
"""Name of the timer until the back end has sent its state."""
_BEGIN_US: Final = 200_000
_Place: TypeAlias = tuple[int, tuple[str, ...]]
"""Number and split of a table, which never change."""


class LogFollower:
    """Copy of the tables that follows the back end's log, in order, across restarts of either side.

    A state that an earlier incarnation of the machine requested is too old.
    """

    def __init__(self, master: str, entropy: Entropy) -> None:
        self._master = master
        self._entropy = entropy
        self._incarnation = entropy(8).hex()
        self.copy = TableReplica()
        self.lsn = -1
        """Last entry received, whether or not the copy has applied it; -1: no state yet."""
        self._tables: dict[str, _Place] = {}
        """Tables that exist at that entry, by name."""
        self._history = Follower()
        self._request: RetransmitTimer[str] = RetransmitTimer(BEGIN, _BEGIN_US, _BEGIN_US, 0)

    @property
    def lineage(self) -> Lineage:
        """Last known lineage of the log."""
        return self._history.lineage

    @property
    def log_incarnation(self) -> str:
        """Last known incarnation of the log; empty: the first one."""
        return last_incarnation(self.lineage)

    def hear(self, message: Log | State) -> bool:
        """Return whether a message is of the present log; if not, :meth:`acknowledge` asks for its lineage.

        Discard the state if the log was restored from a backup and does not contain all of it. Discard it,
        too, if the log does not contain its last incarnation: this copy has gone back with it, and the log
        may have removed entries that were acknowledged before.
        """
        before, log_incarnation = self.lineage, self.log_incarnation
        lineage: Lineage = {} if message.lineage is UNSET else message.lineage
        nonce = message.nonce if isinstance(message, Log) and message.nonce is not UNSET else None
        if not self._history.hear(lineage, 0, nonce):
            self._history.ask(self._entropy)
            return False
        is_abandoned = bool(log_incarnation) and log_incarnation not in lineage
        if is_abandoned or self.lsn > shared_lsn(before, self.lsn, lineage, self.lsn):
            self.copy, self.lsn, self._tables = TableReplica(), -1, {}
        return True

    def shared_lsn(self, log_incarnation: str) -> int:
        """Return the last position of an incarnation that is still in the log."""
        return last_lsn_of(self.lineage, log_incarnation, self.lsn)

    def fits(self, message: Log | State) -> bool:
        """Return whether a state, or the new ones of some entries, are consistent: rows have tables."""
        if isinstance(message, Log):
            return self.lsn < 0 or self._after(message.entries) is not None
        tables = _places(message.tables)
        has_own_numbers = len({number for number, _ in tables.values()}) == len(message.tables)
        return has_own_numbers and all(name in tables for name, _ in message.rows)

    def _after(self, entries: Sequence[LogEntry]) -> dict[str, _Place] | None:
        """Return the tables after some entries; None: the entries are inconsistent."""
        tables, lsn = self._tables, self.lsn
        for entry in entries:
            if entry.lsn != lsn + 1:
                continue
            lsn += 1
            if not isinstance(entry, TableEntry):
                if entry.name not in tables:
                    return None
                if isinstance(entry, DropEntry):
                    tables = {name: place for name, place in tables.items() if name != entry.name}
                continue
            ((name, place),) = _places([entry.table]).items()
            known = tables.get(name)
            is_taken = any(number == place[0] for number, _ in tables.values())
            if known != place and (known is not None or is_taken):
                return None
            tables = {**tables, name: place}
        return tables

    def request_state(self, now_us: int) -> Sequence[Effect]:
        """Request the whole state, until it has arrived."""
        if self.lsn >= 0:
            return ()
        return Send(self._master, FollowLog(self._incarnation)), *self._request.start(
            now_us, self._incarnation
        )

    def retransmit_request(self, now_us: int) -> Sequence[Effect]:
        """Repeat an overdue request after the timer fired."""
        effects = self.request_state(now_us) if self._request.overdue(now_us) else ()
        return [*effects, *self._request.restart(now_us)]

    def load_state(self, now_us: int, message: State) -> Sequence[Effect]:
        """Load the first state."""
        if message.incarnation != self._incarnation:
            return ()
        if self.lsn < 0:
            self.copy.load(message.lsn, message.tables, message.rows)
            self.lsn = self.copy.lsn
            self._tables = _places(message.tables)
        return self.acknowledge(), *self._request.settle(now_us, self._incarnation)

    def take(self, message: Log) -> Iterator[LogEntry]:
        """Iterate over the new entries, in order."""
        after = self._after(message.entries)
        self._tables = self._tables if after is None else after
        for entry in message.entries:
            if self.lsn >= 0 and entry.lsn == self.lsn + 1:
                self.lsn += 1
                yield entry

    def acknowledge(self) -> Send:
        """Acknowledge the log up to the last entry received, with the open question."""
        return Send(
            self._master, LogAck(self.lsn, self.log_incarnation or UNSET, self._history.nonce or UNSET)
        )


def _places(tables: Iterable[Table]) -> dict[str, _Place]:
    return {table.name: (table.number, tuple(table.split)) for table in tables}


def answer_read(
    copy: TableReplica, read: PartitionRead, master: str | None = None, *, is_other_log: bool = False
) -> Sequence[Effect]:
    """Answer a read of one partition from a copy, or pass it to the master if the copy is too old.

    ``master`` None: this is the master, which is too old only if its store was wiped. ``is_other_log``: the
    reader knows another incarnation of the log than the copy.
    """
    table = copy.tables.get(read.name)
    is_behind = copy.lsn < read.min_lsn
    if master is not None and (is_behind or is_other_log or table is None):
        return (Send(master, read),)
    try:
        if is_behind:
            raise TableProblem(
                "The store is older than what this client has read.",
                where=f"table {read.name!r}",
                found=f"entry {copy.lsn} of the log",
                expected=f"entry {read.min_lsn} or a later one",
                remedy="it was wiped: begin with an empty storage of the device",
            )
        if table is None or not table.has(read.table, [read.partition]):
            raise no_such_table(read.name, copy.tables)
        table.check_access(claims_of(read.auth))  # it may have changed since the gateway checked it
        predicate = None if read.predicate is None else read.predicate.predicate()
        rows = copy.select(table, read.partition, predicate, read.keys, read.reader, read.auth)
        if read.aggregate is None:
            part = Part(id=read.id, partition=read.partition, lsn=copy.lsn, rows=rows)
        else:
            state = aggregate(rows, read.aggregate)
            part = Part(id=read.id, partition=read.partition, lsn=copy.lsn, state=state)
    except MudkitError as error:
        part = Part(id=read.id, partition=read.partition, lsn=copy.lsn, error=encode_error(error))
    return (Send(read.reply, part),)


_APPLY: Final = "apply"


class Replica:
    """Machine of a replica.

    ``processors`` pass reads on; ``lag_us`` is the time from receiving an entry to applying it.
    """

    def __init__(self, ports: Ports, master: str, processors: Sequence[str], lag_us: int) -> None:
        self._master = master
        self._accepts: dict[str, Accepts[Log | State] | Accepts[PartitionRead]] = {
            master: FOLLOWER_FROM_BACK_END,
            **dict.fromkeys(processors, REPLICA_FROM_PROCESSOR),
        }
        self._lag_us = lag_us
        self._log = LogFollower(master, ports.entropy)
        self._waiting: deque[tuple[int, LogEntry]] = deque()

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received():
                accepts = self._accepts.get(event.source)
                message = None if accepts is None else accepts.decode(event.message)
                return record_dropped(event) if message is None else self._receive(now_us, event, message)
            case LinkUp():
                return self._log.request_state(now_us)
            case TimerFired(name="begin"):
                return self._log.retransmit_request(now_us)
            case TimerFired():
                return self._apply(now_us)
        return ()

    def _receive(
        self, now_us: int, event: Received, message: Log | State | PartitionRead
    ) -> Sequence[Effect]:
        if isinstance(message, PartitionRead):
            is_other = (message.log_incarnation or "") != self._log.log_incarnation
            return answer_read(self._log.copy, message, self._master, is_other_log=is_other)
        copy = self._log.copy
        if not self._log.hear(message):
            return (
                self._log.acknowledge(),
            )  # of another incarnation: a later or a former one, or the store was wiped
        if self._log.copy is not copy:
            self._waiting.clear()
        if not self._log.fits(message):
            return record_dropped(event)
        if isinstance(message, State):
            return self._log.load_state(now_us, message)
        if self._log.lsn < 0:
            return self._log.request_state(now_us)
        self._waiting += [(now_us + self._lag_us, entry) for entry in self._log.take(message)]
        return self._log.acknowledge(), *self._apply(now_us)

    def _apply(self, now_us: int) -> Sequence[Effect]:
        while self._waiting and self._waiting[0][0] <= now_us:
            self._log.copy.apply(self._waiting.popleft()[1])
        return (SetTimer(_APPLY, self._waiting[0][0] - now_us),) if self._waiting else ()

"""Replica: a copy of the tables of the back end with a lag, which answers reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, UnsetType

from mudkit.errors import MudkitError, TableProblem
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, SetTimer, TimerFired
from mudkit.systems.mud.messages.naming import REPLICA_FROM_NAMING
from mudkit.systems.mud.messages.parts import EncodedError, Row, encode_error
from mudkit.systems.mud.messages.requests import Part, ReadRequest, Request
from mudkit.systems.mud.messages.servers import (
    REPLICA_FROM_BACK_END,
    REPLICA_FROM_PROCESSOR,
    Log,
    LogEntry,
    Routed,
    TablesState,
)
from mudkit.systems.mud.messages.standbys import Mastership
from mudkit.systems.mud.servers.known_master import KnownMaster
from mudkit.systems.mud.servers.log_follower import LogFollower
from mudkit.systems.mud.tables.replica import TableReplica, aggregate, select_rows
from mudkit.systems.mud.tables.table import no_such_table_error
from mudkit.systems.receiving import Accepts, record_dropped
from mudkit.wire import Value


def answer_read(
    copy: TableReplica,
    routed: Routed[Request],
    read: ReadRequest,
    back_end: str | None = None,
    *,
    is_other_log: bool = False,
) -> Sequence[Effect]:
    """Answer a read of the partitions of its route from a copy, or pass it on if the copy is too old.

    It is passed to the ``back_end``; None: this is the back end, which is too old only if its store was
    wiped. ``is_other_log``: the reader knows another incarnation of the log than the copy.
    """
    route = routed.route
    is_behind = copy.lsn < route.min_lsn
    if back_end is not None and (is_behind or is_other_log or read.name not in copy.tables):
        return (Send(back_end, routed),)
    return [Send(route.reply, _build_part(copy, routed, read, partition)) for partition in route.partitions]


def _build_part(copy: TableReplica, routed: Routed[Request], read: ReadRequest, partition: int) -> Part:
    """Build the part of the answer to a read that one partition has, or its error."""
    rows: list[Row] | UnsetType = UNSET
    state: list[Value] | UnsetType = UNSET
    error: EncodedError | UnsetType = UNSET
    try:
        selected = _select(copy, routed, read, partition)
        if read.aggregate is None:
            rows = selected
        else:
            state = aggregate(selected, read.aggregate)
    except MudkitError as problem:
        error = encode_error(problem)
    return Part(
        id=routed.id, partition=partition, lsn=copy.lsn, rows=rows, state=state, error=error, place=partition
    )


def _select(copy: TableReplica, routed: Routed[Request], read: ReadRequest, partition: int) -> list[Row]:
    """Return the rows of a partition that a read asks for; raise MudkitError if it cannot be answered."""
    route, verified = routed.route, routed.verified
    table = copy.tables.get(read.name)
    if copy.lsn < route.min_lsn:
        raise TableProblem(
            "The store is older than what this client has read.",
            where=f"table {read.name!r}",
            found=f"entry {copy.lsn} of the log",
            expected=f"entry {route.min_lsn} or a later one",
            remedy="it was wiped: begin with an empty storage of the device",
        )
    if table is None or not table.has_partitions(route.table, [partition]):
        raise no_such_table_error(read.name, copy.tables)
    table.check_access(verified.claims)  # it may have changed since the gateway checked it
    predicate = None if read.predicate is None else read.predicate.predicate()
    rows = copy.select(table, partition, predicate, read.keys, read.reader, verified.auth)
    return rows if read.selection is UNSET else select_rows(rows, read.selection)


_APPLY: Final = "apply"


class Replica:
    """Machine of a replica.

    ``stores`` are those of the back end, and ``naming`` is the naming machine. ``processors`` pass reads on;
    ``lag_us`` is the time from receiving an entry to applying it.
    """

    def __init__(
        self, ports: Ports, stores: Sequence[str], processors: Sequence[str], naming: str, lag_us: int
    ) -> None:
        self._accepts: dict[
            str, Accepts[Log | TablesState | Mastership] | Accepts[Routed[ReadRequest]] | Accepts[Mastership]
        ] = {
            **dict.fromkeys(stores, REPLICA_FROM_BACK_END),
            **dict.fromkeys(processors, REPLICA_FROM_PROCESSOR),
            naming: REPLICA_FROM_NAMING,
        }  # fmt: skip
        self._lag_us = lag_us
        self._master = KnownMaster(ports, naming, stores)
        self._log = LogFollower(self._master.address, ports.entropy)
        self._waiting: deque[tuple[int, LogEntry]] = deque()

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received():
                accepts = self._accepts.get(event.source)
                message = None if accepts is None else accepts.decode(event.message)
                done = None if message is None else self._receive(now_us, event, message)
                return record_dropped(event) if done is None else done
            case LinkUp():
                return self._log.request_state(now_us)
            case TimerFired(name="begin"):
                return self._log.retransmit_request(now_us)
            case TimerFired():
                return self._apply_due(now_us)
        return ()

    def _receive(
        self, now_us: int, event: Received, message: Log | TablesState | Routed[ReadRequest] | Mastership
    ) -> Sequence[Effect] | None:
        """Handle a message that its sender may send: answer a read, or follow the log; None: drop it."""
        if isinstance(message, Routed):
            is_other = (message.route.log_incarnation or "") != self._log.log_incarnation
            back_end = self._master.address
            return answer_read(self._log.copy, message, message.what, back_end, is_other_log=is_other)
        if isinstance(message, Mastership):
            taken = self._master.take(event.source, message)
            self._log.back_end = self._master.address
            return taken
        if event.source != self._master.address:
            return self._master.ask(event.source)
        copy = self._log.copy
        if not self._log.accept_log(message):
            return (
                self._log.acknowledge(now_us),
            )  # of another incarnation: a later or a former one, or the store was wiped
        if self._log.copy is not copy:
            self._waiting.clear()
        if not self._log.is_consistent(message):
            return record_dropped(event)
        if isinstance(message, TablesState):
            return self._log.load_state(now_us, message)
        if self._log.lsn < 0:
            return self._log.request_state(now_us)
        self._waiting += [(now_us + self._lag_us, entry) for entry in self._log.take_entries(message)]
        return self._log.acknowledge(now_us), *self._apply_due(now_us)

    def _apply_due(self, now_us: int) -> Sequence[Effect]:
        """Apply the entries whose lag is over, and set the timer for the next one."""
        while self._waiting and self._waiting[0][0] <= now_us:
            self._log.copy.apply(self._waiting.popleft()[1])
        return (SetTimer(_APPLY, self._waiting[0][0] - now_us),) if self._waiting else ()

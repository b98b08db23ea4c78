"""Followers of the back end's log: a position in it, and a copy of the tables for replicas and processors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Follower, Lineage, last_incarnation, last_lsn_of, shared_lsn
from mudkit.events import Effect, Entropy, Send
from mudkit.systems.mud.messages.servers import (
    DropEntry,
    FollowLog,
    Log,
    LogAck,
    LogEntry,
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

    A state that an earlier incarnation of the machine requested is too old.
    """

    def __init__(self, back_end: str, entropy: Entropy) -> None:
        super().__init__(back_end, entropy)
        self.copy = TableReplica()
        self._tables: dict[str, _Layout] = {}
        """Tables that exist at the last entry received, by name."""
        self._request: RetransmitTimer[str] = RetransmitTimer(BEGIN, _BEGIN_US, _BEGIN_US, 0)

    def accept_log(self, message: Log | TablesState) -> bool:
        """Follow the lineage of a message; discard the state if the back end has deleted what it lacks."""
        is_accepted = super().accept_log(message)
        is_empty = is_accepted and isinstance(message, Log) and not message.entries
        after_lsn = message.after_lsn if is_empty and isinstance(message, Log) else UNSET
        if after_lsn is not UNSET and 0 <= self.lsn < after_lsn:
            self._discard()
        return is_accepted

    def _discard(self) -> None:
        """Discard the state, with the copy."""
        super()._discard()
        self.copy, self._tables = TableReplica(), {}

    def shared_lsn(self, log_incarnation: str) -> int:
        """Return the last position of an incarnation that is still in the log."""
        return last_lsn_of(self.lineage, log_incarnation, self.lsn)

    def is_consistent(self, message: Log | TablesState) -> bool:
        """Return whether a state, or the new ones of some entries, can be applied: rows have tables."""
        if isinstance(message, Log):
            return self.lsn < 0 or self._tables_after(message.entries) is not None
        tables = _layouts_of(message.tables)
        has_own_numbers = len({number for number, _ in tables.values()}) == len(message.tables)
        return has_own_numbers and all(name in tables for name, _ in message.rows)

    def _tables_after(self, entries: Sequence[LogEntry]) -> dict[str, _Layout] | None:
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
                    tables = {name: layout for name, layout in tables.items() if name != entry.name}
                continue
            ((name, layout),) = _layouts_of([entry.table]).items()
            known = tables.get(name)
            is_taken = any(number == layout[0] for number, _ in tables.values())
            if known != layout and (known is not None or is_taken):
                return None
            tables = {**tables, name: layout}
        return tables

    def request_state(self, now_us: int) -> Sequence[Effect]:
        """Request the whole state from the back end, unless there is one; repeated until it has arrived."""
        if self.lsn >= 0:
            return ()
        return Send(self.back_end, FollowLog(self._incarnation)), *self._request.start(
            now_us, self._incarnation
        )

    def retransmit_request(self, now_us: int) -> Sequence[Effect]:
        """Repeat an overdue request after the timer fired."""
        effects = self.request_state(now_us) if self._request.overdue(now_us) else ()
        return [*effects, *self._request.restart(now_us)]

    def load_state(self, now_us: int, message: TablesState) -> Sequence[Effect]:
        """Load the state into the copy if it has none, and acknowledge it.

        Empty, without effect: another start, or another request, has asked for it.
        """
        if message.incarnation != self._incarnation:
            return ()
        if self.lsn < 0:
            self.copy.load(message.lsn, message.tables, message.rows)
            self.lsn = self.copy.lsn
            self._tables = _layouts_of(message.tables)
        return self.acknowledge(now_us), *self._request.settle(now_us, self._incarnation)

    def take_entries(self, message: Log) -> Iterator[LogEntry]:
        """Yield the entries of a message that are next in order, and advance; the caller applies them."""
        after = self._tables_after(message.entries)
        self._tables = self._tables if after is None else after
        for entry in message.entries:
            if self.lsn >= 0 and entry.lsn == self.lsn + 1:
                self.lsn += 1
                yield entry

    def confirm(self, message: Log) -> bool:
        """Note what an answer confirms whose entries were taken; return whether it confirms something."""
        through_lsn = message.through_lsn
        if self._answered_us is None or through_lsn is UNSET or self.lsn < through_lsn:
            return False
        self.confirmed_us = self._answered_us
        return True


def _layouts_of(tables: Iterable[Table]) -> dict[str, _Layout]:
    """Return number and split of each table, by name."""
    return {table.name: (table.number, tuple(table.split)) for table in tables}

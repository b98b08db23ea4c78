"""Gateways as followers of the tables, and the answers that wait until all of them have a change.

A gateway uses its tables without asking for a while. So the result of create, alter and drop is sent when
all gateways have acknowledged the entry; or after :data:`~.confirmed_tables.ALONE_US`, when the tables of one
that has not are not confirmed any more. That one is then absent, and nothing waits for it, until it is heard
again. Gateways are sent entries again only while an answer waits: they ask before they use their tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET, UnsetType

from mudkit.delivery.session import Lineage
from mudkit.events import CancelTimer, Effect, Send, SetTimer
from mudkit.systems.mud.messages.servers import DropEntry, Log, TableEntry, TablesState
from mudkit.systems.mud.servers.confirmed_tables import ALONE_US
from mudkit.systems.mud.tables.replica import TableReplica

TABLES: Final = "tables"
"""Name of the timer while an answer waits."""
_AGAIN_US: Final = 200_000
_MAX_ENTRIES: Final = 100
"""Entries that are kept for gateways; one that lacks more is sent all tables."""
_UNKNOWN: Final = -1


@dataclass(frozen=True)
class _Waiting:
    """Answer that waits until all gateways have acknowledged a position, or until a time."""

    lsn: int
    due_us: int
    answer: Send


class TableFollowers:
    """Gateways of a back end, whose tables are those of ``copy``."""

    def __init__(self, gateways: Sequence[str], copy: TableReplica) -> None:
        self._copy = copy
        self._acked_lsns = dict.fromkeys(gateways, _UNKNOWN)
        """Acknowledged position of each gateway."""
        self._absent: set[str] = set()
        self._since_lsn = self._last_lsn = copy.lsn
        """Position after which ``_entries`` has all entries of tables, and that of the last one."""
        self._entries: list[TableEntry | DropEntry] = []
        self._waiting: dict[str, _Waiting] = {}
        self._is_timer_set = False

    def __contains__(self, address: str) -> bool:
        return address in self._acked_lsns

    def add_entry(self, entry: TableEntry | DropEntry) -> None:
        """Keep the next entry of a table."""
        self._entries.append(entry)
        self._last_lsn = entry.lsn
        if len(self._entries) > _MAX_ENTRIES:
            self._since_lsn = self._entries.pop(0).lsn

    def announce(self, lineage: Lineage) -> Sequence[Effect]:
        """Forget all positions, and ask the gateways for them, once: the log has another incarnation."""
        self._acked_lsns = dict.fromkeys(self._acked_lsns, _UNKNOWN)
        return [self._build_log(gateway, lineage) for gateway in self._acked_lsns]

    def send_when_acknowledged(
        self, now_us: int, identity: str, answer: Send, lineage: Lineage
    ) -> Sequence[Effect]:
        """Send the answer to a request about a table when all gateways have acknowledged all entries.

        ``identity`` is that of the request; of its duplicates the last one is answered.
        """
        lacking = self._list_lacking(self._last_lsn)
        if not lacking:
            return (answer,)
        known = self._waiting.get(identity)
        due_us = now_us + ALONE_US if known is None else known.due_us
        self._waiting[identity] = _Waiting(self._last_lsn, due_us, answer)
        pushed = [self._build_log(gateway, lineage) for gateway in lacking]
        if self._is_timer_set:
            return pushed
        self._is_timer_set = True
        return *pushed, SetTimer(TABLES, _AGAIN_US)

    def record_ack(
        self, gateway: str, lsn: int, nonce: str | UnsetType, lineage: Lineage
    ) -> Sequence[Effect]:
        """Record the position of a gateway; send it what it lacks if it asks; send answers that waited."""
        was_unknown = self._acked_lsns[gateway] == _UNKNOWN
        self._acked_lsns[gateway] = max(lsn, self._acked_lsns[gateway])
        self._absent.discard(gateway)
        is_behind = was_unknown and self._acked_lsns[gateway] < self._last_lsn
        sent = (self._build_log(gateway, lineage, nonce),) if nonce is not UNSET or is_behind else ()
        return *sent, *self._send_acknowledged()

    def build_state(self, gateway: str, incarnation: str, lineage: Lineage) -> Send:
        """Build the message with all tables; the position of the gateway is unknown until it acknowledges."""
        self._acked_lsns[gateway] = _UNKNOWN
        self._absent.discard(gateway)
        tables = list(self._copy.tables.values())
        return Send(gateway, TablesState(incarnation, self._copy.lsn, tables, [], lineage or UNSET))

    def send_again(self, now_us: int, lineage: Lineage) -> Sequence[Effect]:
        """Send again what gateways lack while answers wait, and the answers that have waited long enough."""
        self._is_timer_set = False
        for waiting in self._waiting.values():
            if waiting.due_us <= now_us:
                self._absent.update(self._list_lacking(waiting.lsn))
        answers = self._send_acknowledged()
        if not self._waiting:
            return answers
        self._is_timer_set = True
        pushed = [self._build_log(gateway, lineage) for gateway in self._list_lacking(self._last_lsn)]
        return *answers, *pushed, SetTimer(TABLES, _AGAIN_US)

    def _list_lacking(self, lsn: int) -> list[str]:
        """Return the gateways, but those that are absent, that have not acknowledged a position."""
        return [
            gateway
            for gateway, acked_lsn in self._acked_lsns.items()
            if acked_lsn < lsn and gateway not in self._absent
        ]

    def _send_acknowledged(self) -> Sequence[Effect]:
        """Return the answers whose position all gateways have acknowledged, which wait no longer."""
        ready = [key for key, waiting in self._waiting.items() if not self._list_lacking(waiting.lsn)]
        answers: list[Effect] = [self._waiting.pop(key).answer for key in ready]
        if self._waiting or not self._is_timer_set:
            return answers
        self._is_timer_set = False
        return [*answers, CancelTimer(TABLES)]

    def _build_log(self, gateway: str, lineage: Lineage, nonce: str | UnsetType = UNSET) -> Send:
        """Build the message with the entries that a gateway lacks, or all tables if they are not kept.

        A gateway whose position is unknown is asked for it.
        """
        acked_lsn = self._acked_lsns[gateway]
        if acked_lsn == _UNKNOWN:
            return Send(gateway, Log([], lineage or UNSET, nonce))
        if self._since_lsn <= acked_lsn or acked_lsn >= self._last_lsn:
            entries = [entry for entry in self._entries if entry.lsn > acked_lsn]
            return Send(gateway, Log([*entries], lineage or UNSET, nonce, acked_lsn, self._copy.lsn))
        state = self.build_state(gateway, "", lineage)
        self._acked_lsns[gateway] = acked_lsn
        return state

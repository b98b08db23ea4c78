"""Tables of a gateway: it follows their entries in the back end's log, and knows when it has all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.events import Effect, Entropy, Send
from mudkit.systems.mud.messages.servers import DropEntry, FollowLog, Log, TableEntry, TablesState
from mudkit.systems.mud.servers.log_follower import HeardLog
from mudkit.systems.mud.tables.table import Table

CONFIRMED_US: Final = 5_000_000
"""Time from a question for which its answer confirms the tables."""
UNANSWERED_US: Final = 1_000_000
"""Time after which a request uses tables that are not confirmed, because the back end does not answer."""
_CLOCK_ERROR_US: Final = 500_000
"""Greatest difference of the clocks of two servers in the times above."""
ALONE_US: Final = CONFIRMED_US + UNANSWERED_US + _CLOCK_ERROR_US
"""Time after which the back end answers an alteration that a gateway has not acknowledged."""


class ConfirmedTables(HeardLog):
    """Tables at a position of the log, without rows.

    They are confirmed by the answer to a question, which comes with all entries up to then, for
    :data:`CONFIRMED_US` from when the question was first sent.
    """

    def __init__(self, back_end: str, entropy: Entropy) -> None:
        super().__init__(back_end, entropy)
        self.tables: dict[str, Table] = {}
        self._is_state_requested = False

    def is_confirmed(self, now_us: int) -> bool:
        """Return whether these are all tables as they are now."""
        return self.confirmed_us is not None and now_us < self.confirmed_us + CONFIRMED_US

    @property
    def is_asking(self) -> bool:
        """True while a question that was sent is open, or the state is requested."""
        return super().is_asking or self._is_state_requested

    def ask(self, now_us: int, log_incarnation: str = "") -> Sequence[Effect]:
        """Ask for the entries that are missing, or for all tables if there is no state yet.

        ``log_incarnation`` is one that a client knows; a back end whose store was wiped learns from it that
        its log is not the first one. It is sent if this copy knows no other.
        """
        effects: list[Effect] = []
        if self.lsn < 0:
            self._is_state_requested = True
            effects.append(Send(self.back_end, FollowLog(self._incarnation)))
        if self.lsn >= 0 or self._history.nonce is not None:
            question = self.ask_position(now_us)
            if log_incarnation and not self.log_incarnation:
                question = Send(question.to, replace(question.message, log_incarnation=log_incarnation))
            effects.append(question)
        return effects

    def receive(self, now_us: int, message: Log | TablesState) -> Sequence[Effect]:
        """Apply the entries or the state of a message, and acknowledge them.

        An answer that does not fit the position, although the log is the same, shows that this copy is of no
        log: it is discarded.
        """
        lineage = self.lineage
        if not self.accept_log(message):
            self.confirmed_us = None
            return (self.acknowledge(now_us),)
        if isinstance(message, TablesState):
            if message.lsn > self.lsn:
                self.tables = {table.name: table for table in message.tables}
                self.lsn = message.lsn
            self._is_state_requested = False
            return (self.acknowledge(now_us),)
        is_complete = self._take_entries(message)
        if self._answered_us is not None:
            self.confirmed_us = self._answered_us if is_complete else None
            if is_complete and not message.entries:
                return ()
            if not is_complete and self.lineage == lineage:
                self._discard()
        return self.ask(now_us) if self.lsn < 0 else (self.acknowledge(now_us),)

    def _take_entries(self, message: Log) -> bool:
        """Apply the entries that are new; return whether the tables are now complete as the message says."""
        after_lsn, through_lsn = message.after_lsn, message.through_lsn
        if after_lsn is UNSET or through_lsn is UNSET or not 0 <= after_lsn <= self.lsn:
            return False
        for entry in message.entries:
            if entry.lsn <= self.lsn:
                continue
            if isinstance(entry, TableEntry):
                self.tables[entry.table.name] = entry.table
            elif isinstance(entry, DropEntry):
                self.tables.pop(entry.name, None)
        self.lsn = max(self.lsn, through_lsn)
        return True

    def _discard(self) -> None:
        """Discard the tables."""
        super()._discard()
        self.tables = {}

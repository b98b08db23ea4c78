"""Table of transitions by faults: the number of occurrences of each transition while a fault was in effect.

A fault is in effect, for all machines, from its injection until five minutes of virtual time after its
repair; without a fault the column is ``none``. A restart is in effect for five minutes. Lagging replicas and
a user's second device are in effect for a whole run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from mudkit.verify.campaign.faults import COLUMNS
from mudkit.verify.campaign.observers import Cells

TRANSITIONS: Final[dict[str, tuple[str, ...]]] = {
    "writing": (
        "blind delete, sent", "blind delete, waits", "blind write, sent", "blind write, waits",
        "chained on one that failed", "committed", "conditional delete, sent", "conditional delete, waits",
        "conditional write, sent", "conditional write, waits", "conflict", "due", "refused", "refused here",
    ),
    "asking": (
        "aggregate, asked", "answered", "asked again, a part was lost", "asked again, too old",
        "committed, asked", "committed, here", "committed_wio, asked", "committed_wio, here",
        "committed_wio, must wait", "latest, asked", "network lost", "no link", "refused", "refused here",
        "uncommitted, asked", "uncommitted, here",
    ),
    "watching": (
        "aggregates known or waiting", "aggregates passed on", "asked for a hello",
        "ended", "greet timer", "heartbeat timer", "hello timer", "known, unregistered or waiting", "life",
        "life, registered again", "listen",
        "notified timer", "own reads timer", "policy", "redirected", "refused", "refused here",
        "register, asked", "register, no session", "registered",
        "registered in part or in an older life", "remove passed on", "stream, gap", "stream, next",
        "stream, of another session", "stream, seen before", "synced", "unregister", "unregister done",
        "update_data", "update_data done", "upsert passed on", "welcome, late", "welcome, other session",
        "welcome, same session",
    ),
    "connection": (
        "asked again", "back end restarted",
        "failure of no matter", "late answer", "link down", "link up", "link up, asks sent",
        "next gateway", "part",
    ),
    "client": (
        "alter done", "create done", "drop done", "table refused",
    ),
    "gateway": (
        "administered", "ask, admin", "assignments", "asks again for the tables", "confirmed", "outcome",
        "outcome, nobody asks", "part", "part, nobody asks", "part, the last", "read passed on",
        "register passed on", "registered", "registered, nobody asks", "registered, the last", "restarted",
        "table refused", "tables", "token or access refused", "unregister passed on", "update_data passed on",
        "waits for the tables", "write passed on", "write with a refused token",
    ),
    "processor": (
        "assignments", "begins a life", "confirmed", "ended, table", "ended, token", "gone", "latest read",
        "moved", "nothing to tell again", "read", "register", "register, in the session of another server",
        "register, known", "register, not yet or not any more", "remove synced", "remove told",
        "suspects a server", "tells again", "unregister",
        "update_data", "upsert synced", "upsert told", "write",
    ),
    "follower": (
        "asks again for the state", "log before the state", "log, next", "log, seen before", "state",
        "state, late",
    ),
    "replica": (
        "applied late", "read, answered", "read, passed on to the back end",
    ),
    "back end": (
        "admin, known already", "admin, late copy", "admin, refused", "alter", "begins",
        "blind delete committed",
        "blind write committed", "conditional delete committed", "conditional write committed", "conflict",
        "conflict, hidden or none", "create", "drop", "follow",
        "has",
        "has, the first of a life", "log sent again", "nothing to send again", "read", "restarted",
        "waits for a gateway", "write, known already",
        "write, late copy", "write, refused", "write, token refused",
    ),
    "notifications": (
        "all were heard of", "announced address", "another device loses the address",
        "asked for a hello again", "assignments", "begins a life", "confirmed", "given up, not heard of",
        "given up, waited too long", "heartbeat, known", "hello redirected", "hello, known",
        "hello, late", "hello, of another start", "hello, what waited is sent",
        "life", "new session", "nobody to send to", "not delivered",
        "policy, kept", "policy, sent", "probe",
        "sent again", "stream, gap", "stream, next", "stream, of a device of another server",
        "stream, of another session", "stream, seen before", "suspects a server",
        "tell, given up", "tell, kept", "tell, sent", "tell, stranger", "vacated",
    ),
    "naming": (
        "alive", "asks again for a move", "assigned", "assignments, known", "begins",
        "begins, and tells its assignments", "hears of later assignments", "learns later assignments", "move",
        "moves a partition", "probes again", "replaces a server", "suspect", "table", "tells again",
    ),
    "generator": (
        "assignments", "begins a life", "confirmed", "follow", "nothing to tell again", "ship",
        "ship, refused", "tells again",
    ),
}  # fmt: skip
"""Transitions of each machine, or part of one: the rules at the heads of the modules of
:mod:`mudkit.systems.mud`."""

_AFTER_A_FAULT: Final = "requires a fault, and ends within five minutes after its repair"
UNREACHABLE: Final = tuple(
    (transition, "none", _AFTER_A_FAULT)
    for transition in (
        "asking: asked again, a part was lost",
        "back end: admin, known already",
        "back end: admin, late copy",
        "back end: has, the first of a life",
        "back end: nothing to send again",
        "back end: restarted",
        "back end: waits for a gateway",
        "back end: write, known already",
        "back end: write, late copy",
        "connection: asked again",
        "connection: back end restarted",
        "connection: failure of no matter",
        "connection: late answer",
        "connection: next gateway",
        "follower: asks again for the state",
        "follower: log, seen before",
        "follower: state, late",
        "gateway: *, nobody asks",
        "gateway: asks again for the tables",
        "gateway: assignments",
        "gateway: restarted",
        "generator: assignments",
        "generator: nothing to tell again",
        "generator: tells again",
        "naming: [!b]*",
        "naming: begins, and tells its assignments",
        "notifications: another device loses the address",
        "notifications: asked for a hello again",
        "notifications: assignments",
        "notifications: hello, late",
        "notifications: hello, of another start",
        "notifications: hello, what waited is sent",
        "notifications: probe",
        "notifications: sent again",
        "notifications: stream, gap",
        "notifications: stream, of a device of another server",
        "notifications: stream, of another session",
        "notifications: stream, seen before",
        "notifications: suspects a server",
        "processor: assignments",
        "processor: moved",
        "processor: nothing to tell again",
        "processor: register, in the session of another server",
        "processor: register, known",
        "processor: register, not yet or not any more",
        "processor: suspects a server",
        "processor: tells again",
        "watching: asked for a hello",
        "watching: hello timer",
        "watching: life*",
        "watching: registered in part or in an older life",
        "watching: stream, gap",
        "watching: stream, of another session",
        "watching: stream, seen before",
        "watching: welcome, late",
    )
)
"""Pattern of a transition, pattern of a fault, and why they do not occur together."""


class Table:
    """Counts of transitions by faults, from the cells of any number of runs."""

    def __init__(self, cells: Cells) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        for (transition, faults), count in cells.items():
            for fault in faults:
                self._counts[transition, fault] += count
        self.rows = [f"{machine}: {name}" for machine, names in TRANSITIONS.items() for name in names]

    def __getitem__(self, cell: tuple[str, str]) -> int:
        return self._counts[cell]

    def missing(self) -> list[tuple[str, str]]:
        """Return the reachable cells with count 0."""
        return [
            (row, column)
            for row in self.rows
            for column in COLUMNS
            if not self._counts[row, column] and why_not(row, column) is None
        ]

    def unknown(self) -> list[str]:
        """Return the transitions that occurred and have no row."""
        return sorted({row for row, _ in self._counts} - set(self.rows))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the table as text."""
        for number, column in enumerate(COLUMNS, 1):
            yield f"  {number:2} {column}"
        yield "  0! has not occurred; a dot: cannot occur"
        yield ""
        width = max(map(len, self.rows))
        yield " " * width + "".join(f"{number:>6}" for number in range(1, len(COLUMNS) + 1))
        for row in self.rows:
            yield f"{row:{width}}" + "".join(f"{self._cell(row, column):>6}" for column in COLUMNS)

    def _cell(self, row: str, column: str) -> str:
        """Return the text of a cell: its count, ``0!`` if it is missing, a dot if it cannot occur."""
        count = self._counts[row, column]
        if count:
            return str(count) if count < 100_000 else f"{count // 1000}k"
        return "0!" if why_not(row, column) is None else "·"


def why_not(row: str, column: str, listed: Sequence[tuple[str, str, str]] = UNREACHABLE) -> str | None:
    """Return why a transition cannot occur while a fault is in effect, or None if it can."""
    for rows, columns, why in listed:
        if fnmatchcase(row, rows) and fnmatchcase(column, columns):
            return why
    return None

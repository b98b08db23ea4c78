"""Exercise of chapter 01: merge a page of a journal that two devices of one user have changed.

Both devices use conditional writes (Mobius 3.2, continuous journal editing). The second write conflicts, and
its application receives three records: the store's, its own, and the base of its own (4.2).
"""

from __future__ import annotations

import datetime as dt
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.events import Operation
from mudkit.exercises.judging import (
    FAILURE_TITLE,
    DeliveryFaults,
    Exercise,
    PieceError,
    PlayedScenario,
    new_lab,
)
from mudkit.fleet.link import Transfer
from mudkit.systems.mud import Client, Cloud, Conflict, freshness
from mudkit.systems.mud.messages.parts import PORT
from mudkit.systems.mud.messages.requests import Ask, WriteOutcome, WriteRequest

_DEVICES: Final = ("phone", "tablet")
_LANES: Final = ("phone", "mud-gateway-1", "tablet")
_INITIAL: Final = ("a", "b")
_FAULTS_US: Final = {"lost": (), "late": (4_000_000,), "twice": (0, 2_000_000)}
"""Faults of a write or its answer: the delays, in µs, after which it arrives."""
_SETTLE_S: Final = 120
_MAX_AGE_S: Final = 1e6
"""Permitted age of the page that a device shows without a network."""


class _Edit(NamedTuple):
    """Change that the user makes to the page on a device."""

    device: str
    change: str
    """``adds``, ``deletes the first`` or ``deletes the last``."""


class _Scenario(NamedTuple):
    """Rounds of edits without a network, and the faults of the writes and their answers in order."""

    rounds: Sequence[Sequence[_Edit]]
    deliveries: Sequence[str]


class _Journal:
    """Page of a journal on two devices of one user, and the application that runs on both."""

    def __init__(self, merge: Callable[..., Any], deliveries: Sequence[str]) -> None:
        self._merge = merge
        self.added = dict.fromkeys(_INITIAL, "the tablet")
        self.deleted: dict[str, str] = {}
        self.events: list[list[str]] = []
        self.lab = new_lab()
        cloud = Cloud(self.lab, replicas=0, gateways=1, processors=1, notification_servers=1)
        token = self.lab.token(user="jane", app="journal")
        self._clients = {
            name: Client(self.lab.device(name, "edge"), cloud, app="journal", token=token)
            for name in _DEVICES
        }
        self._addresses = {f"{name}/{PORT}" for name in _DEVICES}
        """Addresses of the services of the devices."""
        self._clients["tablet"].create("journal", acl="user").result()
        self._write("tablet", _INITIAL).result()
        for name in _DEVICES:
            self._page(name, "committed")
        self.lab.run(seconds=5)
        self._start = self._last = self.lab.now
        self.lab.world.fault_hook = DeliveryFaults(_FAULTS_US, deliveries, self._is_about_write)

    def round(self, edits: Sequence[_Edit]) -> None:
        """Disconnect both devices, edit, and reconnect them, the phone first."""
        self.events.append([])
        for name in _DEVICES:
            self.lab.faults.cut(name)
        for edit in edits:
            self._edit(edit)
        for name in _DEVICES:
            self.lab.faults.mend(name)
            self.lab.run(seconds=3)
        self.lab.run(seconds=_SETTLE_S)

    def _page(self, device: str, kind: Literal["committed", "uncommitted"]) -> set[str]:
        """Return the entries on a device, or with ``committed`` in the back end."""
        read = self._clients[device].read(
            "journal", "key = 'page'", kind, utility=freshness(_MAX_AGE_S), latest=kind == "committed"
        )
        return set(read.result().records["page"]["entries"])

    def _edit(self, edit: _Edit) -> None:
        """Change the page that a device shows, and write it; deleting from an empty page does nothing."""
        entries = self._page(edit.device, "uncommitted")
        verb, _, which = edit.change.partition(" ")
        if verb == "adds":
            entry = string.ascii_lowercase[len(self.added)]
            self.added[entry] = f"the {edit.device}"
            entries.add(entry)
        elif entries:
            entry = min(entries) if which == "the first" else max(entries)
            self.deleted[entry] = f"the {edit.device}"
            entries.remove(entry)
        else:
            return
        self.events[-1].append(f"the {edit.device} {verb} {entry}")
        self._write(edit.device, entries)

    def _write(self, device: str, entries: Collection[str]) -> Operation:
        """Write the page conditionally on a device; after a conflict it is merged."""
        record = {"entries": sorted(entries)}
        written = self._clients[device].write("journal", "page", record, "conditional")
        written.add_done_callback(partial(self._merge_after_conflict, device))
        return written

    def _merge_after_conflict(self, device: str, operation: Operation) -> None:
        """Merge after a conflict and write again, as the chapter's application does."""
        self._last = self.lab.now
        try:
            operation.result()
        except Conflict as conflict:
            merged = self._merge(*map(_entries, (conflict.store, conflict.local, conflict.base)))
            if not isinstance(merged, set | frozenset) or not all(isinstance(entry, str) for entry in merged):
                raise PieceError(f"it returns {merged!r}; expected a set of entries.") from None
            self._write(device, merged)

    def _is_about_write(self, transfer: Transfer) -> bool:
        """Return whether a transfer is a write of a device, or the answer to one."""
        message = transfer.message
        is_write = isinstance(message, Ask) and isinstance(message.what, WriteRequest)
        return is_write or (isinstance(message, WriteOutcome) and transfer.to in self._addresses)

    def problem(self) -> str | None:
        """Return the problem of the page in the back end, in words, or None."""
        shown = self._page("phone", "committed")
        self._page("tablet", "committed")  # so that both start the next round from the same page
        lost = [entry for entry in self.added if entry not in self.deleted and entry not in shown]
        back = [entry for entry in self.deleted if entry in shown]
        invented = sorted(shown.difference(self.added))
        problems = [f"entry {entry}, which {self.added[entry]} added, is lost" for entry in lost]
        problems += [f"entry {entry}, which {self.deleted[entry]} deleted, came back" for entry in back]
        problems += [f"{entry!r} was never added" for entry in invented]
        return (
            f"{'; '.join(problems)}. The page: {', '.join(sorted(shown)) or 'empty'}." if problems else None
        )

    def drawn(self) -> go.Figure:
        """Draw the messages of both devices since both had the page."""
        return figures.message_diagram(
            self.lab,
            lanes=_LANES,
            devices=_DEVICES,
            kinds=("ask", "outcome"),
            start=self._start,
            end=self._last + dt.timedelta(seconds=1),
            title=FAILURE_TITLE,
        )


def _entries(record: Mapping[str, Any] | None) -> set[str]:
    """Return the entries of a record; none without a record."""
    return set() if record is None else set(record["data"]["entries"])


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Run the rounds of a scenario until the page has a problem; return the outcome."""
    journal = _Journal(piece, scenario.deliveries)
    problem = None
    for edits in scenario.rounds:
        try:
            journal.round(edits)
            problem = journal.problem()
        except PieceError as error:
            problem = str(error)
        if problem is not None:
            break
    return PlayedScenario(
        _words(journal.events, scenario.deliveries), problem, journal.lab, picture=journal.drawn
    )


def _words(rounds: Sequence[Sequence[str]], deliveries: Sequence[str]) -> str:
    """Return a scenario in words."""
    edits = "; both get it back, lose it again, and ".join(
        ", ".join(events) or "nobody edits" for events in rounds
    )
    faults = [
        f"message {number} about a write {'is' if fault == 'lost' else 'comes'} {fault}"
        for number, fault in enumerate(deliveries, start=1)
        if fault != "well"
    ]
    return (
        f"both devices show a page with a and b, and lose their network; {edits}; the phone gets it back, "
        f"then the tablet; {', '.join(faults) or 'no message is lost'}."
    )


EXERCISE: Final = Exercise(
    signature="merge(store, local, base) -> set, where each is a set of entries: of the page in the store, "
    "of the page that this device tried to write, and of the page that this one was based on",
    property="The page has every entry that a device added and none deleted, and no others.",
    scenarios=st.builds(
        _Scenario,
        st.lists(
            st.lists(
                st.builds(
                    _Edit,
                    st.sampled_from(["tablet", "phone"]),
                    st.sampled_from(["adds", "deletes the first", "deletes the last"]),
                ),
                min_size=1,
                max_size=5,
            ),
            min_size=1,
            max_size=2,
        ),
        st.lists(st.sampled_from(["well", *_FAULTS_US]), max_size=5),
    ),
    play=_play,
    returns="a set of entries",
)

"""The exercise of chapter 01: merge a page of a journal that two devices of one user have changed.

Both devices write on condition (Mobius 3.2, continuous journal editing). The write that comes second
conflicts, and its application is given three records: the store's, its own, and the one that this was based
on (4.2).
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
from mudkit.exercises.judging import Exercise, PieceError, Played
from mudkit.fleet.kernel import raise_failure
from mudkit.fleet.link import Transfer
from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud, Conflict, freshness
from mudkit.systems.mud.messages import Ask, Outcome, WriteRequest

__all__ = ["EXERCISE"]

_DEVICES: Final = ("phone", "tablet")
_LANES: Final = ("phone", "mud-gateway-1", "tablet")
_FIRST: Final = ("a", "b")
_TROUBLES: Final = {"lost": (), "late": (4_000_000,), "twice": (0, 2_000_000)}
"""What happens to a write or its answer: after which delays, in µs, it is handed over."""
_SETTLE_S: Final = 120
_LONG_S: Final = 1e6
"""What a device shows without a network may be this old."""


class _Edit(NamedTuple):
    """What the user does to the page that a device shows."""

    device: str
    what: str
    """``adds``, ``deletes the first`` or ``deletes the last``."""


class _Scenario(NamedTuple):
    """Rounds of edits without a network, and what happens to the writes and their answers, one by one."""

    rounds: Sequence[Sequence[_Edit]]
    deliveries: Sequence[str]


class _Journal:
    """A page of a journal on two devices of one user, and the application that runs on both.

    Parameters
    ----------
    merge : callable
        The function that is judged.
    deliveries : sequence of str
    """

    def __init__(self, merge: Callable[..., Any], deliveries: Sequence[str]) -> None:
        self._merge = merge
        self._deliveries = deliveries
        self._count = 0
        self.added = dict.fromkeys(_FIRST, "the tablet")
        self.deleted: dict[str, str] = {}
        self.events: list[list[str]] = []
        self.lab = Lab(seed=1)
        self.lab.world.on_failure = raise_failure  # a piece that raises has not passed
        cloud = Cloud(self.lab, replicas=0, gateways=1, processors=1, servers=1)
        token = self.lab.token(user="jane", app="journal")
        self._clients = {
            name: Client(self.lab.device(name, "edge"), cloud, app="journal", token=token)
            for name in _DEVICES
        }
        self._addresses = {each.installed.address for each in self._clients.values()}
        self._clients["tablet"].create("journal", acl="user").result()
        self._write("tablet", _FIRST).result()
        for name in _DEVICES:
            self._page(name, "committed")
        self.lab.run(seconds=5)
        self._began = self._last = self.lab.now
        self.lab.world.fault_hook = self._fault_hook

    def round(self, edits: Sequence[_Edit]) -> None:
        """Take the network away, let the user edit, and give it back, to the phone first."""
        self.events.append([])
        for name in _DEVICES:
            self.lab.faults.cut(name)
        for edit in edits:
            self._edit(edit)
            self.lab.run(seconds=1)
        for name in _DEVICES:
            self.lab.faults.mend(name)
            self.lab.run(seconds=3)
        self.lab.run(seconds=_SETTLE_S)

    def _page(self, device: str, kind: Literal["committed", "uncommitted"]) -> set[str]:
        """Give the entries that a device shows, or with ``committed`` the back end has."""
        read = self._clients[device].read(
            "journal", "key = 'page'", kind, utility=freshness(_LONG_S), latest=kind == "committed"
        )
        return set(read.result().records["page"]["entries"])

    def _edit(self, edit: _Edit) -> None:
        entries = self._page(edit.device, "uncommitted")
        does, _, which = edit.what.partition(" ")
        if does == "adds":
            entry = string.ascii_lowercase[len(self.added)]
            self.added[entry] = f"the {edit.device}"
            entries.add(entry)
        elif entries:
            entry = min(entries) if which == "the first" else max(entries)
            self.deleted[entry] = f"the {edit.device}"
            entries.remove(entry)
        else:
            return
        self.events[-1].append(f"the {edit.device} {does} {entry}")
        self._write(edit.device, entries)

    def _write(self, device: str, entries: Collection[str]) -> Operation:
        record = {"entries": sorted(entries)}
        written = self._clients[device].write("journal", "page", record, "conditional")
        written.add_done_callback(partial(self._written, device))
        return written

    def _written(self, device: str, operation: Operation) -> None:
        """Merge after a conflict, and write again: as the chapter's application does it."""
        self._last = self.lab.now
        try:
            operation.result()
        except Conflict as conflict:
            merged = self._merge(*map(_entries, (conflict.store, conflict.local, conflict.base)))
            if not isinstance(merged, set | frozenset) or not all(isinstance(each, str) for each in merged):
                raise PieceError(f"it returns {merged!r}, which is no set of entries.") from None
            self._write(device, merged)

    def _fault_hook(self, transfer: Transfer) -> Sequence[int]:
        message = transfer.message
        is_write = isinstance(message, Ask) and isinstance(message.what, WriteRequest)
        if not is_write and not (isinstance(message, Outcome) and transfer.to in self._addresses):
            return (0,)
        self._count += 1
        what = self._deliveries[self._count - 1] if self._count <= len(self._deliveries) else "well"
        return _TROUBLES.get(what, (0,))

    # -- what came of it

    def problem(self) -> str | None:
        """Say what is wrong with the page that the back end has; None: nothing."""
        shown = self._page("phone", "committed")
        self._page("tablet", "committed")  # so that the next round begins with the same
        lost = [entry for entry in self.added if entry not in self.deleted and entry not in shown]
        back = [entry for entry in self.deleted if entry in shown]
        made_up = sorted(shown.difference(self.added))
        problems = [f"entry {entry}, which {self.added[entry]} added, is lost" for entry in lost]
        problems += [f"entry {entry}, which {self.deleted[entry]} deleted, came back" for entry in back]
        problems += [f"{entry!r} was never added" for entry in made_up]
        return (
            f"{'; '.join(problems)}. The page: {', '.join(sorted(shown)) or 'empty'}." if problems else None
        )

    def drawn(self) -> go.Figure:
        """Draw what the devices sent and were sent since both had the page."""
        return figures.message_diagram(
            self.lab,
            lanes=_LANES,
            devices=_DEVICES,
            kinds=("ask", "outcome"),
            start=self._began,
            end=self._last + dt.timedelta(seconds=1),
            title="The smallest scenario that fails",
        )


def _entries(record: Mapping[str, Any] | None) -> set[str]:
    return set() if record is None else set(record["data"]["entries"])


def _play(piece: Callable[..., Any], scenario: _Scenario) -> Played:
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
    return Played(_words(journal.events, scenario.deliveries), problem, journal.lab, picture=journal.drawn)


def _words(rounds: Sequence[Sequence[str]], deliveries: Sequence[str]) -> str:
    edits = "; both get it back, lose it again, and ".join(
        ", ".join(each) or "nobody edits" for each in rounds
    )
    troubles = [
        f"message {number} about a write {'is' if what == 'lost' else 'comes'} {what}"
        for number, what in enumerate(deliveries, start=1)
        if what != "well"
    ]
    return (
        f"both devices show a page with a and b, and lose their network; {edits}; the phone gets it back, "
        f"then the tablet; {', '.join(troubles) or 'no message is lost'}."
    )


EXERCISE: Final = Exercise(
    signature="merge(store, local, base) -> set, where each is a set of entries: of the page that the store "
    "has, of the one that this device wanted to write, and of the one that this was based on",
    property="The page has each entry that a device added and none deleted, and no other.",
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
        st.lists(st.sampled_from(["well", *_TROUBLES]), max_size=5),
    ),
    play=_play,
    returns="a set of entries",
)

"""A table on each device of a run alone, against a plain mapping of its records.

A device has what its app has written, at once and exactly: reads of every type, aggregates and continuous
reads show it, also without a network. Of a call that was lost with its machine the device has all or nothing.
So the book of a device has its possible states: each outcome leaves those that agree with it. A wiped device
has no table; a restored one has one of its earlier states. No message on a link has the name of the table, a
value, or the key that no record of the cloud has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias, get_args

from mudkit.errors import TableProblem
from mudkit.fleet.link import Leg
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.systems.mud import Client, Conflict
from mudkit.systems.mud.api import ReadType
from mudkit.verify.campaign.work import MAIN, error_of

DRAFTS: Final = "drafts"
"""Name of the table."""
DRAFT_STEPS: Final = ("write a draft", "read the drafts", "join the drafts", "write drafts through a kill")
_KEYS: Final = ("a", "h", "draft")
"""Keys of drafts; the last one is of no record of the cloud."""
_SECRET: Final = "draft"
"""Part of the name of the table, of one key and of all values."""
_NEVER_A_VERSION: Final = 1 << 60
_SMALLEST: Final = 3
"""Number from which on reads select a record."""

_Record: TypeAlias = Mapping[str, Any]
_Records: TypeAlias = dict[str, tuple[int, _Record]]
"""Version and record by key."""
_State: TypeAlias = dict[str, tuple[int, _Record | None]] | None
"""Last version and record by key, None of one that is deleted; None: there is no table."""


@dataclass
class _Follow:
    """Continuous read of the drafts on a device, and what its application shows."""

    least: int
    operation: Any = None
    shown: _Records = field(default_factory=dict)
    is_heard: bool = False
    """False until the read is registered, and while it has no callback."""

    def show(self, notification: Any) -> None:
        """Show a change, as the callback of the read."""
        if isinstance(notification, dict):
            return  # the read has ended
        if notification.kind == "upsert":
            self.shown[notification.key] = notification.version, notification.record
        else:
            self.shown.pop(notification.key, None)


@dataclass(frozen=True)
class _Join:
    """Read of a table that looks up the other one; ``drafts`` are those of its call.

    ``is_steady`` returns whether the drafts are still these.
    """

    table: str
    reader: Mapping[str, str]
    drafts: _Records
    is_steady: bool
    operation: Any


class _Book:
    """Possible states of the table on one device; what contradicts all of them is added to ``problems``."""

    def __init__(self, name: str, client: Client, problems: list[str]) -> None:
        self.name, self.client = name, client
        self._problems = problems
        self.states: list[_State] = [None]
        self.past: list[_State] = [None]
        """All possible states since the beginning of the run, each once."""
        self.follow: _Follow | None = None
        self.is_judged = True
        """False after a contradiction."""

    @property
    def has_table(self) -> bool:
        """True if the device certainly has the table."""
        return None not in self.states

    def settle(self, operation: Any, apply: Callable[[Any], tuple[_State, Any]]) -> None:
        """Leave the states that agree with the outcome of a call.

        ``apply`` returns the state after the call and its result, or the state before and the class of its
        error.
        """
        outcomes = [(state, *apply(state)) for state in self.states]
        if operation.status == "ok":
            result = operation.result()
            states = [
                after for _, after, given in outcomes if not isinstance(given, type) and given == result
            ]
        elif operation.status == "failed":
            error = error_of(operation)
            states = [
                before
                for before, _, given in outcomes
                if isinstance(given, type) and isinstance(error, given)
            ]
        else:
            states = [*self.states, *(after for _, after, given in outcomes if not isinstance(given, type))]
        self._keep(states, operation)

    def settle_read(
        self, operation: Any, show: Callable[[_Records], Any], shown: Callable[[Any], Any]
    ) -> None:
        """Leave the states that a read shows.

        ``show`` returns of the records of a state what ``shown`` returns of the read's result.
        """
        if operation.status == "ok":
            given = shown(operation.result())
            self._keep([state for state in self.states if show(_records_of(state)) == given], operation)
        else:
            self._keep(self.states if operation.status == "open" else [], operation)

    def check_follow(self, follow: _Follow) -> None:
        """Add a problem unless the application of a continuous read shows the records of a possible state."""
        if follow is not self.follow or not follow.is_heard or self.client.installed.machine is None:
            return
        if all(follow.shown != _from(_records_of(state), follow.least) for state in self.states):
            self._problems.append(
                f"the application of {self.name} shows {follow.shown}, and the drafts are {self.states}"
            )

    def _keep(self, states: Sequence[_State], operation: Any) -> None:
        """Use some states as the possible ones. None, or a call without an answer at once, is a problem."""
        is_lost = operation.status == "open"
        outcome = None if is_lost else error_of(operation) or operation.result()
        if not states:
            self._problems.append(
                f"{operation} on {self.name} gave {outcome!r}, the drafts are {self.states}"
            )
            self.is_judged = False
        if not is_lost and operation.responded_us > operation.invoked_us:
            self._problems.append(f"{operation} on {self.name} had to wait")
        if is_lost and self.client.installed.machine is not None:
            self._problems.append(f"{operation} on {self.name} has no answer")
        self.replace(states or self.states)

    def replace(self, states: Sequence[_State]) -> None:
        """Use some states, each once, as the possible ones."""
        self.states = [state for place, state in enumerate(states) if state not in states[:place]]
        self.past += [state for state in self.states if state not in self.past]


class Drafts:
    """Drafts of the clients of a run; in some runs only. ``groups`` is the reader data of each client.

    ``log`` has the entries of the back end by position.
    """

    def __init__(
        self, lab: Lab, clients: Mapping[str, Client], groups: Mapping[str, str], log: Mapping[int, Any],
        draw: Random,
    ) -> None:  # fmt: skip
        self._lab, self._groups, self._log, self._draw = lab, groups, log, draw
        self.problems: list[str] = []
        """Answers of devices that are not in the drafts, in words."""
        self.sent: list[str] = []
        """Messages on links that have something of the drafts."""
        self._books = {name: _Book(name, client, self.problems) for name, client in clients.items()}
        self._joins: list[_Join] = []
        self._count = 0
        self.is_used = draw.random() < 0.15

    def begin(self) -> None:
        """Create the tables, and look at each message on a link from now on."""
        world = self._lab.world
        before = world.on_leg

        def record_leg(leg: Leg, sent_bytes: int, is_cut: bool) -> None:
            if _SECRET in str(leg.transfer.message):
                self.sent.append(str(leg.transfer)[:500])
            if before is not None:
                before(leg, sent_bytes, is_cut)

        world.on_leg = record_leg
        for book in self._books.values():
            self._create(book)

    def plan(self, end_us: int) -> list[tuple[int, str]]:
        """Return steps at times until the end of a run; none if there are no drafts."""
        many = self._draw.randint(30, 90) if self.is_used else 0
        steps = self._draw.choices(DRAFT_STEPS, [12, 6, 3, 1], k=many)
        return [(self._draw.randint(0, end_us), step) for step in steps]

    def act(self, step: str) -> None:
        """Execute a step of :data:`DRAFT_STEPS` on one of the devices, unless its app does not run."""
        book = self._books[self._draw.choice(list(self._books))]
        if book.client.installed.machine is None or not book.is_judged:
            return
        if not book.has_table:
            self._create(book)
        elif step == "write a draft":
            self._write(book)
        elif step == "read the drafts":
            self._read(book)
        elif step == "join the drafts":
            self._join(book)
        else:
            self._write_through_kill(book)

    def record_loss(self, name: str, *, is_wiped: bool) -> None:
        """Record that a device was wiped, and has no table, or restored: it has what some backup had."""
        book = self._books[name]
        book.replace([None] if is_wiped else book.past)
        book.follow = None

    def forget_listener(self, name: str) -> None:
        """Record that the application of a client has ended: its continuous read has no callback."""
        follow = self._books[name].follow
        if follow is not None:
            follow.is_heard = False

    def find_reads(self, name: str) -> None:
        """Register the callback of a client's continuous read again."""
        book = self._books[name]
        follow = book.follow
        if follow is None or follow.operation.status != "ok":
            return

        def hear(operation: Any) -> None:
            if operation.status == "ok":
                follow.is_heard = True
                self._schedule_check(book)

        book.client.listen(follow.operation.result(), follow.show).add_done_callback(hear)

    def end(self) -> None:
        """Read all drafts once more."""
        for book in self._books.values():
            if not book.has_table:
                self._create(book)
            if book.is_judged:
                self._read(book)
                self._schedule_check(book)

    # -- steps

    def _create(self, book: _Book) -> None:
        """Create the table of a device, which may have it."""
        operation = book.client.create(DRAFTS, where="device")
        book.settle(operation, lambda state: ({}, None) if state is None else (state, TableProblem))

    def _write(self, book: _Book) -> None:
        """Write, delete, change, or drop something, and look at what the application shows then."""
        draw, client = self._draw, book.client
        self._count += 1
        kind = draw.choices(
            ["write", "conditional", "delete", "increment", "batch", "doomed batch", "drop"],
            [5, 3, 2, 2, 2, 1, 0.5],
        )[0]
        key = draw.choice(_KEYS)
        record: _Record = {
            "v": f"{_SECRET} {self._count}", "n": draw.randint(0, 5), "ref": draw.choice(_KEYS[:-1]),
        }  # fmt: skip
        if kind == "write":
            book.settle(client.write(DRAFTS, key, record), lambda state: _put(state, {key: record}, key))
        elif kind == "conditional":
            named = draw.choice([0, 1, 2, 3])
            written = client.write(DRAFTS, key, record, "conditional", version=named)
            book.settle(
                written,
                lambda state: (
                    _put(state, {key: record}, key) if _version(state, key) == named else (state, Conflict)
                ),
            )
        elif kind == "delete":
            book.settle(client.delete(DRAFTS, key), lambda state: _put(state, {key: None}, key))
        elif kind == "increment":
            added = client.increment(DRAFTS, key, "n", 1, create=True)
            book.settle(added, lambda state: _put(state, {key: _incremented(state, key)}, key))
        elif kind == "drop":
            book.follow = None  # it ends with the table
            book.settle(client.drop(DRAFTS), lambda state: (None, None))
        else:
            keys = draw.sample(_KEYS, len(_KEYS))
            batch = client.batch(DRAFTS)
            for part in keys:
                is_doomed = kind == "doomed batch" and part == keys[-1]
                version = _NEVER_A_VERSION if is_doomed else None
                batch.write(part, record, "conditional" if is_doomed else "blind", version=version)
            parts = dict.fromkeys(keys, record)
            book.settle(
                batch.commit(),
                lambda state: (state, Conflict) if kind == "doomed batch" else _put(state, parts),
            )
        self._schedule_check(book)

    def _read(self, book: _Book) -> None:
        """Read the drafts in one of the ways in which they can be read, or begin a continuous read."""
        draw, client = self._draw, book.client
        least = draw.choice([0, _SMALLEST])
        if book.follow is None and draw.random() < 0.5:
            self._begin_follow(book, least)
            return
        text = f"n >= {least}"
        if draw.random() < 0.3:
            read = client.read(DRAFTS, text, "committed", aggregate="count(*), max(n)")
            book.settle_read(
                read, lambda records: _aggregates(_from(records, least)), lambda result: result.aggregates
            )
            return
        kind = draw.choice([kind for kind in get_args(ReadType) if kind != "continuous"])
        read = client.read(DRAFTS, text, kind, latest=draw.random() < 0.3, offline="fail")
        book.settle_read(read, lambda records: (_from(records, least), True), _shown)

    def _begin_follow(self, book: _Book, least: int) -> None:
        """Begin a continuous read of a device's drafts."""
        book.follow = follow = _Follow(least)

        def begin(operation: Any) -> None:
            if operation.status == "ok":
                follow.is_heard = True
                self._schedule_check(book)
            elif book.follow is follow:
                book.follow = None

        follow.operation = book.client.read(
            DRAFTS, f"n >= {least}", "continuous", sync_timestamp=0, callback=follow.show
        )
        follow.operation.add_done_callback(begin)

    def _schedule_check(self, book: _Book) -> None:
        """Look at what the application of a device shows once it has been notified in this moment."""
        follow = book.follow
        if follow is not None:
            world = self._lab.world
            world.schedule_action(world.now_us, lambda _: book.check_follow(follow))

    def _join(self, book: _Book) -> None:
        """Read one of the tables by records of the other one."""
        reader = {"group": self._groups[book.name]}
        if len(book.states) > 1:
            self._read(book)
            return
        state = book.states[0]
        if self._draw.random() < 0.5:
            table, text = DRAFTS, f"lookup('{MAIN}', ref, 'n') = 1"
        else:
            table, text = MAIN, f"lookup('{DRAFTS}', key, 'n') >= {_SMALLEST}"
        read = book.client.read(table, text, "committed", reader, latest=True)

        def record(operation: Any) -> None:
            is_steady = book.states == [state]
            self._joins.append(_Join(table, reader, _records_of(state), is_steady, operation))

        read.add_done_callback(record)

    def _write_through_kill(self, book: _Book) -> None:
        """Write and read drafts without a network, before and after a kill of the device."""
        faults = self._lab.faults
        faults.cut(book.name, minutes=0.5)
        self._write(book)
        faults.kill(book.name)
        faults.restart(book.name)
        if book.has_table and book.is_judged:
            self._read(book)
        if book.has_table and book.is_judged:
            self._write(book)

    def unjoined(self) -> Iterator[str]:
        """Yield in words which joins show a record that no version in their time admits, or lack one."""
        versions: dict[str, list[Any]] = {}
        for _, entry in sorted(self._log.items()):
            if entry["op"] == "row" and entry["name"] == MAIN:
                versions.setdefault(entry["row"]["key"], []).append(entry["row"])
        for join in self._joins:
            if join.operation.status != "ok":
                continue
            shown = set(join.operation.result().records)
            during = {key: _during(rows, join) for key, rows in versions.items()}
            if join.table == DRAFTS:
                admits = {
                    key: {
                        row is not None and row["n"] == 1 for row in during.get(record.get("ref", ""), [None])
                    }
                    for key, (_, record) in join.drafts.items()
                }
            elif join.is_steady:
                is_draft = {key for key, (_, record) in join.drafts.items() if record["n"] >= _SMALLEST}
                admits = {
                    key: {row is not None and key in is_draft for row in rows} for key, rows in during.items()
                }
            else:
                continue
            for key in shown | admits.keys():
                if (key in shown) not in admits.get(key, {False}):
                    yield f"{join.operation} of {join.table} shows {shown}, and may {admits}: {join.drafts}"


def _during(rows: Sequence[Any], join: _Join) -> list[_Record | None]:
    """Return the records of a key that a read may have seen; None: one that is not there for its reader."""
    invoked_us, responded_us = join.operation.invoked_us, join.operation.responded_us
    before = [row for row in rows if row["ts_us"] < invoked_us]
    since = [row for row in rows if invoked_us <= row["ts_us"] <= responded_us]
    seen: list[_Record | None] = [] if before else [None]
    for row in (*before[-1:], *since):
        writer = row["predicate"]
        is_seen = writer is None or Predicate.restore(**writer)({}, receiver=join.reader)
        seen.append(row["data"] if is_seen else None)
    return seen


def _put(state: Any, parts: Mapping[str, _Record | None], key: str | None = None) -> tuple[_State, Any]:
    """Return a state with further versions, and the result of their call: that of a key, or those of all."""
    after = {**state}
    for part, record in parts.items():
        after[part] = after.get(part, (0, None))[0] + 1, record
    return after, [after[part][0] for part in parts] if key is None else after[key][0]


def _version(state: Any, key: str) -> int:
    """Return the version of a record; 0: there is none."""
    version, record = state.get(key, (0, None))
    return 0 if record is None else int(version)


def _incremented(state: Any, key: str) -> _Record:
    """Return a record after an increment of its number."""
    record = state.get(key, (0, None))[1] or {}
    return {**record, "n": record.get("n", 0) + 1}


def _records_of(state: _State) -> _Records:
    """Return the records of a state that are not deleted, with their versions."""
    return {key: (version, record) for key, (version, record) in (state or {}).items() if record is not None}


def _from(records: _Records, least: int) -> _Records:
    """Return the records whose number is at least another one."""
    return {key: (version, record) for key, (version, record) in records.items() if record["n"] >= least}


def _aggregates(records: _Records) -> dict[str, Any]:
    """Return the aggregates that are read of records."""
    numbers = [record["n"] for _, record in records.values()]
    return {"count(*)": len(numbers), "max(n)": max(numbers, default=None)}


def _shown(result: Any) -> tuple[dict[str, tuple[Any, Any]], bool]:
    """Return versions and records of a result, and whether it says that it is complete, local and of now."""
    is_exact = (
        result.is_complete
        and set(result.source.values()) <= {"local"}
        and set(result.age_s.values()) <= {0.0}
    )
    return {key: (result.versions[key], record) for key, record in result.records.items()}, is_exact

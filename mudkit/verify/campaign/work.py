"""Applications of a run of the campaign: their operations, and the answers and notifications they get."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal, get_args

from mudkit.errors import MudkitError
from mudkit.systems.mud import Artefact, Change, Client, Cloud, energy, freshness
from mudkit.systems.mud.api import ReadType
from mudkit.systems.mud.device.new_writes import WriteType
from mudkit.systems.mud.operations import Offline
from mudkit.systems.mud.policies.policies import NEVER
from mudkit.systems.mud.tables.selection import Selection
from mudkit.wire import Value

APP: Final = "app"
"""App of all clients."""

MAIN: Final = "t"
"""Table that exists all the time; the guarantees are checked on it."""
SIDE: Final = "u"
"""Table that is created, altered and dropped while it is in use."""
COUNTS: Final = "counts"
"""Table of some runs with one record, in which all clients count."""
AGGREGATE: Final = "count(*), max(n)"
"""Aggregates of reads and continuous reads."""
_RANGES: Final = ("n >= 0", "n >= 1", "n <= 1", "n >= 1 AND n <= 1", "n = 1 OR n = 2", "n <= 0", "n >= 2")
MAX_AGE_S: Final = 60.0
"""Age of answers that reads of ranges accept."""
_SAVING: Final = energy(per_j_s=1000.0)
"""Utility of a write that waits for others, for as long as any."""
_READ_TYPES: Final[tuple[ReadType, ...]] = ("committed", "committed_wio", "uncommitted")


@dataclass
class WriteRecord:
    """Write or delete (without a value), and its operation."""

    client: str
    table: str
    key: str
    kind: str
    value: str
    operation: Any


@dataclass
class ReaderData:
    """Data that a reader sent about itself, the time, and the operation (None: with the registration)."""

    data: dict[str, str]
    at_us: int
    operation: Any = None


@dataclass
class Watch:
    """Continuous read, and its notifications."""

    client: str
    table: str
    text: str | None
    sync: float | None
    reader_data: list[ReaderData]
    """In order; the last one is valid."""
    operation: Any = None
    notified: list[Any] = field(default_factory=list)
    """Without what was pending."""
    notified_us: list[int] = field(default_factory=list)
    shown: dict[str, Any] = field(default_factory=dict)
    """Last change of each record that the application was notified of, by key."""
    keys_pending: set[str] = field(default_factory=set)
    """Records whose last change is pending."""
    corrections: set[int] = field(default_factory=set)
    """Places of the notifications that followed a pending change of their record."""
    sessions: dict[str, int] = field(default_factory=dict)
    """Life of the client's machine at the last notification of each id."""
    lsn: int = 0
    """Last entry of the log when the read was registered."""
    is_on: bool = True
    synced_after: list[int] = field(default_factory=list)
    """Number of notifications when the application heard that the first state is there."""
    keys_synced: frozenset[str] = frozenset()
    """Records of which it had been notified when it heard this first."""
    synced_us: list[int] = field(default_factory=list)
    """Times at which it heard this."""
    lost_us: int | None = None
    """Time at which its device was wiped: no later notification may follow."""
    is_restored: bool = False
    """True on a restored device, where later notifications are not judged."""
    record: Callable[[Any], None] | None = None
    """Callback of the application."""
    selection: Selection | None = None
    """Columns, order and limit of a window; None: of no window."""

    def show(self, notification: Any, now_us: int) -> None:
        """Record a notification that is no repeat: what the application shows now."""
        if isinstance(notification, Change):
            key = notification.key
            self.shown[key] = notification
            if notification.is_pending:
                self.keys_pending.add(key)
                return
            if key in self.keys_pending:
                self.keys_pending.remove(key)
                self.corrections.add(len(self.notified))
        self.notified.append(notification)
        self.notified_us.append(now_us)


@dataclass
class Burst:
    """Write whose first messages were all lost while other traffic continued."""

    client: str
    every_s: float
    operation: Any
    duration_s: float | None = None
    """Time until the answer on a network without faults; None: not answered in time."""


@dataclass
class Ship:
    """Shipped policy, and its operation."""

    kind: str
    version: int
    operation: Any


def error_of(operation: Any) -> BaseException | None:
    """Return the error of a failed operation; None if it has a result."""
    try:
        operation.result()
    except MudkitError as error:
        return error
    return None


class RandomDelays:
    """Write policy that delays some writes, and some for ever."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    def delay(self, write: Mapping[str, Any], context: Mapping[str, Any]) -> float | Literal["never"] | None:
        """Draw the delay of a write in seconds; None: at once, ``NEVER``: it stays on the device."""
        return self._draw.choice([None, None, 5.0, 200.0, NEVER])


class Work:
    """Applications of one run.

    ``groups`` is the reader data of each client. ``with_predicates``: writers hide records; ``with_side``:
    the table :data:`SIDE` exists at times. ``session_of`` returns the number of lives of a client's machine.
    Some writes of the clients of ``may_delay`` are to save energy.
    """

    def __init__(
        self, clients: Mapping[str, Client], cloud: Cloud, draw: Random, keys: list[str],
        groups: Mapping[str, str], *, with_predicates: bool, with_side: bool, now_us: Callable[[], int],
        session_of: Callable[[str], int], may_delay: Collection[str],
    ) -> None:  # fmt: skip
        self._clients = clients
        self._may_delay = may_delay
        self._now_us, self._session_of = now_us, session_of
        self._cloud = cloud
        self._draw = draw
        self._added = Random(f"reads beside {len(keys)} {list(clients)}")
        """A separate stream, so that what was added leaves the rest of a run as it is."""
        self._keys = keys
        self._groups = groups
        self._with_predicates, self.with_side = with_predicates, with_side
        self.log: dict[int, dict[str, Any]] = {}
        """Entries of the back end's log as they were written; those beyond its end were rolled back."""
        self.writes: list[WriteRecord] = []
        self.reads: list[Any] = []
        self.range_reads: list[Any] = []
        """Reads that an answer on the device may contain, or cover in part."""
        self.reads_awaited: list[Any] = []
        """Calls that wait for the first states of continuous reads."""
        self.own_reads: list[tuple[WriteRecord, Any]] = []
        """Reads of a write at the time of its call."""
        self.watches: list[Watch] = []
        self.tallies: list[Watch] = []
        """Continuous reads of aggregates."""
        self.windows: list[Watch] = []
        """Continuous reads with a limit."""
        self.ships: list[Ship] = []
        self.increments: list[tuple[int, Any]] = []
        """Amounts that were added in :data:`COUNTS`, each another power of two, and the operations."""
        self.creations: list[Any] = []
        """Operations that create :data:`SIDE`."""
        self._count = 0

    def act(self, name: str | None = None) -> None:
        """Start a random operation on a device (None: any)."""
        draw = self._draw
        name = draw.choice(list(self._clients)) if name is None else name
        action = draw.choices(
            ["write", "delete", "read", "watch", "brief", "unwatch", "say", "table"],
            [10, 2, 12, 2, 2.5, 0.7, 0.7, 4 if self.with_side else 0],
        )[0]
        table = SIDE if self.with_side and draw.random() < 0.3 else MAIN
        if action == "write":
            self.write(name, table)
            if self._added.random() < 0.3:
                self._read_own(name)
        elif action == "delete":
            key, kind = draw.choice(self._keys), draw.choice(get_args(WriteType))
            operation = self._clients[name].delete(table, key, kind, data=self._data(name))
            self.writes.append(WriteRecord(name, table, key, kind, "", operation))
        elif action == "read":
            self._read(name, table)
        elif action == "watch":
            self.watch(name, table)
        elif action == "brief":
            self._end_at_once(self.watch(name, table))
        elif action == "table":
            self._administer(name)
        elif action == "unwatch":
            self._end_one(name)
        else:
            self.update_reader_data(name)

    def write(
        self, name: str, table: str = MAIN, key: str | None = None, *, is_open: bool = False,
        padding: str = "",
    ) -> Any:  # fmt: skip
        """Write and return the operation.

        A write to a given key is blind. ``is_open``: it is never hidden. ``padding`` makes it large.
        """
        draw = self._draw
        self._count += 1
        kind: WriteType = draw.choice(get_args(WriteType)) if key is None else "blind"
        key = draw.choice(self._keys) if key is None else key
        value = f"{name} {self._count}"
        is_hidden = self._with_predicates and not is_open and draw.random() < 0.5
        predicate = f"receiver.group = '{draw.choice('xy')}'" if is_hidden else None
        utility = _SAVING if name in self._may_delay and self._count % 3 == 0 else None
        record: dict[str, Value] = {"v": value, "n": self._count % 3, **({"w": padding} if padding else {})}
        operation = self._clients[name].write(
            table, key, record, kind, predicate, utility, data=self._data(name)
        )
        self.writes.append(WriteRecord(name, table, key, kind, value, operation))
        return operation

    def read_from_cloud(self, name: str) -> None:
        """Start a read that only the cloud can answer."""
        read = self._clients[name].read(MAIN, "n = 7", "committed", self._data(name), latest=True)
        self.reads.append(read)

    def record_loss(self, name: str, *, is_wiped: bool) -> None:
        """End the watches of a device that was wiped or restored; a restored one may be notified again."""
        for watch in (*self.watches, *self.tallies, *self.windows):
            if watch.client == name:
                watch.is_on, watch.is_restored = False, watch.is_restored or not is_wiped
                if watch.lost_us is None:
                    watch.lost_us = self._now_us()

    def ship(self) -> None:
        """Ship a policy, sometimes one that is older than another."""
        draw, kind = self._draw, self._draw.choice(["read", "write"])
        version = max((ship.version for ship in self.ships), default=0) + 1
        if version > 1 and draw.random() < 0.3:
            version = draw.randrange(1, version)
        if kind == "read":
            youngest = [0, draw.choice([5.0, 300.0]), 1, 2, 2]
            policy = Artefact.create(kind, version, ["age"], [youngest, [0], [1]], ["local", "remote"])
        else:
            action: str | float = "never" if draw.random() < 0.2 else draw.choice([0.0, 5.0, 200.0])
            policy = Artefact.create(kind, version, [], [[0]], [action])
        self.ships.append(Ship(kind, version, self._cloud.ship(policy, APP)))

    def watch(self, name: str, table: str = MAIN, key: str | None = None) -> Watch:
        """Start a continuous read, or one of later changes of a key."""
        if key is not None:
            return self._watch(name, table, f"key = '{key}'", None)
        draw = self._draw
        text = draw.choice([None, "n = 1", f"key = '{draw.choice(self._keys)}'"])
        now_s = (
            max((entry["row"]["ts_us"] for entry in self.log.values() if entry["op"] == "row"), default=0)
            / 1e6
        )
        return self._watch(name, table, text, draw.choice([None, 0.0, draw.uniform(0.0, now_s)]))

    def tally(self, name: str, text: str | None) -> None:
        """Start a continuous read of aggregates."""
        self._watch(name, MAIN, text, 0.0, AGGREGATE)

    def window(self, name: str, draw: Random) -> None:
        """Start a continuous read with a limit, or give the reader of one other data."""
        on = [
            (window, window.operation.result())
            for window in self.windows
            if window.client == name and window.operation.status == "ok" and window.is_on
        ]
        if on and draw.random() < 0.4:
            window, handle = draw.choice(on)
            data = {"group": draw.choice("xy")}
            if not any(isinstance(notification, dict) for notification in window.notified):
                operation = self._clients[name].update_data(handle, data)
                window.reader_data.append(ReaderData(data, self._now_us(), operation))
            return
        columns, order = draw.choice([None, ["v"], ["n"]]), draw.choice([None, "n", "n DESC", "v DESC"])
        selection = Selection.parse(columns, order, draw.choice([1, 1, 2]))
        self._watch(name, MAIN, draw.choice([None, "n >= 1"]), 0.0, selection=selection)

    def _watch(
        self, name: str, table: str, text: str | None, sync: float | None, aggregate: str | None = None,
        selection: Selection | None = None,
    ) -> Watch:  # fmt: skip
        """Start a continuous read of records, or of aggregates or a window, and record its notifications."""
        watch = Watch(name, table, text, sync, [ReaderData(self._data(name), self._now_us())])
        watch.selection = selection

        def record(notification: Any) -> None:
            if watch.is_restored:
                return
            session = self._session_of(name)
            before = watch.sessions.get(notification.id, session)
            watch.sessions[notification.id] = session
            if before < session:  # a kill may repeat it
                return
            watch.show(notification, self._now_us())

        watch.record = record
        read = self._clients[name].read
        watch.operation = read(
            table, text, "continuous", watch.reader_data[0].data, None, sync, record, aggregate=aggregate,
            **({} if selection is None else _options_of(selection)),
        )  # fmt: skip

        def record_synced(operation: Any) -> None:
            if operation.status == "ok":
                watch.keys_synced = watch.keys_synced or frozenset(watch.shown)
                watch.synced_after.append(len(watch.notified))
                watch.synced_us.append(self._now_us())

        def record_position(operation: Any) -> None:
            watch.lsn = max(self.log, default=0)
            if operation.status == "ok":
                synced = self._clients[name].await_synced(operation.result())
                self.reads_awaited.append(synced)
                synced.add_done_callback(record_synced)

        watch.operation.add_done_callback(record_position)
        kind = self.watches if aggregate is None else self.tallies
        (kind if selection is None else self.windows).append(watch)
        return watch

    def _end_at_once(self, watch: Watch) -> None:
        """End a continuous read as soon as it is registered, so that late notifications follow its end."""

        def unregister(operation: Any) -> None:
            if operation.status == "ok" and not any(
                isinstance(notification, dict) for notification in watch.notified
            ):
                self._clients[watch.client].unregister(operation.result())
                watch.is_on = False

        watch.operation.add_done_callback(unregister)

    def _data(self, name: str) -> dict[str, str]:
        """Return a client's reader data."""
        return {"group": self._groups[name]}

    def increment(self, name: str) -> None:
        """Add to the number of all clients; the sum tells which amounts are in it, and how often."""
        by = 1 << len(self.increments)
        self.increments.append((by, self._clients[name].increment(COUNTS, "k", "n", by, create=True)))

    def _read(self, name: str, table: str) -> None:
        """Start a random read."""
        draw, key = self._draw, self._draw.choice(self._keys)
        text = draw.choice([f"key = '{key}'", None, "n = 1", f"key IN ('{key}', 'a')"])
        kind = draw.choice(_READ_TYPES)
        aggregate = AGGREGATE if kind == "committed" and draw.random() < 0.2 else None
        self.reads.append(self._clients[name].read(
            table, text, kind, self._data(name), freshness(draw.choice([0.0, 60.0, 600.0])),
            latest=draw.random() < 0.15, aggregate=aggregate,
            offline=self._added.choices(get_args(Offline), [4, 1, 1])[0],
        ))  # fmt: skip

    def read_range(self, name: str, draw: Random) -> None:
        """Read the records of a range, of which an answer on the device may have all or a part."""
        text, utility = draw.choice(_RANGES), freshness(MAX_AGE_S)
        read = self._clients[name].read(MAIN, text, "committed", self._data(name), utility, offline="fail")
        self.reads.append(read)
        self.range_reads.append(read)

    def _read_own(self, name: str) -> None:
        """Read the last write, which everybody may see, before it can have been answered."""
        self.write(name, key=self._added.choice(self._keys), is_open=True)
        write = self.writes[-1]
        utility = self._added.choice([None, freshness(600.0)])
        read = self._clients[name].read(
            MAIN, f"key = '{write.key}'", "uncommitted", self._data(name), utility
        )
        self.own_reads.append((write, read))
        self.reads.append(read)

    def update_reader_data(self, name: str) -> None:
        """Update the reader data of all continuous reads of a client, up to three times in succession."""
        for watch, handle in self._active_watches(name):
            for _ in range(self._draw.choice([1, 2, 3])):
                data = {"group": self._draw.choice("xy")}
                operation = self._clients[name].update_data(handle, data)
                watch.reader_data.append(ReaderData(data, self._now_us(), operation))

    def find_reads(self, name: str) -> Any:
        """List the continuous reads of a client whose application was started again.

        Return the operation. Each read whose handle the application got before gets its callback, unless the
        device was wiped or restored since, where the handle is another read's; another start may lose the
        call.
        """
        client = self._clients[name]
        watches = {
            watch.operation.result(): watch
            for watch in (*self.watches, *self.tallies, *self.windows)
            if watch.client == name and watch.operation.status == "ok" and watch.lost_us is None
        }

        def listen(listing: Any) -> None:
            for read in listing.result() if listing.status == "ok" else ():
                watch = watches.get(read["handle"])
                if watch is not None and watch.record is not None and watch.lost_us is None:
                    client.listen(read["handle"], watch.record)

        listing = client.continuous_reads()
        listing.add_done_callback(listen)
        return listing

    def _end_one(self, name: str) -> None:
        """End one continuous read of a client, if it has any."""
        for watch, handle in self._active_watches(name)[:1]:
            self._clients[name].unregister(handle)
            watch.is_on = False

    def _active_watches(self, name: str) -> list[tuple[Watch, int]]:
        """Return the active continuous reads of a client, with their handles."""
        return [
            (watch, watch.operation.result())
            for watch in self.watches
            if watch.client == name
            and watch.is_on
            and watch.operation.status == "ok"
            and not any(isinstance(notification, dict) for notification in watch.notified)
        ]

    def _create(self, client: Client) -> Any:
        """Create the side table, if it does not exist, and return the operation."""
        operation = client.create(SIDE, acl=self._draw.choice(["public", "app", "user"]), split=["g"])
        self.creations.append(operation)
        return operation

    def renew_table(self, run: Callable[[float], None]) -> None:
        """Drop and create a table while a client has its records cached.

        The client learns of the new table by a read of another key. ``run`` advances time by seconds.
        """
        draw, names = self._draw, list(self._clients)
        reader, other = draw.choice(names), draw.choice(names)
        self.write(other, SIDE)
        run(draw.choice([1.0, 10.0]))
        self._read_keys(reader, self._keys, latest=True)
        run(draw.choice([0.1, 5.0]))
        if draw.random() < 0.5:
            self.write(reader, SIDE)
        self._clients[other].drop(SIDE)
        run(draw.choice([0.1, 5.0]))
        self._create(self._clients[other])
        self.write(other, SIDE)
        run(draw.choice([0.1, 5.0]))
        self._read_keys(reader, ["another"], latest=True)
        run(draw.choice([1.0, 10.0]))
        self._read_keys(reader, self._keys, latest=False)
        self.write(reader, SIDE)

    def _read_keys(self, name: str, keys: Sequence[str], *, latest: bool) -> None:
        """Read keys of the side table one by one, from the caches or the latest."""
        read = self._clients[name].read
        for key in keys:
            utility = None if latest else freshness(600.0)
            self.reads.append(
                read(SIDE, f"key = '{key}'", "committed", self._data(name), utility, latest=latest)
            )

    def _administer(self, name: str) -> None:
        """Create, alter or drop the side table."""
        client = self._clients[name]
        action = self._draw.choice(["create", "create", "alter", "drop"])
        if action == "create":
            self._create(client).add_done_callback(lambda _: self._watch_side(name))
        elif action == "alter":
            client.alter(
                SIDE, acl=self._draw.choice(["public", "app", "user"]), add={"w": "text"}, remove=["n"]
            )
        else:
            client.drop(SIDE)

    def _watch_side(self, name: str) -> None:
        """Start a continuous read of the side table."""
        self.watch(name, SIDE)


def _options_of(selection: Selection) -> dict[str, Any]:
    """Return the options of a read that select columns, order and number of its records."""
    order = None if selection.order is None else f"{selection.order}{' DESC' * selection.is_descending}"
    return {"columns": selection.columns, "order": order, "limit": selection.limit}

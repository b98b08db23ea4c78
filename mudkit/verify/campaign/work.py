"""What applications do in a run of the campaign, and what they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal, get_args

from mudkit.systems.mud import Artefact, Client, Cloud, freshness
from mudkit.systems.mud.api import ReadType
from mudkit.systems.mud.device.write_path import WriteType
from mudkit.systems.mud.policies.policies import NEVER
from mudkit.wire import Value

__all__ = ["APP", "MAIN", "SIDE", "Burst", "HeldBack", "Said", "Ship", "Watch", "Work", "Written"]

APP: Final = "app"
"""Of all clients."""

MAIN: Final = "t"
"""The table that is there all the time: what is promised is checked on it."""
SIDE: Final = "u"
"""The table that is created, altered and dropped while there is work on it."""
_READ_TYPES: Final[tuple[ReadType, ...]] = ("committed", "committed_wio", "uncommitted")


@dataclass
class Written:
    """A write or delete, and what an application knows of it; a delete has no value."""

    client: str
    table: str
    key: str
    kind: str
    value: str
    operation: Any


@dataclass
class Said:
    """What a reader has said of itself, when, and the operation by which; the first word has none."""

    data: dict[str, str]
    at_us: int
    operation: Any = None


@dataclass
class Watch:
    """A continuous read, and what an application was told."""

    client: str
    table: str
    text: str | None
    sync: float | None
    words: list[Said]
    """The first first; the last one counts."""
    operation: Any = None
    notified: list[Any] = field(default_factory=list)
    notified_us: list[int] = field(default_factory=list)
    lsn: int = 0
    """Up to where the log had come when it was registered."""
    is_on: bool = True
    most_notified: int | None = None
    """How much had been told when its device was wiped: nothing may come after that."""
    is_restored: bool = False
    """True for a restored device: what follows is not judged."""


@dataclass
class Burst:
    """A write whose first messages were all lost, and the traffic that went on after that."""

    client: str
    every_s: float
    operation: Any
    seconds: float | None = None
    """How long it took on a network that was well; None: it was not answered meanwhile."""


@dataclass
class Ship:
    """A policy that was shipped, and what is known of it."""

    kind: str
    version: int
    operation: Any


class HeldBack:
    """A write policy: some writes go later, some never.

    Parameters
    ----------
    draw : Random
    """

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    def delay(self, write: Mapping[str, Any], context: Mapping[str, Any]) -> float | Literal["never"] | None:
        """See :class:`mudkit.systems.mud.WritePolicy`."""
        return self._draw.choice([None, None, 5.0, 200.0, NEVER])


class Work:
    """The applications of one run.

    Parameters
    ----------
    clients : dict of str to Client
    cloud : Cloud
    draw : Random
    keys : sequence of str
    groups : dict of str to str
        What the user of each says of himself.
    with_predicates, with_side : bool
        Whether writers hide records, and whether there is a table that comes and goes.
    now_us : callable
        Gives the time.
    """

    def __init__(
        self, clients: Mapping[str, Client], cloud: Cloud, draw: Random, keys: list[str],
        groups: Mapping[str, str], *, with_predicates: bool, with_side: bool, now_us: Callable[[], int],
    ) -> None:  # fmt: skip
        self._clients = clients
        self._now_us = now_us
        self._cloud = cloud
        self._draw = draw
        self._keys = keys
        self._groups = groups
        self._with_predicates, self.with_side = with_predicates, with_side
        self.log: dict[int, dict[str, Any]] = {}
        """Entries of the back end's log, as they were written; those beyond its end were rolled back."""
        self.writes: list[Written] = []
        self.reads: list[Any] = []
        self.watches: list[Watch] = []
        self.ships: list[Ship] = []
        self.creations: list[Any] = []
        """Operations that create the table that comes and goes."""
        self._count = 0

    def happen(self, name: str | None = None) -> None:
        """Let an application do something; ``name`` says on which device."""
        draw = self._draw
        name = draw.choice(list(self._clients)) if name is None else name
        what = draw.choices(
            ["write", "delete", "read", "watch", "brief", "unwatch", "say", "table"],
            [10, 2, 12, 2, 2.5, 0.7, 0.7, 4 if self.with_side else 0],
        )[0]
        table = SIDE if self.with_side and draw.random() < 0.3 else MAIN
        if what == "write":
            self.write(name, table)
        elif what == "delete":
            key, kind = draw.choice(self._keys), draw.choice(get_args(WriteType))
            made = self._clients[name].delete(table, key, kind, data=self._data(name))
            self.writes.append(Written(name, table, key, kind, "", made))
        elif what == "read":
            self._read(name, table)
        elif what == "watch":
            self.watch(name, table)
        elif what == "brief":
            self._end_at_once(self.watch(name, table))
        elif what == "table":
            self._administer(name)
        elif what == "unwatch":
            self._end_one(name)
        else:
            self.say(name)

    def write(self, name: str, table: str = MAIN, key: str | None = None) -> Any:
        """Let an application write, and give the operation; to a key of its own it writes blind."""
        draw = self._draw
        self._count += 1
        kind: WriteType = draw.choice(get_args(WriteType)) if key is None else "blind"
        key = draw.choice(self._keys) if key is None else key
        value = f"{name} {self._count}"
        is_hidden = self._with_predicates and draw.random() < 0.5
        predicate = f"receiver.group = '{draw.choice('xy')}'" if is_hidden else None
        record: dict[str, Value] = {"v": value, "n": self._count % 3}
        made = self._clients[name].write(table, key, record, kind, predicate, data=self._data(name))
        self.writes.append(Written(name, table, key, kind, value, made))
        return made

    def ask(self, name: str) -> None:
        """Let an application ask for something that only the cloud can answer."""
        read = self._clients[name].read(MAIN, "n = 7", "committed", self._data(name), latest=True)
        self.reads.append(read)

    def has_lost(self, name: str, *, is_wiped: bool) -> None:
        """End the watches of a device that was wiped or restored; a restored one may be notified again."""
        for watch in self.watches:
            if watch.client == name and watch.most_notified is None:
                watch.is_on, watch.is_restored = False, not is_wiped
                watch.most_notified = len(watch.notified)

    def ship(self) -> None:
        """Let somebody ship a policy; now and then one that is no newer than another."""
        draw, kind = self._draw, self._draw.choice(["read", "write"])
        version = max((each.version for each in self.ships), default=0) + 1
        if version > 1 and draw.random() < 0.3:
            version = draw.randrange(1, version)
        if kind == "read":
            youngest = [0, draw.choice([5.0, 300.0]), 1, 2, 2]
            policy = Artefact.create(kind, version, ["age"], [youngest, [0], [1]], ["local", "remote"])
        else:
            action: str | float = "never" if draw.random() < 0.2 else draw.choice([0.0, 5.0, 200.0])
            policy = Artefact.create(kind, version, [], [[0]], [action])
        self.ships.append(Ship(kind, version, self._cloud.ship(policy, APP)))

    def watch(self, name: str, table: str = MAIN) -> Watch:
        """Let an application begin a continuous read."""
        draw = self._draw
        text = draw.choice([None, "n = 1", f"key = '{draw.choice(self._keys)}'"])
        now_s = (
            max((entry["row"]["ts_us"] for entry in self.log.values() if entry["op"] == "row"), default=0)
            / 1e6
        )
        sync = draw.choice([None, 0.0, draw.uniform(0.0, now_s)])
        watch = Watch(name, table, text, sync, [Said(self._data(name), self._now_us())])

        def tell(each: Any) -> None:
            if watch.is_restored:
                return
            watch.notified.append(each)
            watch.notified_us.append(self._now_us())

        read = self._clients[name].read
        watch.operation = read(table, text, "continuous", watch.words[0].data, None, sync, tell)

        def registered(_: Any) -> None:
            watch.lsn = max(self.log, default=0)

        watch.operation.add_done_callback(registered)
        self.watches.append(watch)
        return watch

    def _end_at_once(self, watch: Watch) -> None:
        """End a continuous read as soon as it is registered: what is late of it comes after that."""

        def registered(operation: Any) -> None:
            if operation.status == "ok" and not any(isinstance(each, dict) for each in watch.notified):
                self._clients[watch.client].unregister(operation.result())
                watch.is_on = False

        watch.operation.add_done_callback(registered)

    def _data(self, name: str) -> dict[str, str]:
        return {"group": self._groups[name]}

    def _read(self, name: str, table: str) -> None:
        draw, key = self._draw, self._draw.choice(self._keys)
        text = draw.choice([f"key = '{key}'", None, "n = 1", f"key IN ('{key}', 'a')"])
        kind = draw.choice(_READ_TYPES)
        aggregate = "count(*), max(n)" if kind == "committed" and draw.random() < 0.2 else None
        self.reads.append(self._clients[name].read(
            table, text, kind, self._data(name), freshness(draw.choice([0.0, 60.0, 600.0])),
            latest=draw.random() < 0.15, aggregate=aggregate,
        ))  # fmt: skip

    def say(self, name: str) -> None:
        """Let the readers of a client say something of themselves, one thing right after another."""
        for watch, handle in self._watched(name):
            for _ in range(self._draw.choice([1, 2, 3])):
                data = {"group": self._draw.choice("xy")}
                made = self._clients[name].update_data(handle, data)
                watch.words.append(Said(data, self._now_us(), made))

    def _end_one(self, name: str) -> None:
        """End a continuous read of a client, if there is one."""
        for watch, handle in self._watched(name)[:1]:
            self._clients[name].unregister(handle)
            watch.is_on = False

    def _watched(self, name: str) -> list[tuple[Watch, int]]:
        """Give the continuous reads of a client that go on, with their handles."""
        return [
            (watch, watch.operation.result())
            for watch in self.watches
            if watch.client == name
            and watch.is_on
            and watch.operation.status == "ok"
            and not any(isinstance(each, dict) for each in watch.notified)
        ]

    def _create(self, client: Client) -> Any:
        made = client.create(SIDE, acl=self._draw.choice(["public", "app", "user"]), split=["g"])
        self.creations.append(made)
        return made

    def renew_table(self, run: Callable[[float], None]) -> None:
        """Let a table be dropped and created again under a client that holds its records.

        It hears of the other table when it asks for something else. ``run`` lets seconds pass.
        """
        draw, names = self._draw, list(self._clients)
        reader, other = draw.choice(names), draw.choice(names)
        self.write(other, SIDE)
        run(draw.choice([1.0, 10.0]))
        self._ask(reader, self._keys, latest=True)
        run(draw.choice([0.1, 5.0]))
        if draw.random() < 0.5:
            self.write(reader, SIDE)
        self._clients[other].drop(SIDE)
        run(draw.choice([0.1, 5.0]))
        self._create(self._clients[other])
        self.write(other, SIDE)
        run(draw.choice([0.1, 5.0]))
        self._ask(reader, ["another"], latest=True)
        run(draw.choice([1.0, 10.0]))
        self._ask(reader, self._keys, latest=False)
        self.write(reader, SIDE)

    def _ask(self, name: str, keys: Sequence[str], *, latest: bool) -> None:
        read = self._clients[name].read
        for key in keys:
            utility = None if latest else freshness(600.0)
            self.reads.append(
                read(SIDE, f"key = '{key}'", "committed", self._data(name), utility, latest=latest)
            )

    def _administer(self, name: str) -> None:
        client = self._clients[name]
        what = self._draw.choice(["create", "create", "alter", "drop"])
        if what == "create":
            made = self._create(client)

            def watched(_: Any) -> None:
                self.watch(name, SIDE)

            made.add_done_callback(watched)
        elif what == "alter":
            client.alter(
                SIDE, acl=self._draw.choice(["public", "app", "user"]), add={"w": "text"}, remove=["n"]
            )
        else:
            client.drop(SIDE)

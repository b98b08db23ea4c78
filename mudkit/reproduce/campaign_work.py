"""What applications do in a run of the campaign, and what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal

from mudkit.systems.mud import Artefact, Client, Cloud, freshness
from mudkit.systems.mud.policies import NEVER

__all__ = ["APP", "MAIN", "SIDE", "HeldBack", "Ship", "Watch", "Work", "Written"]

APP: Final = "app"
"""Of all clients."""

MAIN: Final = "t"
"""The table that is there all the time: what is promised is checked on it."""
SIDE: Final = "u"
"""The table that is created, altered and dropped while there is work on it."""


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
class Watch:
    """A continuous read, and what an application was told."""

    client: str
    table: str
    text: str | None
    sync: float | None
    data: list[dict[str, str]]
    """What its reader has said of itself, the first first."""
    operation: Any = None
    told: list[Any] = field(default_factory=list)
    lsn: int = 0
    """Up to where the log had come when it was registered."""
    is_on: bool = True


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
    """

    def __init__(
        self, clients: Mapping[str, Client], cloud: Cloud, draw: Random, keys: list[str],
        groups: Mapping[str, str], *, with_predicates: bool, with_side: bool,
    ) -> None:  # fmt: skip
        self._clients = clients
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
        self._count = 0

    def happen(self, name: str | None = None) -> None:
        """Let an application do something; ``name`` says on which device."""
        draw = self._draw
        name = draw.choice(list(self._clients)) if name is None else name
        what = draw.choices(
            ["write", "delete", "read", "watch", "brief", "unwatch", "change", "table"],
            [10, 2, 12, 2, 2.5, 0.7, 0.7, 4 if self.with_side else 0],
        )[0]
        table = SIDE if self.with_side and draw.random() < 0.3 else MAIN
        if what == "write":
            self.write(name, table)
        elif what == "delete":
            key, kind = draw.choice(self._keys), draw.choice(["blind", "conditional"])
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
        else:
            self._change(name, what)

    def write(self, name: str, table: str = MAIN) -> None:
        """Let an application write."""
        draw = self._draw
        self._count += 1
        key, kind, value = (
            draw.choice(self._keys),
            draw.choice(["blind", "conditional"]),
            f"{name} {self._count}",
        )
        is_hidden = self._with_predicates and draw.random() < 0.5
        predicate = f"receiver.group = '{draw.choice('xy')}'" if is_hidden else None
        record = {"v": value, "n": self._count % 3}
        made = self._clients[name].write(table, key, record, kind, predicate, data=self._data(name))
        self.writes.append(Written(name, table, key, kind, value, made))

    def ship(self) -> None:
        """Let somebody ship a policy; now and then one that is no newer than another."""
        draw, kind = self._draw, self._draw.choice(["read", "write"])
        version = max((each.version for each in self.ships), default=0) + 1
        if version > 1 and draw.random() < 0.3:
            version = draw.randrange(1, version)
        if kind == "read":
            youngest = [0, draw.choice([5.0, 300.0]), 1, 2, 2]
            policy = Artefact.made(kind, version, ["age"], [youngest, [0], [1]], ["local", "remote"])
        else:
            action: str | float = "never" if draw.random() < 0.2 else draw.choice([0.0, 5.0, 200.0])
            policy = Artefact.made(kind, version, [], [[0]], [action])
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
        watch = Watch(name, table, text, sync, [self._data(name)])
        read = self._clients[name].read
        watch.operation = read(table, text, "continuous", watch.data[0], None, sync, watch.told.append)

        def registered(_: Any) -> None:
            watch.lsn = max(self.log, default=0)

        watch.operation.add_done_callback(registered)
        self.watches.append(watch)
        return watch

    def _end_at_once(self, watch: Watch) -> None:
        """End a continuous read as soon as it is registered: what is late of it comes after that."""

        def registered(operation: Any) -> None:
            if operation.status == "ok" and not any(isinstance(each, dict) for each in watch.told):
                self._clients[watch.client].unregister(operation.result())
                watch.is_on = False

        watch.operation.add_done_callback(registered)

    def _data(self, name: str) -> dict[str, str]:
        return {"group": self._groups[name]}

    def _read(self, name: str, table: str) -> None:
        draw, key = self._draw, self._draw.choice(self._keys)
        text = draw.choice([f"key = '{key}'", None, "n = 1", f"key IN ('{key}', 'a')"])
        kind = draw.choice(["committed", "committed_wio", "uncommitted"])
        aggregate = "count(*), max(n)" if kind == "committed" and draw.random() < 0.2 else None
        self.reads.append(self._clients[name].read(
            table, text, kind, self._data(name), freshness(draw.choice([0.0, 60.0, 600.0])),
            latest=draw.random() < 0.15, aggregate=aggregate,
        ))  # fmt: skip

    def _change(self, name: str, what: str) -> None:
        """Change or end a continuous read of a client, if there is one."""
        for watch in self.watches:
            if watch.client == name and watch.is_on and watch.operation.status == "ok":
                handle, client = watch.operation.result(), self._clients[name]
                if any(isinstance(each, dict) for each in watch.told):
                    continue
                if what == "unwatch":
                    client.unregister(handle)
                    watch.is_on = False
                else:
                    watch.data.append({"group": self._draw.choice("xy")})
                    client.update_data(handle, watch.data[-1])
                return

    def _administer(self, name: str) -> None:
        client = self._clients[name]
        what = self._draw.choice(["create", "create", "alter", "drop"])
        if what == "create":
            made = client.create(SIDE, acl=self._draw.choice(["public", "app", "user"]), split=["g"])

            def watched(_: Any) -> None:
                self.watch(name, SIDE)

            made.add_done_callback(watched)
        elif what == "alter":
            client.alter(
                SIDE, acl=self._draw.choice(["public", "app", "user"]), add={"w": "text"}, remove=["n"]
            )
        else:
            client.drop(SIDE)

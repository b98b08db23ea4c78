"""M6: random fleets, work and faults for MUD tables; a run is a function of its seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud, freshness

__all__ = ["MINUTES", "SETTLE_HOURS", "Campaign", "Watch", "Written"]

MINUTES: Final = 12
SETTLE_HOURS: Final = 1.5
CRASH_POINTS: Final = {
    "device": ("before commit", "after commit", "numbered, not pending", "held, still pending"),
    "store": ("before commit", "after commit", "decided, not in the log"),
    "other": ("before commit", "after commit"),
}


@dataclass
class Written:
    """A write or delete, and what an application knows of it; a delete has no value."""

    key: str
    kind: str
    value: str
    operation: Any


@dataclass
class Watch:
    """A continuous read, and what an application was told."""

    client: str
    text: str | None
    sync: float | None
    data: dict[str, str]
    operation: Any = None
    told: list[Any] = field(default_factory=list)
    lsn: int = 0
    """Up to where the log had come when it was registered."""
    is_on: bool = True


class Campaign:
    """One run.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self._draw = draw = random.Random(seed)
        self.lab = Lab(seed, messages=False)
        self.faults: Counter[str] = Counter()
        self.cloud = Cloud(
            self.lab, replicas=draw.randint(0, 3), replica_lag_s=draw.choice([0.0, 0.5, 5.0, 60.0]),
            gateways=draw.randint(1, 3), processors=draw.randint(1, 3), servers=draw.randint(1, 3),
            most_waiting=draw.choice([3, 1000]), longest_s=draw.choice([30.0, 3600.0]),
        )  # fmt: skip
        self.log: dict[int, dict[str, Any]] = {}
        """Entries of the back end's log, as they were written; those beyond its end were rolled back."""
        self._watch_log()
        self._groups: dict[str, str] = {}
        self.replaces: dict[str, int] = {}
        """The version that each conditional write was to replace, by value."""
        self.clients: dict[str, Client] = {}
        users = ["ann", "bob", "cem"][: draw.randint(1, 3)]
        names = [f"{user}-phone" for user in users] + ["ann-tablet"] * draw.randint(0, 1)
        for name in names:
            device = self.lab.device(name, link=draw.choice(["wifi", "lte", "umts_3g", "edge"]))
            token = self.lab.token(user=name.split("-")[0], app="app", hours=100)
            self.clients[name] = Client(
                device, self.cloud, app="app", token=token, most_rows=draw.choice([2, 100])
            )
            self._groups[name] = draw.choice("xy")
            (process,) = self.lab.world.hosts[name].processes
            process.store.at_put = self._note_write
        self._keys = ["a", "h", "q"][: draw.randint(1, 3)]
        self._with_predicates = draw.random() < 0.3
        self.writes: list[Written] = []
        self.must_commit: set[str] = set()
        """Values of blind writes that a device had kept when it was killed."""
        self.watches: list[Watch] = []
        self._count = 0
        self.killed_after_commit: set[str] = set()
        self._watch_kills()

    # -- what is seen from outside

    def _watch_log(self) -> None:
        process = self.lab.world.at_address[self.cloud.back_end]

        def put(key: str, value: Any) -> None:
            if key.startswith("log "):
                self.log[value["lsn"]] = value  # one that was rolled back is put again, or is beyond the end

        process.store.at_put = put

    def _note_write(self, key: str, value: Any) -> None:
        if key.startswith("write ") and value["data"] is not None:
            self.replaces[value["data"]["v"]] = value["replaces"]

    def _watch_kills(self) -> None:
        world, before = self.lab.world, self.lab.world.on_incident

        def incident(host: Any, what: str, detail: Any) -> None:
            if what == "killed" and host.name in self.clients:
                for process in host.processes:
                    for _, write in process.store.items("write "):
                        if write["type"] == "blind" and write["data"] is not None:
                            self.must_commit.add(write["data"]["v"])
            before(host, what, detail)

        world.on_incident = incident

    # -- one run

    def run(self) -> None:
        """Let it happen, mend everything, and let it come to rest."""
        draw = self._draw
        first = next(iter(self.clients.values()))
        first.create("t", split=["g", "p"][: draw.randint(0, 2)]).result()
        end_us = self.lab.world.now_us + MINUTES * 60_000_000
        plan = [(draw.randint(0, end_us), self._work) for _ in range(draw.randint(5, 60))]
        plan += [(draw.randint(0, end_us), self._fault) for _ in range(draw.randint(0, 8))]
        for at_us, what in sorted(plan, key=lambda each: each[0]):
            if at_us > self.lab.world.now_us:
                self.lab.world.run(at_us)
            what()
        self._heal()
        self.lab.run(hours=SETTLE_HOURS)

    def _work(self) -> None:
        draw = self._draw
        name = draw.choice(list(self.clients))
        client, key = self.clients[name], draw.choice(self._keys)
        data = {"group": self._groups[name]}
        what = draw.choices(["write", "delete", "read", "watch", "unwatch"], [10, 2, 10, 2, 0.3])[0]
        if what == "write":
            self._count += 1
            value = f"{name} {self._count}"
            kind = draw.choice(["blind", "conditional"])
            is_hidden = self._with_predicates and draw.random() < 0.5
            predicate = f"receiver.group = '{draw.choice('xy')}'" if is_hidden else None
            record = {"v": value, "n": self._count % 3}
            made = client.write("t", key, record, kind, predicate, data=data)
            self.writes.append(Written(key, kind, value, made))
        elif what == "delete":
            kind = draw.choice(["blind", "conditional"])
            self.writes.append(Written(key, kind, "", client.delete("t", key, kind, data=data)))
        elif what == "read":
            text = draw.choice([f"key = '{key}'", None, "n = 1", f"key IN ('{key}', 'a')"])
            kind = draw.choice(["committed", "committed_wio", "uncommitted"])
            age_s = draw.choice([0.0, 60.0, 600.0])
            client.read("t", text, kind, data=data, utility=freshness(age_s))
        elif what == "watch":
            self._watch(name, draw.choice([None, "n = 1", f"key = '{key}'"]), draw.choice([None, 0.0]), data)
        else:
            mine = (each for each in self.watches if each.client == name and each.is_on)
            for watch in mine:
                if watch.operation.status == "ok":
                    client.unregister(watch.operation.result())
                    watch.is_on = False
                    break

    def _watch(self, name: str, text: str | None, sync: float | None, data: dict[str, str]) -> None:
        watch = Watch(name, text, sync, data)
        read = self.clients[name].read
        watch.operation = read("t", text, "continuous", data, None, sync, watch.told.append)

        def registered(_: Any) -> None:
            watch.lsn = max(self.log, default=0)

        watch.operation.add_done_callback(registered)
        self.watches.append(watch)

    def _fault(self) -> None:
        draw, faults = self._draw, self.lab.faults
        device = draw.choice(list(self.clients))
        cloud = self.cloud
        addresses = (cloud.back_end, *cloud.replicas, *cloud.processors, *cloud.gateways, *cloud.servers)
        servers = [each.split("/")[0] for each in addresses]
        what = draw.choice(["cut", "kill device", "kill server", "move", "network", "messages", "still"])
        self.faults[what] += 1
        if what == "cut":
            faults.cut(device, minutes=draw.choice([0.05, 1, 10]))
        elif what == "kill device":
            point = draw.choice([None, *CRASH_POINTS["device"]])
            if point == "after commit":
                self.killed_after_commit.add(device)
            faults.kill(device, at=point)
            self._later(device, draw.uniform(0.1, 120))
        elif what == "kill server":
            server = draw.choice(servers)
            kind = "store" if server == "mud-store" else "other"
            faults.kill(server, at=draw.choice([None, *CRASH_POINTS[kind]]))
            self._later(server, draw.uniform(0.1, 120))
        elif what == "move":
            faults.change_address(device)
        elif what == "network":
            faults.change_network(device, draw.choice(["wifi", "lte", "umts_3g", "edge"]))
        elif what == "messages":
            faults.messages(
                loss_share=draw.choice([0, 0.3]), repeat_share=draw.choice([0, 0.3]),
                delay_share=draw.choice([0.1, 0.5]), delay_s=draw.choice([0.5, 20.0]),
            )  # fmt: skip
        else:
            faults.messages()

    def _later(self, host: str, seconds: float) -> None:
        self.lab.world.at(
            self.lab.world.now_us + round(seconds * 1e6), lambda _: self.lab.faults.restart(host)
        )

    def _heal(self) -> None:
        faults, world = self.lab.faults, self.lab.world
        faults.messages()
        self.lab.run(minutes=10)
        for name, host in world.hosts.items():
            for process in host.processes:
                process.store.at_crash_point = lambda name: None
            faults.restart(name)

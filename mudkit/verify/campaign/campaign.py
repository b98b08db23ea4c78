"""M6: random fleets, work and faults for MUD tables; a run is a function of its seed.

A run has two kinds of faults again and again, each pair of kinds in its turn: so each kind meets whatever
machines do, and what they do because of another.
"""

from __future__ import annotations

import random
from typing import Any, Final

from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud, ShippedPolicy, WritePolicy
from mudkit.systems.mud.device.local import PendingWrite
from mudkit.verify.campaign.faults import KINDS, Trouble
from mudkit.verify.campaign.table import Cells, SeenHost, SeenNetwork
from mudkit.verify.campaign.work import APP, MAIN, SIDE, Burst, HeldBack, Work
from mudkit.wire import as_wire

__all__ = ["BURST_S", "MINUTES", "SETTLE_HOURS", "Campaign"]

MINUTES: Final = (12, 75)
"""How long runs are; in the longer ones, who was not heard of is given up."""
SETTLE_HOURS: Final = 1.5
BURST_S: Final = 60.0
"""Time within which what a burst of losses has lost arrives, in seconds."""


class Campaign:
    """One run.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._draw = draw = random.Random(seed)
        self.lab = Lab(seed, record_messages=False)
        self.lab.world.on_failure = raise_failure  # a run that ends in an error says so
        self.cells: Cells = Cells()
        seen = SeenNetwork(self.lab, self._note)
        lag_s = draw.choice([0.0, 0.5, 5.0, 60.0])
        self.cloud = Cloud(
            seen,
            replicas=draw.randint(0, 3),
            replica_lag_s=lag_s,
            gateways=draw.randint(1, 3),
            processors=draw.randint(1, 3),
            notification_servers=draw.randint(1, 3),
            max_waiting=draw.choice([3, 1000]),
            max_wait_s=draw.choice([10.0, 60.0, 3600.0]),
        )
        self.minutes = draw.choices(MINUTES, [2, 1])[0]
        self.expires_us: dict[str, float] = {}
        """When the tokens of clients expire, where that is before the end."""
        self.users: dict[str, str | None] = {}
        """Whom their tokens are of."""
        self.renewals: dict[str, list[Any]] = {}
        """Of each client the tokens that it was given since, as operations."""
        self.replaces: dict[str, int | None] = {}
        """The version that each conditional write was to replace, by value."""
        self.bases: dict[str, str | None] = {}
        """The value that each write stood on, by its own; None: none."""
        self.wipes: dict[str, list[int]] = {}
        """Sessions of its machine after which each device was wiped or restored."""
        self.rolled_back_us: dict[str, int] = {}
        """Time at which each host was last wiped or restored."""
        self.bursts: list[Burst] = []
        self.clients: dict[str, Client] = {}
        self._at_once: set[str] = set()
        """Clients whose writes no policy delays."""
        groups: dict[str, str] = {}
        users = ["ann", "bob", "cem"][: draw.randint(1, 3)]
        names = [f"{user}-phone" for user in users] + ["ann-tablet"] * draw.randint(0, 1)
        for name in names:
            self.clients[name] = self._client(name)
            groups[name] = draw.choice("xy")
        keys = ["a", "h", "q"][: draw.randint(1, 3)]
        self.work = Work(
            self.clients,
            self.cloud,
            draw,
            keys,
            groups,
            with_predicates=draw.random() < 0.3,
            with_side=draw.random() < 0.5,
            now_us=lambda: self.lab.world.now_us,
        )
        standing = ["lagging replicas"] if lag_s and self.cloud.replicas else []
        standing += ["two devices"] if "ann-tablet" in names else []
        self.trouble = Trouble(self.lab, self.cloud, draw, names, standing, 600.0)
        self.must_commit: dict[str, str] = {}
        """Values of blind writes that a device had kept when it was killed, with its name."""
        self.held: dict[str, list[dict[str, Any]]] = {}
        """What clients list as pending when all is over."""
        self.policies: dict[str, dict[str, Any]] = {}
        """What they then say of the policies that they follow."""
        self._watch_log()
        self._watch_kills()

    def _client(self, name: str) -> Client:
        draw = self._draw
        device = self.lab.device(name, link=draw.choice(["wifi", "lte", "umts_3g", "edge"]))
        is_short = draw.random() < 0.3
        hours = draw.uniform(0.02, self.minutes / 60) if is_short else 100.0
        if is_short:
            self.expires_us[name] = hours * 3600e6
        writes: tuple[WritePolicy | ShippedPolicy[WritePolicy] | None, ...] = (
            HeldBack(random.Random(draw.random())),
            ShippedPolicy(),
            None,
        )
        self.users[name] = user = None if draw.random() < 0.1 else name.split("-")[0]
        policy = draw.choices(writes, [1, 3, 6])[0]
        if policy is None:
            self._at_once.add(name)
        client = Client(
            SeenHost(device, self._note),
            self.cloud,
            app=APP,
            max_rows=draw.choice([2, 100]),
            token=self.lab.token(user, APP, hours=hours),
            read_policy=ShippedPolicy() if draw.random() < 0.5 else None,
            write_policy=policy,
        )
        (process,) = self.lab.world.hosts[name].processes
        process.store.at_put = self._note_write
        return client

    # -- what is seen from outside

    def _note(self, transition: str) -> None:
        self.cells[transition, self.trouble.in_effect()] += 1

    def _watch_log(self) -> None:
        process, log = self.lab.world.at_address[self.cloud.back_end], self.work.log

        def put(key: str, value: Any) -> None:
            if key.startswith("log "):
                # One that was rolled back is put again, or is beyond the end.
                entry = as_wire(value)
                log[entry["lsn"]] = entry

        process.store.at_put = put

    def _note_write(self, key: str, value: Any) -> None:
        if isinstance(value, PendingWrite) and value.data is not None:
            base = None if value.base is None else value.base.data
            written = str(value.data["v"])
            self.replaces[written] = value.replaces
            self.bases[written] = None if base is None else str(base["v"])

    def _watch_kills(self) -> None:
        world, before = self.lab.world, self.lab.world.on_incident

        def incident(host: Any, what: str, detail: Any) -> None:
            if what == "killed" and host.name in self.clients:
                for process in host.processes:
                    for _, write in process.store.items("write "):
                        if write["type"] == "blind" and write["data"] is not None and write["name"] == MAIN:
                            self.must_commit[write["data"]["v"]] = host.name
            elif what in ("wiped", "restored"):
                self._has_lost(host, is_wiped=what == "wiped")
            before(host, what, detail)

        world.on_incident = incident

    def _has_lost(self, host: Any, *, is_wiped: bool) -> None:
        """Record that a host was wiped or restored: it has lost what it had stored, or the last of it."""
        self.rolled_back_us[host.name] = self.lab.world.now_us
        if host.name not in self.clients:
            return
        (process,) = host.processes
        self.wipes.setdefault(host.name, []).append(process.session)
        self.must_commit = {value: name for value, name in self.must_commit.items() if name != host.name}
        self.renewals.pop(host.name, None)
        self.work.has_lost(host.name, is_wiped=is_wiped)

    def has_expired(self, name: str, at_us: int) -> bool:
        """Say whether the token of a client has expired by a time, and was not renewed before."""
        renewed = any(
            each.status == "ok" and each.responded_us < at_us for each in self.renewals.get(name, ())
        )
        return at_us >= self.expires_us.get(name, float("inf")) and not renewed

    # -- one run

    def run(self) -> None:
        """Let it happen, mend everything, and let it come to rest."""
        draw, world = self._draw, self.lab.world
        first = next(iter(self.clients.values()))
        first.create(MAIN, split=["g", "p"][: draw.randint(0, 2)]).result()
        if self.work.with_side:
            creation = first.create(SIDE)
            creation.result()
            self.work.creations.append(creation)
        plan = self._plan(world.now_us)
        for at_us, what in plan:
            if at_us > world.now_us:
                world.run(at_us)
            self._step(what)
        self.trouble.end()
        self.lab.run(minutes=10)
        self.trouble.heal()
        self.lab.run(hours=SETTLE_HOURS)
        self.held = {name: client.pending().result() for name, client in self.clients.items()}
        self.policies = {name: client.policies().result() for name, client in self.clients.items()}

    def _plan(self, now_us: int) -> list[tuple[int, str]]:
        """Say what happens when: two kinds of faults, every pair of them in its turn, and work among them."""
        draw, minute_us = self._draw, 60_000_000
        end_us = now_us + self.minutes * minute_us
        is_long = self.minutes > 60
        away_us = draw.randint(0, 10 * minute_us)
        kinds = ("none", *KINDS)
        first = self._seed % len(kinds)
        pair = kinds[first], kinds[(self._seed // len(kinds) + first) % len(kinds)]
        plan = [(draw.randint(0, end_us), "work") for _ in range(draw.randint(10, 60))]
        for kind in pair:
            many = draw.randint(3, 6)
            if is_long:  # a server that is killed forgets who is away
                many = draw.randint(6, 12) if kind in ("address", "network") else draw.randint(0, 1)
            plan += [(draw.randint(0, end_us), kind) for _ in range(many)]
            if is_long:  # most of them when he who is away is given up, by a server that is not killed
                many = 2 if kind.startswith("notifications") else 10
                from_us, until_us = away_us + 37 * minute_us, away_us + 42 * minute_us
                plan += [(draw.randint(from_us, until_us), kind) for _ in range(many)]
        if pair != ("none", "none"):
            others = [draw.choice(KINDS) for _ in range(draw.choice([0, 0, 1, 3]))] + ["cut"] * draw.randint(
                0, 2
            )
            plan += [(draw.randint(0, end_us), kind) for kind in others]
        plan += [(draw.randint(0, end_us), "still") for _ in range(draw.randint(0, 2))]
        plan += [(draw.randint(0, end_us), "ship") for _ in range(draw.randint(2, 6))]
        if self.work.with_side:
            plan += [(draw.randint(0, end_us), "table") for _ in range(draw.randint(0, 1))]
        plan += [(draw.randint(0, end_us), "words") for _ in range(draw.randint(0, 3))]
        for name, expires_us in self.expires_us.items():  # what is under way when a token expires
            plan.append((round(expires_us) - draw.randint(0, 20_000), f"late {name}"))
        plan += [(draw.randint(0, end_us), "renew") for _ in range(draw.randint(0, 2))]
        plan += [(draw.randint(0, end_us), "burst") for _ in range(draw.choice([0, 0, 0, 1]))]
        plan += [(now_us + draw.randint(0, minute_us), "watch") for _ in range(draw.randint(1, 3))]
        if is_long:
            plan.append((away_us, "away"))
            if pair != ("none", "none"):  # the generator seldom does something: let it meet who is given up
                kinds = tuple(kind for kind in KINDS if kind.startswith("generator"))
                plan += [(away_us + draw.randint(37, 42) * minute_us, draw.choice(kinds)) for _ in range(2)]
        return sorted((at_us, what) for at_us, what in plan if what != "none")

    def _step(self, what: str) -> None:
        draw = self._draw
        if what == "work":
            self.work.happen()
        elif what == "watch":
            self.work.watch(draw.choice(list(self.clients)))
        elif what == "ship":
            self.work.ship()
        elif what == "still":
            self.trouble.end()
        elif what.startswith("late "):
            self.work.write(what.removeprefix("late "))
        elif what == "table":
            self.work.renew_table(lambda seconds: self.lab.run(seconds=seconds))
        elif what == "words":
            self._say()
        elif what == "renew":
            self._renew()
        elif what == "burst":
            self._burst()
        elif what == "away":
            name = draw.choice(list(self.clients))
            self.work.watch(name)
            self.lab.run(seconds=20)
            self.lab.faults.cut(name, minutes=45)
        else:
            device = self.trouble.happen(what)
            if what.startswith("generator"):
                self.work.ship()
            for _ in range(draw.randint(1, 5) if what in ("cut", "address") else 0):  # for who is not there
                self.work.write(draw.choice(list(self.clients)))
            if device is not None or draw.random() < 0.7:  # so that something is under way
                self.work.write(device or draw.choice(list(self.clients)))
                self.work.happen(device)

    def _say(self) -> None:
        """Let a reader say several things of himself at once, and then somebody write what may be hidden."""
        draw = self._draw
        name = draw.choice(list(self.clients))
        self.work.say(name)
        self.lab.run(seconds=draw.choice([0.0, 30.0]))
        self.work.write(draw.choice(list(self.clients)))

    def _renew(self) -> None:
        """Give a client whose token expires another one."""
        if self.expires_us:
            name = self._draw.choice(sorted(self.expires_us))
            made = self.clients[name].renew(self.lab.token(self.users[name], APP, hours=100.0))
            self.renewals.setdefault(name, []).append(made)

    def _burst(self) -> None:
        """Lose all that is sent for a moment, and let traffic go on: what was lost must not wait for that."""
        draw, lab = self._draw, self.lab
        name = draw.choice(list(self.clients))
        every_s = draw.choice([0.5, 1.0, 2.0, 3.0, 5.0, 9.0, 30.0])
        if name not in self._at_once or not self._is_well(name):
            return
        lab.faults.messages(loss_share=1.0)
        burst = Burst(name, every_s, self.work.write(name, key="burst"))
        lab.run(seconds=0.5)
        lab.faults.messages()
        began_us = lab.world.now_us
        while not burst.operation.done() and lab.world.now_us < began_us + BURST_S * 1e6:
            self.work.ask(name)
            lab.run(seconds=every_s)
            if not self._is_well(name):
                return  # something else has happened
        if burst.operation.done():
            burst.seconds = (lab.world.now_us - began_us) / 1e6
        self.bursts.append(burst)

    def _is_well(self, name: str) -> bool:
        """Say whether nothing is wrong with a client, the network and the cloud now."""
        world = self.lab.world
        self.trouble.end()
        hosts = [host for host in world.hosts.values() if host.name == name or host.link is None]
        is_there = all(host.is_online and process.machine for host in hosts for process in host.processes)
        return is_there and not self.trouble.is_armed and not self.has_expired(name, world.now_us)

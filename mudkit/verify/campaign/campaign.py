"""Random fleets, work and faults for MUD tables; a run is a function of its seed.

A run injects two kinds of faults repeatedly. Successive seeds go through all pairs, so that each kind meets
all transitions, including those that another kind causes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from mudkit.delivery.outbox import ItemId
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud, ShippedPolicy, WritePolicy
from mudkit.systems.mud.device.local import PendingWrite
from mudkit.verify.campaign.away import AWAY_STEP, BackEndAway
from mudkit.verify.campaign.batches import BATCH_STEPS, Batches
from mudkit.verify.campaign.creations import CREATION_STEP, Creations
from mudkit.verify.campaign.drafts import DRAFT_STEPS, Drafts
from mudkit.verify.campaign.faults import KINDS, NAMES, PARTITIONS, TRIALS, FaultInjector
from mudkit.verify.campaign.guarded import GUARDED_STEPS, Guarded
from mudkit.verify.campaign.neighbours import DELAYS, FLOODS, OUTAGE, STEPS, Neighbours
from mudkit.verify.campaign.observers import Cells, ObservedHost, ObservedNetwork, Requests, WriteAnswer
from mudkit.verify.campaign.stores import (
    STANDBY_STEPS,
    STANDBYS,
    STANDBYS_WEIGHTS,
    StandbyFaults,
    Stores,
)
from mudkit.verify.campaign.trials import Trials
from mudkit.verify.campaign.work import APP, COUNTS, MAIN, SIDE, Burst, RandomDelays, Work
from mudkit.wire import as_wire

MINUTES: Final = (12, 75)
"""Lengths of runs; in the longer ones, notification servers give up silent devices."""
SETTLE_HOURS: Final = 1.5
KEEP_DELETED_S: Final = 7200.0
"""Time for which tombstones are kept: longer than any late copy is on its way."""
NAMES_SHARE: Final = 0.2
"""Share of the runs with faults in which servers are replaced, and the naming machine fails."""
PARTITIONS_SHARE: Final = 0.15
"""Share of the runs with faults in which processors are replaced, and partitions moved."""
REST_MINUTES: Final = 10
"""Last minutes of these hours, in which no client sends a request."""
PROBE: Final = "probe"
"""Key and value that are written when the faults have ended, if the back end was restored."""
BURST_S: Final = 180.0
"""Time, in seconds, within which what a burst of losses has lost arrives: the promised three minutes.

An answer that was late before the burst moves the first deadline."""


@dataclass
class Loss:
    """Wipe or restore of a device, and the writes that are pending in the backup, by their names, in order.

    ``start_number`` is that of its client's machine before.
    """

    at_us: int
    start_number: int
    pending: dict[ItemId, dict[str, Any]]


class Campaign:
    """One run: fleet, work and faults of a seed, and what the judge needs to know about it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._draw = draw = Random(seed)
        self.lab = Lab(seed, record_messages=False)
        self.lab.world.on_failure = raise_failure  # an exception in a machine ends the run
        self.cells: Cells = Cells()
        network = ObservedNetwork(self.lab, self._record_transition)
        lag_s = draw.choice([0.0, 0.5, 5.0, 60.0])
        self._standbys = Random(f"standbys of run {seed}")
        """A separate stream for standbys and their faults, so that they leave other runs as they are."""
        self.cloud = Cloud(
            network,
            replicas=draw.randint(0, 3),
            replica_lag_s=lag_s,
            gateways=draw.randint(1, 3),
            processors=draw.randint(1, 3),
            notification_servers=draw.randint(1, 3),
            max_waiting=draw.choice([3, 1000]),
            max_wait_s=draw.choice([10.0, 60.0, 3600.0]),
            keep_deleted_s=KEEP_DELETED_S,
            standbys=self._standbys.choices(STANDBYS, STANDBYS_WEIGHTS)[0],
        )
        self.minutes = draw.choices(MINUTES, [2, 1])[0]
        self.expires_us: dict[str, float] = {}
        """Expiry of each client's token, if before the end of the run."""
        self.users: dict[str, str | None] = {}
        """User of each client's token."""
        self.renewals: dict[str, list[Any]] = {}
        """Operations that renew each client's token."""
        self.replaces: dict[str, int | None] = {}
        """Version that each conditional write must replace, by value."""
        self._written: dict[tuple[str, int], str | None] = {}
        """Value of each pending write (None: a delete), by its client and sequence number."""
        self.bases: dict[str, str | None] = {}
        """Value that each write was based on (None: no record), by its own value."""
        self.losses: dict[str, list[Loss]] = {}
        """Wipes and restores of each device, in order."""
        self.rolled_back_us: dict[str, int] = {}
        """Time at which each host was last wiped or restored."""
        self.bursts: list[Burst] = []
        self.clients: dict[str, Client] = {}
        self._hosts: dict[str, ObservedHost] = {}
        """Host of each client."""
        self._undelayed: set[str] = set()
        """Clients without a write policy."""
        self._by_utility: list[str] = []
        """Clients without a read policy."""
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
            session_of=lambda name: self.lab.world.hosts[name].processes[0].start_number,
            may_delay=self.clients.keys() - self._undelayed,
        )
        standing = ["lagging replicas"] if lag_s and self.cloud.replicas else []
        standing += ["two devices"] if "ann-tablet" in names else []
        self._names = Random(f"names of run {seed}")
        """A separate stream for faults of the names, so that they leave runs without them as they are."""
        self._partitions = Random(f"partitions of run {seed}")
        """A separate stream for faults of who serves the partitions."""
        self.faults = FaultInjector(
            self.lab, self.cloud, draw, names, standing, 600.0, self._names, self._partitions
        )
        self._added = Random(f"trials of run {seed}")
        """A separate stream for trials, so that they leave runs without them as they are."""
        self.trials = Trials(
            self.lab,
            self.cloud,
            self.clients,
            self.work,
            self.faults,
            self._hosts,
            sorted(self._undelayed),
            self._is_well,
            self.rolled_back_us,
            self._added,
        )
        self.neighbours = Neighbours(
            self.lab,
            self.cloud,
            self.clients,
            self._hosts,
            self.work.log,
            Random(f"neighbours of run {seed}"),
            Random(f"stores and outages of neighbours of run {seed}"),
            Random(f"delays of neighbours of run {seed}"),
            Random(f"floods of run {seed}"),
        )
        self.guarded = Guarded(
            self.clients, self.users, self.work.log, Random(f"guarded table of run {seed}")
        )
        self.batches = Batches(self.clients, self.work.log, Random(f"batches of run {seed}"))
        self.drafts = Drafts(
            self.lab, self.clients, groups, self.work.log, Random(f"drafts of the devices of run {seed}")
        )
        self.away = BackEndAway(
            self.lab,
            self.cloud,
            self.clients,
            self.faults,
            lag_s,
            self._is_well,
            self.rolled_back_us,
            Random(f"times without the back end of run {seed}"),
        )
        self.creations = Creations(self.clients, Random(f"creations of tables of run {seed}"))
        self._applications = Random(f"applications of run {seed}")
        """A separate stream for starts of applications, so that they leave runs without them as they are."""
        self._increments = Random(f"increments of {seed}")
        """A separate stream for increments, so that they leave runs without them as they are."""
        self._is_counting = self._increments.random() < 0.2 or bool(self.cloud.standbys)
        self._windows = Random(f"windows of run {seed}")
        """A separate stream for windows, so that they leave runs without them as they are."""
        self._ranges = Random(f"ranges of run {seed}")
        """A separate stream for reads of ranges, so that they leave runs without them as they are."""
        self._restarted: dict[str, None] = {}
        """Clients whose applications were started again."""
        self.must_commit: dict[str, str] = {}
        """Values of blind writes that a device had stored when it was killed, with its name."""
        self.at_rest: dict[str, Requests] = {}
        """Requests that each client sent when the system had to be at rest."""
        self.counts: Counter[str] = Counter()
        """Number of starts of applications, and of collections of tombstones."""
        self.returned: list[str] = []
        """Tombstones that were not collected, and deleted records that came back, in words."""
        self.pending: dict[str, list[dict[str, Any]]] = {}
        """Pending writes listed by each client at the end."""
        self.policies: dict[str, dict[str, Any]] = {}
        """Policies listed by each client at the end."""
        self.probe: dict[str, list[Any]] = {}
        """Values that a read and a continuous read of each client found of :data:`PROBE`."""
        self.stores = Stores(self.lab, self.cloud, self.work.log, self.faults.in_effect)
        self.standby_faults = StandbyFaults(
            self.lab,
            self.cloud,
            self.stores,
            self.faults,
            self.work,
            sorted(self._undelayed),
            self._is_well,
            self.has_expired,
            self._standbys,
        )
        self._watch_kills()

    def _client(self, name: str) -> Client:
        """Create a client on a new device, with drawn link, token, policies and limits."""
        draw = self._draw
        device = self.lab.device(name, link=draw.choice(["wifi", "lte", "umts_3g", "edge"]))
        is_short = draw.random() < 0.3
        hours = draw.uniform(0.02, self.minutes / 60) if is_short else 100.0
        if is_short:
            self.expires_us[name] = hours * 3600e6
        writes: tuple[WritePolicy | ShippedPolicy[WritePolicy] | None, ...] = (
            RandomDelays(Random(draw.random())),
            ShippedPolicy(),
            None,
        )
        self.users[name] = user = None if draw.random() < 0.1 else name.split("-")[0]
        policy = draw.choices(writes, [1, 3, 6])[0]
        if policy is None:
            self._undelayed.add(name)
        max_rows, is_shipped = draw.choice([2, 100]), draw.random() < 0.5
        if not is_shipped:
            self._by_utility.append(name)
        self._hosts[name] = host = ObservedHost(device, self._record_transition)
        client = Client(
            host,
            self.cloud,
            app=APP,
            max_rows=max_rows,
            token=self.lab.token(user, APP, hours=hours),
            read_policy=ShippedPolicy() if is_shipped else None,
            write_policy=policy,
            max_waiting=Random(f"{name} of run {self._seed}").choice([1, 3, 1000]),
        )
        process, *_ = self.lab.world.hosts[name].processes
        process.store.at_put = partial(self._record_write, name)
        return client

    # -- observation

    def _record_transition(self, transition: str) -> None:
        """Count a transition of a machine, together with the faults in effect."""
        self.cells[transition, self.faults.in_effect()] += 1

    def _record_write(self, name: str, key: str, value: Any) -> None:
        """Record what a pending write replaces and is based on, when a device stores it."""
        if not isinstance(value, PendingWrite):
            return
        text = None if value.data is None else str(value.data["v"])
        self._written[name, value.seq] = text
        if text is None:
            return
        base = None if value.base is None else value.base.data
        self.replaces[text] = value.replaces
        self.bases[text] = None if base is None else str(base["v"])
        if value.after is not None:  # it leaves with that one, whose version may be known only afterwards
            self.bases[text] = self._written[name, value.after]

    def _watch_kills(self) -> None:
        """Record the blind writes pending on killed devices, and the losses of wiped and restored ones."""
        world, before = self.lab.world, self.lab.world.on_incident

        def record_incident(host: Any, incident: str, detail: Any) -> None:
            self.stores.record_incident(host.name, incident)
            if incident == "killed" and host.name in self.clients:
                # The other programs of the device may end while this one handles an event.
                process, *_ = host.processes
                if detail == process.name:
                    self._drop_rolled_back_answers(host)
                    for _, write in process.store.items("write "):
                        if write["type"] == "blind" and write["data"] is not None and write["name"] == MAIN:
                            self.must_commit[write["data"]["v"]] = host.name
            elif incident in ("wiped", "restored"):
                self._record_loss(host, is_wiped=incident == "wiped")
            before(host, incident, detail)

        world.on_incident = record_incident

    def _record_loss(self, host: Any, *, is_wiped: bool) -> None:
        """Record that a host was wiped or restored, and so lost all or the last of its state."""
        self.rolled_back_us[host.name] = self.lab.world.now_us
        if host.name not in self.clients:
            return
        process, *_ = host.processes
        loss = Loss(self.lab.world.now_us, process.start_number, _pending_writes(process.store))
        self.losses.setdefault(host.name, []).append(loss)
        self.must_commit = {value: name for value, name in self.must_commit.items() if name != host.name}
        self.renewals.pop(host.name, None)
        self.neighbours.record_loss(host.name)
        self.guarded.record_loss(host.name)
        self.batches.record_loss(host.name)
        self.drafts.record_loss(host.name, is_wiped=is_wiped)
        self.work.record_loss(host.name, is_wiped=is_wiped)

    def _drop_rolled_back_answers(self, host: Any) -> None:
        """Drop the answers to writes that a device was handling when it was killed, and has not committed."""
        process, *_ = host.processes
        answers = self._hosts[host.name].write_answers
        for write in _pending_writes(process.store).keys() & answers.keys():
            kept = [answer for answer in answers[write] if answer.at_us != self.lab.world.now_us]
            answers[write] = kept

    def write_answers(self, name: str) -> Mapping[ItemId, Sequence[WriteAnswer]]:
        """Return the answers to each write that a device has handled."""
        return self._hosts[name].write_answers

    def sent_apart(self, name: str) -> Sequence[str]:
        """Return in words which writes a device has sent in more messages than they need after a wait."""
        return self._hosts[name].sent_apart

    def share_problems(self, name: str) -> Sequence[str]:
        """Return in words which messages of a device's apps have broken the shares of its link."""
        return self._hosts[name].share_problems

    def share_counts(self, name: str) -> Counter[str]:
        """Return how many messages of a device's apps were judged beside a flood."""
        return self._hosts[name].share_counts

    def has_expired(self, name: str, at_us: int) -> bool:
        """Return whether a client's token expired by a time and was not renewed before."""
        is_renewed = any(
            renewal.status == "ok" and renewal.responded_us < at_us for renewal in self.renewals.get(name, ())
        )
        return at_us >= self.expires_us.get(name, float("inf")) and not is_renewed

    # -- execution

    def run(self) -> None:
        """Execute the plan, repair all faults, and wait until the system is at rest."""
        draw, world = self._draw, self.lab.world
        first = next(iter(self.clients.values()))
        first.create(MAIN, split=["g", "p"][: draw.randint(0, 2)]).result()
        if self._is_counting:
            first.create(COUNTS).result()
        if self.work.with_side:
            creation = first.create(SIDE)
            creation.result()
            self.work.creations.append(creation)
        if self.guarded.is_used:
            self.guarded.begin()
        if self.batches.is_used:
            self.batches.begin()
        if self.drafts.is_used:
            self.drafts.begin()
        if self.away.is_used:
            self.away.begin()
        if self.neighbours:
            self.neighbours.begin()
            self.counts["other apps"] += 1
        plan = self._plan(world.now_us)
        for at_us, step in plan:
            if at_us > world.now_us:
                world.run(at_us)
                self.neighbours.check_stores()
            self._step(step)
        self.faults.end()
        self.lab.run(minutes=10)
        self.faults.heal()
        for wait_minutes in (REST_MINUTES, 60 * SETTLE_HOURS - 2 * REST_MINUTES):
            for name in self._restarted:  # again, for reads whose handle the application had not heard of
                self._find_reads(name)
            self.lab.run(minutes=wait_minutes)
        before = {name: host.requests.copy() for name, host in self._hosts.items()}
        self.lab.run(minutes=REST_MINUTES)
        self.at_rest = {name: host.requests - before[name] for name, host in self._hosts.items()}
        if self.neighbours:
            self.neighbours.end()
        if self.drafts.is_used:
            self.drafts.end()
            self.counts["drafts"] += 1
        if self.stores.rolled_back_us is not None:
            self._probe()
        self.pending = {name: client.pending().result() for name, client in self.clients.items()}
        self.policies = {name: client.policies().result() for name, client in self.clients.items()}
        if self._applications.random() < 0.3:
            self._collect_tombstones()

    def _collect_tombstones(self) -> None:
        """Run until tombstones are collected, read all records, and write deleted ones again."""
        lab = self.lab
        lab.run(hours=1.5 * KEEP_DELETED_S / 3600)
        able = [name for name in self.clients if not self.has_expired(name, lab.world.now_us)]
        if not able:
            return
        self.counts["tombstones collected"] += 1
        for name in able:
            self.clients[name].read(MAIN, latest=True)
        lab.run(minutes=5)
        rows = [as_wire(row) for _, row in self.stores.store.items(f"row\n{MAIN}\n")]
        live = {row["key"] for row in rows if row["data"] is not None}
        kept = [row["key"] for row in rows if row["data"] is None]
        self.returned += [f"tombstones of {kept} are kept"] if kept else []
        reads: dict[str, Any] = {name: self.clients[name].read(MAIN, latest=True) for name in able}
        lab.run(minutes=5)
        for name, read in reads.items():
            shown = set(read.result().records) if read.status == "ok" else {read.status}
            if not shown <= live:
                self.returned.append(f"{name} reads {shown - live}, which is deleted")
        last: dict[str, int] = {}
        for entry in self.work.log.values():
            if entry["op"] == "row" and entry["name"] == MAIN:
                last[entry["row"]["key"]] = max(entry["row"]["ver"], last.get(entry["row"]["key"], 0))
        for name in sorted(self._undelayed & set(able))[:1]:
            for key in sorted(last.keys() - live):
                write = self.work.write(name, key=key, is_open=True)
                lab.run(minutes=10)
                version = write.result() if write.status == "ok" else 0
                if version <= last[key]:
                    self.returned.append(f"{key} has version {version} again, after {last[key]}")

    def _probe(self) -> None:
        """Register continuous reads, write a record, and read it from the replicas.

        Nothing is probed, and no promise of it judged, if no client with a valid token writes without delay;
        ``counts`` has how often this was so.
        """
        lab = self.lab
        able = {
            name: client
            for name, client in self.clients.items()
            if not self.has_expired(name, lab.world.now_us)
        }
        writers = [client for name, client in able.items() if name in self._undelayed]
        if not writers:
            self.counts["back ends not probed"] += 1
            return
        self.probe = {f"{kind} of {name}": [] for name in able for kind in ("read", "continuous read")}

        def recorder(name: str) -> Any:
            values = self.probe[f"continuous read of {name}"]

            def record(change: Any) -> None:
                if isinstance(change, dict):
                    values.append(change)
                elif not change.is_pending:
                    values.append(change.record["v"])

            return record

        for name, client in able.items():
            client.read(MAIN, f"key = '{PROBE}'", "continuous", callback=recorder(name))
        lab.run(minutes=2)
        writers[0].write(MAIN, PROBE, {"v": PROBE, "n": 1})
        lab.run(minutes=5)
        reads: dict[str, Any] = {name: client.read(MAIN, f"key = '{PROBE}'") for name, client in able.items()}
        lab.run(minutes=2)
        for name, read in reads.items():
            records = read.result().records if read.status == "ok" else {"": {"v": read.status}}
            self.probe[f"read of {name}"] = [record["v"] for record in records.values()]

    def _plan(self, now_us: int) -> list[tuple[int, str]]:
        """Return the steps of the run with their times: two kinds of faults, and work among them."""
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
            if is_long:  # a killed server forgets absent devices
                many = draw.randint(6, 12) if kind in ("address", "network") else draw.randint(0, 1)
            plan += [(draw.randint(0, end_us), kind) for _ in range(many)]
            if is_long:  # most of them when a server that is not killed gives up the absent device
                many = 2 if kind.startswith("notifications") else 10
                from_us, until_us = away_us + 37 * minute_us, away_us + 42 * minute_us
                plan += [(draw.randint(from_us, until_us), kind) for _ in range(many)]
        if pair != ("none", "none"):
            for kind in TRIALS:
                many = self._added.choices([0, 1, 2], [8, 1, 1])[0]
                plan += [(self._added.randint(0, end_us), kind) for _ in range(many)]
            for kind in NAMES if self._names.random() < NAMES_SHARE else ():
                many = self._names.choice([0, 1, 2])
                plan += [(self._names.randint(0, end_us), kind) for _ in range(many)]
            for kind in PARTITIONS if self._partitions.random() < PARTITIONS_SHARE else ():
                many = self._partitions.choice([1, 2, 4])
                plan += [(self._partitions.randint(0, end_us), kind) for _ in range(many)]
            others = [draw.choice(KINDS) for _ in range(draw.choice([0, 0, 1, 3]))]
            others += ["cut"] * draw.randint(0, 2)
            plan += [(draw.randint(0, end_us), kind) for kind in others]
        plan += [(draw.randint(0, end_us), "still") for _ in range(draw.randint(0, 2))]
        plan += [(draw.randint(0, end_us), "ship") for _ in range(draw.randint(2, 6))]
        if self.work.with_side:
            plan += [(draw.randint(0, end_us), "table") for _ in range(draw.randint(0, 1))]
        plan += [(draw.randint(0, end_us), "reader data") for _ in range(draw.randint(0, 3))]
        for name, expires_us in self.expires_us.items():  # in flight when a token expires
            plan.append((round(expires_us) - draw.randint(0, 20_000), f"late {name}"))
        plan += [(draw.randint(0, end_us), "renew") for _ in range(draw.randint(0, 2))]
        plan += [(draw.randint(0, end_us), "burst") for _ in range(draw.choice([0, 0, 0, 1]))]
        plan += [(now_us + draw.randint(0, minute_us), "watch") for _ in range(draw.randint(1, 3))]
        many = self._applications.choices([0, 1, 2, 3], [4, 2, 2, 1])[0]
        plan += [(self._applications.randint(0, end_us), "application") for _ in range(many)]
        many = self._applications.choices([0, 1, 2], [3, 2, 1])[0]
        plan += [(self._applications.randint(0, end_us), "tally") for _ in range(many)]
        if self._is_counting:
            draw_us = self._increments.randint
            plan += [(draw_us(0, end_us), "increment") for _ in range(draw_us(5, 50))]
            plan += [(at_us, step) for at_us, step in plan[-5:]]  # two at once, which may become one
        many = self._windows.choices([0, 2, 5], [2, 2, 1])[0]
        plan += [(self._windows.randint(0, end_us), "window") for _ in range(many)]
        many = self._ranges.choices([0, 30], [1, 1])[0] if self._by_utility else 0
        plan += [(self._ranges.randint(0, end_us), "range") for _ in range(many)]
        plan += [*self.neighbours.plan(end_us), *self.guarded.plan(end_us), *self.batches.plan(end_us)]
        plan += [*self.drafts.plan(end_us), *self.away.plan(end_us), *self.creations.plan(end_us)]
        plan += self.standby_faults.plan(end_us)
        if is_long:
            plan.append((away_us, "away"))
            if pair != ("none", "none"):  # the generator acts seldom: it must meet a device that is given up
                kinds = tuple(kind for kind in KINDS if kind.startswith("generator"))
                plan += [(away_us + draw.randint(37, 42) * minute_us, draw.choice(kinds)) for _ in range(2)]
        return sorted((at_us, step) for at_us, step in plan if step != "none")

    def _step(self, step: str) -> None:
        """Execute a step of the plan: work, a trial or a fault."""
        draw = self._draw
        if step == "work":
            self.work.act()
        elif step == "increment":
            self.work.increment(self._increments.choice(list(self.clients)))
        elif step == "watch":
            self.work.watch(draw.choice(list(self.clients)))
        elif step == "ship":
            self.work.ship()
        elif step == "still":
            self.faults.end()
        elif step.startswith("late "):
            self.work.write(step.removeprefix("late "))
        elif step == "table":
            self.work.renew_table(lambda seconds: self.lab.run(seconds=seconds))
        elif step == "reader data":
            self._update_reader_data()
        elif step == "renew":
            self._renew()
        elif step == "burst":
            self._burst()
        elif step == "tally":
            draw = self._applications
            self.work.tally(draw.choice(list(self.clients)), draw.choice([None, "n = 1"]))
        elif step == "window":
            self.work.window(self._windows.choice(list(self.clients)), self._windows)
        elif step == "range":
            self.work.read_range(self._ranges.choice(self._by_utility), self._ranges)
        elif step == "application":
            self._restart_application()
        elif step in GUARDED_STEPS:
            self.guarded.act(step)
        elif step in BATCH_STEPS:
            self.batches.act(step)
        elif step in DRAFT_STEPS:
            self.drafts.act(step)
        elif step == AWAY_STEP:
            self.away.act()
        elif step in STANDBY_STEPS:
            self.standby_faults.act(step)
        elif step == CREATION_STEP:
            self.creations.act()
        elif step in STEPS or step in (OUTAGE, DELAYS, FLOODS):
            self.neighbours.act(step)
        elif step in TRIALS:
            self.trials.begin(step)
        elif step in NAMES:
            self.faults.inject_names(step)
        elif step in PARTITIONS:
            self.faults.inject_partitions(step, MAIN)
        elif step == "away":
            name = draw.choice(list(self.clients))
            self.work.watch(name)
            self.lab.run(seconds=20)
            self.lab.faults.cut(name, minutes=45)
        else:
            device = self.faults.inject(step)
            if step.startswith("generator"):
                self.work.ship()
            for _ in range(draw.randint(1, 5) if step in ("cut", "address") else 0):  # for the absent device
                self.work.write(draw.choice(list(self.clients)))
            if device is not None or draw.random() < 0.7:  # so that something is in flight
                self.work.write(device or draw.choice(list(self.clients)))
                self.work.act(device)

    def _update_reader_data(self) -> None:
        """Update the data of a reader, then write a record that may be hidden from it."""
        draw = self._draw
        name = draw.choice(list(self.clients))
        self.work.update_reader_data(name)
        self.lab.run(seconds=draw.choice([0.0, 30.0]))
        self.work.write(draw.choice(list(self.clients)))

    def _restart_application(self) -> None:
        """End the application of a device, and start it again after a while; records are written meanwhile.

        Its continuous reads remain. Half of the times the device is killed, too.
        """
        draw, lab = self._applications, self.lab
        name = draw.choice(list(self.clients))
        self._restarted[name] = None
        process, *_ = lab.world.hosts[name].processes
        process.forget_listeners()
        self.drafts.forget_listener(name)
        for _ in range(draw.choice([1, 2, 5])):
            self.work.write(draw.choice(sorted(self._undelayed) or list(self.clients)))
            lab.run(seconds=draw.choice([0.0, 1.0, 30.0, 200.0]))
            if draw.random() < 0.2 and process.machine is not None:
                lab.faults.kill(name)
                lab.faults.restart(name)
        self.counts["application restarted"] += 1
        self._find_reads(name)

    def _find_reads(self, name: str) -> None:
        """Register the callbacks of the continuous reads of a client whose application was started again."""
        self.work.find_reads(name)
        self.drafts.find_reads(name)

    def _renew(self) -> None:
        """Renew the token of a client whose token expires."""
        if self.expires_us:
            name = self._draw.choice(sorted(self.expires_us))
            renewal = self.clients[name].renew(self.lab.token(self.users[name], APP, hours=100.0))
            self.renewals.setdefault(name, []).append(renewal)

    def _burst(self) -> None:
        """Lose all messages for a moment while traffic continues, and record when the write is answered."""
        draw, lab = self._draw, self.lab
        name = draw.choice(list(self.clients))
        every_s = draw.choice([0.5, 1.0, 2.0, 3.0, 5.0, 9.0, 30.0])
        if name not in self._undelayed or not self._is_well(name):
            return
        lab.faults.messages(loss_share=1.0)
        burst = Burst(name, every_s, self.work.write(name, key="burst"))
        lab.run(seconds=0.5)
        lab.faults.messages()
        start_us = lab.world.now_us
        while not burst.operation.done() and lab.world.now_us < start_us + BURST_S * 1e6:
            self.work.read_from_cloud(name)
            lab.run(seconds=every_s)
            if not self._is_well(name):
                return  # another fault interferes
        if burst.operation.done():
            burst.duration_s = (lab.world.now_us - start_us) / 1e6
        self.bursts.append(burst)

    def _is_well(self, name: str) -> bool:
        """Return whether a client, the network and the cloud are without faults.

        Faults of messages are ended first.
        """
        world = self.lab.world
        self.faults.end()
        hosts = [host for host in world.hosts.values() if host.name == name or host.link is None]
        is_up = all(host.is_online and process.machine for host in hosts for process in host.processes)
        return is_up and not self.faults.is_armed and not self.has_expired(name, world.now_us)


def _pending_writes(store: Any) -> dict[ItemId, dict[str, Any]]:
    """Return the pending writes in the store of a client, by their names on the network."""
    bases = [
        (base_seq, incarnation) for incarnation, base_seq in (store.get("starts of write") or {}).items()
    ]
    pending = {}
    for _, write in store.items("write "):
        base_seq, incarnation = max(base for base in bases if base[0] < write["number"])
        pending[ItemId(incarnation, write["number"] - base_seq)] = write
    return pending

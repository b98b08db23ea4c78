"""Faults of a run of the campaign, and the periods in which they are in effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from mudkit.events import Make
from mudkit.fleet.host import Backup
from mudkit.fleet.link import Curve, Transfer
from mudkit.fleet.store import ignore
from mudkit.lab import Lab
from mudkit.systems.mud import Cloud
from mudkit.systems.mud.messages.parts import PORT
from mudkit.verify.campaign.work import APP

AFTER_S: Final = 300.0
"""A fault counts as in effect until this time after its repair."""
_OLD_COPIES_SHARE: Final = 0.05
_OLD_COPIES_S: Final = (60.0, 5400.0)
"""Delay of the copies that a network that repeats messages makes of some of them, in seconds."""
_STORE_WEIGHT: Final = 4
"""Weight of the back end among the roles that are restored: all others follow its log."""
_AGAIN_SHARE: Final = 0.7
"""Share of the restores of the back end that another one follows."""
_AGAIN_S: Final = 120.0
"""Longest time until then, in seconds."""

_DEVICE: Final = (None, "before commit", "after commit", "held, still pending")
_STORE: Final = (None, "before commit", "after commit", "decided, not in the log")
_BEGINNING: Final = (None, "before commit", "after commit")
"""Crash points of processors and notification servers, which write to their store when they start."""
_SHIPPING: Final = (None, "before commit", "after commit")


def _killed(role: str, point: str | None) -> str:
    """Return the column for a role that is killed; ``point`` None: at no crash point."""
    return f"{role} killed" if point is None else f"{role} killed {point}"


_KILLS: Final = {
    _killed(role, point): (role, point)
    for role, points in (
        ("device", _DEVICE),
        ("store", _STORE),
        ("replica", (None,)),
        ("gateway", (None,)),
        ("processor", _BEGINNING),
        ("notifications", _BEGINNING),
        ("generator", _SHIPPING),
    )
    for point in points
}
KINDS: Final = ("cut", *_KILLS, "wiped", "address", "network", "lost", "repeated", "late", "restored")
"""Kinds of faults; each kill is followed by a restart."""
STANDING: Final = ("lagging replicas", "two devices")
"""Conditions in effect for a whole run."""
ROGUE: Final = "rogue"
"""A machine without the app's token says hello in the name of a client; also the machine's name."""
SLOW_LINK: Final = "slow link"
READS_AT_ONCE: Final = "reads at once"
TRIALS: Final = (ROGUE, SLOW_LINK, READS_AT_ONCE)
"""Kinds of :mod:`mudkit.verify.campaign.trials`."""
REPLACED: Final = "notifications replaced"
"""A notification server is killed for minutes or for ever, while there is another one."""
NAMING_KILLED: Final = "naming killed"
NAMING_RESTORED: Final = "naming restored"
NAMES: Final = (REPLACED, NAMING_KILLED, NAMING_RESTORED)
"""Kinds that concern who serves which devices; they are drawn from a stream of their own."""
PROCESSOR_REPLACED: Final = "processor replaced"
"""A processor is killed for minutes or for ever, while there is another one."""
MOVED: Final = "partition moved"
PARTITIONS: Final = (PROCESSOR_REPLACED, MOVED)
"""Kinds that concern who serves which partitions; they are drawn from a stream of their own, too."""
COLUMNS: Final = ("none", *KINDS, *TRIALS, *NAMES, *PARTITIONS, "restart", *STANDING)

_SLOW_KBPS: Final = 8.0
"""1 kB/s."""
_TAKES_SHARE: Final = 0.4
"""Share of the changes of address in which a device takes the address of another one."""
_TAKES_MINUTES: Final = (0.05, 1.0, 10.0)
"""Times for which that one is cut off, so that its server does not know its next address, in minutes."""
DEAD_MINUTES: Final = (1.0, 5.0, 30.0, None, None)
"""Times for which a server is killed that is to be replaced, in minutes; None: for ever."""
_READS_S: Final = 10.0
"""Time that many registrations take."""


class FaultInjector:
    """Faults of one run.

    ``standing`` are those of :data:`STANDING` in effect, ``max_cut_s`` bounds cuts, ``names`` is the stream
    of :data:`NAMES`, and ``partitions`` that of :data:`PARTITIONS`.
    """

    def __init__(
        self,
        lab: Lab,
        cloud: Cloud,
        draw: Random,
        devices: Sequence[str],
        standing: Sequence[str],
        max_cut_s: float,
        names: Random,
        partitions: Random,
    ) -> None:
        self._world, self._faults, self._draw = lab.world, lab.faults, draw
        self._devices = devices
        self._restarts = Random(draw.random())
        """A separate stream, so that draws at crash points do not change the rest of a run."""
        self._copies = Random(self._restarts.random())
        """A separate stream for copies of messages and choices of backups."""
        servers = {
            "store": [cloud.back_end, *cloud.standbys],
            "replica": cloud.replicas,
            "gateway": cloud.gateways,
            "processor": cloud.processors,
            "notifications": cloud.notification_servers,
            "generator": [cloud.generator],
        }
        self._hosts = {"device": list(devices)} | {
            kind: [address.split("/")[0] for address in addresses] for kind, addresses in servers.items()
        }
        self._kind_of = {host: kind for kind, hosts in self._hosts.items() for host in hosts}
        self._cloud, self._partitions = cloud, partitions
        self._names, self._naming = names, cloud.naming.split("/")[0]
        self._kind_of[self._naming] = "naming"
        self._naming_as_installed = self._faults.backup(self._naming)
        self._dead: set[str] = set()
        """Hosts that are killed to be replaced."""
        self._standing = tuple(standing)
        self._max_cut_s = max_cut_s
        self._until_us: dict[str, float] = {}
        self._traps: dict[str, str | None] = {}
        self._killed_now: str | None = None
        """Host being killed at once; all others are killed at a crash point."""
        for device in devices:  # no other device can have the first address, which is a name
            lab.faults.change_address(device)
        self._kept_down_us: dict[str, int] = {}
        """Least time for which the next kill of a host lasts."""
        self._down: dict[str, str] = {}
        """Kill from which each host has not recovered yet."""
        self._backups: list[dict[str, Backup]] = []
        """Backups of all hosts, the oldest first."""
        self._disturbed: set[str] = set()
        self._now: tuple[str, ...] = ()
        self._changes_us: float = -1.0
        self.counts: Counter[str] = Counter(standing)
        """Number of occurrences of each column; crash points that no machine reaches are not counted."""
        before = self._world.on_incident

        def record_incident(host: Any, incident: str, detail: Any) -> None:
            if detail == ROGUE or (host.link is not None and detail != f"{PORT}-{APP}"):
                pass  # another machine of the host
            elif incident == "killed":
                self._record_kill(host.name)
            elif incident == "restarted":
                self._record_restart(host.name)
            before(host, incident, detail)

        self._world.on_incident = record_incident

    def in_effect(self) -> tuple[str, ...]:
        """Return the columns in effect now: faults, or ``none`` alone, and the standing ones."""
        now_us = self._world.now_us
        if not self._changes_us > now_us:
            self._until_us = {name: until for name, until in self._until_us.items() if until > now_us}
            self._changes_us = min(self._until_us.values(), default=float("inf"))
            self._now = (*(sorted(self._until_us) or ("none",)), *self._standing)
        return self._now

    def inject(self, kind: str) -> str | None:
        """Inject a fault of a kind, at random; return the device that it affects, None if it affects none."""
        draw, faults = self._draw, self._faults
        if kind in _KILLS:
            role, point = _KILLS[kind]
            if role in ("replica", "processor"):  # followers of the log restart under a second fault
                also = draw.choice(["store", "late", None, None])
                if also == "store":
                    self._kill("store", None)
                elif also is not None:
                    self._set_fault_hook(also)
            return self._kill(role, point)
        if kind == "restored":
            return self._restore()
        device = draw.choice(list(self._devices))
        if kind == "cut":
            minutes = draw.choice([0.05, 1, self._max_cut_s / 60])
            faults.cut(device, minutes=minutes)
            self._begin(kind, minutes * 60)
        elif kind == "wiped":
            self._killed_now = device
            faults.wipe(device)
            for process in self._world.hosts[device].processes:  # its handles are those of other reads now
                process.forget_listeners()
            self._killed_now = None
            self._begin(kind, 0.0)
        elif kind == "address":
            self._change_address(device)
        elif kind == "network":
            faults.change_network(device, draw.choice(["wifi", "lte", "umts_3g", "edge"]))
            self._begin(kind, 0.0)
        else:
            self._set_fault_hook(kind)
            return None
        return device

    def inject_names(self, kind: str) -> None:
        """Inject a fault of :data:`NAMES`; no effect, if it would leave no notification server."""
        if kind == REPLACED:
            self._kill_to_be_replaced("notifications", REPLACED, self._names)
        elif kind == NAMING_KILLED:
            self._kill_now(self._naming)
        else:
            installed = {self._naming: self._naming_as_installed}
            self.restore_from(self._naming, self._names.choice([installed, *self._backups]))
            self._begin(NAMING_RESTORED, 0.0)

    def inject_partitions(self, kind: str, table: str) -> None:
        """Inject a fault of :data:`PARTITIONS`; no effect, if it would leave no processor."""
        if kind == PROCESSOR_REPLACED:
            self._kill_to_be_replaced("processor", PROCESSOR_REPLACED, self._partitions)
            return
        partition, processor = (
            self._partitions.randrange(3),
            self._partitions.choice(self._hosts["processor"]),
        )
        if self._world.at_address[self._cloud.naming].machine is not None:
            self._cloud.move(table, partition, processor)  # refused if there is no such partition
            self._begin(MOVED, 0.0)

    def is_dead(self, host: str) -> bool:
        """Return whether a host is killed to be replaced: no other fault restarts it."""
        return host in self._dead

    def _kill_to_be_replaced(self, role: str, column: str, draw: Random) -> None:
        """Kill a host of a role for some minutes or for ever; no effect without another one that lives."""
        hosts = self._hosts[role]
        if len(hosts) < 2 or not self._dead.isdisjoint(hosts):
            return
        self.kill_to_be_replaced(draw.choice(hosts), column, draw.choice(DEAD_MINUTES))

    def kill_to_be_replaced(self, host: str, column: str, minutes: float | None) -> bool:
        """Kill a host for some minutes, None: for ever; return False if it is killed so already."""
        if self.is_dead(host):
            return False
        self._dead.add(host)
        self._end_kill(host)
        self._faults.kill(host)
        self._down[host] = column
        self._begin(column, float("inf"))
        if minutes is not None:

            def restart(_: int) -> None:
                self._dead.discard(host)
                self._faults.restart(host)

            self._world.schedule_action(self._world.now_us + round(minutes * 60e6), restart)
        return True

    def begin_rogue(self, device: str, make: Make, minutes: float) -> None:
        """Install another machine on a device, in place of an earlier one, for some minutes."""
        host = self._world.hosts[device]
        for process in [process for process in host.processes if process.name == ROGUE]:
            process.kill()
            self._world.unregister(process)
            host.processes.remove(process)
        host.install(ROGUE, make, name=ROGUE)
        self._begin(ROGUE, minutes * 60)

    def begin_slow_link(self, device: str, minutes: float) -> None:
        """Limit a link to 1 kB/s each way, for some minutes or until it is another network."""
        link, now_us = self._world.hosts[device].link, self._world.now_us
        assert link is not None
        until_us = now_us + round(minutes * 60e6)
        for direction, kbps in ((link.up, link.up_kbps), (link.down, link.down_kbps)):
            direction.curve = Curve([now_us], until_us, [_SLOW_KBPS], kbps)
        self._begin(SLOW_LINK, minutes * 60)

    def begin_reads_at_once(self) -> None:
        """Count many continuous reads that are about to begin as a fault."""
        self._begin(READS_AT_ONCE, _READS_S)

    def keep_down(self, host: str, minutes: float) -> None:
        """Kill a host, for some minutes."""
        self._kept_down_us[host] = round(minutes * 60e6)
        self._killed_now = host
        self._faults.kill(host)
        self._killed_now = None

    def is_online(self, device: str) -> bool:
        """Return whether a device has a link, and its machines run."""
        host = self._world.hosts[device]
        return host.is_online and all(process.machine is not None for process in host.processes)

    def end(self) -> None:
        """End the faults of messages, which do not end by themselves."""
        self._set_fault_hook(None)

    def heal(self) -> None:
        """Remove the traps, and restart everything that is down."""
        for name, host in self._world.hosts.items():
            for process in host.processes:
                process.store.crash_point = ignore
            self._restart(name)

    @property
    def is_armed(self) -> bool:
        """True if some machine is down or has a trap at a crash point."""
        return bool(self._down) or any(
            process.store.crash_point is not ignore
            for host in self._world.hosts.values()
            for process in host.processes
        )

    def _begin(self, column: str, seconds: float) -> None:
        """Count an occurrence of a fault, whose column is then in effect for some time."""
        self.counts[column] += 1
        self._extend(column, seconds)

    def _extend(self, column: str, seconds: float) -> None:
        """Extend the effect of a column to some time from now, and :data:`AFTER_S` after that."""
        until = self._world.now_us + (seconds + AFTER_S) * 1e6
        self._until_us[column] = max(self._until_us.get(column, 0.0), until)
        self._changes_us = -1.0

    def _change_address(self, device: str) -> None:
        """Change the address of a device, sometimes to the one that another device has lost just now."""
        hosts, copies = self._world.hosts, self._copies
        owners = [name for name in self._devices if name != device]
        address = None
        if owners and copies.random() < _TAKES_SHARE:
            owner, minutes = copies.choice(owners), copies.choice(_TAKES_MINUTES)
            address = hosts[owner].address
            self._faults.cut(owner, minutes=minutes)
            self._begin("cut", minutes * 60)
            self._faults.change_address(owner)
        self._faults.change_address(device, address)
        self._begin("address", 0.0)

    def _set_fault_hook(self, kind: str | None) -> None:
        """Lose, repeat or delay messages from now on, possibly several of these; None: stop."""
        draw = self._draw
        for fault in self._disturbed:
            self._until_us[fault] = 0.0
            self._extend(fault, 0.0)
        if kind is None:
            self._disturbed = set()
            self._faults.messages()
            return
        self._disturbed = {kind} | {fault for fault in ("lost", "repeated", "late") if draw.random() < 0.3}
        self._faults.messages(
            loss_share=draw.choice([0.1, 0.3]) if "lost" in self._disturbed else 0.0,
            repeat_share=draw.choice([0.1, 0.3]) if "repeated" in self._disturbed else 0.0,
            delay_share=draw.choice([0.1, 0.5]) if "late" in self._disturbed else 0.0,
            delay_s=draw.choice([0.5, 20.0]),
        )
        if "repeated" in self._disturbed:
            self._add_old_copies()
        for fault in self._disturbed:
            self._begin(fault, float("inf"))

    def _add_old_copies(self) -> None:
        """Repeat some messages a long time later, when their machines may have other stores and addresses."""
        before, copies = self._world.fault_hook, self._copies

        def fault_hook(transfer: Transfer) -> Sequence[int]:
            delays_us = (0,) if before is None else before(transfer)
            if copies.random() >= _OLD_COPIES_SHARE:
                return delays_us
            return *delays_us, round(copies.uniform(*_OLD_COPIES_S) * 1e6)

        self._world.fault_hook = fault_hook

    def _kill(self, role: str, point: str | None) -> str | None:
        """Kill a host of a role, at once or at its next crash point.

        Return its name if it is a device, else None.
        """
        hosts = self._hosts[role]
        if not hosts:
            return None
        host = self._draw.choice(hosts)
        if self.is_dead(host):
            return None
        is_killed_at_start = role in ("processor", "notifications")
        if point is None or is_killed_at_start:
            self._kill_now(host)
        if point is not None:
            self._traps[host] = point
            self._faults.kill(host, at=point)
        if is_killed_at_start and point is not None:
            self._faults.restart(host)
        return host if role == "device" else None

    def _kill_now(self, host: str) -> None:
        """Kill a host at once."""
        self._killed_now = host
        self._faults.kill(host)
        self._killed_now = None

    def _restore(self) -> str | None:
        """Back up all hosts, at first and sometimes later, or restore one of them from any backup.

        Return its name if it is a device, else None. The back end is often restored twice: its operator sees
        that the first backup was too old.
        """
        if not self._backups or self._draw.random() < 0.3:
            self._backups.append({host: self._faults.backup(host) for host in self._kind_of})
            return None
        kinds = [kind for kind, hosts in self._hosts.items() if hosts]
        kind = self._draw.choices(kinds, [_STORE_WEIGHT if kind == "store" else 1 for kind in kinds])[0]
        host = self._draw.choice(self._hosts[kind])
        if kind == "store" and self._copies.random() < _AGAIN_SHARE:
            newest = self._backups[-1]
            again_us = self._world.now_us + round(self._copies.uniform(0.0, _AGAIN_S) * 1e6)
            self._world.schedule_action(again_us, lambda _: self.restore_from(host, newest))
        self.restore_from(host, self._copies.choice(self._backups))
        return host if kind == "device" else None

    def restore_from(self, host: str, backup: Mapping[str, Backup]) -> None:
        """Restore a host from its part of a backup, unless it is dead."""
        if self.is_dead(host):
            return
        self._killed_now = host
        self._faults.restore(host, backup[host])
        self._killed_now = None
        self._begin("restored", 0.0)

    def _record_kill(self, host: str) -> None:
        """Record that a host is down, and schedule its restart, unless it is killed to be replaced."""
        if self.is_dead(host):
            return
        point = None if host == self._killed_now else self._traps.pop(host, None)
        self._down[host] = column = _killed(self._kind_of[host], point)
        self._begin(column, float("inf"))
        max_s = 30.0 if self._kind_of[host] == "store" else 120.0  # nothing progresses without the store
        down_us = round(self._restarts.uniform(0.1, max_s) * 1e6)
        restart_us = self._world.now_us + max(down_us, self._kept_down_us.pop(host, 0))
        self._world.schedule_action(restart_us, lambda _: self._restart(host))

    def _restart(self, host: str) -> None:
        """Restart a host, unless it is dead."""
        if not self.is_dead(host):
            self._faults.restart(host)

    def _record_restart(self, host: str) -> None:
        """Record that a host is up."""
        self._end_kill(host)
        self._begin("restart", 0.0)

    def _end_kill(self, host: str) -> None:
        """Record that a host is down no more, if it was: its kill is in effect a little longer.

        Or while others are down by it.
        """
        column = self._down.pop(host, None)
        if column is not None and column not in self._down.values():
            self._until_us.pop(column, None)
        if column is not None:
            self._extend(column, 0.0)

"""The faults of a run of the campaign, and when each is in effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from mudkit.fleet.host import Backup
from mudkit.fleet.store import ignore
from mudkit.lab import Lab
from mudkit.systems.mud import Cloud

__all__ = ["AFTER_S", "COLUMNS", "KINDS", "STANDING", "Trouble"]

AFTER_S: Final = 300.0
"""So long after its repair a fault counts as being in effect still."""

_DEVICE: Final = (None, "before commit", "after commit", "held, still pending")
_STORE: Final = (None, "before commit", "after commit", "decided, not in the log")
_BEGINNING: Final = (None, "before commit", "after commit")
"""Of processors and notification servers: they write to their store when they begin a life."""
_SHIPPING: Final = (None, "before commit", "after commit")


def _killed(what: str, point: str | None) -> str:
    return f"{what} killed" if point is None else f"{what} killed {point}"


_KILLS: Final = {
    _killed(what, point): (what, point)
    for what, points in (
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
"""What a run does to the fleet; a restart comes with each kill."""
STANDING: Final = ("lagging replicas", "two devices")
"""In effect for a whole run."""
COLUMNS: Final = ("none", *KINDS, "restart", *STANDING)


class Trouble:
    """What goes wrong in one run.

    Parameters
    ----------
    lab : Lab
    cloud : Cloud
    draw : Random
    devices : sequence of str
    standing : sequence of str
        Those of :data:`STANDING` that are in effect.
    longest_s : float
        The longest time of a cut, in seconds.
    """

    def __init__(
        self,
        lab: Lab,
        cloud: Cloud,
        draw: Random,
        devices: Sequence[str],
        standing: Sequence[str],
        longest_s: float,
    ) -> None:
        self._world, self._faults, self._draw = lab.world, lab.faults, draw
        self._devices = devices
        self._restarts = Random(draw.random())
        """Of its own: what is drawn at a crash point leaves the rest of a run as it is."""
        servers = {
            "store": [cloud.back_end],
            "replica": cloud.replicas,
            "gateway": cloud.gateways,
            "processor": cloud.processors,
            "notifications": cloud.notification_servers,
            "generator": [cloud.generator],
        }
        self._hosts = {"device": list(devices)} | {
            kind: [each.split("/")[0] for each in addresses] for kind, addresses in servers.items()
        }
        self._kind_of = {host: kind for kind, hosts in self._hosts.items() for host in hosts}
        self._standing = tuple(standing)
        self._longest_s = longest_s
        self._until_us: dict[str, float] = {}
        self._traps: dict[str, str | None] = {}
        self._killed_now: str | None = None
        """Who is killed just now, wherever it is; others come to a crash point."""
        self._down: dict[str, str] = {}
        """The kill that each host suffers now."""
        self._backups: dict[str, Backup] = {}
        self._disturbed: set[str] = set()
        self._now: tuple[str, ...] = ()
        self._changes_us: float = -1.0
        self.counts: Counter[str] = Counter(standing)
        """Number of times that each column began; a crash point that no machine reaches is not counted."""
        self.killed_after_commit: set[str] = set()
        """Devices that were to be killed there."""
        before = self._world.on_incident

        def incident(host: Any, what: str, detail: Any) -> None:
            if what == "killed":
                self._was_killed(host.name)
            elif what == "restarted":
                self._was_restarted(host.name)
            before(host, what, detail)

        self._world.on_incident = incident

    def in_effect(self) -> tuple[str, ...]:
        """Give the columns in effect now."""
        now_us = self._world.now_us
        if not self._changes_us > now_us:
            self._until_us = {name: until for name, until in self._until_us.items() if until > now_us}
            self._changes_us = min(self._until_us.values(), default=float("inf"))
            self._now = (*(sorted(self._until_us) or ("none",)), *self._standing)
        return self._now

    def happen(self, kind: str) -> str | None:
        """Let a fault happen; give the device that it concerns, if it is one."""
        draw, faults = self._draw, self._faults
        if kind in _KILLS:
            what, point = _KILLS[kind]
            if what in ("replica", "processor"):  # who follows the log begins when that is not easy
                also = draw.choice(["store", "late", None, None])
                if also == "store":
                    self._kill("store", None)
                elif also is not None:
                    self._fault_hook(also)
            return self._kill(what, point)
        if kind == "restored":
            return self._restore()
        device = draw.choice(list(self._devices))
        if kind == "cut":
            minutes = draw.choice([0.05, 1, self._longest_s / 60])
            faults.cut(device, minutes=minutes)
            self._begins(kind, minutes * 60)
        elif kind == "wiped":
            self._killed_now = device
            faults.wipe(device)
            self._killed_now = None
            self._begins(kind, 0.0)
        elif kind == "address":
            faults.change_address(device)
            self._begins(kind, 0.0)
        elif kind == "network":
            faults.change_network(device, draw.choice(["wifi", "lte", "umts_3g", "edge"]))
            self._begins(kind, 0.0)
        else:
            self._fault_hook(kind)
            return None
        return device

    def end(self) -> None:
        """Mend all that is not mended by itself."""
        self._fault_hook(None)

    def heal(self) -> None:
        """Take the traps away, and let everything begin again that is not there."""
        for name, host in self._world.hosts.items():
            for process in host.processes:
                process.store.crash_point = ignore
            self._faults.restart(name)

    @property
    def is_armed(self) -> bool:
        """Whether some machine will be killed when it comes to a crash point, or is down."""
        return bool(self._down) or any(
            process.store.crash_point is not ignore
            for host in self._world.hosts.values()
            for process in host.processes
        )

    # -- inside

    def _begins(self, column: str, seconds: float) -> None:
        self.counts[column] += 1
        self._is_on(column, seconds)

    def _is_on(self, column: str, seconds: float) -> None:
        until = self._world.now_us + (seconds + AFTER_S) * 1e6
        self._until_us[column] = max(self._until_us.get(column, 0.0), until)
        self._changes_us = -1.0

    def _fault_hook(self, kind: str | None) -> None:
        """Lose, repeat or delay messages, and perhaps more than one of these; None: stop."""
        draw = self._draw
        for each in self._disturbed:
            self._until_us[each] = 0.0
            self._is_on(each, 0.0)
        if kind is None:
            self._disturbed = set()
            self._faults.messages()
            return
        self._disturbed = {kind} | {each for each in ("lost", "repeated", "late") if draw.random() < 0.3}
        self._faults.messages(
            loss_share=draw.choice([0.1, 0.3]) if "lost" in self._disturbed else 0.0,
            repeat_share=draw.choice([0.1, 0.3]) if "repeated" in self._disturbed else 0.0,
            delay_share=draw.choice([0.1, 0.5]) if "late" in self._disturbed else 0.0,
            delay_s=draw.choice([0.5, 20.0]),
        )
        for each in self._disturbed:
            self._begins(each, float("inf"))

    def _kill(self, what: str, point: str | None) -> str | None:
        hosts = self._hosts[what]
        if not hosts:
            return None
        host = self._draw.choice(hosts)
        begins = what in ("processor", "notifications")
        if point is None or begins:
            self._killed_now = host
            self._faults.kill(host)
            self._killed_now = None
        if point is not None:
            self._traps[host] = point
            self._faults.kill(host, at=point)
        if what == "device" and point == "after commit":
            self.killed_after_commit.add(host)
        if begins and point is not None:
            self._faults.restart(host)
        return host if what == "device" else None

    def _restore(self) -> str | None:
        """Back up all hosts, the first time and now and then, or restore one of them."""
        if not self._backups or self._draw.random() < 0.3:
            self._backups = {host: self._faults.backup(host) for host in self._kind_of}
            return None
        kind = self._draw.choice([kind for kind, hosts in self._hosts.items() if hosts])
        host = self._draw.choice(self._hosts[kind])
        self._killed_now = host
        self._faults.restore(host, self._backups[host])
        self._killed_now = None
        self._begins("restored", 0.0)
        return host if kind == "device" else None

    def _was_killed(self, host: str) -> None:
        point = None if host == self._killed_now else self._traps.pop(host, None)
        self._down[host] = column = _killed(self._kind_of[host], point)
        self._begins(column, float("inf"))
        longest_s = 30.0 if self._kind_of[host] == "store" else 120.0  # nothing goes on without the store
        self._after(self._restarts.uniform(0.1, longest_s), lambda: self._faults.restart(host))

    def _was_restarted(self, host: str) -> None:
        column = self._down.pop(host, None)
        if column is not None and column not in self._down.values():
            self._until_us.pop(column, None)
        if column is not None:
            self._is_on(column, 0.0)
        self._begins("restart", 0.0)

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._world.at(self._world.now_us + round(seconds * 1e6), lambda _: what())

"""A world in which everything goes wrong at drawn times: outages, kills, crashes, wipes, moves, mangled messages."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mudkit.fleet import Faults, World
from mudkit.fleet.store import Killed, MemoryStore

__all__ = ["WHEN", "FaultyWorld", "S", "faults", "restores", "wipes"]

S = 1_000_000
WHEN = st.integers(0, 120 * S)
_LASTS = st.sampled_from([1, S, 40 * S])


def faults(devices: tuple[str, ...], servers: tuple[str, ...], points: tuple[str, ...]) -> list[Any]:
    """Give the strategies of the steps that go wrong; ``points`` are the crash points of the machines."""
    everybody = st.sampled_from((*devices, *servers))
    device = st.sampled_from(devices)
    return [
        st.tuples(st.just("outage"), WHEN, device, _LASTS),
        st.tuples(st.just("kill"), WHEN, everybody, _LASTS),
        st.tuples(st.just("crash"), WHEN, everybody, st.sampled_from(points)),
        st.tuples(st.just("mangle"), WHEN, device, st.sampled_from([0.2, 0.5])),
        st.tuples(st.just("move"), WHEN, device, st.none()),
        st.tuples(st.just("network"), WHEN, device, st.sampled_from(["wifi", "edge"])),
    ]


def restores(names: tuple[str, ...]) -> Any:
    """Give the strategy of lists of restores: a backup is taken, and later it comes back."""
    return st.lists(st.tuples(st.just("restore"), WHEN, st.sampled_from(names), WHEN), min_size=1, max_size=4)


def wipes(names: tuple[str, ...]) -> Any:
    """Give the strategy of lists of wipes."""
    return st.lists(st.tuples(st.just("wipe"), WHEN, st.sampled_from(names), _LASTS), max_size=4)


class FaultyWorld:
    """A world, its machines by the names of their hosts, and what is done to them.

    Parameters
    ----------
    stores : callable
        Gives a new store.
    """

    def __init__(self, stores: Any = MemoryStore) -> None:
        self.world = World(3)
        self.rows: list[Any] = []
        self.world.on_record = lambda process, effect: self.rows.append(effect.row)
        self.machines: dict[str, Any] = {}
        self.stores = stores
        self.lives: dict[str, list[Any]] = {}
        """The stores that each machine has had."""
        self.began_us: dict[str, int] = {}
        """When each machine was last wiped or restored."""

    def install(self, host: Any, make: Any) -> Any:
        """Put a machine on a host."""
        process = host.install("sf", make, store=self.stores())
        self.machines[host.name] = process
        self.lives[host.name] = [process.store]
        return process

    def do(self, step: Any) -> None:
        """Let a step happen at its time."""
        what, at, name, detail = step
        world, process = self.world, self.machines[name]
        if what == "outage":
            world.at(at, process.host.link_down, "outage")
            world.at(at + detail, process.host.link_up, "outage")
        elif what == "move":
            world.at(at, lambda _: process.host.readdress(process.host.next_address()))
        elif what == "network":
            world.at(at, process.host.change_network, detail)
        elif what == "kill":
            world.at(at, lambda _: process.kill())
            world.at(at + detail, self.restart, process)
        elif what == "wipe":
            world.at(at, lambda _: self.wipe(process))
            world.at(at + detail, self.restart, process)
        elif what == "restore":
            backups: list[Any] = []
            world.at(at, lambda _: backups.append(dict(process.store.items())))
            world.at(at + detail, lambda _: self.restore(process, backups[0]))
            world.at(at + detail + S, self.restart, process)
        elif what == "mangle":
            shares = {"loss_share": detail, "repeat_share": detail, "delay_share": detail, "delay_s": 20.0}
            world.at(at, lambda _: Faults(world).messages(**shares))
        elif what == "crash":
            world.at(at, lambda _: setattr(process.store, "crash_point", self.trap(process, detail)))
        else:
            self.own(step)

    def own(self, step: Any) -> None:
        """Let a step of the system under test happen."""
        raise NotImplementedError

    def trap(self, process: Any, point: str) -> Any:
        """Give what kills a machine at a crash point, once, and restarts it."""

        def kill_at(name: str) -> None:
            if name == point:
                process.store.crash_point = lambda name: None
                self.world.at(self.world.now_us + 7 * S, self.restart, process)
                raise Killed

        return kill_at

    def wipe(self, process: Any) -> None:
        """Let a machine lose its store."""
        process.kill()
        process.store = self.stores()
        self.began_us[process.host.name] = self.world.now_us
        self.lives[process.host.name].append(process.store)

    def restore(self, process: Any, backup: Any) -> None:
        """Set the store of a machine back to a backup."""
        self.wipe(process)
        for key, value in backup.items():
            process.store.put(key, value)
        process.store.commit()

    def restart(self, process: Any) -> None:
        """Start a machine, unless it runs."""
        if process.machine is None:
            process.start()

    def end_faults(self) -> None:
        """Let everybody be there from now on, over a network that loses nothing."""
        self.world.run(300 * S)
        Faults(self.world).messages()
        for process in self.machines.values():
            process.store.crash_point = lambda name: None
            self.restart(process)
            if process.host.link is not None:
                process.host.link_up("outage")

"""World with faults at drawn times: outages, kills, crashes, wipes, restores, moves and mangled messages."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mudkit.fleet import Faults, World
from mudkit.fleet.store import Killed, MemoryStore

S = 1_000_000
TIMES_US = st.integers(0, 120 * S)
_DURATIONS = st.sampled_from([1, S, 40 * S])


def faults(devices: tuple[str, ...], servers: tuple[str, ...], points: tuple[str, ...]) -> list[Any]:
    """Return the strategies of faults as steps; ``points`` are the crash points of the machines."""
    machine = st.sampled_from((*devices, *servers))
    device = st.sampled_from(devices)
    return [
        st.tuples(st.just("outage"), TIMES_US, device, _DURATIONS),
        st.tuples(st.just("kill"), TIMES_US, machine, _DURATIONS),
        st.tuples(st.just("crash"), TIMES_US, machine, st.sampled_from(points)),
        st.tuples(st.just("mangle"), TIMES_US, device, st.sampled_from([0.2, 0.5])),
        st.tuples(st.just("late copies"), TIMES_US, device, st.sampled_from([90.0, 400.0, 7200.0])),
        st.tuples(st.just("move"), TIMES_US, device, st.none()),
        st.tuples(st.just("network"), TIMES_US, device, st.sampled_from(["wifi", "edge"])),
    ]


def late_messages(devices: tuple[str, ...]) -> list[Any]:
    """Return the strategies of messages that come late for the first time, and of addresses that others take."""
    device = st.sampled_from(devices)
    return [
        st.tuples(st.just("take address"), TIMES_US, device, device),
        st.tuples(st.just("hold"), TIMES_US, device, st.sampled_from([20.0, 100.0, 7200.0])),
    ]


def restores(names: tuple[str, ...]) -> Any:
    """Return the strategy of lists of restores, each from a backup that is taken earlier.

    A store may be restored twice, from an older and then from a newer backup.
    """
    name = st.sampled_from(names)
    one = st.tuples(st.just("restore"), TIMES_US, name, TIMES_US)
    two = st.tuples(st.just("restore twice"), TIMES_US, name, st.tuples(TIMES_US, TIMES_US, TIMES_US))
    return st.lists(st.one_of(one, two), min_size=1, max_size=4)


def wipes(names: tuple[str, ...]) -> Any:
    """Return the strategy of lists of wipes."""
    return st.lists(st.tuples(st.just("wipe"), TIMES_US, st.sampled_from(names), _DURATIONS), max_size=4)


class FaultyWorld:
    """World with its machines by host name, and the faults that are injected into them.

    Parameters
    ----------
    stores : callable
        Creates a new store.
    """

    def __init__(self, stores: Any = MemoryStore) -> None:
        self.world = World(3)
        self.rows: list[Any] = []
        self.world.on_record = lambda process, effect: self.rows.append(effect.row)
        self.machines: dict[str, Any] = {}
        self.stores = stores
        self.lives: dict[str, list[Any]] = {}
        """All stores of each machine, one per incarnation."""
        self.began_us: dict[str, int] = {}
        """Time of the last wipe or restore of each machine."""

    def install(self, host: Any, make: Any) -> Any:
        """Install a machine on a host."""
        process = host.install("sf", make, store=self.stores())
        self.machines[host.name] = process
        self.lives[host.name] = [process.store]
        return process

    def do(self, step: Any) -> None:
        """Schedule a step at its time."""
        action, at_us, name, detail = step
        world, process = self.world, self.machines[name]
        if action == "outage":
            world.schedule_action(at_us, process.host.link_down, "outage")
            world.schedule_action(at_us + detail, process.host.link_up, "outage")
        elif action == "move":
            world.schedule_action(at_us, lambda _: process.host.readdress(process.host.next_address()))
        elif action == "take address":
            world.schedule_action(at_us, lambda _: self.take_address(process, self.machines[detail]))
        elif action == "hold":
            world.schedule_action(at_us, lambda _: self.hold(process, detail))
        elif action == "network":
            world.schedule_action(at_us, process.host.change_network, detail)
        elif action == "kill":
            world.schedule_action(at_us, lambda _: process.kill())
            world.schedule_action(at_us + detail, self.restart, process)
        elif action == "wipe":
            world.schedule_action(at_us, lambda _: self.wipe(process))
            world.schedule_action(at_us + detail, self.restart, process)
        elif action == "restore":
            self.restore_later(process, at_us, at_us + detail)
        elif action == "restore twice":
            newer_us = at_us + detail[0]
            older_restored_us = newer_us + detail[1]
            self.restore_later(process, at_us, older_restored_us)
            self.restore_later(process, newer_us, older_restored_us + detail[2])
        elif action == "mangle":
            shares = {"loss_share": detail, "repeat_share": detail, "delay_share": detail, "delay_s": 20.0}
            world.schedule_action(at_us, lambda _: Faults(world).messages(**shares))
        elif action == "late copies":
            shares = {"repeat_share": 0.5, "delay_s": detail}  # the copy arrives after this time
            world.schedule_action(at_us, lambda _: Faults(world).messages(**shares))
        elif action == "crash":
            world.schedule_action(
                at_us, lambda _: setattr(process.store, "crash_point", self.build_trap(process, detail))
            )
        else:
            self.own(step)

    def own(self, step: Any) -> None:
        """Schedule a step of the system under test."""
        raise NotImplementedError

    def take_address(self, process: Any, other: Any) -> None:
        """Move a device to the address of another one, which gets a new one.

        The first address of a host is its name, which no other can have: then the other one only moves.
        """
        address = other.host.address
        other.host.readdress(other.host.next_address())
        if address not in (other.host.name, process.host.address):
            process.host.readdress(address)

    def hold(self, process: Any, delay_s: float) -> None:
        """Delay what a device sends in the next seconds, also a message that it sends only once."""
        before, end_us = self.world.fault_hook, self.world.now_us + 5 * S

        def fault_hook(transfer: Any) -> Any:
            delays_us = (0,) if before is None else before(transfer)
            is_held = transfer.sender is process and self.world.now_us < end_us
            return [delay_us + round(delay_s * S) for delay_us in delays_us] if is_held else delays_us

        self.world.fault_hook = fault_hook

    def build_trap(self, process: Any, point: str) -> Any:
        """Return a crash point handler that kills a machine once at a point, and restarts it."""

        def kill_at(name: str) -> None:
            if name == point:
                process.store.crash_point = lambda name: None
                self.world.schedule_action(self.world.now_us + 7 * S, self.restart, process)
                raise Killed

        return kill_at

    def wipe(self, process: Any) -> None:
        """Kill a machine and replace its store by an empty one."""
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

    def restore_later(self, process: Any, backup_us: int, restore_us: int) -> None:
        """Schedule a backup of a machine, and its restore."""
        backups: list[Any] = []
        self.world.schedule_action(backup_us, lambda _: backups.append(dict(process.store.items())))
        self.world.schedule_action(restore_us, lambda _: self.restore(process, backups[0]))
        self.world.schedule_action(restore_us + S, self.restart, process)

    def restart(self, process: Any) -> None:
        """Start a machine, unless it runs."""
        if process.machine is None:
            process.start()

    def end_faults(self) -> None:
        """End all faults: restart machines, restore links, and stop mangling messages."""
        self.world.run(300 * S)
        Faults(self.world).messages()
        for process in self.machines.values():
            process.store.crash_point = lambda name: None
            self.restart(process)
            if process.host.link is not None:
                process.host.link_up("outage")

"""Copies of machines: what a machine is as bytes, and whether a copy goes on as the original does."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import msgspec

from mudkit.events import Complete, Event
from mudkit.fleet.host import Process
from mudkit.fleet.kernel import World
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud import ReadResult

__all__ = ["alike"]

_OWN = ("mudkit.systems.", "mudkit.delivery.")


class _Entropy:
    """The entropy of a copy: what the original will draw, from the same place on."""

    def __init__(self, process: Process) -> None:
        self.host, self._stream, self._draws = process.host, process._stream, process._draws

    def __call__(self, n: int) -> bytes:
        return Process.entropy(self, n)


class _Watched:
    """Stands for a machine while it handles an event, and keeps what it answers."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.done: list[Any] = []

    def handle(self, now_us: int, event: Event) -> Any:
        self.done += self.machine.handle(now_us, event)
        return self.done


class _Pickler(pickle.Pickler):
    """Writes a machine without its ports, which are not its state."""

    def __init__(self, file: Any, process: Process) -> None:
        super().__init__(file)
        self.process = process

        self.given: dict[str, Any] = {}
        """Functions that applications gave to the machine: they are not its own, and a copy shares them."""

    def persistent_id(self, value: Any) -> str | None:
        if value is self.process.store:
            return "store"
        if getattr(value, "__self__", None) is self.process and callable(value):
            return "entropy"
        if isinstance(value, FunctionType) and not (value.__module__ or "").startswith(_OWN):
            self.given[f"given {id(value)}"] = value
            return f"given {id(value)}"
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, ports: dict[str, Any]) -> None:
        super().__init__(file)
        self.ports = ports

    def persistent_load(self, name: str) -> Any:
        return self.ports[name]


class _Copy:
    """A machine that was copied, with a store of its own."""

    def __init__(self, process: Process) -> None:
        self.store = MemoryStore()
        for key, value in process.store.items():
            self.store.put(key, value)
        self.store.commit()
        file = io.BytesIO()
        pickler = _Pickler(file, process)
        pickler.dump(process.machine)
        self.state = file.getvalue()
        ports = {"store": self.store, "entropy": _Entropy(process), **pickler.given}
        self.machine = _Unpickler(io.BytesIO(self.state), ports).load()
        self.session = process.session


def _same(one: Any, other: Any) -> bool:
    return repr(_whole(one)) == repr(_whole(other))


def _whole(value: Any) -> Any:
    """Replace results of reads, whose representation is shortened, by all that is in them."""
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    if isinstance(value, Complete) and isinstance(value.result, ReadResult):
        return value.op_id, msgspec.structs.asdict(value.result)
    return value


@contextmanager
def alike(at_s: float) -> Iterator[Counter[str]]:
    """Copy every machine of a lab at a time, and hold what the copies do beside what the originals do after it.

    Gives how many events were compared, by kind of machine. Machines that are killed are no longer compared.
    """
    handle, counts = World._handle, Counter()
    copies: dict[Any, _Copy] | None = None

    def comparing(self: World, process: Process, event: Event) -> None:
        nonlocal copies
        if copies is None and self.now_us >= at_s * 1e6:
            processes = [each for host in self.hosts.values() for each in host.processes]
            copies = {each: _Copy(each) for each in processes if each.machine is not None}
        copy = (copies or {}).get(process)
        if copy is None or process.machine is None or process.session != copy.session:
            handle(self, process, event)
            return
        machine = process.machine
        process.machine = watched = _Watched(machine)
        try:
            handle(self, process, event)
        finally:
            if process.machine is watched:
                process.machine = machine
        result = list(copy.machine.handle(self.now_us, event))
        copy.store.commit()
        what = f"{type(machine).__name__} on {process.host.name}: {event!r}"
        assert _same(result, watched.done), f"{what}:\n{watched.done!r}\n{result!r}"
        assert _same(copy.store.items(), process.store.items()), what
        counts[type(machine).__name__] += 1

    World._handle = comparing
    try:
        yield counts
    finally:
        World._handle = handle

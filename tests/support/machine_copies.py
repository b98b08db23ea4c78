"""Copies of running machines, and a comparison of the copies with the originals."""

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

_OWN = ("mudkit.systems.", "mudkit.delivery.")


class _Entropy:
    """Entropy of a copy: the same stream from the same position as that of the original."""

    def __init__(self, process: Process) -> None:
        self.host, self._stream, self._draws = process.host, process._stream, process._draws

    def __call__(self, n: int) -> bytes:
        return Process.entropy(self, n)


class _RecordingMachine:
    """Stand-in for a machine that records the effects of an event."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.effects: list[Any] = []

    def handle(self, now_us: int, event: Event) -> Any:
        self.effects += self.machine.handle(now_us, event)
        return self.effects


class _Pickler(pickle.Pickler):
    """Pickler of a machine without its ports, which are not part of its state."""

    def __init__(self, file: Any, process: Process) -> None:
        super().__init__(file)
        self.process = process

        self.shared: dict[str, Any] = {}
        """Functions of applications, which the copy shares with the machine."""

    def persistent_id(self, value: Any) -> str | None:
        if value is self.process.store:
            return "store"
        if getattr(value, "__self__", None) is self.process and callable(value):
            return str(value.__name__)
        if isinstance(value, FunctionType) and not (value.__module__ or "").startswith(_OWN):
            self.shared[f"given {id(value)}"] = value
            return f"given {id(value)}"
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, ports: dict[str, Any]) -> None:
        super().__init__(file)
        self.ports = ports

    def persistent_load(self, name: str) -> Any:
        return self.ports[name]


def measure_memory(process: Process) -> int:
    """Return the size of a machine's state in memory, pickled, in bytes."""
    file = io.BytesIO()
    _Pickler(file, process).dump(process.machine)
    return file.tell()


class _Copy:
    """Copy of a machine with a separate store."""

    def __init__(self, process: Process) -> None:
        self.store = MemoryStore()
        for key, value in process.store.items():
            self.store.put(key, value)
        self.store.commit()
        file = io.BytesIO()
        pickler = _Pickler(file, process)
        pickler.dump(process.machine)
        self.state = file.getvalue()
        ports = {
            "store": self.store,
            "entropy": _Entropy(process),
            "has_listener": process.has_listener,
            **pickler.shared,
        }
        self.machine = _Unpickler(io.BytesIO(self.state), ports).load()
        self.session = process.start_number


def _are_equal(first: Any, second: Any) -> bool:
    return repr(_expand(first)) == repr(_expand(second))


def _expand(value: Any) -> Any:
    """Replace results of reads, whose representation is shortened, by all of their fields."""
    if isinstance(value, list | tuple):
        return [_expand(item) for item in value]
    if isinstance(value, Complete) and isinstance(value.result, ReadResult):
        return value.op_id, msgspec.structs.asdict(value.result)
    return value


@contextmanager
def compare_copies(at_s: float) -> Iterator[Counter[str]]:
    """Copy every machine of a lab at a time, and compare the copies with the originals from then.

    Yields the number of compared events by kind of machine. Killed machines are no longer compared.
    """
    handle, counts = World._handle, Counter()
    copies: dict[Any, _Copy] | None = None

    def handle_and_compare(self: World, process: Process, event: Event) -> None:
        nonlocal copies
        if copies is None and self.now_us >= at_s * 1e6:
            processes = [process for host in self.hosts.values() for process in host.processes]
            copies = {process: _Copy(process) for process in processes if process.machine is not None}
        copy = (copies or {}).get(process)
        if copy is None or process.machine is None or process.start_number != copy.session:
            handle(self, process, event)
            return
        machine = process.machine
        process.machine = recorder = _RecordingMachine(machine)
        try:
            handle(self, process, event)
        finally:
            if process.machine is recorder:
                process.machine = machine
        result = list(copy.machine.handle(self.now_us, event))
        copy.store.commit()
        label = f"{type(machine).__name__} on {process.host.name}: {event!r}"
        assert _are_equal(result, recorder.effects), f"{label}:\n{recorder.effects!r}\n{result!r}"
        assert _are_equal(copy.store.items(), process.store.items()), label
        counts[type(machine).__name__] += 1

    World._handle = handle_and_compare
    try:
        yield counts
    finally:
        World._handle = handle

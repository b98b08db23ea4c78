"""A table that all clients of a run write in batches of all its records: nobody sees a part of a batch.

Each batch gives all records the same value, deletes all, or has a part that must be refused, and then has no
effect. So the records are alike in the store, in each read of any type, and in the snapshots of continuous
reads. Not judged is what a device answers from its store, which may mix versions of different times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, get_args

from mudkit.errors import MudkitError
from mudkit.systems.mud import Client, Conflict, ContinuousRead
from mudkit.systems.mud.api import ReadType
from mudkit.verify.campaign.work import error_of
from mudkit.wire import Fields

TOGETHER: Final = "together"
"""Name of the table."""
BATCH_STEPS: Final = ("commit a batch", "view the batches")
_KEYS: Final = ("a", "h", "q")
_NEVER_A_VERSION: Final = 1 << 60


@dataclass(frozen=True)
class _Committed:
    """Batch of a client with its value; empty: a delete. ``is_doomed``: one part of it must be refused."""

    value: str
    is_doomed: bool
    operation: Any


class Batches:
    """Batches and views of the clients of a run; in some runs only; ``log`` has the back end's entries."""

    def __init__(self, clients: Mapping[str, Client], log: Mapping[int, Any], draw: Random) -> None:
        self._clients, self._log, self._draw = clients, log, draw
        self._batches: list[_Committed] = []
        self._reads: list[tuple[str, Any]] = []
        """One-time reads, each with its type."""
        self._handles: dict[str, ContinuousRead] = {}
        """Continuous read of each client that has one."""
        self._parts_seen: list[str] = []
        """Snapshots of continuous reads that are not alike, in words."""
        self.is_used = draw.random() < 0.25

    def begin(self) -> None:
        """Create the table."""
        next(iter(self._clients.values())).create(TOGETHER).result()

    def plan(self, end_us: int) -> list[tuple[int, str]]:
        """Return steps at times until the end of a run; none if the table is not used."""
        many = self._draw.randint(15, 50) if self.is_used else 0
        return [(self._draw.randint(0, end_us), self._draw.choice(BATCH_STEPS)) for _ in range(many)]

    def act(self, step: str) -> None:
        """Execute a step of :data:`BATCH_STEPS` as one of the clients."""
        name = self._draw.choice(list(self._clients))
        if step == "commit a batch":
            self._commit(name)
        elif name in self._handles:
            self._view(name)
        else:
            self._follow(name)
        kind = self._draw.choice(get_args(ReadType)[:-1])
        self._reads.append((kind, self._clients[name].read(TOGETHER, type=kind)))

    def record_loss(self, name: str) -> None:
        """Record that a device was wiped or restored: its handle may be another read's."""
        self._handles.pop(name, None)

    def apart(self) -> list[str]:
        """Return in words where a batch was seen, stored or answered in parts."""
        problems = list(self._parts_seen)
        for kind, read in self._reads:
            if read.status == "ok" and set(read.result().source.values()) == {"remote"}:
                problems += _unlike(f"a read, {kind}", read.result().records)
        values: dict[str, list[int]] = {}
        records: dict[str, Any] = {}
        for lsn, entry in sorted(self._log.items()):
            if entry["op"] == "row" and entry["name"] == TOGETHER:
                data = entry["row"]["data"]
                records[entry["row"]["key"]] = data
                if data is not None:
                    values.setdefault(data["v"], []).append(lsn)
        present = {key: data for key, data in records.items() if data is not None}
        problems += _unlike("the store", present)
        for value, lsns in values.items():
            if lsns != list(range(lsns[0], lsns[0] + len(_KEYS))):
                problems.append(f"the parts of {value!r} are the entries {lsns} of the log")
        for batch in self._batches:
            is_stored = batch.value in values
            if batch.operation.status == "failed" and is_stored:
                problems.append(f"{batch.value!r} was refused, {error_of(batch.operation)!r}, and was stored")
            if batch.operation.status == "ok" and (batch.is_doomed or (batch.value and not is_stored)):
                problems.append(f"{batch.value!r} was acknowledged, and must not be, or is not stored")
            error = error_of(batch.operation) if batch.operation.status == "failed" else None
            if isinstance(error, Conflict) and "part " not in (error.where or ""):
                problems.append(f"a conflict does not say of which part it is: {error!r}")
        return problems

    def _commit(self, name: str) -> None:
        """Commit a batch of all records as a client."""
        draw = self._draw
        kind = draw.choice(["blind", "blind", "conditional", "update", "delete", "doomed"])
        value = "" if kind == "delete" else f"{name} batch {len(self._batches)}"
        batch = self._clients[name].batch(TOGETHER)
        for place, key in enumerate(draw.sample(_KEYS, len(_KEYS))):
            if kind == "delete":
                batch.delete(key)
            elif kind == "update":
                batch.update(key, {"v": value}, create=True)
            elif kind == "doomed" and place == len(_KEYS) - 1:
                batch.write(key, {"v": value}, "conditional", version=_NEVER_A_VERSION)
            else:
                batch.write(key, {"v": value}, "conditional" if kind == "conditional" else "blind")
        self._batches.append(_Committed(value, kind == "doomed", batch.commit()))

    def _follow(self, name: str) -> None:
        """Begin a continuous read as a client; each of its notifications looks at the snapshot."""

        def view(notification: Any) -> None:
            self._view(name)

        def begin(operation: Any) -> None:
            if operation.status == "ok":
                self._handles[name] = operation.result()

        read = self._clients[name].read(TOGETHER, None, "continuous", sync_timestamp=0, callback=view)
        read.add_done_callback(begin)

    def _view(self, name: str) -> None:
        """Note a snapshot that has a part of a batch; one before its first state is complete may."""
        installed = self._clients[name].installed
        if name not in self._handles or installed.machine is None:
            return
        reads = installed.machine.observed.continuous_reads
        try:
            snapshot = reads.snapshot(installed.now_us, self._handles[name])
        except MudkitError:
            return  # it has ended
        if snapshot.is_complete:
            self._parts_seen += _unlike(f"a continuous read of {name}", snapshot.records)


def _unlike(where: str, records: Mapping[str, Fields]) -> list[str]:
    """Return in words records that are not all there with one value, or all gone; empty: they are."""
    values = {records[key]["v"] if key in records else None for key in _KEYS}
    return [] if len(values) == 1 else [f"{where} has a part of a batch: {dict(records)}"]

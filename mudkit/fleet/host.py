"""A host: where machines run, each with its storage; a server is no more than that."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from mudkit.arguments import check_calls
from mudkit.display import Displayed, View, first_rows
from mudkit.events import ContextChanged, Event, Make
from mudkit.fleet.link import Link
from mudkit.fleet.operation import Operation
from mudkit.fleet.process import Process
from mudkit.fleet.runtime import Runtime
from mudkit.fleet.store import MemoryStore, SqliteStore
from mudkit.sources.streams import device_number

__all__ = ["Backup", "Host"]


Backup: TypeAlias = dict[tuple[str, str], dict[str, Any]]
"""Contents of the stores of a host, by system and name of each machine."""


@check_calls
class Host(Displayed):
    """A server: it has no link, and is always reached.

    Parameters
    ----------
    world : Runtime
        The world that runs its machines.
    name : str
        Its name in the lab, which is its first address, too.
    link : Link, optional
        Its link; by default none: it is a server.
    """

    __slots__ = (
        "address", "context", "is_on", "is_online", "link", "name", "number", "op_ids", "processes",
        "storage", "watched", "world",
    )  # fmt: skip

    def __init__(self, world: Runtime[Process, Operation], name: str, link: Link | None = None) -> None:
        self.world = world
        self.link = link
        self.name = name
        self.address = name
        """Where its machines are reached; it changes with the network, the name does not."""
        self.is_online = True
        """Whether something can reach it now."""
        self.is_on = True
        self.number = device_number(name)
        self.context: dict[str, Any] = {}
        self.processes: list[Process] = []
        self.op_ids = count(1)
        """Numbers of the calls here: what others call changes nothing for it."""
        self.storage: Path | None = None
        """Folder with a file for each of its machines, which then outlives this process; None: in memory."""
        self.watched: set[str] = set()
        """Fields of the context that a machine watches."""

    def _view(self) -> View:
        rows = ((process.system, process.name, process.state, process.handled) for process in self.processes)
        columns = ("system", "machine", "state", "events")
        return View(
            f"{'Server' if self.link is None else 'Device'} {self.name}",
            self._facts(),
            [first_rows(columns, rows, len(self.processes))],
        )

    def _facts(self) -> dict[str, Any]:
        return {
            "address": None if self.address == self.name else self.address,
            "machines": len(self.processes),
            "storage": self.storage,
        }

    @property
    def network(self) -> str:
        """The kind of its network."""
        return "server"

    def install(
        self,
        system: str,
        make: Make,
        *,
        name: str = "",
        watch: Collection[str] = (),
        store: MemoryStore | SqliteStore | None = None,
    ) -> Process:
        """Put a machine on it, and start it.

        Parameters
        ----------
        system : str
            Who is charged.
        make : callable
            Makes the machine from its ports; called again when it is restarted.
        name : str
            Tells the machines of a host apart; part of the address.
        watch : collection of str
            Measured fields of the context (``loc``, ``battery_share``; ``bandwidth_kbps``, what its link
            carries towards it) whose changes it is told; what an application changes it is told in any case.
        store : optional
            The store of the machine; by default one in :attr:`storage`, or in memory.

        Raises
        ------
        ParameterError
            There is a machine of this name on it.
        """
        process = Process(
            self.world, self, system, make, name, frozenset(watch), store or self._store(name or system)
        )
        self.world.register(process)
        self.watched |= process.watch
        try:
            if self.is_on:
                process.begin()
        except Exception:
            self.world.unregister(process)  # so that it can be mended and installed again
            raise
        self.processes.append(process)
        self.world.on_install(process)
        return process

    def _store(self, name: str) -> MemoryStore | SqliteStore:
        if self.storage is None:
            return MemoryStore()
        self.storage.mkdir(parents=True, exist_ok=True)
        file = self.storage / f"{quote(name, safe=' ')}.db"
        file.touch()
        file.chmod(0o600)  # keys may lie in it; SQLite gives the files beside it the same mode
        return SqliteStore(file)

    def snapshot(self) -> dict[str, Any]:
        """Give what it knows of itself now."""
        return dict(self.context)

    def held_down(self) -> list[str]:
        """Say what holds its link down: a server has none, and nothing does."""
        return []

    def change_context(self, **context: Any) -> None:
        """Change what it knows of itself; its machines are told."""
        self.context.update(context)
        self.tell(lambda process: ContextChanged(self.snapshot()))

    def measured(self, field: str, value: Any) -> None:
        """Note what it has measured; machines that watch this field are told."""
        self.context[field] = value
        if field in self.watched:
            for process in self.processes:
                if field in process.watch:
                    self.world.soon(process, ContextChanged(self.snapshot()))

    def tell(self, event: Callable[[Process], Event]) -> None:
        """Let all its machines handle an event, now."""
        for process in self.processes:
            self.world.soon(process, event(process))

    def kill(self) -> None:
        """End its machines at once; what they have committed stays."""
        for process in self.processes:
            process.kill()

    def restart(self) -> None:
        """Make the machines that were killed again, with their storage as it was committed.

        One that cannot be made is a failure, and stays away; the others are there.
        """
        for process in self.processes:
            if process.machine is None:
                process.start()
        self.world.tell_failures()

    def wipe(self) -> None:
        """End its machines, and empty their stores."""
        self.kill()
        for process in self.processes:
            process.store.wipe()
        self.world.on_incident(self, "wiped", None)

    def backup(self) -> Backup:
        """Return a copy of what its machines have committed."""
        return {(process.system, process.name): dict(process.store.items()) for process in self.processes}

    def restore(self, backup: Backup) -> None:
        """End its machines, and set their stores back to a backup."""
        self.kill()
        for process in self.processes:
            process.store.wipe()
            for key, value in backup.get((process.system, process.name), {}).items():
                process.store.put(key, value)
            process.store.commit()
        self.world.on_incident(self, "restored", None)

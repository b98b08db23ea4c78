"""Tables that clients create, and that all clients read as soon as the creation is answered, in some runs.

An alteration is in effect as soon as it is answered: no gateway tells a client then that there is no table.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from mudkit.errors import TableProblem
from mudkit.systems.mud import Client
from mudkit.verify.campaign.work import MAIN, error_of

CREATION_STEP: Final = "create a table"


class Creations:
    """Tables of a run that clients create, with the reads of all clients then."""

    def __init__(self, clients: Mapping[str, Client], draw: Random) -> None:
        self._clients, self._draw = clients, draw
        self._reads: list[tuple[str, str, Any]] = []
        self._count = 0
        self.is_used = draw.random() < 0.15

    def plan(self, end_us: int) -> list[tuple[int, str]]:
        """Return steps at times until the end of a run; none if no table is created."""
        many = self._draw.randint(3, 10) if self.is_used else 0
        return [(self._draw.randint(0, end_us), CREATION_STEP) for _ in range(many)]

    def act(self) -> None:
        """Create a table, while other clients use their gateways, and let all read it when it is created."""
        names = list(self._clients)
        self._draw.shuffle(names)
        creator, *readers = names
        self._count += 1
        table = f"made {self._count}"
        for name in readers:
            self._clients[name].read(MAIN, latest=True)

        def read_by_all(creation: Any) -> None:
            if creation.status == "ok":
                self._reads += [(name, table, self._clients[name].read(table)) for name in names]

        self._clients[creator].create(table, acl="public").add_done_callback(read_by_all)

    def unknown(self) -> list[str]:
        """Return in words who was told that a table does not exist after its creation was answered."""
        return [
            f"{name} was told that there is no table {table!r}, after its creation was answered"
            for name, table, read in self._reads
            if read.status == "failed" and isinstance(error_of(read), TableProblem)
        ]

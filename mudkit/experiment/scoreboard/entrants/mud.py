"""A task as MUD does it: one table, a continuous read on each phone (Mobius 2, 3.2).

What depends on nothing but the reader's taste is the predicate of her read. What depends on where she is is
the writer's predicate, and she says again where she is when she has moved: so the audience of an item is
bound when it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mudkit.events import Operation
from mudkit.experiment.scoreboard.task import Item
from mudkit.experiment.scoreboard.testbed import Testbed, not_hers
from mudkit.systems.mud import Change, Client, Cloud

__all__ = ["Mud"]

_APP, _TABLE = "board", "items"


class Mud:
    """MUD tables.

    Parameters
    ----------
    stage : Testbed
    """

    name: Final = "MUD"
    cannot: Final[Mapping[str, str]] = {
        "news with ranks": "A continuous read has no ranks and no limit: all that is wanted comes.",
        "photo sharing": "The cloud reads every photograph: a predicate hides from readers only.",
    }
    """What its paper cannot say, by the name of the task."""

    def __init__(self, stage: Testbed) -> None:
        self._stage = stage
        cloud = Cloud(stage.lab)
        token = stage.lab.token(app=_APP, hours=stage.task.scenario.hours + 24.0)
        self._clients = {
            name: Client(device, cloud, app=_APP, token=token, most_rows=1)
            for name, device in stage.lab.devices.items()
        }
        self._handles: dict[str, int] = {}
        editor = Client(stage.lab.server("editor"), cloud, app=_APP, token=token)
        editor.create(_TABLE, acl="app").add_done_callback(self._begin)

    def publish(self, item: Item) -> None:
        """Write it."""
        record = {
            **{name: value for name, value in item.about.items() if value is not None},
            "text": item.content,
        }
        predicate = self._stage.task.want.by_writer(item.about) if self._stage.task.want.moves else None
        self._clients[item.sender].write(_TABLE, item.name, record, predicate=predicate)

    def moved(self, phone: str) -> None:
        """Say where it is now."""
        if phone in self._handles:
            self._clients[phone].update_data(self._handles[phone], self._stage.about(phone))

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._stage.show(phone)

    def _begin(self, created: Operation) -> None:
        created.result()
        want = self._stage.task.want
        for phone in self._stage.phones:
            about = self._stage.about(phone)
            others = not_hers(phone)
            wanted = others if want.moves else f"({want.as_text(about)}) AND {others}"
            reading = self._clients[phone].read(
                _TABLE, wanted, type="continuous", data=about, callback=partial(self._come, phone)
            )
            reading.add_done_callback(partial(self._reads, phone))

    def _reads(self, phone: str, operation: Operation) -> None:
        self._handles[phone] = operation.result()

    def _come(self, phone: str, change: Any) -> None:
        if isinstance(change, Change) and change.kind == "upsert":
            self._stage.arrived(phone, change.key)

"""MUD as experiments run it: one table, a continuous read on each phone (Mobius 2, 3.2).

What depends on nothing but the reader's taste is the predicate of her read. What depends on where she is is
the writer's predicate, and she says again where she is when she has moved: so the audience of an item is
bound when it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mudkit.events import Operation
from mudkit.experiment.adapters.hop import PORT, BaseHop, Batch, OnBatch, Way, text_of
from mudkit.experiment.adapters.meaning import RULES, meant_by
from mudkit.experiment.tasks import Item, Testbed
from mudkit.experiment.tasks.testbed import not_hers
from mudkit.systems.mud import Change, Client, Cloud

__all__ = ["MudAdapter", "MudHop"]

_TABLE: Final = "items"
_SPARE_H: Final = 24.0
"""A token outlives the run by so many hours."""


class MudAdapter:
    """MUD tables.

    Parameters
    ----------
    testbed : Testbed
        The phones, and who wants what.
    """

    name: Final = "MUD"
    cannot: Final[Mapping[str, str]] = {
        "news with ranks": "A continuous read has no ranks and no limit: all that is wanted comes.",
        "photo sharing": "The cloud reads every photograph: a predicate hides from readers only.",
    }
    """What its paper cannot say, by the name of the task."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        cloud = Cloud(testbed.lab)
        token = testbed.lab.token(app=PORT, hours=testbed.task.scenario.hours + _SPARE_H)
        self._clients = {
            name: Client(device, cloud, app=PORT, token=token, max_rows=1)
            for name, device in testbed.lab.devices.items()
        }
        self._handles: dict[str, int] = {}
        editor = Client(testbed.lab.server("editor"), cloud, app=PORT, token=token)
        editor.create(_TABLE, acl="app").add_done_callback(self._begin)

    def publish(self, item: Item) -> None:
        """Write it."""
        record = {
            **{name: value for name, value in item.about.items() if value is not None},
            "text": item.content,
        }
        predicate = self._testbed.task.want.by_writer(item.about) if self._testbed.task.want.moves else None
        self._clients[item.sender].write(_TABLE, item.name, record, predicate=predicate)

    def moved(self, phone: str) -> None:
        """Say where it is now."""
        if phone in self._handles:
            self._clients[phone].update_data(self._handles[phone], self._testbed.about(phone))

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._testbed.show(phone)

    def _begin(self, created: Operation) -> None:
        created.result()
        want = self._testbed.task.want
        for phone in self._testbed.phones:
            about = self._testbed.about(phone)
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
            self._testbed.arrived(phone, change.key)


class MudHop(BaseHop):
    """MUD: the writer's predicate, bound when it is written, and a continuous read for each phone.

    Parameters
    ----------
    way : Way
    on_batch : callable
    of_several : {'all', 'any', 'each'}
        The rule for whom an aggregate is for: those whom all its writers mean, or any of them; or each of its
        items is written on its own.
    """

    def __init__(self, way: Way, on_batch: OnBatch, of_several: str = RULES[0]) -> None:
        super().__init__(way, on_batch)
        self._rule = of_several
        self.listens = True
        testbed = way.testbed
        cloud = Cloud(testbed.lab)
        token = testbed.lab.token(app=PORT, hours=testbed.task.scenario.hours + _SPARE_H)
        client = partial(Client, cloud=cloud, app=PORT, token=token, max_rows=1)
        self._writers = {name: client(host) for name, host in way.sources.items()}
        self._readers = {phone: client(host) for phone, host in way.ends.items()}
        self._handles: dict[str, int] = {}
        client(testbed.lab.server("editor")).create(_TABLE, acl="app").add_done_callback(self._begin)

    def send(self, source: str, batch: Batch) -> None:
        """Write it."""
        to = None if self._way.is_first else source
        for each in [(item,) for item in batch] if self._rule == "each" else [batch]:
            predicate = meant_by(self._way.testbed.task.want, each, self._rule, to)
            key = self._note(each) if to is None else f"{to}: {self._note(each)}"
            self._writers[source].write(_TABLE, key, {"text": text_of(each)}, predicate=predicate)

    def moved(self, phone: str, about: Mapping[str, Any]) -> None:
        """Give its continuous read what it says of itself now."""
        if phone in self._handles:
            self._readers[phone].update_data(self._handles[phone], {**about, "name": phone})

    def _begin(self, created: Operation) -> None:
        created.result()
        for phone, reader in self._readers.items():
            about = {**self._way.testbed.about(phone), "name": phone}
            reading = reader.read(
                _TABLE, type="continuous", data=about, callback=partial(self._change, phone)
            )
            reading.add_done_callback(partial(self._reads, phone))

    def _reads(self, phone: str, operation: Operation) -> None:
        self._handles[phone] = operation.result()

    def _change(self, phone: str, change: Any) -> None:
        if isinstance(change, Change) and change.kind == "upsert":
            self._out(phone, change.key if self._way.is_first else change.key.removeprefix(f"{phone}: "))

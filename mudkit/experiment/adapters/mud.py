"""MUD in experiments: one table, and a continuous read on each phone (Mobius 2, 3.2).

Alone, a want that depends on the reader's taste only is the predicate of her read. One that depends on where
she is, is the writer's predicate, and she reports where she is when she has moved; so the audience of an item
is bound when it is written. In a chain, all wants are writers' predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.events import Host, Operation
from mudkit.experiment.adapters.system import PORT, Batch, Meant, Part, System, Way, meant_by, text_of
from mudkit.experiment.tasks import Item
from mudkit.experiment.testbed import Testbed, not_hers
from mudkit.systems.mud import Change, Client, Cloud

_TABLE: Final = "items"
_EDITOR: Final = "editor"
"""Server that creates the table."""
_SPARE_H: Final = 24.0
"""Hours by which a token outlives the run."""


@check_arguments(types=False)
class Mud(System):
    """One table, a writer on each device, and a continuous read on each phone.

    Parameters
    ----------
    testbed : Testbed
    """

    label: ClassVar = "MUD"
    unsupported: ClassVar = {
        "news with ranks": "A window has the best items of the table, read or not: all that is wanted comes.",
        "photo sharing": "The cloud reads every photograph: a predicate hides from readers only.",
    }

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        make = _make_client(testbed)
        self._clients = {name: make(device) for name, device in self._lab.devices.items()}
        self._handles: dict[str, int] = {}
        make(self._lab.server(_EDITOR)).create(_TABLE, acl="app").add_done_callback(self._begin)

    def publish(self, item: Item) -> None:
        """Write an item, for all, or with the predicate that says whom it is for."""
        want = self._task.interest
        metadata = {name: value for name, value in item.metadata.items() if value is not None}
        predicate = want.by_writer(item.metadata) if want.uses_place else None
        record = {**metadata, "text": item.content}
        self._clients[item.sender].write(_TABLE, item.name, record, predicate=predicate)

    def on_move(self, phone: str) -> None:
        """Update the reader data of a phone's continuous read."""
        if phone in self._handles:
            self._clients[phone].update_data(self._handles[phone], dict(self._testbed.profile(phone)))

    def _begin(self, created: Operation) -> None:
        """Begin to read on each phone, once there is a table."""
        created.result()
        want = self._task.interest
        for phone in self._testbed.phones:
            data, others = dict(self._testbed.profile(phone)), not_hers(phone)
            predicate = others if want.uses_place else f"({want.as_text(data)}) AND {others}"
            receive = partial(self._receive_change, phone)
            _begin_read(self._clients[phone], phone, predicate, data, receive, self._handles)

    def _receive_change(self, phone: str, change: Any) -> None:
        """Record the arrival of a record that is new or has changed; removals are ignored."""
        if _is_upsert(change):
            self._testbed.record_arrival(phone, change.key)


@check_arguments(types=False)
class MudPart(Part):
    """One table, a writer at each source, and a continuous read at each end.

    All wants are predicates of the writers.

    Parameters
    ----------
    way : Way
    aggregate_rule : {'all', 'any', 'each'}
        Readers of an aggregate: those whom all its writers mean, or any of them; or each of its items is
        written on its own.
    """

    listens = True

    def __init__(self, way: Way, aggregate_rule: Meant = "all") -> None:
        super().__init__(way)
        self._rule = aggregate_rule
        make = _make_client(self._testbed)
        self._writers = {name: make(host) for name, host in way.sources.items()}
        self._readers = {phone: make(host) for phone, host in way.ends.items()}
        self._handles: dict[str, int] = {}
        make(self._lab.server(_EDITOR)).create(_TABLE, acl="app").add_done_callback(self._begin)

    def send(self, source: str, batch: Batch) -> None:
        """Write a batch as one record, or by the rule each of its items."""
        to = None if self._way.is_first else source
        for items in [(item,) for item in batch] if self._rule == "each" else [batch]:
            key = self._store_batch(items) if to is None else f"{to}: {self._store_batch(items)}"
            predicate = meant_by(self._task.interest, items, self._rule, to)
            self._writers[source].write(_TABLE, key, {"text": text_of(items)}, predicate=predicate)

    def on_move(self, phone: str, profile: Mapping[str, Any]) -> None:
        """Update the reader data of a phone's continuous read."""
        if phone in self._handles:
            self._readers[phone].update_data(self._handles[phone], {**profile, "name": phone})

    def _begin(self, created: Operation) -> None:
        """Begin to read at each end, once there is a table."""
        created.result()
        for phone, reader in self._readers.items():
            data = {**self._testbed.profile(phone), "name": phone}
            _begin_read(reader, phone, None, data, partial(self._receive_change, phone), self._handles)

    def _receive_change(self, phone: str, change: Any) -> None:
        """Pass on the batch in a record that is new or has changed; removals are ignored."""
        if _is_upsert(change):
            name = change.key if self._way.is_first else change.key.removeprefix(f"{phone}: ")
            self._way.on_batch(phone, self._under_way[name])


def _make_client(testbed: Testbed) -> Callable[[Host], Client]:
    """Return a function that makes clients of a new cloud, for one app."""
    cloud = Cloud(testbed.lab)
    token = testbed.lab.token(app=PORT, hours=testbed.task.scenario.hours + _SPARE_H)
    return partial(Client, cloud=cloud, app=PORT, token=token, max_rows=1)


def _begin_read(
    reader: Client,
    phone: str,
    predicate: str | None,
    data: dict[str, Any],
    receive: Callable[[Any], None],
    handles: dict[str, int],
) -> None:
    """Begin a continuous read of a phone, whose handle is stored when the read stands."""

    def store_handle(reading: Operation) -> None:
        handles[phone] = reading.result()

    reading = reader.read(_TABLE, predicate, type="continuous", data=data, callback=receive)
    reading.add_done_callback(store_handle)


def _is_upsert(change: Any) -> bool:
    """Return whether a notification is a change that adds or replaces a record."""
    return isinstance(change, Change) and change.kind == "upsert"

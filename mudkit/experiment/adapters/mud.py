"""MUD in experiments: one table, and a continuous read on each phone (Mobius 2, 3.2).

Alone, a want that depends on the reader's taste only is the predicate of her read. One that depends on where
she is, is the writer's predicate, and she reports where she is when she has moved; so the audience of an item
is bound when it is written. In a chain, all wants are writers' predicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.events import Operation
from mudkit.experiment.adapters.system import PORT, Batch, Meant, System, Way, meant_by, text_of
from mudkit.experiment.testbed import Testbed, not_hers
from mudkit.systems.mud import Change, Client, Cloud

_TABLE: Final = "items"
_SPARE_H: Final = 24.0
"""Hours by which a token outlives the run."""


@check_arguments(types=False)
class Mud(System):
    """One table, a writer on each sender, and a continuous read on each phone.

    Parameters
    ----------
    place : Testbed or Way
    aggregate_rule : {'all', 'any', 'each'}
        Readers of an aggregate: those whom all its writers mean, or any of them; or each of its items is
        written on its own.
    """

    label: ClassVar = "MUD"
    unsupported: ClassVar = {
        "news with ranks": "A continuous read has no ranks and no limit: all that is wanted comes.",
        "photo sharing": "The cloud reads every photograph: a predicate hides from readers only.",
    }

    def __init__(self, place: Testbed | Way, aggregate_rule: Meant = "all") -> None:
        super().__init__(place)
        self._rule = aggregate_rule
        self.listens = True
        cloud = Cloud(self._lab)
        token = self._lab.token(app=PORT, hours=self._task.scenario.hours + _SPARE_H)
        client = partial(Client, cloud=cloud, app=PORT, token=token, max_rows=1)
        if self._is_alone:
            self._writers = {name: client(device) for name, device in self._lab.devices.items()}
            self._readers = {phone: self._writers[phone] for phone in self._testbed.phones}
        else:
            self._writers = {name: client(host) for name, host in self._way.sources.items()}
            self._readers = {phone: client(host) for phone, host in self._way.ends.items()}
        self._handles: dict[str, int] = {}
        client(self._lab.server("editor")).create(_TABLE, acl="app").add_done_callback(self._begin)

    def send(self, source: str, batch: Batch) -> None:
        """Write a batch, or the item of its source."""
        want = self._task.interest
        if self._is_alone:
            item = batch[0]
            metadata = {name: value for name, value in item.metadata.items() if value is not None}
            predicate = want.by_writer(item.metadata) if want.uses_place else None
            self._writers[source].write(
                _TABLE, item.name, {**metadata, "text": item.content}, predicate=predicate
            )
            return
        to = None if self._way.is_first else source
        for items in [(item,) for item in batch] if self._rule == "each" else [batch]:
            key = self._note(items) if to is None else f"{to}: {self._note(items)}"
            predicate = meant_by(want, items, self._rule, to)
            self._writers[source].write(_TABLE, key, {"text": text_of(items)}, predicate=predicate)

    def on_move(self, phone: str, profile: Mapping[str, Any] | None = None) -> None:
        """Update the reader data of a phone's continuous read."""
        if phone in self._handles:
            self._readers[phone].update_data(self._handles[phone], self._data(phone, profile))

    def _data(self, phone: str, profile: Mapping[str, Any] | None = None) -> dict[str, Any]:
        profile = self._testbed.profile(phone) if profile is None else profile
        return dict(profile) if self._is_alone else {**profile, "name": phone}

    def _begin(self, created: Operation) -> None:
        created.result()
        want = self._task.interest
        for phone, reader in self._readers.items():
            data = self._data(phone)
            predicate = None
            if self._is_alone:
                others = not_hers(phone)
                predicate = others if want.uses_place else f"({want.as_text(data)}) AND {others}"
            reading = reader.read(
                _TABLE, predicate, type="continuous", data=data, callback=partial(self._receive, phone)
            )
            reading.add_done_callback(partial(self._reads, phone))

    def _reads(self, phone: str, operation: Operation) -> None:
        self._handles[phone] = operation.result()

    def _receive(self, phone: str, change: Any) -> None:
        """Deliver what a record that has come to a phone names."""
        if isinstance(change, Change) and change.kind == "upsert":
            self._out(phone, change.key if self._way.is_first else change.key.removeprefix(f"{phone}: "))

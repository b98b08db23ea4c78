"""Testbed on which a system does a task.

An adapter reports each arrival; the testbed accepts it if messages have carried the content, see
:mod:`.evidence`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from itertools import compress
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.experiment.evidence import Carried
from mudkit.experiment.tasks import Item, Task
from mudkit.lab import Lab
from mudkit.units import US_PER_S, distance_km

APP: Final = "application"
"""System of the rows of a task in the table of deliveries."""


class Adapter(Protocol):
    """System in an experiment; made for a :class:`Testbed` that has all its devices.

    It reports each arrival of an item (:meth:`Testbed.record_arrival`). Its method ``end()``, if it has one,
    is called when the run is over, and raises to reject the run.
    """

    def publish(self, item: Item) -> None:
        """Publish an item on its sender, now."""
        ...

    def on_move(self, phone: str) -> None:
        """Update what is known of a phone that has moved (:meth:`Testbed.profile`)."""
        ...

    def on_look(self, phone: str) -> None:
        """Show the user of a phone what has arrived (:meth:`Testbed.show`); she looks now."""
        ...


@check_arguments(types=False)
class Testbed:
    """Devices, wants and deliveries of a run.

    Deliveries stand in the trace's table under the system :data:`APP`, one row for each phone that wanted the
    item and for each that received it. Records of the machines stand there under their own names.

    Parameters
    ----------
    task : Task
    lab : Lab
        The lab with the phones and feeds of the task.

    Attributes
    ----------
    phones, senders : list of str
        Devices that may want items, and devices that publish.
    wanted_count : int
        Pairs of an item and a phone that wants it, so far.
    """

    def __init__(self, task: Task, lab: Lab) -> None:
        self.task, self.lab = task, lab
        feeds = [name for name in lab.devices if name.startswith("feed-")]
        self.phones = [name for name in lab.devices if name not in set(feeds)]
        self.senders = feeds or self.phones
        self._rows = {name: row for row, name in enumerate(self.phones)}
        profiles = task.profiles(lab.world.seed, self.phones, self.senders)
        self._profiles = dict(zip(self.phones, profiles, strict=True))
        self._columns: dict[str, Any] = {
            name: _column([profile.get(name) for profile in profiles])
            for name in task.interest.of_me - {"loc"}
        }
        self.wanted_count = 0
        self.given = hashlib.sha256("\n".join(lab.devices).encode())
        """Digest of all that the system is given."""
        self._items: dict[str, tuple[Item, int]] = {}
        self._intended: dict[str, frozenset[str]] = {}
        self._arrived: set[tuple[str, str]] = set()
        self._inbox: dict[str, list[str]] = {}
        self._opened: dict[str, set[str]] = {}
        """Items that an adapter has chosen at an earlier look, of a recorded task."""
        self._recorded: dict[tuple[int, int], str] = {}
        """Names of published items by sender and number, of a recorded task."""
        self._reported_loc: dict[str, tuple[float, float]] = {}
        self._adapter: Adapter | None = None
        self._carried = Carried(lab.world)

    # -- for an adapter

    def profile(self, phone: str) -> dict[str, Any]:
        """Return a phone's profile: its user's, and its place (``loc``), from now on the last reported."""
        profile = dict(self._profiles[phone])
        if self.task.interest.uses_place and (loc := self.lab.devices[phone].loc) is not None:
            profile["loc"] = loc
            self._reported_loc[phone] = loc
        return profile

    def record_arrival(self, phone: str, item: str) -> None:
        """Record that an item has arrived on a phone; not again, and not on its sender.

        Raises
        ------
        ParameterError
            There is no such phone or item, or no message has brought all of its content there.
        """
        if phone not in self._profiles or item not in self._items:
            raise ParameterError(
                "Something was handed over that nobody has published, or to nobody.",
                where="arrived",
                found=f"{item!r} for {phone!r}",
                expected="the name of an item, and of a phone",
            )
        if (phone, item) in self._arrived or phone == self._items[item][0].sender:
            return
        self._carried.check(phone, item)
        self._arrived.add((phone, item))
        is_wanted = phone in self._intended[item]
        row: dict[str, Any] = {"delivered_us": self.lab.world.now_us}
        if not is_wanted:
            row["created_us"] = self._items[item][1]
        elif self.task.is_shown:
            row["read_us"] = self.lab.world.now_us
        else:
            self._inbox.setdefault(phone, []).append(item)
        self._record_delivery(item, phone, row)

    def show(self, phone: str, chosen: Collection[str] | None = None) -> None:
        """Show a phone's user the best arrived items that have not expired, of those ``chosen`` or of all."""
        now_us = self.lab.world.now_us
        waiting = [
            name
            for name in self._inbox.get(phone, ())
            if (expired_us := self._expired_us(name)) is None or now_us <= expired_us
        ]
        waiting.sort(key=lambda name: (-self._items[name][0].metadata["rank"], self._items[name][1], name))
        if self.task.recording is not None:
            chosen = self._requested(phone, chosen)
        best = [name for name in waiting if chosen is None or name in chosen][: self.task.max_shown]
        for name in best:
            self._record_delivery(name, phone, {"read_us": now_us})
        self._inbox[phone] = [name for name in waiting if name not in best]

    def _requested(self, phone: str, chosen: Collection[str] | None) -> set[str]:
        """Add ``chosen`` to what a phone has chosen.

        Return what its last read asks for of it, None: of all.
        """
        assert self.task.recording is not None
        requested = self.task.recording.requested(self._rows[phone], self.lab.world.now_us)
        names = {self._recorded[item] for item in requested if item in self._recorded}
        if chosen is None:
            return names
        opened = self._opened.setdefault(phone, set())
        opened.update(chosen)
        return names & opened

    @property
    def items(self) -> Mapping[str, Item]:
        """Published items, by name."""
        return {name: item for name, (item, _) in self._items.items()}

    def is_for(self, item: str, phone: str) -> bool:
        """Return whether a phone wanted an item, or has published it."""
        return phone in self._intended[item] or phone == self._items[item][0].sender

    def count_wanted(self, phone: str) -> int:
        """Return the number of items that a phone wanted so far."""
        return sum(phone in wanting for wanting in self._intended.values())

    # -- for the run

    def attach(self, adapter: Adapter) -> None:
        """Attach the adapter of a system, which is notified of moves from now on."""
        self._adapter = adapter
        if self.task.interest.uses_place:
            self._look_around(None)

    def publish(self, item: Item) -> None:
        """Publish an item, and record who wants it at its place now."""
        assert self._adapter is not None
        created_us = self.lab.world.now_us
        self.given.update(msgspec.json.encode([created_us, item]))
        self._items[item.name] = item, created_us
        self._carried.publish(item)
        wanting = [phone for phone in self._who_wants(item) if phone != item.sender]
        self._intended[item.name] = frozenset(wanting)
        self.wanted_count += len(wanting)
        times = {"created_us": created_us, "expired_us": self._expired_us(item.name)}
        for phone in wanting:
            self._record_delivery(item.name, phone, times)
        self._adapter.publish(item)

    def _who_wants(self, item: Item) -> Iterable[str]:
        """Return the phones that want an item at their places now, or by the recording."""
        if self.task.recording is not None:
            sender, number = self._rows[item.sender], int(item.name.rpartition(" ")[2])
            self._recorded[sender, number] = item.name
            return [self.phones[row] for row in sorted(self.task.recording.wanted_by(sender, number))]
        columns = dict(self._columns)
        if self.task.interest.uses_place:
            places = [self.lab.devices[phone].loc for phone in self.phones]
            columns["loc"] = np.array([(np.nan, np.nan) if at is None else at for at in places])
        wants = self.task.interest.by_writer(item.metadata).numpy({}, receiver=columns)
        return compress(self.phones, np.broadcast_to(wants.filled(False), len(self.phones)))

    def _expired_us(self, name: str) -> int | None:
        """Return the time at which an item expires; None: never."""
        item, created_us = self._items[name]
        return None if item.expires_s is None else created_us + round(item.expires_s * US_PER_S)

    def _record_delivery(self, item: str, phone: str, row: Mapping[str, Any]) -> None:
        """Record what became of an item on a phone in the trace's table of deliveries."""
        self.lab.trace.deliveries.record(APP, {"item": item, "receiver": phone, **row})

    def _look_around(self, _: None) -> None:
        """Notify the adapter of phones that have moved far enough, and schedule the next time."""
        assert self._adapter is not None
        for phone in self.phones:
            device = self.lab.devices[phone]
            if device.loc is None or not device.is_on:
                continue
            before = self._reported_loc.get(phone)
            if before is None or float(distance_km(*before, *device.loc)) >= self.task.renew_km:
                self._adapter.on_move(phone)
        world = self.lab.world
        world.schedule_call(world.now_us + round(self.task.renew_s * US_PER_S), self._look_around, None)


def not_hers(phone: str) -> str:
    """Return the predicate over items that excludes those that a phone has published."""
    return f"who <> '{phone}'"


def _column(values: list[Any]) -> Any:
    """Return a column of numbers, or of objects if there is anything else."""
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return np.array(values, dtype=np.float64 if is_number else object)

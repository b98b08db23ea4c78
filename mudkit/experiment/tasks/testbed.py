"""The testbed on which a system does a task: who is there, who wants what, and what came of it.

What counts as a delivery is the same for all: the item has come to the phone, whether it is shown or waits to
be read. An adapter says so, and is believed if messages have carried the item there
(:mod:`mudkit.experiment.tasks.carried`). A delivery stands in the trace's table of deliveries under the
system :data:`APP`, a row for each phone that wanted the item and for each that got it. What machines record
of themselves stands there under their own names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from mudkit.errors import ParameterError
from mudkit.experiment.tasks.carried import Carried
from mudkit.experiment.tasks.task import Item, Task
from mudkit.lab import Lab
from mudkit.units import US_PER_S, distance_km

__all__ = ["APP", "Adapter", "Testbed", "not_hers"]

APP: Final = "application"
"""The system under which the deliveries of a task stand."""


class Adapter(Protocol):
    """A system as it enters the scoreboard; made from its :class:`Testbed`, when all devices are there.

    It tells the testbed what it hands over (:meth:`Testbed.arrived`). It may have an ``end()``, which is
    called when the run is over, and refuses an entry.
    """

    def publish(self, item: Item) -> None:
        """Let an item's sender publish it, now."""
        ...

    def moved(self, phone: str) -> None:
        """Take note that a phone is somewhere else, far enough from where it said it was."""
        ...

    def look(self, phone: str) -> None:
        """Let the user of a phone look, now; :meth:`Testbed.show` shows her what is there."""
        ...


class Testbed:
    """Who is there, and who wants what.

    Parameters
    ----------
    task : Task
    lab : Lab
        The lab with the phones and feeds of the task.

    Attributes
    ----------
    phones, senders : list of str
        Who may want something, and who publishes.
    wanted : int
        How many pairs there were so far of an item and a phone that wants it.
    """

    def __init__(self, task: Task, lab: Lab) -> None:
        self.task, self.lab = task, lab
        feeds = [name for name in lab.devices if name.startswith("feed-")]
        self.phones = [name for name in lab.devices if name not in set(feeds)]
        self.senders = feeds or self.phones
        said = task.says(lab.world.seed, self.phones, self.senders)
        self._said = dict(zip(self.phones, said, strict=True))
        self._columns: dict[str, Any] = {
            name: np.array([each.get(name) for each in said], dtype=_kind([each.get(name) for each in said]))
            for name in task.want.of_me - {"loc"}
        }
        self.wanted = 0
        self.given = hashlib.sha256("\n".join(lab.devices).encode())
        """Of what is asked of a system, whichever it is."""
        self._items: dict[str, tuple[Item, int]] = {}
        self._wanted: dict[str, frozenset[str]] = {}
        self._arrived: set[tuple[str, str]] = set()
        self._inbox: dict[str, list[str]] = {}
        self._reported_loc: dict[str, tuple[float, float]] = {}
        self._adapter: Adapter | None = None
        self._carried = Carried(lab.world)

    # -- for an adapter

    def about(self, phone: str) -> dict[str, Any]:
        """Give what a phone says of itself now: what its user wants, and where it is (``loc``)."""
        said = dict(self._said[phone])
        if self.task.want.moves and (loc := self.lab.devices[phone].loc) is not None:
            said["loc"] = loc
            self._reported_loc[phone] = loc
        return said

    def arrived(self, phone: str, item: str) -> None:
        """Take note that an item has come to a phone.

        What came before, or was published there, does not count. All of the item's content must have left its
        sender over its link, and come over the link to this phone, in a message, since it was published: as
        it is, with others, packed, or sealed. Its name is none of it.

        Raises
        ------
        ParameterError
            There is no such phone or item, or no message has brought it there.
        """
        if phone not in self._said or item not in self._items:
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
        is_wanted = phone in self._wanted[item]
        row: dict[str, Any] = {"delivered_us": self.lab.world.now_us}
        if not is_wanted:
            row["created_us"] = self._items[item][1]
        elif self.task.is_shown:
            row["read_us"] = self.lab.world.now_us
        else:
            self._inbox.setdefault(phone, []).append(item)
        self._note(item, phone, row)

    def show(self, phone: str, chosen: Collection[str] | None = None) -> None:
        """Show the user of a phone the best of what it has for her: what is over is not shown any more.

        Parameters
        ----------
        phone : str
        chosen : collection of str, optional
            The items among which the system leaves the choice; by default all that have come.
        """
        now_us = self.lab.world.now_us
        waiting = [
            name
            for name in self._inbox.get(phone, ())
            if (over := self._over_us(name)) is None or now_us <= over
        ]
        waiting.sort(key=lambda name: (-self._items[name][0].about["rank"], self._items[name][1], name))
        best = [name for name in waiting if chosen is None or name in chosen][: self.task.most]
        for name in best:
            self._note(name, phone, {"read_us": now_us})
        self._inbox[phone] = [name for name in waiting if name not in best]

    @property
    def items(self) -> Mapping[str, Item]:
        """What was published so far, by name."""
        return {name: item for name, (item, _) in self._items.items()}

    def is_for(self, item: str, phone: str) -> bool:
        """Say whether somebody wanted an item, or has published it."""
        return phone in self._wanted[item] or phone == self._items[item][0].sender

    def wanted_by(self, phone: str) -> int:
        """Say how many items a phone wanted so far."""
        return sum(phone in wanting for wanting in self._wanted.values())

    # -- for who plays

    def enter(self, adapter: Adapter) -> None:
        """Let a system begin; phones that move say so from now on."""
        self._adapter = adapter
        if self.task.want.moves:
            self._look_around(None)

    def end(self) -> None:
        """Let the system say what was not as it must be, if it can."""
        getattr(self._adapter, "end", lambda: None)()

    def publish(self, item: Item) -> None:
        """Let an item be published: note who wants it, by where everybody is now."""
        assert self._adapter is not None
        created_us = self.lab.world.now_us
        self.given.update(msgspec.json.encode([created_us, item]))
        self._items[item.name] = item, created_us
        self._carried.publish(item)
        wanting = [
            self.phones[row] for row in self._who_wants(item).tolist() if self.phones[row] != item.sender
        ]
        self._wanted[item.name] = frozenset(wanting)
        self.wanted += len(wanting)
        times = {"created_us": created_us, "expired_us": self._over_us(item.name)}
        for phone in wanting:
            self._note(item.name, phone, times)
        self._adapter.publish(item)

    def look(self, phone: str) -> None:
        """Let the user of a phone look."""
        assert self._adapter is not None
        self._adapter.look(phone)

    def _who_wants(self, item: Item) -> Any:
        columns = dict(self._columns)
        if self.task.want.moves:
            places = [self.lab.devices[phone].loc for phone in self.phones]
            columns["loc"] = np.array([(np.nan, np.nan) if at is None else at for at in places])
        wants = self.task.want.by_writer(item.about).numpy({}, receiver=columns)
        return np.flatnonzero(np.broadcast_to(wants.filled(False), len(self.phones)))

    def _over_us(self, name: str) -> int | None:
        item, created_us = self._items[name]
        return None if item.expires_s is None else created_us + round(item.expires_s * US_PER_S)

    def _note(self, item: str, phone: str, row: Mapping[str, Any]) -> None:
        self.lab.trace.deliveries.note(APP, {"item": item, "receiver": phone, **row})

    def _look_around(self, _: None) -> None:
        assert self._adapter is not None
        for phone in self.phones:
            device = self.lab.devices[phone]
            if device.loc is None or not device.is_on:
                continue
            before = self._reported_loc.get(phone)
            if before is None or float(distance_km(*before, *device.loc)) >= self.task.renew_km:
                self._adapter.moved(phone)
        world = self.lab.world
        world.ask_at(world.now_us + round(self.task.renew_s * US_PER_S), self._look_around, None)


def not_hers(phone: str) -> str:
    """Give the predicate over items that spares a phone what it has published itself."""
    return f"who <> '{phone}'"


def _kind(values: list[Any]) -> Any:
    """Numbers are a column of numbers, anything else one of objects."""
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return np.float64 if is_number else object

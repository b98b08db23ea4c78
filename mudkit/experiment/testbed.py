"""Testbed on which a system does a task, and the evidence that an item has arrived.

An adapter reports each arrival; the testbed accepts it if messages have carried the content. All of an
item's content must stand in one message that came over the phone's link since the item was published, and
must have left its sender over the sender's link in the same way before. It may stand there as it is, among
others, or packed as :mod:`mudkit.fleet.unpacking` can open it. A ciphertext counts as an item if it is at
least as long as the content can be written (six bits a letter); none of its bytes counts for two items.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import compress
from typing import Any, Final, Protocol

import msgspec
import msgspec.inspect
import numpy as np

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.events import Ciphertext
from mudkit.experiment.tasks import Item, Task
from mudkit.fleet import World
from mudkit.fleet.exposure import leaves
from mudkit.fleet.link import Transfer
from mudkit.lab import Lab
from mudkit.units import US_PER_S, distance_km

_KEY: Final = 8
"""Length of the prefix by which a content is looked up, in bytes."""
_BITS: Final = 20
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(64 - _BITS)
_MAX_CACHED: Final = 256
"""Texts whose items are cached, since one text goes to many phones."""


class Carried:
    """Evidence of arrival: the items found in messages over the devices' links."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: dict[str, tuple[Item, int]] = {}
        self._needles: dict[bytes, list[tuple[str, bytes]]] = {}
        self._marks = np.zeros(1 << _BITS, dtype=bool)
        self._short: dict[str, bytes] = {}
        """Contents that are shorter than a key."""
        self._min_bytes = 1 << 62
        """Smallest size of an item; shorter parts of messages are skipped."""
        self._read: dict[str | bytes, frozenset[str]] = {}
        self._left: set[str] = set()
        self._arrived: dict[str, set[str]] = {}
        self._sealed: dict[tuple[str, str], list[list[int]]] = {}
        """Ciphertexts by device and direction: time, and bytes that count for no item yet."""
        before = world.on_fate

        def fate(transfer: Transfer, what: str) -> None:
            if before is not None:
                before(transfer, what)
            if self._items and what in ("arrived", "repeated"):
                self._look(transfer)

        world.on_fate = fate

    def publish(self, item: Item) -> None:
        """Look for an item from now on."""
        self._items[item.name] = item, self._world.now_us
        content = item.content.encode()
        self._min_bytes = min(self._min_bytes, _min_size(item))
        whole = len(content) // 4 * 4
        forms = [content, base64.b64decode(content[:whole])]
        if any(len(form) < _KEY for form in forms):
            self._short[item.name] = content
            return
        for form in forms:
            self._needles.setdefault(form[:_KEY], []).append((item.name, form))
            self._marks[_places(form[:_KEY])] = True

    def check(self, phone: str, name: str) -> None:
        """Raise a ParameterError if an item has not left its sender, or has not come to this phone."""
        item, since_us = self._items[name]
        if not (name in self._left or self._takes(item.sender, "up", item, since_us)):
            raise ParameterError(
                "An item cannot have arrived: its content has not left its sender over a link.",
                where=f"record_arrival({phone!r}, {name!r})",
                found=f"no message from {item.sender} that has it has come anywhere yet",
                expected=_EXPECTED,
                remedy="let a machine on its sender send it",
            )
        self._left.add(name)
        if not (name in self._arrived.get(phone, ()) or self._takes(phone, "down", item, since_us)):
            raise ParameterError(
                "An item was said to have arrived that has not come over the phone's link.",
                where=f"record_arrival({phone!r}, {name!r})",
                found=f"no message to {phone} since it was published has its content",
                expected=_EXPECTED,
                remedy="send it to a machine on this phone, and call record_arrival() when that has it",
            )

    def _takes(self, device: str, direction: str, item: Item, since_us: int) -> bool:
        """Count a ciphertext as an item, if there is one that can hold it."""
        size_bytes, sealed = _min_size(item), self._sealed.get((device, direction), [])
        # The oldest possible one: a later one may be needed for an item that was published later.
        for ciphertext in sealed[bisect_left(sealed, [since_us]) :]:
            if ciphertext[1] >= size_bytes:
                ciphertext[1] -= size_bytes
                return True
        return False

    def _look(self, transfer: Transfer) -> None:
        if transfer.size_bytes < self._min_bytes:
            return
        source, target = transfer.sender.host, self._world.at_address[transfer.to].host
        if source is target:
            return
        ends = [(source, "up"), (target, "down")]
        ways = [(host.name, direction) for host, direction in ends if host.link is not None]
        if not ways:
            return
        parts: list[str | bytes] = []
        _collect(transfer.message, self._min_bytes, parts)
        items: set[str] = set()
        for part in parts:
            if isinstance(part, Ciphertext):
                for way in ways:
                    self._sealed.setdefault(way, []).append([self._world.now_us, len(part)])
            items |= self._items_in(part)
        self._left.update(name for name in items if self._items[name][0].sender == source.name)
        if items and target.link is not None:
            self._arrived.setdefault(target.name, set()).update(items)

    def _items_in(self, part: str | bytes) -> frozenset[str]:
        known = self._read.get(part)
        if known is None:
            if len(self._read) >= _MAX_CACHED:
                self._read.clear()
            known = frozenset(name for _, _, data in leaves(part) for name in self._contents_in(data))
            self._read[part] = known
        return known

    def _contents_in(self, data: bytes) -> Iterator[str]:
        yield from (name for name, content in self._short.items() if content in data)
        if len(data) < _KEY:
            return
        for at in np.flatnonzero(self._marks[_places(data)]).tolist():
            for name, needle in self._needles.get(data[at : at + _KEY], ()):
                if data.startswith(needle, at):
                    yield name


_EXPECTED: Final = (
    "all of its content in one message: as it is, among others, packed (JSON, gzip, base64, …), or sealed "
    "(events.Ciphertext)"
)


def _min_size(item: Item) -> int:
    """Return the smallest size of an item's content in any encoding, in bytes."""
    return -(-item.size_bytes * 3 // 4)


def _places(data: bytes) -> Any:
    """Return the position of each eight bytes of a text in the table of marks."""
    words = np.ndarray((len(data) - _KEY + 1,), "<u8", data, 0, (1,))
    return (words * _MIX) >> _SHIFT


def _collect(value: Any, min_length: int, parts: list[str | bytes]) -> None:
    """Append the texts and bytes of a message that have at least some length."""
    if isinstance(value, str | bytes):
        if len(value) >= min_length:
            parts.append(value)
    elif isinstance(value, msgspec.Struct):
        for name in _text_fields(type(value)):
            _collect(getattr(value, name), min_length, parts)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _collect(name, min_length, parts)
            _collect(inner, min_length, parts)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            _collect(inner, min_length, parts)
    elif isinstance(value, bytearray | memoryview):
        _collect(bytes(value), min_length, parts)


@cache
def _text_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a type of messages that can hold texts or bytes, by their annotations."""
    try:
        info: Any = msgspec.inspect.type_info(kind)
    except (NameError, TypeError):  # annotations that only a type checker resolves
        return kind.__struct_fields__
    return tuple(field.name for field in info.fields if _can_hold_text(field.type, frozenset({kind})))


def _can_hold_text(info: Any, seen: frozenset[type]) -> bool:
    match info:
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType() | msgspec.inspect.BoolType():
            return False
        case msgspec.inspect.NoneType() | msgspec.inspect.LiteralType() | msgspec.inspect.EnumType():
            return False
        case msgspec.inspect.UnionType(types=inner) | msgspec.inspect.TupleType(item_types=inner):
            return any(_can_hold_text(part, seen) for part in inner)
        case msgspec.inspect.StructType(cls=kind, fields=fields):
            return kind in seen or any(_can_hold_text(field.type, seen | {kind}) for field in fields)
        case msgspec.inspect.Metadata(type=inner) | msgspec.inspect.CollectionType(item_type=inner):
            return _can_hold_text(inner, seen)
    return True


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
        """Return the current profile of a phone: that of its user, and its place (``loc``)."""
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
        self._note(item, phone, row)

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
            self._note(name, phone, {"read_us": now_us})
        self._inbox[phone] = [name for name in waiting if name not in best]

    def _requested(self, phone: str, chosen: Collection[str] | None) -> set[str]:
        """Return what the last read of a phone asks for, of what was ``chosen`` so far."""
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
            self._note(item.name, phone, times)
        self._adapter.publish(item)

    def _who_wants(self, item: Item) -> Iterable[str]:
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
        item, created_us = self._items[name]
        return None if item.expires_s is None else created_us + round(item.expires_s * US_PER_S)

    def _note(self, item: str, phone: str, row: Mapping[str, Any]) -> None:
        self.lab.trace.deliveries.record(APP, {"item": item, "receiver": phone, **row})

    def _look_around(self, _: None) -> None:
        assert self._adapter is not None
        for phone in self.phones:
            device = self.lab.devices[phone]
            if device.loc is None or not device.is_on:
                continue
            before = self._reported_loc.get(phone)
            if before is None or float(distance_km(*before, *device.loc)) >= self.task.renew_km:
                self._adapter.on_move(phone)
        world = self.lab.world
        world.ask_at(world.now_us + round(self.task.renew_s * US_PER_S), self._look_around, None)


def not_hers(phone: str) -> str:
    """Return the predicate over items that excludes those that a phone has published."""
    return f"who <> '{phone}'"


def _column(values: list[Any]) -> Any:
    """Return a column of numbers, or of objects if there is anything else."""
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return np.array(values, dtype=np.float64 if is_number else object)

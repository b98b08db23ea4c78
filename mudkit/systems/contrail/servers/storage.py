"""Storage of one data centre: queues of devices, item cache, white-lists, groups (Contrail 4.2.2).

It executes the operations of compute instances, all of one request in one transaction:

========  ==========================================================================================
join      create the queue of the device, store its white-list
append    append to the queue of a device, unless that is full or the sender is a stranger to it
read      return the entries that have neither expired nor become obsolete; note the gateway that
          holds the device's connection: it is notified of later entries
drop      remove acknowledged entries
cache     store the body of an item
cached    return that body, if it is the copy that is meant
member    add a device to a group, return the filters stored for it there
unmember  remove it
spread    store a filter for a group, return copies for its members
withdraw  remove what one device has sent to another one
move      send a queue to another data centre; later operations are redirected there
========  ==========================================================================================

Everything is bounded: by device the items, filters and keys in the queue (``max_waiting``,
``MAX_CONTROLS``), the cache (``max_cached``), the white-list, and where the queue has moved; by device and
group the filters (``MAX_FILTERS``); by data centre the moves that are not acknowledged; by two devices the
last withdrawal.

A gateway is notified again until the device reads, or the gateway holds no connection any more. A move is
repeated until the other storage has acknowledged it.

A store may have been restored from a backup. So each start after the first has an incarnation, which its
answers name: modules tell a storage with a new one again what it has to know. Acknowledgements of entries are
for the start that has delivered them. A storage that starts again asks gateways for the connections that they
hold, and other storages for the queues that they have adopted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

from mudkit.delivery.inbox import Inbox, Place
from mudkit.delivery.outbox import Outbox
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Incarnation, rolled_back
from mudkit.events import Effect, Event, Opaque, Ports, Received, Send, Store, TimerFired, size_bytes
from mudkit.systems.contrail.messages import (
    STORAGE_FROM_COMPUTE,
    STORAGE_FROM_GATEWAY,
    STORAGE_FROM_STORAGE,
    AddMember,
    Adopted,
    Answer,
    Append,
    CacheItem,
    Data,
    Do,
    Done,
    Drop,
    Entry,
    Filter,
    FindItem,
    Gone,
    Holds,
    Moved,
    MoveQueue,
    Moving,
    Op,
    Page,
    Pull,
    QueueEntry,
    QueueFilled,
    ReadQueue,
    RemoveMember,
    Restarted,
    ShowFriends,
    Spread,
    Task,
    WithdrawFrom,
)
from mudkit.systems.contrail.messages import Send as Push
from mudkit.systems.contrail.servers.queues import Queue
from mudkit.systems.receiving import dropped

__all__ = ["MAX_FILTERS", "ItemCache", "PublisherGroups", "Storage"]

MAX_FILTERS: Final = 1000
"""Capacity by device and group; the oldest filters are evicted, expired ones first."""
_NOTIFY: Final = "notify again"
_NOTIFY_US: Final = 20_000_000
"""Initial timeout: a device reads at once, but a page takes 7 s over a slow link."""
_MOVE: Final = "move again"


class _WhiteList(msgspec.Struct, frozen=True):
    """White-list of a device; None: it shows none. ``number`` is that of its :class:`Join`."""

    friends: list[str] | None = None
    number: int = 0


class _Member(msgspec.Struct, frozen=True):
    """Membership of a device in a group, with the number of the last :class:`Membership`."""

    joins: bool
    number: int


class _Watcher(msgspec.Struct, frozen=True):
    """Gateway that holds a connection with a device, and the address of the device."""

    gateway: str
    client: str


@dataclass
class _Device:
    """A device as its storage sees it."""

    queue: Queue
    watcher: _Watcher | None = None
    centre: str = ""
    times: int = 0
    """Number of consecutive visits to that data centre."""


class Storage:
    """The storage of one data centre.

    Parameters
    ----------
    ports : Ports
    max_waiting : int
        Capacity of the queue of a device for items.
    max_cached : int
        Capacity of the cache, in items of a device.
    computes, units, gateways : collection of str
        Addresses of the cloud's compute instances, storages and gateways, of all data centres.
    """

    def __init__(
        self,
        ports: Ports,
        max_waiting: int,
        max_cached: int,
        *,
        computes: Collection[str],
        units: Collection[str],
        gateways: Collection[str],
    ) -> None:
        self._ports, self._store, self._me = ports, ports.store, ports.address
        self._computes, self._units, self._gateways = computes, units, gateways
        self._most_waiting, self._most_cached = max_waiting, max_cached
        self._is_awake = False
        self._start: str | msgspec.UnsetType = msgspec.UNSET
        """Incarnation of this start; UNSET: the first one."""
        self._devices: dict[str, _Device] = {}
        self._notified: RetransmitTimer[str] = RetransmitTimer(_NOTIFY, _NOTIFY_US)
        """Devices that were notified and have not read since."""
        self._moves: dict[str, Outbox[Moving]] = {}
        """Queues on their way, by the storage that they move to."""
        self._unanswered: RetransmitTimer[tuple[str, int]] = RetransmitTimer(_MOVE)
        self._adopted = Inbox(ports.store, "adopted")

    def queues(self) -> Iterator[tuple[str, int]]:
        """Iterate over devices and the number of entries in their queues, for a display."""
        return ((name, len(device.queue)) for name, device in self._devices.items())

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        effects: list[Effect] = []
        if not self._is_awake:
            self._is_awake = True
            effects += self._wake(now_us)
        match event:
            case Received():
                effects += self._received(now_us, event)
            case TimerFired(name=name) if name == _NOTIFY:
                for device in self._notified.overdue(now_us):
                    effects += self._notify(now_us, device)
                effects += self._notified.fired(now_us)
            case TimerFired():
                for to, seq in self._unanswered.overdue(now_us):
                    effects += self._send_move(now_us, to, seq)
                effects += self._unanswered.fired(now_us)
        return effects

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        source, message = event.source, event.message
        if source in self._computes:
            do = STORAGE_FROM_COMPUTE.decode(message)
            return dropped(event) if do is None or not self._is_own(do) else self._do_all(now_us, source, do)
        if source in self._gateways:
            match STORAGE_FROM_GATEWAY.decode(message):
                case Gone(device=device):
                    return self._watch(now_us, device, None)
                case Restarted():
                    return self._watched_at(source)
            return dropped(event)
        match STORAGE_FROM_STORAGE.decode(message) if source in self._units else None:
            case Moving() as moving:
                return self._adopt(now_us, source, moving)
            case Adopted(incarnation=incarnation, number=number):
                return self._moved_to(now_us, source, incarnation, number)
            case Restarted():
                return self._held_for(source)
            case Holds(device=device, version=version):
                return self._release(now_us, device, source, version)
        return dropped(event)

    def _watched_at(self, gateway: str) -> Sequence[Effect]:
        """Ask the devices with a connection at a gateway to read: it may not know them any more."""
        watchers = [
            (name, queue.watcher) for name, queue in self._devices.items() if queue.watcher is not None
        ]
        return [
            Send(gateway, QueueFilled(name, watcher.client))
            for name, watcher in watchers
            if watcher.gateway == gateway
        ]

    def _held_for(self, unit: str) -> Sequence[Effect]:
        """Name the queues that are here to a storage that has started again."""
        versions = [
            (key.removeprefix("version "), version) for key, version in self._store.items("version ", int)
        ]
        return [
            Send(unit, Holds(device, version))
            for device, version in versions
            if self._moved(device, 0) is None
        ]

    def _release(self, now_us: int, device: str, to: str, version: int) -> Sequence[Effect]:
        """Move a queue to where it is: this storage does not know that it has moved there."""
        moved = self._store.get(f"moved {device}", Moved)
        if version <= max(self._version(device), 0 if moved is None else moved.version):
            return ()
        self._store.put(f"version {device}", version - 1)
        lost = rolled_back(self._me, f"it does not know that the queue of {device} has moved to {to}")
        return (lost, *self._move(now_us, device, to))

    def _is_own(self, do: Do) -> bool:
        """Return whether all that is named is of this cloud, and items come from a push."""
        for op in do.ops:
            match op:
                case ReadQueue(here=here, watcher=watcher):
                    if here not in self._units or (watcher is not None and watcher not in self._gateways):
                        return False
                case MoveQueue(to=to) if to not in self._units:
                    return False
                case Append(entry=Entry(message=Data())) if not isinstance(do.task.what, Push):
                    return False
        return True

    def _wake(self, now_us: int) -> list[Effect]:
        """Load what a former process has stored, and continue it."""
        self._cache = ItemCache(self._store, self._most_cached)
        self._groups = PublisherGroups(self._store)
        effects: list[Effect] = []
        if self._store.get("started", bool):
            self._start = Incarnation(self._ports).id
            others = [address for address in (*self._gateways, *self._units) if address != self._me]
            effects += [Send(address, Restarted()) for address in others]
        self._store.put("started", True)
        for unit in self._units:
            for seq, _ in self._moves_to(unit).batch():
                effects += self._send_move(now_us, unit, seq)
        for key, watcher in self._store.items("watcher ", _Watcher):
            device = key.removeprefix("watcher ")
            self._device(device).watcher = watcher
            effects += self._notify(now_us, device)
        return effects

    def _do_all(self, now_us: int, source: str, do: Do) -> Sequence[Effect]:
        answers: list[Answer] = []
        effects: list[Effect] = []
        for op in do.ops:
            answer, more = self._do(now_us, op, do.task)
            answers.append(answer)
            effects += more
        return (*effects, Send(source, Done(answers, self._signed(do.task))))

    def _signed(self, task: Task) -> Task:
        """Return a task with the start of this storage, unless it is the first one."""
        if not isinstance(self._start, str):
            return task
        starts = task.starts if isinstance(task.starts, list) else []
        return replace(task, starts=[*starts, *({self._start} - set(starts))])

    def _do(self, now_us: int, op: Op, task: Task) -> tuple[Answer, Sequence[Effect]]:
        match op:
            case CacheItem():
                self._cache.put(op)
            case FindItem():
                return self._cache.get(op), ()
            case AddMember(group=group, member=member):
                return self._groups.join(now_us, group, member, _number(task)), ()
            case RemoveMember(group=group, member=member):
                self._groups.leave(group, member, _number(task))
            case Spread(group=group, filter=message):
                return self._groups.spread(now_us, group, message), ()
            case _:
                version = op.version if isinstance(op.version, int) else 0
                moved = self._moved(op.device, version)
                return self._do_with_queue(now_us, op, task) if moved is None else (moved, ())
        return "ok", ()

    def _do_with_queue(
        self,
        now_us: int,
        op: ShowFriends | Append | ReadQueue | Drop | WithdrawFrom | MoveQueue,
        task: Task,
    ) -> tuple[Answer, Sequence[Effect]]:
        what = task.what
        match op:
            case ShowFriends(device=device, friends=friends):
                self._show(device, _WhiteList(friends, _number(task)))
            case Append(device=device, entry=entry):
                # filters and keys have a number of their own, an item has that of its push
                is_item = isinstance(entry.message, Data)
                number = what.number if is_item and isinstance(what, Push) else entry.seq
                return self._append(now_us, device, QueueEntry(**asdict(entry), number=number))
            case ReadQueue():
                return self._read(now_us, op, task.client)
            case Drop(device=device, numbers=numbers, start=start):
                for number in numbers if start == self._start else ():
                    self._device(device).queue.drop(number)
            case WithdrawFrom(device=device, source=source, number=number):
                self._withdraw(device, source, number)
            case MoveQueue(device=device, to=to) if to != self._me:  # it may have come here meanwhile
                return "ok", self._move(now_us, device, to)
        return "ok", ()

    def _shown(self, device: str) -> _WhiteList:
        return self._store.get(f"white {device}", _WhiteList) or _WhiteList()

    def _show(self, device: str, shown: _WhiteList) -> None:
        """Store the white-list of a device, unless a later one is stored."""
        if shown.number >= self._shown(device).number:
            self._store.put(f"white {device}", shown)

    # -- queues

    def _device(self, name: str) -> _Device:
        if name not in self._devices:
            self._devices[name] = _Device(Queue(self._store, name))
        return self._devices[name]

    def _append(self, now_us: int, device: str, entry: QueueEntry) -> tuple[str, Sequence[Effect]]:
        message = entry.message
        if isinstance(message, Filter):
            friends = self._shown(device).friends
            if friends is not None and message.source not in friends:
                return "stranger", ()
        if entry.number <= self._withdrawn(device, message.source):
            return "obsolete", ()  # it comes late
        done = self._device(device).queue.append(now_us, entry, self._most_waiting)
        return done, self._notify(now_us, device) if done == "ok" else ()

    def _read(self, now_us: int, op: ReadQueue, client: str) -> tuple[Page, Sequence[Effect]]:
        device = self._device(op.device)
        watcher = None if op.watcher is None else _Watcher(op.watcher, client)
        effects = self._watch(now_us, op.device, watcher)
        if op.begins:
            device.times = device.times + 1 if device.centre == op.here else 1
            device.centre = op.here
        page, is_more = device.queue.read(now_us, op.most_bytes)
        return Page(page, is_more, device.times, self._start), effects

    def _watch(self, now_us: int, name: str, watcher: _Watcher | None) -> Sequence[Effect]:
        """Note the gateway that holds a device's connection; the device needs no further notification."""
        device = self._device(name)
        if device.watcher != watcher:
            device.watcher = watcher
            if watcher is None:
                self._store.delete(f"watcher {name}")
            else:
                self._store.put(f"watcher {name}", watcher)
        return self._notified.answered(now_us, name)

    def _notify(self, now_us: int, name: str) -> Sequence[Effect]:
        """Notify the gateway of a device with a connection that something waits."""
        device = self._device(name)
        if device.watcher is None or not device.queue:
            return self._notified.answered(now_us, name)
        return (Send(device.watcher.gateway, QueueFilled(name)), *self._notified.sent(now_us, name))

    def _withdraw(self, device: str, source: str, number: int) -> None:
        """Remove what a device has put into a queue, and refuse what of it comes later."""
        if number > self._withdrawn(device, source):
            self._store.put(f"withdrawn {device}\n{source}", number)
        self._device(device).queue.withdraw(source, number)

    def _withdrawn(self, device: str, source: str) -> int:
        return self._store.get(f"withdrawn {device}\n{source}", int) or 0

    # -- data centres

    def _version(self, device: str) -> int:
        """Return the number of moves of a queue, as far as this storage knows."""
        return self._store.get(f"version {device}", int) or 0

    def _moved(self, device: str, version: int) -> Moved | None:
        """Return where a queue has moved; None if it is here.

        An instance that was redirected here by a later move may arrive before the queue does.
        """
        moved = self._store.get(f"moved {device}", Moved)
        if moved is not None and moved.version >= version:
            return moved
        if version > self._version(device):
            self._store.put(f"version {device}", version)
            self._store.delete(f"moved {device}")
        return None

    def _move(self, now_us: int, device: str, to: str) -> Sequence[Effect]:
        prefix, version = f"withdrawn {device}\n", self._version(device) + 1
        withdrawn = {key.removeprefix(prefix): number for key, number in self._store.items(prefix, int)}
        notified, shown = self._notify(now_us, device), self._shown(device)
        self._store.put(f"moved {device}", Moved(to, version))
        moving = Moving(
            origin=self._me,
            incarnation=self._moves_to(to).incarnation,
            number=0,
            device=device,
            version=version,
            friends=shown.friends,
            friends_number=shown.number,
            entries=self._device(device).queue.clear(),
            open_from=0,
            withdrawn=withdrawn or msgspec.UNSET,
        )
        return (*notified, *self._watch(now_us, device, None), *self._hand_on(now_us, to, moving))

    def _moves_to(self, unit: str) -> Outbox[Moving]:
        if unit not in self._moves:
            self._moves[unit] = Outbox(self._ports, Moving, f"moving {unit}")
        return self._moves[unit]

    def _hand_on(self, now_us: int, to: str, moving: Moving) -> Sequence[Effect]:
        moves = self._moves_to(to)
        seq = moves.add(moving)
        is_first = moves.name(seq).incarnation == moves.name(moves.first_seq).incarnation
        return self._send_move(now_us, to, seq) if is_first else ()

    def _send_move(self, now_us: int, to: str, seq: int) -> Sequence[Effect]:
        moves = self._moves_to(to)
        incarnation, number = moves.name(seq)
        first = moves.name(moves.first_seq).number
        message = replace(moves[seq], incarnation=incarnation, number=number, open_from=first)
        return (Send(to, message), *self._unanswered.sent(now_us, (to, seq), size_bytes(message)))

    def _moved_to(self, now_us: int, unit: str, incarnation: str, number: int) -> Sequence[Effect]:
        """Record an acknowledgement; the moves of a later start follow when those before are acknowledged."""
        moves = self._moves_to(unit)
        seq = moves.seq(incarnation, number)
        if moves.ack(seq) is None:
            return ()
        effects = list(self._unanswered.answered(now_us, (unit, seq)))
        for seq, _ in moves.batch():
            if (unit, seq) not in self._unanswered:
                effects += self._send_move(now_us, unit, seq)
        return effects

    def _adopt(self, now_us: int, source: str, moving: Moving) -> Sequence[Effect]:
        """Take over a queue once, in the order of its origin's moves."""
        life, number = moving.incarnation, moving.number
        after = 0 if number == moving.open_from else None
        place = self._adopted.place(source, life, number, after)
        if place is Place.EARLY:
            return ()
        adopted = Send(source, Adopted(life, number))
        if place is Place.DUPLICATE:
            return (adopted,)
        self._adopted.take(source, life, number)
        device = moving.device
        moved = self._moved(device, moving.version)
        if moved is not None:  # the queue has moved on meanwhile
            moving = replace(
                moving,
                origin=self._me,
                incarnation=self._moves_to(moved.moved).incarnation,
                version=moved.version,
            )
            return (adopted, *self._hand_on(now_us, moved.moved, moving))
        self._show(device, _WhiteList(moving.friends, moving.friends_number))
        if isinstance(moving.withdrawn, dict):
            for sender, up_to in moving.withdrawn.items():
                self._withdraw(device, sender, up_to)
        queue, capacity = self._device(device).queue, self._most_waiting + len(moving.entries)
        for entry in moving.entries:
            if entry.number > self._withdrawn(device, entry.message.source):
                queue.append(now_us, entry, capacity)
        return (adopted, *self._notify(now_us, device))


def _number(task: Task) -> int:
    """Return the number of the request of a task; 0: it has none."""
    return 0 if isinstance(task.what, Pull) else task.what.number


class _Cached(msgspec.Struct, frozen=True):
    """An item in the cache; ``number`` orders the uploads of its device."""

    number: int
    seq: int
    epoch: int
    body: Opaque


class ItemCache:
    """Bodies of items by device, port and item (Contrail 3.4.1); of a device the newest ``max_items``."""

    def __init__(self, store: Store, max_items: int) -> None:
        self._store, self._max = store, max_items
        self._in_order: dict[str, dict[int, str]] = {}
        """Keys of what is in the cache by device and number, oldest first."""
        for place, key in store.items("cached ", str):
            source, number = place.removeprefix("cached ").rsplit("\n", 1)
            self._in_order.setdefault(source, {})[int(number)] = key

    def put(self, upload: CacheItem) -> None:
        """Store an upload in place of an older one of its name."""
        source, key = upload.source, _item_key(upload)
        in_order = self._in_order.setdefault(source, {})
        before = self._store.get(key, _Cached)
        if before is not None:
            if (before.seq, before.epoch) > (upload.seq, upload.epoch):
                return
            self._forget(source, before.number)
        number = next(reversed(in_order), 0) + 1
        self._store.put(key, _Cached(number, upload.seq, upload.epoch, upload.body))
        self._store.put(f"cached {source}\n{number:012d}", key)
        in_order[number] = key
        while len(in_order) > self._max:
            self._forget(source, next(iter(in_order)))

    def get(self, item: FindItem) -> bytes | None:
        """Return the body of an item, if the cache has this copy."""
        kept = self._store.get(_item_key(item), _Cached)
        is_meant = kept is not None and (kept.seq, kept.epoch) == (item.seq, item.epoch)
        return kept.body if kept is not None and is_meant else None

    def _forget(self, source: str, number: int) -> None:
        self._store.delete(self._in_order[source].pop(number))
        self._store.delete(f"cached {source}\n{number:012d}")


def _item_key(item: FindItem) -> str:
    return f"item {item.source}\n{item.port}\n{item.item}"


class PublisherGroups:
    """Members and filters of groups of publishers (Contrail 3.4.3)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def join(self, now_us: int, group: str, member: str, number: int) -> list[Filter]:
        """Add a member; return the filters that are addressed to it and have not expired."""
        if not self._set(group, member, _Member(joins=True, number=number)):
            return []
        return _copies([each for _, each in self._live(now_us, group)], {member})

    def leave(self, group: str, member: str, number: int) -> None:
        """Remove a member."""
        self._set(group, member, _Member(joins=False, number=number))

    def _set(self, group: str, member: str, word: _Member) -> bool:
        """Store whether a device is a member; return whether it has not said otherwise since."""
        key = f"member {group}\n{member}"
        known = self._store.get(key, _Member)
        if known is not None and known.number > word.number:
            return False
        self._store.put(key, word)
        return True

    def spread(self, now_us: int, group: str, message: Filter) -> list[Filter]:
        """Store a filter; return a copy for each member that it is addressed to."""
        mine = f"filter {group}\n{message.source}\n"
        key = f"{mine}{message.port}\n{message.slot}"
        before = self._store.get(key, Filter)
        if before is not None and before.number > message.number:
            return []
        self._store.put(key, message)
        if len(self._store.keys(mine)) > MAX_FILTERS:
            self._live(now_us, group)
            left = sorted((each.number, key) for key, each in self._store.items(mine, Filter))
            for _, oldest in left[: max(len(left) - MAX_FILTERS, 0)]:
                self._store.delete(oldest)
        prefix = f"member {group}\n"
        members = self._store.items(prefix, _Member)
        return _copies([message], {key.removeprefix(prefix) for key, member in members if member.joins})

    def _live(self, now_us: int, group: str) -> list[tuple[str, Filter]]:
        """Return the filters of a group by key, after those that have expired were removed."""
        live = []
        for key, kept in self._store.items(f"filter {group}\n", Filter):
            if kept.expires_us is not None and kept.expires_us <= now_us:
                self._store.delete(key)
            else:
                live.append((key, kept))
        return live


def _copies(filters: Sequence[Filter], members: Collection[str]) -> list[Filter]:
    return [replace(each, to=[to]) for each in filters for to in each.to if to.device in members]

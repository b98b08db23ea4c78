"""Storage of one data centre: queues of devices, item cache, white-lists, groups (Contrail 4.2.2).

Executes the operations of compute instances, all of one request in one transaction:

========  ==========================================================================================
join      create the queue of a device, store its white-list
append    append to the queue of a device; refused if it is full or the sender is a stranger
read      return unexpired entries; register the gateway with the device's connection, which is
          notified of later entries
drop      remove acknowledged entries
cache     store the body of an item
cached    return the body of an item if it is the copy that is named
member    add a device to a group, return the filters for it
unmember  remove a device from a group
spread    store a filter for a group, return copies for its members
withdraw  remove the messages of one device to another
move      send a queue to another data centre and redirect later operations there
========  ==========================================================================================

All state is bounded: per device the items, filters and keys in the queue (``max_waiting``,
``MAX_CONTROLS``), the cache (``max_cached``), the white-list, and the place of a queue that moved; per device
and group the filters (``MAX_FILTERS``); per data centre the unacknowledged moves; per pair of devices the
last withdrawal.

Notifications are retransmitted until the device reads or the gateway has no connection with it; moves until
the other storage has acknowledged them.

The store may have been restored from a backup. Each start after the first has an incarnation, which answers
carry, so that modules send a storage with a new incarnation its state again. Acknowledgements of entries are
scoped to the incarnation that delivered them. A restarted storage asks gateways for their connections and
other storages for the queues that they adopted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

from mudkit.delivery.inbox import Inbox, ItemOrder
from mudkit.delivery.outbox import Outbox
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Incarnation, rollback_incident
from mudkit.events import Effect, Event, Ports, Received, Send, TimerFired, size_bytes
from mudkit.systems.contrail.messages import (
    STORAGE_FROM_COMPUTE,
    STORAGE_FROM_GATEWAY,
    STORAGE_FROM_STORAGE,
    AddMember,
    Answer,
    AppendEntry,
    CacheItem,
    Data,
    DropEntries,
    Entry,
    ExecuteOps,
    Filter,
    FindItem,
    HoldsQueue,
    MoveQueue,
    NotConnected,
    Op,
    OpsExecuted,
    Page,
    Pull,
    Push,
    QueueAdopted,
    QueueEntry,
    QueueFilled,
    QueueMoved,
    QueueTransfer,
    ReadQueue,
    RemoveMember,
    ServerRestarted,
    ShowFriends,
    SpreadFilter,
    Task,
    WithdrawFrom,
)
from mudkit.systems.contrail.servers.contents import ItemCache, PublisherGroups, Queue
from mudkit.systems.receiving import record_dropped

_NOTIFY: Final = "notify again"
_NOTIFY_US: Final = 20_000_000
"""Initial timeout: a device reads at once, but a page takes 7 s over a slow link."""
_MOVE: Final = "move again"


class _WhiteList(msgspec.Struct, frozen=True):
    """White-list of a device (None: not shown), with the number of the ``OpenQueue`` that showed it."""

    friends: list[str] | None = None
    number: int = 0


class _Watcher(msgspec.Struct, frozen=True):
    """Gateway that holds a device's connection, and the address of the device."""

    gateway: str
    client: str


@dataclass
class _DeviceState:
    """State of a device in its storage, in memory."""

    queue: Queue
    watcher: _Watcher | None = None
    centre: str = ""
    times: int = 0
    """Consecutive visits to ``centre``."""


class Storage:
    """Machine of the storage of a data centre; ``computes``, ``units``, ``gateways`` are those of all.

    Per device, ``max_waiting`` items fit into the queue and ``max_cached`` into the cache.
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
        self._max_waiting, self._max_cached = max_waiting, max_cached
        self._is_awake = False
        self._incarnation: str | msgspec.UnsetType = msgspec.UNSET
        """UNSET at the first start."""
        self._devices: dict[str, _DeviceState] = {}
        self._notified: RetransmitTimer[str] = RetransmitTimer(_NOTIFY, _NOTIFY_US)
        """Devices notified but not read since."""
        self._moves: dict[str, Outbox[QueueTransfer]] = {}
        """Unacknowledged moves by destination."""
        self._in_flight: RetransmitTimer[tuple[str, int]] = RetransmitTimer(_MOVE)
        self._adopted = Inbox(ports.store, "adopted")

    def queues(self) -> Iterator[tuple[str, int]]:
        """Iterate over devices and the lengths of their queues, for a display."""
        return ((name, len(device.queue)) for name, device in self._devices.items())

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        effects: list[Effect] = []
        if not self._is_awake:
            self._is_awake = True
            effects += self._restore(now_us)
        match event:
            case Received():
                effects += self._receive(now_us, event)
            case TimerFired(name=name) if name == _NOTIFY:
                for device in self._notified.overdue(now_us):
                    effects += self._notify_device(now_us, device)
                effects += self._notified.restart(now_us)
            case TimerFired():
                for to, seq in self._in_flight.overdue(now_us):
                    effects += self._send_move(now_us, to, seq)
                effects += self._in_flight.restart(now_us)
        return effects

    def _receive(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Handle a message of a compute instance, gateway or storage; drop one that it may not send."""
        source, message = event.source, event.message
        if source in self._computes:
            do = STORAGE_FROM_COMPUTE.decode(message)
            return (
                record_dropped(event)
                if do is None or not self._is_own(do)
                else self._execute(now_us, source, do)
            )
        if source in self._gateways:
            match STORAGE_FROM_GATEWAY.decode(message):
                case NotConnected(device=device):
                    return self._set_watcher(now_us, device, None)
                case ServerRestarted():
                    return self._notify_devices_at(source)
            return record_dropped(event)
        match STORAGE_FROM_STORAGE.decode(message) if source in self._units else None:
            case QueueTransfer() as moving:
                return self._adopt_queue(now_us, source, moving)
            case QueueAdopted(incarnation=incarnation, number=number):
                return self._acknowledge_move(now_us, source, incarnation, number)
            case ServerRestarted():
                return self._send_held_queues(source)
            case HoldsQueue(device=device, version=version):
                return self._release_queue(now_us, device, source, version)
        return record_dropped(event)

    def _notify_devices_at(self, gateway: str) -> Sequence[Effect]:
        """Notify the devices connected to a restarted gateway, which may have lost their addresses."""
        watchers = [
            (name, queue.watcher) for name, queue in self._devices.items() if queue.watcher is not None
        ]
        return [
            Send(gateway, QueueFilled(name, watcher.client))
            for name, watcher in watchers
            if watcher.gateway == gateway
        ]

    def _send_held_queues(self, unit: str) -> Sequence[Effect]:
        """Send a restarted storage the queues that are here; it may have forgotten their moves."""
        versions = [
            (key.removeprefix("version "), version) for key, version in self._store.items("version ", int)
        ]
        return [
            Send(unit, HoldsQueue(device, version))
            for device, version in versions
            if self._find_moved(device, 0) is None
        ]

    def _release_queue(self, now_us: int, device: str, to: str, version: int) -> Sequence[Effect]:
        """Move a queue to the storage that has it; this store was rolled back to before the move."""
        moved = self._store.get(f"moved {device}", QueueMoved)
        if version <= max(self._queue_version(device), 0 if moved is None else moved.version):
            return ()
        self._store.put(f"version {device}", version - 1)
        lost = rollback_incident(self._me, f"it does not know that the queue of {device} has moved to {to}")
        return (lost, *self._move_queue(now_us, device, to))

    def _is_own(self, do: ExecuteOps) -> bool:
        """Return whether all addresses in operations are of this cloud and items come from a push."""
        for op in do.ops:
            match op:
                case ReadQueue(here=here, watcher=watcher):
                    if here not in self._units or (watcher is not None and watcher not in self._gateways):
                        return False
                case MoveQueue(to=to) if to not in self._units:
                    return False
                case AppendEntry(entry=Entry(message=Data())) if not isinstance(do.task.what, Push):
                    return False
        return True

    def _restore(self, now_us: int) -> list[Effect]:
        """Continue from the store: send moves, notify connected devices, announce a restart."""
        self._cache = ItemCache(self._store, self._max_cached)
        self._groups = PublisherGroups(self._store)
        effects: list[Effect] = []
        if self._store.get("started", bool):
            self._incarnation = Incarnation(self._ports).id
            others = [address for address in (*self._gateways, *self._units) if address != self._me]
            effects += [Send(address, ServerRestarted()) for address in others]
        self._store.put("started", True)
        for unit in self._units:
            for seq, _ in self._move_outbox(unit).sendable_items():
                effects += self._send_move(now_us, unit, seq)
        for key, watcher in self._store.items("watcher ", _Watcher):
            device = key.removeprefix("watcher ")
            self._device(device).watcher = watcher
            effects += self._notify_device(now_us, device)
        return effects

    def _execute(self, now_us: int, source: str, do: ExecuteOps) -> Sequence[Effect]:
        """Execute the operations of a message in their order; send their answers back with the task."""
        answers: list[Answer] = []
        effects: list[Effect] = []
        for op in do.ops:
            answer, more = self._execute_op(now_us, op, do.task)
            answers.append(answer)
            effects += more
        return (*effects, Send(source, OpsExecuted(answers, self._with_incarnation(do.task))))

    def _with_incarnation(self, task: Task) -> Task:
        """Return a task with the incarnation of this storage, if it has one."""
        if not isinstance(self._incarnation, str):
            return task
        known = task.storage_incarnations if isinstance(task.storage_incarnations, list) else []
        return replace(task, storage_incarnations=[*known, *({self._incarnation} - set(known))])

    def _execute_op(self, now_us: int, op: Op, task: Task) -> tuple[Answer, Sequence[Effect]]:
        """Execute an operation; return its answer and further effects.

        On a queue that has moved it is not executed, and the answer is the new place.
        """
        match op:
            case CacheItem():
                self._cache.put(op)
            case FindItem():
                return self._cache.get(op), ()
            case AddMember(group=group, member=member):
                return self._groups.join(now_us, group, member, _request_number(task)), ()
            case RemoveMember(group=group, member=member):
                self._groups.leave(group, member, _request_number(task))
            case SpreadFilter(group=group, filter=message):
                return self._groups.add_filter(now_us, group, message), ()
            case _:
                version = op.version if isinstance(op.version, int) else 0
                moved = self._find_moved(op.device, version)
                return self._execute_queue_op(now_us, op, task) if moved is None else (moved, ())
        return "ok", ()

    def _execute_queue_op(
        self,
        now_us: int,
        op: ShowFriends | AppendEntry | ReadQueue | DropEntries | WithdrawFrom | MoveQueue,
        task: Task,
    ) -> tuple[Answer, Sequence[Effect]]:
        """Execute an operation on a queue that is here, and return its answer."""
        what = task.what
        match op:
            case ShowFriends(device=device, friends=friends):
                self._store_white_list(device, _WhiteList(friends, _request_number(task)))
            case AppendEntry(device=device, entry=entry):
                # items are numbered by their push, filters and keys by themselves
                is_item = isinstance(entry.message, Data)
                number = what.number if is_item and isinstance(what, Push) else entry.seq
                return self._append_entry(now_us, device, QueueEntry(**asdict(entry), number=number))
            case ReadQueue():
                return self._read_page(now_us, op, task.client)
            case DropEntries(device=device, numbers=numbers, storage_incarnation=incarnation):
                for number in numbers if incarnation == self._incarnation else ():
                    self._device(device).queue.drop(number)
            case WithdrawFrom(device=device, source=source, number=number):
                self._withdraw_messages(device, source, number)
            case MoveQueue(device=device, to=to) if to != self._me:  # already here
                return "ok", self._move_queue(now_us, device, to)
        return "ok", ()

    def _white_list(self, device: str) -> _WhiteList:
        """Return the white-list that a device has shown; an empty record if it has shown none."""
        return self._store.get(f"white {device}", _WhiteList) or _WhiteList()

    def _store_white_list(self, device: str, shown: _WhiteList) -> None:
        """Store the white-list of a device unless a later one is stored."""
        if shown.number >= self._white_list(device).number:
            self._store.put(f"white {device}", shown)

    # -- queues

    def _device(self, name: str) -> _DeviceState:
        """Return the state of a device in memory; create it at the first call of this start."""
        if name not in self._devices:
            self._devices[name] = _DeviceState(Queue(self._store, name))
        return self._devices[name]

    def _append_entry(self, now_us: int, device: str, entry: QueueEntry) -> tuple[str, Sequence[Effect]]:
        """Append an entry to a queue, and notify its device; return the result as a word.

        ``ok``, or why nothing was appended: ``stranger`` (a filter of no friend), ``obsolete`` (withdrawn, or
        a later one is there), ``backlogged`` (full).
        """
        message = entry.message
        if isinstance(message, Filter):
            friends = self._white_list(device).friends
            if friends is not None and message.source not in friends:
                return "stranger", ()
        if entry.number <= self._withdrawn_up_to(device, message.source):
            return "obsolete", ()  # withdrawn before it arrived
        done = self._device(device).queue.append(now_us, entry, self._max_waiting)
        return done, self._notify_device(now_us, device) if done == "ok" else ()

    def _read_page(self, now_us: int, op: ReadQueue, client: str) -> tuple[Page, Sequence[Effect]]:
        """Return the first page of a queue; record the gateway to be notified, and count visits."""
        device = self._device(op.device)
        watcher = None if op.watcher is None else _Watcher(op.watcher, client)
        effects = self._set_watcher(now_us, op.device, watcher)
        if op.begins:
            device.times = device.times + 1 if device.centre == op.here else 1
            device.centre = op.here
        page, is_more = device.queue.read(now_us, op.most_bytes)
        return Page(page, is_more, device.times, self._incarnation), effects

    def _set_watcher(self, now_us: int, name: str, watcher: _Watcher | None) -> Sequence[Effect]:
        """Store the gateway with a device's connection (None: not connected); stop notifying the device."""
        device = self._device(name)
        if device.watcher != watcher:
            device.watcher = watcher
            if watcher is None:
                self._store.delete(f"watcher {name}")
            else:
                self._store.put(f"watcher {name}", watcher)
        return self._notified.settle(now_us, name)

    def _notify_device(self, now_us: int, name: str) -> Sequence[Effect]:
        """Notify a connected device that its queue is not empty, again and again until it reads."""
        device = self._device(name)
        if device.watcher is None or not device.queue:
            return self._notified.settle(now_us, name)
        return (Send(device.watcher.gateway, QueueFilled(name)), *self._notified.start(now_us, name))

    def _withdraw_messages(self, device: str, source: str, number: int) -> None:
        """Remove the messages of ``source`` from a queue up to a number, also those that come late."""
        if number > self._withdrawn_up_to(device, source):
            self._store.put(f"withdrawn {device}\n{source}", number)
        self._device(device).queue.withdraw(source, number)

    def _withdrawn_up_to(self, device: str, source: str) -> int:
        """Return the number up to which ``source`` has withdrawn its messages to a device; 0: nothing."""
        return self._store.get(f"withdrawn {device}\n{source}", int) or 0

    # -- data centres

    def _queue_version(self, device: str) -> int:
        """Return the last version of a queue known here: its number of moves."""
        return self._store.get(f"version {device}", int) or 0

    def _find_moved(self, device: str, version: int) -> QueueMoved | None:
        """Return the place of a queue that has moved; None: it is here, or is about to arrive.

        In the latter case its ``version`` is stored. A queue that comes here by the move of a number was not
        moved on by a move of the same number. Two storages that say so of each other would otherwise send it
        back and forth for ever.
        """
        moved = self._store.get(f"moved {device}", QueueMoved)
        if moved is not None and moved.version > version:
            return moved
        if version > self._queue_version(device):
            self._store.put(f"version {device}", version)
            self._store.delete(f"moved {device}")
        return None

    def _move_queue(self, now_us: int, device: str, to: str) -> Sequence[Effect]:
        """Send a queue to another storage, and redirect later operations on it."""
        prefix, version = f"withdrawn {device}\n", self._queue_version(device) + 1
        withdrawn = {key.removeprefix(prefix): number for key, number in self._store.items(prefix, int)}
        notified, shown = self._notify_device(now_us, device), self._white_list(device)
        self._store.put(f"moved {device}", QueueMoved(to, version))
        moving = QueueTransfer(
            origin=self._me,
            incarnation=self._move_outbox(to).incarnation,
            number=0,
            device=device,
            version=version,
            friends=shown.friends,
            friends_number=shown.number,
            entries=self._device(device).queue.clear(),
            open_from=0,
            withdrawn=withdrawn or msgspec.UNSET,
        )
        return (*notified, *self._set_watcher(now_us, device, None), *self._enqueue_move(now_us, to, moving))

    def _move_outbox(self, unit: str) -> Outbox[QueueTransfer]:
        """Return the outbox of unacknowledged moves to another storage."""
        if unit not in self._moves:
            self._moves[unit] = Outbox(self._ports, QueueTransfer, f"moving {unit}")
        return self._moves[unit]

    def _enqueue_move(self, now_us: int, to: str, moving: QueueTransfer) -> Sequence[Effect]:
        """Store a move, and send it unless moves of an earlier incarnation are unacknowledged."""
        moves = self._move_outbox(to)
        seq = moves.add(moving)
        is_first = moves.item_id(seq).incarnation == moves.item_id(moves.first_seq).incarnation
        return self._send_move(now_us, to, seq) if is_first else ()

    def _send_move(self, now_us: int, to: str, seq: int) -> Sequence[Effect]:
        """Send a stored move with its name, and retransmit it until it is acknowledged."""
        moves = self._move_outbox(to)
        incarnation, number = moves.item_id(seq)
        first = moves.item_id(moves.first_seq).number
        message = replace(moves[seq], incarnation=incarnation, number=number, open_from=first)
        return (Send(to, message), *self._in_flight.start(now_us, (to, seq), size_bytes(message)))

    def _acknowledge_move(self, now_us: int, unit: str, incarnation: str, number: int) -> Sequence[Effect]:
        """Remove an acknowledged move; after the last of an incarnation, send those of the next."""
        moves = self._move_outbox(unit)
        seq = moves.seq_of(incarnation, number)
        if moves.ack(seq) is None:
            return ()
        effects = list(self._in_flight.settle(now_us, (unit, seq)))
        for seq, _ in moves.sendable_items():
            if (unit, seq) not in self._in_flight:
                effects += self._send_move(now_us, unit, seq)
        return effects

    def _adopt_queue(self, now_us: int, source: str, moving: QueueTransfer) -> Sequence[Effect]:
        """Append a moved queue here, once and in the order of its origin's moves; acknowledge it."""
        incarnation, number = moving.incarnation, moving.number
        after = 0 if number == moving.open_from else None
        place = self._adopted.classify(source, incarnation, number, after)
        if place is ItemOrder.EARLY:
            return ()
        adopted = Send(source, QueueAdopted(incarnation, number))
        if place is ItemOrder.DUPLICATE:
            return (adopted,)
        self._adopted.mark_taken(source, incarnation, number)
        device = moving.device
        moved = self._find_moved(device, moving.version)
        if moved is not None:  # moved on before it arrived
            moving = replace(
                moving,
                origin=self._me,
                incarnation=self._move_outbox(moved.moved).incarnation,
                version=moved.version,
            )
            return (adopted, *self._enqueue_move(now_us, moved.moved, moving))
        self._store_white_list(device, _WhiteList(moving.friends, moving.friends_number))
        if isinstance(moving.withdrawn, dict):
            for sender, up_to in moving.withdrawn.items():
                self._withdraw_messages(device, sender, up_to)
        queue, capacity = self._device(device).queue, self._max_waiting + len(moving.entries)
        for entry in moving.entries:
            if entry.number > self._withdrawn_up_to(device, entry.message.source):
                queue.append(now_us, entry, capacity)
        return (adopted, *self._notify_device(now_us, device))


def _request_number(task: Task) -> int:
    """Return the number of the request of a task; 0 for a pull, which has none."""
    return 0 if isinstance(task.what, Pull) else task.what.number

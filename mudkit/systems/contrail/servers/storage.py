"""Storage of one data centre: queues of devices, the item cache, white-lists, groups (Contrail 4.2.2).

It does what compute instances ask for, all of one request in one transaction:

========  ==========================================================================================
join      the device has a queue, and perhaps shows its white-list
append    into the queue of a device, unless that is full, or the sender is no friend of the device
read      what waits and has neither expired nor become obsolete; the device that reads may be told
          when more comes
drop      what a device has got
cache     the ciphertext of an item
cached    that ciphertext, if it is the copy that is meant
member    a device is in a group: the filters that wait for it there go to it
unmember  it has left
spread    a filter for a group: kept, for the members that it is addressed to and those that come later
withdraw  what a device has sent to another one before goes out of the queue of that
move      a queue goes to another data centre; who asks here from then on is sent there
========  ==========================================================================================

What is kept is bounded: by device the items, and the filters and keys, that wait (``most_waiting``,
``MOST_CONTROLS``), the cache (``most_cached``), a white-list, where its queue has gone; by device and group
the filters (``MOST_FILTERS``); by data centre the moves that are under way; by two devices the last time that
one has withdrawn something from the other.

It takes messages of its cloud's compute instances, storages and gateways only. Who waits for more is told so
until it asks, or its gateway says that it holds no connection any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from mudkit.events import CancelTimer, Effect, Event, Ports, Received, Send, SetTimer, TimerFired
from mudkit.systems.contrail.messages.cloud import Gone
from mudkit.systems.contrail.messages.storage import Adopted, Do, Moving
from mudkit.systems.contrail.servers.cache import ItemCache
from mudkit.systems.contrail.servers.groups import PublisherGroups
from mudkit.systems.contrail.servers.moves import Moves
from mudkit.systems.contrail.servers.queues import Queue
from mudkit.systems.receiving import Accepts, dropped

__all__ = ["Storage"]

_AGAIN: Final = "again"
_AGAIN_US: Final = 1_000_000
_TELL: Final = "tell again "
_TELL_US: Final = 20_000_000
"""A device that is told of something asks for it at once; a slow link takes 7 s, and others may go first."""
_OF_COMPUTE: Final = Accepts(Do)
_OF_STORAGE: Final = Accepts(Moving, Adopted)
_OF_GATEWAYS: Final = Accepts(Gone)


class Storage:
    """The storage of one data centre.

    Parameters
    ----------
    ports : Ports
    most_waiting : int
        Items in the queue of a device.
    most_cached : int
        Items of a device in the cache.
    computes, units, gateways : collection of str
        Addresses of the cloud's compute instances, storages and gateways, of all data centres.
    """

    def __init__(
        self,
        ports: Ports,
        most_waiting: int,
        most_cached: int,
        *,
        computes: Collection[str],
        units: Collection[str],
        gateways: Collection[str],
    ) -> None:
        self._store = ports.store
        self._computes, self._units, self._gateways = computes, units, gateways
        self._me = ports.address
        self._most_waiting, self._most_cached = most_waiting, most_cached
        self._queues: dict[str, Queue] = {}
        self._watchers: dict[str, str] = {}
        """Gateways that hold a connection with a device, as they are stored."""
        self._notified: set[str] = set()
        """Devices that were told that something waits, and have not asked since."""
        self._visits: dict[str, tuple[str, int]] = {}
        """How often running a device has come to which data centre."""
        self._is_awake = False
        self._effects: list[Effect] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._effects = []
        if not self._is_awake:
            self._is_awake = True
            self._wake()
        match event:
            case Received(source=source, message=message) if not self._takes(source, message):
                return dropped(event)
            case Received(source=source, message={"kind": "do", "ops": ops, "ctx": ctx}):
                results = [self._do(now_us, op, ctx) for op in ops]
                self._effects.append(Send(source, {"kind": "done", "results": results, "ctx": ctx}))
            case Received(source=source, message={"kind": "moving"} as message):
                self._adopt(now_us, message)
                self._effects.append(Send(source, {"kind": "adopted", "number": message["number"]}))
            case Received(message={"kind": "adopted", "number": number}):
                self._moves.adopted(number)
            case Received(message={"kind": "gone", "device": device}):
                self._watch(device, None)
            case TimerFired(name=name):
                if name == _AGAIN:
                    self._send_moving()
                else:
                    self._tell_watcher(name.removeprefix(_TELL))
        return self._effects

    def _takes(self, source: str, message: Any) -> bool:
        """Say whether a message is of its own cloud."""
        if source in self._computes:
            return _OF_COMPUTE(message) and self._knows(message["ops"], message["ctx"]["what"])
        if source in self._units:
            return _OF_STORAGE(message)
        return source in self._gateways and _OF_GATEWAYS(message)

    def _knows(self, ops: Sequence[Mapping[str, Any]], what: Mapping[str, Any]) -> bool:
        """Say whether all that is named is of its own cloud, and items are what somebody has sent."""
        for op in ops:
            match op:
                case {"op": "read", "here": here, "watcher": watcher}:
                    if here not in self._units or (watcher is not None and watcher not in self._gateways):
                        return False
                case {"op": "move", "to": to} if to not in self._units:
                    return False
                case {"op": "append", "entry": {"message": {"kind": "data"}}} if what["kind"] != "send":
                    return False
        return True

    def _wake(self) -> None:
        """Look through what another life has left, once."""
        self._cache = ItemCache(self._store, self._most_cached)
        self._groups = PublisherGroups(self._store)
        self._moves = Moves(self._store, self._me)
        for key, entry in self._store.items("queue "):
            device, number = key.removeprefix("queue ").split("\n")
            self._queue(device).note(int(number), entry)
        self._send_moving()
        for key, watcher in self._store.items("watcher "):
            device = key.removeprefix("watcher ")
            self._watchers[device] = watcher
            self._tell_watcher(device)

    def _do(self, now_us: int, op: Mapping[str, Any], ctx: Mapping[str, Any]) -> Any:
        if "device" in op:
            moved = self._moves.gone(op["device"], op.get("version", 0))
            if moved is not None:
                return {"moved": moved["to"], "version": moved["version"]}
        match op["op"]:
            case "join":
                self._store.put(f"white {op['device']}", op["friends"])
            case "append":
                return self._append(now_us, op["device"], _numbered(op["entry"], ctx["what"]))
            case "read":
                return self._read(now_us, op)
            case "drop":
                queue = self._queue(op["device"])
                for number in op["numbers"]:
                    queue.drop(number)
            case "cache":
                self._cache.put(op)
            case "cached":
                return self._cache.get(op)
            case "member":
                return self._groups.join(now_us, op["group"], op["member"])
            case "unmember":
                self._groups.leave(op["group"], op["member"])
            case "spread":
                return self._groups.spread(now_us, op["group"], op["filter"])
            case "withdraw":
                self._withdraw(op["device"], op["source"], op["number"])
            case "move" if op["to"] != self._me:  # it may have come here meanwhile
                self._move(op["device"], op["to"])
        return "ok"

    # -- queues

    def _queue(self, device: str) -> Queue:
        if device not in self._queues:
            self._queues[device] = Queue(self._store, device)
        return self._queues[device]

    def _append(self, now_us: int, device: str, entry: Mapping[str, Any]) -> str:
        message = entry["message"]
        if message["kind"] == "filter":
            friends = self._store.get(f"white {device}")
            if friends is not None and message["from"] not in friends:
                return "stranger"
        if entry["number"] <= self._withdrawn(device).get(message["from"], 0):
            return "obsolete"  # it comes late
        done = self._queue(device).append(now_us, entry, self._most_waiting)
        if done == "ok":
            self._tell_watcher(device)
        return done

    def _read(self, now_us: int, op: Mapping[str, Any]) -> dict[str, Any]:
        device = op["device"]
        self._watch(device, op["watcher"])
        if op["begins"]:
            where, times = self._visits.get(device, (op["here"], 0))
            self._visits[device] = op["here"], times + 1 if where == op["here"] else 1
        page, is_more = self._queue(device).read(now_us, op["most_bytes"])
        return {"page": page, "more": is_more, "times": self._visits.get(device, ("", 0))[1]}

    def _watch(self, device: str, gateway: str | None) -> None:
        """Take note of who holds a connection with a device now; that it was told of something is over."""
        if device in self._notified:
            self._notified.discard(device)
            self._effects.append(CancelTimer(f"{_TELL}{device}"))
        if self._watchers.get(device) == gateway:
            return
        if gateway is None:
            del self._watchers[device]
            self._store.delete(f"watcher {device}")
        else:
            self._watchers[device] = gateway
            self._store.put(f"watcher {device}", gateway)

    def _tell_watcher(self, device: str) -> None:
        """Tell a device that something waits, and again, until it asks."""
        if device in self._watchers and len(self._queue(device)):
            self._effects += [
                Send(self._watchers[device], {"kind": "filled", "device": device}),
                SetTimer(f"{_TELL}{device}", _TELL_US),
            ]
            self._notified.add(device)

    def _withdraw(self, device: str, source: str, number: int) -> None:
        """Take out of a queue what somebody has put there before, and what of it comes later."""
        if number > self._withdrawn(device).get(source, 0):
            self._store.put(f"withdrawn {device}\n{source}", number)
        self._queue(device).withdraw(source, number)

    def _withdrawn(self, device: str) -> dict[str, int]:
        prefix = f"withdrawn {device}\n"
        return {key.removeprefix(prefix): number for key, number in self._store.items(prefix)}

    # -- data centres

    def _move(self, device: str, to: str) -> None:
        queue = self._queue(device)
        friends = self._store.get(f"white {device}")
        withdrawn = self._withdrawn(device)
        self._moves.begin(
            device,
            to,
            {
                "friends": friends,
                "entries": list(queue.entries()),
                **({"withdrawn": withdrawn} if withdrawn else {}),
            },
        )
        self._tell_watcher(device)
        self._watch(device, None)
        queue.clear()
        self._send_moving()

    def _send_moving(self) -> None:
        moving = self._moves.under_way()
        if moving:
            self._effects += [Send(each["to"], each) for each in moving]
            self._effects.append(SetTimer(_AGAIN, _AGAIN_US))

    def _adopt(self, now_us: int, message: Mapping[str, Any]) -> None:
        device = message["device"]
        if not self._moves.take(message):
            return
        moved = self._moves.gone(device, message["version"])
        if moved is not None:  # it comes late: the queue is not here any more
            self._moves.hand_on(moved["to"], {**message, "version": moved["version"]})
            self._send_moving()
            return
        if self._store.get(f"white {device}") is None:
            self._store.put(f"white {device}", message["friends"])
        for source, number in message.get("withdrawn", {}).items():
            self._withdraw(device, source, number)
        withdrawn = self._withdrawn(device)
        for entry in message["entries"]:
            if entry["number"] <= withdrawn.get(entry["message"]["from"], 0):
                continue
            self._queue(device).append(now_us, entry, self._most_waiting + len(message["entries"]))
        self._tell_watcher(device)


def _numbered(entry: Mapping[str, Any], what: Mapping[str, Any]) -> dict[str, Any]:
    """Give an entry of a queue with the number by which its sender may withdraw it.

    Filters and keys have one; of an item it is that of the push which it came with.
    """
    is_item = entry["message"]["kind"] == "data"
    return {**entry, "number": what["number"] if is_item else entry["seq"]}

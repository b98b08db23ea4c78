"""Queue of a device: durable messages by topic and rank, with a capacity."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from mudkit.events import Store
from mudkit.systems.lasthop.messages import Content
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, NOWHERE, Message, Ranked

_KEY: Final = "queue\n"
_PLACE: Final = 0
_MAX_DEAD: Final = 64

_Entry = tuple[float, int, int, str, Message]


class _StoredMessage(msgspec.Struct, frozen=True):
    """A message in the store; ``expires_us`` is null if it never expires."""

    rank: float
    order: int
    expires_us: int | None
    content: Content


class DeviceQueue:
    """Durable queues of a device's topics; ``capacity`` is the maximum number of messages in all of them."""

    def __init__(self, store: Store, capacity: float) -> None:
        self._store = store
        self._capacity = capacity
        self._queues: dict[str, Ranked] = {}
        self._known: dict[tuple[str, str], tuple[Message, Content]] = {}
        self._expiries: list[tuple[int, int, str, Message]] = []
        self._lowest: list[_Entry] = []
        self._count = 0
        for key, kept in store.items(_KEY, _StoredMessage):
            _, topic, identity = key.split("\n", 2)
            self._add_to_memory(topic, identity, kept)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._known

    def size(self, topic: str) -> int:
        """Return the number of queued messages of a topic."""
        queue = self._queues.get(topic)
        return 0 if queue is None else queue.size

    def put(
        self,
        topic: str,
        identity: str,
        rank: float,
        order: int,
        expires_us: int | None,
        content: Content,
    ) -> None:
        """Store a new message in the queue of its topic."""
        kept = _StoredMessage(rank, order, expires_us, content)
        self._store.put(_store_key(topic, identity), kept)
        self._add_to_memory(topic, identity, kept)

    def rerank(self, topic: str, identity: str, rank: float) -> None:
        """Change the rank of a message, if it is queued."""
        if (topic, identity) not in self._known:
            return
        message, content = self._known[topic, identity]
        self._queues[topic].rerank(message, rank)
        self._push_lowest(topic, message)
        expires_us = None if message.expires_us == FOREVER_US else message.expires_us
        self._store.put(_store_key(topic, identity), _StoredMessage(rank, message.order, expires_us, content))

    def remove(self, topic: str, identity: str) -> Content | None:
        """Remove a message, and return its content; None if it is not queued."""
        if (topic, identity) not in self._known:
            return None
        content = self._content(topic, identity)
        self._queues[topic].remove(self._known[topic, identity][0])
        self._forget_message(topic, identity)
        return content

    def take(self, topic: str, max_messages: float) -> list[tuple[str, Content, int]]:
        """Remove and return the best messages of a topic, as identity, content and time of expiration."""
        queue = self._queues.get(topic)
        taken: list[tuple[str, Content, int]] = []
        while queue is not None and queue.size and len(taken) < max_messages:
            message = queue.pop()
            identity = str(message.identity)
            taken.append((identity, self._content(topic, identity), message.expires_us))
            self._forget_message(topic, identity)
        return taken

    def expire(self, now_us: int) -> None:
        """Remove expired messages."""
        while self._expiries and self._expiries[0][0] <= now_us:
            _, _, topic, message = heappop(self._expiries)
            if message.place != NOWHERE:
                self.remove(topic, str(message.identity))

    def make_room(self) -> list[tuple[str, str]]:
        """Remove the lowest ranks, of equals the latest, beyond the capacity; return their names."""
        dropped = []
        while len(self._known) > self._capacity:
            rank, _, _, topic, message = heappop(self._lowest)
            if message.place != NOWHERE and message.rank == rank:
                self.remove(topic, str(message.identity))
                dropped.append((topic, str(message.identity)))
        return dropped

    def ranks(self, topic: str) -> dict[str, float]:
        """Return the ranks of the queued messages of a topic by identity."""
        return {str(message.identity): message.rank for message in self._queues.get(topic, ())}

    def last_order(self, topic: str) -> int:
        """Return the highest arrival number of the messages of a topic; 0: it has none."""
        return max((message.order for message in self._queues.get(topic, ())), default=0)

    def end(self, topic: str) -> None:
        """Remove all messages of a topic whose subscription has ended."""
        for identity in self.ranks(topic):
            self.remove(topic, identity)
        self._queues.pop(topic, None)

    def _add_to_memory(self, topic: str, identity: str, kept: _StoredMessage) -> None:
        """Add a stored message to the queue of its topic and to the heaps of ranks and expirations."""
        expires_us = kept.expires_us
        message = Message(
            identity, kept.rank, kept.order, 0, FOREVER_US if expires_us is None else expires_us
        )
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = Ranked(_PLACE)
        queue.add(message)
        self._known[topic, identity] = message, kept.content
        if expires_us is not None:
            heappush(self._expiries, (expires_us, self._count, topic, message))
        self._push_lowest(topic, message)

    def _push_lowest(self, topic: str, message: Message) -> None:
        """Add a message to the heap from which :meth:`make_room` takes the lowest rank."""
        self._count += 1
        heappush(self._lowest, (message.rank, -message.order, self._count, topic, message))

    def _content(self, topic: str, identity: str) -> Content:
        """Return the content of a message with its current rank."""
        message, content = self._known[topic, identity]
        return {**content, "rank": message.rank}

    def _forget_message(self, topic: str, identity: str) -> None:
        """Delete a message from memory and store; clean the heaps when most of their entries are dead."""
        del self._known[topic, identity]
        self._store.delete(_store_key(topic, identity))
        max_entries = 2 * len(self._known) + _MAX_DEAD
        if len(self._lowest) > max_entries:
            self._lowest = [
                entry for entry in self._lowest if entry[4].place != NOWHERE and entry[4].rank == entry[0]
            ]
            heapify(self._lowest)
        if len(self._expiries) > max_entries:
            self._expiries = [entry for entry in self._expiries if entry[3].place != NOWHERE]
            heapify(self._expiries)


def _store_key(topic: str, identity: str) -> str:
    """Return the key of a message in the store."""
    return f"{_KEY}{topic}\n{identity}"

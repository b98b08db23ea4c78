"""What lies on a device: messages by topic and rank, as many as there is room for."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from mudkit.events import Store
from mudkit.systems.lasthop.messages import Content
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, NOWHERE, Message, Ranked

__all__ = ["DeviceQueue"]

_KEY: Final = "queue\n"
_PLACE: Final = 0
_MAX_DEAD: Final = 64

_Entry = tuple[float, int, int, str, Message]


class _Kept(msgspec.Struct, frozen=True):
    """A message as the store keeps it; ``expires_us`` is null of one that does not expire."""

    rank: float
    order: int
    expires_us: int | None
    content: Content


class DeviceQueue:
    """The queues of a device's topics; they outlive the machine.

    Parameters
    ----------
    store : Store
    capacity : float
        The number of messages of all topics that have room.
    """

    def __init__(self, store: Store, capacity: float) -> None:
        self._store = store
        self._capacity = capacity
        self._queues: dict[str, Ranked] = {}
        self._known: dict[tuple[str, str], tuple[Message, Content]] = {}
        self._expiries: list[tuple[int, int, str, Message]] = []
        self._lowest: list[_Entry] = []
        self._count = 0
        for key, kept in store.items(_KEY, _Kept):
            _, topic, identity = key.split("\n", 2)
            self._add(topic, identity, kept)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, place: tuple[str, str]) -> bool:
        return place in self._known

    def size(self, topic: str) -> int:
        """Return the number of messages of a topic."""
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
        """Keep a message that is not there."""
        kept = _Kept(rank, order, expires_us, content)
        self._store.put(_key(topic, identity), kept)
        self._add(topic, identity, kept)

    def rank(self, topic: str, identity: str, rank: float) -> None:
        """Give a message another rank, if it is there."""
        if (topic, identity) not in self._known:
            return
        message, content = self._known[topic, identity]
        self._queues[topic].rerank(message, rank)
        self._rate(topic, message)
        self._store.put(_key(topic, identity), _Kept(rank, message.order, _expires(message), content))

    def drop(self, topic: str, identity: str) -> Content | None:
        """Take a message out, and give its content; None: it is not there."""
        if (topic, identity) not in self._known:
            return None
        content = self._content(topic, identity)
        self._queues[topic].remove(self._known[topic, identity][0])
        self._forget(topic, identity)
        return content

    def take(self, topic: str, most: float) -> list[tuple[str, Content]]:
        """Take the best of a topic out, and give their identities and contents."""
        queue = self._queues.get(topic)
        taken: list[tuple[str, Content]] = []
        while queue is not None and queue.size and len(taken) < most:
            identity = str(queue.pop().identity)
            taken.append((identity, self._content(topic, identity)))
            self._forget(topic, identity)
        return taken

    def expire(self, now_us: int) -> None:
        """Let go what has expired."""
        while self._expiries and self._expiries[0][0] <= now_us:
            _, _, topic, message = heappop(self._expiries)
            if message.place != NOWHERE:
                self.drop(topic, str(message.identity))

    def make_room(self) -> list[tuple[str, str]]:
        """Let go the lowest ranks, of equals the last that came, until the rest has room; say which."""
        gone = []
        while len(self._known) > self._capacity:
            rank, _, _, topic, message = heappop(self._lowest)
            if message.place != NOWHERE and message.rank == rank:
                self.drop(topic, str(message.identity))
                gone.append((topic, str(message.identity)))
        return gone

    def held(self, topic: str) -> dict[str, float]:
        """Give what is there of a topic, with its ranks."""
        return {str(each.identity): each.rank for each in self._queues.get(topic, ())}

    def end(self, topic: str) -> None:
        """Let go all of a topic."""
        for identity in self.held(topic):
            self.drop(topic, identity)
        self._queues.pop(topic, None)

    def _add(self, topic: str, identity: str, kept: _Kept) -> None:
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
        self._rate(topic, message)

    def _rate(self, topic: str, message: Message) -> None:
        self._count += 1
        heappush(self._lowest, (message.rank, -message.order, self._count, topic, message))

    def _content(self, topic: str, identity: str) -> Content:
        """Give what a message is for its reader, with the rank that it has now."""
        message, content = self._known[topic, identity]
        return {**content, "rank": message.rank}

    def _forget(self, topic: str, identity: str) -> None:
        del self._known[topic, identity]
        self._store.delete(_key(topic, identity))
        most = 2 * len(self._known) + _MAX_DEAD
        if len(self._lowest) > most:
            self._lowest = [each for each in self._lowest if _is_alive(each)]
            heapify(self._lowest)
        if len(self._expiries) > most:
            self._expiries = [each for each in self._expiries if each[3].place != NOWHERE]
            heapify(self._expiries)


def _is_alive(entry: _Entry) -> bool:
    return entry[4].place != NOWHERE and entry[4].rank == entry[0]


def _expires(message: Message) -> int | None:
    return None if message.expires_us == FOREVER_US else message.expires_us


def _key(topic: str, identity: str) -> str:
    return f"{_KEY}{topic}\n{identity}"

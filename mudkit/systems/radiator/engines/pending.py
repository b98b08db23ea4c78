"""What waits for a receiver, and when it is let go: the core of Algorithm 3 (Radiator 3.1), from its prose.

======  ===============================================================================================
add     a message joins the queue of its threshold; a queue that has reached it is let go:
        volume: so many messages; people: so many different people in them;
        time: so long from its oldest message to its newest
walk    everything is added again from the oldest to the newest, with the thresholds as they are now
expire  a queue of time whose oldest message has waited so long is let go, though nothing new has come;
        any other whose oldest has waited for the retention: one of volume is let go, from one of people
        what has waited so long is dropped
======  ===============================================================================================

Time counts from the arrival at the server. It has no clock: the machine, the engine of groups and a query on
a stream use it alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from mudkit.systems.radiator.aggregation.thresholds import Key
from mudkit.systems.radiator.context import Context

__all__ = ["Batch", "Decide", "Message", "Pending"]


class Message(msgspec.Struct, frozen=True):
    """A context that a client has sent.

    Parameters
    ----------
    number : int
        The number in the order of arrival at the server.
    sender : str
        The client.
    arrived_us : int
    context : Context
    """

    number: int
    sender: str
    arrived_us: int
    context: Context


Batch: TypeAlias = tuple[Message, ...]
"""Messages that become one aggregate, the oldest first."""
Decide: TypeAlias = Callable[[Message], Key | None]
"""Gives the threshold of a message as of now; None: the function failed."""


class _Queue:
    __slots__ = ("again_us", "key", "messages", "people")

    def __init__(self, key: Key | None) -> None:
        self.key = key
        self.messages: list[Message] = []
        self.people: set[str] = set()
        self.again_us: int | None = None
        """When what could not be joined is to be walked again."""

    def due_us(self, retention_us: int) -> int:
        """Say when it is to be let go, or walked, though nothing new has come."""
        if self.again_us is not None:
            return self.again_us
        wait_us = retention_us
        if self.key is not None and self.key.kind == "time":
            wait_us = min(wait_us, self.key.value)
        return self.messages[0].arrived_us + wait_us


class Pending:
    """Queue of pending messages, shared by receivers with the same queue.

    Parameters
    ----------
    retention_us : int
        No message waits for longer, whatever its threshold.
    """

    __slots__ = ("_queues", "_retention_us", "dropped", "due_us", "is_private")

    def __init__(self, retention_us: int) -> None:
        self._retention_us = retention_us
        self._queues: dict[Key | None, _Queue] = {}
        self.due_us: float = math.inf
        """When :meth:`walk` or :meth:`expire` is next to be called, if nothing new comes."""
        self.dropped = 0
        """Messages that have waited too long for people."""
        self.is_private = False
        """Whether there was a threshold of people: then what no threshold is known for is dropped, too."""

    def __len__(self) -> int:
        return sum(len(queue.messages) for queue in self._queues.values())

    def messages(self) -> list[Message]:
        """Give what waits, the oldest first."""
        messages = [message for queue in self._queues.values() for message in queue.messages]
        messages.sort(key=_number)
        return messages

    def keyed(self) -> list[tuple[Message, Key | None]]:
        """Give what waits with its threshold; None: not known."""
        return [(message, key) for key, queue in self._queues.items() for message in queue.messages]

    def copy(self) -> Pending:
        """Give another one for which the same waits."""
        other = Pending(self._retention_us)
        other.due_us, other.is_private = self.due_us, self.is_private
        for key, queue in self._queues.items():
            other._queues[key] = copied = _Queue(key)
            copied.messages, copied.people = queue.messages.copy(), queue.people.copy()
            copied.again_us = queue.again_us
        return other

    def add(self, message: Message, key: Key | None) -> Batch | None:
        """Let a message wait that is newer than all others; give what goes by that.

        Parameters
        ----------
        message : Message
        key : Key or None
            Its threshold; None: not known, it waits.
        """
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key)
            queue.messages.append(message)
            self.due_us = min(self.due_us, queue.due_us(self._retention_us))
        else:
            queue.messages.append(message)
        messages = queue.messages
        if key is None:
            return None
        kind, value = key
        if kind == "volume":
            has_come = len(messages)
        elif kind == "people":
            self.is_private = True
            queue.people |= message.context.people
            has_come = len(queue.people)
        else:
            has_come = message.arrived_us - messages[0].arrived_us
        if has_come < value:
            return None
        del self._queues[key]
        self._set_due()
        return tuple(messages)

    def walk(self, now_us: int, decide: Decide, new: Message | None = None) -> list[Batch]:
        """Apply the thresholds as they are now to all that waits and to a new message; give what goes."""
        waiting = self.messages()
        if new is not None:
            waiting.append(new)
        self._queues.clear()
        self.due_us = math.inf
        gone = [batch for each in waiting if (batch := self.add(each, decide(each))) is not None]
        return [*gone, *self.expire(now_us)]

    def expire(self, now_us: int) -> list[Batch]:
        """Let go what nothing new will let go, in time; what was put back is to be walked instead."""
        if now_us < self.due_us:
            return []
        gone: list[Batch] = []
        for key, queue in list(self._queues.items()):
            if now_us < queue.due_us(self._retention_us):
                continue
            del self._queues[key]
            if (key.kind == "people") if key is not None else self.is_private:
                self._drop(now_us, queue)
            else:
                gone.append(tuple(queue.messages))
        self._set_due()
        return gone

    def put_back(self, messages: Iterable[Message], again_us: int) -> None:
        """Take back what could not be joined; it is tried again at the latest at a moment."""
        queue = self._queues.setdefault(None, _Queue(None))
        queue.messages = sorted([*queue.messages, *messages], key=_number)
        queue.again_us = again_us if queue.again_us is None else min(queue.again_us, again_us)
        self._set_due()

    def _drop(self, now_us: int, queue: _Queue) -> None:
        """Keep what has not waited too long."""
        kept = [each for each in queue.messages if now_us - each.arrived_us < self._retention_us]
        self.dropped += len(queue.messages) - len(kept)
        if kept:
            queue.messages, queue.people = kept, {name for each in kept for name in each.context.people}
            self._queues[queue.key] = queue

    def _set_due(self) -> None:
        self.due_us = min(
            (each.due_us(self._retention_us) for each in self._queues.values()), default=math.inf
        )


def _number(message: Message) -> int:
    return message.number

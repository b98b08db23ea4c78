"""State that all engines share: pending messages and current contexts (Algorithm 3, Radiator 3.1).

======  =============================================================================================
add     append a message to the queue of its threshold; release the queue if it has reached it:
        volume (number of messages), people (number of different people), time (from the oldest
        message to the newest)
walk    add all pending messages again, oldest to newest, with their current thresholds
expire  release a queue of time whose oldest message has reached its age, though nothing arrived; when
        the oldest has waited for the maximum retention, release any other queue, but drop the
        expired messages of a queue of people
======  =============================================================================================

Time counts from the arrival at the server. There is no clock: the server, the engine of groups and a stream
query pass the time in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, brief
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.thresholds import EvaluatedThreshold
from mudkit.wire import Fields


class Message(msgspec.Struct, frozen=True):
    """Context that a client has propagated.

    Parameters
    ----------
    number : int
        Position in the order of arrival at the server.
    sender : str
        Client id.
    arrived_us : int
        Time of arrival at the server, µs of virtual time.
    context : Context
    """

    number: int
    sender: str
    arrived_us: int
    context: Context


Batch: TypeAlias = tuple[Message, ...]
"""Messages of one aggregate, oldest first."""
Decide: TypeAlias = Callable[[Message], EvaluatedThreshold | None]
"""Function that returns the current threshold of a message; None: the aggregability function failed."""


class CurrentContexts:
    """Current context of each client: its last message, over the attributes of its registration (4.2).

    Contexts of clients that have left are kept for ``retention_us``, while their messages may be pending.
    """

    def __init__(self, retention_us: int) -> None:
        self._retention_us = retention_us
        self._last: dict[str, Context] = {}
        self._attributes: dict[str, Fields] = {}
        self._current: dict[str, Context] = {}
        self._left_us: dict[str, int] = {}

    def __getitem__(self, client: str) -> Context:
        """Return the context of a registered client."""
        return self._current[client]

    def of_sender(self, message: Message) -> Context:
        """Return the current context of a message's sender; the message's own if the sender left long ago."""
        return self._current.get(message.sender, message.context)

    def register(self, client: str, attributes: Fields) -> bool:
        """Set the attributes of a client; return whether it is new, with no message pending anywhere."""
        is_new = client not in self._last
        if self._left_us.pop(client, None) is not None:
            del self._last[client]
        self._attributes[client] = attributes
        last = self._last.setdefault(client, Context(frozenset((client,))))
        self._current[client] = last.with_defaults(attributes)
        return is_new

    def record_propagation(self, client: str, context: Context) -> None:
        """Set the last propagated context of a registered client; raise a ParameterError for others."""
        if client not in self._attributes:
            raise ParameterError(
                "Who sends must be registered.",
                where="sender",
                found=brief(client),
                expected="the name of a registered client",
                remedy="register it first, with its attributes",
            )
        self._last[client] = context
        self._current[client] = context.with_defaults(self._attributes[client])

    def mark_left(self, now_us: int, client: str) -> None:
        """Mark a client as left, and forget those whose messages have all expired."""
        self._left_us[client] = now_us
        for expired, left_us in list(self._left_us.items()):
            if now_us - left_us <= self._retention_us:
                return
            for by_client in (self._left_us, self._last, self._attributes, self._current):
                del by_client[expired]


class _ThresholdQueue:
    """Pending messages with one threshold, oldest first; ``key`` None: the threshold is not known."""

    __slots__ = ("key", "messages", "people", "retry_us")

    def __init__(self, key: EvaluatedThreshold | None) -> None:
        self.key = key
        self.messages: list[Message] = []
        self.people: set[str] = set()
        self.retry_us: int | None = None
        """Time of the next attempt to join messages that were put back."""

    def due_us(self, retention_us: int) -> int:
        """Return the time at which to expire or walk the queue if nothing arrives."""
        if self.retry_us is not None:
            return self.retry_us
        wait_us = retention_us
        if self.key is not None and self.key.kind == "time":
            wait_us = min(wait_us, self.key.value)
        return self.messages[0].arrived_us + wait_us


class Pending:
    """Pending messages of receivers that have the same ones, in one queue per threshold.

    Parameters
    ----------
    retention_us : int
        Maximum time that a message waits, whatever its threshold, µs.

    Attributes
    ----------
    due_us : float
        Time of the next :meth:`walk` or :meth:`expire` if nothing arrives; infinite: none.
    dropped : int
        Messages that have waited too long for a threshold of people.
    is_private : bool
        Whether there was a threshold of people; expired messages without a known threshold are then dropped.
    """

    __slots__ = ("_queues", "_retention_us", "dropped", "due_us", "is_private")

    @check_arguments
    def __init__(self, retention_us: int) -> None:
        self._retention_us = retention_us
        self._queues: dict[EvaluatedThreshold | None, _ThresholdQueue] = {}
        self.due_us: float = math.inf
        self.dropped = 0
        self.is_private = False

    def __len__(self) -> int:
        return sum(len(queue.messages) for queue in self._queues.values())

    def messages(self) -> list[Message]:
        """Return the pending messages, oldest first."""
        messages = [message for queue in self._queues.values() for message in queue.messages]
        messages.sort(key=_arrival_number)
        return messages

    def messages_with_thresholds(self) -> list[tuple[Message, EvaluatedThreshold | None]]:
        """Return pairs of a pending message and its threshold; None: not known."""
        return [(message, key) for key, queue in self._queues.items() for message in queue.messages]

    def copy(self) -> Pending:
        """Return a copy with the same pending messages."""
        other = Pending(self._retention_us)
        other.due_us, other.is_private = self.due_us, self.is_private
        for key, queue in self._queues.items():
            other._queues[key] = copied = _ThresholdQueue(key)
            copied.messages, copied.people = queue.messages.copy(), queue.people.copy()
            copied.retry_us = queue.retry_us
        return other

    def add(self, message: Message, key: EvaluatedThreshold | None) -> Batch | None:
        """Add a ``message`` newer than all others; return the batch that it completes.

        ``key`` is its evaluated threshold; None: not known, the message waits.
        """
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _ThresholdQueue(key)
            queue.messages.append(message)
            self.due_us = min(self.due_us, queue.due_us(self._retention_us))
        else:
            queue.messages.append(message)
        messages = queue.messages
        if key is None:
            return None
        kind, value = key
        if kind == "volume":
            reached = len(messages)
        elif kind == "people":
            self.is_private = True
            queue.people |= message.context.people
            reached = len(queue.people)
        else:
            reached = message.arrived_us - messages[0].arrived_us
        if reached < value:
            return None
        del self._queues[key]
        self._set_due()
        return tuple(messages)

    def walk(self, now_us: int, decide: Decide, new: Message | None = None) -> list[Batch]:
        """Apply the current thresholds (``decide``) to all pending messages and a new one; return batches."""
        waiting = self.messages()
        if new is not None:
            waiting.append(new)
        self._queues.clear()
        self.due_us = math.inf
        released = [batch for message in waiting if (batch := self.add(message, decide(message))) is not None]
        return [*released, *self.expire(now_us)]

    def expire(self, now_us: int) -> list[Batch]:
        """Release and return the batches that are due by time; drop and count messages beyond the retention.

        No effect before :attr:`due_us`. If messages were put back, call :meth:`walk` instead.
        """
        if now_us < self.due_us:
            return []
        released: list[Batch] = []
        for key, queue in list(self._queues.items()):
            if now_us < queue.due_us(self._retention_us):
                continue
            del self._queues[key]
            if (key.kind == "people") if key is not None else self.is_private:
                self._put_back_unexpired(now_us, queue)
            else:
                released.append(tuple(queue.messages))
        self._set_due()
        return released

    def put_back(self, messages: Iterable[Message], retry_us: int) -> None:
        """Restore messages that could not be joined, and schedule the next attempt at ``retry_us``."""
        queue = self._queues.setdefault(None, _ThresholdQueue(None))
        queue.messages = sorted([*queue.messages, *messages], key=_arrival_number)
        queue.retry_us = retry_us if queue.retry_us is None else min(queue.retry_us, retry_us)
        self._set_due()

    def _put_back_unexpired(self, now_us: int, queue: _ThresholdQueue) -> None:
        """Put a queue back without the messages that have waited for the retention, which are counted."""
        kept = [message for message in queue.messages if now_us - message.arrived_us < self._retention_us]
        self.dropped += len(queue.messages) - len(kept)
        if kept:
            queue.messages = kept
            queue.people = {name for message in kept for name in message.context.people}
            self._queues[queue.key] = queue

    def _set_due(self) -> None:
        """Compute :attr:`due_us` from all queues."""
        self.due_us = min(
            (queue.due_us(self._retention_us) for queue in self._queues.values()), default=math.inf
        )


def _arrival_number(message: Message) -> int:
    """Return the number of a message, by which messages are sorted."""
    return message.number

"""Algorithm 3 (Radiator 3.1) as its prose states it: a list of pending messages for each client.

Each message and each new context walks the lists of all clients. The engines for many clients are tested
against this one; see :mod:`mudkit.systems.radiator.engines.client_arrays`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from mudkit.checks import check_arguments
from mudkit.systems.radiator.engines.pending import Batch, CurrentContexts, Decide, Message, Pending
from mudkit.systems.radiator.functions import Problems
from mudkit.systems.radiator.thresholds import Aggregability, EvaluatedThreshold
from mudkit.wire import Fields


class Entry(NamedTuple):
    """Batch that an engine has released, oldest message first, and its recipients in order of registration.

    Parameters
    ----------
    batch : tuple of Message
    recipients : list of str
    """

    batch: Batch
    recipients: list[str]


class ClientLists:
    """Literal engine, for up to thousands of clients.

    Parameters
    ----------
    function : Aggregability
    retention_us : int
        Maximum time that a message waits, µs.
    echo : bool
        Whether clients receive their own messages.
    """

    @check_arguments
    def __init__(self, function: Aggregability, retention_us: int, *, echo: bool = False) -> None:
        self.function = function
        self.problems = Problems()
        self.retention_us, self._echo = retention_us, echo
        self.contexts = CurrentContexts(retention_us)
        self._pending: dict[str, Pending] = {}
        self._dropped = 0
        self._due_us: float | None = math.inf
        """Cached value of :attr:`due_us`; None: pending messages have changed."""

    @property
    def clients(self) -> Iterable[str]:
        """Registered clients in order."""
        return self._pending.keys()

    @property
    def due_us(self) -> float:
        """Latest time of the next :meth:`fire`, µs; infinite: none."""
        if self._due_us is None:
            self._due_us = min((pending.due_us for pending in self._pending.values()), default=math.inf)
        return self._due_us

    @property
    def dropped(self) -> int:
        """Messages dropped after the retention, counted once per receiver."""
        return self._dropped + sum(pending.dropped for pending in self._pending.values())

    def waiting(self, receiver: str) -> list[Message]:
        """Return the pending messages for a receiver, oldest first."""
        return self._pending[receiver].messages()

    def register(self, now_us: int, client: str, attributes: Fields, *, receives: bool = True) -> list[Entry]:
        """Register a client, or replace its ``attributes``; return released entries.

        With ``receives=False`` it is only a sender here, because another engine has it as a receiver.
        """
        is_new = self.contexts.register(client, attributes)
        if receives:
            self._pending.setdefault(client, Pending(self.retention_us))
        return [] if is_new else self.fire(now_us)

    def unregister(self, now_us: int, client: str) -> None:
        """Remove a client and its pending messages; messages it has sent keep waiting for others."""
        if client in self._pending:
            self._dropped += self._pending.pop(client).dropped
            self._due_us = None
        self.contexts.mark_left(now_us, client)

    def take(self, now_us: int, message: Message) -> list[Entry]:
        """Add a message for all registered clients; return released entries."""
        self.contexts.record_propagation(message.sender, message.context)
        return self._decide_again(now_us, message)

    def fire(self, now_us: int) -> list[Entry]:
        """Apply the function again to all pending messages as time has passed; return released entries."""
        return self._decide_again(now_us, None)

    def _decide_again(self, now_us: int, new: Message | None) -> list[Entry]:
        """Walk the pending messages of all clients, with a new one; return released entries."""
        entries: dict[tuple[int, ...], Entry] = {}
        self._due_us = None
        for client, pending in self._pending.items():
            mine = None if new is not None and new.sender == client and not self._echo else new
            if mine is None and not len(pending) and pending.due_us > now_us:
                continue
            for batch in pending.walk(now_us, self._threshold_function(client), mine):
                numbers = tuple([message.number for message in batch])
                entries.setdefault(numbers, Entry(batch, [])).recipients.append(client)
        return list(entries.values())

    def drop(self, count: int) -> None:
        """Add ``count`` messages that were dropped for receivers because they cannot be joined."""
        self._dropped += count

    def put_back(self, entry: Entry, retry_us: int) -> None:
        """Restore an entry that could not be joined; it is tried again at ``retry_us`` at the latest."""
        self._due_us = None
        for client in entry.recipients:
            self._pending[client].put_back(entry.batch, retry_us)

    def _threshold_function(self, client: str) -> Decide:
        """Return a function that returns the current threshold of a message for a client."""
        try:
            view = self.function.view(self.contexts[client])
        except Exception as error:
            problem = error

            def record_failure(message: Message) -> None:
                """Record that the client's key cannot be computed: no message has a threshold."""
                self.problems.add(self.function.problem(problem, message.sender, client))

            return record_failure

        def decide(message: Message) -> EvaluatedThreshold | None:
            """Return the threshold of a message; record a failure of the function, and return None."""
            try:
                return self.function.decide(self.contexts.of_sender(message), view)
            except Exception as error:
                self.problems.add(self.function.problem(error, message.sender, client))
                return None

        return decide

"""Algorithm 3 (Radiator 3.1) as its prose has it: a list of what waits for each client.

Of each message, and of each new context, it walks the lists of all clients. It is what the engines for many
clients are held against, see :mod:`mudkit.systems.radiator.engines.client_arrays`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from mudkit.systems.radiator.aggregation.thresholds import Aggregability, Key
from mudkit.systems.radiator.engines.contexts import Contexts
from mudkit.systems.radiator.engines.pending import Batch, Decide, Message, Pending
from mudkit.systems.radiator.problems import Problems
from mudkit.wire import Fields

__all__ = ["ClientLists", "Entry"]


class Entry(NamedTuple):
    """Pending send: one aggregate and its recipients.

    Parameters
    ----------
    batch : tuple of Message
    recipients : list of str
        The recipients, in the order of their registration.
    """

    batch: Batch
    recipients: list[str]


class ClientLists:
    """The engine that does what the paper says as the paper says it.

    Parameters
    ----------
    function : Aggregability
    retention_us : int
        No message waits for longer.
    echo : bool
        Whether a client gets its own messages.
    """

    def __init__(self, function: Aggregability, retention_us: int, *, echo: bool = False) -> None:
        self.function = function
        self.problems = Problems()
        self.retention_us, self._echo = retention_us, echo
        self.contexts = Contexts(retention_us)
        self._pending: dict[str, Pending] = {}
        self._dropped = 0
        self._due_us: float | None = math.inf
        """None: what waits has changed since it was known."""

    @property
    def clients(self) -> Iterable[str]:
        """Those who are registered, in order."""
        return self._pending.keys()

    @property
    def due_us(self) -> float:
        """When :meth:`fire` is next to be called, at the latest."""
        if self._due_us is None:
            self._due_us = min((pending.due_us for pending in self._pending.values()), default=math.inf)
        return self._due_us

    @property
    def dropped(self) -> int:
        """Messages that were dropped for a receiver after the retention."""
        return self._dropped + sum(pending.dropped for pending in self._pending.values())

    def waiting(self, client: str) -> list[Message]:
        """Give what waits for a client, the oldest first."""
        return self._pending[client].messages()

    def register(self, now_us: int, client: str, attributes: Fields, *, receives: bool = True) -> list[Entry]:
        """Take a client in, or take other attributes of one that is in; what waits for it waits on.

        One that does not receive here (another engine has it) is only known as a sender.
        """
        is_new = self.contexts.register(client, attributes)
        if receives:
            self._pending.setdefault(client, Pending(self.retention_us))
        return [] if is_new else self.fire(now_us)

    def unregister(self, now_us: int, client: str) -> None:
        """Let a client go, with all that waits for it; what it has sent waits on for others."""
        if client in self._pending:
            self._dropped += self._pending.pop(client).dropped
            self._due_us = None
        self.contexts.leave(now_us, client)

    def take(self, now_us: int, message: Message) -> list[Entry]:
        """Take a message in, for all who are registered; give what goes by that."""
        self.contexts.propagated(message.sender, message.context)
        return self._walk(now_us, message)

    def fire(self, now_us: int) -> list[Entry]:
        """Apply the function anew to all that waits, and give what goes."""
        return self._walk(now_us, None)

    def _walk(self, now_us: int, new: Message | None) -> list[Entry]:
        entries: dict[tuple[int, ...], Entry] = {}
        self._due_us = None
        for client, pending in self._pending.items():
            mine = None if new is not None and new.sender == client and not self._echo else new
            if mine is None and not len(pending) and pending.due_us > now_us:
                continue
            for batch in pending.walk(now_us, self._decide(client), mine):
                numbers = tuple([message.number for message in batch])
                entries.setdefault(numbers, Entry(batch, [])).recipients.append(client)
        return list(entries.values())

    def drop(self, count: int) -> None:
        """Count messages that were dropped for receivers because they cannot be joined."""
        self._dropped += count

    def put_back(self, entry: Entry, again_us: int) -> None:
        """Take back what could not be joined; it is tried again with whatever comes next."""
        self._due_us = None
        for client in entry.recipients:
            self._pending[client].put_back(entry.batch, again_us)

    def _decide(self, client: str) -> Decide:
        try:
            view = self.function.view(self.contexts[client])
        except Exception as error:
            problem = error

            def failing(message: Message) -> None:
                self.problems.add(self.function.problem(problem, message.sender, client))

            return failing

        def decide(message: Message) -> Key | None:
            try:
                return self.function.decide(self.contexts.of_sender(message), view)
            except Exception as error:
                self.problems.add(self.function.problem(error, message.sender, client))
                return None

        return decide

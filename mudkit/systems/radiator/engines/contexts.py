"""The current context of each client: its last message, over its registration's attributes (Radiator 4.2)."""

from __future__ import annotations

from mudkit.errors import ParameterError, brief
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.pending import Message
from mudkit.wire import Fields

__all__ = ["Contexts"]


class Contexts:
    """Contexts by client; those of clients that have left are kept while something of theirs may wait.

    Parameters
    ----------
    retention_us : int
        No message waits for longer.
    """

    def __init__(self, retention_us: int) -> None:
        self._retention_us = retention_us
        self._last: dict[str, Context] = {}
        self._attributes: dict[str, Fields] = {}
        self._current: dict[str, Context] = {}
        self._left_us: dict[str, int] = {}

    def __getitem__(self, client: str) -> Context:
        """Give the context of a client that is registered."""
        return self._current[client]

    def of_sender(self, message: Message) -> Context:
        """Give the current context of who sent a message; of one long gone, that of the message."""
        return self._current.get(message.sender, message.context)

    def register(self, client: str, attributes: Fields) -> bool:
        """Take what a client gives at its registration; what it has propagated stays over it.

        What it has propagated before it left does not: with that its context was deleted (Radiator 4.2).

        Returns
        -------
        bool
            Whether it is new: nothing of it can wait anywhere.
        """
        is_new = client not in self._last
        if self._left_us.pop(client, None) is not None:
            del self._last[client]
        self._attributes[client] = attributes
        last = self._last.setdefault(client, Context(frozenset((client,))))
        self._current[client] = last.over(attributes)
        return is_new

    def propagated(self, client: str, context: Context) -> None:
        """Take what a client has propagated.

        Raises
        ------
        ParameterError
            The client is not registered.
        """
        if client not in self._attributes:
            raise ParameterError(
                "Who sends must be registered.",
                where="sender",
                found=brief(client),
                expected="the name of a registered client",
                remedy="register it first, with its attributes",
            )
        self._last[client] = context
        self._current[client] = context.over(self._attributes[client])

    def leave(self, now_us: int, client: str) -> None:
        """Let a client go, and forget those that left so long ago that nothing of theirs waits."""
        self._left_us[client] = now_us
        for gone, left_us in list(self._left_us.items()):
            if now_us - left_us <= self._retention_us:
                return
            for kept in (self._left_us, self._last, self._attributes, self._current):
                del kept[gone]

"""Publish and subscribe by topic, as a thin layer over a table (Mobius 3.1)."""

from __future__ import annotations

from collections.abc import Callable

from mudkit.arguments import check_calls
from mudkit.errors import ParameterError, brief
from mudkit.events import Operation
from mudkit.predicates import Predicate
from mudkit.systems.mud.api import Client
from mudkit.systems.mud.result import Change
from mudkit.wire import Fields, Value

__all__ = ["PubSub"]


@check_calls
class PubSub:
    """Topics in a table: a message is a record with a column ``topic``, under a key of its own.

    Parameters
    ----------
    client : Client
    table : str
        One that was created.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.mud import Cloud
    >>> lab = Lab(seed=7)
    >>> token = lab.token(user="jane", app="chat")
    >>> jane = Client(lab.device("jane-phone"), Cloud(lab), app="chat", token=token)
    >>> jane.create("chat").result()
    >>> chat = PubSub(jane, "chat")
    >>> handle = chat.subscribe("friends", lambda message: print(message["text"])).result()
    >>> chat.publish("friends", text="lunch?").result()
    1
    >>> lab.run(seconds=10)
    lunch?
    """

    def __init__(self, client: Client, table: str) -> None:
        self._client = client
        self._table = table

    def publish(self, topic: str, /, predicate: str | Predicate | None = None, **message: Value) -> Operation:
        """Publish a message.

        Parameters
        ----------
        topic : str
        predicate : str or Predicate, optional
            The condition over subscribers' data: it says whom the message reaches.
        **message
            Its columns.
        """
        if "topic" in message:
            raise ParameterError(
                "A message has one topic.",
                where="topic",
                found=brief(message["topic"]),
                remedy="give the topic first, and the column another name",
            )
        return self._client.write(self._table, None, {"topic": topic, **message}, predicate=predicate)

    def subscribe(
        self,
        topic: str,
        callback: Callable[[Fields], None],
        data: Fields | None = None,
        sync_timestamp: float | None = None,
    ) -> Operation:
        """Have a function called with each message of a topic.

        Parameters
        ----------
        topic : str
        callback : callable
            Called with the message's columns.
        data : mapping, optional
            What the subscriber says of itself.
        sync_timestamp : float, optional
            Also what was published before, from then on.

        Returns
        -------
        Operation
            The operation, which gives the handle that :meth:`unsubscribe` takes.
        """

        def changed(change: Change | Fields) -> None:
            if isinstance(change, Change) and change.record is not None:
                callback(change.record)

        wanted = Predicate("topic = :topic", topic=topic)
        return self._client.read(self._table, wanted, "continuous", data, None, sync_timestamp, changed)

    def unsubscribe(self, handle: int) -> Operation:
        """End a subscription."""
        return self._client.unregister(handle)

"""Simpler interfaces of MUD tables (Mobius 3.1), each over a client: calls that wait, and topics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Concatenate, ParamSpec, TypeVar

from mudkit.checks import check_arguments
from mudkit.delivery.notices import FieldsWithId
from mudkit.errors import ParameterError, brief
from mudkit.events import DEFAULT_TIMEOUT_S, Operation
from mudkit.predicates import Predicate
from mudkit.systems.mud.api import Client
from mudkit.systems.mud.result import Change, ReadResult
from mudkit.wire import Fields, Value

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _blocking_method(
    call: Callable[Concatenate[Client, _P], Operation], result: Callable[[Operation, float], _T]
) -> Callable[Concatenate[BlockingClient, _P], _T]:
    """Return a method that calls a method of :class:`Client` and waits for its result."""

    @wraps(call)
    def wait(client: BlockingClient, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Call the method of the client, and return its result."""
        return result(call(client.client, *arguments, **named), client.timeout_s)

    wait.__doc__ = f"{result.__doc__} See :meth:`Client.{call.__name__}`."
    vars(wait)["__signature__"] = signature(call).replace(
        return_annotation=signature(result).return_annotation
    )
    return wait


def _wait_until_done(operation: Operation, timeout_s: float) -> None:
    """Run virtual time until the operation is completed."""
    operation.result(timeout_s)


def _wait_for_version(operation: Operation, timeout_s: float) -> int:
    """Return the new version of the record."""
    version: int = operation.result(timeout_s)
    return version


def _wait_for_records(operation: Operation, timeout_s: float) -> ReadResult | int:
    """Return the records, or the handle of a continuous read."""
    records: ReadResult | int = operation.result(timeout_s)
    return records


class BlockingClient:
    """Client whose calls return results and raise errors; virtual time runs until then (Mobius 3.1).

    Parameters
    ----------
    client : Client
    timeout_s : float
        Virtual seconds until a call raises :class:`~mudkit.errors.OperationTimeout`.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.mud import Cloud
    >>> lab = Lab(seed=7)
    >>> token = lab.token(user="jane", app="news")
    >>> jane = BlockingClient(Client(lab.device("jane-phone"), Cloud(lab), app="news", token=token))
    >>> jane.create("news")
    >>> jane.write("news", "a17", {"topic": "arts"})
    1
    """

    @check_arguments
    def __init__(self, client: Client, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.client = client
        self.timeout_s = timeout_s

    create = _blocking_method(Client.create, _wait_until_done)
    alter = _blocking_method(Client.alter, _wait_until_done)
    drop = _blocking_method(Client.drop, _wait_until_done)
    write = _blocking_method(Client.write, _wait_for_version)
    delete = _blocking_method(Client.delete, _wait_for_version)
    update = _blocking_method(Client.update, _wait_for_version)
    increment = _blocking_method(Client.increment, _wait_for_version)
    union = _blocking_method(Client.union, _wait_for_version)
    remove = _blocking_method(Client.remove, _wait_for_version)
    read = _blocking_method(Client.read, _wait_for_records)
    update_data = _blocking_method(Client.update_data, _wait_until_done)
    await_synced = _blocking_method(Client.await_synced, _wait_until_done)
    unregister = _blocking_method(Client.unregister, _wait_until_done)


@check_arguments
class PubSub:
    """Publish and subscribe by topic (Mobius 3.1): a message is a record with a ``topic`` and a new key.

    Parameters
    ----------
    client : Client
    table : str
        An existing table.

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
            Condition over subscribers' data: who receives it.
        **message
            Its columns.
        """
        if "topic" in message:
            raise ParameterError(
                "A message has one topic.",
                where="topic",
                found=brief(message["topic"]),
                remedy="use another name for the column",
            )
        return self._client.write(self._table, None, {"topic": topic, **message}, predicate=predicate)

    def subscribe(
        self,
        topic: str,
        callback: Callable[[Fields], None],
        data: Fields | None = None,
        sync_timestamp: float | None = None,
    ) -> Operation:
        """Call a function with each message of a topic.

        Parameters
        ----------
        topic : str
        callback : callable
            Called with the message's columns; their attribute ``id`` is that of the :class:`Change`.
        data : mapping, optional
            The subscriber's data.
        sync_timestamp : float, optional
            Commit time in seconds of the lab from which earlier messages are delivered, too; None: none.

        Returns
        -------
        Operation
            Its result is the handle for :meth:`unsubscribe`.
        """
        predicate = Predicate("topic = :topic", topic=topic)
        notify = partial(_notify_of_message, callback)
        return self._client.read(self._table, predicate, "continuous", data, None, sync_timestamp, notify)

    def listen(self, handle: int, callback: Callable[[Fields], None]) -> Operation:
        """Register the callback of a subscription, in place of an earlier one; see :meth:`Client.listen`."""
        return self._client.listen(handle, partial(_notify_of_message, callback))

    def unsubscribe(self, handle: int) -> Operation:
        """End a subscription."""
        return self._client.unregister(handle)


def _notify_of_message(callback: Callable[[Fields], None], change: Change | Fields) -> None:
    """Pass the columns of a committed message to a subscriber's callback; other changes are not messages."""
    if isinstance(change, Change) and change.record is not None and not change.is_pending:
        callback(FieldsWithId(dict(change.record), change.id))

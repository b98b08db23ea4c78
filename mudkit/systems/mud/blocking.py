"""The client for code that waits: each call lets virtual time go on until it is answered (Mobius 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Concatenate, ParamSpec, TypeVar

from mudkit.arguments import check_init
from mudkit.events import Operation
from mudkit.systems.mud.api import Client
from mudkit.systems.mud.result import ReadResult

__all__ = ["BlockingClient"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _waiting(
    call: Callable[Concatenate[Client, _P], Operation], result: Callable[[Operation, float], _T]
) -> Callable[Concatenate[BlockingClient, _P], _T]:
    """Return a method that calls a method of :class:`Client` and waits for its result."""

    @wraps(call)
    def wait(client: BlockingClient, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return result(call(client.client, *arguments, **named), client.timeout_s)

    wait.__doc__ = f"{result.__doc__} See :meth:`Client.{call.__name__}`."
    vars(wait)["__signature__"] = signature(call).replace(
        return_annotation=signature(result).return_annotation
    )
    return wait


def _nothing(operation: Operation, timeout_s: float) -> None:
    """Wait until it is done."""
    operation.result(timeout_s)


def _version(operation: Operation, timeout_s: float) -> int:
    """Return the new version of the record."""
    version: int = operation.result(timeout_s)
    return version


def _records(operation: Operation, timeout_s: float) -> ReadResult | int:
    """Return the records, or the handle of a continuous read."""
    records: ReadResult | int = operation.result(timeout_s)
    return records


@check_init
class BlockingClient:
    """A client whose calls return results and raise errors.

    Parameters
    ----------
    client : Client
    timeout_s : float
        Virtual seconds that a call waits.

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

    def __init__(self, client: Client, timeout_s: float = 86_400) -> None:
        self.client = client
        self.timeout_s = timeout_s

    create = _waiting(Client.create, _nothing)
    alter = _waiting(Client.alter, _nothing)
    drop = _waiting(Client.drop, _nothing)
    write = _waiting(Client.write, _version)
    delete = _waiting(Client.delete, _version)
    read = _waiting(Client.read, _records)
    update_data = _waiting(Client.update_data, _nothing)
    unregister = _waiting(Client.unregister, _nothing)

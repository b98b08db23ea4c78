"""The client for code that waits: each call lets virtual time go on until it is answered (Mobius 3.1)."""

from __future__ import annotations

from typing import Any

from mudkit.arguments import check_calls
from mudkit.systems.mud.api import Client
from mudkit.systems.mud.result import ReadResult

__all__ = ["BlockingClient"]


@check_calls
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
        self._timeout_s = timeout_s

    def create(self, *arguments: Any, **named: Any) -> None:
        """See :meth:`Client.create`."""
        self.client.create(*arguments, **named).result(self._timeout_s)

    def alter(self, *arguments: Any, **named: Any) -> None:
        """See :meth:`Client.alter`."""
        self.client.alter(*arguments, **named).result(self._timeout_s)

    def drop(self, table: str) -> None:
        """See :meth:`Client.drop`."""
        self.client.drop(table).result(self._timeout_s)

    def write(self, *arguments: Any, **named: Any) -> int:
        """Return the new version of the record; see :meth:`Client.write`."""
        version: int = self.client.write(*arguments, **named).result(self._timeout_s)
        return version

    def delete(self, *arguments: Any, **named: Any) -> int:
        """Return the new version of the record; see :meth:`Client.delete`."""
        version: int = self.client.delete(*arguments, **named).result(self._timeout_s)
        return version

    def read(self, *arguments: Any, **named: Any) -> ReadResult | int:
        """Return the records, or the handle of a continuous read; see :meth:`Client.read`."""
        answer: ReadResult | int = self.client.read(*arguments, **named).result(self._timeout_s)
        return answer

    def update_data(self, *arguments: Any, **named: Any) -> None:
        """See :meth:`Client.update_data`."""
        self.client.update_data(*arguments, **named).result(self._timeout_s)

    def unregister(self, handle: int) -> None:
        """See :meth:`Client.unregister`."""
        self.client.unregister(handle).result(self._timeout_s)

"""What a device has to tell the server, in order, until the server has heard it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mudkit.events import Store

__all__ = ["EventLog"]

_KEY: Final = "fact "
_COUNT: Final = "facts"
_EMPTY_READS: Final = 16
"""Of a topic; older ones are in no moving average any more."""


class EventLog:
    """Numbered facts: subscriptions, what was read, what was let go. They outlive the machine.

    Parameters
    ----------
    store : Store

    Attributes
    ----------
    pending : dict of int to mapping
        What the server has not heard of.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: int = store.get(_COUNT) or 0
        self.pending: dict[int, Mapping[str, Any]] = {
            int(key.removeprefix(_KEY)): fact for key, fact in store.items(_KEY)
        }

    def add(self, fact: Mapping[str, Any]) -> int:
        """Note a fact, and give its number."""
        self._last += 1
        self._store.put(_COUNT, self._last)
        self._store.put(_key(self._last), fact)
        self.pending[self._last] = fact
        if _is_empty(fact):
            same = [
                number
                for number, each in self.pending.items()
                if _is_empty(each) and each["topic"] == fact["topic"]
            ]
            for number in same[:-_EMPTY_READS]:
                self._forget(number)
        return self._last

    def heard(self, number: int) -> list[int]:
        """Forget what the server has heard, and say which those are."""
        gone = [each for each in self.pending if each <= number]
        for each in gone:
            self._forget(each)
        return gone

    def as_sent(self) -> list[list[Any]]:
        """Give all of them as they are sent: number and fact."""
        return [[number, fact] for number, fact in self.pending.items()]

    def _forget(self, number: int) -> None:
        del self.pending[number]
        self._store.delete(_key(number))


def _key(number: int) -> str:
    return f"{_KEY}{number:012d}"


def _is_empty(fact: Mapping[str, Any]) -> bool:
    return bool(fact["what"] == "read" and not fact["ids"])

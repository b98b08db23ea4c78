"""The indexer: a query of the one predicate language becomes a topic that lives while somebody wants it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate, SubscriptionIndex

__all__ = ["Indexer", "check_query", "is_query", "query"]

_BEGINS: Final = "query: "


def query(text: str, /) -> str:
    """Give the topic of a query: its subscribers get the messages of all topics that match.

    Parameters
    ----------
    text : str
        A condition over messages: ``topic``, ``rank``, ``text``, and what else publishers say of them.

    Raises
    ------
    PredicateError
        It is no condition, or one over something else.

    Examples
    --------
    >>> query("kind = 'weather' AND country = 'Norway'")
    "query: kind = 'weather' AND country = 'Norway'"
    """
    others = [scope for scope, names in Predicate(text).names().items() if names and scope != "record"]
    if others:
        raise PredicateError(
            "A query is over messages only.", text=text, found=", ".join(others), expected="record"
        )
    return _BEGINS + text


@lru_cache(maxsize=1024)
def check_query(topic: str) -> None:
    """Refuse the topic of a query that is none; any other topic may be.

    Raises
    ------
    PredicateError
    """
    if is_query(topic):
        query(topic.removeprefix(_BEGINS))


def is_query(topic: str) -> bool:
    """Say whether a topic is one of a query."""
    return topic.startswith(_BEGINS)


class Indexer:
    """The queries that somebody wants."""

    def __init__(self) -> None:
        self._index = SubscriptionIndex()

    def __len__(self) -> int:
        return len(self._index)

    def add(self, topic: str) -> None:
        """Begin the topic of a query, unless it is there."""
        if topic not in self._index:
            self._index.add(topic, Predicate(topic.removeprefix(_BEGINS)))

    def remove(self, topic: str) -> None:
        """End it: nobody wants it any more."""
        if topic in self._index:
            self._index.remove(topic)

    def topics(self, message: Mapping[str, Any]) -> list[str]:
        """Give the topics that a message belongs to besides its own."""
        return [str(topic) for topic in self._index.match(message)] if len(self._index) else []

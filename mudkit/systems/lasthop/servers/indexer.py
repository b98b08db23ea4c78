"""Indexer: a query of the predicate language becomes a topic that exists while it has subscribers.

A query whose function fails for a message does not match it; nobody else is affected.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.predicates.tree import Call, walk
from mudkit.wire import Fields

_PREFIX: Final = "query: "
_MAX_SHOWN: Final = 200


def query(text: str, /) -> str:
    """Return the topic of a query: its subscribers receive the messages of all topics that match.

    Parameters
    ----------
    text : str
        Condition over messages: ``topic``, ``rank``, ``text``, and other fields that publishers set.

    Raises
    ------
    PredicateError
        The text is not a condition, or it refers to something else, such as a table.

    Examples
    --------
    >>> query("kind = 'weather' AND country = 'Norway'")
    "query: kind = 'weather' AND country = 'Norway'"
    """
    predicate = Predicate(text)
    others = [scope for scope, names in predicate.names().items() if names and scope != "record"]
    calls = (node for node in walk(predicate.form.root) if isinstance(node, Call))
    others += ["lookup" for call in calls if call.function.name == "lookup"][:1]
    if others:
        raise PredicateError(
            "A query may refer to messages only.", text=text, found=", ".join(others), expected="record"
        )
    return _PREFIX + text


@lru_cache(maxsize=1024)
def check_query(topic: str) -> None:
    """Raise PredicateError if a topic is a query that is not valid."""
    if is_query(topic):
        query(topic.removeprefix(_PREFIX))


def is_query(topic: str) -> bool:
    """Return whether a topic is a query."""
    return topic.startswith(_PREFIX)


def describe_failure(topic: str, error: PredicateError) -> str:
    """Return the text of the incident of a failed query."""
    return f"{topic[:_MAX_SHOWN]}: {error}"


class Indexer:
    """Index of the queries that have subscribers."""

    def __init__(self) -> None:
        self._index = SubscriptionIndex()
        self._queries: dict[str, Predicate] = {}

    def __len__(self) -> int:
        return len(self._queries)

    def add(self, topic: str) -> None:
        """Add a query if it is new; raise PredicateError if it cannot be evaluated after a restart."""
        if topic not in self._queries:
            predicate = Predicate(topic.removeprefix(_PREFIX))
            self._index.add(topic, predicate)
            self._queries[topic] = predicate

    def remove(self, topic: str) -> None:
        """Remove a query that has no subscribers any more."""
        if self._queries.pop(topic, None) is not None:
            self._index.remove(topic)

    def matching_queries(self, message: Fields) -> tuple[list[str], list[str]]:
        """Return the queries that match a message, and a sentence for each one that failed."""
        if not self._queries:
            return [], []
        try:
            return [str(topic) for topic in self._index.match(message)], []
        except PredicateError:  # of one query, and the index does not know which
            return self._match_one_by_one(message)

    def _match_one_by_one(self, message: Fields) -> tuple[list[str], list[str]]:
        """Return the same as :meth:`matching_queries` if a query fails: evaluate each alone."""
        matches, problems = [], []
        for topic, predicate in self._queries.items():
            try:
                if predicate(message) is True:
                    matches.append(topic)
            except PredicateError as error:
                problems.append(describe_failure(topic, error))
        return matches, problems

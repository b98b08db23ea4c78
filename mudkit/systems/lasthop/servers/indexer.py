"""The indexer: a query of the one predicate language becomes a topic that lives while somebody wants it.

A query whose function fails for a message does not match it. That is a failure of who wrote the function: the
publisher and the subscribers of all else do not notice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.predicates.tree import Call, walk
from mudkit.wire import Fields

__all__ = ["Indexer", "check_query", "is_query", "problem", "query"]

_BEGINS: Final = "query: "
_SHOWN: Final = 200


def query(text: str, /) -> str:
    """Return the topic of a query: its subscribers receive the messages of all topics that match.

    Parameters
    ----------
    text : str
        A condition over messages: ``topic``, ``rank``, ``text``, and what else publishers say of them.

    Raises
    ------
    PredicateError
        It is no condition, or one over something else: also over a table, of which the server has none.

    Examples
    --------
    >>> query("kind = 'weather' AND country = 'Norway'")
    "query: kind = 'weather' AND country = 'Norway'"
    """
    predicate = Predicate(text)
    others = [scope for scope, names in predicate.names().items() if names and scope != "record"]
    calls = (each for each in walk(predicate.form.root) if isinstance(each, Call))
    others += ["lookup" for each in calls if each.function.name == "lookup"][:1]
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


def problem(topic: str, error: PredicateError) -> str:
    """Say in the incidents which query failed, and why."""
    return f"{topic[:_SHOWN]}: {error}"


class Indexer:
    """The queries that somebody wants."""

    def __init__(self) -> None:
        self._index = SubscriptionIndex()
        self._queries: dict[str, Predicate] = {}

    def __len__(self) -> int:
        return len(self._queries)

    def add(self, topic: str) -> None:
        """Begin the topic of a query, unless it is there.

        Raises
        ------
        PredicateError
            It cannot be evaluated any more: it was asked for in another life, and its function is gone.
        """
        if topic not in self._queries:
            predicate = Predicate(topic.removeprefix(_BEGINS))
            self._index.add(topic, predicate)
            self._queries[topic] = predicate

    def remove(self, topic: str) -> None:
        """End it: nobody wants it any more."""
        if self._queries.pop(topic, None) is not None:
            self._index.remove(topic)

    def topics(self, message: Fields) -> tuple[list[str], list[str]]:
        """Find the topics that a message belongs to besides its own.

        Returns
        -------
        list of str
            Those that match, in the order in which they were wanted.
        list of str
            What went wrong: a sentence for each query that cannot be evaluated for this message.
        """
        if not self._queries:
            return [], []
        try:
            return [str(topic) for topic in self._index.match(message)], []
        except PredicateError:  # of one of them: the index cannot say of which
            return self._one_by_one(message)

    def _one_by_one(self, message: Fields) -> tuple[list[str], list[str]]:
        matches, problems = [], []
        for topic, predicate in self._queries.items():
            try:
                if predicate(message) is True:
                    matches.append(topic)
            except PredicateError as error:
                problems.append(problem(topic, error))
        return matches, problems

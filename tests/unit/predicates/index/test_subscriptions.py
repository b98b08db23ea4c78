"""Arguments that an index of subscriptions refuses, and its report of a match."""

from __future__ import annotations

import re

import pytest

from mudkit.errors import PredicateError
from mudkit.predicates import Language, Predicate, SubscriptionIndex

CHEAP = Predicate("price < 10")
FOREIGN = Predicate.parse("message.price < 10", language=Language(("message",), bound=()))
UNBOUND = Predicate("age = sender.age")


@pytest.fixture
def index() -> SubscriptionIndex:
    result = SubscriptionIndex()
    result.add("ann", CHEAP, receiver={"age": 30})
    result.add("bob", Predicate("price < 20"), receiver={"age": 10})
    return result


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda index: index.add("ann", CHEAP), "exists already(.|\n)*'ann'"),
        (lambda index: index.add("cyd", "price < 10"), "must be a Predicate(.|\n)*str"),
        (lambda index: index.add("cyd", FOREIGN), "of another language(.|\n)*message"),
        (lambda index: index.add("cyd", UNBOUND), "sender.age"),
        (lambda index: index.add("cyd", CHEAP, receiver=[("age", 3)]), "must be a mapping(.|\n)*list"),
        (lambda index: index.update("ann", receiver="age"), "must be a mapping(.|\n)*str"),
        (lambda index: index.update("cyd", receiver={}), "no such subscription(.|\n)*'cyd'"),
        (lambda index: index.reader("cyd"), "no such subscription(.|\n)*'cyd'"),
        (lambda index: index.holds("cyd", {}), "no such subscription(.|\n)*'cyd'"),
        (lambda index: index.remove("cyd"), "no such subscription(.|\n)*'cyd'"),
        (lambda index: index.match({}, "receiver.age > 3"), "must be a Predicate"),
        (lambda index: index.match_many([{}, {}], [None]), "one writer predicate for each record(.|\n)*1(.|\n)*2"),
        (lambda index: index.explain({}, 7), "must be a Predicate(.|\n)*int"),
    ],
)  # fmt: skip
def test_invalid_argument_is_refused_and_changes_nothing(index, call, pattern):
    with pytest.raises(PredicateError) as caught:
        call(index)
    assert re.search(pattern, str(caught.value))
    assert ("ann" in index, "cyd" in index, len(index)) == (True, False, 2)
    assert index.match({"price": 5}) == ["ann", "bob"]


def test_explain_counts_the_readers_that_the_writer_means(index):
    table = index.explain({"price": 5}, Predicate("receiver.age > 18"))
    assert (table["survivors"].sum(), table["matches"].sum()) == (2, 1)
    assert index.explain({"price": 5})["matches"].sum() == 2


@pytest.mark.parametrize("scope", ["receiver", "auth"])
def test_new_subscription_has_no_data_of_a_removed_reader(scope):
    index, news = SubscriptionIndex(), Predicate("topic = 'news'")
    for name in ("ann", "bob"):
        index.add(name, news, **{scope: {"age": 30}})
    index.remove("ann")
    index.add("cyd", news)
    adults = Predicate(f"{scope}.age >= 21")
    assert index.match({"topic": "news"}, adults) == ["bob"]
    assert index.match_many([{"topic": "news"}], adults) == [["bob"]]


@pytest.mark.parametrize("others", [0, 1, 100])
@pytest.mark.parametrize("text", ["topic = receiver.topic", "topic = receiver.topic AND level IN (1, 2)"])
def test_moved_reader_is_found_at_the_new_key_alone(others, text):
    index = SubscriptionIndex()
    for number in range(others + 1):
        index.add(number, Predicate(text), receiver={"topic": "news"})
    index.update(0, receiver={"topic": "sport"})
    for topic, expected in (("news", [*range(1, others + 1)]), ("sport", [0])):
        record = {"topic": topic, "level": 1}
        assert index.match(record) == expected
        assert index.match_many([record]) == [expected]
        assert index.explain(record)["candidates"].sum() == len(expected), "no other reader is compared"


@pytest.mark.parametrize("text", ["distance_km(p, receiver.p) < 5", "5 >= distance_km(receiver.p, p)"])
def test_distances_below_a_limit_are_circles_of_the_index(text):
    index = SubscriptionIndex()
    for number in range(100):
        index.add(number, Predicate(text), receiver={"p": (number % 50, 0)})
    table = index.explain({"p": (7, 0)})
    assert table["indexed"].item().startswith("circle: ")
    assert table["subscriptions"].item() == 100
    assert (table["candidates"].sum(), index.match({"p": (7, 0)})) == (2, [7, 57])


def test_truths_of_all_readers_count() -> None:
    """A column has a reader's truth from its first on, in order, and none is lost by the next one."""
    index = SubscriptionIndex()
    for name, truth in (("ann", True), ("bob", False), ("cyd", True)):
        index.add(name, CHEAP, receiver={"is_member": truth})
    assert index.match({"price": 1}, Predicate("receiver.is_member")) == ["ann", "cyd"]
    assert index.match({"price": 1}, Predicate("NOT receiver.is_member")) == ["bob"]

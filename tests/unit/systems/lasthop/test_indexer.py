"""Queries that are topics for as long as somebody wants them."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import PredicateError
from mudkit.systems.lasthop import Publications, Subscriber, query
from mudkit.systems.lasthop.indexer import Indexer, is_query


def test_a_message_belongs_to_the_queries_that_it_matches():
    indexer = Indexer()
    weather, storms = query("kind = 'weather'"), query("kind = 'weather' AND rank >= 4")
    for topic in (weather, storms, storms):
        indexer.add(topic)
    assert len(indexer) == 2
    assert sorted(indexer.topics({"kind": "weather", "rank": 5.0})) == sorted([weather, storms])
    assert indexer.topics({"kind": "weather", "rank": 1.0}) == [weather]
    assert indexer.topics({"rank": 5.0}) == []
    indexer.remove(weather)
    indexer.remove(weather)
    assert indexer.topics({"kind": "weather", "rank": 1.0}) == []


def test_only_topics_of_queries_are_queries():
    assert is_query(query("rank > 1"))
    assert not is_query("news")


@pytest.mark.parametrize("text", ["kind =", "receiver.age > 3 AND rank > 1", "sender.name = kind"])
def test_what_is_no_query_over_messages_is_refused(text):
    with pytest.raises(PredicateError):
        query(text)


def test_it_lives_while_somebody_wants_it_and_outlives_the_machine():
    lab = Lab(seed=1)
    server = Publications(lab)
    ann, bob = (Subscriber(lab.device(name), server) for name in ("ann", "bob"))
    storms = query("kind = 'weather' AND rank >= 4")
    for each in (ann, bob):
        each.subscribe(storms, policy="on-line").result()
    alerts, blog = server.topic("alerts"), server.topic("somebody's blog")
    alerts.publish("storm", 5.0, kind="weather")
    server.installed.kill()
    server.installed.start()
    blog.publish("hail", 4.5, kind="weather")
    blog.publish("drizzle", 1.0, kind="weather")
    lab.run(minutes=1)
    assert [(m["text"], m["topic"]) for m in ann.read(storms).result()] == [
        ("storm", "alerts"), ("hail", "somebody's blog")
    ]  # fmt: skip
    indexer = server.installed.machine._indexer
    ann.unsubscribe(storms).result()
    assert len(indexer) == 1
    bob.unsubscribe(storms).result()
    assert len(indexer) == 0
    assert not server.installed.store.items("message ")


def test_a_rank_that_changes_changes_for_the_query_too():
    lab = Lab(seed=1)
    server = Publications(lab)
    ann = Subscriber(lab.device("ann"), server)
    weather = query("kind = 'weather'")
    ann.subscribe(weather, threshold=3.0).result()
    first = server.topic("alerts").publish("storm", 5.0, kind="weather").result()
    server.topic("alerts").publish("hail", 4.0, kind="weather").result()
    server.topic("alerts").rerank(first, 1.0).result()
    assert [m["text"] for m in ann.read(weather).result()] == ["hail"]

"""Queries as topics: matching, lifetime, and failing functions."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec import structs

from mudkit import Lab
from mudkit.errors import PredicateError
from mudkit.predicates import function
from mudkit.predicates.functions import remove
from mudkit.systems.lasthop import Publications, Subscriber, query
from mudkit.systems.lasthop.messages import Subscribed, SubscriptionFields
from mudkit.systems.lasthop.servers.indexer import Indexer, is_query


def test_indexer_returns_the_matching_queries():
    indexer = Indexer()
    weather, storms = query("kind = 'weather'"), query("kind = 'weather' AND rank >= 4")
    for topic in (weather, storms, storms):
        indexer.add(topic)
    assert len(indexer) == 2
    assert indexer.matching_queries({"kind": "weather", "rank": 5.0}) == ([weather, storms], [])
    assert indexer.matching_queries({"kind": "weather", "rank": 1.0}) == ([weather], [])
    assert indexer.matching_queries({"rank": 5.0}) == ([], [])
    indexer.remove(weather)
    indexer.remove(weather)
    assert indexer.matching_queries({"kind": "weather", "rank": 1.0}) == ([], [])


def test_is_query_distinguishes_queries_from_topics():
    assert is_query(query("rank > 1"))
    assert not is_query("news")


def test_query_survives_a_restart_and_ends_with_its_last_subscriber():
    lab = Lab(seed=1)
    server = Publications(lab)
    ann, bob = (Subscriber(lab.device(name), server) for name in ("ann", "bob"))
    storms = query("kind = 'weather' AND rank >= 4")
    for subscriber in (ann, bob):
        subscriber.subscribe(storms, policy="on-line").result()
    alerts, blog = server.topic("alerts"), server.topic("somebody's blog")
    alerts.publish("storm", 5.0, kind="weather")
    server.installed.kill()
    server.installed.start()
    blog.publish("hail", 4.5, kind="weather")
    blog.publish("drizzle", 1.0, kind="weather")
    lab.run(minutes=1)
    assert [(m["text"], m["topic"]) for m in ann.read(storms).result()] == [
        ("storm", "alerts"),
        ("hail", "somebody's blog"),
    ]
    indexer = server.installed.machine._indexer
    ann.unsubscribe(storms).result()
    assert len(indexer) == 1
    bob.unsubscribe(storms).result()
    assert len(indexer) == 0
    assert not server.installed.store.items("message ")


def test_rank_change_applies_to_queries():
    lab = Lab(seed=1)
    server = Publications(lab)
    ann = Subscriber(lab.device("ann"), server)
    weather = query("kind = 'weather'")
    ann.subscribe(weather, threshold=3.0).result()
    first = server.topic("alerts").publish("storm", 5.0, kind="weather").result()
    server.topic("alerts").publish("hail", 4.0, kind="weather").result()
    server.topic("alerts").rerank(first, 1.0).result()
    assert [m["text"] for m in ann.read(weather).result()] == ["hail"]


@pytest.fixture
def year_of():
    """Register a function that fails for some messages."""

    @function("year_of", returns="number")
    def year_of(text: str) -> float:
        return int(text)

    yield
    with suppress(PredicateError):
        remove("year_of")


class Setup:
    """A subscriber to a query with that function, and two others."""

    def __init__(self):
        self.lab = Lab(seed=1)
        self.server = Publications(self.lab)
        self.ann, self.bob, self.cat = (
            Subscriber(self.lab.device(name), self.server) for name in ("ann", "bob", "cat")
        )
        self.recent, self.films = query("year_of(year) > 2000"), query("kind = 'film'")
        self.ann.subscribe(self.recent, policy="on-line").result()
        self.bob.subscribe("films", policy="on-line").result()
        self.cat.subscribe(self.films, policy="on-line").result()

    def publish(self, *years):
        """Publish, and return the queue sizes and the problems."""
        for year in years:
            self.server.topic("films").publish(f"of {year}", year=year, kind="film").result()
        self.lab.run(minutes=1)
        sizes = [subscriber.queue_sizes().result() for subscriber in (self.ann, self.bob, self.cat)]
        return [count for queue in sizes for count in queue.values()], self.lab.problems["detail"].tolist()


def test_failing_query_is_an_incident_and_does_not_affect_others(year_of):
    setup = Setup()
    sizes, problems = setup.publish("2001", "none", "1999", "2002")
    assert sizes == [2, 4, 4]
    assert len(problems) == 1
    assert problems[0].startswith("query: year_of(year) > 2000: The function year_of failed: ValueError")
    assert setup.lab.problems[["device", "system"]].to_numpy().tolist() == [["spool", "last hop"]]


def test_query_with_a_removed_function_does_not_affect_others(year_of):
    setup = Setup()
    remove("year_of")
    setup.lab.faults.kill("spool")
    setup.lab.faults.restart("spool")
    setup.lab.run(minutes=1)
    sizes, problems = setup.publish("2001", "1999")
    assert sizes == [0, 2, 2]
    assert len(problems) == 1
    assert "There is no function called year_of" in problems[0]
    setup.ann.unsubscribe(setup.recent).result()
    assert setup.server.installed.store.items("sub ann") == []
    assert setup.publish("2003")[0] == [3, 3]


def test_subscription_to_a_query_with_a_lookup_is_dropped():
    """Bypass the check on the device: a lookup would fail for each message of each publisher."""
    lab = Lab(seed=1)
    server = Publications(lab)
    bob = Subscriber(lab.device("bob"), server)
    bob.subscribe("films", policy="on-line").result()
    topic = "query: lookup('t', kind, 'x') = 1"
    fields = structs.replace(SubscriptionFields.of(bob.installed.machine._topics["films"][1]), topic=topic)
    bob.installed.machine._facts.add(Subscribed(topic, fields))
    bob.subscribe("more")
    lab.run(minutes=1)
    assert (lab.frame("incidents")["incident"] == "dropped").sum() > 0
    server.topic("films").publish("one", kind="film").result()
    lab.run(minutes=1)
    assert bob.queue_sizes().result()["films"] == 1

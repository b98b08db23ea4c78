"""Queries that are topics for as long as somebody wants them."""

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


def test_a_message_belongs_to_the_queries_that_it_matches():
    indexer = Indexer()
    weather, storms = query("kind = 'weather'"), query("kind = 'weather' AND rank >= 4")
    for topic in (weather, storms, storms):
        indexer.add(topic)
    assert len(indexer) == 2
    assert indexer.topics({"kind": "weather", "rank": 5.0}) == ([weather, storms], [])
    assert indexer.topics({"kind": "weather", "rank": 1.0}) == ([weather], [])
    assert indexer.topics({"rank": 5.0}) == ([], [])
    indexer.remove(weather)
    indexer.remove(weather)
    assert indexer.topics({"kind": "weather", "rank": 1.0}) == ([], [])


def test_only_topics_of_queries_are_queries():
    assert is_query(query("rank > 1"))
    assert not is_query("news")


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
        ("storm", "alerts"),
        ("hail", "somebody's blog"),
    ]
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


@pytest.fixture
def year_of():
    """A function of somebody's that fails for some messages."""

    @function("year_of", returns="number")
    def year_of(text: str) -> float:
        return int(text)

    yield
    with suppress(PredicateError):
        remove("year_of")


class Place:
    """One who wants what that function says, and others."""

    def __init__(self):
        self.lab = Lab(seed=1)
        self.server = Publications(self.lab)
        self.ann, self.bob, self.cat = (
            Subscriber(self.lab.device(name), self.server) for name in ("ann", "bob", "cat")
        )
        self.late, self.films = query("year_of(year) > 2000"), query("kind = 'film'")
        self.ann.subscribe(self.late, policy="on-line").result()
        self.bob.subscribe("films", policy="on-line").result()
        self.cat.subscribe(self.films, policy="on-line").result()

    def publish(self, *years):
        """Give how many are where, and what has failed."""
        for year in years:
            self.server.topic("films").publish(f"of {year}", year=year, kind="film").result()
        self.lab.run(minutes=1)
        held = [each.queue_sizes().result() for each in (self.ann, self.bob, self.cat)]
        return [count for each in held for count in each.values()], self.lab.problems["detail"].tolist()


def test_a_query_that_fails_for_a_message_is_an_incident_and_the_publisher_and_the_others_do_not_notice(
    year_of,
):
    place = Place()
    held, problems = place.publish("2001", "none", "1999", "2002")
    assert held == [2, 4, 4]
    assert len(problems) == 1
    assert problems[0].startswith("query: year_of(year) > 2000: The function year_of failed: ValueError")
    assert place.lab.problems[["device", "system"]].to_numpy().tolist() == [["spool", "last hop"]]


def test_a_query_whose_function_is_gone_ends_nobody_elses_service_when_the_server_begins_again(year_of):
    place = Place()
    remove("year_of")
    place.lab.faults.kill("spool")
    place.lab.faults.restart("spool")
    place.lab.run(minutes=1)
    held, problems = place.publish("2001", "1999")
    assert held == [0, 2, 2]
    assert len(problems) == 1
    assert "There is no function called year_of" in problems[0]
    place.ann.unsubscribe(place.late).result()
    assert place.server.installed.store.items("sub ann") == []
    assert place.publish("2003")[0] == [3, 3]


def test_no_device_can_want_a_query_that_no_message_can_be_asked():
    """One that looks into a table fails for each message, and it would for each publisher."""
    lab = Lab(seed=1)
    server = Publications(lab)
    bob = Subscriber(lab.device("bob"), server)
    bob.subscribe("films", policy="on-line").result()
    topic = "query: lookup('t', kind, 'x') = 1"
    wanted = structs.replace(SubscriptionFields.of(bob.installed.machine._topics["films"][1]), topic=topic)
    bob.installed.machine._facts.add(Subscribed(topic, wanted))
    bob.subscribe("more")
    lab.run(minutes=1)
    assert (lab.frame("incidents")["incident"] == "dropped").sum() > 0
    server.topic("films").publish("one", kind="film").result()
    lab.run(minutes=1)
    assert bob.queue_sizes().result()["films"] == 1

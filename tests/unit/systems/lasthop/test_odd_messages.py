"""Nobody who sends odd messages, or in another's name, has any effect on server or devices of last hop."""

from __future__ import annotations

import pytest
from odd_messages import bombard, cross, forge, garbled, overhear

from mudkit import Lab
from mudkit.events import Received
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber, query


class Place:
    """Phones whose talk is of every kind; two devices have no part in it."""

    def __init__(self):
        self.lab = Lab(seed=4)
        self.server = Publications(self.lab)
        self.ann, self.bob = (
            Subscriber(self.lab.device(name), self.server, device_capacity=room)
            for name, room in (("ann", 3), ("bob", None))
        )
        for name in ("eve", "mal"):
            self.lab.device(name)
        self.news, self.sport = self.server.topic("news"), self.server.topic("sport")

    def talk(self):
        """Let every kind of message be sent, both ways."""
        lab, ann, bob = self.lab, self.ann, self.bob
        ann.subscribe("news", policy="on-line", threshold=0.2, interrupt=0.95)
        ann.subscribe(query("kind = 'b'"), mode="on-line", quiet_h=(1, 2), per_day=20)
        bob.subscribe("news", policy=Forwarding("buffer", 2))
        bob.subscribe("sport", mode="on-line", at_h=(8.0,), policy="on-line")
        lab.run(minutes=1)
        ids = [
            self.news.publish(
                "x" * 40, rank=n / 20, kind="ab"[n % 2], expires_s=300.0 if n % 3 else None
            ).result()
            for n in range(20)
        ]
        ids.append(self.sport.publish("goal", rank=0.5).result())
        for n, identity in enumerate(ids[:20:3]):
            self.news.rerank(identity, (n * 7 % 20) / 10 - 0.5)
        lab.run(minutes=1)
        for each in (ann, bob):
            each.read("news")
        lab.run(minutes=1)
        lab.faults.messages(loss_share=0.4)
        self.news.publish("lost", rank=0.9)
        self.news.publish("after it", rank=0.91)
        lab.run(minutes=1)
        lab.faults.messages()
        lab.faults.cut("bob", minutes=1)
        self.news.publish("while he is away", rank=1.0)
        bob.read("news")
        lab.run(minutes=3)
        bob.unsubscribe("sport")
        for name in ("spool", "ann"):
            lab.faults.kill(name)
            lab.faults.restart(name)
            lab.run(minutes=1)

    def works(self, *subscribers):
        """Say whether what is published comes to be read."""
        for number, each in enumerate(subscribers):
            topic = f"later {number}"
            each.subscribe(topic, policy="on-line", threshold=0.0).result()
            self.server.topic(topic).publish("hello", rank=0.5).result()
            self.lab.run(minutes=1)
            assert [message["text"] for message in each.read(topic).result()] == ["hello"]


@pytest.fixture(scope="module")
def talked():
    place = Place()
    with overhear(place.lab) as heard:
        place.talk()
    kinds = {event.message["kind"] for events in heard.values() for event in events}
    assert kinds == {"hello", "told", "read", "confirmed", "welcome", "heard", "who", "stream"}
    bodies = [
        event.message.get("body", {"what": None})["what"] for events in heard.values() for event in events
    ]
    assert {"message", "rank", "retract", "show", "offered"} <= set(bodies)
    facts = [
        fact["what"] for events in heard.values() for e in events for _, fact in e.message.get("facts", ())
    ]
    assert set(facts) == {"subscribe", "unsubscribe", "read", "gone", "shown"}
    return place, heard


def test_what_was_heard_means_nothing_from_another_host(talked):
    place, heard = talked
    for stranger in ("eve", "spool2"):
        assert set(forge(place.lab, heard, stranger)) == {"SpoolServer", "DeviceMachine"}
    place.works(place.ann, place.bob)


def test_a_device_takes_nothing_from_another_machine_of_its_servers_host(talked):
    place, heard = talked
    process = place.ann.installed
    for event in heard[process]:
        (effect,) = process.machine.handle(
            place.lab.world.now_us, Received("spool/x", event.message, "spool")
        )
        assert effect.row["incident"] == "dropped"


def test_odd_messages_of_strangers_change_nothing():
    place = Place()
    with overhear(place.lab) as heard:
        place.talk()
    strangers = {
        process: [Received("mal/x", event.message, "mal") for event in events]
        for process, events in heard.items()
    }
    before = {process: process.store.items() for process in heard}
    sent = bombard(place.lab, strangers, 3_000, seed=5)
    assert sent == {"SpoolServer": 3_000, "DeviceMachine": 6_000}
    assert {process: process.store.items() for process in heard} == before
    incidents = place.lab.frame("incidents")
    assert (incidents["incident"] == "dropped").sum() == 9_000
    place.works(place.ann, place.bob)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(2))
def test_no_odd_message_of_whoever_raises_and_the_others_do_not_notice(scaled, seed):
    place, count = Place(), scaled(10_000, 1_000)
    with overhear(place.lab) as heard:
        place.talk()
    place.lab.device("joe")
    joe = Subscriber(place.lab.devices["joe"], place.server)
    joe.subscribe("news", policy="on-line", max=None, threshold=0.0).result()
    bombard(place.lab, heard, count, seed)
    place.lab.run(minutes=10)
    assert place.lab.problems.empty
    place.works(joe)
    assert (place.lab.frame("incidents")["incident"] == "dropped").sum() > count


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(2))
def test_no_likely_message_raises_either(scaled, seed):
    """Each is one that was sent, with something in it that stood elsewhere."""
    place, count = Place(), scaled(10_000, 1_000)
    with overhear(place.lab) as heard:
        place.talk()
    sent = cross(place.lab, heard, count, seed)
    assert sent == {"SpoolServer": count, "DeviceMachine": 2 * count}
    place.lab.run(minutes=10)
    assert place.lab.problems.empty
    joe = Subscriber(place.lab.device("joe"), place.server)
    place.works(joe)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(4))
def test_what_waits_for_an_answer_survives_odd_ones(seed):
    place = Place()
    with garbled(place.lab, seed, copies=5) as sent:
        place.talk()
        place.lab.run(minutes=5)
    assert set(sent) == {"SpoolServer", "DeviceMachine"}
    assert place.lab.problems.empty
    joe = Subscriber(place.lab.device("joe"), place.server)
    place.works(joe)

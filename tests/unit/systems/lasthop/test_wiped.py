"""A device that comes back under its name with an empty store is a new one: nothing of it is taken for the old one's."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.fleet.store import MemoryStore
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber


class Place:
    """A phone that has said and heard a lot, and then comes back with nothing in its store."""

    def __init__(self, restarts=2):
        self.lab = Lab(seed=3)
        self.server = Publications(self.lab)
        self.ann = Subscriber(self.lab.device("ann"), self.server)
        self.news = self.server.topic("news")
        self.happened = []
        on_record = self.lab.world.on_record

        def noted(process, effect):
            if effect.table == "deliveries" and "created_us" not in effect.row:
                self.happened.append((effect.row["item"], *effect.row.keys() & {"delivered_us", "read_us"}))
            on_record(process, effect)

        self.lab.world.on_record = noted
        for number in range(5):
            self.ann.subscribe(f"old {number}").result()
        self.ann.subscribe("news", policy="on-line", max=None).result()
        for text in ("one", "two", "three"):
            self.news.publish(text, rank=1.0).result()
        self.lab.run(minutes=1)
        for _ in range(restarts):
            self.ann.installed.kill()
            self.ann.installed.start()
            self.lab.run(minutes=1)

    def wipe(self):
        process = self.ann.installed
        process.kill()
        process.store = MemoryStore()
        process.start()

    def read(self, topic="news"):
        operation = self.ann.read(topic)
        self.lab.run(minutes=1)
        return [message["text"] for message in operation.result()]

    def known(self):
        """Give the topics that the server believes the phone to want."""
        return set(self.server.installed.machine._peers["ann"].topics)


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize("is_away", [False, True])
def test_it_begins_with_nothing_and_what_it_wants_from_then_on_it_gets(restarts, is_away):
    place = Place(restarts)
    if is_away:
        place.lab.faults.cut("ann", minutes=3)
    place.wipe()
    subscribed = place.ann.subscribe("news", policy="on-line", max=None)
    place.lab.run(minutes=5)
    assert subscribed.status == "ok"
    assert place.known() == {"news"}
    assert place.ann.queue_sizes().result() == {"news": 0}
    place.news.publish("four", rank=1.0).result()
    place.lab.run(minutes=1)
    assert place.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 1}
    assert place.read() == ["four"]
    assert place.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 0}


def test_it_is_not_sent_what_the_old_one_wanted():
    place = Place()
    place.wipe()
    place.lab.run(minutes=1)
    assert place.known() == set()
    before = place.lab.bill()["bytes"].sum()
    place.news.publish("for nobody", rank=1.0).result()
    place.lab.run(minutes=1)
    assert place.lab.bill()["bytes"].sum() == before
    kept = [key for key, _ in place.server.installed.store.items() if "ann\n" in key]
    assert kept == []


@pytest.mark.parametrize("kind", ["subscribe", "limits", "unsubscribe", "read", "read offline", "shown"])
def test_each_kind_of_request_counts_after_the_wipe_however_few_there_were(kind):
    place = Place()
    place.wipe()
    wanted = {"policy": Forwarding("buffer", 2), "max": 2}
    place.ann.subscribe("news", **wanted).result()
    match kind:
        case "subscribe":
            place.ann.subscribe("sport").result()
            assert place.known() == {"news", "sport"}
        case "limits":
            place.ann.subscribe("news", **wanted, threshold=2.0).result()
            place.news.publish("low", rank=1.0).result()
            assert place.read() == []
        case "unsubscribe":
            place.ann.unsubscribe("news").result()
            assert place.known() == set()
        case "read" | "read offline":
            for rank in range(5):
                place.news.publish(f"{rank}", rank=rank).result()
            place.lab.run(minutes=1)
            if kind == "read offline":
                place.lab.faults.cut("ann", minutes=2)
                assert place.read() == ["1", "0"]  # they came first
                place.lab.run(minutes=2)
            else:
                assert place.read() == ["4", "3"]
            place.lab.run(minutes=1)
            answer = {"waiting": 1, "on_device": 2}
            assert place.server.queues("ann", "news").result() == answer
        case "shown":
            shown = []
            place.ann.on_message(lambda message: shown.append(message["text"]))
            place.ann.subscribe("news", mode="on-line", per_day=1).result()
            place.news.publish("first", rank=1.0).result()
            place.news.publish("second", rank=1.0).result()
            place.lab.run(minutes=1)
            assert shown == ["first"]
    place.lab.run(minutes=2)
    assert place.ann.installed.machine._facts.is_empty


def test_what_it_is_told_and_reads_twice_in_one_life_of_a_store_there_is_none():
    place = Place()
    place.wipe()
    place.ann.subscribe("news", policy="on-line", max=None).result()
    for text in ("four", "five"):
        place.news.publish(text, rank=1.0).result()
    place.read()
    place.wipe()
    place.lab.run(minutes=1)
    place.ann.subscribe("news", policy="on-line", max=None).result()
    place.news.publish("six", rank=1.0).result()
    assert place.read() == ["six"]
    assert len(set(place.happened)) == len(place.happened)


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(12))
def test_late_copies_of_what_the_old_one_said_and_was_told_change_nothing(seed):
    place = Place()
    ann, lab = place.ann, place.lab
    lab.world.seed = seed
    lab.faults._stream = type(lab.faults._stream)(seed, "mangled messages")
    lab.faults.messages(repeat_share=0.9, delay_share=0.7, delay_s=40.0)
    for number in range(6):
        ann.subscribe(f"late {number}")
        ann.unsubscribe(f"old {number % 5}") if number < 5 else None
        place.news.publish(f"before {number}", rank=number)
        ann.read("news")
        lab.run(seconds=1)
    place.wipe()
    ann.subscribe("news", policy="on-line", max=None)
    lab.run(seconds=3)
    ann.subscribe("mine")
    lab.run(seconds=5)
    ann.subscribe("and this")
    lab.run(minutes=5)
    lab.faults.messages()
    lab.run(minutes=5)
    assert place.known() == {"news", "mine", "and this"} == set(ann.queue_sizes().result())
    for number in range(3):
        place.news.publish(f"after {number}", rank=1.0).result()
    lab.run(minutes=1)
    assert place.read()[-3:] == ["after 0", "after 1", "after 2"]
    assert place.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 0}


def test_a_server_that_was_restarted_still_knows_who_was_there_before():
    place = Place()
    place.lab.faults.messages(repeat_share=1.0, delay_share=1.0, delay_s=100.0)
    place.ann.subscribe("late")
    place.lab.run(seconds=1)
    place.lab.faults.messages()
    place.wipe()
    place.ann.subscribe("news").result()
    place.lab.faults.kill("spool")
    place.lab.faults.restart("spool")
    place.lab.run(minutes=10)
    assert place.known() == {"news"}

"""New incarnation of a device whose store was wiped, and messages of the old incarnation."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.fleet.store import MemoryStore
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber


class Setup:
    """A phone with some history, whose store can be wiped."""

    def __init__(self, restarts=2):
        self.lab = Lab(seed=3)
        self.server = Publications(self.lab)
        self.ann = Subscriber(self.lab.device("ann"), self.server)
        self.news = self.server.topic("news")
        self.events = []
        on_record = self.lab.world.on_record

        def record(process, effect):
            if effect.table == "deliveries" and "created_us" not in effect.row:
                self.events.append((effect.row["item"], *effect.row.keys() & {"delivered_us", "read_us"}))
            on_record(process, effect)

        self.lab.world.on_record = record
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

    def server_topics(self):
        """Return the topics to which the phone is subscribed on the server."""
        return set(self.server.installed.machine._peers["ann"].topics)


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize("has_outage", [False, True])
def test_wiped_phone_receives_only_its_new_subscription(restarts, has_outage):
    setup = Setup(restarts)
    if has_outage:
        setup.lab.faults.cut("ann", minutes=3)
    setup.wipe()
    operation = setup.ann.subscribe("news", policy="on-line", max=None)
    setup.lab.run(minutes=5)
    assert operation.status == "ok"
    assert setup.server_topics() == {"news"}
    assert setup.ann.queue_sizes().result() == {"news": 0}
    setup.news.publish("four", rank=1.0).result()
    setup.lab.run(minutes=1)
    assert setup.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 1}
    assert setup.read() == ["four"]
    assert setup.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 0}


def test_subscriptions_of_the_old_incarnation_end():
    setup = Setup()
    setup.wipe()
    setup.lab.run(minutes=1)
    assert setup.server_topics() == set()
    before = setup.lab.bill()["bytes"].sum()
    setup.news.publish("for nobody", rank=1.0).result()
    setup.lab.run(minutes=1)
    assert setup.lab.bill()["bytes"].sum() == before
    keys = [key for key, _ in setup.server.installed.store.items() if "ann\n" in key]
    assert keys == []


@pytest.mark.parametrize("kind", ["subscribe", "limits", "unsubscribe", "read", "read offline", "shown"])
def test_each_kind_of_request_is_handled_after_a_wipe(kind):
    setup = Setup()
    setup.wipe()
    limits = {"policy": Forwarding("buffer", 2), "max": 2}
    setup.ann.subscribe("news", **limits).result()
    match kind:
        case "subscribe":
            setup.ann.subscribe("sport").result()
            assert setup.server_topics() == {"news", "sport"}
        case "limits":
            setup.ann.subscribe("news", **limits, threshold=2.0).result()
            setup.news.publish("low", rank=1.0).result()
            assert setup.read() == []
        case "unsubscribe":
            setup.ann.unsubscribe("news").result()
            assert setup.server_topics() == set()
        case "read" | "read offline":
            for rank in range(5):
                setup.news.publish(f"{rank}", rank=rank).result()
            setup.lab.run(minutes=1)
            if kind == "read offline":
                setup.lab.faults.cut("ann", minutes=2)
                assert setup.read() == ["1", "0"]  # the first to be prefetched
                setup.lab.run(minutes=2)
            else:
                assert setup.read() == ["4", "3"]
            setup.lab.run(minutes=1)
            counts = {"waiting": 1, "on_device": 2}
            assert setup.server.queues("ann", "news").result() == counts
        case "shown":
            shown = []
            setup.ann.on_message(lambda message: shown.append(message["text"]))
            setup.ann.subscribe("news", mode="on-line", per_day=1).result()
            setup.news.publish("first", rank=1.0).result()
            setup.news.publish("second", rank=1.0).result()
            setup.lab.run(minutes=1)
            assert shown == ["first"]
    setup.lab.run(minutes=2)
    assert setup.ann.installed.machine._facts.is_empty


def test_delivery_and_read_are_recorded_once_per_item_after_wipes():
    setup = Setup()
    setup.wipe()
    setup.ann.subscribe("news", policy="on-line", max=None).result()
    for text in ("four", "five"):
        setup.news.publish(text, rank=1.0).result()
    setup.read()
    setup.wipe()
    setup.lab.run(minutes=1)
    setup.ann.subscribe("news", policy="on-line", max=None).result()
    setup.news.publish("six", rank=1.0).result()
    assert setup.read() == ["six"]
    assert len(set(setup.events)) == len(setup.events)


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(12))
def test_late_duplicates_of_the_old_incarnation_have_no_effect(seed):
    setup = Setup()
    ann, lab = setup.ann, setup.lab
    lab.world.seed = seed
    lab.faults._stream = type(lab.faults._stream)(seed, "mangled messages")
    lab.faults.messages(repeat_share=0.9, delay_share=0.7, delay_s=40.0)
    for number in range(6):
        ann.subscribe(f"late {number}")
        ann.unsubscribe(f"old {number % 5}") if number < 5 else None
        setup.news.publish(f"before {number}", rank=number)
        ann.read("news")
        lab.run(seconds=1)
    setup.wipe()
    ann.subscribe("news", policy="on-line", max=None)
    lab.run(seconds=3)
    ann.subscribe("mine")
    lab.run(seconds=5)
    ann.subscribe("and this")
    lab.run(minutes=5)
    lab.faults.messages()
    lab.run(minutes=5)
    assert setup.server_topics() == {"news", "mine", "and this"} == set(ann.queue_sizes().result())
    for number in range(3):
        setup.news.publish(f"after {number}", rank=1.0).result()
    lab.run(minutes=1)
    assert setup.read()[-3:] == ["after 0", "after 1", "after 2"]
    assert setup.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 0}


def test_restarted_server_rejects_late_messages_of_the_old_incarnation():
    setup = Setup()
    setup.lab.faults.messages(repeat_share=1.0, delay_share=1.0, delay_s=100.0)
    setup.ann.subscribe("late")
    setup.lab.run(seconds=1)
    setup.lab.faults.messages()
    setup.wipe()
    setup.ann.subscribe("news").result()
    setup.lab.faults.kill("spool")
    setup.lab.faults.restart("spool")
    setup.lab.run(minutes=10)
    assert setup.server_topics() == {"news"}

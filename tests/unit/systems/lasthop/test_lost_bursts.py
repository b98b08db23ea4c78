"""One lost burst, then steady traffic on a network that is well: what was lost comes soon, whoever sent it."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber

EVERY_S = (0.5, 1, 2, 3, 4, 4.9, 5, 5.1, 9, 15, 30)
BURSTS_S = (0.5, 3, 5, 10, 30)


class Place:
    """A phone that has messages, and a server that has more."""

    def __init__(self, link="ideal"):
        self.lab = Lab(seed=7)
        self.server = Publications(self.lab)
        self.ann = Subscriber(self.lab.device("ann", link=link), self.server)
        self.news, self.other = self.server.topic("news"), self.server.topic("other")
        for topic in ("news", "sport"):
            self.ann.subscribe(topic, policy=Forwarding("buffer", 3), max=2, interrupt=9.0).result()
        self.ann.subscribe("other", policy="on-line", max=1).result()
        self.shown = []
        self.ann.on_message(lambda message: self.shown.append(message["text"]))
        self.ids = [self.news.publish(f"m{rank}", rank=rank).result() for rank in range(6)]
        self.lab.run(minutes=1)

    def lose(self, way):
        """Lose what the phone sends, what is sent to it, or both."""
        to = {"up": {"spool"}, "down": {"ann"}, "both": {"spool", "ann"}}[way]
        at_address = self.lab.world.at_address
        self.lab.world.fault_hook = lambda transfer: () if at_address[transfer.to].host.name in to else (0,)

    def on_device(self):
        return self.ann.installed.machine._queue.ranks("news")


def subscribe(place, way):
    return place.ann.subscribe("cats").done


def limits(place, way):
    return place.ann.subscribe("news", threshold=3.0).done


def unsubscribe(place, way):
    return place.ann.unsubscribe("sport").done


def read(place, way):
    operation = place.ann.read("news")
    return operation.done


def read_is_told(place, way):
    place.ann.read("news")
    return lambda: "m5" not in place.server.installed.machine._peers["ann"].topics["news"]._contents


def hello(place, way):
    device = place.lab.devices["ann"]
    device.readdress(device.next_address())
    place.news.publish("m9", rank=9.5)
    return lambda: place.shown == ["m9"]


def publication(place, way):
    place.lab.faults.messages()
    for _ in range(2):
        place.ann.read("news").result()  # then nothing waits, and there is room
    place.lose(way)
    place.news.publish("m9", rank=8.0)
    return lambda: "news 7" in place.on_device()


def rank(place, way):
    place.news.rerank(place.ids[0], 4.5)
    return lambda: place.on_device().get(place.ids[0]) == 4.5


def retraction(place, way):
    place.news.rerank(place.ids[0], -4.5)
    return lambda: place.ids[0] not in place.on_device()


def interruption(place, way):
    place.news.rerank(place.ids[0], 10.0)
    return lambda: place.shown == ["m0"]


def server_restarts(place, way):
    place.lab.faults.kill("spool")
    place.lab.faults.restart("spool")
    place.news.publish("m9", rank=9.5)
    return lambda: place.shown == ["m9"]


FIRST = (
    subscribe, limits, unsubscribe, read, read_is_told, hello, publication, rank, retraction, interruption,
    server_restarts,
)  # fmt: skip
TRAFFIC = {
    "subscribe": lambda place, number: place.ann.subscribe(f"more {number}"),
    "read": lambda place, number: place.ann.read("other"),
    "publish": lambda place, number: place.other.publish("x" * 200, rank=number % 7),
    "publish long": lambda place, number: place.other.publish("x" * 60_000, rank=number % 7),
}


def goes_on(place, is_done, traffic, every_s):
    """Say how long it takes on a network that is well, with traffic all the time; None: too long."""
    passed_s = 0.0
    while not is_done() and passed_s < 200:
        TRAFFIC[traffic](place, int(10 * passed_s))
        place.lab.run(seconds=every_s)
        passed_s += every_s
    return passed_s


@pytest.mark.soak(keep=8)
@pytest.mark.parametrize("traffic", TRAFFIC)
@pytest.mark.parametrize("first", FIRST, ids=lambda each: each.__name__)
def test_traffic_does_not_put_off_what_was_lost(first, traffic):
    late = {}
    for every_s in EVERY_S:
        for way in ("both", "up", "down"):
            place = Place()
            place.lose(way)
            is_done = first(place, way)
            place.lab.run(seconds=0.5)
            place.lab.faults.messages()
            passed_s = goes_on(place, is_done, traffic, every_s)
            if passed_s > 30 + every_s:
                late[way, every_s] = passed_s
    assert late == {}


@pytest.mark.soak(keep=6)
@pytest.mark.parametrize("way", ["both", "up", "down"])
@pytest.mark.parametrize("first", FIRST, ids=lambda each: each.__name__)
def test_nor_does_a_burst_of_any_length_in_which_the_traffic_goes_on(first, way):
    late = {}
    for burst_s in BURSTS_S:
        for traffic, every_s in (("subscribe", 2), ("read", 3), ("publish", 0.5)):
            place = Place()
            place.lose(way)
            is_done = first(place, way)
            for number in range(int(burst_s / every_s)):
                TRAFFIC[traffic](place, 5000 + number)
                place.lab.run(seconds=every_s)
            place.lab.run(seconds=burst_s % every_s)
            place.lab.faults.messages()
            passed_s = goes_on(place, is_done, traffic, every_s)
            if passed_s > 30 + every_s:
                late[burst_s, traffic] = passed_s
    assert late == {}

"""Retransmission after a lost burst, with steady traffic on a healthy network."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber

INTERVALS_S = (0.5, 1, 2, 3, 4, 4.9, 5, 5.1, 9, 15, 30)
BURSTS_S = (0.5, 3, 5, 10, 30)


class Setup:
    """A phone with queued messages, and a server with waiting ones."""

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

    def lose(self, direction):
        """Lose messages from the phone, to the phone, or both."""
        receivers = {"up": {"spool"}, "down": {"ann"}, "both": {"spool", "ann"}}[direction]
        at_address = self.lab.world.at_address
        self.lab.world.fault_hook = lambda transfer: (
            () if at_address[transfer.to].host.name in receivers else (0,)
        )

    def on_device(self):
        return self.ann.installed.machine._queue.ranks("news")


def subscribe(setup, direction):
    return setup.ann.subscribe("cats").done


def change_limits(setup, direction):
    return setup.ann.subscribe("news", threshold=3.0).done


def unsubscribe(setup, direction):
    return setup.ann.unsubscribe("sport").done


def read(setup, direction):
    operation = setup.ann.read("news")
    return operation.done


def report_read(setup, direction):
    setup.ann.read("news")
    return lambda: "m5" not in setup.server.installed.machine._peers["ann"].topics["news"]._contents


def change_address(setup, direction):
    device = setup.lab.devices["ann"]
    device.readdress(device.next_address())
    setup.news.publish("m9", rank=9.5)
    return lambda: setup.shown == ["m9"]


def publish(setup, direction):
    setup.lab.faults.messages()
    for _ in range(2):
        setup.ann.read("news").result()  # nothing waits, and the device has room
    setup.lose(direction)
    setup.news.publish("m9", rank=8.0)
    return lambda: "news 7" in setup.on_device()


def change_rank(setup, direction):
    setup.news.rerank(setup.ids[0], 4.5)
    return lambda: setup.on_device().get(setup.ids[0]) == 4.5


def retract(setup, direction):
    setup.news.rerank(setup.ids[0], -4.5)
    return lambda: setup.ids[0] not in setup.on_device()


def interrupt(setup, direction):
    setup.news.rerank(setup.ids[0], 10.0)
    return lambda: setup.shown == ["m0"]


def restart_server(setup, direction):
    setup.lab.faults.kill("spool")
    setup.lab.faults.restart("spool")
    setup.news.publish("m9", rank=9.5)
    return lambda: setup.shown == ["m9"]


ACTIONS = (
    subscribe, change_limits, unsubscribe, read, report_read, change_address, publish, change_rank, retract,
    interrupt, restart_server,
)  # fmt: skip
TRAFFIC = {
    "subscribe": lambda setup, number: setup.ann.subscribe(f"more {number}"),
    "read": lambda setup, number: setup.ann.read("other"),
    "publish": lambda setup, number: setup.other.publish("x" * 200, rank=number % 7),
    "publish long": lambda setup, number: setup.other.publish("x" * 60_000, rank=number % 7),
}


def measure_recovery_s(setup, is_done, traffic, interval_s):
    """Return the time until `is_done` on a healthy network with steady traffic; about 200 s at most."""
    passed_s = 0.0
    while not is_done() and passed_s < 200:
        TRAFFIC[traffic](setup, int(10 * passed_s))
        setup.lab.run(seconds=interval_s)
        passed_s += interval_s
    return passed_s


@pytest.mark.soak(keep=8)
@pytest.mark.parametrize("traffic", TRAFFIC)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda function: function.__name__)
def test_traffic_does_not_delay_retransmission(action, traffic):
    late_s = {}
    for interval_s in INTERVALS_S:
        for direction in ("both", "up", "down"):
            setup = Setup()
            setup.lose(direction)
            is_done = action(setup, direction)
            setup.lab.run(seconds=0.5)
            setup.lab.faults.messages()
            passed_s = measure_recovery_s(setup, is_done, traffic, interval_s)
            if passed_s > 30 + interval_s:
                late_s[direction, interval_s] = passed_s
    assert late_s == {}


@pytest.mark.soak(keep=6)
@pytest.mark.parametrize("direction", ["both", "up", "down"])
@pytest.mark.parametrize("action", ACTIONS, ids=lambda function: function.__name__)
def test_traffic_during_a_lost_burst_does_not_delay_retransmission(action, direction):
    late_s = {}
    for burst_s in BURSTS_S:
        for traffic, interval_s in (("subscribe", 2), ("read", 3), ("publish", 0.5)):
            setup = Setup()
            setup.lose(direction)
            is_done = action(setup, direction)
            for number in range(int(burst_s / interval_s)):
                TRAFFIC[traffic](setup, 5000 + number)
                setup.lab.run(seconds=interval_s)
            setup.lab.run(seconds=burst_s % interval_s)
            setup.lab.faults.messages()
            passed_s = measure_recovery_s(setup, is_done, traffic, interval_s)
            if passed_s > 30 + interval_s:
                late_s[burst_s, traffic] = passed_s
    assert late_s == {}

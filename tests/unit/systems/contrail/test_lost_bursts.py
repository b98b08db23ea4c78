"""Retransmission within a minute after a lost burst, with steady traffic on a healthy network."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, Place, build_item

INTERVALS_S = (0.5, 1, 2, 3, 4, 5, 7, 9, 15, 30)


class BusyPlace(Place):
    """Three polling devices, and a filter of Bob's at Ann."""

    def __init__(self):
        super().__init__("ann bob cyd", link="ideal")
        self.ann, self.bob, self.cyd = (
            self.port(name, polling_interval_ms=20_000) for name in ("ann", "bob", "cyd")
        )
        self.install(self.bob, EVERYTHING, to=("ann", "app"))
        self.received = []
        self.bob.on_item(lambda item: self.received.append(item.payload))
        self.run(30)


def publish(place):
    place.publish(place.ann, build_item("first"), "first")
    return lambda: b"payload of first" in place.received


def install(place):
    return place.cyd.install_filter("what > 'a'", to=("ann", "app")).done


def remove(place):
    place.lab.faults.messages()
    slot = place.cyd.install_filter("what > 'c'", to=("bob", "app")).result()
    place.lab.faults.messages(loss_share=1.0)
    return place.cyd.remove_filter(slot).done


def poll(place):
    """Lose the visit at which an item is pulled."""
    place.lab.faults.messages()
    place.publish(place.ann, build_item("visit"), "visit").result()
    place.lab.faults.messages(loss_share=1.0)
    place.run(20)
    return lambda: b"payload of visit" in place.received


ACTIONS = (publish, install, remove, poll)


@pytest.mark.soak(keep=3)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("sender", ["ann", "bob", "cyd"])
def test_traffic_does_not_delay_retransmission(action, sender):
    late_s = {}
    for interval_s in INTERVALS_S:
        place = BusyPlace()
        place.lab.faults.messages(loss_share=1.0)
        is_done = action(place)
        place.run(0.5)
        place.lab.faults.messages()
        passed_s, number = 0.0, 0
        while not is_done() and passed_s < 150:
            place.publish(getattr(place, sender), build_item(f"more {number}"))
            place.run(interval_s)
            passed_s, number = passed_s + interval_s, number + 1
        if passed_s > 60:
            late_s[interval_s] = passed_s
    assert late_s == {}

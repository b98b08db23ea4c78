"""One lost burst, then steady traffic on a network that is well: what was lost comes within a minute."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, Place, marked

EVERY_S = (0.5, 1, 2, 3, 4, 5, 7, 9, 15, 30)


class Busy(Place):
    """Ann says what bob asked for; both poll, and say something else all the time."""

    def __init__(self):
        super().__init__("ann bob cyd", link="ideal")
        self.ann, self.bob, self.cyd = (
            self.port(name, polling_interval_ms=20_000) for name in ("ann", "bob", "cyd")
        )
        self.install(self.bob, EVERYTHING, to=("ann", "app"))
        self.got = []
        self.bob.on_item(lambda item: self.got.append(item.payload))
        self.run(30)


def item(there):
    there.publish(there.ann, marked("first"), "first")
    return lambda: b"payload of first" in there.got


def install(there):
    return there.cyd.install_filter("what > 'a'", to=("ann", "app")).done


def remove(there):
    there.lab.faults.messages()
    slot = there.cyd.install_filter("what > 'c'", to=("bob", "app")).result()
    there.lab.faults.messages(loss_share=1.0)
    return there.cyd.remove_filter(slot).done


def poll(there):
    """The visit by which an item comes is lost."""
    there.lab.faults.messages()
    there.publish(there.ann, marked("visit"), "visit").result()
    there.lab.faults.messages(loss_share=1.0)
    there.run(20)
    return lambda: b"payload of visit" in there.got


FIRST = (item, install, remove, poll)


@pytest.mark.soak(keep=3)
@pytest.mark.parametrize("first", FIRST, ids=lambda each: each.__name__)
@pytest.mark.parametrize("who", ["ann", "bob", "cyd"])
def test_traffic_does_not_put_off_what_was_lost(first, who):
    late = {}
    for every_s in EVERY_S:
        there = Busy()
        there.lab.faults.messages(loss_share=1.0)
        is_done = first(there)
        there.run(0.5)
        there.lab.faults.messages()
        passed_s, number = 0.0, 0
        while not is_done() and passed_s < 150:
            there.publish(getattr(there, who), marked(f"more {number}"))
            there.run(every_s)
            passed_s, number = passed_s + every_s, number + 1
        if passed_s > 60:
            late[every_s] = passed_s
    assert late == {}

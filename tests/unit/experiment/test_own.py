"""Machines of one's own share nothing: what one keeps no other finds, and who keeps it there is told."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from mudkit.errors import ParameterError
from mudkit.events import Call, Complete, Notify, Received, Send
from mudkit.experiment import WARD, own_machine, run
from mudkit.experiment.adapters.own import Copies

_FEW = WARD.over(devices=4, hours=0.05)
SEEN: list[str] = []
LEVELS = {"low": 1}
count = 0


def test_machines_of_one_function_have_no_memory_in_common():
    """Without it a relay would know for nothing who wants what: it is told by nobody."""
    wants: dict[str, object] = {}

    def handle(here, now_us, event):
        match event:
            case Call(op_id=op_id, operation="want", arguments={"me": me}):
                wants[here.me] = me
                return [Complete(op_id)]
            case Call(op_id=op_id, arguments={"item": item}):
                return [Send(here.relay, item), Complete(op_id)]
            case Received(message=item) if here.is_relay:
                return [Send(phone, item) for phone, me in wants.items() if here.wants(me, item)]
            case Received(message=item):
                return [Notify("items", item)]
        return []

    with pytest.raises(ParameterError) as caught:
        run(_FEW, own_machine(handle))
    assert caught.value.summary == "A machine keeps something outside of its memory and its store."
    assert caught.value.found == "wants, which it has changed"
    assert "here.memory" in caught.value.remedy
    assert wants == {}, "nor does who wrote it find anything there"


def _kept_in_a_global(number):
    SEEN.append(number)


def _counted(number):
    global count
    count += number


def _kept_by_default(number, seen=[]):  # noqa: B006
    seen.append(number)


def _kept_with_itself(number):
    _kept_with_itself.last = number


class _Kept:
    seen: ClassVar[set[int]] = set()

    def __init__(self):
        self.counts = Counter()

    def __call__(self, number):
        self.counts[number] += 1

    def told(self, number):
        self.seen.add(number)


@pytest.mark.parametrize(
    ("code", "where"),
    [
        (_kept_in_a_global, "SEEN"),
        (_counted, "count"),
        (_kept_by_default, "defaults"),
        (_kept_with_itself, "own"),
        (_Kept(), "counts"),
        (_Kept().told, "seen"),
    ],
    ids=["a global", "a number", "a default", "an attribute", "an object", "a class"],
)
def test_whatever_was_changed_is_told(code, where):
    copies = Copies(code)
    one, other = copies.make(), copies.make()
    copies.check()
    one(3)
    with pytest.raises(ParameterError) as caught:
        copies.check()
    assert where in caught.value.found
    again = Copies(other)
    again.make()
    again.check()  # the other one has nothing of it
    assert SEEN == []
    assert count == 0


def test_what_is_only_looked_at_is_no_memory():
    def code(number):
        inner = {name: level + number for name, level in LEVELS.items()}
        return inner, Path("a"), threading.current_thread

    copies = Copies(code)
    assert [copies.make()(2)[0] for _ in range(2)] == [{"low": 3}] * 2
    copies.check()


@pytest.mark.parametrize("kind", ["lab", "testbed", "process", "lock"])
def test_what_no_machine_has_at_hand_is_refused(kind):
    reached = {}

    def make(testbed):
        host = testbed.lab.server("other")
        reached["process"] = host.install("x", lambda ports: _Silent())
        reached.update(lab=testbed.lab, testbed=testbed, lock=threading.Lock())
        thing = reached[kind]
        return own_machine(lambda here, now_us, event: [thing][1:])(testbed)

    with pytest.raises(ParameterError) as caught:
        run(_FEW, make)
    assert "cannot be copied" in caught.value.summary or "what no device has" in caught.value.summary


class _Silent:
    def handle(self, now_us, event):
        return []

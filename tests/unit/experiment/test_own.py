"""Own machines: they share no state, and state kept outside of their memory is reported."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from mudkit.errors import ParameterError
from mudkit.events import Call, Complete, Notify, Received, Send
from mudkit.experiment import WARD, own_machine, run
from mudkit.experiment.adapters.own import Copies, find_changes

_FEW = WARD.over(devices=4, hours=0.05)
SEEN: list[str] = []
LEVELS = {"low": 1}
count = 0


def test_machines_of_one_function_share_no_memory():
    """Keep the wants in a closure, which would inform the relay without any message."""
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


def _keep_in_global(number):
    SEEN.append(number)


def _increment(number):
    global count
    count += number


def _keep_in_default(number, seen=[]):  # noqa: B006
    seen.append(number)


def _keep_on_itself(number):
    _keep_on_itself.last = number


class _Keeper:
    seen: ClassVar[set[int]] = set()

    def __init__(self):
        self.counts = Counter()

    def __call__(self, number):
        self.counts[number] += 1

    def add(self, number):
        self.seen.add(number)


@pytest.mark.parametrize(
    ("code", "where"),
    [
        (_keep_in_global, "SEEN"),
        (_increment, "count"),
        (_keep_in_default, "defaults"),
        (_keep_on_itself, "own"),
        (_Keeper(), "counts"),
        (_Keeper().add, "seen"),
    ],
    ids=["a global", "a number", "a default", "an attribute", "an object", "a class"],
)
def test_state_outside_of_the_memory_is_reported(code, where):
    copies = Copies(code)
    one, other = copies.make(), copies.make()
    copies.check()
    one(3)
    with pytest.raises(ParameterError) as caught:
        copies.check()
    assert where in caught.value.found
    again = Copies(other)
    again.make()
    again.check()  # the other copy is unchanged
    assert SEEN == []
    assert count == 0


def test_state_that_is_only_read_is_accepted():
    def code(number):
        inner = {name: level + number for name, level in LEVELS.items()}
        return inner, Path("a"), threading.current_thread

    copies = Copies(code)
    assert [copies.make()(2)[0] for _ in range(2)] == [{"low": 3}] * 2
    copies.check()


@pytest.mark.parametrize("kind", ["lab", "testbed", "process", "lock"])
def test_captured_lab_objects_and_locks_are_refused(kind):
    objects = {}

    def make(testbed):
        host = testbed.lab.server("other")
        objects["process"] = host.install("x", lambda ports: _Silent())
        objects.update(lab=testbed.lab, testbed=testbed, lock=threading.Lock())
        captured = objects[kind]
        return own_machine(lambda here, now_us, event: [captured][1:])(testbed)

    with pytest.raises(ParameterError) as caught:
        run(_FEW, make)
    assert "cannot be copied" in caught.value.summary or "what no device has" in caught.value.summary


class _Silent:
    def handle(self, now_us, event):
        return []


@pytest.mark.parametrize(("first", "now"), [(_Silent, 3), (3, _Silent), ([], {})])
def test_value_of_another_kind_is_a_change(first, now):
    assert list(find_changes({"what": first}, {"what": now})) == [".what"]

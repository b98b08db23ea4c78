"""A hostile client changes nothing for others, and what waits for an answer survives odd ones."""

from __future__ import annotations

from random import Random

import pytest
from busy_labs import ADULTS, POLICY
from mud_place import Place
from odd_messages import crossed, garbled, leaves, mutated, overhear

from mudkit.events import Received
from mudkit.systems.mud import ShippedPolicy
from mudkit.systems.mud.policies.policies import Later

MACHINES = {"Gateway", "Processor", "BackEnd", "Replica", "NotificationServer", "Generator", "ClientMachine"}


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(4))
def test_no_message_lets_a_machine_fail_that_waits_for_one(seed):
    """Before each message comes what it may have been: to whom it is not the answer, it must be odd."""
    draw, place = Random(seed), Place(replica_lag_s=0.1)
    ann, bob = place.client("ann", write_policy=Later(3)), place.client("bob", read_policy=ShippedPolicy())
    ann.create("news", split=["g", "p"]).result()
    ann.create("people").result()
    handles = []
    with garbled(place.lab, seed) as sent:
        for number in range(60):
            who, key, n = draw.choice((ann, bob)), draw.choice("ahz"), draw.randrange(4)
            kind = draw.choice(["committed", "uncommitted", "committed_wio"])
            data, shown = {"age": draw.choice([3, 30])}, draw.choice([None, ADULTS])
            match draw.randrange(10):
                case 0 | 1:
                    who.write("news", key, {"n": n}, draw.choice(["blind", "conditional"]), shown, data=data)
                case 2:
                    who.read("news", draw.choice([None, f"key = '{key}'"]), kind, data)
                case 3:
                    who.read("news", data=data, aggregate="count(*), avg(n), min(by)")
                case 4:
                    who.read("news", "lookup('people', by, 'n') = 1", data=data)
                case 5:
                    made = who.read(
                        "news", f"n > {n}", "continuous", data, sync_timestamp=draw.choice([None, 0])
                    )
                    handles.append((who, made))
                case 6 if handles and handles[0][1].status == "ok":
                    who, made = handles.pop(0)
                    who.update_data(made.result(), data)
                    who.unregister(made.result())
                case 7:
                    who.alter("news", remove=draw.choice([[], ["by"]]))
                case 8:
                    draw.choice([who.create, who.drop])(f"t{n}")
                case 9:
                    place.cloud.ship(POLICY.renewed(number + 1), app="news")
            place.lab.run(seconds=draw.choice([0, 0.05, 1, 20]))
        place.lab.run(minutes=45)
    assert sent.keys() == MACHINES
    assert place.lab.problems.empty


class Eve:
    """A device with a client of its own, which sends in its own name whatever it likes to the cloud."""

    def __init__(self, place, heard):
        self.place, self.draw = place, Random(7)
        self.said = [event for events in heard.values() for event in events if event.host == "eve"]
        self.reached = [each for each in heard if any(event.host == "eve" for event in heard[each])]
        self.pool = {}
        """What she has overheard of others, too: their ids, sessions, handles, names."""
        for event in (event for events in heard.values() for event in events):
            for leaf in leaves(event.message):
                self.pool.setdefault(type(leaf), []).append(leaf)

    def attack(self, count):
        for _ in range(count):
            event, process = self.draw.choice(self.said), self.draw.choice(self.reached)
            message = event.message
            for _ in range(self.draw.randrange(1, 4)):
                is_likely = self.draw.random() < 0.8
                message = crossed(self.draw, message, self.pool) if is_likely else mutated(self.draw, message)
            self.place.lab.world._handle(process, Received(event.source, message, "eve"))


def test_a_hostile_client_changes_nothing_for_others():
    place = Place(replica_lag_s=0.1)
    lab, ann, bob = place.lab, place.client("ann"), place.client("bob")
    eve = place.client("eve", app="bank")
    adult, child = [], []
    with overhear(lab) as heard:
        ann.create("news", split=["g", "p"], apps=["news"]).result()
        eve.create("own", split=["g"]).result()
        handles = [
            bob.read("news", "n > 0", "continuous", {"age": age}, callback=answer.append).result()
            for age, answer in ((3, adult), (30, child))
        ]
        for handle, age in zip(handles, (30, 3), strict=True):
            bob.update_data(handle, {"age": age}).result()
        ann.write("news", "a", {"n": 1}, predicate=ADULTS).result()
        bob.read("news", data={"age": 30}).result()
        for table in ("own", "news"):
            eve.write(table, "a", {"n": 7}, data={"age": 99}, predicate=ADULTS)
            eve.read(table, "n > 0", data={"age": 99})
            eve.read(table, aggregate="count(*)")
            watched = eve.read(table, type="continuous", data={"age": 99}, callback=print)
            lab.run(seconds=1)
            if table == "own":
                eve.update_data(watched.result(), {"age": 7}).result()
                eve.unregister(watched.result()).result()
            eve.alter(table, remove=["n"])
            eve.drop(table)
            eve.create(table)
            lab.run(seconds=1)
    lab.run(minutes=1)
    session = bob.installed.machine._watching._session
    hostile = Eve(place, heard)
    assert {type(each.machine).__name__ for each in hostile.reached} == {"Gateway", "NotificationServer"}
    for number in range(2, 102):
        written = ann.write("news", "a", {"n": number}, "conditional", ADULTS)
        other = ann.write("news", f"h{number}", {"n": number})
        counted = bob.read("news", aggregate="count(*)", data={"age": 30}, latest=True)
        for _ in range(10):
            hostile.attack(10)
            lab.run(seconds=0.02)
        assert (written.result(), other.result()) == (number, 1)
        assert counted.result().aggregates["count(*)"] in (number - 1, number)
    lab.run(minutes=1)
    result = ann.read("news", latest=True, data={"age": 30}).result()
    assert result.records == {"a": {"n": 101}, **{f"h{number}": {"n": number} for number in range(2, 102)}}
    assert result.versions["a"] == 101
    assert [each.version for each in adult if each.key == "a"] == list(range(1, 102))
    assert [each.key for each in child] == [f"h{number}" for number in range(2, 102)]
    assert bob.installed.machine._watching._session == session
    assert lab.problems.empty

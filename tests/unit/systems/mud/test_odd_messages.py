"""Messages that nobody honest sends: each machine drops them, none fails, and nothing of others changes."""

from __future__ import annotations

from random import Random

import pytest
from mud_place import Place
from odd_messages import bombard, cross, crossed, forge, garbled, leaves, mutated, overhear

from mudkit.events import Received
from mudkit.systems.mud import Artefact, Conflict, ShippedPolicy
from mudkit.systems.mud.policies.policies import Later

POLICY = Artefact.create("read", 1, ["age"], [[0, 5.0, 1, 2, 2], [0], [1]], ["local", "remote"])
ADULTS = "receiver.age >= 21"
KINDS = {"Gateway", "Processor", "BackEnd", "Replica", "NotificationServer", "Generator", "ClientMachine"}


class Busy(Place):
    """A lab in which everything that MUD tables can do has been done, and all was overheard."""

    def __init__(self):
        super().__init__(replica_lag_s=0.1)
        self.told = []
        self.ann, self.bob = self.client("ann"), self.client("bob", read_policy=ShippedPolicy())
        self.lab.device("eve")
        with overhear(self.lab) as self.heard:
            self._do()

    def _do(self):
        lab, ann, bob = self.lab, self.ann, self.bob
        ann.create("news", split=["g", "p"]).result()
        ann.create("people").result()
        ann.create("gone").result()
        ann.write("people", "ann", {"n": 1}).result()
        for key in ("a", "h", "z"):
            ann.write("news", key, {"n": 1, "by": "ann", "at": [30.3, -97.7]}, predicate=ADULTS).result()
        bob.read("news", data={"age": 30}).result()
        bob.read("news", "key = 'a' AND n >= 1", "uncommitted", data={"age": 30}).result()
        bob.read("news", "n IN (1, 2)", "committed_wio", latest=True).result()
        bob.read("news", "lookup('people', by, 'n') = 1", data={"age": 30}).result()
        bob.read("news", data={"age": 30}, aggregate="count(*), avg(n), min(by)").result()
        handle = bob.read("news", "n > 0", "continuous", {"age": 3}, callback=self.told.append).result()
        bob.update_data(handle, {"age": 30}).result()
        other = bob.read("news", type="continuous", sync_timestamp=0).result()
        ann.write("news", "a", {"n": 2}, predicate=ADULTS).result()
        bob.unregister(other).result()
        ann.write("news", "a", {"n": 3}, "conditional", ADULTS).result()
        for data in ({"age": 30}, None):
            ann.write("news", "h", {"n": 4}, predicate=ADULTS).result()
            with pytest.raises(Conflict):
                bob.write("news", "h", {"n": 9}, "conditional", data=data).result()
        cem = self.client("cem", write_policy=Later(5))
        for written in [cem.write("news", key, {"n": 1}) for key in "cd"]:
            written.result()
        ann.delete("news", "z").result()
        ann.alter("news", add={"city": "text"}, remove=["by"]).result()
        ann.drop("gone").result()
        self.cloud.ship(POLICY, app="news").result()
        lab.run(minutes=41)  # heartbeats

    def machines(self):
        return {type(process.machine).__name__ for process in self.heard}


@pytest.fixture
def busy():
    return Busy()


def test_what_comes_from_who_may_not_send_it_has_no_effect(busy):
    assert busy.machines() == KINDS
    tried = forge(busy.lab, busy.heard)
    assert tried.keys() == KINDS


def test_whatever_a_stranger_sends_changes_nothing(busy):
    lab, draw = busy.lab, Random(3)
    handle = busy.ann.read("news", type="continuous", callback=busy.told.append).result()
    del busy.told[:]
    everything = [event for events in busy.heard.values() for event in events]
    before = busy.ann.read("news", latest=True).result()
    for process, events in busy.heard.items():
        for _ in range(1_000):
            message = draw.choice(events if draw.random() < 0.7 else everything).message
            if draw.random() < 0.9:
                message = mutated(draw, message)
            lab.world._handle(process, Received("eve/x", message, "eve"))
    # What confirms a session that there is not may come late from anybody, and changes nothing.
    dropped = (lab.frame("incidents")["incident"] == "dropped").sum()
    assert 0.99 < dropped / (1_000 * len(busy.heard)) <= 1.0
    lab.run(minutes=1)
    assert lab.problems.empty
    after = busy.ann.read("news", latest=True).result()
    assert (after.records, after.versions) == (before.records, before.versions)
    assert busy.ann.write("news", "new", {"n": 1}).result() == 1
    assert busy.bob.read("news", "key = 'new'").result().versions == {"new": 1}
    lab.run(minutes=1)
    assert [each.key for each in busy.told] == ["new"] * 2  # to ann and to bob
    busy.ann.unregister(handle).result()


@pytest.mark.parametrize(("how", "count"), [(bombard, 10_000), (cross, 3_000)])
def test_no_message_lets_a_machine_fail(scaled, busy, how, count):
    sent = how(busy.lab, busy.heard, scaled(count, count // 10), seed=1)
    assert sent.keys() == KINDS
    busy.lab.run(minutes=1)
    assert busy.lab.problems.empty


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
    assert sent.keys() == KINDS
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

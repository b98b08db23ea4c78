"""Garbled messages to all machines of MUD tables, and a hostile client."""

from __future__ import annotations

from random import Random

import pytest
from busy_labs import ADULTS, POLICY
from mud_place import Place
from odd_messages import cross_message, garble_messages, list_leaves, mutate, record_received

from mudkit.events import Received
from mudkit.systems.mud import ShippedPolicy
from mudkit.systems.mud.policies.policies import Later

MACHINES = {
    "Gateway", "Processor", "BackEnd", "Replica", "NotificationServer", "Generator", "DeviceService", "ClientMachine",
}  # fmt: skip


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(4))
def test_garbled_messages_cause_no_failure_in_any_machine(seed):
    """Deliver garbled copies of each message before the message itself."""
    draw, place = Random(seed), Place(replica_lag_s=0.1)
    ann, bob = place.client("ann", write_policy=Later(3)), place.client("bob", read_policy=ShippedPolicy())
    ann.create("news", split=["g", "p"]).result()
    ann.create("people").result()
    handles = []
    with garble_messages(place.lab, seed) as sent:
        for number in range(60):
            client, key, n = draw.choice((ann, bob)), draw.choice("ahz"), draw.randrange(4)
            kind = draw.choice(["committed", "uncommitted", "committed_wio"])
            data, predicate = {"age": draw.choice([3, 30])}, draw.choice([None, ADULTS])
            match draw.randrange(11):
                case 0 | 1:
                    client.write(
                        "news", key, {"n": n}, draw.choice(["blind", "conditional"]), predicate, data=data
                    )
                case 2:
                    client.read("news", draw.choice([None, f"key = '{key}'"]), kind, data)
                case 3:
                    client.read("news", data=data, aggregate="count(*), avg(n), min(by)")
                case 4:
                    client.read("news", "lookup('people', by, 'n') = 1", data=data)
                case 5:
                    read = client.read(
                        "news", f"n > {n}", "continuous", data, sync_timestamp=draw.choice([None, 0])
                    )
                    handles.append((client, read))
                case 6 if handles and handles[0][1].status == "ok":
                    client, read = handles.pop(0)
                    client.update_data(read.result(), data)
                    client.unregister(read.result())
                case 7:
                    client.alter("news", remove=draw.choice([[], ["by"]]))
                case 8:
                    draw.choice([client.create, client.drop])(f"t{n}")
                case 9:
                    place.cloud.ship(POLICY.renewed(number + 1), app="news")
                case 10:
                    client.batch("news", data=data).increment(key, "n").write("b", {"n": n}).commit()
            place.lab.run(seconds=draw.choice([0, 0.05, 1, 20]))
        place.lab.run(minutes=45)
    assert sent.keys() >= MACHINES  # and the naming machine, if a garbled message makes a server wait in vain
    assert place.lab.problems.empty


class Eve:
    """Hostile device that sends garbled messages to the cloud in its own name."""

    def __init__(self, place, received):
        self.place, self.draw = place, Random(7)
        from_eve = {
            process: [event for event in events if event.host == "eve"]
            for process, events in received.items()
            if process.host.name != "eve"
        }
        self.sent = [event for events in from_eve.values() for event in events]
        self.targets = [process for process, events in from_eve.items() if events]
        self.pool = {}
        """Ids, sessions, handles, and names by type, also those overheard from others."""
        for event in (event for events in received.values() for event in events):
            for leaf in list_leaves(event.message):
                self.pool.setdefault(type(leaf), []).append(leaf)

    def attack(self, count):
        for _ in range(count):
            event, process = self.draw.choice(self.sent), self.draw.choice(self.targets)
            message = event.message
            for _ in range(self.draw.randrange(1, 4)):
                is_likely = self.draw.random() < 0.8
                message = (
                    cross_message(self.draw, message, self.pool) if is_likely else mutate(self.draw, message)
                )
            self.place.lab.world._handle(process, Received(event.source, message, "eve"))


def test_hostile_client_has_no_effect_on_others():
    place = Place(replica_lag_s=0.1)
    lab, ann, bob = place.lab, place.client("ann"), place.client("bob")
    eve = place.client("eve", app="bank")
    adult, child = [], []
    with record_received(lab) as received:
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
            continuous = eve.read(table, type="continuous", data={"age": 99}, callback=print)
            lab.run(seconds=1)
            if table == "own":
                eve.update_data(continuous.result(), {"age": 7}).result()
                eve.unregister(continuous.result()).result()
            eve.alter(table, remove=["n"])
            eve.drop(table)
            eve.create(table)
            lab.run(seconds=1)
    lab.run(minutes=1)
    session = bob.installed.machine.continuous_reads._registrations.session
    hostile = Eve(place, received)
    assert {type(process.machine).__name__ for process in hostile.targets} == {
        "Gateway",
        "NotificationServer",
    }
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
    assert [change.version for change in adult if change.key == "a"] == list(range(1, 102))
    assert [change.key for change in child] == [f"h{number}" for number in range(2, 102)]
    assert bob.installed.machine.continuous_reads._registrations.session == session
    assert lab.problems.empty

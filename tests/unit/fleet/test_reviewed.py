"""Cases that once went wrong: shared addresses, storms, what stores change, effects that are none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fleet_machines import Puppet, Stage

from mudkit import Lab
from mudkit.errors import FailureWarning, ParameterError, SimulationProblem
from mudkit.events import Call, Ciphertext, Complete, Received, Record, Send, SetTimer, TimerFired
from mudkit.experiment import Direct, Item, Scenario, StoreAndForward, Task, Testbed
from mudkit.fleet import World
from mudkit.fleet.store import MemoryStore, SqliteStore
from mudkit.sources.mobility import Replay
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.schema import POSITIONS

S = 1_000_000


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_stores_give_back_what_was_put_or_refuse_it(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.db")
    good = {
        "a": [1, 2.5, None, True, "x"],
        "raw": b"\0x",
        "sealed": Ciphertext(b"\1y"),
        "in": [{"c": Ciphertext(b"z")}],
    }
    store.put("good", good)
    store.commit()
    result = store.get("good")
    assert result == good
    assert type(result["sealed"]) is Ciphertext
    assert type(result["raw"]) is bytes
    assert type(result["in"][0]["c"]) is Ciphertext
    for bad in ({1, 2}, (1, 2), float("nan"), [{"x": (1,)}], object(), 1 << 80):
        with pytest.raises(ParameterError, match="key 'bad'"):
            store.put("bad", bad)
    assert store.get("bad") is None


def test_what_a_relay_stored_sealed_arrives_sealed():
    lab = Lab(1, record_held=True)

    class Keeper:
        def __init__(self, ports: Any) -> None:
            self.store = ports.store

        def handle(self, now_us: int, event: Any) -> Any:
            if isinstance(event, Received):
                self.store.put("kept", event.message)
                return (Send("bob", self.store.get("kept")),)
            return ()

    lab.server("relay").install("keep", Keeper)
    lab.device("bob").install("keep", Puppet)
    ann = lab.device("ann").install("keep", Puppet)
    ann.call("do", effects=[Send("relay", {"body": Ciphertext(b"..lunch.."), "to": "bob"})])
    lab.run(minutes=1)
    held = lab.held().set_index(["party", "how"])
    forms = held[held["field"].str.endswith("body")]["form"]
    assert set(forms.index) == {("relay", "received"), ("relay", "stored"), ("bob", "received")}
    assert set(forms) == {"ciphertext"}
    assert {party for party, _, _ in lab.trace.exposure.find("lunch")} == {"relay", "bob"}


def test_two_systems_in_one_lab():
    lab = Lab(1)
    lab.fleet(2)
    testbed = Testbed(Task.addressed(Scenario(devices=2)), lab)
    for system in (StoreAndForward(testbed), Direct(testbed)):
        to = {"to": ("phone-00001",)}
        system.publish(Item(f"by {system.name}", "phone-00000", to, 100, None))
    lab.run(minutes=1)
    assert sorted(zip(lab.deliveries()["system"], lab.deliveries()["status"], strict=True)) == [
        ("direct", "unread"),
        ("store and forward", "unread"),
    ]
    assert set(lab.bill()["system"]) == {"direct", "store and forward"}
    with pytest.raises(ParameterError, match="run twice"):
        Direct(testbed)


class Restless:
    def __init__(self, ports: Any) -> None:
        pass

    def handle(self, now_us: int, event: Any) -> Any:
        return (SetTimer("again", 0),)


def test_a_storm_is_noticed_however_time_goes_on():
    world = World()
    process = world.add_server("server").install("restless", Restless)

    async def wait() -> None:
        await process.call("never answered")

    with pytest.raises(SimulationProblem, match="a timer needs a delay"):
        asyncio.run(wait())


@pytest.mark.soak
def test_a_crowd_is_no_storm():
    stage = Stage()
    stage.do("server", *(SetTimer(str(n), S) for n in range(1_100_000)))
    stage.world.run(2 * S)
    assert len(stage.puppets["server"].of(TimerFired)) == 1_100_000


def test_what_is_on_its_way_goes_to_who_has_the_address_when_it_gets_there():
    stage = Stage()
    ann, bob = stage.world.hosts["ann"], stage.world.hosts["bob"]
    stage.do("ann", Send("bob@2", "early"))  # bob is there before the upload is over
    stage.world.at(1000, lambda _: bob.readdress("bob@2"))
    stage.world.run(9 * S)
    assert [event.message for event in stage.puppets["bob"].of(Received)] == ["early"]
    assert stage.account("bob", "down").messages == 1
    stage.do("server", Send("bob@2", "late"))  # bob goes, and ann comes, while it is on its way down

    def swap(_: Any) -> None:
        bob.readdress("bob@3")
        ann.readdress("bob@2")

    stage.world.at(stage.world.now_us + 1000, swap)
    stage.world.run(99 * S)
    assert [event.message for event in stage.puppets["ann"].of(Received)] == []
    assert {(row.device, row.direction) for row in stage.world.bill()} == {("ann", "up"), ("bob", "down")}


def test_an_address_is_taken_by_nobody_else():
    stage = Stage()
    stage.world.hosts["bob"].install("more", Puppet, name="x")
    before = dict(stage.world.at_address)
    for host, address in (("ann", "bob/x"), ("ann", "bob"), ("bob", "ann")):
        with pytest.raises(ParameterError, match="in use"):
            stage.world.hosts[host].readdress(address)
    with pytest.raises(ParameterError, match="in use"):
        stage.world.hosts["ann"].change_network("wifi", "bob")
    assert stage.world.at_address == before
    assert stage.world.hosts["ann"].is_online
    assert stage.world.hosts["ann"].network == "lte"
    stage.world.hosts["ann"].readdress("spot")
    with pytest.raises(ParameterError, match="of this name"):
        stage.world.add_device("spot")


def test_a_name_with_an_at_sign_moves_like_any_other():
    lab = Lab()
    lab.device("jane@home")
    assert lab.faults.change_network("jane@home", "wifi") == "jane@home@2"
    assert lab.faults.change_address("jane@home") == "jane@home@3"
    assert lab.devices["jane@home"].is_online


def test_waiting_for_an_answer_ends_where_the_trace_ends():
    import datetime as dt

    import pyarrow as pa

    times = [dt.datetime(2020, 1, 1, 0, minute, tzinfo=dt.UTC) for minute in range(10)]
    rows = pa.table(
        [["a"] * 10, times, [1.0] * 10, [2.0] * 10, pa.nulls(10, pa.float64())], names=POSITIONS.names
    ).cast(POSITIONS)
    lab = Lab()
    relay = Relay(lab)
    ann = Client(lab.device("ann", mobility=Replay(rows)), relay)
    lab.faults.cut("ann")
    with pytest.raises(ParameterError, match="mobility trace does not cover"):
        ann.send("bob", "hello").result()
    assert lab.world.now_us == 540 * S


def test_a_long_message_on_a_slow_link_is_sent_once():
    lab = Lab(1)
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name, link="edge"), relay) for name in ("ann", "bob"))
    ann.send("bob", "x" * 200_000)
    lab.run(hours=1)
    assert lab.frame("messages")["kind"].value_counts()[["send", "deliver"]].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("effects", "answer"),
    [
        (["b"], "in puppets|puppets on ann"),
        ([Send("server", object())], "puppets on ann"),
        ([Record("reads", {})], "box_km"),
        ([Complete(1, error="bad")], "is an exception"),
    ],
)
def test_effects_that_are_none_say_whose_they_are(effects, answer):
    lab = Lab()
    process = lab.device("ann").install("puppets", Puppet)
    with pytest.warns(FailureWarning, match=answer):
        asked = process.call("do", effects=effects)
    with pytest.raises(SimulationProblem, match=answer):
        asked.result()
    [problem] = lab.problems.to_dict("records")
    assert (problem["device"], problem["system"]) == ("ann", "puppets")
    assert answer.split("|")[-1] in problem["detail"]


@pytest.mark.parametrize("delay_us", [100.5, float("nan"), "1", True, -1])
def test_a_timer_fires_on_a_microsecond(delay_us):
    stage = Stage()
    with pytest.raises(ParameterError, match="puppets on ann"):
        stage.do("ann", SetTimer("x", delay_us))


def test_a_crash_point_kills_the_host_once():
    class Writer(Puppet):
        def handle(self, now_us: int, event: Any) -> Any:
            if isinstance(event, Call):
                self.ports.store.put("n", 1)
            return ()

    lab = Lab()
    device = lab.device("ann")
    first, second = (device.install("w", Writer, name=name) for name in ("p", "q"))
    lab.run(seconds=1)
    lab.faults.kill("ann", at="before commit")
    first.call("write")
    lab.run(seconds=1)
    assert first.machine is None
    assert second.machine is None
    lab.faults.restart("ann")
    second.call("write")
    lab.run(seconds=1)
    assert second.machine is not None


def test_a_machine_that_could_not_be_made_can_be_installed_again():
    lab = Lab()
    device = lab.device("ann")

    def broken(ports: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        device.install("s", broken)
    device.install("s", Puppet)
    lab.run(seconds=1)


def test_no_two_machines_draw_alike():
    device = Lab().device("ann")
    drawn = [
        device.install(system, Puppet, name=name).entropy(8)
        for system, name in (("a b", "c"), ("a", "b c"), ("a", "b"))
    ]
    assert len(set(drawn)) == 3

"""Faults do what they say, and are seeded."""

from __future__ import annotations

import pytest
from fleet_machines import Puppet, Stage

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Call, LinkUp, Received, Send, SendFailed
from mudkit.fleet import Faults

S = 1_000_000


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_cut_ends_after_its_minutes(stage):
    faults = Faults(stage.world)
    faults.cut("ann", minutes=2)
    stage.world.run(119 * S)
    assert not stage.world.hosts["ann"].is_online
    stage.world.run(121 * S)
    assert stage.world.hosts["ann"].is_online
    faults.cut("ann")
    stage.world.run(9999 * S)
    faults.mend("ann")
    stage.world.run(10_000 * S)
    assert len(stage.puppets["ann"].of(LinkUp)) == 3


def test_another_address(stage):
    faults = Faults(stage.world)
    assert faults.change_address("ann") == "ann@2"
    stage.do("server", Send("ann", 1), Send("ann@2", 2))
    stage.do("ann", Send("server", 3))
    stage.world.run(9 * S)
    assert stage.puppets["server"].of(SendFailed) == [SendFailed("ann", 1)]
    assert stage.puppets["ann"].of(Received) == [Received("server", 2, "server")]
    assert stage.puppets["ann"].of(LinkUp)[-1] == LinkUp("ann@2", "lte")
    assert stage.puppets["server"].of(Received) == [Received("ann@2", 3, "ann")]
    assert faults.change_address("ann") == "ann@3"
    assert {row.device for row in stage.world.bill()} == {"ann"}
    with pytest.raises(ParameterError, match="in use"):
        faults.change_address("bob", "ann@3")


@pytest.mark.parametrize(
    "fault", [{"loss_share": 0.3}, {"repeat_share": 0.3}, {"delay_share": 0.3, "delay_s": 5}]
)
def test_mangled_messages_are_those_of_the_seed(fault):
    def arrived(seed: int) -> list[int]:
        stage = Stage(seed)
        Faults(stage.world).messages(**fault)
        for n in range(300):
            stage.do("ann", Send("server", n))
        stage.world.run(600 * S)
        assert stage.puppets["ann"].of(SendFailed) == []
        return [event.message for event in stage.puppets["server"].of(Received)]

    result = arrived(1)
    assert result == arrived(1) != arrived(2)
    if "loss_share" in fault:
        assert 150 < len(result) < 270
        assert sorted(set(result)) == result
    elif "repeat_share" in fault:
        assert 330 < len(result) < 450
        assert set(result) == set(range(300))
    else:
        assert sorted(result) == list(range(300)) != result


def test_faults_end(stage):
    faults = Faults(stage.world)
    faults.messages(loss_share=1)
    faults.messages()
    stage.do("ann", Send("server", 1))
    stage.world.run(9 * S)
    assert len(stage.puppets["server"].of(Received)) == 1


class Writer(Puppet):
    """Writes whenever it is called."""

    def handle(self, now_us, event):
        if isinstance(event, Call):
            self.ports.store.put("n", event.op_id)
        return super().handle(now_us, event)


@pytest.mark.parametrize("meanwhile", ["kill", "wipe", "off"])
def test_a_crash_point_is_forgotten_when_the_machines_end_otherwise(meanwhile):
    lab = Lab()
    process = lab.device("ann").install("w", Writer)
    lab.run(seconds=1)
    lab.faults.kill("ann", at="before commit")
    if meanwhile == "kill":
        lab.faults.kill("ann")
        lab.faults.restart("ann")
    elif meanwhile == "wipe":
        lab.faults.wipe("ann")
    else:
        lab.faults.switch_off("ann")
        lab.run(seconds=1)
        lab.faults.switch_on("ann")
    lab.run(seconds=1)
    process.call("write", effects=())
    lab.run(seconds=1)
    assert process.machine is not None
    lab.faults.kill("ann", at="before commit")
    process.call("write", effects=())
    lab.run(seconds=1)
    assert process.machine is None


@pytest.mark.parametrize(("point", "is_kept"), [("before commit", False), ("after commit", True)])
def test_the_machines_of_a_host_end_at_the_crash_point_that_is_named_once(point, is_kept):
    lab = Lab()
    ann = lab.device("ann")
    first, second = ann.install("w", Writer, name="1"), ann.install("w", Writer, name="2")
    lab.run(seconds=1)
    lab.faults.kill("ann", at=point)
    assert first.machine is not None is not second.machine
    first.call("write", effects=())
    lab.run(seconds=1)
    assert first.machine is second.machine is None
    assert (first.store.get("n") is not None) == is_kept
    lab.faults.restart("ann")
    for each in (second, first):
        each.call("write", effects=())
    lab.run(seconds=1)
    assert first.machine is not None is not second.machine


def test_a_crash_point_that_no_machine_comes_to_kills_nobody():
    lab = Lab()
    process = lab.device("ann").install("w", Writer)
    lab.run(seconds=1)
    lab.faults.kill("ann", at="before the second commit")
    process.call("write", effects=())
    lab.run(seconds=1)
    assert process.machine is not None


def test_what_is_not_delayed_comes_at_its_time_and_a_repeated_one_later(stage):
    def arrived(**fault: float) -> list[int]:
        stage = Stage()
        Faults(stage.world).messages(**fault)
        stage.do("ann", Send("server", 1))
        stage.world.run(60 * S)
        return [now_us for now_us, event in stage.puppets["server"].seen if isinstance(event, Received)]

    (at_us,) = arrived()
    assert arrived(delay_s=9.0) == [at_us]
    assert arrived(delay_s=9.0, repeat_share=1.0) == [at_us, at_us + 9 * S]
    (late_us,) = arrived(delay_s=9.0, delay_share=1.0)
    assert at_us < late_us < at_us + 9 * S


def test_what_is_sent_to_nobody_or_to_who_has_another_address_changes_no_draw():
    def lost(moves: bool) -> list[int]:
        stage = Stage()
        faults = Faults(stage.world)
        faults.messages(loss_share=0.5)
        for number in range(100):
            if moves and number % 10 == 0:
                stage.do("server", Send("nobody", number))
                faults.change_address("ann")
            stage.do("server", Send(stage.world.hosts["ann"].address, number))
            stage.world.run((number + 1) * S)
        return [event.message for event in stage.puppets["ann"].of(Received)]

    assert 20 < len(lost(False)) < 80
    assert lost(True) == lost(False)


def test_a_restored_host_has_what_it_had_committed_at_its_backup():
    lab = Lab(seed=1)
    device = lab.device("ann")
    stores = [device.install("test", _Counting, name=name).store for name in ("one", "two")]
    stores[0].put("count", 1)
    stores[0].commit()
    stores[1].put("not committed", 1)
    backup = lab.faults.backup("ann")
    stores[0].put("count", 2)
    stores[0].put("later", True)
    stores[0].commit()
    started = device.processes[0].session
    lab.faults.restore("ann", backup)
    assert dict(stores[0].items()) == {"count": 1}
    assert device.processes[0].session == started + 1
    later = device.install("test", _Counting, name="three").store
    later.put("count", 3)
    later.commit()
    lab.faults.switch_off("ann")
    lab.faults.restore("ann", backup)
    assert dict(later.items()) == {}
    assert device.processes[0].machine is None


class _Counting:
    def __init__(self, ports):
        pass

    def handle(self, now_us, event):
        return ()

"""Injected faults and their seeds."""

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


def test_cut_ends_after_its_duration(stage):
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


def test_changed_address_receives_and_former_one_fails(stage):
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
def test_mangled_messages_depend_only_on_the_seed(fault):
    def receive(seed: int) -> list[int]:
        stage = Stage(seed)
        Faults(stage.world).messages(**fault)
        for n in range(300):
            stage.do("ann", Send("server", n))
        stage.world.run(600 * S)
        assert stage.puppets["ann"].of(SendFailed) == []
        return [event.message for event in stage.puppets["server"].of(Received)]

    result = receive(1)
    assert result == receive(1) != receive(2)
    if "loss_share" in fault:
        assert 150 < len(result) < 270
        assert sorted(set(result)) == result
    elif "repeat_share" in fault:
        assert 330 < len(result) < 450
        assert set(result) == set(range(300))
    else:
        assert sorted(result) == list(range(300)) != result


def test_message_faults_end(stage):
    faults = Faults(stage.world)
    faults.messages(loss_share=1)
    faults.messages()
    stage.do("ann", Send("server", 1))
    stage.world.run(9 * S)
    assert len(stage.puppets["server"].of(Received)) == 1


class Writer(Puppet):
    """Puppet that writes to its store at each call."""

    def handle(self, now_us, event):
        if isinstance(event, Call):
            self.ports.store.put("n", event.op_id)
        return super().handle(now_us, event)


@pytest.mark.parametrize("end", ["kill", "wipe", "off"])
def test_crash_point_is_cleared_by_another_end_of_the_machines(end):
    lab = Lab()
    process = lab.device("ann").install("w", Writer)
    lab.run(seconds=1)
    lab.faults.kill("ann", at="before commit")
    if end == "kill":
        lab.faults.kill("ann")
        lab.faults.restart("ann")
    elif end == "wipe":
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
def test_machines_of_a_host_end_once_at_a_crash_point(point, is_kept):
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
    for process in (second, first):
        process.call("write", effects=())
    lab.run(seconds=1)
    assert first.machine is not None is not second.machine


def test_unreached_crash_point_kills_no_machine():
    lab = Lab()
    process = lab.device("ann").install("w", Writer)
    lab.run(seconds=1)
    lab.faults.kill("ann", at="before the second commit")
    process.call("write", effects=())
    lab.run(seconds=1)
    assert process.machine is not None


def test_only_delayed_and_repeated_messages_arrive_late(stage):
    def receive(**fault: float) -> list[int]:
        stage = Stage()
        Faults(stage.world).messages(**fault)
        stage.do("ann", Send("server", 1))
        stage.world.run(60 * S)
        return [now_us for now_us, event in stage.puppets["server"].seen if isinstance(event, Received)]

    (at_us,) = receive()
    assert receive(delay_s=9.0) == [at_us]
    assert receive(delay_s=9.0, repeat_share=1.0) == [at_us, at_us + 9 * S]
    (late_us,) = receive(delay_s=9.0, delay_share=1.0)
    assert at_us < late_us < at_us + 9 * S


def test_undeliverable_messages_do_not_change_the_draws():
    def receive_with_loss(is_moving: bool) -> list[int]:
        stage = Stage()
        faults = Faults(stage.world)
        faults.messages(loss_share=0.5)
        for number in range(100):
            if is_moving and number % 10 == 0:
                stage.do("server", Send("nobody", number))
                faults.change_address("ann")
            stage.do("server", Send(stage.world.hosts["ann"].address, number))
            stage.world.run((number + 1) * S)
        return [event.message for event in stage.puppets["ann"].of(Received)]

    assert 20 < len(receive_with_loss(False)) < 80
    assert receive_with_loss(True) == receive_with_loss(False)


def test_restored_host_has_the_committed_state_of_its_backup():
    lab = Lab(seed=1)
    device = lab.device("ann")
    stores = [device.install("test", _IdleMachine, name=name).store for name in ("one", "two")]
    stores[0].put("count", 1)
    stores[0].commit()
    stores[1].put("not committed", 1)
    backup = lab.faults.backup("ann")
    stores[0].put("count", 2)
    stores[0].put("later", True)
    stores[0].commit()
    session = device.processes[0].start_number
    lab.faults.restore("ann", backup)
    assert dict(stores[0].items()) == {"count": 1}
    assert device.processes[0].start_number == session + 1
    third_store = device.install("test", _IdleMachine, name="three").store
    third_store.put("count", 3)
    third_store.commit()
    lab.faults.switch_off("ann")
    lab.faults.restore("ann", backup)
    assert dict(third_store.items()) == {}
    assert device.processes[0].machine is None


class _IdleMachine:
    def __init__(self, ports):
        pass

    def handle(self, now_us, event):
        return ()

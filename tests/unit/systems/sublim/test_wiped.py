"""Devices with a wiped or restored store under the same name."""

from __future__ import annotations

from typing import Any

import pytest

from mudkit import Lab
from mudkit.events import Ports, Received, Send
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim._policy.actions import Drop, Keep
from mudkit.systems.sublim.servers.access_point import AccessPointMachine
from mudkit.systems.sublim.sites import Site
from mudkit.wire import as_wire


def wipe(installed: Any) -> None:
    installed.kill()
    installed.store = MemoryStore()
    installed.start()


def create_ward(points: int = 1, **device_options: Any) -> tuple[Lab, PublishServer, Any, Subscriber]:
    lab = Lab(seed=7)
    net = PublishServer(lab)
    for number in range(points):
        AccessPoint(lab, net, at=(number * 0.001, 0.0), range_m=80.0)
    device = lab.device("doctor", link="wifi", at=(0.0, 0.0), **device_options)
    doctor = Subscriber(device, net, report_s=2)
    lab.run(seconds=30)
    return lab, net, device, doctor


def move(lab: Lab, device: Any, place: int) -> None:
    device.set_measured("loc", (place * 0.001, 0.0))
    lab.run(seconds=30)


def read_numbers(doctor: Subscriber) -> list[int]:
    return [message["n"] for message in doctor.read().result()]


def publish(lab: Lab, net: PublishServer, *numbers: int) -> None:
    for number in numbers:
        net.publish({"n": number, "m": number}).result()
    lab.run(seconds=60)


ODD = Policy("odd", [Rule("message.n IN (1, 3, 5, 7, 9)"), Rule(None, Drop())])
SHORT = Policy("short", [Rule(None, Keep(("n",)))])


@pytest.mark.parametrize("walk", [[], [1], [1, 0], [1, 2, 0, 1, 2], [2, 1]])
@pytest.mark.parametrize("after", [[], [0], [1], [2, 0], [0, 1, 2, 1]])
def test_wiped_device_is_served_without_further_loss(walk, after):
    lab, net, device, doctor = create_ward(3)
    doctor.set_policy(ODD).result()
    for place in walk:
        move(lab, device, place)
        publish(lab, net, 1, 2)
    publish(lab, net, 3)
    doctor.read().result()
    wipe(doctor.installed)
    lab.run(seconds=60)
    doctor.set_policy(SHORT).result(120)
    publish(lab, net, 4)
    for number, place in enumerate(after):
        move(lab, device, place)
        publish(lab, net, 10 + number)
    assert read_numbers(doctor) == [4, *range(10, 10 + len(after))]
    device.change_context(display_px=777)
    lab.run(seconds=60)
    state = doctor.state()
    assert state["automatic"]["display_px"] == 777
    assert lab.problems.empty


def test_wiped_device_continues_with_the_state_of_its_access_point():
    lab, net, device, doctor = create_ward()
    doctor.set_policy(ODD).result()
    for _ in range(3):
        device.change_context(display_px=480)
        lab.run(seconds=5)
        device.change_context(display_px=960)
        lab.run(seconds=5)
    publish(lab, net, 1, 2, 3)
    assert read_numbers(doctor) == [1, 3]
    wipe(doctor.installed)
    publish(lab, net, 5, 6, 7)
    assert read_numbers(doctor) == [5, 7]
    assert lab.problems.empty


def test_device_is_wiped_repeatedly():
    lab, net, device, doctor = create_ward(2)
    for number in range(5):
        doctor.set_policy(SHORT if number % 2 else ODD).result(120)
        move(lab, device, number % 2)
        publish(lab, net, 1, 3)
        assert read_numbers(doctor) == [1, 3]
        wipe(doctor.installed)
        lab.run(seconds=30)


def test_late_messages_of_an_older_incarnation_change_nothing():
    sites = [Site("ap", None, 100.0, True)]
    machine = AccessPointMachine(Ports(MemoryStore(), lambda n: bytes(n), "ap"), "server", {}, sites)
    machine.handle(0, Received("server", {"kind": "messages", "last": 0, "first": 1, "messages": []}))

    def attach(incarnation: str, epoch: int, **fields: Any) -> Any:
        message = {
            "kind": "attach", "subscriber": "doctor", "epoch": epoch, "from": "ap", "fresh": True, "report": epoch,
            "automatic": {"battery": float(epoch)}, "incarnation": incarnation, **fields,
        }  # fmt: skip
        return [
            as_wire(effect.message)
            for effect in machine.handle(0, Received("doctor/sublim", message))
            if isinstance(effect, Send) and effect.to != "server"
        ]

    def state() -> Any:
        return as_wire(machine._agents["doctor"].record)

    assert [message["kind"] for message in attach("aaaaaaaa", 3)] == ["attached"]
    (identify,) = attach("bbbbbbbb", 1)
    assert (identify["kind"], identify["incarnation"]) == ("identify", "bbbbbbbb")
    assert [message["kind"] for message in attach("bbbbbbbb", 9)] == [
        "identify"
    ]  # no late copy has the nonce
    (answer,) = attach("bbbbbbbb", 1, nonce=identify["nonce"])
    assert answer == {"kind": "behind", "incarnation": "bbbbbbbb", "epoch": 3}
    assert state()["incarnation"] == "aaaaaaaa"
    (attached,) = attach("bbbbbbbb", 4)
    assert (attached["kind"], attached["session"]) == ("attached", identify["nonce"])
    after = state()
    for message in (
        {"kind": "report", "number": 99, "automatic": {}},
        {"kind": "policy", "number": 99, "policy": SHORT.to_dict()},
    ):
        late = {**message, "subscriber": "doctor", "incarnation": "aaaaaaaa"}
        assert machine.handle(0, Received("doctor/sublim", late)) == ()
    assert [message["kind"] for message in attach("aaaaaaaa", 3)] == ["identify"]  # now the former one
    assert state() == after


def count_rollbacks(lab):
    incidents = lab.frame("incidents")
    return int((incidents["incident"] == "rolled back").sum())


def test_policy_with_a_reused_number_is_set():
    lab, net, _, doctor = create_ward()
    backup = lab.faults.backup("doctor")
    doctor.set_policy(ODD).result()
    lab.faults.restore("doctor", backup)
    lab.run(seconds=30)
    doctor.set_policy(SHORT).result()
    publish(lab, net, 1, 2)
    assert doctor.state()["policy"] == 2
    assert [sorted(message) for message in doctor.read().result()] == [["n"], ["n"]]
    assert count_rollbacks(lab)


def test_policy_with_a_lower_number_is_set_after_restore():
    lab, net, _, doctor = create_ward()
    backup = lab.faults.backup("doctor")
    for policy in (SHORT, ODD, SHORT, ODD):
        doctor.set_policy(policy).result()
    lab.faults.restore("doctor", backup)
    lab.run(seconds=30)
    doctor.set_policy(SHORT).result()
    publish(lab, net, 1, 2)
    assert read_numbers(doctor) == [1, 2]


def test_reports_of_a_restored_device_are_accepted():
    lab, _, device, doctor = create_ward()
    backup = lab.faults.backup("doctor")
    for pixels in (320, 480, 640):
        device.change_context(display_px=pixels)
        lab.run(seconds=10)
    lab.faults.restore("doctor", backup)
    device.change_context(display_px=960)
    lab.run(seconds=30)
    assert doctor.state()["automatic"]["display_px"] == 960


def test_restored_device_is_served_at_its_old_and_new_place():
    for walk in ([1], [1, 2], [1, 0], [1, 2, 0, 1], [2, 1, 0]):
        lab, net, device, doctor = create_ward(3)
        backup = lab.faults.backup("doctor")
        for place in walk:
            move(lab, device, place)
        for back in (walk[-1], 0):
            device.set_measured("loc", (back * 0.001, 0.0))
            lab.faults.restore("doctor", backup)
            lab.run(minutes=5)
            publish(lab, net, 7)
            assert 7 in read_numbers(doctor), (walk, back)

"""SUBLIM end to end, in a lab."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import MudkitError, ParameterError, PredicateError
from mudkit.experiment import Scenario, Sublim, run
from mudkit.systems.sublim import (
    AccessPoint,
    PlainSubscriber,
    Policy,
    PolicyError,
    PublishServer,
    Rule,
    Subscriber,
    explain,
    policy,
)
from mudkit.systems.sublim._policy.actions import Drop, Keep
from mudkit.systems.sublim.study import picu

ECG = bytes(range(250)) * 4


def ward(report_s=10.0, change_share=0.05, **more):
    """Return a lab, a publish server with one access point, and a subscriber on a device."""
    lab = Lab(seed=7)
    net = PublishServer(lab)
    AccessPoint(lab, net)
    device = lab.device("doctor-pda", **more)
    return lab, net, Subscriber(device, net, report_s=report_s, change_share=change_share)


def test_a_policy_of_the_sample_rewrites_what_a_doctor_gets():
    lab = Lab(seed=7)
    net = PublishServer(lab)
    AccessPoint(lab, net, at=(44.4, 26.1), range_m=150)
    device = lab.device("doctor-pda", link="wifi", at=(44.4, 26.1), display_px=320)
    doctor = Subscriber(device, net)
    doctor.set_policy(Policy.from_yaml("data/sample/picu.yaml")).result()
    net.publish({"patient": 7, "pulse": 48, "ecg": ECG})
    net.publish({"patient": 7, "pulse": 70, "ecg": ECG})
    lab.run(seconds=5)
    (got,) = doctor.read().result()
    assert (got["patient"], got["pulse"], len(got["ecg"]), got["ecg_ratio"]) == (7, 48, 320, 3.125)
    assert doctor.read().result() == []
    answer = explain({"patient": 7, "pulse": 70}, doctor)
    assert str(answer) == (
        "dropped: R4, a patient of others who is well (message.patient = 7, message.pulse = 70)"
    )
    assert list(answer.table()["holds"]) == ["TRUE"]


def test_a_message_is_for_those_who_are_served_and_a_policy_holds_once_it_has_arrived():
    lab, net, doctor = ward(link="wifi")
    net.publish({"pulse": 70}, "before it is attached")
    lab.run(seconds=5)
    setting = doctor.set_policy(picu(patients=[8]))
    net.publish({"patient": 7, "pulse": 71}, "before the policy has come").result()
    setting.result()
    net.publish({"patient": 7, "pulse": 72}, "dropped")
    net.publish({"patient": 7, "pulse": 48}, "low")
    lab.run(seconds=5)
    assert [each["pulse"] for each in doctor.read().result()] == [71, 48]
    assert list(lab.deliveries()["item"]) == ["before the policy has come", "low"]


def test_a_function_of_a_trusted_notebook_decides():
    lab, net, doctor = ward()

    @policy
    def low(message, state):
        state.set_property("seen", (state.get_property("seen") or 0) + 1)
        return message if message["pulse"] < 50 else None

    doctor.set_policy(low).result()
    for pulse in (48, 70, 30):
        net.publish({"pulse": pulse})
    lab.run(seconds=5)
    assert [each["pulse"] for each in doctor.read().result()] == [48, 30]
    assert doctor.state()["variables"] == {"seen": 3}


def test_a_policy_is_replaced_while_messages_are_under_way():
    lab, net, doctor = ward(link="edge")
    doctor.set_policy(picu([7])).result()
    lab.faults.cut("doctor-pda")
    net.publish({"patient": 7, "pulse": 70}).result()  # decided by the first, and waits
    lab.run(seconds=1)
    replaced = doctor.set_policy(Policy("pulse only", [Rule(do=Keep(("pulse",)))]))
    lab.faults.mend("doctor-pda")
    replaced.result()
    net.publish({"patient": 7, "pulse": 71}).result()
    lab.run(seconds=30)
    assert doctor.read().result() == [{"patient": 7, "pulse": 70}, {"pulse": 71}]


def test_what_changes_while_a_device_attaches_is_reported():
    """A device that goes over to another network attaches again, and learns only then what the link carries."""
    lab, _, doctor = ward(link="wifi")
    lab.run(minutes=1)
    assert doctor.state()["automatic"]["bandwidth_kbps"] == 40_000
    lab.devices["doctor-pda"].change_network("edge")
    lab.run(minutes=1)
    assert doctor.state()["automatic"]["bandwidth_kbps"] == 180


def test_it_runs_as_an_experiment_does():
    came = run(Scenario(devices=4, hours=6.0, outage=0.1, link="umts_3g"), Sublim, 1)
    assert came.system == "sublim"
    assert came.measures()["delivered_share"] > 0.9
    assert set(came.deliveries["status"]) <= {"read", "unread", "lost"}
    assert set(came.bill["system"]) == {"sublim"}
    again = run(Scenario(devices=4, hours=6.0, outage=0.1, link="umts_3g"), Sublim, 1)
    assert again.measures() == came.measures()


def test_automatic_variables_are_reported_when_they_change_and_not_too_often():
    reports = {"report_s": 60.0, "change_share": 0.1}
    lab, _, doctor = ward(**reports, link="wifi", at=(0.0, 0.0), battery_j=1_000.0, display_px=320)
    device = lab.devices["doctor-pda"]
    lab.run(seconds=10)
    assert doctor.state()["automatic"] == {"battery": 100.0, "bandwidth_kbps": 40_000.0, "display_px": 320}
    device.change_context(display_px=300)  # less than a tenth
    lab.run(minutes=2)
    assert doctor.state()["automatic"]["display_px"] == 320
    device.change_context(display_px=200)
    lab.run(seconds=1)
    assert doctor.state()["automatic"]["display_px"] == 200
    device.change_context(display_px=100)
    lab.run(seconds=30)
    assert doctor.state()["automatic"]["display_px"] == 200  # too soon
    lab.run(seconds=60)
    assert doctor.state()["automatic"]["display_px"] == 100
    sent = lab.bill().set_index(["device", "direction"]).loc[("doctor-pda", "up"), "messages"]
    assert sent == 3  # attach, and two reports: they are charged


def test_a_device_that_was_killed_goes_on_where_it_was():
    lab, net, doctor = ward(link="wifi")
    doctor.set_policy(picu([7])).result()
    net.publish({"patient": 7, "pulse": 70})
    lab.run(seconds=5)
    lab.faults.kill("doctor-pda")
    net.publish({"patient": 7, "pulse": 71})
    lab.run(seconds=5)
    lab.faults.restart("doctor-pda")
    lab.faults.change_address("doctor-pda")
    lab.run(seconds=30)
    assert [each["pulse"] for each in doctor.read().result()] == [70, 71]
    assert doctor.state()["policy"] == 1


LATE = Policy("late", [Rule(), Rule("message.pulse < 50", [Drop()])])
REFUSED = [
    (lambda net, doctor: doctor.set_policy(LATE), "unreachable"),
    (lambda net, doctor: doctor.set_policy("R1"), "a Policy, such as"),
    (lambda net, doctor: explain({"a": 1}, doctor), "no policy"),  # who has none gets everything
    (lambda net, doctor: net.publish({"a": 1}, item=""), "item"),
    *((lambda net, doctor, odd=odd: net.publish(odd), "message")
      for odd in (5, {1: 2}, {"a": {1, 2}}, {"a": float("nan")}, {"a": object()})),
    (lambda net, doctor: AccessPoint(net.lab, net, at=(100.0, 0.0)), "where: +at"),
    (lambda net, doctor: AccessPoint(net.lab, net, range_m=-1), "range_m"),
    (lambda net, doctor: PlainSubscriber(net.lab.device("nurse"), net, "message.pulse <"), "incomplete"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "says"), REFUSED)
def test_what_cannot_be_carried_out_is_refused_in_words(call, says):
    _, net, doctor = ward()
    with pytest.raises(MudkitError, match=says) as caught:
        call(net, doctor)
    assert isinstance(caught.value, ParameterError | PolicyError | PredicateError)


def test_while_its_access_point_is_dead_nobody_serves_it():
    lab, _net, doctor = ward()
    lab.run(seconds=5)
    (point,) = (name for name in lab.world.hosts if name not in ("doctor-pda", "publish-server"))
    lab.faults.kill(point)
    with pytest.raises(ParameterError, match="No access point serves"):
        doctor.state()
    lab.faults.restart(point)
    assert doctor.state()["epoch"] == 1


def test_what_is_published_never_changes():
    lab, net, doctor = ward()
    lab.run(seconds=5)
    message = {"a": [1]}
    net.publish(message)
    message["a"].append(2)
    lab.run(seconds=5)
    assert doctor.read().result() == [{"a": [1]}]


def test_explaining_changes_nothing():
    lab, _net, doctor = ward(report_s=0.0, battery_j=100.0, base_mw=10_000.0)
    doctor.set_policy(picu([7])).result()
    lab.run(seconds=8.5)  # until the battery is low
    before = doctor.state()
    assert explain({"patient": 7, "pulse": 70}, doctor).verdict.outcome == "sent"
    assert explain({"patient": 7, "pulse": 70}, doctor).verdict.outcome == "sent"
    after = doctor.state()
    assert before == after


def test_a_function_whose_message_has_a_field_without_a_text_as_name_is_stopped_for_that_message():
    lab, net, doctor = ward(link="wifi")
    doctor.set_policy(policy(lambda message, state: {1: 2} if message.get("odd") else message)).result()
    lab.run(minutes=1)
    for message in ({"odd": True}, {"ok": 1}, {"ok": 2}):
        net.publish(message)
        lab.run(minutes=5)
    assert [message for message in doctor.read().result() if "ok" in message] == [{"ok": 1}, {"ok": 2}]
    (problem,) = lab.problems["detail"]
    assert problem.startswith("policy of doctor-pda: the message holds something else")

"""SUBLIM end to end in a lab."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import MudkitError, ParameterError, PredicateError
from mudkit.experiment import PHOTOS, Sublim, run
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


def create_ward(report_s=10.0, change_share=0.05, **device_options):
    """Return a lab, a publish server with one access point, and a subscriber on a device."""
    lab = Lab(seed=7)
    net = PublishServer(lab)
    AccessPoint(lab, net)
    device = lab.device("doctor-pda", **device_options)
    return lab, net, Subscriber(device, net, report_s=report_s, change_share=change_share)


def test_sample_policy_rewrites_the_messages_of_a_doctor():
    lab = Lab(seed=7)
    net = PublishServer(lab)
    AccessPoint(lab, net, at=(44.4, 26.1), range_m=150)
    device = lab.device("doctor-pda", link="wifi", at=(44.4, 26.1), display_px=320)
    doctor = Subscriber(device, net)
    doctor.set_policy(Policy.from_yaml("data/sample/picu.yaml")).result()
    net.publish({"patient": 7, "pulse": 48, "ecg": ECG})
    net.publish({"patient": 7, "pulse": 70, "ecg": ECG})
    lab.run(seconds=5)
    (body,) = doctor.read().result()
    assert (body["patient"], body["pulse"], len(body["ecg"]), body["ecg_ratio"]) == (7, 48, 320, 3.125)
    assert doctor.read().result() == []
    explanation = explain({"patient": 7, "pulse": 70}, doctor)
    assert str(explanation) == (
        "dropped: R4, a patient of others who is well (message.patient = 7, message.pulse = 70)"
    )
    assert list(explanation.table()["holds"]) == ["TRUE"]


def test_attachment_and_policy_apply_to_later_messages_only():
    lab, net, doctor = create_ward(link="wifi")
    net.publish({"pulse": 70}, "before it is attached")
    lab.run(seconds=5)
    operation = doctor.set_policy(picu(patients=[8]))
    net.publish({"patient": 7, "pulse": 71}, "before the policy has come").result()
    operation.result()
    net.publish({"patient": 7, "pulse": 72}, "dropped")
    net.publish({"patient": 7, "pulse": 48}, "low")
    lab.run(seconds=5)
    assert [message["pulse"] for message in doctor.read().result()] == [71, 48]
    assert list(lab.deliveries()["item"]) == ["before the policy has come", "low"]


def test_policy_function_decides():
    lab, net, doctor = create_ward()

    @policy
    def send_low_pulse(message, state):
        state.set_property("seen", (state.get_property("seen") or 0) + 1)
        return message if message["pulse"] < 50 else None

    doctor.set_policy(send_low_pulse).result()
    for pulse in (48, 70, 30):
        net.publish({"pulse": pulse})
    lab.run(seconds=5)
    assert [message["pulse"] for message in doctor.read().result()] == [48, 30]
    assert doctor.state()["variables"] == {"seen": 3}


def test_policy_is_replaced_while_messages_are_queued():
    lab, net, doctor = create_ward(link="edge")
    doctor.set_policy(picu([7])).result()
    lab.faults.cut("doctor-pda")
    net.publish({"patient": 7, "pulse": 70}).result()  # decided by the first policy, and queued
    lab.run(seconds=1)
    operation = doctor.set_policy(Policy("pulse only", [Rule(do=Keep(("pulse",)))]))
    lab.faults.mend("doctor-pda")
    operation.result()
    net.publish({"patient": 7, "pulse": 71}).result()
    lab.run(seconds=30)
    assert doctor.read().result() == [{"patient": 7, "pulse": 70}, {"pulse": 71}]


def test_context_change_during_attachment_is_reported():
    """Check the bandwidth: a device that changes its network attaches before it knows the new one."""
    lab, _, doctor = create_ward(link="wifi")
    lab.run(minutes=1)
    assert doctor.state()["automatic"]["bandwidth_kbps"] == 40_000
    lab.devices["doctor-pda"].change_network("edge")
    lab.run(minutes=1)
    assert doctor.state()["automatic"]["bandwidth_kbps"] == 180


def test_sublim_runs_reproducibly_in_an_experiment():
    task = PHOTOS.over(devices=4, hours=6.0, outage=0.1, link="umts_3g", size_bytes=500)
    result = run(task, Sublim, 1)
    assert result.system == "SUBLIM"
    assert result.deliveries["delivered"].notna().mean() > 0.9
    assert set(result.deliveries["status"]) <= {"read", "unread", "lost"}
    assert set(result.bill["system"]) == {"sublim"}  # publishers are devices, and pay for publishing
    repeated = run(task, Sublim, 1)
    assert repeated.measures() == result.measures()


def test_messages_published_before_association_are_lost():
    lab, net, doctor = create_ward(link="wifi")
    lab.run(seconds=0.5)
    for number in range(10):
        net.publish({"number": number}, f"message {number}")
        lab.run(seconds=1)
    # Association takes two seconds.
    assert [message["number"] for message in doctor.read().result()] == list(range(2, 10))


def test_reports_of_automatic_variables_are_rate_limited():
    reports = {"report_s": 60.0, "change_share": 0.1}
    lab, _, doctor = create_ward(**reports, link="wifi", at=(0.0, 0.0), battery_j=1_000.0, display_px=320)
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
    assert sent == 3  # one attachment and two reports are billed


def test_restarted_device_keeps_its_messages_and_policy():
    lab, net, doctor = create_ward(link="wifi")
    doctor.set_policy(picu([7])).result()
    net.publish({"patient": 7, "pulse": 70})
    lab.run(seconds=5)
    lab.faults.kill("doctor-pda")
    net.publish({"patient": 7, "pulse": 71})
    lab.run(seconds=5)
    lab.faults.restart("doctor-pda")
    lab.faults.change_address("doctor-pda")
    lab.run(seconds=30)
    assert [message["pulse"] for message in doctor.read().result()] == [70, 71]
    assert doctor.state()["policy"] == 1


POLICY_WITH_UNREACHABLE_RULE = Policy("late", [Rule(), Rule("message.pulse < 50", [Drop()])])
INVALID_CALLS = [
    (lambda net, doctor: doctor.set_policy(POLICY_WITH_UNREACHABLE_RULE), "unreachable"),
    (lambda net, doctor: doctor.set_policy("R1"), "a Policy, such as"),
    (lambda net, doctor: explain({"a": 1}, doctor), "no policy"),  # without a policy, everything is sent
    (lambda net, doctor: net.publish({"a": 1}, item=""), "item"),
    *((lambda net, doctor, odd=odd: net.publish(odd), "message")
      for odd in (5, {1: 2}, {"a": {1, 2}}, {"a": float("nan")}, {"a": object()})),
    (lambda net, doctor: AccessPoint(net.lab, net, at=(100.0, 0.0)), "where: +at"),
    (lambda net, doctor: AccessPoint(net.lab, net, range_m=-1), "range_m"),
    (lambda net, doctor: PlainSubscriber(net.lab.device("nurse"), net, "message.pulse <"), "incomplete"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "problem"), INVALID_CALLS)
def test_invalid_calls_are_refused(call, problem):
    _, net, doctor = create_ward()
    with pytest.raises(MudkitError, match=problem) as caught:
        call(net, doctor)
    assert isinstance(caught.value, ParameterError | PolicyError | PredicateError)


def test_state_is_refused_while_the_access_point_is_dead():
    lab, _net, doctor = create_ward()
    lab.run(seconds=5)
    (point,) = (name for name in lab.world.hosts if name not in ("doctor-pda", "publish-server"))
    lab.faults.kill(point)
    with pytest.raises(ParameterError, match="No access point serves"):
        doctor.state()
    lab.faults.restart(point)
    assert doctor.state()["epoch"] == 1


def test_published_message_is_copied():
    lab, net, doctor = create_ward()
    lab.run(seconds=5)
    message = {"a": [1]}
    net.publish(message)
    message["a"].append(2)
    lab.run(seconds=5)
    assert doctor.read().result() == [{"a": [1]}]


def test_explain_leaves_the_state_unchanged():
    lab, _net, doctor = create_ward(report_s=0.0, battery_j=100.0, base_mw=10_000.0)
    doctor.set_policy(picu([7])).result()
    lab.run(seconds=8.5)  # until the battery is low
    before = doctor.state()
    assert explain({"patient": 7, "pulse": 70}, doctor).verdict.outcome == "sent"
    assert explain({"patient": 7, "pulse": 70}, doctor).verdict.outcome == "sent"
    after = doctor.state()
    assert before == after


def test_message_with_a_non_text_field_name_stops_the_function_once():
    lab, net, doctor = create_ward(link="wifi")
    doctor.set_policy(policy(lambda message, state: {1: 2} if message.get("odd") else message)).result()
    lab.run(minutes=1)
    for message in ({"odd": True}, {"ok": 1}, {"ok": 2}):
        net.publish(message)
        lab.run(minutes=5)
    assert [message for message in doctor.read().result() if "ok" in message] == [{"ok": 1}, {"ok": 2}]
    (problem,) = lab.problems["detail"]
    assert problem.startswith("policy of doctor-pda: the message holds something else")

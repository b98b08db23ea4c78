"""Invariants of a lab: small steps equal one run, and radios and batteries agree with the bill."""

from __future__ import annotations

from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.fleet.recorder import TABLES
from mudkit.sources.outages import Outages
from mudkit.systems.store_and_forward import Client, Relay

S = 1_000_000
RUN_S = 1800
NAMES = [f"phone-{number:05d}" for number in range(3)]


def build_town(link: str = "umts_3g", battery_j: float | None = 400.0) -> Lab:
    """Build a lab of three devices that message each other and lose their network."""
    lab = Lab(6, record_exposure=True)
    relay = Relay(lab)
    fleet = lab.fleet(
        3, link=link, outage=Outages(0.3, per_day=200), mobility="waypoint", battery_j=battery_j, every_s=60
    )
    clients = [Client(device, relay) for device in fleet]

    def send_next(number: int) -> None:
        clients[number % 3].send(NAMES[(number + 1) % 3], "x" * (number * 997 % 8_000))
        clients[(number + 2) % 3].read()
        lab.world.schedule_action(lab.world.now_us + 19 * S, send_next, number + 1)

    lab.world.schedule_action(S, send_next, 0)
    return lab


def read_tables(lab: Lab) -> dict[str, Any]:
    return {name: lab.trace.table(name) for name in TABLES}


@pytest.fixture(scope="module")
def uninterrupted() -> Lab:
    lab = build_town()
    lab.run(seconds=RUN_S)
    return lab


steps = st.lists(
    st.one_of(st.integers(0, 60 * S), st.integers(0, 2), st.sampled_from([S, 19 * S, 60 * S, 600 * S])),
    max_size=30,
)


@examples(25)
@given(steps_us=steps)
def test_many_small_steps_equal_one_run(uninterrupted: Lab, steps_us: list[int]) -> None:
    lab = build_town()
    for step_us in steps_us:
        if lab.world.now_us + step_us <= RUN_S * S:
            lab.run(seconds=step_us / S)
            lab.bill(), lab.now
    lab.run(seconds=(RUN_S * S - lab.world.now_us) / S)
    assert lab.now == uninterrupted.now
    assert lab.bill().equals(uninterrupted.bill())
    assert lab.exposure().equals(uninterrupted.exposure())
    recorded, expected = read_tables(lab), read_tables(uninterrupted)
    for name in TABLES:
        assert recorded[name].equals(expected[name]), name
    for name in NAMES:
        assert lab.battery(name).equals(uninterrupted.battery(name))


fault = st.one_of(
    st.tuples(st.just("network"), st.sampled_from(["wifi", "lte", "umts_3g", "edge"])),
    st.tuples(st.just("cut"), st.sampled_from([0.0, 0.1, 1.0, 4.0])),
    st.tuples(st.just("address"), st.none()),
    st.tuples(st.just("off"), st.none()),
    st.tuples(st.just("on"), st.none()),
    st.tuples(st.just("charge"), st.none()),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)
faults = st.lists(st.tuples(st.integers(0, 600), st.sampled_from(NAMES), fault), max_size=12)


def apply_fault(lab: Lab, fault: tuple[str, tuple[str, Any]]) -> None:
    name, (kind, parameter) = fault
    device = lab.devices[name]
    if kind == "network":
        lab.faults.change_network(name, parameter)
    elif kind == "cut":
        lab.faults.cut(name, minutes=parameter)
    elif kind == "address":
        lab.faults.change_address(name)
    elif kind == "off":
        lab.faults.switch_off(name)
    elif kind == "on":
        lab.faults.switch_on(name)
    elif kind == "charge":
        assert device.battery is not None
        device.battery.charge()
    elif kind == "kill":
        lab.faults.kill(name)
    elif device.is_on:
        lab.faults.restart(name)


@examples(60)
@given(
    link=st.sampled_from(["wifi", "lte", "umts_3g", "edge"]),
    battery_j=st.sampled_from([20.0, 60.0, 400.0, 1e5]),
    faults=faults,
    ends_us=st.lists(st.integers(1, 300 * S), min_size=1, max_size=3),
)
def test_radio_and_battery_agree_with_the_bill(
    link: str, battery_j: float, faults: Any, ends_us: Any
) -> None:
    lab = build_town(link, battery_j)
    for at_s, name, fault in faults:
        lab.world.schedule_action(at_s * S, lambda scheduled: apply_fault(lab, scheduled), (name, fault))
    for end_us in ends_us:  # at arbitrary moments
        lab.run(seconds=end_us / S)
        bill = lab.bill()
        for name, device in lab.devices.items():
            radio = lab.radio(name)
            assert radio["start"].iloc[0].to_pydatetime() == lab.now.replace(
                hour=13, minute=0, second=0, microsecond=0
            )
            assert (radio["start"].iloc[1:].to_numpy() == radio["end"].iloc[:-1].to_numpy()).all()
            assert radio["end"].iloc[-1].to_pydatetime() == lab.now
            taken_mj = ((radio["end"] - radio["start"]).dt.total_seconds() * radio["power_mw"]).sum()
            billed_mj = bill.loc[bill["device"] == name, "radio_mj"].sum()
            assert taken_mj == pytest.approx(billed_mj, rel=1e-9, abs=1e-3)
            levels = lab.battery(name)
            assert device.battery is not None
            assert levels["battery_j"].iloc[-1] == pytest.approx(device.battery.left_j(), rel=1e-9, abs=1e-5)
            assert levels["battery_j"].is_monotonic_decreasing
            assert device.is_on or not device.is_online

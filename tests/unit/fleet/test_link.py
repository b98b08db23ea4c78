"""Curves of measured throughput, compared with a computation second by second, and ideal links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.fleet.link import Curve
from mudkit.systems.store_and_forward import Client, Relay

S = 1_000_000
DEFAULT_KBPS = 800.0
rates = st.lists(
    st.sampled_from([0.0, 0.0, 8.0, 100.0, 8_000.0, 123.4, float("nan")]), min_size=1, max_size=12
)


def carry_second(kbps: list[float], second: int) -> float:
    """Return the bytes carried in one second."""
    rate = kbps[second] if second < len(kbps) else DEFAULT_KBPS
    return (rate if rate == rate else DEFAULT_KBPS) * 125.0


def compute_end_us(kbps: list[float], start_us: int, size: int) -> float:
    second, remaining = divmod(start_us, S)[0], float(size)
    at_us = float(start_us)
    while True:
        rate, until_us = carry_second(kbps, second), (second + 1) * S
        capacity = rate * (until_us - at_us) / S
        if remaining <= capacity and rate:
            return at_us + remaining / rate * S
        remaining, at_us, second = remaining - capacity, until_us, second + 1


def compute_bytes(kbps: list[float], start_us: int, end_us: int) -> float:
    return sum(
        carry_second(kbps, second) * max(min(end_us, (second + 1) * S) - max(start_us, second * S), 0) / S
        for second in range(start_us // S, end_us // S + 1)
    )


@given(rates, st.integers(0, 15 * S), st.integers(1, 3_000_000))
def test_curve_equals_a_second_by_second_computation(kbps: list[float], start_us: int, size: int) -> None:
    curve = Curve([second * S for second in range(len(kbps))], len(kbps) * S, kbps, DEFAULT_KBPS)
    end_us = curve.end_us(start_us, size)
    assert end_us == pytest.approx(compute_end_us(kbps, start_us, size), abs=2)
    assert end_us > start_us
    assert size - 1 <= curve.carried_bytes(start_us, end_us) <= size + 3
    middle_us = (start_us + end_us) // 2
    assert curve.carried_bytes(start_us, middle_us) == pytest.approx(
        compute_bytes(kbps, start_us, middle_us), abs=1.5
    )


@given(rates, st.integers(0, 15 * S))
def test_zero_bytes_end_immediately(kbps: list[float], start_us: int) -> None:
    curve = Curve([second * S for second in range(len(kbps))], len(kbps) * S, kbps, DEFAULT_KBPS)
    assert curve.end_us(start_us, 0) == start_us + 1
    assert curve.carried_bytes(start_us, start_us) == 0


def test_last_byte_before_a_stall_is_not_delayed():
    assert Curve([0, S, 2 * S], 3 * S, [8.0, 0.0, 8.0], DEFAULT_KBPS).end_us(0, 1000) == S + 1


def test_max_kbps_is_the_highest_rate():
    assert Curve([0, S], 2 * S, [5.0, 900.0], 800.0).max_kbps == 900.0
    assert Curve([0, S], 2 * S, [5.0, float("nan")], 800.0).max_kbps == 800.0


def test_ideal_link_takes_no_time_and_no_energy():
    lab = Lab(seed=1)
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name, link="ideal", battery_j=1e6), relay) for name in ("ann", "bob"))
    ann.send("bob", "x" * 100_000).result()
    assert [message["from"] for message in bob.read().result()] == ["ann"]
    assert lab.world.now_us == 0
    assert lab.bill()["bytes"].min() > 0
    assert lab.bill()["radio_mj"].sum() == 0.0
    lab.faults.change_network("ann", "lte")
    ann.send("bob", "again").result()
    assert lab.world.now_us > 0
    lab.run(hours=1)
    lab.faults.change_network("ann", "ideal")
    before_us = lab.world.now_us
    ann.send("bob", "and again").result()
    assert lab.world.now_us == before_us

"""A curve of measured throughput carries what a second-by-second reckoning carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.fleet.link import Curve
from mudkit.systems.store_and_forward import Client, Relay

S = 1_000_000
OTHERWISE_KBPS = 800.0
rates = st.lists(
    st.sampled_from([0.0, 0.0, 8.0, 100.0, 8_000.0, 123.4, float("nan")]), min_size=1, max_size=12
)


def carried(kbps: list[float], second: int) -> float:
    """Bytes that one second carries."""
    rate = kbps[second] if second < len(kbps) else OTHERWISE_KBPS
    return (rate if rate == rate else OTHERWISE_KBPS) * 125.0


def reckoned_end_us(kbps: list[float], start_us: int, size: int) -> float:
    second, left = divmod(start_us, S)[0], float(size)
    at_us = float(start_us)
    while True:
        rate, until_us = carried(kbps, second), (second + 1) * S
        can = rate * (until_us - at_us) / S
        if left <= can and rate:
            return at_us + left / rate * S
        left, at_us, second = left - can, until_us, second + 1


def reckoned_bytes(kbps: list[float], start_us: int, end_us: int) -> float:
    return sum(
        carried(kbps, second) * max(min(end_us, (second + 1) * S) - max(start_us, second * S), 0) / S
        for second in range(start_us // S, end_us // S + 1)
    )


@given(rates, st.integers(0, 15 * S), st.integers(1, 3_000_000))
def test_it_carries_what_is_reckoned_second_by_second(kbps: list[float], start_us: int, size: int) -> None:
    curve = Curve([second * S for second in range(len(kbps))], len(kbps) * S, kbps, OTHERWISE_KBPS)
    end_us = curve.end_us(start_us, size)
    assert end_us == pytest.approx(reckoned_end_us(kbps, start_us, size), abs=2)
    assert end_us > start_us
    assert size - 1 <= curve.carried_bytes(start_us, end_us) <= size + 3
    middle_us = (start_us + end_us) // 2
    assert curve.carried_bytes(start_us, middle_us) == pytest.approx(
        reckoned_bytes(kbps, start_us, middle_us), abs=1.5
    )


@given(rates, st.integers(0, 15 * S))
def test_nothing_takes_no_time(kbps: list[float], start_us: int) -> None:
    curve = Curve([second * S for second in range(len(kbps))], len(kbps) * S, kbps, OTHERWISE_KBPS)
    assert curve.end_us(start_us, 0) == start_us + 1
    assert curve.carried_bytes(start_us, start_us) == 0


def test_the_last_byte_before_a_stall_does_not_wait_for_its_end():
    assert Curve([0, S, 2 * S], 3 * S, [8.0, 0.0, 8.0], OTHERWISE_KBPS).end_us(0, 1000) == S + 1


def test_the_most_that_it_carries():
    assert Curve([0, S], 2 * S, [5.0, 900.0], 800.0).max_kbps == 900.0
    assert Curve([0, S], 2 * S, [5.0, float("nan")], 800.0).max_kbps == 800.0


def test_an_ideal_link_takes_no_time_and_costs_nothing():
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

"""What holds of every run of the fleet: bytes, energy, order, and that the same seed gives the same run."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from fleet_machines import Chatter
from hypothesis import given, settings
from hypothesis import strategies as st

from mudkit.events import LinkDown, LinkUp, Received, SendFailed
from mudkit.fleet import LINKS, RADIOS, World

S = 1_000_000
END_US = 600 * S

devices = st.lists(
    st.tuples(
        st.sampled_from(sorted(LINKS)), st.integers(2 * S, 120 * S), st.sampled_from([0, 10, 3_000, 60_000])
    ),
    min_size=1,
    max_size=4,
)
outages = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, END_US), st.sampled_from([1, 1_000, S, 40 * S])), max_size=12
)


class Watched:
    """A run with everything that its links carried, and every change of a link."""

    def __init__(self, fleet: Any, outages: Any, seed: int = 7) -> None:
        self.world = World(seed)
        self.legs: list[Any] = []
        self.changes: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        self.world.on_leg = self._leg
        names = [f"d{i}" for i in range(len(fleet))]
        self.machines: dict[str, Chatter] = {}
        self._put(self.world.add_server("server"), names, 50 * S, 100)
        for name, (link, every_us, size) in zip(names, fleet, strict=True):
            self._put(self.world.add_device(name, link), ["server", *names], every_us, size)
        for number, at, length in outages:
            if number < len(names):
                host = self.world.hosts[names[number]]
                self.world.at(at, self._down, host)
                self.world.at(at + length, self._up, host)
        self.world.run(END_US)

    def _put(self, host: Any, peers: list[str], every_us: int, size: int) -> None:
        def make(ports: Any) -> Chatter:
            self.machines[host.name] = Chatter(ports, peers, every_us, size)
            return self.machines[host.name]

        self.world.install(host, "chatter", make)

    def _leg(self, direction: Any, transfer: Any, gone: int) -> None:
        self.legs.append(
            (direction.link.device, direction.name, transfer.begun_us, transfer.start_us, transfer.end_us,
             self.world.now_us, transfer.size_bytes, gone, transfer.arrive_us)
        )  # fmt: skip

    def _down(self, host: Any) -> None:
        if host.link.is_up:
            self.changes[host.name].append((self.world.now_us, False))
        self.world.link_down(host)

    def _up(self, host: Any) -> None:
        if not host.link.is_up:
            self.changes[host.name].append((self.world.now_us, True))
        self.world.link_up(host)


@settings(max_examples=40)
@given(fleet=devices, outages=outages)
def test_bytes_are_conserved(fleet: Any, outages: Any) -> None:
    run = Watched(fleet, outages)
    carried: dict[Any, int] = defaultdict(int)
    begun: dict[Any, int] = defaultdict(int)
    for device, direction, _, start, end, now, size, gone, arrive in run.legs:
        arrived = arrive == now
        assert gone == size if arrived else 0 <= gone <= size
        if not arrived:
            share = min(max(now - start, 0) / (end - start), 1.0)
            assert gone == pytest.approx(share * size, abs=1)
        carried[device, direction] += gone
        begun[device, direction] += 1
    underway = {
        (host.name, each.name): list(each.underway)
        for host in run.world.hosts.values() if host.link for each in (host.link.up, host.link.down)
    }  # fmt: skip
    for row in run.world.bill.rows():
        key = row.device, row.direction
        assert row.bytes == carried[key] + sum(each.size_bytes for each in underway[key])
        assert row.messages == begun[key] + len(underway[key])


@settings(max_examples=40)
@given(fleet=devices, outages=outages)
def test_each_direction_is_first_in_first_out_and_nothing_arrives_without_a_link(
    fleet: Any, outages: Any
) -> None:
    run = Watched(fleet, outages)
    last: dict[Any, tuple[int, int, int]] = {}
    for device, direction, begun, start, end, now, _, _, arrive in run.legs:
        if arrive != now:
            continue
        key = device, direction
        before = last.get(key, (0, 0, 0))
        assert begun >= before[0]
        assert start >= before[1]
        assert now >= before[2]
        last[key] = begun, end, now
        assert begun <= start < end <= now
        down = [at for at, up in run.changes[device] if not up and begun <= at <= now]
        up = [at for at, is_up in run.changes[device] if is_up and begun <= at <= now]
        assert not down or (begun in up and max(down) <= begun), "a link was cut while it was carried"
    for name, machine in run.machines.items():
        times = [at for at, _ in machine.seen]
        assert times == sorted(times)
        is_up = True
        for _, event in machine.seen:
            if isinstance(event, (LinkUp, LinkDown)):
                is_up = isinstance(event, LinkUp)
            assert is_up or not isinstance(event, Received), name


@settings(max_examples=40)
@given(fleet=devices, outages=outages)
def test_everything_sent_arrives_or_fails_once(fleet: Any, outages: Any) -> None:
    run = Watched(fleet, outages)
    sent = sum(machine.sent for machine in run.machines.values())
    asked = sum(
        1 for machine in run.machines.values() for _, event in machine.seen
        if isinstance(event, Received) and event.message["ask"]
    )  # fmt: skip
    failed = sum(
        1 for machine in run.machines.values() for _, event in machine.seen
        if isinstance(event, SendFailed) and event.message["ask"]
    )  # fmt: skip
    assert asked + failed <= sent
    run.world.run(END_US + 3600 * S)  # what was under way by then is not any more
    assert asked + failed > sent - 400


@settings(max_examples=60)
@given(fleet=devices, outages=outages)
def test_the_bill_is_the_integral_of_the_radios_power(fleet: Any, outages: Any) -> None:
    run = Watched(fleet, outages)
    billed: dict[str, float] = defaultdict(float)
    for row in run.world.bill.rows():
        billed[row.device] += row.radio_mj
    for number, (link, _, _) in enumerate(fleet):
        name = f"d{number}"
        host = run.world.hosts[name]
        tail = host.link.radio.running_tail(END_US)
        legs = [leg for leg in run.legs if leg[0] == name]
        if any(each.underway for each in (host.link.up, host.link.down)):
            continue  # what is scheduled beyond the end is already charged
        found = billed[name] + (tail[1] if tail else 0.0)
        assert found == pytest.approx(integral_mj(RADIOS[link], legs, run.changes[name]), rel=1e-9, abs=1e-6)


def integral_mj(radio: Any, legs: list[Any], changes: list[tuple[int, bool]]) -> float:
    """Integrate the power of a radio over time from what it carried, second by second of its states."""
    energy = sum(
        gone * (radio.up_mj_per_kb if direction == "up" else radio.down_mj_per_kb) / 1000
        for _, direction, *_, gone, _ in legs
    )
    off = [at for at, up in changes if not up]

    def until_off(begin: int, end: int) -> int:
        return max(min([end, *(at for at in off if at >= begin)]) - begin, 0)

    spans: list[list[int]] = []  # from being asked for to the end of activity, with the time that it was open
    for _, _, begun, start, end, now, _, _, arrive in sorted(legs, key=lambda leg: (leg[2], leg[3])):
        stop = end if arrive == now else min(end, now)
        cut_between = spans and any(spans[-1][0] <= at <= begun for at in off)
        if spans and begun <= spans[-1][2] + radio.tail_us and not cut_between:
            spans[-1][2] = max(spans[-1][2], stop)
            if begun > spans[-1][3]:
                energy += (begun - spans[-1][3]) * radio.tail_mw * 1e-6
                energy += max(0, stop - start) * radio.active_mw * 1e-6
            else:
                energy += max(0, stop - spans[-1][3]) * radio.active_mw * 1e-6
            spans[-1][3] = max(spans[-1][3], stop)
        else:
            if spans:
                energy += (
                    until_off(spans[-1][3], min(spans[-1][3] + radio.tail_us, END_US)) * radio.tail_mw * 1e-6
                )
            energy += until_off(begun, begun + radio.promotion_us) * radio.promotion_mw * 1e-6
            energy += max(0, stop - start) * radio.active_mw * 1e-6
            spans.append([begun, start, stop, max(stop, min(begun + radio.promotion_us, start))])
    if spans:
        energy += until_off(spans[-1][3], min(spans[-1][3] + radio.tail_us, END_US)) * radio.tail_mw * 1e-6
    return energy


@settings(max_examples=20)
@given(fleet=devices, outages=outages)
def test_the_same_seed_gives_the_same_run(fleet: Any, outages: Any) -> None:
    one, two = Watched(fleet, outages), Watched(fleet, outages)
    assert one.legs == two.legs
    assert list(one.world.bill.rows()) == list(two.world.bill.rows())

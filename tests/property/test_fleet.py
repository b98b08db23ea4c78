"""Invariants of every run of the fleet: bytes, energy, order and determinism."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import Any

import pytest
from examples import examples
from fleet_machines import Chatter
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from mudkit import Lab, ServerProfile
from mudkit.events import LinkDown, LinkUp, Received, SendFailed
from mudkit.fleet import LINKS, RADIOS, World
from mudkit.fleet.energy import CarriedTransfer, timeline

S = 1_000_000
END_US = 300 * S

EVERY_S = (2, 7, 30, 120)
devices = st.lists(
    st.tuples(
        st.sampled_from(sorted(LINKS)), st.sampled_from(EVERY_S), st.sampled_from([0, 10, 3_000, 60_000])
    ),
    min_size=1,
    max_size=4,
)
# Some time after a transmission: during the promotion of the radio, the transfer, or the tail.
outages = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 8),
        st.sampled_from([0, 1, 100_000, 300_000, 2_100_000, 5 * S, 13 * S]),
        st.sampled_from([1, 1_000, S, 40 * S]),
    ),
    max_size=8,
)


class RecordedRun:
    """Run with a record of all transfers and all changes of links."""

    def __init__(self, fleet: Any, outages: Any, seed: int = 7) -> None:
        self.world = World(seed)
        self.legs: list[Any] = []
        self.changes: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        self.world.on_leg = self._record_leg
        names = [f"d{i}" for i in range(len(fleet))]
        self.machines: dict[str, Chatter] = {}
        self._install(self.world.add_server("server"), names, 50 * S, 100)
        for name, (link, every_s, size) in zip(names, fleet, strict=True):
            self._install(self.world.add_device(name, link), ["server", *names], every_s * S, size)
        for number, count, after_us, length in outages:
            if number < len(names):
                host = self.world.hosts[names[number]]
                at = count * fleet[number][1] * S + after_us
                self.world.schedule_action(at, self._down, host)
                self.world.schedule_action(at + length, self._up, host)
        self.fates: dict[int, Counter[str]] = {}
        counted: Counter[str] = Counter()
        self.world.on_fate = lambda transfer, fate: counted.update([fate])
        self.world.run(END_US)
        self.fates[END_US] = counted.copy()
        self.fates[END_US + 300 * S] = counted
        self.bill = list(self.world.bill())

    def count_sent(self) -> int:
        """Return the number of messages that machines sent: requests and answers."""
        requests = sum(machine.sent for machine in self.machines.values())
        answers = sum(
            isinstance(event, Received) and event.message["ask"]
            for machine in self.machines.values()
            for _, event in machine.seen
        )
        return requests + answers

    def underway(self) -> list[Any]:
        """Return the legs that were on a link at the end."""
        return [
            (host.name, direction.name, leg)
            for host in self.world.hosts.values()
            if host.link
            for direction in (host.link.up, host.link.down)
            for leg in direction.underway
        ]

    def _install(self, host: Any, peers: list[str], every_us: int, size: int) -> None:
        def make(ports: Any) -> Chatter:
            self.machines[host.name] = Chatter(ports, peers, every_us, size)
            return self.machines[host.name]

        host.install("chatter", make)

    def _record_leg(self, leg: Any, bytes_carried: int, is_cut: bool) -> None:
        self.legs.append(
            (leg.account.device, leg.account.direction, leg.begun_us, leg.start_us, leg.end_us,
             self.world.now_us, leg.transfer.size_bytes, bytes_carried, is_cut)
        )  # fmt: skip

    def _down(self, host: Any) -> None:
        if host.is_online:
            self.changes[host.name].append((self.world.now_us, False))
        host.link_down()

    def _up(self, host: Any) -> None:
        if not host.is_online:
            self.changes[host.name].append((self.world.now_us, True))
        host.link_up()


@examples(60)
@given(fleet=devices, outages=outages)
def test_every_run_satisfies_the_invariants(fleet: Any, outages: Any) -> None:
    run = RecordedRun(fleet, outages)
    check_bytes_are_conserved(run)
    check_links_are_first_in_first_out(run)
    check_bill_is_integral_of_radio_power(run, fleet)
    check_each_message_arrives_or_fails_once(run)


def check_bytes_are_conserved(run: RecordedRun) -> None:
    carried: dict[Any, int] = defaultdict(int)
    begun: dict[Any, int] = defaultdict(int)
    for device, direction, _, start, end, now, size, bytes_carried, is_cut in run.legs:
        assert 0 <= bytes_carried <= size if is_cut else bytes_carried == size
        if is_cut:
            share = compute_carried_share(start, end, now)
            assert bytes_carried == pytest.approx(share * size, abs=1)
        carried[device, direction] += bytes_carried
        begun[device, direction] += 1
    for device, direction, leg in run.underway():
        share = compute_carried_share(leg.start_us, leg.end_us, END_US)
        carried[device, direction] += int(share * leg.transfer.size_bytes)
        begun[device, direction] += 1
    for row in run.bill:
        key = row.device, row.direction
        assert row.bytes == pytest.approx(carried[key], abs=1)
        assert row.messages == begun[key]
    assert {(row.device, row.direction) for row in run.bill} == set(begun)


def compute_carried_share(start_us: int, end_us: int, now_us: int) -> float:
    """Return the share that is carried by now; without duration, all of it from the start."""
    if now_us <= start_us < end_us:
        return 0.0
    return 1.0 if now_us >= end_us else (now_us - start_us) / (end_us - start_us)


def check_links_are_first_in_first_out(run: RecordedRun) -> None:
    last: dict[Any, tuple[int, int, int]] = {}
    for device, direction, begun, start, end, now, _, _, is_cut in run.legs:
        if is_cut:
            continue
        key = device, direction
        before = last.get(key, (0, 0, 0))
        assert begun >= before[0]
        assert start >= before[1]
        assert now >= before[2]
        last[key] = begun, end, now
        assert begun <= start <= end <= now
        assert start < end or run.world.hosts[device].link.profile.name == "ideal"
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


def check_bill_is_integral_of_radio_power(run: RecordedRun, fleet: Any) -> None:
    billed: dict[str, float] = defaultdict(float)
    for row in run.bill:
        billed[row.device] += row.radio_mj
    for number, (link, _, _) in enumerate(fleet):
        name = f"d{number}"
        legs = [leg for leg in run.legs if leg[0] == name]
        if [transfer for transfer in run.underway() if transfer[0] == name]:
            continue  # the integral covers only completed legs
        expected = integrate_mj(RADIOS[link], legs, run.changes[name])
        assert billed[name] == pytest.approx(expected, rel=1e-9, abs=1e-6)


def check_each_message_arrives_or_fails_once(run: RecordedRun) -> None:
    assert sum(run.fates[END_US].values()) + len(run.world.transfers_under_way()) == run.count_sent()
    run.world.run(END_US + 300 * S)
    fates = run.fates[END_US + 300 * S]
    assert sum(fates.values()) + len(run.world.transfers_under_way()) == run.count_sent()
    event_counts = Counter(type(event) for machine in run.machines.values() for _, event in machine.seen)
    assert event_counts[Received] == fates["arrived"]
    assert event_counts[SendFailed] == sum(fates.values()) - fates["arrived"]


def integrate_mj(radio: Any, legs: list[Any], changes: list[tuple[int, bool]]) -> float:
    """Integrate the power of a radio over its transfers and its times without network."""
    carried = [
        CarriedTransfer(direction, begun, start, max(min(end, now), begun) if is_cut else end, bytes_carried)
        for _, direction, begun, start, end, now, _, bytes_carried, is_cut in legs
    ]
    stretches = timeline(radio, carried, [at for at, up in changes if not up], END_US)
    assert [stretch.from_us for stretch in stretches] == [0, *(stretch.to_us for stretch in stretches[:-1])]
    assert stretches[-1].to_us == END_US
    return sum((stretch.to_us - stretch.from_us) * stretch.power_mw * 1e-6 for stretch in stretches)


@examples(20)
@given(fleet=devices, outages=outages)
def test_same_seed_gives_the_same_run(fleet: Any, outages: Any) -> None:
    one, two = RecordedRun(fleet, outages), RecordedRun(fleet, outages)
    assert one.legs == two.legs
    assert one.bill == two.bill


@examples(15)
@given(
    transport=st.sampled_from(["messages", "https", "mqtt"]),
    others=st.integers(1, 3),
    are_first=st.booleans(),
    every_s=st.sampled_from(EVERY_S),
)
def test_more_devices_change_no_row_of_others_that_they_do_not_meet(
    transport: str, others: int, are_first: bool, every_s: int
) -> None:
    """Each has its server, place, load, connections and access point; each host draws from its own streams."""

    def run(names: list[str]) -> tuple[Any, list[Any], Any]:
        lab, legs = Lab(7, transport=transport), list[Any]()

        def record_leg(leg: Any, bytes_carried: int, is_cut: bool) -> None:
            if leg.account.device == "ann":
                times = leg.begun_us, leg.start_us, leg.end_us, lab.world.now_us
                legs.append((leg.account.direction, *times, leg.transfer.size_bytes, bytes_carried, is_cut))

        lab.world.on_leg = record_leg
        for name in names:
            at = 47.0, 8.0 + 0.1 * len(name)
            profile = ServerProfile(event_us=300_000.0, byte_us=10.0)
            server = lab.server(f"server of {name}", at=at, profile=profile)
            lab.access_point(f"cafe of {name}", at, range_m=100.0)
            device = lab.device(name, link="lte", roam=True, loc=at)
            chatter = partial(Chatter, peers=[server.address], every_us=every_s * S, size=3_000)
            device.install("chatter", chatter)
            server.install("chatter", partial(Chatter, peers=[device.address], every_us=50 * S, size=100))
        lab.run(minutes=10)
        load = lab.server_load().query("server == 'server of ann'").reset_index(drop=True)
        return lab.bill().query("device == 'ann'").reset_index(drop=True), legs, load

    more = [f"other {'x' * number}" for number in range(others)]
    alone, together = run(["ann"]), run([*more, "ann"] if are_first else ["ann", *more])
    assert len(alone[1]) > 10
    assert together[1] == alone[1]
    assert_frame_equal(together[0], alone[0])
    assert_frame_equal(together[2], alone[2])

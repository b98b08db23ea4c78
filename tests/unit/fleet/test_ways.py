"""Places: ways to and from servers that have one, and what a cut of a link does to messages on them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from examples import examples
from fleet_machines import Puppet
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from mudkit import Lab
from mudkit.events import Ports, Received, Send, SendFailed
from mudkit.places import travel_us

ZURICH, CALIFORNIA = (47.4, 8.5), (37.4, -122.1)
WAY_US = travel_us(ZURICH, CALIFORNIA)


def _played(places: dict[str, tuple[float, float]]) -> dict[tuple[str, str], int]:
    """Return when each message arrived, by sender and receiver: each host sends one to each other."""
    lab = Lab(seed=3)
    puppets: dict[str, Puppet] = {}

    def install(host: Any) -> Any:
        def make(ports: Ports) -> Puppet:
            puppets[host.name] = Puppet(ports)
            return puppets[host.name]

        return host.install("puppets", make)

    names = ("one", "two", "ann", "bob")
    processes = {name: install(lab.server(name, at=places.get(name))) for name in names[:2]}
    processes |= {name: install(lab.device(name, at=places.get(name))) for name in names[2:]}
    for source in names:
        for target in names:
            lab.run(minutes=5)
            if source != target:
                processes[source].call("do", effects=[Send(target, source)])
    lab.run(minutes=5)
    return {
        (event.message, name): t_us
        for name, puppet in puppets.items()
        for t_us, event in puppet.seen
        if isinstance(event, Received)
    }


@pytest.mark.parametrize(
    ("places", "longer"),
    [
        ({"one": CALIFORNIA, "ann": ZURICH}, {("one", "ann"), ("ann", "one")}),
        ({"one": CALIFORNIA, "two": ZURICH}, {("one", "two"), ("two", "one")}),
        ({"ann": CALIFORNIA, "bob": ZURICH}, set()),  # no server has a place
        ({"one": ZURICH, "two": ZURICH, "ann": ZURICH}, set()),  # no way at all: as without places
        ({"one": CALIFORNIA}, set()),  # nobody else has a place
    ],
)
def test_message_to_or_from_a_server_with_a_place_takes_the_time_of_its_way(places, longer):
    without = _played({})
    assert len(without) == 12
    expected = {pair: t_us + (WAY_US if pair in longer else 0) for pair, t_us in without.items()}
    assert _played(places) == expected


def test_message_under_way_to_a_distant_server_is_under_way_in_the_trace():
    lab = Lab(seed=3)
    near, far = lab.server("near", at=ZURICH), lab.server("far", at=CALIFORNIA)
    far.install("puppets", Puppet)
    process = near.install("puppets", Puppet)
    process.call("do", effects=[Send("far", 1)])
    lab.run(seconds=0.05)
    assert lab.frame("messages")["fate"].tolist() == ["under way"]
    lab.run(seconds=0.1)
    assert lab.frame("messages")["fate"].tolist() == ["arrived"]


class Crossing:
    """Run in which one device sends to a near and a far server and to a device, and loses its network at times.

    Each message is a time in ms and a receiver, each cut a time and a length in ms.
    """

    def __init__(self, messages: list[tuple[int, str]], cuts: list[tuple[int, int]], *, has_places: bool):
        self.lab, self.puppets = Lab(seed=3), dict[str, Puppet]()
        far, near = (CALIFORNIA, ZURICH) if has_places else (None, None)
        hosts = [self.lab.server("far", at=far), self.lab.server("near", at=near)]
        hosts += [self.lab.device(name, at=ZURICH) for name in ("bob", "ann")]
        for host in hosts:
            process = host.install("puppets", partial(self._start, host.name))
        self.lab.run(minutes=1)
        at_us = self.lab.world.now_us
        for number, (ms, to) in enumerate(messages):
            self.lab.world.schedule_call(
                at_us + ms * 1000,
                lambda effect: process.call("do", effects=[effect]),
                Send(to, [number, "x" * 2000]),
            )
        for ms, length_ms in cuts:
            self.lab.world.schedule_action(at_us + ms * 1000, lambda _: hosts[-1].link_down())
            self.lab.world.schedule_action(at_us + (ms + length_ms) * 1000, lambda _: hosts[-1].link_up())

    def _start(self, name: str, ports: Ports) -> Puppet:
        self.puppets[name] = Puppet(ports)
        return self.puppets[name]

    def ends(self) -> dict[int, tuple[str, int]]:
        """Return where and when each message has arrived, or when its sender heard that it has not."""
        return {
            event.message[0]: (name, t_us)
            for name, puppet in self.puppets.items()
            for t_us, event in puppet.seen
            if isinstance(event, Received | SendFailed)
        }


@examples(60)
@given(
    messages=st.lists(
        st.tuples(st.integers(0, 900), st.sampled_from(["far", "near", "bob"])), min_size=1, max_size=12
    ),
    cuts=st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 300)), max_size=4),
)
def test_cut_concerns_what_is_on_the_link_and_not_what_is_on_its_way(messages: Any, cuts: Any) -> None:
    """Whatever is cut: as in a world without places, and what arrives at the far server is later by its way."""
    placed, plain = (Crossing(messages, cuts, has_places=has_places) for has_places in (True, False))
    for run in (placed, plain):
        run.lab.run(minutes=1)
    expected = {
        number: (name, t_us + WAY_US if name == "far" else t_us)
        for number, (name, t_us) in plain.ends().items()
    }
    assert placed.ends() == expected
    assert len(expected) == len(messages)
    bills = [run.lab.bill() for run in (placed, plain)]
    assert_frame_equal(*bills)
    transfers = [
        run.lab.frame("transfers").sort_values(["begun", "started"], ignore_index=True)
        for run in (placed, plain)
    ]
    assert_frame_equal(*transfers)


@pytest.mark.parametrize(
    ("late_us", "fate"), [(-1, "cut"), (0, "cut"), (1, "arrived"), (WAY_US - 1, "arrived")]
)
def test_message_that_has_left_its_link_is_on_its_way(late_us, fate):
    run = Crossing([(0, "far")], [], has_places=True)
    run.lab.run(seconds=0.1)
    [leg] = run.lab.devices["ann"].link.up.underway
    run.lab.world.schedule_action(leg.arrive_us + late_us, lambda _: run.lab.devices["ann"].link_down())
    run.lab.world.run(leg.arrive_us + WAY_US - 1)
    is_lost = fate == "cut"
    assert run.lab.frame("messages")["fate"].tolist() == ["cut" if is_lost else "under way"]
    assert run.lab.frame("transfers")["cut"].tolist() == [is_lost]
    run.lab.run(minutes=1)
    assert run.lab.frame("messages")["fate"].tolist() == [fate]
    assert run.lab.frame("transfers")["cut"].tolist() == [is_lost]
    assert run.ends() == {0: ("ann", leg.arrive_us + late_us) if is_lost else ("far", leg.arrive_us + WAY_US)}


@pytest.mark.parametrize(("length_us", "fate"), [(WAY_US // 4, "arrived"), (WAY_US, "no link")])
def test_message_on_its_way_to_a_device_needs_its_link_at_the_end(length_us, fate):
    """A cut before the message is at the network of its device does not concern it, if it is over by then."""
    run = Crossing([], [], has_places=True)
    far, ann, now_us = run.lab.world.hosts["far"], run.lab.devices["ann"], run.lab.world.now_us
    far.processes[0].call("do", effects=[Send("ann", [0, "x"])])
    run.lab.world.schedule_action(now_us + WAY_US // 2, lambda _: ann.link_down())
    run.lab.world.schedule_action(now_us + WAY_US // 2 + length_us, lambda _: ann.link_up())
    run.lab.run(minutes=1)
    assert run.lab.frame("messages")["fate"].tolist() == [fate]
    [(name, t_us)] = run.ends().values()
    assert (name, t_us == now_us + WAY_US) == (("far", True) if fate == "no link" else ("ann", False))

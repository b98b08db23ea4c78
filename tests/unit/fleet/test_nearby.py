"""Short-range links: what goes over them, what it costs, and that no transport concerns it."""

from __future__ import annotations

from typing import Any

import pytest
from examples import examples
from fleet_machines import Puppet
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Received, Send
from mudkit.systems.radiator import Client, Context, Server, Volume
from mudkit.units import KM_PER_DEGREE

BLUETOOTH_MJ_PER_KB = 5.72e-7 * 8_000 * 1000
"""Aalborg University: 0.572 µJ a bit at 685 kbit/s."""
WIFI_DIRECT_MJ_PER_KB = (6.45e-7 - 1.27e-10 * (5000 - 2130)) * 8_000 * 1000


def at(east_m: float) -> tuple[float, float]:
    """Return a place on the equator, some metres east of Greenwich."""
    return (0.0, east_m / 1000.0 / KM_PER_DEGREE)


class Stage:
    """Lab with puppets on some devices on the equator, and on a server."""

    def __init__(self, transport: str = "messages", **places_m: Any) -> None:
        self.lab = Lab(seed=3, transport=transport)
        self.puppets: dict[str, Puppet] = {}
        self._processes = {"server": self._install(self.lab.server("server"))}
        for name, (east_m, short_range) in places_m.items():
            place = None if east_m is None else at(east_m)
            device = self.lab.device(name, at=place, short_range=short_range)
            self._processes[name] = self._install(device)
        self.lab.run(minutes=1)

    def _install(self, host: Any) -> Any:
        def make(ports: Any) -> Puppet:
            self.puppets[host.name] = Puppet(ports)
            return self.puppets[host.name]

        return host.install("puppets", make)

    def send(self, source: str, target: str, message: Any, seconds: float = 60.0) -> None:
        """Send a message and run."""
        self._processes[source].call("do", effects=[Send(target, message)])
        self.lab.run(seconds=seconds)

    def received(self, name: str) -> list[Any]:
        """Return the messages that a machine has received."""
        return [event.message for event in self.puppets[name].of(Received)]

    def fates(self) -> list[str]:
        """Return what became of the messages, in the order in which they were sent."""
        return self.lab.frame("messages").sort_values("sent")["fate"].tolist()

    def bill(self) -> dict[tuple[str, str], Any]:
        """Return the rows of the bill by device and direction."""
        return {(row.device, row.direction): row for row in self.lab.bill().itertuples()}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.sampled_from(["ann", "bob", "eve"]), st.integers(0, 200)),
        st.tuples(st.just("send"), st.sampled_from(["ann", "bob", "eve"]), st.sampled_from(["ann", "bob", "eve"])),
        st.tuples(st.just("cut"), st.sampled_from(["ann", "bob", "eve"]), st.booleans()),
    ),
    max_size=16,
)  # fmt: skip
kinds = st.tuples(*[st.sampled_from([None, "bluetooth", "wifi_direct"])] * 3)


@examples(40)
@given(steps=steps, kinds=kinds)
def test_messages_go_nearby_as_in_a_model(steps: Any, kinds: Any) -> None:
    """The model: both have the same radio and are in its range; else the network carries it, if there is one."""
    names = ("ann", "bob", "eve")
    kind = dict(zip(names, kinds, strict=True))
    stage = Stage(**{name: (0, kind[name]) for name in names})
    where_m, is_online = dict.fromkeys(names, 0), dict.fromkeys(names, True)
    expected: dict[tuple[str, str], int] = {}
    received = dict.fromkeys(names, 0)
    for step, name, other in steps:
        if step == "move":
            where_m[name] = other
            stage.lab.devices[name].move(*at(other))
        elif step == "cut":
            is_online[name] = other
            (stage.lab.devices[name].link_up if other else stage.lab.devices[name].link_down)()
        else:
            range_m = {None: -1.0, "bluetooth": 10.0, "wifi_direct": 91.0}[kind[name]]
            is_near = kind[name] == kind[other] and abs(where_m[name] - where_m[other]) <= range_m + 1e-3
            is_near &= name != other
            stage.send(name, other, b"x" * 100)
            prefix = "near " if is_near else ""
            received[other] += is_near or (is_online[name] and is_online[other])
            if is_near or is_online[name]:
                expected[name, f"{prefix}up"] = expected.get((name, f"{prefix}up"), 0) + 1
                if is_near or is_online[other]:
                    expected[other, f"{prefix}down"] = expected.get((other, f"{prefix}down"), 0) + 1
    assert {key: row.messages for key, row in stage.bill().items()} == expected
    assert {name: len(stage.received(name)) for name in names} == received


@pytest.mark.parametrize(
    ("kind", "mj_per_kb", "kbps"),
    [("bluetooth", BLUETOOTH_MJ_PER_KB, 685), ("wifi_direct", WIFI_DIRECT_MJ_PER_KB, 5000)],
)
def test_both_ends_pay_for_the_bytes(kind, mj_per_kb, kbps):
    stage = Stage(ann=(0, kind), bob=(5, kind))
    stage.send("ann", "bob", b"x" * 50_000)
    bill = stage.bill()
    assert set(bill) == {("ann", "near up"), ("bob", "near down")}
    assert [row.radio_mj for row in bill.values()] == pytest.approx([50 * mj_per_kb] * 2)
    [message] = stage.lab.frame("messages").itertuples()
    took_s = (message.ended - message.sent).total_seconds()
    assert 50_000 * 8 / kbps / 1000 < took_s < 50_000 * 8 / kbps / 1000 + 0.1


def test_transport_does_not_concern_what_is_near():
    stage = Stage("https", ann=(0, "bluetooth"), bob=(5, "bluetooth"), eve=(500, "bluetooth"))
    stage.send("ann", "bob", b"x" * 100)
    stage.send("ann", "eve", b"x" * 100)
    assert stage.fates() == ["arrived", "not let in"]
    assert stage.bill()["ann", "near up"].bytes == 100


def test_device_that_is_switched_off_is_not_near():
    stage = Stage(ann=(0, "bluetooth"), bob=(5, "bluetooth"))
    stage.send("ann", "bob", b"x" * 50_000, seconds=0.2)
    stage.lab.devices["bob"].switch_off()
    stage.lab.run(seconds=1)
    stage.send("ann", "bob", b"x")
    assert stage.fates() == ["nobody there", "no link"]
    stage.lab.devices["ann"].switch_off()
    assert stage.lab.world.radio_mj(stage.lab.devices["ann"]) > 0


def test_battery_pays_for_short_range_messages():
    lab = Lab(seed=1)
    ann = lab.device("ann", at=at(0), short_range="bluetooth", battery_j=1000.0, base_mw=0.0)
    lab.device("bob", at=at(5), short_range="bluetooth").install("puppets", Puppet)
    ann.install("puppets", Puppet).call("do", effects=[Send("bob", b"x" * 500_000)])
    lab.run(minutes=1)
    assert ann.battery is not None
    assert ann.battery.left_j() == pytest.approx(1000 - 500 * BLUETOOTH_MJ_PER_KB / 1000)


@pytest.mark.parametrize(("short_range", "hops_near"), [(None, 0), ("bluetooth", 3)])
def test_chain_of_phones_that_let_nobody_in_goes_nearby_or_falls_back_to_the_server(short_range, hops_near):
    """Radiator 3.2: the server pushes to the first of a chain, which passes it on; a NAT lets nobody in.

    What a peer cannot reach gets it from the server, after two minutes.
    """
    lab = Lab(seed=5, transport="mqtt")
    server = Server(lab, lambda sender, receiver: Volume(1), chain=1.0)
    received: dict[str, list[Context]] = {f"phone-{number}": [] for number in range(5)}
    clients = [
        Client(
            lab.device(name, at=at(2.0 * number), short_range=short_range),
            server,
            receive=received[name].append,
            attributes={"p2p_enabled": True},
        )
        for number, name in enumerate(received)
    ]
    lab.run(seconds=30)
    clients[-1].propagate_context(Context({"hello"})).result()
    lab.run(minutes=3)
    assert [len(contexts) for contexts in received.values()] == [1, 1, 1, 1, 0]
    bill = lab.bill()
    assert bill.loc[bill["direction"] == "near up", "messages"].sum() == hops_near
    refused = (lab.frame("messages")["fate"] == "not let in").sum()
    assert (refused > 0) == (short_range is None)


def test_unknown_short_range_is_refused():
    with pytest.raises(ParameterError, match="did you mean 'bluetooth'"):
        Lab(seed=1).device("ann", short_range="bluetoth")


def test_transfers_are_recorded_as_they_are_billed():
    """A row for each end; what is cut as a device is switched off has carried what it has paid for."""
    stage = Stage(ann=(0, "bluetooth"), bob=(5, "bluetooth"))
    stage.send("ann", "bob", "x" * 998)
    stage.send("ann", "bob", "x" * 1_000_000, seconds=1.0)
    stage.lab.faults.switch_off("ann")
    stage.lab.run(minutes=1)
    transfers = stage.lab.frame("transfers")
    assert transfers[["device", "direction", "size_bytes", "cut"]].to_numpy().tolist() == [
        ["ann", "near up", 1000, False],
        ["bob", "near down", 1000, False],
        ["ann", "near up", 1_000_002, True],
    ]
    carried = transfers.groupby(["device", "direction"])["carried_bytes"].sum().to_dict()
    assert carried == {key: row.bytes for key, row in stage.bill().items()}
    assert 50_000 < transfers["carried_bytes"].iloc[-1] < 100_000  # a second at 685 kbit/s
    assert stage.fates() == ["arrived", "cut"]
    assert stage.lab.radio("ann")["state"].tolist() == ["idle"]  # of its other radio

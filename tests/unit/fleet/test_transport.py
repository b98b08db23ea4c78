"""Transport: sizes, handshakes, connections that are forgotten, and devices that let nobody in."""

from __future__ import annotations

from typing import Any

import pytest
from examples import examples
from fleet_machines import Puppet
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Received, Send, SendFailed
from mudkit.fleet.transport import TRANSPORTS, Transport

PLAIN = Transport("plain", ((60, 70), (330, 3000)), record_bytes=0, packet_bytes=0, idle_s=60.0)
"""Two round trips, and nothing else."""


class Stage:
    """Lab with puppets on two devices and two servers."""

    def __init__(self, transport: str | Transport, **devices: Any) -> None:
        self.lab = Lab(seed=3, transport=transport)
        self.puppets: dict[str, Puppet] = {}
        self._processes = {name: self._install(self.lab.server(name)) for name in ("server", "other")}
        for name in ("ann", "bob"):
            self._processes[name] = self._install(self.lab.device(name, **devices))
        self.lab.run(minutes=1)

    def _install(self, host: Any) -> Any:
        def make(ports: Any) -> Puppet:
            self.puppets[host.name] = Puppet(ports)
            return self.puppets[host.name]

        return host.install("puppets", make)

    def send(self, source: str, target: str, message: Any, seconds: float = 30.0) -> None:
        """Send a message and run."""
        self._processes[source].call("do", effects=[Send(target, message)])
        self.lab.run(seconds=seconds)

    def received(self, name: str) -> list[Any]:
        """Return the messages that a machine has received."""
        return [event.message for event in self.puppets[name].of(Received)]

    def carried(self, device: str, direction: str) -> list[int]:
        """Return the sizes of what a direction of a device's link has carried."""
        rows = self.lab.frame("transfers").query("device == @device and direction == @direction")
        return list(rows.sort_values("started")["size_bytes"])


@given(size=st.integers(0, 200_000), header=st.integers(0, 2_000))
def test_message_has_headers_of_records_and_packets(size, header):
    """22 bytes a TLS record of 16 KiB (RFC 8446), 40 a packet with 1,460 bytes of payload (IPv4 and TCP)."""
    left, records = size + header, 0
    while left > 0:
        left, records = left - 16_384, records + 1
    left, packets = size + header + 22 * records, 0
    while left > 0:
        left, packets = left - 1_460, packets + 1
    expected = size + header + 22 * records + 40 * packets
    assert Transport("x", ()).carried_bytes(size, header) == expected


def test_first_message_waits_for_the_handshake_and_others_do_not():
    stage = Stage(PLAIN)
    stage.send("ann", "server", "one")
    assert stage.carried("ann", "up") == [60, 330, 5]
    assert stage.carried("ann", "down") == [70, 3000]
    stage.send("ann", "server", "two")
    stage.send("server", "ann", "three")
    assert stage.carried("ann", "up") == [60, 330, 5, 5]
    assert stage.carried("ann", "down") == [70, 3000, 7]
    assert stage.received("server") == ["one", "two"]


def test_messages_wait_in_their_order():
    stage = Stage(PLAIN)
    process = stage._processes["ann"]
    process.call("do", effects=[Send("server", number) for number in range(5)])
    stage.lab.run(seconds=0.01)
    assert stage.lab.frame("messages")["fate"].tolist() == ["under way"] * 5
    stage.lab.run(seconds=30)
    assert stage.received("server") == [0, 1, 2, 3, 4]
    assert stage.carried("ann", "up") == [60, 330, 1, 1, 1, 1, 1]


def test_handshake_takes_its_round_trips():
    """Each of them takes as long as a message and its answer."""
    quick, slow = Stage(Transport("none", (), record_bytes=0, packet_bytes=0)), Stage(PLAIN)
    for stage in (quick, slow):
        stage.send("ann", "server", "x")
    sent_us = {stage: stage.puppets["ann"].seen[-1][0] for stage in (quick, slow)}
    took_us = {stage: stage.puppets["server"].seen[-1][0] - sent_us[stage] for stage in (quick, slow)}
    assert 2 * 70_000 < took_us[slow] - took_us[quick] + 40_000 < 4 * 70_000  # 70 ms a round trip over LTE


@pytest.mark.parametrize(("wait_s", "handshakes"), [(59, 1), (61, 2)])
def test_idle_connection_is_forgotten(wait_s, handshakes):
    stage = Stage(PLAIN)
    stage.send("ann", "server", "one", seconds=1)
    began_us = stage.puppets["server"].seen[-1][0]
    stage.lab.run(seconds=wait_s - 1)
    stage.send("ann", "server", "two")
    assert began_us < stage.lab.world.now_us
    assert stage.carried("ann", "up").count(330) == handshakes


def test_connection_is_of_one_device_and_one_host():
    stage = Stage(PLAIN)
    for source in ("ann", "bob"):
        for target in ("server", "other"):
            stage.send(source, target, 1, seconds=1)
    assert [stage.carried(name, "up").count(330) for name in ("ann", "bob")] == [2, 2]


@pytest.mark.parametrize("inbound", [None, False])
def test_device_hears_only_from_hosts_to_which_it_has_a_connection(inbound):
    stage = Stage(PLAIN, inbound=inbound)
    stage.send("server", "ann", "unasked")
    assert stage.puppets["server"].of(SendFailed) == [SendFailed("ann", "unasked")]
    stage.send("ann", "server", "hello", seconds=10)
    stage.send("server", "ann", "answer", seconds=10)
    stage.send("other", "ann", "stranger", seconds=1)
    stage.send("bob", "ann", "neighbour", seconds=1)
    stage.lab.run(minutes=2)
    stage.send("server", "ann", "late")
    assert stage.received("ann") == ["answer"]
    fates = stage.lab.frame("messages")["fate"].value_counts().to_dict()
    assert fates == {"not let in": 4, "arrived": 2}


def test_device_with_inbound_hears_from_all():
    stage = Stage(PLAIN, inbound=True)
    stage.send("server", "ann", "one")
    stage.send("bob", "ann", "two")
    assert stage.received("ann") == ["one", "two"]
    assert stage.carried("ann", "down") == [60, 330, 5, 60, 330, 5]  # the others open the connection
    assert stage.carried("bob", "up") == [60, 330, 5]


def test_without_connections_inbound_is_not_asked():
    stage = Stage("messages", inbound=False)
    stage.send("server", "ann", "one")
    assert stage.received("ann") == ["one"]
    assert stage.carried("ann", "down") == [5]


def test_change_of_address_ends_connections():
    stage = Stage(PLAIN)
    stage.send("ann", "server", "one", seconds=1)
    stage.lab.devices["ann"].readdress("elsewhere")
    stage.send("server", "elsewhere", "lost")
    stage.send("ann", "server", "two")
    assert stage.received("ann") == []
    assert stage.carried("ann", "up").count(330) == 2


def test_connection_of_two_machines_of_one_device_ends_with_its_address():
    lab = Lab(seed=1, transport="https")
    ann = lab.device("ann")
    bob = Puppet(None)
    ann.install("puppets", lambda ports: bob, name="bob")
    process = ann.install("puppets", Puppet, name="eve")
    lab.run(seconds=1)
    process.call("do", effects=[Send("ann/bob", "x")])
    lab.run(seconds=10)
    lab.faults.change_network("ann", "wifi")
    lab.run(seconds=5)
    assert [event.message for event in bob.of(Received)] == ["x"]


def test_cut_in_a_handshake_fails_what_waits_once():
    stage = Stage(PLAIN)
    stage.send("ann", "server", "one", seconds=0.1)
    stage.lab.devices["ann"].link_down()
    stage.lab.run(seconds=10)
    assert stage.puppets["ann"].of(SendFailed) == [SendFailed("server", "one")]
    assert stage.lab.frame("messages")["fate"].tolist() == ["cut"]
    stage.lab.devices["ann"].link_up()
    stage.send("ann", "server", "two")
    assert stage.received("server") == ["two"]


def test_no_fault_concerns_a_handshake():
    stage = Stage(PLAIN)
    stage.lab.faults.messages(loss_share=1.0)
    stage.send("ann", "server", "one")
    assert stage.carried("ann", "up") == [60, 330, 5]
    assert stage.lab.frame("messages")["fate"].tolist() == ["lost"]


def test_kill_ends_connections():
    stage = Stage(PLAIN)
    stage.send("ann", "server", "one", seconds=1)
    stage.lab.faults.kill("server")
    stage.lab.faults.restart("server")
    stage.send("server", "ann", "two")
    assert stage.received("ann") == []


def test_pings_keep_a_connection_open():
    """MQTT: without a message for 28 minutes the device sends a ping of 64 bytes, and gets one."""
    stage = Stage("mqtt")
    stage.send("ann", "server", "one")
    stage.lab.run(hours=7)
    up = stage.carried("ann", "up")
    assert up[:2] == [60, 330]
    assert set(up[3:]) == {TRANSPORTS["mqtt"].ping_bytes}
    assert len(up[3:]) == 7 * 60 // 28
    assert set(stage.carried("ann", "down")[2:]) == {64}
    stage.send("server", "ann", "two")
    assert stage.received("ann") == ["two"]


@pytest.mark.parametrize("how", ["outage in a ping", "other address", "other network"])
def test_kept_connection_is_opened_again(how):
    stage = Stage("mqtt")
    ann = stage.lab.devices["ann"]
    stage.send("ann", "server", "one", seconds=10)
    if how == "outage in a ping":
        stage.lab.faults.cut("ann", minutes=40)
    elif how == "other address":
        ann.readdress("elsewhere")
    else:
        ann.change_network("wifi")
    stage.lab.run(minutes=50)
    stage.send("server", ann.address, "two")
    assert stage.received("ann") == ["two"]
    assert stage.carried("ann", "up").count(330) == 2


def test_kept_connection_to_a_killed_server_is_opened_again_in_time():
    """Paho tries again after 1, 2, 4 … 120 s; a server that is dead answers no handshake."""
    stage = Stage("mqtt")
    stage.send("ann", "server", "one")
    stage.lab.faults.kill("server")
    stage.lab.run(minutes=20)
    syns = stage.carried("ann", "up").count(60) - 1
    assert syns == sum(wait_s <= 20 * 60 for wait_s in (1, 3, 7, 15, 31, 63, 127, *range(247, 1201, 120)))
    assert stage.carried("ann", "up").count(330) == 1
    stage.lab.faults.restart("server")
    stage.lab.run(minutes=2.1)
    stage.send("server", "ann", "two")
    assert stage.received("ann") == ["two"]


def test_connection_that_never_was_open_is_not_kept():
    """A phone that lets nobody in refuses another one, which does not try for ever."""
    stage = Stage("mqtt")
    stage.send("ann", "bob", "one")
    stage.lab.run(hours=1)
    assert stage.carried("ann", "up") == [60]


def test_bill_counts_messages_of_systems_alone():
    """Handshakes and pings are bytes and energy of the system that opened the connection."""
    stage = Stage("mqtt")
    stage.send("ann", "server", "x" * 98)
    stage.lab.run(hours=1)
    bill = stage.lab.bill().set_index("direction")
    assert bill["messages"].to_dict() == {"up": 1, "down": 0}
    assert bill["bytes"].to_dict() == {
        "up": 60 + 330 + 100 + 30 + 22 + 40 + 2 * 64,
        "down": 60 + 3000 + 2 * 64,
    }


def test_request_and_answer_have_headers():
    stage = Stage("https")
    stage.send("ann", "server", "x" * 98)
    stage.send("server", "ann", "x" * 98)
    assert stage.carried("ann", "up") == [60, 330, 100 + 700 + 22 + 40]
    assert stage.carried("ann", "down") == [60, 3000, 100 + 300 + 22 + 40]


steps = st.lists(
    st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from(["server", "other"]), st.booleans(),
              st.sampled_from([8, 24, 48, 64, 128])), max_size=12
)  # fmt: skip


@examples(40)
@given(steps=steps)
def test_connections_are_as_in_a_model(steps: Any) -> None:
    """The model: which device has sent to which server within a minute."""
    stage = Stage(PLAIN)
    used_s: dict[tuple[str, str], float] = {}
    handshakes = {"ann": 0, "bob": 0}
    expected: dict[str, list[int]] = {name: [] for name in stage.puppets}
    now_s = 0.0
    for number, (device, server, is_push, wait_s) in enumerate(steps):
        is_open = now_s - used_s.get((device, server), -1e9) < 60
        if is_push:
            stage.send(server, device, number, seconds=wait_s)
            expected[device] += [number] if is_open else []
        else:
            stage.send(device, server, number, seconds=wait_s)
            expected[server].append(number)
            handshakes[device] += not is_open
        if is_open or not is_push:
            used_s[device, server] = now_s
        now_s += wait_s
    assert {name: stage.received(name) for name in stage.puppets} == expected
    assert {name: stage.carried(name, "up").count(330) for name in handshakes} == handshakes


@pytest.mark.parametrize(
    ("wrong", "words"), [("htps", "did you mean 'https'"), ("tcp", "messages, https, mqtt")]
)
def test_unknown_transport_is_refused(wrong, words):
    with pytest.raises(ParameterError, match=words):
        Lab(transport=wrong)


def test_trace_says_how_messages_were_carried_and_who_lets_whom_in():
    """The manifest of a run has all parameters of its devices; those that are not used add nothing."""
    plain, other = Lab(seed=1), Lab(seed=1, transport="mqtt")
    plain.device("ann")
    other.device("ann", inbound=True, roam=True)
    (before,), (after,) = (lab.trace.description["devices"] for lab in (plain, other))
    assert "transport" not in plain.trace.description
    assert not {"inbound", "roam"} & before.keys()
    assert other.trace.description["transport"] == "mqtt"
    assert (after["inbound"], after["roam"]) == (True, True)

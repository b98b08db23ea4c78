"""Server and clients on a fleet: times of arrival, failures, and reported problems.

Delivery to every client exactly once is tested in tests/property/test_radiator.py.
"""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.radiator import Client, Context, People, Server, Time, Volume, distance_km, joins


class Fleet:
    """Clients of one server in a row from west to east, 1 km apart."""

    def __init__(self, function, n=6, p2p=True, **settings):
        self.lab = Lab(seed=7)
        self.server = Server(self.lab, aggregability=function, **settings)
        self.received = {f"car-{i}": [] for i in range(n)}
        self.clients = {
            name: Client(
                self.lab.device(name),
                self.server,
                receive=self.received[name].append,
                attributes={"p2p_enabled": p2p and i != 0, "loc": (0.0, i / 111.0)},
            )
            for i, name in enumerate(self.received)
        }
        self.lab.run(seconds=2)

    def send(self, name, serial=0, **attributes):
        context = Context({name}, {"serial": f"{name} {serial}", **attributes})
        return self.clients[name].propagate_context(context).result()

    def serials(self, name):
        return [serial for context in self.received[name] for serial in context["serial"]]


def by_distance(sender, receiver):
    return Volume(1 + int(distance_km(sender["loc"], receiver["loc"])))


def test_near_clients_receive_earlier_than_far_ones():
    fleet = Fleet(by_distance)
    for k in range(4):
        fleet.send("car-0", k)
    fleet.lab.run(seconds=5)
    assert [len(fleet.received[f"car-{i}"]) for i in range(1, 6)] == [2, 1, 1, 0, 0], (
        "volumes 2, 3, 4, 5 and 6"
    )


def test_timer_releases_messages_without_new_arrivals():
    fleet = Fleet(lambda sender, receiver: Time(seconds=300))
    fleet.send("car-0")
    fleet.lab.run(seconds=295)
    assert not fleet.received["car-1"]
    fleet.lab.run(seconds=10)
    assert fleet.serials("car-1") == ["car-0 0"]


def test_unreachable_chain_member_is_skipped_and_served_on_reconnection():
    fleet = Fleet(lambda sender, receiver: Volume(1), chain=1.0)
    first, dead, *others = (name for name in fleet.server.clients().result() if name != "car-0")
    fleet.lab.faults.cut(dead, minutes=10)
    fleet.send("car-0")
    fleet.lab.run(seconds=3)  # before any retransmission
    assert [len(fleet.received[name]) for name in (first, dead, *others)] == [1, 0, 1, 1, 1]
    assert not fleet.server.clients().result()[dead]
    fleet.send("car-0", 1)
    fleet.lab.run(minutes=1)
    messages = fleet.lab.trace.table("messages").to_pandas()
    tried = messages[messages["target"].str.contains(dead) & (messages["fate"] == "no link")]
    assert len(tried) == 1, "only the first aggregate is tried"
    fleet.lab.run(minutes=10)
    assert fleet.serials(dead) == ["car-0 0", "car-0 1"]


def test_client_id_of_another_device_is_refused():
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Volume(1))
    received = []
    first = Client(lab.device("a"), server, client_id="car", receive=received.append)
    first.registered.result()
    second = Client(lab.device("b"), server, client_id="car")
    with pytest.raises(ParameterError, match=r"taken[\s\S]*of a"):
        second.registered.result()
    with pytest.raises(ParameterError, match="not registered"):
        second.propagate_context(Context({"car"})).result()
    assert first.register({"p2p_enabled": True}).result() == "car", "its own device overwrites"
    first.unregister().result()
    lab.run(seconds=1)
    assert second.register().result() == "car"


def test_failing_function_is_named_and_its_message_waits():
    fleet = Fleet(lambda sender, receiver: Volume(receiver["level"]), n=2)
    fleet.send("car-0")
    fleet.lab.run(minutes=1)
    assert not fleet.received["car-1"]
    (problem,) = fleet.server.problems["detail"]
    for part in ("lambda", "sender 'car-0'", "receiver 'car-1'", "'level'", "'loc', 'p2p_enabled'"):
        assert part in str(problem)
    fleet.send("car-1", level=1)
    fleet.lab.run(minutes=1)
    assert fleet.serials("car-1") == ["car-0 0"]


@pytest.mark.parametrize(
    "threshold",
    [
        None, 3, Volume(0), Volume(-1), Volume(1.5), Volume(True), Volume("3"), Time(-1), Time("x"), People("x"),
        People(-3),
    ],
)  # fmt: skip
def test_invalid_threshold_is_reported_and_the_message_waits(threshold):
    fleet = Fleet(lambda sender, receiver: threshold, n=2, max_retention_s=600)
    fleet.send("car-0")
    fleet.lab.run(minutes=9)
    assert not fleet.received["car-1"]
    assert repr(threshold) in fleet.server.problems["detail"][0]
    fleet.lab.run(minutes=2)
    assert fleet.serials("car-1") == ["car-0 0"], "the retention bounds this wait, too"


def test_failing_join_loses_no_messages():
    def picky(contexts):
        if len(contexts) < 3:
            raise ZeroDivisionError("too few")
        return joins.concatenation(contexts)

    fleet = Fleet(
        lambda sender, receiver: Volume(2 if sender.get("serial") != "car-0 2" else 3), n=2, join=picky
    )
    for k in range(2):
        fleet.send("car-0", k)
    fleet.lab.run(minutes=3)
    assert not fleet.received["car-1"]
    for part in ("picky", "ZeroDivisionError: too few", "sender 'car-0'", "receiver 'car-1'"):
        assert part in fleet.server.problems["detail"][0]
    fleet.send("car-0", 2)
    fleet.lab.run(minutes=3)
    assert fleet.serials("car-1") == ["car-0 0", "car-0 1", "car-0 2"]


def test_compression_reduces_bytes_in_both_directions():
    sizes = {}
    for compress in (False, True):
        fleet = Fleet(lambda sender, receiver: Volume(4), compress=compress)
        for k in range(8):
            fleet.send("car-0", k, text="the same old story " * 20)
        fleet.lab.run(minutes=1)
        sizes[compress] = fleet.lab.bill().groupby("direction")["bytes"].sum()
    assert (sizes[True] < sizes[False] / 2).all()


def test_saturated_server_link_delays_messages():
    fleet = Fleet(lambda sender, receiver: Volume(1), n=3, link_kbps=8.0, compress=False)
    fleet.lab.run(minutes=1)
    for k in range(10):
        fleet.clients["car-0"].propagate_context(Context({"car-0"}, {"serial": str(k), "text": "x" * 1000}))
    fleet.lab.run(seconds=10)
    early_count = len(fleet.received["car-1"])
    assert 1 <= early_count <= 5, "a kilobyte a second for two receivers"
    fleet.lab.run(minutes=2)
    assert fleet.serials("car-1") == [str(k) for k in range(10)]


def test_clients_register_again_with_a_restarted_server():
    fleet = Fleet(lambda sender, receiver: Volume(1), n=3)
    server = fleet.lab.world.hosts["radiator"]
    server.kill()
    server.restart()
    fleet.send("car-0")
    fleet.send("car-1")
    fleet.send("car-2", 1)
    fleet.lab.run(minutes=1)
    assert set(fleet.server.clients().result()) == set(fleet.received)
    fleet.send("car-0", 2)
    fleet.lab.run(minutes=1)
    assert fleet.serials("car-1")[-1] == fleet.serials("car-2")[-1] == "car-0 2"


def test_contexts_that_a_restarted_server_has_lost_are_an_incident():
    fleet = Fleet(lambda sender, receiver: Volume(3), n=3)
    fleet.send("car-0")
    fleet.lab.run(minutes=1)
    fleet.lab.faults.kill("radiator")
    fleet.lab.faults.restart("radiator")
    fleet.send("car-0", 1)
    fleet.send("car-1")
    fleet.lab.run(minutes=1)
    incidents = fleet.lab.frame("incidents")
    lost = incidents.loc[incidents.incident == "began anew", "detail"].tolist()
    assert lost == ["earlier contexts of car-0 are not known here: those that waited are lost"]


def test_silent_client_is_removed_and_registers_again():
    fleet = Fleet(lambda sender, receiver: Volume(1), n=3, silence_s=600)
    fleet.lab.run(minutes=9)
    fleet.send("car-2")
    fleet.lab.faults.cut("car-2", minutes=30)
    fleet.send("car-0")
    fleet.lab.run(minutes=5)
    assert "car-2" in fleet.server.clients().result(), "it was heard five minutes ago"
    fleet.lab.run(minutes=15)
    assert set(fleet.server.clients().result()) == {"car-0", "car-1"}
    fleet.lab.run(minutes=11)
    fleet.send("car-0", 1)
    fleet.lab.run(minutes=1)
    assert fleet.serials("car-2") == ["car-0 1"], "what waited was dropped with it"


def test_unregistration_drops_pending_messages():
    fleet = Fleet(lambda sender, receiver: Volume(3), n=3)
    fleet.send("car-0")
    assert fleet.server.waiting().result() == {"car-0": 0, "car-1": 1, "car-2": 1}
    fleet.clients["car-1"].unregister().result()
    fleet.lab.run(seconds=1)
    fleet.clients["car-1"].register().result()
    assert fleet.server.waiting().result()["car-1"] == 0


def test_client_without_link_sends_after_reconnection():
    fleet = Fleet(lambda sender, receiver: Volume(1), n=2)
    fleet.lab.faults.cut("car-0", minutes=5)
    for k in range(3):
        fleet.clients["car-0"].propagate_context(Context({"car-0"}, {"serial": str(k)}))
    fleet.lab.run(minutes=4)
    assert not fleet.received["car-1"]
    fleet.lab.run(minutes=2)
    assert fleet.serials("car-1") == ["0", "1", "2"]

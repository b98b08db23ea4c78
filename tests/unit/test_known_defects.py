"""Regression tests for reported defects, in their smallest cases; others are beside the code concerned."""

from __future__ import annotations

import warnings

import pytest

from mudkit import Lab
from mudkit.consistency import History, check
from mudkit.errors import MudkitError
from mudkit.events import Call, Complete, Ports, Received, Send
from mudkit.experiment import ADAPTERS, TRAFFIC, scoreboard
from mudkit.fleet.store import MemoryStore
from mudkit.systems import lasthop, mud, radiator, sublim
from mudkit.systems import store_and_forward as sf


def make_client(lab, cloud, name):
    return mud.Client(lab.device(name), cloud, app="app", token=lab.token(name, "app", hours=1e4))


def restore(lab, host, backup, minutes=2):
    """Restart a host with the store of a backup."""
    process = lab.world.hosts[host].processes[0]
    lab.faults.kill(host)
    process.store.wipe()
    for key, value in backup.items():
        process.store.put(key, value)
    process.store.commit()
    lab.faults.restart(host)
    lab.run(minutes=minutes)


def copy_store(lab, host):
    return dict(lab.world.hosts[host].processes[0].store.items())


# -- restored from a backup


def test_mud_read_completes_after_the_store_is_restored():
    """Answer or refuse the read of a device that has newer versions, without endless retransmission."""
    lab = Lab(seed=1, record_messages=False)
    cloud = mud.Cloud(lab)
    ann, bob = (make_client(lab, cloud, name) for name in ("ann", "bob"))
    ann.create("t").result()
    ann.write("t", "a", {"n": 1}).result()
    lab.run(minutes=1)
    backup = copy_store(lab, "mud-store")
    for number in range(6):
        ann.write("t", f"later {number}", {"n": number}).result()
    bob.read("t", latest=True).result()
    lab.run(minutes=1)
    restore(lab, "mud-store", backup)
    requests = []
    lab.world.fault_hook = lambda transfer: (
        (transfer.sender.host.name == "bob" and requests.append(1)) or (0,)
    )
    read = bob.read("t", latest=True)
    lab.run(minutes=10)
    assert read.done()
    assert len(requests) <= 100


@pytest.mark.parametrize("restored", ["ann", "bob"])
def test_store_and_forward_delivers_after_a_device_is_restored(restored):
    """Deliver all messages from and to a restored phone."""
    lab = Lab(seed=1)
    relay = sf.Relay(lab)
    ann, bob = (sf.Client(lab.device(name), relay) for name in ("ann", "bob"))
    received = []
    bob.on_message(lambda message: received.append(message["text"]))
    ann.send("bob", "one").result()
    lab.run(minutes=1)
    backup = copy_store(lab, restored)
    for number in range(4):
        ann.send("bob", f"later {number}").result()
        lab.run(minutes=1)
    restore(lab, restored, backup)
    for number in range(6):
        ann.send("bob", f"after {number}")
    lab.run(hours=3)
    assert [text for text in received if text.startswith("after")] == [
        f"after {number}" for number in range(6)
    ]


def test_mud_writes_complete_after_a_device_is_restored():
    lab = Lab(seed=1)
    ann = make_client(lab, mud.Cloud(lab), "ann")
    ann.create("t").result()
    ann.write("t", "k", {"n": 0}).result()
    backup = copy_store(lab, "ann")
    for number in range(1, 5):
        ann.write("t", "k", {"n": number}).result()
    restore(lab, "ann", backup)
    writes = [ann.write("t", f"new {number}", {"n": number}) for number in range(6)]
    lab.run(hours=3)
    assert all(write.done() for write in writes)


def test_sublim_delivers_after_the_server_is_restored():
    """Distinguish new messages from those that the backup lacks."""
    lab = Lab(seed=1)
    net = sublim.PublishServer(lab)
    sublim.AccessPoint(lab, net, at=(44.4, 26.1), range_m=150)
    ann = sublim.Subscriber(lab.device("ann", link="wifi", at=(44.4, 26.1)), net)
    received = []
    ann.on_message(lambda message: received.append(message["k"]))
    lab.run(minutes=1)
    net.publish({"k": 0})
    lab.run(minutes=1)
    backup = copy_store(lab, "publish-server")
    for number in range(1, 7):
        net.publish({"k": number})
        lab.run(minutes=1)
    restore(lab, "publish-server", backup, minutes=5)
    for number in range(100, 110):
        net.publish({"k": number})
        lab.run(minutes=1)
    lab.run(hours=2)
    assert [number for number in received if number >= 100] == list(range(100, 110))


@pytest.mark.soak
def test_mud_queued_writes_complete_after_a_lost_burst():
    """Acknowledge queued writes within three minutes after a single loss."""
    lab = Lab(seed=1, record_messages=False)
    ann = make_client(lab, mud.Cloud(lab), "ann")
    ann.create("t").result()
    lab.run(minutes=1)
    lab.faults.cut("ann")
    writes = [ann.write("t", f"k{number}", {"n": number}) for number in range(2000)]
    lab.faults.messages(loss_share=1.0)
    lab.faults.mend("ann")
    lab.run(seconds=2)
    lab.faults.messages()
    lab.run(minutes=3)
    assert all(write.done() for write in writes)


# -- MUD


@pytest.mark.parametrize("seed", range(4))
def test_mud_last_update_of_reader_data_wins(seed):
    lab = Lab(seed=seed)
    cloud = mud.Cloud(lab)
    ann, bob = (make_client(lab, cloud, name) for name in ("ann", "bob"))
    ann.create("t").result()
    notifications = []
    handle = bob.read("t", type="continuous", data={"age": 10}, callback=notifications.append).result()
    lab.faults.messages(delay_share=0.5, delay_s=2)
    for update in [bob.update_data(handle, {"age": age}) for age in (30, 10)]:
        update.result()
    lab.faults.messages()
    lab.run(hours=1)
    ann.write("t", "k", {"x": "adults only"}, predicate="receiver.age >= 21").result()
    lab.run(minutes=2)
    assert notifications == []


def test_mud_removed_columns_stay_removed():
    lab = Lab(seed=1)
    cloud = mud.Cloud(lab)
    ann, bob = (make_client(lab, cloud, name) for name in ("ann", "bob"))
    ann.create("t").result()
    ann.write("t", "k", {"x": 1, "salary": 99}).result()
    ann.alter("t", remove=["salary"]).result()
    with pytest.raises(mud.Conflict) as caught:
        bob.write("t", "k", {"x": 2}, type="conditional").result()
    assert "salary" not in caught.value.store["data"]
    ann.alter("t", add={"salary": "number"}).result()
    assert "99" not in str(bob.read("t").result().records)
    ann.create("s", schema={"c": "text"}).result()
    ann.write("s", "k", {"c": "hello"}).result()
    ann.alter("s", remove=["c"]).result()
    ann.alter("s", add={"c": "number"}).result()
    assert "hello" not in str(bob.read("s").result().records)


class ForgingMachine:
    def __init__(self, ports):
        pass

    def handle(self, now_us, event):
        if isinstance(event, Call):
            return [Send(event.arguments["to"], event.arguments["message"]), Complete(event.op_id)]
        return ()


def test_mud_forged_write_past_the_gateway_has_no_effect():
    lab = Lab(seed=7)
    cloud = mud.Cloud(lab)
    jane = mud.Client(lab.device("jane"), cloud, app="news", token=lab.token("jane", "news"))
    jane.create("news").result()
    jane.write("news", "a", {"t": 1}).result()
    forged = {
        "kind": "write", "id": "e1", "reply": "evil/x", "client": "jane/news", "number": 99, "known": 1,
        "refused": None, "claims": {"app": "news", "user": "jane", "device": None, "expires_s": 1e9},
        "name": "news", "table": None, "key": "a", "data": {"t": "forged"}, "type": "blind", "predicate": None,
        "replaces": None, "reader": {},
    }  # fmt: skip
    evil = lab.device("evil").install("mud", ForgingMachine, name="x")
    evil.call("x", to=cloud.back_end, message=forged).result()
    lab.run(seconds=5)
    assert "forged" not in str(jane.read("news", latest=True).result().records)


def test_store_and_forward_message_of_a_forged_sender_has_no_effect():
    lab = Lab(seed=7)
    relay = sf.Relay(lab)
    bob = sf.Client(lab.device("bob"), relay)
    evil = lab.device("evil").install("x", ForgingMachine, name="sf")
    spoofed = {"kind": "send", "number": 1, "key": "k", "from": "ann", "to": "bob", "text": "I am ann"}
    evil.call("x", to=relay.installed.address, message=spoofed).result()
    lab.run(seconds=5)
    ann = sf.Client(lab.device("ann"), relay)
    ann.send("bob", "really ann").result()
    lab.run(seconds=30)
    assert bob.read().result() == [{"from": "ann", "text": "really ann"}]


@pytest.mark.parametrize(
    "message", [{"kind": "send"}, {"kind": "hello", "device": ["x"], "busy": 0}, {"kind": "hello", "device": "a"}, {"kind": 3}, {}]
)  # fmt: skip
def test_store_and_forward_relay_drops_malformed_messages(message):
    machine = sf.RelayMachine(Ports(MemoryStore(), None, "relay/sf"))
    (record,) = machine.handle(0, Received("e/sf", message))
    assert record.row["incident"] == "dropped"


# -- last hop


def change_limits(lab, jane):
    jane.subscribe("news", policy="on-line", threshold=1.0, max=3).result()


def restart_server(lab, jane):
    lab.faults.kill("spool")
    lab.faults.restart("spool")
    lab.run(minutes=2)


@pytest.mark.parametrize("disturb", [change_limits, restart_server])
def test_lasthop_forwards_after_new_limits_or_a_restart(disturb):
    """Forward a message of the same rank as one that has expired meanwhile."""
    lab = Lab(seed=7)
    server = lasthop.Publications(lab)
    jane = lasthop.Subscriber(lab.device("jane"), server)
    jane.subscribe("news", policy="on-line", threshold=1.0).result()
    news = server.topic("news")
    news.publish("one", rank=4.0, expires_s=60).result()
    lab.run(minutes=2)
    disturb(lab, jane)
    news.publish("two", rank=4.0).result()
    lab.run(minutes=1)
    assert len(jane.queue_sizes().result()) == 1
    assert lab.problems.empty


# -- Radiator


@pytest.mark.parametrize("seed", range(3))
def test_radiator_operations_complete_after_losses_end(seed):
    """Complete the operations of clients whose messages were lost for a while."""
    lab = Lab(seed=seed)
    server = radiator.Server(lab, lambda sender, receiver: radiator.Volume(1))
    clients = [radiator.Client(device, server, receive=lambda context: None) for device in lab.fleet(5)]
    lab.run(minutes=1)
    lab.faults.messages(loss_share=0.1, delay_share=0.3, delay_s=15)
    for k in range(40):
        clients[k % 5].propagate_context(radiator.Context({"a"}, {"n": k}))
        lab.run(seconds=10)
    lab.faults.messages()
    last = [client.propagate_context(radiator.Context({"z"}, {"n": 99})) for client in clients]
    lab.run(hours=6)
    assert all(operation.done() for operation in last)


def test_radiator_unregister_discards_attributes():
    """Start a new registration with its own attributes only (Radiator 4.2)."""
    lab = Lab(seed=1)
    seen = []

    def g(sender, receiver):
        seen.append(receiver["x"])
        return radiator.Volume(1)

    server = radiator.Server(lab, g)
    ann, bob = (
        radiator.Client(lab.device(name), server, receive=lambda context: None, attributes={"x": x})
        for x, name in enumerate(("ann", "bob"))
    )
    lab.run(minutes=1)
    bob.propagate_context(radiator.Context({"bob"}, {"x": 2})).result()
    bob.unregister().result()
    lab.run(minutes=1)
    bob.register({"x": 9}).result()
    lab.run(minutes=1)
    seen.clear()
    ann.propagate_context(radiator.Context({"ann"}, {"x": 0})).result()
    lab.run(minutes=1)
    assert seen == [9]


def test_radiator_mean_across_the_date_line():
    contexts = [
        radiator.Context({"a"}, {"loc": (0.0, 179.5), "speed_kmh": 1}),
        radiator.Context({"b"}, {"loc": (1.0, -179.5), "speed_kmh": 3}),
    ]
    _, west, _, east = radiator.joins.mean(contexts)["box"]
    assert (east - west) % 360 <= 2


# -- SUBLIM, consistency, scoreboard


def test_sublim_endless_policy_is_stopped():
    names = {}
    exec("def endless(message, state):\n    while True: pass", names)  # one line: no other starts
    assert sublim.policy(names["endless"]).decide({"a": 1}, {}, {}, 0.0).outcome == "stopped"


def test_consistency_later_delete_keeps_a_history_illegal():
    """Check that an illegal history stays illegal when a delete is appended."""
    for text in ("ann: [w0>5!0]", "ann: [w0>5!0]          d"):
        assert "ILLEGAL" in str(check(History.parse(text), "linearizable"))


class Telepath:
    """Entrant that sends nothing and reports that everything has arrived."""

    name = "telepath"

    def __init__(self, stage):
        self.stage = stage

    def publish(self, item):
        for phone in self.stage.phones:
            if self.stage.is_for(item.name, phone):
                self.stage.record_arrival(phone, item.name)

    def on_move(self, phone):
        pass

    def on_look(self, phone):
        self.stage.show(phone)


def test_scoreboard_refuses_arrivals_of_unsent_items():
    task = TRAFFIC.over(devices=4, hours=1.0)
    with warnings.catch_warnings(), pytest.raises(MudkitError, match="has not left its sender"):
        warnings.simplefilter("ignore")
        scoreboard([task], {**ADAPTERS, "telepath": Telepath}, seeds=[0], privacy=False)

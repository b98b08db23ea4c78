"""Client and server under loss, late and duplicate messages, wiped stores, and restarts."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Call, Received, Send
from mudkit.fleet.store import MemoryStore
from mudkit.systems.radiator import Client, Context, Server, Volume, pack, unpack
from mudkit.systems.radiator.messages import ContextFields, PropagateContext
from tests.support.odd_messages import record_received


def release_at_once(sender, receiver):
    return Volume(1)


class Pair:
    """Server with two clients, ann and bob."""

    def __init__(self, function=release_at_once, *, seed=7, **settings):
        self.lab = Lab(seed)
        self.server = Server(self.lab, function, **settings)
        self.received = []
        self.ann = Client(self.lab.device("ann", link="ideal"), self.server)
        self.bob = Client(self.lab.device("bob", link="ideal"), self.server, receive=self.received.append)
        self.lab.run(seconds=30)

    def propagate(self, value):
        return self.ann.propagate_context(Context({"ann"}, {"x": value}))

    def lose(self, *kinds):
        """Lose messages of some kinds, or all."""

        def fault_hook(transfer):
            return () if not kinds or unpack(transfer.message)["kind"] in kinds else (0,)

        self.lab.world.fault_hook = fault_hook

    def heal(self):
        self.lab.world.fault_hook = None

    def restart_server(self):
        """Restart the server, which loses its state."""
        host = self.lab.world.hosts["radiator"]
        host.kill()
        host.restart()

    def deliver_late(self, message):
        """Deliver a late message to the server."""
        self.lab.world._handle(self.server.installed, message)

    def deliver_late_answer(self, **fields):
        self.lab.world._handle(self.ann.installed, self.create_answer(**fields))

    def create_answer(self, **fields):
        return Received(self.server.installed.address, pack(fields, True), "radiator")

    def unpack_messages(self, log):
        """Return the messages received by the server, unpacked."""
        return [unpack(event.message) for event in log[self.server.installed]]

    def find_registration(self, log):
        """Return the only registration received by the server."""
        (event,) = (
            event for event in log[self.server.installed] if unpack(event.message)["kind"] == "register"
        )
        return event

    @property
    def received_values(self):
        return [value for context in self.received for value in context["x"]]


def wipe(client):
    """Restart a device with an empty store."""
    client.installed.kill()
    client.installed.store = MemoryStore()
    client.installed.start()


@pytest.mark.parametrize("every_s", [2, 3, 4, 5, 9])
def test_traffic_does_not_delay_retransmission(every_s):
    pair = Pair()
    pair.lose()
    operation = pair.propagate(0)
    pair.lab.run(seconds=0.5)
    pair.heal()
    for k in range(1, 60 // every_s):
        pair.propagate(k)
        pair.lab.run(seconds=every_s)
    assert operation.done()
    assert operation.responded_us - operation.invoked_us < 6_000_000
    pair.lab.run(seconds=10)
    assert pair.received_values == list(range(60 // every_s))


def test_early_contexts_are_not_retransmitted():
    pair = Pair()
    with record_received(pair.lab) as log:
        pair.lose()
        pair.propagate(0)
        pair.lab.run(seconds=0.5)
        pair.heal()
        for k in range(1, 20):
            pair.propagate(k)
            pair.lab.run(seconds=2)
    at_server = pair.unpack_messages(log)
    assert [message["kind"] for message in at_server].count("context") <= 20 + 2, (
        "only what was late comes twice"
    )
    assert pair.received_values == list(range(20))


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(8))
def test_clients_recover_after_the_last_fault(seed):
    lab = Lab(seed=seed)
    server = Server(lab, release_at_once)
    clients = [Client(device, server) for device in lab.fleet(5)]
    lab.run(minutes=1)
    lab.faults.messages(loss_share=0.1, delay_share=0.3, delay_s=15)
    for k in range(40):
        clients[k % 5].propagate_context(Context({"a"}, {"n": k}))
        if k % 7 == 0:
            clients[k % 5].register({"k": k})
        lab.run(seconds=10)
    lab.faults.messages()
    operations = [client.propagate_context(Context({"z"}, {"n": 99})) for client in clients]
    lab.run(minutes=3)
    assert all(operation.done() for operation in operations)
    assert all(client.registered.done() for client in clients)


@pytest.mark.parametrize("kinds", [["register"], ["registered"], ["unregister"], ["unregistered"]])
def test_lost_registrations_are_retransmitted(kinds):
    pair = Pair()
    pair.lose(*kinds)
    pair.bob.unregister().result()
    pair.lab.run(seconds=20)
    operation = pair.bob.register({"x": 9})
    pair.lab.run(seconds=20)
    assert not operation.done()
    pair.heal()
    pair.lab.run(minutes=2)
    assert operation.done()
    pair.bob.unregister()
    pair.lab.run(seconds=1)
    assert set(pair.server.clients().result()) == {"ann"}


def test_unregistration_without_link_is_sent_after_reconnection():
    pair = Pair()
    pair.lab.faults.cut("bob", minutes=5)
    pair.lab.run(seconds=1)
    pair.bob.unregister().result()
    pair.lab.run(minutes=6)
    assert set(pair.server.clients().result()) == {"ann"}


def test_contexts_wait_for_the_link_and_the_registration():
    pair = Pair()
    pair.lab.faults.cut("ann", minutes=5)
    pair.lab.run(seconds=1)
    call = Call(99, PropagateContext(ContextFields.of(Context({"ann"}, {"x": 1}))))
    assert list(pair.ann.installed.machine.handle(pair.lab.world.now_us, call)) == []
    pair.lab.run(minutes=6)
    assert pair.received_values == [1]


def test_answers_to_another_turn_or_incarnation_are_ignored():
    pair = Pair()
    machine = pair.ann.installed.machine
    pair.lose()
    operation = pair.ann.register({"x": 5})
    for turn, incarnation in ((1, pair.ann.installed.store.get("incarnation")), (2, "00000000")):
        pair.deliver_late_answer(kind="registered", incarnation=incarnation, turn=turn)
    pair.lab.run(seconds=1)
    assert not operation.done()
    assert not machine._is_registered
    pair.heal()
    pair.lab.run(minutes=1)
    assert operation.done()


def test_late_copy_of_a_registration_changes_nothing():
    pair = Pair()
    with record_received(pair.lab) as log:
        pair.bob.register({"x": 1}).result()
        pair.lab.run(seconds=1)
    old = pair.find_registration(log)
    pair.lab.devices["bob"].readdress(pair.lab.devices["bob"].next_address())
    pair.bob.register({"x": 2}).result()
    pair.deliver_late(old)
    pair.lab.run(seconds=10)
    row = pair.server.installed.machine._rows["bob"]
    assert (row.attributes, row.address) == ({"x": 2}, pair.bob.installed.address)
    pair.bob.unregister().result()
    pair.lab.run(seconds=1)
    pair.deliver_late(old)
    pair.lab.run(seconds=10)
    assert set(pair.server.clients().result()) == {"ann"}


def test_contexts_of_a_wiped_device_are_processed():
    pair = Pair()
    for k in range(5):
        pair.propagate(k).result()
    wipe(pair.ann)
    pair.ann.register().result()
    assert pair.propagate("after the wipe").result() == 1, "it counts from 1 again"
    pair.lab.run(minutes=2)
    assert pair.received_values == [0, 1, 2, 3, 4, "after the wipe"]


def test_contexts_before_the_first_that_a_client_still_has_are_not_kept():
    """See :class:`_ReceivedContexts`: early are those after a missing one, which may still arrive."""
    pair = Pair()
    with record_received(pair.lab) as log:
        pair.propagate(1).result()
        pair.lab.run(seconds=1)
    (event,) = (event for event in log[pair.server.installed] if unpack(event.message)["kind"] == "context")
    sent = unpack(event.message)
    for number, first in ((3, 1), (5, 5)):
        late = pack({**sent, "number": number, "first": first}, True)
        pair.deliver_late(Received(event.source, late, event.sender))
    (numbers,) = pair.server.installed.machine._known["ann", "ann"].numbers.values()
    assert (numbers.last_number, numbers.early) == (5, {})


def test_late_contexts_from_before_the_wipe_change_nothing():
    pair = Pair()
    with record_received(pair.lab) as log:
        pair.propagate("one").result()
        pair.lose("context")  # in flight, and not received
        pair.propagate("two")
        pair.lab.run(seconds=1)
    old = [event for event in log[pair.server.installed] if unpack(event.message)["client"] == "ann"]
    two = {"number": 2, "first": 2, "context": Context({"ann"}, {"x": "two"}).to_dict()}
    unheard = Received(old[-1].source, pack(unpack(old[-1].message) | two, True), "ann")
    wipe(pair.ann)
    pair.heal()
    pair.ann.register().result()
    pair.lose()
    operation = pair.propagate("new")
    for event in (*old, unheard):
        pair.deliver_late(event)
    pair.deliver_late_answer(kind="taken", number=2)
    pair.heal()
    assert not operation.done()
    pair.lab.run(minutes=2)
    assert operation.done()
    assert pair.received_values == ["one", "new"]
    assert pair.propagate("newer").result() == 2
    pair.lab.run(minutes=1)
    assert pair.received_values == ["one", "new", "newer"]


def test_wiped_device_receives_unacknowledged_aggregates():
    pair = Pair()
    pair.lose("push")
    pair.propagate("missed").result()
    wipe(pair.bob)
    pair.heal()
    pair.bob.register().result()
    pair.lab.run(seconds=2)
    assert pair.received_values == ["missed"]
    pair.propagate("next").result()
    pair.lab.run(minutes=1)
    assert pair.received_values == ["missed", "next"], "once"


def test_new_registration_replaces_the_former_context():
    seen = []

    def g(sender, receiver):
        seen.append((sender.get("x"), receiver.get("x")))
        return Volume(1)

    pair = Pair(g)
    pair.bob.propagate_context(Context({"bob"}, {"x": 2})).result()
    pair.bob.unregister().result()
    pair.bob.register({"x": 9}).result()
    seen.clear()
    pair.propagate(0).result()
    assert seen == [(0, 9)]


def test_pending_contexts_are_refused_on_unregistration():
    pair = Pair()
    pair.lose("context")
    with record_received(pair.lab) as log:
        operation = pair.propagate("before")
    with pytest.raises(ParameterError, match="unregistered before"):
        pair.ann.unregister()
        operation.result()
    assert not log
    pair.heal()
    pair.ann.register().result()
    pair.propagate("after").result()
    pair.lab.run(minutes=1)
    assert pair.received_values == ["after"]


def test_nothing_is_retransmitted_without_faults():
    pair = Pair(link_kbps=2.0, compress=False)  # answers wait behind pushes
    with record_received(pair.lab) as log:
        for k in range(60):
            pair.ann.propagate_context(Context({"ann"}, {"x": k, "text": "x" * 1000}))
            pair.lab.run(seconds=3)
        pair.lab.run(minutes=15)
    sent = pair.unpack_messages(log)
    assert [message["number"] for message in sent if message["kind"] == "context"] == list(range(1, 61))
    assert pair.received_values == list(range(60))


def test_client_removed_for_silence_registers_again():
    pair = Pair(silence_s=60)
    pair.lose("got")
    pair.propagate("one").result()
    pair.lab.run(minutes=2)
    pair.heal()
    pair.propagate("two").result()
    pair.lab.run(minutes=3)
    assert pair.received_values == ["one", "two"]


def test_unregistration_is_repeated_after_a_late_registration():
    pair = Pair()
    with record_received(pair.lab) as log:
        pair.bob.register({"x": 1}).result()
    old = pair.find_registration(log)
    pair.bob.unregister().result()
    pair.lab.run(seconds=5)
    pair.restart_server()
    pair.deliver_late(old)  # to a server without state
    assert set(pair.server.clients().result()) == {"bob"}
    pair.propagate("one").result()
    pair.lab.run(minutes=1)
    assert set(pair.server.clients().result()) == {"ann"}
    assert not pair.received_values


def test_duplicate_answer_causes_no_retransmission():
    pair = Pair()
    store = pair.ann.installed.store
    answer = pair.create_answer(
        kind="registered", incarnation=store.get("incarnation"), turn=store.get("turn")
    )
    pair.lose()
    pair.propagate("one")
    effects = pair.ann.installed.machine.handle(pair.lab.world.now_us, answer)
    assert not [effect for effect in effects if isinstance(effect, Send)]


def test_wiped_device_is_processed_by_a_restarted_server():
    pair = Pair()
    pair.propagate("one").result()
    wipe(pair.ann)
    with record_received(pair.lab) as log:
        pair.ann.register().result()
    (registration, *_) = (
        event for event in log[pair.server.installed] if "challenge" not in unpack(event.message)
    )
    pair.propagate("two").result()
    pair.restart_server()
    pair.deliver_late(registration)  # it does not name a former incarnation
    for k in range(3):
        operation = pair.propagate(k)
        pair.lab.run(minutes=1)
        assert operation.done()


def test_only_contexts_of_a_wiped_client_name_the_incarnation():
    pair = Pair()
    with record_received(pair.lab) as log:
        pair.propagate("one").result()
        wipe(pair.ann)
        pair.ann.register().result()
        pair.propagate("two").result()
        pair.bob.propagate_context(Context({"bob"}, {"x": 1})).result()
    sent = pair.unpack_messages(log)
    contexts = [
        (message["client"], "incarnation" in message) for message in sent if message["kind"] == "context"
    ]
    assert contexts == [("ann", False), ("ann", True), ("bob", False)]

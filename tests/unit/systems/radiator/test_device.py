"""What a client says is heard in the end, whatever is lost, late or repeated, and whatever goes on meanwhile."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Received, Send
from mudkit.fleet.store import MemoryStore
from mudkit.systems.radiator import Client, Context, Server, Volume, pack, unpack
from tests.support.odd_messages import overhear


def at_once(sender, receiver):
    return Volume(1)


class Pair:
    """Ann and bob."""

    def __init__(self, g=at_once, *, seed=7, **settings):
        self.lab = Lab(seed)
        self.server = Server(self.lab, g, **settings)
        self.got = []
        self.ann = Client(self.lab.device("ann", link="ideal"), self.server)
        self.bob = Client(self.lab.device("bob", link="ideal"), self.server, receive=self.got.append)
        self.lab.run(seconds=30)

    def say(self, what):
        return self.ann.propagate_context(Context({"ann"}, {"x": what}))

    def lose(self, *kinds):
        """Lose messages of some kinds, or all, from now on."""

        def fault_hook(transfer):
            return () if not kinds or unpack(transfer.message)["kind"] in kinds else (0,)

        self.lab.world.fault_hook = fault_hook

    def heal(self):
        self.lab.world.fault_hook = None

    def begin_anew(self):
        """Let the server forget everything."""
        host = self.lab.world.hosts["radiator"]
        host.kill()
        host.restart()

    def late(self, message):
        """Give the server what it has, or might have, got before."""
        self.lab.world._handle(self.server.installed, message)

    def late_answer(self, **answer):
        self.lab.world._handle(self.ann.installed, self.answer(**answer))

    def answer(self, **answer):
        return Received(self.server.installed.address, pack(answer, True), "radiator")

    def heard(self, heard):
        """What the server has heard, unpacked."""
        return [unpack(each.message) for each in heard[self.server.installed]]

    def registration(self, heard):
        """The one registration that the server has heard."""
        (one,) = (each for each in heard[self.server.installed] if unpack(each.message)["kind"] == "register")
        return one

    @property
    def said(self):
        return [value for context in self.got for value in context["x"]]


def wipe(client):
    """Give the device back with an empty store."""
    client.installed.kill()
    client.installed.store = MemoryStore()
    client.installed.start()


@pytest.mark.parametrize("every_s", [2, 3, 4, 5, 9])
def test_traffic_puts_nothing_off(every_s):
    pair = Pair()
    pair.lose()
    first = pair.say(0)
    pair.lab.run(seconds=0.5)
    pair.heal()
    for k in range(1, 60 // every_s):
        pair.say(k)
        pair.lab.run(seconds=every_s)
    assert first.done()
    assert first.responded_us - first.invoked_us < 6_000_000
    pair.lab.run(seconds=10)
    assert pair.said == list(range(60 // every_s))


def test_what_came_early_is_not_sent_again():
    pair = Pair()
    with overhear(pair.lab) as heard:
        pair.lose()
        pair.say(0)
        pair.lab.run(seconds=0.5)
        pair.heal()
        for k in range(1, 20):
            pair.say(k)
            pair.lab.run(seconds=2)
    at_server = pair.heard(heard)
    assert [each["kind"] for each in at_server].count("context") <= 20 + 2, "only what was late comes twice"
    assert pair.said == list(range(20))


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_silent_after_the_last_fault(seed):
    lab = Lab(seed=seed)
    server = Server(lab, at_once)
    clients = [Client(device, server) for device in lab.fleet(5)]
    lab.run(minutes=1)
    lab.faults.messages(loss_share=0.1, delay_share=0.3, delay_s=15)
    for k in range(40):
        clients[k % 5].propagate_context(Context({"a"}, {"n": k}))
        if k % 7 == 0:
            clients[k % 5].register({"k": k})
        lab.run(seconds=10)
    lab.faults.messages()
    last = [client.propagate_context(Context({"z"}, {"n": 99})) for client in clients]
    lab.run(minutes=3)
    assert all(operation.done() for operation in last)
    assert all(client.registered.done() for client in clients)


@pytest.mark.parametrize("kinds", [["register"], ["registered"], ["unregister"], ["unregistered"]])
def test_lost_registrations_are_said_again(kinds):
    pair = Pair()
    pair.lose(*kinds)
    pair.bob.unregister().result()
    pair.lab.run(seconds=20)
    again = pair.bob.register({"x": 9})
    pair.lab.run(seconds=20)
    assert not again.done()
    pair.heal()
    pair.lab.run(minutes=2)
    assert again.done()
    pair.bob.unregister()
    pair.lab.run(seconds=1)
    assert set(pair.server.clients().result()) == {"ann"}


def test_who_unregisters_without_a_link_is_unregistered_when_it_is_back():
    pair = Pair()
    pair.lab.faults.cut("bob", minutes=5)
    pair.lab.run(seconds=1)
    pair.bob.unregister().result()
    pair.lab.run(minutes=6)
    assert set(pair.server.clients().result()) == {"ann"}


def test_a_late_answer_is_of_what_it_answers():
    pair = Pair()
    machine = pair.ann.installed.machine
    pair.lose()
    again = pair.ann.register({"x": 5})
    for turn, whose in ((1, pair.ann.installed.store.get("incarnation")), (2, "00000000")):
        pair.late_answer(kind="registered", incarnation=whose, turn=turn)
    pair.lab.run(seconds=1)
    assert not again.done()
    assert not machine._is_registered
    pair.heal()
    pair.lab.run(minutes=1)
    assert again.done()


def test_a_late_copy_of_an_old_registration_changes_nothing():
    pair = Pair()
    with overhear(pair.lab) as heard:
        pair.bob.register({"x": 1}).result()
        pair.lab.run(seconds=1)
    old = pair.registration(heard)
    pair.lab.devices["bob"].readdress(pair.lab.devices["bob"].next_address())
    pair.bob.register({"x": 2}).result()
    pair.late(old)
    pair.lab.run(seconds=10)
    row = pair.server.installed.machine._rows["bob"]
    assert (row.attributes, row.address) == ({"x": 2}, pair.bob.installed.address)
    pair.bob.unregister().result()
    pair.lab.run(seconds=1)
    pair.late(old)
    pair.lab.run(seconds=10)
    assert set(pair.server.clients().result()) == {"ann"}


def test_a_wiped_device_is_heard():
    pair = Pair()
    for k in range(5):
        pair.say(k).result()
    wipe(pair.ann)
    pair.ann.register().result()
    assert pair.say("after the wipe").result() == 1, "it counts from 1 again"
    pair.lab.run(minutes=2)
    assert pair.said == [0, 1, 2, 3, 4, "after the wipe"]


def test_late_copies_of_what_was_said_before_the_wipe_change_nothing():
    pair = Pair()
    with overhear(pair.lab) as heard:
        pair.say("one").result()
        pair.lose("context")  # it is on its way, and nobody has heard it
        pair.say("two")
        pair.lab.run(seconds=1)
    old = [each for each in heard[pair.server.installed] if unpack(each.message)["client"] == "ann"]
    two = {"number": 2, "first": 2, "context": Context({"ann"}, {"x": "two"}).to_dict()}
    unheard = Received(old[-1].source, pack(unpack(old[-1].message) | two, True), "ann")
    wipe(pair.ann)
    pair.heal()
    pair.ann.register().result()
    pair.lose()
    say = pair.say("new")
    for each in (*old, unheard):
        pair.late(each)
    pair.late_answer(kind="taken", number=2)
    pair.heal()
    assert not say.done()
    pair.lab.run(minutes=2)
    assert say.done()
    assert pair.said == ["one", "new"]
    assert pair.say("newer").result() == 2
    pair.lab.run(minutes=1)
    assert pair.said == ["one", "new", "newer"]


def test_a_wiped_device_gets_what_it_had_not_confirmed():
    pair = Pair()
    pair.lose("push")
    pair.say("missed").result()
    wipe(pair.bob)
    pair.heal()
    pair.bob.register().result()
    pair.lab.run(seconds=2)
    assert pair.said == ["missed"]
    pair.say("next").result()
    pair.lab.run(minutes=1)
    assert pair.said == ["missed", "next"], "once"


def test_who_has_left_and_registers_again_begins_with_what_it_says_then():
    seen = []

    def g(sender, receiver):
        seen.append((sender.get("x"), receiver.get("x")))
        return Volume(1)

    pair = Pair(g)
    pair.bob.propagate_context(Context({"bob"}, {"x": 2})).result()
    pair.bob.unregister().result()
    pair.bob.register({"x": 9}).result()
    seen.clear()
    pair.say(0).result()
    assert seen == [(0, 9)]


def test_what_waits_when_it_leaves_is_refused_and_does_not_come_later():
    pair = Pair()
    pair.lose("context")
    with overhear(pair.lab) as heard:
        lost = pair.say("before")
    with pytest.raises(ParameterError, match="unregistered before"):
        pair.ann.unregister()
        lost.result()
    assert not heard
    pair.heal()
    pair.ann.register().result()
    pair.say("after").result()
    pair.lab.run(minutes=1)
    assert pair.said == ["after"]


def test_without_faults_nothing_is_sent_twice():
    pair = Pair(link_kbps=2.0, compress=False)  # answers wait behind pushes
    with overhear(pair.lab) as heard:
        for k in range(60):
            pair.ann.propagate_context(Context({"ann"}, {"x": k, "text": "x" * 1000}))
            pair.lab.run(seconds=3)
        pair.lab.run(minutes=15)
    sent = pair.heard(heard)
    assert [each["number"] for each in sent if each["kind"] == "context"] == list(range(1, 61))
    assert pair.said == list(range(60))


def test_who_is_removed_though_it_lives_registers_again():
    pair = Pair(silence_s=60)
    pair.lose("got")
    pair.say("one").result()
    pair.lab.run(minutes=2)
    pair.heal()
    pair.say("two").result()
    pair.lab.run(minutes=3)
    assert pair.said == ["one", "two"]


def test_an_unregistered_client_says_so_again_to_a_server_that_takes_it_for_registered():
    pair = Pair()
    with overhear(pair.lab) as heard:
        pair.bob.register({"x": 1}).result()
    old = pair.registration(heard)
    pair.bob.unregister().result()
    pair.lab.run(seconds=5)
    pair.begin_anew()
    pair.late(old)  # late, to a server that has forgotten everything
    assert set(pair.server.clients().result()) == {"bob"}
    pair.say("one").result()
    pair.lab.run(minutes=1)
    assert set(pair.server.clients().result()) == {"ann"}
    assert not pair.said


def test_a_repeated_answer_sends_nothing_again():
    pair = Pair()
    store = pair.ann.installed.store
    answer = pair.answer(kind="registered", incarnation=store.get("incarnation"), turn=store.get("turn"))
    pair.lose()
    pair.say("one")
    effects = pair.ann.installed.machine.handle(pair.lab.world.now_us, answer)
    assert not [each for each in effects if isinstance(each, Send)]


def test_a_wiped_device_is_heard_by_a_server_that_begins_anew():
    pair = Pair()
    pair.say("one").result()
    wipe(pair.ann)
    with overhear(pair.lab) as heard:
        pair.ann.register().result()
    (late, *_) = (each for each in heard[pair.server.installed] if "challenge" not in unpack(each.message))
    pair.say("two").result()
    pair.begin_anew()
    pair.late(late)  # it does not say that there was another store
    for k in range(3):
        said = pair.say(k)
        pair.lab.run(minutes=1)
        assert said.done()


def test_only_who_was_wiped_says_which_store_it_is():
    pair = Pair()
    with overhear(pair.lab) as heard:
        pair.say("one").result()
        wipe(pair.ann)
        pair.ann.register().result()
        pair.say("two").result()
        pair.bob.propagate_context(Context({"bob"}, {"x": 1})).result()
    sent = pair.heard(heard)
    contexts = [(each["client"], "incarnation" in each) for each in sent if each["kind"] == "context"]
    assert contexts == [("ann", False), ("ann", True), ("bob", False)]

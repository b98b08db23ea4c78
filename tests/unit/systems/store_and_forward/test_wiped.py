"""Who comes back under its name with an empty store begins anew, and nobody waits for ever for what it has forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from mudkit import Lab
from mudkit.errors import OutboxFull, ParameterError
from mudkit.fleet.link import Transfer
from mudkit.fleet.store import MemoryStore
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.wire import wire_fields


def wipe(installed: Any) -> None:
    installed.kill()
    installed.store = MemoryStore()
    installed.start()


def place(seed: int = 7) -> tuple[Lab, Relay, Client, Client]:
    lab = Lab(seed=seed)
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    return lab, relay, ann, bob


def delay(lab: Lab, kind: str, *delays_us: int) -> None:
    """Let messages of a kind come after each of the delays, which may be none, and all others at once."""
    lab.world.fault_hook = lambda transfer: (
        delays_us if wire_fields(transfer.message)["kind"] == kind else (0,)
    )


def began_anew(lab: Lab) -> list[str]:
    incidents = lab.frame("incidents")
    return incidents.loc[incidents["incident"] == "began anew", "detail"].tolist()


def texts(client: Client) -> list[str]:
    return [message["text"] for message in client.read().result()]


def test_a_sender_that_was_wiped_loses_nothing_and_late_copies_of_its_former_messages_are_known() -> None:
    lab, _, ann, bob = place()
    copies: list[Transfer] = []

    def fault_hook(transfer: Transfer) -> tuple[int, ...]:
        copies.append(transfer)
        return (0, 90_000_000)  # whatever it is comes again, a minute and a half later

    lab.world.fault_hook = fault_hook
    for text in ("one", "two"):
        ann.send("bob", text).result()
    lab.run(seconds=5)
    wipe(ann.installed)
    for text in ("three", "four", "five"):
        ann.send("bob", text).result(5)
    lab.run(minutes=5)
    kinds = {wire_fields(copy.message)["kind"] for copy in copies}
    assert kinds >= {"hello", "welcome", "send", "accepted", "deliver", "delivered"}
    assert texts(bob) == ["one", "two", "three", "four", "five"]
    assert not ann.installed.store.items("out ")


def test_an_answer_to_a_former_life_does_not_take_a_message_out_of_the_outbox() -> None:
    lab, _, ann, bob = place()
    lab.run(seconds=5)
    delay(lab, "accepted", 0, 7_000_000)
    ann.send("bob", "one").result()
    wipe(ann.installed)
    lab.run(seconds=5)
    delay(lab, "send")
    ann.send("bob", "after the wipe")
    lab.run(seconds=4)  # the late answer, to number 1 as well, is here
    lab.world.fault_hook = None
    lab.run(minutes=1)
    assert texts(bob) == ["one", "after the wipe"]


@pytest.mark.parametrize("read_before", [0, 1, 3])
def test_a_receiver_that_was_wiped_gets_what_waits_and_what_comes(read_before: int) -> None:
    lab, _, ann, bob = place()
    for number in range(read_before):
        ann.send("bob", f"before {number}").result()
    lab.run(seconds=30)
    assert len(texts(bob)) == read_before
    lab.faults.cut("bob")
    ann.send("bob", "waits 1").result()
    ann.send("bob", "waits 2").result()
    wipe(bob.installed)
    lab.faults.mend("bob")
    lab.run(seconds=9)
    ann.send("bob", "comes").result()
    lab.run(minutes=1)
    assert texts(bob) == ["waits 1", "waits 2", "comes"]


def test_what_a_former_life_acknowledges_late_is_delivered_to_the_next() -> None:
    lab, relay, ann, bob = place()
    lab.run(seconds=5)
    delay(lab, "delivered", 9_000_000)
    ann.send("bob", "one").result()
    lab.run(seconds=2)  # it is in the inbox, and the relay does not know it yet
    lab.world.fault_hook = None
    wipe(bob.installed)
    lab.run(seconds=20)
    ann.send("bob", "two").result()
    lab.run(minutes=1)
    assert texts(bob) == ["one", "two"]
    assert not relay.installed.store.items("for ")


def test_a_late_hello_of_a_former_life_or_of_a_former_moment_changes_nothing() -> None:
    lab, _, ann, bob = place()
    delay(lab, "hello", 0, 20_000_000)
    lab.devices["bob"].change_context(busy=True)
    lab.run(seconds=5)
    lab.devices["bob"].change_context(busy=False)
    lab.run(seconds=5)
    wipe(bob.installed)
    lab.faults.change_address("bob")
    lab.world.fault_hook = None
    lab.run(seconds=30)  # all of them have come again: busy, and from where it was
    ann.send("bob", "lunch?").result()
    lab.run(seconds=5)
    assert texts(bob) == ["lunch?"]


def test_a_first_hello_that_comes_after_that_of_the_next_life_changes_nothing() -> None:
    """The relay has heard of neither before: which of them lives, only the living can say."""
    lab = Lab(seed=7)
    relay = Relay(lab)
    ann = Client(lab.device("ann"), relay)
    delay(lab, "hello", 20_000_000)
    bob = Client(lab.device("bob"), relay)
    lab.run(seconds=1)
    lab.world.fault_hook = None
    wipe(bob.installed)
    lab.faults.change_address("bob")  # a question that goes to where he was does not reach him
    lab.run(minutes=1)
    ann.send("bob", "lunch?").result()
    lab.run(seconds=5)
    assert texts(bob) == ["lunch?"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_relay_that_was_wiped_goes_on_and_says_so(is_cut: bool) -> None:
    lab, relay, ann, bob = place()
    for number in range(3):
        ann.send("bob", f"{number}").result()
        bob.send("ann", f"{number}").result()
    lab.run(seconds=9)
    assert (texts(ann), texts(bob)) == (["0", "1", "2"], ["0", "1", "2"])
    wipe(relay.installed)
    if is_cut:
        lab.faults.cut("bob", minutes=1)
    sent = [ann.send("bob", "after"), bob.send("ann", "after"), ann.send("bob", "more")]
    lab.run(minutes=3)
    assert [each.status for each in sent] == ["ok"] * 3
    assert (texts(ann), texts(bob)) == (["after"], ["after", "more"])
    told = sorted(each.split(" are")[0] for each in began_anew(lab))
    assert told == [f"messages of {name} up to number 3" for name in ("ann", "bob")]
    assert lab.problems.empty


def test_a_relay_that_was_wiped_finds_a_device_again_that_only_listens_when_it_says_hello() -> None:
    lab, relay, ann, bob = place()
    lab.run(seconds=9)
    wipe(relay.installed)
    ann.send("bob", "where are you?").result()
    lab.run(hours=1)
    assert texts(bob) == []  # nobody knows where he is
    lab.faults.cut("bob", minutes=1)
    lab.run(minutes=2)
    assert texts(bob) == ["where are you?"]


def test_two_wipes_at_once() -> None:
    lab, relay, ann, bob = place()
    for number in range(3):
        ann.send("bob", f"{number}").result()
    lab.run(seconds=9)
    for installed in (relay.installed, bob.installed, ann.installed):
        wipe(installed)
    ann.send("bob", "all is new").result()
    lab.run(minutes=1)
    assert texts(bob) == ["all is new"]


def test_who_takes_anothers_address_is_not_told_its_messages() -> None:
    lab, relay, ann, bob = place()
    cy = Client(lab.device("cy"), relay)
    lab.run(seconds=9)
    assert lab.faults.change_address("bob") == "bob@2"
    lab.run(seconds=9)
    lab.faults.cut("bob")
    ann.send("bob", "secret").result()
    lab.run(seconds=9)
    lab.faults.change_address("bob", "elsewhere")  # the relay does not hear of it
    lab.faults.change_address("cy", "bob@2")
    lab.run(hours=2)
    assert texts(cy) == []
    lab.faults.mend("bob")
    lab.run(minutes=1)
    assert texts(bob) == ["secret"]


def test_what_a_wiped_sender_names_by_itself_is_not_the_name_of_something_of_its_former_life() -> None:
    lab, _, ann, _ = place()
    ann.send("bob", "one").result()
    lab.run(seconds=5)
    wipe(ann.installed)
    ann.send("bob", "two").result(5)
    lab.run(seconds=5)
    assert lab.deliveries()["item"].nunique() == 2


def test_a_relay_that_was_restored_from_an_old_backup_goes_on_and_says_what_it_does_not_know() -> None:
    lab, relay, ann, bob = place(seed=3)
    ann.send("bob", "one").result()
    lab.run(minutes=1)
    backup = dict(relay.installed.store.items())
    for text in ("two", "three"):
        ann.send("bob", text).result()
    lab.run(minutes=1)
    relay.installed.kill()
    relay.installed.store = MemoryStore()
    for key, value in backup.items():
        relay.installed.store.put(key, value)
    relay.installed.store.commit()
    relay.installed.start()
    four = ann.send("bob", "four")
    lab.run(minutes=2)
    assert four.done()
    assert texts(bob) == ["one", "two", "three", "four"]
    assert began_anew(lab) == ["messages of ann up to number 3 are not known here"]


def test_a_full_outbox_refuses_more_and_the_rest_goes_on() -> None:
    lab, _, ann, bob = place()
    lab.run(minutes=1)
    lab.faults.cut("ann")
    ann.installed.machine._outbox._max_items = 2
    kept = [ann.send("bob", text) for text in ("one", "two")]
    with pytest.raises(OutboxFull, match="wait until the network is back"):
        ann.send("bob", "three").result()
    lab.faults.mend("ann")
    lab.run(minutes=1)
    assert all(each.done() for each in kept)
    ann.send("bob", "four").result()
    lab.run(minutes=1)
    assert texts(bob) == ["one", "two", "four"]
    assert set(lab.deliveries()["status"]) == {"read"}


def test_a_text_that_is_too_long_is_refused_at_once() -> None:
    _, _, ann, _ = place()
    with pytest.raises(ParameterError, match="send it in parts"):
        ann.send("bob", "x" * 3_000_000)

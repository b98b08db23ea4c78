"""Devices and relays that restart with an empty store or an old backup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mudkit import Lab
from mudkit.delivery.inbox import MAX_INCARNATIONS
from mudkit.errors import OutboxFull, ParameterError
from mudkit.fleet.link import Transfer
from mudkit.fleet.store import MemoryStore
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.systems.store_and_forward.messages import MAX_LETTERS, DeliveryAck
from mudkit.systems.store_and_forward.servers import DeviceQueue
from mudkit.wire import wire_fields


def wipe(installed: Any) -> None:
    installed.kill()
    installed.store = MemoryStore()
    installed.start()


def restore(installed: Any, backup: Mapping[str, Any]) -> None:
    """Restart with the content of a backup."""
    installed.kill()
    installed.store = MemoryStore()
    for key, value in backup.items():
        installed.store.put(key, value)
    installed.store.commit()
    installed.start()


def create_lab(seed: int = 7) -> tuple[Lab, Relay, Client, Client]:
    lab = Lab(seed=seed)
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    return lab, relay, ann, bob


def delay(lab: Lab, kind: str, *delays_us: int) -> None:
    """Deliver messages of a kind once after each delay (none: lose them), and all others at once."""
    lab.world.fault_hook = lambda transfer: (
        delays_us if wire_fields(transfer.message)["kind"] == kind else (0,)
    )


def list_began_anew(lab: Lab) -> list[str]:
    incidents = lab.frame("incidents")
    return incidents.loc[incidents["incident"] == "began anew", "detail"].tolist()


def read_texts(client: Client) -> list[str]:
    return [message["text"] for message in client.read().result()]


def test_wiped_sender_loses_nothing_and_late_duplicates_are_recognised() -> None:
    lab, _, ann, bob = create_lab()
    copies: list[Transfer] = []

    def fault_hook(transfer: Transfer) -> tuple[int, ...]:
        copies.append(transfer)
        return (0, 90_000_000)  # each message has a duplicate after 90 s

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
    assert read_texts(bob) == ["one", "two", "three", "four", "five"]
    assert not ann.installed.store.items("out ")


def test_acknowledgement_of_a_former_incarnation_removes_no_message() -> None:
    lab, _, ann, bob = create_lab()
    lab.run(seconds=5)
    delay(lab, "accepted", 0, 7_000_000)
    ann.send("bob", "one").result()
    wipe(ann.installed)
    lab.run(seconds=5)
    delay(lab, "send")
    ann.send("bob", "after the wipe")
    lab.run(seconds=4)  # the late acknowledgement, also of number 1, has arrived
    lab.world.fault_hook = None
    lab.run(minutes=1)
    assert read_texts(bob) == ["one", "after the wipe"]


def test_late_acknowledgement_of_a_former_sender_removes_no_delivery() -> None:
    """Wipe sender and relay: the first message after it has the number, and the rank, of one long acknowledged."""
    lab, relay, ann, bob = create_lab()
    lab.run(seconds=5)
    delay(lab, "delivered", 0, 60_000_000)
    ann.send("bob", "one").result()
    lab.run(seconds=1)
    for installed in (relay.installed, ann.installed):
        wipe(installed)
    lab.faults.cut("bob", minutes=0.2)  # then it greets the relay
    delay(lab, "deliver")
    lab.run(seconds=30)
    ann.send("bob", "two").result(5)
    lab.run(seconds=40)  # the late copy has arrived
    lab.world.fault_hook = None
    lab.run(minutes=1)
    assert read_texts(bob) == ["one", "two"]


@pytest.mark.parametrize("read_before", [0, 1, 3])
def test_wiped_receiver_gets_queued_and_new_messages(read_before: int) -> None:
    lab, _, ann, bob = create_lab()
    for number in range(read_before):
        ann.send("bob", f"before {number}").result()
    lab.run(seconds=30)
    assert len(read_texts(bob)) == read_before
    lab.faults.cut("bob")
    ann.send("bob", "waits 1").result()
    ann.send("bob", "waits 2").result()
    wipe(bob.installed)
    lab.faults.mend("bob")
    lab.run(seconds=9)
    ann.send("bob", "comes").result()
    lab.run(minutes=1)
    assert read_texts(bob) == ["waits 1", "waits 2", "comes"]


def test_message_acknowledged_late_by_a_former_incarnation_is_redelivered() -> None:
    lab, relay, ann, bob = create_lab()
    lab.run(seconds=5)
    delay(lab, "delivered", 9_000_000)
    ann.send("bob", "one").result()
    lab.run(seconds=2)  # in the inbox, the acknowledgement is in flight
    lab.world.fault_hook = None
    wipe(bob.installed)
    lab.run(seconds=20)
    ann.send("bob", "two").result()
    lab.run(minutes=1)
    assert read_texts(bob) == ["one", "two"]
    assert not relay.installed.store.items("for ")


def test_late_hellos_of_a_former_incarnation_or_moment_are_ignored() -> None:
    lab, _, ann, bob = create_lab()
    delay(lab, "hello", 0, 20_000_000)
    lab.devices["bob"].change_context(busy=True)
    lab.run(seconds=5)
    lab.devices["bob"].change_context(busy=False)
    lab.run(seconds=5)
    wipe(bob.installed)
    lab.faults.change_address("bob")
    lab.world.fault_hook = None
    lab.run(seconds=30)  # all duplicates have arrived: busy, and from the old address
    ann.send("bob", "lunch?").result()
    lab.run(seconds=5)
    assert read_texts(bob) == ["lunch?"]


def test_late_first_hello_of_a_former_incarnation_is_ignored() -> None:
    """Identify the current incarnation although the relay knows neither."""
    lab = Lab(seed=7)
    relay = Relay(lab)
    ann = Client(lab.device("ann"), relay)
    delay(lab, "hello", 20_000_000)
    bob = Client(lab.device("bob"), relay)
    lab.run(seconds=1)
    lab.world.fault_hook = None
    wipe(bob.installed)
    lab.faults.change_address("bob")  # an Identify to the old address is lost
    lab.run(minutes=1)
    ann.send("bob", "lunch?").result()
    lab.run(seconds=5)
    assert read_texts(bob) == ["lunch?"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_wiped_relay_resumes_and_records_it(is_cut: bool) -> None:
    lab, relay, ann, bob = create_lab()
    for number in range(3):
        ann.send("bob", f"{number}").result()
        bob.send("ann", f"{number}").result()
    lab.run(seconds=9)
    assert (read_texts(ann), read_texts(bob)) == (["0", "1", "2"], ["0", "1", "2"])
    wipe(relay.installed)
    if is_cut:
        lab.faults.cut("bob", minutes=1)
    sent = [ann.send("bob", "after"), bob.send("ann", "after"), ann.send("bob", "more")]
    lab.run(minutes=3)
    assert [call.status for call in sent] == ["ok"] * 3
    assert (read_texts(ann), read_texts(bob)) == (["after"], ["after", "more"])
    details = sorted(detail.split(" are")[0] for detail in list_began_anew(lab))
    assert details == [f"messages of {name} up to number 3" for name in ("ann", "bob")]
    assert lab.problems.empty


def test_wiped_relay_finds_a_listening_device_at_its_next_hello() -> None:
    lab, relay, ann, bob = create_lab()
    lab.run(seconds=9)
    wipe(relay.installed)
    ann.send("bob", "where are you?").result()
    lab.run(hours=1)
    assert read_texts(bob) == []  # its address is unknown
    lab.faults.cut("bob", minutes=1)
    lab.run(minutes=2)
    assert read_texts(bob) == ["where are you?"]


def test_simultaneous_wipes_of_relay_and_devices() -> None:
    lab, relay, ann, bob = create_lab()
    for number in range(3):
        ann.send("bob", f"{number}").result()
    lab.run(seconds=9)
    for installed in (relay.installed, bob.installed, ann.installed):
        wipe(installed)
    ann.send("bob", "all is new").result()
    lab.run(minutes=1)
    assert read_texts(bob) == ["all is new"]


def test_new_owner_of_an_address_gets_no_messages_of_the_former_one() -> None:
    lab, relay, ann, bob = create_lab()
    cy = Client(lab.device("cy"), relay)
    lab.run(seconds=9)
    assert lab.faults.change_address("bob") == "bob@2"
    lab.run(seconds=9)
    lab.faults.cut("bob")
    ann.send("bob", "secret").result()
    lab.run(seconds=9)
    lab.faults.change_address("bob", "elsewhere")  # unknown to the relay
    lab.faults.change_address("cy", "bob@2")
    lab.run(hours=2)
    assert read_texts(cy) == []
    assert dict(relay.installed.store.items("at ")) == {"at ann": "ann/sf", "at cy": "bob@2/sf"}
    lab.faults.mend("bob")
    lab.run(minutes=1)
    assert read_texts(bob) == ["secret"]


def test_question_that_arrives_twice_is_answered_once() -> None:
    """Send a hello for each Identify; what is lost of it is sent again by the timer."""
    lab, relay, _, _ = create_lab()
    lab.run(seconds=9)
    kinds: list[str] = []

    def fault_hook(transfer: Transfer) -> tuple[int, ...]:
        kinds.append(wire_fields(transfer.message)["kind"])
        return {"identify": (0, 50_000), "welcome": (200_000,)}.get(kinds[-1], (0,))

    lab.world.fault_hook = fault_hook
    relay.installed.kill()
    relay.installed.start()
    lab.run(minutes=1)
    assert (kinds.count("identify"), kinds.count("hello")) == (2, 2), "one for each device"


def test_gap_is_filled_without_another_hello() -> None:
    """Send the outbox again from the number that the relay misses, which is there: the relay knows the sender."""
    lab, _, ann, bob = create_lab()
    lab.run(seconds=9)
    kinds: list[str] = []

    def fault_hook(transfer: Transfer) -> tuple[int, ...]:
        kinds.append(wire_fields(transfer.message)["kind"])
        return () if kinds == ["send"] else (0,)

    lab.world.fault_hook = fault_hook
    for text in ("one", "two"):
        ann.send("bob", text)
        lab.run(seconds=0.1)
    lab.run(minutes=1)
    assert read_texts(bob) == ["one", "two"]
    assert ("missing" in kinds, "hello" in kinds) == (True, False)


def test_wiped_sender_does_not_reuse_item_names() -> None:
    lab, _, ann, _ = create_lab()
    ann.send("bob", "one").result()
    lab.run(seconds=5)
    wipe(ann.installed)
    ann.send("bob", "two").result(5)
    lab.run(seconds=5)
    assert lab.deliveries()["item"].nunique() == 2


def test_restored_relay_resumes_and_records_unknown_messages() -> None:
    lab, relay, ann, bob = create_lab(seed=3)
    ann.send("bob", "one").result()
    lab.run(minutes=1)
    backup = dict(relay.installed.store.items())
    for text in ("two", "three"):
        ann.send("bob", text).result()
    lab.run(minutes=1)
    restore(relay.installed, backup)
    four = ann.send("bob", "four")
    lab.run(minutes=2)
    assert four.done()
    assert read_texts(bob) == ["one", "two", "three", "four"]
    assert list_began_anew(lab) == ["messages of ann up to number 3 are not known here"]


def test_restored_device_resumes_and_the_lost_messages_are_recorded() -> None:
    """A receiver whose store is older than what it has acknowledged lacks the messages since then (`DeliveryGap`)."""
    lab, _, ann, bob = create_lab()
    ann.send("bob", "one").result()
    lab.run(minutes=1)
    backup = dict(bob.installed.store.items())
    for text in ("two", "three"):
        ann.send("bob", text).result()
    lab.run(minutes=1)
    restore(bob.installed, backup)
    ann.send("bob", "four").result()
    lab.run(seconds=2)  # the gap has the queue sent again, before any deadline
    assert read_texts(bob) == ["one", "four"]
    incidents = lab.frame("incidents")
    assert incidents.loc[incidents["incident"] == "rolled back", "detail"].tolist() == [
        "bob: messages of ann from number 2 to 3 are gone"
    ]


def test_relay_remembers_acknowledgements_of_as_many_incarnations_as_the_inbox() -> None:
    device = DeviceQueue("bob")
    names = [f"{number:02d}" for number in range(MAX_INCARNATIONS + 2)]
    for name in names:
        device.record_ack(
            DeliveryAck(number=1, incarnation=name, receiver="b", key="k", sender="ann", to="bob")
        )
    assert device.acked == {"ann": dict.fromkeys(names[2:], 1)}


def test_full_outbox_refuses_further_messages() -> None:
    lab, _, ann, bob = create_lab()
    lab.run(minutes=1)
    lab.faults.cut("ann")
    ann.installed.machine._outbox._max_items = 2
    accepted = [ann.send("bob", text) for text in ("one", "two")]
    with pytest.raises(OutboxFull, match="wait until the network is back"):
        ann.send("bob", "three").result()
    lab.faults.mend("ann")
    lab.run(minutes=1)
    assert all(call.done() for call in accepted)
    ann.send("bob", "four").result()
    lab.run(minutes=1)
    assert read_texts(bob) == ["one", "two", "four"]
    assert set(lab.deliveries()["status"]) == {"read"}


def test_too_long_text_or_name_is_refused_at_once() -> None:
    lab, _, ann, _ = create_lab()
    with pytest.raises(ParameterError, match="send it in parts"):
        ann.send("bob", "x" * 3_000_000)
    assert ann.send("bob", "x", item="y" * MAX_LETTERS).result(5)
    for item in ("", "y" * (MAX_LETTERS + 1), "a\nb"):
        with pytest.raises(ParameterError, match="a text of one line, of at most 512 letters"):
            ann.send("bob", "x", item=item)
    lab.run(minutes=1)
    assert lab.problems.empty

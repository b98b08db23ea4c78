"""The inbox of a client: notified across kills, emptied by reads, and bounded."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import OperationLost
from mudkit.systems.store_and_forward import Client, Relay, device


def create_lab() -> tuple[Lab, Client, Client, list[dict[str, str]]]:
    lab = Lab(seed=1)
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name, link="ideal"), relay) for name in ("ann", "bob"))
    shown: list[dict[str, str]] = []
    bob.on_message(shown.append)
    lab.run(minutes=1)
    return lab, ann, bob, shown


@pytest.mark.parametrize("point", ["before commit", "seen, not in the inbox", "after commit"])
def test_application_is_notified_of_a_message_that_was_committed_before_a_kill(point: str) -> None:
    lab, ann, bob, shown = create_lab()
    lab.faults.kill("bob", at=point)
    ann.send("bob", "one").result()
    lab.run(seconds=5)
    assert not shown
    lab.faults.restart("bob")
    lab.run(hours=2)
    for _ in range(2):
        lab.faults.kill("bob")
        lab.faults.restart("bob")
        lab.run(hours=1)
    ann.send("bob", "two").result()
    lab.run(seconds=5)
    assert [message["text"] for message in shown] == ["one", "two"]
    assert [message["text"] for message in bob.read().result()] == ["one", "two"]
    assert not bob.installed.store.keys("notice ")


def test_repeated_notification_has_the_same_id() -> None:
    lab, ann, _, shown = create_lab()
    ann.send("bob", "one").result()
    while not shown:
        lab.faults.kill("bob", at="before commit")  # of the event after the notification
        lab.run(seconds=1)
        lab.faults.restart("bob")
        lab.run(seconds=1e-6)
    lab.run(minutes=5)
    assert {(message["text"], message.id) for message in shown} == {("one", shown[0].id)}
    ann.send("bob", "one").result()
    lab.run(minutes=1)
    assert shown[-1].id != shown[0].id


def test_messages_of_a_read_that_was_lost_are_read_again() -> None:
    lab, ann, bob, _ = create_lab()
    ann.send("bob", "one").result()
    lab.run(minutes=1)
    read = bob.read()
    lab.faults.kill("bob")  # no time has passed since
    lab.faults.restart("bob")
    assert [message.id for message in bob.read().result()] == [message.id for message in read.result()]
    lab.run(seconds=1)
    lab.faults.kill("bob")
    with pytest.raises(OperationLost):
        bob.read().result()
    lab.faults.restart("bob")
    assert not bob.read().result()


def test_inbox_has_a_capacity_and_reads_empty_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "MAX_UNREAD", 3)
    lab, ann, bob, shown = create_lab()
    for number in range(5):
        ann.send("bob", str(number)).result()
        lab.run(seconds=5)
    assert [message["text"] for message in shown] == ["0", "1", "2", "3", "4"]
    assert [message["text"] for message in bob.read().result()] == ["2", "3", "4"]
    incidents = lab.frame("incidents")
    assert (incidents.incident == "inbox full").sum() == 2
    lab.run(seconds=1)
    assert not bob.installed.store.keys("in ")
    assert not bob.installed.machine._returned, "what is deleted is not remembered"
    ann.send("bob", "5").result()
    lab.run(seconds=5)
    assert [message["text"] for message in bob.read().result()] == ["5"]

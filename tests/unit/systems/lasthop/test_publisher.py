"""A publisher on a device: outbox, acknowledgement, refusals and a bill (Last hop 2, 3.1; delivery.md)."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import MessageExpired, OperationLost, OutboxFull, ParameterError
from mudkit.fleet.store import MemoryStore
from mudkit.systems.lasthop import Publications, Publisher, Subscriber
from mudkit.systems.lasthop.messages import Publish, Rerank
from mudkit.wire import wire_fields

HOUR_US = 3_600_000_000


class Setup:
    """A weather station that publishes on a topic, and a reader who is shown all that comes."""

    def __init__(self, link="ideal"):
        self.lab = Lab(seed=5)
        self.server = Publications(self.lab)
        self.jane = Subscriber(self.lab.device("jane", link="ideal"), self.server)
        self.jane.subscribe("snow", mode="on-line", threshold=1.0).result()
        self.shown = []
        self.jane.on_message(lambda message: self.shown.append(message["text"]))
        self.station = Publisher(self.lab.device("station", link=link), self.server)
        self.snow = self.station.topic("snow")

    def publish(self, text, **settings):
        return self.snow.publish(text, rank=2.0, **settings)

    def hook(self, delays):
        """Deliver each message after the delays that a function of sender and kind returns."""
        self.lab.world.fault_hook = lambda transfer: delays(
            transfer.sender.host.name, wire_fields(transfer.message)["kind"]
        )

    def list_sent(self, kind):
        """List the senders of all messages of a kind so far."""
        sent = self.lab.frame("messages")
        return sent[sent["kind"] == kind]["source"].tolist()


def test_message_is_published_when_the_server_has_it():
    setup = Setup(link="lte")
    operation = setup.publish("40 cm")
    assert not operation.done()
    identity = operation.result()
    assert setup.shown == ["40 cm"]
    row = setup.lab.frame("deliveries").iloc[0]
    assert (row["item"], row["receiver"]) == (identity, "jane")
    assert row["created"] < row["delivered"]


def test_publishing_has_a_bill_and_publishing_at_the_server_has_none():
    setup = Setup(link="lte")
    setup.server.topic("snow").publish("at the server", rank=2.0).result()
    setup.lab.run(minutes=1)
    bill = setup.lab.frame("bill")
    assert bill[bill["device"] == "station"].empty
    setup.publish("40 cm").result()
    setup.lab.run(minutes=1)
    bill = setup.lab.frame("bill").set_index(["device", "system", "direction"])
    # A hello and a welcome, a submission and its acknowledgement.
    assert bill.loc[("station", "last hop", "up"), "messages"] == 2
    assert bill.loc[("station", "last hop", "down"), "messages"] == 2


def test_backlog_without_a_link_arrives_in_order_after_a_restart():
    setup = Setup()
    setup.lab.faults.cut("station")
    operations = [setup.publish(text) for text in ("one", "two", "three")]
    setup.lab.run(hours=5)
    setup.lab.faults.kill("station")
    setup.lab.faults.restart("station")
    setup.lab.faults.mend("station")
    setup.lab.run(minutes=1)
    assert setup.shown == ["one", "two", "three"]
    for operation in operations:
        with pytest.raises(OperationLost):
            operation.result()
    assert setup.station.submissions().result() == {"pending": 0, "refused": 0, "expired": 0}


def test_rank_that_the_publisher_changes_has_an_effect_at_the_reader():
    setup = Setup()
    setup.jane.subscribe("rain", threshold=1.0, policy="on-line").result()
    rain = setup.station.topic("rain")
    identity = rain.publish("a shower", rank=2.0).result()
    setup.lab.run(seconds=5)
    rain.rerank(identity, 0.5).result()
    setup.lab.run(seconds=5)
    assert setup.jane.read("rain").result() == []


def test_message_that_expires_in_the_outbox_is_not_sent_and_is_counted():
    setup = Setup()
    setup.lab.faults.cut("station", minutes=10)
    expired, kept = setup.publish("soon over", expires_s=60), setup.publish("lasting", expires_s=3600)
    setup.lab.run(minutes=2)
    with pytest.raises(MessageExpired, match="longer lifetime"):
        expired.result()
    kept.result()
    setup.lab.run(seconds=5)
    assert setup.shown == ["lasting"]
    assert setup.list_sent("submit") == ["station"]
    assert setup.station.submissions().result() == {"pending": 0, "refused": 0, "expired": 1}


def test_message_that_expires_on_its_way_is_not_published_and_settles_those_after_it():
    setup = Setup()
    setup.publish("first").result()
    setup.hook(lambda sender, kind: (90_000_000,) if kind == "submit" else (0,))
    late, last = setup.publish("late", expires_s=60), setup.publish("last")
    with pytest.raises(MessageExpired):
        late.result()
    last.result()
    setup.lab.run(minutes=5)
    assert setup.shown == ["first", "last"]


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(
    "operation",
    [
        Publish("snow", 2e9, None, {"text": "too high"}, None),
        Publish("two\nlines", 1.0, None, {"text": "no topic"}, None),
        Publish("snow", 1.0, None, {"text": "of the same name"}, "taken"),
        Rerank("snow", "taken", -2e9),
    ],
)
def test_refusal_travels_back_and_what_follows_is_published(operation, is_lost):
    setup = Setup()
    setup.publish("the first of its name", item="taken").result()
    if is_lost:  # the acknowledgement: the second one says the same
        lost = []
        setup.hook(
            lambda _, kind: () if kind == "submit ack" and not lost.append(kind) and len(lost) < 2 else (0,)
        )
    refused = setup.station.installed.call(operation)
    after = setup.publish("after it")
    with pytest.raises(ParameterError, match=r"name|rank"):
        refused.result()
    after.result()
    setup.lab.run(seconds=5)
    assert setup.shown == ["the first of its name", "after it"]
    assert setup.station.submissions().result()["refused"] == 1


def test_full_outbox_refuses_and_what_waits_is_sent(monkeypatch):
    setup = Setup()
    monkeypatch.setattr(setup.station.installed.machine._submitter._outbox, "_max_items", 2)
    setup.lab.faults.cut("station")
    kept = [setup.publish("one"), setup.publish("two")]
    with pytest.raises(OutboxFull):
        setup.publish("three").result()
    setup.lab.faults.mend("station")
    assert all(operation.result() for operation in kept)
    setup.lab.run(seconds=5)
    assert setup.shown == ["one", "two"]


@pytest.mark.parametrize("host", ["station", "spool"])
@pytest.mark.parametrize("point", ["before commit", "after commit", "submission taken, not carried out"])
def test_kill_at_a_commit_repeats_and_loses_nothing(host, point):
    setup = Setup()
    setup.publish("before").result()
    setup.lab.faults.kill(host, at=point)
    setup.publish("during")
    setup.lab.run(seconds=1)
    setup.lab.faults.restart(host)
    setup.lab.run(minutes=5)
    setup.publish("after").result()
    setup.lab.run(minutes=1)
    stored = host == "spool" or point != "before commit"  # a call that was not committed did not happen
    assert setup.shown == ["before", *(["during"] if stored else []), "after"]


def wipe_server(setup):
    """Restart the server with an empty store."""
    setup.server.installed.kill()
    setup.server.installed.store = MemoryStore()
    setup.server.installed.start()
    setup.lab.faults.cut("jane", minutes=1)  # she says hello again, which the server cannot ask for


FAULTS = {
    "publisher wiped": lambda faults, backups: faults.wipe("station"),
    "publisher restored": lambda faults, backups: faults.restore("station", backups["station"]),
    "server restarted": lambda faults, backups: (faults.kill("spool"), faults.restart("spool")),
    "server restored": lambda faults, backups: faults.restore("spool", backups["spool"]),
    "both restored": lambda faults, backups: [faults.restore(*item) for item in backups.items()],
    "address moved": lambda faults, backups: faults.change_address("station"),
}


@pytest.mark.parametrize("fault", [*FAULTS, "server wiped"])
@pytest.mark.parametrize("is_accepted", [True, False])
def test_copies_hours_later_do_nothing(fault, is_accepted):
    """All that the publisher and the server have sent comes again an hour later, or then for the first time."""
    setup = Setup()
    faults = setup.lab.faults
    backups = {host: faults.backup(host) for host in ("station", "spool")}
    setup.hook(
        lambda sender, kind: (
            (0,) if not kind.startswith("submit") else (0, HOUR_US) if is_accepted else (HOUR_US,)
        )
    )
    first = setup.publish("before")
    setup.lab.run(seconds=10)
    assert first.done() is is_accepted
    if fault == "server wiped":
        wipe_server(setup)
    else:
        FAULTS[fault](faults, backups)
    setup.lab.world.fault_hook = None
    setup.lab.run(minutes=5)
    setup.publish("after").result()
    setup.lab.run(seconds=10)
    shown = list(setup.shown)
    assert shown in (["before", "after"], ["after"])
    setup.lab.run(hours=2)
    assert setup.shown == shown
    setup.publish("later").result()
    setup.lab.run(seconds=10)
    assert setup.shown == [*shown, "later"]


def test_acknowledgement_of_an_earlier_session_settles_nothing():
    """Both sides are restored; the late acknowledgement is of what the server has lost."""
    setup = Setup()
    setup.publish("before").result()
    setup.lab.faults.cut("station")
    setup.publish("lost there")
    backups = {host: setup.lab.faults.backup(host) for host in ("station", "spool")}
    setup.hook(lambda _, kind: (60_000_000,) if kind == "submit ack" else (0,))
    setup.lab.faults.mend("station")
    setup.lab.run(seconds=5)
    assert setup.shown == ["before", "lost there"]
    for host, backup in backups.items():
        setup.lab.faults.restore(host, backup)
    setup.lab.faults.wipe("jane")
    setup.hook(lambda _, kind: () if kind == "submit" else (0,))
    setup.lab.run(minutes=2)
    setup.lab.world.fault_hook = None
    setup.jane.subscribe("snow", mode="on-line", threshold=1.0).result()
    setup.lab.run(minutes=5)
    assert setup.shown == ["before", "lost there", "lost there"]


def test_server_restored_from_a_backup_records_what_it_has_lost():
    setup = Setup()
    backup = setup.lab.faults.backup("spool")
    for text in ("one", "two"):
        setup.publish(text).result()
    setup.lab.faults.restore("spool", backup)
    setup.publish("three").result()
    setup.lab.run(minutes=1)
    incidents = setup.lab.frame("incidents")
    lost = incidents[incidents["detail"].str.contains("submissions of station", na=False)]
    assert lost["incident"].tolist() == ["rolled back"]
    assert "number 1 to 2" in lost["detail"].item()
    assert setup.shown[-1] == "three"


def test_another_device_at_the_address_of_a_publisher_gets_none_of_its_answers():
    setup = Setup()
    other = Publisher(setup.lab.device("other", link="ideal"), setup.server)
    setup.lab.faults.change_address("station")
    setup.hook(lambda _, kind: (30_000_000,) if kind == "submit ack" else (0,))
    waiting = setup.publish("of the station")
    own = other.topic("snow").publish("of the other", rank=2.0)
    setup.lab.run(seconds=1)
    address = setup.lab.devices["station"].address
    setup.lab.faults.change_address("station")
    setup.lab.faults.change_address("other", address)
    setup.lab.world.fault_hook = None
    assert waiting.result() != own.result()
    setup.lab.run(minutes=2)
    assert sorted(setup.shown) == ["of the other", "of the station"]
    assert setup.lab.problems.empty


def test_large_backlog_is_published_in_order():
    setup = Setup(link="umts_3g")
    setup.lab.faults.cut("station")
    texts = [f"{number}" for number in range(200)]
    for text in texts:
        setup.publish(text)
    setup.lab.faults.mend("station")
    setup.lab.run(minutes=5)
    assert setup.shown == texts
    assert len(setup.list_sent("submit")) == len(texts)

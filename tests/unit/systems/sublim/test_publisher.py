"""A publisher on a device: outbox, acknowledgement and a bill (SUBLIM 3; delivery.md).

What holds for every system is in ``tests/property/test_submission.py``.
"""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.sublim import AccessPoint, Publisher, PublishServer, Subscriber
from mudkit.systems.sublim._policy.state import LimitExceeded
from mudkit.systems.sublim.servers import publish_server
from mudkit.wire import wire_fields

HOUR_US = 3_600_000_000
SERVER = "publish-server"


class Setup:
    """A monitor that publishes, and a nurse without a policy, who gets all messages."""

    def __init__(self, link="ideal"):
        self.lab = Lab(seed=5)
        self.net = PublishServer(self.lab)
        AccessPoint(self.lab, self.net)
        self.nurse = Subscriber(self.lab.device("nurse", link="ideal"), self.net)
        self.received = []
        self.nurse.on_message(lambda message: self.received.append(message["pulse"]))
        self.monitor = Publisher(self.lab.device("monitor", link=link), self.net)
        self.lab.run(minutes=1)

    def publish(self, pulse):
        return self.monitor.publish({"pulse": pulse})

    def delay(self, *delays_us):
        """Deliver each message of a publisher, and each answer to one, once after each delay."""
        self.lab.world.fault_hook = lambda transfer: (
            delays_us if wire_fields(transfer.message)["kind"].startswith("submit") else (0,)
        )


def test_message_is_published_when_the_server_has_it_and_the_monitor_pays():
    setup = Setup(link="wifi")
    setup.net.publish({"pulse": 70}).result()
    assert (setup.lab.frame("bill")["device"] == "monitor").sum() == 0
    operation = setup.publish(48)
    assert not operation.done()
    name = operation.result()
    setup.lab.run(seconds=10)
    assert setup.received == [70, 48]
    assert name in setup.lab.frame("deliveries")["item"].tolist()
    bill = setup.lab.frame("bill").set_index(["device", "system", "direction"])
    # A hello and a welcome, a submission and its acknowledgement.
    assert bill.loc[("monitor", "sublim", "up"), "messages"] == 2
    assert bill.loc[("monitor", "sublim", "down"), "messages"] == 2


@pytest.mark.parametrize("host", ["monitor", SERVER])
@pytest.mark.parametrize(
    "point", ["before commit", "after commit", "submission taken, not carried out", "numbered, not kept"]
)
def test_kill_at_a_commit_repeats_and_loses_nothing(host, point):
    setup = Setup()
    setup.publish(60).result()
    setup.lab.faults.kill(host, at=point)
    setup.publish(61)
    setup.lab.run(seconds=1)
    setup.lab.faults.restart(host)
    setup.lab.run(minutes=5)
    setup.publish(62).result()
    setup.lab.run(minutes=1)
    stored = host == SERVER or point != "before commit"  # a call that was not committed did not happen
    assert setup.received == [60, *([61] if stored else []), 62]


FAULTS = {
    "publisher wiped": lambda faults, backups: faults.wipe("monitor"),
    "publisher restored": lambda faults, backups: faults.restore("monitor", backups["monitor"]),
    "server restarted": lambda faults, backups: (faults.kill(SERVER), faults.restart(SERVER)),
    "server restored": lambda faults, backups: faults.restore(SERVER, backups[SERVER]),
    "both restored": lambda faults, backups: [faults.restore(*item) for item in backups.items()],
    "address moved": lambda faults, backups: faults.change_address("monitor"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_accepted", [True, False])
def test_copies_hours_later_do_nothing(fault, is_accepted):
    """All that the publisher and the server have sent comes again an hour later, or then for the first time."""
    setup = Setup()
    faults = setup.lab.faults
    backups = {host: faults.backup(host) for host in ("monitor", SERVER)}
    setup.delay(*((0, HOUR_US) if is_accepted else (HOUR_US,)))
    first = setup.publish(60)
    setup.lab.run(seconds=10)
    assert first.done() is is_accepted
    FAULTS[fault](faults, backups)
    setup.lab.world.fault_hook = None
    setup.lab.run(minutes=5)
    setup.publish(61).result()
    setup.lab.run(minutes=1)
    received = list(setup.received)
    assert received in ([60, 61], [61])
    setup.lab.run(hours=2)
    assert setup.received == received
    setup.publish(62).result()
    setup.lab.run(seconds=10)
    assert setup.received == [*received, 62]


def test_refusal_travels_back_and_what_follows_is_published(monkeypatch):
    """The publisher checks its messages, too: only a server with another limit refuses one."""
    setup = Setup()

    def refuse_60(body, what):
        if body["pulse"] == 60:
            raise LimitExceeded(f"{what} is 60")

    monkeypatch.setattr(publish_server, "check_bytes", refuse_60)
    refused, after = setup.publish(60), setup.publish(61)
    with pytest.raises(ParameterError, match="cannot be stored"):
        refused.result()
    after.result()
    setup.lab.run(seconds=10)
    assert setup.received == [61]
    assert setup.monitor.submissions().result()["refused"] == 1


@pytest.mark.parametrize("item", ["", 7])
def test_name_that_is_no_text_is_refused_at_once(item):
    with pytest.raises(ParameterError):
        Setup().monitor.publish({"pulse": 48}, item)

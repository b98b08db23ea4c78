"""Client machine: refused calls, retransmission, delayed writes, and restarts."""

from __future__ import annotations

import pytest
from mud_place import listen

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.mud import Client, Cloud
from mudkit.systems.mud.policies.policies import NEVER


class FixedDelay:
    """Write policy with a fixed delay."""

    def __init__(self, delay):
        self._delay = delay

    def delay(self, write, context):
        return self._delay


@pytest.fixture
def lab():
    return Lab(seed=7)


@pytest.fixture
def cloud(lab):
    return Cloud(lab, replicas=0, gateways=1)


def create_client(lab, cloud, name="jane", **more):
    return Client(lab.device(name), cloud, app="news", token=lab.token(name, "news"), **more)


def test_unusable_table_is_refused_without_the_cloud(lab, cloud):
    jane = create_client(lab, cloud)
    lab.faults.cut("jane")
    with pytest.raises(ParameterError, match="'public' or 'app' or 'user'"):
        jane.create("news", acl="nobody")
    operations = [
        jane.create("news"),
        jane.alter("news", add={"n": "number"}),
        jane.alter("\n"),
        jane.drop("news"),
    ]
    lab.run(seconds=1)
    # The cloud would drop a request with an invalid table name.
    assert [operation.status for operation in operations] == ["open", "open", "failed", "open"]


def test_request_is_retransmitted_until_it_is_answered(lab, cloud):
    jane = create_client(lab, cloud)
    lab.faults.kill("mud-gateway-1")
    creation = jane.create("news")
    lab.run(minutes=1)
    assert not creation.done()
    lab.faults.restart("mud-gateway-1")
    lab.run(minutes=1)
    assert creation.status == "ok"


def test_delayed_write_is_sent_when_due(lab, cloud):
    create_client(lab, cloud, "ann").create("news").result()
    jane = create_client(lab, cloud, write_policy=FixedDelay(30.0))
    write = jane.write("news", "a", {"n": 1})
    lab.run(seconds=29.9)
    assert not write.done()
    lab.run(seconds=1)
    assert write.status == "ok"


def test_restarted_client_sends_pending_but_not_withheld_writes(lab, cloud):
    create_client(lab, cloud, "ann").create("news").result()
    jane, bob = create_client(lab, cloud), create_client(lab, cloud, "bob", write_policy=FixedDelay(NEVER))
    for writer, name in ((jane, "jane"), (bob, "bob")):
        lab.faults.cut(name)
        writer.write("news", name, {"n": 1})
        lab.run(seconds=1)
        lab.faults.kill(name)
        lab.faults.mend(name)
        lab.faults.restart(name)
    lab.run(minutes=1)
    assert jane.pending().result() == []
    assert [write["key"] for write in bob.pending().result()] == ["bob"]
    assert set(create_client(lab, cloud, "cem").read("news").result().records) == {"jane"}


def test_continuous_read_delivers_after_hours_of_heartbeats(lab, cloud):
    jane = create_client(lab, cloud)
    jane.create("news").result()
    changes = listen(jane)
    lab.run(hours=3)
    jane.write("news", "a", {"n": 1}).result()
    lab.run(minutes=1)
    assert [change.version for change in changes] == [None, 1]


@pytest.mark.parametrize("call", [
    lambda jane: jane.write("\n", "a", {}), lambda jane: jane.read("\n"),
    lambda jane: jane.read("\n", type="continuous", callback=print),
], ids=["write", "read", "continuous"])  # fmt: skip
def test_invalid_table_name_is_refused_while_offline(lab, cloud, call):
    jane = create_client(lab, cloud)
    lab.faults.cut("jane")
    refused = call(jane)
    lab.run(seconds=1)
    assert refused.status == "failed"


def test_lost_hello_is_retransmitted(lab, cloud):
    ann, jane = create_client(lab, cloud, "ann"), create_client(lab, cloud)
    ann.create("news").result()
    delivered = []
    for name in cloud.notification_servers:
        lab.faults.kill(name.split("/")[0])
    jane.read("news", type="continuous", callback=lambda change: delivered.append(change.key))
    lab.run(seconds=30)
    for name in cloud.notification_servers:
        lab.faults.restart(name.split("/")[0])
    lab.run(minutes=1)
    ann.write("news", "a", {"n": 1}).result()
    lab.run(seconds=10)
    assert delivered == ["a"]


def test_drop_removes_stored_records(lab, cloud):
    jane = create_client(lab, cloud)
    jane.create("news").result()
    jane.write("news", "a", {"n": 1}).result()
    assert [row["key"] for row in jane.holdings("news").result()] == ["a"]
    jane.drop("news").result()
    assert jane.holdings("news").result() == []


def test_a_display_names_the_user_of_the_token(lab, cloud):
    assert "user jane" in repr(create_client(lab, cloud))
    nobody = Client(lab.device("nobody"), cloud, app="news", token=None)
    assert "user" not in repr(nobody)

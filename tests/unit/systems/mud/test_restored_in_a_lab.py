"""A store of MUD tables, or a notification server, that comes back from a backup: what its clients learn."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import TableProblem
from mudkit.systems.mud import Client, Cloud, Conflict
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US


class Place:
    """Ann writes, Bob reads continuously, and the store has a backup from after the first write."""

    def __init__(self, processors: int) -> None:
        self.lab = Lab(seed=1)
        self.cloud = Cloud(self.lab, processors=processors)
        self.ann, self.bob = (self.client(name) for name in ("ann", "bob"))
        self.heard: list[tuple[str, str, dict | None]] = []
        self.ann.create("t").result()
        self.bob.read("t", type="continuous", callback=self.take).result()
        self.ann.write("t", "a", {"n": 1}).result()
        self.lab.run(minutes=1)
        self.backup = self.lab.faults.backup("mud-store")

    def client(self, name: str) -> Client:
        token = self.lab.token(name, "app", hours=100)
        return Client(self.lab.device(name), self.cloud, app="app", token=token)

    def take(self, change) -> None:
        if not isinstance(change, dict):  # the read has ended
            self.heard.append((change.kind, change.key, change.record and dict(change.record)))

    def lose(self) -> None:
        """Write what the backup does not have, and have everybody read it."""
        for number in (2, 3):
            self.ann.write("t", "a", {"n": number}).result()
        self.ann.write("t", "lost", {"n": 4}).result()
        self.bob.read("t", latest=True).result()
        self.lab.run(minutes=1)
        self.heard.clear()

    def restore(self, host: str = "mud-store") -> None:
        self.lab.faults.restore(host, self.backup)
        self.lab.run(minutes=1)

    def incidents(self) -> list[str]:
        rows = self.lab.trace.table("incidents").to_pylist()
        return [row["detail"] for row in rows if row["incident"] == "rolled back"]


@pytest.fixture(params=[1, 3])
def place(request):
    return Place(request.param)


def records(client, **how):
    return client.read("t", **how).result().records


def test_everybody_goes_back_with_a_store_and_is_told_once(place):
    place.lose()
    place.restore()
    assert sorted(place.heard) == [("remove", "lost", None), ("upsert", "a", {"n": 1})]
    for client in (place.ann, place.bob, place.client("carl")):
        assert records(client, latest=True) == records(client) == {"a": {"n": 1}}
    assert len(place.incidents()) == 2  # Ann's, and Bob's


def test_nobody_takes_the_new_entries_for_the_lost_ones(place):
    """Written at once after the restore, with the numbers that the lost ones had."""
    place.lose()
    place.lab.faults.restore("mud-store", place.backup)
    for number in range(5):
        place.ann.write("t", f"new {number}", {"n": number}).result()
    place.ann.write("t", "a", {"n": 9}).result()
    place.lab.run(minutes=1)
    whole = {"a": {"n": 9}, **{f"new {number}": {"n": number} for number in range(5)}}
    for client in (place.ann, place.bob):
        assert records(client) == records(client, latest=True) == whole
    shown = {"a": {"n": 3}, "lost": {"n": 4}}
    for kind, key, record in place.heard:
        shown.pop(key, None)
        if kind == "upsert":
            shown[key] = record
    assert shown == whole


def test_what_stands_on_a_lost_version_conflicts(place):
    """The restored history has another version of the same number."""
    place.lose()
    place.lab.faults.cut("ann")
    late = place.ann.write("t", "a", {"n": 5}, "conditional")
    place.lab.faults.restore("mud-store", place.backup)
    for number in (7, 8):
        place.bob.write("t", "a", {"n": number}).result()
    place.lab.faults.mend("ann")
    with pytest.raises(Conflict):
        late.result()
    assert records(place.ann, latest=True) == {"a": {"n": 8}}


def test_a_table_that_is_lost_can_be_created_again(place):
    place.ann.create("u").result()
    place.ann.write("u", "k", {"n": 1}).result()
    assert place.bob.read("u").result().records == {"k": {"n": 1}}
    place.restore()
    for client in (place.ann, place.bob):
        with pytest.raises(TableProblem):
            client.read("u", latest=True).result()
    place.ann.create("u").result()
    place.ann.write("u", "k", {"n": 2}).result()
    assert place.bob.read("u", latest=True).result().records == {"k": {"n": 2}}


def test_a_plain_restart_is_no_incident_and_tells_nothing_twice(place):
    place.lose()
    place.lab.faults.kill("mud-store")
    place.lab.faults.restart("mud-store")
    place.ann.write("t", "b", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert records(place.bob, latest=True) == {"a": {"n": 3}, "lost": {"n": 4}, "b": {"n": 1}}
    assert place.heard == [("upsert", "b", {"n": 1})]
    assert place.incidents() == []


def test_a_store_that_is_restored_while_a_reader_is_away(place):
    place.lose()
    place.lab.faults.cut("bob")
    place.restore()
    place.ann.write("t", "a", {"n": 6}).result()
    place.lab.run(hours=2)
    place.lab.faults.mend("bob")
    place.lab.run(minutes=2)
    assert sorted(place.heard) == [("remove", "lost", None), ("upsert", "a", {"n": 6})]
    assert records(place.bob) == {"a": {"n": 6}}


@pytest.mark.parametrize("is_restored", [True, False])
def test_a_notification_server_that_starts_is_silent_for_no_minute(place, is_restored):
    backups = {each.split("/")[0]: None for each in place.cloud.notification_servers}
    for host in backups:
        backups[host] = place.lab.faults.backup(host)
    place.lose()
    for host, backup in backups.items():
        if is_restored:
            place.lab.faults.restore(host, backup)
        else:
            place.lab.faults.kill(host)
            place.lab.faults.restart(host)
    place.lab.run(minutes=1)
    place.ann.write("t", "b", {"n": 1}).result()
    place.lab.run(seconds=10)
    assert place.heard == [("upsert", "b", {"n": 1})]


def test_a_write_that_was_answered_before_its_device_was_restored_is_pending_no_more(place):
    place.lab.faults.cut("ann")
    place.ann.write("t", "a", {"n": 2}, "conditional")
    backup = place.lab.faults.backup("ann")
    place.lab.faults.mend("ann")
    for number in (3, 4):
        place.ann.write("t", "b", {"n": number}).result()
    place.lab.faults.restore("ann", backup)
    place.lab.run(minutes=1)
    assert place.ann.pending().result() == []
    place.ann.write("t", "a", {"n": 5}).result()
    assert records(place.bob, latest=True) == {"a": {"n": 5}, "b": {"n": 4}}


def test_a_wiped_store_is_not_asked_for_ever(place):
    """Its clients and servers know a later start than it does, and a lineage of which it has nothing."""
    place.restore()  # so that there is a start after the first one
    place.ann.write("t", "b", {"n": 2}).result()
    late = place.ann.write("t", "c", {"n": 3}, "conditional")
    host = place.lab.world.hosts["mud-store"]
    host.wipe()
    host.restart()
    place.ann.write("t", "a", {"n": 4})
    before = messages(place.lab)
    place.lab.run(minutes=10)
    assert messages(place.lab) - before < 400
    assert late.done()
    for client in (place.ann, place.bob):
        with pytest.raises(TableProblem):
            client.read("t", latest=True).result()
    place.ann.create("t").result()
    place.ann.write("t", "a", {"n": 5}).result()
    place.lab.run(minutes=1)
    carl, told = place.client("carl"), []
    carl.read("t", type="continuous", callback=told.append).result()
    place.ann.write("t", "b", {"n": 6}).result()
    place.lab.run(minutes=1)
    assert [change.key for change in told] == ["b"]
    for client in (place.ann, place.bob, carl):
        assert records(client, latest=True) == records(client) == {"a": {"n": 5}, "b": {"n": 6}}


def messages(lab):
    return sum(row.messages for row in lab.world.bill())


def both(lab, cloud):
    tokens = {name: lab.token(name, "app", hours=9) for name in ("ann", "bob")}
    return [Client(lab.device(name), cloud, app="app", token=token) for name, token in tokens.items()]


@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_notification_server_asks_a_client_that_its_backup_does_not_know(is_wiped):
    lab = Lab(seed=3)
    cloud = Cloud(lab, replicas=0, gateways=1, processors=1, notification_servers=1)
    backup = lab.faults.backup("mud-notifications-1")
    ann, bob = both(lab, cloud)
    heard = []
    ann.create("t").result()
    bob.read("t", type="continuous", callback=lambda change: heard.append(change.key)).result()
    lab.run(minutes=1)
    lab.faults.restore("mud-notifications-1", {} if is_wiped else backup)
    for key in "abc":
        ann.write("t", key, {}).result()
        lab.run(minutes=1)
    assert heard == ["a", "b", "c"]


class Moving:
    """Bob reads continuously, his phone changes its address, and the notification server has backups."""

    server = "mud-notifications-1"

    def __init__(self, processors: int = 1) -> None:
        self.lab = lab = Lab(seed=3)
        self.cloud = Cloud(lab, replicas=0, gateways=1, processors=processors, notification_servers=1)
        self.without_bob = lab.faults.backup(self.server)
        self.ann, bob = both(lab, self.cloud)
        self.heard: list[str] = []
        self.ann.create("t", split=["g"]).result()
        bob.read("t", type="continuous", callback=lambda change: self.heard.append(change.key)).result()
        lab.run(minutes=1)
        self.with_bob = lab.faults.backup(self.server)

    def write(self, *keys: str) -> None:
        for key in keys:
            self.ann.write("t", key, {}).result()
            self.lab.run(seconds=30)


@pytest.mark.parametrize("processors", [1, 3])
@pytest.mark.parametrize("loss_share", [0.0, 0.5])
@pytest.mark.parametrize("knows_bob", [False, True])
def test_a_restored_notification_server_reaches_a_client_at_its_new_address(
    knows_bob, loss_share, processors
):
    place = Moving(processors)
    place.lab.faults.messages(loss_share=loss_share)
    for _ in range(3):
        place.lab.faults.change_address("bob")
        place.lab.run(minutes=2)
    place.lab.faults.restore(place.server, place.with_bob if knows_bob else place.without_bob)
    place.lab.run(minutes=1)
    place.write("a", "b", "c")
    place.lab.faults.messages()
    place.lab.run(minutes=3)
    assert place.heard == ["a", "b", "c"]


def test_a_client_that_no_server_knows_any_more_waits_for_its_heartbeat_at_most():
    """Restored server and restarted processor: only the client has its address."""
    place = Moving()
    place.lab.faults.change_address("bob")
    place.lab.run(minutes=1)
    place.lab.faults.restore(place.server, place.without_bob)
    place.lab.faults.kill("mud-processor-1")
    place.lab.faults.restart("mud-processor-1")
    place.lab.run(minutes=1)
    servers = [host for host in place.lab.world.hosts.values() if host.link is None]
    stored = repr([dict(each.store.items()) for host in servers for each in host.processes])
    assert "bob@1" not in stored
    place.write("a")
    assert place.heard == []
    place.lab.run(seconds=HEARTBEAT_US / 1e6)
    assert place.heard == ["a"]
    place.write("b")
    assert place.heard == ["a", "b"]

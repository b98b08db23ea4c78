"""Store or notification server restored from a backup: state and notifications of its clients."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import TableProblem
from mudkit.systems.mud import Client, Cloud, Conflict
from mudkit.systems.mud.messages.servers import Log
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US


class Place:
    """Ann writes, Bob reads continuously, and the store has a backup from after the first write."""

    def __init__(self, processors: int) -> None:
        self.lab = Lab(seed=1)
        self.cloud = Cloud(self.lab, processors=processors)
        self.ann, self.bob = (self.client(name) for name in ("ann", "bob"))
        self.delivered: list[tuple[str, str, dict | None]] = []
        self.ann.create("t").result()
        self.bob.read("t", type="continuous", callback=self.receive).result()
        self.ann.write("t", "a", {"n": 1}).result()
        self.lab.run(minutes=1)
        self.backup = self.lab.faults.backup("mud-store")

    def client(self, name: str) -> Client:
        token = self.lab.token(name, "app", hours=100)
        return Client(self.lab.device(name), self.cloud, app="app", token=token)

    def receive(self, change) -> None:
        if not isinstance(change, dict):  # the read has ended
            self.delivered.append((change.kind, change.key, change.record and dict(change.record)))

    def write_lost_entries(self) -> None:
        """Write entries that the backup does not have, and read them at bob's device."""
        for number in (2, 3):
            self.ann.write("t", "a", {"n": number}).result()
        self.ann.write("t", "lost", {"n": 4}).result()
        self.bob.read("t", latest=True).result()
        self.lab.run(minutes=1)
        self.delivered.clear()

    def restore(self, host: str = "mud-store") -> None:
        self.lab.faults.restore(host, self.backup)
        self.lab.run(minutes=1)

    def incidents(self) -> list[str]:
        rows = self.lab.trace.table("incidents").to_pylist()
        return [row["detail"] for row in rows if row["incident"] == "rolled back"]


@pytest.fixture(params=[1, 3])
def place(request):
    return Place(request.param)


def read_records(client, **options):
    return client.read("t", **options).result().records


def test_clients_return_to_the_restored_state_and_are_notified_once(place):
    place.write_lost_entries()
    place.restore()
    assert sorted(place.delivered) == [("remove", "lost", None), ("upsert", "a", {"n": 1})]
    for client in (place.ann, place.bob, place.client("carl")):
        assert read_records(client, latest=True) == read_records(client) == {"a": {"n": 1}}
    assert len(place.incidents()) == 2  # one of each client


def test_new_log_entries_are_not_taken_for_lost_ones(place):
    """Write at once after the restore, at the log positions of the lost entries."""
    place.write_lost_entries()
    place.lab.faults.restore("mud-store", place.backup)
    for number in range(5):
        place.ann.write("t", f"new {number}", {"n": number}).result()
    place.ann.write("t", "a", {"n": 9}).result()
    place.lab.run(minutes=1)
    expected = {"a": {"n": 9}, **{f"new {number}": {"n": number} for number in range(5)}}
    for client in (place.ann, place.bob):
        assert read_records(client) == read_records(client, latest=True) == expected
    state = {"a": {"n": 3}, "lost": {"n": 4}}
    for kind, key, record in place.delivered:
        state.pop(key, None)
        if kind == "upsert":
            state[key] = record
    assert state == expected


def test_write_based_on_a_lost_version_conflicts(place):
    """Commit another version with the same number after the restore."""
    place.write_lost_entries()
    place.lab.faults.cut("ann")
    write = place.ann.write("t", "a", {"n": 5}, "conditional")
    place.lab.faults.restore("mud-store", place.backup)
    for number in (7, 8):
        place.bob.write("t", "a", {"n": number}).result()
    place.lab.faults.mend("ann")
    with pytest.raises(Conflict):
        write.result()
    assert read_records(place.ann, latest=True) == {"a": {"n": 8}}


@pytest.mark.parametrize(
    "order", ["old newer", "newer old", "old newer old newer", "old old newer", "newer newer"]
)
@pytest.mark.parametrize("pause_s", [0.001, 60.0])
def test_any_sequence_of_restores_is_recognised(place, order, pause_s):
    """Restore backups in any order; replicas, processors and clients follow the last one."""
    lab = place.lab
    backups = {"old": place.backup}
    for number in range(3):  # entries that every follower acknowledges, and the log removes
        place.ann.write("t", f"newer {number}", {"n": 1}).result()
    lab.run(seconds=5)
    backups["newer"] = lab.faults.backup("mud-store")
    place.write_lost_entries()
    for name in order.split():
        lab.faults.restore("mud-store", backups[name])
        lab.run(seconds=pause_s)
    lab.run(minutes=1)
    kept = {"a": {"n": 1}}
    if order.endswith("newer"):
        kept |= {f"newer {number}": {"n": 1} for number in range(3)}
    changes = []
    place.bob.read("t", type="continuous", callback=lambda change: changes.append(change.key)).result()
    place.ann.write("t", "z", {"n": 9}).result()
    lab.run(minutes=1)
    assert changes == ["z"]
    for client in (place.ann, place.bob, place.client("carl")):
        assert read_records(client) == read_records(client, latest=True) == {**kept, "z": {"n": 9}}


@pytest.mark.parametrize("pause_s", [0.0, 5.0])
@pytest.mark.parametrize("written", [0, 3, 10])
@pytest.mark.parametrize("is_wiped", [True, False])
def test_store_restored_to_its_empty_beginning_is_recognised(is_wiped, written, pause_s):
    lab = Lab(seed=1)
    cloud = Cloud(lab)
    empty = {} if is_wiped else lab.faults.backup("mud-store")
    ann, bob = create_clients(lab, cloud)
    ann.create("t").result()
    for number in range(written):
        ann.write("t", f"lost {number}", {}).result()
    bob.read("t").result()
    lab.run(seconds=5)
    lab.faults.restore("mud-store", empty)
    lab.run(seconds=pause_s)
    ann.create("t").result()
    for number in range(4):
        ann.write("t", f"new {number}", {}).result()
    lab.run(minutes=1)
    (carl,) = create_clients(lab, cloud, "carl")
    for client in (ann, bob, carl):
        assert read_records(client) == read_records(client, latest=True) == {f"new {n}": {} for n in range(4)}


def test_copy_of_an_abandoned_start_changes_nothing_hours_later():
    """Restart the followers, so that they know nothing of the starts before."""
    lab = Lab(seed=1)
    cloud = Cloud(lab, replicas=1, processors=1)
    ann, bob = create_clients(lab, cloud)
    ann.create("t").result()
    backup = lab.faults.backup("mud-store")
    lab.faults.restore("mud-store", backup)
    repeated = []

    def repeat_entries(transfer):
        if not isinstance(transfer.message, Log) or not transfer.message.entries:
            return (0,)
        repeated.append(transfer.to)
        return (0, 3 * 3600 * 10**6)

    lab.world.fault_hook = repeat_entries
    ann.write("t", "abandoned", {}).result()
    lab.run(seconds=5)
    lab.world.fault_hook = None
    lab.faults.restore("mud-store", backup)
    for host in ("mud-replica-1", "mud-processor-1"):
        lab.faults.kill(host)
        lab.faults.restart(host)
    lab.run(hours=4)
    assert sorted(repeated) == sorted([*cloud.replicas, *cloud.processors])
    changes = []
    bob.read("t", type="continuous", callback=lambda change: changes.append(change.key)).result()
    ann.write("t", "kept", {}).result()
    lab.run(minutes=1)
    assert changes == ["kept"]
    assert read_records(bob) == read_records(bob, latest=True) == {"kept": {}}


def test_lost_table_can_be_created_again(place):
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


def test_plain_restart_causes_neither_incidents_nor_duplicates(place):
    place.write_lost_entries()
    place.lab.faults.kill("mud-store")
    place.lab.faults.restart("mud-store")
    place.ann.write("t", "b", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert read_records(place.bob, latest=True) == {"a": {"n": 3}, "lost": {"n": 4}, "b": {"n": 1}}
    assert place.delivered == [("upsert", "b", {"n": 1})]
    assert place.incidents() == []


def test_reader_offline_during_a_restore_catches_up(place):
    place.write_lost_entries()
    place.lab.faults.cut("bob")
    place.restore()
    place.ann.write("t", "a", {"n": 6}).result()
    place.lab.run(hours=2)
    place.lab.faults.mend("bob")
    place.lab.run(minutes=2)
    assert sorted(place.delivered) == [("remove", "lost", None), ("upsert", "a", {"n": 6})]
    assert read_records(place.bob) == {"a": {"n": 6}}


@pytest.mark.parametrize("is_restored", [True, False])
def test_notification_server_delivers_a_minute_after_its_start(place, is_restored):
    backups = {address.split("/")[0]: None for address in place.cloud.notification_servers}
    for host in backups:
        backups[host] = place.lab.faults.backup(host)
    place.write_lost_entries()
    for host, backup in backups.items():
        if is_restored:
            place.lab.faults.restore(host, backup)
        else:
            place.lab.faults.kill(host)
            place.lab.faults.restart(host)
    place.lab.run(minutes=1)
    place.ann.write("t", "b", {"n": 1}).result()
    place.lab.run(seconds=10)
    assert place.delivered == [("upsert", "b", {"n": 1})]


def test_restored_device_does_not_keep_an_answered_write_pending(place):
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
    assert read_records(place.bob, latest=True) == {"a": {"n": 5}, "b": {"n": 4}}


def test_requests_to_a_wiped_store_are_not_repeated_for_ever(place):
    """Wipe the store, while clients and servers know a later start and a lineage that it does not have."""
    place.restore()  # begins a second start
    place.ann.write("t", "b", {"n": 2}).result()
    write = place.ann.write("t", "c", {"n": 3}, "conditional")
    host = place.lab.world.hosts["mud-store"]
    host.wipe()
    host.restart()
    place.ann.write("t", "a", {"n": 4})
    before = count_messages(place.lab)
    place.lab.run(minutes=10)
    assert count_messages(place.lab) - before < 400
    assert write.done()
    for client in (place.ann, place.bob):
        with pytest.raises(TableProblem):
            client.read("t", latest=True).result()
    place.ann.create("t").result()
    place.ann.write("t", "a", {"n": 5}).result()
    place.lab.run(minutes=1)
    carl, changes = place.client("carl"), []
    carl.read("t", type="continuous", callback=changes.append).result()
    place.ann.write("t", "b", {"n": 6}).result()
    place.lab.run(minutes=1)
    assert [change.key for change in changes] == ["b"]
    for client in (place.ann, place.bob, carl):
        assert read_records(client, latest=True) == read_records(client) == {"a": {"n": 5}, "b": {"n": 6}}


def count_messages(lab):
    return sum(row.messages for row in lab.world.bill())


def create_clients(lab, cloud, *names):
    tokens = {name: lab.token(name, "app", hours=9) for name in names or ("ann", "bob")}
    return [Client(lab.device(name), cloud, app="app", token=token) for name, token in tokens.items()]


@pytest.mark.parametrize("is_wiped", [False, True])
def test_restored_notification_server_reaches_clients_not_in_its_backup(is_wiped):
    lab = Lab(seed=3)
    cloud = Cloud(lab, replicas=0, gateways=1, processors=1, notification_servers=1)
    backup = lab.faults.backup("mud-notifications-1")
    ann, bob = create_clients(lab, cloud)
    delivered = []
    ann.create("t").result()
    bob.read("t", type="continuous", callback=lambda change: delivered.append(change.key)).result()
    lab.run(minutes=1)
    lab.faults.restore("mud-notifications-1", {} if is_wiped else backup)
    for key in "abc":
        ann.write("t", key, {}).result()
        lab.run(minutes=1)
    assert delivered == ["a", "b", "c"]


class Moving:
    """Bob reads continuously, his phone changes its address, and the notification server has two backups."""

    server = "mud-notifications-1"

    def __init__(self, processors: int = 1) -> None:
        self.lab = lab = Lab(seed=3)
        self.cloud = Cloud(lab, replicas=0, gateways=1, processors=processors, notification_servers=1)
        self.without_bob = lab.faults.backup(self.server)
        self.ann, bob = create_clients(lab, self.cloud)
        self.delivered: list[str] = []
        self.ann.create("t", split=["g"]).result()
        bob.read("t", type="continuous", callback=lambda change: self.delivered.append(change.key)).result()
        lab.run(minutes=1)
        self.with_bob = lab.faults.backup(self.server)

    def write(self, *keys: str) -> None:
        for key in keys:
            self.ann.write("t", key, {}).result()
            self.lab.run(seconds=30)


@pytest.mark.parametrize("processors", [1, 3])
@pytest.mark.parametrize("loss_share", [0.0, 0.5])
@pytest.mark.parametrize("has_bob", [False, True])
def test_restored_notification_server_reaches_a_client_at_its_new_address(has_bob, loss_share, processors):
    place = Moving(processors)
    place.lab.faults.messages(loss_share=loss_share)
    for _ in range(3):
        place.lab.faults.change_address("bob")
        place.lab.run(minutes=2)
    place.lab.faults.restore(place.server, place.with_bob if has_bob else place.without_bob)
    place.lab.run(minutes=1)
    place.write("a", "b", "c")
    place.lab.faults.messages()
    place.lab.run(minutes=3)
    assert place.delivered == ["a", "b", "c"]


def test_client_unknown_to_all_servers_recovers_with_its_heartbeat():
    """Restore the server and restart the processor, so that only the client has its address."""
    place = Moving()
    place.lab.faults.change_address("bob")
    place.lab.run(minutes=1)
    place.lab.faults.restore(place.server, place.without_bob)
    place.lab.faults.kill("mud-processor-1")
    place.lab.faults.restart("mud-processor-1")
    place.lab.run(minutes=1)
    servers = [host for host in place.lab.world.hosts.values() if host.link is None]
    stored = repr([dict(process.store.items()) for host in servers for process in host.processes])
    assert "bob@1" not in stored
    place.write("a")
    assert place.delivered == []
    place.lab.run(seconds=HEARTBEAT_US / 1e6)
    assert place.delivered == ["a"]
    place.write("b")
    assert place.delivered == ["a", "b"]


def test_incident_of_a_restored_back_end_counts_the_entries_that_are_gone(place):
    place.write_lost_entries()
    place.restore()
    read_records(place.bob, latest=True)
    detail = "entries of the log that this client has seen are gone: 3"
    assert place.incidents() == [f"back end of MUD tables: {detail}"]

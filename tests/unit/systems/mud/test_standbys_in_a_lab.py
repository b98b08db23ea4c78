"""Back end with standbys: one takes over from a dead master, and nothing acknowledged is lost or done twice."""

from __future__ import annotations

import pytest
from mud_standbys import Town
from odd_messages import garble_messages

from mudkit.events import Received
from mudkit.systems import mud
from mudkit.systems.mud.messages.standbys import StoreAlive, StoreChange, SuspectStore
from mudkit.systems.mud.servers import store_server
from mudkit.systems.mud.servers.leases import CLOCK_ERROR_US, LEASE_US
from mudkit.wire import as_wire


def record_messages(town, is_lost=lambda source, to, message: False):
    """Record messages from now on: time, sender, receiver and message; lose some."""
    messages = []

    def fault_hook(transfer):
        source = transfer.sender.address
        messages.append((town.now_us, source, transfer.to, transfer.message))
        return () if is_lost(source, transfer.to, transfer.message) else (0,)

    town.lab.faults.messages()
    town.lab.world.fault_hook = fault_hook
    return messages


def repeat_late(town, source, after_s, *, is_first_lost=False):
    """Repeat acknowledgements of a standby after a while, or deliver them only then."""

    def fault_hook(transfer):
        if transfer.sender.address != source or kind_of(transfer.message) != "copied":
            return (0,)
        return (round(after_s * 1e6),) if is_first_lost else (0, round(after_s * 1e6))

    town.lab.faults.messages()
    town.lab.world.fault_hook = fault_hook


def kind_of(message):
    return as_wire(message).get("kind")


def assert_equal_stores(town):
    """Check that all stores have the same, and all are members."""
    town.lab.run(minutes=3)
    first, *others = [town.values(address) for address in town.stores]
    assert first
    assert all(other == first for other in others)
    assert set(mastership(town).members) == set(town.stores)


def mastership(town):
    return town.machine(town.cloud.naming).elections.master.present


def list_tables(town, address):
    """Return the tables that a store has, with the number of the entry of the log that has created each."""
    return [value for key, value in sorted(town.values(address).items()) if key.startswith("table ")]


def seconds_of(operation):
    return (operation.responded_us - operation.invoked_us) / 1e6


@pytest.mark.parametrize("seed", range(6))
def test_dead_master_is_replaced(seed):
    town = Town(seed, standbys=1 + seed % 2, loss_share=[0.0, 0.1][seed % 2])
    town.work(seconds=5)
    town.kill(town.cloud.back_end)
    town.work(seconds=30)
    assert town.cloud.master in town.cloud.standbys
    assert town.list_problems() == []
    assert town.longest_wait_s() < [10, 120][seed % 2]  # a lost answer costs a client ten seconds


def test_second_standby_takes_over_from_the_first():
    town = Town(1, standbys=2)
    for address in (town.cloud.back_end, None):
        town.kill(address or town.cloud.master)
        town.work(seconds=30)
    assert town.list_problems() == []
    assert mastership(town).members == [town.cloud.master]


@pytest.mark.parametrize("after_s", [0.5, 4.0, 60.0])
def test_former_master_that_comes_back_is_a_standby(after_s):
    town = Town(2)
    town.work(seconds=5)
    town.kill(town.cloud.back_end)
    town.work(seconds=after_s)
    messages = record_messages(town)
    town.restart(town.cloud.back_end)
    town.work(seconds=20)
    if after_s == 60.0:
        assert town.cloud.master == town.cloud.standbys[0]
        kinds = {kind_of(message) for _, source, _, message in messages if source == town.cloud.back_end}
        assert kinds <= {"mastership", "mastership?", "mastership taken", "copied", "suspect store"}
    assert town.list_problems() == []
    assert_equal_stores(town)


def test_write_that_only_the_former_master_had_is_carried_out_once():
    town = Town(3)
    client, back_end = town.clients[0], town.cloud.back_end
    record_messages(town, lambda source, to, message: source == back_end and to in town.cloud.standbys)
    count = client.increment("t", "sum", "n", 1, create=True)
    town.lab.run(seconds=1)
    assert town.lab.world.at_address[back_end].store.get("row\nt\nsum") is not None
    assert not count.done()
    town.kill(back_end)
    town.lab.run(minutes=1)
    assert count.result() == 1
    town.restart(back_end)
    assert client.read("t", latest=True).result().records == {"sum": {"n": 1}}
    town.lab.faults.messages()
    assert_equal_stores(town)


def test_write_whose_answer_was_lost_is_answered_by_the_next_master():
    """The standby has its result, and does not carry it out again."""
    town = Town(4)
    client, back_end = town.clients[0], town.cloud.back_end
    record_messages(town, lambda source, to, message: source == back_end and kind_of(message) == "outcome")
    count = client.increment("t", "sum", "n", 1, create=True)
    town.lab.run(seconds=1)
    assert not count.done()
    town.kill(back_end)
    town.lab.run(minutes=1)
    assert count.result() == 1
    assert client.read("t", latest=True).result().records == {"sum": {"n": 1}}


def test_table_is_created_once_when_its_creator_hears_of_it_from_the_next_master():
    town = Town(4)
    back_end = town.cloud.back_end
    record_messages(
        town, lambda source, to, message: source == back_end and kind_of(message) == "administered"
    )
    creation = town.clients[0].create("other")
    town.lab.run(seconds=1)
    created = list_tables(town, back_end)
    assert [table["name"] for table in created] == ["other", "t"]
    town.kill(back_end)
    creation.result()
    assert list_tables(town, town.cloud.master) == created
    assert len({table["number"] for table in created}) == 2
    town.clients[1].write("other", "a", {"n": 1}).result()


def test_dead_standby_is_no_member_until_it_is_back():
    town = Town(5)
    town.kill(town.cloud.standbys[0])
    write = town.clients[0].write("t", "a", {"n": 1})
    write.result()
    assert 5 < seconds_of(write) < 10
    assert mastership(town).members == [town.cloud.back_end]
    write = town.clients[0].write("t", "a", {"n": 2})
    write.result()
    assert seconds_of(write) < 1
    town.restart(town.cloud.standbys[0])
    town.work(seconds=10)
    assert set(mastership(town).members) == set(town.stores)
    assert town.list_problems() == []
    assert_equal_stores(town)


def test_late_copy_of_an_acknowledgement_does_not_stop_the_service():
    """The standby has died since then: nothing waits for it for long, although it is to be admitted."""
    town = Town(5)
    standby = town.cloud.standbys[0]
    repeat_late(town, standby, 20.0)
    town.clients[0].write("t", "a", {"n": 1}).result()
    town.kill(standby)
    town.clients[0].write("t", "a", {"n": 2}).result()
    assert mastership(town).members == [town.cloud.back_end]
    town.lab.run(seconds=25)
    write = town.clients[0].write("t", "a", {"n": 3})
    town.lab.run(seconds=20)
    assert write.done()
    town.lab.faults.messages()
    town.restart(standby)
    town.work(seconds=20)
    assert town.list_problems() == []
    assert_equal_stores(town)


def test_standby_that_dies_before_it_has_all_is_not_waited_for():
    """It has acknowledged the store as it was, and others were told of more by then."""
    town = Town(6)
    standby = town.cloud.standbys[0]
    town.kill(standby)
    town.work(seconds=10)
    repeat_late(town, standby, 1.0, is_first_lost=True)
    town.restart(standby)
    town.work(seconds=1.7, every_s=0.05)
    town.kill(standby)
    town.work(seconds=20)
    town.lab.faults.messages()
    assert town.list_problems() == []
    assert town.longest_wait_s() < 15
    town.restart(standby)
    assert_equal_stores(town)


def test_standby_that_was_removed_does_not_take_over():
    """It lacks what was acknowledged without it: writes wait for the master."""
    town = Town(6)
    town.kill(town.cloud.standbys[0])
    town.work(seconds=20)
    town.kill(town.cloud.back_end)
    town.restart(town.cloud.standbys[0])
    town.work(seconds=60)
    assert town.cloud.master is None
    town.restart(town.cloud.back_end)
    town.work(seconds=10)
    assert town.list_problems() == []
    assert town.cloud.master == town.cloud.back_end


def test_no_server_sends_anything_while_nothing_happens():
    town = Town(7, standbys=2)
    town.work(seconds=5)
    town.lab.run(minutes=5)
    servers = [*town.stores, town.cloud.naming, *town.cloud.gateways, *town.cloud.processors]
    messages = record_messages(town)
    town.lab.run(hours=20)
    stores = [kind_of(message) for _, source, to, message in messages if {source, to} & set(town.stores)]
    assert stores == []
    assert [
        kind_of(message) for _, source, to, message in messages if source in servers and to in servers
    ] == []


def test_without_standbys_there_are_no_leases():
    town = Town(7, standbys=0)
    messages = record_messages(town)
    town.work(seconds=20)
    names = {town.cloud.naming, town.cloud.back_end}
    assert not [one for one in messages if {one[1], one[2]} == names or town.cloud.naming in one[1:3]]
    assert "position" not in [key for key, _ in town.lab.world.at_address[town.cloud.back_end].store.items()]


def test_service_goes_on_without_the_naming_machine():
    """Only changes wait for it."""
    town = Town(8)
    town.kill(town.cloud.naming)
    town.work(seconds=60)
    assert town.longest_wait_s() < 1
    town.kill(town.cloud.back_end)
    town.work(seconds=60)
    assert town.cloud.master is None
    town.restart(town.cloud.naming)
    town.work(seconds=20)
    assert town.cloud.master == town.cloud.standbys[0]
    assert town.list_problems() == []


@pytest.mark.parametrize("old", ["restored", "wiped"])
def test_naming_machine_with_old_masterships_learns_the_present_one(old):
    town = Town(9, standbys=2)
    host = town.cloud.naming.split("/")[0]
    backup = town.lab.faults.backup(host)
    town.kill(town.cloud.back_end)
    town.work(seconds=30)
    before = mastership(town)
    if old == "wiped":
        town.wipe(town.cloud.naming)
    else:
        town.lab.faults.restore(host, backup)
    assert mastership(town).epoch < before.epoch
    town.restart(town.cloud.back_end)
    town.work(seconds=20)
    assert mastership(town).epoch >= before.epoch
    assert town.cloud.master == before.master
    town.kill(town.cloud.master)
    town.work(seconds=30)
    assert mastership(town).term > before.epoch
    assert town.list_problems() == []


def test_master_that_the_naming_machine_does_not_reach_has_no_lease_when_another_one_acts():
    town = Town(10)
    town.work(seconds=3)
    cut = {town.cloud.naming, town.cloud.back_end}
    messages = record_messages(town, lambda source, to, message: {source, to} == cut)
    suspicion = SuspectStore(town.cloud.back_end, mastership(town))
    naming = town.lab.world.at_address[town.cloud.naming]
    town.lab.world._handle(naming, Received(town.cloud.gateways[0], suspicion))
    town.work(seconds=60)
    to_clients = {
        address: [
            at for at, source, to, message in messages if source == address and kind_of(message) == "outcome"
        ]
        for address in town.stores
    }
    former, present = to_clients[town.cloud.back_end], to_clients[town.cloud.standbys[0]]
    assert max(former) < min(present)
    assert town.list_problems() == []


@pytest.mark.parametrize("loss", ["restored", "wiped"])
def test_master_that_has_lost_entries_is_replaced_by_one_that_has_them(loss):
    town = Town(11)
    host = town.cloud.back_end.split("/")[0]
    town.work(seconds=5)
    backup = town.lab.faults.backup(host)
    town.work(seconds=10)
    if loss == "wiped":
        town.wipe(town.cloud.back_end)
    else:
        town.lab.faults.restore(host, backup)
    town.work(seconds=30)
    assert town.cloud.master == town.cloud.standbys[0]
    assert town.list_problems() == []
    assert_equal_stores(town)


def test_standby_that_was_restored_gets_the_store_of_the_master():
    town = Town(12)
    host = town.cloud.standbys[0].split("/")[0]
    backup = town.lab.faults.backup(host)
    town.work(seconds=10)
    town.lab.faults.restore(host, backup)
    town.work(seconds=10)
    assert town.list_problems() == []
    assert_equal_stores(town)


def test_lease_ends_before_the_promise():
    """The master counts from its question, the standby from its answer, and adds the error of the clocks."""
    town = Town(13)
    messages = record_messages(town)
    town.work(seconds=5)
    standby, leases = town.machine(town.cloud.standbys[0]), town.machine(town.cloud.back_end)._acting.leases
    until_us = leases._standbys[town.cloud.standbys[0]].lease_until_us
    asked_us = until_us - LEASE_US
    assert [message for _, _, _, message in messages if getattr(message, "sent_us", None) == asked_us]
    answered_us = standby._promised_us - LEASE_US - CLOCK_ERROR_US
    assert asked_us < answered_us < asked_us + 10_000


ODD = [None, -1, "x", [], {}, 1 << 70, True, [["row\nt\na", 1]], [["promised", 1]], {"epoch": 1}]


def test_odd_messages_between_stores_are_dropped():
    """Each field of each kind of message is replaced by odd values, at the store that it was for."""
    town = Town(14)
    world, ends = town.lab.world, {*town.stores, town.cloud.naming}
    messages = record_messages(town)
    town.work(seconds=3)
    town.kill(town.cloud.back_end)
    town.work(seconds=15)
    town.restart(town.cloud.back_end)
    town.work(seconds=15)
    by_kind = {
        (kind_of(message), to): (source, message)
        for _, source, to, message in messages
        if source in ends and to in ends
    }
    assert len({kind for kind, _ in by_kind}) >= 9
    town.lab.faults.messages()
    for (_, to), (source, message) in by_kind.items():
        fields = as_wire(message)
        for name in fields:
            for odd in ODD:
                world._handle(world.at_address[to], Received(source, {**fields, name: odd}))
    town.lab.run(minutes=1)
    assert town.lab.problems.empty


def test_display_names_the_state_of_the_back_end():
    town = Town(15)
    assert mud.Cloud._view(town.cloud).facts["standbys"] == 1
    town.kill(town.cloud.back_end)
    assert mud.Cloud._view(town.cloud).facts["back end"]
    town.work(seconds=20)
    assert mud.Cloud._view(town.cloud).facts["back end"] == ""


def test_answers_name_the_last_change():
    town = Town(16)
    town.work(seconds=3)
    messages = record_messages(town)
    town.kill(town.cloud.back_end)
    town.work(seconds=10)
    alive = [message for _, _, _, message in messages if isinstance(message, StoreAlive)]
    assert {one.incarnation for one in alive} == {mastership(town).incarnation}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_stores_and_naming_machine_under_faults(seed):
    town = Town(seed, standbys=1 + seed % 2, loss_share=[0.0, 0.1][seed % 2])
    names = town.play()
    assert town.list_problems() == [], names
    assert_equal_stores(town)


@pytest.mark.parametrize("seed", range(3))
def test_garbled_messages_cause_neither_failure_nor_endless_questions_after_a_take_over(seed, monkeypatch):
    """Damaged copies of a message of the log open questions, whose answers are damaged, too."""
    town = Town(seed, writers=1)
    town.work(seconds=2)
    world, left = type(town.lab.world), [20_000]
    with garble_messages(town.lab, seed) as sent:
        handle = world._handle

        def count_and_handle(self, process, event):
            left[0] -= 1
            assert left[0] > 0, "too many events"
            handle(self, process, event)

        monkeypatch.setattr(world, "_handle", count_and_handle)
        town.kill(town.cloud.back_end)
        town.work(seconds=20)
        monkeypatch.undo()
    assert sent["StoreServer"] > 0
    assert town.cloud.master in town.cloud.standbys
    assert town.lab.problems.empty


def acknowledge_at_once(self, now_us, event):
    """Handle an event as the back end, and send all at once, whatever the standbys have."""
    if self._acting is None:
        return ()
    effects = self._acting.back_end.handle(now_us, event)
    change = self._acting.recorded.take_change()
    if change is not None:
        self._acting.leases.add_change(change)
        self._set_position(self._acting.leases.term, self._acting.leases.seq)
    return *effects, *self._release(now_us)


def change_without_results(self):
    """Return the changes, but for the results of writes."""
    change = take_change(self)
    values = [] if change is None else [one for one in change.values if not one[0].startswith("applied ")]
    return None if change is None else StoreChange(values, change.deleted)


take_change = store_server._RecordingStore.take_change


@pytest.mark.parametrize(
    ("owner", "name", "mistake", "lost"),
    [
        (store_server.StoreServer, "_pass_on", acknowledge_at_once, "changes"),
        (store_server._RecordingStore, "take_change", change_without_results, "outcome"),
    ],
)
def test_judge_finds_mistakes(monkeypatch, owner, name, mistake, lost):
    """A master that acknowledges what its standbys lack, and results of writes that they lack."""
    monkeypatch.setattr(owner, name, mistake)
    town = Town(17)
    back_end = town.cloud.back_end
    record_messages(town, lambda source, to, message: source == back_end and kind_of(message) == lost)
    town.work(seconds=3)
    town.kill(back_end)
    town.work(seconds=20)
    assert town.list_problems() != []

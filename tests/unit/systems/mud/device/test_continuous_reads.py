"""Continuous reads of a client: hellos, registrations, and deduplicated delivery of changes."""

from __future__ import annotations

import msgspec
import pytest
from mud_machines import sent
from mud_reads import REFUSED, ROW, Reads, asks, completed, delivered

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Complete, Notify
from mudkit.systems.mud import Client, Cloud
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite
from mudkit.systems.mud.operations import Listen, Unregister, UpdateData
from mudkit.systems.mud.tables.table import Table


@pytest.fixture
def reads():
    return Reads()


@pytest.mark.parametrize("sync", [-1, -0.5])
def test_negative_sync_timestamp_is_refused(reads, sync):
    with pytest.raises(ParameterError):
        reads.register(sync=sync)


@pytest.mark.parametrize("sync", [None, 0, 0.0, 2.5])
def test_sync_timestamp_is_sent_in_microseconds(reads, sync):
    reads.register(sync=sync)
    ((_, ask),) = asks(reads.welcome("s"))
    assert ask["what"]["sync_us"] == (None if sync is None else round(sync * 1e6))


def test_read_is_registered_once_the_service_has_a_session(reads):
    ((_, attach),) = sent(reads.register())
    fields = {"incarnation": "first", "token": None, "policies": {}, "is_notified": True}
    assert attach == {"kind": "attach", **fields}
    assert len(asks(reads.welcome("s"))) == 1
    assert len(asks(reads.register(2))) == 1
    assert asks(reads.welcome("s")) == []  # same session: still registered
    assert len(asks(reads.welcome("another"))) == 2


def test_registration_completes_when_all_processors_have_it(reads):
    reads.register()
    ((_, ask),) = asks(reads.welcome("s"))
    effects = reads.answer(ask, {"p0": 1})
    assert completed(effects) == []
    ((_, repeated),) = asks(effects)
    (completion,) = completed(reads.answer(repeated, {"p0": 1, "p1": 1}))
    assert (completion.op_id, completion.result, completion.error) == (1, 1, None)


def test_answer_to_superseded_registration_is_ignored(reads):
    reads.register()
    ((_, first),) = asks(reads.welcome("s"))
    ((_, second),) = asks(reads.welcome("another"))
    assert completed(reads.answer(first, {"p0": 1, "p1": 1})) == []
    assert len(completed(reads.answer(second, {"p0": 1, "p1": 1}))) == 1


def test_refused_registration_ends_the_read(reads):
    reads.register()
    ((_, ask),) = asks(reads.welcome("s"))
    effects = reads.take({"kind": "refused", "id": ask["id"], "error": REFUSED})
    (completion,) = completed(effects)
    assert completion.error is not None
    with pytest.raises(ParameterError):
        reads.watching.unregister(0, 2, Unregister(1))


def test_refused_repeated_registration_notifies_the_listener(reads):
    reads.begin()
    ((_, ask),) = asks(reads.welcome("another"))
    assert delivered(reads.take({"kind": "refused", "id": ask["id"], "error": REFUSED})) == ["ended"]


def test_changes_are_delivered_once(reads):
    reads.begin()
    assert delivered(reads.notify_change(ver=1, lsn=6)) == [("upsert", "a", 1)]
    assert delivered(reads.notify_change(ver=2, lsn=6)) == []  # not after the log position
    assert delivered(reads.notify_change(ver=1, lsn=7)) == []  # version delivered before
    assert delivered(reads.notify_change(ver=2, lsn=None)) == [("upsert", "a", 2)]  # existing record
    assert delivered(reads.notify_change(ver=3, lsn=8, op="remove")) == [("remove", "a", 3)]
    assert delivered(reads.notify_change(ver=4, lsn=9, op="remove")) == []  # never delivered
    assert delivered(reads.notify_change("~", lsn=6, processor="p1")) == [("upsert", "~", 1)]  # its position
    other = {"op": "upsert", **ROW, "key": "b", "ver": 1}
    assert delivered(reads.notify(change=other, lsn=10, handle="first 7")) == []


def test_log_position_never_decreases(reads):
    reads.begin(sync=0)
    reads.notify(synced=9)
    reads.notify(synced=4)
    ((_, ask),) = asks(reads.welcome("another"))
    assert ask["what"]["since"] == {"0": 9}


def test_read_without_sync_starts_at_log_position_of_the_answer(reads):
    reads.begin()
    ((_, ask),) = asks(reads.welcome("another"))
    assert ask["what"]["since"] == {"0 1": 5}
    other = Reads()
    other.begin(sync=0)
    ((_, ask),) = asks(other.welcome("another"))
    assert ask["what"]["since"] == {}  # existing records are not delivered yet


def test_new_life_of_a_processor_triggers_registration(reads):
    reads.begin({"p0": 1, "p1": 1})
    assert asks(reads.notify("life", life=1)) == []
    assert len(asks(reads.notify("life", life=2))) == 1
    assert asks(reads.notify("life", life=2)) == []
    assert asks(reads.notify("life", life=1)) == []
    assert delivered(reads.notify_change(life=1)) == []  # sent by the earlier life
    assert delivered(reads.notify_change(life=2)) == [("upsert", "a", 1)]


def test_known_life_triggers_no_registration(reads):
    reads.begin({"p0": 3, "p1": 1})
    assert asks(reads.notify("life", life=3)) == []
    assert asks(reads.notify("life", life=1, processor="another")) == []


def test_answer_of_an_older_life_triggers_registration(reads):
    reads.begin({"p0": 2, "p1": 1})
    reads.notify("life", life=2)
    ((_, ask),) = asks(reads.welcome("another"))
    assert len(asks(reads.answer(ask, {"p0": 1, "p1": 1}))) == 1
    (_, ask), *_ = asks(reads.welcome("one more"))
    assert asks(reads.answer(ask, {"p0": 2, "p1": 1})) == []


def test_stored_reads_are_registered_again_after_a_restart(reads):
    reads.begin()
    reads.notify_change()
    restarted = Reads(reads.ports.store)
    ((_, ask),) = asks(restarted.welcome("s2"))
    assert (ask["what"]["held"], ask["what"]["since"]["0"]) == (["a"], 6)
    assert completed(restarted.answer(ask, {"p0": 1, "p1": 1})) == []  # the caller does not survive a restart


def test_end_is_notified_once(reads):
    reads.begin()
    assert delivered(reads.notify(ended="no more")) == ["ended"]
    assert delivered(reads.notify(ended="no more")) == []
    reads.watching.clear_notices()
    assert reads.ports.store.items("reading ") == []


def test_read_ended_by_one_processor_is_ended_at_the_others(reads):
    reads.begin()
    ((_, ask),) = asks(reads.notify(ended="no more", is_alone=True))
    assert (ask["what"]["op"], ask["what"]["handle"]) == ("unregister", "first 1")
    assert completed(reads.take({"kind": "complete", "id": ask["id"]})) == []
    assert asks(reads.notify(ended="no more", is_alone=True)) == []


def test_end_by_all_processors_sends_no_request(reads):
    reads.begin()
    assert asks(reads.notify(ended="no more")) == []


@pytest.mark.parametrize("is_first", [True, False])
def test_read_refused_by_one_processor_is_ended_at_the_others(reads, is_first):
    if is_first:
        reads.register()
    else:
        reads.begin()
    ((_, ask),) = asks(reads.welcome("s" if is_first else "another"))
    effects = reads.answer_part(ask, "p0", 1, data_seq=1, error=REFUSED)
    assert delivered(effects) == ([] if is_first else ["ended"])
    assert len(completed(effects)) == is_first
    ((_, ask),) = asks(effects)
    assert (ask["what"]["op"], ask["what"]["handle"]) == ("unregister", "first 1")


def test_updates_and_ends_are_sent_to_the_cloud(reads):
    reads.begin()
    ((_, ask),) = asks(reads.watching.update_data(0, 5, UpdateData(1, {"age": 3})))
    assert (ask["what"]["op"], ask["what"]["reader"]) == ("update_data", {"age": 3})
    (completion,) = completed(reads.take({"kind": "complete", "id": ask["id"]}))
    assert (completion.op_id, completion.error) == (5, None)
    ending = reads.watching.unregister(0, 6, Unregister(1))
    assert completed(ending) == []  # the call that began the read was completed before
    ((_, ask),) = asks(ending)
    (refused,) = completed(reads.take({"kind": "refused", "id": ask["id"], "error": REFUSED}))
    assert refused.error.summary == "no"


def test_repeated_registration_names_the_table_number(reads):
    reads.register(sync=0)
    ((_, ask),) = asks(reads.welcome("s"))
    assert ask["what"]["table"] is None
    reads.answer(ask, {"p0": 1, "p1": 1})
    ((_, repeated),) = asks(reads.welcome("another"))
    assert repeated["what"]["table"] == 1


def test_changes_before_the_answer_provide_the_table_number(reads):
    reads.register(sync=0)
    reads.welcome("s")
    reads.notify_change(table=7)
    (repeated,) = [
        message for _, message in asks(reads.welcome("another")) if message["what"]["handle"] == "first 1"
    ]
    assert repeated["what"]["table"] == 7


def test_change_of_an_older_life_during_registration_triggers_another(reads):
    """Register again, since the new life removes only records that it knows as delivered."""
    reads.begin({"p0": 1, "p1": 1}, sync=0)
    reads.notify(synced=5)
    ((_, ask),) = asks(reads.notify(kind="life", processor="p1", life=2))
    assert ask["what"]["held"] == []
    assert delivered(reads.notify_change(key="a", ver=1, lsn=6, life=1)) == [("upsert", "a", 1)]  # in flight
    ((_, repeated),) = asks(reads.answer(ask, {"p0": 2, "p1": 2}))
    assert repeated["what"]["held"] == ["a"]
    assert repeated["what"]["since"] == {"0": 5}
    assert asks(reads.answer(repeated, {"p0": 2, "p1": 2})) == []


def test_change_of_an_older_life_after_registration_is_discarded(reads):
    reads.begin({"p0": 2, "p1": 1}, sync=0)
    assert delivered(reads.notify_change(key="a", ver=1, life=1)) == []
    assert delivered(reads.notify_change(key="a", ver=2, life=2)) == [("upsert", "a", 2)]


def test_read_ended_during_registration_is_not_registered_again(reads):
    reads.register()
    ((_, ask),) = asks(reads.welcome("s"))
    (completion,) = completed(reads.watching.unregister(0, 2, Unregister(1)))
    assert (completion.op_id, completion.result, completion.error) == (1, 1, None)
    assert asks(reads.answer(ask, {"p0": 1})) == []
    assert asks(reads.notify(kind="life", life=2)) == []


def test_bytes_stored_per_change_are_independent_of_record_count():
    lab, sizes = Lab(seed=1), []
    cloud = Cloud(lab)
    ann, bob = (
        Client(lab.device(name), cloud, app="app", token=lab.token(name, "app")) for name in ("ann", "bob")
    )
    ann.create("t").result()
    bob.read("t", type="continuous", callback=lambda change: None).result()
    store = lab.world.hosts["bob"].processes[0].store
    store.at_put = lambda key, value: sizes.append(len(msgspec.msgpack.encode(value)))
    written_bytes = []
    for number in range(200):
        ann.write("t", f"k{number:03d}", {"n": number}).result()
        lab.run(seconds=1)
        written_bytes.append(sum(sizes))
        sizes.clear()
    assert max(written_bytes[-10:]) < 1.2 * max(written_bytes[:10])
    ann.write("t", "k000", {"n": 0}).result()
    lab.faults.kill("bob")
    lab.faults.restart("bob")
    assert len(lab.world.hosts["bob"].processes[0].machine.continuous_reads.reads()[0].delivered) == 200


def test_changes_under_way_are_delivered_after_a_registration_that_a_restart_repeated(reads):
    """A processor was restarted before the first answer, and has sent changes to both registrations."""
    reads.register()
    ((_, ask),) = asks(reads.welcome("s"))
    assert len(delivered(reads.notify_change(ver=1, lsn=6, life=1))) == 1
    assert len(delivered(reads.notify_change(ver=2, lsn=7, life=2))) == 1
    ((_, again),) = asks(reads.answer(ask, {"p0": 2, "p1": 1}))
    for place, life, lsn in (("p0", 2, 9), ("p1", 1, 9)):
        reads.answer_part(again, place, life, data_seq=again["what"]["data_seq"], lsn=lsn)
    assert asks(reads.take({"kind": "complete", "id": again["id"], "places": [0, 1]})) == []
    assert (
        len(delivered(reads.notify_change(ver=3, lsn=8, life=2))) == 1
    )  # sent before the second registration


# -- reads whose application was started again (Mobius 3.1: a handle unregisters or modifies a read)


class Application:
    """Application that has registered the callbacks of some listeners."""

    def __init__(self):
        self.listeners = set()

    def start(self, store=None, max_waiting=1000):
        return Reads(store, has_listener=self.listeners.__contains__, max_waiting=max_waiting)

    def listen(self, reads, handle=1):
        self.listeners.add(f"continuous read {handle}")
        return reads.watching.listen(0, 9, Listen(handle))


@pytest.fixture
def application():
    return Application()


def test_application_is_told_the_handle_before_any_change(reads):
    begun = [effect for effect in reads.register() if isinstance(effect, Notify)]
    assert [(effect.listener, effect.payload) for effect in begun] == [("me", 1)]


def test_listener_is_named_after_the_durable_handle(reads):
    reads.begin()
    (notification,) = [effect for effect in reads.notify_change() if isinstance(effect, Notify)]
    assert notification.listener == "continuous read 1"


def test_changes_wait_for_a_callback_over_starts(application):
    reads = application.start()
    reads.begin()
    assert delivered(reads.notify_change("a", 1, 6)) == []
    reads.watching.clear_notices()
    again = application.start(reads.ports.store)
    assert delivered(again.watching.repeat_notices(0)) == []
    again.welcome("s")
    assert delivered(again.notify_change("b", 1, 7)) == []
    assert again.watching.describe()[0]["waiting"] == 2
    emitted = application.listen(again)
    assert delivered(emitted) == [("upsert", "a", 1), ("upsert", "b", 1)]
    assert [effect.op_id for effect in completed(emitted)] == [9]
    assert delivered(application.listen(again)) == []
    assert delivered(again.notify_change("c", 1, 8)) == [("upsert", "c", 1)]


def test_changes_wait_on_if_the_application_ends_before_its_call_is_handled(application):
    reads = application.start()
    reads.begin()
    reads.notify_change("a", 1, 6)
    assert delivered(reads.watching.listen(0, 9, Listen(1))) == []
    assert delivered(application.listen(reads)) == [("upsert", "a", 1)]


def test_told_change_is_repeated_with_its_id_until_its_callback_was_called(application):
    reads = application.start()
    reads.begin()
    reads.notify_change()
    (emitted,) = [effect for effect in application.listen(reads) if isinstance(effect, Notify)]
    again = Reads(reads.ports.store)
    (repeated,) = again.watching.repeat_notices(0)[:1]
    assert repeated.payload.id == emitted.payload.id
    again.watching.clear_notices()
    assert delivered(Reads(reads.ports.store).watching.repeat_notices(0)) == []


def test_change_whose_callback_is_gone_after_a_kill_waits(application):
    application.listeners.add("continuous read 1")
    reads = application.start()
    reads.begin()
    reads.notify_change()
    application.listeners.clear()
    again = application.start(reads.ports.store)
    assert delivered(again.watching.repeat_notices(0)) == []
    assert delivered(application.listen(again)) == [("upsert", "a", 1)]


def test_new_callback_that_a_kill_has_not_let_the_device_hear_of_is_told_at_its_start(application):
    reads = application.start()
    reads.begin()
    reads.notify_change()
    application.listeners.add("continuous read 1")
    again = application.start(reads.ports.store)
    assert delivered(again.watching.repeat_notices(0)) == [("upsert", "a", 1)]


def test_changes_beyond_the_bound_pause_the_read_until_it_has_a_callback(application):
    reads = application.start(max_waiting=2)
    reads.begin()
    for number, key in enumerate("ab"):
        assert asks(reads.notify_change(key, 1, 6 + number)) == []
    ((_, ended),) = asks(reads.notify_change("c", 1, 8))
    assert (ended["what"]["op"], ended["what"]["handle"]) == ("unregister", "first 1")
    (listed,) = reads.watching.describe()
    assert (listed["waiting"], listed["paused"]) == (2, True)
    assert asks(reads.notify_change("d", 1, 9)) == []
    assert asks(reads.welcome("another")) == []  # it is not registered while it is paused
    emitted = application.listen(reads)
    assert delivered(emitted) == [("upsert", "a", 1), ("upsert", "b", 1)]
    ((_, ask),) = asks(emitted)
    assert (ask["what"]["handle"], ask["what"]["since"]["0"]) == ("first 1.1", 7)
    assert ask["what"]["held"] == ["a", "b"]
    reads.answer(ask, {"p0": 1, "p1": 1})
    assert delivered(reads.notify_change("e", 1, 10)) == []  # of the registration before the pause
    resumed = reads.notify_change("c", 1, None, handle="first 1.1")
    assert delivered(resumed) == [("upsert", "c", 1)]


def test_read_is_not_paused_before_all_processors_have_it(application):
    reads = application.start(max_waiting=1)
    reads.register()
    ((_, ask),) = asks(reads.welcome("s"))
    for number, key in enumerate("abc"):
        assert asks(reads.notify_change(key, 1, 6 + number)) == []
    assert reads.watching.describe()[0]["waiting"] == 3
    reads.answer(ask, {"p0": 1, "p1": 1})
    reads.notify_change("d", 1, 9)
    assert reads.watching.describe()[0]["paused"]


def test_paused_read_stays_paused_over_a_start_and_ends_at_once(application):
    reads = application.start(max_waiting=1)
    reads.begin()
    reads.notify_change("a", 1, 6)
    reads.notify_change("b", 1, 7)
    again = application.start(reads.ports.store, max_waiting=1)
    ((_, attach),) = sent(again.watching.attach())
    assert not attach["is_notified"]
    (data,) = again.watching.update_data(0, 5, UpdateData(1, {"age": 3}))
    assert data == Complete(5)
    application.listeners.add("continuous read 1")
    effects = again.watching.repeat_notices(0)
    ((_, attach),) = sent(effects)
    assert attach["is_notified"]
    ((_, ask),) = asks(again.welcome("s2"))
    assert ask["what"]["reader"] == {"age": 3}


def test_end_waits_for_a_callback_with_what_came_before(application):
    reads = application.start()
    reads.begin()
    reads.notify_change()
    reads.notify(ended="no more")
    reads.watching.clear_notices()
    again = application.start(reads.ports.store)
    (listed,) = again.watching.describe()
    assert (listed["handle"], listed["ended"], listed["waiting"]) == (1, "no more", 2)
    assert delivered(application.listen(again)) == [("upsert", "a", 1), "ended"]
    again.watching.clear_notices()
    assert again.watching.describe() == []
    with pytest.raises(ParameterError, match="has ended"):
        application.listen(again)


def test_end_is_the_last_that_a_callback_hears(application):
    """Own writes that are still pending are shown only in reads that have not ended."""
    reads = application.start()
    reads.begin()
    reads.local.add_write(PendingWrite(seq=1, name="t", key="b", type="blind", data={"n": 1}))
    reads.notify(ended="no more")
    assert delivered(application.listen(application.start(reads.ports.store))) == ["ended"]


def test_later_reads_do_not_go_back_behind_the_change_by_which_a_record_left(reads):
    """Else a late answer to an own write could bring back the version before."""
    reads.begin()
    reads.notify_change("a", 1, 6)
    reads.notify_change("a", 2, 8, op="remove")
    assert reads.local.seen_lsns("t") == {"0": 8}
    assert reads.local.held_row("t", "a") is None


def test_position_of_a_log_that_the_device_has_not_heard_of_counts_once_it_has(reads):
    """Also that of the change by which a record left, of which nothing is held (Mobius 4.1)."""
    reads.begin()
    reads.notify_change("a", 3, 8, op="remove", start="second")
    assert reads.local.seen_lsns("t") == {}
    restarted = Local(reads.ports, 10)  # the position is durable
    restarted.go_back("second", 5)
    assert restarted.seen_lsns("t") == {"0": 8}
    restarted.go_back("third", 7)
    assert restarted.seen_lsns("t") == {"0": 7}


def test_processor_that_had_a_read_before_keeps_no_own_version_shown(reads):
    """It tells of nothing more; the version of the own write is not the store's last one."""
    reads.begin(sync=0)
    for processor in ("p0", "p1"):
        reads.notify(processor=processor, synced=2)
    write = PendingWrite(seq=1, name="t", key="b", type="blind", data={"n": 1})
    reads.local.hold_row("t", HeldRow("b", 1, {"n": 1}, None, 4, 1, held_us=0))
    assert delivered(reads.watching.show_outcomes([write], [1])) == [("upsert", "b", 1)]
    reads.watching.end_greeting(0)
    ((_, ask),) = asks(reads.welcome("s2"))
    reads.answer_part(ask, "p1", 1, data_seq=1)
    reads.answer_part(ask, "new", 1, data_seq=1, of="0")
    (_, (_, ask)) = asks(reads.take({"kind": "complete", "id": ask["id"], "places": [0, 1]}))
    assert ask["what"]["handle"] == "first 1.1"
    reads.answer_part(ask, "p1", 1, data_seq=1)
    reads.answer_part(ask, "new", 1, data_seq=1, of="0")
    reads.take({"kind": "complete", "id": ask["id"], "places": [0, 1]})
    changes = []
    for processor, partitions in (("new", "0"), ("p1", "1")):
        changes += delivered(
            reads.notify(processor=processor, of=partitions, session="s2", handle="first 1.1", synced=6)
        )
    assert changes == [("remove", "b", 1)]


@pytest.mark.parametrize(("lsn", "expected"), [(5, []), (6, [("upsert", "b", 1)])])
def test_late_answer_to_an_own_write_shows_only_what_the_processors_have_not_passed(reads, lsn, expected):
    """The processors have told of all that is up to 5 and belongs to the read."""
    reads.begin(sync=0)
    for processor in ("p0", "p1"):
        reads.notify(processor=processor, synced=5)
    write = PendingWrite(seq=1, name="t", key="b", type="blind", data={"n": 1})
    reads.local.hold_row("t", HeldRow("b", 1, {"n": 1}, None, lsn, 1, held_us=0))
    assert delivered(reads.watching.show_outcomes([write], [1])) == expected


@pytest.mark.parametrize(("place", "expected"), [("p0", [("remove", "b", 1)]), ("p1", [])])
def test_own_version_is_dropped_once_the_processor_of_its_partition_has_passed_it(reads, place, expected):
    """The table has one partition, that of p0, which began anew and does not know of the version (Mobius 5).

    The other one answered the same registration before the write, and has nothing to tell since.
    """
    reads.register(sync=0)
    ((_, ask),) = asks(reads.welcome("s"))
    reads.answer_part(ask, "p0", 1, data_seq=1)
    reads.answer_part(ask, "p1", 1, data_seq=1)
    write = PendingWrite(seq=1, name="t", key="b", type="blind", data={"n": 1})
    reads.local.hold_row("t", HeldRow("b", 1, {"n": 1}, None, 6, 1, held_us=0))
    assert delivered(reads.watching.show_outcomes([write], [1])) == [("upsert", "b", 1)]
    for processor in ("p0", "p1"):
        reads.notify(processor=processor, synced=7 if processor == place else 5)
    answered = reads.take({"kind": "complete", "id": ask["id"], "places": [0, 1]})
    assert delivered(answered) == expected


def test_unregistering_an_ended_read_forgets_it(application):
    reads = application.start()
    reads.begin()
    reads.notify(ended="no more")
    assert reads.watching.unregister(0, 4, Unregister(1)) == (Complete(4),)
    assert reads.watching.describe() == []
    assert reads.ports.store.items("waiting ") == []
    assert application.start(reads.ports.store).watching.describe() == []


def test_unregistering_deletes_what_waits(application):
    reads = application.start()
    reads.begin()
    reads.notify_change()
    reads.watching.unregister(0, 4, Unregister(1))
    assert reads.ports.store.items("waiting ") == []


def test_handle_without_a_read_is_refused(application):
    with pytest.raises(ParameterError, match="no such continuous read"):
        application.listen(application.start())


def test_read_begun_without_a_callback_keeps_nothing_until_it_has_one(application):
    reads = application.start(max_waiting=1)
    assert [effect for effect in reads.register(listener="") if isinstance(effect, Notify)] == []
    ((_, ask),) = asks(reads.welcome("s"))
    reads.answer(ask, {"p0": 1, "p1": 1})
    reads.notify_change("a", 1, 6)
    reads.notify_change("b", 1, 7)
    (listed,) = reads.watching.describe()
    assert (listed["waiting"], listed["paused"]) == (0, False)
    assert delivered(application.listen(reads)) == []
    assert delivered(reads.notify_change("c", 1, 8)) == [("upsert", "c", 1)]
    assert delivered(reads.notify_change("a", 2, 9, op="remove")) == [("remove", "a", 2)]


def test_read_is_synced_when_all_processors_have_sent_what_existed(application):
    reads = application.start()
    assert reads.watching.describe() == []
    reads.begin(sync=0)
    assert not reads.watching.describe()[0]["synced"]
    reads.notify(synced=9)
    assert not reads.watching.describe()[0]["synced"]
    reads.notify(synced=9, processor="p1")
    again = application.start(reads.ports.store)
    assert again.watching.describe()[0]["synced"]


# -- registrations after a reconnection (Mobius 2: a client is brought up to date by its position)

KEYS = [f"record {number:03d}" for number in range(100)]


def deliver(reads, keys=KEYS):
    reads.begin()
    for number, key in enumerate(keys):
        reads.notify_change(key, 1, 6 + number)


@pytest.mark.parametrize(("count", "is_named"), [(16, True), (17, False)])
def test_few_delivered_keys_are_named_and_many_are_digested(reads, count, is_named):
    deliver(reads, KEYS[:count])
    ((_, ask),) = asks(reads.welcome("another"))
    assert ask["what"]["held"] == (KEYS[:count] if is_named else [])
    assert ("digests" in ask["what"]) is not is_named
    assert ask["what"].get("begun") == (None if is_named else {"0 1": 5})


def test_registration_has_a_size_independent_of_what_was_delivered(reads):
    deliver(reads, [f"{name} {part}" for name in KEYS for part in range(10)])
    ((_, ask),) = asks(reads.welcome("another"))
    assert len(ask["what"]["digests"]) == 8  # of the 16, those of one partition
    assert ask["what"]["held"] == []


def test_keys_of_unknown_buckets_are_named_until_the_read_is_registered(reads):
    deliver(reads)
    ((_, ask),) = asks(reads.welcome("another"))
    for place, unknown in (("p0", [2, 5]), ("p1", [])):
        reads.answer_part(ask, place, 2, data_seq=1, **({"unknown": unknown} if unknown else {}))
    ((_, again),) = asks(reads.take({"kind": "complete", "id": ask["id"], "places": [0, 1]}))
    buckets = Table(name="t", owner="news", split=["~"]).buckets_of(KEYS)
    assert again["what"]["held"] == sorted(buckets[2]) + sorted(buckets[5])
    assert [bucket for bucket, _ in again["what"]["digests"]] == sorted(set(buckets) - {2, 5})
    assert again["what"]["request"] > ask["what"]["request"]
    assert asks(reads.answer(again, {"p0": 2, "p1": 1})) == []
    ((_, ask),) = asks(reads.welcome("one more"))
    assert ask["what"]["held"] == []


def test_keys_are_named_while_the_table_is_unknown(reads):
    deliver(reads)
    reads.local.forget_tables("t", 2)
    ((_, ask),) = asks(reads.welcome("another"))
    assert ask["what"]["held"] == KEYS
    assert "digests" not in ask["what"]

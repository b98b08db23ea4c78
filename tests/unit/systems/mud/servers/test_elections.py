"""Elections of a master, and its leases, without a lab."""

from __future__ import annotations

import pytest
from mud_machines import ports, sent

from mudkit.events import Received, Send, TimerFired
from mudkit.systems.mud.messages.standbys import (
    Admission,
    CopyAck,
    Mastership,
    MastershipTaken,
    StoreAlive,
    StoreChange,
    StoreChanges,
    StoreCopy,
    SuspectStore,
)
from mudkit.systems.mud.servers.elections import PROBE, STORE_PROBE_US, Elections
from mudkit.systems.mud.servers.leases import LEASE_US, SILENT_US, Leases

STORES = ["s1", "s2", "s3"]


class Harness:
    """Elections of three stores, and a gateway."""

    def __init__(self):
        self.elections = Elections(ports("names"), STORES, ["gateway"])
        self.now_us = 10

    @property
    def present(self):
        return self.elections.master.present

    def take(self, source, message):
        return sent(self.elections.handle(self.now_us, Received(source, message)) or ())

    def suspect(self, address, source="gateway", known=None):
        return self.take(source, SuspectStore(address, known or self.present))

    def answer(self, store, term=0, seq=0, known=None, sent_us=None):
        at_us = self.now_us if sent_us is None else sent_us
        return self.take(store, StoreAlive(at_us, term, seq, f"start of {store}", known or self.present))

    def pass_time(self, us=STORE_PROBE_US):
        self.now_us += us
        return sent(self.elections.handle(self.now_us, TimerFired(PROBE)))


@pytest.fixture
def harness():
    return Harness()


def test_silent_master_is_replaced_by_the_latest_of_those_that_answer(harness):
    assert [to for to, _ in harness.suspect("s1")] == STORES
    harness.answer("s2", seq=7)
    harness.answer("s3", seq=8)
    harness.pass_time(STORE_PROBE_US - 1)
    assert harness.present.master == "s1"
    messages = harness.pass_time(1)
    assert [to for to, message in messages if message["kind"] == "mastership"] == [*STORES, "gateway"]
    assert (harness.present.master, harness.present.members) == ("s3", ["s2", "s3"])
    assert harness.present.incarnation == "start of s3"


def test_later_term_counts_more_than_more_changes(harness):
    harness.suspect("s1")
    harness.answer("s2", term=2, seq=1)
    harness.answer("s3", term=1, seq=9)
    harness.pass_time()
    assert harness.present.master == "s2"


def test_master_that_answers_stays(harness):
    harness.suspect("s1")
    harness.answer("s1")
    assert harness.pass_time() == []
    assert harness.present.epoch == 0


def test_standby_that_does_not_answer_is_no_member_any_more(harness):
    harness.suspect("s3", source="s1")
    harness.answer("s1")
    harness.pass_time()
    assert (harness.present.master, harness.present.term, harness.present.members) == ("s1", 0, ["s1", "s2"])


def test_master_that_has_started_is_elected_when_all_have_answered(harness):
    harness.suspect("s1", source="s1")
    for store in ("s1", "s2"):
        assert not [message for _, message in harness.answer(store, seq=3) if message["kind"] == "mastership"]
    harness.answer("s3", seq=3)
    assert (harness.present.master, harness.present.members) == ("s1", STORES)
    assert harness.present.incarnation == "start of s1"


def test_answers_from_before_a_start_do_not_count(harness):
    harness.suspect("s1", source="s1")
    for store in STORES:
        harness.answer(store, sent_us=harness.now_us - 1)
    assert harness.present.epoch == 0


def test_no_store_is_elected_if_no_member_answers(harness):
    harness.suspect("s1")
    harness.pass_time()
    assert harness.present.epoch == 0


def test_only_the_master_has_stores_admitted(harness):
    harness.suspect("s3", source="s1")
    harness.answer("s1")
    harness.pass_time()
    for source, epoch in (("s2", harness.present.epoch), ("s1", harness.present.epoch - 1)):
        harness.take(source, Admission("s3", epoch))
        assert harness.present.members == ["s1", "s2"]
    harness.take("s1", Admission("s3", harness.present.epoch))
    assert harness.present.members == ["s1", "s2", "s3"]


def test_suspicion_by_an_old_mastership_only_corrects_its_sender(harness):
    old = harness.present
    harness.take("s2", Mastership(9, 9, 0, "s2", ["s2", "s3"], "start"))
    assert [message["kind"] for _, message in harness.suspect("s1", known=old)] == ["mastership"]


def test_restored_naming_machine_takes_the_mastership_of_who_suspects(harness):
    """Otherwise it would elect one that is no member, and lacks what was acknowledged."""
    harness.suspect("s2", known=Mastership(9, 9, 0, "s2", ["s2"], "start"))
    harness.answer("s1")
    harness.pass_time()
    assert (harness.present.epoch, harness.present.master) == (9, "s2")


def test_mastership_of_unknown_stores_is_ignored(harness):
    harness.take("s2", Mastership(9, 9, 0, "s9", ["s9"], "start"))
    assert harness.present.epoch == 0


def test_mastership_is_sent_until_it_is_acknowledged(harness):
    harness.take("s2", Mastership(9, 9, 0, "s2", ["s2"], "start"))
    for server in (*STORES, "gateway"):
        assert len(harness.elections._in_flight) > 0
        harness.take(server, MastershipTaken(9))
    assert len(harness.elections._in_flight) == 0


# -- leases


ANSWER = Send("client", "answer")
CHANGE = StoreChange([("a", 1)])


def create_leases(required=("s2",)):
    return Leases(term=3, seq=5, required=required, values=lambda: [("a", 1)], from_us=0)


def messages_of(effects):
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]


def has_answer(effects):
    return ANSWER in effects


def test_without_standbys_everything_is_sent_at_once():
    leases = create_leases(required=())
    leases.add_change(CHANGE)
    leases.keep([ANSWER])
    assert leases.release(0) == [ANSWER]


def test_answer_waits_for_the_change_and_the_lease():
    leases = create_leases()
    assert messages_of(leases.release(0)) == [("s2", StoreCopy(3, 5, [("a", 1)], 0))]
    leases.receive_ack(1, "s2", CopyAck(3, 5, 0))
    leases.add_change(CHANGE)
    leases.keep([ANSWER])
    assert messages_of(leases.release(2)) == [("s2", StoreChanges(3, 5, [CHANGE], 2))]
    assert not has_answer(leases.receive_ack(3, "s2", CopyAck(2, 6, 2)))  # of another term
    assert has_answer(leases.receive_ack(3, "s2", CopyAck(3, 6, 2)))


def test_lease_counts_from_the_question():
    leases = create_leases()
    leases.release(0)
    leases.receive_ack(LEASE_US - 10, "s2", CopyAck(3, 5, 0))
    leases.keep([ANSWER])
    question = leases.release(LEASE_US)
    assert messages_of(question) == [("s2", StoreChanges(3, 5, [], LEASE_US))]
    assert has_answer(leases.receive_ack(LEASE_US + 5, "s2", CopyAck(3, 5, LEASE_US)))


def test_lease_is_renewed_when_it_is_half_over_and_something_is_sent():
    leases = create_leases()
    leases.release(0)
    leases.receive_ack(1, "s2", CopyAck(3, 5, 0))
    assert leases.release(LEASE_US - 1) == []
    leases.keep([ANSWER])
    assert has_answer(leases.release(1))
    leases.keep([ANSWER])
    assert messages_of(leases.release(LEASE_US // 2 + 1)) == [
        ("client", "answer"),
        ("s2", StoreChanges(3, 5, [], LEASE_US // 2 + 1)),
    ]


def test_silent_standby_is_reported_if_it_is_required():
    leases = create_leases()
    leases.release(0)
    leases.receive_ack(0, "s3", CopyAck(1, -1, 0))
    assert [to for to, _ in messages_of(leases.retransmit(SILENT_US - 1)[1])] == ["s2", "s3"]
    silent, again = leases.retransmit(2 * SILENT_US)
    assert silent == ["s2"]
    assert [to for to, _ in messages_of(again)] == ["s2"]


def test_standby_is_ready_when_it_has_what_others_were_told_of():
    leases = create_leases(required=())
    leases.receive_ack(0, "s3", CopyAck(1, -1, 0))
    leases.add_change(CHANGE)
    leases.keep([ANSWER])
    leases.release(1)
    leases.receive_ack(2, "s3", CopyAck(3, 5, 0))
    assert leases.admitting == {"s3"}
    assert not leases.is_ready("s3")
    leases.receive_ack(3, "s3", CopyAck(3, 6, 2))
    assert leases.is_ready("s3")


def test_nothing_is_sent_before_the_promise_of_the_master_has_ended():
    leases = Leases(3, 5, [], list, from_us=100)
    leases.keep([ANSWER])
    assert leases.release(99) == []
    assert leases.release(100) == [ANSWER]

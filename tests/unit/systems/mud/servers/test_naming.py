"""Naming machine: suspicions, probes, changes of the assignments, and what servers know of them."""

from __future__ import annotations

import pytest
from mud_machines import handle_event, is_dropped, ports, sent

from mudkit.events import LinkUp, TimerFired
from mudkit.systems.mud.messages.naming import Assignments, AssignmentsTaken, Suspect
from mudkit.systems.mud.servers.naming import PROBE_US, Naming
from mudkit.systems.mud.servers.ranges import Ranges

SERVERS = ["n1", "n2", "n3"]
PROCESSORS = ["q1", "q2", "q3"]
IN_TURNS = PROCESSORS * 12
"""Processors of the ranges of partitions, as installed."""
FOLLOWERS = [*SERVERS, *PROCESSORS, "g", "store", "p"]
REST = {"processors": IN_TURNS, "moved": []}
SECOND_US = 1_000_000


class Harness:
    """Naming machine of three notification servers and a processor."""

    def __init__(self, store_ports=None, servers=SERVERS, stores=("store",)):
        self.ports = store_ports or ports("names")
        self.machine = Naming(self.ports, servers, PROCESSORS, ["g"], ["r"], stores, ["p"])
        self.now_us = 0

    def take(self, kind, source, **fields):
        return handle_event(self.machine, kind, source, self.now_us, **fields)

    def suspect(self, address, source="p", epoch=0):
        return self.take("suspect", source, address=address, epoch=epoch)

    def tick(self, *alive, epoch=0):
        """Advance by a second; the servers ``alive`` answer probes at once. Return other messages."""
        self.now_us += SECOND_US
        messages = sent(self.machine.handle(self.now_us, TimerFired("probe")))
        for to, message in messages:
            if message["kind"] == "probe" and to in alive:
                messages += self.take("alive", to, sent_us=message["sent_us"], epoch=epoch)
        return [one for one in messages if one[1]["kind"] != "probe"]

    def judge(self, *alive, epoch=0):
        """Advance by the time of a suspicion; return the messages at its end."""
        messages = [self.tick(*alive, epoch=epoch) for _ in range(PROBE_US // SECOND_US)]
        return messages[-1]

    @property
    def present(self):
        return self.machine.ranges.present


@pytest.fixture
def harness():
    return Harness()


def test_suspected_server_is_probed_alone_at_first(harness):
    assert harness.suspect("n2") == [("n2", {"kind": "probe", "sent_us": 0})]
    assert harness.suspect("n2") == []
    harness.now_us = SECOND_US
    probed = sent(harness.machine.handle(SECOND_US, TimerFired("probe")))
    assert [to for to, _ in probed] == SERVERS


def test_server_that_answers_keeps_its_range(harness):
    harness.suspect("n2")
    harness.take("alive", "n2", sent_us=0, epoch=0)
    assert harness.judge("n1", "n3") == []
    assert harness.present == Assignments(0, SERVERS, IN_TURNS)


def test_late_copy_of_an_answer_is_no_sign_of_life(harness):
    harness.now_us = 5 * SECOND_US
    harness.suspect("n2")
    harness.take("alive", "n2", sent_us=4 * SECOND_US, epoch=0)
    harness.judge("n1", "n3")
    assert harness.present.servers == ["n1", "n1", "n3"]


def test_ranges_go_to_the_server_with_the_fewest_and_all_are_told(harness):
    harness.suspect("n1")
    messages = harness.judge("n2", "n3")
    epoch = harness.present.epoch
    assert (epoch, harness.present.servers) == (PROBE_US, ["n2", "n2", "n3"])
    expected = {"kind": "assignments", "epoch": epoch, "servers": ["n2", "n2", "n3"], **REST}
    assert messages == [(to, expected) for to in FOLLOWERS]
    for source in ("n2", "n3", *PROCESSORS, "g", "store", "p"):
        harness.take("assigned", source, epoch=epoch)
    again = sent(harness.machine.handle(harness.now_us + SECOND_US, TimerFired("tell")))
    assert again == [("n1", expected)]
    harness.suspect("n2", epoch=epoch)
    harness.judge("n3", epoch=epoch)
    assert harness.present.servers == ["n3"] * 3
    assert harness.present.epoch > epoch


def test_back_end_gets_the_assignments_at_its_master_and_at_the_next_one_until_one_has_them():
    harness = Harness(stores=["store", "standby"])
    harness.suspect("n1")
    messages = harness.judge("n2", "n3")
    assert [to for to, _ in messages] == FOLLOWERS
    epoch = harness.present.epoch
    elected = {"epoch": 5, "term": 5, "former_term": 0, "incarnation": "i"}
    members = {"master": "standby", "members": ["standby"]}
    sent_now = harness.take("mastership", "standby", **elected, **members)
    assert [to for to, message in sent_now if message["kind"] == "assignments"] == ["standby"]
    harness.take("assigned", "standby", epoch=epoch)
    back = {"master": "store", "members": ["standby", "store"]}
    sent_now = harness.take("mastership", "standby", **{**elected, "epoch": 6, "term": 6}, **back)
    assert [to for to, message in sent_now if message["kind"] == "assignments"] == []
    again = sent(harness.machine.handle(harness.now_us + SECOND_US, TimerFired("tell")))
    assert {to for to, _ in again}.isdisjoint(["store", "standby"])


def test_only_servers_that_have_answered_take_over(harness):
    harness.suspect("n1")
    harness.judge("n3")
    assert harness.present.servers == ["n3", "n2", "n3"]


def test_nothing_is_changed_if_no_server_answers(harness):
    harness.suspect("n1")
    assert harness.judge() == []
    assert harness.present.epoch == 0
    assert harness.suspect("n1") != []


def test_epoch_after_the_loss_of_the_store_is_a_new_one(harness):
    """It grows with the time, as generations do: the former epochs are in no store."""
    harness.suspect("n1")
    harness.judge("n2", "n3")
    wiped = Harness()
    wiped.now_us = harness.now_us
    wiped.suspect("n1")
    wiped.judge("n2")
    assert wiped.present.epoch > harness.present.epoch


def test_change_is_stored_and_told_again_after_a_restart(harness):
    assert sent(harness.machine.handle(0, LinkUp("names", "server"))) == []
    harness.suspect("n1")
    harness.judge("n2", "n3")
    again = Harness(harness.ports)
    messages = sent(again.machine.handle(harness.now_us, LinkUp("names", "server")))
    assert [(to, message["epoch"]) for to, message in messages] == [
        (to, harness.present.epoch) for to in FOLLOWERS
    ]


def test_naming_machine_asks_for_later_assignments_before_it_changes_anything(harness):
    assert harness.suspect("n2", "n1", epoch=7)[0] == ("n1", {"kind": "assignments?"})
    assert harness.judge("n1", "n3", epoch=7) == [("n3", {"kind": "assignments?"})]
    assert harness.present.epoch == 0
    later = ["n1", "n3", "n3"]
    expected = harness.take("assignments", "n3", epoch=7, servers=later, **REST)
    assert [to for to, _ in expected] == FOLLOWERS
    assert harness.present == Assignments(7, later, IN_TURNS)


def test_later_assignments_of_a_server_that_is_dead_too_are_not_waited_for(harness):
    harness.suspect("n2", "n1", epoch=7)
    harness.judge("n3")
    assert harness.present.epoch == 0
    harness.judge("n3")
    assert harness.present.servers == ["n1", "n3", "n3"]
    assert harness.present.epoch > 7


def test_sender_that_knows_less_is_told(harness):
    harness.take("assignments", "n3", epoch=7, servers=["n1", "n3", "n3"], **REST)
    expected = {"kind": "assignments", "epoch": 7, "servers": ["n1", "n3", "n3"], **REST}
    assert harness.suspect("n2", epoch=0) == [("p", expected)]  # it has no range
    assert harness.take("assignments?", "n1") == [("n1", expected)]


@pytest.mark.parametrize(
    ("kind", "source", "fields"),
    [
        ("suspect", "a phone", {"address": "n1", "epoch": 0}),
        ("suspect", "p", {"address": "n1"}),
        ("suspect", "p", {"address": 1, "epoch": 0}),
        ("assignments", "p", {"epoch": 9, "servers": ["n1", "n1"]}),
        ("assignments", "p", {"epoch": 9, "servers": ["n1", "n1", "a phone"]}),
        ("assignments", "a phone", {"epoch": 9, "servers": ["n1", "n1", "n1"]}),
        ("alive", "n1", {"sent_us": -1, "epoch": 0}),
    ],
)
def test_odd_messages_are_dropped(harness, kind, source, fields):
    assert is_dropped(harness.machine, kind, source, **fields)
    assert harness.present.epoch == 0


def test_unknown_server_is_not_probed(harness):
    assert harness.suspect("a phone") == []


def test_copy_of_the_assignments_is_durable_and_takes_only_a_higher_epoch():
    store_ports = ports("p")
    ranges = Ranges(store_ports, "names", SERVERS, PROCESSORS)
    assert ranges.present == Assignments(0, SERVERS, IN_TURNS)
    changed = Assignments(5, ["n1", "n3", "n3"], IN_TURNS)
    assert ranges.take(changed)
    assert not ranges.take(Assignments(4, SERVERS, IN_TURNS))
    assert not ranges.take(Assignments(5, SERVERS, IN_TURNS))
    assert Ranges(store_ports, "names", SERVERS, PROCESSORS).present == changed
    assert ranges.serving == ["n1", "n3"]


def test_copy_answers_the_naming_machine_and_corrects_who_knows_less():
    ranges = Ranges(ports("p"), "names", SERVERS, PROCESSORS)
    changed = Assignments(5, ["n1", "n3", "n3"], IN_TURNS)
    ranges.take(changed)
    (answer,) = ranges.answer("names", changed)
    assert (answer.to, answer.message) == ("names", AssignmentsTaken(5))
    assert ranges.answer("n3", changed) == ()
    (correction,) = ranges.answer("n3", Assignments(4, SERVERS, IN_TURNS))
    assert (correction.to, correction.message) == ("n3", changed)


def test_only_a_server_with_a_range_is_reported_and_only_if_another_could_have_it():
    ranges = Ranges(ports("p"), "names", SERVERS, PROCESSORS)
    ranges.take(Assignments(5, ["n1", "n3", "n3"], IN_TURNS))
    assert [effect.message for effect in ranges.suspect(0, "n1")] == [Suspect("n1", 5)]
    assert ranges.suspect(0, "n2") == ()
    assert Ranges(ports("p"), "names", ["n1"], ["q1"]).suspect(0, "n1") == ()


# -- processors


def test_ranges_of_a_dead_processor_are_shared_by_those_that_answer(harness):
    assert harness.suspect("q2", "n1") == [("q2", {"kind": "probe", "sent_us": 0})]
    harness.now_us = SECOND_US
    probed = sent(harness.machine.handle(SECOND_US, TimerFired("probe")))
    assert [to for to, _ in probed] == PROCESSORS
    harness.judge("q1", "q3")
    present = harness.present
    assert {name: present.processors.count(name) for name in PROCESSORS} == {"q1": 18, "q2": 0, "q3": 18}
    assert (present.servers, present.epoch > 0) == (SERVERS, True)
    kept = [owner for owner, before in zip(present.processors, IN_TURNS, strict=True) if before != "q2"]
    assert kept == ["q1", "q3"] * 12


def test_moved_partitions_of_a_dead_processor_go_to_the_processor_of_their_range(harness):
    moved = [[7, "0-4", "q2"], [7, "5", "q1"]]
    harness.take("assignments", "q1", epoch=3, servers=SERVERS, processors=IN_TURNS, moved=moved)
    assert harness.machine.ranges.processor_of(7, 1) == "q2"
    harness.suspect("q2", epoch=3)
    harness.judge("q1", "q3", epoch=3)
    assert harness.present.moved == [(7, "5", "q1")]


def test_processor_takes_over_only_when_it_knows_the_present_assignments(harness):
    """It may have been replaced before without hearing of it: then it has reads that are nobody's any more."""
    harness.suspect("q2")
    harness.judge("q1", "q3")
    epoch = harness.present.epoch
    harness.suspect("q1", epoch=epoch)
    harness.judge("q2", "q3", epoch=0)
    assert harness.present.epoch == epoch
    harness.suspect("q1", epoch=epoch)
    harness.judge("q2", "q3", epoch=epoch)
    assert set(harness.present.processors) == {"q2", "q3"}


def test_store_that_knows_only_ranges_of_netids_has_the_others_as_installed():
    store_ports = ports("p")
    store_ports.store.put("assignments", {"kind": "assignments", "epoch": 5, "servers": ["n1", "n3", "n3"]})
    assert Ranges(store_ports, "names", SERVERS, PROCESSORS).present == Assignments(
        5, ["n1", "n3", "n3"], IN_TURNS
    )


def test_server_is_reported_at_most_once_a_second():
    ranges = Ranges(ports("p"), "names", SERVERS, PROCESSORS)
    assert [len(ranges.suspect(now_us, "q1")) for now_us in (0, SECOND_US - 1, SECOND_US)] == [1, 0, 1]
    assert len(ranges.suspect(SECOND_US, "q2")) == 1

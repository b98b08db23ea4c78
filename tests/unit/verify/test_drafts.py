"""Judge of tables on the device: what it finds in answers that are not those of its mapping, and what it admits."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from mudkit import Lab
from mudkit.predicates import Predicate
from mudkit.systems.mud import Client, Cloud, ReadResult
from mudkit.systems.mud.device.own_reads import OwnReads
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.verify.campaign.drafts import DRAFT_STEPS, DRAFTS, Drafts, _Join
from mudkit.verify.campaign.work import MAIN
from mudkit.wire import as_wire

ANN = "ann-phone"


class Place:
    """A phone, and the judge of its drafts."""

    def __init__(self):
        self.lab = Lab(seed=1)
        self.client = Client(self.lab.device(ANN), Cloud(self.lab), app="app")
        self.log = {}
        self.drafts = Drafts(self.lab, {ANN: self.client}, {ANN: "x"}, self.log, Random(3))
        self.drafts.begin()
        self.book = self.drafts._books[ANN]

    def act(self, step=DRAFT_STEPS[0], times=20):
        for _ in range(times):
            self.drafts.act(step)
            self.lab.run(seconds=1)


@pytest.fixture
def place():
    return Place()


def test_each_step_leaves_the_one_state_that_the_device_has(place):
    for step in DRAFT_STEPS:
        place.act(step)
    place.drafts.end()
    (state,) = place.book.states
    assert {
        row["key"]: (row["version"], row["record"]) for row in place.client.holdings(DRAFTS).result(1)
    } == state
    assert len(place.book.past) > 10
    assert place.drafts.problems == place.drafts.sent == []


def test_record_that_nobody_has_written_is_found(place):
    place.act()
    place.client.write(DRAFTS, "a", {"n": 9, "v": "draft", "ref": "a"}).result(1)
    place.act(DRAFT_STEPS[1], 3)
    assert any("the drafts are" in problem for problem in place.drafts.problems)


def test_lost_call_has_an_effect_or_none(place):
    place.act(times=5)
    place.lab.faults.kill(ANN, at="before commit")
    while place.client.installed.machine is not None:  # a refused write commits nothing
        place.act(times=1)
    assert len(place.book.states) == 2
    place.lab.faults.restart(ANN)
    place.act(DRAFT_STEPS[1], 3)
    assert len(place.book.states) == 1
    assert place.drafts.problems == []


def test_wiped_device_must_have_no_table(place):
    place.act(times=5)
    place.drafts.record_loss(ANN, is_wiped=True)  # it was not
    place.act(times=1)
    assert "TableProblem" in place.drafts.problems[0]


def test_restored_device_must_have_an_earlier_state(place):
    place.act(times=3)
    backup = place.lab.faults.backup(ANN)
    place.act(times=5)
    place.lab.faults.restore(ANN, backup)
    place.drafts.record_loss(ANN, is_wiped=False)
    place.lab.run(seconds=1)
    place.act(times=3)
    place.drafts.end()
    assert len(place.book.states) == 1
    assert place.drafts.problems == []


def test_answer_that_comes_later_is_found(place):
    place.act(times=2)
    late = SimpleNamespace(status="ok", invoked_us=1, responded_us=2, result=lambda: None)
    place.book.settle(late, lambda state: (state, None))
    assert "had to wait" in place.drafts.problems[0]


def test_application_must_show_a_write_in_the_same_moment(place, monkeypatch):
    place.act(DRAFT_STEPS[1])
    place.act()
    assert place.drafts.problems == []
    monkeypatch.setattr(OwnReads, "deliver_writes", lambda self, *given: ())
    for _ in range(20):  # the table may be dropped meanwhile, and its read ends with it
        place.act(DRAFT_STEPS[1], 2)
        place.act(times=3)
    assert any("the application of" in problem for problem in place.drafts.problems)


def test_application_without_a_callback_is_not_judged(place):
    while place.book.follow is None or not place.book.follow.is_heard:
        place.act(DRAFT_STEPS[1], 1)
    place.client.installed.forget_listeners()
    place.drafts.forget_listener(ANN)
    place.act(times=4)
    place.drafts.find_reads(ANN)
    place.lab.run(seconds=1)
    place.act(times=4)
    assert place.drafts.problems == []


def test_message_with_a_name_of_the_drafts_is_found(place):
    place.client.read("t", "v = 'draft 1'")
    place.lab.run(seconds=1)
    assert place.drafts.sent


READ = {"invoked_us": 10, "responded_us": 20, "status": "ok"}


@pytest.mark.parametrize(
    ("numbers", "shown", "count"),
    [
        ([(5, 1)], ["d"], 0),
        ([(5, 1)], [], 1),
        ([(5, 1), (15, 2)], ["d"], 0),
        ([(5, 1), (15, 2)], [], 0),
        ([(5, 1), (9, 2)], ["d"], 1),
        ([(5, 1), (25, 2)], [], 1),
        ([], ["d"], 1),
    ],
)
def test_join_must_show_what_some_version_in_its_time_admits(place, numbers, shown, count):
    """``numbers`` are the versions of the record of the cloud, each with its time."""
    for version, (ts_us, number) in enumerate(numbers, 1):
        row = {"key": "a", "ver": version, "ts_us": ts_us, "data": {"n": number}, "predicate": None}
        place.log[version] = {"op": "row", "name": MAIN, "row": row}
    drafts = {"d": (1, {"n": 5, "ref": "a"})}
    operation = SimpleNamespace(**READ, result=lambda: ReadResult(records={key: {} for key in shown}))
    place.drafts._joins = [_Join(DRAFTS, {}, drafts, True, operation)]
    assert len(list(place.drafts.unjoined())) == count
    of_cloud = SimpleNamespace(**READ, result=lambda: ReadResult(records={"a": {}} if shown else {}))
    place.drafts._joins = [_Join(MAIN, {}, {"a": (1, {"n": 5})}, True, of_cloud)]
    expected = bool(numbers) != bool(shown)
    assert len(list(place.drafts.unjoined())) == expected


def test_hidden_record_of_the_cloud_is_joined_with_nothing(place):
    hidden = as_wire(SentPredicate.of(Predicate("receiver.group = 'y'")))
    row = {"key": "a", "ver": 1, "ts_us": 5, "data": {"n": 1}, "predicate": hidden}
    place.log[1] = {"op": "row", "name": MAIN, "row": row}
    operation = SimpleNamespace(**READ, result=lambda: ReadResult(records={"d": {}}))
    for group, count in (("x", 1), ("y", 0)):
        join = _Join(DRAFTS, {"group": group}, {"d": (1, {"n": 5, "ref": "a"})}, True, operation)
        place.drafts._joins = [join]
        assert len(list(place.drafts.unjoined())) == count

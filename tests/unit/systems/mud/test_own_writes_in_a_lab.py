"""Own writes in one's own continuous reads: at once as pending, then as the store has decided.

Rule (module docstring of ``device/read_records.py``): a change that is pending is followed by one that is not, as
soon as no own write of the record is pending: the committed version, or what was there before.
"""

from __future__ import annotations

import pytest
from mud_place import listen

from mudkit.systems.mud import Change, Conflict
from mudkit.systems.mud.device.own_writes import OwnWrites
from mudkit.systems.mud.policies.policies import NEVER

ARTS = {"topic": "arts"}


class Never:
    """Write policy that keeps all writes on the device."""

    def delay(self, write, context):
        return NEVER


def pending(kind, record, *, is_new=False):
    return Change(kind, "a", record, None, is_new=is_new, is_pending=True)


def shown(kind, record, version, *, is_new=False):
    return Change(kind, "a", record, version, is_new=is_new)


def create_news(place, name="ann", **more):
    client = place.client(name, **more)
    client.create("news").result()
    return client


@pytest.mark.parametrize("sync", [None, 0])
def test_write_is_shown_at_once_and_once_more_when_it_is_committed(place, sync):
    ann = create_news(place)
    changes = listen(ann, "topic = 'arts'", sync_timestamp=sync)
    ann.write("news", "a", ARTS)
    place.lab.run(seconds=0)
    assert changes == [pending("upsert", ARTS, is_new=True)]
    place.lab.run(minutes=1)
    assert changes[1:] == [shown("upsert", ARTS, 1)]


@pytest.mark.parametrize("sync", [None, 0])
@pytest.mark.parametrize("is_told_before", [False, True])
def test_write_does_not_leave_in_between_after_a_restart_of_the_back_end(place, sync, is_told_before):
    """The read was last told of the log before: nothing of the present one, so nothing newer."""
    ann = create_news(place)
    changes = listen(ann, "topic = 'arts'", sync_timestamp=sync)
    if is_told_before:
        ann.write("news", "z", ARTS).result()
    place.lab.run(minutes=1)
    changes.clear()
    back_end = place.cloud.back_end.split("/")[0]
    place.lab.faults.kill(back_end)
    place.lab.faults.restart(back_end)
    ann.write("news", "a", ARTS)
    place.lab.run(minutes=1)
    assert changes == [pending("upsert", ARTS, is_new=True), shown("upsert", ARTS, 1)]


def test_write_that_does_not_match_is_not_shown(place):
    ann = create_news(place)
    changes = listen(ann, "topic = 'arts'", data={"age": 9})
    ann.write("news", "a", {"topic": "sport"})
    ann.write("news", "b", ARTS, predicate="receiver.age >= 21")
    place.lab.run(minutes=1)
    assert changes == []


def test_write_that_only_the_cloud_can_judge_is_not_pending(place):
    ann = create_news(place)
    ann.create("members").result()
    ann.write("members", "ann", {"city": "Rome"}).result()
    changes = listen(ann, "lookup('members', author, 'city') = 'Rome'")
    ann.write("news", "a", {"author": "ann"})
    place.lab.run(seconds=0)
    assert changes == []
    place.lab.run(minutes=1)
    assert changes == [shown("upsert", {"author": "ann"}, 1, is_new=True)]


def test_delete_is_shown_at_once_and_once_more_when_it_is_committed(place):
    ann = create_news(place)
    ann.write("news", "a", ARTS).result()
    changes = listen(ann, sync_timestamp=0)
    place.lab.run(minutes=1)
    ann.delete("news", "a")
    place.lab.run(minutes=1)
    assert changes[1:] == [pending("remove", None), shown("remove", None, 2)]


def test_change_of_columns_is_shown_on_the_record_that_the_device_has(place):
    ann = create_news(place)
    ann.write("news", "a", {"n": 1}).result()
    changes = listen(ann, sync_timestamp=0)
    place.lab.run(minutes=1)
    ann.increment("news", "a", "n", 2)
    place.lab.run(minutes=1)
    assert changes[1:] == [pending("upsert", {"n": 3}), shown("upsert", {"n": 3}, 2)]


def test_conflict_brings_back_what_was_there_before(place):
    ann = create_news(place)
    ann.write("news", "a", {"n": 1}).result()
    changes = listen(ann, sync_timestamp=0)
    place.lab.run(minutes=1)
    place.lab.faults.cut("ann", minutes=5)
    mine = ann.write("news", "a", {"n": 2}, "conditional")
    place.client("bob").write("news", "a", {"n": 3}).result()
    place.lab.run(minutes=10)
    assert isinstance(mine.exception(), Conflict)
    assert changes[1] == pending("upsert", {"n": 2})
    assert changes[-1] == shown("upsert", {"n": 3}, 2)
    assert [change.version for change in changes[2:-1]] in ([], [1])


def test_refusal_removes_what_was_new(place):
    ann = place.client("ann")
    ann.create("news", write_rule="new.n < 5").result()
    changes = listen(ann, sync_timestamp=0)
    ann.write("news", "a", {"n": 7})
    place.lab.run(minutes=1)
    assert changes == [pending("upsert", {"n": 7}, is_new=True), shown("remove", None, 0)]


def test_cancelled_write_is_taken_back(place):
    ann = create_news(place)
    changes = listen(ann)
    place.lab.faults.cut("ann", minutes=5)
    place.lab.run(seconds=1)
    assert ann.write("news", "a", ARTS).cancel()
    place.lab.run(seconds=1)
    assert changes == [pending("upsert", ARTS, is_new=True), shown("remove", None, 0)]


def test_writes_that_become_one_are_shown_each_and_committed_once(place):
    ann = create_news(place)
    changes = listen(ann)
    place.lab.faults.cut("ann", minutes=5)
    place.lab.run(seconds=1)
    for n in (1, 2, 2):
        ann.write("news", "a", {"n": n})
    place.lab.run(minutes=10)
    assert changes == [
        pending("upsert", {"n": 1}, is_new=True), pending("upsert", {"n": 2}), shown("upsert", {"n": 2}, 1),
    ]  # fmt: skip


def test_version_of_another_writer_is_not_shown_over_an_own_pending_one(place):
    ann = create_news(place, write_policy=Never())
    changes = listen(ann)
    ann.write("news", "a", {"n": 1})
    place.client("bob").write("news", "a", {"n": 2}).result()
    place.lab.run(minutes=1)
    assert changes == [pending("upsert", {"n": 1}, is_new=True)]


def test_only_own_columns_are_shown(place):
    ann = create_news(place)
    changes = listen(ann, columns=["topic"])
    ann.write("news", "a", {**ARTS, "text": "long"})
    place.lab.run(minutes=1)
    assert changes == [pending("upsert", ARTS, is_new=True), shown("upsert", ARTS, 1)]


@pytest.mark.parametrize("options", [{"limit": 2}, {"aggregate": "count(*)"}])
def test_windows_and_aggregates_have_no_pending_writes(place, options):
    ann = create_news(place)
    changes = listen(ann, sync_timestamp=0, **options)
    place.lab.run(minutes=1)
    before = len(changes)
    place.lab.faults.cut("ann", minutes=5)
    place.lab.run(seconds=1)
    ann.write("news", "a", ARTS)
    place.lab.run(minutes=1)
    assert len(changes) == before
    place.lab.run(minutes=10)
    assert len(changes) == before + 1


def test_write_before_the_first_registration_is_shown_by_a_read_of_all(place):
    ann = create_news(place)
    place.lab.faults.cut("ann", minutes=5)
    place.lab.run(seconds=1)
    ann.write("news", "a", ARTS)
    all_changes, later = [], []
    ann.read("news", type="continuous", sync_timestamp=0, callback=all_changes.append)
    ann.read("news", type="continuous", callback=later.append)
    place.lab.run(seconds=1)
    assert (all_changes, later) == ([pending("upsert", ARTS, is_new=True)], [])
    place.lab.run(minutes=10)
    assert all_changes[1:] == [shown("upsert", ARTS, 1)]
    assert [change for change in later if change.is_pending] == later[:-1]


@pytest.mark.parametrize("is_told", [True, False])
def test_kill_between_leaves_the_application_with_what_is_committed(place, is_told):
    ann = create_news(place)
    changes = listen(ann, sync_timestamp=0)
    place.lab.faults.cut("ann", minutes=5)
    place.lab.run(seconds=1)
    ann.write("news", "a", ARTS)
    if is_told:
        place.lab.run(seconds=1)
    place.lab.faults.kill("ann")
    place.lab.faults.restart("ann")
    place.lab.run(minutes=10)
    ids = {change.id: change for change in changes}
    assert list(ids.values()) == [pending("upsert", ARTS, is_new=True), shown("upsert", ARTS, 1)]


def test_other_data_of_the_reader_judges_what_is_pending(place):
    ann = create_news(place, write_policy=Never())
    changes = []
    read = ann.read("news", type="continuous", data={"age": 9}, callback=changes.append).result()
    ann.write("news", "a", ARTS, predicate="receiver.age >= 21")
    place.lab.run(seconds=1)
    assert changes == []
    read.update_data({"age": 34})
    place.lab.run(seconds=1)
    assert changes == [pending("upsert", ARTS, is_new=True)]


def test_pending_writes_send_nothing_more(place, monkeypatch):
    def run(place):
        ann = create_news(place)
        listen(ann, sync_timestamp=0)
        for n in range(5):
            ann.write("news", "a", {"n": n})
            place.lab.run(seconds=20)
        return place.lab.bill().to_dict("records")

    bill = run(place)
    monkeypatch.setattr(OwnWrites, "pending_in", lambda self, stored, key: None)
    monkeypatch.setattr(OwnWrites, "committed_in", lambda self, read, write, version: None)
    assert run(type(place)()) == bill


def test_table_on_the_device_has_nothing_pending(place):
    ann = place.client("ann")
    ann.create("drafts", where="device").result()
    changes = listen(ann, table="drafts")
    ann.write("drafts", "a", ARTS)
    place.lab.run(seconds=1)
    assert changes == [shown("upsert", ARTS, 1, is_new=True)]

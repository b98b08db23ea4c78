"""A continuous read is an object: iterated over, looked at, cancelled, and usable as its handle."""

from __future__ import annotations

import asyncio

import pytest

from mudkit.errors import OperationLost, ParameterError, ReentrantRun, TableProblem
from mudkit.systems.mud import Change, ContinuousRead, PubSub


@pytest.fixture
def ann(place):
    client = place.client("ann", max_waiting=3)
    client.create("news").result()
    return client


def begin(client, **more):
    return client.read("news", type="continuous", **more).result()


def collect(read, *, minutes=5, act=None, count=None):
    """Return the changes of an iteration; ``act(n)`` is called after the n-th."""

    async def iterate():
        changes = []
        async for change in read.changes(minutes=minutes):
            changes.append(change)
            if act is not None:
                act(len(changes))
            if len(changes) == count:
                break
        return changes

    return asyncio.run(iterate())


def test_read_is_its_handle(place, ann):
    read = begin(ann)
    assert isinstance(read, ContinuousRead)
    assert read == 1
    assert (str(read), repr(read), {1: "x"}[read]) == ("1", "ContinuousRead(1)", "x")
    ann.update_data(read, {"age": 3}).result()
    assert ann.await_synced(int(read)).result() is None
    listed = ann.continuous_reads().result()[0]["handle"]
    assert isinstance(listed, ContinuousRead)
    heard = ann.listen(1, print).result()
    assert isinstance(heard, ContinuousRead)
    assert listed == heard == read
    assert isinstance(PubSub(ann, "news").subscribe("x", print).result(), ContinuousRead)


def test_iteration_begins_with_the_records_and_goes_on_with_each_change(place, ann):
    ann.write("news", "a", {"n": 1}).result()
    read = begin(ann, sync_timestamp=0)
    place.lab.run(minutes=1)
    bob = place.client("bob")

    def act(number):
        if number == 1:
            bob.write("news", "b", {"n": 2})

    first, second = collect(read, act=act)
    assert first == Change("upsert", "a", {"n": 1}, 1, is_new=True)
    assert second == Change("upsert", "b", {"n": 2}, 1, is_new=True)


def test_iteration_ends_at_its_limit_of_virtual_time(place, ann):
    read = begin(ann)
    before_us = place.lab.world.now_us
    assert collect(read, minutes=3) == []
    assert place.lab.world.now_us == before_us + 180_000_000


def test_iteration_runs_in_a_loop_that_runs_already(place, ann):
    read = begin(ann)
    ann.write("news", "a", {"n": 1})
    turns = []

    async def widget():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def cell():
        task = asyncio.create_task(widget())
        changes = [change async for change in read.changes(minutes=1)]
        task.cancel()
        return changes

    assert [change.is_pending for change in asyncio.run(cell())] == [True, False]
    assert len(turns) > 1


def test_plain_iteration_has_the_limit_of_an_operation(place, ann):
    read = begin(ann)

    async def iterate():
        return [change async for change in read]

    before_us = place.lab.world.now_us
    assert asyncio.run(iterate()) == []
    assert place.lab.world.now_us == before_us + 43_200_000_000


@pytest.mark.parametrize("minutes", [-1, "3", float("nan")])
def test_unusable_limit_is_refused(ann, minutes):
    with pytest.raises(ParameterError, match="minutes"):
        begin(ann).changes(minutes=minutes)


def test_iteration_in_a_callback_is_refused_in_words(place, ann):
    read = begin(ann)
    refused = []

    def callback(change):
        with pytest.raises(ReentrantRun) as error:
            asyncio.run(anext(read.changes()))
        refused.append(str(error.value))

    ann.listen(read, callback).result()
    ann.write("news", "a", {"n": 1})
    place.lab.run(seconds=0)
    assert "callback" in refused[0]
    assert "snapshot()" in refused[0]
    place.lab.run(minutes=1)
    assert len(refused) == 2  # it still has its callback


def test_cancelled_read_ends_its_iteration(place, ann):
    read = begin(ann)
    ann.write("news", "a", {"n": 1})

    def act(number):
        if number == 2:
            read.cancel()

    before_us = place.lab.world.now_us
    assert len(collect(read, act=act)) == 2
    assert place.lab.world.now_us < before_us + 60_000_000
    with pytest.raises(ParameterError, match="has ended"):
        read.snapshot()
    with pytest.raises(ParameterError, match="has ended"):
        collect(read)


def test_iteration_over_a_read_that_the_cloud_ends_raises_the_reason(place, ann):
    read = begin(ann)
    ann.drop("news")
    with pytest.raises(TableProblem, match="the table was dropped"):
        collect(read)


def test_changes_between_two_steps_wait_however_many_they_are(place, ann):
    read = begin(ann)
    bob = place.client("bob")
    bob.write("news", "first", {"n": 0})
    place.lab.run(seconds=5)

    def act(number):
        if number == 1:
            for n in range(20):
                bob.write("news", f"k{n:02}", {"n": n}).result()
            place.lab.run(minutes=1)

    changes = collect(read, act=act)
    assert [change.key for change in changes] == ["first", *(f"k{n:02}" for n in range(20))]


def test_iteration_that_was_left_can_begin_again(place, ann):
    read = begin(ann)
    ann.write("news", "a", {"n": 1})
    assert [change.version for change in collect(read, count=1)] == [None]
    place.lab.run(minutes=1)
    assert [change.version for change in collect(read, minutes=1)] == [1]


def test_iteration_over_aggregates_begins_with_their_values(place, ann):
    ann.write("news", "a", {"n": 1}).result()
    read = begin(ann, sync_timestamp=0, aggregate="count(*)")
    place.lab.run(minutes=1)
    ann.write("news", "b", {"n": 1})
    assert collect(read) == [{"count(*)": 1}, {"count(*)": 2}]
    assert read.snapshot().aggregates == {"count(*)": 2}


def test_iteration_goes_on_after_a_restart_of_the_device(place, ann):
    read = begin(ann)
    bob = place.client("bob")
    bob.write("news", "a", {"n": 1}).result()

    def act(number):
        if number == 1:
            place.lab.faults.kill("ann")
            bob.write("news", "b", {"n": 1}).result()
            place.lab.faults.restart("ann")

    assert [change.key for change in collect(read, act=act)] == ["a", "b"]


def test_snapshot_has_what_is_shown(place, ann):
    ann.write("news", "a", {"n": 1}).result()
    read = begin(ann, sync_timestamp=0)
    place.lab.run(minutes=1)
    assert read.synced
    ann.write("news", "b", {"n": 2})
    ann.delete("news", "a")
    snapshot = read.snapshot()
    assert (snapshot.records, snapshot.versions, snapshot.is_complete) == ({"b": {"n": 2}}, {"b": None}, True)
    place.lab.run(minutes=1)
    assert read.snapshot().versions == {"b": 1}


def test_snapshot_of_a_window_is_in_its_order(place, ann):
    for key, n in (("a", 1), ("b", 3), ("c", 2)):
        ann.write("news", key, {"n": n}).result()
    read = begin(ann, order="n DESC", limit=2)
    place.lab.run(minutes=1)
    assert list(read.snapshot().records) == ["b", "c"]


def test_read_of_a_killed_device_says_so(place, ann):
    read = begin(ann)
    place.lab.faults.kill("ann")
    with pytest.raises(OperationLost, match="does not run"):
        read.snapshot()
    with pytest.raises(OperationLost, match="does not run"):
        _ = read.synced

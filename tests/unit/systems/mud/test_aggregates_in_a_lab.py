"""Continuous reads of aggregates, computed where the data are (Mobius 3.1)."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import MudkitError, ParameterError, PredicateError
from mudkit.systems.mud import Client, Cloud


class World:
    """Lab with a reader, a writer and a table in two partitions of two processors."""

    def __init__(self):
        self.lab = Lab(seed=1)
        self.cloud = Cloud(self.lab, processors=2)
        self.reader, self.writer = (
            Client(self.lab.device(name), self.cloud, app="n", token=self.lab.token(name, "n"))
            for name in ("reader", "writer")
        )
        self.writer.create("t", split=["m"]).result()
        self.notified = []

    def begin(self, aggregate="count(*), sum(n)", text="n > 0", **options):
        options = {"callback": self.notified.append, "aggregate": aggregate, "sync_timestamp": 0, **options}
        handle = self.reader.read("t", text, "continuous", **options).result()
        self.lab.run(minutes=1)
        return handle

    def write(self, key, record, **options):
        self.writer.write("t", key, record, **options).result()
        self.lab.run(minutes=1)

    def values(self):
        return [tuple(aggregates.values()) for aggregates in self.notified]


@pytest.fixture
def world():
    return World()


def test_reader_is_notified_at_the_beginning_and_whenever_the_aggregates_change(world):
    world.write("a", {"n": 1, "text": "x" * 1000})
    world.write("z", {"n": 2})
    world.begin()
    assert world.notified == [{"count(*)": 2, "sum(n)": 3}]
    world.write("b", {"n": 3})
    world.write("b", {"n": 3, "other": True})  # the same values
    world.write("z", {"n": 5})
    world.write("c", {"n": 0})  # does not match
    world.writer.delete("t", "a").result()
    world.lab.run(minutes=1)
    assert world.values() == [(2, 3), (3, 6), (3, 9), (2, 8)]


def test_reader_without_sync_timestamp_is_notified_of_later_aggregates_only(world):
    world.write("a", {"n": 1})
    world.begin(sync_timestamp=None)
    assert world.notified == []
    world.write("b", {"n": 1})
    assert world.values() == [(2, 2)]


def test_hidden_records_do_not_count(world):
    world.write("a", {"n": 1}, predicate="receiver.age > 17")
    world.begin(data={"age": 3})
    world.write("b", {"n": 2}, predicate="receiver.age > 17")
    world.write("c", {"n": 4})
    world.write("c", {"n": 4}, predicate="receiver.age > 17")
    assert world.values() == [(0, None), (1, 4), (0, None)]


def test_read_that_is_registered_again_notifies_of_other_aggregates_only(world):
    world.write("a", {"n": 1})
    world.begin()
    for processor in world.cloud.processors:
        world.lab.faults.kill(processor.split("/")[0])
        world.lab.faults.restart(processor.split("/")[0])
    world.lab.run(minutes=2)
    assert world.values() == [(1, 1)]
    world.lab.faults.cut("reader", minutes=90)
    world.write("b", {"n": 1})
    world.write("c", {"n": 1})
    world.lab.run(hours=3)
    assert world.values() == [(1, 1), (3, 3)]


def test_last_aggregates_wait_for_an_application_that_was_started_again(world):
    handle = world.begin()
    world.reader.installed.forget_listeners()
    world.write("a", {"n": 1})
    world.write("b", {"n": 1})
    (read,) = world.reader.continuous_reads().result()
    assert (read["aggregate"], read["waiting"], read["paused"]) == ("count(*), sum(n)", 1, False)
    world.reader.listen(handle, world.notified.append).result()
    world.lab.run(minutes=1)
    assert world.values() == [(0, None), (2, 2)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sync_timestamp": 5.0}, "aggregates are of all records"),
        ({"utility": object()}, "utility"),
        ({"aggregate": "no such thing"}, None),
        ({"aggregate": "sum('a')"}, None),
    ],
)
def test_arguments_without_meaning_are_refused(world, options, error):
    with pytest.raises((ParameterError, PredicateError), match=error):
        world.begin(**options)


def test_columns_of_aggregates_are_checked_by_the_schema(world):
    world.writer.create("s", schema={"n": "number"}).result()
    with pytest.raises(MudkitError, match=r"There is no record\.m"):
        world.reader.read("s", None, "continuous", aggregate="sum(m)").result()

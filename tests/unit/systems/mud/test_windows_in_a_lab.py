"""Continuous reads of some columns, and windows of the first records in an order."""

from __future__ import annotations

from pathlib import Path

import pytest
from mud_changes import WatchedRecords
from mud_place import Place

from mudkit.errors import ParameterError, PredicateError
from mudkit.predicates import function
from mudkit.predicates.functions import remove
from mudkit.systems.mud import freshness
from mudkit.systems.mud.tables.selection import Selection

GUIDE = Path(__file__).parents[4] / "docs/guides/mud.md"
FRESH = freshness(1e6)


class Watched:
    """Lab with a table in two partitions of two processors, six records, and a continuous read by Bob."""

    def __init__(self, **options):
        self.place = Place(processors=2)
        self.ann, self.bob = self.place.client("ann"), self.place.client("bob")
        self.ann.create("t", split=["d"]).result()
        for key, number in zip("abcdef", (5, 1, 4, 2, 6, None), strict=True):
            record = {"title": key, "text": "x" * 2000}
            self.ann.write("t", key, record | ({} if number is None else {"n": number})).result()
        self.changes = []
        read = self.bob.read("t", type="continuous", callback=self.changes.append, **options)
        self.handle = read.result()
        self.bob.await_synced(self.handle).result()

    def after(self, *calls):
        """Wait for calls of Ann; return the changes of which the read was notified then, in words."""
        self.changes.clear()
        for call in calls:
            call.result()
            self.place.lab.run(seconds=5)
        return [f"{change.kind} {change.key}" for change in self.changes]


def show_all(changes, shown=None):
    """Return the keys of the records that an application shows after changes."""
    shown = dict(shown or {})
    for change in changes:
        shown[change.key] = change.record
        if change.kind == "remove":
            del shown[change.key]
    return shown.keys()


def test_window_begins_with_the_first_records_of_all_processors():
    """A record without the column of the order comes last, as in a plain read."""
    for limit, keys in ((2, "bd"), (5, "bdcae"), (6, "bdcaef")):
        watched = Watched(order="n", limit=limit, columns=["title"])
        assert show_all(watched.changes) == set(keys)
        for change in watched.changes:
            assert change.record in (None, {"title": change.key})


def test_record_that_leaves_a_window_pulls_in_the_next():
    watched = Watched(order="n", limit=2)
    assert watched.after(watched.ann.delete("t", "b")) == ["remove b", "upsert c"]
    assert watched.after(watched.ann.write("t", "e", {"n": 0})) == ["remove c", "upsert e"]
    assert [change.is_new for change in watched.changes] == [False, True]
    assert watched.after(watched.ann.write("t", "d", {"n": 9})) == ["remove d", "upsert c"]
    assert watched.after(watched.ann.write("t", "d", {"n": 8})) == []
    assert watched.after(watched.ann.write("t", "e", {"n": 1})) == ["upsert e"]
    assert [change.is_new for change in watched.changes] == [False]
    assert watched.after(watched.ann.write("t", "c", {})) == ["remove c", "upsert a"]


def test_columns_of_a_continuous_read_are_not_held():
    """They answer no plain read, nor does an older version that the device holds."""
    watched = Watched(columns=["title"], sync_timestamp=0)
    assert {change.key: change.record for change in watched.changes} == {
        key: {"title": key} for key in "abcdef"
    }
    assert watched.bob.holdings("t").result() == []
    watched.bob.read("t").result()
    watched.after(watched.ann.write("t", "a", {"title": "new"}))
    assert watched.bob.read("t", "key = 'a'", utility=FRESH).result().source == {"a": "remote"}


def test_window_does_not_answer_its_query():
    watched = Watched(order="n", limit=2)
    keys = {record["key"] for record in watched.bob.holdings("t").result()}
    assert keys == set("bcde")  # the first two of each processor
    assert set(watched.bob.read("t", utility=FRESH).result().source.values()) == {"remote"}
    point = watched.bob.read("t", "key = 'b'", utility=FRESH).result()
    assert (point.source, point.age_s) == ({"b": "local"}, {"b": 0.0})  # it would be told of a change


def test_other_reader_data_change_a_window_at_once():
    watched = Watched(order="n", limit=2, data={"group": "x"})
    hidden = watched.ann.write("t", "g", {"n": 0}, predicate="receiver.group = 'y'")
    assert watched.after(hidden) == []
    assert watched.after(watched.bob.update_data(watched.handle, {"group": "y"})) == ["remove d", "upsert g"]
    assert watched.after(watched.bob.update_data(watched.handle, {"group": "x"})) == ["remove g", "upsert d"]


def test_column_of_the_order_that_is_removed_orders_by_key():
    watched = Watched(order="n DESC", limit=2)
    changes = watched.after(watched.ann.alter("t", remove=["n"]))
    assert show_all(watched.changes, shown={"e": None, "a": None}) == {"a", "b"}
    assert len(changes) == len(set(changes)), "a change is repeated"


def test_listed_window_has_its_options():
    watched = Watched(columns=["title"], order="n DESC", limit=2)
    (read,) = watched.bob.continuous_reads().result()
    assert (read["columns"], read["order"], read["limit"]) == (["title"], "n DESC", 2)
    assert read["synced"]


def test_restored_device_shows_the_present_window():
    watched = Watched(order="n", limit=2)
    lab = watched.place.lab
    backup = lab.faults.backup("bob")
    for call in (watched.ann.delete("t", "b"), watched.ann.write("t", "e", {"n": 0})):
        call.result()
    lab.run(seconds=5)
    lab.faults.kill("bob")
    lab.faults.restore("bob", backup)
    lab.faults.restart("bob")
    changes = []
    watched.bob.listen(watched.handle, changes.append).result()
    lab.run(minutes=5)
    assert show_all(changes, shown={"b": None, "d": None}) == {"d", "e"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"limit": 0}, "1"),
        ({"order": "n"}, "limit"),
        ({"order": "n sideways", "limit": 2}, "order"),
        ({"columns": "title"}, "columns"),
        ({"limit": 2, "sync_timestamp": 5.0}, "sync_timestamp"),
        ({"limit": 2, "aggregate": "count(*)"}, "selection"),
        ({"columns": ["title"], "aggregate": "count(*)"}, "selection"),
    ],
)
def test_options_without_a_meaning_are_refused(options, expected):
    place = Place()
    ann = place.client("ann")
    ann.create("t").result()
    with pytest.raises(ParameterError, match=expected):
        ann.read("t", type="continuous", **options)


@pytest.mark.parametrize("where", ["cloud", "device"])
@pytest.mark.parametrize("knows_table", [True, False])
def test_columns_that_the_schema_lacks_are_refused(where, knows_table):
    place = Place()
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("t", schema={"title": "text"}, where=where).result()
    reader = ann if knows_table or where == "device" else bob
    for options in ({"columns": ["titel"]}, {"order": "titel", "limit": 2}):
        with pytest.raises(ParameterError, match="title"):
            reader.read("t", type="continuous", **options).result()


@pytest.fixture
def touchy():
    @function("touchy", returns="boolean")
    def touchy(x: float) -> bool:
        if x < 0:
            raise ValueError("too small")
        return x > 0

    yield touchy
    remove("touchy")


@pytest.mark.usefixtures("touchy")
def test_read_on_the_device_whose_predicate_fails_ends():
    """The write on the device is not refused for it, as in the cloud."""
    place = Place()
    ann = place.client("ann")
    ann.create("t", where="device").result()
    heard = []
    ann.read("t", "touchy(n)", "continuous", callback=heard.append).result()
    ann.write("t", "a", {"n": -1}).result()
    place.lab.run(seconds=1)
    assert [set(notice) for notice in heard] == [{"ended"}]
    with pytest.raises(PredicateError):
        ann.read("t", "touchy(n)", "continuous", callback=heard.append).result()


ROWS = {
    "all": None,
    '`order="n DESC", limit=20`': Selection(None, "n", is_descending=True, limit=20),
    'the same, `columns=["n"]`': Selection(["n"], "n", is_descending=True, limit=20),
}


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("row", ROWS)
def test_window_costs_what_the_guide_says(row):
    """A thousand of 100,000 records change each second, for ten seconds."""
    watched = WatchedRecords(100_000, ROWS[row])
    cost = [watched.first, watched.take(*watched.draw_changes(10_000))]
    cells = " | ".join(f"{messages:,} | {count / 1000:,.1f}" for messages, count in cost)
    assert f"| {row} | {cells} |" in GUIDE.read_text(encoding="utf-8")

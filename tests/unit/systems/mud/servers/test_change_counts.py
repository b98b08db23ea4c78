"""Changes of watched queries: what a processor counts and reports, and what the policy generator keeps."""

from __future__ import annotations

import pytest

from mudkit.events import Send, SetTimer
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.usage import ChangeItem, ChangeReport, WatchedQueries, WatchedQuery
from mudkit.systems.mud.servers import change_counts
from mudkit.systems.mud.servers.change_counts import REPORT_US, ChangeCounts
from mudkit.systems.mud.servers.usage_sample import UsageSample
from mudkit.systems.mud.tables.table import Table

ARTS, KEY = WatchedQuery("news", "topic = 'arts'"), WatchedQuery("news", "key = 'k'")
MINUTE_US = 60_000_000


def row(topic, key="k"):
    data = None if topic is None else {"topic": topic}
    return Row(key=key, ver=1, ts_us=1, lsn=1, predicate=None, data=data)


@pytest.fixture
def counts():
    counts = ChangeCounts("generator")
    counts.begin(5)
    counts.watch(0, WatchedQueries([ARTS, KEY]))
    return counts


def reported(counts):
    (sent,) = counts.report()
    return sent.message


def record(counts, now_us, before, after):
    table = Table(name="news", owner="app", number=1)
    return counts.record(now_us, table, None if before is None else row(before), row(after))


def test_query_that_is_watched_is_reported_as_begun(counts):
    report = reported(counts)
    assert (report.generation, report.queries) == (5, [ARTS, KEY])
    assert report.items == [ChangeItem(0, 0, 0, 0), ChangeItem(1, 1, 0, 0)]
    assert counts.report() == ()
    counts.watch(9, WatchedQueries([KEY, ARTS]))  # the same again: nothing begins
    assert counts.report() == ()


def test_records_that_come_into_a_query_or_leave_it_are_changes(counts):
    reported(counts)
    for minute, (before, after) in enumerate(
        [(None, "arts"), ("arts", "arts"), ("arts", "sport"), ("sport", "sport"), ("arts", None)]
    ):
        record(counts, 2 * minute * MINUTE_US, before, after)
    items = [item for item in reported(counts).items if item.query == 0]
    assert [(item.t_ms // 120_000, item.changes) for item in items] == [(0, 1), (1, 1), (2, 1), (4, 1)]


def test_changes_of_a_minute_are_one_item(counts):
    reported(counts)
    effects = [record(counts, second * 1_000_000, "arts", "arts") for second in (0, 10, 59, 61)]
    assert effects[0] == [SetTimer("changes", REPORT_US)]
    assert effects[1:] == [[]] * 3
    items = [item for item in reported(counts).items if item.query == 0]
    assert [(item.t_ms, item.changes) for item in items] == [(59_000, 3), (61_000, 1)]


def test_numbers_show_what_was_dropped(counts, monkeypatch):
    monkeypatch.setattr(change_counts, "_MAX_WAITING", 3)
    for minute in range(4):
        record(counts, 2 * minute * MINUTE_US, "sport", "sport")  # of the key alone
    assert [item.number for item in reported(counts).items] == [3, 4, 5]


@pytest.mark.parametrize(
    "text",
    ["topic = receiver.topic", "EXISTS(SELECT * FROM friends WHERE a = 1)", "topic =", "topic = auth.user"],
)
def test_query_that_does_not_follow_from_its_records_is_not_watched(text):
    counts = ChangeCounts("generator")
    counts.begin(1)
    counts.watch(0, WatchedQueries([WatchedQuery("news", text)]))
    assert not counts.is_watching("news")
    assert counts.report() == ()


def test_another_generation_forgets_and_requests(counts):
    (request,) = counts.begin(6)
    assert isinstance(request, Send)
    assert not counts.is_watching("news")
    assert counts.report() == ()
    assert ChangeCounts(None).begin(1) == ()


def test_generator_keeps_each_item_once_and_begins_anew_after_a_gap():
    sample = UsageSample(MemoryStore(), 10**15)

    def take(*items, generation=5):
        report = ChangeReport(generation, [ARTS, KEY], [ChangeItem(*item) for item in items])
        return [
            (record.row["query"], record.row["t_us"] // 1000, record.row["records"])
            for record in sample.take_changes(1, "p-0/mud", report)
        ]

    assert take((0, 0, 10, 0), (1, 1, 10, 0)) == [(ARTS.text, 10, 0), (KEY.text, 10, 0)]
    assert take((1, 1, 10, 0), (2, 0, 20, 3)) == [(ARTS.text, 20, 3)]
    assert take((5, 1, 50, 2)) == [(ARTS.text, 50, 0), (KEY.text, 50, 0), (KEY.text, 50, 2)]
    assert take((0, 0, 60, 0), generation=6) == [(ARTS.text, 60, 0)]
    assert sample.lost() == {"p-0/mud": 2}
    assert len(sample) == 7
    assert sample.forget("ann") == 0


def test_query_that_is_read_most_of_each_table_is_watched():
    assert UsageSample(MemoryStore(), 1).most_read(64) == []

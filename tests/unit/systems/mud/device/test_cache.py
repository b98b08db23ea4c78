"""Cache of a client: answers from the local store, and their age, completeness, and bias."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mud_machines import ports

from mudkit.predicates import Predicate, function
from mudkit.predicates.functions import remove
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.cache import Cache, may_match
from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.followed import FollowedQueries
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.tables.queries import keys_of
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.table import Table

MINUTE_US = 60_000_000


def make_row(key, n=1, predicate=None):
    return HeldRow(key, 1, {"n": n}, SentPredicate.of(predicate), 1, 1, 0)


def make_write(key, n):
    return PendingWrite(seq=1, name="t", key=key, type="blind", data={"n": n})


def make_query(text, kind="committed", **reader):
    return Query("t", None if text is None else Predicate(text), kind, reader, None)


class Device:
    """Cache over a local store; partitions begin at the empty key and at m."""

    def __init__(self, max_rows=100):
        self.local = Local(ports(), max_rows)
        table = Table.create("t", "app", {"acl": "public", "split": ["m"]}, 1)
        self.local.store_table(table)
        access = Access(ports().store, self.local, Connection("ann/app", None))
        self.followed = FollowedQueries(self.local)
        self.cache = Cache(self.local, access, self.followed)

    def answer(self, text, *rows, at_us=0):
        losses = self.local.losses["t"].copy()
        for version in rows:
            self.local.hold_row("t", replace(version, held_us=at_us))
        versions = {version.key: version.ver for version in rows}
        return self.cache.record_answer(at_us, make_query(text), {}, versions, losses)

    def find(self, text, kind="committed", at_us=MINUTE_US, only_pending=False, **reader):
        query = make_query(text, kind, **reader)
        return self.cache.find_answer(at_us, query, keys_of(query.predicate), only_pending=only_pending)


@pytest.fixture
def device():
    return Device()


def quality_of(cached):
    return cached.quality.age_s, cached.quality.completeness, cached.quality.bias


def test_empty_cache_has_completeness_zero(device):
    for text in (None, "n = 1", "key = 'a'"):
        assert device.find(text).versions == {}
        assert device.find(text).quality.completeness == 0.0


def test_answer_is_complete_when_all_keys_are_stored(device):
    device.local.hold_row("t", make_row("a"))
    device.local.hold_row("t", replace(make_row("b", n=2), held_us=MINUTE_US // 2))
    result = device.find("key IN ('a', 'b') AND n = 2")
    assert list(result.versions) == ["b"]
    assert quality_of(result) == (60.0, 1.0, 0.0)  # "a" was stored a minute ago, and does not match


def test_completeness_and_bias_reflect_missing_keys(device):
    for key in ("a", "b", "x"):
        device.local.hold_row("t", make_row(key))
    assert quality_of(device.find("key IN ('a', 'x', 'y')")) == (60.0, 2 / 3, 0.5)
    assert quality_of(device.find("key IN ('a', 'b', 'x', 'c', 'd', 'y')")) == (60.0, 0.5, 0.0)


def test_query_contained_in_an_answered_query_is_complete(device):
    device.answer("n > 0", make_row("a"), make_row("x", n=5), at_us=MINUTE_US // 2)
    assert quality_of(device.find("n > 0")) == (30.0, 1.0, 0.0)
    assert list(device.find("n > 0 AND n < 3").versions) == ["a"]
    assert device.find("n < 3").quality.completeness == 0.0
    assert device.find("n > 0", age=30).quality.completeness == 0.0  # another reader may see other records
    assert quality_of(device.find("key = 'b' AND n > 0")) == (30.0, 1.0, 0.0)


def test_evicted_records_reduce_completeness_of_their_partition(device):
    device.answer(None, make_row("a"), make_row("b"), make_row("x"))
    device.local.evict("t", "b")
    assert quality_of(device.find(None)) == (60.0, 2 / 3, 0.5)
    assert quality_of(device.find("key = 'a'")) == (60.0, 1.0, 0.0)
    device.answer(None, make_row("a"), make_row("x"), at_us=MINUTE_US)
    assert quality_of(device.find(None)) == (0.0, 1.0, 0.0)


def test_most_complete_containing_answer_is_used(device):
    device.answer("n > 0", make_row("a"))
    device.answer(None, make_row("a"), make_row("b"), at_us=10)
    device.local.evict("t", "b")
    device.answer("n > 0 AND n < 9", make_row("a"), at_us=20_000_000)
    assert quality_of(device.find("n > 0 AND n < 9")) == (40.0, 1.0, 0.0)


def test_answer_larger_than_the_store_is_incomplete():
    device = Device(max_rows=2)
    device.answer(None, make_row("a"), make_row("b"), make_row("c"))
    assert quality_of(device.find(None)) == (60.0, 2 / 3, 0.0)


def test_pending_writes_count_for_uncommitted_reads_only(device):
    device.local.hold_row("t", make_row("a"))
    device.local.add_write(make_write("a", 7))
    assert device.find("key = 'a'").versions["a"].data == {"n": 1}
    result = device.find("key = 'a'", "uncommitted")
    assert result.versions["a"].data == {"n": 7}
    assert result.quality.age_s < 0


def test_pending_writes_alone_are_complete_only_for_their_keys(device):
    device.answer(None, make_row("a"), make_row("b"))
    device.local.add_write(make_write("a", 7))
    assert device.find("key = 'a'", "uncommitted", only_pending=True).quality.completeness == 1.0
    assert device.find("key = 'b'", "uncommitted", only_pending=True).quality.completeness == 0.0
    assert device.find(None, "uncommitted", only_pending=True).quality.completeness == 0.0


def test_record_answer_compares_with_previous_answer(device):
    assert device.answer("n > 0", make_row("a")) is None
    assert device.answer("n > 0", make_row("a"), at_us=MINUTE_US) == (60.0, False)
    assert device.answer("n > 0", make_row("a"), make_row("b"), at_us=3 * MINUTE_US) == (120.0, True)
    assert [query.age_s for query in device.cache.cached_answers(4 * MINUTE_US, {})] == [60.0]


def test_number_of_answered_queries_is_bounded(device):
    for number in range(100):
        device.answer(f"n = {number}", at_us=number)
    assert len(device.cache.cached_answers(100, {})) == 64
    assert device.find("n = 35").quality.completeness == 0.0
    assert device.find("n = 36").quality.completeness == 1.0


def test_records_hidden_by_their_writer_are_not_returned(device):
    hidden = make_row("a", predicate=(Predicate("receiver.age >= 21")))
    device.local.hold_row("t", hidden)
    assert device.find("key = 'a'", age=20).versions == {}
    assert list(device.find("key = 'a'", age=21).versions) == ["a"]


def test_no_local_answer_when_the_predicate_fails(device):
    @function("inverse", returns="number")
    def inverse(x: float) -> float:
        return 1 / x

    try:
        device.answer("inverse(n) > 0", make_row("a"))
        assert device.find("inverse(n) > 0").versions.keys() == {"a"}
        device.answer("n >= 0", make_row("a"), make_row("b", 0))
        assert device.find("inverse(n) > 0") is None
        positive, negative = make_query("inverse(n) > 0"), make_query("inverse(n) < 0")
        assert [
            may_match(device.cache.matcher(query), make_row("a", 1)) for query in (positive, negative)
        ] == [
            True,
            False,
        ]
        assert [
            may_match(device.cache.matcher(query), make_row("b", 0)) for query in (positive, negative)
        ] == [
            True,
            True,
        ]
    finally:
        remove("inverse")


def test_records_whose_writer_predicate_needs_the_cloud_are_missing(device):
    by_table = Predicate("lookup('people', auth.user, 'n') = 1")
    device.answer(
        "n >= 0",
        make_row("a", predicate=by_table),
        make_row("b"),
        make_row("z", predicate=(Predicate("TRUE"))),
    )
    answer = device.find("n >= 0")
    assert answer.versions.keys() == {"b", "z"}
    assert quality_of(answer)[1] == 2 / 3
    assert device.find("key = 'a'").versions == {}
    assert quality_of(device.find("key = 'a'"))[1] == 0.0
    assert device.find("key IN ('b', 'z')").versions.keys() == {"b", "z"}
    assert may_match(device.cache.matcher(make_query("n >= 0")), make_row("a", predicate=by_table))
    pending = replace(make_write("a", 1), predicate=SentPredicate.of(by_table))
    assert device.cache.matcher(make_query("n >= 0"))(pending) is False

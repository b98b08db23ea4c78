"""What a client can answer by itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mud_machines import ports

from mudkit.predicates import Predicate, function
from mudkit.predicates.functions import remove
from mudkit.systems.mud.device.cache import Cache
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite
from mudkit.systems.mud.policies.policies import Query
from mudkit.systems.mud.tables.queries import keys_of
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.table import Table

MINUTE_US = 60_000_000


def row(key, n=1, predicate=None):
    return HeldRow(key, 1, {"n": n}, SentPredicate.of(predicate), 1, 1, 0)


def write(key, n):
    return PendingWrite(number=1, name="t", key=key, type="blind", data={"n": n})


def asked(text, kind="committed", **reader):
    return Query("t", None if text is None else Predicate(text), kind, reader, None)


class Device:
    """A cache over a store; partitions begin at the empty key and at m."""

    def __init__(self, max_rows=100):
        self.local = Local(ports(), max_rows)
        table = Table.created("t", "app", {"acl": "public", "split": ["m"]}, 1)
        self.local.learn(table)
        self.cache = Cache(self.local)

    def answered(self, text, *rows, at_us=0):
        losses = self.local.losses["t"].copy()
        for each in rows:
            self.local.hold("t", replace(each, held_us=at_us))
        versions = {each.key: each.ver for each in rows}
        return self.cache.record_answer(at_us, asked(text), {}, versions, losses)

    def find(self, text, kind="committed", at_us=MINUTE_US, latest=False, **reader):
        query = asked(text, kind, **reader)
        return self.cache.find(at_us, query, keys_of(query.predicate), latest=latest)


@pytest.fixture
def device():
    return Device()


def quality(held):
    return held.quality.age_s, held.quality.completeness, held.quality.bias


def test_an_empty_cache_knows_nothing(device):
    for text in (None, "n = 1", "key = 'a'"):
        assert device.find(text).versions == {}
        assert device.find(text).quality.completeness == 0.0


def test_keys_that_are_all_held_are_complete(device):
    device.local.hold("t", row("a"))
    device.local.hold("t", replace(row("b", n=2), held_us=MINUTE_US // 2))
    result = device.find("key IN ('a', 'b') AND n = 2")
    assert list(result.versions) == ["b"]
    assert quality(result) == (60.0, 1.0, 0.0)  # that a does not match is known for a minute


def test_of_keys_that_are_not_all_held_some_are_missing(device):
    for key in ("a", "b", "x"):
        device.local.hold("t", row(key))
    assert quality(device.find("key IN ('a', 'x', 'y')")) == (60.0, 2 / 3, 0.5)
    assert quality(device.find("key IN ('a', 'b', 'x', 'c', 'd', 'y')")) == (60.0, 0.5, 0.0)


def test_a_query_within_one_that_was_answered_is_complete(device):
    device.answered("n > 0", row("a"), row("x", n=5), at_us=MINUTE_US // 2)
    assert quality(device.find("n > 0")) == (30.0, 1.0, 0.0)
    assert list(device.find("n > 0 AND n < 3").versions) == ["a"]
    assert device.find("n < 3").quality.completeness == 0.0
    assert device.find("n > 0", age=30).quality.completeness == 0.0  # another reader sees something else
    assert quality(device.find("key = 'b' AND n > 0")) == (30.0, 1.0, 0.0)


def test_what_was_let_go_is_missing_where_it_was(device):
    device.answered(None, row("a"), row("b"), row("x"))
    device.local.evict("t", "b")
    assert quality(device.find(None)) == (60.0, 2 / 3, 0.5)
    assert quality(device.find("key = 'a'")) == (60.0, 1.0, 0.0)
    device.answered(None, row("a"), row("x"), at_us=MINUTE_US)
    assert quality(device.find(None)) == (0.0, 1.0, 0.0)


def test_of_several_answers_that_contain_it_the_best_counts(device):
    device.answered("n > 0", row("a"))
    device.answered(None, row("a"), row("b"), at_us=10)
    device.local.evict("t", "b")
    device.answered("n > 0 AND n < 9", row("a"), at_us=20_000_000)
    assert quality(device.find("n > 0 AND n < 9")) == (40.0, 1.0, 0.0)


def test_an_answer_that_does_not_fit_into_the_store_is_not_complete():
    device = Device(max_rows=2)
    device.answered(None, row("a"), row("b"), row("c"))
    assert quality(device.find(None)) == (60.0, 2 / 3, 0.0)


def test_pending_writes_count_for_uncommitted_reads_only(device):
    device.local.hold("t", row("a"))
    device.local.add(write("a", 7))
    assert device.find("key = 'a'").versions["a"].data == {"n": 1}
    result = device.find("key = 'a'", "uncommitted")
    assert result.versions["a"].data == {"n": 7}
    assert result.quality.age_s < 0


def test_the_latest_is_here_only_if_it_is_pending(device):
    device.answered(None, row("a"), row("b"))
    device.local.add(write("a", 7))
    assert device.find("key = 'a'", "uncommitted", latest=True).quality.completeness == 1.0
    assert device.find("key = 'b'", "uncommitted", latest=True).quality.completeness == 0.0
    assert device.find(None, "uncommitted", latest=True).quality.completeness == 0.0


def test_an_answer_is_compared_with_the_one_before(device):
    assert device.answered("n > 0", row("a")) is None
    assert device.answered("n > 0", row("a"), at_us=MINUTE_US) == (60.0, False)
    assert device.answered("n > 0", row("a"), row("b"), at_us=3 * MINUTE_US) == (120.0, True)
    assert [each.age_s for each in device.cache.answered(4 * MINUTE_US)] == [60.0]


def test_the_queries_that_are_remembered_are_bounded(device):
    for number in range(100):
        device.answered(f"n = {number}", at_us=number)
    assert len(device.cache.answered(100)) == 64
    assert device.find("n = 35").quality.completeness == 0.0
    assert device.find("n = 36").quality.completeness == 1.0


def test_what_its_writer_hides_is_not_returned(device):
    hidden = row("a", predicate=(Predicate("receiver.age >= 21")))
    device.local.hold("t", hidden)
    assert device.find("key = 'a'", age=20).versions == {}
    assert list(device.find("key = 'a'", age=21).versions) == ["a"]


def test_where_its_predicate_fails_a_read_is_not_answered_from_here(device):
    @function("inverse", returns="number")
    def inverse(x: float) -> float:
        return 1 / x

    try:
        device.answered("inverse(n) > 0", row("a"))
        assert device.find("inverse(n) > 0").versions.keys() == {"a"}
        device.answered("n >= 0", row("a"), row("b", 0))
        assert device.find("inverse(n) > 0") is None
        positive, negative = asked("inverse(n) > 0"), asked("inverse(n) < 0")
        assert [device.cache.may_match(each, row("a", 1)) for each in (positive, negative)] == [True, False]
        assert [device.cache.may_match(each, row("b", 0)) for each in (positive, negative)] == [True, True]
    finally:
        remove("inverse")


def test_what_only_the_cloud_can_say_is_not_answered_from_here(device):
    by_table = Predicate("lookup('people', auth.user, 'n') = 1")
    device.answered("n >= 0", row("a", predicate=by_table), row("b"), row("z", predicate=(Predicate("TRUE"))))
    assert device.find("n >= 0") is None
    assert device.find("key = 'a'") is None
    assert device.find("key IN ('b', 'z')").versions.keys() == {"b", "z"}
    assert device.cache.may_match(asked("n >= 0"), row("a", predicate=by_table))
    pending = replace(write("a", 1), predicate=SentPredicate.of(by_table))
    assert device.cache.matches(asked("n >= 0"), pending) is False

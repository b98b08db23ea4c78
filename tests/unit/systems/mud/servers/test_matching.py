"""Which continuous reads a version reaches, also where a predicate fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mudkit.predicates import Predicate, function
from mudkit.predicates.functions import remove
from mudkit.systems.mud.messages import Row, SentPredicate
from mudkit.systems.mud.servers.matching import Matching
from mudkit.systems.mud.tables.replica import TableReplica, is_visible, record_of
from mudkit.systems.mud.tables.table import Table

TABLE = Table("t", "news", number=1)


@pytest.fixture(scope="module", autouse=True)
def brittle():
    @function("brittle", returns="boolean")
    def brittle(x: float) -> bool:
        return 1 / x > 0

    yield
    remove("brittle")


def version(predicate=None, **data):
    return Row("a", 1, data, None if predicate is None else SentPredicate.of(Predicate(predicate)), 0, 1)


def handle(number):
    return ("bob/news", number)


def matching(*readers, copy=None):
    made = Matching(copy or TableReplica())
    for number, (text, data) in enumerate(readers):
        made.add(handle(number), Predicate(text), data, {"user": "bob"})
    return made


def found(made, row, table=TABLE):
    reached, failed = made.match(row, table)
    return [number for _, number in reached], [number for _, number in failed]


def test_one_that_fails_is_told_apart():
    made = matching(("brittle(n)", {}), ("n = 0", {}), ("n = 1", {}))
    assert found(made, version(n=1)) == ([0, 2], [])
    assert found(made, version(n=0)) == ([1], [0])
    assert "ZeroDivisionError" in made.match(version(n=0), TABLE)[1][handle(0)].summary
    made.remove(handle(0))
    assert found(made, version(n=0)) == ([1], [])


def test_a_writers_predicate_that_fails_hides_and_ends_nothing():
    made = matching(("TRUE", {"n": 0}), ("TRUE", {"n": 1}), ("brittle(n)", {"n": 1}))
    assert found(made, version("brittle(receiver.n)", n=1)) == ([1, 2], [])
    assert found(made, version("brittle(receiver.n)", n=0)) == ([1], [2])


def test_what_a_reader_says_last_counts_where_something_fails():
    made = matching(("n = receiver.n", {"n": 1}), ("brittle(n)", {"n": 1}))
    for number in (0, 1):
        made.update(handle(number), {"n": 0})
    assert found(made, version("receiver.n = 0", n=0)) == ([0], [1])


def test_columns_that_were_taken_out_are_not_seen_where_something_fails():
    made = matching(("m IS NULL", {}), ("brittle(n)", {}))
    assert found(made, version("m IS NULL", n=0, m=1), TABLE.altered({"remove": ["m"]}, 2)) == ([0], [1])


READS = st.sampled_from(
    ["TRUE", "n = 0", "n >= receiver.n", "brittle(n)", "brittle(receiver.n)", "auth.user = 'bob'"]
)
WRITERS = st.none() | st.sampled_from(
    ["receiver.n = 0", "brittle(receiver.n)", "brittle(n)", "n = receiver.n"]
)


@given(st.lists(st.tuples(READS, st.integers(-1, 1)), max_size=5), WRITERS, st.integers(-1, 1))
def test_it_is_as_if_each_was_asked_by_itself(readers, writer, n):
    row = version(writer, n=n)
    expected, failing = [], []
    for number, (text, data) in enumerate(readers):
        auth, said = {"user": "bob"}, {"n": data}
        if not is_visible(row, said, auth):
            continue
        try:
            is_wanted = Predicate(text)(record_of(row), receiver=said, auth=auth) is True
        except ValueError:
            failing.append(number)
            continue
        if is_wanted:
            expected.append(number)
    made = matching(*((text, {"n": data}) for text, data in readers))
    assert found(made, row) == (expected, failing)


PEOPLE = Table("people", "app", apps=["news"], number=2)
BY = "lookup('people', by, 'n') = 1"


def people(**numbers):
    copy = TableReplica()
    rows = [("people", replace(version(n=n), key=key)) for key, n in numbers.items()]
    copy.load(1, [PEOPLE], rows)
    return copy


def joining(*readers, app="news", **numbers):
    made = Matching(people(**numbers))
    for number, (text, data) in enumerate(readers):
        made.add(handle(number), Predicate(text), data, {"app": app, "user": "bob"})
    return made


def test_those_that_join_come_after_the_others():
    made = joining((BY, {}), ("by = 'x'", {}), (BY + " AND n > receiver.n", {"n": 0}), x=1, y=2)
    assert found(made, version(by="x", n=1)) == ([1, 0, 2], [])
    assert found(made, version(by="y", n=1)) == ([], [])
    for number, data in ((0, {"n": 9}), (1, {"n": 9}), (2, {"n": 1})):
        made.update(handle(number), data)
    assert found(made, version(by="x", n=1)) == ([1, 0], [])
    for number in range(3):
        made.remove(handle(number))
        assert found(made, version(by="x", n=2)) == ([[1, 2], [2], []][number], [])


def test_a_writer_shows_a_record_by_another_table():
    made = joining(
        ("TRUE", {"as": "x"}), ("TRUE", {"as": "y"}), (BY, {"as": "x"}), ("n = 0", {"as": "x"}), x=1, y=2
    )
    row = version("lookup('people', receiver.as, 'n') = 1", by="x", n=1)
    assert found(made, row) == ([0, 2], [])


@pytest.mark.parametrize(("app", "reached"), [("news", [0]), ("bank", [])])
def test_who_may_not_come_into_a_table_is_ended_that_joins_it(app, reached):
    made = joining((BY, {}), ("NOT " + BY, {}), ("FALSE AND " + BY, {}), app=app, x=1)
    assert found(made, version(by="x")) == (reached, [] if reached else [0, 1])


@given(
    st.lists(st.tuples(st.sampled_from([BY, "n = 0", "brittle(n)"]), st.integers(0, 1)), max_size=4),
    st.integers(0, 1),
)
def test_who_has_ended_is_found_no_more(readers, n):
    made = joining(*((text, {"n": data}) for text, data in readers), x=1)
    for number in range(len(readers)):
        made.remove(handle(number))
    assert found(made, version(by="x", n=n)) == ([], [])

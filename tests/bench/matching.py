"""Subscription index compared with a linear scan, `rule_engine`, and a join in DuckDB with one thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import rule_engine
from compare import compare

from mudkit.predicates import SubscriptionIndex
from mudkit.worlds.matching import MatchingLoad, Subscription, match_each

RECORDS = 20_000
SIDES = ("south", "north", "west", "east", "most")


def measure_rows() -> Iterator[dict[str, object]]:
    """Measure all comparisons."""
    yield compare_with_linear_scan()
    yield from compare_with_rule_engine()
    # With 10 topics, each record meets a hundred times as many subscriptions of its topic.
    for subscriptions, topics in ((100_000, 1000), (100_000, 10), (1_000_000, 1000)):
        yield compare_with_duckdb(subscriptions, topics)


def compare_with_linear_scan() -> dict[str, object]:
    """Compare with compiled predicates in turn; both sides have readers' data and writer predicates."""
    load = MatchingLoad(10_000, 10)
    subscriptions, index = list(load.draw()), load.index()
    records = load.records(50)
    writers = load.writers(records)
    pairs = list(zip(records, writers, strict=True))

    def match_indexed() -> list[list[Any]]:
        return index.match_many(records, writers)

    def match_compiled() -> list[list[Any]]:
        return [match_each(subscriptions, *pair) for pair in pairs]

    check_agreement(match_indexed(), match_compiled())
    return compare(
        "index, 10,000 subscriptions, 50 records",
        match_indexed,
        "compiled predicates, one by one",
        match_compiled,
    )


def compare_with_rule_engine() -> Iterator[dict[str, object]]:
    """Compare read predicates only: `rule_engine` has no writer predicates."""
    load = MatchingLoad(1000, 10)
    subscriptions, index = list(load.draw()), load.index()
    records = load.records(50)
    rules = [
        (name, rule_engine.Rule(format_rule(constants))) for name, constants in list_constants(subscriptions)
    ]

    def match_rules() -> list[list[Any]]:
        return [[name for name, rule in rules if rule.matches(record)] for record in records]

    def match_indexed() -> list[list[Any]]:
        return [index.match(record) for record in records]

    def match_compiled() -> list[list[Any]]:
        return [match_each(subscriptions, record) for record in records]

    check_agreement(match_indexed(), match_rules())
    check_agreement(match_compiled(), match_rules())
    yield compare("index, 1,000 subscriptions, 50 records", match_indexed, "rule_engine", match_rules)
    yield compare("one by one, 1,000 subscriptions, 50 records", match_compiled, "rule_engine", match_rules)


def compare_with_duckdb(subscriptions: int, topics: int) -> dict[str, object]:
    """Compare read predicates only, all records at once, one thread; the table is filled beforehand."""
    load = MatchingLoad(subscriptions, topics)
    index = SubscriptionIndex()
    columns: dict[str, list[Any]] = {name: [] for name in ("topic", *SIDES)}
    for name, predicate, receiver, auth in load.draw():
        index.add(name, predicate, receiver=receiver, auth=auth)
        for column, constant in zip(columns, predicate.constants, strict=True):
            columns[column].append(constant)
    records = load.records(RECORDS)
    database = duckdb.connect(config={"threads": 1})
    arrow = pa.table({"subscription": range(subscriptions), **columns})
    database.sql("CREATE TABLE subscriptions AS SELECT * FROM arrow")
    del arrow, columns
    batch = pa.table(
        {
            "record": range(RECORDS),
            **{name: [r[name] for r in records] for name in ("topic", "lat", "lon", "price")},
        }
    )
    database.register("records", batch)
    query = """
        SELECT record, subscription FROM records r JOIN subscriptions s ON r.topic = s.topic
            AND r.lat BETWEEN s.south AND s.north AND r.lon BETWEEN s.west AND s.east AND r.price <= s.most
    """

    def match_indexed() -> list[list[Any]]:
        return index.match_many(records)

    def join_in_duckdb() -> pa.Table:
        return database.sql(query).to_arrow_table()

    theirs: list[list[Any]] = [[] for _ in records]
    pairs = join_in_duckdb().sort_by([("record", "ascending"), ("subscription", "ascending")])
    for record, subscription in zip(*(pairs[name].to_pylist() for name in pairs.column_names), strict=True):
        theirs[record].append(f"sub-{subscription}")
    check_agreement(match_indexed(), theirs)
    return compare(
        f"index, {subscriptions:,} subscriptions, {topics:,} topics, {RECORDS:,} records",
        match_indexed,
        "DuckDB join, all at once, 1 thread",
        join_in_duckdb,
    )


def list_constants(subscriptions: list[Subscription]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the constants of each read predicate by name."""
    for name, predicate, _, _ in subscriptions:
        yield name, dict(zip(("topic", *SIDES), predicate.constants, strict=True))


def format_rule(c: dict[str, Any]) -> str:
    """Write the read predicate for `rule_engine`."""
    return (
        f'topic == "{c["topic"]}" and lat >= {c["south"]!r} and lat <= {c["north"]!r} and lon >= {c["west"]!r} '
        f"and lon <= {c['east']!r} and price <= {c['most']!r}"
    )


def check_agreement(ours: list[list[Any]], theirs: list[list[Any]]) -> None:
    """Raise if the two sides differ or match nothing."""
    assert ours == theirs, "the two sides disagree"
    assert any(ours), "nothing matches"

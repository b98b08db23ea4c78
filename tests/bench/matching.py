"""The subscription index beside its peers: one by one, `rule_engine`, and a join in DuckDB with one thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import rule_engine
from compare import compare

from mudkit.experiment.matching import MatchingLoad, Subscription, match_each
from mudkit.predicates import SubscriptionIndex

RECORDS = 20_000
SIDES = ("south", "north", "west", "east", "most")


def rows() -> Iterator[dict[str, object]]:
    """Measure everything."""
    yield beside_one_by_one()
    yield from beside_rule_engine()
    # Over 10 topics each record meets a hundred times as many subscriptions of its topic.
    for subscriptions, topics in ((100_000, 1000), (100_000, 10), (1_000_000, 1000)):
        yield beside_duckdb(subscriptions, topics)


def beside_one_by_one() -> dict[str, object]:
    """Readers' data and writer predicates take part on both sides."""
    load = MatchingLoad(10_000, 10)
    whole, index = list(load.draw()), load.index()
    records = load.records(50)
    writers = load.writers(records)
    pairs = list(zip(records, writers, strict=True))

    def ours() -> list[list[Any]]:
        return index.match_many(records, writers)

    def peer() -> list[list[Any]]:
        return [match_each(whole, *pair) for pair in pairs]

    agree(ours(), peer())
    return compare("index, 10,000 subscriptions, 50 records", ours, "compiled predicates, one by one", peer)


def beside_rule_engine() -> Iterator[dict[str, object]]:
    """Read predicates only: it has no writers."""
    load = MatchingLoad(1000, 10)
    whole, index = list(load.draw()), load.index()
    records = load.records(50)
    rules = [(name, rule_engine.Rule(in_words(constants))) for name, constants in constants_of(whole)]

    def peer() -> list[list[Any]]:
        return [[name for name, rule in rules if rule.matches(record)] for record in records]

    def indexed() -> list[list[Any]]:
        return [index.match(record) for record in records]

    def compiled() -> list[list[Any]]:
        return [match_each(whole, record) for record in records]

    agree(indexed(), peer())
    agree(compiled(), peer())
    yield compare("index, 1,000 subscriptions, 50 records", indexed, "rule_engine", peer)
    yield compare("one by one, 1,000 subscriptions, 50 records", compiled, "rule_engine", peer)


def beside_duckdb(subscriptions: int, topics: int) -> dict[str, object]:
    """Read predicates only, all records at once, one thread on both sides; its table is filled beforehand."""
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

    def ours() -> list[list[Any]]:
        return index.match_many(records)

    def peer() -> pa.Table:
        return database.sql(query).to_arrow_table()

    theirs: list[list[Any]] = [[] for _ in records]
    pairs = peer().sort_by([("record", "ascending"), ("subscription", "ascending")])
    for record, subscription in zip(*(pairs[name].to_pylist() for name in pairs.column_names), strict=True):
        theirs[record].append(f"sub-{subscription}")
    agree(ours(), theirs)
    return compare(
        f"index, {subscriptions:,} subscriptions, {topics:,} topics, {RECORDS:,} records",
        ours,
        "DuckDB join, all at once, 1 thread",
        peer,
    )


def constants_of(whole: list[Subscription]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the constants of a read predicate by name."""
    for name, predicate, _, _ in whole:
        yield name, dict(zip(("topic", *SIDES), predicate.constants, strict=True))


def in_words(c: dict[str, Any]) -> str:
    """Write the read predicate for `rule_engine`."""
    return (
        f'topic == "{c["topic"]}" and lat >= {c["south"]!r} and lat <= {c["north"]!r} and lon >= {c["west"]!r} '
        f"and lon <= {c['east']!r} and price <= {c['most']!r}"
    )


def agree(ours: list[list[Any]], theirs: list[list[Any]]) -> None:
    """Stop when the two sides differ."""
    assert ours == theirs, "the two sides disagree"
    assert any(ours), "nothing matches"

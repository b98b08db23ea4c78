"""The fixtures in Spark, and random predicates on which all evaluators must agree."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from predicate_fixtures import rows
from predicate_strategies import conditions, make, scopes
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit import pipeline
from mudkit.predicates import Predicate, register_functions
from mudkit.predicates.layout import Layout, to_json

pytestmark = pytest.mark.spark

SCOPES = ("record", "receiver", "auth")
LAYOUT = Layout(**{scope: scope for scope in SCOPES})


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark):
    """Compiling a hundred expressions to Java takes much longer than evaluating them for a few rows."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")


def variants(spark: SparkSession, data: list[dict[str, Any]]) -> DataFrame:
    texts = [(at, *(to_json(row[scope]) for scope in SCOPES)) for at, row in enumerate(data)]
    frame = spark.createDataFrame(texts, "at INT, record STRING, receiver STRING, auth STRING")
    return frame.select("at", *(F.parse_json(scope).alias(scope) for scope in SCOPES))


def in_spark(frame: DataFrame, predicates: list[Predicate]) -> list[list[bool | None]]:
    """Evaluate all at once: by predicate, then by row."""
    columns = [pipeline.column(p, LAYOUT).alias(f"p{n}") for n, p in enumerate(predicates)]
    result = frame.select("at", *columns).toArrow().sort_by("at")
    return [result[f"p{n}"].to_pylist() for n in range(len(predicates))]


def in_sqlite(connection: sqlite3.Connection, predicate: Predicate, count: int) -> list[bool | None]:
    result = connection.execute(f"SELECT {predicate.sql('sqlite', LAYOUT)} FROM t ORDER BY rowid").fetchall()
    assert len(result) == count
    return [None if each is None else bool(each) for (each,) in result]


def in_numpy(predicate: Predicate, data: list[dict[str, Any]]) -> list[bool | None]:
    columns: dict[str, dict[str, Any]] = {
        scope: {
            name: [row[scope].get(name) for row in data]
            for name in sorted({name for row in data for name in row[scope]})
        }
        for scope in SCOPES
    }
    columns["record"]["row"] = np.arange(len(data))
    result = predicate.numpy(columns.pop("record"), **columns)
    return [None if each is np.ma.masked else bool(each) for each in result]


def test_the_fixtures(spark, scaled):
    groups: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows():
        groups.setdefault(to_json(row[1]) + to_json(row[2]), []).append(row)
    usual = max(groups.values(), key=len)
    frame = variants(spark, [{"record": usual[0][1], "receiver": usual[0][2], "auth": {}}]).cache()
    tried = usual[:: scaled(1, 4)]
    for first in range(0, len(tried), 64):
        batch = tried[first : first + 64]
        result = in_spark(frame, [Predicate(text) for text, *_ in batch])
        for (text, *_, expected), got in zip(batch, result, strict=True):
            assert got == [expected], text
    edges = [row for group in groups.values() if group is not usual for row in group]
    data = [{"record": record, "receiver": receiver, "auth": {}} for _, record, receiver, _ in edges]
    result = in_spark(variants(spark, data), [Predicate(text) for text, *_ in edges])
    for at, (text, record, _, expected) in enumerate(edges):
        assert result[at][at] is expected, (text, record)


@settings(
    examples(6),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # an example takes seconds: it is not made smaller
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(conditions, min_size=12, max_size=18, unique=True),
    data=st.lists(scopes, min_size=4, max_size=10),
)
def test_all_four_agree(spark, texts, data):
    predicates = [p for p in map(make, texts) if p is not None]
    connection = sqlite3.connect(":memory:")
    register_functions(connection)
    connection.execute("CREATE TABLE t (record, receiver, auth)")
    connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", [[to_json(row[scope]) for scope in SCOPES] for row in data]
    )
    for predicate, in_java in zip(predicates, in_spark(variants(spark, data), predicates), strict=True):
        answer = (predicate.text, data)
        expected = [predicate(row["record"], receiver=row["receiver"], auth=row["auth"]) for row in data]
        assert in_java == expected, answer
        assert in_sqlite(connection, predicate, len(data)) == expected, answer
        assert in_numpy(predicate, data) == expected, answer
    connection.close()

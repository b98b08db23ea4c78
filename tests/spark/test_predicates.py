"""Predicate fixtures in Spark, and random predicates on which all evaluators agree."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from predicate_fixtures import list_rows
from predicate_strategies import build_predicate, conditions, scopes
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from mudkit import pipeline
from mudkit.predicates import Predicate
from mudkit.predicates.layout import Layout, to_json

pytestmark = pytest.mark.spark

SCOPES = ("record", "receiver", "auth")
LAYOUT = Layout(**{scope: scope for scope in SCOPES})


@pytest.fixture(scope="module", autouse=True)
def disable_code_generation(spark, scaled):
    """Disable code generation: compiling expressions takes longer than evaluating them for a few rows.

    Expressions are compiled in the soak, and in test_column.py.
    """
    settings = {"wholeStage": "false", "factoryMode": scaled("FALLBACK", "NO_CODEGEN")}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.codegen.{name}", value)
    yield
    for name in settings:
        spark.conf.unset(f"spark.sql.codegen.{name}")


def make_variants(spark: SparkSession, data: list[dict[str, Any]]) -> DataFrame:
    texts = [(number, *(to_json(row[scope]) for scope in SCOPES)) for number, row in enumerate(data)]
    frame = spark.createDataFrame(texts, "at INT, record STRING, receiver STRING, auth STRING")
    return frame.select("at", *(F.parse_json(scope).alias(scope) for scope in SCOPES))


def evaluate_in_spark(frame: DataFrame, predicates: list[Predicate]) -> list[list[bool | None]]:
    """Evaluate all predicates at once: results by predicate, then by row."""
    columns = [pipeline.column(p, LAYOUT).alias(f"p{n}") for n, p in enumerate(predicates)]
    result = frame.select("at", *columns).toArrow().sort_by("at")
    return [result[f"p{n}"].to_pylist() for n in range(len(predicates))]


def evaluate_in_numpy(predicate: Predicate, data: list[dict[str, Any]]) -> list[bool | None]:
    columns: dict[str, dict[str, Any]] = {
        scope: {
            name: [row[scope].get(name) for row in data]
            for name in sorted({name for row in data for name in row[scope]})
        }
        for scope in SCOPES
    }
    columns["record"]["row"] = np.arange(len(data))
    result = predicate.numpy(columns.pop("record"), **columns)
    return [None if value is np.ma.masked else bool(value) for value in result]


def list_triples(text: str) -> set[tuple[str, ...]]:
    """Return each three words or signs that follow each other in the SQL of a predicate, without texts and numbers."""
    sql = re.sub(r"'[^']*'", "'", Predicate(text).sql(LAYOUT))
    words = re.findall(r"[A-Za-z_]+|[^\sA-Za-z_0-9]", sql)
    return set(zip(words, words[1:], words[2:], strict=False))


def choose_by_triples(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return fixtures whose SQL has all triples that any has, the one with most missing triples first."""
    triples = [list_triples(text) for text, *_ in rows]
    missing, chosen = set().union(*triples), []
    while missing:
        number = max(range(len(rows)), key=lambda number: len(triples[number] & missing))
        chosen.append(rows[number])
        missing -= triples[number]
    return chosen


def test_fixtures_match_in_spark(spark, scaled):
    """Evaluate all fixtures in the soak, else some with all triples of SQL, and every other odd record."""
    groups: dict[str, list[tuple[Any, ...]]] = {}
    for row in list_rows():
        groups.setdefault(to_json(row[1]) + to_json(row[2]), []).append(row)
    largest = max(groups.values(), key=len)
    frame = make_variants(spark, [{"record": largest[0][1], "receiver": largest[0][2], "auth": {}}]).cache()
    chosen = scaled(largest, choose_by_triples(largest))
    for start in range(0, len(chosen), 64):
        batch = chosen[start : start + 64]
        result = evaluate_in_spark(frame, [Predicate(text) for text, *_ in batch])
        for (text, *_, expected), values in zip(batch, result, strict=True):
            assert values == [expected], text
    edges = [row for group in groups.values() if group is not largest for row in group][:: scaled(1, 2)]
    data = [{"record": record, "receiver": receiver, "auth": {}} for _, record, receiver, _ in edges]
    result = evaluate_in_spark(make_variants(spark, data), [Predicate(text) for text, *_ in edges])
    for number, (text, record, _, expected) in enumerate(edges):
        assert result[number][number] is expected, (text, record)


@settings(
    examples(6),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # examples take seconds and are not shrunk
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(conditions, min_size=12, max_size=18, unique=True),
    data=st.lists(scopes, min_size=4, max_size=10),
)
def test_all_evaluators_agree(spark, texts, data):
    predicates = [p for p in map(build_predicate, texts) if p is not None]
    for predicate, spark_values in zip(
        predicates, evaluate_in_spark(make_variants(spark, data), predicates), strict=True
    ):
        context = (predicate.text, data)
        expected = [predicate(row["record"], receiver=row["receiver"], auth=row["auth"]) for row in data]
        assert spark_values == expected, context
        assert evaluate_in_numpy(predicate, data) == expected, context

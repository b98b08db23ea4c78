"""Predicates as Spark columns: equal to Python."""

import datetime as dt
import itertools
import re
import subprocess
import sys
import time

import predicate_cases as shared
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from mudkit import pipeline
from mudkit.errors import PredicateError
from mudkit.predicates import Predicate
from mudkit.predicates.layout import Column, Layout, to_json

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def user_functions():
    shared.register_user_functions()
    yield
    shared.remove_user_functions()


def assert_equal_to_python(frame, predicates, rows, layout):
    """Evaluate all predicates at once; rows are (record, receiver) in the order of the column `at`."""
    columns = [pipeline.column(p, layout).alias(f"p{n}") for n, p in enumerate(predicates)]
    result = frame.select("at", *columns).toArrow().sort_by("at").to_pydict()
    for n, p in enumerate(predicates):
        for (record, reader), value in zip(rows, result[f"p{n}"], strict=True):
            assert value is p(record, receiver=reader), (p.text, record, reader)


def make_variants(spark, rows):
    texts = [(n, to_json(record), to_json(reader)) for n, (record, reader) in enumerate(rows)]
    frame = spark.createDataFrame(texts, "at INT, record STRING, reader STRING")
    return frame.select(
        "at", F.parse_json("record").alias("data"), F.parse_json("reader").alias("reader")
    ).cache()


def test_variant_columns_match_python(spark, scaled):
    rows = list(itertools.product(shared.RECORDS, shared.READERS))
    frame = make_variants(spark, rows)
    layout = Layout(record="data", receiver="reader")
    predicates = [shared.predicate(text) for text in shared.CASES[:: scaled(1, 16)]]
    for start in range(0, len(predicates), 16):
        assert_equal_to_python(frame, predicates[start : start + 16], rows, layout)


@pytest.fixture(scope="module")
def flat(spark):
    """Return a few records as columns, and the same with their readers for Python."""
    records = [
        {"a": 1.0, "b": -2.0, "s": "abc", "t": True, "ts": 1.5e9, "loc": (1.0, 2.0)},
        {},
        {"a": 1e308, "t": False},
    ]
    schema = "a DOUBLE, b DOUBLE, s STRING, t BOOLEAN, ts DOUBLE, loc ARRAY<DOUBLE>"
    data = [[record.get(name) for name in ("a", "b", "s", "t", "ts", "loc")] for record in records]
    frame = spark.createDataFrame([(*row, n) for n, row in enumerate(data)], f"{schema}, at INT")
    return frame, [(record, {}) for record in records]


@pytest.mark.soak(keep=8)
@pytest.mark.parametrize("number", range(len(shared.DEEP)))
def test_deep_and_long_predicates_match_python(flat, number):
    frame, rows = flat
    text, start_s = shared.DEEP[number], time.perf_counter()
    assert_equal_to_python(frame, [shared.predicate(text)], rows, frame)
    assert time.perf_counter() - start_s < 60, text


SCHEMA = """
at INT, i INT, big BIGINT, d DOUBLE, f FLOAT, dec DECIMAL(20, 1), s STRING, t BOOLEAN, ts TIMESTAMP,
ntz TIMESTAMP_NTZ, day DATE, loc STRUCT<lat: DOUBLE, lon: DOUBLE>, pair ARRAY<DOUBLE>,
home STRUCT<city: STRING, loc: STRUCT<lat: FLOAT, lon: DOUBLE>>, m MAP<STRING, INT>, bin BINARY,
`it's ``q``` STRING, receiver STRUCT<age: INT, loc: ARRAY<DOUBLE>>
"""
TYPED = [
    "i = 1", "i = d", "i = big", "big IS NULL", "big = 9007199254740992", "d IS NULL", "f = 0.5", "f < d", "dec = 1.5",
    "dec > 1e18", "s = 'é'", "s IS NULL", "s = i", "t", "t = TRUE", "t = i", "ts = 1500000000.25", "ts = ntz",
    "ts > day", "day = 86400", "ntz IS NULL", "hour(ntz) = 2", "hour(ts, 'Asia/Tokyo') = 11", "weekday(day) = 4",
    "loc = pair", "loc.lat = 1", "pair.lon = 2", "loc IS NULL", "pair IS NULL", "home IS NULL", "home.city = 'Wien'",
    "home.loc.lat = 0.5", "within_km(home.loc, loc, 200)", "home.loc IS NULL", "m IS NULL", "bin IS NULL",
    "coalesce(s, i, d) = 1", "i IN (1, '7', TRUE)", "t IN (TRUE, FALSE)", "receiver.age = 5", "receiver.age > i",
    "distance_km(receiver.loc, loc) < 200", "receiver.loc.lat = 1", "auth.user IS NULL", "i / 0 IS NULL",
    "matches(s, 'é')", "coalesce(matches(s, 'x'), t)", "shout(s) IS NULL", "f + d > 0", "loc IN (:p)", "d * 10 IS NULL",
    "dec + big > 0", "-big < 0", "coalesce(home, i) IS NULL", "s BETWEEN 'a' AND 'z'",
]  # fmt: skip


def test_typed_columns_match_python(spark):
    utc, day = dt.UTC, dt.date(1970, 1, 2)
    ts, ntz = dt.datetime(2017, 7, 14, 2, 40, 0, 250_000, utc), dt.datetime(2017, 7, 14, 2, 40, 0, 250_000)
    rows = [
        [None] * 16,
        [1, 2**53, 1.0, 0.5, 1.5, "é", True, ts, ntz, day, (1.0, 2.0), [1.0, 2.0], ("Wien", (0.5, 2.0)), {"a": 1},
         bytearray(b"x"), "q", ],
        [7, 2**53 + 1, float("nan"), float("inf"), 10**18, "a\0", False, ts, dt.datetime(1960, 3, 27, 2, 30), None,
         (100.0, 2.0), [1.0], (None, None), {}, None, "x"],
        [0, -5, 1e308, -0.0, -5, "aé", None, None, ntz, day, (-0.0, None), [91.0, 0.0], ("x", (91.0, 0.0)), None, None, None],
    ]  # fmt: skip
    readers = [None, (5, [1.0, 2.5]), (9, [1.0]), (None, None)]
    from decimal import Decimal

    data = [
        (n, *row[:4], None if row[4] is None else Decimal(row[4]), *row[5:], readers[n])
        for n, row in enumerate(rows)
    ]
    names = [
        "i",
        "big",
        "d",
        "f",
        "dec",
        "s",
        "t",
        "ts",
        "ntz",
        "day",
        "loc",
        "pair",
        "home",
        "m",
        "bin",
        "q",
    ]
    records = []
    for row in rows:
        record = dict(zip(names, row, strict=True))
        record["m"] = None
        record["dec"] = None if record["dec"] is None else Decimal(record["dec"])
        if record["loc"] is not None:
            record["loc"] = dict(zip(("lat", "lon"), record["loc"], strict=True))
        if record["home"] is not None:
            city, loc = record["home"]
            record["home"] = {"city": city, "loc": loc and dict(zip(("lat", "lon"), loc, strict=True))}
        records.append(record)
    receivers = [{} if reader is None else {"age": reader[0], "loc": reader[1]} for reader in readers]
    zone = spark.conf.get("spark.sql.session.timeZone")
    frame = spark.createDataFrame(data, SCHEMA).cache()
    frame.count()
    cases = [Predicate(text, **({"p": [1, 2]} if ":p" in text else {})) for text in TYPED]
    assert_equal_to_python(frame, cases, list(zip(records, receivers, strict=True)), frame)
    of_times = [predicate for predicate in cases if re.search(r"\b(ts|ntz|day)\b", predicate.text)]
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        assert_equal_to_python(frame, of_times, list(zip(records, receivers, strict=True)), frame)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


NASTY = [
    "' OR 1=1 --",
    "\\'",
    "${x}",
    "${spark.app.name}",
    "$x",
    "a\nb;DROP TABLE t",
    "%s {0} {}",
    "\\u0041",
    "`",
    "\x7f\t",
]


def test_names_and_strings_are_quoted(spark):
    frame = spark.createDataFrame([(0, *NASTY)], ["at", *(f"x` = 1 OR `x{n}" for n in range(len(NASTY)))])
    frame.createOrReplaceTempView("nasty")
    for sql in (False, True):
        layout = Layout(record={f"a{n}": Column(f"x` = 1 OR `x{n}", "string") for n in range(len(NASTY))})
        predicates = [Predicate(f"a{n} = :x", x=text) for n, text in enumerate(NASTY)]
        if sql:
            columns = [p.sql(layout) for p in predicates]
            result = spark.sql(f"SELECT {', '.join(columns)} FROM nasty").collect()[0]
        else:
            result = frame.select(*(pipeline.column(p, layout) for p in predicates)).collect()[0]
        assert list(result) == [True] * len(NASTY)
    with pytest.raises(PredicateError, match="variable"):
        Predicate("a = 'x'").sql(Layout(record={"a": Column("${x}", "string")}))


def test_invalid_predicates_are_refused(spark):
    frame = spark.range(1).selectExpr("id AS price", "named_struct('age', 1) AS receiver")
    for text, message in (
        ("prise = 1", "did you mean 'price'"),
        ("receiver.agge = 1", "did you mean 'age'"),
        ("price.x = 1", r"no record\.price\.x"),
        ("lookup('t', price, 'x') = 1", "lookup is not available in the evaluator spark"),
        ("hour(price, coalesce(auth.zone, 'UTC')) = 1", "must be a constant"),
    ):
        with pytest.raises(PredicateError, match=message):
            pipeline.column(Predicate(text), frame)
    assert frame.where(pipeline.column(Predicate("matches('abc', 'b') AND price = 0"), frame)).count() == 1
    with pytest.raises(PredicateError, match="no schema"):
        pipeline.column(Predicate("TRUE"), Column("x", "string"))


CONNECT = """
from mudkit import pipeline
from mudkit.predicates import Predicate
spark = pipeline.session(remote="local[2]")
frame = spark.range(5).selectExpr("id AS price", "named_struct('age', id) AS receiver", "concat('a', id) AS s")
p = Predicate("matches(s, 'a[23]') AND receiver.age >= :n", n=3)
print(frame.where(pipeline.column(p, frame)).collect())
pipeline.stop()
"""


@pytest.mark.soak
def test_column_works_over_spark_connect(tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", CONNECT], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == "[Row(price=3, receiver=Row(age=3), s='a3')]\n"

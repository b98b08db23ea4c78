"""SQL for SQLite: agreement with Python. The Spark tests use the same cases."""

import datetime as dt
import itertools
import math
import random
import sqlite3
import time

import pytest

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate, function, sqlite
from mudkit.predicates.functions import remove
from mudkit.predicates.layout import Column, Layout, to_json
from mudkit.predicates.sqlite import register_functions

AUSTIN = {"lat": 30.27, "lon": -97.74}
RECORDS = [
    {},
    {"a": 1, "b": 1.0, "s": "abc", "t": True, "loc": AUSTIN, "pair": (30.28, -97.74), "ts": 1_500_000_000.5},
    {"a": 7, "b": -2.5, "s": "Ä😀z", "t": False, "loc": [30.27, -97.74], "pair": [91, 0], "ts": -0.5},
    {"a": "7", "b": 7, "s": 7, "t": "true", "loc": {"lat": 100, "lon": 0}, "pair": [1, 2, 3], "ts": 3e11},
    {"a": True, "b": 1, "s": "", "t": 1, "loc": "30,1", "pair": [1], "ts": "x", "home": {"city": "Wien"}},
    {"a": 2**53, "b": 2**53 + 1, "s": 'it\'s \\ "q" ${x} $y %_\n;--', "t": 0, "home": {"loc": [1, 2]}},
    {"a": -(2**53) - 1, "b": 10**19, "s": "ABCxyzÄ", "t": None, "home": {"loc": {"lat": 1, "lon": "x"}}},
    {"a": math.nan, "b": math.inf, "s": "a\0b", "t": True, "home": {"city": {"name": "x"}, "loc": AUSTIN}},
    {"a": 1e308, "b": 1e-308, "s": "aXb*?[c]", "t": False, "home": {}, "loc": (90, 180), "pair": (90, -180)},
    {"a": -0.0, "b": 0, "s": "7", "loc": {"lat": -0.0, "lon": 0}, "pair": (0.0, -0.0), "ts": -62_135_510_400},
    {"a": {}, "b": [], "s": {"lat": 1, "lon": 2}, "t": [True], "loc": {"lat": 1, "lon": 2, "z": 3}},
    {"a": 0.1, "b": 0.2, "s": "\uffff", "t": True, "ts": dt.datetime(2024, 2, 29, 23, 59, 59, 5, dt.UTC)},
    {"a": 9007199254740994.0, "b": 1.7976931348623157e308, "s": "😀", "ts": dt.date(1969, 12, 31)},
    {"a": 5e-324, "b": 2.2250738585072014e-308, "s": "aaaaaaaab", "pair": ["1", 2], "ts": 253_402_214_400},
]
READERS = [{}, {"age": 7, "loc": (30.3, -97.7), "name": "bob"}, {"age": 21, "loc": {"lat": 0, "lon": 179.9}}]
CASES = [
    "a = 1", "a <> 1", "a < 7", "a <= 7", "a > 0.05", "a >= 9007199254740992", "a = b", "a <> b", "a < b",
    "a <= b", "a > b", "a >= b", "a = s", "s < b", "t = a", "t = b", "t < TRUE", "t >= FALSE", "t", "NOT t",
    "a = '7'", "s = 7", "a = TRUE", "1 = TRUE", "'a' < 'b'", "NULL", "TRUE", "a = NULL", "NOT (a = NULL)",
    "a = 1 AND t", "a = 1 OR t", "a > 100 AND NULL", "a > 0 OR NULL", "a = 1 AND b = 1 AND s = 'abc' AND t",
    "a BETWEEN 1 AND 7", "a NOT BETWEEN 1 AND 7", "a BETWEEN b AND 10", "s BETWEEN 'A' AND 'b'",
    "a BETWEEN 'a' AND 5", "t BETWEEN FALSE AND TRUE", "a + 1 BETWEEN b AND b * 2 + 1",
    "a IN (1, 7)", "a IN (1, '7', TRUE)", "a IN (1, NULL)", "a NOT IN (1, 2)", "s IN ('abc', '', 'it''s')",
    "t IN (TRUE)", "a IN (b, 1)", "a + 1 IN (b, 2, s)", "t IN (TRUE, 1)", "b IN (0, 1, -2.5)",
    "loc IN (:p, 5)", "a IN :none", "s IN :many", "a IN :many", "b IN :many",
    "s LIKE 'a%'", "s LIKE '%b'", "s LIKE 'A%'", "s LIKE '_bc'", "s LIKE '%'", "s LIKE ''", "s NOT LIKE '%z'",
    "s LIKE '%[c]'", "s LIKE '%*?%'", "s LIKE '%\\%'", "s LIKE '_😀_'", "s LIKE '%a%a%a%b'", "s LIKE s",
    "s LIKE '%${x}%'", "'it''s \\ \"q\" ${x} $y %_\n;--' = s", "'a\\b' LIKE '_\\_'", "s LIKE '%;--'",
    "a IS NULL", "a IS NOT NULL", "b IS NULL", "s IS NULL", "t IS NULL", "loc IS NULL", "pair IS NULL",
    "home IS NULL", "home.city IS NULL", "home.loc IS NULL", "home.city.name = 'x'", "home.city = 'Wien'",
    "(a = 1) IS NULL", "(a / 0) IS NULL", "coalesce(a, s) IS NULL", "NULL IS NULL", "1 IS NULL", "missing IS NULL",
    "a + b = 2", "a - b > 0", "a * b >= 1", "a / b = 0.5", "a / b > 0", "-a < 0", "a * 10 IS NULL",
    "a * 10 * 0 = 0", "1 / (a * 10) = 0", "a - -1 = 2", "a - (b - 1) = 1", "a / (b / 2) > 0", "-(-a) = a",
    "2 - a - b < 2", "a * 10 - a * 10 = 0", "1 / a > 0", "a + 0.1 = 0.2", "0.1 + 0.2 = 0.3", "a = 0.1",
    "b = 1.7976931348623157e308", "a = 5e-324", "b = 2.2250738585072014e-308", "b >= 1e308", "a = -0.0",
    "s + 1 = 8", "t + 1 = 2", "abs(b) = 2.5", "abs(a * 100) > 1", "b > -2.5", "b <= -2.5",
    "lower(s) = 'abcxyzÄ'", "upper(s) = 'ABC'", "length(s) = 3", "length(s) > 0", "length(a) = 1",
    "starts_with(s, 'a')", "starts_with(s, '')", "contains(s, '😀')", "contains(s, '')", "contains(s, s)",
    "starts_with(s, s)", "contains(s, '${x}')", "contains(s, a)", "starts_with('a', s)",
    "matches(s, 'b')", "matches(s, '^[A-Z]+')", "matches(s, '^.$')", "matches(s, s)", "matches(s, '\\$\\{')",
    "coalesce(a, 5) > 4", "coalesce(a, s, 5) = '7'", "coalesce(a, b) = coalesce(b, a)", "coalesce(t, FALSE)",
    "coalesce(a + 1, s, 3) = 3", "coalesce(s, a, t) < coalesce(a, b, 's')", "coalesce(a = 1, t)",
    "coalesce(coalesce(missing, a), 7) IN (7, 1)", "coalesce(loc, :p) = :p", "coalesce(loc, pair, a) IS NULL",
    "coalesce(a + 1, coalesce(b, 'x')) BETWEEN 0 AND 9", "coalesce(NULL, a) = 1", "coalesce(home, a) = 1",
    "coalesce(NULL, NULL) IS NULL", "coalesce(s, a) = b", "NOT coalesce(t, a)",
    "loc = pair", "loc <> pair", "loc = :p", "loc <> :p", "loc < pair", "loc = home.loc", "loc = s", "pair = point(0, 0)",
    "loc.lat > 30", "pair.lat = 30.28", "pair.lon < 0", "home.loc.lat = 1", "home.loc.lon = 2", "loc.z = 3",
    "a.b IS NULL", "s.lat = 1", "pair.lat.x IS NULL", "loc.lat IS NULL", "pair.lon IS NULL",
    "distance_km(loc, pair) < 2", "distance_km(loc, :p) = 0", "distance_km(loc, home.loc) >= 0",
    "distance_km(loc, point(30.28, -97.7)) BETWEEN 3.998 AND 4.1", "distance_km(loc, s) > 0",
    "distance_km(coalesce(loc, :p), receiver.loc) < 10", "within_km(loc, :p, 1.2)", "within_km(loc, pair, a)",
    "within_box(loc, 30, -98, 31, -97)", "within_box(loc, -90, 170, 90, -170)", "within_box(pair, 0, 170, 90, 180)",
    "within_box(loc, a, -180, b, 180)", "within_box(pair, -90, 180, 90, a)", "within_box(loc, 0, NULL, 1, 1)",
    "point(a, b) = point(b, a)", "point(a, b) IS NULL", "point(91, 0) IS NULL", "point(a, 0) = loc",
    "hour(ts) = 2", "hour(ts) = 23", "weekday(ts) = 2", "weekday(ts) = 3", "hour(ts, 'US/Pacific') = 19",
    "hour(ts, 'Asia/Kolkata') = 5", "weekday(ts, 'Asia/Tokyo') = 4", "hour(ts, 'No/Where') = 1", "hour(ts) IS NULL",
    "hour(ts, 'America/New_York') >= 0", "weekday(ts, 'Pacific/Auckland') < 9", "hour(ts, NULL) = 1",
    "weekday(ts) IS NULL", "hour(a * 3600) = 1", "ts > 0", "ts < 0", "hour(ts, 'Asia/Kathmandu') = 5",
    "receiver.age >= 21", "receiver.age = a", "auth.user = 'bob'", "auth.user IS NULL", "receiver.name = 'bob'",
    "receiver.age >= a AND within_km(receiver.loc, loc, 20)", "distance_km(receiver.loc, loc) < 10",
    "twice(a) = 2", "twice(b) > twice(a)", "shout(s) = 'ABC!'", "shout(s) IS NULL", "twice(a * 10) IS NULL",
]  # fmt: skip
GIVEN = {
    "p": AUSTIN,
    "none": [],
    "many": [*(f"w{i}" for i in range(40)), "abc", "it's", *range(20), 0.5, -0.0],
}


def register():
    @function("twice", returns="number", spark="{0} * 2", sqlite="{0} * 2")
    def twice(x: float) -> float:
        return 2 * x

    @function("shout", returns="string", spark="concat(upper({0}), '!')")
    def shout(x: str) -> str:
        return "".join(c.upper() if c.isascii() else c for c in x) + "!"


@pytest.fixture(scope="module", autouse=True)
def user_functions():
    register()
    yield
    remove("twice")
    remove("shout")


def predicate(text, given=GIVEN):
    return Predicate(text, **{name: value for name, value in given.items() if f":{name}" in text})


@pytest.fixture
def connection():
    database = sqlite3.connect(":memory:")
    register_functions(database)
    yield database
    database.close()


def to_boolean(result):
    return None if result is None else bool(result)


def check(connection, predicates, rows, layout, table):
    """Compare SQLite with Python for all predicates and rows of (record, receiver)."""
    expected = [[p(record, receiver=reader) for record, reader in rows] for p in predicates]
    for p, expected_values in zip(predicates, expected, strict=True):
        result = connection.execute(
            f"SELECT {p.sql('sqlite', layout)} FROM {table} ORDER BY rowid"
        ).fetchall()
        for (record, reader), expected_value, (value,) in zip(rows, expected_values, result, strict=True):
            assert to_boolean(value) is expected_value, (p.text, record, reader)


def test_json_columns_agree_with_python(connection):
    connection.execute("CREATE TABLE t (data TEXT, reader TEXT)")
    rows = list(itertools.product(RECORDS, READERS))
    connection.executemany("INSERT INTO t VALUES (?, ?)", [tuple(map(to_json, row)) for row in rows])
    check(
        connection, [predicate(text) for text in CASES], rows, Layout(record="data", receiver="reader"), "t"
    )


TYPED = {
    "n": "number", "m": Column("other m", "number"), "s": Column("it's `s`", "string"), "t": "boolean",
    "loc": Column(("lat", "lon"), "point"), "place": "point", "home.city": "string", "home.lat": "number",
    "home.lon": Column("x", "number"), "free": "json", "thing": "struct",
}  # fmt: skip
TYPED_CASES = [
    "n > 5", "n = m", "n + m > 3", "s = n", "s = 'x'", "s < 'é'", "t", "t = TRUE", "n = TRUE", "n IS NULL", "t IS NULL",
    "loc.lat > 1", "loc = place", "place.lon = 2", "loc IS NULL", "place IS NULL", "distance_km(loc, place) < 300",
    "home IS NULL", "home.city = 'Wien'", "home.lat > 0", "home = loc", "distance_km(home, loc) >= 0", "free.b > 1",
    "free = n", "free IS NULL", "thing IS NULL", "coalesce(n, s, t) = 1", "receiver.age = 1", "home.city IS NULL",
    "free.c.lat = 1", "coalesce(s, free) = n", "n IN (1, '7')", "t IN (TRUE, 1)", "length(s) = 2", "thing = thing",
]  # fmt: skip


def test_typed_columns_agree_with_python(connection):
    connection.execute(
        "CREATE TABLE t (n NUMERIC, `other m`, `it's ``s``` TEXT COLLATE NOCASE, t BOOLEAN, lat, lon, place, "
        "`home.city`, `home.lat`, x, free, thing)"
    )
    rows = [
        {},
        {"n": 7, "m": 7.0, "s": "x", "t": True, "loc": (1, 2), "place": [1, 2], "home": {"city": "Wien"}},
        {"n": 1, "m": 2**60, "s": "X", "t": False, "loc": (1, 3), "place": {"lat": 9, "lon": 2}},
        {"n": 1, "home": {"lat": 1, "lon": 2}, "free": {"b": 2, "c": [1, 2]}, "thing": {"a": 1}},
        {"n": 2**53, "s": "éa", "t": None, "home": {"lat": 1, "lon": 200, "city": "x"}, "free": 5},
        {"n": 3, "loc": (1, 2), "place": (1, 2), "home": {"lat": 1, "lon": 2, "city": "Wien"}},
        {"n": -5, "m": -5, "s": "a\0", "loc": (0.0, -0.0), "place": (-0.0, 0.0), "free": "5"},
    ]
    for row in rows:
        home, place, loc = row.get("home", {}), row.get("place"), row.get("loc", (None, None))
        values = (
            *(row.get(name) for name in "nmst"),
            *loc,
            None if place is None else to_json({"p": place})[6:-1],
            home.get("city"),
            home.get("lat"),
            home.get("lon"),
            to_json({"p": row.get("free")})[6:-1],
            "thing" in row or None,
        )
        connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(values))})", values)
    check(
        connection,
        [Predicate(text) for text in TYPED_CASES],
        [(row, {}) for row in rows],
        Layout(record=TYPED),
        "t",
    )


def test_other_types_in_a_typed_column_are_null(connection):
    connection.execute("CREATE TABLE t (n, s, t)")
    connection.execute("INSERT INTO t VALUES ('7', 7, 2), (x'00', x'00', 'x'), (9e999, NULL, 1.0)")
    layout = Layout(record={"n": "number", "s": "string", "t": "boolean"})
    for text in ("n IS NULL", "s IS NULL", "t IS NULL"):
        result = connection.execute(f"SELECT {Predicate(text).sql('sqlite', layout)} FROM t").fetchall()
        assert result == [(1,), (1,), (1,)]


def test_names_and_strings_are_quoted(connection):
    layout = Layout(record={"a": Column("x` = 1 OR `x", "string")})
    connection.execute("CREATE TABLE t (`x`` = 1 OR ``x` TEXT)")
    for text in ("' OR 1=1 --", "\\'", "${x}", "$x", "a\nb;DROP TABLE t", "%s {0} {}", "\\u0041", "`"):
        connection.execute("DELETE FROM t")
        connection.execute("INSERT INTO t VALUES (?)", (text,))
        p = Predicate("a = :x", x=text)
        assert connection.execute(f"SELECT {p.sql('sqlite', layout)} FROM t").fetchall() == [(1,)]
    missing = Predicate("a = 'nothing'").sql("sqlite", Layout(record={"a": Column("nothing", "string")}))
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        connection.execute(f"SELECT {missing} FROM t")


def nest(template, levels, text):
    for _ in range(levels):
        text = template.format(text)
    return text


DEEP = [
    "a = " + " + ".join(["1"] * 95), "a < " + " / ".join(["a"] * 90), "a < " + " - ".join(["b"] * 90),
    "a < " + " * ".join(["a"] * 90),
    "a = " + nest("(1 + {})", 18, "a"), nest("(NOT {})", 9, "t"), nest("(t = {})", 18, "t"),
    nest("({} = t)", 18, "t"), nest("({} IS NULL)", 18, "t"), nest("({} IN (TRUE))", 15, "t"),
    nest("({} BETWEEN FALSE AND TRUE)", 10, "t"), nest("({} BETWEEN FALSE AND TRUE)", 10, "(a = 1)"),
    nest("({} IN (t, TRUE))", 15, "t"), nest("({} IN (FALSE, TRUE, NULL))", 15, "t"),
    "a = " + nest("1 / (1 + {})", 18, "a"), "a = " + nest("abs({})", 18, "a"),
    "s = " + nest("lower({})", 18, "s"), "length(" + nest("coalesce(s, {})", 18, "'x'") + ") = 1",
    "a = " + nest("coalesce(a + 1, {}, s)", 18, "b"), nest("coalesce(t, {} = TRUE)", 18, "t"),
    nest("coalesce({}, t) = TRUE", 9, "t"), "a = " + nest("hour({})", 18, "ts"),
    "a < " + nest("distance_km(loc, point({}, 0))", 9, "a"), " AND ".join(["a = 1"] * 120),
    " OR ".join(["t"] * 200), "coalesce(" + ", ".join(["a", "b", "s + 1"] * 80) + ") = 1",
    "a IN (" + ", ".join(str(i) for i in range(900)) + ")", nest("NOT {}", 18, "(t)"),
    "a = " + nest("twice({})", 4, "a"), nest("matches(s, 'a') = ({})", 15, "t"),
]  # fmt: skip


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_and_long_predicates_agree_with_python(connection, text):
    connection.execute("CREATE TABLE t (data TEXT, a, b, s, t, ts, lat, lon)")
    connection.executemany("INSERT INTO t (data) VALUES (?)", [(to_json(record),) for record in RECORDS])
    start_s = time.process_time()
    check(connection, [predicate(text)], [(record, {}) for record in RECORDS], Layout(record="data"), "t")
    assert time.process_time() - start_s < 30  # a guard against exponential growth


@pytest.mark.parametrize("symbol", ["+", "*", "/", "AND", "OR"])
def test_chain_of_one_operator_is_one_piece(symbol):
    """Only nested pieces are too deep for SQLite's parser, which reads a chain from the left."""
    part = "t" if symbol in ("AND", "OR") else "a"
    text = f" {symbol} ".join([part] * 95) + ("" if part == "t" else " > 1")
    assert "mudkit_0" not in Predicate(text).sql("sqlite", Layout(record={"a": "number", "t": "boolean"}))


def test_too_long_sql_is_refused(connection):
    big = [f"{'x' * 200}{i}" for i in range(9000)]
    for dialect in ("sqlite", "spark"):
        with pytest.raises(PredicateError, match="too long"):
            Predicate("a IN :big", big=big).sql(dialect, Layout(record="data"))
    mixed = nest("(coalesce(a, {0} = t, s) = coalesce(s, {0}, b))", 7, "t")
    start_s = time.process_time()
    with pytest.raises(PredicateError, match="too"):
        Predicate(mixed).sql("spark", Layout(record="data"))
    assert time.process_time() - start_s < 30  # a guard against exponential growth


def test_numbers_round_trip_exactly(connection):
    rng = random.Random(7)
    numbers = [rng.choice((-1, 1)) * rng.random() * 10.0 ** rng.randint(-320, 308) for _ in range(2000)]
    layout = Layout(record={"x": "number"})
    connection.execute("CREATE TABLE t (x REAL, data TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(x, to_json({"x": x})) for x in numbers])
    read = connection.execute("SELECT x, json_extract(data, '$.x') FROM t").fetchall()
    assert all(x == y for x, y in read)
    for x in (5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, *numbers[:300]):
        sql = Predicate("x = :x", x=x).sql("sqlite", layout)
        assert connection.execute(f"SELECT {sql} FROM (SELECT ? AS x)", (x,)).fetchone() == (1,), x


def test_user_functions_of_points_agree_with_python(connection):
    @function("place", returns="point")
    def place(x: float) -> tuple[float, float]:
        return (x, x)

    try:
        register_functions(connection)
        p = Predicate("distance_km(place(a), place(b)) > 1 OR place(a) = loc")
        connection.execute("CREATE TABLE t (data TEXT)")
        records = [{"a": 1, "b": 2}, {"a": 100, "b": 1}, {"a": 3, "b": 3, "loc": [3, 3]}, {"a": "x"}]
        connection.executemany("INSERT INTO t VALUES (?)", [(to_json(record),) for record in records])
        check(connection, [p], [(record, {}) for record in records], Layout(record="data"), "t")
    finally:
        remove("place")


@pytest.mark.parametrize("x", [0.1, -2.5, 1e308, 5e-324, 2.2250738585072014e-308, 123456.789, 2.0**60])
def test_decimal_that_sqlite_reads_wrongly_is_written_with_powers_of_two(monkeypatch, x):
    monkeypatch.setattr(sqlite, "sqlite_reads", lambda written: math.nan)
    written = sqlite._number.__wrapped__(x)
    assert sqlite3.connect(":memory:").execute(f"SELECT {written}").fetchone() == (x,)

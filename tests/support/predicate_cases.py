"""Cases of predicates over records of any kinds, and deep ones, for the evaluators that must agree on them."""

import datetime as dt
import math

from mudkit.predicates import Predicate, function
from mudkit.predicates.functions import remove

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
    "a = '7'", "s = 7", "a = TRUE", "'a' < 'b'", "NULL", "TRUE", "a = NULL", "NOT (a = NULL)",
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
    "point(a, b) = point(b, a)", "point(a, b) IS NULL", "point(a + 84, 0) IS NULL", "point(a, 0) = loc",
    "hour(ts) = 2", "hour(ts) = 23", "weekday(ts) = 2", "weekday(ts) = 3", "hour(ts, 'US/Pacific') = 19",
    "hour(ts, 'Asia/Kolkata') = 5", "weekday(ts, 'Asia/Tokyo') = 4", "hour(ts) IS NULL",
    "hour(ts, 'America/New_York') >= 0", "weekday(ts, 'Pacific/Auckland') < 9", "hour(ts, NULL) = 1",
    "weekday(ts) IS NULL", "year(ts) = 2017", "month(ts) > 6", "day(ts) = 14", "minute(ts) = 40", "minute(ts, 'Asia/Kolkata') = 10",
    "day(ts, 'Pacific/Auckland') = 1", "year(ts, 'America/New_York') = 1969", "month(a * 1e7) = month(b * 1e7)", "ts < TIMESTAMP '2020-01-01'", "hour(a * 3600) = 1", "ts > 0", "ts < 0", "hour(ts, 'Asia/Kathmandu') = 5",
    "receiver.age >= 21", "receiver.age = a", "auth.user = 'bob'", "auth.user IS NULL", "receiver.name = 'bob'",
    "receiver.age >= a AND within_km(receiver.loc, loc, 20)", "distance_km(receiver.loc, loc) < 10",
    "twice(a) = 2", "twice(b) > twice(a)", "shout(s) = 'ABC!'", "shout(s) IS NULL", "twice(a * 10) IS NULL",
]  # fmt: skip
GIVEN = {
    "p": AUSTIN,
    "none": [],
    "many": [*(f"w{i}" for i in range(40)), "abc", "it's", *range(20), 0.5, -0.0],
}


def register_user_functions():
    @function("twice", returns="number", spark="{0} * 2", numpy=lambda x: x * 2)
    def twice(x: float) -> float:
        return 2 * x

    @function("shout", returns="string", spark="concat(upper({0}), '!')")
    def shout(x: str) -> str:
        return "".join(c.upper() if c.isascii() else c for c in x) + "!"


def remove_user_functions():
    for name in ("twice", "shout"):
        remove(name)


def predicate(text, given=GIVEN):
    return Predicate(text, **{name: value for name, value in given.items() if f":{name}" in text})


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

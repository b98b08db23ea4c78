"""Table of the semantics of predicates: text, record, reader, and TRUE, FALSE or NULL.

Every evaluator is tested with all rows. A row is (text, record, receiver, expected); None is NULL.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

T, F, N = True, False, None
Row = tuple[str, dict[str, Any], dict[str, Any], bool | None]

R: dict[str, Any] = {
    "n": 7, "m": 2.5, "zero": 0, "neg": -3, "s": "abc", "upper": "ABC", "empty": "", "yes": True, "no": False,
    "nul": None, "uni": "Zürich 😀", "loc": (30.27, -97.74), "place": {"lat": 30.28, "lon": -97.74},
    "home": {"city": "Austin", "geo": {"lat": 1, "lon": 2}, "n": 5}, "list": [1, 2, 3], "t": 1_700_000_000,
    "when": dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC), "day": dt.date(2023, 11, 14), "quote": "it's \"so\" \\ %_$",
    "seven": "7", "key": "k1",
}  # fmt: skip
READER = {"age": 30, "loc": (30.28, -97.74), "name": "Ann", "vip": True}


def list_rows() -> list[Row]:
    """Return all rows."""
    return [(text, R, READER, expected) for text, expected in _PLAIN] + _with_null() + _logic() + _records()


_PLAIN: list[tuple[str, bool | None]] = [
    # comparisons
    ("n = 7", T), ("n = 8", F), ("n <> 7", F), ("n != 8", T), ("n == 7", T), ("n < 8", T), ("n <= 7", T), ("n > 7", F),
    ("n >= 7", T), ("7 = n", T), ("6 < n", T), ("m = 2.5", T), ("m = 25e-1", T), ("m < .5e1", T), ("n = 7.0", T),
    ("neg = -3", T), ("- neg = 3", T), ("neg < zero", T), ("zero = -0.0", T), ("s = 'abc'", T), ("s = 'ABC'", F),
    ("s <> 'abd'", T), ("s < 'abd'", T), ("upper < s", T), ("s >= 'abc'", T), ("empty = ''", T), ("empty < 'a'", T),
    ("yes = TRUE", T), ("yes <> no", T), ("no < yes", T), ("yes > FALSE", T), ("yes", T), ("no", F), ("NOT no", T),
    ("TRUE", T), ("FALSE", F), ("NULL", N), ("NOT NULL", N),
    # different kinds are NULL
    ("n = '7'", N), ("seven = 7", N), ("seven > 5", N), ("n <> '7'", N), ("yes = 1", N), ("yes = 'true'", N), ("n > TRUE", N),
    ("s = loc", N), ("loc = 5", N), ("home = 'Austin'", N), ("home = home", N), ("home <> home", N), ("list = 1", N),
    ("n BETWEEN '1' AND '9'", N), ("s BETWEEN 1 AND 2", N), ("n", N), ("s", N), ("NOT s", N), ("n AND TRUE", N), ("n AND FALSE", F),
    ("s OR TRUE", T), ("s OR FALSE", N), ("n + 5 = s", N), ("yes = 'x'", N), ("seven = 7 OR n = 7", T), ("home < home", N),
    # unknown names, NULL
    ("nul = 1", N), ("missing = 1", N), ("missing IS NULL", T), ("nul IS NULL", T), ("n IS NULL", F), ("n IS NOT NULL", T),
    ("nul IS NOT NULL", F), ("home IS NULL", F), ("home IS NOT NULL", T), ("list IS NULL", T), ("loc IS NULL", F),
    ("empty IS NULL", F), ("no IS NULL", F), ("zero IS NULL", F), ("(n = '7') IS NULL", T), ("(n = 7) IS NULL", F),
    ("missing.a.b IS NULL", T), ("n.a IS NULL", T), ("s.lat IS NULL", T), ("NULL IS NULL", T), ("NOT nul IS NULL", F),
    # BETWEEN, IN
    ("n BETWEEN 5 AND 10", T), ("n BETWEEN 7 AND 7", T), ("n BETWEEN 8 AND 10", F), ("n NOT BETWEEN 8 AND 10", T),
    ("n BETWEEN 10 AND 5", F), ("s BETWEEN 'a' AND 'b'", T), ("n BETWEEN 8 AND NULL", F), ("n BETWEEN 5 AND NULL", N),
    ("n BETWEEN NULL AND 5", F), ("n NOT BETWEEN NULL AND 5", T), ("nul BETWEEN 1 AND 2", N), ("n BETWEEN m AND 10", T),
    ("n BETWEEN 5 AND 'x'", N), ("n IN (1, 7, 9)", T), ("n IN (1, 2)", F), ("n NOT IN (1, 2)", T), ("n IN (1, NULL)", N),
    ("n IN (7, NULL)", T), ("n NOT IN (1, NULL)", N), ("n NOT IN (7, NULL)", F), ("n IN ('7')", N), ("n IN (1, '7')", N),
    ("n IN (7, '7')", T), ("s IN ('abc', 'x')", T), ("s IN ('x', 1)", N), ("nul IN (1, 2)", N), ("nul IN (NULL)", N), ("n IN ()", F),
    ("nul IN ()", F), ("n NOT IN ()", T), ("yes IN (TRUE, FALSE)", T), ("yes IN (1)", N), ("n IN (m, 7)", T), ("n IN (m, nul)", N),
    ("n IN (-7, +7)", T), ("neg IN (-3)", T), ("home IN (1, 2)", N), ("n IN (n)", T),
    # arithmetic
    ("n + 1 = 8", T), ("n - 1 = 6", T), ("n * 2 = 14", T), ("n / 2 = 3.5", T), ("n / zero IS NULL", T), ("n / zero = 1", N),
    ("0 / zero IS NULL", T), ("1 + 2 * 3 = 7", T), ("(1 + 2) * 3 = 9", T), ("10 - 4 - 3 = 3", T), ("8 / 4 / 2 = 1", T),
    ("-n = -7", T), ("- - n = 7", T), ("n + s IS NULL", T), ("n + nul IS NULL", T), ("n + yes IS NULL", T),
    ("1e308 * 10 IS NULL", T), ("1e308 * 10 > 5", N), ("-1e308 * 10 < 5", N), ("1 / (1e308 * 10) IS NULL", T),
    ("0.1 + 0.2 = 0.3", F), ("0.1 + 0.2 > 0.3", T), ("n + 1 > n", T), ("n * -1 < 0", T), ("1e-320 > 0", T), ("abs(neg) = 3", T),
    ("abs(s) IS NULL", T), ("abs(nul) IS NULL", T), ("9007199254740992 = 9007199254740992", T), ("n - - 1 = 8", T),
    ("- - 0.0 = 0", T), ("-(- 0.0) = zero", T), ("n - -0.0 = 7", T), ("n * -0.0 = 0", T), ("n / -0.0 IS NULL", T),
    # LIKE and strings
    ("s LIKE 'a%'", T), ("s LIKE 'A%'", F), ("s LIKE '_b_'", T), ("s LIKE '_b'", F), ("s LIKE '%'", T), ("empty LIKE '%'", T),
    ("empty LIKE '_'", F), ("s LIKE 'abc'", T), ("s LIKE ''", F), ("empty LIKE ''", T), ("s NOT LIKE 'x%'", T), ("nul LIKE '%'", N),
    ("n LIKE '%'", N), ("s LIKE nul", N), ("s LIKE '%b%'", T), ("quote LIKE '%\\%'", T), ("quote LIKE '%\\_\\%'", F), ("quote LIKE '%\\ %'", T),
    ("uni LIKE 'Z_rich __'", F), ("uni LIKE 'Z_rich _'", T), ("s LIKE 'a.c'", F), ("s LIKE '[a]bc'", F), ("s NOT LIKE nul", N),
    ("starts_with(s, 'ab')", T), ("starts_with(s, '')", T), ("starts_with(s, 'abcd')", F), ("starts_with(nul, 'a')", N),
    ("contains(s, 'bc')", T), ("contains(s, '')", T), ("contains(s, 'B')", F), ("contains(n, '7')", N), ("contains(uni, 'ü')", T),
    ("lower(upper) = 'abc'", T), ("upper(s) = 'ABC'", T), ("lower('ÀB') = 'Àb'", T), ("upper('straße') = 'STRAßE'", T), ("lower(n) IS NULL", T),
    ("length(s) = 3", T), ("length(empty) = 0", T), ("length(uni) = 8", T), ("length('😀') = 1", T), ("length(n) IS NULL", T),
    ("matches(s, '^a.c$')", T), ("matches(s, 'b')", T), ("matches(s, '^b')", F), ("matches(s, '(?i)ABC')", T), ("matches(nul, 'a')", N),
    ("matches(s, nul)", N), ("matches(n, '7')", N), ("matches(uni, '\\pL+ .')", T), ("matches(empty, '^$')", T), ("matches(s, '(a+)+$')", F),
    ("matches('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab', '(a+)+$')", F),
    ("'it''s' = 'it''s'", T), ("quote = 'it''s \"so\" \\ %_$'", T), ("s = 'abc' -- a comment", T), ("s = /* here, too */ 'abc'", T),
    ("s = 'a--b'", F), ("s = 'a/*b*/'", F), ("'${spark.app.name}' = 's'", F), ("'a;b' = 'a;b'", T), ("'😀' = '😀'", T), ("uni > 'Z'", T),
    ("'\ufffd' < '😀'", T), ("'a' < 'B'", F), ("'ä' > 'z'", T), ("'a\nb' = 'a\nb'", T), ("'a\\nb' = 'a\nb'", F), ("'\\' = '\\'", T),
    # coalesce
    ("coalesce(nul, 5) = 5", T), ("coalesce(nul, missing) IS NULL", T), ("coalesce(n, 5) = 7", T), ("coalesce(s, 5) = 5", N),
    ("coalesce(nul, s) = 'abc'", T), ("coalesce(nul, n, s) = 7", T), ("coalesce(nul, yes)", T), ("coalesce(n / zero, 1) = 1", T),
    ("coalesce(home, 5) = 5", N), ("coalesce(nul, loc) = loc", T), ("coalesce(n) = 7", T), ("coalesce(list, 3) = 3", T),
    # points
    ("loc = loc", T), ("loc = place", F), ("loc <> place", T), ("loc = point(30.27, -97.74)", T), ("place = point(30.28, -97.74)", T),
    ("loc < place", N), ("loc IS NOT NULL", T), ("loc.lat = 30.27", T), ("loc.lon < 0", T), ("place.lat = 30.28", T), ("loc.x IS NULL", T),
    ("home.geo = point(1, 2)", T), ("home.geo.lon = 2", T), ("point(n + 84, 0) IS NULL", T), ("point(0, n + 174) IS NULL", T), ("point(n, nul) IS NULL", T),
    ("distance_km(loc, place) < 1.2", T), ("distance_km(loc, place) > 1.1", T), ("distance_km(loc, loc) = 0", T), ("distance_km(loc, n) IS NULL", T),
    ("distance_km(point(0, 0), point(0, 180)) > 20015", T), ("distance_km(point(0, 0), point(0, 180)) < 20016", T), ("distance_km(point(0, 179.5), point(0, -179.5)) < 112", T),
    ("distance_km(point(90, 0), point(90, 77)) = 0", T), ("within_km(loc, place, 1.2)", T), ("within_km(loc, place, 1.1)", F), ("within_km(loc, nul, 1)", N),
    # one degree, rounded down to millimetres
    ("within_km(home.geo, point(0, 2), 111.195080)", T), ("within_km(home.geo, point(0, 2), 111.195079)", F),
    ("within_km(home.geo, point(0, 2), 112)", T), ("within_km(home.geo, point(80, 2), -10000)", F),
    ("within_km(loc, place, nul)", N), ("within_km(loc, loc, 0)", T), ("within_km(loc, place, -1)", F),
    ("within_box(loc, 30, -98, 31, -97)", T), ("within_box(loc, 30.27, -97.74, 30.27, -97.74)", T), ("within_box(loc, 31, -98, 32, -97)", F),
    ("within_box(point(0, 180), -1, 170, 1, -170)", T), ("within_box(point(0, 175), -1, 170, 1, -170)", T), ("within_box(point(0, 0), -1, 170, 1, -170)", F),
    ("within_box(point(0, -180), -1, 170, 1, 180)", T), ("within_box(point(0, 180), -1, -180, 1, -170)", T), ("within_box(nul, 0, 0, 1, 1)", N), ("within_box(loc, 0, nul, 1, 1)", N),
    ("within_box(home, 0, 0, 5, 5)", N), ("within_box(home.geo, 0, 0, 5, 5)", T),
    # paths
    ("home.city = 'Austin'", T), ("home.n = 5", T), ("home.n + 2 = n", T), ("home.street IS NULL", T), ("home.city.x IS NULL", T), ("record.n = 7", T),
    ("key = 'k1'", T), ("record.key = 'k1'", T), ("record.home.city = 'Austin'", T),
    # times are numbers
    ("t = 1700000000", T), ("when = t", T), ("when > 1.6e9", T), ("day = 1699920000", T), ("hour(t) = 22", T), ("hour(when) = 22", T), ("weekday(t) = 1", T),
    ("hour(day) = 0", T), ("hour(t, 'America/Chicago') = 16", T), ("weekday(t, 'Asia/Tokyo') = 2", T), ("hour(t, 'Asia/Kolkata') = 3", T),
    ("hour(s) IS NULL", T), ("hour(nul) IS NULL", T), ("hour(0) = 0", T), ("weekday(0) = 3", T), ("hour(-1) = 23", T), ("weekday(-1) = 2", T), ("hour(3599.9999999) = 0", T),
    ("hour(1e15) IS NULL", T), ("weekday(-1e15) IS NULL", T),
    ("hour(-62135510400) = 0", T), ("hour(-62135510401) IS NULL", T), ("hour(253402214399) = 23", T), ("hour(253402214400) IS NULL", T),
    ("weekday(-62135510400) = 1", T), ("weekday(-62135510401) IS NULL", T), ("weekday(253402214399) = 3", T), ("weekday(253402214400) IS NULL", T),
    ("hour(-62135510400, 'Asia/Tokyo') = 9", T), ("hour(-62135510401, 'Asia/Tokyo') IS NULL", T), ("hour(253402214400, 'Asia/Tokyo') IS NULL", T), ("when BETWEEN 1699999999 AND 1700000001", T),
    # 2023-11-14 22:13:20 UTC, a Tuesday
    ("year(t) = 2023", T), ("month(t) = 11", T), ("day(t) = 14", T), ("minute(t) = 13", T), ("day(t, 'Asia/Tokyo') = 15", T), ("minute(t, 'Asia/Kolkata') = 43", T),
    ("year(s) IS NULL", T), ("minute(nul) IS NULL", T), ("year(-62135510401) IS NULL", T), ("day(253402214400) IS NULL", T), ("day(253402214399) = 30", T),
    ("year(-62135510400) = 1", T), ("month(-1) = 12", T), ("day(-1) = 31", T), ("minute(-1) = 59", T), ("year(-1) = 1969", T), ("day(951782399) = 28", T), ("day(951782400) = 29", T),
    ("year(t, 'Asia/Tokyo') = 2023", T), ("month(1704063600, 'Europe/Zurich') = 1", T), ("year(1704063600) = 2023", T), ("year(1704063600, 'Europe/Zurich') = 2024", T),
    ("t > DATE '2023-11-14'", T), ("t < date '2023-11-15'", T), ("t = TIMESTAMP '2023-11-14 22:13:20'", T), ("t = TIMESTAMP '2023-11-14T22:13:20Z'", T),
    ("t = TIMESTAMP '2023-11-14 23:13:20+01:00'", T), ("t = TIMESTAMP '2023-11-14 23:13:20 Europe/Zurich'", T), ("t IN (DATE '2023-11-14', TIMESTAMP '2023-11-14 22:13:20')", T),
    ("t - DATE '2023-11-14' = 80000", T), ("t BETWEEN DATE '2023-11-14' AND DATE '2023-11-15'", T), ("TIMESTAMP '1969-12-31 23:59:59.5' = -0.5", T), ("date IS NULL", T), ("timestamp IS NULL", T),
    # the reader
    ("receiver.age >= 21", T), ("receiver.age = n + 23", T), ("receiver.name = 'Ann' AND receiver.vip", T), ("receiver.height > 1", N), ("auth.user = 'bob'", N),
    ("auth.user IS NULL", T), ("within_km(receiver.loc, loc, 2)", T),
    ("within_km(place, receiver.loc, 0)", T), ("within_km(loc, receiver.loc, 0)", F), ("receiver.loc = place", T), ("distance_km(receiver.loc, loc) < 1", F), ("receiver.loc.lat = 30.28", T),
    # depth and length
    ("((((((((((n = 7))))))))))", T), ("NOT NOT NOT NOT n = 7", T), ("NOT (NOT (NOT (n = 7)))", F), ("(((((((((((((((((((n))))))))))))))))))) = 7", T),
    (" AND ".join(["n = 7"] * 60), T), (" OR ".join(["n = 8"] * 59 + ["s = 'abc'"]), T), (" + ".join(["n"] * 60) + " = 420", T), (" + ".join(["n"] * 60) + " = 421", F),
    ("coalesce(" * 15 + "nul" + ", nul)" * 14 + ", 4) = 4", T), ("n IN (" + ", ".join(map(str, range(300))) + ")", T), ("((n BETWEEN 1 AND 9) BETWEEN FALSE AND TRUE) BETWEEN yes AND yes", T),
    ("(n = 7) = TRUE", T), ("n = 7 AND s = 'abc' OR no", T), ("no AND no OR yes", T), ("yes OR no AND no", T), ("NOT no AND no", F), ("NOT (no AND no)", T), ("((n = 7) = yes) = TRUE", T),
]  # fmt: skip


def _with_null() -> list[Row]:
    """Every operator with NULL on either side, written and as data."""
    result: list[Row] = []
    for operator in ("=", "<>", "<", "<=", ">", ">="):
        for left, right in (
            ("NULL", "n"),
            ("n", "NULL"),
            ("nul", "n"),
            ("n", "nul"),
            ("NULL", "NULL"),
            ("nul", "s"),
            ("nul", "loc"),
        ):
            result.append((f"{left} {operator} {right}", R, READER, N))
    for operator in "+-*/":
        result += [
            (f"{a} {operator} {b} IS NULL", R, READER, T)
            for a, b in (("NULL", "n"), ("n", "NULL"), ("nul", "n"), ("n", "nul"))
        ]
    return result


def _logic() -> list[Row]:
    """The truth tables of AND, OR and NOT."""
    names = {"yes": T, "no": F, "nul": N}
    result: list[Row] = []
    for a, x in names.items():
        for b, y in names.items():
            both = F if x is F or y is F else N if x is N or y is N else T
            either = T if x is T or y is T else N if x is N or y is N else F
            result += [(f"{a} AND {b}", R, READER, both), (f"{a} OR {b}", R, READER, either)]
        result.append((f"NOT {a}", R, READER, {T: F, F: T, N: N}[x]))
    return result


def _records() -> list[Row]:
    """The same predicates on data at the edges."""
    nan, inf = float("nan"), float("inf")
    cases: list[tuple[str, dict[str, Any], bool | None]] = [
        ("x = x", {"x": nan}, N), ("x IS NULL", {"x": nan}, T), ("x > 1", {"x": inf}, N), ("x IS NULL", {"x": -inf}, T),
        ("x IS NULL", {"x": 2**53 + 1}, T), ("x = 9007199254740992", {"x": 2**53}, T), ("x IS NULL", {"x": -(2**53) - 1}, T),
        ("x = -9007199254740992", {"x": -(2**53)}, T), ("x IS NULL", {"x": 2**63}, T), ("x IS NULL", {"x": 10**30}, T), ("x > 1e30", {"x": 1e300}, T),
        ("x > 9e15", {"x": 9007199254740994.0}, T), ("x IS NULL", {"x": "a\0b"}, T), ("x = ''", {"x": ""}, T), ("x IS NULL", {"x": [1]}, T),
        ("x IS NULL", {"x": []}, T), ("x IS NULL", {"x": [1, "a"]}, T), ("x = point(1, 2)", {"x": [1, 2]}, T), ("x.lat = 1", {"x": [1, 2]}, T),
        ("x IS NULL", {"x": [95, 2]}, T), ("x.lat IS NULL", {"x": [95, 2]}, T), ("x.lat = 95", {"x": {"lat": 95, "lon": 2}}, T), ("x IS NULL", {"x": {"lat": 95, "lon": 2}}, F),
        ("x = point(1, 2)", {"x": {"lat": 1, "lon": 2, "name": "here"}}, T), ("x.name = 'here'", {"x": {"lat": 1, "lon": 2, "name": "here"}}, T),
        ("x IS NULL", {"x": {}}, F), ("x.y.z = 1", {"x": {"y": {"z": 1}}}, T), ("x.y.z IS NULL", {"x": {"y": 5}}, T), ("x IS NULL", {}, T),
        ("x = 1", {"x": True}, N), ("x", {"x": 1}, N), ("x = TRUE", {"x": True}, T), ("x = 'true'", {"x": True}, N), ("x = 0.1", {"x": 0.1}, T),
        ("x = 1e-300", {"x": 1e-300}, T), ("x * x IS NULL", {"x": 1e200}, T), ("x = -x", {"x": 0.0}, T), ("x = '1'", {"x": 1}, N), ("x IS NULL", {"x": [nan, 1]}, T),
        ("length(x) = 2", {"x": "\r\n"}, T), ("x = '\u2028'", {"x": "\u2028"}, T), ("x LIKE '_'", {"x": "\n"}, T), ("matches(x, '^.$')", {"x": "é"}, T),
        ("x = y", {"x": 1, "y": 1.0}, T), ("x = y", {"x": "1", "y": 1}, N), ("x = y", {"x": [1, 2], "y": {"lat": 1, "lon": 2}}, T), ("x < y", {"x": "a", "y": "b"}, T),
        ("x < y", {"x": False, "y": True}, T), ("x <> y", {"x": True, "y": False}, T), ("x = y", {"x": {"a": 1}, "y": {"a": 1}}, N), ("x IN (y, 3)", {"x": 3, "y": "3"}, T),
        ("x BETWEEN y AND z", {"x": 2, "y": 1, "z": "3"}, N), ("x BETWEEN y AND z", {"x": 0, "y": 1, "z": "3"}, F), ("coalesce(x, y) = z", {"y": "q", "z": "q"}, T),
    ]  # fmt: skip
    return [(text, record, {}, expected) for text, record, expected in cases]

"""An independent reference for predicates: random conditions of known kinds, written for mudkit and for DuckDB.

DuckDB has its own parser and its own three-valued logic. Its columns have types, so each side of an operator has
the kind that the operator takes, NULL too. Conditions over values of any kind are compared among our own evaluators.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import duckdb
from hypothesis import strategies as st

COLUMNS = {
    "n": "DOUBLE", "m": "DOUBLE", "s": "VARCHAR", "u": "VARCHAR", "t": "BOOLEAN", "ts": "DOUBLE", "lat": "DOUBLE", "lon": "DOUBLE",
}  # fmt: skip
EARTH_RADIUS_KM = 6371.0088  # mean radius of the Earth (IUGG)


class Written(NamedTuple):
    """A piece of a condition, for mudkit and for DuckDB."""

    text: str
    duckdb: str


def _fill(template: str, duckdb_text: str | None = None) -> Any:
    """Return a function that fills both templates with pieces."""
    return lambda *parts: Written(
        template.format(*(part.text for part in parts)),
        (duckdb_text or template).format(*(part.duckdb for part in parts)),
    )


def _same(text: str) -> Written:
    return Written(text, text)


def _quoted(text: str) -> Written:
    return _same("'" + text.replace("'", "''") + "'")


_ints = st.integers(-9, 9)
_texts = st.text("abAB'%_ 1\u00fc\U0001f600", max_size=4)
_places = st.tuples(
    st.integers(-900, 900).map(lambda n: n / 10), st.integers(-1800, 1800).map(lambda n: n / 10)
)

rows = st.fixed_dictionaries(
    {
        "n": st.none() | _ints, "m": st.none() | _ints.map(lambda n: n / 4), "s": st.none() | _texts, "u": st.none() | _texts,
        "t": st.none() | st.booleans(), "ts": st.none() | st.integers(-4_000_000_000, 4_000_000_000), "p": st.none() | _places,
    }
)  # fmt: skip

_string = st.recursive(
    st.one_of(
        st.sampled_from(["s", "u"]).map(_same),
        st.just(Written("NULL", "CAST(NULL AS VARCHAR)")),
        _texts.map(_quoted),
    ),
    lambda inner: st.builds(_fill("coalesce({}, {})"), inner, inner),
    max_leaves=3,
)
_ascii = st.text("abAB% 1", max_size=4).map(_quoted)
_place = st.one_of(
    st.just(Written("p", "(lat, lon)")),
    _places.map(lambda at: Written(f"point({at[0]}, {at[1]})", f"({at[0]}, {at[1]})")),
)


def _distance(a: Written, b: Written) -> Written:
    """Write the great-circle distance by the haversine formula, to a metre."""
    (lat_a, lon_a), (lat_b, lon_b) = (place.duckdb[1:-1].split(", ") for place in (a, b))
    h = (
        f"(pow(sin(radians({lat_b} - ({lat_a})) / 2), 2) + cos(radians({lat_a})) * cos(radians({lat_b})) "
        f"* pow(sin(radians({lon_b} - ({lon_a})) / 2), 2))"
    )
    return Written(
        f"distance_km({a.text}, {b.text})",
        f"(2 * {EARTH_RADIUS_KM} * asin(sqrt(CASE WHEN {h} > 1 THEN 1 ELSE {h} END)))",
    )


def _is_far(a: Written, b: Written, km: int) -> Written:
    distance = _distance(a, b)
    return Written(f"({distance.text} > {km}.5)", f"({distance.duckdb} > {km}.5)")


def _part_of_time(name: str, in_duckdb: str, shift: str = "") -> Written:
    time = "make_timestamp(CAST(ts * 1000000 AS BIGINT))"
    return Written(f"{name}(ts)", f"(extract({in_duckdb} FROM {time}){shift})")


_number = st.recursive(
    st.one_of(
        st.sampled_from(["n", "m"]).map(_same),
        st.just(Written("NULL", "CAST(NULL AS DOUBLE)")),
        _ints.map(lambda n: _same(f"({n})")),
        st.builds(_fill("length({})"), _string),
        st.builds(_fill("length(lower({}))"), _ascii),
        st.sampled_from(["year", "month", "day", "hour", "minute"]).map(
            lambda part: _part_of_time(part, part)
        ),
        st.just(_part_of_time("weekday", "isodow", " - 1")),
    ),
    lambda inner: st.one_of(
        *(st.builds(_fill(f"({{}} {sign} {{}})"), inner, inner) for sign in "+-*"),
        st.builds(_fill("({} / {})", "({} / nullif(CAST({} AS DOUBLE), 0))"), inner, inner),
        st.builds(_fill("abs({})", "abs(CAST({} AS DOUBLE))"), inner),
        st.builds(_fill("(- {})", "(- CAST({} AS DOUBLE))"), inner),
        st.builds(_fill("coalesce({}, {})"), inner, inner),
    ),
    max_leaves=4,
)
_signs = ("=", "<>", "<", "<=", ">", ">=")
_atoms = st.one_of(
    *(st.builds(_fill(f"({{}} {sign} {{}})"), side, side) for sign in _signs for side in (_number, _string)),
    *(
        st.builds(_fill(f"({{}} {word} {{}} AND {{}})"), side, side, side)
        for word in ("BETWEEN", "NOT BETWEEN")
        for side in (_number, _string)
    ),
    *(
        st.builds(_fill(f"({{}} {word} ({{}}, {{}}))"), side, side, side)
        for word in ("IN", "NOT IN")
        for side in (_number, _string)
    ),
    *(st.builds(_fill(f"({{}} {word})"), side) for word in ("IS NULL", "IS NOT NULL") for side in (_number, _string)),
    *(st.builds(_fill(f"({{}} {word} {{}})"), _string, _string) for word in ("LIKE", "NOT LIKE")),
    *(st.builds(_fill(f"{name}({{}}, {{}})"), _string, _string) for name in ("starts_with", "contains")),
    *(st.builds(_fill(f"({name}({{}}) = {{}})"), _ascii, _ascii) for name in ("lower", "upper")),
    st.builds(_is_far, _place, _place, st.integers(0, 20_000)),
    st.sampled_from(["t", "TRUE", "FALSE", "(t = TRUE)", "(t IS NULL)", "(t < TRUE)"]).map(_same),
)  # fmt: skip
conditions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.builds(_fill("({} AND {})"), inner, inner),
        st.builds(_fill("({} OR {})"), inner, inner),
        st.builds(_fill("(NOT {})"), inner),
    ),
    max_leaves=6,
)


class Reference:
    """A DuckDB database that evaluates conditions."""

    def __init__(self) -> None:
        self.database = duckdb.connect()
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        self.database.execute(f"CREATE TABLE t (row INTEGER, {columns})")

    def evaluate(self, conditions: list[str], data: list[dict[str, Any]]) -> list[list[bool | None]]:
        """Return TRUE, FALSE or NULL by condition, then by row."""
        self.database.execute("DELETE FROM t")
        for number, row in enumerate(data):
            lat, lon = row["p"] or (None, None)
            values = [number, *(row[name] for name in ("n", "m", "s", "u", "t", "ts")), lat, lon]
            self.database.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(values))})", values)
        columns = ", ".join(conditions)
        fetched = self.database.execute(f"SELECT {columns} FROM t ORDER BY row").fetchall()
        return [list(values) for values in zip(*fetched, strict=True)]

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from mudkit.errors import PredicateError
from mudkit.trace.folder import select
from mudkit.trace.schema import POSITIONS


@pytest.fixture
def positions() -> pa.Table:
    at = [dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in (6, 7, 8)]
    rows = {
        "device": ["a", "b", "a"],
        "ts": at,
        "lat": [30.0, 30.1, 31.0],
        "lon": [-97.0, -97.1, -98.0],
        "speed_mps": [5.0, None, 20.0],
    }
    return pa.table({name: rows.get(name, [None] * 3) for name in POSITIONS.names}, schema=POSITIONS)


@pytest.mark.parametrize(
    ("where", "hours"),
    [
        ("device = 'a'", [6, 8]), ("hour(ts) >= 7", [7, 8]), ("hour(ts, 'America/Chicago') = 0", [6]), ("speed_mps < 10", [6]), ("speed_mps IS NULL", [7]), ("within_km(point(lat, lon), point(30, -97), 20)", [6, 7]),
        ("TRUE", [6, 7, 8]), ("FALSE", []), ("NULL", []), ("ts = 1704092400", [7]),
    ],
)  # fmt: skip
def test_predicate_selects_rows(positions: pa.Table, where: str, hours: list[int]) -> None:
    assert [ts.hour for ts in select(positions, where)["ts"].to_pylist()] == hours


def test_unknown_column_is_refused(positions: pa.Table) -> None:
    with pytest.raises(PredicateError, match="did you mean 'speed_mps'"):
        select(positions, "speed_kmh > 5")

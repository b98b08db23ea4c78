"""Headline of `cache_policy` on recorded traces, recomputed with DuckDB and a plain loop from positions and reads.

Nothing else is shared with the product but the decisions that it recommends: boxes, the rule of own writes, labels,
replay and shares are written here again.
"""

import math
from collections import defaultdict

import duckdb
import pandas as pd
import pytest

from mudkit.learning import FixedRule
from mudkit.learning.pairs import Pairs
from mudkit.pipeline.coverage import read_labels
from mudkit.report import open_source
from mudkit.report.caching import study_reads
from mudkit.report.recording import BREAK, HOLE

pytestmark = pytest.mark.soak
COMPLETENESS, MAX_STALE, HORIZON_S = 0.9, 0.05, 7200.0
KM_PER_DEGREE = math.pi * 6371.0088 / 180

ANSWERS = f"""
CREATE TABLE asked AS
SELECT read_id, device, epoch_us(ts) AS t, lat, lon, CAST(round(window_s * 1e6) AS BIGINT) AS back,
       box_km / 2 / {KM_PER_DEGREE} AS high, box_km / 2 / {KM_PER_DEGREE} / cos(radians(lat)) AS wide
FROM reads;
CREATE TABLE written AS
SELECT row_number() OVER () AS point, device, epoch_us(ts) AS t, lat, lon FROM positions;
CREATE TABLE answers AS
SELECT read_id, point, asked.device = written.device AS own
FROM asked JOIN written ON written.t > asked.t - back AND written.t <= asked.t
WHERE abs(written.lat - asked.lat) <= high AND abs(written.lon - asked.lon) <= wide;
"""

LABELS = f"""
WITH sizes AS (
    SELECT asked.read_id, count(point) AS points, count(point) FILTER (NOT own) AS others
    FROM asked LEFT JOIN answers USING (read_id) GROUP BY ALL
), pairs AS (
    SELECT q.read_id, p.read_id AS cached_read_id FROM asked q JOIN asked p USING (device)
    WHERE p.t < q.t AND q.t - p.t <= {round(HORIZON_S * 1e6)}
), shared AS (
    SELECT pairs.read_id, cached_read_id, count(held.point) AS shared
    FROM pairs JOIN answers wanted ON wanted.read_id = pairs.read_id AND NOT wanted.own
    JOIN answers held ON held.read_id = cached_read_id AND held.point = wanted.point GROUP BY ALL
), labels AS (
    SELECT read_id, NULL::BIGINT AS cached_read_id, points, others, others AS missing FROM sizes
    UNION ALL
    SELECT read_id, cached_read_id, points, others, others - coalesce(shared, 0)
    FROM pairs JOIN sizes USING (read_id) LEFT JOIN shared USING (read_id, cached_read_id)
)
SELECT *, CASE WHEN others = 0 THEN 1.0::DOUBLE ELSE (others - missing)::DOUBLE / others END AS completeness
FROM labels
"""


@pytest.fixture(params=["taxis", "buses"])
def part(request, tmp_path):
    """Write some devices of a recorded trace, and of the taxis the first two days."""
    result, path = duckdb.connect(), tmp_path / f"{request.param}.csv"
    if request.param == "taxis":
        file, device, until = (
            request.getfixturevalue("cabspotting"),
            "cab",
            "WHERE t < 1211094000 + 2 * 86400",
        )
    else:
        file, device, until = request.getfixturevalue("capmetrics"), "vehicle_id", ""
    result.read_csv(str(file), all_varchar=False).create("rows")
    result.sql(
        f"""COPY (
            SELECT * FROM rows SEMI JOIN (SELECT DISTINCT {device} FROM rows ORDER BY md5({device}::VARCHAR)
            LIMIT 16) USING ({device}) {until}
        ) TO '{path}'"""
    )
    return path


def label_with_duckdb(positions, reads):
    """Return the labels of the pipeline, from joins of points."""
    database = duckdb.connect()
    database.register("positions", positions)
    database.register("reads", reads)
    database.execute("SET TimeZone = 'UTC'")
    database.execute(ANSWERS)
    return database.sql(LABELS).to_arrow_table()


def replay_shares(labels, pairs, local, reads):
    """Return the shares of reads that are sent, answered stale, and answered fresh, by a loop over the devices."""
    by_time = sorted(
        reads.select(["device", "ts", "read_id"]).to_pylist(), key=lambda row: tuple(row.values())
    )
    numbers = [row["read_id"] for row in by_time]
    is_local = {
        (numbers[read], numbers[cached]): decided
        for read, cached, decided in zip(
            pairs.read.tolist(), pairs.cached.tolist(), local.tolist(), strict=True
        )
    }
    complete = {(row["read_id"], row["cached_read_id"]): row["completeness"] for row in labels.to_pylist()}
    caches, counts = {}, defaultdict(int)
    for row in by_time:
        pair = (row["read_id"], caches.get(row["device"], -1))
        if is_local.get(pair, False):
            counts["fresh" if complete[pair] >= COMPLETENESS else "stale"] += 1
        else:
            counts["sent"] += 1
            caches[row["device"]] = row["read_id"]
    return {name: counts[name] / len(by_time) for name in ("sent", "stale", "fresh")}


def has_whole_window(read, unrecorded):
    """Check that at most a tenth of a read's window lies before the first row, or in a hole or break."""
    end, length = read["ts"].timestamp(), read["window_s"]
    lacking = sum(max(0.0, min(last, end) - max(first, end - length)) for first, last in unrecorded)
    return lacking <= length / 10


def test_headline_equals_its_recomputation(part):
    """The headline replays decisions by limits or trees that have not seen the device; what is shipped has."""
    whole = open_source(str(part))
    source = whole.with_whole_windows()
    pauses = whole.recording.of_kind(HOLE, BREAK)
    unrecorded = [
        (-math.inf, whole.t_us.min() / 1e6),
        *(pauses[["start_us", "end_us"]].to_numpy() / 1e6).tolist(),
    ]
    kept = [read["read_id"] for read in whole.reads.to_pylist() if has_whole_window(read, unrecorded)]
    assert source.reads["read_id"].to_pylist() == kept
    assert 0 < source.left_out == len(whole.reads) - len(kept)
    study = study_reads(
        source, rule=FixedRule(), completeness=COMPLETENESS, max_stale=MAX_STALE, horizon_s=HORIZON_S
    )
    labels = label_with_duckdb(source.positions, source.reads)
    pairs = Pairs.of(labels, source.reads)
    result = replay_shares(labels, pairs, study.search.chosen.decisions, source.reads)
    stale, fresh = study.stale.value, study.fresh.value
    assert result == pytest.approx({"sent": 1 - stale - fresh, "stale": stale, "fresh": fresh}, abs=1e-9)
    shipped = replay_shares(labels, pairs, study.policy.local(pairs), source.reads)
    assert max(result["stale"], shipped["stale"]) <= MAX_STALE
    assert study.fresh.low <= shipped["fresh"] <= study.fresh.high


def test_labels_equal_those_of_the_pipeline(part):
    source = open_source(str(part))
    keys = [("read_id", "ascending"), ("cached_read_id", "ascending")]
    expected = read_labels(source.positions, source.reads, HORIZON_S).sort_by(keys)
    labels = label_with_duckdb(source.positions, source.reads).sort_by(keys)
    assert len(labels) > 2 * len(source.reads) > 0
    pd.testing.assert_frame_equal(labels.to_pandas(), expected.to_pandas())

"""Headline of `cache_policy` on recorded traces, recomputed from the files that the report reads and writes.

Nothing is shared with the product: DuckDB reads the rows, joins points to answers and labels pairs of reads; the
nodes of `policy.json` are evaluated, reads replayed and answers counted by code of this file.
"""

import json
import math
from collections import Counter

import duckdb
import numpy as np
import pandas as pd
import pytest

from mudkit.learning import FixedRule
from mudkit.pipeline.coverage import read_labels
from mudkit.report import open_source
from mudkit.report.batching import WriteStudy
from mudkit.report.caching import study_reads

pytestmark = pytest.mark.soak
COMPLETENESS, MAX_STALE, HORIZON_S = 0.9, 0.05, 7200
WINDOW_S, BOX_KM = 3600, 10.0
KM_PER_DEGREE = math.pi * 6371.0088 / 180
PARTS = {
    "taxis": ("cabspotting", "cab", "t < 1211094000 + 2 * 86400", "lat", "lon"),
    "buses": ("capmetrics", "vehicle_id", "true", "latitude", "longitude"),
}

# Devices never move faster than 60 m/s, so that no row is set aside. Reads are some of the positions, with an hour
# before them in which every five minutes have a row, so that no read is left out.
FILES = f"""
CREATE TABLE recorded AS
SELECT {{device}}::VARCHAR AS device, t::BIGINT AS t, any_value({{lat}}) AS lat, any_value({{lon}}) AS lon
FROM rows WHERE {{until}} GROUP BY ALL;
CREATE TABLE moves AS
SELECT device, t - lag(t) OVER way AS took_s,
       sqrt(pow(lat - lag(lat) OVER way, 2) + pow((lon - lag(lon) OVER way) * cos(radians(lat)), 2))
       * {1000 * KM_PER_DEGREE} AS moved_m
FROM recorded WINDOW way AS (PARTITION BY device ORDER BY t);
CREATE TABLE written AS
FROM recorded SEMI JOIN (
    SELECT device FROM moves GROUP BY device HAVING max(moved_m / took_s) < 60 AND count(*) > 100
    ORDER BY md5(device) LIMIT 24
) USING (device);
CREATE TABLE full_minutes AS
SELECT minute FROM (SELECT DISTINCT t // 300 AS minute FROM written)
QUALIFY minute - 12 = lag(minute, 12) OVER (ORDER BY minute);
COPY (SELECT device, t AS ts, lat, lon FROM written ORDER BY t, device) TO '{{folder}}/positions.csv';
COPY (
    SELECT device, t AS ts, lat, lon FROM written JOIN full_minutes ON t // 300 = minute
    WHERE md5(device || t) < '20' ORDER BY t, device
) TO '{{folder}}/reads.csv';
"""

LABELS = f"""
CREATE TABLE written AS SELECT row_number() OVER () AS point, * FROM read_csv('{{folder}}/positions.csv');
CREATE TABLE asked AS SELECT row_number() OVER (ORDER BY device, ts) - 1 AS read, * FROM read_csv('{{folder}}/reads.csv');
CREATE TABLE answers AS
SELECT read, point, asked.device = written.device AS own
FROM asked JOIN written ON written.ts > asked.ts - {WINDOW_S} AND written.ts <= asked.ts
WHERE abs(written.lat - asked.lat) <= {BOX_KM / 2 / KM_PER_DEGREE}
AND abs(written.lon - asked.lon) <= {BOX_KM / 2 / KM_PER_DEGREE} / cos(radians(asked.lat));
CREATE TABLE sizes AS
SELECT read, count(point) AS points, count(point) FILTER (NOT own) AS others
FROM asked LEFT JOIN answers USING (read) GROUP BY ALL;
CREATE TABLE pairs AS
SELECT q.read, p.read AS cached FROM asked q JOIN asked p USING (device)
WHERE p.ts < q.ts AND q.ts - p.ts <= {HORIZON_S};
CREATE TABLE shared AS
SELECT pairs.read, cached, count(*) AS shared
FROM pairs JOIN answers wanted ON wanted.read = pairs.read AND NOT wanted.own
JOIN answers held ON held.read = cached AND held.point = wanted.point GROUP BY ALL;
CREATE TABLE labels AS
SELECT read, cached, CASE WHEN others = 0 THEN 1 ELSE coalesce(shared, 0) / others END AS completeness
FROM pairs JOIN sizes USING (read) LEFT JOIN shared USING (read, cached);
"""

# An hour of mean solar time for each 15 degrees; the first day of 1970 was a Thursday, and Mondays are 0.
FEATURES = f"""
WITH timed AS (
    SELECT *, (ts / 3600 + lon / 15) % 24 AS hour, (floor((ts / 3600 + lon / 15) / 24)::BIGINT + 3) % 7 AS weekday
    FROM asked JOIN sizes USING (read)
)
SELECT pairs.read, pairs.cached, q.ts - p.ts AS age, q.lat, q.lon, p.lat AS cached_lat, p.lon AS cached_lon,
       q.hour, p.hour AS cached_hour, q.weekday, p.points AS held,
       2 * {KM_PER_DEGREE} * degrees(asin(sqrt(
           pow(sin(radians(q.lat - p.lat) / 2), 2)
           + cos(radians(q.lat)) * cos(radians(p.lat)) * pow(sin(radians(q.lon - p.lon) / 2), 2)
       ))) AS distance
FROM pairs JOIN timed q ON q.read = pairs.read JOIN timed p ON p.read = pairs.cached
"""


@pytest.fixture(scope="module", params=PARTS)
def folder(request, tmp_path_factory):
    """Write positions and reads of some devices of a recorded trace, of the taxis on their first two days."""
    fixture, device, until, lat, lon = PARTS[request.param]
    database, path = duckdb.connect(), tmp_path_factory.mktemp(request.param)
    database.read_csv(str(request.getfixturevalue(fixture)), all_varchar=False).create("rows")
    database.execute(FILES.format(device=device, until=until, lat=lat, lon=lon, folder=path))
    return path


def label_with_duckdb(folder):
    """Return a database with the tables ``asked``, ``pairs`` and ``labels`` of two files."""
    database = duckdb.connect()
    database.execute(LABELS.format(folder=folder))
    return database


def evaluate(policy, values):
    """Follow the nodes of a policy file: at most the threshold goes left, as float32."""
    node = policy["nodes"][0]
    while len(node) > 1:
        feature, threshold, left, right, unknown = node
        value = values[policy["features"][feature][0]]
        following = unknown if math.isnan(value) else left if np.float32(value) <= threshold else right
        node = policy["nodes"][following]
    return policy["actions"][node[0]]


def replay_policy(database, policy):
    """Replay a policy file read by read; count answers that are sent, stale and fresh."""
    complete = {(read, cached): value for read, cached, value in database.sql("FROM labels").fetchall()}
    features = database.sql(FEATURES).df().set_index(["read", "cached"]).to_dict("index")
    counts, cached, owner = Counter(), None, None
    for read, device in database.sql("SELECT read, device FROM asked ORDER BY read").fetchall():
        pair = (read, cached if device == owner else None)
        if pair in features and evaluate(policy, features[pair]) == "local":
            counts["fresh" if complete[pair] >= COMPLETENESS else "stale"] += 1
        else:
            counts["sent"] += 1
            cached, owner = read, device
    return counts


def open_part(folder):
    files = str(folder / "positions.csv"), str(folder / "reads.csv")
    return open_source(*files, window_s=float(WINDOW_S), box_km=BOX_KM).with_whole_windows()


def test_headline_equals_its_recomputation(folder):
    source = open_part(folder)
    study = study_reads(
        source, rule=FixedRule(), completeness=COMPLETENESS, max_stale=MAX_STALE, horizon_s=float(HORIZON_S)
    )
    study.save_policy(folder)
    screen = study.first_screen(WriteStudy(30.0, 0.0, 0.0, MAX_STALE, pd.DataFrame(), ""))
    summary = {measure.name: measure.document() for measure in screen.measures}

    database = label_with_duckdb(folder)
    counts = replay_policy(database, json.loads((folder / "policy.json").read_text()))
    reads = counts.total()
    assert summary["reads"]["value"] == reads > 500
    assert summary["recommendation"]["value"] != "always ask"
    fresh, stale = counts["fresh"] / reads, counts["stale"] / reads
    # The page states the lower one of what this policy answers fresh, and of what such policies do out of fold.
    stated = summary["saved_share"]["value"]
    assert stated == pytest.approx(min(fresh, summary["fresh_share"]["value"]), abs=1e-12)
    assert summary["fresh_share"]["low"] <= fresh <= summary["fresh_share"]["high"]
    assert f"{100 * stated:.1f}".removesuffix(".0") in screen.headline
    assert stale <= MAX_STALE
    kept = study.assumptions.table.iloc[0]
    assert (kept["kept_fresh_share"], kept["kept_stale_share"]) == pytest.approx((fresh, stale), abs=1e-12)


def test_labels_equal_those_of_the_pipeline(folder):
    source = open_part(folder)
    assert len(source.positions) == len(pd.read_csv(folder / "positions.csv"))
    assert not source.left_out
    numbers = pd.DataFrame(
        {"read_id": source.reads["read_id"], "device": source.reads["device"], "ts": source.reads["ts"]}
    )
    numbers = numbers.sort_values(["device", "ts"]).reset_index(drop=True)["read_id"]
    database = label_with_duckdb(folder)
    result = database.sql("FROM labels").df()
    for name in ("read", "cached"):
        result[name] = numbers[result[name]].to_numpy()
    keys = ["read_id", "cached_read_id"]
    result = result.set_axis([*keys, "completeness"], axis=1).sort_values(keys, ignore_index=True)
    expected = read_labels(source.positions, source.reads, float(HORIZON_S)).to_pandas().dropna()
    expected = expected[result.columns].sort_values(keys, ignore_index=True)
    assert len(result) > 2 * len(source.reads) > 0
    pd.testing.assert_frame_equal(result, expected, check_dtype=False)

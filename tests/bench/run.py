"""Speed as ratios against a peer in the same run: `make bench`.

Each figure is the median of several runs, the two sides in turn, so that a machine that slows down slows both.
Nothing here is a test: a number tells, a person judges. Rows of speed of `mudkit reproduce` are measured, too, and
kept, so that its table shows them.

Usage: python tests/bench/run.py [PART ...]        import, traces, matching, fleet, rows; all by default
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import fleet
import matching
import pyarrow as pa
from compare import compare, python

from mudkit import pipeline, reproduce, trace
from mudkit.trace.schema import epoch_us
from mudkit.units import box_bounds

ROWS = ("F5", "F1", "M2", "M1")
BIN_S, BIN_LAT, BIN_LON = 7200, 0.09, 0.11  # two hours, about 10 km


def main() -> None:
    """Measure the parts that are named and print a table, and JSON for machines behind it."""
    parts = {
        "import": lambda: iter([import_time()]),
        "traces": traces,
        "matching": matching.rows,
        "fleet": fleet.rows,
    }
    wanted = sys.argv[1:] or [*parts, "rows"]
    if unknown := [name for name in wanted if name not in (*parts, "rows")]:
        sys.exit(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}, rows")
    rows: list[dict[str, object]] = []
    for name in wanted:
        for row in parts[name]() if name in parts else ():
            print(
                f"{row['what']:<62}{row['ours_s']:>9.4f} s  {row['peer']:<36}{row['peer_s']:>9.4f} s  "
                f"ratio {row['ratio']:.4g}",
                flush=True,
            )
            rows.append(row)
    if "rows" in wanted:  # in a process of their own: what ran before is not to slow them
        subprocess.run([sys.executable, "-m", "mudkit", "reproduce", *ROWS], check=True)
        rows += [result.as_json() for result in reproduce.results() if result.row.name in ROWS]
    print(json.dumps(rows))


def traces() -> Iterator[dict[str, object]]:
    """F2 and F3: what Spark does."""
    with tempfile.TemporaryDirectory(prefix="mudkit-bench-") as folder:
        manifest = trace.generate(path=f"{folder}/trace")
        print(
            f"trace: {manifest['rows']['positions']:,} positions, {manifest['rows']['reads']:,} reads",
            flush=True,
        )
        yield label_reads(f"{folder}/trace")
    yield session_start()


def import_time() -> dict[str, object]:
    """F3: `import mudkit` beside an interpreter that imports nothing."""
    return compare("import mudkit, whole process", python("import mudkit"), "python -c pass", python("pass"))


def session_start() -> dict[str, object]:
    """F3: a session beside the same without mudkit's settings."""
    plain = (
        "import os, sys; os.environ['PYSPARK_PYTHON'] = sys.executable\n"
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.master('local[*]').config('spark.log.level', 'OFF').getOrCreate().stop()"
    )
    ours = python("from mudkit import pipeline; pipeline.session(); pipeline.stop()")
    return compare("session started and stopped, whole process", ours, "pyspark with its defaults", lambda: subprocess.run(
        [sys.executable, "-c", plain], check=True, stderr=subprocess.DEVNULL
    ))  # fmt: skip


def label_reads(folder: str) -> dict[str, object]:
    """F2: all labels on Spark beside DuckDB's count of points only, by a binned equi-join."""
    spark = pipeline.session()
    positions, reads = (pipeline.read(spark, folder, name) for name in ("positions", "reads"))
    table = trace.read_table(folder, "reads")
    box = box_bounds(table["lat"].to_numpy(), table["lon"].to_numpy(), table["box_km"].to_numpy())
    asked = pa.table(
        {
            "read_id": table["read_id"], "t": epoch_us(table["ts"]) // 1_000_000, "window_s": table["window_s"],
            "south": box.south, "west": box.west, "north": box.north, "east": box.east,
        }
    )  # fmt: skip
    database = duckdb.connect()
    database.register("asked", asked)
    files = str(Path(folder) / "positions" / "*" / "*.parquet")
    query = f"""
        WITH p AS (
            SELECT epoch_us(ts) / 1e6 AS t, lat, lon, CAST(floor(epoch_us(ts) / 1e6 / {BIN_S}) AS BIGINT) AS bt,
                   CAST(floor(lat / {BIN_LAT}) AS BIGINT) AS bx, CAST(floor(lon / {BIN_LON}) AS BIGINT) AS bl
            FROM read_parquet('{files}')
        ), r AS (
            SELECT *, unnest(range(CAST(floor((t - window_s) / {BIN_S}) AS BIGINT), CAST(floor(t / {BIN_S}) AS BIGINT) + 1)) AS bt
            FROM asked
        ), r2 AS (
            SELECT *, unnest(range(CAST(floor(south / {BIN_LAT}) AS BIGINT), CAST(floor(north / {BIN_LAT}) AS BIGINT) + 1)) AS bx FROM r
        ), r3 AS (
            SELECT *, unnest(range(CAST(floor(west / {BIN_LON}) AS BIGINT), CAST(floor(east / {BIN_LON}) AS BIGINT) + 1)) AS bl FROM r2
        )
        SELECT read_id, count(*) AS points FROM r3 JOIN p USING (bt, bx, bl)
        WHERE p.t > r3.t - window_s AND p.t <= r3.t AND lat BETWEEN south AND north AND lon BETWEEN west AND east
        GROUP BY read_id
    """
    ours = pipeline.label_reads(positions, reads).filter("cached_read_id IS NULL AND points > 0").toArrow()
    theirs = database.sql(query).to_arrow_table()
    mine, other = (
        sorted(zip(t["read_id"].to_pylist(), t["points"].to_pylist(), strict=True)) for t in (ours, theirs)
    )
    assert mine == other, "the two sides disagree"
    result = compare(
        "label_reads, all labels", lambda: pipeline.label_reads(positions, reads).toArrow(),
        "DuckDB binned equi-join, counts only", lambda: database.sql(query).to_arrow_table(),
    )  # fmt: skip
    pipeline.stop()
    return result


if __name__ == "__main__":
    main()

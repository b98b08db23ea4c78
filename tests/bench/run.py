"""Speed as ratios against a peer in the same run: `make bench`.

Each figure is the median of several runs, the two sides in turn, so that a machine that slows down slows both.
These are no tests: a person judges the numbers. Speed rows of `mudkit reproduce` are measured, too, and stored
for its table.

Usage: python tests/bench/run.py [PART ...]
       import, session, matching, windows, fleet, scaling, scoreboard, artefact, traces, rows; all of these by default
       scale, which takes an hour, only by name
"""

from __future__ import annotations

import json
import subprocess
import sys

import artefact
import fleet
import matching
import scale
import scaling
import scoreboard_day
import traces
import windows
from compare import compare, python

ROWS = ("L7", "S3", "R5", "F5", "F3", "F1", "F6", "F2", "M2", "M1", "M3")


def main() -> None:
    """Measure the named parts; print a table, and then the rows as JSON."""
    parts = {
        "import": lambda: iter([measure_import()]),
        "session": lambda: iter([measure_session()]),
        "matching": matching.measure_rows,
        "windows": windows.measure_rows,
        "fleet": fleet.measure_rows,
        "scaling": scaling.measure_rows,
        "scoreboard": scoreboard_day.measure_rows,
        "artefact": artefact.measure_rows,
        "traces": traces.measure_rows,
        "scale": scale.measure_rows,
    }
    selected = sys.argv[1:] or [*(name for name in parts if name != "scale"), "rows"]
    if unknown := [name for name in selected if name not in (*parts, "rows")]:
        sys.exit(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}, rows")
    rows: list[dict[str, object]] = []
    for name in selected:
        for row in parts[name]() if name in parts else ():
            print(
                f"{row['what']:<62}{row['ours_s']:>9.4f} s  {row['peer']:<36}{row['peer_s']:>9.4f} s  "
                f"ratio {row['ratio']:.4g}",
                flush=True,
            )
            rows.append(row)
    if "rows" in selected:  # in a separate process, which earlier parts do not slow
        command = [sys.executable, "-m", "mudkit", "reproduce", *ROWS, "--json"]
        for row in json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout):
            print(f"{row['row']:<10} {row['verdict']:<16} {row['measured']}", flush=True)
            rows.append(row)
    print(json.dumps(rows))


def measure_import() -> dict[str, object]:
    """Compare `import mudkit` with an interpreter that imports nothing (F3)."""
    return compare("import mudkit, whole process", python("import mudkit"), "python -c pass", python("pass"))


def measure_session() -> dict[str, object]:
    """Compare a session with one without mudkit's settings (F3)."""
    default_session = (
        "import os, sys; os.environ['PYSPARK_PYTHON'] = sys.executable\n"
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.master('local[*]').config('spark.log.level', 'OFF').getOrCreate().stop()"
    )
    mudkit_session = python("from mudkit import pipeline; pipeline.session(); pipeline.stop()")
    return compare(
        "session started and stopped, whole process",
        mudkit_session,
        "pyspark with its defaults",
        lambda: subprocess.run(
            [sys.executable, "-c", default_session], check=True, stderr=subprocess.DEVNULL
        ),
    )


if __name__ == "__main__":
    main()

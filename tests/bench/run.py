"""Speed as ratios against a peer in the same run: `make bench`.

Each figure is the median of several runs, the two sides in turn, so that a machine that slows down slows both.
Nothing here is a test: a number tells, a person judges. Rows of speed of `mudkit reproduce` are measured, too, and
kept, so that its table shows them.

Usage: python tests/bench/run.py [PART ...]
       import, session, matching, fleet, scaling, scoreboard, artefact, rows; all by default
"""

from __future__ import annotations

import json
import subprocess
import sys

import artefact
import fleet
import matching
import scaling
import scoreboard_day
from compare import compare, python

ROWS = ("L7", "S3", "R5", "F5", "F3", "F1", "F6", "F2", "M2", "M1", "M3")


def main() -> None:
    """Measure the parts that are named and print a table, and JSON for machines behind it."""
    parts = {
        "import": lambda: iter([import_time()]),
        "session": lambda: iter([session_start()]),
        "matching": matching.rows,
        "fleet": fleet.rows,
        "scaling": scaling.rows,
        "scoreboard": scoreboard_day.rows,
        "artefact": artefact.rows,
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
        command = [sys.executable, "-m", "mudkit", "reproduce", *ROWS, "--json"]
        for row in json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout):
            print(f"{row['row']:<10} {row['verdict']:<16} {row['measured']}", flush=True)
            rows.append(row)
    print(json.dumps(rows))


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
    return compare(
        "session started and stopped, whole process",
        ours,
        "pyspark with its defaults",
        lambda: subprocess.run([sys.executable, "-c", plain], check=True, stderr=subprocess.DEVNULL),
    )


if __name__ == "__main__":
    main()

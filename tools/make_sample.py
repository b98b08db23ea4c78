"""Write data/sample and data/README.md: a small generated trace, as files that a user might bring.

Run from the root of the repository: ``python tools/make_sample.py``. Same version of mudkit, same content.
"""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from mudkit.files import sha256, staged_file
from mudkit.trace._generate import GENERATOR_VERSION, generate
from mudkit.trace.loaded import Loaded
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

__all__ = ["SAMPLE", "csv_text", "main", "sample_tables"]

SAMPLE: dict[str, Any] = {"cars": 50, "days": 7, "seed": 7, "interval_s": 30}
"""One week of 50 cars of one town. Positions come half as often as in the default trace, so that the files
stay small."""

_README = """# Data

| place | what |
|---|---|
| `sample/` | a small generated trace, in git |
| `raw/` | files that you bring or download; ignored by git |
| `derived/` | what mudkit makes of them; ignored by git |

## The sample

{cars} cars of one town, {days} days from Monday, 2010-03-01: {positions:,} positions and {reads:,} reads.
No person, car or phone is behind it: `tools/make_sample.py` of this repository generated it with

    generate({call})

(`mudkit.trace.generate`, version {version} of the generator). To make it again, run
`python tools/make_sample.py`. Licence: Apache-2.0, as the project (`../LICENSE`).

| file | columns | rows | bytes | SHA-256 |
|---|---|---|---|---|
{files}

`t` is UNIX time in seconds (UTC); `lat` and `lon` are degrees; a read asks for the positions of the last
`window_s` seconds in a box of `box_km` by `box_km` around its place. The SHA-256 is that of the packed
file; packing again with another version of zlib may give other bytes with the same content.

Load it as your own files:

    from mudkit import trace
    positions = trace.load("data/sample/positions.csv.gz", rule="none")
    reads = trace.load("data/sample/reads.csv.gz", table="reads")
"""


def sample_tables(trace: Loaded) -> dict[str, pa.Table]:
    """Columns of the sample's files, by the name of the file without its suffixes."""
    positions = pa.table({**_common(trace.positions), "speed_mps": trace.positions["speed_mps"]})
    boxes = {name: trace.reads[name] for name in ("box_km", "window_s")}
    return {"positions": positions, "reads": pa.table({**_common(trace.reads), **boxes})}


def csv_text(table: pa.Table) -> bytes:
    """Render a table as CSV with a header."""
    buffer = io.BytesIO()
    pa_csv.write_csv(table, buffer, pa_csv.WriteOptions(quoting_style="none", quoting_header="none"))
    return buffer.getvalue()


def main(root: Path) -> None:
    """Write the sample and its README below ``root``."""
    trace = generate(**SAMPLE)
    lines = []
    for name, table in sample_tables(trace).items():
        path = root / "data" / "sample" / f"{name}.csv.gz"
        with staged_file(path) as staging:
            staging.write_bytes(gzip.compress(csv_text(table), compresslevel=9, mtime=0))
        columns = ", ".join(table.column_names)
        size = f"{path.stat().st_size:,}"
        lines.append(f"| `sample/{path.name}` | `{columns}` | {len(table):,} | {size} | `{sha256(path)}` |")
    text = _README.format(
        **{**SAMPLE, "positions": len(trace.positions), "reads": len(trace.reads)},
        call=", ".join(f"{name}={value}" for name, value in SAMPLE.items()),
        version=GENERATOR_VERSION,
        files="\n".join(lines),
    )
    with staged_file(root / "data" / "README.md") as staging:
        staging.write_text(text, encoding="utf-8")


def _common(table: pa.Table) -> dict[str, pa.Array]:
    t_s = pa.array(epoch_us(table["ts"]) // US_PER_S, pa.int64())
    return {"device": table["device"], "t": t_s, "lat": table["lat"], "lon": table["lon"]}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])

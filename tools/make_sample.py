"""Write data/sample, data/commute and data/README.md: small generated traces, as files to bring.

Run from the root of the repository: ``python tools/make_sample.py``. Same version of mudkit, same content.
"""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from mudkit.files import sha256, staged_file
from mudkit.trace._generate import GENERATOR_VERSION, generate
from mudkit.trace.loaded import Loaded
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

SAMPLE: dict[str, Any] = {"cars": 50, "days": 7, "seed": 7, "interval_s": 30}
"""One week of 50 cars of one town. Positions come half as often as in the default trace, so that the files
stay small."""

COMMUTE: dict[str, Any] = {"cars": 60, "days": 5, "seed": 11, "interval_s": 60}
"""Five working days of 60 cars of one town."""

_RUSH_HOURS = (6, 7, 8, 15, 16, 17)
_ASKED_HOURS = (6, 22)
_LOOKS_A_DAY, _AGAIN_SHARE, _AGAIN_S = 16, 0.3, (60, 240)
_BOX_KM, _WINDOW_S = 20.0, 7200.0
_GPS_DEGREES = 0.0002

_README = """# Data

| place | what |
|---|---|
| `sample/` | a small generated trace, in git: the fixed rule for caches is already best |
| `commute/` | another, in git: a learnt policy for caches saves more than half of the queries |
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

`sample/picu.yaml` is written by hand: the policy PICU of SUBLIM's section 5, for `Policy.from_yaml`.

Load the trace as your own files:

    from mudkit import trace
    positions = trace.load("data/sample/positions.csv.gz", rule="none")
    reads = trace.load("data/sample/reads.csv.gz", table="reads")

## The commute

{commute_cars} cars of one town, {commute_days} working days: {commute_positions:,} positions and
{commute_reads:,} reads, in the same columns, from the same script:

    generate({commute_call})

Of its positions those of 6:00 to 9:00 and 15:00 to 18:00 local time are kept, so that the cars report on the
way to work and home. Each driver asks for the traffic around the place where the car started, {looks} times
a day at random between 6:00 and 22:00, and in {again} % of the cases once more within four minutes.

So the answer to what a cache can save is known: while cars report, an answer is stale after minutes; between
and after the rush hours no new positions come, and an answer of any age is complete. No rule of distance and
age tells the two apart; a policy that knows the hour does. `make report` finds it.

| file | columns | rows | bytes | SHA-256 |
|---|---|---|---|---|
{commute_files}
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


def commute_tables() -> dict[str, pa.Table]:
    """Positions of the rush hours and reads of the whole day, by the name of the file without suffixes."""
    trace = generate(**COMMUTE)
    offset_s = round(3600 * trace.source["options"]["town"]["utc_offset_h"])
    local_s = epoch_us(trace.positions["ts"]) // US_PER_S + offset_s
    rush = trace.positions.filter(pa.array(np.isin(local_s // 3600 % 24, _RUSH_HOURS)))
    device = np.array(trace.positions["device"].to_pylist())
    homes = {name: int(np.argmax(device == name)) for name in np.unique(device)}
    random = np.random.default_rng(COMMUTE["seed"])
    midnight_s = int(local_s.min()) // 86_400 * 86_400 - offset_s
    rows = []
    for name, home in homes.items():
        lat, lon = (trace.positions[column][home].as_py() for column in ("lat", "lon"))
        for day in range(COMMUTE["days"]):
            first, last = (midnight_s + 86_400 * day + 3600 * hour for hour in _ASKED_HOURS)
            looks_s = random.integers(first, last, _LOOKS_A_DAY)
            again_s = looks_s[random.random(len(looks_s)) < _AGAIN_SHARE]
            again_s = again_s + random.integers(*_AGAIN_S, len(again_s))
            times_s = [*looks_s, *again_s]
            places = random.normal((lat, lon), _GPS_DEGREES, (len(times_s), 2)).round(5).tolist()
            rows += [(name, int(t_s), *place) for t_s, place in zip(times_s, places, strict=True)]
    rows.sort(key=lambda row: row[1])
    names, t_s, lat, lon = zip(*rows, strict=True)
    columns = {"device": names, "t": t_s, "lat": lat, "lon": lon}
    sizes = {"box_km": np.full(len(rows), _BOX_KM), "window_s": np.full(len(rows), _WINDOW_S)}
    positions = pa.table({**_common(rush), "speed_mps": rush["speed_mps"]})
    return {"positions": positions, "reads": pa.table({**columns, **sizes})}


def main(root: Path) -> None:
    """Write the samples and their README below ``root``."""
    trace = generate(**SAMPLE)
    commute = commute_tables()
    text = _README.format(
        **{**SAMPLE, "positions": len(trace.positions), "reads": len(trace.reads)},
        call=_call(SAMPLE),
        version=GENERATOR_VERSION,
        files=_write(root, "sample", sample_tables(trace)),
        **{f"commute_{name}": len(table) for name, table in commute.items()},
        commute_cars=COMMUTE["cars"],
        commute_days=COMMUTE["days"],
        commute_call=_call(COMMUTE),
        commute_files=_write(root, "commute", commute),
        looks=_LOOKS_A_DAY,
        again=round(100 * _AGAIN_SHARE),
    )
    with staged_file(root / "data" / "README.md") as staging:
        staging.write_text(text, encoding="utf-8")


def _call(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in parameters.items())


def _write(root: Path, folder: str, tables: dict[str, pa.Table]) -> str:
    """Write tables as packed CSV; return the rows of the README's table."""
    lines = []
    for name, table in tables.items():
        path = root / "data" / folder / f"{name}.csv.gz"
        with staged_file(path) as staging:
            staging.write_bytes(gzip.compress(csv_text(table), compresslevel=9, mtime=0))
        columns, size = ", ".join(table.column_names), f"{path.stat().st_size:,}"
        lines.append(f"| `{folder}/{path.name}` | `{columns}` | {len(table):,} | {size} | `{sha256(path)}` |")
    return "\n".join(lines)


def _common(table: pa.Table) -> dict[str, pa.Array]:
    t_s = pa.array(epoch_us(table["ts"]) // US_PER_S, pa.int64())
    return {"device": table["device"], "t": t_s, "lat": table["lat"], "lon": table["lon"]}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])

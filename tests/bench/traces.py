"""Loading of traces compared with pandas and pyarrow, which read the same files and do nothing else.

One side parses, sorts by device, judges speeds and derives reads; the other reads columns. The trace is drawn: a
table of one file, and a folder of small files in GeoLife's form.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
from compare import compare

import mudkit
from mudkit import trace

DEVICES, ROWS_OF_DEVICE = 200, 5_000
FILES, ROWS_OF_FILE = 1_000, 1_300
HEADER = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
START_S = 1_700_000_000


def measure_rows() -> Iterator[dict[str, object]]:
    """Measure a table and a folder of small files, each loaded and scanned."""
    folder = mudkit.work_folder()
    try:
        table, tracks = write_table(folder / "cabs.csv"), write_tracks(folder / "Data")
        files = sorted(tracks.rglob("*.plt"))
        sides: list[tuple[str, Path, Callable[[], int], str]] = [
            ("one file", table, lambda: len(pd.read_csv(table)), "pandas"),
            ("one file", table, lambda: len(pa_csv.read_csv(table)), "pyarrow"),
            ("small files", tracks, partial(read_by_pandas, files), "pandas"),
            ("small files", tracks, partial(read_by_pyarrow, files), "pyarrow"),
        ]
        for kind, path, read, peer in sides:
            assert load(path) == scan(path) == read()
            label = f"{read():,} rows of {kind}"
            yield compare(f"load, {label}", partial(load, path), f"{peer} reads them", read)
            if peer == "pandas":
                yield compare(f"scan, {label}", partial(scan, path), f"{peer} reads them", read)
    finally:
        shutil.rmtree(folder)


def load(path: Path) -> int:
    """Load a trace; return the number of its rows."""
    loaded = trace.load(path)
    return len(loaded.positions) + len(loaded.rejected)


def scan(path: Path) -> int:
    """Scan a trace; return the number of its rows."""
    with trace.scan(path) as pieces:
        return sum(len(piece.positions) + len(piece.rejected) for piece in pieces)


def read_by_pandas(files: list[Path]) -> int:
    """Read small files; return the number of their rows."""
    return len(pd.concat(pd.read_csv(file, skiprows=6, header=None) for file in files))


def read_by_pyarrow(files: list[Path]) -> int:
    """Read small files; return the number of their rows."""
    options = pa_csv.ReadOptions(skip_rows=6, autogenerate_column_names=True)
    return len(pa.concat_tables(pa_csv.read_csv(file, read_options=options) for file in files))


def walk(generator: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times in seconds, latitudes and longitudes of a device on its way."""
    t_s = np.cumsum(generator.integers(20, 90, rows))
    lat, lon = (np.cumsum(generator.normal(0, 1e-3, rows)) for _ in range(2))
    return t_s, 37.7 + lat, -122.4 + lon


def write_table(file: Path) -> Path:
    """Write a table of devices."""
    generator = np.random.default_rng(0)
    parts = []
    for number in range(DEVICES):
        t_s, lat, lon = walk(generator, ROWS_OF_DEVICE)
        parts.append(pd.DataFrame({"device": f"cab{number}", "t": START_S + t_s, "lat": lat, "lon": lon}))
    pd.concat(parts).to_csv(file, index=False, float_format="%.5f")
    return file


def write_tracks(folder: Path) -> Path:
    """Write a folder of tracks, ten of each user."""
    generator = np.random.default_rng(1)
    for number in range(FILES):
        t_s, lat, lon = walk(generator, ROWS_OF_FILE)
        times = np.datetime_as_string((START_S + 200_000 * (number % 10) + t_s).astype("datetime64[s]"))
        rows = zip(lat.tolist(), lon.tolist(), times.tolist(), strict=True)
        lines = (f"{y:.6f},{x:.6f},0,492,39744.1,{at[:10]},{at[11:]}\n" for y, x, at in rows)
        place = folder / f"{number // 10:03d}" / "Trajectory"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:05d}.plt").write_text(HEADER + "".join(lines))
    return folder

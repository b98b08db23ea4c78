"""Mining of generated usage on Spark: `mining.py ITEMS …`; processor time, peak memory, what was found, growth.

A tenth of the devices each has half as many areas to read as it writes places, and all read queries at noon, one after
the other, and some at any time. 3.7 M items take minutes, 37 M half an hour, and 2 GB of disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from mudkit import learning, pipeline, work_folder
from mudkit.reproduce.harness import PeakMemory
from mudkit.trace.schema import USAGE, timestamps

DAYS = 14
DAY_US = 86_400_000_000
START_US = 1_267_401_600_000_000
ITEMS_OF_A_DEVICE = 26 * DAYS
"""Items of a device, about: each day 12 writes, 6 reads of areas, and 8 of queries."""
DEVICES_OF_A_FILE = 10_000


def write_usage(folder: Path, items: int) -> None:
    """Write the usage of as many devices as have about this number of items, as files of Parquet."""
    devices = max(items // ITEMS_OF_A_DEVICE, 3)
    for first in range(0, devices, DEVICES_OF_A_FILE):
        numbers = np.arange(first, min(first + DEVICES_OF_A_FILE, devices))
        pq.write_table(build_usage(numbers), folder / f"usage-{first:09d}.parquet")


def build_usage(numbers: np.ndarray) -> pa.Table:
    """Return the usage of some devices, in the order of time."""
    rng = np.random.default_rng(numbers[0])
    parts = [
        *(_part(rng, numbers, 8 + hour, 1, "maps", "cars", "write", None) for hour in range(12)),
        *(_part(rng, numbers, 4 * number, 4, "maps", "cars", "read", None) for number in range(6)),
        *(_part(rng, numbers, 12 + n / 20, 0.05, "menus", "menus", "read", f"n = {n}") for n in range(4)),
        *(_part(rng, numbers, 0, 24, "menus", "menus", "read", f"m = {number}") for number in range(4)),
    ]
    return pa.concat_tables(parts).sort_by("ts")


def _part(
    rng: np.random.Generator,
    numbers: np.ndarray,
    hour: float,
    spread_h: float,
    app: str,
    table: str,
    op: str,
    query: str | None,
) -> pa.Table:
    """Return an item a day of each device, at about an hour."""
    device, day = (part.ravel() for part in np.meshgrid(numbers, np.arange(DAYS), indexing="ij"))
    count = len(device)
    t_us = START_US + day * DAY_US + ((hour + rng.uniform(0, spread_h, count)) * 3.6e9).astype(np.int64)
    known = {
        "device": pa.array(device).cast(pa.string()),
        "ts": timestamps(t_us),
        **{name: pa.array([text] * count) for name, text in (("app", app), ("table", table), ("op", op))},
        "query": pa.array([query] * count, pa.string()),
    }
    if app == "maps":
        known |= {"lat": pa.array(40 + device % 200 / 10), "lon": pa.array(device % 360 - 180.0)}
    if app == "maps" and op == "read":
        known["box_km"] = pa.array(np.full(count, 20.0))
    columns = [known.get(field.name, pa.nulls(count, field.type)) for field in USAGE]
    return pa.table(columns, names=USAGE.names).cast(USAGE)


def processor_s() -> float:
    """Return the processor time of this process and its descendants, in seconds."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(time.user + time.system + time.children_user + time.children_system for time in times)


def main() -> None:
    """Measure the sizes of the command line."""
    parser = argparse.ArgumentParser(description="Measure mining at some sizes.")
    parser.add_argument("items", nargs="*", type=int, default=[370_000, 3_700_000], help="numbers of items")
    spark = pipeline.session()
    before: tuple[int, float] | None = None
    for items in parser.parse_args().items:
        folder = work_folder() / f"usage-{items}"
        folder.mkdir()
        write_usage(folder, items)
        frame = spark.read.parquet(str(folder))
        began_s = processor_s()
        with PeakMemory(os.getpid()) as peak:
            mined = pipeline.mine(spark, frame, learning.Learner(), seed=1)
        took_s = processor_s() - began_s
        growth = "" if before is None else f", {took_s / before[1]:.1f} x for {items / before[0]:.1f} x items"
        print(f"{mined.rows:,} items, {mined.devices:,} devices: {took_s:.0f} s of processors{growth}")
        print("  peak MB:", {name: round(mb) for name, mb in peak.mb().items()})
        for one in mined.verdicts:
            print(f"  {one.app} {one.kind}: {'ships' if one.ships else 'stays'}. {one.why}")
        print("  patterns:", [(one.query, one.then_query, round(one.low, 3)) for one in mined.patterns])
        before = items, took_s
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

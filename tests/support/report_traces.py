"""Small traces whose best cache policy is known by construction."""

import numpy as np
import pandas as pd
import pyarrow as pa

from mudkit.report.source import TraceSource
from mudkit.trace.schema import POSITIONS, timestamps, with_read_ids

T0_S = 1_267_423_200  # 1 March 2010, 6:00 UTC


def source(write_s, read_s, *, window_s, tz="UTC"):
    """Build writes of one car at times of a day, and reads of phones at one place; ``read_s`` is by phone."""
    write_s = T0_S + np.asarray(write_s, dtype=np.int64)
    positions = pa.table(
        {
            "device": ["car"] * len(write_s),
            "ts": timestamps(write_s * 1_000_000),
            "lat": np.zeros(len(write_s)),
            "lon": np.zeros(len(write_s)),
            "speed_mps": pa.nulls(len(write_s), pa.float64()),
        },
        schema=POSITIONS,
    )
    rows = [(f"phone-{phone:02d}", T0_S + int(t)) for phone, times in enumerate(read_s) for t in times]
    device, t_s = zip(*sorted(rows, key=lambda row: row[1]), strict=True)
    reads = with_read_ids(
        pa.table(
            {
                "device": device,
                "ts": timestamps(np.array(t_s) * 1_000_000),
                "lat": np.zeros(len(rows)),
                "lon": np.zeros(len(rows)),
                "box_km": np.full(len(rows), 20.0),
                "window_s": np.full(len(rows), float(window_s)),
                "origin": ["recorded"] * len(rows),
            }
        )
    )
    counts = pd.DataFrame({"what": ["positions", "reads"], "rows": [len(positions), len(reads)]})
    return TraceSource("made.csv", positions, reads, counts, tz)


def draw_reads(phones, hours, a_phone, seed=0):
    """Draw the times of reads for each phone, within some hours."""
    random = np.random.default_rng(seed)
    return [np.unique(random.integers(0, 3600 * hours, a_phone)) for _ in range(phones)]


def build_learnable():
    """Build a trace with writes in every other two hours, when answers are quickly stale, and none in between."""
    busy = [t for t in range(0, 12 * 3600, 20) if t // 7200 % 2]
    return source(busy, draw_reads(10, 12, 40), window_s=3600)


def build_rule_is_best():
    """Build writes at a constant rate: after 10 minutes every answer misses a tenth of its points."""
    return source(range(-6000, 4 * 3600, 20), draw_reads(10, 4, 40), window_s=6000)


def build_hopeless():
    """Build a trace with answers of the last five minutes, and no two reads of a phone within twenty."""
    phones = [np.arange(8) * 1800 + 60 * phone for phone in range(10)]
    return source(range(0, 5 * 3600, 20), phones, window_s=300)

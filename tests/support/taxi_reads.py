"""Reads of a map by taxis of the recorded trace, and how many of them ask the cloud."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pandas as pd
from mud_place import Place

from mudkit.systems.mud import freshness
from mudkit.systems.mud.device import cache

TRACE = Path(__file__).parents[3] / "shared/data/cabspotting_sf/cabs.csv.gz"
KM_PER_DEGREE = 111.2
READS_OF_A_CAB = 60
EVERY_S = 60.0
MAX_AGE_S = 600.0
ZOOMS = (1.0, 0.5, 0.25)
"""Sides of the boxes that an application reads, relative to the largest."""


def draw_reads(box_km, cabs, *, seed=11):
    """Return the boxes that each cab reads: around its place, a minute after the last, at a random zoom.

    Their centres are rounded to an eighth of the largest side, as those of tiles are.
    """
    trace = pd.read_csv(TRACE, usecols=["cab", "t", "lat", "lon"])
    draw, step = Random(seed), box_km / 8 / KM_PER_DEGREE
    reads = {}
    for cab, fixes in list(trace.groupby("cab"))[:cabs]:
        minutes = (fixes["t"] - fixes["t"].min()) // EVERY_S
        places = fixes.groupby(minutes)[["lat", "lon"]].first().head(READS_OF_A_CAB)
        reads[cab] = [
            (round(lat / step) * step, round(lon / step) * step, draw.choice(ZOOMS) * box_km)
            for lat, lon in places.itertuples(index=False)
        ]
    return reads


def format_box(lat, lon, side_km):
    """Return the predicate of a box."""
    half = side_km / 2 / KM_PER_DEGREE
    return (
        f"lat >= {lat - half:.6f} AND lat <= {lat + half:.6f} "
        f"AND lon >= {lon - half:.6f} AND lon <= {lon + half:.6f}"
    )


def count_asked(box_km, cabs, monkeypatch, *, by_intervals):
    """Return the share of the reads that ask the cloud, for all or for a rest, and kB down a read.

    ``by_intervals`` False: an answer on the device serves only a read of the same box.
    """
    reads = draw_reads(box_km, cabs)
    place = Place()
    service = place.client("service")
    service.create("map", writer_predicates=False).result()
    draw = Random(5)
    boxes = [box for of_cab in reads.values() for box in of_cab]
    for number in range(300):
        lat, lon, _ = draw.choice(boxes)
        service.write(
            "map", f"m{number}", {"lat": lat + draw.gauss(0, 0.01), "lon": lon + draw.gauss(0, 0.01)}
        )
    place.lab.run(minutes=1)
    remote = Counter()
    with monkeypatch.context() as patch:
        if not by_intervals:
            patch.setattr(cache, "contains", lambda larger, smaller: larger == smaller)
            patch.setattr(cache, "overlap", lambda query, by: 0.0)
        for cab, boxes in reads.items():
            client = place.client(cab)
            for box in boxes:
                read = client.read("map", format_box(*box), utility=freshness(MAX_AGE_S))
                place.lab.run(seconds=EVERY_S)
                answer = read.result()
                remote[read.responded_us > read.invoked_us] += 1
                assert answer.is_complete
    bill = place.lab.bill()
    down = bill[bill["device"].isin(list(reads)) & (bill["direction"] == "down")]["bytes"].sum()
    count = remote.total()
    return remote[True] / count, float(down) / 1000 / count

"""All numbers and tables of the page trace_profile, and a trace whose rows have defects of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mudkit.report import TraceSource, find_defects, find_stays, profiling

DAY_S = 86_400
T0_S = 1_682_899_200  # 1 May 2023, midnight UTC


def page_values(source: TraceSource) -> dict[str, Any]:
    """Return the tables and texts of the page by name."""
    defects, stays = find_defects(source), find_stays(source)
    screen = profiling.first_screen(source, defects, stays)
    cells = profiling.cells(source, 15)
    devices = profiling.devices(source, stays)
    answers = {
        "defects": profiling.defect_answer(source, defects),
        "time": profiling.time_answer(source),
        "places": profiling.place_answer(cells, 15),
        "trips": profiling.trip_answer(source, stays),
        "dwell": profiling.dwell_answer(stays),
        "steps": profiling.interval_answer(source),
        "devices": profiling.device_answer(devices),
        "reads": profiling.read_answer(source),
    }
    tables = {
        "table of defects": profiling.defect_table(source, defects),
        "pauses": profiling.pauses(source),
        "stretches": profiling.stretches(source),
        "hours": source.hours(),
        "days": source.days(),
        "over time": profiling.over_time(source)[0],
        "cells": cells.to_pandas(),
        "stops": profiling.stops(source, stays),
        "trip table": profiling.trips(source, stays),
        "speeds": profiling.speeds(stays),
        "dwell places": profiling.dwell_places(stays),
        "intervals": profiling.intervals(source),
        "device table": devices,
        "rows": source.rows,
    }
    texts = {name: value for name, value in vars(screen).items() if name not in ("measures", "source")}
    texts["measures"] = [measure.document() for measure in screen.measures]
    return {name: (answer.title, answer.text) for name, answer in answers.items()} | tables | texts


def assert_same_values(ours: dict[str, Any], others: dict[str, Any]) -> None:
    """Check that two pages have the same numbers and tables, to the last bit."""
    assert ours.keys() == others.keys()
    for name, value in ours.items():
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(value, others[name], check_exact=True, obj=name)
        else:
            assert value == others[name], name


def write_faulty(file: Path) -> None:
    """Write cars that drive by day, with rows of each kind of defect, as CSV: ``device, ts, lat, lon``."""
    rng = np.random.default_rng(23)
    parts = []
    for number in range(12):
        for day in range(4):
            second = day * DAY_S + np.arange(7 * 3600 + 60 * number, 19 * 3600, 180) + rng.integers(0, 60)
            way = np.cumsum(rng.normal(0, 2e-3, (len(second), 2)), axis=0)
            way[40:46] = way[40]  # it stops
            part = pd.DataFrame(
                {"device": f"car{number:02d}", "s": second + rng.random(len(second)).round(3)}
            )
            part["lat"], part["lon"] = 48.1 + way[:, 0], 11.6 + way[:, 1]
            parts.append(part)
    rows = pd.concat(parts, ignore_index=True)
    is_of = rows["device"].eq
    wrong = is_of("car03") & (rows["s"] // DAY_S == 1) & (rows["s"] % DAY_S / 3600).between(13, 14)
    rows.loc[wrong, "s"] += 40 * DAY_S  # its clock was wrong for an hour
    reset = rows.index[is_of("car05")][:3]
    rows.loc[reset, "s"] -= 900 * DAY_S
    exchanged = rows.index[is_of("car07")][50:60]
    rows.loc[exchanged, ["lat", "lon"]] = rows.loc[exchanged, ["lon", "lat"]].to_numpy()
    rows.loc[rows.index[is_of("car09")][20:25], "lat"] = 91.0
    rows.loc[is_of("car11"), "s"] += 2 * 3600  # another zone
    hours, day = rows["s"] % DAY_S / 3600, rows["s"] // DAY_S
    rows = rows[~((day == 2) & hours.between(11, 12))]  # no device reports
    stamp = pd.to_datetime(((T0_S + rows.pop("s")) * 1000).round().astype("int64"), unit="ms", utc=True)
    rows.insert(1, "ts", stamp.dt.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00"))
    rows.to_csv(file, index=False)

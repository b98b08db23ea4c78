"""Pages about a trace whose rows are divided among tasks: each value is that of the same rows in one table.

The tasks of Spark have all rows of some devices, in pieces; no value may depend on which, or on where a piece
ends (`mudkit.trace.summaries`).
"""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from joining_values import joining_values
from profile_values import assert_same_values, page_values, write_faulty

from mudkit import figures
from mudkit.report import joined_sums, open_source
from mudkit.report.joined_messages import Limits
from mudkit.report.source import stays_on_spark
from mudkit.trace.summaries import finished, in_blocks


class Divided:
    """Rows of some tasks, each with its devices in order, in pieces of any length."""

    def __init__(self, table, tasks, rng):
        self.tasks = []
        names = np.array(table["device"].fill_null("").to_pylist(), dtype=object)
        number = {name: rng.integers(0, tasks) for name in sorted({*names})}
        task = np.array([number[name] for name in names])
        for at in range(tasks):
            rows = table.filter(pa.array(task == at))
            rows = rows.sort_by([("device", "ascending"), ("ts", "ascending")])
            edges = [0, *np.unique(rng.integers(0, len(rows) + 1, len(rows) // 200)).tolist(), len(rows)]
            self.tasks.append([rows.slice(a, b - a) for a, b in pairwise(edges)])

    def summarise(self, summaries):
        results = [finished(pieces, summaries) for pieces in self.tasks]
        return {
            name: start().joined(pa.concat_tables([result[name] for result in results]))
            for name, start in summaries.items()
        }

    def select(self, keep):
        return self.in_tasks([[rows.filter(pa.array(keep(rows))) for rows in task] for task in self.tasks])

    def collect(self, devices=None):
        return pa.concat_tables([rows for task in self.tasks for rows in task]).sort_by(
            [("device", "ascending"), ("ts", "ascending")]
        )

    def by_time(self, edges_us, overlap_us):
        rows = in_blocks(self.collect(), edges_us, overlap_us)
        pieces = [rows.filter(pc.equal(rows["block"], number)) for number in range(len(edges_us))]
        self.blocks = len(pieces)
        return self.in_tasks([pieces[::2], pieces[1::2]])

    def in_tasks(self, tasks):
        other = object.__new__(Divided)
        other.tasks = tasks
        return other


def divided(source, tasks, seed):
    rng = np.random.default_rng(seed)
    aside = source.aside
    t_us = aside["t_us"].to_numpy(dtype=np.int64)
    times = pa.array(t_us, mask=t_us == np.iinfo(np.int64).min).cast(pa.timestamp("us", "UTC"))
    columns = {name: pa.array(aside[name], pa.string()) for name in ("device", "reason")}
    columns |= {name: pa.array(aside[name].to_numpy(dtype=float)) for name in ("lat", "lon")}
    rows = {
        "positions": Divided(source.positions, tasks, rng),
        "reads": Divided(source.reads, tasks, rng),
        "aside": Divided(pa.table(columns | {"ts": times}), tasks, rng),
    }
    return replace(source, **rows)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    file = tmp_path_factory.mktemp("faulty") / "cars.csv"
    write_faulty(file)
    return file


@pytest.mark.parametrize(("tasks", "seed"), [pytest.param(1, 0, marks=pytest.mark.soak), (5, 1)])
def test_each_value_is_that_of_one_table(faulty, tasks, seed):
    source = open_source(str(faulty), tz="Europe/Berlin")
    values = page_values(source)
    kinds = {*values["table of defects"]["defect"]}
    assert len(kinds) >= 4, kinds  # the trace has them
    assert_same_values(values, page_values(divided(source, tasks, seed)))


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("limits", "headline"),
    [
        (Limits(86_400, 40.0), "To know where there were devices, join"),
        (Limits(300, 500.0), "Send only the last position"),
        (Limits(60, 500.0, 1e-6), "Send every message by itself"),
        (Limits(3600, 3000.0, 0.01), "Send only the last position"),
    ],
)
def test_each_value_of_joined_messages_is_that_of_one_table(faulty, monkeypatch, limits, headline):
    """Blocks of time end within intervals, days and stops; sums are of whole numbers."""
    source = open_source(str(faulty), tz="Europe/Berlin", needs_reads=False)
    values = joining_values(source, limits)
    assert values["headline"].startswith(headline)
    monkeypatch.setattr(joined_sums, "BLOCK_ROWS", 700)
    parts = divided(source, 3, 4)
    assert_same_values(values, joining_values(parts, limits))
    assert parts.positions.blocks > 4


def test_map_is_that_of_one_table(faulty):
    source = open_source(str(faulty), tz="Europe/Berlin")
    pages = [
        re.sub(r"[0-9a-f]{32}", "", figures.density_map(rows).get_root().render())
        for rows in (source.positions, divided(source, 3, 2).positions)
    ]
    assert pages[0] == pages[1]


def test_addresses_and_large_traces_stay_on_spark(faulty, monkeypatch):
    assert stays_on_spark("s3://bucket/cars.csv")
    assert not stays_on_spark(str(faulty))
    assert not stays_on_spark(faulty.as_uri())
    monkeypatch.setattr("mudkit.report.source.MAX_ROWS", 100)
    assert stays_on_spark(str(faulty))

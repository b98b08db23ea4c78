"""Summaries of rows: blocks of time, and counts that a page on joined messages asks for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mudkit.trace import profile
from mudkit.trace.schema import timestamps
from mudkit.trace.summaries import in_blocks, summarise

S = 1_000_000


def make_rows(t_s, speed=None):
    t_us = (S * np.asarray(t_s)).astype(np.int64)
    columns = {"device": ["a"] * len(t_us), "ts": timestamps(t_us), "lat": [0.0] * len(t_us)}
    columns["lon"] = np.arange(len(t_us), dtype=float)
    if speed is not None:
        columns["speed_mps"] = pa.array(speed, pa.float64())
    return pa.table(columns)


def test_rows_are_in_the_block_of_their_time_and_in_those_that_ended_soon_before():
    """The first block has all rows before the second; a block ends where the next begins, without its edge."""
    t_s = np.array([-5, 0, 9, 10, 14, 15, 19, 20, 27, 99])
    edges_s = np.array([0, 10, 20])
    rows = in_blocks(make_rows(t_s), S * edges_s, 7 * S)
    placed = {*zip(rows["lon"].to_pylist(), rows["block"].to_pylist(), strict=True)}
    ends_s = [10, 20, np.inf]
    expected = {
        (float(row), block)
        for row, at_s in enumerate(t_s)
        for block in range(3)
        if (block == 0 or at_s >= edges_s[block]) and at_s < ends_s[block] + 7
    }
    assert placed == expected
    assert len(rows) == len(expected) > len(t_s)


def test_rows_of_a_long_overlap_are_in_several_blocks():
    rows = in_blocks(make_rows([30]), S * np.array([0, 10, 20, 30]), 25 * S)
    assert rows["block"].to_pylist() == [0, 1, 2, 3]


def test_stretches_are_counted_by_their_lengths():
    counts = summarise(make_rows([0, 1, 5, 10, 11]), {"of": lambda: profile.stretches((10 * S, 5 * S))})["of"]
    rows = {tuple(row.values()) for row in counts.to_pylist()}
    assert rows == {(10 * S, 0, 3), (10 * S, 1, 2), (5 * S, 0, 2), (5 * S, 1, 1), (5 * S, 2, 2)}


def test_rows_with_a_speed_are_counted():
    """A speed that is not known is null, or no number."""
    for speed, known in (([1.0, None, float("nan"), 0.0], 2), ([None] * 4, 0), (None, 0)):
        counts = summarise(make_rows([0, 1, 2, 3], speed), {"of": profile.speeds})["of"]
        assert counts["rows"].to_pylist() == [known]


def test_steps_of_a_time_or_longer_are_listed_with_both_their_ends():
    steps = summarise(make_rows([0, 10, 19, 40]), {"of": lambda: profile.long_steps(10 * S)})["of"]
    names = ("number", "start_us", "end_us", "lon", "next_lon")
    assert [tuple(row[name] for name in names) for row in steps.to_pylist()] == [
        (0, 0, 10 * S, 0.0, 1.0),
        (2, 19 * S, 40 * S, 2.0, 3.0),
    ]


def test_steps_are_counted_by_bins():
    bins = summarise(make_rows([0, 1, 11, 31, 32]), {"of": lambda: profile.step_bins((0.0, 5.0, 30.0))})["of"]
    assert bins["rows"].to_pylist() == [2, 2]


def test_places_on_the_edges_are_counted_in_the_picture():
    grid = profile.PixelGrid(0.0, 0.0, 1.0, 1, 1)
    rows = make_rows([0, 1, 2, 3])  # from 0 to 3 degrees east on the equator
    counts = summarise(rows, {"of": lambda: profile.pixels(-180.0, grid, (0.0, 1.0, 0.0, 2.0))})["of"]
    assert grid.picture(counts).tolist() == [[2]]

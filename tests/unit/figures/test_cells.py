"""Cells over time, cache hits by cell, and boxes of answers."""

import math

import numpy as np
import pandas as pd
import pytest

from mudkit import figures
from mudkit.figures.cells import MAX_CELLS, MAX_FRAMES


def make_cells(hours: int, places: int = 3, zoom: int = 14) -> pd.DataFrame:
    rows = [
        (zoom, pd.Timestamp("2010-03-01T06:00", tz="UTC") + pd.Timedelta(hours=hour), 30 + place / 100, -97.0, hour + place)
        for hour in range(hours) for place in range(places)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["zoom", "bucket_ts", "lat", "lon", "positions"])


def test_each_bucket_is_a_frame_in_local_time():
    figure = figures.cells_over_time(make_cells(5), tz="America/Chicago", title="cells")
    assert [frame.name for frame in figure.frames] == [f"0{hour}:00" for hour in range(5)]
    assert figure.layout.sliders[0].currentvalue.prefix == "2010-03-01, America/Chicago: "
    assert [step.label for step in figure.layout.sliders[0].steps] == [frame.name for frame in figure.frames]
    assert figure.layout.sliders[0].active == 4  # the busiest is shown first
    assert list(figure.data[1].text) == ["6 positions", "5 positions", "4 positions"]
    assert len(figure.data[0].x) == 3
    assert "°" in figure.layout.xaxis.title.text
    assert figure.layout.title.text == "cells"


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("hours", [1, 48, 49, 500])
def test_many_buckets_are_merged_without_loss(hours):
    table = make_cells(hours, places=2)
    figure = figures.cells_over_time(table)
    assert len(figure.frames) == math.ceil(hours / math.ceil(hours / MAX_FRAMES)) <= MAX_FRAMES
    total = sum(
        int(text.split()[0].replace(",", "")) for frame in figure.frames for text in frame.data[0].text
    )
    assert total == table["positions"].sum()


def test_frames_show_the_cells_with_most_positions():
    table = make_cells(1, places=MAX_CELLS + 50)
    shown = figures.cells_over_time(table).frames[0].data[0]
    assert len(shown.x) == MAX_CELLS
    assert min(shown.y) == pytest.approx(30 + 50 / 100)
    assert np.all(np.diff(shown.marker.size) <= 0)


def make_reads(lat, lon, is_local, is_stale=False):
    return pd.DataFrame({"lat": lat, "lon": lon, "is_local": is_local, "is_stale": is_stale})


READS = pd.concat(
    [
        make_reads([30.001] * 6, -97.001, [True, True, True, False, False, False], [True] + [False] * 5),
        make_reads([30.101] * 2, -97.001, True),
        make_reads([35.0], -97.0, False),
    ],
    ignore_index=True,
)


def test_reads_are_counted_by_cell():
    counts = figures.hits_by_cell(READS).to_pandas().sort_values("lat", ignore_index=True)
    assert counts["reads"].tolist() == [6, 2, 1]
    assert counts["local"].tolist() == [50, 100, 0]
    assert np.allclose(counts["stale"], [100 / 6, 0, 0])
    assert counts["text"][0] == "6 reads: 50 % answered locally, 17 % stale"
    for row, lat in zip(counts.itertuples(), (30.001, 30.101, 35.0), strict=True):
        assert row.south <= lat <= row.north
        assert row.west <= -97.0
        assert row.south < row.lat < row.north
    assert figures.hits_by_cell(READS, 9)["reads"].to_pylist() != counts["reads"].tolist()


def test_rows_that_stand_for_some_reads_count_as_these():
    """Join reads of one place before: the cells are those of the reads alone."""
    places = READS.groupby(["lat", "lon"], as_index=False)
    joined = places[["is_local", "is_stale"]].sum().merge(places.size().rename(columns={"size": "reads"}))
    assert len(joined) < len(READS)
    assert figures.hits_by_cell(joined).equals(figures.hits_by_cell(READS))


def test_reads_near_busiest_selects_one_of_two_towns():
    kept = figures.reads_near_busiest(READS)
    assert len(kept) == 8
    assert kept["lat"].max() < 31
    assert len(figures.reads_near_busiest(READS, 5.0)) == 6
    assert len(figures.reads_near_busiest(READS[READS["lat"] > 31])) == 1


def test_cache_hits_have_a_square_per_cell_and_are_updated():
    figure = figures.cache_hits(READS[READS["lat"] < 31], title="T")
    squares = figure.data[1]
    assert sorted(squares.marker.color) == [50, 100]
    assert max(squares.marker.size) == 30
    assert len(figure.data[0].x) == 8
    figures.update_cache_hits(figure, READS[READS["lat"] < 31].assign(is_local=False), title="U")
    assert set(figure.data[1].marker.color) == {0}
    assert figure.layout.title.text == "U"
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 100)


TABLE = pd.DataFrame(
    [("before", 1.0, 0.0, 4.0, False), ("now", 0.0, 2.0, 2.0, True)],
    columns=["name", "x_km", "y_km", "box_km", "is_requested"],
)


def test_answer_boxes_are_squares_with_a_missing_point():
    figure = figures.answer_boxes(TABLE, title="T", missing_point=(-1.0, 3.0, "may be missing"))
    before, _, now, _, point = figure.data
    assert (min(before.x), max(before.x), min(before.y), max(before.y)) == (-1, 3, -2, 2)
    assert (min(now.x), max(now.x), min(now.y), max(now.y)) == (-1, 1, 1, 3)
    assert (point.x[0], point.y[0], point.name) == (-1, 3, "may be missing")
    assert before.line.dash != now.line.dash
    assert figure.layout.yaxis.scaleanchor == "x"


def test_room_around_answer_boxes_is_a_share_of_their_extent():
    """Boxes of metres and of hundreds of km look alike."""
    lengths = ["x_km", "y_km", "box_km"]
    few, many = (
        figures.answer_boxes(TABLE.assign(**TABLE[lengths] * scale), title="T").layout for scale in (1, 100)
    )
    for axis, low, high in (("xaxis", -1, 3), ("yaxis", -2, 3)):
        assert few[axis].range[0] < low < high < few[axis].range[1]
        assert many[axis].range == pytest.approx([100 * edge for edge in few[axis].range])


def test_labels_of_boxes_with_a_common_corner_are_stacked():
    boxes = pd.concat([TABLE, TABLE[:1].assign(name="once more")])
    first, other, again = figures.answer_boxes(boxes, title="T").layout.annotations
    assert (first.x, first.y) == (again.x, again.y) != (other.x, other.y)
    assert [label.yshift for label in (first, other, again)] == [0, 0, 16]


def test_answer_boxes_without_missing_point_draw_none():
    assert len(figures.answer_boxes(TABLE, title="T").data) == 4

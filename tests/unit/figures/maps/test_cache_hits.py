"""Reads are counted in the cells that they lie in, and shown by how many of them were answered locally."""

import numpy as np
import pandas as pd
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.maps.cache_hits import answers, by_cell, fill, near_most


def reads_at(lat, lon, is_local, is_stale=False):
    return pd.DataFrame({"lat": lat, "lon": lon, "is_local": is_local, "is_stale": is_stale})


READS = pd.concat(
    [
        reads_at([30.001] * 6, -97.001, [True, True, True, False, False, False], [True] + [False] * 5),
        reads_at([30.101] * 2, -97.001, True),
        reads_at([35.0], -97.0, False),
    ],
    ignore_index=True,
)


def test_counts_lie_in_their_cells():
    cells = by_cell(READS).to_pandas().sort_values("lat", ignore_index=True)
    assert cells["reads"].tolist() == [6, 2, 1]
    assert cells["local"].tolist() == [50, 100, 0]
    assert np.allclose(cells["stale"], [100 / 6, 0, 0])
    assert cells["told"][0] == "6 reads: 50 % answered locally, 17 % stale"
    for row, lat in zip(cells.itertuples(), (30.001, 30.101, 35.0), strict=True):
        assert row.south <= lat <= row.north
        assert row.west <= -97.0
        assert row.south < row.lat < row.north
    assert by_cell(READS, 9)["reads"].to_pylist() != cells["reads"].tolist()


def test_one_town_of_two():
    kept = near_most(READS)
    assert len(kept) == 8
    assert kept["lat"].max() < 31
    assert len(near_most(READS, 5.0)) == 6
    assert len(near_most(READS[READS["lat"] > 31])) == 1


def test_the_figure_has_a_square_a_cell_and_takes_other_answers():
    figure = answers(READS[READS["lat"] < 31], title="T")
    squares = figure.data[1]
    assert sorted(squares.marker.color) == [50, 100]
    assert max(squares.marker.size) == 30
    assert len(figure.data[0].x) == 8
    fill(figure, READS[READS["lat"] < 31].assign(is_local=False), title="U")
    assert set(figure.data[1].marker.color) == {0}
    assert figure.layout.title.text == "U"
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 100)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ParameterError, match="is_stale"):
        answers(READS.drop(columns="is_stale"), title="")
    with pytest.raises(TraceContentError):
        by_cell(READS[:0])
    with pytest.raises(TraceContentError):
        near_most(READS[:0])

"""Knowledge of receivers about an area."""

import json
import re

import pandas as pd
import pytest

from mudkit import figures
from mudkit.figures import propagation
from mudkit.figures.style import SEQUENCE

ROWS = [
    (10.0, "near", 30.00, -97.0, 2, 40.0, 8.0),
    (20.0, "near", 30.01, -97.0, 1, 50.0, 20.0),
    (30.0, "near", 30.00, -97.0, 3, 10.0, 28.0),
    (35.0, "near", 30.00, -97.0, 1, 99.0, 5.0),  # an old report that arrives late
    (60.0, "far", 30.00, -97.0, 6, 30.0, 20.0),
]


CELLS = pd.DataFrame(ROWS, columns=["t_s", "receiver", "lat", "lon", "messages", "speed_kmh", "reported_s"])


GROUND = pd.DataFrame({"lat": [30.0, 30.01, 30.02], "lon": [-97.0, -97.01, -96.99]})


OPTIONS = {"value": "speed_kmh", "label": "km/h"}


@pytest.mark.parametrize(
    ("receiver", "t_s", "speeds"),
    [("near", 9, []), ("near", 10, [40]), ("near", 29, [40, 50]), ("near", 40, [50, 10]), ("far", 59, []), ("far", 60, [30])],
)  # fmt: skip
def test_known_returns_the_latest_report_by_cell(receiver, t_s, speeds):
    rows = figures.ReceivedCells(CELLS).known(receiver, t_s)
    assert rows["speed_kmh"].tolist() == speeds
    assert (rows["age_s"] == t_s - rows["reported_s"]).all()


def test_knowledge_has_a_panel_per_receiver_and_fades_with_age():
    figure = figures.knowledge(
        CELLS, GROUND, [("near", 40.0), ("far", 40.0), ("near", 400.0)], **OPTIONS, columns=2
    )
    near, far, later = figure.data[1::2]
    assert list(near.marker.color) == [50, 10]
    assert len(far.x) == 0
    assert list(later.marker.opacity) < list(near.marker.opacity)
    texts = [note.text for note in figure.layout.annotations]
    assert texts[0] == "<b>near</b>, 40 s<br>2 cells, age 16 s"
    assert texts[1] == "<b>far</b>, 40 s<br>nothing yet"
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (10, 99)
    assert figure.layout.coloraxis.colorscale[0][1] == SEQUENCE[0], "high values are dark, as on every map"
    assert "10 km/h<br>3 messages, 12 s old" in near.text
    assert list(figure.data[-1].text) == ["", "0.5 km"], "a scale in place of degrees"


def test_cells_have_their_true_size_and_lie_below_the_streets():
    figure = figures.knowledge(CELLS.assign(km=0.5), GROUND, [("far", 0.0), ("near", 40.0)], **OPTIONS)
    first, second = figure.to_dict()["layout"]["shapes"]
    assert {first["xref"], second["xref"]} == {"x2"}, "nothing is known in the first panel"
    assert first["layer"] == "below"
    assert (first["y1"] - first["y0"]) * 111.19 == pytest.approx(0.5, rel=1e-3)
    assert first["fillcolor"] != second["fillcolor"]
    low, high = figure.layout.yaxis.range
    south = min(first["y0"], second["y0"])
    assert low < max(figure.data[-1].y) < south, "the scale is below the cells"
    assert south - low < 0.25 * (high - low)
    later = figures.knowledge(CELLS, GROUND, [("near", 400.0)], **OPTIONS, columns=1)
    assert later.to_dict()["layout"]["shapes"][0]["opacity"] < first["opacity"]


def test_update_knowledge_moves_the_time():
    figure = figures.knowledge(CELLS, GROUND, [("near", 0.0), ("far", 0.0)], **OPTIONS)
    assert all(len(trace.x) == 0 for trace in figure.data[1::2])
    later = [("near", 60.0), ("far", 60.0)]
    figures.update_knowledge(figure, figures.ReceivedCells(CELLS), later)
    assert [len(trace.x) for trace in figure.data[1::2]] == [2, 1]
    assert "age 40 s" in figure.layout.meta["alt"], "so does the alternative text"


def test_knowledge_without_cells_is_labelled_nothing_yet():
    figure = figures.knowledge(CELLS.iloc[:0], GROUND, [("near", 1.0)], **OPTIONS, columns=1, limits=(0, 60))
    assert "nothing yet" in figure.layout.annotations[0].text


def parse_slides(leaflet_map):
    page = leaflet_map.get_root().render()
    (result,) = re.findall(r"^\s*mudkitMap\.slides\(\w+, (.*)\);$", page, re.MULTILINE)
    return json.loads(result)


def test_knowledge_map_shows_cells_and_ages_over_time():
    rows = [(10.0, "x", 30.0, -97.0, 1.0, 1, 5.0, 10.0), (70.0, "x", 30.0, -97.0, 1.0, 1, 9.0, 60.0)]
    columns = ["t_s", "receiver", "lat", "lon", "km", "messages", "speed_kmh", "reported_s"]
    cells = pd.DataFrame(rows, columns=columns)
    slides = parse_slides(
        figures.knowledge_map(
            cells,
            cells,
            ["x", "nobody"],
            value="speed_kmh",
            label="km/h",
            every_s=30,
            until_s=120,
            first_s=65,
        )
    )
    assert slides["labels"] == [f"at {time}" for time in ("30 s", "1 min", "1 min 30 s", "2 min")]
    assert [picture[0][2] for picture in slides["pictures"][0]] == [
        "5, 20 s old",
        "5, 50 s old",
        "9, 30 s old",
        "9, 60 s old",
    ]
    assert slides["first"] == 1


@pytest.mark.parametrize(("metres", "text"), [(0.0, "0 m"), (250.0, "250 m"), (4000.0, "4 km")])
def test_sides_of_cells_are_in_words(metres, text):
    assert propagation._metres(metres) == text


def test_rows_of_panels_do_not_touch():
    """Between two rows stand the names of the lower ones."""
    figure = figures.knowledge(CELLS, GROUND, [("near", 40.0), ("far", 40.0)], **OPTIONS, columns=1)
    lower, upper = sorted({axis.domain for axis in figure.select_yaxes()})
    assert upper[0] - lower[1] > 0.05

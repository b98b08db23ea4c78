"""Errors of figures that cannot be drawn."""

import math
import re

import figure_gallery as gallery
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit import figures, units
from mudkit.consistency import History
from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures import geometry
from mudkit.figures.comparisons import MAX_CONDITIONS
from mudkit.figures.geometry import Frame
from mudkit.figures.maps import MAX_RECTANGLES
from mudkit.trace.schema import POSITIONS, timestamps

AREA = (30.27, -97.73, 30.33, -97.67)
STATES = ("told", "taken back", "neither")
CELLS, READS, LINKS, RECEIVED = gallery._bucketed(), gallery._reads(), gallery.links(), gallery._heard()
RADIO, RULES, NODES = gallery._radio(), gallery._rule_table()[0], gallery.tree_nodes()
MESSAGES = gallery.lab().frame("messages")
LIFECYCLES = gallery._lives(1)
SWEEP = gallery._sweep("prefetch_limit", [1, 4], "outage", [0.1, 0.5])
GROUND = gallery._ground()
SHARES = gallery._shares(["a", "b"])
LIMITS = gallery._waste(["0", "4"], "limit")
WASTE = gallery._waste(["on-line", "buffer"], "policy")
SLIDES = pa.table(
    units.box_bounds(np.array([30.0, 30.1]), np.full(2, -97.0), 1.0)._asdict()
    | {"speed": [1.0, 2.0], "at": ["6:00", "7:00"], "of": ["a", "a"]}
)
FLEET = pa.table({"device": ["a"], "ts": timestamps(np.zeros(1, np.int64)), "lat": [1.0], "lon": [1.0]})
POINTS = pa.table({"lat": [30.27], "lon": [-97.74], "state": ["told"]})


def at(second):
    return MESSAGES["sent"].min() + pd.Timedelta(seconds=second)


def make_places(lat, lon, **columns):
    return pa.table({"lat": np.asarray(lat, float), "lon": np.asarray(lon, float), **columns})


def make_boxes(lat, lon, **columns):
    return pa.table({**units.box_bounds(np.asarray(lat), np.asarray(lon), 1.0)._asdict(), **columns})


def draw_heat(lat, lon, *ground, **columns):
    return figures.heat_map(make_places(lat, lon, **columns), *ground)


def draw_ground(*options):
    return figures.heat_map(make_places([0.0], [0.0], weight=[1]), *options)


def draw_cells(table=CELLS, **options):
    return figures.cells_over_time(table, **options)


def draw_strip(table=LINKS, **options):
    return figures.link_strip(table, **options)


def draw_radio(*rows):
    """Draw a radio timeline from rows of (state, from, to)."""
    table = [(at(a), at(b), state, 1.0) for state, a, b in rows]
    return figures.radio_timeline(pd.DataFrame(table, columns=["start", "end", "state", "power_mw"]))


def draw_diagram(table=MESSAGES, **options):
    return figures.message_diagram(table, **options)


def draw_knowledge(received=RECEIVED, ground=GROUND, panels=(("near by", 1.0),), value="speed_kmh"):
    return figures.knowledge(received, ground, list(panels), value=value, label="")


def draw_slides(cells=SLIDES, value="speed", **options):
    return figures.cell_slides(cells, value, **{"time": "at", "by": "of"} | options)


def draw_audience(points=POINTS, states=STATES):
    return figures.area_map(points, "state", area=(30.27, -97.74, 1.6), states=states, title="")


def draw_frontier(number):
    tables = [SHARES] * 3
    tables[number] = SHARES.drop(columns="stale_share")
    return figures.frontier(*tables, title="")


def draw_waste(table):
    return figures.waste_and_loss(table, title="")


def draw_tradeoff(table=LIMITS, best="4"):
    return figures.tradeoff(table, x="limit", best=best, title="", unit="messages")


def draw_pareto(table):
    return figures.pareto(table, x="j", y="share", labels=("", ""), title="")


def draw_lifecycles(table):
    return figures.message_lifecycles(
        {"rule": table}, LIFECYCLES, reads_us=[], switches_us=[], starts_up=True, until_us=1, title=""
    )


PARAMETERS = [
    (lambda: draw_cells(table=pd.concat([CELLS.assign(zoom=14), CELLS.assign(zoom=12)])), "zooms [12, 14]"),
    (lambda: draw_cells(value="speed"), "speed"),
    (lambda: draw_cells(tz="Mars/Olympus"), "America/Los_Angeles"),
    (lambda: figures.cache_hits(READS.drop(columns="is_stale"), title=""), "is_stale"),
    (lambda: figures.answer_boxes(gallery._answer_boxes().drop(columns="box_km"), title=""), "box_km"),
    (lambda: figures.bar_panels(gallery._measures(), {"mJ": "energy"}, title="", y="way"), "mJ"),
    (lambda: figures.signals({}, hz=250, y="mV", title=""), "signal"),
    (lambda: figures.signals({"none": []}, hz=250, y="mV", title=""), "signal"),
    (lambda: figures.signals({"some": [1.0], "none": []}, hz=250, y="mV", title=""), "signal"),
    (lambda: figures.signals({"a": [1.0]}, hz=0, y="mV", title=""), "hz"),
    (lambda: figures.crossover(gallery._swept(), x="x", y="radio_j", title=""), "lacks"),
    (lambda: draw_waste(WASTE.assign(condition="a").drop(columns="loss_low")), "loss_low"),
    (lambda: draw_waste(pd.concat(WASTE.assign(condition=name) for name in "abcdef")), str(MAX_CONDITIONS)),
    *((lambda number=number: draw_frontier(number), "stale_share") for number in range(3)),
    (lambda: figures.latencies(pd.DataFrame({"system": ["a"]}), {"a": 1}, title=""), "latency_s"),
    (lambda: figures.latencies(gallery._latencies(), {"relay": 1}, title=""), "Contrail"),
    (lambda: draw_pareto(gallery._systems().drop(columns="is_best")), "is_best"),
    (lambda: draw_tradeoff(LIMITS.drop(columns="loss_high")), "loss_high"),
    (lambda: draw_tradeoff(best="5"), "5"),
    (lambda: draw_strip(devices=["phone0", "car11"]), "car11"),
    (lambda: draw_strip(LINKS.drop(columns="up")), "lacks columns: up"),
    (lambda: figures.radio_timeline(RADIO.drop(columns="power_mw")), "power_mw"),
    (lambda: figures.location_exposure(gallery._exposure().drop(columns="is_away"), AREA), "away"),
    *(
        (lambda links=links: figures.Fleet.from_tables(FLEET, links), "device, ts, up")
        for links in (pa.table({"device": ["a"]}), LINKS)
    ),
    (lambda: geometry.rings({"arcs": [], "objects": {"land": {}, "sea": {}}}, "lakes"), "land, sea"),
    *(
        (lambda step=step: geometry.graticule(step, Frame(0, 0, 1, 1, -180)), "step above 0")
        for step in (0.0, -1.0, math.nan)
    ),
    *((lambda verdict=verdict: figures.history(verdict), "check(history, model)") for verdict in (3, History.parse("ann: w1"))),
    (lambda: draw_ground(pa.table({"lat": [1.0]})), "no column 'lon'"),
    (lambda: draw_ground(pa.table({"lat": ["a"], "lon": [0.0]})), "no numbers"),
    (lambda: draw_ground([(1, 2)]), "found:    list"),
    (lambda: draw_heat([0.0], [0.0]), "no column 'weight'"),
    (lambda: draw_heat([0.0], [0.0], weight=[-1.0]), "below 0"),
    (lambda: figures.cell_map(make_boxes([0.0], [0.0], n=[1]), "m"), "no column 'm'"),
    (lambda: figures.cell_map(make_boxes([0.0], [0.0], n=[1]), "n", limits=(2, 1)), "limits"),
    (lambda: figures.cell_map(make_boxes(np.zeros(MAX_RECTANGLES + 1), np.zeros(MAX_RECTANGLES + 1), n=np.zeros(MAX_RECTANGLES + 1)), "n"), "20,001 rows"),
    (lambda: draw_slides(time="when"), "when"),
    (lambda: draw_slides(text="why"), "why"),
    (lambda: draw_slides(value="mood"), "mood"),
    (lambda: draw_slides(first=2), "0 to 1"),
    *((lambda states=states: draw_audience(states=states), "states") for states in ((), tuple("abcdefgh"))),
    (lambda: draw_diagram(start=5), "start"),
    (lambda: draw_diagram(end="soon"), "end"),
    (lambda: draw_diagram(start=pd.NaT), "start"),
    (lambda: draw_diagram(start=at(2), end=at(1)), "ends before it starts"),
    (lambda: draw_diagram(devices="jane"), "devices"),
    (lambda: draw_diagram(kinds="send"), "kinds"),
    (lambda: draw_diagram(incidents=pd.DataFrame({"device": []})), "ts, incident, detail"),
    (lambda: draw_diagram(MESSAGES.drop(columns="fate")), "lacks columns: fate"),
    (lambda: draw_diagram(MESSAGES.to_dict()), "to_pandas"),
    (lambda: draw_diagram(MESSAGES.assign(sent=1.5)), "holds no times"),
    (lambda: figures.rule_firing(RULES.drop(columns="outcome"), [], title="", x=""), "outcome"),
    (lambda: figures.tree(NODES.drop(columns="leaves"), title=""), "leaves"),
    (lambda: figures.tree_outline(NODES.drop(columns="leaves")), "leaves"),
    (lambda: figures.tree(None, title=""), "learnt policy"),
    (lambda: figures.decisions({"one": gallery._decided()["with state"].drop(columns="is_alarm")}, title=""), "is_alarm"),
    (lambda: figures.decisions({"one": gallery._decided()["with state"].assign(decision="eaten")}, title=""), "eaten"),
    (lambda: figures.waste_and_loss_by_limit(SWEEP.drop(columns="outage")), "outage"),
    (lambda: figures.waste_and_loss_by_limit(SWEEP.head(0)), "0 rows"),
    (lambda: figures.waste_and_loss_by_limit(3), "a pandas DataFrame with"),
    (lambda: draw_lifecycles(LIFECYCLES.drop(columns="read_us")), "read_us"),
    (lambda: figures.ReceivedCells(RECEIVED.drop(columns="reported_s")), "reported_s"),
    (lambda: draw_knowledge(value="mood"), "'mood'"),
    (lambda: draw_knowledge(panels=()), "0 panels"),
    *((lambda positions=positions: figures.density_map(positions), "A map takes Arrow tables.") for positions in (
        None, 3, "positions", [], {}, make_places([0.0], [0.0]).to_pandas(),
    )),
]  # fmt: skip
CONTENTS = [
    (lambda: draw_cells(table=CELLS[:0]), "no cells"),
    (lambda: figures.hits_by_cell(READS[:0]), ""),
    (lambda: figures.reads_near_busiest(READS[:0]), ""),
    (lambda: draw_strip(LINKS[:1]), "end="),
    (lambda: draw_strip(LINKS[:0]), ""),
    (lambda: draw_radio(), "has no row"),
    (lambda: draw_radio(("active", 0, 2), ("tail", 1, 3)), "overlap"),
    (lambda: draw_radio(("active", 2, 1)), "end before they start"),
    (lambda: draw_radio(("asleep", 0, 1)), "asleep"),
    (lambda: figures.location_exposure(gallery._exposure()[:0], AREA), "no place"),
    (lambda: figures.Fleet.from_tables(POSITIONS.empty_table()), ""),
    (lambda: draw_ground(make_places([], [])), "positions"),
    (lambda: draw_ground(make_places([np.nan], [0.0])), "nothing to draw"),
    (lambda: draw_ground(make_places([91.0], [0.0])), "latitude 91"),
    (lambda: draw_ground(make_places([-122.4], [37.7])), "swapped"),
    (lambda: draw_heat([], [], weight=[]), "nothing to draw"),
    (lambda: draw_heat([], [], make_places([], []), weight=[]), "nothing to draw"),
    (lambda: figures.cell_map(make_boxes([], [], n=[]), "n"), "nothing to draw"),
    (lambda: draw_slides(cells=SLIDES.slice(0, 0)), "cells"),
    (lambda: draw_audience(POINTS.slice(1)), ""),
    (lambda: draw_diagram(MESSAGES[:0]), "no messages at all"),
    (lambda: draw_diagram(MESSAGES.assign(fate="eaten")), "eaten"),
    (lambda: draw_knowledge(ground=gallery._ground()[:0]), ""),
]


@pytest.mark.parametrize(
    ("error", "call", "words"),
    [
        (error, *case)
        for error, cases in ((ParameterError, PARAMETERS), (TraceContentError, CONTENTS))
        for case in cases
    ],
)
def test_invalid_figures_are_refused(error, call, words):
    with pytest.raises(error, match=re.escape(words) or ".") as caught:
        call()
    assert caught.value.expected or caught.value.remedy


def test_cells_over_time_are_refused_with_what_to_do():
    """Too many may be made fewer; for a missing column there is no such remedy."""
    with pytest.raises(ParameterError) as caught:
        draw_slides(time="when")
    assert (caught.value.expected, caught.value.remedy) == ("when", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mudkit.figures.maps.MAX_SLIDE_CELLS", 1)
        with pytest.raises(ParameterError, match="at most 1 row") as caught:
            draw_slides()
    assert caught.value.remedy == "larger cells or longer intervals"

"""The other run of a comparison: arguments, areas, and limits of differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_summaries import write_run
from typer.testing import CliRunner

from mudkit.cli import app
from mudkit.errors import InputMissing, ParameterError, TraceContentError
from mudkit.report import Measure, SummaryError, against, read_summary
from mudkit.report.against import Place, _gap_km, parse_against, parse_limits, run_both
from mudkit.units import distance_km

SAMPLE, COMMUTE = "data/sample/positions.csv.gz", "data/commute/positions.csv.gz"
MEASURES = [Measure("sent_share", 0.5, "share", "Reads that ask the server.", 0.4, 0.6)]


def test_other_parameters_replace_or_extend_those_of_this_run(tmp_path):
    given = {"trace": SAMPLE, "columns": {"device": "cab"}, "tz": "UTC"}
    assert parse_against("propagation", given, ["period=2010-03-01/2010-03-02", "cells_zoom=9"]) == given | {
        "period": "2010-03-01/2010-03-02",
        "cells_zoom": 9,
    }
    other = parse_against("propagation", given, [COMMUTE, "columns.ts=when"])
    assert other == given | {"trace": COMMUTE, "columns": {"device": "cab", "ts": "when"}}
    assert parse_against("cache_policy", given | {"reads": "a.csv"}, [COMMUTE, "reads="])["reads"] == ""
    folder = write_run(tmp_path, "propagation", MEASURES)
    assert parse_against("propagation", given, [str(folder)]) == folder


def test_file_whose_name_has_an_equals_sign_is_a_trace(tmp_path):
    file = tmp_path / "a=b.csv"
    file.touch()
    assert parse_against("propagation", {}, [str(file)]) == {"trace": str(file)}


@pytest.mark.parametrize(
    ("template", "texts", "error", "message"),
    [
        ("propagation", ["nothing.csv"], InputMissing, "no trace or finished run at nothing.csv"),
        ("propagation", [SAMPLE, COMMUTE], ParameterError, "compared with one other"),
        ("propagation", ["RUN", "tz=UTC"], ParameterError, "compared with one other"),
        ("propagation", ["tz=UTC", "tz=UTC"], ParameterError, "given twice"),
        ("prefetch_sizing", [SAMPLE], ParameterError, "reads no trace"),
        ("cache_policy", [COMMUTE], ParameterError, "do not belong to another(?s:.)*--against reads="),
    ],
)
def test_contradicting_arguments_are_refused(tmp_path, template, texts, error, message):
    run = str(write_run(tmp_path, "propagation", MEASURES))
    with pytest.raises(error, match=message):
        parse_against(template, {"reads": "a.csv"}, [text.replace("RUN", run) for text in texts])


def test_limits_are_numbers_from_zero_once_each():
    assert parse_limits(["sent_share=0.05", "delay_s = 3"]) == {"sent_share": 0.05, "delay_s": 3.0}
    for wrong in (["sent_share"], ["=3"], ["a=-1"], ["a=nan"], ["a=x"], ["a=1", "a=2"]):
        with pytest.raises(ParameterError, match="limit"):
            parse_limits(wrong)


def place(south, west, side=0.2):
    return Place("cabs", south, south + side, west, west + side)


@given(st.floats(-80, 80), st.floats(-180, 179), st.floats(-80, 80), st.floats(-180, 179))
def test_gap_of_two_boxes_is_symmetric_and_at_most_the_distance_of_their_corners(lat1, lon1, lat2, lon2):
    one, other = place(lat1, lon1), place(lat2, lon2)
    assert _gap_km(one, other) == pytest.approx(_gap_km(other, one), abs=1e-6)
    assert _gap_km(one, one) == 0
    corners = [
        float(distance_km(one.south, one.west + a, other.south, other.west + b))
        for a in (0, 0.2)
        for b in (0, 0.2)
    ]
    assert _gap_km(one, other) <= min(corners) + 25  # a height of 0.2 degrees is 22 km


def test_boxes_that_meet_across_the_date_line_have_no_gap():
    rng = np.random.default_rng(0)
    fiji = Place.of("fiji", rng.uniform(-17, -16, 500), (rng.uniform(179, 181, 500) + 180) % 360 - 180)
    assert fiji.east - fiji.west < 3
    assert _gap_km(fiji, place(-16.5, -179.9)) == 0
    assert _gap_km(place(-16.5, 179.8), place(-16.5, -179.9)) < 30


def test_few_wrong_places_do_not_widen_a_box():
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(37.6, 37.8, 1000), rng.uniform(-122.5, -122.3, 1000)
    lat[:4], lon[:4] = 30.3, -97.7
    box = Place.of("sf", np.append(lat, np.nan), np.append(lon, np.nan))
    assert box.south > 37.5
    assert box.east < -122
    assert Place.of("none", np.array([np.nan]), np.array([np.nan])) is None


@pytest.fixture
def no_run(monkeypatch):
    """Fail when a report would start."""
    monkeypatch.setattr("mudkit.report.run._execute", None)


def write_city(folder, name, lat, lon):
    rows = [
        f"car {number % 5},{1_267_450_000 + 60 * number},{lat + number / 9000:.5f},{lon:.5f}"
        for number in range(200)
    ]
    file = folder / name
    file.write_text("\n".join(["device,t,lat,lon", *rows, ""]))
    return str(file)


@pytest.mark.usefixtures("no_run")
def test_trace_of_another_city_is_refused_with_the_distance_before_anything_runs(tmp_path):
    sf, austin = write_city(tmp_path, "sf.csv", 37.7, -122.4), write_city(tmp_path, "austin.csv", 30.3, -97.7)
    arguments = [
        "report",
        "propagation",
        "-p",
        f"trace={sf}",
        "--against",
        austin,
        "--out",
        str(tmp_path / "out"),
    ]
    with pytest.raises(
        TraceContentError,
        match=r"different areas(?s:.)*sf.csv around latitude 37.71(?s:.)*2,4\d\d km between",
    ):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    run = write_run(
        tmp_path, "propagation", MEASURES, cells=[(30.3, -97.7), (30.4, -97.8)], trace="buses.csv"
    )
    with pytest.raises(TraceContentError, match=r"buses\.csv around latitude 30\.35"):
        run_both("propagation", {"trace": sf}, run, build=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_run")
def test_trace_whose_first_rows_lie_elsewhere_is_read_whole_before_it_is_refused(tmp_path, monkeypatch):
    """A file that begins in another city has most rows in this one."""
    sf = write_city(tmp_path, "sf.csv", 37.7, -122.4)
    mixed = tmp_path / "mixed.csv"
    austin = Path(write_city(tmp_path, "austin.csv", 30.3, -97.7)).read_text().splitlines()[:101]
    mixed.write_text("\n".join([*austin, *Path(sf).read_text().splitlines()[1:], ""]))
    sampled = against._file_places

    def sample(values, is_whole):
        if is_whole or not values["trace"].endswith("mixed.csv"):
            return sampled(values, is_whole)
        return iter([(np.full(9, 30.3), np.full(9, -97.7))])

    monkeypatch.setattr(against, "_file_places", sample)
    against._check_areas("propagation", {"trace": sf}, {"trace": str(mixed)})


@pytest.mark.usefixtures("no_run")
def test_wrong_other_run_is_refused_before_anything_runs(tmp_path):
    given = {"trace": SAMPLE}
    run = write_run(tmp_path, "propagation", MEASURES, cells=())
    with pytest.raises(
        ParameterError, match=r"different reports(?s:.)*a run of propagation(?s:.)*a run of trace_profile"
    ):
        run_both("trace_profile", given, run, build=tmp_path)
    with pytest.raises(SummaryError, match=r"no measure 'sent_shar'(?s:.)*did you mean 'sent_share'"):
        run_both("propagation", given, run, limits=["sent_shar"], build=tmp_path)
    with pytest.raises(ParameterError, match="no parameter 'perod'"):
        run_both("propagation", given, given | {"perod": "x"}, build=tmp_path)
    texts = write_run(
        tmp_path / "t", "propagation", [Measure("recommendation", "20", "", "What to do.")], cells=()
    )
    with pytest.raises(ParameterError, match=r"recommendation is a text(?s:.)*same_recommendation"):
        run_both("propagation", given, texts, limits=["recommendation"], build=tmp_path)


def test_limit_on_a_text_of_the_first_run_is_refused_before_the_second_runs(tmp_path, monkeypatch):
    """The command fails after the first run, not after both (`run_both`)."""
    texts = [Measure("recommendation", "20", "", "What to do.")]
    runs = []

    def run(template, given, **options):
        runs.append(given)
        return write_run(tmp_path / f"{len(runs)}", template, texts, cells=())

    monkeypatch.setattr(against, "run_report", run)
    with pytest.raises(ParameterError, match="recommendation is a text"):
        run_both("propagation", {"trace": SAMPLE}, {"trace": SAMPLE, "period": "2010-03-01/2010-03-02"},
                 limits=["recommendation"], build=tmp_path)  # fmt: skip
    assert len(runs) == 1


@pytest.mark.usefixtures("no_run")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["propagation", "--fail-above", "sent_share=0.1"], "nothing to compare with"),
        (["propagation", "--fail-above", "sent_share"], "not a limit"),
        (["all", "--where", "lat > 3"], "no parameter in common(?s:.)*--where"),
        (["all", "--against", "tz=UTC"], "no parameter in common(?s:.)*--against"),
        (["propagation", "--where", "lat > 3", "-p", "where=lat > 4"], "where is given twice"),
        (["prefetch_sizing", "--where", "lat > 3"], "no parameter 'where'"),
        (["propagation", "-p", f"trace={SAMPLE}", "--against", "perod=x"], "did you mean 'period'"),
    ],
)
def test_wrong_arguments_of_the_command_are_refused(tmp_path, arguments, message):
    with pytest.raises(ParameterError, match=message):
        CliRunner().invoke(
            app, ["report", *arguments, "--out", str(tmp_path / "out")], catch_exceptions=False
        )
    assert not (tmp_path / "out").exists()


def test_place_of_a_run_is_that_of_the_cells_of_its_map(tmp_path):
    run = read_summary(write_run(tmp_path, "propagation", MEASURES))
    file = run.folder / "data" / "cells.parquet"
    box = {"south": [37.7, 37.8], "north": [37.8, 37.9], "west": [-122.5, -122.4], "east": [-122.4, -122.3]}
    for columns in (box, {"lat": [37.75, 37.85], "lon": [-122.45, -122.35]}):
        pq.write_table(pa.table(columns), file)
        assert str(against.place_of_run(run)) == "cabs.csv around latitude 37.80, longitude -122.40"
    pq.write_table(pa.table({"cell": [1]}), file)
    assert against.place_of_run(run) is None
    file.unlink()
    assert against.place_of_run(run) is None

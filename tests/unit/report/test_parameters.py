import re
from typing import get_args

import pytest

from mudkit.errors import InputMissing, ParameterError, TraceContentError, TraceFormatError
from mudkit.report import run_report
from mudkit.report.parameters import (
    check,
    described,
    inputs,
    parse_assignments,
    preset,
    presets,
    tables,
)
from mudkit.report.schemas import SYNONYMS, TEMPLATES, TraceProfile
from mudkit.trace.formats import FORMATS


def test_defaults_are_filled_in():
    values = check("trace_profile", {"trace": "x.csv"})
    assert values == TraceProfile(trace="x.csv").model_dump()


TRACE = {"trace": "x.csv"}
WRONG = [
    ("trace_profile", {}, "needs the parameter 'trace'"),
    ("trace_profile", TRACE | {"window_s": float("inf")}, "3,200,000,000"),
    ("trace_profile", TRACE | {1: 2}, "1"),
    ("trace_profile", TRACE | {"fromat": "csv"}, "did you mean 'format'"),
    ("trace_profile", TRACE | {"box_km": "wide"}, "'wide'"),
    ("trace_profile", TRACE | {"box_km": -1}, "a number over 0"),
    ("trace_profile", {"trace": 7}, "7"),
    ("trace_profile", TRACE | {"box_km": "5"}, "'5' (str)"),
    ("trace_profile", TRACE | {"format": "gpx2"}, "cabspotting"),
    ("trace_profile", TRACE | {"cells_zoom": 1.5}, "a whole number from 0 to 22"),
    ("trace_profile", TRACE | {"tz": "Mars/Olympus"}, "time zone"),
    ("trace_profile", TRACE | {"rule": "often"}, "trip_start"),
    ("trace_profile", TRACE | {"columns": {"device": 3.5}}, "columns.device"),
    ("trace_profile", TRACE | {"columns": "cab"}, "--param columns.device=…"),
    ("prefetch_sizing", {"arrivals_per_day": -1.0}, "arrivals_per_day"),
    ("prefetch_sizing", {"reads_per_day": -2.0}, "a number from 0.1 to 1,000"),
    ("prefetch_sizing", {"max_at_a_time": 0}, "a whole number from 1 to"),
    ("prefetch_sizing", {"outage": 1.5}, "a number from 0 to 1"),
    ("prefetch_sizing", {"price_lost": -0.5}, "price_lost"),
    ("prefetch_sizing", {"outages_per_day": 0.0}, "outages_per_day"),
    ("prefetch_sizing", {"draws": 0}, "draws"),
    ("prefetch_sizing", {"threshold": float("nan")}, "threshold"),
    ("prefetch_sizing", {"arrivals": "a.csv"}, "a log of arrivals and one of reads"),
    ("prefetch_sizing", {"reads": "r.csv"}, "a log of arrivals and one of reads"),
    ("prefetch_sizing", {"outages": "o.csv"}, "no log of outages without"),
    ("prefetch_sizing", {"tz": "Mars/Olympus"}, "time zone"),
    ("prefetch_sizing", {"prefetch_limit": 16}, "no parameter 'prefetch_limit'"),
    ("prefetch_sizing", {"max": 16}, "no parameter 'max'"),
    ("propagation", TRACE | {"thresholds": [20, 50]}, "1 (no aggregation) among them"),
    ("propagation", TRACE | {"thresholds": [1]}, "2 or more, 1 among them"),
    ("propagation", TRACE | {"thresholds": [1, 20, 20]}, "different whole numbers"),
    ("propagation", TRACE | {"thresholds": [1, 0]}, "different whole numbers"),
    ("propagation", TRACE | {"thresholds": "1,many"}, "whole numbers separated by commas"),
    ("propagation", TRACE | {"max_delay_s": 0}, "a whole number from 1 to 86,400"),
    ("propagation", TRACE | {"cells_zoom": 30}, "a whole number from 0 to 22"),
    ("propagation", TRACE | {"places": {"airport": "37.62,180.5"}}, "latitude and longitude in degrees"),
    ("propagation", TRACE | {"places": {"airport": "-90.5,0"}}, "latitude and longitude in degrees"),
    ("propagation", TRACE | {"tz": "Mars/Olympus"}, "time zone"),
    ("propagation", TRACE | {"threshold": 3}, "did you mean 'thresholds'"),
    ("cache_policy", TRACE | {"max_stale": -1.0}, "a number from 0 to 1"),
    ("cache_policy", TRACE | {"completeness": 1.2}, "a number over 0 up to 1"),
    ("cache_policy", TRACE | {"stale_cost": 5.0}, "did you mean 'max_stale'?"),
    ("cache_policy", TRACE | {"batch_minutes": 0.0}, "a number over 0"),
    ("cache_policy", TRACE | {"folds": "days"}, "one of: device, time"),
    ("cache_policy", TRACE | {"rule": "often"}, "trip_start"),
    ("cache_policy", TRACE | {"rule_minutes": 300.0}, "horizon_s"),
    ("cache_policy", TRACE | {"batch_minute": 10.0}, "did you mean 'batch_minutes'"),
    ("scoreboard", {"tasks": ["traffic"]}, "some, each once, of: traffic alerts, friends nearby"),
    ("scoreboard", {"systems": []}, "some, each once"),
    ("scoreboard", {"reads": "log.csv"}, "no log without the trace of its devices"),
    ("scoreboard", {"writes": "log.csv"}, "no log without the trace of its devices"),
    ("scoreboard", {"systems": ["MUD", "MUD"]}, "some, each once, of: to everyone, MUD"),
    ("scoreboard", {"cost": "speed"}, "one of: j_per_useful, kb_per_useful"),
    ("scoreboard", {"across": "j_per_useful"}, "did you mean 'cost'"),
    ("scoreboard", {"devices": 1}, "a whole number from 2 to 10,000"),
    ("scoreboard", {"length": 0.0}, "a number from 0.01 to 100"),
    ("scoreboard", {"system": ["MUD"]}, "did you mean 'systems'"),
    ("trace_profile", {"timezone": "x"}, "to do:    did you mean 'tz'?"),
    ("prefetch_sizing", {"timezone": "x"}, "to do:    did you mean 'tz'?"),
    ("propagation", {"TimeZone": "x"}, "to do:    did you mean 'tz'?"),
    ("propagation", {"zoom": "x"}, "to do:    did you mean 'cells_zoom'?"),
    ("scoreboard", {"timezone": "x"}, "to do:    did you mean 'tz'?"),
    ("scoreboard", {"zzzz": "x"}, "to do:    leave it out; mudkit report scoreboard --list shows the parameters"),
    ("profile", {}, "trace_profile"),
    ("scorebord", {}, "did you mean 'scoreboard'"),
]  # fmt: skip


@pytest.mark.parametrize(("report", "values", "message"), WRONG)
def test_wrong_parameters_are_refused(report, values, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        check(report, values)


@pytest.mark.parametrize(
    ("assigned", "message"),
    [
        (["box_km=3", "box_km=5"], "given twice(?s:.)*box_km=3, box_km=5"),
        (["columns.lat=a", "columns.lat=b"], "given twice(?s:.)*columns.lat=a, columns.lat=b"),
        (["columns=a", "columns.device=b"], "mapping"),
        (["trace"], "key=value"),
        (["=x"], "key=value"),
        ([""], "key=value"),
        (["trace=x", "box_km=far"], "'far'"),
    ],
)
def test_wrong_assignments_are_refused(assigned, message):
    with pytest.raises(ParameterError, match=message):
        check("trace_profile", parse_assignments("trace_profile", assigned))


def test_reports_accept_every_trace_format():
    assert set(get_args(TraceProfile.model_fields["format"].annotation)) == {"auto", *FORMATS}


def test_assignments_are_converted_to_the_parameter_type():
    values = parse_assignments(
        "trace_profile",
        ["trace=2008", "box_km=5", "cells_zoom=12", "columns.device=cab", "columns.ts=t", "tz=UTC"],
    )
    assert values == {
        "trace": "2008",
        "box_km": 5.0,
        "cells_zoom": 12,
        "columns": {"device": "cab", "ts": "t"},
        "tz": "UTC",
    }
    assert check("trace_profile", values)["columns"] == {"device": "cab", "ts": "t"}


def test_numbers_are_decimal():
    values = parse_assignments(
        "cache_policy", ["rule_minutes=010", "box_km=1e1", "cells_zoom=1:30", "rule_km=["]
    )
    assert values == {"rule_minutes": 10.0, "box_km": 10.0, "rule_km": "[", "cells_zoom": "1:30"}


@pytest.mark.parametrize(
    ("name", "preset_name"), [(name, preset_name) for name in TEMPLATES for preset_name in presets(name)]
)
def test_package_presets_are_valid_in_any_working_directory(name, preset_name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = check(name, preset(name, preset_name))
    files = inputs(name, values)
    assert list(files) == [key for key in ("trace", "arrivals", "reads") if values.get(key)]
    assert all(file.is_file() for file in files.values())


def test_sizing_accepts_total_outage():
    assert check("prefetch_sizing", {"outage": 1.0})["outage"] == 1.0


def test_user_preset_files_are_read_and_checked(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("trace: x.csv\nbox_km: 5\n")
    assert check("trace_profile", preset("trace_profile", str(file)))["box_km"] == 5
    file.write_text("- a\n- b\n")
    with pytest.raises(ParameterError, match=r"mapping(.|\n)*trace_profile --list shows the keys"):
        preset("trace_profile", str(file))
    file.write_bytes(b"a: \xff")
    with pytest.raises(ParameterError, match=r"YAML(.|\n)*in UTF-8"):
        preset("trace_profile", str(file))
    file.write_text("a: [")
    with pytest.raises(ParameterError, match=r"YAML(.|\n)*line 1(.|\n)*mend the line"):
        preset("trace_profile", str(file))
    with pytest.raises(ParameterError, match="mudkit report --help shows them"):
        preset("nope", str(file))
    with pytest.raises(InputMissing, match="sample"):
        preset("trace_profile", "nothing")
    with pytest.raises(InputMissing, match="did you mean 'sample'"):
        preset("propagation", "smaple")


def test_inputs_must_exist(tmp_path):
    with pytest.raises(ParameterError, match="empty"):
        inputs("trace_profile", check("trace_profile", {"trace": ""}))
    with pytest.raises(InputMissing):
        inputs("trace_profile", check("trace_profile", {"trace": str(tmp_path / "x.csv")}))
    (tmp_path / "x.csv").touch()
    assert list(inputs("trace_profile", check("trace_profile", {"trace": str(tmp_path / "x.csv")}))) == [
        "trace"
    ]


def test_lists_of_numbers_and_names_are_parsed():
    read = parse_assignments("propagation", ["trace=x.csv", "thresholds=1,5,20"])
    assert check("propagation", read)["thresholds"] == [1, 5, 20]
    assert parse_assignments("propagation", ["thresholds=1,many"]) == {"thresholds": "1,many"}
    read = parse_assignments("scoreboard", ["tasks=news with ranks, photo sharing", "systems=MUD"])
    values = check("scoreboard", read)
    assert (values["tasks"], values["systems"]) == (["news with ranks", "photo sharing"], ["MUD"])


def misspell(name):
    """Return names that a user may type for a parameter: a letter missing, two exchanged, another case."""
    kinds = {name.upper(), name.replace("_", "-"), f"{name}_"}
    if len(name) > 4:
        start, (third, fourth), end = name[:2], name[2:4], name[4:]
        kinds |= {start + fourth + end, start + fourth + third + end}
    return kinds


@pytest.mark.parametrize("template", TEMPLATES)
def test_unknown_parameters_get_a_suggestion(template):
    fields = set(TEMPLATES[template].model_fields)
    assert set(SYNONYMS) == {name for schema in TEMPLATES.values() for name in schema.model_fields}
    for name in fields:
        for misspelling in {*SYNONYMS[name], *misspell(name)} - fields:
            with pytest.raises(ParameterError) as caught:
                check(template, {misspelling: "x"})
            assert "did you mean" in caught.value.remedy, misspelling
            assert repr(name) in caught.value.remedy, misspelling


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_parameter_is_described(name):
    assert all(line and default and meaning for line, default, meaning in described(name))
    assert ("trace", "needed", "file of positions, or a trace folder") in described("propagation")
    assert ("thresholds", "1,20,50", "volumes that are compared, 1 among them") in described("propagation")
    assert presets(name)["sample"]


@pytest.mark.parametrize("mapping", ["columns", "reads_columns"])
def test_wrong_columns_are_refused_before_the_report_runs(mapping, tmp_path):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("device,t,lat,lon\na,1211100000,2,3\n")
    bad.write_text("vehikel,t,lat,lon\na,1,2,3\n")
    trace, reads = (bad, "") if mapping == "columns" else (good, bad)
    with pytest.raises(TraceFormatError, match=rf"--param {mapping}\.device=") as caught:
        run_report("trace_profile", {"trace": str(trace), "reads": str(reads)}, build=tmp_path / "build")
    assert "--column" not in str(caught.value)
    assert not (tmp_path / "build").exists()


ROWS = [("a", 1_211_100_000 + 60 * i, 37 + i / 1000, -122.4) for i in range(50)]


def write_rows(file, rows, columns="device,t,lat,lon"):
    file.write_text("\n".join([columns, *(",".join(map(str, row)) for row in rows)]) + "\n")


@pytest.mark.parametrize("template", ["trace_profile", "cache_policy", "propagation"])
@pytest.mark.parametrize("wrong", ["columns", "mapping", "reads", "unit", "empty", "folder"])
def test_wrongly_read_files_are_refused_before_a_kernel_starts(template, wrong, tmp_path, monkeypatch):
    if wrong == "reads" and template == "propagation":
        pytest.skip("it takes no reads")
    monkeypatch.setattr("mudkit.report.run._execute", lambda *_: pytest.fail("a kernel was started"))
    trace, reads, build = tmp_path / "trace.csv", tmp_path / "reads.csv", tmp_path / "build"
    values = {"trace": str(trace)}
    write_rows(trace, ROWS)
    if wrong == "columns":
        write_rows(trace, ROWS, "device,t,lon,lat")
    elif wrong == "mapping":
        values["columns"] = {"lat": "lon", "lon": "lat"}
    elif wrong == "reads":
        write_rows(reads, ROWS, "device,t,lon,lat")
        values["reads"] = str(reads)
    elif wrong == "unit":
        values["time_unit"] = "ms"
    elif wrong == "empty":
        write_rows(trace, [])
    else:
        trace.unlink()
        trace.mkdir()
    messages = {"unit": "not in the unit 'ms'", "empty": "holds no rows", "folder": "no known format"}
    with pytest.raises((TraceFormatError, TraceContentError), match=messages.get(wrong, "look exchanged")):
        run_report(template, values, build=build)
    assert not build.exists()


def test_logs_without_overlap_are_refused_before_the_report_runs(tmp_path):
    arrivals, reads = tmp_path / "arrivals.csv", tmp_path / "reads.csv"
    arrivals.write_text("time,rank\n" + "".join(f"{1_560_000_000 + 600 * i},3\n" for i in range(500)))
    reads.write_text("time\n" + "".join(f"{1_500_000_000 + 3600 * i}\n" for i in range(100)))
    build = tmp_path / "build"
    with pytest.raises(TraceContentError, match="The time ranges of arrivals and reads do not overlap"):
        run_report("prefetch_sizing", {"arrivals": str(arrivals), "reads": str(reads)}, build=build)
    assert not build.exists()


@pytest.mark.parametrize("report", ["trace_profile", "cache_policy", "propagation"])
def test_name_that_is_no_file_is_one_of_a_table(report, tmp_path, monkeypatch):
    """Tables are looked up on Spark without --spark; a mistyped file is refused at once, with names that are near."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taxis.csv").touch()
    for name in ("sales.cabs", "prod.sales.`day_1`", "positions"):
        values = check(report, {"trace": name})
        assert tables(report, values) == {"trace": name}
        assert inputs(report, values) == {}
    for name in ("taxi.csv", "cabs.parquet", "taxi", "lost/cabs"):
        values = check(report, {"trace": name})
        assert tables(report, values) == {}
        with pytest.raises(InputMissing, match="no trace at") as caught:
            inputs(report, values)
        assert ("add --spark" in str(caught.value)) == (name != "lost/cabs")
        assert ("taxis.csv" in str(caught.value)) == name.startswith("taxi")
    assert tables(report, check(report, {"trace": "taxi", "spark": True})) == {"trace": "taxi"}


def test_other_reports_have_no_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tables("scoreboard", check("scoreboard", {"trace": "sales.cabs"})) == {}

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
)
from mudkit.report.schemas import SYNONYMS, TEMPLATES, TraceProfile
from mudkit.trace.formats import FORMATS


def test_defaults_are_filled_in():
    values = check("trace_profile", {"trace": "x.csv"})
    assert values == TraceProfile(trace="x.csv").model_dump()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs the parameter 'trace'"),
        ({"trace": "x", "window_s": float("inf")}, "3,200,000,000"),
        ({1: 2, "trace": "x"}, "1"),
        ({"trace": "x", "fromat": "csv"}, "did you mean 'format'"),
        ({"trace": "x", "box_km": "wide"}, "'wide'"),
        ({"trace": "x", "box_km": -1}, "a number over 0"),
        ({"trace": 7}, "7"),
        ({"trace": "x", "box_km": "5"}, "'5' (str)"),
        ({"trace": "x", "format": "gpx2"}, "cabspotting"),
        ({"trace": "x", "cells_zoom": 1.5}, "a whole number from 0 to 22"),
        ({"trace": "x", "tz": "Mars/Olympus"}, "time zone"),
        ({"trace": "x", "rule": "often"}, "trip_start"),
        ({"trace": "x", "columns": {"device": 3}}, "columns.device"),
        ({"trace": "x", "columns": "cab"}, "--param columns.device=…"),
    ],
)
def test_what_is_wrong_is_named(given, says):
    with pytest.raises(ParameterError) as caught:
        check("trace_profile", given)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"arrivals_per_day": -1.0}, "arrivals_per_day"),
        ({"reads_per_day": -2.0}, "a number from 0.1 to 1,000"),
        ({"max_at_a_time": 0}, "a whole number from 1 to"),
        ({"outage": 1.5}, "a number from 0 to 1"),
        ({"loss_weight": -0.5}, "loss_weight"),
        ({"outages_per_day": 0.0}, "outages_per_day"),
        ({"draws": 0}, "draws"),
        ({"threshold": float("nan")}, "threshold"),
        ({"arrivals": "a.csv"}, "a log of arrivals and one of reads"),
        ({"reads": "r.csv"}, "a log of arrivals and one of reads"),
        ({"outages": "o.csv"}, "no log of outages without"),
        ({"tz": "Mars/Olympus"}, "time zone"),
        ({"prefetch_limit": 16}, "no parameter 'prefetch_limit'"),
        ({"max": 16}, "no parameter 'max'"),
    ],
)
def test_what_is_wrong_with_a_sizing_is_named(given, says):
    with pytest.raises(ParameterError) as caught:
        check("prefetch_sizing", given)
    assert says in str(caught.value)


def test_a_sizing_needs_nothing_and_takes_total_outage():
    values = check("prefetch_sizing", {"outage": 1.0})
    assert values["outage"] == 1.0
    assert inputs("prefetch_sizing", values) == {}


def test_every_format_that_can_be_loaded_can_be_reported_on():
    assert set(get_args(TraceProfile.model_fields["format"].annotation)) == {"auto", *FORMATS}


def test_assignments_take_the_type_of_the_parameter():
    given = parse_assignments(
        "trace_profile",
        ["trace=2008", "box_km=5", "cells_zoom=12", "columns.device=cab", "columns.ts=t", "tz=UTC"],
    )
    assert given == {
        "trace": "2008",
        "box_km": 5.0,
        "cells_zoom": 12,
        "columns": {"device": "cab", "ts": "t"},
        "tz": "UTC",
    }
    assert check("trace_profile", given)["columns"] == {"device": "cab", "ts": "t"}


def test_numbers_are_decimal():
    given = parse_assignments(
        "cache_policy", ["rule_minutes=010", "box_km=1e1", "cells_zoom=1:30", "rule_km=["]
    )
    assert given == {"rule_minutes": 10.0, "box_km": 10.0, "rule_km": "[", "cells_zoom": "1:30"}


@pytest.mark.parametrize("twice", [["box_km=3", "box_km=5"], ["columns.lat=a", "columns.lat=b"]])
def test_a_parameter_has_one_value(twice):
    with pytest.raises(ParameterError, match=f"given twice(?s:.)*{twice[0]}, {twice[1]}"):
        parse_assignments("trace_profile", twice)


def test_a_parameter_is_not_a_value_and_a_mapping():
    with pytest.raises(ParameterError, match="mapping"):
        parse_assignments("trace_profile", ["columns=a", "columns.device=b"])


@pytest.mark.parametrize("text", ["trace", "=x", ""])
def test_assignment_without_a_value(text):
    with pytest.raises(ParameterError, match="key=value"):
        parse_assignments("trace_profile", [text])


def test_a_value_of_the_wrong_type_reaches_the_schema():
    with pytest.raises(ParameterError, match="'far'"):
        check("trace_profile", parse_assignments("trace_profile", ["trace=x", "box_km=far"]))


def test_no_such_report():
    with pytest.raises(ParameterError, match="trace_profile"):
        check("profile", {})


@pytest.mark.parametrize("name", TEMPLATES)
def test_presets_of_the_package_are_valid_from_anywhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = check(name, preset(name, "sample"))
    assert list(inputs(name, values)) == [key for key in ("trace", "arrivals", "reads") if values.get(key)]


def test_presets_of_ones_own(tmp_path):
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


def test_inputs_must_be_there(tmp_path):
    with pytest.raises(ParameterError, match="empty"):
        inputs("trace_profile", check("trace_profile", {"trace": ""}))
    with pytest.raises(InputMissing):
        inputs("trace_profile", check("trace_profile", {"trace": str(tmp_path / "x.csv")}))
    (tmp_path / "x.csv").touch()
    assert list(inputs("trace_profile", check("trace_profile", {"trace": str(tmp_path / "x.csv")}))) == [
        "trace"
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"thresholds": [20, 50]}, "1 (no aggregation) among them"),
        ({"thresholds": [1]}, "2 or more, 1 among them"),
        ({"thresholds": [1, 20, 20]}, "different whole numbers"),
        ({"thresholds": [1, 0]}, "different whole numbers"),
        ({"thresholds": "1,many"}, "whole numbers separated by commas"),
        ({"interval_s": 0}, "a whole number from 1 to 86,400"),
        ({"cells_zoom": 30}, "a whole number from 0 to 22"),
        ({"tz": "Mars/Olympus"}, "time zone"),
        ({"threshold": 3}, "did you mean 'thresholds'"),
    ],
)
def test_what_is_wrong_with_a_propagation_is_named(given, says):
    with pytest.raises(ParameterError) as caught:
        check("propagation", {"trace": "x.csv"} | given)
    assert says in str(caught.value)


def test_a_list_of_numbers_is_read():
    read = parse_assignments("propagation", ["trace=x.csv", "thresholds=1,5,20"])
    assert check("propagation", read)["thresholds"] == [1, 5, 20]
    assert parse_assignments("propagation", ["thresholds=1,many"]) == {"thresholds": "1,many"}


def test_the_sample_of_a_propagation_is_there():
    values = check("propagation", preset("propagation", "sample"))
    assert inputs("propagation", values)["trace"].is_file()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"max_stale": -1.0}, "a number from 0 to 1"),
        ({"completeness": 1.2}, "a number over 0 up to 1"),
        ({"stale_cost": 5.0}, "did you mean 'max_stale'?"),
        ({"batch_minutes": 0.0}, "a number over 0"),
        ({"folds": "days"}, "one of: device, time"),
        ({"rule": "often"}, "trip_start"),
        ({"rule_minutes": 300.0}, "horizon_s"),
        ({"batch_minute": 10.0}, "did you mean 'batch_minutes'"),
    ],
)
def test_what_is_wrong_with_a_cache_policy_is_named(given, says):
    with pytest.raises(ParameterError) as caught:
        check("cache_policy", {"trace": "x.csv"} | given)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["sample", "road", "rule_is_best", "nothing_helps"])
def test_the_samples_of_a_cache_policy_are_there(name):
    values = check("cache_policy", preset("cache_policy", name))
    assert inputs("cache_policy", values)["trace"].is_file()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tasks": ["traffic"]}, "some, each once, of: traffic alerts, friends nearby"),
        ({"tasks": []}, "some, each once"),
        ({"systems": ["MUD", "MUD"]}, "some, each once, of: to everyone, MUD"),
        ({"cost": "speed"}, "one of: j_per_useful, kb_per_useful"),
        ({"across": "j_per_useful"}, "did you mean 'cost'"),
        ({"devices": 1}, "a whole number from 2 to 10,000"),
        ({"length": 0.0}, "a number from 0.01 to 100"),
        ({"system": ["MUD"]}, "did you mean 'systems'"),
    ],
)
def test_what_is_wrong_with_a_scoreboard_is_named(given, says):
    with pytest.raises(ParameterError) as caught:
        check("scoreboard", given)
    assert says in str(caught.value)


def test_a_list_of_names_is_read():
    read = parse_assignments("scoreboard", ["tasks=news with ranks, photo sharing", "systems=MUD"])
    values = check("scoreboard", read)
    assert (values["tasks"], values["systems"]) == (["news with ranks", "photo sharing"], ["MUD"])


@pytest.mark.parametrize("name", ["sample", "full"])
def test_the_presets_of_a_scoreboard_can_be_used(name):
    values = check("scoreboard", preset("scoreboard", name))
    assert inputs("scoreboard", values) == {}


def misspelt(name):
    """Return names that a user may type for a parameter: a letter missing, two exchanged, another case."""
    kinds = {name.upper(), name.replace("_", "-"), f"{name}_"}
    if len(name) > 4:
        start, (one, other), end = name[:2], name[2:4], name[4:]
        kinds |= {start + other + end, start + other + one + end}
    return kinds


@pytest.mark.parametrize("template", TEMPLATES)
def test_an_unknown_parameter_of_any_report_gets_the_one_that_was_meant(template):
    fields = set(TEMPLATES[template].model_fields)
    assert fields <= set(SYNONYMS)
    for name in fields:
        for tried in {*SYNONYMS[name], *misspelt(name)} - fields:
            with pytest.raises(ParameterError) as caught:
                check(template, {tried: "x"})
            assert "did you mean" in caught.value.remedy, tried
            assert repr(name) in caught.value.remedy, tried


def test_synonyms_are_of_parameters():
    assert set(SYNONYMS) == {name for schema in TEMPLATES.values() for name in schema.model_fields}


@pytest.mark.parametrize(
    ("template", "tried", "remedy"),
    [
        ("trace_profile", "timezone", "did you mean 'tz'?"),
        ("prefetch_sizing", "timezone", "did you mean 'tz'?"),
        ("propagation", "TimeZone", "did you mean 'tz'?"),
        ("propagation", "zoom", "did you mean 'cells_zoom'?"),
        ("scoreboard", "timezone", "leave it out; mudkit report scoreboard --list shows the parameters"),
    ],
)
def test_suggestions_are_few(template, tried, remedy):
    with pytest.raises(ParameterError) as caught:
        check(template, {tried: "x"})
    assert caught.value.remedy == remedy


def test_an_unknown_preset_gets_a_near_one():
    with pytest.raises(InputMissing, match="did you mean 'sample'"):
        preset("propagation", "smaple")


def test_no_such_report_has_a_near_one():
    with pytest.raises(ParameterError, match="did you mean 'scoreboard'"):
        check("scorebord", {})


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_parameter_is_described(name):
    assert all(line and default and meaning for line, default, meaning in described(name))
    assert ("trace", "needed", "file of positions, or a trace folder") in described("propagation")
    assert ("thresholds", "1,20,50", "volumes that are compared, 1 among them") in described("propagation")
    assert presets(name)["sample"]


@pytest.mark.parametrize("mapping", ["columns", "reads_columns"])
def test_wrong_columns_are_told_before_anything_runs(mapping, tmp_path):
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
@pytest.mark.parametrize("wrong", ["columns", "mapping", "reads", "unit", "empty"])
def test_a_file_that_is_read_the_wrong_way_is_refused_before_a_kernel_starts(
    template, wrong, tmp_path, monkeypatch
):
    if wrong == "reads" and template == "propagation":
        pytest.skip("it takes no reads")
    monkeypatch.setattr("mudkit.report.run._execute", lambda *_: pytest.fail("a kernel was started"))
    trace, reads, build = tmp_path / "trace.csv", tmp_path / "reads.csv", tmp_path / "build"
    given = {"trace": str(trace)}
    write_rows(trace, ROWS)
    if wrong == "columns":
        write_rows(trace, ROWS, "device,t,lon,lat")
    elif wrong == "mapping":
        given["columns"] = {"lat": "lon", "lon": "lat"}
    elif wrong == "reads":
        write_rows(reads, ROWS, "device,t,lon,lat")
        given["reads"] = str(reads)
    elif wrong == "unit":
        given["time_unit"] = "ms"
    else:
        write_rows(trace, [])
    says = {"unit": "not in the unit 'ms'", "empty": "holds no rows"}
    with pytest.raises((TraceFormatError, TraceContentError), match=says.get(wrong, "look exchanged")):
        run_report(template, given, build=build)
    assert not build.exists()


def test_a_folder_without_a_trace_is_told_before_anything_runs(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceFormatError, match="no known format"):
        run_report("propagation", {"trace": str(tmp_path / "empty")}, build=tmp_path / "build")
    assert not (tmp_path / "build").exists()


def test_logs_that_never_meet_are_told_before_anything_runs(tmp_path):
    """A copy of the script report_logs_that_never_meet.py."""
    arrivals, reads = tmp_path / "arrivals.csv", tmp_path / "reads.csv"
    arrivals.write_text("time,rank\n" + "".join(f"{1_560_000_000 + 600 * i},3\n" for i in range(500)))
    reads.write_text("time\n" + "".join(f"{1_500_000_000 + 3600 * i}\n" for i in range(100)))
    build = tmp_path / "build"
    with pytest.raises(TraceContentError, match="The time ranges of arrivals and reads do not overlap"):
        run_report("prefetch_sizing", {"arrivals": str(arrivals), "reads": str(reads)}, build=build)
    assert not build.exists()

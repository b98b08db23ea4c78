import dataclasses
import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mudkit.cli import app
from mudkit.errors import OutputProblem, ParameterError
from mudkit.reproduce import outcome, results, table
from mudkit.reproduce.outcome import ROWS
from mudkit.reproduce.row import Measured, Quantity, Required, Row

KEYS = ["row", "source", "paper", "measured", "spread", "verdict", "reason", "parameters", "cells", "date",
        "minutes", "busy_cores"]  # fmt: skip


def make_rows(value=5.0, calls=None):
    """Return a row of speed and one that is not."""

    def measure(say):
        say("at it")
        if calls is not None:
            calls.append(1)
        return Measured({"x": Quantity(value, value - 1, value + 1)}, {"seeds": [1, 2]})

    required = (Required("x", "at least", 5),)
    return (
        Row("S1", "paper 1", "5", required, measure, minutes=1.0, is_speed=True),
        Row("P1", "paper 2", "5", required, measure, minutes=1.0),
    )


def measure_all(rows, place):
    return results(outcome.select(rows=rows, place=place), rows=rows, place=place)


def measure_named(names, rows, **options):
    return results(outcome.select(names, rows=rows), **options)


def test_rows_of_speed_are_measured_only_when_named(tmp_path):
    calls = []
    speed, plain = measure_all(make_rows(calls=calls), place=tmp_path)
    assert (speed.verdict, speed.date) == ("not measured", None)
    assert plain.verdict == "reproduced"
    assert len(calls) == 1


def test_named_row_is_measured_and_stored(tmp_path):
    messages = []
    (first,) = measure_named(["s1"], rows=make_rows(), say=messages.append, place=tmp_path)
    assert first.verdict == "reproduced"
    assert messages == ["S1: 1 min expected", "S1: at it"]
    calls = []
    stored, _ = measure_all(make_rows(calls=calls), place=tmp_path)
    assert len(calls) == 1  # only P1
    assert stored.as_json() == first.as_json()
    assert stored.date == first.date


def test_names_are_measured_once_and_in_order(tmp_path):
    measured = measure_named(["P1", "s1", "p1"], rows=make_rows(), place=tmp_path)
    assert [result.row.name for result in measured] == ["P1", "S1"]


def test_name_selects_all_parts_of_a_row(tmp_path):
    speed, plain = make_rows()
    parts = (speed, dataclasses.replace(plain, name="S1-rest"))
    for names, expected in (
        (["s1"], ["S1", "S1-rest"]),
        (["S1-REST"], ["S1-rest"]),
        (["S1-rest", "S1"], ["S1-rest", "S1"]),
    ):
        measured = measure_named(names, rows=parts, place=tmp_path)
        assert [result.row.name for result in measured] == expected
        assert {result.verdict for result in measured} == {"reproduced"}


def test_verdict_on_a_stored_result_is_recomputed(tmp_path):
    measure_named(["S1"], rows=make_rows(), place=tmp_path)
    file = tmp_path / "S1.json"
    result = json.loads(file.read_text())
    assert "verdict" not in result
    result["figures"]["x"]["median"] = 4.9
    file.write_text(json.dumps(result))
    assert measure_all(make_rows(), place=tmp_path)[0].verdict == "not reproducible"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"date": "d", "figures": {"x": 1}, "parameters": {}}', "null"]
)
def test_unreadable_results_are_ignored(tmp_path, text):
    (tmp_path / "S1.json").write_text(text)
    assert outcome.load_result("S1", tmp_path) is None
    assert measure_all(make_rows(), place=tmp_path)[0].verdict == "not measured"


def test_json_has_exactly_the_documented_keys(tmp_path):
    _, plain = measure_all(make_rows(), place=tmp_path)
    result = plain.as_json()
    assert list(result) == KEYS
    assert result["measured"] == {"x": 5.0}
    assert result["spread"] == {"x": [4.0, 6.0]}
    assert result["parameters"]["seeds"] == [1, 2]
    assert set(result["parameters"]["machine"]) == {"cores", "python", "platform", "mudkit"}


def test_interrupted_measurement_keeps_the_stored_result(tmp_path):
    def interrupt(say):
        raise KeyboardInterrupt

    measure_named(["S1"], rows=make_rows(), place=tmp_path)
    before = (tmp_path / "S1.json").read_text()
    with pytest.raises(KeyboardInterrupt):
        measure_named(
            ["S1"], rows=[Row("S1", "", "", (), interrupt, minutes=1.0, is_speed=True)], place=tmp_path
        )
    assert [file.name for file in tmp_path.iterdir()] == ["S1.json"]
    assert (tmp_path / "S1.json").read_text() == before


def test_table_marks_required_quantities(tmp_path):
    def render(value):
        console = Console(file=io.StringIO(), width=120)
        table.render(measure_named(["S1"], rows=make_rows(value), place=tmp_path), console)
        return console.file.getvalue()

    assert "✓ x: 5 (4 to 6), at least 5" in render(5.0)
    assert "reproduced" in render(5.0)
    assert "✗ x: 4 (3 to 5), at least 5" in render(4.0)
    assert "not reproducible" in render(4.0)
    assert "S1: seeds 1, 2; machine cores" in render(4.0)


def test_table_lists_each_quantity_once_those_with_requirements_first(tmp_path):
    quantities = {"y": Quantity(1.0, 1.0, 1.0), "x": Quantity(5.0, 4.0, 6.0), "z": Quantity(2.0, 2.0, 2.0)}
    required = (Required("x", "at least", 5), Required("not measured", "at least", 5))
    row = Row("S1", "paper", "5", required, lambda say: Measured(quantities, {}), minutes=1.0)
    (result,) = measure_named(["S1"], rows=(row,), place=tmp_path)
    lines = table._quantities(result).plain.splitlines()
    assert [line[2:].split(":")[0] for line in lines] == ["x", "y", "z"]


def test_table_without_results_suggests_the_command(tmp_path):
    console = Console(file=io.StringIO(), width=120)
    table.render(results((), rows=make_rows()[:1], place=tmp_path), console)
    assert "mudkit reproduce S1 measures it" in console.file.getvalue()


def test_progress_is_shown_on_terminals_only(capsys, monkeypatch):
    with table.show_steps() as say:
        say("quiet")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with table.show_steps() as say:
        say("at it")
    assert capsys.readouterr().err == "\r\x1b[Kat it …\r\x1b[K"


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_command_lists_all_rows_without_results(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    of_speed = [dataclasses.replace(row, is_speed=True) for row in ROWS]  # so that none is measured
    monkeypatch.setattr(outcome, "ROWS", of_speed)
    results = json.loads(run("reproduce", "--json").stdout)
    assert [result["row"] for result in results] == [row.name for row in ROWS]
    assert all(list(result) == KEYS for result in results)
    assert {result["verdict"] for result in results} == {"not measured"}
    assert "Mobius 7.4" in run("reproduce").output.replace("\n", " ")
    with pytest.raises(ParameterError, match=", ".join(row.name for row in ROWS)):
        run("reproduce", "nothing")


def test_command_measures_and_stores_named_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(outcome, "ROWS", make_rows())
    (result,) = json.loads(run("reproduce", "S1", "--json").stdout)
    assert result["verdict"] == "reproduced"
    assert (tmp_path / "mudkit" / "results" / "S1.json").is_file()
    first, _ = json.loads(run("reproduce", "--json").stdout)
    assert first == result


def make_timed_rows(**minutes):
    """Return rows with the given expected minutes; those named S… are of speed."""
    plain = make_rows()[1]
    return [
        dataclasses.replace(plain, name=name, minutes=duration, is_speed=name.startswith("S"))
        for name, duration in minutes.items()
    ]


def test_quick_run_selects_the_shortest_rows():
    rows = make_timed_rows(P1=5.0, P2=0.5, P3=1.4, P4=0.2, S1=0.1)
    assert [row.name for row in outcome.select(quick=True, rows=rows)] == ["P2", "P4"]


def test_quick_selection_of_all_rows_fits_its_limit():
    chosen = outcome.select(quick=True)
    assert len(chosen) >= 8
    assert sum(row.minutes for row in chosen) <= 2.0 < outcome.QUICK_MINUTES


def test_row_exceeding_the_time_limit_is_skipped(tmp_path):
    rows = make_timed_rows(P1=0.5, P2=4.0, P3=2.9)
    measured = results(rows, within_minutes=3, place=tmp_path)
    assert [result.row.name for result in measured] == ["P1", "P3"]


def test_command_prints_expected_times_and_omitted_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(outcome, "ROWS", make_timed_rows(P1=5.0, P2=0.5, P4=0.2, S1=0.1))
    lines = run("reproduce", "--quick").stderr.splitlines()
    assert lines[0] == "Expected on two idle cores, 42 s in all: P2 30 s, P4 12 s"
    assert lines[1:] == [
        "Left out: P1 (5 min)",
        "Left out, of speed: S1 (6 s)",
        "mudkit reproduce P1 measures one of them.",
    ]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda folder, rows: measure_named(["P1", "M99"], rows, place=folder), ParameterError, "S1, P1"),
        (lambda *_: outcome.select(["MM1"]), ParameterError, "did you mean 'M1'"),
        (
            lambda _, rows: outcome.select(["P1"], quick=True, rows=rows),
            ParameterError,
            "chooses its rows itself",
        ),
        (lambda folder, rows: measure_named(["S1"], rows, place=folder / "file"), OutputProblem, "file"),
    ],
)
def test_wrong_calls_are_refused_before_measuring(tmp_path, call, error, message):
    (tmp_path / "file").write_text("")
    calls = []
    with pytest.raises(error, match=message):
        call(tmp_path, make_rows(calls=calls))
    assert not calls or error is OutputProblem

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
from mudkit.reproduce.row import Figure, Measured, Required, Row

KEYS = ["row", "source", "paper", "measured", "spread", "verdict", "reason", "parameters", "date",
        "minutes", "busy_cores"]  # fmt: skip


def rows(value=5.0, calls=None):
    """Give a row of speed and one that is not."""

    def measure(say):
        say("at it")
        if calls is not None:
            calls.append(1)
        return Measured({"x": Figure(value, value - 1, value + 1)}, {"seeds": [1, 2]})

    required = (Required("x", "at least", 5),)
    return (
        Row("S1", "paper 1", "5", required, measure, minutes=1.0, is_speed=True),
        Row("P1", "paper 2", "5", required, measure, minutes=1.0),
    )


def measure(rows, place):
    return results(outcome.select(rows=rows, place=place), rows=rows, place=place)


def named(names, rows, **options):
    return results(outcome.select(names, rows=rows), **options)


def test_without_names_rows_of_speed_are_not_measured(tmp_path):
    calls = []
    speed, plain = measure(rows(calls=calls), place=tmp_path)
    assert (speed.verdict, speed.date) == ("not measured", None)
    assert plain.verdict == "reproduced"
    assert len(calls) == 1


def test_a_named_row_is_measured_and_kept(tmp_path):
    said = []
    (first,) = named(["s1"], rows=rows(), say=said.append, place=tmp_path)
    assert first.verdict == "reproduced"
    assert said == ["S1: 1 min expected", "S1: at it"]
    calls = []
    again, _ = measure(rows(calls=calls), place=tmp_path)
    assert len(calls) == 1  # of P1
    assert again.as_json() == first.as_json()
    assert again.date == first.date


def test_names_are_measured_once_and_in_their_order(tmp_path):
    measured = named(["P1", "s1", "p1"], rows=rows(), place=tmp_path)
    assert [result.row.name for result in measured] == ["P1", "S1"]


def test_a_name_is_of_all_parts_of_a_row(tmp_path):
    speed, plain = rows()
    parts = (speed, dataclasses.replace(plain, name="S1-rest"))
    for names, wanted in (
        (["s1"], ["S1", "S1-rest"]),
        (["S1-REST"], ["S1-rest"]),
        (["S1-rest", "S1"], ["S1-rest", "S1"]),
    ):
        measured = named(names, rows=parts, place=tmp_path)
        assert [result.row.name for result in measured] == wanted
        assert {result.verdict for result in measured} == {"reproduced"}


def test_the_verdict_on_a_kept_result_is_computed_anew(tmp_path):
    named(["S1"], rows=rows(), place=tmp_path)
    file = tmp_path / "S1.json"
    whole = json.loads(file.read_text())
    assert "verdict" not in whole
    whole["figures"]["x"]["median"] = 4.9
    file.write_text(json.dumps(whole))
    assert measure(rows(), place=tmp_path)[0].verdict == "not reproducible"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"date": "d", "figures": {"x": 1}, "parameters": {}}', "null"]
)
def test_a_result_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / "S1.json").write_text(text)
    assert outcome.load_result("S1", tmp_path) is None
    assert measure(rows(), place=tmp_path)[0].verdict == "not measured"


def test_json_has_exactly_its_keys(tmp_path):
    _, plain = measure(rows(), place=tmp_path)
    whole = plain.as_json()
    assert list(whole) == KEYS
    assert whole["measured"] == {"x": 5.0}
    assert whole["spread"] == {"x": [4.0, 6.0]}
    assert whole["parameters"]["seeds"] == [1, 2]
    assert set(whole["parameters"]["machine"]) == {"cores", "python", "platform", "mudkit"}


def test_what_is_interrupted_leaves_no_result(tmp_path):
    def stopped(say):
        raise KeyboardInterrupt

    named(["S1"], rows=rows(), place=tmp_path)
    before = (tmp_path / "S1.json").read_text()
    with pytest.raises(KeyboardInterrupt):
        named(["S1"], rows=[Row("S1", "", "", (), stopped, minutes=1.0, is_speed=True)], place=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["S1.json"]
    assert (tmp_path / "S1.json").read_text() == before


def test_the_table_marks_what_is_required(tmp_path):
    def shown(value):
        console = Console(file=io.StringIO(), width=120)
        table.render(named(["S1"], rows=rows(value), place=tmp_path), console)
        return console.file.getvalue()

    assert "✓ x: 5 (4 to 6), at least 5" in shown(5.0)
    assert "reproduced" in shown(5.0)
    assert "✗ x: 4 (3 to 5), at least 5" in shown(4.0)
    assert "not reproducible" in shown(4.0)
    assert "S1: seeds 1, 2; machine cores" in shown(4.0)


def test_the_table_without_a_result(tmp_path):
    console = Console(file=io.StringIO(), width=120)
    table.render(results((), rows=rows()[:1], place=tmp_path), console)
    assert "mudkit reproduce S1 measures it" in console.file.getvalue()


def test_progress_is_for_those_who_watch(capsys, monkeypatch):
    with table.watched() as say:
        say("quiet")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with table.watched() as say:
        say("at it")
    assert capsys.readouterr().err == "\r\x1b[Kat it …\r\x1b[K"


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    of_speed = [dataclasses.replace(row, is_speed=True) for row in ROWS]  # so that none is measured here
    monkeypatch.setattr(outcome, "ROWS", of_speed)
    whole = json.loads(run("reproduce", "--json").stdout)
    assert [result["row"] for result in whole] == [row.name for row in ROWS]
    assert all(list(result) == KEYS for result in whole)
    assert {result["verdict"] for result in whole} == {"not measured"}
    assert "Mobius 7.4" in run("reproduce").output.replace("\n", " ")
    with pytest.raises(ParameterError, match=", ".join(row.name for row in ROWS)):
        run("reproduce", "nothing")


def test_the_command_measures_what_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(outcome, "ROWS", rows())
    (result,) = json.loads(run("reproduce", "S1", "--json").stdout)
    assert result["verdict"] == "reproduced"
    assert (tmp_path / "mudkit" / "results" / "S1.json").is_file()
    first, _ = json.loads(run("reproduce", "--json").stdout)
    assert first == result


def timed(**minutes):
    """Give rows that take so many minutes by what they say; S is of speed."""
    plain = rows()[1]
    return [
        dataclasses.replace(plain, name=name, minutes=took, is_speed=name.startswith("S"))
        for name, took in minutes.items()
    ]


def test_a_quick_run_takes_the_shortest_rows():
    of = timed(P1=5.0, P2=0.5, P3=1.4, P4=0.2, S1=0.1)
    assert [row.name for row in outcome.select(quick=True, rows=of)] == ["P2", "P4"]


def test_a_quick_run_of_all_rows_fits():
    chosen = outcome.select(quick=True)
    assert len(chosen) >= 8
    assert sum(row.minutes for row in chosen) <= 2.0 < outcome.QUICK_MINUTES


def test_a_row_that_would_end_too_late_is_not_started(tmp_path):
    of = timed(P1=0.5, P2=4.0, P3=2.9)
    measured = results(of, within_minutes=3, place=tmp_path)
    assert [result.row.name for result in measured] == ["P1", "P3"]


def test_each_row_states_its_time_before_and_what_is_left_out_after(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(outcome, "ROWS", timed(P1=5.0, P2=0.5, P4=0.2, S1=0.1))
    said = run("reproduce", "--quick").stderr.splitlines()
    assert said[0] == "Expected on two idle cores, 42 s in all: P2 30 s, P4 12 s"
    assert said[1:] == [
        "Left out: P1 (5 min)",
        "Left out, of speed: S1 (6 s)",
        "mudkit reproduce P1 measures one of them.",
    ]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda place, of: named(["P1", "M99"], of, place=place), ParameterError, "S1, P1"),
        (lambda *_: outcome.select(["MM1"]), ParameterError, "did you mean 'M1'"),
        (
            lambda _, of: outcome.select(["P1"], quick=True, rows=of),
            ParameterError,
            "chooses its rows itself",
        ),
        (lambda place, of: named(["S1"], of, place=place / "file"), OutputProblem, "file"),
    ],
)
def test_refused_in_words(tmp_path, call, error, words):
    (tmp_path / "file").write_text("")
    calls = []
    with pytest.raises(error, match=words):
        call(tmp_path, rows(calls=calls))
    assert not calls or error is OutputProblem

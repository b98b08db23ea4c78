import asyncio
import csv
import io
import json
import logging
import os
import signal
import subprocess
import sys
import webbrowser
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from mudkit import __version__, cli, trace
from mudkit.cli import app, chapters, jobs, jupyter
from mudkit.display import INK
from mudkit.errors import (
    InputMissing,
    MudkitError,
    OutputExists,
    ParameterError,
    TraceContentError,
    TraceFormatError,
)
from mudkit.pipeline.jobs import JOBS
from mudkit.pipeline.jobs import _with_defaults as job_options
from mudkit.report.schemas import TEMPLATES
from mudkit.trace.formats import FORMATS

T0 = 1_211_100_000
ROWS = [f"{cab},{T0 + 60 * i},{37 + i / 1000},-122.4,{i % 2}" for cab in "ab" for i in range(9)]


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_version():
    assert run("--version").output.strip() == f"mudkit {__version__}"


def test_load_writes_a_trace(csv_file, tmp_path):
    file = csv_file("who,t,lat,lon,occ", ROWS)
    result = run("trace", "load", file, "--out", tmp_path / "out", "--column", "device=who", "--rule", "none")
    assert result.exit_code == 0
    assert "18" in result.output
    assert len(trace.load(tmp_path / "out").positions) == 18
    with pytest.raises(OutputExists):
        run("trace", "load", file, "--out", tmp_path / "out", "--column", "device=who")
    assert (
        run(
            "trace", "load", file, "--out", tmp_path / "out", "--column", "device=who", "--overwrite"
        ).exit_code
        == 0
    )


def test_trace_is_loaded_from_an_address_and_written_to_one(csv_file, tmp_path, webhdfs, monkeypatch):
    """An address is never a folder of this machine: nothing is written here, such as ``./webhdfs:``."""
    webhdfs.put("/cli/cabs.csv", csv_file("cab,t,lat,lon,occ", ROWS).read_bytes())
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    store = f"{webhdfs.address}/cli"
    aside = ["--rejected", f"{store}/aside.csv"]
    result = run("trace", "load", f"{store}/cabs.csv", "--out", f"{store}/out", *aside)
    assert result.exit_code == 0
    assert f"written to {store}/out" in result.output
    assert len(trace.load(f"{store}/out").positions) == 18
    assert webhdfs.files["/cli/aside.csv"].startswith(b'"file","row"')
    assert "18" in run("trace", "profile", f"{store}/out").output
    with pytest.raises(OutputExists):
        run("trace", "load", f"{store}/cabs.csv", "--out", f"{store}/out")
    result = run("trace", "generate", "--out", f"{store}/cars", "--cars", 3, "--days", 1)
    assert result.exit_code == 0
    assert len(trace.load(f"{store}/cars").positions)
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        "trace load s3:/bucket/cabs.csv --out out",
        "trace load nothing://bucket/cabs.csv --out out",
        "trace load FILE --out nothing://bucket/trace",
        "trace load FILE --out s3:/bucket/trace",
        "report trace_profile --param trace=FILE --out s3a://bucket/reports",
        "report trace_profile --param trace=webhdfs://127.0.0.1:1/cabs.csv",
        "pipeline ingest webhdfs://127.0.0.1:1/cabs.csv --out out",
        "pipeline cells webhdfs://127.0.0.1:1/trace --out out",
    ],
)
def test_address_that_cannot_be_used_is_refused_as_one(arguments, csv_file, tmp_path, monkeypatch):
    file = csv_file("cab,t,lat,lon,occ", ROWS)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr(jobs, "_spark", lambda path: pytest.fail("Spark was started"))
    with pytest.raises(MudkitError, match="address"):
        run(*(argument.replace("FILE", str(file)) for argument in arguments.split()))
    assert list((tmp_path / "empty").iterdir()) == []


def test_existing_output_is_refused_before_reading(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputExists):
        run("trace", "load", tmp_path / "there is no such file.csv", "--out", tmp_path / "out")


def read_csv(file):
    with file.open(newline="") as lines:
        return [tuple(row) for row in csv.reader(lines)]


def test_rejected_rows_are_written_as_they_stand(csv_file, tmp_path):
    rows = [*ROWS[:3], ' "x, y";9', "", *ROWS[3:], "b,x,37,-122,0", ROWS[-1]]
    file = csv_file("# exported\ndevice,t,lat,lon,note", rows)
    rejected, out = tmp_path / "aside.csv", tmp_path / "out"
    run("trace", "load", file, "--out", out, "--rejected", rejected)
    assert read_csv(rejected) == [
        ("file", "row", "line", "reason", "raw"),
        (file.name, "4", "6", "wrong number of fields", ' "x, y";9'),
        (file.name, "20", "23", "time that cannot be read", "b,x,37,-122,0"),
        (file.name, "21", "24", "duplicate", ROWS[-1]),
    ]
    assert len(trace.load(out).rejected) == 3
    run("trace", "load", file, "--out", out, "--rejected", rejected, "--overwrite")
    with pytest.raises(OutputExists, match=r"aside\.csv"):
        run("trace", "load", file, "--out", tmp_path / "other", "--rejected", rejected)
    with pytest.raises(OutputExists, match=file.name):
        run("trace", "load", file, "--out", out, "--rejected", file, "--overwrite")
    assert not (tmp_path / "other").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aside.csv", "out", file.name]
    again = tmp_path / "again.csv"
    run("trace", "load", out, "--out", tmp_path / "copy", "--rejected", again)
    assert [(*row[:2], row[3]) for row in read_csv(again)] == [
        (*row[:2], row[3]) for row in read_csv(rejected)
    ]


def test_file_of_rejected_rows_has_a_header_alone_if_there_are_none(csv_file, tmp_path):
    file = csv_file("device,t,lat,lon,note", ROWS)
    run("trace", "load", file, "--out", tmp_path / "out", "--rejected", tmp_path / "aside.csv")
    assert read_csv(tmp_path / "aside.csv") == [("file", "row", "line", "reason", "raw")]


def test_rejected_rows_of_a_folder_name_their_files(tmp_path):
    for number in range(2):
        rows = [f"{number},{T0 + 60 * i},37,{8 if i else 'x'}" for i in range(number, 5)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["device,t,lat,lon", *rows[::-1]]))
    run("trace", "load", tmp_path, "--out", tmp_path / "out", "--rejected", tmp_path / "aside.txt")
    ((*place, _, raw),) = read_csv(tmp_path / "aside.txt")[1:]
    assert (place, raw) == (["0.csv", "5", "6"], f"0,{T0},37,x")


def test_one_device_and_places_of_columns_may_be_given(csv_file, tmp_path):
    rows = [f"{T0 + 60 * i};47,00{i};8,5" for i in range(5)]
    columns = ["--column", "ts=1", "--column", "lat=2", "--column", "lon=3"]
    file = csv_file(rows[0], rows[1:])
    run("trace", "load", file, "--out", tmp_path / "out", "--device", "ann", "--no-header", *columns)
    assert trace.load(tmp_path / "out").positions["lat"].to_pylist() == [47.0, 47.001, 47.002, 47.003, 47.004]


def test_profile_summarizes_a_file(csv_file):
    output = run("trace", "profile", csv_file("cab,t,lat,lon,occ", [*ROWS, "a,x,1,2,0"])).output
    for text in ("18", "rejected: time that cannot be read", "derived: occupancy", "60 s", "2008-05-18"):
        assert text in output


def test_generate_writes_a_trace(tmp_path):
    result = run("trace", "generate", "--out", tmp_path / "out", "--cars", 3, "--days", 2, "--seed", 5)
    assert result.exit_code == 0
    assert f"{len(trace.load(tmp_path / 'out').positions):,} positions" in result.output


@pytest.mark.parametrize(
    ("arguments", "error", "pattern"),
    [
        ("trace profile FILE --column device", ParameterError, "NAME=COLUMN"),
        ("trace profile FILE --column lat=lat --column lat=lon", ParameterError, r"mapped twice(?s:.)*lat=lat, lat=lon"),
        ("trace load FILE --out OUT --where FALSE", TraceContentError, "0 of 18 positions"),
        ("trace profile FILE --where FALSE", TraceContentError, "0 of 18 positions"),
        ("judge nofile.ipynb --out OUT", InputMissing, r"nofile\.ipynb"),
        ("judge FILE --out OUT", ParameterError, r"\.ipynb or \.py"),
        ("report scorebord --list", ParameterError, "did you mean 'scoreboard'"),
        ("report", ParameterError, r"Which report(?s:.)*scoreboard, all(?s:.)*report --list"),
        ("lab --source --student", ParameterError, "have solutions"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_error(csv_file, tmp_path, arguments, error, pattern):
    places = {"FILE": csv_file("cab,t,lat,lon,occ", ROWS), "OUT": tmp_path / "out"}
    with pytest.raises(error, match=pattern):
        run(*(places.get(argument, argument) for argument in arguments.split()))
    assert not (tmp_path / "out").exists()


@pytest.fixture
def main(tmp_path, csv_file, monkeypatch):
    """Run the command in this process with an encoding of the terminal; return status and output."""
    csv_file("cab,t,lat,lon,occ", [row.replace("a,", "café ☕,") for row in ROWS])
    monkeypatch.chdir(tmp_path)
    handler, filters = signal.getsignal(signal.SIGTERM), list(logging.getLogger().filters)

    def run_main(*arguments, encoding="utf-8", stdout=None):
        output, errors = stdout or io.BytesIO(), io.BytesIO()
        monkeypatch.setattr("sys.argv", ["mudkit", *arguments])
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(output, encoding=encoding))
        monkeypatch.setattr("sys.stderr", io.TextIOWrapper(errors, encoding=encoding))
        status = 0
        try:
            cli.main()
        except SystemExit as exit_:
            status = exit_.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        return status, b"" if stdout else output.getvalue(), errors.getvalue()

    yield run_main
    signal.signal(signal.SIGTERM, handler)
    logging.getLogger().filters[:] = filters


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_unencodable_characters_do_not_fail(main, encoding):
    status, output, errors = main("trace", "load", "trace.csv", "--out", "日本", encoding=encoding)
    assert (status, errors) == (0, b"")
    is_latin = encoding == "latin-1"  # ASCII is considered a mistake and replaced by UTF-8
    text = output.decode("latin-1" if is_latin else "utf-8")
    assert text.endswith("\\u672c\n" if is_latin else "written to 日本\n")
    status, _, errors = main("report", "prefetch_sizing", "--list", encoding=encoding)
    assert (status, errors) == (0, b"")
    status, _, errors = main("trace", "profile", "☕.csv", encoding=encoding)
    assert status == 1
    assert errors.startswith(b"mudkit: error: There is no trace at ")


@pytest.mark.process
def test_process_reports_errors_in_its_encoding_without_traceback(tmp_path):
    completed = subprocess.run(
        [sys.executable, "-m", "mudkit", "trace", "profile", "☕.csv"],
        capture_output=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert completed.returncode == 1
    assert completed.stdout == b""
    assert completed.stderr.startswith(b"mudkit: error: There is no trace at \\u2615.csv.\n")


@pytest.fixture
def measured(monkeypatch):
    """Replace the measurements of `mudkit reproduce` by one result."""
    result = SimpleNamespace(as_json=lambda: {"row": "L1", "paper": "uf·Max"})
    monkeypatch.setattr("mudkit.reproduce.outcome.select", lambda names, **how: [])
    monkeypatch.setattr("mudkit.reproduce.outcome.results", lambda selected, **how: [result])


@pytest.mark.usefixtures("measured")
def test_json_is_the_same_in_every_encoding(main):
    _, output, errors = main("reproduce", "L1", "--json", encoding="latin-1")
    assert errors == b""
    assert json.loads(output.decode("utf-8")) == [{"row": "L1", "paper": "uf·Max"}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [("trace", "profile", "trace.csv"), ("reproduce", "L1", "--json")])
@pytest.mark.usefixtures("measured")
def test_unwritable_output_is_reported_without_traceback(main, arguments):
    with Path("/dev/full").open("wb") as full:
        status, _, errors = main(*arguments, stdout=full)
    assert status == 1
    assert errors.startswith(b"mudkit: this machine: No space left on device\n")
    assert errors.count(b"\n") == 2


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_process_with_unwritable_output_ends_without_traceback():
    command = [sys.executable, "-m", "mudkit", "--version"]
    with Path("/dev/full").open("wb") as full:
        completed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert completed.returncode == 1
    assert completed.stderr.startswith(b"mudkit: this machine: No space left on device\n")
    assert completed.stderr.count(b"\n") == 2


@pytest.mark.process
def test_interruption_is_not_logged():
    code = (
        "import atexit, logging, sys; from unittest import mock; from mudkit import cli\n"
        "atexit.register(lambda: print('a library was interrupted', file=sys.stderr))\n"
        "def stopped():\n    try:\n        raise KeyboardInterrupt\n"
        "    except KeyboardInterrupt:\n        logging.exception('while sending a command')\n        raise\n"
        "with mock.patch.object(cli, 'app', stopped):\n    cli.main()\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (130, "mudkit: stopped\n")


@pytest.mark.parametrize(("code", "status"), [(130, "stopped"), (2, 2)])
def test_interrupt_that_typer_took_ends_as_one(main, monkeypatch, code, status):
    monkeypatch.setattr(cli, "app", lambda: sys.exit(code))
    monkeypatch.setattr(cli, "_stopped", lambda: sys.exit("stopped"))
    assert main()[0] == status


def test_brackets_are_not_interpreted_as_markup(csv_file):
    file = csv_file("cab,t,lat,lon,occ", ROWS, "cabs [red].csv")
    output = run("trace", "profile", file, "--where", "device != '[/red]'").output
    assert "cabs [red].csv" in output
    assert "device != '[/red]'" in output
    assert "not filtered" in output, "reads are not"


@pytest.mark.parametrize(
    ("error", "is_shown"), [(None, True), (ValueError("disk"), True), (KeyboardInterrupt(), False)]
)
def test_errors_are_logged_and_interruptions_are_not(main, monkeypatch, caplog, error, is_shown):
    def log():
        logging.getLogger("py4j").error("in a library", exc_info=error)

    monkeypatch.setattr(cli, "app", log)
    logging.getLogger("py4j").addFilter(cli._is_news)
    try:
        main()
    finally:
        logging.getLogger("py4j").removeFilter(cli._is_news)
    assert bool(caplog.records) == is_shown


def test_termination_is_an_interrupt(main, monkeypatch):
    """SIGTERM ends the command as Ctrl-C does, so that files which are half written are removed."""

    def end():
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(cli, "app", end)
    monkeypatch.setattr(cli, "_stopped", lambda: sys.exit("stopped"))
    assert main()[0] == "stopped"


def test_verdicts_are_written_and_counted(tmp_path, monkeypatch):
    rows = [
        ("ann.py", "take", "passed", None),
        ("bob.py", "take", "not yet", "false at 3"),
        ("c.py", None, "unreadable", "empty"),
    ]
    graded = pd.DataFrame(rows, columns=["file", "exercise", "verdict", "problem"])
    monkeypatch.setattr("mudkit.exercises.grade", lambda *_, **__: graded)
    out = tmp_path / "grades.csv"
    result = run("judge", "handed_in", "--out", out)
    assert (result.exit_code, result.stdout) == (0, f"1 not yet, 1 passed, 1 unreadable: {out}\n")
    assert result.stderr == "unreadable: c.py: empty\n"
    assert out.read_bytes().startswith(b"\xef\xbb\xbf"), "spreadsheets recognise UTF-8 by the mark"
    assert pd.read_csv(out)["verdict"].tolist() == ["passed", "not yet", "unreadable"]


@pytest.mark.process
def test_class_is_judged_into_one_file(tmp_path):
    (tmp_path / "ann.py").write_text("def take(seen, message):\n    return False\n")
    out = tmp_path / "grades.csv"
    result = run("judge", tmp_path / "ann.py", "--out", out)
    assert result.output == f"1 not yet: {out}\n"
    header, line = out.read_text(encoding="utf-8-sig").splitlines()
    assert header == "name,file,exercise,piece,verdict,points,scenarios,scenario,problem"
    assert "00_start_here,take,not yet" in line
    with pytest.raises(OutputExists):
        run("judge", tmp_path / "ann.py", "--out", out)


@pytest.mark.soak
@pytest.mark.process
def test_verdicts_are_utf8_with_a_byte_order_mark(tmp_path):
    (tmp_path / "Žofia.py").write_text("def take(seen, message):\n    return True\n", encoding="utf-8")
    run("judge", tmp_path, "--out", tmp_path / "grades.csv")
    assert "Žofia" in (tmp_path / "grades.csv").read_bytes().decode("utf-8-sig")
    assert (tmp_path / "grades.csv").read_bytes().startswith(b"\xef\xbb\xbfname,")


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Record the commands that would start JupyterLab in an empty folder."""
    monkeypatch.chdir(tmp_path)
    commands = []
    monkeypatch.setattr("os.execve", lambda program, command, environment: commands.append(command))
    return commands


def test_students_open_copies_without_solutions(tmp_path, opened):
    run("lab", "--student", "--no-browser")
    assert f"--ServerApp.root_dir={tmp_path / 'chapters'}" in opened[0]
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in opened[0]
    assert (tmp_path / "chapters" / "00_start_here.ipynb").is_file()
    assert opened[0][-1] == "--no-browser"
    assert not [file for file in (tmp_path / "chapters").iterdir() if "A solution" in file.read_text()]


def test_teachers_open_copies_and_authors_the_sources(tmp_path, opened):
    run("lab")
    run("lab", "--source")
    assert f"--ServerApp.root_dir={tmp_path / 'work'}" in opened[0]
    assert "A solution" in (tmp_path / "work" / "00_start_here.ipynb").read_text(encoding="utf-8")
    source_folder = (Path(chapters.__file__).parents[1] / "notebooks").resolve()
    assert f"--ServerApp.root_dir={source_folder}" in opened[1]
    assert len(opened) == 2


@pytest.mark.parametrize(("arguments", "outcome", "remedy"), [
    (["--no-browsr"], "--no-browsr", "'--no-browser'"),
    (["--ServerApp.prt=3"], "--ServerApp.prt", "'--ServerApp.port'"),
    (["--studnt"], "--studnt", "'--student'"),
    (["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdates"], "NeverCheckForUpdates", "help-all"),
    (["--port", "abc"], "'abc'", "help-all"), (["--port"], "''", "help-all"), (["-x"], "-x", "help-all"),
    (["notes.ipynb", "--no-browser", "--ServerApp.prt=3"], "--ServerApp.prt", "'--ServerApp.port'"),
    (["--port", "9000", "--studnt"], "--studnt", "'--student'"),
])  # fmt: skip
def test_wrong_jupyterlab_option_is_refused_before_copying(tmp_path, opened, arguments, outcome, remedy):
    with pytest.raises(ParameterError) as caught:
        run("lab", *arguments)
    assert outcome in str(caught.value.found)
    assert remedy in str(caught.value.remedy)
    assert (opened, list(tmp_path.iterdir())) == ([], [])


def test_jupyterlab_options_are_passed_on(opened):
    flags = ("--allow-root", "--no-browser")
    own_options = [option for option in jupyter.command(Path(), [])[3:] if option not in flags]
    arguments = [
        *own_options,
        "-y",
        "--no-browser",
        "--allow-root",
        "--port",
        "9000",
        "--port=9000",
        "notes.ipynb",
        "--ServerApp.port=0",
        "--IdentityProvider.token=x",
        "--ServerApp.jpserver_extensions={'a': True}",
    ]
    assert run("lab", *arguments).exit_code == 0
    assert [command[3:] for command in opened] == [arguments]


def test_jupyterlab_gets_the_extension_for_colours_of_figures(monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", "/elsewhere")
    ours, *others = jupyter.environment()["JUPYTER_PATH"].split(os.pathsep)
    folder = Path(ours, "labextensions", "mudkit")
    package = json.loads((folder / "package.json").read_text())
    script = (folder / package["jupyterlab"]["_build"]["load"]).read_text()
    red, green, blue = bytes.fromhex(INK.removeprefix("#"))
    assert f"rgb({red}, {green}, {blue})" in script, "the grey of the template"
    assert others == ["/elsewhere"]


@pytest.mark.parametrize(("user", "arguments", "is_added"), [
    (0, [], True), (0, ["--port=9000"], True), (0, ["--ip=0.0.0.0"], False), (0, ["--ServerApp.ip", "x"], False),
    (0, ["--allow-root"], False), (1000, [], False),
])  # fmt: skip
def test_root_is_allowed_at_the_default_address_only(opened, monkeypatch, user, arguments, is_added):
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert run("lab", *arguments).output == "", "the line with the address is the only one"
    own_options = opened[0][3 : len(opened[0]) - len(arguments)]
    assert ("--allow-root" in own_options) == is_added
    assert ("--ServerApp.ip=127.0.0.1" in own_options) == (
        not any("ip" in argument for argument in arguments)
    )


@pytest.mark.parametrize(("arguments", "opens"), [
    ([], True), (["--port=9000"], True), (["--notebook-dir=."], False), (["--ServerApp.root_dir", "."], False),
    (["--LabApp.default_url=/lab"], False),
])  # fmt: skip
def test_first_chapter_is_opened_in_the_folder_of_chapters(opened, arguments, opens):
    run("lab", *arguments)
    assert ("--LabApp.default_url=/lab/tree/00_start_here.ipynb" in opened[0]) == opens


@pytest.mark.parametrize("arguments", [["--debug"], ["--log-level=INFO"], ["--Application.log_level=30"]])
def test_level_of_the_log_is_an_option(opened, arguments):
    run("lab", *arguments)
    run("lab")
    logs = [[option for option in command if "log_level" in option] for command in opened]
    assert logs == [
        [option for option in arguments if "log_level" in option],
        ["--Application.log_level=ERROR"],
    ]


@pytest.mark.parametrize(("browser", "arguments", "is_added"), [
    (None, [], True), (None, ["--no-browser"], False), (None, ["--browser=links"], False), ("firefox", [], False),
])  # fmt: skip
def test_no_browser_is_opened_where_there_is_none(opened, monkeypatch, browser, arguments, is_added):
    def find():
        if browser is None:
            raise webbrowser.Error("could not locate runnable browser")
        return browser

    monkeypatch.setattr("webbrowser.get", find)
    run("lab", *arguments)
    own_options = opened[0][3 : len(opened[0]) - len(arguments)]
    assert ("--no-browser" in own_options) == is_added


@pytest.mark.parametrize("is_drawn", [True, False])
def test_address_of_jupyterlab_is_printed_once(is_drawn, capsys):
    """JupyterLab prints lines of its own about a token that it has drawn, which then is in the address, too."""
    provider = SimpleNamespace(token="x", token_generated=is_drawn)

    class Server:
        identity_provider, open_browser = provider, False
        web_app = SimpleNamespace(settings={})
        connect_url = property(
            lambda _: "http://127.0.0.1/lab" + "?token=x" * provider.token_generated + " or another"
        )

    jupyter._load_jupyter_server_extension(Server())
    assert not provider.token_generated, "JupyterLab would print its lines"
    asyncio.run(jupyter._start_jupyter_server_extension(Server()))
    address = "http://127.0.0.1/lab" + "?token=x" * is_drawn
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"mudkit: JupyterLab is at {address} (open it in a browser;")


@pytest.mark.soak
@pytest.mark.process
def test_jupyterlab_starts_with_options_and_readonly_extensions(tmp_path):
    command = [sys.executable, "-m", "mudkit", "lab", "--no-browser", "--ServerApp.port=0", "--ip=127.0.0.1"]
    command += ["--LabApp.news_url=None", "--notebook-dir=.", "--allow-root", "--log-level=INFO"]
    server = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"JUPYTER_RUNTIME_DIR": str(tmp_path / "run")},
    )
    lines = []
    assert server.stderr is not None
    for line in server.stderr:
        lines.append(line)
        if "/lab?token=" in line:
            break
    os.killpg(server.pid, signal.SIGKILL)
    server.communicate()
    output = "".join(lines)
    assert "/lab?token=" in output
    assert not [word for word in ("Traceback", "TraitError", "Extension Manager is 'pypi'") if word in output]
    assert "Extension Manager is 'readonly'" in output


@pytest.mark.parametrize("place", ["trace", "trace/positions/part-0.parquet"], ids=["folder", "file"])
@pytest.mark.parametrize(
    ("remote", "size_bytes", "compiles_all"),
    [("", 1000, False), ("", 20 << 20, True), ("sc://127.0.0.1:1", 20 << 20, False)],
)
def test_java_compiles_fully_only_for_large_input(
    tmp_path, monkeypatch, place, remote, size_bytes, compiles_all
):
    (tmp_path / "trace" / "positions").mkdir(parents=True)
    with (tmp_path / "trace" / "positions" / "part-0.parquet").open("wb") as file:
        file.truncate(size_bytes)
    sessions = []
    monkeypatch.setenv("SPARK_REMOTE", remote)
    monkeypatch.setattr("mudkit.pipeline.session", lambda **options: sessions.append(options))
    monkeypatch.setattr("mudkit.pipeline.stop", lambda: None)
    with jobs._spark(tmp_path / place):
        pass
    assert bool(sessions[0]) == compiles_all


@pytest.mark.soak
@pytest.mark.process
def test_status_is_1_if_nothing_was_judged(tmp_path):
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "ann.py").write_text("def take(seen, message):\n    return False\n")
    out = tmp_path / "grades.csv"
    without_piece = run("judge", tmp_path / "none.py", "--out", out)
    assert without_piece.exit_code == 1
    assert f"not there: {tmp_path / 'none.py'}: this file defines none of" in without_piece.stderr
    with_piece = run("judge", tmp_path / "none.py", tmp_path / "ann.py", "--out", out, "--overwrite")
    assert with_piece.exit_code == 0
    assert "not there" in with_piece.stderr


def test_verdicts_do_not_replace_a_folder(tmp_path, monkeypatch):
    (tmp_path / "ann.py").write_text("def take(seen, message):\n    return False\n")
    monkeypatch.setattr("mudkit.exercises.grade", lambda *_, **__: pytest.fail("judged already"))
    with pytest.raises(OutputExists, match=r"grades\.csv"):
        run("judge", tmp_path / "ann.py", "--out", tmp_path, "--overwrite")


def test_notebooks_folder_without_chapters_is_ignored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    assert (chapters._chapters() / "00_start_here.ipynb").is_file()
    (tmp_path / "notebooks" / "00_start_here.ipynb").touch()
    assert str(chapters._chapters()) == "notebooks"


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (["cells"], "mudkit trace load"),
        (["stops"], "mudkit trace load"),
        (["ingest", "--column", "lat=lon", "--column", "lon=lat"], "lat=lat, lon=lon"),
        (["ingest", "--time-unit", "ms"], "not in the unit 'ms'"),
        (["ingest", "--rule", "often"], "trip_start"),
    ],
)
def test_invalid_job_is_refused_before_spark_starts(options, pattern, csv_file, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_spark", lambda path: pytest.fail("Spark was started"))
    file = csv_file("cab,t,lat,lon,occ", ROWS)
    with pytest.raises((ParameterError, TraceFormatError), match=pattern):
        run("pipeline", options[0], file, "--out", tmp_path / "out", *options[1:])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["cells", "--horizon-s", 5], "No such option: --horizon-s"),
        (["label_reads", "--box-km", 4], "No such option: --box-km"),
        (["label_writes", "--zoom", 12], "No such option: --zoom"),
        (["stops", "--dates", 2], "No such option: --dates"),
        (["join"], "Missing option '--areas'"),
        (["ingest", "--where", "lat > 3"], "No such option: --where"),
        (["cell"], "No such command 'cell'. Did you mean 'cells'?"),
    ],
)
def test_job_has_its_own_options_only(options, problem, tmp_path):
    result = run("pipeline", options[0], tmp_path, "--out", tmp_path / "out", *options[1:])
    assert (result.exit_code, problem in " ".join(result.output.split())) == (2, True), result.output


def test_missing_areas_are_refused_before_spark_starts(tmp_path, monkeypatch):
    """A join reads its areas, and says which file is not there."""
    monkeypatch.setattr(jobs, "_spark", lambda path: pytest.fail("Spark was started"))
    with pytest.raises(InputMissing, match=r"no areas at .*zones\.geojson"):
        run("pipeline", "join", tmp_path, "--areas", tmp_path / "zones.geojson", "--out", tmp_path / "out")


GIVEN = {
    "format": "csv", "table": "reads", "column": "lat=2", "tz": "Europe/Rome", "time_unit": "ms", "rule": "none",
    "box_km": 3.0, "window_s": 60.0, "device": "ann", "header": False, "cars": 3, "days": 2, "seed": 5, "towns": 4,
    "zoom": 9, "bucket_s": 60, "horizon_s": 8.0, "interval_s": 61, "threshold": 7, "message_bytes": 11,
    "aggregate_bytes": 12, "radius_km": 0.2, "min_stop_s": 14.0, "max_gap_s": 15.0, "min_km": 0.1, "areas": "zones.json",
    "name": "zone", "reads": "log", "where": "lat > 1", "dates": 13, "overwrite": True,
}  # fmt: skip
"""A value of each option that is not its default."""
PARAMETERS = {"column": ("columns", {"lat": "2"}), "zoom": ("zooms", [9]), "threshold": ("thresholds", [7])}
"""Parameters of another name, with the value that several options make."""
AFTER_LOADING = {"where", "rejected", "overwrite"}


@pytest.mark.parametrize(
    ("command", "function", "elsewhere"),
    [
        ("trace load", "trace.load", AFTER_LOADING),
        ("trace profile", "trace.load", AFTER_LOADING),
        ("trace generate", "trace.generate", set()),
        ("pipeline ingest", "pipeline.ingest", set()),
        *((f"pipeline {job}", "pipeline.run_job", set()) for job in JOBS),
    ],
)
def test_each_option_is_the_parameter_that_its_help_names(
    command, function, elsewhere, csv_file, tmp_path, monkeypatch
):
    """Pass a command all its options: one that it does not pass on is without effect."""
    called = []
    monkeypatch.setattr(f"mudkit.{function}", lambda *_, **options: called.append(options) or sys.exit(7))
    monkeypatch.setattr("mudkit.trace.read_manifest", lambda _: None)
    monkeypatch.setattr("mudkit.trace.Options.plan", lambda *_: None)
    monkeypatch.setattr("mudkit.trace.tally.check_source", lambda _: None)
    monkeypatch.setattr("mudkit.trace.areas.read_areas", lambda *_: None)
    monkeypatch.setattr("mudkit.pipeline.progress", lambda *_: nullcontext())
    monkeypatch.setattr(jobs, "_spark", lambda _: nullcontext())
    group, name = command.split()
    arguments = [csv_file("cab,t", ROWS)] if "generate" not in command else []
    expected = {}
    for option in get_command(app).commands[group].commands[name].params:
        if option.param_type_name == "argument" or option.name in {"out", *elsewhere}:
            continue
        value = GIVEN[option.name]
        parameter, passed_on = PARAMETERS.get(option.name, (option.name, value))
        expected[parameter] = passed_on
        flags = (option.opts if value else option.secondary_opts)[0]
        arguments += [flags] if isinstance(value, bool) else [flags, value]
    if name != "profile":
        arguments += ["--out", tmp_path / "out"]
    assert run(group, name, *arguments).exit_code == 7
    assert {parameter: called[0][parameter] for parameter in expected} == expected


@pytest.mark.parametrize("job", sorted({*JOBS} - {"join"}))
def test_job_of_a_command_is_that_of_python_without_options(job, tmp_path, monkeypatch):
    """A run of either that was stopped is completed by the other: their options are the same job."""
    called = []
    monkeypatch.setattr("mudkit.pipeline.run_job", lambda *_, **given: called.append(given) or sys.exit(7))
    monkeypatch.setattr("mudkit.trace.read_manifest", lambda _: None)
    monkeypatch.setattr("mudkit.pipeline.progress", lambda *_: nullcontext())
    monkeypatch.setattr(jobs, "_spark", lambda _: nullcontext())
    assert run("pipeline", job, tmp_path, "--out", tmp_path / "out").exit_code == 7
    given = {name: value for name, value in called[0].items() if name in job_options(job, {})}
    assert job_options(job, given) == job_options(job, {})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--param", "trace=given.csv"], "given.csv"),
        (["--param", "box_km=5"], "preset.csv"),
        (["--where", "given ="], "given ="),
    ],
)
def test_parameters_of_the_command_replace_those_of_the_preset(options, expected, tmp_path):
    """Find the replaced value in the error: neither trace exists."""
    preset = tmp_path / "preset.yaml"
    preset.write_text(
        "trace: preset.csv\nwhere: 'preset ='\n" if "--where" in options else "trace: preset.csv\n"
    )
    with pytest.raises(MudkitError) as caught:
        run("report", "trace_profile", "--preset", preset, *options)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("function", "options"), [("run_report", []), ("against.run_both", ["--against", "box_km=5"])]
)
def test_unchanged_report_is_run_again_with_force(function, options, monkeypatch):
    """A report that is compared is run again, too; the pages go to the folder of --out."""
    called = []
    monkeypatch.setattr(f"mudkit.report.{function}", lambda *_, **given: called.append(given) or sys.exit(7))
    for more in ([], ["--force"]):
        arguments = ["trace_profile", "--param", "trace=cabs.csv", "--out", "pages", *options, *more]
        assert run("report", *arguments).exit_code == 7
    assert [(given["force"], given["build"]) for given in called] == [
        (False, Path("pages")),
        (True, Path("pages")),
    ]


def test_option_spark_is_a_parameter_of_the_report(monkeypatch):
    called = []
    monkeypatch.setattr(
        "mudkit.report.run_report", lambda _, given, **__: called.append(given) or sys.exit(7)
    )
    assert run("report", "trace_profile", "--param", "trace=cabs.csv", "--spark").exit_code == 7
    assert called == [{"trace": "cabs.csv", "spark": True}]


def test_comparison_of_two_reports_is_told_with_their_pages(tmp_path, monkeypatch):
    """Print three pages and what they say; the status is 1 if a limit is passed."""
    compared = SimpleNamespace(
        folder=tmp_path / "both",
        headline="A is cheaper",
        within_chance=lambda limits: ["the energy differs by chance"],
        above=lambda limits: ["stale answers: 6 %, limit 5 %"] if limits else [],
    )
    monkeypatch.setattr("mudkit.report.headline", lambda path: f"of {path.name}")
    monkeypatch.setattr("mudkit.report.compare_runs", lambda *paths, build: compared)
    monkeypatch.setattr("mudkit.report.against.run_both", lambda *_, **__: [tmp_path / "a", tmp_path / "b"])
    arguments = ["report", "trace_profile", "--param", "trace=cabs.csv", "--against", "box_km=5"]
    result = run(*arguments)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{tmp_path / 'a' / 'report.html'}  of a",
        f"{tmp_path / 'b' / 'report.html'}  of b",
        f"{tmp_path / 'both' / 'report.html'}  A is cheaper",
    ]
    assert result.stderr == "mudkit: within chance: the energy differs by chance\n"


def test_report_lists_its_parameters_and_presets():
    output = run("report", "scoreboard", "--list").output
    for text in ("j_per_useful", "phones in each task", "full", "ten seeds"):
        assert text in output


def test_all_reports_are_listed_without_a_name():
    listed = run("report", "--list")
    assert listed.exit_code == 0
    assert listed.output == run("report", "all", "--list").output
    for name, schema in TEMPLATES.items():
        assert f"mudkit report {name} --param" in listed.output
        assert f"mudkit report {name} --preset" in listed.output
        assert all(f" {parameter} " in listed.output for parameter in schema.model_fields)


@pytest.mark.parametrize("command", [
    "trace load", "trace generate", "trace profile", "pipeline ingest", "pipeline cells", "pipeline label_reads",
    "pipeline label_writes", "pipeline propagation", "report", "reproduce", "judge",
    "lab", "doctor",
])  # fmt: skip
def test_each_help_has_an_example(command):
    assert f"Example: mudkit {command}" in run(*command.split(), "--help").output


def test_help_lists_every_format():
    text = " ".join(run("trace", "load", "--help").output.replace("│", " ").split())
    listed = text.split("auto recognises it: ")[1].split(". ")[0].replace(" or ", ", ").split(", ")
    assert set(map(str.strip, listed)) == set(FORMATS)


def iterate_commands(group):
    for command in group.commands.values():
        yield from iterate_commands(command) if hasattr(command, "commands") else [command]


def test_lines_of_help_texts_fit_into_a_terminal():
    """Limit later paragraphs to 78 columns: typer keeps their line breaks, and a terminal adds its own."""
    for command in iterate_commands(get_command(app)):
        for paragraph in (command.help or "").split("\n\n")[1:]:
            lines = paragraph.strip().splitlines()
            assert len(lines) == 1 or max(map(len, lines)) <= 78, (command.name, paragraph)


@pytest.mark.parametrize("name", ["prefetch_sizing", "scoreboard"])
def test_report_that_is_not_computed_on_spark_refuses_it_in_words(name):
    """The refusal names the option, the reports that take it, and what to do."""
    with pytest.raises(
        ParameterError,
        match=r"(?s)this machine alone.*trace_profile, cache_policy or propagation.*leave --spark out",
    ):
        run("report", name, "--spark")

"""The ``mudkit`` command."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mudkit import __version__
from mudkit.errors import EnvironmentProblem, MudkitError, OutputExists, ParameterError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["app", "main"]

app = typer.Typer(
    help="What should reach a phone, when, and at what cost? Begin with: mudkit lab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
trace_app = typer.Typer(help="Load, generate and look at traces.", no_args_is_help=True)
pipeline_app = typer.Typer(help="Run jobs on Spark.", no_args_is_help=True)
app.add_typer(trace_app, name="trace")
app.add_typer(pipeline_app, name="pipeline")

_INTERRUPTED = 130
_MUCH_BYTES = 8 << 20
"""Input from which on it pays that Java compiles all the way: some hundred thousand positions."""

Format = Annotated[
    str,
    typer.Option(help="auto, cabspotting, cabspotting-txt, geolife, gtfs-rt, gowalla, gpx, csv or parquet."),
]
Table = Annotated[str, typer.Option(help="What the rows are: positions or reads.")]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="NAME=COLUMN, for instance device=vehicle_id.")
]
Zone = Annotated[str, typer.Option(help="Time zone of times that do not name theirs.")]
TimeUnit = Annotated[str, typer.Option(help="Unit of numeric times: s, ms, us or ns.")]
Rule = Annotated[
    str | None,
    typer.Option(help="Rule for reads: occupancy, trip_start(still_s=600), poisson(per_day=24), none."),
]
Where = Annotated[
    str | None,
    typer.Option(
        help='Which positions: "hour(ts) < 9 AND within_km(point(lat, lon), point(37.8, -122.4), 5)".'
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Out = Annotated[Path, typer.Option("--out", help="Folder to make.")]


@trace_app.command("load")
def trace_load(
    path: Annotated[Path, typer.Argument(help="A file, or a trace folder.")],
    out: Out,
    format: Format = "auto",  # noqa: A002
    table: Table = "positions",
    column: Columns = None,
    tz: Zone = "UTC",
    time_unit: TimeUnit = "s",
    rule: Rule = None,
    box_km: Annotated[float | None, typer.Option(help="Side of a read's box; by default 20 km.")] = None,
    window_s: Annotated[float | None, typer.Option(help="How far back a read asks; by default 2 h.")] = None,
    where: Where = None,
    overwrite: Overwrite = False,
) -> None:
    """Load a file into memory and write it as a trace folder."""
    from mudkit import trace

    columns = _mapping(column)
    loaded = trace.load(
        path, format, table=table, columns=columns, tz=tz, time_unit=time_unit, rule=rule,
        box_km=box_km, window_s=window_s,
    )  # fmt: skip
    if where is not None:
        loaded = loaded.where(where)
    loaded.save(out, overwrite=overwrite)
    _print_table(loaded.summary())
    typer.echo(f"written to {out}")


@trace_app.command("generate")
def trace_generate(
    out: Out,
    cars: Annotated[int, typer.Option(help="Number of cars.")] = 600,
    days: Annotated[int, typer.Option(help="Number of days.")] = 30,
    seed: Annotated[int, typer.Option(help="Same seed, same trace.")] = 7,
    towns: Annotated[int, typer.Option(help="Towns that the cars are spread over.")] = 1,
    overwrite: Overwrite = False,
) -> None:
    """Generate a CarTel-like trace, day by day."""
    from mudkit import trace

    manifest = trace.generate(
        cars=cars,
        days=days,
        seed=seed,
        towns=towns,
        path=out,
        overwrite=overwrite,
        progress=sys.stderr.isatty(),
    )
    rows = manifest["rows"]
    typer.echo(f"{rows['positions']:,} positions and {rows['reads']:,} reads written to {out}")


@trace_app.command("profile")
def trace_profile(
    path: Annotated[Path, typer.Argument(help="A file, or a trace folder.")],
    format: Format = "auto",  # noqa: A002
    table: Table = "positions",
    column: Columns = None,
    tz: Zone = "UTC",
    time_unit: TimeUnit = "s",
    rule: Rule = None,
    where: Where = None,
) -> None:
    """Say what a trace holds; `mudkit report trace_profile` says more."""
    from mudkit import trace

    columns = _mapping(column)
    loaded = trace.load(path, format, table=table, columns=columns, tz=tz, time_unit=time_unit, rule=rule)
    _print_table((loaded if where is None else loaded.where(where)).summary())


@pipeline_app.command("run")
def pipeline_run(
    job: Annotated[str, typer.Argument(help="ingest, cells, label_reads, label_writes or propagation.")],
    path: Annotated[Path, typer.Argument(help="For ingest a file; for the other jobs a trace folder.")],
    out: Out,
    format: Format = "auto",  # noqa: A002
    table: Table = "positions",
    column: Columns = None,
    tz: Zone = "UTC",
    time_unit: TimeUnit = "s",
    rule: Rule = None,
    horizon_s: Annotated[float, typer.Option(help="label_reads: how old a cached answer may be.")] = 7200.0,
    zoom: Annotated[list[int] | None, typer.Option(help="cells, propagation: levels to count at.")] = None,
    bucket_s: Annotated[int, typer.Option(help="cells: length of a time bucket.")] = 3600,
    interval_s: Annotated[int, typer.Option(help="propagation: when what is held goes anyway.")] = 300,
    threshold: Annotated[
        list[int] | None, typer.Option(help="propagation: messages in an aggregate.")
    ] = None,
    message_bytes: Annotated[int, typer.Option(help="propagation: size of a message.")] = 400,
    aggregate_bytes: Annotated[int, typer.Option(help="propagation: size of an aggregate.")] = 400,
    reads: Annotated[
        Path | None, typer.Option(help="Trace folder of an access log; without it the reads of PATH.")
    ] = None,
    where: Where = None,
    dates: Annotated[int | None, typer.Option(help="Dates in a part; not for ingest.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Run one job on Spark and write its result; one that was stopped goes on where it was."""
    options: dict[str, dict[str, Any]] = {
        "ingest": {},
        "cells": {"zooms": zoom or (12, 14, 16), "bucket_s": bucket_s},
        "label_reads": {"horizon_s": horizon_s},
        "label_writes": {},
        "propagation": {
            "zooms": zoom or (14,), "interval_s": interval_s, "thresholds": threshold or (1, 20, 50),
            "message_bytes": message_bytes, "aggregate_bytes": aggregate_bytes,
        },
    }  # fmt: skip
    if job not in options:
        raise ParameterError(
            "There is no such job.", where="JOB", found=repr(job), expected=", ".join(options)
        )
    if job == "ingest" and (where is not None or reads is not None):
        raise ParameterError(
            "ingest takes all rows of one file.",
            where="--where, --reads",
            found=where if where is not None else str(reads),
            remedy="ingest an access log for itself (--table reads); the jobs that read traces take both",
        )
    from mudkit import pipeline

    with _spark(path) as spark:
        if job == "ingest":
            with pipeline.progress(spark, "ingest"):
                report: Any = pipeline.ingest(
                    spark, path, out, format, table=table, columns=_mapping(column), tz=tz,
                    time_unit=time_unit, rule=rule, overwrite=overwrite,
                )  # fmt: skip
        else:
            report = pipeline.run_job(
                spark,
                job,
                path,
                out,
                reads=reads,
                where=where,
                dates=dates,
                overwrite=overwrite,
                **options[job],
            )
        if report.parts_found:
            typer.echo(f"{report.parts_found} of {report.parts} partitions were there already", err=True)
        typer.echo(str(report))


@app.command("report")
def report(
    name: Annotated[str, typer.Argument(help="trace_profile, prefetch_sizing, propagation, or all of them.")],
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="KEY=VALUE, as often as needed.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A preset's name, or a YAML file with parameters.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for reports.")] = Path("reports/build"),
    force: Annotated[bool, typer.Option("--force", help="Run even when nothing has changed.")] = False,
) -> None:
    """Run a report and say where it is; one that nothing has changed for is not run again."""
    from mudkit.report import overview, parameters, run_report

    if name == "all":
        if param:
            raise ParameterError(
                "All reports have no parameter in common.", where="--param", found=param[0],
                expected="--preset, or nothing", remedy="run the reports one by one",
            )  # fmt: skip
        typer.echo(f"{overview.run_all(named=preset or 'sample', build=out, force=force)}")
        return
    given = parameters.preset(name, preset) if preset else {}
    given |= parameters.parse_assignments(name, param or [])
    path = run_report(name, given, build=out, force=force)
    typer.echo(f"{path / 'report.html'}")


@app.command("book")
def book(
    out: Annotated[Path, typer.Option("--out", help="Folder to make or replace.")] = Path(
        "reports/build/book"
    ),
) -> None:
    """Execute all chapters and write them as pages that open without a network."""
    from mudkit.report.book import make_book

    typer.echo(f"{make_book(sorted(_chapters().glob('[0-9]*.ipynb')), out)}")


@app.command("reproduce")
def reproduce(
    rows: Annotated[
        list[str] | None, typer.Argument(metavar="[ROW…]", help="Rows to measure now, for instance M1.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of the table.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Keep the table as a page besides.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for pages.")] = Path("reports/build"),
) -> None:
    """Measure the papers' numbers here, and show both with verdicts.

    Named rows are measured. Without a name all are, but long ones and those of speed: these show their last
    result, with its date.
    """
    import json

    from mudkit.reproduce import results, table

    with table.watched() as say:
        found = results(rows or (), say=say)
    if as_json:
        typer.echo(json.dumps([result.as_json() for result in found], indent=2, ensure_ascii=False))
    else:
        table.render(found)
    if page:
        from mudkit.report import keep_page
        from mudkit.reproduce.page import figures, notebook

        asked = {"rows": [result.row.name for result in found]}
        kept = keep_page(
            "reproduce", notebook(found), {"figures": figures(found)}, parameters=asked, build=out
        )
        typer.echo(f"{kept / 'report.html'}", err=as_json)  # JSON alone is on standard output


@app.command("judge")
def judge(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Notebooks and Python files handed in, or folders of them."),
    ],
    out: Annotated[Path, typer.Option("--out", help="CSV to write, a line a file and exercise.")],
    exercise: Annotated[
        list[str] | None, typer.Option(help="Judge these only, and say where they are missing.")
    ] = None,
    judges: Annotated[
        Path | None, typer.Option(help="A Python file with EXERCISES of your own, see the README.")
    ] = None,
    within_s: Annotated[float, typer.Option(help="How long a piece may take.")] = 120.0,
    overwrite: Overwrite = False,
) -> None:
    """Judge what a class has written, each piece in a process of its own.

    The pieces run with your rights: judge strangers' files on an account that has nothing to lose.
    """
    from mudkit.exercises import grade
    from mudkit.files import staged_file

    if out.exists() and not overwrite:
        raise OutputExists("There is a file already.", where=str(out), remedy="name another, or --overwrite")
    graded = grade(files, judges=judges, exercises=exercise or (), within_s=within_s)
    with staged_file(out) as staging:
        graded.to_csv(staging, index=False)
    counts = graded.groupby("verdict").size()
    typer.echo(f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}: {out}")


@app.command("lab", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    context: typer.Context,
    student: Annotated[
        bool, typer.Option("--student", help="Without solutions, on copies in the folder `chapters`.")
    ] = False,
) -> None:
    """Open JupyterLab on the chapters; further arguments go to JupyterLab."""
    chapters = _chapters()
    if student:
        from mudkit.exercises.handing_out import hand_out

        chapters = hand_out(chapters, Path("chapters"))
    command = [
        sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={chapters.resolve()}",
        # Nothing leaves this machine unasked: no look for updates, no news, no extension manager.
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdates", "--LabApp.news_url=None",
        "--LabApp.extension_manager=readonly", *context.args,
    ]  # fmt: skip
    os.execv(sys.executable, command)


@app.command("doctor")
def doctor(
    start: Annotated[
        bool, typer.Option("--start", help="Start Spark as well, and say how long it takes.")
    ] = False,
) -> None:
    """Say what is there, what is missing, and the command that mends it."""
    from mudkit import doctor as checks

    found = checks.checks(start=start)
    checks.render(found)
    if any(check.ok is False for check in found):
        raise typer.Exit(1)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"mudkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    pass


def _chapters() -> Path:
    """Give the folder of chapters: that of a checkout where one is, else the package's own."""
    return Path("notebooks") if Path("notebooks").is_dir() else Path(__file__).parent / "notebooks"


def _mapping(pairs: list[str] | None) -> dict[str, str]:
    mapping = {}
    for pair in pairs or []:
        name, separator, column = pair.partition("=")
        if not separator:
            raise ParameterError(
                "A column mapping needs two names.", where="--column", found=pair, expected="NAME=COLUMN"
            )
        mapping[name] = column
    return mapping


class _spark:  # noqa: N801 - reads as a function where it is used
    """A session that ends with the command.

    For much input its Java compiles all the way: it starts later than a notebook's session, and then works
    faster. A Connect server has options of its own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Any:
        from mudkit import pipeline

        if os.environ.get("SPARK_REMOTE") or _size_bytes(self.path) < _MUCH_BYTES:
            return pipeline.session()
        return pipeline.session(config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"})

    def __exit__(self, *error: object) -> None:
        from mudkit import pipeline

        pipeline.stop()


def _size_bytes(path: Path) -> int:
    """Give the size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _print_table(table: pd.DataFrame) -> None:
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(show_header=False, box=None)
    for what, value in table.itertuples(index=False):
        grid.add_row(str(what), str(value))
    Console().print(grid)


def main() -> None:
    """Run the command; an error of mudkit's is told without a traceback, with exit status 1."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is stopped in good order cleans up
    try:
        app()
    except MudkitError as error:
        kind = "this machine" if isinstance(error, EnvironmentProblem) else "error"
        print(f"mudkit: {kind}: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as ended:
        if ended.code != _INTERRUPTED:
            raise
        _stopped()  # typer took the KeyboardInterrupt


def _stopped() -> NoReturn:
    print("mudkit: stopped", file=sys.stderr)  # noqa: T201
    # What libraries say at exit of their own interrupted work helps nobody.
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    raise SystemExit(_INTERRUPTED) from None

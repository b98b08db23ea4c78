"""The ``mudkit`` command."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mudkit import __version__
from mudkit.errors import (
    EnvironmentProblem,
    MudkitError,
    OutputExists,
    ParameterError,
    TraceContentError,
    did_you_mean,
)
from mudkit.files import existing, staged_file

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.trace import Loaded

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

_TRACE = ("where", "reads", "dates")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "ingest": ("format", "table", "column", "tz", "time_unit", "rule"),
    "cells": ("zoom", "bucket_s", *_TRACE),
    "label_reads": ("horizon_s", *_TRACE),
    "label_writes": _TRACE,
    "propagation": ("zoom", "interval_s", "threshold", "message_bytes", "aggregate_bytes", "where", "dates"),
}
"""Options that each job looks at."""

Format = Annotated[
    str,
    typer.Option(
        help="Format of the file; auto finds out which: cabspotting, cabspotting-txt, geolife, gtfs-rt, "
        "gowalla, gpx, csv or parquet."
    ),
]
Table = Annotated[str, typer.Option(help="What the rows are: positions or reads.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="NAME=COLUMN, for instance device=vehicle_id; as often as needed. NAME is device, ts, lat, lon, "
        "speed_mps, occupied, box_km or window_s.",
    ),
]
Zone = Annotated[str, typer.Option(help="Time zone of times that do not name theirs.")]
TimeUnit = Annotated[str, typer.Option(help="Unit of numeric times: s, ms, us or ns.")]
Rule = Annotated[
    str | None,
    typer.Option(
        help="Rule for reads: occupancy, trip_start(still_s=600), poisson(per_day=24) or none; by default "
        "occupancy where the file has fares, else trip_start after 600 s of standing still."
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        help='Which positions: "hour(ts) < 9 AND within_km(point(lat, lon), point(37.8, -122.4), 5)". '
        "Reads are not filtered."
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
    box_km: Annotated[float | None, typer.Option(help="Side of a read's box in km; by default 20.")] = None,
    window_s: Annotated[
        float | None, typer.Option(help="How far back a read asks, in seconds; by default 7200 (2 h).")
    ] = None,
    where: Where = None,
    overwrite: Overwrite = False,
) -> None:
    """Load a file into memory and write it as a trace folder.

    Example: mudkit trace load cabs.csv --out traces/cabs --column device=taxi
    """
    from mudkit import trace

    columns = _mapping(column)
    loaded = trace.load(
        path, format, table=table, columns=columns, tz=tz, time_unit=time_unit, rule=rule,
        box_km=box_km, window_s=window_s,
    )  # fmt: skip
    loaded = _chosen(loaded, where)
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
    """Generate a CarTel-like trace, day by day.

    Example: mudkit trace generate --out traces/cars --cars 60 --days 3
    """
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
    """Say what a trace holds; `mudkit report trace_profile` says more.

    Example: mudkit trace profile data/sample/positions.csv.gz
    """
    from mudkit import trace

    columns = _mapping(column)
    loaded = trace.load(path, format, table=table, columns=columns, tz=tz, time_unit=time_unit, rule=rule)
    _print_table(_chosen(loaded, where).summary())


@pipeline_app.command("run")
def pipeline_run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="ingest, cells, label_reads, label_writes or propagation.")],
    path: Annotated[Path, typer.Argument(help="For ingest a file; for the other jobs a trace folder.")],
    out: Out,
    format: Format = "auto",  # noqa: A002
    table: Table = "positions",
    column: Columns = None,
    tz: Zone = "UTC",
    time_unit: TimeUnit = "s",
    rule: Rule = None,
    horizon_s: Annotated[
        float, typer.Option(help="label_reads: how old a cached answer may be, in seconds.")
    ] = 7200.0,
    zoom: Annotated[
        list[int] | None,
        typer.Option(
            help="cells, propagation: level of the map's cells to count at, 0 (the world) to 22, as often as "
            "needed; by default 12, 14 and 16 for cells, 14 for propagation."
        ),
    ] = None,
    bucket_s: Annotated[int, typer.Option(help="cells: length of a time bucket, in whole seconds.")] = 3600,
    interval_s: Annotated[
        int, typer.Option(help="propagation: after how many seconds what is held goes anyway.")
    ] = 300,
    threshold: Annotated[
        list[int] | None,
        typer.Option(
            help="propagation: messages in an aggregate, 1 for none joined, as often as needed; by default "
            "1, 20 and 50."
        ),
    ] = None,
    message_bytes: Annotated[int, typer.Option(help="propagation: size of a message, in bytes.")] = 400,
    aggregate_bytes: Annotated[int, typer.Option(help="propagation: size of an aggregate, in bytes.")] = 400,
    reads: Annotated[
        Path | None, typer.Option(help="Trace folder of an access log; without it the reads of PATH.")
    ] = None,
    where: Where = None,
    dates: Annotated[
        int | None,
        typer.Option(
            help="How many dates make a part of the work; not for ingest. By default as many as have about a "
            "million positions."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Run one job on Spark and write its result; one that was stopped goes on where it was.

    Example: mudkit pipeline run cells traces/cars --out counts --zoom 12 --zoom 14
    """
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
            "There is no such job.", where="JOB", found=repr(job), expected=", ".join(options),
            remedy=did_you_mean(job, options),
        )  # fmt: skip
    _refuse_options_of_others(context, job)
    if job == "ingest":
        existing(path, "trace")
    else:
        from mudkit.trace import read_manifest

        read_manifest(path)  # Spark starts for a trace only
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
    name: Annotated[
        str,
        typer.Argument(help="trace_profile, cache_policy, prefetch_sizing, propagation, scoreboard; or all."),
    ],
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", help="KEY=VALUE, as often as needed; `mudkit report NAME --list` shows the keys."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A preset's name (`mudkit report NAME --list` shows them), or a YAML file with parameters."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for reports.")] = Path("reports/build"),
    force: Annotated[bool, typer.Option("--force", help="Run even when nothing has changed.")] = False,
    as_list: Annotated[
        bool, typer.Option("--list", help="Show the report's parameters and presets; run nothing.")
    ] = False,
) -> None:
    """Run a report and say where it is; one that nothing has changed for is not run again.

    Example: mudkit report trace_profile --param trace=cabs.csv --param columns.device=taxi

    Its parameters and presets: mudkit report trace_profile --list
    """
    from mudkit.report import overview, parameters, run_report

    if as_list:
        for each in parameters.TEMPLATES if name == "all" else [name]:
            _print_parameters(each)
        return
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
    """Execute all chapters and write them as pages that open without a network.

    Example: mudkit book --out book
    """
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

    Example: mudkit reproduce M1 --json
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
    within_s: Annotated[float, typer.Option(help="How long a piece may take, in seconds.")] = 120.0,
    overwrite: Overwrite = False,
) -> None:
    """Judge what a class has written, each piece in a process of its own.

    The pieces run with your rights: judge strangers' files on an account that has nothing to lose. Ends with
    status 1 when no piece was judged.

    Example: mudkit judge handed_in/ --out grades.csv --exercise 00_start_here
    """
    import pandas as pd

    from mudkit.exercises import grade

    if out.is_dir():
        raise OutputExists(
            "There is a folder where the CSV is to be.", where=str(out), found="a folder",
            expected="a free place, or a file", remedy=f"name a file, for instance {out / 'grades.csv'}",
        )  # fmt: skip
    if out.exists() and not overwrite:
        raise OutputExists("There is a file already.", where=str(out), remedy="name another, or --overwrite")
    graded = grade(files, judges=judges, exercises=exercise or (), within_s=within_s)
    with staged_file(out) as staging:
        graded.to_csv(staging, index=False)
    counts = graded.groupby("verdict").size()
    typer.echo(f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}: {out}")
    is_judged = graded["verdict"].isin(("passed", "not yet"))
    for row in graded.loc[~is_judged, ["verdict", "file", "exercise", "problem"]].astype("string").to_numpy():
        verdict, handed_in, asked, problem = ("" if each is pd.NA else str(each) for each in row)
        what = ", ".join(filter(None, (handed_in, asked)))
        typer.echo(f"{verdict}: {what}: {'; '.join(map(str.strip, problem.splitlines()))}", err=True)
    if not is_judged.any():
        raise typer.Exit(1)


@app.command("lab", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    context: typer.Context,
    student: Annotated[
        bool, typer.Option("--student", help="Without solutions, on copies in the folder `chapters`.")
    ] = False,
) -> None:
    """Open JupyterLab on the chapters; further arguments go to JupyterLab.

    Example: mudkit lab --no-browser --port 9000

    Arguments that are not named here go to JupyterLab, as --no-browser does.
    """
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
    """Say what is there, what is missing, and the command that mends it.

    Example: mudkit doctor --start
    """
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
    here = Path("notebooks")
    return here if (here / "00_start_here.ipynb").is_file() else Path(__file__).parent / "notebooks"


def _chosen(loaded: Loaded, where: str | None) -> Loaded:
    """Keep the positions that are meant; to keep none is a mistake."""
    if where is None:
        return loaded
    chosen = loaded.where(where)
    if not len(chosen.positions):
        raise TraceContentError(
            "No position is left.",
            where=f"--where {where!r}",
            found=f"0 of {len(loaded.positions):,} positions",
            expected="at least one",
            remedy="check the predicate; `mudkit trace profile` without --where says what is there"
            if len(loaded.positions)
            else "leave --where out: it chooses positions, and these are reads",
        )
    return chosen


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


def _refuse_options_of_others(context: typer.Context, job: str) -> None:
    """Refuse options that were given and that the job does not look at."""
    of_jobs = {name for names in _OPTIONS.values() for name in names}
    given = [name for name in context.params if _is_given(context, name) and name in of_jobs]
    if others := [name for name in given if name not in _OPTIONS[job]]:
        raise ParameterError(
            f"The job {job} does not look at {_written(others[0])}.",
            where=", ".join(map(_written, others)),
            found=", ".join(_said(name, context.params[name]) for name in others),
            expected=", ".join(map(_written, _OPTIONS[job])),
            remedy="ingest takes all rows of one file; the jobs that read traces take --where and --reads"
            if job == "ingest"
            else f"leave it out; it is of {_jobs_with(others[0])}",
        )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _jobs_with(name: str) -> str:
    return ", ".join(job for job, names in _OPTIONS.items() if name in names)


def _said(name: str, value: Any) -> str:
    """Give an option as it was given."""
    return " ".join(f"{_written(name)} {each}" for each in (value if isinstance(value, list) else [value]))


def _written(name: str) -> str:
    return "--" + name.replace("_", "-")


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


def _print_parameters(report: str) -> None:
    from rich.console import Console
    from rich.table import Table as Grid

    from mudkit.report import parameters

    lines = Grid("parameter", "default", "meaning", title=f"mudkit report {report} --param PARAMETER=VALUE")
    for line in parameters.described(report):
        lines.add_row(*line)
    presets = Grid("preset", "meaning", title=f"mudkit report {report} --preset PRESET")
    for preset in parameters.presets(report).items():
        presets.add_row(*preset)
    for grid in (lines, presets):
        grid.title_justify, grid.box = "left", None
        Console().print(grid)


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

"""``mudkit pipeline``: jobs on Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from mudkit.cli.arguments import (
    BoxKm,
    Columns,
    Device,
    Format,
    Header,
    Out,
    Overwrite,
    Rule,
    Table,
    TimeUnit,
    Where,
    WindowS,
    Zone,
    mapping,
)
from mudkit.errors import ParameterError, did_you_mean
from mudkit.files import existing

__all__ = ["app"]

app = typer.Typer(help="Run jobs on Spark.", no_args_is_help=True)

_LARGE_BYTES = 8 << 20
"""Input size above which full compilation by Java pays: some hundred thousand positions."""

_TRACE = ("where", "reads", "dates")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "ingest": (
        "format",
        "table",
        "column",
        "tz",
        "time_unit",
        "rule",
        "box_km",
        "window_s",
        "device",
        "header",
    ),
    "cells": ("zoom", "bucket_s", *_TRACE),
    "label_reads": ("horizon_s", *_TRACE),
    "label_writes": _TRACE,
    "propagation": ("zoom", "interval_s", "threshold", "message_bytes", "aggregate_bytes", "where", "dates"),
}
"""Options of each job."""


@app.command("run")
def pipeline_run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="ingest, cells, label_reads, label_writes or propagation.")],
    path: Annotated[Path, typer.Argument(help="For ingest a file; for the other jobs a trace folder.")],
    out: Out,
    format: Format = "auto",  # noqa: A002
    table: Table = "positions",
    column: Columns = None,
    tz: Zone = "UTC",
    time_unit: TimeUnit = "auto",
    rule: Rule = None,
    box_km: BoxKm = None,
    window_s: WindowS = None,
    device: Device = None,
    header: Header = True,
    horizon_s: Annotated[
        float, typer.Option(help="label_reads: maximum age of a cached answer, in seconds.")
    ] = 7200.0,
    zoom: Annotated[
        list[int] | None,
        typer.Option(
            help="cells, propagation: zoom level of the cells, 0 (the world) to 22; may be repeated; by "
            "default 12, 14 and 16 for cells, 14 for propagation."
        ),
    ] = None,
    bucket_s: Annotated[int, typer.Option(help="cells: length of a time bucket, in whole seconds.")] = 3600,
    interval_s: Annotated[
        int, typer.Option(help="propagation: maximum time that a message is held, in seconds.")
    ] = 300,
    threshold: Annotated[
        list[int] | None,
        typer.Option(
            help="propagation: messages in an aggregate, 1 for no aggregation; may be repeated; by default "
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
            help="Number of dates in each part of the work; not for ingest. By default, dates with about a "
            "million positions."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Run one job on Spark and write its result; a stopped job resumes.

    `pipeline.spread` and `pipeline.aggregate_stream` are available in Python only: they take a function.

    Example: mudkit pipeline run cells traces/cars --out counts --zoom 12 --zoom 14
    """
    settings: dict[str, dict[str, Any]] = {
        "ingest": {},
        "cells": {"zooms": zoom or (12, 14, 16), "bucket_s": bucket_s},
        "label_reads": {"horizon_s": horizon_s},
        "label_writes": {},
        "propagation": {
            "zooms": zoom or (14,),
            "interval_s": interval_s,
            "thresholds": threshold or (1, 20, 50),
            "message_bytes": message_bytes,
            "aggregate_bytes": aggregate_bytes,
        },
    }
    if job not in settings:
        raise ParameterError(
            "There is no such job.",
            where="JOB",
            found=repr(job),
            expected=", ".join(settings),
            remedy=did_you_mean(job, settings, "mudkit pipeline run --help shows them"),
        )
    _refuse_options_of_others(context, job)
    if job == "ingest":
        from mudkit.trace.options import Options
        from mudkit.trace.tally import check_source

        options = Options(
            format, table, tz, time_unit, mapping(column), rule, box_km, window_s, device, header
        )
        check_source(options.plan(existing(path, "trace")))
    else:
        from mudkit.trace import read_manifest

        read_manifest(path)  # fail before Spark starts if it is not a trace
    from mudkit import pipeline

    with _spark(path) as spark:
        if job == "ingest":
            with pipeline.progress(spark, "ingest"):
                report: Any = pipeline.ingest(spark, path, out, **vars(options), overwrite=overwrite)
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
                **settings[job],
            )
        if report.parts_reused:
            typer.echo(f"{report.parts_reused} of {report.parts} partitions existed already", err=True)
        typer.echo(str(report))


def _refuse_options_of_others(context: typer.Context, job: str) -> None:
    """Raise an error for options that the job does not have."""
    of_jobs = {name for names in _OPTIONS.values() for name in names}
    given = [name for name in context.params if _is_given(context, name) and name in of_jobs]
    if others := [name for name in given if name not in _OPTIONS[job]]:
        raise ParameterError(
            f"The job {job} has no option {_written(others[0])}.",
            where=", ".join(map(_written, others)),
            found=", ".join(_as_option(name, context.params[name]) for name in others),
            expected=", ".join(map(_written, _OPTIONS[job])),
            remedy="ingest takes all rows of one file; the jobs that read traces take --where and --reads"
            if job == "ingest"
            else f"leave it out; it is an option of {_jobs_with(others[0])}",
        )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _jobs_with(name: str) -> str:
    return ", ".join(job for job, names in _OPTIONS.items() if name in names)


def _as_option(name: str, value: Any) -> str:
    """Return an option as written on the command line."""
    return " ".join(f"{_written(name)} {part}" for part in (value if isinstance(value, list) else [value]))


def _written(name: str) -> str:
    return "--" + name.replace("_", "-")


@contextmanager
def _spark(path: Path) -> Iterator[Any]:
    """Start a session that ends with the command.

    For large input Java compiles fully, which starts later and then runs faster. A Connect server has options
    of its own.
    """
    from mudkit import pipeline

    if os.environ.get("SPARK_REMOTE") or _size_bytes(path) < _LARGE_BYTES:
        session = pipeline.session()
    else:
        session = pipeline.session(config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"})
    try:
        yield session
    finally:
        pipeline.stop()


def _size_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())

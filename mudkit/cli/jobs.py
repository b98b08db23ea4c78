"""``mudkit pipeline``: jobs on Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    Source,
    Table,
    TimeUnit,
    Where,
    WindowS,
    Zone,
    mapping,
)
from mudkit.files import existing, is_folder, size_bytes, sizes_below

app = typer.Typer(
    help="Run jobs on Spark; a stopped job resumes. `pipeline.spread` and `pipeline.aggregate_stream` take a "
    "function, and are available in Python only.",
    no_args_is_help=True,
)

_LARGE_BYTES = 8 << 20
"""Input size above which full compilation by Java pays: some hundred thousand positions."""

Trace = Annotated[str, typer.Argument(metavar="TRACE", help="Trace folder, or its address.")]
Reads = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Trace folder of an access log; without it the reads of TRACE."),
]
Dates = Annotated[
    int | None,
    typer.Option(
        help="Number of dates in each part of the work; by default, dates with about a million positions."
    ),
]
Zooms = Annotated[
    list[int], typer.Option(help="Zoom level of the cells, 0 (the world) to 22; may be repeated.")
]


@app.command("ingest")
def ingest(
    path: Source,
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
    overwrite: Overwrite = False,
) -> None:
    """Read positions or reads of any format into a trace folder.

    Example: mudkit pipeline ingest data/raw/cabs --out traces/cars
    """
    from mudkit.trace.options import Options
    from mudkit.trace.tally import check_source

    options = Options(format, table, tz, time_unit, mapping(column), rule, box_km, window_s, device, header)
    check_source(options.plan(existing(path, "trace")))
    from mudkit import pipeline

    with _spark(path) as spark:
        with pipeline.progress(spark, "ingest"):
            report = pipeline.ingest(spark, path, out, **vars(options), overwrite=overwrite)
        _print(report)


@app.command("cells")
def cells(
    trace: Trace,
    out: Out,
    zoom: Zooms = [12, 14, 16],  # noqa: B006 - typer copies it
    bucket_s: Annotated[int, typer.Option(help="Length of a time bucket, in whole seconds.")] = 3600,
    reads: Reads = None,
    where: Where = None,
    dates: Dates = None,
    overwrite: Overwrite = False,
) -> None:
    """Count positions and reads by cell and time.

    Example: mudkit pipeline cells traces/cars --out counts --zoom 12 --zoom 14
    """
    options = {"reads": reads, "where": where, "dates": dates, "overwrite": overwrite}
    _run("cells", trace, out, zooms=zoom, bucket_s=bucket_s, **options)


@app.command("label_reads")
def label_reads(
    trace: Trace,
    out: Out,
    horizon_s: Annotated[float, typer.Option(help="Maximum age of a cached answer, in seconds.")] = 7200.0,
    reads: Reads = None,
    where: Where = None,
    dates: Dates = None,
    overwrite: Overwrite = False,
) -> None:
    """Label each read with its number of points, and with what earlier answers miss.

    Example: mudkit pipeline label_reads traces/cars --out labels
    """
    options = {"reads": reads, "where": where, "dates": dates, "overwrite": overwrite}
    _run("label_reads", trace, out, horizon_s=horizon_s, **options)


@app.command("label_writes")
def label_writes(
    trace: Trace,
    out: Out,
    reads: Reads = None,
    where: Where = None,
    dates: Dates = None,
    overwrite: Overwrite = False,
) -> None:
    """Find for each position the first read of another device that has it.

    Example: mudkit pipeline label_writes traces/cars --out labels
    """
    _run("label_writes", trace, out, reads=reads, where=where, dates=dates, overwrite=overwrite)


@app.command("propagation")
def propagation(
    trace: Trace,
    out: Out,
    zoom: Zooms = [14],  # noqa: B006 - typer copies it
    interval_s: Annotated[int, typer.Option(help="Maximum time that a message is held, in seconds.")] = 300,
    threshold: Annotated[
        list[int],
        typer.Option(help="Messages in an aggregate, 1 for no aggregation; may be repeated."),
    ] = [1, 20, 50],  # noqa: B006 - typer copies it
    message_bytes: Annotated[int, typer.Option(help="Size of a message, in bytes.")] = 400,
    aggregate_bytes: Annotated[int, typer.Option(help="Size of an aggregate, in bytes.")] = 400,
    where: Where = None,
    dates: Dates = None,
    overwrite: Overwrite = False,
) -> None:
    """Count messages and bytes with and without aggregates, by cell and interval.

    Example: mudkit pipeline propagation traces/cars --out joined --threshold 20
    """
    _run(
        "propagation",
        trace,
        out,
        zooms=zoom,
        interval_s=interval_s,
        thresholds=threshold,
        message_bytes=message_bytes,
        aggregate_bytes=aggregate_bytes,
        where=where,
        dates=dates,
        overwrite=overwrite,
    )


RadiusKm = Annotated[
    float | None, typer.Option(help="Distance within which a device stands, in km; by default 0.05.")
]
MinStopS = Annotated[
    float | None, typer.Option(help="Minimum duration of a stop, in seconds; by default 300.")
]


@app.command("stops")
def stops(
    trace: Trace,
    out: Out,
    radius_km: RadiusKm = None,
    min_stop_s: MinStopS = None,
    max_gap_s: Annotated[
        float | None,
        typer.Option(help="Longest time between two positions of a stop, in seconds; by default 1800."),
    ] = None,
    where: Where = None,
    overwrite: Overwrite = False,
) -> None:
    """List the stops of devices.

    Example: mudkit pipeline stops traces/cars --out stops --min-stop-s 600
    """
    limits = {"radius_km": radius_km, "min_stop_s": min_stop_s, "max_gap_s": max_gap_s}
    _run("stops", trace, out, where=where, overwrite=overwrite, **_given(limits))


@app.command("trips")
def trips(
    trace: Trace,
    out: Out,
    radius_km: RadiusKm = None,
    min_stop_s: MinStopS = None,
    max_gap_s: Annotated[
        float | None,
        typer.Option(help="Longest time between two positions of a trip, in seconds; by default 1800."),
    ] = None,
    min_km: Annotated[
        float | None, typer.Option(help="Length below which it is no trip, in km; by default 0.5.")
    ] = None,
    where: Where = None,
    overwrite: Overwrite = False,
) -> None:
    """List the trips of devices between their stops.

    Example: mudkit pipeline trips traces/cars --out trips --min-km 1
    """
    limits = {"radius_km": radius_km, "min_stop_s": min_stop_s, "max_gap_s": max_gap_s, "min_km": min_km}
    _run("trips", trace, out, where=where, overwrite=overwrite, **_given(limits))


@app.command("speeds")
def speeds(
    trace: Trace,
    out: Out,
    max_gap_s: Annotated[
        float | None,
        typer.Option(help="Longest time between the two positions, in seconds; by default 600."),
    ] = None,
    where: Where = None,
    overwrite: Overwrite = False,
) -> None:
    """List the speeds of devices between consecutive positions.

    Example: mudkit pipeline speeds traces/cars --out speeds
    """
    _run("speeds", trace, out, where=where, overwrite=overwrite, **_given({"max_gap_s": max_gap_s}))


@app.command("join")
def join(
    trace: Trace,
    out: Out,
    areas: Annotated[
        str, typer.Option(metavar="PATH", help="GeoJSON file of areas, such as districts, or its address.")
    ],
    name: Annotated[
        str | None,
        typer.Option(help="Property of the areas that names them; by default their id, or their number."),
    ] = None,
    where: Where = None,
    dates: Dates = None,
    overwrite: Overwrite = False,
) -> None:
    """Join positions with the areas that they lie in.

    Example: mudkit pipeline join traces/cars --out by_district --areas districts.geojson
    """
    from mudkit.trace.areas import read_areas

    read_areas(areas, name)  # fail before Spark starts if these are no areas
    _run("join", trace, out, areas=areas, name=name, where=where, dates=dates, overwrite=overwrite)


def _given(limits: Mapping[str, float | None]) -> dict[str, float]:
    """Return the limits that are given."""
    return {name: limit for name, limit in limits.items() if limit is not None}


def _run(job: str, trace: str, out: str, **settings: Any) -> None:
    """Run a job on a trace folder and write its result; a stopped job resumes."""
    from mudkit.trace import read_manifest

    read_manifest(trace)  # fail before Spark starts if it is not a trace
    from mudkit import pipeline

    with _spark(trace) as spark:
        _print(pipeline.run_job(spark, job, trace, out, **settings))


def _print(report: Any) -> None:
    """Print a job's report, and on the error stream how many partitions existed already."""
    if report.parts_reused:
        typer.echo(f"{report.parts_reused} of {report.parts} partitions existed already", err=True)
    typer.echo(str(report))


@contextmanager
def _spark(path: str) -> Iterator[Any]:
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


def _size_bytes(path: str) -> int:
    """Return the size of a file, or of all files in a folder."""
    at = existing(path, "trace")
    return sum(sizes_below(at).values()) if is_folder(at) else size_bytes(at) or 0

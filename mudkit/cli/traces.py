"""``mudkit trace``: load, generate and summarise traces."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

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
    print_table,
)
from mudkit.errors import TraceContentError
from mudkit.files import existing, place, refuse_existing

if TYPE_CHECKING:
    from mudkit.trace import Loaded

app = typer.Typer(help="Load, generate and summarise traces.", no_args_is_help=True)


@app.command("load")
def trace_load(
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
    where: Where = None,
    rejected: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="CSV file to create, of the rows set aside: file, row, line, reason, raw."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Load a file into memory and write it as a trace folder.

    Example: mudkit trace load cabs.csv --out traces/cabs --column device=taxi
    """
    from mudkit import trace
    from mudkit.trace.folder import OUTPUT_NAMES
    from mudkit.trace.loaded import refuse_other_file, write_rejected

    options = trace.Options(
        format, table, tz, time_unit, mapping(column), rule, box_km, window_s, device, header
    )
    at = place(out, "output")
    refuse_existing(at, OUTPUT_NAMES if overwrite else None)
    if rejected is not None:
        refuse_other_file(place(rejected), overwrite=overwrite)
    loaded = _chosen(trace.load(path, **vars(options)), where)
    loaded.save(at, overwrite=overwrite)
    if rejected is not None:
        origin = existing(path, "trace")
        source = None if trace.is_trace(origin) else options.plan(origin).source
        write_rejected(loaded.rejected, source, rejected, overwrite=overwrite)
    print_table(loaded.summary())
    typer.echo(f"written to {out}")


@app.command("generate")
def trace_generate(
    out: Out,
    cars: Annotated[int, typer.Option(help="Number of cars.")] = 600,
    days: Annotated[int, typer.Option(help="Number of days.")] = 30,
    seed: Annotated[int, typer.Option(help="Same seed, same trace.")] = 7,
    towns: Annotated[int, typer.Option(help="Number of towns.")] = 1,
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


@app.command("profile")
def trace_profile(
    path: Source,
    format: Format = "auto",  # noqa: A002
    table: Table = "positions",
    column: Columns = None,
    tz: Zone = "UTC",
    time_unit: TimeUnit = "auto",
    rule: Rule = None,
    device: Device = None,
    header: Header = True,
    where: Where = None,
) -> None:
    """Summarise a trace; `mudkit report trace_profile` shows more.

    Example: mudkit trace profile data/sample/positions.csv.gz
    """
    from mudkit import trace

    options = trace.Options(format, table, tz, time_unit, mapping(column), rule, device=device, header=header)
    loaded = trace.load(path, **vars(options))
    print_table(_chosen(loaded, where).summary())


def _chosen(loaded: Loaded, where: str | None) -> Loaded:
    """Return the trace with the chosen positions; raise an error if none is left."""
    if where is None:
        return loaded
    chosen = loaded.where(where)
    if not len(chosen.positions):
        raise TraceContentError(
            "No position is left.",
            where=f"--where {where!r}",
            found=f"0 of {len(loaded.positions):,} positions",
            expected="at least one",
            remedy="check the predicate; `mudkit trace profile` without --where shows the trace"
            if len(loaded.positions)
            else "leave --where out: it selects positions, and these are reads",
        )
    return chosen

"""Arguments of several commands, and their output of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mudkit.errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd

Format = Annotated[
    str,
    typer.Option(
        help="Format of the file; auto recognises it: cabspotting, cabspotting-txt, geolife, t-drive, "
        "porto, gtfs-rt, gtfs-rt-pb, gowalla, foursquare, gpx, kml, tcx, nmea, takeout, geojson, json, "
        "geopackage, csv or parquet."
    ),
]
Table = Annotated[Literal["positions", "reads"], typer.Option(help="Kind of the rows: positions or reads.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="NAME=COLUMN, for instance device=vehicle_id; may be repeated. NAME is device, ts, date, lat, "
        "lon, speed_mps, occupied, box_km or window_s.",
    ),
]
Device = Annotated[str | None, typer.Option(help="The one device of all rows, whatever they name.")]
Header = Annotated[
    bool,
    typer.Option(
        "--header/--no-header",
        help="Whether a text table has a header; if not, --column device=1 is a place.",
    ),
]
Zone = Annotated[str, typer.Option(help="Time zone of times without one.")]
TimeUnit = Annotated[
    Literal["auto", "s", "ms", "us", "ns"],
    typer.Option(help="Unit of numeric times: s, ms, us or ns; auto recognises it."),
]
Rule = Annotated[
    str | None,
    typer.Option(
        help="Rule for reads: occupancy, trip_start(still_s=600), poisson(per_day=24) or none; by default "
        "occupancy if the file has fares, else trip_start after 600 s without movement."
    ),
]
BoxKm = Annotated[float | None, typer.Option(help="Side of a read's box in km; by default 20.")]
WindowS = Annotated[
    float | None, typer.Option(help="Time window of a read, in seconds; by default 7200 (2 h).")
]
Where = Annotated[
    str | None,
    typer.Option(
        help='Positions to keep: "hour(ts) < 9 AND within_km(point(lat, lon), point(37.8, -122.4), 5)". '
        "Reads are not filtered."
    ),
]
Source = Annotated[
    str,
    typer.Argument(metavar="PATH", help="A file, folder of files or trace folder, or its address."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]
Out = Annotated[str, typer.Option("--out", metavar="PATH", help="Folder to create, or its address.")]


def mapping(pairs: list[str] | None) -> dict[str, str]:
    """Parse pairs NAME=COLUMN."""
    names: dict[str, str] = {}
    for pair in pairs or []:
        name, separator, column = pair.partition("=")
        if not separator:
            raise ParameterError(
                "A column mapping needs two names.", where="--column", found=pair, expected="NAME=COLUMN"
            )
        if name in names:
            raise ParameterError(
                f"The column {name} is mapped twice.",
                where="--column",
                found=f"{name}={names[name]}, {pair}",
                expected="one COLUMN for each NAME",
                remedy="leave one of them out",
            )
        names[name] = column
    return names


def print_table(table: pd.DataFrame) -> None:
    """Print two columns without a header."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(show_header=False, box=None)
    for what, value in table.itertuples(index=False):
        grid.add_row(Text(str(what)), Text(str(value)))  # literally: [bold] in a file name is not markup
    Console().print(grid)

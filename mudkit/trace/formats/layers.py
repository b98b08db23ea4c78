"""Tables with points: GeoPackage, read by pyogrio, and GeoParquet."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mudkit.errors import TraceFormatError
from mudkit.files import Place
from mudkit.trace.formats.batch import Batch, library, unreadable
from mudkit.trace.formats.packed import on_disk
from mudkit.trace.formats.segments import Segment
from mudkit.trace.values import plain

_SQLITE = b"SQLite format 3\0"
_APPLICATION = slice(68, 72)  # SQLite's field application_id
_BATCH_ROWS = 1 << 18


def is_parquet(head: bytes) -> bool:
    """Return whether a file begins like Parquet."""
    return head.startswith(b"PAR1")


def parquet_names(file: Place) -> list[str]:
    """Return the names of the columns of a Parquet file, and ``lat`` and ``lon`` of GeoParquet."""
    try:
        with on_disk(file) as place:
            schema = pq.read_schema(place)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, error) from error
    return _with_places(list(schema.names), _geometry(file, schema))


def read_parquet(file: Place, columns: dict[str, str], part: Segment | None = None) -> Iterator[Batch]:
    """Read a Parquet file, also GeoParquet with points, or some row groups.

    ``columns`` maps mudkit's names to the file's.
    """
    part = part or Segment(file)
    with on_disk(file) as place, pq.ParquetFile(place) as parquet:
        names = list(parquet.schema_arrow.names)
        geometry = _geometry(file, parquet.schema_arrow)
        selected = list(dict.fromkeys(name for name in columns.values() if name in names))
        if geometry is not None:
            selected = list(dict.fromkeys([*selected, geometry]))
        groups = list(range(parquet.num_row_groups))[part.begin : part.end]
        batches = parquet.iter_batches(batch_size=_BATCH_ROWS, columns=selected, row_groups=groups)
        yield from _numbered(part, batches, columns, geometry)


def is_geopackage(head: bytes) -> bool:
    """Return whether a file begins like SQLite with a GeoPackage in it."""
    return head.startswith(_SQLITE) and head[_APPLICATION] in (b"GPKG", b"GP10", b"GP11")


def layer_names(file: Place) -> list[str]:
    """Return the names of the columns of a GeoPackage's only layer, and ``lat`` and ``lon``."""
    with on_disk(file) as place, _pyogrio(file) as pyogrio:
        info = pyogrio.read_info(place, layer=_layer(file, place, pyogrio))
        return _with_places([str(name) for name in info["fields"]], "geometry")


def read_layer(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the points of a GeoPackage's only layer; ``columns`` maps mudkit's names to the file's."""
    with on_disk(file) as place, _pyogrio(file) as pyogrio:
        source = pyogrio.raw.open_arrow(
            place,
            layer=_layer(file, place, pyogrio),
            batch_size=_BATCH_ROWS,
            use_pyarrow=True,
        )
        with source as (meta, batches):
            _refuse_projected(file, str(meta["crs"] or "EPSG:4326"))
            yield from _numbered(Segment(file), batches, columns, meta["geometry_name"] or "wkb_geometry")


@contextmanager
def _pyogrio(file: Place) -> Iterator[ModuleType]:
    """Import pyogrio, and convert its errors; what it warns of shows in the rows."""
    pyogrio = library("pyogrio", file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield pyogrio
        except (RuntimeError, UnicodeDecodeError, pa.ArrowException) as error:
            raise unreadable(file, error) from error


def _layer(file: Place, place: Path, pyogrio: ModuleType) -> str:
    """Return the name of a GeoPackage's only layer; TraceFormatError if it has none or several."""
    layers = [str(name) for name, _ in pyogrio.list_layers(place)]
    if len(layers) != 1:
        raise TraceFormatError(
            f"{file.name} has {len(layers):,} layers.",
            where=str(file),
            found=", ".join(layers[:5]) or "no layer",
            expected="one layer, of points",
            remedy="export the layer with the positions to a file of its own",
        )
    return layers[0]


def _with_places(names: list[str], geometry: str | None) -> list[str]:
    """Return names of columns, with ``lat`` and ``lon`` if there is a geometry."""
    return list(dict.fromkeys([*names, "lat", "lon"])) if geometry is not None else names


def _geometry(file: Place, schema: pa.Schema) -> str | None:
    """Return the name of GeoParquet's main geometry; None for a table without, or with places of its own."""
    if {"lat", "lon"} <= set(schema.names):
        return None
    try:
        geo = json.loads((schema.metadata or {})[b"geo"])
        name = str(geo["primary_column"])
        described = geo["columns"][name]
        _refuse_projected(file, json.dumps(described.get("crs") or {"authority": "OGC", "code": "CRS84"}))
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError):
        return None
    return name if name in schema.names else None


def _refuse_projected(file: Place, crs: str) -> None:
    """Raise an error unless places are in degrees of WGS 84; ``crs`` is a name, WKT or PROJJSON."""
    if not re.search(r"\b(4326|CRS84)\b", crs[-400:]):
        raise TraceFormatError(
            f"The places of {file.name} are not in degrees of WGS 84.",
            where=str(file),
            found=crs[:100],
            expected="the reference system EPSG:4326 or OGC:CRS84",
            remedy="reproject the layer to EPSG:4326, for instance with ogr2ogr -t_srs EPSG:4326",
        )


def _numbered(
    part: Segment, batches: Iterator[pa.RecordBatch], columns: dict[str, str], geometry: str | None
) -> Iterator[Batch]:
    """Yield batches under mudkit's names, with the number of each row in the file."""
    done = part.rows_before or 0
    for batch in batches:
        values = dict(zip(batch.schema.names, batch.columns, strict=True))
        if geometry in values:
            lon, lat = _places(values[geometry])
            values = {"lat": pa.array(lat), "lon": pa.array(lon)} | values
        table = pa.table({name: plain(values[given]) for name, given in columns.items()})
        yield Batch(table, np.arange(done + 1, done + len(batch) + 1, dtype=np.int64), part.file.name)
        done += len(batch)


def _places(geometry: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return longitudes and latitudes of points (WKB, or a struct of x and y); NaN for other geometries."""
    if pa.types.is_struct(geometry.type):
        x, y = (pc.struct_field(geometry, name).cast(pa.float64()) for name in "xy")
        return x.to_numpy(zero_copy_only=False), y.to_numpy(zero_copy_only=False)
    import shapely

    shapes = shapely.from_wkb(geometry.cast(pa.binary()).to_numpy(zero_copy_only=False), on_invalid="ignore")
    return shapely.get_x(shapes), shapely.get_y(shapes)

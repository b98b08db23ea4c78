"""Trace in memory: positions, reads, rejected rows, and their origin; rejected rows as a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from mudkit.checks import check_arguments, of_kind
from mudkit.display import Displayed, View, first_rows
from mudkit.errors import TraceContentError
from mudkit.files import Place, PlaceLike, place, refuse_existing, staged_file
from mudkit.trace.folder import TraceWriter, select
from mudkit.trace.formats import Segment, Source, lines_of
from mudkit.trace.schema import FARES, epoch_us, rejected_by_reason
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.predicates import Predicate

_REJECTED_FILE: Final = "file,row,line,reason,raw"
"""Header of a file of rejected rows."""

_MAX_COUNTED: Final = 1_000_000
"""Rows up to which a display counts devices and finds the span."""


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Loaded(Displayed):
    """Trace in memory.

    Attributes
    ----------
    positions, reads, rejected : pyarrow.Table
        Tables with the schemas of :mod:`mudkit.trace.schema`; positions are ordered by device and time.
    source : dict
        Provenance: file and all options of loading; saved in ``trace.json``.
    fares : pyarrow.Table
        Whole fares of taxis, if the file says when one has a fare (:func:`mudkit.trace.movement.list_fares`):
        ``device, ts, fare_s, fare_km``. They are not saved, and not selected by :meth:`where`.
    """

    positions: pa.Table
    reads: pa.Table
    rejected: pa.Table
    source: dict[str, Any] = field(default_factory=dict)
    fares: pa.Table = field(default_factory=FARES.empty_table)

    def _view(self) -> View:
        table = self.positions if len(self.positions) else self.reads
        facts: dict[str, Any] = {
            "source": self.source.get("name"),
            "positions": len(self.positions),
            "reads": len(self.reads),
            "rows set aside": len(self.rejected),
            "files passed over": describe_passed_over(self.source) or None,
        }
        if 0 < len(table) <= _MAX_COUNTED:
            ends = pc.min_max(table["ts"])
            facts["devices"] = pc.count_distinct(table["device"]).as_py()
            facts["from"], facts["to"] = (ends[end].as_py() for end in ("min", "max"))
        reasons = self.rejected_by_reason() if len(self.rejected) <= _MAX_COUNTED else {}
        rows = first_rows(("set aside because", "rows"), reasons.items(), len(reasons))
        return View("Loaded", facts, [rows], ["summary() and profile() say more."])

    def rejected_by_reason(self) -> dict[str, int]:
        """Return the number of rejected rows by reason, most frequent first."""
        return rejected_by_reason(self.rejected)

    def where(self, positions: str | Predicate, reads: str | Predicate | None = None) -> Loaded:
        """Return a part of the trace.

        Parameters
        ----------
        positions : str or Predicate
            Which positions (:func:`mudkit.trace.folder.select`).
        reads : str or Predicate, optional
            Predicate of the reads to keep; by default all.

        Returns
        -------
        Loaded
            Kept part; its ``source`` lists the predicates.

        Raises
        ------
        PredicateError
            A predicate is invalid for its table's columns.

        Examples
        --------
        >>> morning = "hour(ts, 'America/Los_Angeles') BETWEEN 7 AND 9"
        >>> trace.where(morning, morning)  # doctest: +SKIP
        """
        kept = {"positions": positions} | ({} if reads is None else {"reads": reads})
        tables = {name: select(getattr(self, name), where) for name, where in kept.items()}
        selected = {name: where if isinstance(where, str) else repr(where) for name, where in kept.items()}
        return replace(self, **tables, source={**self.source, "where": selected})

    def summary(self) -> pd.DataFrame:
        """Return a summary of the trace: rows of ``what`` and ``value``, both text."""
        import pandas as pd  # loading it takes longer than loading all of mudkit

        table = self.positions if len(self.positions) else self.reads
        rows = [("source", str(self.source.get("name", "")))]
        rows += [("format", str(self.source.get("format", "")))]
        rows += [(name, f"{len(getattr(self, name)):,}") for name in ("positions", "reads", "rejected")]
        rows += [(f"rejected: {reason}", f"{count:,}") for reason, count in self.rejected_by_reason().items()]
        if passed_over := describe_passed_over(self.source):
            rows += [("files passed over", passed_over)]
        if "where" in self.source:
            chosen = self.source["where"]
            rows += [("positions where", str(chosen.get("positions", "all of them")))]
            rows += [("reads where", str(chosen.get("reads", "not filtered: all reads are kept")))]
        if len(table):
            device = table["device"].combine_chunks().dictionary_encode()
            per_device = np.bincount(device.indices.to_numpy(zero_copy_only=False))
            t_us = epoch_us(table["ts"])
            rows += [("devices", f"{len(per_device):,}")]
            if single := int(np.count_nonzero(per_device == 1)):
                rows += [("devices with one row", f"{single:,}")]
            rows += [
                ("first", str(np.datetime64(int(t_us.min()), "us").astype("datetime64[s]")) + " UTC"),
                ("last", str(np.datetime64(int(t_us.max()), "us").astype("datetime64[s]")) + " UTC"),
            ]
        if len(self.positions):
            codes = self.positions["device"].combine_chunks().dictionary_encode().indices
            same = np.diff(codes.to_numpy(zero_copy_only=False)) == 0
            gaps_s = np.diff(epoch_us(self.positions["ts"]))[same] / US_PER_S
            if len(gaps_s):
                rows += [("median interval", f"{np.median(gaps_s):g} s")]
        if len(self.reads):
            rows += [("origin of reads", ", ".join(sorted(set(self.reads["origin"].to_pylist()))))]
        return pd.DataFrame(rows, columns=["what", "value"])

    def save(self, path: PlaceLike, *, overwrite: bool = False) -> Place:
        """Write the trace as a folder that Spark and :func:`mudkit.trace.load` read, or to an address.

        Raises
        ------
        OutputExists, OutputProblem
            The folder exists, or cannot be written; nothing is left behind.
        """
        description = {**self.source, "rejected": self.rejected_by_reason()}
        with TraceWriter.open(path, description, overwrite=overwrite) as writer:
            for name in ("positions", "reads", "rejected"):
                writer.write(name, getattr(self, name))
        return place(path)


def table_of(
    positions: Loaded | pa.Table, needed: Sequence[str], *, places: tuple[str, str] = ("lat", "lon")
) -> pa.Table:
    """Return the positions of a trace, or a table that has the needed columns, of types that can be used.

    Raises
    ------
    ParameterError, TraceContentError
        It is neither; it lacks columns, or they are of other types.
    """
    of_kind(
        "positions",
        positions,
        Loaded,
        pa.Table,
        expected="what trace.load returns, or an Arrow table",
        remedy="a DataFrame of Spark is computed by the function of this name in mudkit.pipeline; "
        "one of pandas becomes a table by pyarrow.Table.from_pandas",
    )
    table = positions.positions if isinstance(positions, Loaded) else positions
    if missing := [name for name in needed if name not in table.column_names]:
        raise TraceContentError(
            "These are not positions: columns are missing.",
            found=", ".join(table.column_names),
            expected=", ".join(missing),
            remedy="rename the columns: table.rename_columns({'time': 'ts'})",
        )
    for name in needed:
        kind = _DEGREES if name in places else _KINDS.get(name)
        if kind is not None and not kind.fits(table.schema.field(name).type):
            raise TraceContentError(
                f"The column {name} is of another type.",
                where=name,
                found=str(table.schema.field(name).type),
                expected=kind.words,
                remedy=kind.remedy,
            )
    return table


class _Kind(NamedTuple):
    """Types that a column may have, in words, and what to do with others."""

    fits: Callable[[pa.DataType], bool]
    words: str
    remedy: str


_DEGREES: Final = _Kind(
    lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind),
    "degrees as numbers",
    "cast it: column.cast(pyarrow.float64())",
)
_KINDS: Final = {
    "ts": _Kind(
        lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
        "a timestamp with a time zone",
        "name the zone in which they were recorded: "
        "pyarrow.compute.assume_timezone(table['ts'], 'Europe/Bucharest')",
    ),
    "occupied": _Kind(pa.types.is_boolean, "truth values", "cast it: column.cast(pyarrow.bool_())"),
}


def places_of(
    table: pa.Table, lat: str = "lat", lon: str = "lon"
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return latitudes and longitudes of rows, and whether a place is possible: given, and on the Earth."""
    y, x = (
        np.asarray(pc.fill_null(table[name].cast(pa.float64()), np.nan).to_numpy(), np.float64)
        for name in (lat, lon)
    )
    return y, x, (np.abs(y) <= 90.0) & (np.abs(x) <= 180.0)


def describe_passed_over(source: Mapping[str, Any]) -> str:
    """Return the files of a folder that were not read, by suffix; nothing if all were."""
    counts: Mapping[str, int] = source.get("passed_over", {})
    return ", ".join(f"{n:,} {suffix or 'without a suffix'}" for suffix, n in counts.items())


def refuse_other_file(path: Place, *, overwrite: bool) -> None:
    """Raise an error if there is something at the place of a file of rejected rows.

    With ``overwrite``, another such file is allowed.
    """
    if overwrite and path.is_file():
        with path.open("rb") as file:
            if file.readline().replace(b'"', b"").strip() == _REJECTED_FILE.encode():
                return
    refuse_existing(path, None)


def write_rejected(
    rejected: pa.Table, source: Source | None, path: PlaceLike, *, overwrite: bool = False
) -> None:
    """Write rejected rows to a CSV file, by file and row: ``file, row, line, reason, raw``.

    Where rows are lines of text, ``line`` is the number of the line in its file, and ``raw`` is all of it.

    Parameters
    ----------
    rejected : pyarrow.Table
        Rows with the schema of ``rejected``.
    source : Source, optional
        Source of the rows; None if the files are unknown, as those of a trace folder.
    path : path-like
        File to create.
    overwrite : bool
        Whether to replace another file of rejected rows.

    Raises
    ------
    OutputExists, OutputProblem
        There is something else, or the file cannot be written; nothing is left behind.
    """
    at = place(path)
    refuse_other_file(at, overwrite=overwrite)
    rejected = rejected.sort_by([("source", "ascending"), ("row", "ascending")])
    names, first = np.unique(rejected["source"].to_numpy().astype(np.str_), return_index=True)
    line: list[int | None] = [None] * len(rejected)
    raw = rejected["raw"].to_pylist()
    ends = np.append(first, len(rejected))[1:]
    for name, begin, end in zip(names.tolist(), first, ends, strict=True):
        if source is None:
            break
        file = source.path / name if source.members else source.path
        dialect = next(source.batches([Segment(file)])).dialect
        places = {row: place for place, row in enumerate(rejected["row"][begin:end].to_pylist(), start=begin)}
        for row, number, text in lines_of(file, dialect, places) if dialect else ():
            line[places[row]], raw[places[row]] = number, text
    columns = {"file": rejected["source"], "row": rejected["row"], "line": pa.array(line, pa.int64())}
    with staged_file(at) as staging:
        pa_csv.write_csv(pa.table(columns | {"reason": rejected["reason"], "raw": pa.array(raw)}), staging)

"""Pairs of a read and an earlier answer that could serve it, with their labels, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning.density import WrittenPlaces
from mudkit.trace.schema import device_ids, epoch_us, read_ids
from mudkit.units import US_PER_S, distance_km

_OF_READ = ("device", "t_us", "lat", "lon", "points", "box_km", "window_s")
_OF_PAIR = ("missing", "completeness", "age_s", "distance_km")


@dataclass(frozen=True)
class Pairs:
    """Reads ordered by device and time, and the pairs (read, earlier answer) that the labels know.

    Reads have ``points`` in their answer; the pairs of read ``i`` are ``first[i]:first[i + 1]``, by earlier
    read. Pairs hold the numbers of both reads, their distance, and how complete the ``cached`` answer is.
    ``device`` numbers the devices of these reads; ``ids`` are the same for a device in other reads, too.
    ``names`` are those of the devices, in the order of their numbers; None: not known.
    """

    device: NDArray[np.int64]
    ids: NDArray[np.int64]
    t_us: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    points: NDArray[np.int64]
    box_km: NDArray[np.float64]
    window_s: NDArray[np.float64]
    first: NDArray[np.int64]
    read: NDArray[np.int64]
    cached: NDArray[np.int64]
    missing: NDArray[np.int64]
    completeness: NDArray[np.float64]
    age_s: NDArray[np.float64]
    distance_km: NDArray[np.float64]
    written: WrittenPlaces | None = None
    names: pa.Array | None = None

    @classmethod
    def of(cls, labels: Any, reads: Any, positions: Any = None) -> Pairs:
        """Join labels to reads, which must belong together; without positions, nothing written is known."""
        labels, reads = arrow(labels), arrow(reads)
        if "others" not in labels.column_names:
            raise TraceContentError(
                "These are labels of mudkit 0.2, which counted a device's own points as missing.",
                found=", ".join(labels.column_names),
                expected="read_id, cached_read_id, points, others, missing, completeness",
                remedy="label the reads again",
            )
        if "read_id" not in reads.column_names:
            reads = reads.append_column("read_id", pa.array(read_ids(reads)))
        reads = reads.sort_by([("device", "ascending"), ("ts", "ascending"), ("read_id", "ascending")])
        ids = np.asarray(reads["read_id"].to_numpy(), dtype=np.int64)
        if len(np.unique(ids)) < len(ids):
            raise TraceContentError(
                "Some reads have the same read_id.",
                found=f"{len(np.unique(ids)):,} ids of {len(ids):,} reads",
                expected="each read once",
                remedy="load the trace with mudkit.trace.load or pipeline.ingest, which set such rows aside",
            )
        cached_ids = labels["cached_read_id"].combine_chunks()
        whole = labels.filter(cached_ids.is_valid())
        by_id = np.argsort(ids)

        def number(column: str, rows: pa.Table) -> NDArray[np.int64]:
            numbers = np.asarray(rows[column].to_numpy(), dtype=np.int64)
            at = np.minimum(np.searchsorted(ids, numbers, sorter=by_id), max(len(ids) - 1, 0))
            if len(numbers) and (not len(ids) or not np.array_equal(ids[by_id[at]], numbers)):
                raise other_reads(len(numbers), len(ids))
            return by_id[at] if len(numbers) else numbers

        if len(labels) - len(whole) != len(ids):
            number("read_id", labels)
            raise TraceContentError(
                "Some reads have no label.",
                found=f"{len(labels) - len(whole):,} labelled reads of {len(ids):,}",
                expected="a label for each read",
                remedy="label the reads again",
            )
        alone = labels.filter(cached_ids.is_null())
        points = np.zeros(len(ids), dtype=np.int64)
        points[number("read_id", alone)] = alone["points"].to_numpy()
        read, cached = number("read_id", whole), number("cached_read_id", whole)
        order = np.lexsort((cached, read))
        read, cached = read[order], cached[order]
        t_us = epoch_us(reads["ts"])
        lat, lon = reads["lat"].to_numpy(), reads["lon"].to_numpy()
        names = reads["device"].combine_chunks().dictionary_encode()
        written = None
        if positions is not None:
            numbers = {name: number for number, name in enumerate(names.dictionary.to_pylist())}
            written = WrittenPlaces.of(positions, numbers)
        return cls(
            device=np.asarray(names.indices.to_numpy(zero_copy_only=False), dtype=np.int64),
            ids=device_ids(names.dictionary.to_pylist()),
            t_us=t_us,
            lat=lat,
            lon=lon,
            points=points,
            box_km=np.asarray(reads["box_km"].to_numpy(), dtype=np.float64),
            window_s=np.asarray(reads["window_s"].to_numpy(), dtype=np.float64),
            first=np.searchsorted(read, np.arange(len(ids) + 1)),
            read=read,
            cached=cached,
            missing=np.asarray(whole["missing"].to_numpy(), dtype=np.int64)[order],
            completeness=np.asarray(whole["completeness"].to_numpy(), dtype=np.float64)[order],
            age_s=(t_us[read] - t_us[cached]) / US_PER_S,
            distance_km=distance_km(lat[read], lon[read], lat[cached], lon[cached]),
            written=written,
            names=names.dictionary,
        )

    def since(self, t_us: int) -> Pairs:
        """Return the reads from a moment on, with nothing cached before it."""
        return self._of(self.t_us >= t_us, self.written)

    def before_day(self, midnight_us: int) -> Pairs:
        """Return the reads and writes before a day, which begins at a midnight (UTC)."""
        known = self.written
        return self._of(
            self.t_us < midnight_us, known and known.take(known.day < midnight_us // (86_400 * US_PER_S))
        )

    def of_devices(self, devices: NDArray[np.int64]) -> Pairs:
        """Return the reads of these devices, and the writes of these and of devices that never read."""
        known = self.written
        kept = known and known.take(np.isin(known.device, devices) | (known.device < 0))
        return self._of(np.isin(self.device, devices), kept)

    def of_reads(self, reads: NDArray[np.bool_]) -> Pairs:
        """Return the pairs of the reads for which ``reads`` is True, with all that was written."""
        return self._of(reads, self.written)

    def _of(self, reads: NDArray[np.bool_], written: WrittenPlaces | None) -> Pairs:
        """Return some reads, the pairs of which both reads are among them, and what was written."""
        number = np.cumsum(reads) - 1
        rows = reads[self.read] & reads[self.cached]
        read = number[self.read[rows]]
        of_read = {name: getattr(self, name)[reads] for name in _OF_READ}
        of_pair = {name: getattr(self, name)[rows] for name in _OF_PAIR}
        first, cached = np.searchsorted(read, np.arange(int(reads.sum()) + 1)), number[self.cached[rows]]
        return Pairs(
            ids=self.ids,
            names=self.names,
            first=first,
            read=read,
            cached=cached,
            written=written,
            **of_read,
            **of_pair,
        )

    def are_stale(self, completeness: float | None) -> NDArray[np.bool_]:
        """Return which answers are stale: below a completeness; None: if they lack a point (Mobius 7.3)."""
        return self.missing >= 1 if completeness is None else self.completeness < completeness

    def devices(self) -> list[slice]:
        """Return the reads of each device, as slices."""
        edges = [0, *(np.flatnonzero(np.diff(self.device)) + 1).tolist(), len(self.device)]
        return [slice(a, b) for a, b in pairwise(edges) if b > a]


def other_reads(labels: int, reads: int) -> TraceContentError:
    """Return the error for labels that are of other reads."""
    return TraceContentError(
        "These labels are of other reads.",
        found=f"labels of {labels:,} rows, {reads:,} reads",
        expected="labels that label_reads made of these reads",
        remedy="label the reads again",
    )


def check_tables(**tables: Any) -> None:
    """Raise ParameterError unless tables, by the names of parameters, are of Arrow or of Spark."""
    for name, table in tables.items():
        if not isinstance(table, pa.Table) and not hasattr(table, "toArrow"):
            raise ParameterError(
                "Policies are learnt from Arrow tables, or from DataFrames of Spark.",
                where=name,
                found=f"{type(table).__module__}.{type(table).__name__}",
                expected="a pyarrow.Table or a pyspark.sql.DataFrame",
                remedy="pa.Table.from_pandas(frame) converts a pandas DataFrame",
            )


def arrow(table: Any) -> pa.Table:
    """Return an Arrow table unchanged, a Spark DataFrame as Arrow."""
    return table if isinstance(table, pa.Table) else table.toArrow()

"""Rows of a source in runs that are sorted by device, in memory or on disk.

Cleaning a row needs the other rows of its device. Rows are added in the order of the files, and read back
device by device, in the order of arrival.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.trace.recordings import stable_order


@dataclass(frozen=True)
class _Run:
    """Rows sorted by device, and the first row of each device."""

    table: pa.Table
    devices: list[str]
    offsets: NDArray[np.int64]

    def rows(self, first: str, last: str) -> pa.Table:
        """Return the rows of all devices between two names, inclusive."""
        begin = int(self.offsets[bisect_left(self.devices, first)])
        return self.table.slice(begin, int(self.offsets[bisect_right(self.devices, last)]) - begin)


class Runs:
    """Sorted runs of rows with a column ``device``, which is read back as a dictionary.

    Parameters
    ----------
    folder : Path or None
        Folder of the runs' files, which are mapped to memory. None: runs stay in memory.
    name : str
        Prefix of the files.
    run_rows : int
        Rows of a run. While they are sorted, memory holds twice that many.

    Attributes
    ----------
    counts : Counter
        Number of rows of each device in the runs.
    """

    def __init__(self, folder: Path | None, name: str, run_rows: int) -> None:
        self._folder = folder
        self._name = name
        self._run_rows = run_rows
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._runs: list[_Run] = []
        self._schema = pa.schema([])
        self.counts: Counter[str] = Counter()

    def add(self, table: pa.Table) -> None:
        """Add rows; columns of other tables may be missing."""
        for first in range(0, len(table), self._run_rows):
            piece = table.slice(first, self._run_rows)
            self._pending.append(piece)
            self._pending_rows += len(piece)
            if self._pending_rows >= self._run_rows:
                self.finish()
        if not len(table):
            self._schema = table.schema

    def finish(self) -> None:
        """Sort the rows that are in no run yet into one."""
        if not self._pending:
            return
        table = pa.concat_tables(self._pending, promote_options="default").unify_dictionaries()
        self._pending, self._pending_rows = [], 0
        names = table["device"].combine_chunks().dictionary_encode()
        order = pc.sort_indices(names.dictionary).to_numpy()
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        codes = rank[names.indices.to_numpy(zero_copy_only=False)]
        device = pa.DictionaryArray.from_arrays(codes, names.dictionary.take(pa.array(order)))
        table = table.set_column(table.column_names.index("device"), "device", device)
        if (np.diff(codes) < 0).any():
            table = table.take(pa.array(stable_order(codes)))
        rows_of = np.bincount(codes, minlength=len(order))
        devices = device.dictionary.to_pylist()
        counts = dict(zip(devices, rows_of.tolist(), strict=True))
        self.counts.update({name: rows for name, rows in counts.items() if rows})
        kept = self._kept(table.combine_chunks())
        self._schema = kept.schema
        self._runs.append(_Run(kept, devices, np.append(0, np.cumsum(rows_of))))

    def _kept(self, table: pa.Table) -> pa.Table:
        """Return the rows of a run where they stay."""
        if self._folder is None:
            return table
        file = self._folder / f"{self._name}-{len(self._runs):05d}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return pa.ipc.open_file(pa.memory_map(str(file))).read_all()

    def rows(self, first: str, last: str) -> pa.Table:
        """Return the rows of all devices between two names, inclusive, run by run."""
        pieces = [piece for run in self._runs if len(piece := run.rows(first, last))]
        if not pieces:
            return self._schema.empty_table()
        return pa.concat_tables(pieces, promote_options="default").unify_dictionaries()

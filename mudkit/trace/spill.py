"""Write rows to disk as they come, and read them back device by device."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["Spill"]


@dataclass(frozen=True)
class _Run:
    """A file of rows sorted by device, mapped into memory; where each device's rows begin."""

    table: pa.Table
    devices: list[str]
    offsets: NDArray[np.int64]

    def rows(self, first: str, last: str) -> pa.Table:
        begin = int(self.offsets[bisect_left(self.devices, first)])
        return self.table.slice(begin, int(self.offsets[bisect_right(self.devices, last)]) - begin)


class Spill:
    """Sorted runs on disk: rows go in in any order and come back by device, each device's as they came.

    In memory are at most one run, while it is sorted, and the names of the devices of each run.

    Parameters
    ----------
    folder : Path
        The folder of the runs; they stay until somebody removes it.
    name : str
        The beginning of the names of their files.
    run_rows : int
        The number of rows in a run.

    Attributes
    ----------
    counts : Counter
        The number of rows of each device that are on disk.
    """

    def __init__(self, folder: Path, name: str, run_rows: int) -> None:
        self._folder = folder
        self._name = name
        self._run_rows = run_rows
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._runs: list[_Run] = []
        self._schema = pa.schema([])
        self.counts: Counter[str] = Counter()

    def add(self, table: pa.Table) -> None:
        """Set rows down.

        Parameters
        ----------
        table : pyarrow.Table
            With a column ``device``; columns that other tables have may be missing.

        Raises
        ------
        OSError
            The disk is full, or the like.
        """
        for first in range(0, len(table), self._run_rows):
            piece = table.slice(first, self._run_rows)
            self._pending.append(piece)
            self._pending_rows += len(piece)
            if self._pending_rows >= self._run_rows:
                self.finish()
        if not len(table):
            self._schema = table.schema

    def finish(self) -> None:
        """Write what is not on disk yet.

        Raises
        ------
        OSError
        """
        if not self._pending:
            return
        table = pa.concat_tables(self._pending, promote_options="default").unify_dictionaries()
        self._pending, self._pending_rows = [], 0
        names = table["device"].combine_chunks().dictionary_encode()
        order = pc.sort_indices(names.dictionary).to_numpy()
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        codes = rank[names.indices.to_numpy(zero_copy_only=False)]
        rows_of = np.bincount(codes, minlength=len(order))
        devices = names.dictionary.take(pa.array(order)).to_pylist()
        self.counts.update(dict(zip(devices, rows_of.tolist(), strict=True)))
        file = self._folder / f"{self._name}-{len(self._runs):05d}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.take(pa.array(np.argsort(codes, kind="stable"))).combine_chunks())
        mapped = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
        self._schema = mapped.schema
        self._runs.append(_Run(mapped, devices, np.append(0, np.cumsum(rows_of))))

    def rows(self, first: str, last: str) -> pa.Table:
        """Take back the rows of all devices from one name to another, both included, run by run."""
        pieces = [piece for run in self._runs if len(piece := run.rows(first, last))]
        if not pieces:
            return self._schema.empty_table()
        return pa.concat_tables(pieces, promote_options="default").unify_dictionaries()

"""A file or folder of a known format, and what reads it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from mudkit.trace.formats.batch import Batch
from mudkit.trace.formats.delimited import read_delimited, read_parquet
from mudkit.trace.formats.gpx import read_gpx
from mudkit.trace.formats.headerless import read_cabspotting_txt, read_gowalla, read_plt
from mudkit.trace.formats.problems import unreadable

__all__ = ["FIXED", "FORMATS", "GZIP_FACTOR", "READS_ONLY", "Reader", "Source"]

Reader: TypeAlias = Callable[[Path, dict[str, str]], Iterator[Batch]]

FORMATS: dict[str, Reader] = {
    "cabspotting": read_delimited,
    "cabspotting-txt": read_cabspotting_txt,
    "geolife": read_plt,
    "gtfs-rt": read_delimited,
    "gowalla": read_gowalla,
    "gpx": read_gpx,
    "csv": read_delimited,
    "parquet": read_parquet,
}
"""Formats by name, each with the function that reads one file of it."""

FIXED = frozenset(("cabspotting-txt", "geolife", "gowalla", "gpx"))
"""Formats whose columns are what they are, without names in the file."""

GZIP_FACTOR = 5
"""How many bytes of text of this kind a packed byte holds, about."""

READS_ONLY = frozenset(("gowalla",))
"""Formats whose rows are reads, never positions."""


@dataclass(frozen=True)
class Source:
    """A file or folder of a known format.

    Attributes
    ----------
    path : Path
        The file, or the folder of files.
    format : str
        A key of :data:`FORMATS`.
    columns : dict
        mudkit's column names to the file's; empty where the format fixes them.
    members : tuple of str
        Of a folder, the paths of its files in it, in order; empty for a file.
    """

    path: Path
    format: str
    columns: dict[str, str]
    members: tuple[str, ...] = ()

    @property
    def has_occupancy(self) -> bool:
        """Whether rows say when a taxi has a fare."""
        return self.format == "cabspotting-txt" or "occupied" in self.columns

    @property
    def holds_reads(self) -> bool:
        """Whether rows can only be reads."""
        return self.format in READS_ONLY

    def files(self) -> list[Path]:
        """List the files that hold the rows, in a fixed order."""
        return [self.path / name for name in self.members] or [self.path]

    def batches(self, files: list[Path] | None = None) -> Iterator[Batch]:
        """Read all files, or some of them, in pieces.

        Raises
        ------
        TraceFormatError
            A file is cut short, or its content is not what its header says.
        """
        for file in files or self.files():
            name = file.relative_to(self.path).as_posix() if self.members else file.name
            try:
                for batch in FORMATS[self.format](file, self.columns):
                    yield replace(batch, source=name)
            except (pa.ArrowException, UnicodeDecodeError, EOFError, OSError, KeyError, zlib.error) as error:
                raise unreadable(file, error) from error

"""A batch is a piece of a file: its columns as they came, and the lines that could not be split into them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Batch", "Malformed"]


@dataclass(frozen=True)
class Malformed:
    """A line that has not as many fields as the header."""

    row: int
    raw: str


@dataclass(frozen=True)
class Batch:
    """Columns as they came, under mudkit's names, with the number of each row in its file.

    Attributes
    ----------
    columns : pyarrow.Table
        ``device, ts, lat, lon``, what else the file says under mudkit's names, and whatever a rejected row
        should show besides.
    rows : ndarray of int64, shape (rows,)
        The number of each row in its file, from 1.
    source : str
        The name of the file; in a folder, its path there.
    malformed : list of Malformed
        Lines that have not as many fields as the header.
    """

    columns: pa.Table
    rows: NDArray[np.int64]
    source: str
    malformed: list[Malformed] = field(default_factory=list)

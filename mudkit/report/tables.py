"""Tables in a report: kept as files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["save_table"]

Table = TypeVar("Table", "pd.DataFrame", pa.Table)


def save_table(table: Table, name: str, folder: Path | None) -> Table:
    """Write a figure's or table's data as ``<name>.parquet`` and ``<name>.csv``, and return it.

    Parameters
    ----------
    table : pandas.DataFrame or pyarrow.Table
    name : str
        The name of the files, without suffix.
    folder : Path or None
        The folder in which it is written. None: the notebook is open in JupyterLab, and nothing is written.
    """
    if folder is not None:
        arrow = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
        pq.write_table(arrow, folder / f"{name}.parquet")
        pa_csv.write_csv(arrow, folder / f"{name}.csv")
    return table

"""Tables in a report: kept as files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["blank_unbounded", "save_table"]

_OF_A_BOUND: Final = (
    "policy",
    "writes",
    "reads",
    "sent_share",
    "stale_share",
    "message_share",
    "point_share",
    "missed_share",
)
"""Measures that a bound bounds, and those that it is given; a policy may exceed it in all others."""

_GIVEN: Final = ("stale_share", "missed_share")
"""Limits that a bound keeps; they are given, not measured."""

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


def blank_unbounded(table: pd.DataFrame) -> pd.DataFrame:
    """Blank the measures of bounds that they do not bound and are not given.

    The fewest queries at a share of stale answers are no bound on completeness or cost: a policy may
    be better in these. Values that a bound is given have no interval.

    Parameters
    ----------
    table : pandas.DataFrame
        As ``learning.evaluate_reads`` or ``learning.evaluate_writes`` gives it.
    """
    shown = table.copy()
    is_bound = shown["policy"].str.startswith("bound")
    for name in shown.columns:
        measure = name.removesuffix("_low").removesuffix("_high")
        is_bounded = measure in _OF_A_BOUND and (name == measure or measure not in _GIVEN)
        if not is_bounded:
            shown.loc[is_bound, name] = float("nan")
    return shown

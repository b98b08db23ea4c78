"""Tables in a report: shown with readable numbers, and kept as files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

__all__ = ["bounded", "keep", "show"]

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
"""What a bound is a bound on, and what it is given; in all else a policy may do better."""

Table = TypeVar("Table", "pd.DataFrame", pa.Table)


def keep(table: Table, name: str, folder: Path | None) -> Table:
    """Write a figure's or table's data as ``<name>.parquet``, and hand it on.

    Parameters
    ----------
    table : pandas.DataFrame or pyarrow.Table
    name : str
        The name of the file, without its suffix.
    folder : Path or None
        The folder in which it is written. None: the notebook is open in JupyterLab, and nothing is written.
    """
    if folder is not None:
        arrow = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
        pq.write_table(arrow, folder / f"{name}.parquet")
    return table


def bounded(table: pd.DataFrame) -> pd.DataFrame:
    """Leave to the rows of bounds the measures that they bound, and what they are given.

    The fewest queries with so many stale answers are no bound on completeness or cost, which a policy may
    have better.

    Parameters
    ----------
    table : pandas.DataFrame
        As ``learning.evaluate_reads`` or ``learning.evaluate_writes`` gives it.
    """
    shown = table.copy()
    is_bound = shown["policy"].str.startswith("bound")
    for name in shown.columns:
        measure = name.removesuffix("_low").removesuffix("_high")
        if measure not in _OF_A_BOUND:
            shown.loc[is_bound, name] = float("nan")
    return shown


def show(table: pd.DataFrame) -> Styler:
    """Show a table: numbers with separators and six digits that count, shares in percent, no index.

    A measure with columns ``…_low`` and ``…_high`` shows its interval behind the value.
    """
    shown = table.copy()
    for name in [n for n in table.columns if f"{n}_low" in table.columns]:
        scale, sign = (100, " %") if "share" in name or name == "completeness" else (1, "")
        shown[name] = [
            "–"
            if value != value
            else f"{scale * value:.3g}{sign}"
            + (f" ({scale * low:.3g}–{scale * high:.3g})" if low == low else "")
            for value, low, high in zip(table[name], table[f"{name}_low"], table[f"{name}_high"], strict=True)
        ]
        shown = shown.drop(columns=[f"{name}_low", f"{name}_high"])
    shown.columns = [str(name).replace("_", " ") for name in shown.columns]
    for name in [n for n in shown.columns if shown[n].dtype.kind == "M"]:
        if (shown[name] == shown[name].dt.normalize()).all():
            shown[name] = shown[name].dt.strftime("%Y-%m-%d")
    formats = {"i": "{:,}", "u": "{:,}", "f": "{:,.6g}"}
    kinds = {name: shown[name].dtype.kind for name in shown.columns}
    written: dict[Any, Any] = {name: formats[kind] for name, kind in kinds.items() if kind in formats}
    return shown.style.format(written, na_rep="–").hide(axis="index")

"""Sentences of a report, computed from its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["caching", "days"]


def days(table: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Say how long the trace is, how dense, and which days lack reads.

    Parameters
    ----------
    table : pandas.DataFrame
        Rows a day, as ``pipeline.rows_by_time`` gives them.
    rows : pandas.DataFrame
        ``source, what, rows``, as ``pipeline.open_trace`` gives them.
    """
    positions, reads = int(table["positions"].sum()), int(table["reads"].sum())
    aside = int(rows.loc[rows["what"].str.startswith("rejected"), "rows"].sum())
    came = int(rows.loc[~rows["what"].str.startswith("reads ("), "rows"].sum())
    first, last = (f"{day:%d %B %Y}" for day in (table["start"].iloc[0], table["start"].iloc[-1]))
    text = (
        f"**{positions:,} positions** and **{reads:,} reads** on {len(table)} days, {first} to {last}; "
        f"{aside:,} rows were set aside ({aside / max(came, 1):.2%})."
    )
    empty = [f"{day:%d %B}" for day in table.loc[table["reads"] == 0, "start"]]
    if empty:
        text += f" **No reads on {len(empty)} of these days**: {', '.join(empty[:5])}"
        text += " …" if len(empty) > 5 else "."
    return text


def caching(table: pd.DataFrame, stale: str) -> str:
    """Say what the fixed rule saves and what the bound leaves to win.

    Parameters
    ----------
    table : pandas.DataFrame
        As ``learning.evaluate_reads`` gives it: the fixed rule second, the bound third.
    stale : str
        When an answer counts as stale, in words.
    """
    rule, bound = table.iloc[1], table.iloc[2]
    gap = 100 * (rule["sent_share"] - bound["sent_share"])
    return (
        f"An answer is stale when {stale}. The rule sends {rule['sent_share']:.1%} of the reads and "
        f"answers {rule['stale_share']:.1%} stale. With no more stale answers the bound sends "
        f"{bound['sent_share']:.1%}: **{gap:.1f} points are left to win**"
        + (", so on this trace no policy can do much better than the rule." if gap < 5 else ".")
    )

"""Sentences of a report, computed from its tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mudkit import words

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.sources.outages import Outages
    from mudkit.systems.lasthop.study.scenario import Drawn
    from mudkit.systems.lasthop.study.sizing import Sizing

__all__ = ["all_stale", "caching", "days", "links", "logs", "sizing"]

_NOTHING: Final = 1e-9  # a share that is none, but for rounding


def days(table: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Say how long the trace is, how dense, and which days lack reads.

    Parameters
    ----------
    table : pandas.DataFrame
        The number of rows of each day, as ``pipeline.rows_by_time`` gives them.
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
        f"answers {rule['stale_share']:.1%} stale. {all_stale(rule)}With no more stale answers the bound "
        f"sends {bound['sent_share']:.1%}: **{gap:.1f} percentage points are left to win**"
        + (", so on this trace no policy can do much better than the rule." if gap < 5 else ".")
    )


def all_stale(rule: pd.Series) -> str:
    """Say so where a rule answers nothing itself, or nothing that is not stale; else say nothing.

    Parameters
    ----------
    rule : pandas.Series
        A row of what ``learning.evaluate_reads`` gives.
    """
    local = 1 - rule["sent_share"]
    if local < _NOTHING:
        return "**The rule answers nothing locally.** "
    if rule["stale_share"] > local - _NOTHING:
        return (
            "**Every answer that the rule gives locally is stale**: it saves queries and nothing else. Look "
            "at a nearer and younger rule (`rule_km`, `rule_minutes`), or a lower `completeness`. "
        )
    return ""


def logs(drawn: Drawn, most: int) -> str:
    """Say what logs of arrivals and reads hold, and whether more comes than is read.

    Parameters
    ----------
    drawn : Drawn
    most : int
        The largest number of messages that are read at a time.
    """
    arrivals, reads = len(drawn.arrivals_us), len(drawn.reads_us)
    end_us = max(int(drawn.arrivals_us[-1]), int(drawn.reads_us[-1]))
    days = max(end_us / 86_400e6, 1e-9)
    expires = drawn.expires_us < 1 << 62
    lasts_us = (drawn.expires_us - drawn.arrivals_us)[expires]
    text = (
        f"**{arrivals:,} messages** and **{reads:,} reads** in {days:.1f} days: {arrivals / days:.3g} "
        f"messages and {reads / days:.3g} reads a day. "
    )
    if len(lasts_us):
        text += (
            f"{expires.mean():.0%} of the messages expire, half of these within "
            f"{words.duration(float(sorted(lasts_us)[len(lasts_us) // 2]) / 1e6)}. "
        )
    else:
        text += "None expires. "
    share = reads * most / arrivals
    if share >= 1:
        return text + f"At most {most:,} at a time, that is enough to read all."
    return text + f"At most {most:,} at a time, **no more than {share:.0%} of them can be read**."


def links(runs: Sequence[Drawn], assumed: Outages | None) -> str:
    """Say how much time there was no link, and where that is known from.

    Parameters
    ----------
    runs : sequence of Drawn
    assumed : Outages or None
        The process from which outages were drawn. None: they are from a log.
    """
    downs = []
    for run in runs:
        end_us = max(int(run.arrivals_us[-1]), int(run.reads_us[-1]), 1)
        ends_us = [0, *run.switches_us[run.switches_us < end_us].tolist(), end_us]
        lasts_us = [end - begin for begin, end in itertools.pairwise(ends_us)]
        downs.append(sum(lasts_us[1 if run.starts_up else 0 :: 2]) / end_us)
    share = sum(downs) / len(downs)
    if assumed is None:
        return f"By the log of outages there was no link for {share:.1%} of the time."
    return (
        f"There is no log of outages: **it is assumed that there is no link for {assumed.share:.0%} of the "
        f"time**, in {assumed.per_day:g} periods a day ({len(runs)} draws, {share:.1%} on average)."
    )


def sizing(result: Sizing) -> str:
    """Say what is recommended, and what it costs.

    Parameters
    ----------
    result : Sizing
    """
    best, (low, high) = result.best, result.good_limits()
    text = f"**Prefetch limit: {result.limit:,} messages.** "
    if not result.limit:
        text += "Nothing is sent before it is asked for, so that no expiration threshold matters. "
    elif result.table["threshold_s"].nunique() == 1:
        text += "No expiration threshold: nothing expires. "
    elif result.threshold_s:
        threshold = words.duration(result.threshold_s)
        largest = result.threshold_s == result.table["threshold_s"].max()
        text += f"**Expiration threshold: {threshold}**{', the largest that was tried' if largest else ''}: "
        text += "what expires sooner is not prefetched. "
    else:
        text += "**No expiration threshold**: what expires soon is prefetched, too. "
    text += (
        f"Of what is forwarded {best['waste']:.1%} are wasted; of what could be read {best['loss']:.1%} are "
        f"lost. "
    )
    if low < high:
        text += f"Limits from {low:,} to {high:,} cost at most one percentage point more. "
    if result.limit == result.table["limit"].max():
        text += "It is the largest limit that was tried: forward all. "
    return text.strip()

"""Sentences of a report, computed from its tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mudkit import words

if TYPE_CHECKING:
    from mudkit.sources.outages import Outages
    from mudkit.systems.lasthop.study.scenario import Drawn
    from mudkit.systems.lasthop.study.sizing import Sizing

__all__ = ["links", "logs", "sizing"]


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

"""What a report says of arrivals, reads, links, and how much to prefetch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mudkit.report.in_words import links, logs, sizing
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.logs import drawn_from
from mudkit.systems.lasthop.study.sizing import Sizing, add_outages, size_prefetch

HOUR = 3_600_000_000
EVENTS = drawn_from(
    np.arange(49) * HOUR, [10 * HOUR, 20 * HOUR], expires_us=[FOREVER_US] * 24 + [100 * HOUR] * 25
)


def test_what_logs_hold():
    said = logs(EVENTS, 8)
    assert "**49 messages** and **2 reads** in 2.0 days: 24.5 messages and 1 reads a day" in said
    assert "51% of the messages expire, half of these within 2 d 16 h" in said
    assert "no more than 33% of them can be read" in said
    assert "enough to read all" in logs(EVENTS, 25)


def test_how_long_there_was_no_link():
    recorded = drawn_from([0, 100], [50], outages_us=[[10, 20], [70, 85]])
    assert "no link for 25.0% of the time" in links([recorded], None)
    assert "no link for 15.0%" in links([drawn_from([0, 100], [50], outages_us=[[85, 300]])], None)
    assumed = Outages(1.0)
    assert "100.0% on average" in links(add_outages(EVENTS, assumed, [1]), assumed)


def table(limits, thresholds_s, costs):
    rows = [
        (limit, threshold_s, cost, 0.0, cost)
        for limit, threshold_s, cost in zip(limits, thresholds_s, costs, strict=True)
    ]
    return pd.DataFrame(rows, columns=["limit", "threshold_s", "waste", "loss", "cost"])


def test_what_is_recommended():
    result = Sizing(table([4, 8, 16], [0.0] * 3, [0.2, 0.1, 0.105]), 8, 0.0, 1.0)
    assert sizing(result) == (
        "**Prefetch limit: 8 messages.** No expiration threshold: nothing expires. Of what is forwarded 10.0% are "
        "wasted; of what could be read 0.0% are lost. Limits from 8 to 16 cost at most one percentage point more."
    )
    expiring = table([4, 4], [0.0, 3600.0], [0.2, 0.1])
    assert "**Expiration threshold: 1 h**, the largest that was tried: what expires" in sizing(
        Sizing(expiring, 4, 3600.0, 1.0)
    )
    assert "**No expiration threshold**: what expires soon" in sizing(Sizing(expiring, 4, 0.0, 1.0))
    tried = table([4, 4, 4], [0.0, 3600.0, 7200.0], [0.2, 0.1, 0.3])
    assert "**Expiration threshold: 1 h**: what expires" in sizing(Sizing(tried, 4, 3600.0, 1.0))
    assert "no expiration threshold matters" in sizing(
        Sizing(table([0, 0], [0.0, 3600.0], [0.1, 0.1]), 0, 3600.0, 1.0)
    )
    assert "largest limit that was tried" in sizing(Sizing(expiring, 4, 0.0, 1.0))


def test_total_outage_has_a_meaning():
    """Nothing goes and nothing could have been read: nothing is wasted, lost, or worth prefetching."""
    result = size_prefetch(add_outages(EVENTS, Outages(1.0), [1]))
    assert (result.limit, result.best["waste"], result.best["loss"]) == (0, 0.0, 0.0)

"""The rows of Mobius (MobiSys 2012)."""

from __future__ import annotations

from typing import Final

from mudkit.reproduce import campaign_judge, capacity, matching
from mudkit.reproduce.row import Required, Row

__all__ = ["ROWS"]

_CURVE: Final = ", ".join(
    f"{matching.papers_messages_per_s(many):,.0f} at {many:,}" for many in matching.PARTITIONS
)

ROWS: Final = (
    Row(
        name="M1",
        source="Mobius 7.4, Fig. 5",
        paper="About 5,000 messages/s at one subscription a partition (its messages also go to disk and to "
        "the network; here they are only matched), a linear fall, about 70,000 predicate evaluations/s. The "
        f"figure is lost; by its words, messages/s by subscriptions a partition: {_CURVE}.",
        required=(
            Required("messages/s one by one, 1 a partition", "at least", 5000),
            Required("evaluations/s one by one", "at least", 70_000),
            # A linear fall: the time of a message grows in proportion to what is evaluated for it.
            Required("power of subscriptions in the time of a message", "at least", 0.9),
            Required("power of subscriptions in the time of a message", "at most", 1.1),
            Required("records/s, many topics", "at least", 30_000),
            Required("records/s, hot topics", "at least", 15_000),
            Required("updates/s, many topics", "at least", 100_000),
            Required("updates/s, hot topics", "at least", 100_000),
            Required("growth of time a record, many topics", "below", 3),
            Required("growth of time a record, hot topics", "below", 3),
            Required("s to add all, many topics", "below", 60),
            Required("s to add all, hot topics", "below", 60),
            Required("share of records on which both agree", "at least", 1),
        ),
        measure=matching.measure,
        is_speed=True,
    ),
    Row(
        name="M2",
        source="Mobius 7.1 and 7.4, Fig. 6",
        paper="About 1,000,000 subscriptions, ten a partition, before 16 GB are used up.",
        required=(
            Required("subscriptions held", "at least", 1_000_000),
            Required("MB at the peak", "below", 1000),
        ),
        measure=capacity.measure,
        is_speed=True,
    ),
    Row(
        name="M6",
        source="Mobius 4.1, table 3, appendix A",
        paper="Committed reads are sequential, committed_wio reads keep the order of invocation, "
        "uncommitted reads are fork-sequential. (A write that is refused after its own client has read it "
        "breaks definition 3: what is left of it is checked, and how often that happens is counted.)",
        required=(
            Required("runs", "at least", 1000),
            Required("runs in which a promise was broken", "at most", 0),
            Required("histories that are sequential, committed reads", "at least", 500),
            Required("histories that are sequential-wio, committed_wio reads", "at least", 500),
            Required("histories that are fork-sequential-retracted, uncommitted reads", "at least", 500),
        ),
        measure=campaign_judge.measure,
    ),
)

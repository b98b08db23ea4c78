"""The rows of Mobius (MobiSys 2012)."""

from __future__ import annotations

from typing import Final

from mudkit.experiment.matching import paper_messages_per_s
from mudkit.reproduce.mobius import caching_reads, caching_writes, campaign, capacity, matching, overhead
from mudkit.reproduce.row import Required, Row

__all__ = ["ROWS"]

_CURVE: Final = ", ".join(f"{paper_messages_per_s(many):,.0f} at {many:,}" for many in matching.PARTITIONS)

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
        minutes=3.0,
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
        minutes=1.0,
        is_speed=True,
    ),
    Row(
        name="M3",
        source="Mobius 7.2, table 4",
        paper="ms, Mobius against a baseline without it: local write 94.10 against 64.99 (Nexus S: 141.69, "
        "102.02), local read 40.58 against 2.89 (51.47, 10.54): 1.45 and 14 times.",
        required=(
            Required("times bare SQLite's time, local write, FULL", "at most", 1.45),
            Required("µs over bare SQLite at the reference speed, local write, NORMAL", "at most", 20),
            Required("times bare SQLite's time, cached read", "at most", 3),
            # SQLite skips what changes nothing: what was timed must be there.
            Required("share of records that are in the files", "at least", 1),
        ),
        measure=overhead.measure_local,
        minutes=0.5,
        is_speed=True,
    ),
    Row(
        name="M3-remote",
        source="Mobius 7.2, table 4",
        paper="ms, Mobius against a baseline without it: remote write 4G 281.74 against 202.66, 3G 540.07 "
        "against 1364.45; remote read 4G 301.94 against 198.08, 3G 364.02 against 1276.38. So at most 52 % "
        "more over 4G; over 3G its baseline opens a connection for each request.",
        required=(
            Required("% over bare, write, LTE", "below", 52),
            Required("% over bare, read, LTE", "below", 52),
            Required("times the baseline's time, write, 3G, TCP", "below", 1),
            Required("times the baseline's time, read, 3G, TCP", "below", 1),
        ),
        measure=overhead.measure_remote,
        minutes=0.3,
    ),
    Row(
        name="M4",
        source="Mobius 6 and 7.3, Fig. 3",
        paper="Up to 4 times fewer queries sent and 3.5 times fewer stale answers than by the rule of 1 km "
        "and 10 minutes, both at once, on a trace of 600 cars that nobody can download; the figure is lost. "
        "(Where the bound, which knows the future, cannot do that, no policy can.)",
        required=(
            Required("regimes with a gap over 5 points of which less than half is closed", "at most", 0),
            Required("times fewer queries, 3.5 times fewer stale, bound, best regime", "at least", 4),
            Required("times fewer queries, 3.5 times fewer stale, tree, best regime", "at least", 4),
        ),
        measure=caching_reads.measure,
        minutes=2.0,
    ),
    Row(
        name="M5",
        source="Mobius 6 and 7.3, Fig. 4",
        paper="Against a delay of 30 minutes 7 times fewer points and 3 times fewer messages, with about as "
        "many reads that miss a point; against 10 minutes up to 6 times fewer messages, with more; the "
        "figure is lost.",
        required=(
            Required("regimes in which less than half of the gap in messages is closed", "at most", 0),
            Required("regimes in which less than half of the gap in points is closed", "at most", 0),
            Required("times fewer messages than with 30 min, bound, best regime", "at least", 3),
            Required("times fewer points than with 30 min, bound, best regime", "at least", 7),
            Required("times fewer messages than with 30 min, tree, best regime", "at least", 3),
            Required("times fewer points than with 30 min, tree, best regime", "at least", 7),
        ),
        measure=caching_writes.measure,
        minutes=2.0,
    ),
    Row(
        name="M6",
        source="Mobius 4.1, table 3, appendix A",
        paper="Committed reads are sequential, committed_wio reads keep the order of invocation, "
        "uncommitted reads are fork-sequential. (A write that is refused after its own client has read it "
        "breaks definition 3: what is left of it is checked, and how often that happens is counted.) Here "
        "also bugs that are seeded on purpose: the same campaign must catch each of them.",
        required=(
            Required("runs", "at least", 1000),
            Required("runs in which a promise was broken", "at most", 0),
            Required("transitions by faults that could have happened and have not", "at most", 0),
            Required("histories that are sequential, committed reads", "at least", 500),
            Required("histories that are sequential-wio, committed_wio reads", "at least", 500),
            Required("histories that are fork-sequential-retracted, uncommitted reads", "at least", 500),
            # Those that consistency.md names, and others.
            Required("seeded bugs", "at least", 4),
            Required("seeded bugs that nothing caught", "at most", 0),
        ),
        measure=campaign.measure,
        minutes=3.0,
    ),
)

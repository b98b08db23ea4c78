"""The rows of the lab itself."""

from __future__ import annotations

from typing import Final

from mudkit.reproduce.lab import checking, compiling, kernel, spark_labels, spark_modes, spark_starts
from mudkit.reproduce.row import Required, Row

__all__ = ["ROWS"]

ROWS: Final = (
    Row(
        name="F1",
        source="the lab",
        paper="None: how many events of devices the kernel handles, and how large a fleet it holds.",
        required=(
            Required("handled events/s", "at least", 200_000),
            Required("MB at the peak, large fleet", "below", 1000),
            # What a fleet of 10,000 does in a day, a report each ten minutes and a position each minute.
            Required("positions", "at least", 10_000 * 24 * 60),
            Required("messages", "at least", 10_000 * (24 * 6 - 1) * 2),
        ),
        measure=kernel.measure,
        minutes=0.5,
        is_speed=True,
    ),
    Row(
        name="F2",
        source="the lab",
        paper="None: how long exact labels of all reads take, beside a database that only counts points.",
        required=(
            Required("times DuckDB's time", "at most", 2.5),
            Required("times as long, label_reads, longer trace", "at most", 12),
            Required("GB of the driver at its peak", "below", 4),
            Required("share of runs in which both count the same", "at least", 1),
            Required("positions", "at least", 3_600_000),
            Required("reads", "at least", 48_000),
            Required("positions, longer trace", "at least", 36_000_000),
        ),
        measure=spark_labels.measure,
        minutes=5.0,
        is_speed=True,
    ),
    Row(
        name="F3",
        source="the lab",
        paper="None: what a reader waits for at the head of a notebook.",
        required=(
            Required("s for import mudkit", "below", 0.3),
            Required("s for a session", "below", 2.5),
            Required("s for a session, Spark Connect", "below", 4),
        ),
        measure=spark_starts.measure,
        minutes=0.5,
        is_speed=True,
    ),
    Row(
        name="F4",
        source="the lab",
        paper="None: the same job gives the same rows wherever Spark runs.",
        required=(
            *(
                Required(f"rows that differ, {mode}", "at most", 0)
                for mode in (spark_modes.LOCAL, spark_modes.CONNECT, spark_modes.CLUSTER)
            ),
            Required("rows compared", "at least", 100_000),
            Required("executors that took part", "at least", 2),
        ),
        measure=spark_modes.measure,
        minutes=1.0,
    ),
    Row(
        name="F5",
        source="the lab",
        paper="None: a predicate is parsed and compiled once a text.",
        required=(
            Required("µs for a new text", "below", 500),
            Required("µs for a new text of a new structure", "below", 500),
            Required("µs for a known shape with new :parameters", "below", 10),
            Required("µs for a known shape with new :parameters, near the reader", "below", 10),
            Required("µs a record", "below", 3),
        ),
        measure=compiling.measure,
        minutes=0.1,
        is_speed=True,
    ),
    Row(
        name="F6",
        source="the lab",
        paper="None: how long a history of what devices saw may be.",
        required=(
            *(
                Required(f"s, {model.name}{mistake}", "below", 10)
                for model in checking.ONE_VIEW
                for mistake in ("", checking.MISTAKE)
            ),
            Required("operations with versions", "at least", 100_000),
            Required("share of right verdicts", "at least", 1),
        ),
        measure=checking.measure,
        minutes=0.3,
        is_speed=True,
    ),
)

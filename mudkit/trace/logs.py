"""Checks that a log belongs to a trace of positions."""

from __future__ import annotations

import numpy as np

from mudkit.errors import TraceContentError

__all__ = ["check_overlap", "no_reads"]


def no_reads(where: str, found: str) -> TraceContentError:
    """Return the error for a trace without a read."""
    return TraceContentError(
        "There is not one read in this trace.",
        where=where,
        found=found,
        expected="reads: recorded ones, or at least one that the rule derives",
        remedy="give an access log (reads=…), another rule (rule=trip_start(still_s=300)), or more days",
    )


def check_overlap(
    positions: tuple[int, int] | None, log: tuple[int, int] | None, where: str, what: str = "reads"
) -> None:
    """Raise TraceContentError if the times of a log and of the positions do not overlap.

    Both are the first and the last time, in microseconds since 1970 (None: no row); of reads the first is the
    earliest time that one asks for.
    """
    if positions is None or log is None or (log[0] <= positions[1] and positions[0] <= log[1]):
        return
    spans = (
        f"{name} of {_minute(first_us)} to {_minute(last_us)} UTC"
        for name, (first_us, last_us) in (("positions", positions), (what, log))
    )
    raise TraceContentError(
        f"The time ranges of the positions and the {what} do not overlap.",
        where=where,
        found=" and ".join(spans),
        expected=f"{what} of the positions' time",
        remedy="name files of the same period; check tz and time_unit",
    )


def _minute(t_us: int) -> str:
    return str(np.datetime64(t_us, "us").astype("datetime64[m]")).replace("T", " ")

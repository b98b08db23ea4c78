"""Checks that a log belongs to a trace of positions."""

import pytest

from mudkit.errors import TraceContentError
from mudkit.trace.logs import check_overlap, no_reads

HOUR_US = 3_600_000_000


@pytest.mark.parametrize("log", [(0, 1), (1, 5), (3, 4), (4, 9), (0, 9)])
def test_times_that_meet_overlap(log):
    check_overlap((1, 4), log, "trace and log")


@pytest.mark.parametrize("log", [(5 * HOUR_US, 6 * HOUR_US), (-2 * HOUR_US, -HOUR_US)])
def test_times_apart_are_refused_with_both_spans(log):
    with pytest.raises(TraceContentError, match="positions and the writes do not overlap") as caught:
        check_overlap((0, HOUR_US), log, "trace and log", "writes")
    assert "positions of 1970-01-01 00:00 to 1970-01-01 01:00 UTC and writes of 19" in caught.value.found
    assert caught.value.where == "trace and log"


def test_tables_without_rows_are_not_compared():
    check_overlap(None, (5, 6), "")
    check_overlap((0, 1), None, "")


def test_trace_without_a_read_says_what_to_do():
    error = no_reads("cabs.csv", "30 positions")
    assert (error.where, error.found) == ("cabs.csv", "30 positions")
    assert "access log" in error.remedy

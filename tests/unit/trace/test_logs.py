"""Logs beside a trace: reading, and checks that they belong to it."""

import pytest

from mudkit.errors import TraceContentError
from mudkit.trace.logs import Log, check_overlap, no_reads
from mudkit.trace.times import NO_TIME

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


def test_optional_values_of_a_log_may_be_empty(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("# a\nsender;ts;rank;ends\na;1700000000;2,5;\nb;1700000001;;1700000009\n")
    required = {"device": ("device", "sender"), "time": ("time", "ts")}
    log = Log.read(file, "writes", required, ("rank", "ends", "size"))
    assert list(log.columns) == ["device", "time", "rank", "ends"]
    assert log.columns["device"].to_pylist() == ["a", "b"]
    assert log.times("ends", "UTC", may_be_empty=True).tolist() == [NO_TIME, 1_700_000_009_000_000]
    assert log.numbers("rank", may_be_empty=True)[0] == 2.5
    with pytest.raises(TraceContentError, match=r"A rank is not a finite number(?s:.)*log\.csv, line 4"):
        log.numbers("rank")

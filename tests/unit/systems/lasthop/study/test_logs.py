"""Recorded logs: reading, and errors with line numbers."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import InputMissing, TraceContentError, TraceFormatError
from mudkit.systems.lasthop import Forwarding, Spool
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.logs import drawn_from, read_logs
from mudkit.systems.lasthop.study.scenario import Scenario
from mudkit.systems.lasthop.study.simulation import play, spool_factory

T0 = 1_700_000_000
S = 1_000_000


@pytest.fixture
def logs(tmp_path):
    """Return a function that writes logs, with valid defaults."""

    def write(**replacements):
        texts = {
            "arrivals": f"time,rank,expires\n{T0},0.5,\n{T0 + 10},0.9,{T0 + 60}\n",
            "reads": f"time\n{T0 + 20}\n{T0 + 70}\n",
            "outages": f"begin,end\n{T0 + 15},{T0 + 30}\n",
        } | replacements
        return [
            tmp_path / f"{name}.csv"
            for name, text in texts.items()
            if (tmp_path / f"{name}.csv").write_text(text)
        ]

    return write


def test_run_plays_the_logs(logs):
    drawn = read_logs(*logs())
    assert drawn.arrivals_us.tolist() == [0, 10 * S]
    assert drawn.expires_us.tolist() == [FOREVER_US, 60 * S]
    assert drawn.ranks.tolist() == [0.5, 0.9]
    assert drawn.reads_us.tolist() == [20 * S, 70 * S]
    assert (drawn.switches_us.tolist(), drawn.starts_up) == ([15 * S, 30 * S], True)
    outcome = play(drawn, spool_factory(Forwarding("buffer", 1), 0.0), 1)
    assert outcome.read_ids == (0,), (
        "the other one came too late for the first read and expired before the second"
    )
    best = play(drawn, spool_factory(Forwarding("on-line"), 0.0), 1)
    assert best.read_ids == (1, 0)


def test_missing_columns_mean_equal_ranks_and_no_expiration(logs):
    arrivals, reads, _ = logs(arrivals=f"who;time\nann;{T0}\nbob;{T0 + 5}\n")
    drawn = read_logs(arrivals, reads)
    assert drawn.ranks.tolist() == [0.0, 0.0]
    assert (drawn.expires_us == FOREVER_US).all()
    assert (drawn.switches_us.size, drawn.starts_up) == (0, True)


def test_times_may_be_local_iso_texts_and_files_compressed(logs, tmp_path):
    arrivals, reads, _ = logs(arrivals="time\n2023-11-14T23:13:20\n", reads="time\n2023-11-14T22:13:30Z\n")
    packed = tmp_path / "arrivals.csv.gz"
    packed.write_bytes(gzip.compress(arrivals.read_bytes()))
    drawn = read_logs(packed, reads, tz="Europe/Oslo")
    assert (drawn.arrivals_us.tolist(), drawn.reads_us.tolist()) == ([0], [10 * S])


def test_logs_are_read_like_traces(logs, tmp_path):
    plain = read_logs(*logs())
    in_ms = {
        "arrivals": f"sep=;\ntime;rank;expires\n{T0}000;0,5;\n{T0 + 10}000;0,9;{T0 + 60}000\n",
        "reads": f'# of ann\ntime, note\n{T0 + 20}000, "a, b"\n{T0 + 70}000, \n',
        "outages": f"begin\tend\n{T0 + 15}000\t{T0 + 30}000\n",
    }
    arrivals, reads, outages = logs(**in_ms)
    arrivals.write_bytes(gzip.compress(arrivals.read_bytes()))
    outages.write_bytes(outages.read_text().encode("utf-16"))
    drawn = read_logs(arrivals, reads, outages)
    for name in ("arrivals_us", "expires_us", "ranks", "reads_us", "switches_us"):
        assert getattr(drawn, name).tolist() == getattr(plain, name).tolist()


def test_repeated_local_time_is_named(logs):
    arrivals, reads, _ = logs(arrivals="time\n2023-10-29 01:30:00\n2023-10-29 02:30:00\n")
    with pytest.raises(TraceContentError, match=r"clock change(?s:.)*arrivals\.csv, line 3"):
        read_logs(arrivals, reads, tz="Europe/Zurich")


@pytest.mark.parametrize(
    ("log", "text", "error"),
    [
        ("arrivals", f"time,rank\n{T0},0.5\n,0.5\n{T0},1\n", "'' as time"),
        ("arrivals", f"time,rank\n{T0},high\n", "'high'"),
        ("arrivals", f"time,rank\n{T0},\n", "line 2"),
        ("arrivals", f"time,expires\n{T0},{T0}\n", "expires at its arrival"),
        ("arrivals", f"time,expires\n{T0},soon\n", "'soon' as expires"),
        ("arrivals", "time\n12\n", "'12' as time"),
        ("arrivals", "time\n", "arrivals is empty"),
        ("reads", "time\n", "reads is empty"),
        ("reads", f"time\n{T0}\nyesterday\n", "reads.csv, line 3"),
        ("outages", f"begin,end\n{T0 + 5},{T0 + 9}\n{T0 + 8},{T0 + 12}\n", "outages.csv, line 3"),
        ("outages", f"begin,end\n{T0 + 5},{T0 + 9}\n{T0 + 20},{T0 + 12}\n", "outages.csv, line 3"),
        ("outages", f"begin,end\n{T0 + 5},\n", "'' as end"),
        ("arrivals", f"time,rank\n{T0},1\n{T0}\n", "arrivals.csv, line 3"),
        ("arrivals", f"time,rank\n{T0},1\n{T0},2,5\n", "2 fields separated by ','"),
        ("arrivals", "time\n2023-11-14 22:13:20,250\n", "wrong number of fields"),
        ("arrivals", f"time\n1{T0}\n", "before 1980 or after 2100"),
        ("reads", f"time\n\n{T0}\n\nsoon\n", "reads.csv, line 5"),
        ("outages", f"begin,end\n{T0 + 30},{T0 + 40}\n{T0 + 5},{T0 + 35}\n", "outages.csv, line 2"),
    ],
)
def test_invalid_rows_are_refused_with_their_line(logs, log, text, error):
    with pytest.raises(TraceContentError) as caught:
        read_logs(*logs(**{log: text}))
    assert error in str(caught.value)
    assert "expected" in str(caught.value)


def test_errors_state_times_in_utc_or_seconds(logs):
    with pytest.raises(
        TraceContentError, match=r"22:13:20 UTC, when that until 2023-11-14 22:13:20\.500000 "
    ):
        read_logs(*logs(outages=f"begin,end\n{T0 - 9},{T0}.5\n{T0},{T0 + 1}\n"))
    with pytest.raises(TraceContentError, match=r"2\.5 s to 1 s"):
        drawn_from([1], [3], outages_us=[[2_500_000, 1_000_000]])


def test_rows_out_of_order_are_sorted_and_counted(logs):
    texts = {
        "arrivals": f"time,rank,expires\n{T0 + 10},0.9,{T0 + 60}\n{T0},0.5,\n",
        "reads": f"time\n{T0 + 70}\n{T0 + 20}\n{T0 + 30}\n",
        "outages": f"begin,end\n{T0 + 40},{T0 + 45}\n{T0 + 15},{T0 + 30}\n",
    }
    drawn = read_logs(*logs(**texts))
    assert (drawn.arrivals_us.tolist(), drawn.ranks.tolist()) == ([0, 10 * S], [0.5, 0.9])
    assert drawn.expires_us.tolist() == [FOREVER_US, 60 * S]
    assert drawn.reads_us.tolist() == [20 * S, 30 * S, 70 * S]
    assert drawn.switches_us.tolist() == [15 * S, 30 * S, 40 * S, 45 * S]
    assert drawn.sorted_rows == 1 + 2 + 1
    assert read_logs(*logs()).sorted_rows == 0


@given(st.permutations(range(12)), st.permutations(range(5)))
def test_order_of_rows_does_not_matter(arrivals, reads):
    times, ranks = np.arange(12) * 7 * S, np.arange(12) % 5
    shuffled = drawn_from(times[arrivals], np.arange(5)[reads] * 20 * S, ranks=ranks[arrivals])
    ordered = drawn_from(times, np.arange(5) * 20 * S, ranks=ranks)
    for name in ("arrivals_us", "ranks", "reads_us"):
        assert getattr(shuffled, name).tolist() == getattr(ordered, name).tolist()
    is_sorted = arrivals == sorted(arrivals) and reads == sorted(reads)
    assert (shuffled.sorted_rows == 0) == is_sorted


def test_error_counts_further_invalid_rows(logs):
    with pytest.raises(TraceContentError, match="2 more like it"):
        read_logs(*logs(reads=f"time\n{T0}\na\nb\nc\n"))


def test_missing_and_malformed_files_are_refused(logs, tmp_path):
    arrivals, reads, _ = logs(arrivals=f"t,rank\n{T0},1\n")
    with pytest.raises(TraceFormatError, match="time") as caught:
        read_logs(arrivals, reads)
    assert "t, rank" in str(caught.value)
    with pytest.raises(InputMissing):
        read_logs(tmp_path / "nothing.csv", reads)
    with pytest.raises(InputMissing, match="folder"):
        read_logs(tmp_path, reads)
    arrivals.write_bytes(f"time\n{T0}\n".encode() + b"\xff\n" * 9000)
    with pytest.raises(TraceFormatError):
        read_logs(arrivals, reads)


# -- arrays


def test_run_may_start_in_an_outage():
    reads = np.array([100, 200]) * S
    drawn = drawn_from(reads, reads, outages_us=np.array([[10, 20], [90, 110], [150, 160]]) * S)
    assert (drawn.switches_us.tolist(), drawn.starts_up) == ([10 * S, 50 * S, 60 * S], False)


def test_outage_at_the_start_of_a_run_is_no_link_change():
    drawn = drawn_from([0], [9], outages_us=[[0, 5]])
    assert (drawn.switches_us.tolist(), drawn.starts_up) == ([5], False)
    drawn = drawn_from([5], [9], outages_us=[[0, 5]])
    assert (drawn.switches_us.tolist(), drawn.starts_up) == ([], True)


def test_drawn_events_are_rebuilt_from_their_arrays():
    drawn = Scenario(days=30).draw(1)
    rebuilt = drawn_from(drawn.arrivals_us, drawn.reads_us, ranks=drawn.ranks, expires_us=drawn.expires_us)
    outcomes = [
        play(events, lambda *callbacks: Spool(0.0, Forwarding("buffer", 4), *callbacks), 8)
        for events in (drawn, rebuilt)
    ]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("texts", "log_names"),
    [
        ({"reads": "time\n1500000000\n1500003600\n"}, "arrivals and reads"),
        ({"reads": f"time\n{T0 - 1}\n"}, "arrivals and reads"),  # no arrival before the last read
        ({"reads": f"time\n{T0 + 10 + 86_401}\n"}, "arrivals and reads"),
        ({"outages": "begin,end\n1500000000,1500003600\n"}, "outages and the other two"),
        ({"outages": f"begin,end\n{T0 + 200_000},{T0 + 200_001}\n"}, "outages and the other two"),
    ],
)
def test_logs_without_overlap_are_refused_by_name(logs, texts, log_names):
    with pytest.raises(TraceContentError, match=f"The time ranges of {log_names} do not overlap") as caught:
        read_logs(*logs(**texts))
    assert "UTC" in caught.value.found


@pytest.mark.parametrize(
    "texts",
    [
        {"reads": f"time\n{T0 + 10 + 86_400}\n"},
        {"reads": f"time\n{T0}\n"},  # with the first arrival
        {"outages": f"begin,end\n{T0 + 70 + 86_400},{T0 + 70 + 86_401}\n"},
        {"reads": f"time\n{T0 + 5}\n", "outages": f"begin,end\n{T0 + 10 + 86_400},{T0 + 10 + 86_401}\n"},
        {"outages": f"begin,end\n{T0 - 86_401},{T0 - 86_400}\n"},
    ],
)
def test_logs_at_most_a_day_apart_are_played(logs, texts):
    """Only logs with more than a day between them are refused, see :func:`read_logs`."""
    assert len(read_logs(*logs(**texts)).arrivals_us) == 2


@pytest.mark.parametrize(
    "texts",
    [
        {"reads": f"time\n{T0 + 10 + 86_400}\n"},
        {"reads": f"time\n{T0}\n"},  # with the first arrival
        {"outages": "begin,end\n"},
        {"outages": f"begin,end\n{T0 - 5},{T0 - 1}\n"},
    ],
)
def test_adjacent_logs_are_accepted(logs, texts):
    assert len(read_logs(*logs(**texts)).arrivals_us) == 2

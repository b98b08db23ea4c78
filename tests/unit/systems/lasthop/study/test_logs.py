"""Logs of one's own: read as they are, and refused with the line where they cannot be."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

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
    """Write logs; those that are not given are small and good."""

    def write(**given):
        texts = {
            "arrivals": f"time,rank,expires\n{T0},0.5,\n{T0 + 10},0.9,{T0 + 60}\n",
            "reads": f"time\n{T0 + 20}\n{T0 + 70}\n",
            "outages": f"begin,end\n{T0 + 15},{T0 + 30}\n",
        } | given
        return [
            tmp_path / f"{name}.csv"
            for name, text in texts.items()
            if (tmp_path / f"{name}.csv").write_text(text)
        ]

    return write


def test_logs_are_what_a_run_plays(logs):
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


def test_what_is_not_known_is_alike_and_for_ever(logs):
    arrivals, reads, _ = logs(arrivals=f"who;time\nann;{T0}\nbob;{T0 + 5}\n")
    drawn = read_logs(arrivals, reads)
    assert drawn.ranks.tolist() == [0.0, 0.0]
    assert (drawn.expires_us == FOREVER_US).all()
    assert (drawn.switches_us.size, drawn.starts_up) == (0, True)


def test_times_may_be_texts_in_a_zone_and_files_packed(logs, tmp_path):
    arrivals, reads, _ = logs(arrivals="time\n2023-11-14T23:13:20\n", reads="time\n2023-11-14T22:13:30Z\n")
    packed = tmp_path / "arrivals.csv.gz"
    packed.write_bytes(gzip.compress(arrivals.read_bytes()))
    drawn = read_logs(packed, reads, tz="Europe/Oslo")
    assert (drawn.arrivals_us.tolist(), drawn.reads_us.tolist()) == ([0], [10 * S])


@pytest.mark.parametrize(
    ("log", "text", "says"),
    [
        ("arrivals", f"time\n{T0}\n\n{T0 - 1}\n", "arrivals.csv, line 4"),
        ("arrivals", f"time,rank\n{T0},0.5\n,0.5\n{T0},1\n", "'' as time"),
        ("arrivals", f"time,rank\n{T0},high\n", "'high'"),
        ("arrivals", f"time,rank\n{T0},\n", "line 2"),
        ("arrivals", f"time,expires\n{T0},{T0}\n", "expires at its arrival"),
        ("arrivals", f"time,expires\n{T0},soon\n", "'soon' as expires"),
        ("arrivals", "time\n12\n", "'12' as time"),
        ("arrivals", "time\n", "arrivals is empty"),
        ("reads", "time\n", "reads is empty"),
        ("reads", f"time\n{T0 + 1}\n{T0}\n{T0 - 1}\n", "reads.csv, line 3"),
        ("reads", f"time\n{T0}\nyesterday\n", "reads.csv, line 3"),
        ("outages", f"begin,end\n{T0 + 5},{T0 + 9}\n{T0 + 8},{T0 + 12}\n", "outages.csv, line 3"),
        ("outages", f"begin,end\n{T0 + 5},{T0 + 9}\n{T0 + 20},{T0 + 12}\n", "outages.csv, line 3"),
        ("outages", f"begin,end\n{T0 + 5},\n", "'' as end"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(logs, log, text, says):
    with pytest.raises(TraceContentError) as caught:
        read_logs(*logs(**{log: text}))
    assert says in str(caught.value)
    assert "expected" in str(caught.value)


def test_times_are_told_as_they_are(logs):
    with pytest.raises(TraceContentError, match=r"22:13:20 UTC after 2023-11-14 22:13:20\.500000 UTC"):
        read_logs(*logs(reads=f"time\n{T0}.5\n{T0}\n"))
    with pytest.raises(TraceContentError, match=r"1 s after 2\.5 s"):
        drawn_from([2_500_000, 1_000_000], [3])


def test_how_many_more_is_told(logs):
    with pytest.raises(TraceContentError, match="2 more like it"):
        read_logs(*logs(reads=f"time\n{T0}\na\nb\nc\n"))


def test_files_that_are_no_logs(logs, tmp_path):
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


def test_a_run_may_begin_in_an_outage():
    reads = np.array([100, 200]) * S
    drawn = drawn_from(reads, reads, outages_us=np.array([[10, 20], [90, 110], [150, 160]]) * S)
    assert (drawn.switches_us.tolist(), drawn.starts_up) == ([10 * S, 50 * S, 60 * S], False)


def test_an_outage_that_begins_with_the_run_is_no_change():
    drawn = drawn_from([0], [9], outages_us=[[0, 5]])
    assert (drawn.switches_us.tolist(), drawn.starts_up) == ([5], False)
    drawn = drawn_from([5], [9], outages_us=[[0, 5]])
    assert (drawn.switches_us.tolist(), drawn.starts_up) == ([], True)


def test_what_was_drawn_comes_back():
    drawn = Scenario(days=30).draw(1)
    again = drawn_from(drawn.arrivals_us, drawn.reads_us, ranks=drawn.ranks, expires_us=drawn.expires_us)
    outcomes = [
        play(each, lambda *out: Spool(0.0, Forwarding("buffer", 4), *out), 8) for each in (drawn, again)
    ]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("given", "which"),
    [
        ({"reads": "time\n1500000000\n1500003600\n"}, "arrivals and reads"),
        ({"reads": f"time\n{T0 - 1}\n"}, "arrivals and reads"),  # nothing has come by the last read
        ({"reads": f"time\n{T0 + 10 + 86_401}\n"}, "arrivals and reads"),
        ({"outages": "begin,end\n1500000000,1500003600\n"}, "outages and the other two"),
        ({"outages": f"begin,end\n{T0 + 200_000},{T0 + 200_001}\n"}, "outages and the other two"),
    ],
)
def test_logs_that_never_meet_are_refused_and_named(logs, given, which):
    with pytest.raises(TraceContentError, match=f"The time ranges of {which} do not overlap") as caught:
        read_logs(*logs(**given))
    assert "UTC" in caught.value.found


@pytest.mark.parametrize(
    "given",
    [
        {"reads": f"time\n{T0 + 10 + 86_400}\n"},
        {"outages": "begin,end\n"},
        {"outages": f"begin,end\n{T0 - 5},{T0 - 1}\n"},
    ],
)
def test_logs_that_lie_beside_each_other_are_read(logs, given):
    assert len(read_logs(*logs(**given)).arrivals_us) == 2

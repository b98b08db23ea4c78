"""Errors of the sources for invalid parameters and traces."""

import math

import pyarrow as pa
import pytest
from replay_traces import TRACE, TWO_LINKS, build_links, build_positions

from mudkit.errors import ParameterError, TraceContentError
from mudkit.sources.city import CommuterTown, town_centres
from mudkit.sources.ecg import ecg_mv
from mudkit.sources.grid import ManhattanGrid
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.mobility import mobility_of
from mudkit.sources.outages import Outages, outages_of
from mudkit.sources.phones import PhoneUse, check_plausible
from mudkit.sources.replay import Replay
from mudkit.sources.streams import Stream
from mudkit.sources.waypoint import RandomWaypoint
from mudkit.sources.workloads import Every, Poisson, Recorded, WakingReads

DAY_US = 86_400 * 1_000_000
NAN = float("nan")


def list_refusals(call, name, *values):
    """Return a call and a pattern for each invalid value of an option, which the error names."""
    return [(lambda value=value: call(**{name: value}), f"(?s)^.*{name}") for value in values]


def make_ecg(**options):
    return ecg_mv(**{"bpm": 72, "seconds": 5, **options})


def make_outages(**options):
    return Outages(**{"share": 0.2, **options})


def replay_two_links(**options):
    return LinkReplay(TWO_LINKS, **options)


def make_waking_reads(**options):
    return WakingReads(**{"per_day": 1, **options})


PARAMETERS = [
    *list_refusals(lambda towns: town_centres(CommuterTown(), towns), "towns", 0, -1, 401, 1.5, True),
    (lambda: town_centres(CommuterTown(lat=60.0, town_spacing_km=500.0), 100), "too far from the equator"),
    *list_refusals(make_ecg, "bpm", 0, 300),
    *list_refusals(make_ecg, "seconds", 0, 1e6),
    *list_refusals(make_ecg, "spread_bpm", -1),
    *list_refusals(make_ecg, "seed", 0.5),
    *list_refusals(ManhattanGrid, "speed_low_mps", 16),
    *list_refusals(ManhattanGrid, "edge_km", -1),
    *list_refusals(ManhattanGrid, "block_m", 0),
    *list_refusals(ManhattanGrid, "lat", 80),
    (lambda: ManhattanGrid(edge_km=0.5, block_m=600), r"smaller than a block(.|\n)*up to 500"),
    *list_refusals(RandomWaypoint, "speed_low_mps", 0, 16),
    *list_refusals(RandomWaypoint, "edge_km", -1),
    *list_refusals(RandomWaypoint, "pause_s", -1),
    *list_refusals(RandomWaypoint, "lat", 80),
    *list_refusals(RandomWaypoint, "lon", 200),
    *(
        (lambda model=model: mobility_of(model), "one of waypoint, manhattan, commute")
        for model in ("comute", "", 7, None, RandomWaypoint)
    ),
    (lambda: mobility_of("comute"), "did you mean 'commute'"),
    (lambda: make_outages(distribution="weibull"), "one of exponential, lognormal, fixed"),
    *list_refusals(make_outages, "per_day", 0),
    *list_refusals(make_outages, "cv", 0),
    (lambda: make_outages().switching(7, ["a", "b"]).periods_us(-1), "block"),
    *(
        (lambda share=share: outages_of(share), r"outage\n(.|\n)*from 0 to 1")
        for share in (1.2, -0.1, NAN, "0.2", None, True)
    ),
    (lambda: PhoneUse(query_share_low=0.6, query_share_high=0.5), "query_share_low"),
    (lambda: check_plausible(CommuterTown(), PhoneUse(interval_s=1)), "gps_error_m"),
    (lambda: check_plausible(CommuterTown(), PhoneUse(gps_error_m=90.0)), "gps_error_m"),
    (
        lambda: check_plausible(
            CommuterTown(expressway_mps=40.0, speed_spread=0.3), PhoneUse(gps_error_m=0.0)
        ),
        "gps_error_m",
    ),
    (lambda: check_plausible(CommuterTown(shortest_stay_s=299.0), PhoneUse()), "query_spread_s"),
    (lambda: check_plausible(CommuterTown(), PhoneUse(query_spread_s=61.0)), "query_spread_s"),
    *list_refusals(replay_two_links, "gap_s", 0, -1, NAN, "60", True),
    *list_refusals(replay_two_links, "offset_s", -1, NAN, math.inf, None),
    *(
        (lambda late=late: replay_two_links(offset_s=late), r"past the end[\s\S]*less than 3 s")
        for late in (3, 3.1)
    ),
    (lambda: replay_two_links(device="B"), "no device 'B'"),
    (lambda: LinkReplay([1, 2]), "no links"),
    (lambda: LinkReplay(TWO_LINKS.drop_columns(["latency_ms"])), "latency_ms"),
    (lambda: replay_two_links().capacity(2), "2 devices"),
    *((lambda i=i: replay_two_links().capacity(i), "whole number") for i in (-1, True, 0.0, "a")),
    (lambda: Replay(TRACE, gap_s=-1), "gap_s"),
    *(
        (lambda at=at: Replay(TRACE, at), r"2010-03-01T08:00:00\+00:00 to 2010-03-01T08:33:20\+00:00")
        for at in ("2010-03-01T07:59", "2010-03-02")
    ),
    *((lambda at=at: Replay(TRACE, at), "no moment") for at in ("yesterday", 7)),
    (lambda: Replay(TRACE).course(7, ["x", "y", "z"], 0), r"3\n(.|\n)*at most 2"),
    (lambda: Replay(TRACE.select(["device", "ts"])), "no column lat, lon; found device, ts"),
    (lambda: Replay([]), "list"),
    (lambda: Replay(TRACE.set_column(1, "ts", pa.array(range(6)))), "timestamps"),
    (lambda: Replay(build_positions(("a", 0, 0, 0), ("b", 1, 0, 0))), "two rows or more"),
    (lambda: Replay(TRACE.slice(0, 0)), "two rows or more"),
    (lambda: Replay(build_positions(("a", 0, None, 0), ("a", 1, 0, 0))), r"lat\n"),
    (lambda: Replay(build_positions(("a", 0, NAN, 0), ("a", 1, 0, 0))), "NaN"),
    (lambda: Stream(1, "x").uniform(0.5, 0), "device"),
    (lambda: Stream(1, "x").uniform("jane-phone", 0), "device_number"),
    (lambda: Stream(1, "x").uniform(True, 0), "device"),
    (lambda: Stream(1, "x").uniform(0, [1.0]), "step"),
    (lambda: Stream(1, "x").uniform(0, 2**64), "step"),
    (lambda: Stream(1, "x").integers(0, 0, 3, 3), "low, high"),
    (lambda: Stream(1, "x").integers(0, 0, 0, 2**32 + 1), "low, high"),
    (lambda: Stream(1, "x").integers(0, 0, 0.0, 3), "low"),
    (lambda: Stream(1.5, "x"), "seed"),
    (lambda: Stream(True, "x"), "seed"),
    (lambda: Recorded([]), "empty"),
    (lambda: Recorded([5]), "no whole day"),
    (lambda: Recorded([0, DAY_US]), r"no whole day[\s\S]*2 moments in 24.0 hours"),
    (lambda: Recorded([0.5, 2 * DAY_US]), "not usable"),
    (lambda: Recorded([[0, 3 * DAY_US]]), "not usable"),
    (lambda: Recorded([0, 3 * DAY_US], utc_offset_h=20), "utc_offset_h"),
    *list_refusals(Poisson, "per_day", -1, math.inf),
    *list_refusals(make_waking_reads, "per_day", -1),
    *list_refusals(make_waking_reads, "spread", -1),
    *list_refusals(make_waking_reads, "wake_h", 25),
    *list_refusals(make_waking_reads, "awake_h", (17, 16), 16),
    *list_refusals(Every, "interval_s", 0, "10"),
]
TRACES = [
    (TWO_LINKS.slice(0, 0), "no links"),
    (build_links([("a", 0, True, 1.0), ("a", 0, True, 2.0), ("a", 1, True, 1.0)]), "twice"),
    (build_links([("a", 0, True, 1.0), ("a", 100, True, 2.0)]), r"all over 60 s apart[\s\S]*raise gap_s"),
    (build_links([("a", 0, True, 1.0)]), r"how long[\s\S]*found:\s+1 rows\n[\s\S]*leave the device out"),
    *((build_links([("a", 0, True, 1.0), ("a", 1, True, kbps)]), "carries") for kbps in (-1.0, math.inf)),
]


@pytest.mark.parametrize(("call", "pattern"), PARAMETERS)
def test_invalid_parameters_raise_error(call, pattern):
    with pytest.raises(ParameterError, match=pattern) as caught:
        call()
    assert caught.value.found is not None
    assert caught.value.expected


@pytest.mark.parametrize(("trace", "pattern"), TRACES)
def test_unreplayable_traces_raise_error(trace, pattern):
    with pytest.raises(TraceContentError, match=pattern):
        LinkReplay(trace)

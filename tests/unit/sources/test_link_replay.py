import json
import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_traces import TWO_LINKS, build_links

from mudkit.errors import ParameterError, TraceContentError
from mudkit.sources.link_replay import LinkReplay
from mudkit.trace import load_links


def to_seconds(capacity):
    return (capacity.from_us / 1e6).tolist()


def test_device_i_replays_device_i_of_the_trace():
    replay = LinkReplay(SimpleNamespace(links=TWO_LINKS))
    assert replay.devices == ["a", "b"]
    a, b = replay.capacity(0), replay.capacity(np.int64(1))
    # Equal pieces are merged.
    assert (to_seconds(a), a.until_us, a.down_kbps.tolist()) == ([0], 3_000_000, [7.0])
    assert (to_seconds(b), b.until_us) == ([0, 1, 2, 3, 4], 5_000_000)
    assert b.up.tolist() == [True, True, False, True, True]
    assert np.isnan(b.up_kbps).all()
    assert np.isnan(b.latency_ms).all()
    assert [column.dtype for column in (b.from_us, b.up, b.down_kbps)] == [np.int64, np.bool_, np.float64]


def test_named_device_is_replayed_by_all_devices():
    replay = LinkReplay(TWO_LINKS, device="b")
    assert replay.capacity(0) is replay.capacity(999)
    assert replay.devices == ["a", "b"]
    with pytest.raises(ValueError, match="read-only"):
        replay.capacity(0).down_kbps[0] = 5.0


def test_gaps_between_recordings_are_cut_out():
    table = build_links([("a", s, True, float(i)) for i, s in enumerate([0, 1, 2, 100, 101, 161, 300])])
    capacity = LinkReplay(table).capacity(0)
    assert to_seconds(capacity) == [0, 1, 2, 3, 4, 64, 65]  # 60 s apart is still one recording
    assert capacity.until_us == 66_000_000
    whole = LinkReplay(table, gap_s=math.inf).capacity(0)
    assert to_seconds(whole) == [0, 1, 2, 100, 101, 161, 300]
    description = LinkReplay(table).describe()["devices"][0]
    assert (description["recordings"], description["cut_s"], description["seconds"]) == (3, 97 + 138, 66.0)


def test_describe_states_duration_downtime_and_outages():
    description = LinkReplay(TWO_LINKS).describe()
    assert [device["device"] for device in description["devices"]] == ["a", "b"]
    assert [device["seconds"] for device in description["devices"]] == [3.0, 5.0]
    assert [device["down_share"] for device in description["devices"]] == [0.0, 0.2]
    assert [device["outages"] for device in description["devices"]] == [0, 1]
    assert (description["seconds"], description["down_share"], description["outages"]) == (8.0, 0.125, 1)
    assert json.loads(json.dumps(description)) == description
    assert len(LinkReplay(TWO_LINKS, device="b").describe()["devices"]) == 1
    # Two values within one outage are two pieces and one outage.
    table = build_links([("a", s, s in (0, 5), float(s)) for s in range(6)])
    assert LinkReplay(table).describe()["devices"][0]["longest_outage_s"] == 4.0
    assert LinkReplay(table).describe()["outages"] == 1
    # A link that is down from the begin on has an outage there.
    table = build_links([("a", s, s > 1, float(s)) for s in range(6)])
    begins_down = LinkReplay(table).describe()["devices"][0]
    assert (begins_down["outages"], begins_down["longest_outage_s"]) == (1, 2.0)


@given(
    st.lists(
        st.tuples(st.integers(1, 100), st.booleans(), st.sampled_from([None, 0.0, 5.0])),
        min_size=2,
        max_size=30,
    ),
    st.integers(1, 100),
    st.integers(0, 200),
)
def test_replay_joins_rows_end_to_end(rows, gap_s, offset_s):
    steps, up, down = zip(*rows, strict=True)
    at = np.cumsum((0, *steps[:-1])).tolist()
    within = [step for step in steps[:-1] if step <= gap_s]
    table = build_links([("a", *row) for row in zip(at, up, down, strict=True)])
    if not within:
        with pytest.raises(TraceContentError):
            LinkReplay(table, gap_s=gap_s)
        return
    median = float(np.median(within))
    durations = [step if step <= gap_s else median for step in steps[:-1]] + [median]
    if offset_s >= sum(durations):
        with pytest.raises(ParameterError):
            LinkReplay(table, gap_s=gap_s, offset_s=offset_s)
        return
    capacity = LinkReplay(table, gap_s=gap_s, offset_s=offset_s).capacity(0)
    assert capacity.from_us[0] == 0
    assert (np.diff(np.append(capacity.from_us, capacity.until_us)) > 0).all()
    assert capacity.until_us == round((sum(durations) - offset_s) * 1e6)
    values = list(zip(capacity.up, np.nan_to_num(capacity.down_kbps, nan=-1), strict=True))
    assert all(a != b for a, b in pairwise(values))
    ends = np.cumsum(durations)
    for moment in np.arange(offset_s, ends[-1], 0.5):
        row = int(np.searchsorted(ends, moment, side="right"))
        piece = int(np.searchsorted(capacity.from_us, (moment - offset_s) * 1e6, side="right")) - 1
        assert values[piece] == (up[row], -1 if down[row] is None else down[row])


def test_replay_of_recorded_measurements(driving_networks):
    loaded = load_links(driving_networks)
    devices = {device["device"]: device for device in LinkReplay(loaded).describe()["devices"]}
    assert devices["mob-TCP"]["longest_outage_s"] == 993.0
    assert devices["mob-TCP"]["down_share"] == pytest.approx(0.1314, abs=1e-4)
    assert devices["att-TCP"]["down_share"] < 0.002
    assert LinkReplay(loaded, gap_s=1e9, device="rm-UDP").describe()["devices"][0]["cut_s"] == 0.0

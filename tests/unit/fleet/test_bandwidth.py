"""What a link carries, told to machines that watch it."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from mudkit import Lab
from mudkit.events import ContextChanged
from mudkit.sources.link_replay import LinkReplay


class Watches:
    """Notes what it is told."""

    def __init__(self, answer):
        self.told = answer

    def handle(self, now_us, event):
        if isinstance(event, ContextChanged):
            self.told.append((now_us, event.context.get("bandwidth_kbps")))
        return ()


def installed(device, watch=("bandwidth_kbps",)):
    answer = []
    device.install("test", lambda ports: Watches(answer), watch=watch)
    return answer


def test_it_is_told_at_the_start_and_with_another_network():
    lab = Lab(seed=1)
    device = lab.device("pda", link="wifi", at=(0.0, 0.0))
    answer = installed(device)
    lab.run(seconds=5)
    device.change_network("edge")
    lab.run(seconds=5)
    assert answer == [(0, 40_000.0), (5_000_000, 180.0)]


def test_who_does_not_watch_is_not_told():
    lab = Lab(seed=1)
    device = lab.device("pda", link="wifi", at=(0.0, 0.0), display_px=3)
    answer = installed(device, watch=())
    device.change_network("edge")
    lab.run(seconds=5)
    assert answer == [(0, None)]


def test_a_link_without_limit_has_no_number():
    lab = Lab(seed=1)
    answer = installed(lab.device("pda", link="ideal", at=(0.0, 0.0)))
    lab.run(seconds=5)
    assert answer == [(0, None)]


def test_what_was_measured_is_told_when_it_changes():
    start = dt.datetime(2010, 3, 1, tzinfo=dt.UTC)
    rows = [
        {
            "device": "a",
            "ts": start + dt.timedelta(seconds=10 * n),
            "up": True,
            "down_kbps": kbps,
            "up_kbps": 10.0,
            "latency_ms": 5.0,
        }
        for n, kbps in enumerate((1000.0, 250.0, 4000.0))
    ]
    lab = Lab(seed=1)
    answer = installed(lab.device("pda", link=LinkReplay(pa.Table.from_pylist(rows)), at=(0.0, 0.0)))
    lab.run(seconds=25)
    assert answer == [(0, 1000.0), (10_000_000, 250.0), (20_000_000, 4000.0)]

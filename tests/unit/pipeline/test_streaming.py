"""An engine in the state of a query: batches, disorder and timers change nothing about what goes."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from radiator_streams import FUNCTIONS, RETENTION_S, S, by_one_engine, random_steps, story

from mudkit.errors import InputMissing
from mudkit.pipeline import streaming
from mudkit.pipeline.streaming import Keeper
from mudkit.systems.radiator import Shares


class State:
    """A value or a list, as Spark's handle gives them."""

    def __init__(self):
        self.held = None

    def exists(self):
        return self.held is not None

    def get(self):
        return iter(self.held or ()) if isinstance(self.held, list | None) else self.held

    def update(self, value):
        assert [type(part) for part in value] == [bytes]
        self.held = value

    def put(self, rows):
        assert rows
        self.held = [tuple(row) for row in rows]

    def clear(self):
        self.held = None


class Handle:
    """The state of one share, with its timers."""

    def __init__(self):
        self.states = {}
        self.timers = set()

    def getValueState(self, name, schema):
        return self.states.setdefault(name, State())

    def getListState(self, name, schema):
        return self.getValueState(name, schema)

    def listTimers(self):
        return iter(self.timers)

    def deleteTimer(self, t_ms):
        self.timers.remove(t_ms)

    def registerTimer(self, t_ms):
        self.timers.add(t_ms)


def run(function, batches):
    """Take batches of (events, watermark in ms), each with a keeper of its own, as after a restart."""
    handle, gone = Handle(), Counter()
    for events, watermark_ms in batches:
        keeper = Keeper(Shares(function, max_retention_s=RETENTION_S), 1)
        keeper.init(handle)
        times = SimpleNamespace(getCurrentWatermarkInMs=lambda at=watermark_ms: at)
        rows = []
        if events:
            rows += keeper.handleInputRows((0,), iter(events), times)
        elif any(t_ms <= watermark_ms for t_ms in handle.timers):
            rows += keeper.handleExpiredTimer((0,), times, None)
        assert all(t_ms > watermark_ms for t_ms in handle.timers)
        assert all(row.watermark_us == watermark_ms * 1000 >= row.t_us for row in rows)
        for row in rows:
            gone.update((row.t_us, client, tuple(row.numbers)) for client in row.recipients)
    return gone, handle


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
@pytest.mark.parametrize("seed", range(4))
def test_batches_and_disorder_change_nothing(function, seed):
    chance = random.Random(seed)
    # A watermark of zero is none yet, so the story begins later.
    events = [event._replace(t_us=event.t_us + 1000 * S) for event in story(random_steps(chance, 80))]
    until_us = events[-1].t_us + round(2 * RETENTION_S * S)
    expected, _ = by_one_engine(function, events, until_us)
    came = sorted(events, key=lambda event: event.t_us + chance.random() * 40 * S)
    batches, latest_us = [], 0
    while came:
        count = chance.choice([1, 2, 5, 30])
        batch, came = came[:count], came[count:]
        batches.append((batch, max(latest_us - 40 * S, 0) // 1000))  # Spark's is that of the batches before
        latest_us = max([latest_us, *(event.t_us for event in batch)])
        if chance.random() < 0.3:
            batches.append(([], max(latest_us - 40 * S, 0) // 1000))
    gone, handle = run(function, [*batches, ([], until_us // 1000)])
    assert gone == expected
    assert handle.states["waiting"].held is None


def test_a_timer_of_less_than_a_millisecond_waits_for_the_whole_one():
    events = [event._replace(t_us=event.t_us + 500) for event in story([("context", 0, 0, 1)])]
    gone, handle = run(FUNCTIONS[0], [(events, 0)])
    assert (gone, handle.timers) == (Counter(), {1})
    gone, handle = run(FUNCTIONS[0], [(events, 0), ([], 1)])
    assert gone == Counter({(500, client, (4,)): 1 for client in ("bob", "cy", "dan")})


def test_a_folder_of_events_that_is_not_there(tmp_path):
    with pytest.raises(InputMissing, match="folder of events"):
        streaming.event_stream(None, tmp_path / "nofolder")

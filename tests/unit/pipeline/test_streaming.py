"""Engine in the state of a streaming query: batches, disorder and timers do not change what is sent."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from radiator_streams import FUNCTIONS, RETENTION_S, S, build_events, random_steps, release_by_one_engine

from mudkit.errors import InputMissing
from mudkit.pipeline import streaming
from mudkit.pipeline.streaming import Keeper
from mudkit.systems.radiator import Shares


class State:
    """Value or list state, with the interface of Spark's handle."""

    def __init__(self):
        self.stored = None

    def exists(self):
        return self.stored is not None

    def get(self):
        return iter(self.stored or ()) if isinstance(self.stored, list | None) else self.stored

    def update(self, value):
        assert [type(part) for part in value] == [bytes]
        self.stored = value

    def put(self, rows):
        assert rows
        self.stored = [tuple(row) for row in rows]

    def clear(self):
        assert self.stored, "each call is a message to Java: only what is there is cleared"
        self.stored = None


class Handle:
    """State of one share, with its timers."""

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


def process_batches(function, batches):
    """Process batches of (events, watermark in ms), each with a new keeper, as after a restart."""
    handle, sent = Handle(), Counter()
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
            sent.update((row.t_us, client, tuple(row.numbers)) for client in row.recipients)
    return sent, handle


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
@pytest.mark.parametrize("seed", range(4))
def test_batches_and_disorder_do_not_change_the_output(function, seed):
    chance = random.Random(seed)
    # A watermark of zero means none, so the events start later.
    events = [event._replace(t_us=event.t_us + 1000 * S) for event in build_events(random_steps(chance, 80))]
    until_us = events[-1].t_us + round(2 * RETENTION_S * S)
    expected, _ = release_by_one_engine(function, events, until_us)
    arrivals = sorted(events, key=lambda event: event.t_us + chance.random() * 40 * S)
    batches, latest_us = [], 0
    while arrivals:
        count = chance.choice([1, 2, 5, 30])
        batch, arrivals = arrivals[:count], arrivals[count:]
        batches.append(
            (batch, max(latest_us - 40 * S, 0) // 1000)
        )  # Spark uses the watermark of earlier batches
        latest_us = max([latest_us, *(event.t_us for event in batch)])
        if chance.random() < 0.3:
            batches.append(([], max(latest_us - 40 * S, 0) // 1000))
    sent, handle = process_batches(function, [*batches, ([], until_us // 1000)])
    assert sent == expected
    assert handle.states["waiting"].stored is None


def test_batch_that_is_due_at_once_clears_nothing():
    """The state of what waits forgets only what is there, and nothing waited before this batch."""
    events = build_events([("context", 0, 0, 1)])
    _, handle = process_batches(FUNCTIONS[0], [(events, events[-1].t_us // 1000 + 1)])
    assert handle.states["waiting"].stored is None


def test_timer_is_rounded_up_to_the_next_millisecond():
    events = [event._replace(t_us=event.t_us + 500) for event in build_events([("context", 0, 0, 1)])]
    sent, handle = process_batches(FUNCTIONS[0], [(events, 0)])
    assert (sent, handle.timers) == (Counter(), {1})
    sent, handle = process_batches(FUNCTIONS[0], [(events, 0), ([], 1)])
    assert sent == Counter({(500, client, (4,)): 1 for client in ("bob", "cy", "dan")})


def test_all_batches_that_ran_are_reported():
    """Spark keeps a limited number of batches, of which here two, so each poll must add its own."""
    progress = [{"batchId": number, "durationMs": {"addBatch": 1}} for number in range(5)]
    progress.append({"batchId": 5, "durationMs": {}})  # has not run
    polls = iter([(False, progress[:2]), (False, progress[1:3]), (True, progress[3:])])

    class Query:
        def awaitTermination(self, timeout_s):
            has_ended, self.recentProgress = next(polls)
            return has_ended

    assert streaming._wait_for(Query()) == progress[:5]


def test_missing_folder_of_events_is_refused(tmp_path):
    with pytest.raises(InputMissing, match="folder of events"):
        streaming.event_stream(None, tmp_path / "nofolder")

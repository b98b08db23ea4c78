"""Load of a server: workers, a queue with a bound, and what is counted, against a plain simulation."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pytest
from examples import examples
from fleet_machines import Puppet
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab, ServerProfile
from mudkit.errors import ParameterError
from mudkit.events import CancelTimer, Received, Send, SendFailed, SetTimer, TimerFired, size_bytes

S = 1_000_000
BETWEEN_SERVERS_US = 500

arrivals = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=25
)
profiles = st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(1, 3), st.integers(0, 4))


class Answering(Puppet):
    """Machine that answers each message with as many bytes as it says."""

    def handle(self, now_us: int, event: Any) -> Any:
        super().handle(now_us, event)
        return [Send(event.source, b"x" * event.message[1])] if isinstance(event, Received) else ()


class Played:
    """Lab in which one server sends messages to another that has a profile.

    Each message is a time, a number of letters to fill it with, and the number of bytes of its answer.
    """

    def __init__(self, jobs: list[tuple[int, int, int]], profile: ServerProfile) -> None:
        self.lab = Lab(seed=1)
        self.messages = [[number, answer, "x" * fill] for number, (_, fill, answer) in enumerate(jobs)]
        self.starts: list[Answering] = []
        """The machine of the busy server, at each of its starts."""
        self.source = Puppet(None)  # type: ignore[arg-type]
        source = self.lab.server("source").install("puppets", lambda ports: self.source)
        self.lab.server("busy", profile=profile).install("puppets", self._start)
        for (t_us, *_), message in zip(jobs, self.messages, strict=True):
            effects = [Send("busy", message)]
            self.lab.world.schedule_action(t_us, lambda effects: source.call("do", effects=effects), effects)

    def _start(self, ports: Any) -> Answering:
        self.starts.append(Answering(ports))
        return self.starts[-1]

    def handled(self) -> dict[int, int]:
        """Return when each message was handled, by number."""
        seen = [one for machine in self.starts for one in machine.seen]
        return {event.message[0]: t_us for t_us, event in seen if isinstance(event, Received)}

    def fates(self) -> dict[str, int]:
        """Return how many messages to the busy server had each fate."""
        messages = self.lab.frame("messages")
        return dict(messages.loc[messages["target"] == "busy", "fate"].value_counts())


def simulate(
    jobs: list[tuple[int, int, int]], sizes: list[int], profile: ServerProfile
) -> tuple[dict[int, int], set[int]]:
    """Return when each job is handled, and which are lost: first come, first served, by the times of workers."""
    free_us = [0] * profile.workers
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    lost: set[int] = set()
    for number in sorted(range(len(jobs)), key=lambda number: jobs[number][0]):
        came_us = jobs[number][0] + BETWEEN_SERVERS_US
        waiting = sum(begin_us > came_us for begin_us in begins.values())
        worker = min(range(profile.workers), key=lambda worker: free_us[worker])
        if free_us[worker] > came_us and waiting >= profile.max_waiting:
            lost.add(number)
            continue
        begins[number] = max(came_us, free_us[worker])
        ends[number] = begins[number] + round(profile.event_us + sizes[number] * profile.byte_us)
        free_us[worker] = ends[number] + round(jobs[number][2] * profile.byte_us)
    return ends, lost


@examples(100)
@given(drawn=arrivals, times=profiles)
def test_queue_serves_as_a_simulation_by_hand(drawn: Any, times: Any) -> None:
    profile = ServerProfile(times[0] * 1000, times[1] * 1000, times[2], times[3])
    jobs = [(1000 * t + number, fill, answer) for number, (t, fill, answer) in enumerate(drawn)]  # no ties
    played = Played(jobs, profile)
    played.lab.run(hours=1)
    sizes = [size_bytes(message) for message in played.messages]
    ends_us, lost = simulate(jobs, sizes, profile)
    assert played.handled() == ends_us
    assert played.fates().get("queue full", 0) == len(lost)
    load = played.lab.server_load()
    assert (load["served"].sum(), load["lost"].sum()) == (len(ends_us), len(lost))
    carried_bytes = sum(sizes[number] + jobs[number][2] for number in ends_us)
    busy_us = len(ends_us) * profile.event_us + carried_bytes * profile.byte_us
    assert (load["busy_share"] * 60 * S * profile.workers).sum() == pytest.approx(busy_us)


def test_waiting_time_and_queue_are_counted_by_minute():
    played = Played([(59 * S + number, 0, 0) for number in range(4)], ServerProfile(event_us=2 * S))
    played.lab.run(hours=1)
    load = played.lab.server_load()
    assert load["server"].tolist() == ["busy", "busy"]
    minutes = pd.date_range(played.lab.now - dt.timedelta(hours=1), periods=2, freq="min", tz="UTC")
    assert load["start"].tolist() == minutes.tolist()
    assert load["served"].tolist() == [1, 3]
    assert load["max_waiting"].tolist() == [3, 0]
    assert load["busy_share"].tolist() == pytest.approx([1 / 60, 7 / 60], abs=1e-4)
    assert load["max_wait_s"].tolist() == pytest.approx([0, 6], abs=1e-4)
    assert load["mean_wait_s"].tolist() == pytest.approx([0, 4], abs=1e-4)
    assert load["start"].diff().dt.total_seconds().tolist()[1:] == [60.0]


def test_timer_of_a_busy_server_waits_and_can_be_cancelled_meanwhile():
    lab = Lab(seed=1)
    puppets: list[Puppet] = []

    def make(ports: Any) -> Puppet:
        puppets.append(Puppet(ports))
        return puppets[-1]

    server = lab.server("busy", profile=ServerProfile(event_us=S, max_waiting=0)).install("puppets", make)
    server.call("do", effects=[SetTimer(name, 10) for name in ("one", "two", "three")])
    lab.run(seconds=1.5)
    server.call("do", effects=[CancelTimer("three")])
    lab.run(seconds=10)
    fired = [(t_us, event.name) for t_us, event in puppets[0].seen if isinstance(event, TimerFired)]
    assert fired == [(10 + S, "one"), (10 + 2 * S, "two")]


@pytest.mark.parametrize(("after_s", "handled"), [(0.5, 0), (1.5, 1)])
def test_kill_of_a_busy_server_fails_what_it_had(after_s, handled):
    """One message is served and one waits, or the first is done: what is left does not reach the next start."""
    played = Played([(0, 0, 0), (1, 0, 0)], ServerProfile(event_us=S))
    played.lab.run(seconds=after_s)
    played.lab.faults.kill("busy")
    played.lab.faults.restart("busy")
    played.lab.run(seconds=20)
    assert len(played.starts) == 2
    assert len(played.handled()) == handled
    assert len(played.source.of(SendFailed)) == 2 - handled
    assert played.fates() == {"nobody there": 2 - handled} | ({"arrived": handled} if handled else {})
    assert not played.lab.world.transfers_under_way()


def test_messages_that_wait_are_under_way():
    played = Played([(0, 0, 0), (1, 0, 0)], ServerProfile(event_us=60 * S))
    played.lab.run(seconds=30)
    assert played.fates() == {"under way": 2}


def test_profile_of_a_server_that_has_handled_events_cannot_change():
    """Its queue would be lost; the same profile again, as of a cell that runs twice, changes nothing."""
    profile = ServerProfile(event_us=60 * S)
    played = Played([(0, 0, 0), (1, 0, 0)], profile)
    played.lab.run(seconds=30)
    played.lab.server("busy", profile=profile)
    with pytest.raises(ParameterError, match="its queue would be lost"):
        played.lab.server("busy", profile=ServerProfile(event_us=1))
    with pytest.raises(ParameterError, match="before the first event"):
        played.lab.server("source", profile=profile)
    played.lab.run(seconds=100)
    assert played.handled() == {0: 60 * S + BETWEEN_SERVERS_US, 1: 120 * S + BETWEEN_SERVERS_US}


@pytest.mark.parametrize(
    "wrong", [{"event_us": -1.0}, {"byte_us": float("inf")}, {"workers": 0}, {"max_waiting": -1}]
)
def test_profile_without_sense_is_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        ServerProfile(**wrong)

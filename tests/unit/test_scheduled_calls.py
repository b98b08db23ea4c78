"""Calls that users schedule in a lab and the virtual time that ``result()`` runs."""

from __future__ import annotations

import datetime as dt
import inspect
import re
import warnings

import pytest

from mudkit import Lab
from mudkit.errors import (
    OperationTimeout,
    OutageEndedWarning,
    ParameterError,
    ReentrantRun,
    ScheduledCallFailed,
)
from mudkit.events import DEFAULT_TIMEOUT_S
from mudkit.systems.store_and_forward import Client, Relay

S = 1_000_000


def build_pair(seed: int = 7) -> tuple[Lab, Client, Client]:
    lab = Lab(seed)
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    return lab, ann, bob


def log_calls(lab: Lab, log: list[tuple[str, float]], name: str):
    return lambda: log.append((name, lab.world.now_us / S))


def test_calls_run_in_the_order_of_time_then_of_scheduling():
    lab, log = Lab(), []
    lab.schedule(log_calls(lab, log, "late"), minutes=10)
    lab.schedule(log_calls(lab, log, "early"), minutes=5, seconds=1)
    lab.schedule(log_calls(lab, log, "also late"), hours=1 / 6)
    lab.run(minutes=20)
    assert log == [("early", 301.0), ("late", 600.0), ("also late", 600.0)]


def test_a_call_runs_at_a_time_of_the_labs_clock():
    lab, log = Lab(start="2010-03-01T13:00"), []
    lab.run(minutes=1)
    lab.schedule(log_calls(lab, log, "text"), at="2010-03-01T13:10")
    lab.schedule(log_calls(lab, log, "zone"), at=dt.datetime.fromisoformat("2010-03-01T15:11:00+02:00"))
    lab.schedule(log_calls(lab, log, "now"), at=lab.now)
    lab.run(minutes=20)
    assert log == [("now", 60.0), ("text", 600.0), ("zone", 660.0)]


def test_a_call_runs_after_everything_else_of_its_time():
    """A call reads the state of that moment, as between two runs of a loop."""
    lab, log = Lab(), []
    lab.schedule(lambda: log.append("call"), seconds=5)
    lab.world.schedule_action(5 * S, lambda _: log.append("event"))
    lab.run(seconds=5)
    assert log == ["event", "call"]


def test_a_call_may_call_clients_and_schedule_more():
    lab, ann, bob = build_pair()
    sent = []

    def send() -> None:
        sent.append(ann.send("bob", "lunch?"))
        lab.schedule(lambda: sent.append(bob.send("ann", "yes")), minutes=1)

    lab.schedule(send, minutes=10)
    lab.run(minutes=30)
    assert [operation.invoked_us for operation in sent] == [600 * S, 660 * S]
    assert bob.read().result()[0]["text"] == "lunch?"
    assert ann.read().result()[0]["text"] == "yes"


def test_scheduled_calls_cost_what_a_loop_of_runs_costs():
    """The same calls at the same moments are the same run: same seed, same bytes."""
    lab, ann, _ = build_pair()
    for number in range(5):
        lab.run(minutes=10)
        ann.send("bob", f"message {number}")
    lab.run(minutes=10)
    scheduled, eve, _ = build_pair()
    numbers = iter(range(5))
    scheduled.repeat(lambda: eve.send("bob", f"message {next(numbers)}"), minutes=10, times=5)
    scheduled.run(hours=1)
    for table in ("bill", "messages", "transfers"):
        assert scheduled.trace.table(table).equals(lab.trace.table(table))


@pytest.mark.parametrize(
    ("options", "times_s"),
    [
        ({"minutes": 5}, [300.0, 600.0, 900.0, 1200.0]),
        ({"minutes": 5, "times": 2}, [300.0, 600.0]),
        ({"minutes": 5, "until": "2010-03-01T13:15"}, [300.0, 600.0, 900.0]),
        ({"minutes": 5, "until": "2010-03-01T13:15", "times": 1}, [300.0]),
        ({"minutes": 5, "until": "2010-03-01T13:04"}, []),
    ],
)
def test_a_repeated_call_ends_at_its_last_time(options, times_s):
    lab, log = Lab(), []
    lab.repeat(log_calls(lab, log, "call"), **options)
    lab.run(minutes=20)
    assert [at_s for _, at_s in log] == times_s


def test_a_cancelled_call_does_not_run_again():
    lab, log = Lab(), []
    once = lab.schedule(log_calls(lab, log, "once"), minutes=1)
    often = lab.repeat(
        lambda: (log.append(("often", 0.0)), often.cancel() if len(log) == 3 else None), seconds=1
    )
    once.cancel()
    lab.run(minutes=5)
    assert log == [("often", 0.0)] * 3
    assert (once.count, once.next_at, often.count, often.next_at) == (0, None, 3, None)


def test_a_handle_shows_its_call_and_its_times():
    lab = Lab(start="2010-03-01T13:00")

    def look_around() -> None:
        pass

    handle = lab.repeat(look_around, minutes=5)
    assert "look_around" in repr(handle)
    assert "13:05:00" in repr(handle)
    lab.run(minutes=12)
    assert handle.count == 2
    assert handle.next_at == dt.datetime(2010, 3, 1, 13, 15, tzinfo=dt.UTC)
    assert "5 min" in repr(handle)
    assert "2" in handle._repr_html_()
    handle.cancel()
    assert "13:15" not in repr(handle)
    assert "ended" in repr(handle)


def test_a_call_that_raises_ends_the_run_and_is_named():
    lab, log = Lab(), []

    def break_down() -> None:
        raise ValueError("no such person")

    handle = lab.repeat(break_down, minutes=10, times=2)
    lab.schedule(log_calls(lab, log, "later"), minutes=10)
    with pytest.raises(ScheduledCallFailed, match="break_down") as caught:
        lab.run(hours=1)
    assert "no such person" in str(caught.value)
    assert "ValueError" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert (lab.world.now_us, lab.world.is_idle, handle.count) == (600 * S, True, 1)
    lab.run(minutes=5)  # goes on between two events
    assert log == [("later", 600.0)]
    with pytest.raises(ScheduledCallFailed):
        lab.run(minutes=5)
    assert lab.world.now_us == 1200 * S
    assert handle.next_at is None


def test_a_call_that_waits_is_refused_in_words():
    """Virtual time would run inside a run."""
    lab, ann, _ = build_pair()
    lab.schedule(lambda: ann.send("bob", "lunch?").result(), minutes=1)
    with pytest.raises(
        ScheduledCallFailed, match=r"(?s)ReentrantRun.*add_done_callback instead of result\(\)"
    ) as caught:
        lab.run(minutes=2)
    assert isinstance(caught.value.__cause__, ReentrantRun)
    lab.schedule(lambda: lab.run(minutes=1), minutes=1)
    with pytest.raises(ScheduledCallFailed, match=r"lambda in line \d+ at 2010-03-01 13:02:00") as caught:
        lab.run(minutes=2)
    assert isinstance(caught.value.__cause__, ReentrantRun)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lambda lab: lab.schedule(print, at="2010-03-01T13:59"), r"in the past.*13:59.*14:00"),
        (lambda lab: lab.schedule(print, minutes=-1), r"minutes"),
        (lambda lab: lab.schedule(print, at="2010-03-01T15:00", minutes=1), r"at=.*minutes|minutes.*at="),
        (lambda lab: lab.schedule(print, at="soon"), r"soon"),
        (lambda lab: lab.schedule(print, hours=1e12), r"hours"),
        (lambda lab: lab.schedule("print", minutes=1), r"call"),
        (lambda lab: lab.schedule(lambda name: None, minutes=1), r"without arguments"),
        (lambda lab: lab.schedule(wait, minutes=1), r"async"),
        (lambda lab: lab.repeat(print), r"longer than 0"),
        (lambda lab: lab.repeat(print, seconds=1e-9), r"longer than 0"),
        (lambda lab: lab.repeat(print, minutes=1, times=0), r"times"),
        (
            lambda lab: lab.repeat(print, minutes=1, until="2010-03-01T13:30"),
            r"in the past.*until|until.*in the past",
        ),
    ],
)
def test_unusable_schedules_are_refused(schedule, words):
    lab = Lab(start="2010-03-01T13:00")
    lab.run(hours=1)
    before = len(lab.world.event_queue)
    with pytest.raises(ParameterError) as caught:
        schedule(lab)
    text = " ".join(str(caught.value).split())
    assert re.search(words, text), text
    assert len(lab.world.event_queue) == before


async def wait() -> None:
    """Stand for a function that a lab cannot call."""


def test_the_default_limit_is_shorter_than_the_life_of_a_token():
    """An operation that waits as long as it may still has the token with which it began."""
    life_h = inspect.signature(Lab.token).parameters["hours"].default
    assert life_h * 3600 > DEFAULT_TIMEOUT_S


def test_result_says_how_much_virtual_time_it_ran():
    lab, ann, _ = build_pair()
    operation = ann.send("bob", "lunch?")
    lab.run(seconds=10)
    operation.result()
    assert "result() ran" not in repr(operation)  # it was answered before
    lab.faults.cut("ann")
    operation = ann.send("bob", "dinner?")
    with pytest.raises(OperationTimeout, match=r"ran 1 h 30 min of virtual time"):
        operation.result(5400)
    assert "1 h 30 min" in repr(operation)
    lab.faults.mend("ann")
    operation.result()
    assert "1 h 30 min" in repr(operation)
    assert "result() ran" in operation._repr_html_()


def test_the_end_of_an_outage_inside_result_is_warned_of():
    """The scenario of the user, a device without a network, is over without notice otherwise."""
    lab, ann, _ = build_pair()
    lab.faults.cut("ann", minutes=10)
    operation = ann.send("bob", "lunch?")
    with pytest.warns(
        OutageEndedWarning, match=r"'send' ran 10 min.*virtual time.*ann at 600.000 s"
    ) as caught:
        operation.result()
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("end", ["later", "mended", "before"])
def test_no_warning_without_the_end_of_an_outage(end):
    lab, ann, _ = build_pair()
    lab.faults.cut("bob", minutes=10)
    if end == "mended":
        lab.faults.mend("bob")
    elif end == "before":
        lab.run(minutes=11)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ann.send("bob", "lunch?").result()
    assert caught == []


def test_one_warning_names_all_outages_that_ended():
    lab = Lab()
    relay = Relay(lab)
    clients = [Client(lab.device(name), relay) for name in ("ann", "bob")]
    for name in ("ann", "bob"):
        lab.faults.cut(name, minutes=10)
    with pytest.warns(OutageEndedWarning, match=r"ann.*bob") as caught:
        clients[0].send("bob", "lunch?").result()
    assert len(caught) == 1

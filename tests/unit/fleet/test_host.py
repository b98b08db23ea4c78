"""Hosts, their machines, and operations as futures in virtual time."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
from typing import Any

import pyarrow as pa
import pytest
from fleet_machines import Puppet
from lab_systems import install_answering

from mudkit import Lab
from mudkit.errors import FailureWarning, OperationLost, OperationTimeout, ParameterError
from mudkit.events import Call
from mudkit.fleet import World
from mudkit.fleet import host as module
from mudkit.sources.replay import Replay
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.schema import POSITIONS

S = 1_000_000


@pytest.fixture
def lab() -> Lab:
    return Lab(1)


@pytest.fixture
def ann(lab: Lab) -> Any:
    return install_answering(lab.device("ann"))[0]


def test_result_advances_time_exactly_to_the_answer(lab, ann):
    later = ann.call("later", s=90)
    assert not later.done()
    assert repr(later).startswith("<Operation later: on ann, ")
    assert later.result() == later.result() == "op 1"
    assert later.done()
    assert lab.world.now_us == 90 * S
    failed = ann.call("fail")
    for _ in range(2):
        with pytest.raises(LookupError, match="no such thing"):
            failed.result()
    assert lab.world.now_us == 90 * S
    assert lab.history()["status"].tolist() == ["ok", "failed"]


def test_call_while_time_is_stopped_is_handled_immediately(lab):
    ann, [machine] = install_answering(lab.device("ann"))
    lab.world.schedule_action(0, lambda _: machine.seen.append("due before"))
    operations = [ann.call("now", value=1), ann.call("never"), ann.call("fail")]
    assert [type(event).__name__ for event in machine.seen] == ["LinkUp", "str", "Call", "Call", "Call"]
    assert [operation.done() for operation in operations] == [True, False, True]
    assert operations[0].result() == 1
    with pytest.raises(LookupError, match="no such thing"):
        operations[2].result()
    assert lab.world.now_us == 0


def test_call_during_an_event_is_handled_afterwards(lab):
    ann, [machine] = install_answering(lab.device("ann"))
    seen: list[Any] = []

    def call(_: None) -> None:
        operation = ann.call("now", value=1)
        seen.append(operation.done())
        lab.world.schedule_action(lab.world.now_us, lambda _: seen.append(operation.done()))

    lab.world.schedule_action(S, call)
    lab.run(seconds=2)
    assert seen == [False, False]
    assert len(machine.of(Call)) == 1


def test_callback_runs_in_a_separate_event(lab, ann):
    results: list[Any] = []
    lab.run()
    ann.call("now", value=1).add_done_callback(lambda done: results.append(done.result()))
    assert results == []
    ann.call("now", value=2).add_done_callback(lambda done: results.append(done.result()))
    assert results == [1]  # due before
    lab.run()
    assert results == [1, 2]
    operation = ann.call("now", value=3)
    assert operation.result() == 3
    operation.add_done_callback(lambda done: results.append(done.result()))
    assert results == [1, 2, 3]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_until_a_call_is_handled(lab):
    ann, [machine] = install_answering(lab.device("ann"))
    lab.run()
    handled, handle = [], machine.handle

    def interrupt(now_us: int, event: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        handled.append(event)
        return handle(now_us, event)

    machine.handle = interrupt
    with pytest.raises(KeyboardInterrupt):
        ann.call("now", value=1)
    assert len(handled) == 1
    assert lab.history()["status"].tolist() == ["ok"]


def test_callbacks_added_before_and_after_completion_are_called(lab, ann):
    results: list[Any] = []
    later = ann.call("later", s=5)
    for number in range(3):
        later.add_done_callback(lambda done, number=number: results.append((number, done, lab.world.now_us)))
    lab.run(seconds=4)
    assert results == []
    lab.run(seconds=4)
    assert results == [(number, later, 5 * S) for number in range(3)]
    later.add_done_callback(lambda done: results.append(done.result()))
    assert results[3:] == ["op 1"]


@pytest.mark.parametrize("wait", [lambda lab, op: op.result(), lambda lab, op: lab.run(hours=1)])
def test_failing_callback_is_reported_and_others_are_called(lab, ann, wait):
    results: list[str] = []
    later = ann.call("later", s=5)
    later.add_done_callback(lambda done: results.append("first"))
    later.add_done_callback(lambda done: {}["missing"])
    later.add_done_callback(lambda done: results.append("third"))
    with pytest.warns(
        FailureWarning, match=r"(?s)KeyError.*in answering on ann at 5\.000000 s, in a callback of"
    ) as warned:
        wait(lab, later)
    assert len(warned) == 1
    assert results == ["first", "third"]
    assert later.result() == "op 1"
    [problem] = lab.problems.to_dict("records")
    assert (problem["device"], problem["system"]) == ("ann", "answering")
    assert "KeyError: 'missing'" in problem["detail"]
    assert "in a callback of <later on ann: ok>" in problem["detail"]
    assert ann.call("now", value=3).result() == 3


def test_failing_callback_raises_in_a_world_without_lab():
    results: list[str] = []
    world = World()
    ann, _ = install_answering(world.add_device("ann"))
    later = ann.call("later", s=5)
    later.add_done_callback(lambda done: {}["missing"])
    later.add_done_callback(lambda done: results.append("second"))
    with pytest.raises(KeyError, match="missing"):
        world.run(9 * S)
    assert (results, world.now_us) == ([], 5 * S)
    assert later.result() == "op 1"
    assert results == ["second"]


def test_callback_cannot_wait_for_a_result(lab, ann):
    results: list[Any] = []
    first, second = ann.call("later", s=5), ann.call("later", s=9)
    first.add_done_callback(lambda done: results.append(done.result()))
    first.add_done_callback(lambda done: second.result())
    with pytest.warns(FailureWarning, match="use add_done_callback instead"):
        assert first.result() == "op 1"
    assert results == ["op 1"]
    assert second.result() == "op 2"
    # Also while time is stopped: the answer exists, but not its event.
    ann.call("now").add_done_callback(lambda done: ann.call("now").result())
    with pytest.warns(FailureWarning, match="ReentrantRun"):
        lab.run(seconds=1)
    assert lab.problems["detail"].str.startswith("ReentrantRun").tolist() == [True, True]


def test_on_message_cannot_wait_for_a_result(lab):
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    bob.on_message(lambda message: bob.read().result())
    ann.send("bob", "lunch?")
    with pytest.warns(FailureWarning, match="inside a callback"):
        lab.run(minutes=1)
    assert bob.read().result() == []  # the inner read has taken it
    assert lab.history()["status"].tolist() == ["ok"] * 3


@pytest.mark.parametrize("timeout_s", [90, 0.25, 86_400])
def test_timeout_error_describes_the_operation(lab, timeout_s):
    client = Client(lab.device("ann", "edge"), Relay(lab))
    lab.run(minutes=3)
    lab.faults.cut("ann")
    operation = client.send("bob", "lunch?")
    with pytest.raises(OperationTimeout) as error:
        operation.result(timeout_s)
    assert lab.world.now_us == 180 * S + timeout_s * S
    text = str(error.value)
    for part in ("'send'", "ann", "has no network", "cut 1", f"within {timeout_s:,g} s", "timeout_s"):
        assert part in text
    lab.faults.mend("ann")
    assert operation.result() == 1


def test_timeout_error_names_the_network(lab, ann):
    with pytest.raises(OperationTimeout, match=r"ann has a network \(lte\) at 60\.000 s"):
        ann.call("never").result(60)


def test_answer_at_the_deadline_is_in_time(lab, ann):
    assert ann.call("later", s=60).result(60)
    with pytest.raises(OperationTimeout):
        ann.call("later", s=60.000001).result(60)


def test_operation_is_lost_when_its_machine_is_killed(lab, ann):
    results: list[Any] = []
    operation = ann.call("later", s=60)
    operation.add_done_callback(results.append)
    lab.run(seconds=30)
    lab.faults.kill("ann")
    for _ in range(2):
        with pytest.raises(OperationLost, match=r"'later'[\s\S]*killed at 30\.000 s"):
            operation.result()
    assert operation.done()
    assert results == [operation]
    lab.faults.restart("ann")
    assert ann.call("now", value=1).result() == 1
    lab.run(minutes=9)
    assert lab.history()["status"].tolist() == ["open", "ok"]


def test_operation_on_a_device_that_is_off_is_lost(lab, ann):
    lab.faults.switch_off("ann")
    with pytest.raises(OperationLost, match="the device is off"):
        ann.call("now").result()
    with pytest.raises(ParameterError, match="switch it on"):
        lab.faults.restart("ann")
    late, machines = install_answering(lab.devices["ann"], "late")
    assert machines == []
    lab.faults.switch_on("ann")
    assert ann.call("now", value=1).result() == late.call("now", value=1).result() == 1


def test_await_yields_between_events(lab, ann, monkeypatch):
    monkeypatch.setattr(module, "_TURN_S", 0.0)  # yield after each event
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def get(operation: Any) -> Any:
        return await operation

    async def run_cell() -> Any:
        ticking = asyncio.create_task(tick())
        for number in range(50):
            lab.world.schedule_action(number * 60 * S, lambda _: None)
        results = await asyncio.gather(get(ann.call("later", s=7200)), get(ann.call("later", s=3600)))
        assert not ticking.done()
        ticking.cancel()
        done = ann.call("now", value=1)
        return results, await done, await done

    assert asyncio.run(run_cell()) == (["op 1", "op 2"], 1, 1)
    assert lab.world.now_us == 7200 * S
    assert turns > 25


def test_await_raises_the_errors_of_result(lab, ann):
    async def wait(operation: Any) -> Any:
        return await operation

    with pytest.raises(LookupError, match="no such thing"):
        asyncio.run(wait(ann.call("fail")))
    with pytest.raises(OperationTimeout, match="43,200 s"):
        asyncio.run(wait(ann.call("never")))
    assert lab.world.now_us == 43_200 * S
    lab.faults.kill("ann")
    with pytest.raises(OperationLost):
        asyncio.run(wait(ann.call("now")))


def test_await_can_be_cancelled(lab, ann, monkeypatch):
    monkeypatch.setattr(module, "_TURN_S", 0.0)

    async def run_cell() -> None:
        lab.world.schedule_action(1, lambda _: waiting.cancel())
        await waiting

    async def main() -> None:
        nonlocal waiting
        waiting = asyncio.ensure_future(get())
        with pytest.raises(asyncio.CancelledError):
            await run_cell()

    async def get() -> Any:
        return await ann.call("later", s=5)

    waiting: Any = None
    asyncio.run(main())
    assert lab.world.now_us < 5 * S
    lab.run(seconds=9)
    assert lab.history()["status"].tolist() == ["ok"]


def test_result_raises_at_the_end_of_the_mobility_trace():
    times = [dt.datetime(2020, 1, 1, 0, minute, tzinfo=dt.UTC) for minute in range(10)]
    rows = pa.table(
        [["a"] * 10, times, [1.0] * 10, [2.0] * 10, pa.nulls(10, pa.float64())], names=POSITIONS.names
    ).cast(POSITIONS)
    lab = Lab()
    relay = Relay(lab)
    ann = Client(lab.device("ann", mobility=Replay(rows)), relay)
    lab.faults.cut("ann")
    with pytest.raises(ParameterError, match="mobility trace does not cover"):
        ann.send("bob", "hello").result()
    assert lab.world.now_us == 540 * S


def test_failed_installation_can_be_repeated():
    lab = Lab()
    device = lab.device("ann")

    def fail(ports: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        device.install("s", fail)
    device.install("s", Puppet)
    lab.run(seconds=1)


def test_machines_draw_different_entropy():
    device = Lab().device("ann")
    draws = [
        device.install(system, Puppet, name=name).entropy(8)
        for system, name in (("a b", "c"), ("a", "b c"), ("a", "b"))
    ]
    assert len(set(draws)) == 3


def test_open_operation_shows_for_how_long_it_has_been_open():
    lab = Lab()
    process, _ = install_answering(lab.device("ann"))
    lab.run(minutes=5)
    operation = process.call("later", s=600)
    lab.run(seconds=90)
    assert "1 min 30 s of virtual time" in str(operation)

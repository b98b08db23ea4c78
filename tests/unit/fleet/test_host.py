"""Hosts, machines on them, and operations as futures in virtual time."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
from typing import Any

import pyarrow as pa
import pytest
from fleet_machines import Puppet
from lab_systems import answering

from mudkit import Lab
from mudkit.errors import FailureWarning, OperationLost, OperationTimeout, ParameterError
from mudkit.events import Call
from mudkit.fleet import World
from mudkit.fleet import host as module
from mudkit.sources.mobility import Replay
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.schema import POSITIONS

S = 1_000_000


@pytest.fixture
def lab() -> Lab:
    return Lab(1)


@pytest.fixture
def ann(lab: Lab) -> Any:
    return answering(lab.device("ann"))[0]


def test_result_lets_time_go_on_to_the_answer_and_no_further(lab, ann):
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


def test_what_is_asked_while_time_stands_still_is_handled_when_the_call_returns(lab):
    ann, [machine] = answering(lab.device("ann"))
    lab.world.at(0, lambda _: machine.seen.append("due before"))
    asked = [ann.call("now", value=1), ann.call("never"), ann.call("fail")]
    assert [type(each).__name__ for each in machine.seen] == ["LinkUp", "str", "Call", "Call", "Call"]
    assert [each.done() for each in asked] == [True, False, True]
    assert asked[0].result() == 1
    with pytest.raises(LookupError, match="no such thing"):
        asked[2].result()
    assert lab.world.now_us == 0


def test_who_asks_in_virtual_time_waits_for_its_turn(lab):
    ann, [machine] = answering(lab.device("ann"))
    seen: list[Any] = []

    def ask(_: None) -> None:
        made = ann.call("now", value=1)
        seen.append(made.done())
        lab.world.at(lab.world.now_us, lambda _: seen.append(made.done()))

    lab.world.at(S, ask)
    lab.run(seconds=2)
    assert seen == [False, False]
    assert len(machine.of(Call)) == 1


def test_a_callback_comes_in_an_event_of_its_own_also_to_what_is_answered_at_once(lab, ann):
    answer: list[Any] = []
    lab.run()
    ann.call("now", value=1).add_done_callback(lambda done: answer.append(done.result()))
    assert answer == []
    ann.call("now", value=2).add_done_callback(lambda done: answer.append(done.result()))
    assert answer == [1]  # it was due before
    lab.run()
    assert answer == [1, 2]
    known = ann.call("now", value=3)
    assert known.result() == 3
    known.add_done_callback(lambda done: answer.append(done.result()))
    assert answer == [1, 2, 3]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_until_a_call_is_handled(lab):
    ann, [machine] = answering(lab.device("ann"))
    lab.run()
    handled, handle = [], machine.handle

    def interrupted(now_us: int, event: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        handled.append(event)
        return handle(now_us, event)

    machine.handle = interrupted
    with pytest.raises(KeyboardInterrupt):
        ann.call("now", value=1)
    assert len(handled) == 1
    assert lab.history()["status"].tolist() == ["ok"]


def test_callbacks_before_and_after(lab, ann):
    answer: list[Any] = []
    later = ann.call("later", s=5)
    for number in range(3):
        later.add_done_callback(lambda done, number=number: answer.append((number, done, lab.world.now_us)))
    lab.run(seconds=4)
    assert answer == []
    lab.run(seconds=4)
    assert answer == [(number, later, 5 * S) for number in range(3)]
    later.add_done_callback(lambda done: answer.append(done.result()))
    assert answer[3:] == ["op 1"]


@pytest.mark.parametrize("wait", [lambda lab, op: op.result(), lambda lab, op: lab.run(hours=1)])
def test_a_callback_that_raises_is_told_and_the_others_are_called(lab, ann, wait):
    answer: list[str] = []
    later = ann.call("later", s=5)
    later.add_done_callback(lambda done: answer.append("first"))
    later.add_done_callback(lambda done: {}["missing"])
    later.add_done_callback(lambda done: answer.append("third"))
    with pytest.warns(
        FailureWarning, match=r"(?s)KeyError.*in answering on ann at 5\.000000 s, in a callback of"
    ) as warned:
        wait(lab, later)
    assert len(warned) == 1
    assert answer == ["first", "third"]
    assert later.result() == "op 1"
    [problem] = lab.problems.to_dict("records")
    assert (problem["device"], problem["system"]) == ("ann", "answering")
    assert "KeyError: 'missing'" in problem["detail"]
    assert "in a callback of <later on ann: ok>" in problem["detail"]
    assert ann.call("now", value=3).result() == 3


def test_in_a_bare_world_a_callback_that_raises_comes_out_and_the_others_are_called_later():
    answer: list[str] = []
    world = World()
    ann, _ = answering(world.add_device("ann"))
    later = ann.call("later", s=5)
    later.add_done_callback(lambda done: {}["missing"])
    later.add_done_callback(lambda done: answer.append("second"))
    with pytest.raises(KeyError, match="missing"):
        world.run(9 * S)
    assert (answer, world.now_us) == ([], 5 * S)
    assert later.result() == "op 1"
    assert answer == ["second"]


def test_what_a_callback_may_not_do(lab, ann):
    answer: list[Any] = []
    first, second = ann.call("later", s=5), ann.call("later", s=9)
    first.add_done_callback(lambda done: answer.append(done.result()))
    first.add_done_callback(lambda done: second.result())
    with pytest.warns(FailureWarning, match="use add_done_callback instead"):
        assert first.result() == "op 1"
    assert answer == ["op 1"]
    assert second.result() == "op 2"
    # Also when time stands still: the answer is there, its event is not.
    ann.call("now").add_done_callback(lambda done: ann.call("now").result())
    with pytest.warns(FailureWarning, match="ReentrantRun"):
        lab.run(seconds=1)
    assert lab.problems["detail"].str.startswith("ReentrantRun").tolist() == [True, True]


def test_waiting_inside_on_message(lab):
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    bob.on_message(lambda message: bob.read().result())
    ann.send("bob", "lunch?")
    with pytest.warns(FailureWarning, match="inside a callback"):
        lab.run(minutes=1)
    assert bob.read().result() == []  # the one inside was asked, and has read it
    assert lab.history()["status"].tolist() == ["ok"] * 3


@pytest.mark.parametrize("timeout_s", [90, 0.25, 86_400])
def test_timeout(lab, timeout_s):
    client = Client(lab.device("ann", "edge"), Relay(lab))
    lab.run(minutes=3)
    lab.faults.cut("ann")
    sent = client.send("bob", "lunch?")
    with pytest.raises(OperationTimeout) as error:
        sent.result(timeout_s)
    assert lab.world.now_us == 180 * S + timeout_s * S
    answer = str(error.value)
    for each in ("'send'", "ann", "has no network", "cut 1", f"within {timeout_s:,g} s", "timeout_s"):
        assert each in answer
    lab.faults.mend("ann")
    assert sent.result() == 1


def test_a_timeout_of_a_device_with_a_network(lab, ann):
    with pytest.raises(OperationTimeout, match=r"ann has a network \(lte\) at 60\.000 s"):
        ann.call("never").result(60)


def test_an_answer_at_the_deadline_is_in_time(lab, ann):
    assert ann.call("later", s=60).result(60)
    with pytest.raises(OperationTimeout):
        ann.call("later", s=60.000001).result(60)


def test_lost_with_its_machine(lab, ann):
    answer: list[Any] = []
    lost = ann.call("later", s=60)
    lost.add_done_callback(answer.append)
    lab.run(seconds=30)
    lab.faults.kill("ann")
    for _ in range(2):
        with pytest.raises(OperationLost, match=r"'later'[\s\S]*killed at 30\.000 s"):
            lost.result()
    assert lost.done()
    assert answer == [lost]
    lab.faults.restart("ann")
    assert ann.call("now", value=1).result() == 1
    lab.run(minutes=9)
    assert lab.history()["status"].tolist() == ["open", "ok"]


def test_lost_on_a_device_that_is_off(lab, ann):
    lab.faults.switch_off("ann")
    with pytest.raises(OperationLost, match="the device is off"):
        ann.call("now").result()
    with pytest.raises(ParameterError, match="switch it on"):
        lab.faults.restart("ann")
    late, lives = answering(lab.devices["ann"], "late")
    assert lives == []
    lab.faults.switch_on("ann")
    assert ann.call("now", value=1).result() == late.call("now", value=1).result() == 1


def test_await(lab, ann, monkeypatch):
    monkeypatch.setattr(module, "_TURN_S", 0.0)  # each event is a turn
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def get(operation: Any) -> Any:
        return await operation

    async def cell() -> Any:
        ticking = asyncio.create_task(tick())
        for number in range(50):
            lab.world.at(number * 60 * S, lambda _: None)
        both = await asyncio.gather(get(ann.call("later", s=7200)), get(ann.call("later", s=3600)))
        assert not ticking.done()
        ticking.cancel()
        done = ann.call("now", value=1)
        return both, await done, await done

    assert asyncio.run(cell()) == (["op 1", "op 2"], 1, 1)
    assert lab.world.now_us == 7200 * S
    assert turns > 25


def test_await_raises_what_result_raises(lab, ann):
    async def wait(operation: Any) -> Any:
        return await operation

    with pytest.raises(LookupError, match="no such thing"):
        asyncio.run(wait(ann.call("fail")))
    with pytest.raises(OperationTimeout, match="86,400 s"):
        asyncio.run(wait(ann.call("never")))
    assert lab.world.now_us == 86_400 * S
    lab.faults.kill("ann")
    with pytest.raises(OperationLost):
        asyncio.run(wait(ann.call("now")))


def test_an_await_may_be_given_up(lab, ann, monkeypatch):
    monkeypatch.setattr(module, "_TURN_S", 0.0)

    async def cell() -> None:
        lab.world.at(1, lambda _: waiting.cancel())
        await waiting

    async def main() -> None:
        nonlocal waiting
        waiting = asyncio.ensure_future(get())
        with pytest.raises(asyncio.CancelledError):
            await cell()

    async def get() -> Any:
        return await ann.call("later", s=5)

    waiting: Any = None
    asyncio.run(main())
    assert lab.world.now_us < 5 * S
    lab.run(seconds=9)
    assert lab.history()["status"].tolist() == ["ok"]


def test_waiting_for_an_answer_ends_where_the_trace_ends():
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


def test_a_machine_that_could_not_be_made_can_be_installed_again():
    lab = Lab()
    device = lab.device("ann")

    def broken(ports: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        device.install("s", broken)
    device.install("s", Puppet)
    lab.run(seconds=1)


def test_no_two_machines_draw_alike():
    device = Lab().device("ann")
    drawn = [
        device.install(system, Puppet, name=name).entropy(8)
        for system, name in (("a b", "c"), ("a", "b c"), ("a", "b"))
    ]
    assert len(set(drawn)) == 3

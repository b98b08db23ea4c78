"""An exception ends what it came out of and nothing else, and is told; see World._fails, World.failed and Process.start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mudkit import Lab
from mudkit.errors import FailureWarning, SimulationProblem
from mudkit.events import Call, Complete, Effect, Event, Notify, Ports, Received, Send, SetTimer, TimerFired
from mudkit.fleet import World
from mudkit.fleet.store import SqliteStore

S = 1_000_000


class Brittle:
    """Counts in its store whatever it handles, and then fails at what says so."""

    def __init__(self, ports: Ports) -> None:
        if ports.store.get("refuses"):
            ports.store.put("half", "made")
            raise OSError("cannot be made")
        self._store = ports.store

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        self._store.put("count", (self._store.get("count") or 0) + 1)
        match event:
            case Call(op_id=op_id, operation="fail"):
                self._store.put("half", "done")
                raise ZeroDivisionError(f"at call {op_id}")
            case Call(op_id=op_id, operation="refuse"):
                self._store.put("refuses", True)
                return (Complete(op_id),)
            case Call(op_id=op_id, operation="timer"):
                return SetTimer("fails", 2 * S), SetTimer("goes on", 3 * S), Complete(op_id)
            case Call(op_id=op_id, operation="send", arguments={"to": to, "message": message}):
                return Send(to, message), Complete(op_id)
            case Call(op_id=op_id, operation="tell"):
                return Notify("app", "news"), Complete(op_id)
            case Call(op_id=op_id):
                return (Complete(op_id, self._store.get("count")),)
            case TimerFired(name="fails") | Received(message="fail"):
                self._store.put("half", "done")
                raise ZeroDivisionError("at a timer or message")
        return ()


def place(lab: Any) -> tuple[Any, Any]:
    return tuple(lab.device(name).install("brittle", Brittle) for name in ("ann", "bob"))


def counted(process: Any) -> int:
    """Say how many calls, messages and timers were kept; the link is one."""
    return process.store.get("count") or 0


@pytest.mark.parametrize(
    ("provoke", "who", "where"),
    [
        (
            lambda ann, bob: ann.call("send", to="bob", message="fail"),
            "bob",
            "handling Received(source='ann'",
        ),
        (lambda ann, bob: ann.call("timer"), "ann", "handling TimerFired(name='fails')"),
        (
            lambda ann, bob: bob.host.world.ask_at(S, lambda _: bob.call("fail")),
            "bob",
            "handling Call(op_id=1",
        ),
    ],
)
def test_a_machine_that_fails_ends_that_event_alone(
    provoke: Callable[..., Any], who: str, where: str
) -> None:
    lab = Lab(seed=1)
    ann, bob = place(lab)
    lab.run(seconds=1)
    began = {process.host.name: counted(process) for process in (ann, bob)}
    provoke(ann, bob)
    with pytest.warns(
        FailureWarning, match="(?s)the lab has gone on: ZeroDivisionError.*See lab.problems"
    ) as warned:
        lab.run(seconds=9)
    assert len(warned) == 1
    assert lab.world.now_us == 10 * S
    [problem] = lab.problems.to_dict("records")
    assert (problem["device"], problem["system"]) == (who, "brittle")
    assert where in problem["detail"]
    failed = ann if who == "ann" else bob
    assert failed.store.get("half") is None  # the store is as it was before
    assert not failed.store.is_dirty
    kept = {"ann": 2} if "Timer" in where else {"ann": 1} if "Received" in where else {}
    assert counted(ann) - began["ann"] == kept.get("ann", 0)
    assert counted(bob) - began["bob"] == 0
    assert [each.call("count").result() for each in (ann, bob)] == [counted(ann), counted(bob)]
    lab.run(seconds=9)  # told once


def test_a_call_that_fails_is_answered_with_it_and_others_are_answered_as_well() -> None:
    lab = Lab(seed=1)
    ann, bob = place(lab)
    lab.run(seconds=1)
    with pytest.warns(FailureWarning, match=r"handling Call\(op_id=1") as warned:
        failed = ann.call("fail")  # while time stands still: it is told at once
    assert len(warned) == 1
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="at call 1"):
            failed.result()
    assert failed.status == "failed"
    assert ann.call("count").result() == bob.call("count").result() == 2
    assert lab.history()["status"].tolist() == ["failed", "ok", "ok"]
    assert len(lab.problems) == 1


def test_a_listener_that_fails_keeps_nothing_from_the_others() -> None:
    lab = Lab(seed=1)
    ann, _ = place(lab)
    answer: list[Any] = []
    ann.listen("app", lambda payload: {}[payload])
    ann.listen("app", answer.append)
    asked = ann.call("tell")
    with pytest.warns(FailureWarning, match=r"KeyError: 'news'[\s\S]*in a callback of 'app', told 'news'"):
        lab.run(seconds=1)
    assert (asked.status, answer) == ("ok", ["news"])
    assert lab.problems[["device", "system"]].to_numpy().tolist() == [["ann", "brittle"]]


@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_machine_that_cannot_be_made_again_is_told_and_the_others_of_its_host_are_there(
    where, tmp_path
) -> None:
    lab = Lab(seed=1)
    device = lab.device("ann", storage=tmp_path if where == "file" else None)
    first, second = (device.install("brittle", Brittle, name=name) for name in ("first", "second"))
    first.call("refuse").result()
    lab.faults.kill("ann")
    lab.world.at(5 * S, lambda _: lab.faults.restart("ann"))
    with pytest.warns(FailureWarning, match=r"OSError: cannot be made[\s\S]*making it") as warned:
        lab.run(seconds=9)
    assert len(warned) == 1
    assert lab.world.now_us == 9 * S
    assert (first.machine, first.store.get("half"), first.store.is_dirty) == (None, None, False)
    assert second.call("count").status == "ok"
    assert first.call("count").done()  # nobody will answer it
    incidents = lab.frame("incidents")
    assert incidents.loc[incidents["incident"] == "restarted", "detail"].tolist() == ["second"]
    assert lab.problems[["device", "system"]].to_numpy().tolist() == [["ann", "brittle"]]
    with pytest.warns(FailureWarning, match="cannot be made"):
        lab.faults.restart("ann")  # also told when time stands still
    first.store.delete("refuses")
    first.store.commit()
    lab.faults.restart("ann")
    assert first.call("count").status == "ok"
    if isinstance(first.store, SqliteStore):
        for process in (first, second):
            process.store.close()


def test_a_device_that_is_switched_on_has_its_link_though_a_machine_cannot_be_made() -> None:
    lab = Lab(seed=1)
    ann, bob = place(lab)
    ann.call("refuse").result()
    lab.faults.switch_off("ann")
    with pytest.warns(FailureWarning):
        lab.faults.switch_on("ann")
    assert ann.host.is_online
    assert bob.call("count").status == "ok"


def test_in_a_bare_world_a_failure_comes_out() -> None:
    world = World(1)
    ann, bob = (world.add_device(name).install("brittle", Brittle) for name in ("ann", "bob"))
    world.run(S)
    ann.call("timer")
    with pytest.raises(ZeroDivisionError) as caught:
        world.run(9 * S)
    assert world.now_us == 3 * S
    assert caught.value.__notes__ == ["in brittle on ann at 3.000000 s, handling TimerFired(name='fails')"]
    assert ann.store.get("half") is None
    world.run(9 * S)
    assert bob.call("count").status == "ok"
    with pytest.raises(ZeroDivisionError):
        bob.call("fail")
    ann.listen("app", lambda payload: {}[payload])
    ann.call("tell")
    with pytest.raises(KeyError):
        world.run(9 * S)
    ann.call("refuse")
    ann.kill()
    with pytest.raises(OSError, match="cannot be made"):
        ann.host.restart()


class Yielding:
    """Gives its effects one after the other, as a generator does; what a user writes first."""

    def __init__(self, ports: Ports) -> None:
        self._store = ports.store

    def handle(self, now_us: int, event: Event) -> Any:
        if isinstance(event, Call):
            self._store.put("count", (self._store.get("count") or 0) + 1)
            yield Complete(event.op_id, self._store.get("count"))
            if event.operation == "fail":
                raise ZeroDivisionError("halfway")


def test_effects_that_are_made_on_the_way_are_all_there_or_none() -> None:
    lab = Lab(seed=1)
    ann = lab.device("ann").install("yielding", Yielding)
    assert ann.call("count").result() == 1
    with pytest.warns(FailureWarning, match="halfway"):
        failed = ann.call("fail")
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert (ann.store.get("count"), ann.store.is_dirty) == (1, False)
    assert ann.call("count").result() == 2


def test_effects_that_are_no_sequence_change_nothing() -> None:
    class Forgetful(Brittle):
        def handle(self, now_us: int, event: Event) -> Any:
            super().handle(now_us, event)  # and no return

    lab = Lab(seed=1)
    ann = lab.device("ann").install("forgetful", Forgetful)
    with pytest.warns(FailureWarning, match="and 1 more"):
        asked = ann.call("count")
    with pytest.raises(SimulationProblem, match="a sequence of Send"):
        asked.result()
    assert ann.store.get("count") is None
    assert len(lab.problems) == 2  # its link came up, too


def test_of_very_many_failures_some_are_kept_and_all_are_counted() -> None:
    class Hopeless:
        def __init__(self, ports: Ports) -> None:
            self._left = 5_000

        def handle(self, now_us: int, event: Event) -> Any:
            if isinstance(event, TimerFired):
                raise ZeroDivisionError
            return [SetTimer(f"{number}", number) for number in range(self._left)]

    lab = Lab(seed=1)
    lab.server("hopeless").install("hopeless", lambda ports: Hopeless(ports))
    with pytest.warns(FailureWarning, match="and 4,999 more") as warned:
        lab.run(seconds=1)
    [warning] = [each.message for each in warned]
    assert (warning.count, len(warning.errors)) == (5_000, 100)
    assert len(lab.problems) == 5_000

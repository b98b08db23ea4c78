"""The kernel: effects in order, messages and addresses, and failures of machines and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fleet_machines import Puppet, Stage

from mudkit import Lab
from mudkit.errors import FailureWarning, ParameterError, SimulationProblem
from mudkit.events import (
    Call,
    CancelTimer,
    Ciphertext,
    Complete,
    ContextChanged,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Notify,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.experiment import Direct, Item, Scenario, StoreAndForward, Task, Testbed
from mudkit.fleet import World
from mudkit.fleet.store import SqliteStore
from mudkit.systems.store_and_forward import Client, Relay

S = 1_000_000


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_each_machine_hears_first_of_its_network(stage):
    assert [event for _, event in stage.puppets["ann"].seen] == [LinkUp("ann", "lte")]
    assert [event for _, event in stage.puppets["server"].seen] == [LinkUp("server", "server")]


def test_a_message_takes_the_time_of_its_bytes_and_its_way(stage):
    stage.do("ann", Send("server", b"x" * 141_000))
    stage.world.run(60 * S)
    [(t_us, event)] = stage.puppets["server"].seen[1:]
    assert event == Received("ann", b"x" * 141_000, "ann")
    carried_us = 141_000 * 8_000 / 5_640
    assert carried_us + 260_000 < t_us < carried_us + 260_000 + 200_000  # the radio was closed
    assert stage.account("ann", "up")[3:5] == (1, 141_000)


def test_from_device_to_device_both_pay(stage):
    stage.do("ann", Send("bob", {"a": 1}))
    stage.world.run(60 * S)
    assert stage.puppets["bob"].of(Received) == [Received("ann", {"a": 1}, "ann")]
    assert stage.account("ann", "up").bytes == stage.account("bob", "down").bytes == len('{"a":1}')


def test_without_a_link_or_a_receiver_sending_fails(stage):
    stage.do("ann", Send("nobody", 1))
    stage.world.run(S)
    stage.world.hosts["ann"].link_down()
    stage.do("ann", Send("server", 2))
    stage.do("server", Send("ann", 3))
    stage.world.run(2 * S)
    assert stage.puppets["ann"].of(SendFailed) == [SendFailed("nobody", 1), SendFailed("server", 2)]
    assert stage.puppets["server"].of(SendFailed) == [SendFailed("ann", 3)]
    assert [row.direction for row in stage.world.bill()] == ["up"]  # nothing went down
    assert len(stage.puppets["ann"].of(LinkDown)) == 1


def test_a_cut_fails_what_is_under_way_and_charges_what_was_gone(stage):
    stage.do("ann", Send("server", b"x" * 1_410_000), Send("server", b"y" * 1000))
    stage.world.run(260_000 + S)
    stage.world.hosts["ann"].link_down()
    stage.world.run(60 * S)
    assert [event.message[:1] for event in stage.puppets["ann"].of(SendFailed)] == [b"x", b"y"]
    assert stage.puppets["server"].of(Received) == []
    assert stage.account("ann", "up").bytes == pytest.approx(S * 5_640 / 8_000, abs=2)


def test_timers_fire_once_are_replaced_and_cancelled(stage):
    stage.do(
        "ann",
        SetTimer("a", 2 * S),
        SetTimer("b", S),
        SetTimer("a", 3 * S),
        SetTimer("c", S),
        CancelTimer("c"),
    )
    stage.do("ann", CancelTimer("never set"))
    stage.world.run(60 * S)
    fired = [(t, event) for t, event in stage.puppets["ann"].seen if isinstance(event, TimerFired)]
    assert fired == [(S, TimerFired("b")), (3 * S, TimerFired("a"))]


@pytest.mark.soak
def test_a_million_timers_end(stage):
    stage.do("server", *(SetTimer(str(n), n % 1000) for n in range(1_000_000)))
    stage.world.run(S)
    times = [t for t, event in stage.puppets["server"].seen if isinstance(event, TimerFired)]
    assert len(times) == 1_000_000
    assert times == sorted(times)


def test_a_killed_machine_loses_its_timers_and_its_calls(stage):
    stage.do("ann", SetTimer("a", S))
    stage.world.run(S // 2)
    before = stage.puppets["ann"]
    stage.processes["ann"].kill()
    stage.do("ann", Send("server", 1))
    stage.do("server", Send("ann", 2))
    stage.world.run(2 * S)
    stage.processes["ann"].start()
    stage.world.run(3 * S)
    assert before.of(TimerFired) == []
    assert [event for _, event in stage.puppets["ann"].seen] == [LinkUp("ann", "lte")]
    assert stage.puppets["ann"] is not before
    assert stage.puppets["server"].of(SendFailed) == [SendFailed("ann", 2)]


def test_random_bytes_go_on_after_a_restart_and_differ_between_devices(stage):
    beside = stage.world.hosts["ann"].install("puppets", stage.maker("beside"), name="beside")
    assert beside.address == "ann/beside"
    first = stage.puppets["ann"].ports.entropy(20)
    assert stage.puppets["beside"].ports.entropy(20) != first
    stage.processes["ann"].kill()
    stage.processes["ann"].start()
    later = stage.puppets["ann"].ports.entropy(20)
    other = stage.puppets["bob"].ports.entropy(20)
    assert len({first, later, other}) == 3
    assert Stage().puppets["ann"].ports.entropy(20) == first != Stage(2).puppets["ann"].ports.entropy(20)


def test_context(stage):
    stage.world.hosts["ann"].change_context(age=30)
    stage.world.hosts["ann"].change_context(loc=(1, 2))
    stage.world.run(S)
    assert stage.puppets["ann"].of(ContextChanged)[-1] == ContextChanged({"age": 30, "loc": (1, 2)})


def test_an_error_in_a_machine_says_where(stage):
    with pytest.raises(KeyError, match="effects") as error:
        stage.processes["ann"].call("do")
    assert "in puppets on ann at 0.000000 s" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("at_us", "charged_mj"),
    [
        (100_000, 0.1 * 1210.7),  # while the radio opens
        (1_260_000, 0.26 * 1210.7 + 1288.04 + 5640 / 8 * 0.43839 * 8),  # a second into the transfer
    ],
)
def test_a_cut_radio_is_charged_for_what_it_has_done(stage, at_us, charged_mj):
    stage.do("ann", Send("server", b"x" * 1_410_000))
    stage.world.run(at_us)
    stage.world.hosts["ann"].link_down()
    stage.world.run(60 * S)
    assert stage.account("ann", "up").radio_mj == pytest.approx(charged_mj, rel=1e-4)


def test_a_radio_that_is_cut_and_back_at_once_is_opened_again(stage):
    stage.do("ann", Send("server", 1))
    stage.world.run(S)
    stage.world.hosts["ann"].link_down()
    stage.world.hosts["ann"].link_up()
    stage.do("ann", Send("server", 2))
    stage.world.run(9 * S)
    assert stage.account("ann", "up").wakeups == 2


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


def test_what_a_relay_stored_sealed_arrives_sealed():
    lab = Lab(1, record_exposure=True)

    class Keeper:
        def __init__(self, ports: Any) -> None:
            self.store = ports.store

        def handle(self, now_us: int, event: Any) -> Any:
            if isinstance(event, Received):
                self.store.put("kept", event.message)
                return (Send("bob", self.store.get("kept")),)
            return ()

    lab.server("relay").install("keep", Keeper)
    lab.device("bob").install("keep", Puppet)
    ann = lab.device("ann").install("keep", Puppet)
    ann.call("do", effects=[Send("relay", {"body": Ciphertext(b"..lunch.."), "to": "bob"})])
    lab.run(minutes=1)
    held = lab.exposure().set_index(["party", "how"])
    forms = held[held["field"].str.endswith("body")]["form"]
    assert set(forms.index) == {("relay", "received"), ("relay", "stored"), ("bob", "received")}
    assert set(forms) == {"ciphertext"}
    assert {party for party, _, _ in lab.trace.exposure.find("lunch")} == {"relay", "bob"}


def test_two_systems_in_one_lab():
    lab = Lab(1)
    lab.fleet(2)
    testbed = Testbed(Task.addressed(Scenario(devices=2)), lab)
    for system in (StoreAndForward(testbed), Direct(testbed)):
        to = {"to": ("phone-00001",)}
        system.publish(Item(f"by {system.name}", "phone-00000", to, 100, None))
    lab.run(minutes=1)
    assert sorted(zip(lab.deliveries()["system"], lab.deliveries()["status"], strict=True)) == [
        ("direct", "unread"),
        ("store and forward", "unread"),
    ]
    assert set(lab.bill()["system"]) == {"direct", "store and forward"}
    with pytest.raises(ParameterError, match="run twice"):
        Direct(testbed)


def test_what_is_on_its_way_goes_to_who_has_the_address_when_it_gets_there():
    stage = Stage()
    ann, bob = stage.world.hosts["ann"], stage.world.hosts["bob"]
    stage.do("ann", Send("bob@2", "early"))  # bob is there before the upload is over
    stage.world.at(1000, lambda _: bob.readdress("bob@2"))
    stage.world.run(9 * S)
    assert [event.message for event in stage.puppets["bob"].of(Received)] == ["early"]
    assert stage.account("bob", "down").messages == 1
    stage.do("server", Send("bob@2", "late"))  # bob goes, and ann comes, while it is on its way down

    def swap(_: Any) -> None:
        bob.readdress("bob@3")
        ann.readdress("bob@2")

    stage.world.at(stage.world.now_us + 1000, swap)
    stage.world.run(99 * S)
    assert [event.message for event in stage.puppets["ann"].of(Received)] == []
    assert {(row.device, row.direction) for row in stage.world.bill()} == {("ann", "up"), ("bob", "down")}


def test_an_address_is_taken_by_nobody_else():
    stage = Stage()
    stage.world.hosts["bob"].install("more", Puppet, name="x")
    before = dict(stage.world.at_address)
    for host, address in (("ann", "bob/x"), ("ann", "bob"), ("bob", "ann")):
        with pytest.raises(ParameterError, match="in use"):
            stage.world.hosts[host].readdress(address)
    with pytest.raises(ParameterError, match="in use"):
        stage.world.hosts["ann"].change_network("wifi", "bob")
    assert stage.world.at_address == before
    assert stage.world.hosts["ann"].is_online
    assert stage.world.hosts["ann"].network == "lte"
    stage.world.hosts["ann"].readdress("spot")
    with pytest.raises(ParameterError, match="of this name"):
        stage.world.add_device("spot")


def test_a_name_with_an_at_sign_moves_like_any_other():
    lab = Lab()
    lab.device("jane@home")
    assert lab.faults.change_network("jane@home", "wifi") == "jane@home@2"
    assert lab.faults.change_address("jane@home") == "jane@home@3"
    assert lab.devices["jane@home"].is_online


def test_a_long_message_on_a_slow_link_is_sent_once():
    lab = Lab(1)
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name, link="edge"), relay) for name in ("ann", "bob"))
    ann.send("bob", "x" * 200_000)
    lab.run(hours=1)
    assert lab.frame("messages")["kind"].value_counts()[["send", "deliver"]].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("effects", "answer"),
    [
        (["b"], "in puppets|puppets on ann"),
        ([Send("server", object())], "puppets on ann"),
        ([Record("reads", {})], "box_km"),
        ([Complete(1, error="bad")], "is an exception"),
    ],
)
def test_effects_that_are_none_say_whose_they_are(effects, answer):
    lab = Lab()
    process = lab.device("ann").install("puppets", Puppet)
    with pytest.warns(FailureWarning, match=answer):
        asked = process.call("do", effects=effects)
    with pytest.raises(SimulationProblem, match=answer):
        asked.result()
    [problem] = lab.problems.to_dict("records")
    assert (problem["device"], problem["system"]) == ("ann", "puppets")
    assert answer.split("|")[-1] in problem["detail"]


@pytest.mark.parametrize("delay_us", [100.5, float("nan"), "1", True, -1])
def test_a_timer_fires_on_a_microsecond_that_is_to_come(stage, delay_us):
    says = r"(?s)in the past.*puppets on ann" if delay_us == -1 else "puppets on ann"
    with pytest.raises(ParameterError, match=says):
        stage.do("ann", SetTimer("x", delay_us))

"""Kernel: order of effects, messages, addresses, and failures of machines and callbacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
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
    local_address,
)
from mudkit.fleet import World, kernel
from mudkit.fleet.store import SqliteStore
from mudkit.systems.store_and_forward import Client, DirectClient, Relay

S = 1_000_000


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_link_up_is_the_first_event_of_each_machine(stage):
    assert [event for _, event in stage.puppets["ann"].seen] == [LinkUp("ann", "lte")]
    assert [event for _, event in stage.puppets["server"].seen] == [LinkUp("server", "server")]


def test_message_time_is_transfer_time_plus_latency(stage):
    stage.do("ann", Send("server", b"x" * 141_000))
    stage.world.run(60 * S)
    [(t_us, event)] = stage.puppets["server"].seen[1:]
    assert event == Received("ann", b"x" * 141_000, "ann")
    carried_us = 141_000 * 8_000 / 5_640
    assert carried_us + 260_000 < t_us < carried_us + 260_000 + 200_000  # plus the promotion
    assert stage.account("ann", "up")[3:5] == (1, 141_000)


def test_both_devices_are_charged_for_a_message(stage):
    stage.do("ann", Send("bob", {"a": 1}))
    stage.world.run(60 * S)
    assert stage.puppets["bob"].of(Received) == [Received("ann", {"a": 1}, "ann")]
    assert stage.account("ann", "up").bytes == stage.account("bob", "down").bytes == len('{"a":1}')


def test_sending_fails_without_link_or_receiver(stage):
    stage.do("ann", Send("nobody", 1))
    stage.world.run(S)
    stage.world.hosts["ann"].link_down()
    stage.do("ann", Send("server", 2))
    stage.do("server", Send("ann", 3))
    stage.world.run(2 * S)
    assert stage.puppets["ann"].of(SendFailed) == [SendFailed("nobody", 1), SendFailed("server", 2)]
    assert stage.puppets["server"].of(SendFailed) == [SendFailed("ann", 3)]
    assert [row.direction for row in stage.world.bill()] == ["up"]  # nothing was sent down
    assert len(stage.puppets["ann"].of(LinkDown)) == 1


def test_cut_fails_transfers_in_flight_and_charges_carried_bytes(stage):
    stage.do("ann", Send("server", b"x" * 1_410_000), Send("server", b"y" * 1000))
    stage.world.run(260_000 + S)
    stage.world.hosts["ann"].link_down()
    stage.world.run(60 * S)
    assert [event.message[:1] for event in stage.puppets["ann"].of(SendFailed)] == [b"x", b"y"]
    assert stage.puppets["server"].of(Received) == []
    assert stage.account("ann", "up").bytes == pytest.approx(S * 5_640 / 8_000, abs=2)


def test_messages_after_a_cut_do_not_wait_for_those_that_it_cancelled(stage):
    stage.do("ann", Send("server", b"x" * 1_410_000))  # takes 2 s
    stage.world.run(S)
    stage.world.hosts["ann"].link_down()
    stage.world.hosts["ann"].link_up()
    stage.do("ann", Send("server", b"y"))
    stage.world.run(2 * S)
    assert [event.message for event in stage.puppets["server"].of(Received)] == [b"y"]


def test_timers_fire_once_and_can_be_replaced_or_cancelled(stage):
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
def test_a_million_timers_fire_in_order(stage):
    stage.do("server", *(SetTimer(str(n), n % 1000) for n in range(1_000_000)))
    stage.world.run(S)
    times = [t for t, event in stage.puppets["server"].seen if isinstance(event, TimerFired)]
    assert len(times) == 1_000_000
    assert times == sorted(times)


def test_killed_machine_loses_its_timers_and_calls(stage):
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


def test_restarted_machine_is_not_notified_of_messages_sent_before(stage):
    stage.do("ann", Send("nobody", "sent before"))
    stage.processes["ann"].kill()
    stage.processes["ann"].start()
    stage.do("ann", Send("nobody", "sent after"))
    stage.world.run(9 * S)
    assert stage.puppets["ann"].of(SendFailed) == [SendFailed("nobody", "sent after")]


def test_entropy_differs_between_starts_devices_and_seeds(stage):
    neighbour = stage.world.hosts["ann"].install("puppets", stage.maker("beside"), name="beside")
    assert neighbour.address == "ann/beside"
    first = stage.puppets["ann"].ports.entropy(20)
    assert stage.puppets["beside"].ports.entropy(20) != first
    stage.processes["ann"].kill()
    stage.processes["ann"].start()
    later = stage.puppets["ann"].ports.entropy(20)
    other = stage.puppets["bob"].ports.entropy(20)
    assert len({first, later, other}) == 3
    assert Stage().puppets["ann"].ports.entropy(20) == first != Stage(2).puppets["ann"].ports.entropy(20)


def test_context_changes_accumulate(stage):
    stage.world.hosts["ann"].change_context(age=30)
    stage.world.hosts["ann"].change_context(loc=(1, 2))
    stage.world.run(S)
    assert stage.puppets["ann"].of(ContextChanged)[-1] == ContextChanged({"age": 30, "loc": (1, 2)})


def test_error_in_a_machine_names_its_place(stage):
    with pytest.raises(KeyError, match="effects") as error:
        stage.processes["ann"].call("do")
    assert "in puppets on ann at 0.000000 s" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("at_us", "charged_mj"),
    [
        (100_000, 0.1 * 1210.7),  # during the promotion
        (1_260_000, 0.26 * 1210.7 + 1288.04 + 5640 / 8 * 0.43839 * 8),  # one second into the transfer
    ],
)
def test_cut_radio_is_charged_for_elapsed_time_and_bytes(stage, at_us, charged_mj):
    stage.do("ann", Send("server", b"x" * 1_410_000))
    stage.world.run(at_us)
    stage.world.hosts["ann"].link_down()
    stage.world.run(60 * S)
    assert stage.account("ann", "up").radio_mj == pytest.approx(charged_mj, rel=1e-4)


def test_radio_opens_again_after_an_instant_cut(stage):
    stage.do("ann", Send("server", 1))
    stage.world.run(S)
    stage.world.hosts["ann"].link_down()
    stage.world.hosts["ann"].link_up()
    stage.do("ann", Send("server", 2))
    stage.world.run(9 * S)
    assert stage.account("ann", "up").wakeups == 2


class Brittle:
    """Machine that counts its events in its store, and fails on request."""

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


def install_brittle(lab: Any) -> tuple[Any, Any]:
    return tuple(lab.device(name).install("brittle", Brittle) for name in ("ann", "bob"))


def read_count(process: Any) -> int:
    """Return the number of committed events, of which the link is one."""
    return process.store.get("count") or 0


@pytest.mark.parametrize(
    ("provoke", "name", "place"),
    [
        (
            lambda ann, bob: ann.call("send", to="bob", message="fail"),
            "bob",
            "handling Received(source='ann'",
        ),
        (lambda ann, bob: ann.call("timer"), "ann", "handling TimerFired(name='fails')"),
        (
            lambda ann, bob: bob.host.world.schedule_call(S, lambda _: bob.call("fail")),
            "bob",
            "handling Call(op_id=1",
        ),
    ],
)
def test_failure_of_a_machine_affects_only_that_event(
    provoke: Callable[..., Any], name: str, place: str
) -> None:
    lab = Lab(seed=1)
    ann, bob = install_brittle(lab)
    lab.run(seconds=1)
    counts_before = {process.host.name: read_count(process) for process in (ann, bob)}
    provoke(ann, bob)
    with pytest.warns(
        FailureWarning, match="(?s)the lab has gone on: ZeroDivisionError.*See lab.problems"
    ) as warned:
        lab.run(seconds=9)
    assert len(warned) == 1
    assert lab.world.now_us == 10 * S
    [problem] = lab.problems.to_dict("records")
    assert (problem["device"], problem["system"]) == (name, "brittle")
    assert place in problem["detail"]
    failing = ann if name == "ann" else bob
    assert failing.store.get("half") is None  # the store is rolled back
    assert not failing.store.is_dirty
    expected = {"ann": 2} if "Timer" in place else {"ann": 1} if "Received" in place else {}
    assert read_count(ann) - counts_before["ann"] == expected.get("ann", 0)
    assert read_count(bob) - counts_before["bob"] == 0
    assert [process.call("count").result() for process in (ann, bob)] == [read_count(ann), read_count(bob)]
    lab.run(seconds=9)  # without another warning


def test_failed_call_raises_its_error_and_others_are_answered() -> None:
    lab = Lab(seed=1)
    ann, bob = install_brittle(lab)
    lab.run(seconds=1)
    with pytest.warns(FailureWarning, match=r"handling Call\(op_id=1") as warned:
        operation = ann.call("fail")  # while time is stopped: reported immediately
    assert len(warned) == 1
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="at call 1"):
            operation.result()
    assert operation.status == "failed"
    assert ann.call("count").result() == bob.call("count").result() == 2
    assert lab.history()["status"].tolist() == ["failed", "ok", "ok"]
    assert len(lab.problems) == 1


def test_failing_listener_does_not_affect_others() -> None:
    lab = Lab(seed=1)
    ann, _ = install_brittle(lab)
    payloads: list[Any] = []
    ann.listen("app", lambda payload: {}[payload])
    ann.listen("app", payloads.append)
    operation = ann.call("tell")
    with pytest.warns(FailureWarning, match=r"KeyError: 'news'[\s\S]*in a callback of 'app', told 'news'"):
        lab.run(seconds=1)
    assert (operation.status, payloads) == ("ok", ["news"])
    assert lab.problems[["device", "system"]].to_numpy().tolist() == [["ann", "brittle"]]


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_failed_restart_is_reported_and_other_machines_run(storage, tmp_path) -> None:
    lab = Lab(seed=1)
    device = lab.device("ann", storage=tmp_path if storage == "file" else None)
    first, second = (device.install("brittle", Brittle, name=name) for name in ("first", "second"))
    first.call("refuse").result()
    lab.faults.kill("ann")
    lab.world.schedule_action(5 * S, lambda _: lab.faults.restart("ann"))
    with pytest.warns(FailureWarning, match=r"OSError: cannot be made[\s\S]*making it") as warned:
        lab.run(seconds=9)
    assert len(warned) == 1
    assert lab.world.now_us == 9 * S
    assert (first.machine, first.store.get("half"), first.store.is_dirty) == (None, None, False)
    assert second.call("count").status == "ok"
    assert first.call("count").done()  # it is lost
    incidents = lab.frame("incidents")
    assert incidents.loc[incidents["incident"] == "restarted", "detail"].tolist() == ["second"]
    assert lab.problems[["device", "system"]].to_numpy().tolist() == [["ann", "brittle"]]
    with pytest.warns(FailureWarning, match="cannot be made"):
        lab.faults.restart("ann")  # also reported while time is stopped
    first.store.delete("refuses")
    first.store.commit()
    lab.faults.restart("ann")
    assert first.call("count").status == "ok"
    if isinstance(first.store, SqliteStore):
        for process in (first, second):
            process.store.close()


def test_switched_on_device_has_a_link_despite_a_failed_machine() -> None:
    lab = Lab(seed=1)
    ann, bob = install_brittle(lab)
    ann.call("refuse").result()
    lab.faults.switch_off("ann")
    with pytest.warns(FailureWarning):
        lab.faults.switch_on("ann")
    assert ann.host.is_online
    assert bob.call("count").status == "ok"


def test_failures_raise_in_a_world_without_lab() -> None:
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


class GeneratorMachine:
    """Machine that yields its effects from a generator."""

    def __init__(self, ports: Ports) -> None:
        self._store = ports.store

    def handle(self, now_us: int, event: Event) -> Any:
        if isinstance(event, Call):
            self._store.put("count", (self._store.get("count") or 0) + 1)
            yield Complete(event.op_id, self._store.get("count"))
            if event.operation == "fail":
                raise ZeroDivisionError("halfway")


def test_effects_of_a_generator_are_applied_all_or_none() -> None:
    lab = Lab(seed=1)
    ann = lab.device("ann").install("yielding", GeneratorMachine)
    assert ann.call("count").result() == 1
    with pytest.warns(FailureWarning, match="halfway"):
        operation = ann.call("fail")
    with pytest.raises(ZeroDivisionError):
        operation.result()
    assert (ann.store.get("count"), ann.store.is_dirty) == (1, False)
    assert ann.call("count").result() == 2


def test_invalid_effects_change_nothing() -> None:
    class ForgetfulMachine(Brittle):
        def handle(self, now_us: int, event: Event) -> Any:
            super().handle(now_us, event)  # without a return

    lab = Lab(seed=1)
    ann = lab.device("ann").install("forgetful", ForgetfulMachine)
    with pytest.warns(FailureWarning, match="and 1 more"):
        operation = ann.call("count")
    with pytest.raises(SimulationProblem, match="a sequence of Send"):
        operation.result()
    assert ann.store.get("count") is None
    assert len(lab.problems) == 2  # also at its link up


def test_failures_are_all_counted_and_some_kept_in_the_warning() -> None:
    class FailingMachine:
        def __init__(self, ports: Ports) -> None:
            self._left = 5_000

        def handle(self, now_us: int, event: Event) -> Any:
            if isinstance(event, TimerFired):
                raise ZeroDivisionError
            return [SetTimer(f"{number}", number) for number in range(self._left)]

    lab = Lab(seed=1)
    lab.server("hopeless").install("hopeless", lambda ports: FailingMachine(ports))
    with pytest.warns(FailureWarning, match="and 4,999 more") as warned:
        lab.run(seconds=1)
    [warning] = [entry.message for entry in warned]
    assert (warning.count, len(warning.errors)) == (5_000, 100)
    assert len(lab.problems) == 5_000


def test_stored_ciphertext_is_sent_as_ciphertext():
    lab = Lab(1, record_exposure=True)

    class ForwardingMachine:
        def __init__(self, ports: Any) -> None:
            self.store = ports.store

        def handle(self, now_us: int, event: Any) -> Any:
            if isinstance(event, Received):
                self.store.put("kept", event.message)
                return (Send("bob", self.store.get("kept")),)
            return ()

    lab.server("relay").install("keep", ForwardingMachine)
    lab.device("bob").install("keep", Puppet)
    ann = lab.device("ann").install("keep", Puppet)
    ann.call("do", effects=[Send("relay", {"body": Ciphertext(b"..lunch.."), "to": "bob"})])
    lab.run(minutes=1)
    table = lab.exposure().set_index(["party", "how"])
    forms = table[table["field"].str.endswith("body")]["form"]
    assert set(forms.index) == {("relay", "received"), ("relay", "stored"), ("bob", "received")}
    assert set(forms) == {"ciphertext"}
    assert {party for party, _, _ in lab.trace.exposure.find("lunch")} == {"relay", "bob"}


def test_two_systems_run_in_one_lab():
    lab = Lab(1)
    ann, bob = lab.fleet(2)
    relay = Relay(lab)
    for make in (lambda device: Client(device, relay), DirectClient):
        sender, _ = make(ann), make(bob)
        sender.send(bob.name, "lunch?")
    lab.run(minutes=1)
    assert sorted(zip(lab.deliveries()["system"], lab.deliveries()["status"], strict=True)) == [
        ("direct", "unread"),
        ("store and forward", "unread"),
    ]
    accounts = lab.bill()[["system", "device", "direction"]].to_numpy().tolist()
    assert {system for system, *_ in accounts} == {"direct", "store and forward"}
    assert accounts == sorted(accounts)
    with pytest.raises(ParameterError, match="run twice"):
        DirectClient(ann)


def test_message_goes_to_the_host_at_the_address_on_arrival():
    stage = Stage()
    ann, bob = stage.world.hosts["ann"], stage.world.hosts["bob"]
    stage.do("ann", Send("bob@2", "early"))  # bob has the address before the end of the upload
    stage.world.schedule_action(1000, lambda _: bob.readdress("bob@2"))
    stage.world.run(9 * S)
    assert [event.message for event in stage.puppets["bob"].of(Received)] == ["early"]
    assert stage.account("bob", "down").messages == 1
    stage.do("server", Send("bob@2", "late"))  # ann takes the address during the download

    def swap(_: Any) -> None:
        bob.readdress("bob@3")
        ann.readdress("bob@2")

    stage.world.schedule_action(stage.world.now_us + 1000, swap)
    stage.world.run(99 * S)
    assert [event.message for event in stage.puppets["ann"].of(Received)] == []
    assert {(row.device, row.direction) for row in stage.world.bill()} == {("ann", "up"), ("bob", "down")}


def test_address_in_use_is_refused():
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


def test_name_with_an_at_sign_can_change_address():
    lab = Lab()
    lab.device("jane@home")
    assert lab.faults.change_network("jane@home", "wifi") == "jane@home@2"
    assert lab.faults.change_address("jane@home") == "jane@home@3"
    assert lab.devices["jane@home"].is_online


def test_long_message_on_a_slow_link_is_sent_once():
    lab = Lab(1)
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name, link="edge"), relay) for name in ("ann", "bob"))
    ann.send("bob", "x" * 200_000)
    lab.run(hours=1)
    assert lab.frame("messages")["kind"].value_counts()[["send", "deliver"]].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("effects", "problem_pattern"),
    [
        (["b"], "in puppets|puppets on ann"),
        ([Send("server", object())], "puppets on ann"),
        ([Record("reads", {})], "box_km"),
        ([Complete(1, error="bad")], "is an exception"),
    ],
)
def test_error_of_an_invalid_effect_names_its_machine(effects, problem_pattern):
    lab = Lab()
    process = lab.device("ann").install("puppets", Puppet)
    with pytest.warns(FailureWarning, match=problem_pattern):
        operation = process.call("do", effects=effects)
    with pytest.raises(SimulationProblem, match=problem_pattern):
        operation.result()
    [problem] = lab.problems.to_dict("records")
    assert (problem["device"], problem["system"]) == ("ann", "puppets")
    assert problem_pattern.split("|")[-1] in problem["detail"]


@pytest.mark.parametrize("delay_us", [100.5, float("nan"), "1", True, -1])
def test_invalid_timer_delays_are_refused(stage, delay_us):
    problem_pattern = r"(?s)in the past.*puppets on ann" if delay_us == -1 else "puppets on ann"
    with pytest.raises(ParameterError, match=problem_pattern):
        stage.do("ann", SetTimer("x", delay_us))


def test_message_takes_no_step_that_its_world_does_not_need():
    """A world without places, loads, connections and access points is as fast as before there were any."""
    called: set[str] = set()

    def note(frame: FrameType, what: str, _: object) -> None:
        called.add(frame.f_code.co_name)

    stage = Stage()
    stage.world.add_server("other").install("puppets", Puppet)
    sys.setprofile(note)
    try:
        stage.do("ann", Send("server", "up"))
        stage.do("server", Send("ann", "down"), Send("other", "beside"), SetTimer("timer", 1))
        stage.world.run(10 * S)
    finally:
        sys.setprofile(None)
    steps = {"_put_on_way", "_arrive_there", "_travel", "way_us", "_forward_if_let_in", "_send_later"}
    assert not called & {*steps, "_add_to_load", "_fire_timer_by_load", "_deliver_through_hook", "follow"}
    assert {"send", "_forward", "_deliver", "_fire_timer"} <= called


class TestMessagesWithinAHost:
    """A message between machines of one host is immediate, free, and lost only with the host."""

    def make(self, *, is_cut: bool = False) -> tuple[Lab, dict[str, Puppet], Any]:
        lab, puppets = Lab(seed=1), {}
        device = lab.device("ann")

        def maker(name: str) -> Any:
            def make(ports: Ports) -> Puppet:
                puppets[name] = Puppet(ports)
                return puppets[name]

            return make

        one = device.install("puppets", maker("one"), name="one")
        device.install("puppets", maker("other"), name="other")
        lab.run(seconds=1)
        if is_cut:
            lab.faults.cut("ann")
        return lab, puppets, one

    @pytest.mark.parametrize("is_cut", [False, True])
    def test_it_arrives_at_once_and_costs_nothing_also_without_a_network(self, is_cut):
        lab, puppets, one = self.make(is_cut=is_cut)
        lab.faults.messages(loss_share=1.0)
        one.call("do", effects=[Send(local_address("other"), {"n": 1}), Complete(1)])
        assert puppets["other"].seen[-1] == (S, Received(local_address("one"), {"n": 1}, "ann"))
        assert lab.bill()["messages"].sum() == 0

    def test_it_arrives_whatever_the_address_of_the_host_is(self):
        lab, puppets, one = self.make()
        lab.faults.change_address("ann")
        one.call("do", effects=[Send(local_address("other"), 1)])
        assert puppets["other"].of(Received)

    def test_its_sender_hears_that_there_is_no_such_machine(self):
        _, puppets, one = self.make()
        one.call("do", effects=[Send(local_address("third"), 1)])
        assert puppets["one"].of(SendFailed) == [SendFailed(local_address("third"), 1)]

    def test_a_kill_of_the_host_loses_it(self):
        lab, puppets, one = self.make()
        lab.world.schedule_action(lab.world.now_us, lambda _: lab.faults.kill("ann"))
        one.call("do", effects=[Send(local_address("other"), 1)])
        lab.faults.restart("ann")
        lab.run(seconds=1)
        assert not puppets["other"].of(Received)

    def test_endless_messages_within_a_host_are_a_problem(self, monkeypatch):
        monkeypatch.setattr(kernel, "_MAX_LOCAL_MESSAGES", 100)

        class Echo:
            def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
                return (Send(local_address("echo"), 1),)

        lab = Lab(seed=1)
        lab.device("ann").install("puppets", lambda ports: Echo(), name="echo")
        with pytest.raises(SimulationProblem, match="without end"):
            lab.run(seconds=1)

    @pytest.mark.parametrize("name", ["localhost", "localhost/a"])
    def test_no_host_has_the_name_or_address_of_the_own_host(self, name):
        lab = Lab(seed=1)
        with pytest.raises(ParameterError):
            lab.device(name)
        lab.device("ann")
        with pytest.raises(ParameterError):
            lab.faults.change_address("ann", name)

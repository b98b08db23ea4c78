"""The kernel carries out each effect, in order, and refuses what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from fleet_machines import Puppet, Stage

from mudkit.errors import ParameterError, SimulationProblem
from mudkit.events import (
    CancelTimer,
    ContextChanged,
    LinkDown,
    LinkUp,
    Received,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.fleet import World

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


def test_machines_that_never_let_time_go_on_are_stopped():
    class Restless:
        def handle(self, now_us: int, event: Any) -> Any:
            return (SetTimer("again", 0),)

    world = World()
    world.add_server("server").install("restless", lambda ports: Restless())
    with pytest.raises(SimulationProblem, match="a timer needs a delay"):
        world.run(S)


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
    ("call", "answer"),
    [
        (lambda world: world.add_device("eve", "5g"), "no such kind of link"),
        (lambda world: world.add_device("ann"), "of this name"),
        (lambda world: world.at(-1, print), "time is over"),
        (lambda world: world.hosts["ann"].install("again", Puppet), "at this address"),
    ],
)
def test_what_cannot_be(stage, call, answer):
    with pytest.raises(ParameterError, match=answer):
        call(stage.world)


def test_a_timer_in_the_past(stage):
    with pytest.raises(ParameterError, match="in the past"):
        stage.do("ann", SetTimer("a", -1))


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

"""Odd messages of a device in its own name, and of an untrusted relay."""

from __future__ import annotations

import pytest
from busy_labs import Contrail
from odd_messages import bombard


def start_busy_lab():
    busy = Contrail()
    busy.run()
    return busy


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_odd_messages_of_a_device_do_not_affect_others(scaled, seed):
    busy = start_busy_lab()
    events_of_bob = {
        process: result
        for process, events in busy.received.items()
        if (result := [event for event in events if event.host == "bob"])
    }
    assert {type(process.machine).__name__ for process in events_of_bob} == {"Gateway"}
    bombard(busy.lab, events_of_bob, scaled(10_000, 1_000), seed)
    busy.lab.run(minutes=10)
    assert busy.lab.problems.empty
    busy.check()


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_odd_messages_of_a_relay_do_not_fail_modules(scaled, seed):
    """Treat relays as untrusted, as the paper does (3.3)."""
    busy = start_busy_lab()
    modules = {
        process: events
        for process, events in busy.received.items()
        if type(process.machine).__name__ == "ModuleMachine"
    }
    bombard(busy.lab, modules, scaled(10_000, 1_000), seed)
    busy.lab.run(minutes=10)
    assert busy.lab.problems.empty
    assert not busy.place.seen_by_relays()

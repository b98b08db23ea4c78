"""Odd messages of a device in its own name, and of a relay, which no module trusts."""

from __future__ import annotations

import pytest
from busy_labs import Contrail
from odd_messages import bombard


def busy():
    made = Contrail()
    made.run()
    return made


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_odd_messages_of_a_device_in_its_own_name_disturb_no_other(scaled, seed):
    there = busy()
    of_bob = {
        process: result
        for process, events in there.received.items()
        if (result := [event for event in events if event.host == "bob"])
    }
    assert {type(process.machine).__name__ for process in of_bob} == {"Gateway"}
    bombard(there.lab, of_bob, scaled(10_000, 1_000), seed)
    there.lab.run(minutes=10)
    assert there.lab.problems.empty
    there.check()


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_odd_messages_of_a_relay_fail_no_module(scaled, seed):
    """The paper trusts no relay (3.3)."""
    there = busy()
    modules = {
        process: events
        for process, events in there.received.items()
        if type(process.machine).__name__ == "ModuleMachine"
    }
    bombard(there.lab, modules, scaled(10_000, 1_000), seed)
    there.lab.run(minutes=10)
    assert there.lab.problems.empty
    assert not there.place.seen_by_relays()

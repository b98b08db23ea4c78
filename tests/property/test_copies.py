"""Machines are plain data: copied in the middle of a run, the copy and the original go on alike."""

from __future__ import annotations

import pytest
from machine_copies import alike

from mudkit.experiment import ADAPTERS, TASKS, Scenario, StoreAndForward, run
from mudkit.sources.outages import Outages
from mudkit.sources.workloads import Poisson

TASK = TASKS["friends nearby"].over(devices=5, hours=0.3)


@pytest.mark.soak(keep=3)
@pytest.mark.parametrize("system", ADAPTERS)
def test_a_copy_of_a_machine_goes_on_as_the_machine_does(system: str) -> None:
    with alike(at_s=400.0) as counts:
        run(TASK, ADAPTERS[system], seed=3)
    assert sum(counts.values()) > 50, counts


def test_so_does_one_that_has_something_to_send_again() -> None:
    scenario = Scenario(
        devices=5, hours=1.0, outage=Outages(0.3, per_day=200), items=Poisson(per_day=400), loss_share=0.2
    )
    with alike(at_s=1800.0) as counts:
        run(scenario, StoreAndForward, 4)
    assert min(counts[name] for name in ("ClientMachine", "RelayMachine")) > 50, counts

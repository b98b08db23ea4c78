"""Machines are plain data: a copy made during a run behaves like the original."""

from __future__ import annotations

import pytest
from machine_copies import compare_copies

from mudkit.experiment import ADAPTERS, TASKS, run
from mudkit.sources.outages import Outages
from mudkit.sources.workloads import Poisson
from mudkit.worlds import Inboxes

TASK = TASKS["friends nearby"].over(devices=5, hours=0.3)


@pytest.mark.soak(keep=3)
@pytest.mark.parametrize("system", ADAPTERS)
def test_copied_machine_behaves_like_the_original(system: str) -> None:
    with compare_copies(at_s=400.0) as counts:
        run(TASK, ADAPTERS[system], seed=3)
    assert sum(counts.values()) > 50, counts


def test_copied_machine_retransmits_like_the_original() -> None:
    plan = Inboxes(
        devices=5, hours=1.0, outage=Outages(0.3, per_day=200), items=Poisson(per_day=400), loss_share=0.2
    )
    with compare_copies(at_s=1800.0) as counts:
        plan.run(4)
    assert min(counts[name] for name in ("ClientMachine", "RelayMachine")) > 50, counts

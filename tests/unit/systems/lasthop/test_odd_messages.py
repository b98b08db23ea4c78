"""Odd messages in the names of two phones do not disturb a third one."""

from __future__ import annotations

import pytest
from busy_labs import LastHop
from odd_messages import bombard, cross

from mudkit.systems.lasthop import Subscriber


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("how", [bombard, cross])
def test_odd_messages_of_others_do_not_disturb_a_phone(scaled, how):
    busy, count = LastHop(), scaled(10_000, 1_000)
    busy.run()
    joe = Subscriber(busy.lab.device("joe"), busy.server)
    joe.subscribe("news", policy="on-line", max=None, threshold=0.0).result()
    how(busy.lab, busy.received, count, seed=1)
    busy.lab.run(minutes=10)
    busy.check_of(joe)
    assert busy.lab.problems.empty

"""Odd messages sent in the names of two phones, and their effect on a third."""

from __future__ import annotations

import pytest
from busy_labs import LastHop
from odd_messages import bombard, cross

from mudkit.systems.lasthop import Subscriber


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("send", [bombard, cross])
def test_odd_messages_from_two_phones_do_not_affect_a_third(scaled, send):
    busy, count = LastHop(), scaled(10_000, 1_000)
    busy.run()
    joe = Subscriber(busy.lab.device("joe"), busy.server)
    joe.subscribe("news", policy="on-line", max=None, threshold=0.0).result()
    send(busy.lab, busy.received, count, seed=1)
    busy.lab.run(minutes=10)
    busy.check_of(joe)
    assert busy.lab.problems.empty

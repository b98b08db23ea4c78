"""Push services as last-hop policies: storage, delivery times, and losses."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.lasthop import Forwarding, Push, simulate
from mudkit.systems.lasthop.spool.push import PushSpool
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.systems.lasthop.study.simulation import play

S = 1_000_000
HOUR = 3600 * S
WHEN_FULL = ("drop all", "drop oldest", "drop lowest")


class Service:
    """A push service that records deliveries and retractions."""

    def __init__(self, threshold=0.0, **settings):
        self.delivered, self.retracted = [], []
        policy = Push(**{"high_rank": 0.0, **settings})
        self.spool = PushSpool(
            threshold,
            policy,
            lambda m: self.delivered.append(m.identity),
            lambda m: self.retracted.append(m.identity),
        )

    def set_link(self, at_us, is_up=True):
        self.spool.network(at_us, is_up=is_up)
        return self

    def send(self, *messages, at_us=S, rank=0.5, expires_us=FOREVER_US):
        for message in messages:
            self.spool.notification(at_us, message, rank, expires_us)
        return self


def test_overflow_of_a_hundred_stored_messages_drops_all():
    service = Service().send(*range(100))
    assert service.spool.waiting == 100
    service.send(100)
    assert service.spool.waiting == 0
    service.send(101).set_link(2 * S)
    assert service.delivered == [101]


def test_synchronising_app_fetches_the_latest_dropped_messages_once():
    service = Service(stored_limit=3, synchronised=2).send(*range(5)).set_link(2 * S)
    assert service.delivered == [4, 2, 3]
    service.set_link(3 * S, is_up=False).set_link(4 * S)
    assert service.delivered == [4, 2, 3]


def test_dropped_message_is_fetched_until_expiration_beyond_time_to_live():
    for up_at_s, expected in ((4, [0, 1]), (5, [1])):
        service = Service(stored_limit=1, synchronised=9, time_to_live_s=2)
        assert service.send(0, expires_us=5 * S).send(1).set_link(up_at_s * S).delivered == expected


def test_expired_messages_are_not_delivered():
    assert Service().set_link(0).send(0, expires_us=S).send(1, expires_us=S + 1).delivered == [1]


@pytest.mark.parametrize(("when_full", "remaining"), [*zip(WHEN_FULL, [[], [1, 2], [0, 2]], strict=True)])
def test_overflow_drops_messages_by_rule(when_full, remaining):
    service = Service(stored_limit=2, when_full=when_full)
    service.send(0, rank=0.9).send(1, rank=0.1).send(2, rank=0.5).set_link(2 * S)
    assert service.delivered == remaining


def test_message_replaces_the_stored_one_with_its_collapse_key():
    assert Service(collapse_keys=1).send(0, 1, 2).set_link(2 * S).delivered == [2]
    assert Service(collapse_keys=4).send(*range(6)).set_link(2 * S).delivered == [2, 3, 4, 5]
    assert Service(collapse_keys=9).send(*range(6)).set_link(2 * S).delivered == [2, 3, 4, 5], (
        "four keys are stored"
    )
    connected = Service(collapse_keys=1).set_link(0).send(0, 1, 2)
    assert connected.delivered == [0, 1, 2], "what is delivered at once is not replaced"


def test_a_message_is_stored_for_its_time_to_live():
    assert Service(time_to_live_s=10).send(0).set_link(11 * S - 1).delivered == [0]
    assert Service(time_to_live_s=10).send(0).set_link(11 * S).delivered == []
    assert Service(time_to_live_s=0).send(0).set_link(S).delivered == [], "never stored"
    assert Service(time_to_live_s=0).set_link(0).send(0).delivered == [0], "but delivered"


def test_time_to_live_does_not_apply_on_the_device():
    service = Service(time_to_live_s=10).send(0, expires_us=100 * S).set_link(2 * S)
    service.spool.timeout(99 * S)
    assert service.spool.device.size == 1
    service.spool.timeout(100 * S)
    assert service.spool.device.size == 0


def test_normal_priority_waits_for_a_maintenance_window():
    service = Service(high_rank=0.8, in_use_s=600).set_link(0)
    service.send(0, at_us=600 * S).send(1, at_us=600 * S + 1).send(2, at_us=600 * S + 1, rank=0.8)
    assert service.delivered == [0, 2]
    first_us = 600 * S + HOUR
    service.spool.timeout(first_us - 1)
    assert service.delivered == [0, 2]
    service.spool.timeout(first_us)
    assert service.delivered == [0, 2, 1]
    service.send(3, at_us=first_us + 300 * S).send(4, at_us=first_us + 300 * S + 1)
    assert service.delivered == [0, 2, 1, 3]
    service.spool.timeout(first_us + 300 * S + 2 * HOUR - 1)
    assert service.delivered == [0, 2, 1, 3], "each further window comes twice as late"
    service.spool.timeout(first_us + 300 * S + 2 * HOUR)
    assert service.delivered == [0, 2, 1, 3, 4]


def test_maintenance_window_intervals_double_up_to_six_hours():
    service, at_us = Service(high_rank=0.8, in_use_s=0).set_link(0), 0
    for number, pause_h in enumerate([1, 2, 4, 6, 6, 6]):
        at_us += pause_h * HOUR
        service.send(number, at_us=at_us - 1)
        assert service.delivered == list(range(number))
        service.spool.timeout(at_us)
        assert service.delivered == list(range(number + 1))
        at_us += 300 * S


def test_offline_read_counts_as_use_of_the_device():
    service = Service(high_rank=0.8, in_use_s=60).send(0, at_us=1000 * S)
    service.spool.read_offline(1000 * S, [])
    assert service.set_link(1060 * S).delivered == [0]
    assert service.set_link(1060 * S, is_up=False).send(1, at_us=1060 * S).set_link(1061 * S).delivered == [0]


def test_read_ends_doze_and_delivers_stored_messages():
    service = Service(high_rank=0.8, in_use_s=0).set_link(0).send(0, 1).send(2, rank=0.9)
    assert service.delivered == [2]
    assert [message.identity for message in service.spool.read(2 * S, 2)] == [2, 0]
    assert service.delivered == [2, 0, 1]


def test_a_window_without_a_link_is_missed():
    service = Service(high_rank=0.8, in_use_s=0).send(0).set_link(HOUR + 300 * S + 1)
    assert service.delivered == []


def test_retracted_messages_are_removed_or_never_delivered():
    service = (
        Service(threshold=0.3)
        .send(0)
        .set_link(2 * S)
        .send(1, at_us=2 * S)
        .set_link(3 * S, is_up=False)
        .send(2, at_us=3 * S)
    )
    service.send(0, 2, at_us=4 * S, rank=0.2).set_link(5 * S)
    assert (service.delivered, service.retracted) == ([0, 1], [0])
    service.send(2, at_us=6 * S)
    assert service.delivered == [0, 1], "what is finished stays finished"


def test_rank_increase_gives_high_priority():
    service = Service(high_rank=0.8, in_use_s=0).set_link(0).send(0)
    assert service.delivered == []
    service.send(0, at_us=2 * S, rank=0.9)
    assert service.delivered == [0]


def test_memory_is_bounded_over_ten_years():
    service, day_us = Service(synchronised=50), 24 * HOUR
    max_entries = 0
    for day in range(3650):
        for number in range(16):
            service.send((day, number), at_us=day * day_us + number * HOUR, rank=number / 16)
        max_entries = max(
            max_entries, len(service.spool._known) + len(service.spool._finished) + len(service.spool._ends)
        )
    assert max_entries < 1000


# -- properties


@st.composite
def draw_events(draw):
    """Draw events; times are quarters of hours, so that some coincide and windows open."""
    times = st.lists(st.integers(0, 400), max_size=40)
    arrivals, reads, switches = (
        np.array(sorted(draw(times)), dtype=np.int64) * HOUR // 4 for _ in ("arrivals", "reads", "switches")
    )
    count = len(arrivals)
    lifetimes = draw(st.lists(st.sampled_from([0, 1, 10, 100, None]), min_size=count, max_size=count))
    expires = [
        FOREVER_US if lifetime is None else int(arrival_us) + lifetime * HOUR // 4 + 1
        for arrival_us, lifetime in zip(arrivals, lifetimes, strict=True)
    ]
    ranks = draw(st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=count, max_size=count))
    return Drawn(
        arrivals,
        np.array(expires, np.int64),
        np.array(ranks),
        reads,
        np.unique(switches),
        draw(st.booleans()),
    )


SERVICES = st.builds(
    Push,
    st.integers(1, 5),
    st.sampled_from(WHEN_FULL),
    st.integers(0, 6),
    st.sampled_from([0.0, 3600.0, 86_400.0]),
    st.sampled_from([-math.inf, 0.5, math.inf]),
    st.sampled_from([0.0, 900.0, math.inf]),
    st.integers(0, 4),
)


class CheckedSpool(PushSpool):
    """A push service that checks its invariants after each event."""

    def __init__(self, drawn, threshold, policy, forward, retract):
        self.now_us = 0
        self.limit = min(policy.stored_limit, 4) if policy.collapse_keys else policy.stored_limit
        self.expires_us = drawn.expires_us

        def check_and_forward(message):
            assert self.is_up
            assert message.expires_us > min(self.due_us, self.now_us)
            forward(message)

        super().__init__(threshold, policy, check_and_forward, retract)

    def _check(self):
        assert self.waiting <= self.limit
        assert all(self.expires_us[identity] > self.now_us for identity in self._stored)
        assert all(message.expires_us > self.now_us for message in self.device)

    def notification(self, now_us, *arguments):
        self.now_us = now_us
        super().notification(now_us, *arguments)
        self._check()

    def read(self, now_us, max_messages):
        self.now_us = now_us
        taken = super().read(now_us, max_messages)
        assert len(taken) <= max_messages
        assert all(message.expires_us > now_us for message in taken)
        self._check()
        return taken

    def network(self, now_us, *, is_up):
        self.now_us = now_us
        super().network(now_us, is_up=is_up)
        self._check()


@given(draw_events(), SERVICES, st.sampled_from([0, 1, 3, math.inf]), st.sampled_from([0.0, 0.5]))
def test_messages_are_delivered_once_unexpired_and_within_capacity(drawn, policy, max_messages, threshold):
    outcome = play(drawn, partial(CheckedSpool, drawn, threshold, policy), max_messages)
    assert len(set(outcome.forwarded_ids)) == len(outcome.forwarded_ids)
    assert len(set(outcome.read_ids)) == len(outcome.read_ids)
    assert set(outcome.read_ids) <= set(outcome.forwarded_ids)
    assert all(drawn.ranks[identity] >= threshold for identity in outcome.forwarded_ids)


def test_service_without_limits_equals_the_on_line_policy():
    endless = Push(1 << 30, high_rank=0.0, in_use_s=math.inf)
    run = simulate(policy=endless, outage=0.5, expiration=3600.0, days=60)
    online = simulate(policy="on-line", outage=0.5, expiration=3600.0, days=60)
    # No outage lasts a week, so no time to live of 28 days ends.
    assert run.read_ids == online.read_ids
    assert sorted(run.forwarded_ids) == sorted(online.forwarded_ids)


def test_dropping_the_lowest_rank_loses_least():
    """Compare the losses of the rules for a full store, and of Apple's service."""
    settings = {"event_frequency": 128, "outage": 0.9, "outages_per_day": 0.5, "days": 120, "seed": 3}
    loss = {rule: simulate(policy=Push(high_rank=0.0, when_full=rule), **settings).loss for rule in WHEN_FULL}
    assert loss["drop lowest"] < 0.1 < 0.4 < loss["drop oldest"] < loss["drop all"]
    apple = simulate(policy=Push.apple(), **settings)
    assert apple.loss > loss["drop all"]
    assert apple.waste < simulate(policy=Forwarding("on-line"), **settings).waste

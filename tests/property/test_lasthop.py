"""Spool compared with a simple reference, and invariants of every policy (Last hop 4)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lasthop_reference import SpoolEvent, run_reference

from mudkit.systems.lasthop import Forwarding, Spool, simulate
from mudkit.systems.lasthop.spool.ranked import FOREVER_US

S = 1_000_000
RANKS = st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])


@st.composite
def stories(draw):
    """Draw events in order; times are whole seconds, so that some coincide."""
    events, messages = [], 0
    at_us = 0
    for _ in range(draw(st.integers(1, 40))):
        at_us += draw(st.integers(0, 20)) * S
        kind = draw(st.sampled_from(["arrival", "arrival", "arrival", "read", "switch", "rank"]))
        if kind == "arrival":
            lifetime_s = draw(st.sampled_from([None, None, 1, 10, 30, 100]))
            expires_us = math.inf if lifetime_s is None else at_us + lifetime_s * S
            events.append(SpoolEvent(at_us, "arrival", messages, draw(RANKS), expires_us))
            messages += 1
        elif kind == "rank" and messages:
            events.append(SpoolEvent(at_us, "rank", draw(st.integers(0, messages - 1)), draw(RANKS)))
        elif kind != "rank":
            events.append(SpoolEvent(at_us, kind))
    return events


POLICIES = st.one_of(
    st.sampled_from(
        [Forwarding("on-line"), Forwarding("on-demand"), Forwarding("on-demand", remembers_reads=True)]
    ),
    st.builds(
        Forwarding,
        st.sampled_from(["buffer", "unified"]),
        st.one_of(st.just("learnt"), st.integers(0, 5)),
        st.sampled_from([None, "learnt", 0.0, 15.0, 60.0]),
        st.sampled_from([None, 7.0]),
        remembers_reads=st.booleans(),
    ),
)
MAX_MESSAGES = st.sampled_from([0, 1, 2, 4, math.inf])


class SpoolRun:
    """Run of the spool on a story; the device shares its queue, as in the simulator."""

    def __init__(self, story, policy, max_messages, threshold, **settings):
        self.forwarded, self.read, self.retracted, self.sizes = [], [], [], []
        self.spool = spool = Spool(threshold, policy, self._forward, self.retracted.append, **settings)
        spool.network(0, is_up=True)
        self.now_us, offline = 0, []
        for event in story:
            self.now_us = event.at_us
            match event.what:
                case "arrival" | "rank":
                    expires_us = FOREVER_US if event.expires_us == math.inf else event.expires_us
                    spool.notification(event.at_us, event.message, event.rank, expires_us)
                case "read" if spool.is_up:
                    self._record_read(spool.read(event.at_us, max_messages), max_messages)
                case "read":
                    spool.timeout(event.at_us)
                    taken = [spool.device.pop() for _ in range(int(min(max_messages, spool.device.size)))]
                    self._record_read(taken, max_messages)
                    offline.append((event.at_us, [message.identity for message in taken], max_messages))
                case "switch":
                    for answer in offline:
                        spool.read_offline(*answer)
                    offline.clear()
                    spool.network(event.at_us, is_up=not spool.is_up)
            self.sizes.append(spool.device.size)

    def _forward(self, message):
        assert message.expires_us > self.now_us or self.spool.due_us <= self.now_us
        self.forwarded.append(message.identity)

    def _record_read(self, messages, max_messages):
        assert len(messages) <= max_messages
        for message in messages:
            assert message.expires_us > self.now_us
        self.read += [message.identity for message in messages]


@given(stories(), POLICIES, MAX_MESSAGES, RANKS)
def test_spool_equals_the_reference(story, policy, max_messages, threshold):
    real = SpoolRun(story, policy, max_messages, threshold)
    forwarded, read, sizes = run_reference(story, policy, max_messages, threshold)
    assert (real.forwarded, real.read, real.sizes) == (forwarded, read, sizes)


@given(stories(), POLICIES, MAX_MESSAGES, RANKS)
def test_nothing_is_forwarded_twice_or_read_below_the_threshold(story, policy, max_messages, threshold):
    real = SpoolRun(story, policy, max_messages, threshold)
    assert len(set(real.forwarded)) == len(real.forwarded)
    assert len(set(real.read)) == len(real.read)
    assert set(real.read) <= set(real.forwarded)
    best = {}
    for event in story:
        if event.what in ("arrival", "rank"):
            best[event.message] = max(best.get(event.message, -1.0), event.rank)
    assert all(best[identity] >= threshold for identity in real.forwarded)


@given(stories(), MAX_MESSAGES, RANKS)
def test_on_demand_wastes_nothing(story, max_messages, threshold):
    real = SpoolRun(story, Forwarding("on-demand"), max_messages, threshold)
    assert real.forwarded == real.read


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("policy", ["on-line", "on-demand", "buffer", "rate", "unified"])
@given(
    seed=st.integers(0, 1 << 32),
    outage=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    uf=st.sampled_from([0.25, 2.0, 8.0]),
    max_messages=st.sampled_from([0, 1, 8, None]),
    expiration=st.sampled_from([None, 3600.0, 86_400.0]),
)
def test_waste_and_loss_of_every_policy_are_in_range(policy, seed, outage, uf, max_messages, expiration):
    options = {
        "seed": seed,
        "outage": outage,
        "user_frequency": uf,
        "max": max_messages,
        "expiration": expiration,
        "days": 20,
    }
    run, online = simulate(policy=policy, **options), simulate(policy="on-line", **options)
    on_demand = simulate(policy="on-demand", **options)
    assert online.loss == (1.0 if online.readable_ids and not online.read else 0.0)
    assert on_demand.waste == 0.0
    assert 0.0 <= run.waste <= 1.0
    assert 0.0 <= run.loss <= 1.0
    assert set(run.read_ids) <= set(run.forwarded_ids) <= set(online.forwarded_ids) | set(run.read_ids)
    if outage == 1.0:
        assert run.forwarded == run.read == 0
    if outage == 0.0:
        assert run.loss == 0.0


SETTINGS = [
    {"outage": outage, "user_frequency": user_frequency, "max": max_messages, "expiration": expiration}
    for outage in (0.5, 0.95)
    for user_frequency, max_messages in ((1.0, 8), (2.0, 8), (8.0, 4), (2.0, None))
    for expiration in (None, 14_400.0)
]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("policy", ["buffer", "rate", "unified"])
def test_waste_and_loss_are_between_on_demand_and_on_line(policy):
    """Sum over a few seeds: at its end, a single run may waste a few messages more than on-line."""
    for options in SETTINGS:
        wastes, losses = (
            dict.fromkeys((policy, "on-line", "on-demand"), 0),
            dict.fromkeys((policy, "on-demand"), 0),
        )
        for seed in range(4):
            runs = {kind: simulate(policy=kind, seed=seed, days=60, **options) for kind in wastes}
            for kind, run in runs.items():
                wastes[kind] += len(set(run.forwarded_ids) - set(run.read_ids))
            for kind in losses:
                losses[kind] += len(set(runs["on-line"].read_ids) - set(runs[kind].read_ids))
        assert wastes["on-demand"] == 0 <= wastes[policy] <= wastes["on-line"], options
        assert 0 <= losses[policy] <= losses["on-demand"], options


def test_memory_is_bounded_over_ten_years():
    spool = Spool(0.0, Forwarding("buffer", 16), lambda message: None, lambda message: None, capacity=1000)
    spool.network(0, is_up=True)
    day_us, max_entries = 86_400 * S, 0
    for day in range(3650):
        for number in range(32):
            at_us = day * day_us + number * 2600 * S
            spool.notification(at_us, (day, number), (day * 7919 + number * 104_729) % 1000 / 1000)
        spool.read(day * day_us + 85_000 * S, 8)
        max_entries = max(
            max_entries,
            len(spool._known)
            + len(spool._finished)
            + len(spool._finished_before)
            + len(spool._prefetch._heap)
            + len(spool.device._heap),
        )
    assert 1000 - 8 <= spool.waiting <= 1000
    assert max_entries < 6000

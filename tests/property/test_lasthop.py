"""The spool against the same said simply, and what must hold of every policy (Last hop 4)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lasthop_reference import Happening, played

from mudkit.systems.lasthop import Forwarding, Spool, simulate
from mudkit.systems.lasthop.spool.ranked import FOREVER_US

S = 1_000_000
RANKS = st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])


@st.composite
def stories(draw):
    """Draw what happens, in order; times are whole seconds, so that some coincide."""
    happenings, messages = [], 0
    at_us = 0
    for _ in range(draw(st.integers(1, 40))):
        at_us += draw(st.integers(0, 20)) * S
        what = draw(st.sampled_from(["arrival", "arrival", "arrival", "read", "switch", "rank"]))
        if what == "arrival":
            lasts_s = draw(st.sampled_from([None, None, 1, 10, 30, 100]))
            expires_us = math.inf if lasts_s is None else at_us + lasts_s * S
            happenings.append(Happening(at_us, "arrival", messages, draw(RANKS), expires_us))
            messages += 1
        elif what == "rank" and messages:
            happenings.append(Happening(at_us, "rank", draw(st.integers(0, messages - 1)), draw(RANKS)))
        elif what != "rank":
            happenings.append(Happening(at_us, what))
    return happenings


POLICIES = st.one_of(
    st.sampled_from([Forwarding("on-line"), Forwarding("on-demand")]),
    st.builds(
        Forwarding,
        st.sampled_from(["buffer", "unified"]),
        st.one_of(st.just("learnt"), st.integers(0, 5)),
        st.sampled_from([None, "learnt", 0.0, 15.0, 60.0]),
        st.sampled_from([None, 7.0]),
    ),
)
MOST = st.sampled_from([0, 1, 2, 4, math.inf])


class Played:
    """The spool on a story; the device shares its queue, as in the simulator."""

    def __init__(self, story, policy, most, threshold, **settings):
        self.forwarded, self.read, self.retracted, self.sizes = [], [], [], []
        self.spool = spool = Spool(threshold, policy, self._forward, self.retracted.append, **settings)
        spool.network(0, is_up=True)
        self.now_us, offline = 0, []
        for each in story:
            self.now_us = each.at_us
            match each.what:
                case "arrival" | "rank":
                    expires_us = FOREVER_US if each.expires_us == math.inf else each.expires_us
                    spool.notification(each.at_us, each.message, each.rank, expires_us)
                case "read" if spool.is_up:
                    self._took(spool.read(each.at_us, most), most)
                case "read":
                    spool.timeout(each.at_us)
                    taken = [spool.device.pop() for _ in range(int(min(most, spool.device.size)))]
                    self._took(taken, most)
                    offline.append((each.at_us, [message.identity for message in taken]))
                case "switch":
                    for answer in offline:
                        spool.read_offline(*answer)
                    offline.clear()
                    spool.network(each.at_us, is_up=not spool.is_up)
            self.sizes.append(spool.device.size)

    def _forward(self, message):
        assert message.expires_us > self.now_us or self.spool.due_us <= self.now_us
        self.forwarded.append(message.identity)

    def _took(self, messages, most):
        assert len(messages) <= most
        for message in messages:
            assert message.expires_us > self.now_us
        self.read += [message.identity for message in messages]


@given(stories(), POLICIES, MOST, RANKS)
def test_the_spool_does_what_is_said_simply(story, policy, most, threshold):
    real = Played(story, policy, most, threshold)
    forwarded, read, sizes = played(story, policy, most, threshold)
    assert (real.forwarded, real.read, real.sizes) == (forwarded, read, sizes)


@given(stories(), POLICIES, MOST, RANKS)
def test_nothing_goes_twice_and_nothing_below_the_threshold_is_read(story, policy, most, threshold):
    real = Played(story, policy, most, threshold)
    assert len(set(real.forwarded)) == len(real.forwarded)
    assert len(set(real.read)) == len(real.read)
    assert set(real.read) <= set(real.forwarded)
    best = {}
    for each in story:
        if each.what in ("arrival", "rank"):
            best[each.message] = max(best.get(each.message, -1.0), each.rank)
    assert all(best[identity] >= threshold for identity in real.forwarded)


@given(stories(), MOST, RANKS)
def test_on_demand_wastes_nothing(story, most, threshold):
    real = Played(story, Forwarding("on-demand"), most, threshold)
    assert real.forwarded == real.read


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("policy", ["on-line", "on-demand", "buffer", "rate", "unified"])
@given(
    seed=st.integers(0, 1 << 32),
    outage=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    uf=st.sampled_from([0.25, 2.0, 8.0]),
    most=st.sampled_from([0, 1, 8, None]),
    expiration=st.sampled_from([None, 3600.0, 86_400.0]),
)
def test_waste_and_loss_of_every_policy(policy, seed, outage, uf, most, expiration):
    same = {
        "seed": seed,
        "outage": outage,
        "user_frequency": uf,
        "max": most,
        "expiration": expiration,
        "days": 20,
    }
    run, online = simulate(policy=policy, **same), simulate(policy="on-line", **same)
    on_demand = simulate(policy="on-demand", **same)
    assert online.loss == 0.0
    assert on_demand.waste == 0.0
    assert 0.0 <= run.waste <= 1.0
    assert 0.0 <= run.loss <= 1.0
    assert set(run.read_ids) <= set(run.forwarded_ids) <= set(online.forwarded_ids) | set(run.read_ids)
    if outage == 1.0:
        assert run.forwarded == run.read == 0
    if outage == 0.0:
        assert run.loss == 0.0


BETWEEN = [
    {"outage": outage, "user_frequency": often, "max": most, "expiration": expiration}
    for outage in (0.5, 0.95)
    for often, most in ((1.0, 8), (2.0, 8), (8.0, 4), (2.0, None))
    for expiration in (None, 14_400.0)
]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("policy", ["buffer", "rate", "unified"])
def test_waste_and_loss_lie_between_those_of_on_demand_and_on_line(policy):
    """Over a few seeds together: of one run a few messages may be wasted more than on-line, at its end."""
    for same in BETWEEN:
        wastes, losses = (
            dict.fromkeys((policy, "on-line", "on-demand"), 0),
            dict.fromkeys((policy, "on-demand"), 0),
        )
        for seed in range(4):
            runs = {kind: simulate(policy=kind, seed=seed, days=60, **same) for kind in wastes}
            for kind, run in runs.items():
                wastes[kind] += len(set(run.forwarded_ids) - set(run.read_ids))
            for kind in losses:
                losses[kind] += len(set(runs["on-line"].read_ids) - set(runs[kind].read_ids))
        assert wastes["on-demand"] == 0 <= wastes[policy] <= wastes["on-line"], same
        assert 0 <= losses[policy] <= losses["on-demand"], same


def test_memory_is_bounded_over_ten_years():
    spool = Spool(0.0, Forwarding("buffer", 16), lambda message: None, lambda message: None, capacity=1000)
    spool.network(0, is_up=True)
    day_us, kept = 86_400 * S, 0
    for day in range(3650):
        for number in range(32):
            at_us = day * day_us + number * 2600 * S
            spool.notification(at_us, (day, number), (day * 7919 + number * 104_729) % 1000 / 1000)
        spool.read(day * day_us + 85_000 * S, 8)
        kept = max(
            kept,
            len(spool._known)
            + len(spool._finished)
            + len(spool._finished_before)
            + len(spool._prefetch._heap)
            + len(spool.device._heap),
        )
    assert 1000 - 8 <= spool.waiting <= 1000
    assert kept < 6000

"""Spool: rank drops, limits, interrupts and rates; tests/property/test_lasthop.py has a reference model."""

from __future__ import annotations

import math
from functools import partial

import pytest

from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import Forwarding, PaperSpool, Scenario, Spool
from mudkit.systems.lasthop.study.simulation import play

S = 1_000_000
HOUR = 3600 * S


class RecordingSpool(Spool):
    """A spool with a link, and lists of what it forwards and retracts."""

    def __init__(self, policy="buffer", limit=2, *, threshold=0.0, is_up=True, **settings):
        self.forwarded, self.retracted = [], []
        spool_settings = {name: settings.pop(name) for name in ("capacity", "remember_s") if name in settings}
        super().__init__(
            threshold,
            Forwarding(policy, limit, **settings),
            lambda message: self.forwarded.append(message.identity),
            lambda message: self.retracted.append(message.identity),
            **spool_settings,
        )
        self.network(0, is_up=is_up)

    def publish(self, at_s, identity, rank=0.5, expires_s=None):
        expires = () if expires_s is None else (expires_s * S,)
        self.notification(at_s * S, identity, rank, *expires)

    def read_ids(self, at_s, max_messages=8):
        return [message.identity for message in self.read(at_s * S, max_messages)]

    def on_device(self):
        return [
            message.identity
            for message in sorted(self.device, key=lambda message: (-message.rank, message.order))
        ]


def test_rank_drop_is_a_retraction_and_frees_room():
    spool = RecordingSpool("buffer", 1, threshold=0.2)
    spool.publish(1, "a", 0.9)
    spool.publish(2, "b", 0.5)
    assert (spool.forwarded, spool.waiting) == (["a"], 1)
    spool.publish(3, "a", 0.1)
    assert (spool.retracted, spool.forwarded, spool.on_device()) == (["a"], ["a", "b"], ["b"])
    spool.publish(4, "c", 0.5)
    spool.publish(5, "c", 0.1)  # never forwarded: no retraction
    assert (spool.retracted, spool.waiting) == (["a"], 0)


def test_offline_reads_free_room_on_reconnection():
    spool = RecordingSpool("buffer", 2)
    for number in range(5):
        spool.publish(number, number, 1 - number / 10)
    spool.network(6 * S, is_up=False)
    spool.read_offline(7 * S, [0, 1])
    assert spool.forwarded == [0, 1]
    spool.network(8 * S, is_up=True)
    assert spool.forwarded == [0, 1, 2, 3]
    spool.drop(9 * S, [2])  # dropped by the device
    spool.network(10 * S, is_up=True)
    assert spool.on_device() == [3, 4]


def test_timeout_at_a_link_change_uses_the_link_only_if_it_comes_up():
    spool = RecordingSpool("buffer", 9, delay_s=5.0)
    spool.publish(0, "over before")
    spool.publish(1, "over now")
    spool.network(6 * S, is_up=False)
    assert spool.forwarded == ["over before"]
    spool.publish(10, "expired now", expires_s=16)
    spool.publish(11, "over now, too")
    spool.network(16 * S, is_up=True)
    assert spool.forwarded == ["over before", "over now", "over now, too"]


def test_ids_of_finished_messages_are_remembered_for_a_limited_time():
    spool = RecordingSpool("on-line", remember_s=100.0)
    for at_s in range(1000):
        spool.publish(at_s, at_s)
        assert spool.read_ids(at_s) == [at_s]
        spool.publish(at_s, max(at_s - 99, 0))
        assert spool.waiting == spool.device.size == 0
    assert len(spool._finished) + len(spool._finished_before) <= 200
    spool.publish(1001, 0)
    assert spool.on_device() == [0]


def test_full_queue_drops_the_lowest_rank():
    spool = RecordingSpool("on-demand", capacity=3)
    for number, rank in enumerate((0.5, 0.1, 0.9, 0.5, 0.2, 0.5, 0.9)):
        spool.publish(number, number, rank)
        assert spool.waiting <= 3
    assert spool.read_ids(9) == [2, 6, 0]  # of equal ones the first


def test_ranks_of_messages_that_left_a_full_queue_are_forgotten():
    """Items that were read are not dropped any more: at most as many of their ranks are kept as of waiting ones."""
    spool = RecordingSpool("on-demand", capacity=20)
    for number in range(1000):
        is_full = spool.waiting == 20
        spool.publish(number, number, number % 17 / 17)
        if is_full:  # one was dropped
            assert len(spool._lowest) <= 2 * (20 + 1)
        if number % 40 == 39:
            spool.read_ids(number, 15)


def test_full_queue_drops_by_current_rank():
    spool = RecordingSpool("on-demand", capacity=2)
    for number, rank in enumerate((0.5, 0.6, 0.7)):
        spool.publish(number, number, rank)
    spool.publish(4, 1, 0.9)
    spool.publish(5, 3, 0.8)
    spool.publish(6, 3, 0.5)
    spool.publish(7, 1, 0.5)
    spool.publish(8, 4, 0.9)  # drops 3, which arrived after 1
    assert spool.read_ids(9) == [4, 1]


class PrintedSpool(Spool):
    """Figure 7 as printed in one respect: only READ reports the size of the queue on the device.

    The size *includes* the messages that the read takes, and these are not subtracted. A reconnecting device
    reports nothing.
    """

    def __init__(self, threshold, policy, forward, retract):
        self.queue_size = 0

        def count_and_forward(message):
            self.queue_size += 1
            forward(message)

        super().__init__(threshold, policy, count_and_forward, retract)

    def _try_forwarding(self, *now):
        while self._prefetch.size and self.queue_size < self._limit:
            self._forward(self._prefetch.move_first(self.device))

    def read(self, now_us, max_messages):
        self.queue_size = self.device.size
        return super().read(now_us, max_messages)


def test_figure_7_as_printed_loses_four_fifths_of_readable_messages():
    lost, best = {PrintedSpool: 0, Spool: 0}, 0
    for seed in range(3):
        drawn = Scenario(outages=Outages(0.9), days=365).draw(seed)
        online = set(play(drawn, partial(Spool, 0.0, Forwarding("on-line")), 8).read_ids)
        best += len(online)
        for kind in lost:
            read = play(drawn, partial(kind, 0.0, Forwarding("buffer", 16)), 8).read_ids
            lost[kind] += len(online - set(read))
    assert lost[PrintedSpool] / best == pytest.approx(0.81, abs=0.02)
    assert lost[Spool] / best < 0.01


def test_rate_policy_forwards_about_as_many_as_are_read():
    spool = RecordingSpool("rate")
    for hour in range(24 * 60):
        spool.notification(hour * HOUR, hour, hour * 7919 % 1000 / 1000)
        if hour % 10 == 9:
            spool.read(hour * HOUR + 1, 2)
    assert 0.18 < len(spool.forwarded) / (24 * 60) < 0.3


def test_interrupt_is_forwarded_at_once():
    spool = RecordingSpool("on-demand")
    spool.interrupt = 0.9
    spool.publish(1, "a")
    spool.publish(2, "storm", 0.95)
    assert spool.forwarded == ["storm"]


def test_printed_code_loses_most_messages_in_long_outages():
    """Compare losses with and without outages: offline reads are not reported to the printed code."""
    lost = {}
    for share in (0.0, 0.9):
        drawn = Scenario(outages=Outages(share), days=60).draw(1)
        factories = {
            "best": partial(Spool, 0.0, Forwarding("on-line")),
            "mended": partial(Spool, 0.0, Forwarding("buffer", 16)),
            "printed": partial(PaperSpool, 0.0, 16),
        }
        read = {name: set(play(drawn, factory, 8).read_ids) for name, factory in factories.items()}
        lost |= {(name, share): len(read["best"] - read[name]) / len(read["best"]) for name in factories}
    assert lost["printed", 0.0] == 0.0
    assert lost["mended", 0.9] < 0.1
    assert 0.7 < lost["printed", 0.9] < 0.9


def test_equal_reads_count_separately():
    spool = RecordingSpool("unified", "learnt")
    for at_s, count in ((1, 4), (2, 4), (3, 1)):
        spool.read_offline(at_s * S, range(count))
    assert spool.prefetch_limit == 2 * (4 + 4 + 1) / 3


def test_reads_without_a_link_are_made_up_for_once_when_it_is_back():
    """Last hop 4.5, Figure 7: READ and NETWORK; with the largest number that was requested."""
    spool = RecordingSpool("on-demand", remembers_reads=True)
    for number in range(6):
        spool.publish(number, f"m{number}", number / 10)
    spool.network(10 * S, is_up=False)
    for requested in (2, 3, 1):
        spool.read_offline(11 * S, [], requested)
    spool.network(12 * S, is_up=True)
    assert spool.forwarded == ["m5", "m4", "m3"]
    spool.network(13 * S, is_up=False)
    spool.network(14 * S, is_up=True)
    assert len(spool.forwarded) == 3


@pytest.mark.parametrize(("requested", "limit"), [(0, 2 * 1), (3, 2 * 3), (8, 2 * 5), (math.inf, 2 * 5)])
def test_learnt_limit_counts_what_a_read_without_a_link_could_have_used(requested, limit):
    """Last hop 4.2: twice what a read takes; one message is there, four wait at the server."""
    spool = RecordingSpool("unified", "learnt", is_up=False)
    for number in range(4):
        spool.publish(number, f"m{number}")
    spool.read_offline(6 * S, ["elsewhere"], requested)
    assert spool.prefetch_limit == limit


def test_read_takes_the_best_of_all_queues():
    spool = RecordingSpool("buffer", 1, expiration_threshold_s=100.0, delay_s=None)
    spool.publish(1, "device", 0.5)
    spool.publish(2, "holding", 0.9, expires_s=50)
    spool.publish(3, "prefetch", 0.7)
    spool.network(4 * S, is_up=False)
    assert spool.read_ids(6, 2) == ["holding", "prefetch"]
    assert spool.read_ids(7, math.inf) == ["device"]

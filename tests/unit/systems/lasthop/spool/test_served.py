"""Spool of a device that reads on its own: offers, losses, room, and restoring."""

from __future__ import annotations

import math

from mudkit.systems.lasthop import Forwarding
from mudkit.systems.lasthop.spool.ranked import Message
from mudkit.systems.lasthop.spool.served import ServedSpool

S = 1_000_000


class RecordingSpool(ServedSpool):
    """A spool that records its effects."""

    def __init__(self, policy, threshold=0.0, **settings):
        self.forwarded, self.retracted, self.finished = [], [], []
        super().__init__(
            threshold,
            policy,
            lambda message: self.forwarded.append(message.identity),
            lambda message: self.retracted.append(message.identity),
            lambda message: self.finished.append(message.identity),
            **settings,
        )
        self.network(0, is_up=True)

    def publish(self, at_s, **ranks):
        for identity, rank in ranks.items():
            self.notification(at_s * S, identity, rank)


def test_offer_forwards_the_best_messages_not_on_the_device():
    spool = RecordingSpool(Forwarding("buffer", 1))
    spool.publish(1, a=0.5, b=0.9, c=0.7, d=0.1)
    assert [message.identity for message in spool.offer(2 * S, 3)] == ["b", "c", "a"]
    assert spool.forwarded == ["a", "b", "c"]
    assert spool.device.size == 3
    assert [message.identity for message in spool.offer(3 * S, 1, {"b", "a"})] == ["c"]
    assert [message.identity for message in spool.offer(3 * S, math.inf)] == ["b", "c", "a", "d"]
    spool.read_offline(4 * S, ["b", "c"])
    assert spool.finished == ["b", "c"]
    assert spool.device.size == 2


def test_reconcile_requeues_lost_messages():
    spool = RecordingSpool(Forwarding("buffer", 2))
    spool.publish(1, a=0.5, b=0.5, c=0.1)
    assert spool.reconcile(3 * S, ["b", "never was"]) == ["never was"]
    spool.network(3 * S, is_up=True)
    assert spool.forwarded == ["a", "b", "a"]


def test_requeued_messages_that_arrived_are_not_resent():
    spool = RecordingSpool(Forwarding("buffer", 2))
    spool.publish(1, a=0.5, b=0.5)
    spool.is_up = False
    for identity in ("a", "b", "b", "never was"):
        spool.requeue(identity)
    assert spool.waiting == 2
    spool.resume(2 * S, ["a"], ["b"])
    assert spool.is_on_device("a")
    assert not spool.is_on_device("b")
    spool.read_offline(2 * S, ["b"])  # it had arrived as well
    spool.network(2 * S, is_up=True)
    assert spool.forwarded == ["a", "b"]
    spool.drop(3 * S, ["a"])
    assert spool.finished == ["b", "a"]


def test_requeue_restores_the_rate_credit():
    spool = RecordingSpool(Forwarding("rate"))
    spool.publish(1, a=0.5)
    spool.is_up = False
    spool.requeue("a")
    spool.network(2 * S, is_up=True)
    assert spool.forwarded == ["a", "a"]


def test_prefetching_is_limited_by_the_room_of_the_device():
    spool = RecordingSpool(Forwarding("buffer", 4))
    spool.room = 2
    spool.publish(1, a=0.1, b=0.2, c=0.3)
    assert spool.forwarded == ["a", "b"]
    spool.room = 3
    spool.network(2 * S, is_up=True)
    assert spool.forwarded == ["a", "b", "c"]


def test_rank_above_the_interrupt_limit_is_forwarded_at_once():
    spool = RecordingSpool(Forwarding("on-demand"), threshold=0.2)
    spool.interrupt = 0.9
    spool.publish(1, a=0.5, b=0.5)
    spool.publish(2, a=0.95, b=0.1)
    assert spool.forwarded == ["a"]
    assert spool.finished == ["b"]
    spool.publish(3, a=0.1)
    assert spool.retracted == ["a"]


def test_restored_spool_continues_with_its_state():
    spool = RecordingSpool(Forwarding("unified", expiration_threshold_s=None))
    spool.restore(
        10 * S,
        [
            Message("old", 0.5, 7, S, 20 * S),
            Message("older", 0.5, 3, S, 1 << 62),
            Message("c", 0.1, 9, S, 1 << 62),
        ],
        [(S, 1, 1), (2 * S, 1, 1)],
        last_order=12,
    )
    assert spool.prefetch_limit == 2
    spool.network(10 * S, is_up=True)
    assert spool.forwarded == ["older", "old"]
    spool.timeout(20 * S)
    assert spool.finished == ["old"]
    assert spool.forwarded == ["older", "old", "c"]
    assert {message.identity for message in spool.all()} == {"older", "c"}
    spool.notification(21 * S, "new", 0.1)
    assert spool.find("new").order == 13


def test_requeued_messages_over_capacity_are_evicted_by_rank():
    spool = RecordingSpool(Forwarding("buffer", 3), capacity=2)
    spool.publish(1, a=0.1, b=0.2, c=0.3, d=0.4, e=0.5, f=0.05)
    assert spool.finished == ["f"]
    spool.is_up = False
    for identity in "abc":
        spool.requeue(identity)
    for number in range(4):
        spool.notification(2 * S, number, 0.9)
    assert len(spool.finished) == 5
    assert spool.finished[1:3] == ["a", "b"]


def test_duplicate_ids_in_a_report_are_handled_once():
    spool = RecordingSpool(Forwarding("buffer", 3))
    spool.publish(1, a=0.1, b=0.2, c=0.3)
    spool.read_offline(2 * S, ["a", "a"])
    spool.drop(2 * S, ["b", "b"])
    assert spool.finished == ["a", "b"]
    assert spool.habits.read_at_a_time == 1.0


def test_messages_for_a_read_that_were_lost_are_forwarded_again():
    """Last hop 4.5, Figure 7: what READ chose stays in ``outgoing`` until the network has carried it."""
    for remembers, forwarded in ((False, ["b"]), (True, ["b", "b"])):
        spool = RecordingSpool(Forwarding("on-demand", remembers_reads=remembers))
        spool.publish(1, a=0.5, b=0.9)
        spool.offer(2 * S, 1)
        spool.network(3 * S, is_up=False)
        spool.resume(4 * S, [], ["b"])
        spool.network(4 * S, is_up=True)
        assert spool.forwarded == forwarded

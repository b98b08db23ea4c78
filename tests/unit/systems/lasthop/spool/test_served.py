"""The spool of a device that reads by itself: what is offered, lost, held and taken up again."""

from __future__ import annotations

import math

from mudkit.systems.lasthop import Forwarding
from mudkit.systems.lasthop.spool.ranked import Message
from mudkit.systems.lasthop.spool.served import ServedSpool

S = 1_000_000


class Watched(ServedSpool):
    """A spool that notes what it does."""

    def __init__(self, policy, threshold=0.0, **settings):
        self.forwarded, self.retracted, self.gone = [], [], []
        super().__init__(
            threshold,
            policy,
            lambda each: self.forwarded.append(each.identity),
            lambda each: self.retracted.append(each.identity),
            lambda each: self.gone.append(each.identity),
            **settings,
        )
        self.network(0, is_up=True)

    def come(self, at_s, **ranks):
        for identity, rank in ranks.items():
            self.notification(at_s * S, identity, rank)


def test_the_best_of_all_queues_are_offered_and_what_is_there_is_not_sent_again():
    spool = Watched(Forwarding("buffer", 1))
    spool.come(1, a=0.5, b=0.9, c=0.7, d=0.1)
    assert [each.identity for each in spool.offer(2 * S, 3)] == ["b", "c", "a"]
    assert spool.forwarded == ["a", "b", "c"]
    assert spool.device.size == 3
    assert [each.identity for each in spool.offer(3 * S, 1, {"b", "a"})] == ["c"]
    assert [each.identity for each in spool.offer(3 * S, math.inf)] == ["b", "c", "a", "d"]
    spool.read_offline(4 * S, ["b", "c"])
    assert spool.gone == ["b", "c"]
    assert spool.device.size == 2


def test_what_was_lost_on_its_way_waits_again():
    spool = Watched(Forwarding("buffer", 2))
    spool.come(1, a=0.5, b=0.5, c=0.1)
    assert spool.reconcile(3 * S, ["b", "never was"]) == ["never was"]
    spool.network(3 * S, is_up=True)
    assert spool.forwarded == ["a", "b", "a"]


def test_what_was_believed_lost_and_is_there_is_not_sent_again():
    spool = Watched(Forwarding("buffer", 2))
    spool.come(1, a=0.5, b=0.5)
    spool.is_up = False
    for identity in ("a", "b", "b", "never was"):
        spool.requeue(identity)
    assert spool.waiting == 2
    spool.resume(2 * S, ["a"], ["b"])
    assert spool.is_on_device("a")
    assert not spool.is_on_device("b")
    spool.read_offline(2 * S, ["b"])  # and it was there, too
    spool.network(2 * S, is_up=True)
    assert spool.forwarded == ["a", "b"]
    spool.drop(3 * S, ["a"])
    assert spool.gone == ["b", "a"]


def test_what_could_not_be_sent_was_not_paid_for():
    spool = Watched(Forwarding("rate"))
    spool.come(1, a=0.5)
    spool.is_up = False
    spool.requeue("a")
    spool.network(2 * S, is_up=True)
    assert spool.forwarded == ["a", "a"]


def test_no_more_is_prefetched_than_has_room():
    spool = Watched(Forwarding("buffer", 4))
    spool.room = 2
    spool.come(1, a=0.1, b=0.2, c=0.3)
    assert spool.forwarded == ["a", "b"]
    spool.room = 3
    spool.network(2 * S, is_up=True)
    assert spool.forwarded == ["a", "b", "c"]


def test_a_rank_that_rises_far_enough_goes_at_once():
    spool = Watched(Forwarding("on-demand"), threshold=0.2)
    spool.interrupt = 0.9
    spool.come(1, a=0.5, b=0.5)
    spool.come(2, a=0.95, b=0.1)
    assert spool.forwarded == ["a"]
    assert spool.gone == ["b"]
    spool.come(3, a=0.1)
    assert spool.retracted == ["a"]


def test_another_life_goes_on_where_one_has_ended():
    spool = Watched(Forwarding("unified", expiration_threshold_s=None))
    spool.restore(
        10 * S,
        [
            Message("old", 0.5, 7, S, 20 * S),
            Message("older", 0.5, 3, S, 1 << 62),
            Message("c", 0.1, 9, S, 1 << 62),
        ],
        [(S, 1), (2 * S, 1)],
        last_order=12,
    )
    assert spool.prefetch_limit == 2
    spool.network(10 * S, is_up=True)
    assert spool.forwarded == ["older", "old"]
    spool.timeout(20 * S)
    assert spool.gone == ["old"]
    assert spool.forwarded == ["older", "old", "c"]
    assert {each.identity for each in spool.all()} == {"older", "c"}
    spool.notification(21 * S, "new", 0.1)
    assert spool.find("new").order == 13


def test_too_much_that_comes_back_is_evicted_by_rank():
    spool = Watched(Forwarding("buffer", 3), capacity=2)
    spool.come(1, a=0.1, b=0.2, c=0.3, d=0.4, e=0.5, f=0.05)
    assert spool.gone == ["f"]
    spool.is_up = False
    for identity in "abc":
        spool.requeue(identity)
    for number in range(4):
        spool.notification(2 * S, number, 0.9)
    assert len(spool.gone) == 5
    assert spool.gone[1:3] == ["a", "b"]


def test_what_a_device_names_twice_ends_once():
    spool = Watched(Forwarding("buffer", 3))
    spool.come(1, a=0.1, b=0.2, c=0.3)
    spool.read_offline(2 * S, ["a", "a"])
    spool.drop(2 * S, ["b", "b"])
    assert spool.gone == ["a", "b"]
    assert spool.habits.read_at_a_time == 1.0

"""Rows M1, M2 and M2-scaling at small sizes: messages through the servers of MUD tables."""

from __future__ import annotations

import math

import pytest
from measured_rows import check_complete

from mudkit.predicates import SubscriptionIndex
from mudkit.reproduce import mobius_scaling
from mudkit.reproduce.mobius_scaling import M1, M2, M2_SCALING
from mudkit.reproduce.mud_servers import MessagingServers, Times, add_to_index, rates
from mudkit.systems.mud.tables.records import SentPredicate


@pytest.mark.soak
def test_m1_measures_all_required_quantities():
    measured = mobius_scaling.measure_messages(
        subscriptions=(1, 1000), partitions=(1, 5, 20), messages=20, runs=2
    )
    check_complete(M1, measured)
    for many in ("1", "1,000"):
        everywhere, alone = (
            measured.quantities[f"messages/s, {what}, {many} a partition"].median
            for what in ("all servers in one process", "gateway and processor")
        )
        assert 0 < everywhere < alone < math.inf


@pytest.mark.soak
def test_m2_measures_all_required_quantities():
    measured = mobius_scaling.measure_subscribers(steps=(20, 1500), messages=20, runs=2)
    check_complete(M2, measured)
    assert measured.quantities["subscribers held"].median == 1500
    assert 200 < measured.quantities["bytes a subscriber"].median < 20_000
    assert 100 < measured.quantities["bytes a subscription in the index alone"].median < 10_000


def test_index_alone_has_the_subscriptions_of_the_servers():
    servers, index = MessagingServers(3, 3, 1), SubscriptionIndex()
    for number in range(3):
        servers.subscribe()
        add_to_index(index, number)
    processor = servers._machines[servers._processor].machine
    assert {*index} == {*processor._served.reads}
    (identity,) = index.match({"recipient": "reader-1"})
    assert index.reader(identity) == ({}, {"app": "chat", "user": "reader-1"})


def test_processors_scale_linearly_unless_a_partition_is_hot():
    measured = mobius_scaling.measure_scaling(processors=(1, 2), seconds=2.0)
    check_complete(M2_SCALING, measured)
    medians = {name: quantity.median for name, quantity in measured.quantities.items()}
    assert medians["share of linear scaling, even"] > 0.9
    assert medians["share of linear scaling, hot partition"] < 0.6
    assert medians["messages/s, 2 processors, even"] > 1.8 * medians["messages/s, 1 processors, even"]


@pytest.mark.parametrize("has_sessions", [True, False])
def test_each_message_reaches_its_one_reader(has_sessions):
    """Seven subscribers in tables of two partitions of two: the last table is not full."""
    servers = MessagingServers(7, 2, 2, has_sessions=has_sessions)
    for _ in range(7):
        servers.subscribe()
    times = servers.time_messages(30, 1)
    assert 0 < times.alone_s < times.all_s < 1


@pytest.mark.parametrize("text", ["recipient = 'nobody'", "TRUE"])
def test_message_without_one_reader_is_noticed(text):
    servers = MessagingServers(2, 2, 1)
    for _ in range(2):
        servers.subscribe(SentPredicate(text, ["nobody"] if "nobody" in text else [True]))
    with pytest.raises(AssertionError, match="one reader"):
        servers.time_messages(3, 1)


def test_rates_are_those_of_each_run():
    assert rates([Times(0.5, 0.25), Times(0.1, 0.05)]) == ([2, 10], [4, 20])

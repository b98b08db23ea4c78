"""Public API of last hop: hours, interrupts, capacity, rank changes, and invalid arguments."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import FailureWarning, MudkitError, ParameterError
from mudkit.experiment import NEWS, LastHop, run
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber, Subscription


class Setup:
    """A lab that starts at midnight, a server, and a phone."""

    def __init__(self, *, capacity=None, **limits):
        self.lab = Lab(seed=2, start="2010-03-01T00:00")
        self.server = Publications(self.lab)
        self.phone = self.lab.device("ann", link="ideal")
        self.ann = Subscriber(self.phone, self.server, device_capacity=capacity)
        self.news = self.server.topic("news")
        self.shown = []
        self.ann.on_message(lambda message: self.shown.append(message["text"]))
        self.ann.subscribe("news", **limits).result()

    def publish(self, **ranks):
        return {text: self.news.publish(text, rank).result() for text, rank in ranks.items()}

    def run_until_hour(self, hour):
        self.lab.run(hours=hour - self.lab.world.now_us / 3.6e9)

    def read(self):
        return [message["text"] for message in self.ann.read("news").result()]


def test_on_line_messages_are_shown_on_arrival_and_count_as_read():
    setup = Setup(mode="on-line", threshold=2.0)
    setup.publish(a=3.0, b=1.0, c=2.0)
    setup.lab.run(minutes=1)
    assert setup.shown == ["a", "c"]
    assert setup.read() == []
    deliveries = setup.lab.deliveries().set_index("item")["status"]
    assert dict(deliveries) == {"news 1": "read", "news 3": "read"}


def test_messages_of_quiet_hours_and_outages_are_shown_afterwards():
    setup = Setup(mode="on-line", quiet_h=(1, 2), policy=Forwarding("buffer", 1))
    setup.run_until_hour(1)
    setup.publish(a=1.0, b=3.0)
    setup.run_until_hour(1.99)
    assert setup.shown == []
    assert setup.ann.queue_sizes().result() == {"news": 1}
    setup.phone.link_down()
    setup.run_until_hour(2.5)
    assert setup.shown == []
    setup.phone.link_up()
    setup.run_until_hour(2.6)
    assert sorted(setup.shown) == ["a", "b"]
    setup.publish(c=0.0)
    setup.run_until_hour(2.7)
    assert setup.shown[2:] == ["c"]


def test_fixed_delivery_times_show_the_highest_ranks():
    setup = Setup(mode="on-line", at_h=(8, 18), max=2)
    setup.publish(a=1.0, b=4.0, c=3.0, d=2.0)
    setup.run_until_hour(7.9)
    assert setup.shown == []
    setup.run_until_hour(8.1)
    assert setup.shown == ["b", "c"]
    setup.publish(e=9.0)
    setup.run_until_hour(17.9)
    assert setup.shown == ["b", "c"]
    setup.run_until_hour(18.1)
    assert setup.shown == ["b", "c", "e", "d"]
    setup.run_until_hour(24 + 8.1)
    assert setup.shown == ["b", "c", "e", "d", "a"]


def test_delivery_hour_missed_in_an_outage_is_caught_up_on_reconnect():
    setup = Setup(mode="on-line", at_h=(8,), max=1)
    setup.publish(a=1.0, b=4.0)
    setup.run_until_hour(7)
    setup.phone.link_down()
    setup.run_until_hour(9)
    setup.server.installed.kill()
    setup.server.installed.start()
    setup.run_until_hour(10)
    setup.phone.link_up()
    setup.run_until_hour(11)
    assert setup.shown == ["b"]


def test_per_day_limits_shown_messages():
    setup = Setup(mode="on-line", per_day=2)
    setup.publish(a=1.0, b=2.0, c=3.0, d=4.0)
    setup.lab.run(hours=1)
    assert setup.shown == ["a", "b"]
    setup.server.installed.kill()
    setup.server.installed.start()
    setup.publish(e=0.5)
    setup.run_until_hour(23.9)
    assert setup.shown == ["a", "b"]
    setup.run_until_hour(24.1)
    assert setup.shown == ["a", "b", "d", "c"]


def test_per_day_limits_interrupts_of_an_on_demand_topic():
    setup = Setup(policy="on-demand", interrupt=5.0, per_day=1)
    ids = setup.publish(a=1.0, b=6.0, c=7.0)
    setup.lab.run(hours=1)
    assert setup.shown == ["b"]
    setup.run_until_hour(24.5)
    setup.news.rerank(ids["a"], 8.0).result()
    setup.lab.run(hours=1)
    assert setup.shown == ["b", "a"]
    assert setup.read() == ["c"]


def test_rank_increase_of_a_queued_message_interrupts():
    setup = Setup(policy="on-line", interrupt=5.0)
    ids = setup.publish(a=1.0, b=2.0)
    setup.lab.run(hours=1)
    assert setup.ann.queue_sizes().result() == {"news": 2}
    setup.news.rerank(ids["a"], 5.0).result()
    setup.lab.run(hours=1)
    assert setup.shown == ["a"]
    assert setup.read() == ["b"]


def test_rank_changes_during_an_outage_are_applied():
    setup = Setup(policy="on-line", threshold=2.0, max=None)
    ids = setup.publish(a=3.0, b=4.0, c=5.0, d=1.0)
    setup.lab.run(hours=1)
    setup.phone.link_down()
    for text, rank in (("a", 9.0), ("b", 1.0), ("d", 2.5)):
        setup.news.rerank(ids[text], rank).result()
    setup.phone.link_up()
    setup.lab.run(hours=1)
    assert setup.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 3}
    setup.news.rerank(ids["b"], 9.0).result()  # a retraction is final
    assert setup.read() == ["a", "c", "d"]
    assert setup.lab.deliveries().set_index("item").loc["news 2", "status"] == "refused"


def test_full_device_queue_drops_the_lowest_rank():
    setup = Setup(capacity=2, policy="on-line", max=None)
    setup.publish(a=3.0, b=1.0, c=2.0, d=4.0)
    setup.lab.run(hours=1)
    assert setup.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 2}
    assert setup.read() == ["d", "a"]
    assert list(setup.lab.deliveries()["status"]) == ["read", "unread", "unread", "read"]


def test_full_device_queue_prefetches_only_higher_ranks():
    setup = Setup(capacity=2, policy=Forwarding("buffer", 10), max=8)
    setup.ann.subscribe("sport", policy=Forwarding("buffer", 10)).result()
    setup.publish(a=3.0, b=1.0, c=2.0, d=4.0)
    setup.server.topic("sport").publish("goal", 9.0).result()
    setup.lab.run(hours=1)
    assert setup.ann.queue_sizes().result() == {"news": 2, "sport": 0}
    assert setup.read() == ["d", "a"]
    assert setup.read() == ["c"]
    assert [m["text"] for m in setup.ann.read("sport").result()] == ["goal"]
    assert list(setup.lab.deliveries()["status"]) == ["read", "unread", "read", "read", "read"]


def test_read_without_a_link_returns_the_best_on_the_device():
    setup = Setup(policy=Forwarding("buffer", 2), max=3)
    setup.publish(a=1.0, b=3.0)
    setup.lab.run(hours=1)
    setup.phone.link_down()
    setup.publish(c=9.0)
    assert setup.read() == ["b", "a"]
    setup.phone.link_up()
    setup.lab.run(minutes=1)
    assert setup.read() == ["c"]


def test_equal_ranks_are_read_in_order_of_publication():
    setup = Setup(policy=Forwarding("buffer", 2, expiration_threshold_s=3600.0), max=2)
    setup.news.publish("a", 1.0, expires_s=1800.0).result()  # not prefetched: arrives after b
    setup.news.publish("b", 1.0).result()
    setup.lab.run(minutes=1)
    assert setup.ann.queue_sizes().result() == {"news": 1}
    assert setup.read() == ["a", "b"]


def test_reordering_delays_a_read_at_most_by_its_delay_and_adds_no_bytes():
    texts, down_bytes = {str(rank): rank for rank in range(1, 9)}, []
    for faults in ({}, {"delay_share": 0.3, "delay_s": 2.0}):
        setup = Setup(policy="on-demand")
        for text, rank in texts.items():
            setup.news.publish(text, rank, called="x" * 4000).result()
        setup.lab.faults.messages(**faults)
        start_us = setup.lab.world.now_us
        assert setup.read() == sorted(texts, reverse=True)
        assert setup.lab.world.now_us - start_us <= 4_000_000  # delay of the request and of the answer
        setup.lab.run(hours=1)
        bill = setup.lab.bill().set_index("direction")
        down_bytes.append(bill.loc["down", "bytes"])
    assert down_bytes[0] == down_bytes[1] > 8 * 4000


def test_changed_limits_apply_to_queued_and_new_messages():
    setup = Setup(policy="on-line", max=None)
    setup.publish(a=1.0, b=2.0, c=3.0)
    setup.lab.run(minutes=1)
    setup.ann.subscribe("news", policy="on-line", max=None, threshold=2.0).result()
    setup.lab.run(minutes=1)
    assert setup.ann.queue_sizes().result() == {"news": 2}
    ids = setup.publish(d=1.5, e=0.5)
    setup.news.rerank(ids["e"], 1.8).result()
    setup.ann.subscribe("news", policy="on-line", max=1, threshold=1.6).result()
    assert setup.read() == ["c"]
    setup.ann.subscribe("news", policy="on-line", max=None).result()
    assert setup.read() == ["b", "e", "d"]  # a was retracted


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda setup: setup.server.topic(""), "topic"),
        (lambda setup: setup.news.publish("a", rank="high"), "rank"),
        (lambda setup: setup.news.publish("a", rank=float("nan")), "rank"),
        (lambda setup: setup.news.publish("a", expires_s=0), "expires_s"),
        (lambda setup: setup.news.publish("a", expires_s=-3.0), "expires_s"),
        (lambda setup: setup.news.publish("a", expires_s="soon"), "expires_s"),
        (lambda setup: setup.news.publish(3), "text"),
        (lambda setup: setup.news.publish("a", topic="b"), "topic"),
        (lambda setup: setup.news.publish("a", what=object()), "attributes"),
        (lambda setup: setup.news.publish("a", item="two\nlines"), "item"),
        (lambda setup: setup.news.rerank("news 1", None), "rank"),
        (lambda setup: setup.ann.subscribe("news", max=-1), "max"),
        (lambda setup: setup.ann.subscribe(Subscription("news"), max=1), "max"),
        (lambda setup: setup.ann.read("sport").result(), "sport"),
        (lambda setup: setup.ann.unsubscribe("sport").result(), "sport"),
        (lambda setup: setup.server.queues("bob", "news").result(), "bob"),
        (
            lambda setup: Subscriber(setup.lab.device("bob"), setup.server, device_capacity=0),
            "device_capacity",
        ),
        (lambda setup: Publications(setup.lab, "other", spool_capacity=0), "spool_capacity"),
        (lambda setup: Publications(setup.lab, "other", utc_offset_h=30), "utc_offset_h"),
    ],
)
def test_invalid_arguments_are_refused_by_name(call, parameter):
    setup = Setup()
    with pytest.raises(ParameterError) as caught:
        call(setup)
    assert parameter in str(caught.value)


def test_rerank_below_the_threshold_or_of_an_unknown_message_has_no_effect():
    setup = Setup(threshold=2.0)
    ids = setup.publish(a=1.0)
    setup.news.rerank(ids["a"], 1.5).result()
    setup.news.rerank("never was", 9.0).result()
    assert setup.read() == []


def test_duplicate_message_name_is_refused():
    setup = Setup(max=1)
    for topic in ("news", "sport"):
        setup.ann.subscribe(topic).result()
        setup.server.topic(topic).publish("a", 1.0, item=f"{topic} 1").result()
    with pytest.raises(ParameterError, match="There is a message of this name"):
        setup.news.publish("b", item="news 1").result()
    assert setup.read() == ["a"]
    with pytest.raises(ParameterError, match="There is a message of this name"):
        setup.news.publish("b", item="news 1").result()
    setup.news.rerank("sport 1", -1.0).result()  # of another topic
    assert [message["rank"] for message in setup.ann.read("sport").result()] == [1.0]


def test_duplicate_message_name_is_refused_after_a_change_of_limits():
    setup = Setup(max=1)
    setup.news.publish("a", 2.0, item="news 1").result()
    setup.news.publish("b", 1.0, item="news 2").result()
    assert setup.read() == ["a"]
    setup.ann.subscribe("news", threshold=1.5).result()
    for name in ("news 1", "news 2"):  # was read, and is below the threshold now
        with pytest.raises(ParameterError, match="There is a message of this name"):
            setup.news.publish("c", 3.0, item=name).result()
    assert setup.read() == []


def test_delivery_hours_are_local_time():
    lab = Lab(seed=2, start="2010-03-01T00:00")
    server = Publications(lab, utc_offset_h=-6.0)
    ann = Subscriber(lab.device("ann"), server)
    shown = []
    ann.on_message(shown.append)
    ann.subscribe("news", mode="on-line", at_h=(8,)).result()
    server.topic("news").publish("a").result()
    lab.run(hours=13.9)
    assert shown == []
    lab.run(hours=0.2)
    assert [message["text"] for message in shown] == ["a"]


def test_experiment_runs_last_hop():
    result = run(NEWS.over(devices=3, hours=6, outage=0.3), LastHop, seed=1)
    status = result.deliveries["status"].value_counts()
    assert status["read"] > 0
    assert set(status.index) <= {"read", "unread", "lost", "expired"}
    assert (result.bill["bytes"] > 0).all()


def _expire(setup):
    setup.lab.run(minutes=2)


def _retract(setup):
    setup.news.rerank("news 1", -1.0).result()


def _read(setup):
    setup.read()


@pytest.mark.parametrize("remove", [_expire, _retract, _read])
@pytest.mark.parametrize("event", ["limits", "restart", "unsubscribe"])
def test_arrival_order_numbers_are_not_reused(event, remove):
    setup = Setup(policy="on-line", max=None)
    setup.news.publish("one", rank=4.0, expires_s=60).result()
    setup.lab.run(seconds=30)
    remove(setup)
    setup.lab.run(minutes=1)
    match event:
        case "limits":
            setup.ann.subscribe("news", policy="on-line", max=None, threshold=0.5).result()
        case "restart":
            setup.lab.faults.kill("spool")
            setup.lab.faults.restart("spool")
        case "unsubscribe":
            setup.ann.unsubscribe("news").result()
            setup.ann.subscribe("news", policy="on-line", max=None).result()
    setup.lab.run(minutes=1)
    for text in ("two", "three"):
        setup.news.publish(text, rank=4.0).result()
    setup.lab.run(minutes=1)
    orders = [row["order"] for _, row in setup.ann.installed.store.items("queue\n")]
    assert orders == ([1, 2] if event == "unsubscribe" else [2, 3])  # no number is reused
    assert setup.read() == ["two", "three"]


@pytest.mark.parametrize("topic", ["query: a ==", "query: receiver.battery > 1 AND a = 1", "x" * 100_000])
def test_invalid_topics_are_refused_at_the_call(topic):
    setup = Setup()
    with pytest.raises(MudkitError):
        setup.ann.subscribe(topic)
    with pytest.raises(MudkitError):
        setup.ann.follow(topic, {"here": (0.0, 0.0, 1.0)})
    with pytest.raises(MudkitError):
        setup.ann.follow("news {place}", {"he\nre": (0.0, 0.0, 1.0)})


@pytest.mark.parametrize("attributes", [{"n": 1 << 64}, {"n": [{"m": -(1 << 70)}]}, {"text": "\ud800"}])
def test_unencodable_attributes_are_refused_before_publication(attributes):
    setup = Setup(policy="on-line")
    with pytest.raises(ParameterError):
        setup.news.publish(**{"text": "x", **attributes})
    setup.news.publish("good", n=(1 << 63) - 1).result()
    assert setup.read() == ["good"]


@pytest.mark.parametrize("register", ["on_message", "on_arrival"])
def test_failing_callback_is_an_incident_and_does_not_block_delivery(register):
    setup = Setup(mode="on-line")
    received = []

    def fail_at_b(message):
        received.append(message["text"])
        if message["text"] == "b":
            raise KeyError("no b")

    getattr(setup.ann, register)(fail_at_b)
    setup.publish(a=1.0, b=1.0)
    with pytest.warns(FailureWarning, match="no b"):
        setup.lab.run(minutes=1)
    setup.publish(c=1.0)
    setup.lab.run(minutes=1)
    assert received == setup.shown == ["a", "b", "c"]
    assert setup.lab.problems[["device", "system"]].to_numpy().tolist() == [["ann", "last hop"]]
    assert setup.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 0}  # all count as read


@pytest.mark.parametrize(("remembers", "found"), [(False, []), (True, ["d", "c", "b"])])
def test_read_in_an_outage_is_made_up_for_in_the_next_one(remembers, found):
    """Last hop 4.5, Figure 7: READ leaves its messages in ``outgoing``, which NETWORK forwards."""
    setup = Setup(max=3, policy=Forwarding("on-demand", remembers_reads=remembers))
    setup.phone.link_down()
    setup.publish(a=1.0, b=2.0, c=3.0, d=4.0)
    assert setup.read() == []
    setup.run_until_hour(1)
    setup.phone.link_up()
    setup.run_until_hour(1.1)
    setup.phone.link_down()
    assert setup.read() == found


def test_read_that_the_server_has_answered_is_not_made_up_for():
    """Last hop 4.1: on demand, nothing is forwarded that no read asks for."""
    setup = Setup(max=1, policy=Forwarding("on-demand", remembers_reads=True))
    setup.publish(a=1.0, b=2.0)
    assert setup.read() == ["b"]
    setup.run_until_hour(1)
    assert setup.ann.queue_sizes().result() == {"news": 0}

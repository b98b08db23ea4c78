"""What notebooks hold of last hop: hours, interrupts, capacity, rank changes, and what is refused."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import FailureWarning, MudkitError, ParameterError
from mudkit.experiment import LastHop, Scenario, run
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber, Subscription


class Place:
    """A lab that begins at midnight, a server, and a phone."""

    def __init__(self, *, capacity=None, **wanted):
        self.lab = Lab(seed=2, start="2010-03-01T00:00")
        self.server = Publications(self.lab)
        self.phone = self.lab.device("ann", link="ideal")
        self.ann = Subscriber(self.phone, self.server, device_capacity=capacity)
        self.news = self.server.topic("news")
        self.shown = []
        self.ann.on_message(lambda message: self.shown.append(message["text"]))
        self.ann.subscribe("news", **wanted).result()

    def publish(self, **ranks):
        return {text: self.news.publish(text, rank).result() for text, rank in ranks.items()}

    def until(self, hour):
        self.lab.run(hours=hour - self.lab.world.now_us / 3.6e9)

    def read(self):
        return [message["text"] for message in self.ann.read("news").result()]


def test_an_on_line_topic_is_shown_as_it_comes_and_that_counts_as_read():
    place = Place(mode="on-line", threshold=2.0)
    place.publish(a=3.0, b=1.0, c=2.0)
    place.lab.run(minutes=1)
    assert place.shown == ["a", "c"]
    assert place.read() == []
    deliveries = place.lab.deliveries().set_index("item")["status"]
    assert dict(deliveries) == {"news 1": "read", "news 3": "read"}


def test_what_came_while_it_was_quiet_or_away_is_shown_afterwards():
    place = Place(mode="on-line", quiet_h=(1, 2), policy=Forwarding("buffer", 1))
    place.until(1)
    place.publish(a=1.0, b=3.0)
    place.until(1.99)
    assert place.shown == []
    assert place.ann.queue_sizes().result() == {"news": 1}
    place.phone.link_down()
    place.until(2.5)
    assert place.shown == []
    place.phone.link_up()
    place.until(2.6)
    assert place.shown == ["b", "a"] or sorted(place.shown) == ["a", "b"]
    place.publish(c=0.0)
    place.until(2.7)
    assert place.shown[2:] == ["c"]


def test_it_delivers_the_best_at_fixed_times():
    place = Place(mode="on-line", at_h=(8, 18), max=2)
    place.publish(a=1.0, b=4.0, c=3.0, d=2.0)
    place.until(7.9)
    assert place.shown == []
    place.until(8.1)
    assert place.shown == ["b", "c"]
    place.publish(e=9.0)
    place.until(17.9)
    assert place.shown == ["b", "c"]
    place.until(18.1)
    assert place.shown == ["b", "c", "e", "d"]
    place.until(24 + 8.1)
    assert place.shown == ["b", "c", "e", "d", "a"]


def test_a_device_that_is_away_at_the_hour_gets_it_when_it_is_back():
    place = Place(mode="on-line", at_h=(8,), max=1)
    place.publish(a=1.0, b=4.0)
    place.until(7)
    place.phone.link_down()
    place.until(9)
    place.server.installed.kill()
    place.server.installed.start()
    place.until(10)
    place.phone.link_up()
    place.until(11)
    assert place.shown == ["b"]


def test_at_most_so_many_a_day():
    place = Place(mode="on-line", per_day=2)
    place.publish(a=1.0, b=2.0, c=3.0, d=4.0)
    place.lab.run(hours=1)
    assert place.shown == ["a", "b"]
    place.server.installed.kill()
    place.server.installed.start()
    place.publish(e=0.5)
    place.until(23.9)
    assert place.shown == ["a", "b"]
    place.until(24.1)
    assert place.shown == ["a", "b", "d", "c"]


def test_an_urgent_message_interrupts_an_on_demand_topic_at_most_so_often_a_day():
    place = Place(policy="on-demand", interrupt=5.0, per_day=1)
    ids = place.publish(a=1.0, b=6.0, c=7.0)
    place.lab.run(hours=1)
    assert place.shown == ["b"]
    place.until(24.5)
    place.news.rerank(ids["a"], 8.0).result()
    place.lab.run(hours=1)
    assert place.shown == ["b", "a"]
    assert place.read() == ["c"]


def test_a_rank_that_rises_on_the_device_interrupts():
    place = Place(policy="on-line", interrupt=5.0)
    ids = place.publish(a=1.0, b=2.0)
    place.lab.run(hours=1)
    assert place.ann.queue_sizes().result() == {"news": 2}
    place.news.rerank(ids["a"], 5.0).result()
    place.lab.run(hours=1)
    assert place.shown == ["a"]
    assert place.read() == ["b"]


def test_ranks_change_both_ways_also_while_the_device_is_away():
    place = Place(policy="on-line", threshold=2.0, max=None)
    ids = place.publish(a=3.0, b=4.0, c=5.0, d=1.0)
    place.lab.run(hours=1)
    place.phone.link_down()
    for text, rank in (("a", 9.0), ("b", 1.0), ("d", 2.5)):
        place.news.rerank(ids[text], rank).result()
    place.phone.link_up()
    place.lab.run(hours=1)
    assert place.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 3}
    place.news.rerank(ids["b"], 9.0).result()  # what was retracted stays so
    assert place.read() == ["a", "c", "d"]
    assert place.lab.deliveries().set_index("item").loc["news 2", "status"] == "refused"


def test_the_lowest_rank_has_no_room_and_is_waste():
    place = Place(capacity=2, policy="on-line", max=None)
    place.publish(a=3.0, b=1.0, c=2.0, d=4.0)
    place.lab.run(hours=1)
    assert place.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 2}
    assert place.read() == ["d", "a"]
    assert list(place.lab.deliveries()["status"]) == ["read", "unread", "unread", "read"]


def test_what_has_no_room_is_not_prefetched_and_a_better_message_takes_the_room_of_a_worse():
    place = Place(capacity=2, policy=Forwarding("buffer", 10), max=8)
    place.ann.subscribe("sport", policy=Forwarding("buffer", 10)).result()
    place.publish(a=3.0, b=1.0, c=2.0, d=4.0)
    place.server.topic("sport").publish("goal", 9.0).result()
    place.lab.run(hours=1)
    assert place.ann.queue_sizes().result() == {"news": 2, "sport": 0}
    assert place.read() == ["d", "a"]
    assert place.read() == ["c"]
    assert [m["text"] for m in place.ann.read("sport").result()] == ["goal"]
    assert list(place.lab.deliveries()["status"]) == ["read", "unread", "read", "read", "read"]


def test_without_a_link_the_best_that_are_there_are_read():
    place = Place(policy=Forwarding("buffer", 2), max=3)
    place.publish(a=1.0, b=3.0)
    place.lab.run(hours=1)
    place.phone.link_down()
    place.publish(c=9.0)
    assert place.read() == ["b", "a"]
    place.phone.link_up()
    place.lab.run(minutes=1)
    assert place.read() == ["c"]


def test_equal_ranks_are_read_in_the_order_in_which_they_came():
    place = Place(policy=Forwarding("buffer", 2, expiration_threshold_s=3600.0), max=2)
    place.news.publish("a", 1.0, expires_s=1800.0).result()  # held back, and comes after b
    place.news.publish("b", 1.0).result()
    place.lab.run(minutes=1)
    assert place.ann.queue_sizes().result() == {"news": 1}
    assert place.read() == ["a", "b"]


def test_a_read_waits_for_no_more_than_the_latest_message_and_costs_what_it_costs_in_order():
    texts, down_bytes = {str(rank): rank for rank in range(1, 9)}, []
    for delayed in ({}, {"delay_share": 0.3, "delay_s": 2.0}):
        place = Place(policy="on-demand")
        for text, rank in texts.items():
            place.news.publish(text, rank, called="x" * 4000).result()
        place.lab.faults.messages(**delayed)
        began_us = place.lab.world.now_us
        assert place.read() == sorted(texts, reverse=True)
        assert place.lab.world.now_us - began_us <= 4_000_000  # there and back
        place.lab.run(hours=1)
        bill = place.lab.bill().set_index("direction")
        down_bytes.append(bill.loc["down", "bytes"])
    assert down_bytes[0] == down_bytes[1] > 8 * 4000


def test_other_limits_from_now_on():
    place = Place(policy="on-line", max=None)
    place.publish(a=1.0, b=2.0, c=3.0)
    place.lab.run(minutes=1)
    place.ann.subscribe("news", policy="on-line", max=None, threshold=2.0).result()
    place.lab.run(minutes=1)
    assert place.ann.queue_sizes().result() == {"news": 2}
    ids = place.publish(d=1.5, e=0.5)
    place.news.rerank(ids["e"], 1.8).result()
    place.ann.subscribe("news", policy="on-line", max=1, threshold=1.6).result()
    assert place.read() == ["c"]
    place.ann.subscribe("news", policy="on-line", max=None).result()
    assert place.read() == ["b", "e", "d"]  # a was retracted


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda place: place.server.topic(""), "topic"),
        (lambda place: place.news.publish("a", rank="high"), "rank"),
        (lambda place: place.news.publish("a", rank=float("nan")), "rank"),
        (lambda place: place.news.publish("a", expires_s=0), "expires_s"),
        (lambda place: place.news.publish("a", expires_s=-3.0), "expires_s"),
        (lambda place: place.news.publish("a", expires_s="soon"), "expires_s"),
        (lambda place: place.news.publish(3), "text"),
        (lambda place: place.news.publish("a", topic="b"), "topic"),
        (lambda place: place.news.publish("a", what=object()), "attributes"),
        (lambda place: place.news.publish("a", item="two\nlines"), "item"),
        (lambda place: place.news.rerank("news 1", None), "rank"),
        (lambda place: place.ann.subscribe("news", max=-1), "max"),
        (lambda place: place.ann.subscribe(Subscription("news"), max=1), "max"),
        (lambda place: place.ann.read("sport").result(), "sport"),
        (lambda place: place.ann.unsubscribe("sport").result(), "sport"),
        (lambda place: place.server.queues("bob", "news").result(), "bob"),
        (
            lambda place: Subscriber(place.lab.device("bob"), place.server, device_capacity=0),
            "device_capacity",
        ),
        (lambda place: Publications(place.lab, "other", spool_capacity=0), "spool_capacity"),
        (lambda place: Publications(place.lab, "other", utc_offset_h=30), "utc_offset_h"),
    ],
)
def test_what_cannot_be_is_refused_and_says_where(call, result):
    place = Place()
    with pytest.raises(ParameterError) as refused:
        call(place)
    assert result in str(refused.value)


def test_a_threshold_below_which_a_rank_stays_changes_nothing():
    place = Place(threshold=2.0)
    ids = place.publish(a=1.0)
    place.news.rerank(ids["a"], 1.5).result()
    place.news.rerank("never was", 9.0).result()
    assert place.read() == []


def test_each_message_has_a_name_of_its_own():
    place = Place(max=1)
    for topic in ("news", "sport"):
        place.ann.subscribe(topic).result()
        place.server.topic(topic).publish("a", 1.0, item=f"{topic} 1").result()
    with pytest.raises(ParameterError, match="There is a message of this name"):
        place.news.publish("b", item="news 1").result()
    assert place.read() == ["a"]
    with pytest.raises(ParameterError, match="There is a message of this name"):
        place.news.publish("b", item="news 1").result()
    place.news.rerank("sport 1", -1.0).result()  # of another topic
    assert [message["rank"] for message in place.ann.read("sport").result()] == [1.0]


def test_hours_are_local():
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


def test_an_experiment_runs_it():
    done = run(Scenario(devices=3, hours=6, outage=0.3), LastHop, seed=1)
    status = done.deliveries["status"].value_counts()
    assert status["read"] > 0
    assert set(status.index) <= {"read", "unread", "lost"}
    assert (done.bill["bytes"] > 0).all()


def _expired(place):
    place.lab.run(minutes=2)


def _retracted(place):
    place.news.rerank("news 1", -1.0).result()


def _read(place):
    place.read()


@pytest.mark.parametrize("ends", [_expired, _retracted, _read])
@pytest.mark.parametrize("kind", ["limits", "restart", "unsubscribe"])
def test_a_phone_goes_on_with_the_next_of_the_same_rank(kind, ends):
    place = Place(policy="on-line", max=None)
    place.news.publish("one", rank=4.0, expires_s=60).result()
    place.lab.run(seconds=30)
    ends(place)
    place.lab.run(minutes=1)
    match kind:
        case "limits":
            place.ann.subscribe("news", policy="on-line", max=None, threshold=0.5).result()
        case "restart":
            place.lab.faults.kill("spool")
            place.lab.faults.restart("spool")
        case "unsubscribe":
            place.ann.unsubscribe("news").result()
            place.ann.subscribe("news", policy="on-line", max=None).result()
    place.lab.run(minutes=1)
    for text in ("two", "three"):
        place.news.publish(text, rank=4.0).result()
    place.lab.run(minutes=1)
    orders = [row["order"] for _, row in place.ann.installed.store.items("queue\n")]
    assert orders == ([1, 2] if kind == "unsubscribe" else [2, 3])  # no number is used again
    assert place.read() == ["two", "three"]


@pytest.mark.parametrize("topic", ["query: a ==", "query: receiver.battery > 1 AND a = 1", "x" * 100_000])
def test_a_topic_that_no_server_can_have_is_refused_when_it_is_asked_for(topic):
    place = Place()
    with pytest.raises(MudkitError):
        place.ann.subscribe(topic)
    with pytest.raises(MudkitError):
        place.ann.follow(topic, {"here": (0.0, 0.0, 1.0)})
    with pytest.raises(MudkitError):
        place.ann.follow("news {place}", {"he\nre": (0.0, 0.0, 1.0)})


@pytest.mark.parametrize("attributes", [{"n": 1 << 64}, {"n": [{"m": -(1 << 70)}]}, {"text": "\ud800"}])
def test_what_nobody_can_keep_or_send_is_refused_before_anybody_has_it(attributes):
    place = Place(policy="on-line")
    with pytest.raises(ParameterError):
        place.news.publish(**{"text": "x", **attributes})
    place.news.publish("good", n=(1 << 63) - 1).result()
    assert place.read() == ["good"]


@pytest.mark.parametrize("register", ["on_message", "on_arrival"])
def test_a_callback_that_fails_is_an_incident_and_keeps_nothing_from_anybody(register):
    place = Place(mode="on-line")
    answer = []

    def fails_at_b(message):
        answer.append(message["text"])
        if message["text"] == "b":
            raise KeyError("no b")

    getattr(place.ann, register)(fails_at_b)
    place.publish(a=1.0, b=1.0)
    with pytest.warns(FailureWarning, match="no b"):
        place.lab.run(minutes=1)
    place.publish(c=1.0)
    place.lab.run(minutes=1)
    assert answer == place.shown == ["a", "b", "c"]
    assert place.lab.problems[["device", "system"]].to_numpy().tolist() == [["ann", "last hop"]]
    assert place.server.queues("ann", "news").result() == {"waiting": 0, "on_device": 0}  # all count as read

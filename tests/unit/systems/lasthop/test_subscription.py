"""Subscriptions: limits, hours, quiet times, and places."""

from __future__ import annotations

import pytest
from msgspec import json, structs

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber, Subscription
from mudkit.systems.lasthop.messages import SubscriptionFields
from mudkit.systems.lasthop.subscription import PlaceSubscription

H = 3_600_000_000


def test_max_0_reads_no_messages_and_max_none_reads_all():
    assert Subscription("news", max=0).max_messages == 0
    assert Subscription("news", max=None).max_messages == float("inf")


@pytest.mark.parametrize(
    ("quiet_h", "quiet_hours", "other_hours"),
    [((22, 7), (22, 23.5, 0, 6.99), (7, 12, 21.99)), ((9, 17), (9, 12, 16.99), (17, 0, 8.99))],
)
def test_quiet_hours_may_include_midnight(quiet_h, quiet_hours, other_hours):
    subscription = Subscription("news", mode="on-line", quiet_h=quiet_h)
    assert all(subscription.is_quiet(round(hour * H)) for hour in quiet_hours)
    assert not any(subscription.is_quiet(round(hour * H)) for hour in other_hours)
    assert not Subscription("news").is_quiet(0)


def test_next_change_is_the_next_quiet_or_delivery_hour_or_midnight():
    subscription = Subscription("news", mode="on-line", quiet_h=(22, 7), at_h=(8.5,))
    assert subscription.next_change_us(0) == 7 * H
    assert subscription.next_change_us(7 * H) == 1.5 * H
    assert subscription.next_change_us(23 * H) == 8 * H
    assert Subscription("news", per_day=3).next_change_us(H) == 23 * H
    assert Subscription("news").next_change_us(0) is None


def test_delivery_happens_only_at_its_hours():
    subscription = Subscription("news", mode="on-line", at_h=(8.5, 24))
    assert subscription.is_fixed_hour(round(8.5 * H))
    assert subscription.is_fixed_hour(0)
    assert not subscription.is_fixed_hour(8 * H)


def test_encoding_preserves_a_subscription():
    subscription = Subscription(
        "news", max=None, threshold=2.0, mode="on-line", policy=Forwarding("buffer", 4, 60.0, "learnt"),
        quiet_h=(22, 7), interrupt=4.5, at_h=(8, 18), per_day=3,
    )  # fmt: skip
    encoded = SubscriptionFields.of(subscription)
    assert encoded.subscription() == subscription
    assert json.decode(json.encode(encoded), type=SubscriptionFields).subscription() == subscription
    assert subscription.with_topic("sport") == structs.replace(encoded, topic="sport").subscription()


@pytest.mark.parametrize("remembers", [False, True])
def test_policy_that_forgets_reads_costs_no_byte_for_it(remembers):
    subscription = Subscription("news", policy=Forwarding("on-demand", remembers_reads=remembers))
    text = json.encode(SubscriptionFields.of(subscription))
    assert (b"remembers_reads" in text) == remembers
    assert json.decode(text, type=SubscriptionFields).subscription() == subscription


PLACES = {"Tromsø": (69.65, 18.96, 20.0), "Bergen": (60.39, 5.32, 20.0)}
TROMSØ, BERGEN, NOWHERE = (69.66, 18.9), (60.4, 5.3), (65.0, 10.0)


def test_place_change_ends_one_subscription_and_starts_another():
    following = PlaceSubscription(Subscription("traffic {place}", max=3), PLACES)
    assert following.changes(None, TROMSØ) == (None, Subscription("traffic Tromsø", max=3))
    assert following.changes("traffic Tromsø", TROMSØ) == (None, None)
    assert following.changes("traffic Tromsø", BERGEN) == (
        "traffic Tromsø",
        Subscription("traffic Bergen", max=3),
    )
    assert following.changes("traffic Tromsø", NOWHERE) == ("traffic Tromsø", None)
    assert following.changes("traffic Tromsø", None) == (None, None)


def test_topic_without_placeholder_is_followed_at_every_place():
    following = PlaceSubscription(Subscription("traffic"), PLACES)
    assert following.changes(None, TROMSØ)[1] == Subscription("traffic")
    assert following.changes("traffic", BERGEN) == (None, None)


def test_moving_phone_receives_the_topic_of_its_place():
    lab = Lab(seed=1)
    server = Publications(lab)
    phone = lab.device("ann")
    ann = Subscriber(phone, server)
    phone.set_measured("loc", TROMSØ)
    ann.follow("traffic {place}", PLACES, policy="on-line").result()
    lab.run(minutes=1)
    assert list(ann.queue_sizes().result()) == ["traffic Tromsø"]
    server.topic("traffic Tromsø").publish("bridge closed").result()
    server.topic("traffic Bergen").publish("tunnel closed").result()
    lab.run(minutes=1)
    assert ann.queue_sizes().result() == {"traffic Tromsø": 1}
    phone.set_measured("loc", BERGEN)
    ann.installed.kill()
    ann.installed.start()
    lab.run(minutes=1)
    assert ann.queue_sizes().result() == {"traffic Bergen": 0}
    server.topic("traffic Bergen").publish("tunnel open").result()
    assert [m["text"] for m in ann.read("traffic Bergen").result()] == ["tunnel open"]
    assert not server.installed.store.items("sub ann\ntraffic Tromsø")
    phone.set_measured("loc", NOWHERE)
    lab.run(minutes=1)
    assert ann.queue_sizes().result() == {}
    phone.set_measured("loc", TROMSØ)
    lab.run(minutes=1)
    ann.unfollow("traffic {place}").result()
    lab.run(minutes=1)
    assert ann.queue_sizes().result() == {}
    assert not server.installed.store.items("sub ")
    with pytest.raises(ParameterError, match="not subscribed"):
        ann.unfollow("traffic {place}").result()


def test_leaving_a_place_whose_topic_was_unsubscribed_subscribes_to_the_next():
    """A topic has one subscription (3.2), which a follow (3.3) and the user can both end."""
    lab = Lab(seed=1)
    phone = lab.device("ann")
    ann = Subscriber(phone, Publications(lab))
    phone.set_measured("loc", TROMSØ)
    ann.follow("traffic {place}", PLACES).result()
    ann.unsubscribe("traffic Tromsø").result()
    phone.set_measured("loc", BERGEN)
    lab.run(minutes=1)
    assert list(ann.queue_sizes().result()) == ["traffic Bergen"]
    ann.unsubscribe("traffic Bergen").result()
    ann.unfollow("traffic {place}").result()
    assert ann.queue_sizes().result() == {}


def test_a_topic_of_two_follows_is_subscribed_until_neither_is_at_its_place():
    lab = Lab(seed=1)
    phone = lab.device("ann")
    ann = Subscriber(phone, Publications(lab))
    phone.set_measured("loc", TROMSØ)
    ann.follow("traffic {place}", PLACES).result()
    ann.follow("traffic Tromsø", PLACES).result()
    phone.set_measured("loc", BERGEN)
    lab.run(minutes=1)
    assert set(ann.queue_sizes().result()) == {"traffic Bergen", "traffic Tromsø"}
    ann.unfollow("traffic Tromsø").result()
    assert list(ann.queue_sizes().result()) == ["traffic Bergen"]


def test_a_second_follow_changes_the_limits_at_the_same_place():
    lab = Lab(seed=1)
    server, phone = Publications(lab), lab.device("ann")
    ann = Subscriber(phone, server)
    phone.set_measured("loc", TROMSØ)
    ann.follow("traffic {place}", PLACES, max=1).result()
    ann.follow("traffic {place}", PLACES, max=2).result()
    lab.run(minutes=1)
    for text in ("bridge closed", "tunnel closed", "road closed"):
        server.topic("traffic Tromsø").publish(text).result()
    assert len(ann.read("traffic Tromsø").result()) == 2

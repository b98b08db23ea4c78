"""What a user wants of a topic: hours, quiet times, and what is refused."""

from __future__ import annotations

import pytest
from msgspec import json, structs

from mudkit.errors import ParameterError
from mudkit.systems.lasthop import Forwarding, Subscription
from mudkit.systems.lasthop.messages import Wanted

H = 3_600_000_000


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": 3}, "topic"),
        ({"topic": "two\nlines"}, "topic"),
        ({"max": -1}, "max"),
        ({"max": 2.5}, "max"),
        ({"threshold": float("nan")}, "threshold"),
        ({"threshold": "high"}, "threshold"),
        ({"mode": "sometimes"}, "mode"),
        ({"policy": "everything"}, "policy"),
        ({"quiet_h": (22, 22)}, "quiet_h"),
        ({"quiet_h": (22, 25)}, "quiet_h"),
        ({"quiet_h": (1, 2, 3)}, "quiet_h"),
        ({"interrupt": "loud"}, "interrupt"),
        ({"at_h": (8, -1)}, "at_h"),
        ({"per_day": -1}, "per_day"),
    ],
)
def test_what_cannot_be_is_refused(settings, where):
    with pytest.raises(ParameterError) as refused:
        Subscription(**{"topic": "news", **settings})
    assert where in str(refused.value)


def test_max_0_is_a_subscription_of_which_nothing_is_read():
    assert Subscription("news", max=0).most == 0
    assert Subscription("news", max=None).most == float("inf")


@pytest.mark.parametrize(
    ("quiet_h", "quiet", "loud"),
    [((22, 7), (22, 23.5, 0, 6.99), (7, 12, 21.99)), ((9, 17), (9, 12, 16.99), (17, 0, 8.99))],
)
def test_quiet_hours_may_go_over_midnight(quiet_h, quiet, loud):
    wanted = Subscription("news", mode="on-line", quiet_h=quiet_h)
    assert all(wanted.is_quiet(round(hour * H)) for hour in quiet)
    assert not any(wanted.is_quiet(round(hour * H)) for hour in loud)
    assert not Subscription("news").is_quiet(0)


def test_when_something_changes_next():
    wanted = Subscription("news", mode="on-line", quiet_h=(22, 7), at_h=(8.5,))
    assert wanted.next_change_us(0) == 7 * H
    assert wanted.next_change_us(7 * H) == 1.5 * H
    assert wanted.next_change_us(23 * H) == 8 * H
    assert Subscription("news", per_day=3).next_change_us(H) == 23 * H
    assert Subscription("news").next_change_us(0) is None


def test_it_delivers_at_its_hours_and_at_no_others():
    wanted = Subscription("news", mode="on-line", at_h=(8.5, 24))
    assert wanted.delivers_at(round(8.5 * H))
    assert wanted.delivers_at(0)
    assert not wanted.delivers_at(8 * H)


def test_it_comes_back_as_it_was_sent():
    wanted = Subscription(
        "news", max=None, threshold=2.0, mode="on-line", policy=Forwarding("buffer", 4, 60.0, "learnt"),
        quiet_h=(22, 7), interrupt=4.5, at_h=(8, 18), per_day=3,
    )  # fmt: skip
    sent = Wanted.of(wanted)
    assert sent.subscription() == wanted
    assert json.decode(json.encode(sent), type=Wanted).subscription() == wanted
    assert wanted.to("sport") == structs.replace(sent, topic="sport").subscription()

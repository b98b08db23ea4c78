"""A change of place becomes subscribe and unsubscribe."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.lasthop import Publications, Subscriber, Subscription
from mudkit.systems.lasthop.device.context_handler import Following

PLACES = {"Tromsø": (69.65, 18.96, 20.0), "Bergen": (60.39, 5.32, 20.0)}
TROMSØ, BERGEN, NOWHERE = (69.66, 18.9), (60.4, 5.3), (65.0, 10.0)


def test_what_changes_with_the_place():
    following = Following(Subscription("traffic {place}", max=3), PLACES)
    assert following.changes(None, TROMSØ) == (None, Subscription("traffic Tromsø", max=3))
    assert following.changes("traffic Tromsø", TROMSØ) == (None, None)
    assert following.changes("traffic Tromsø", BERGEN) == (
        "traffic Tromsø",
        Subscription("traffic Bergen", max=3),
    )
    assert following.changes("traffic Tromsø", NOWHERE) == ("traffic Tromsø", None)
    assert following.changes("traffic Tromsø", None) == (None, None)


def test_a_topic_without_a_place_is_wanted_at_any_of_them():
    following = Following(Subscription("traffic"), PLACES)
    assert following.changes(None, TROMSØ)[1] == Subscription("traffic")
    assert following.changes("traffic", BERGEN) == (None, None)


@pytest.mark.parametrize(
    "places", [{}, None, {"": (1, 2, 3)}, {"a": (1, 2)}, {"a": (91, 2, 3)}, {"a": (1, 2, -3)}, {"a": "there"}]
)
def test_what_is_no_place_is_refused(places):
    with pytest.raises(ParameterError):
        Following(Subscription("traffic {place}"), places)


def test_a_phone_that_moves_gets_what_belongs_to_where_it_is():
    lab = Lab(seed=1)
    server = Publications(lab)
    phone = lab.device("ann")
    ann = Subscriber(phone, server)
    phone.measured("loc", TROMSØ)
    ann.follow("traffic {place}", PLACES, policy="on-line").result()
    lab.run(minutes=1)
    assert list(ann.held().result()) == ["traffic Tromsø"]
    server.topic("traffic Tromsø").publish("bridge closed").result()
    server.topic("traffic Bergen").publish("tunnel closed").result()
    lab.run(minutes=1)
    assert ann.held().result() == {"traffic Tromsø": 1}
    phone.measured("loc", BERGEN)
    ann.installed.kill()
    ann.installed.start()
    lab.run(minutes=1)
    assert ann.held().result() == {"traffic Bergen": 0}
    server.topic("traffic Bergen").publish("tunnel open").result()
    assert [m["text"] for m in ann.read("traffic Bergen").result()] == ["tunnel open"]
    assert not server.installed.store.items("sub ann\ntraffic Tromsø")
    phone.measured("loc", NOWHERE)
    lab.run(minutes=1)
    assert ann.held().result() == {}
    phone.measured("loc", TROMSØ)
    lab.run(minutes=1)
    ann.unfollow("traffic {place}").result()
    lab.run(minutes=1)
    assert ann.held().result() == {}
    assert not server.installed.store.items("sub ")
    with pytest.raises(ParameterError, match="not subscribed"):
        ann.unfollow("traffic {place}").result()

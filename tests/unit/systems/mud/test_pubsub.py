"""Topics over a table."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.mud import Client, Cloud, PubSub


@pytest.fixture
def chats():
    lab = Lab(seed=7)
    cloud = Cloud(lab)
    clients = [
        Client(lab.device(name), cloud, app="chat", token=lab.token(user=name, app="chat"))
        for name in ("ann", "bob")
    ]
    clients[0].create("chat").result()
    return lab, *(PubSub(client, "chat") for client in clients)


def test_a_message_reaches_who_subscribed_to_its_topic(chats):
    lab, ann, bob = chats
    heard = []
    bob.subscribe("friends", heard.append).result()
    for topic, text in (("friends", "lunch?"), ("family", "dinner?"), ("friends", "lunch?")):
        ann.publish(topic, text=text).result()
    lab.run(minutes=1)
    assert heard == [{"topic": "friends", "text": "lunch?"}] * 2


def test_a_publisher_says_whom_it_means(chats):
    lab, ann, bob = chats
    heard = []
    bob.subscribe("friends", heard.append, data={"age": 20}).result()
    ann.publish("friends", predicate="receiver.age >= 21", text="beer?").result()
    ann.publish("friends", predicate="receiver.age < 21", text="juice?").result()
    lab.run(minutes=1)
    assert [each["text"] for each in heard] == ["juice?"]


def test_who_comes_later_may_ask_for_what_was_before_and_may_leave(chats):
    lab, ann, bob = chats
    heard = []
    ann.publish("friends", text="early").result()
    handle = bob.subscribe("friends", heard.append, sync_timestamp=0.0).result()
    lab.run(minutes=1)
    bob.unsubscribe(handle).result()
    ann.publish("friends", text="late").result()
    lab.run(minutes=1)
    assert [each["text"] for each in heard] == ["early"]


def test_a_message_has_one_topic(chats):
    _, ann, _ = chats
    with pytest.raises(ParameterError, match="one topic"):
        ann.publish("friends", topic="family")

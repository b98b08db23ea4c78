"""Reasons of messages: what is sent a second time, and what only looks like it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mudkit.fleet.reasons import Reasons


def send(reasons, identities, sent_us, sender="phone", name="client", to="server/x"):
    """Return the reason of a message that carries some identities."""
    process = SimpleNamespace(host=SimpleNamespace(name=sender), name=name, system="s")
    return reasons.sort(
        SimpleNamespace(message={"items": identities}, sender=process, to=to, sent_us=sent_us)
    )


@pytest.fixture
def reasons():
    addresses = {
        f"{host}/x": SimpleNamespace(host=SimpleNamespace(name=host)) for host in ("server", "other")
    }
    return Reasons(addresses, lambda system, message: ("application", message["items"]))


def test_message_is_sent_again_if_all_that_it_carries_was_sent_before(reasons):
    """A batch with one new item is no retransmission: it is not sent for the old ones."""
    assert send(reasons, ["a", "b"], 0) == "application"
    assert send(reasons, ["a"], 5) == send(reasons, ["b", "a"], 5) == "retransmission"
    assert send(reasons, ["a", "c"], 6) == "application"
    assert send(reasons, ["c"], 7) == "retransmission"
    assert send(reasons, [], 8) == send(reasons, [], 9) == "application", "it carries nothing"


def test_message_on_several_links_has_the_same_reason_on_each(reasons):
    assert [send(reasons, ["a"], 0) for _ in range(2)] == ["application"] * 2


@pytest.mark.parametrize("other", [{"sender": "tablet"}, {"name": "service"}, {"to": "other/x"}])
def test_same_identity_of_another_sender_or_to_another_host_is_new(reasons, other):
    send(reasons, ["a"], 0)
    assert send(reasons, ["a"], 5, **other) == "application"

"""Addresses that pass from one device to another, announced to the other notification servers."""

from __future__ import annotations

from mudkit.events import Send
from mudkit.systems.mud.messages.notifications import Occupied
from mudkit.systems.mud.servers.addresses import Addresses

LATE_US = 10_000_000
"""After the first retransmission timeout."""


def list_announced(effects):
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]


def test_address_is_announced_until_each_server_acknowledges():
    addresses = Addresses(["second", "third"])
    former, effects = addresses.assign(0, "here", "session of jane")
    assert former is None
    assert list_announced(effects) == [("second", Occupied("here")), ("third", Occupied("here"))]
    addresses.record_vacated(1, "second", "here")
    assert list_announced(addresses.announce_overdue(LATE_US)) == [("third", Occupied("here"))]
    addresses.record_vacated(LATE_US, "third", "here")
    assert list_announced(addresses.announce_overdue(10 * LATE_US)) == []


def test_address_that_was_left_is_not_announced_again():
    addresses = Addresses(["second"])
    addresses.assign(0, "here", "session of jane")
    addresses.release("here", "session of jane")
    assert list_announced(addresses.announce_overdue(LATE_US)) == []
    assert list_announced(addresses.announce_overdue(10 * LATE_US)) == []


def test_last_device_at_an_address_has_it():
    addresses = Addresses([])
    addresses.assign(0, "here", "session of jane")
    assert addresses.assign(0, "here", "session of jane")[0] is None
    assert addresses.assign(1, "here", "session of bob")[0] == "session of jane"
    assert addresses.has_address("session of bob", "here")
    assert not addresses.is_free("here", "session of jane")
    addresses.release("here", "session of jane")
    assert addresses.has_address("session of bob", "here")

"""Keys of channels: distribution, renewal, and unique nonces."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import pytest
from contrail_place import EVERYTHING, Place, build_item, install_filters, open_ports

from mudkit.fleet.store import MemoryStore
from mudkit.systems.contrail import Published, crypto
from mudkit.systems.contrail.device.channels import Channel


def can_read(place, name, message):
    """Return whether a device has the key of an item."""
    store = place.store(name)
    key = store.get(f"key {message['from']}\n{message['port']}\n{message['epoch']:012d}")
    return key is not None


def publish(place, port, text, item=None):
    return place.publish(port, build_item(text), item).result()


def test_former_receiver_reads_nothing_newer_and_new_one_nothing_older(make_place):
    place, ann, bob, cyd = open_ports(make_place, "ann bob cyd")
    slot = place.install(bob, EVERYTHING, to=("ann", "app"))
    delivered = place.handed("bob")
    publish(place, ann, "first", "a")
    place.run(35)
    place.install(cyd, "what > ' '", to=("ann", "app"))
    delivered_to_cyd = place.handed("cyd")
    publish(place, ann, "second", "b")
    place.run(35)
    bob.remove_filter(slot).result()
    place.run(35)
    publish(place, ann, "third", "c")
    place.run(35)
    items = {
        message["item"]: message for message in delivered + delivered_to_cyd if message["kind"] == "data"
    }
    assert {name: (can_read(place, "bob", m), can_read(place, "cyd", m)) for name, m in items.items()} == {
        "a": (True, False),
        "b": (True, True),
        "c": (False, True),
    }
    assert [items[name]["epoch"] for name in "abc"] == [1, 2, 3]
    publish(place, ann, "first", "a")  # published again: the new receiver may read it
    place.run(35)
    assert [cyd.receive_item().result(1).payload for _ in range(3)] == [
        b"payload of second",
        b"payload of third",
        b"payload of first",
    ]


def test_unfriend_removes_filters_and_renews_keys(make_place):
    place, ann, bob, _cyd = install_filters(make_place, "ann bob cyd")
    place.install(ann, "what > 'a'", to=("bob", "app"))
    publish(place, ann, "for both")
    place.modules["ann"].unfriend("bob").result()
    place.run(35)
    delivered = place.handed("cyd")
    assert publish(place, ann, "for one") == Published((("cyd", "app"),), uploaded=True)
    place.run(35)
    message = next(message for message in delivered if message["kind"] == "data" and message["epoch"] == 2)
    assert can_read(place, "cyd", message)
    assert not can_read(place, "bob", message)
    assert publish(place, bob, "from a stranger").destinations == ()  # ann's filter was removed
    operation = bob.install_filter("what > 'b'", to=("ann", "app"))
    place.secrets.add("what > 'b'")
    operation.result()
    place.run(65)
    assert place.counts("ann") == {"from strangers": 1}


def test_key_of_a_wiped_device_is_not_used_again(make_place):
    """Its old store may be in other hands: the next item has a new key (:meth:`Channel.forget`)."""
    place, ann, *_ = install_filters(make_place, "ann bob cyd")
    delivered = place.handed("cyd")
    publish(place, ann, "before", "named")
    place.run(35)
    place.lab.faults.wipe("bob")
    place.run(200)
    assert not publish(place, ann, "before", "named").uploaded, "the others may still read it"
    publish(place, ann, "after")
    place.run(35)
    *before, after = (message["epoch"] for message in delivered if message["kind"] == "data")
    assert ({*before}, after) == ({1}, 2)
    kinds = [message["kind"] for message in delivered]
    assert kinds == ["key", "data", "data", "key", "data"], "an epoch's key comes once, with its first item"


@pytest.mark.parametrize(
    ("who", "has_key", "epoch"), [("bob", True, 2), ("bob", False, 2), ("eve", True, 1), ("in", True, 1)]
)
def test_forgotten_device_begins_anew_as_a_receiver(who, has_key, epoch):
    """Its filter came again before the next item: it is a new receiver, which reads nothing older."""
    module = SimpleNamespace(
        store=MemoryStore(), first=0, now_us=0, settings=SimpleNamespace(renewal=None, renew_us=10**9),
        derive_channel_key=lambda port, epoch: bytes([epoch]),
    )  # fmt: skip
    channel, receivers = Channel(module, "out"), [("bob", "in"), ("cyd", "in")]
    channel.set_receivers(receivers)
    channel.use_key(channel.choose_epoch(receivers), receivers if has_key else receivers[1:])
    channel.forget(who)
    assert [holders for *_, holders in channel.held_keys({"bob"})] == ([receivers[:1]] if epoch == 1 else [])
    channel.set_receivers(receivers)
    assert (channel.can_read(1, receivers[:1]), channel.can_read(1, receivers[1:])) == (epoch == 1, True)
    assert channel.choose_epoch(receivers[1:]) == epoch


def test_keys_are_sent_only_to_receivers_of_an_item(make_place):
    place, ann, bob, cyd = open_ports(make_place, "ann bob cyd")
    place.install(bob, "what = 'metadata of red'", to=("ann", "app"))
    place.install(cyd, "what = 'metadata of blue'", to=("ann", "app"))
    delivered = place.handed("cyd")
    publish(place, ann, "red")
    place.run(35)
    assert delivered == []
    publish(place, ann, "blue")
    place.run(35)
    assert [message["kind"] for message in delivered] == ["key", "data"]
    assert delivered[1]["epoch"] == 1  # its filter precedes the first encryption


def test_receiver_can_decrypt_items_of_the_port_outside_its_filter(make_place):
    """Check the documented limit: all receivers of a port share its key; other ports have other keys."""
    place, ann, bob, cyd = open_ports(make_place, "ann bob cyd")
    private = place.port("ann", "private")
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.install(bob, "what > 'a'", to=("ann", "private"))
    place.install(cyd, "what = 'metadata of blue'", to=("ann", "app"))
    delivered, delivered_to_cyd = place.handed("bob"), place.handed("cyd")
    for port, text in ((ann, "blue"), (ann, "red"), (private, "green")):
        publish(place, port, text, text)
    place.run(35)
    assert [message["item"] for message in delivered_to_cyd if message["kind"] == "data"] == ["blue"]
    items = {message["item"]: message for message in delivered if message["kind"] == "data"}
    assert {name: can_read(place, "cyd", message) for name, message in items.items()} == {
        "blue": True,
        "red": True,
        "green": False,
    }


def test_keys_are_renewed_periodically(make_place):
    place, ann, bob = install_filters(make_place, "ann bob", module={"renew_s": 1000.0})
    delivered = place.handed("bob")
    for number in range(6):
        publish(place, ann, f"{number}")
        place.run(400)
    assert [message["epoch"] for message in delivered if message["kind"] == "data"] == [1, 1, 1, 2, 2, 2]
    assert [bob.receive_item().result(1).payload for _ in range(6)]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("crash", ["before commit", "after commit"])
def test_nonces_are_unique_per_key_despite_crashes(tmp_path, monkeypatch, crash):
    """Run processes on the same storage with the same seed: their random bytes are equal."""
    uses = defaultdict(set)

    class RecordingCipher:
        def __init__(self, key):
            self.key, self.inner = bytes(key), original(key)

        def encrypt(self, nonce, data, associated_data):
            ciphertext = self.inner.encrypt(nonce, data, associated_data)
            uses[self.key, nonce].add(ciphertext)
            return ciphertext

        def decrypt(self, nonce, data, associated_data):
            return self.inner.decrypt(nonce, data, associated_data)

    original = crypto.ChaCha20Poly1305
    monkeypatch.setattr(crypto, "ChaCha20Poly1305", RecordingCipher)
    relayed = set()
    for run in range(3):
        place, ann, bob = open_ports(Place, "ann bob", storage=tmp_path, seed=7)
        place.install(bob, f"what > '{run}'", to=("ann", "app"))
        for number in range(4):
            place.lab.faults.kill("ann", at=crash)
            ann.publish(build_item(f"{run} {number}"), "item")
            place.run(1)
            place.lab.faults.restart("ann")
            place.run(1)
            publish(place, ann, f"{run} {number} again")
            place.run(65)
        assert not place.seen_by_relays()
        fields = [
            values for (party, _), values in place.lab.trace.exposure._bytes.items() if party in place.cloud()
        ]
        relayed |= {data for values in fields for data in values}
        place.close()
    assert sum(len(ciphertexts) for ciphertexts in uses.values()) > 20
    assert all(len(ciphertexts & relayed) <= 1 for ciphertexts in uses.values())


def test_keys_appear_in_no_display_or_table(make_place):
    key = crypto.Secret(b"a very secret key")
    assert "secret key" not in f"{key!r} {key} {key:>40} {[key]} {(key,)!r}"
    place, ann, _bob = install_filters(make_place, "ann bob")
    publish(place, ann, "something")
    place.run(65)
    store = place.store("ann")
    keys = [store.get("identity"), *(stored["key"] for _, stored in store.items("channel key "))]
    assert len(keys) == 2
    for name in ("messages", "operations", "incidents", "deliveries"):
        csv = place.lab.trace.table(name).to_pandas().to_csv()
        for secret in keys:
            assert all(text not in csv for text in (secret.hex(), str(secret)[2:-1]))
    parties = {party for secret in keys for party, _, _ in place.lab.trace.exposure.find(secret)}
    assert parties <= {"ann", "bob"}


def test_keys_are_renewed_also_if_a_friend_returns_before_the_next_item(make_place):
    place, ann, bob, _cyd = install_filters(make_place, "ann bob cyd")
    publish(place, ann, "before")
    place.modules["ann"].unfriend("bob").result()
    place.modules["ann"].befriend("bob").result()
    place.install(bob, "what > ' '", to=("ann", "app"))
    delivered = place.handed("cyd")
    publish(place, ann, "after")
    place.run(35)
    assert [message["epoch"] for message in delivered if message["kind"] == "data"] == [2]


def test_renewal_rule_replaces_the_default(make_place):
    """Record the key uses passed to the rule; only the rule renews the key."""
    uses, answers = [], iter([False, True, False])
    place, ann, bob = open_ports(
        make_place, "ann bob", module={"renewal": lambda use: uses.append(use) or next(answers)}
    )
    slot = place.install(bob, EVERYTHING, to=("ann", "app"))
    delivered = place.handed("bob")
    for text in "abcd":
        publish(place, ann, text, text)
        place.run(35)
        if text == "a":
            bob.remove_filter(slot).result()
            place.install(bob, "what > ' '", to=("ann", "app"))
    assert [message["epoch"] for message in delivered if message["kind"] == "data"] == [1, 1, 2, 2]
    assert [(set(use.to), set(use.holders)) for use in uses] == [({"bob"}, {"bob"})] * 3
    assert [use.age_s > 30 for use in uses] == [True, True, True]
    assert {use.lifetime_s for use in uses} == {86_400.0}

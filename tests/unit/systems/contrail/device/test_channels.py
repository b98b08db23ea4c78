"""Keys of channels: who gets which, who has left, and that no nonce comes twice."""

from __future__ import annotations

from collections import defaultdict

import pytest
from contrail_place import EVERYTHING, Place, arranged, marked, opened

from mudkit.systems.contrail import Published, crypto


def readable(there, name, message):
    """Say whether a device could decrypt an item, whoever hands it the ciphertext."""
    store = there.store(name)
    key = store.get(f"key {message['from']}\n{message['port']}\n{message['epoch']:012d}")
    return key is not None


def publish(there, port, text, item=None):
    return there.publish(port, marked(text), item).result()


def test_a_receiver_that_left_reads_nothing_newer_and_a_new_one_nothing_older(place):
    there, ann, bob, cyd = opened(place, "ann bob cyd")
    slot = there.install(bob, EVERYTHING, to=("ann", "app"))
    seen = there.handed("bob")
    publish(there, ann, "first", "a")
    there.run(35)
    there.install(cyd, "what > ' '", to=("ann", "app"))
    seen_too = there.handed("cyd")
    publish(there, ann, "second", "b")
    there.run(35)
    bob.remove_filter(slot).result()
    there.run(35)
    publish(there, ann, "third", "c")
    there.run(35)
    items = {each["item"]: each for each in seen + seen_too if each["kind"] == "data"}
    assert {name: (readable(there, "bob", m), readable(there, "cyd", m)) for name, m in items.items()} == {
        "a": (True, False),
        "b": (True, True),
        "c": (False, True),
    }
    assert [items[name]["epoch"] for name in "abc"] == [1, 2, 3]
    publish(there, ann, "first", "a")  # again: now the new one may read it, too
    there.run(35)
    assert [cyd.receive_item().result(1).payload for _ in range(3)] == [
        b"payload of second",
        b"payload of third",
        b"payload of first",
    ]


def test_unfriending_takes_filters_back_and_renews_keys(place):
    there, ann, bob, _cyd = arranged(place, "ann bob cyd")
    there.install(ann, "what > 'a'", to=("bob", "app"))
    publish(there, ann, "for both")
    there.modules["ann"].unfriend("bob").result()
    there.run(35)
    seen = there.handed("cyd")
    assert publish(there, ann, "for one") == Published((("cyd", "app"),), uploaded=True)
    there.run(35)
    message = next(each for each in seen if each["kind"] == "data" and each["epoch"] == 2)
    assert readable(there, "cyd", message)
    assert not readable(there, "bob", message)
    assert publish(there, bob, "from a stranger").destinations == ()  # the filter there was taken back
    late = bob.install_filter("what > 'b'", to=("ann", "app"))
    there.secrets.add("what > 'b'")
    late.result()
    there.run(65)
    assert there.counts("ann") == {"from strangers": 1}


def test_keys_go_to_those_only_who_get_an_item(place):
    there, ann, bob, cyd = opened(place, "ann bob cyd")
    there.install(bob, "what = 'metadata of red'", to=("ann", "app"))
    there.install(cyd, "what = 'metadata of blue'", to=("ann", "app"))
    seen = there.handed("cyd")
    publish(there, ann, "red")
    there.run(35)
    assert seen == []
    publish(there, ann, "blue")
    there.run(35)
    assert [each["kind"] for each in seen] == ["key", "data"]
    assert seen[1]["epoch"] == 1  # it had asked before anything was encrypted


def test_a_narrower_filter_is_no_secret_from_a_friend_whom_the_relay_helps(place):
    """As the chapter and the docstring say: a port has one key; another port has another one."""
    there, ann, bob, cyd = opened(place, "ann bob cyd")
    private = there.port("ann", "private")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.install(bob, "what > 'a'", to=("ann", "private"))
    there.install(cyd, "what = 'metadata of blue'", to=("ann", "app"))
    seen, seen_by_cyd = there.handed("bob"), there.handed("cyd")
    for port, text in ((ann, "blue"), (ann, "red"), (private, "green")):
        publish(there, port, text, text)
    there.run(35)
    assert [each["item"] for each in seen_by_cyd if each["kind"] == "data"] == ["blue"]
    items = {each["item"]: each for each in seen if each["kind"] == "data"}
    assert {name: readable(there, "cyd", each) for name, each in items.items()} == {
        "blue": True,
        "red": True,
        "green": False,
    }


def test_keys_are_renewed_in_time(place):
    there, ann, bob = arranged(place, "ann bob", module={"renew_s": 1000.0})
    seen = there.handed("bob")
    for number in range(6):
        publish(there, ann, f"{number}")
        there.run(400)
    assert [each["epoch"] for each in seen if each["kind"] == "data"] == [1, 1, 1, 2, 2, 2]
    assert [bob.receive_item().result(1).payload for _ in range(6)]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("crash", ["before commit", "after commit"])
def test_no_nonce_comes_twice_under_a_key_whatever_is_killed(tmp_path, monkeypatch, crash):
    """Two processes on the same storage, with the same seed: their random bytes are the same."""
    uses = defaultdict(set)

    class Recording:
        def __init__(self, key):
            self.key, self.inner = bytes(key), original(key)

        def encrypt(self, nonce, data, bound):
            made = self.inner.encrypt(nonce, data, bound)
            uses[self.key, nonce].add(made)
            return made

        def decrypt(self, nonce, data, bound):
            return self.inner.decrypt(nonce, data, bound)

    original = crypto.ChaCha20Poly1305
    monkeypatch.setattr(crypto, "ChaCha20Poly1305", Recording)
    left = set()
    for life in range(3):
        there, ann, bob = opened(Place, "ann bob", storage=tmp_path, seed=7)
        there.install(bob, f"what > '{life}'", to=("ann", "app"))
        for number in range(4):
            there.lab.faults.kill("ann", at=crash)
            ann.publish(marked(f"{life} {number}"), "item")
            there.run(1)
            there.lab.faults.restart("ann")
            there.run(1)
            publish(there, ann, f"{life} {number} again")
            there.run(65)
        assert not there.seen_by_relays()
        relays = [
            held for (party, _), held in there.lab.trace.exposure._bytes.items() if party in there.cloud()
        ]
        left |= {data for held in relays for data in held}
        there.close()
    assert sum(len(made) for made in uses.values()) > 20
    assert all(len(made & left) <= 1 for made in uses.values())


def test_secrets_show_nowhere(place):
    key = crypto.Secret(b"a very secret key")
    assert "secret key" not in f"{key!r} {key} {key:>40} {[key]} {(key,)!r}"
    there, ann, _bob = arranged(place, "ann bob")
    publish(there, ann, "something")
    there.run(65)
    store = there.store("ann")
    keys = [store.get("identity"), *(each["key"] for _, each in store.items("channel key "))]
    assert len(keys) == 2
    for name in ("messages", "operations", "incidents", "deliveries"):
        shown = there.lab.trace.table(name).to_pandas().to_csv()
        for each in keys:
            assert all(text not in shown for text in (each.hex(), str(each)[2:-1]))
    held = {party for each in keys for party, _, _ in there.lab.trace.exposure.find(each)}
    assert held <= {"ann", "bob"}


def test_keys_are_renewed_also_for_who_is_a_friend_again_before_the_next_item(place):
    there, ann, bob, _cyd = arranged(place, "ann bob cyd")
    publish(there, ann, "before")
    there.modules["ann"].unfriend("bob").result()
    there.modules["ann"].befriend("bob").result()
    there.install(bob, "what > ' '", to=("ann", "app"))
    seen = there.handed("cyd")
    publish(there, ann, "after")
    there.run(35)
    assert [each["epoch"] for each in seen if each["kind"] == "data"] == [2]


def test_a_rule_of_ones_own_takes_the_place_of_the_channels(place):
    """It is told who has the key and who the item is for, and nothing begins a new key but its word."""
    answer, answers = [], iter([False, True, False])
    there, ann, bob = opened(
        place, "ann bob", module={"renewal": lambda use: answer.append(use) or next(answers)}
    )
    slot = there.install(bob, EVERYTHING, to=("ann", "app"))
    seen = there.handed("bob")
    for text in "abcd":
        publish(there, ann, text, text)
        there.run(35)
        if text == "a":
            bob.remove_filter(slot).result()
            there.install(bob, "what > ' '", to=("ann", "app"))
    assert [each["epoch"] for each in seen if each["kind"] == "data"] == [1, 1, 2, 2]
    assert [(set(each.to), set(each.holders)) for each in answer] == [({"bob"}, {"bob"})] * 3
    assert [each.age_s > 30 for each in answer] == [True, True, True]
    assert {each.lifetime_s for each in answer} == {86_400.0}

"""Who lives here now: incarnations, and what a hello is to who hears it."""

from __future__ import annotations

from mudkit.delivery.session import Heard, Peer, incarnation
from mudkit.events import Ports
from mudkit.fleet.store import MemoryStore


def test_an_incarnation_is_drawn_once_for_each_life_of_a_store() -> None:
    draws = iter((b"abcd", b"efgh"))
    store = MemoryStore()
    ports = Ports(store, lambda n: next(draws)[:n], "ann/sf")
    assert incarnation(ports) == incarnation(ports) == b"abcd".hex()
    store.commit()
    store.wipe()
    assert incarnation(ports) == b"efgh".hex()


def test_what_a_hello_is() -> None:
    peer = Peer()
    assert peer.hear("0a", 5) is Heard.NEWS
    peer.take("0a", 5)
    assert [peer.hear("0a", seq) for seq in (4, 5, 6)] == [Heard.STALE, Heard.STALE, Heard.NEWS]
    assert peer.hear("0b", 1) is Heard.STRANGER
    assert peer.hear("0b", 1, "no nonce was given") is Heard.STRANGER


def test_only_who_lives_now_can_answer() -> None:
    draws = iter((b"1111", b"2222"))
    peer = Peer("0a", 5)
    nonce = peer.ask(lambda n: next(draws)[:n])
    assert peer.ask(lambda n: next(draws)[:n]) == nonce  # the same until it has answered
    assert peer.hear("0b", 1, "3131") is Heard.STRANGER
    assert peer.hear("0b", 1, nonce) is Heard.NEWS
    peer.take("0b", 1)
    assert peer.hear("0a", 6, nonce) is Heard.STRANGER  # a late copy of the one before
    assert peer.nonce is None

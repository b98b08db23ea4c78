"""Judge of chapter 05: correct rules of key renewal are accepted and likely mistakes rejected."""

from __future__ import annotations

import re

import pytest
from judged import check_accepted, check_rejected, mark_soak

from mudkit.exercises.sender_filters import _READERS, _Album
from mudkit.systems.contrail.crypto import Sealing, Secret

CHAPTER = "05_sender_filters"
JOIN = "a key lasts 60 s; ann asks, kim publishes item 1, bob asks, kim publishes item 2."
SWAP = "a key lasts 60 s; ann asks, kim publishes item 1, bob asks, ann leaves, kim publishes item 2."
LEAVE = "a key lasts 60 s; ann asks, bob asks, kim publishes item 1, bob leaves, kim publishes item 2."
SAME = "a key lasts 60 s; ann asks, kim publishes item 1, kim publishes item 2."
LONG = r"a key lasts 60 s; ann asks, kim publishes item 1, (.*, )?[\d.]+ s pass, kim publishes item \d\."
OLDER, NEWER = "bob can read item 1, which was published before bob asked.", "bob can read item 2, which was"


def solution(use):
    return use.to != use.holders or use.age_s >= use.lifetime_s


def one_by_one(use):
    if use.age_s < use.lifetime_s:
        return any(name not in use.holders for name in use.to) or len(use.holders) > len(use.to)
    return True


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("piece", [solution, one_by_one])
def test_judge_accepts(piece):
    check_accepted(CHAPTER, piece)


def shift_lifetime(by_s):
    return lambda use: use.to != use.holders or use.age_s >= use.lifetime_s + by_s


def add_lifetime(rule):
    return lambda use: rule(use) or use.age_s >= use.lifetime_s


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    mark_soak(
        [
            (shift_lifetime(1.0), LONG, "the key is 60.25 s old, and its lifetime is 60 s."),
            (shift_lifetime(-1.0), LONG, "begins a new key without need"),
            (
                lambda use: use.to != use.holders or use.age_s >= 60.2,
                r"a key lasts (90|45) s; .*",
                "item",
            ),
            (lambda use: False, JOIN, OLDER),
            (lambda use: True, SAME, "item 2 begins a new key without need"),
            (lambda use: use.age_s >= use.lifetime_s, JOIN, OLDER),
            (add_lifetime(lambda use: bool(use.holders - use.to)), JOIN, OLDER),
            (add_lifetime(lambda use: bool(use.to - use.holders)), LEAVE, NEWER),
            (add_lifetime(lambda use: len(use.to) != len(use.holders)), SWAP, OLDER),
            (lambda use: use.to != use.holders, LONG, "s old, and its lifetime is 60 s."),
            (shift_lifetime(5.0), LONG, "the key is 60.25 s old"),
            (shift_lifetime(0.5), LONG, "the key is 60.25 s old"),
            (shift_lifetime(-5.0), LONG, "begins a new key without need"),
            (add_lifetime(lambda use: set(use.to) is not use.holders), SAME, "without need"),
            (lambda use: None, SAME, "Your function returned None; expected True or False."),
            (lambda use: use.asked, SAME, "it raises AttributeError"),
            (lambda: True, SAME, "it raises TypeError"),
        ]
    ),
)
def test_judge_rejects(piece, smallest, problem):
    verdict = check_rejected(CHAPTER, piece, problem)
    assert re.fullmatch(smallest, verdict.failure.scenario), verdict.failure.scenario
    figure = verdict.diagram()
    lanes = ("kim", "contrail-gateway", "ann", "bob")
    assert list(figure.layout.xaxis.ticktext) == [f"<b>{lane}</b>" for lane in lanes]
    labels = {note.text for note in figure.layout.annotations}
    assert {"item 1, new key 1", "asks"} <= labels


def decrypt_item(album, name, number):
    """Decrypt an item stored at the relay with the key of a device; return None without a key."""
    hosts = album.lab.world.hosts
    stored = hosts["contrail-storage"].processes[0].store.get(f"item kim\nalbum\nitem {number}")
    key = hosts[name].processes[0].store.get(f"key kim\nalbum\n{stored['epoch']:012d}")
    header = ["data", "kim", "album", f"item {number}", stored["seq"], stored["epoch"]]
    cipher = Sealing(name, Secret(bytes(64)), {})
    if key is None:
        return None
    item_key = cipher.item_key(key, header)
    return cipher.decrypt(item_key, stored["seq"], header, stored["body"])


@pytest.mark.parametrize("steps", [("item", "bob", "item"), ("bob", "item", "bob", "item"), ("item",) * 3])
def test_key_holders_can_decrypt_and_others_cannot(steps):
    """Decrypt the items stored at the relay with the keys of each device, and compare with the judge."""
    for rule in (solution, lambda use: False):
        album = _Album(rule, 60.0)
        for step in steps:
            album.step(step)
        for key in album._keys:
            for number, to in key.items:
                assert to <= key.holders
                for name in _READERS:
                    content = decrypt_item(album, name, number)
                    assert (content is not None) == (name in key.holders)
                    assert content is None or f'"item":{number}'.encode() in content
    assert (album.problem is not None) == ("bob" in steps)


def test_item_without_receivers_needs_no_key():
    uses = []
    album = _Album(lambda use: uses.append(use) or False, 60.0)
    for step in ("ann", "item", "ann", "item", "bob", "bob", "item"):
        album.step(step)
    assert album.problem is None
    assert [(set(use.to), set(use.holders)) for use in uses] == [({"ann"}, {"ann"})]

"""The judge of chapter 05 tells a right rule of renewal from each mistake that is likely, by a short story."""

from __future__ import annotations

import re

import pytest
from judged import accepted, most_telling, rejected

from mudkit.exercises.sender_filters import _READERS, _Album
from mudkit.systems.contrail.crypto import Sealing, Secret

CHAPTER = "05_sender_filters"
COMES = "ann asks, kim publishes item 1, bob asks, kim publishes item 2."
SWAP = "ann asks, kim publishes item 1, bob asks, ann leaves, kim publishes item 2."
GOES = "ann asks, bob asks, kim publishes item 1, bob leaves, kim publishes item 2."
STAYS = "ann asks, kim publishes item 1, kim publishes item 2."
LONG = r"ann asks, kim publishes item 1, (.*, )?40 s pass, kim publishes item \d\."
OLDER, NEWER = "bob can read item 1, which was published before bob asked.", "bob can read item 2, which was"


def solution(use):
    return use.to != use.holders or use.age_s >= use.lifetime_s


def one_by_one(use):
    if use.age_s < use.lifetime_s:
        return any(each not in use.holders for each in use.to) or len(use.holders) > len(use.to)
    return True


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("piece", [solution, one_by_one])
def test_judge_accepts(piece):
    accepted(CHAPTER, piece)


def or_old(rule):
    return lambda use: rule(use) or use.age_s >= use.lifetime_s


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    most_telling(
        [
            (lambda use: False, COMES, OLDER),
            (lambda use: True, STAYS, "item 2 begins a new key without need"),
            (lambda use: use.age_s >= use.lifetime_s, COMES, OLDER),
            (or_old(lambda use: bool(use.holders - use.to)), COMES, OLDER),
            (or_old(lambda use: bool(use.to - use.holders)), GOES, NEWER),
            (or_old(lambda use: len(use.to) != len(use.holders)), SWAP, OLDER),
            (lambda use: use.to != use.holders, LONG, "s old, and its lifetime is 60 s."),
            (or_old(lambda use: set(use.to) is not use.holders), STAYS, "without need"),
            (lambda use: None, STAYS, "Your function returned None; expected True or False."),
            (lambda use: use.asked, STAYS, "it raises AttributeError"),
            (lambda: True, STAYS, "it raises TypeError"),
        ]
    ),
)
def test_judge_rejects(piece, smallest, problem):
    verdict = rejected(CHAPTER, piece, problem)
    assert re.fullmatch(smallest, verdict.failure.scenario), verdict.failure.scenario
    figure = verdict.diagram()
    lanes = ("kim", "contrail-gateway", "ann", "bob")
    assert list(figure.layout.xaxis.ticktext) == [f"<b>{each}</b>" for each in lanes]
    labels = {each.text for each in figure.layout.annotations}
    assert {"item 1, new key 1", "asks"} <= labels


def opened(album, name, number):
    """Decrypt what the relay has of an item with what a device was sent; None: it cannot."""
    hosts = album.lab.world.hosts
    held = hosts["contrail-storage"].processes[0].store.get(f"item kim\nalbum\nitem {number}")
    key = hosts[name].processes[0].store.get(f"key kim\nalbum\n{held['epoch']:012d}")
    header = ["data", "kim", "album", f"item {number}", held["seq"], held["epoch"]]
    cipher = Sealing(name, Secret(bytes(64)), {})
    if key is None:
        return None
    own = cipher.item_key(key, header)
    return cipher.decrypt(own, held["seq"], header, held["body"])


@pytest.mark.parametrize("steps", [("item", "bob", "item"), ("bob", "item", "bob", "item"), ("item",) * 3])
def test_key_holders_can_decrypt_and_others_cannot(steps):
    """Decrypt the items stored at the relay with the keys of each device, and compare with the judge."""
    for rule in (solution, lambda use: False):
        album = _Album(rule)
        for step in steps:
            album.step(step)
        for key in album._keys:
            for number, to in key.items:
                assert to <= key.holders
                for name in _READERS:
                    content = opened(album, name, number)
                    assert (content is not None) == (name in key.holders)
                    assert content is None or f'"item":{number}'.encode() in content
    assert (album.problem is not None) == ("bob" in steps)


def test_item_without_receivers_needs_no_key():
    asked = []
    album = _Album(lambda use: asked.append(use) or False)
    for step in ("ann", "item", "ann", "item", "bob", "bob", "item"):
        album.step(step)
    assert album.problem is None
    assert [(set(each.to), set(each.holders)) for each in asked] == [({"ann"}, {"ann"})]

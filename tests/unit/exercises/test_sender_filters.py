"""The judge of chapter 05 tells a right rule of renewal from each mistake that is likely, by a short story."""

from __future__ import annotations

import re

import pytest

from mudkit.exercises import judge
from mudkit.exercises.sender_filters import _READERS, _Album
from mudkit.systems.contrail.crypto import Sealing, Secret

CHAPTER = "05_sender_filters"
COMES = "ann asks, kim publishes item 1, bob asks, kim publishes item 2."
SWAP = "ann asks, kim publishes item 1, bob asks, ann leaves, kim publishes item 2."
GOES = "ann asks, bob asks, kim publishes item 1, bob leaves, kim publishes item 2."
STAYS = "ann asks, kim publishes item 1, kim publishes item 2."
LONG = r"ann asks, kim publishes item 1, (.*, )?40 s pass, kim publishes item \d\."
OLDER, NEWER = "bob can read item 1, which was published before bob asked.", "bob can read item 2, which was"


def solution(told):
    return told.to != told.holders or told.age_s >= told.lasts_s


def one_by_one(told):
    if told.age_s < told.lasts_s:
        return any(each not in told.holders for each in told.to) or len(told.holders) > len(told.to)
    return True


@pytest.mark.parametrize("piece", [solution, one_by_one])
def test_right_ones_pass(piece):
    verdict = judge(CHAPTER, piece)
    assert verdict.passed, str(verdict)
    assert verdict.scenarios == 200
    assert verdict.diagram() is None


def or_old(rule):
    return lambda told: rule(told) or told.age_s >= told.lasts_s


@pytest.mark.parametrize(
    ("piece", "smallest", "told"),
    [
        (lambda told: False, COMES, OLDER),
        (lambda told: True, STAYS, "item 2 begins a new key without need"),
        (lambda told: told.age_s >= told.lasts_s, COMES, OLDER),
        (or_old(lambda told: bool(told.holders - told.to)), COMES, OLDER),
        (or_old(lambda told: bool(told.to - told.holders)), GOES, NEWER),
        (or_old(lambda told: len(told.to) != len(told.holders)), SWAP, OLDER),
        (lambda told: told.to != told.holders, LONG, "s old, and it lasts for 60 s."),
        (or_old(lambda told: set(told.to) is not told.holders), STAYS, "without need"),
        (lambda told: None, STAYS, "it returns None, which is neither True nor False"),
        (lambda told: told.asked, STAYS, "it raises AttributeError"),
        (lambda: True, STAYS, "it raises TypeError"),
    ],
)
def test_wrong_ones_are_told_apart_by_a_short_story(piece, smallest, told):
    verdict = judge(CHAPTER, piece)
    assert not verdict.passed
    assert re.fullmatch(smallest, verdict.failure.scenario), verdict.failure.scenario
    assert told in verdict.failure.problem
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
def test_what_is_told_of_keys_is_so(steps):
    """Whoever can read an item by the judge's account can, from what the relay has; and nobody else."""
    for rule in (solution, lambda told: False):
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


def test_what_nobody_wants_needs_no_key():
    asked = []
    album = _Album(lambda told: asked.append(told) or False)
    for step in ("ann", "item", "ann", "item", "bob", "bob", "item"):
        album.step(step)
    assert album.problem is None
    assert [(set(each.to), set(each.holders)) for each in asked] == [({"ann"}, {"ann"})]

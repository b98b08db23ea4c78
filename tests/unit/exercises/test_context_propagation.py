"""The judge of chapter 06 tells a right aggregability function from each mistake that is likely."""

from __future__ import annotations

import pytest
from judged import accepted, most_telling, rejected

from mudkit.exercises import judge
from mudkit.systems.radiator import People, Time, Volume, distance_km

CHAPTER = "06_context_propagation"
NOW, LATER = Volume(1), Time(seconds=40)


def is_friend(sender, receiver):
    return bool(receiver.people & set(sender["friends"]))


def is_within(sender, receiver, km=2.0):
    here, there = sender.get("loc"), receiver.get("loc")
    return bool(here and there and distance_km(here, there) <= km)


def is_warned(sender, receiver):
    return bool(sender.get("hazard")) and is_within(sender, receiver)


def made(now=lambda s, r: is_friend(s, r) or is_warned(s, r), at_once=NOW, later=LATER):
    return lambda sender, receiver: at_once if now(sender, receiver) else later


def remembering():
    known = {}

    def piece(sender, receiver):
        key = (min(sender.people), min(receiver.people))
        return known.setdefault(key, made()(sender, receiver))

    return piece


def unplaced(sender, receiver):
    return is_friend(sender, receiver) or (
        sender.get("hazard") and distance_km(sender["loc"], receiver["loc"]) <= 2
    )


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    "piece",
    [
        made(),
        made(at_once=Time(0)),
        lambda s, r: Time(lambda a, b: 0.0 if is_friend(a, b) or is_warned(a, b) else 40.0),
        made(at_once=People(1)),
    ],
)
def test_judge_accepts(piece):
    accepted(CHAPTER, piece)


@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    most_telling(
        [
            (made(later=Volume(1)), "nobody has friends", "at once, not after 40 s"),
            (made(now=lambda s, r: False), "a friend of ann's", "after 40 s, not at once"),
            (made(now=is_friend), "a hazard", "after 40 s, not"),
            (made(now=is_warned), "a friend of ann's", "after 40 s, not at once"),
            (
                made(now=lambda s, r: is_friend(r, s) or is_warned(s, r)),
                "a friend of ann's",
                "bob gets ann's",
            ),
            (
                made(now=lambda s, r: is_friend(s, r) or s.get("hazard")),
                "a hazard",
                "at once, not after 40 s",
            ),
            (
                made(now=lambda s, r: is_friend(s, r) or is_within(s, r)),
                "nobody has friends",
                "not after 40 s",
            ),
            (made(now=lambda s, r: is_friend(s, r) or is_warned(r, s)), "a hazard", "after 40 s, not"),
            (
                made(now=lambda s, r: is_friend(s, r) or (s.get("hazard") and is_within(s, r, 3.0))),
                "2.5 km",
                "not after 40 s",
            ),
            (made(now=unplaced), "a hazard", "it raises ContextProblem"),
            (made(later=Time(40_000)), "nobody has friends", "not after 40 s"),
            (made(later=Volume(4)), "nobody has friends", "after 600 s, not after 40 s"),
            (made(later=People(3)), "nobody has friends", "never gets"),
            (made(later=None), "nobody has friends", "returned None; expected a Volume"),
            (made(later=40), "nobody has friends", "it returned 40; expected a Volume"),
            (lambda s, r: s["freinds"], "nobody has friends", "no attribute 'freinds'"),
            (remembering(), "at 6 s ann", "not a"),
        ]
    ),
)
def test_judge_rejects(piece, smallest, problem):
    verdict = rejected(CHAPTER, piece, problem, smallest)
    assert "\n" not in verdict.failure.problem
    assert verdict.failure.scenario.count(" at ") + verdict.failure.scenario.count("; at") <= 4


def test_the_messages_of_the_smallest_are_drawn():
    figure = judge(CHAPTER, made(now=lambda s, r: False)).diagram()
    assert "smallest scenario" in figure.layout.title.text
    names = [f"<b>{name}</b>" for name in ("ann", "radiator", "bob", "cy")]
    assert list(figure.layout.xaxis.ticktext[:4]) == names
    drawn = " ".join(str(each.text) for each in figure.layout.annotations) + str(figure.data)
    assert "context" in drawn
    assert "push" in drawn


def test_a_piece_that_raises_is_drawn_as_far_as_it_goes():
    figure = judge(CHAPTER, made(now=unplaced)).diagram()
    assert len(figure.data) > 1

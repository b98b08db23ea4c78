"""Judge of chapter 06: correct aggregability functions are accepted and likely mistakes rejected."""

from __future__ import annotations

import pytest
from judged import check_accepted, check_rejected, mark_soak

from mudkit.exercises import judge
from mudkit.exercises.context_propagation import _Case, _Move, _play
from mudkit.exercises.judging import PieceError
from mudkit.systems.radiator import People, Time, Volume, distance_km

CHAPTER = "06_context_propagation"
NOW, LATER = Volume(1), Time(seconds=40)


def is_friend(sender, receiver):
    return bool(receiver.people & set(sender["friends"]))


def is_within(sender, receiver, km=2.0):
    sender_loc, receiver_loc = sender.get("loc"), receiver.get("loc")
    return bool(sender_loc and receiver_loc and distance_km(sender_loc, receiver_loc) <= km)


def is_warned(sender, receiver):
    return bool(sender.get("hazard")) and is_within(sender, receiver)


def make_piece(now=lambda s, r: is_friend(s, r) or is_warned(s, r), at_once=NOW, later=LATER):
    return lambda sender, receiver: at_once if now(sender, receiver) else later


def make_remembering_piece():
    thresholds = {}

    def piece(sender, receiver):
        key = (min(sender.people), min(receiver.people))
        return thresholds.setdefault(key, make_piece()(sender, receiver))

    return piece


def assume_places(sender, receiver):
    return is_friend(sender, receiver) or (
        sender.get("hazard") and distance_km(sender["loc"], receiver["loc"]) <= 2
    )


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    "piece",
    [
        make_piece(),
        make_piece(at_once=Time(0)),
        lambda s, r: Time(lambda a, b: 0.0 if is_friend(a, b) or is_warned(a, b) else 40.0),
        make_piece(at_once=People(1)),
    ],
)
def test_judge_accepts(piece):
    check_accepted(CHAPTER, piece)


@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    mark_soak(
        [
            (
                make_piece(now=lambda s, r: is_friend(s, r) or (s.get("hazard") and is_within(s, r, 2.05))),
                "2.01 km",
                "not after 40 s",
            ),
            (make_piece(later=Time(seconds=40.4)), "nobody has friends", "after 40.4 s, not after 40 s"),
            (make_piece(later=Volume(1)), "nobody has friends", "at once, not after 40 s"),
            (make_piece(now=lambda s, r: False), "a friend of ann's", "after 40 s, not at once"),
            (make_piece(now=is_friend), "a hazard", "after 40 s, not"),
            (make_piece(now=is_warned), "a friend of ann's", "after 40 s, not at once"),
            (
                make_piece(now=lambda s, r: is_friend(r, s) or is_warned(s, r)),
                "a friend of ann's",
                "bob gets ann's",
            ),
            (
                make_piece(now=lambda s, r: is_friend(s, r) or s.get("hazard")),
                "a hazard",
                "at once, not after 40 s",
            ),
            (
                make_piece(now=lambda s, r: is_friend(s, r) or is_within(s, r)),
                "nobody has friends",
                "not after 40 s",
            ),
            (make_piece(now=lambda s, r: is_friend(s, r) or is_warned(r, s)), "a hazard", "after 40 s, not"),
            (
                make_piece(now=lambda s, r: is_friend(s, r) or (s.get("hazard") and is_within(s, r, 3.0))),
                "2.01 km",
                "not after 40 s",
            ),
            (make_piece(now=assume_places), "a hazard", "it raises ContextProblem"),
            (make_piece(later=Time(40_000)), "nobody has friends", "not after 40 s"),
            (make_piece(later=Volume(4)), "nobody has friends", "after 600 s, not after 40 s"),
            (make_piece(later=People(3)), "nobody has friends", "never gets"),
            (make_piece(later=None), "nobody has friends", "returned None; expected a Volume"),
            (make_piece(later=40), "nobody has friends", "it returned 40; expected a Volume"),
            (lambda s, r: s["freinds"], "nobody has friends", "no attribute 'freinds'"),
            (make_remembering_piece(), "at 6 s ann", "not a"),
        ]
    ),
)
def test_judge_rejects(piece, smallest, problem):
    verdict = check_rejected(CHAPTER, piece, problem, smallest)
    assert "\n" not in verdict.failure.problem
    assert verdict.failure.scenario.count(" at ") + verdict.failure.scenario.count("; at") <= 4


def test_messages_of_the_smallest_scenario_are_drawn():
    figure = judge(CHAPTER, make_piece(now=lambda s, r: False)).diagram()
    assert "smallest scenario" in figure.layout.title.text
    names = [f"<b>{name}</b>" for name in ("ann", "radiator", "bob", "cy")]
    assert list(figure.layout.xaxis.ticktext[:4]) == names
    texts = " ".join(str(note.text) for note in figure.layout.annotations) + str(figure.data)
    assert "context" in texts
    assert "push" in texts


def test_clients_of_a_picture_have_the_attributes_of_the_scenario():
    """A function that reads them in each scenario fails in none, so in the picture neither."""
    figure = judge(CHAPTER, make_piece(later=Time(40_000))).diagram()
    assert "failed" not in [note.text for note in figure.layout.annotations]


def test_piece_that_raises_has_a_diagram():
    figure = judge(CHAPTER, make_piece(now=assume_places)).diagram()
    assert len(figure.data) > 1


def test_failure_of_a_function_is_drawn_once():
    figure = judge(CHAPTER, make_piece(later=None)).diagram()
    assert [note.text for note in figure.layout.annotations].count("failed") == 1


@pytest.mark.parametrize(
    ("move", "sentence"),
    [
        (_Move(6, "ann", 0.0, False), "ann reports from the middle of town"),
        (_Move(6, "bob", 2.1, True), "bob reports a hazard from 2.1 km east of the middle"),
        (_Move(6, "cy", None, False), "cy reports from an unknown place"),
    ],
)
def test_move_is_a_sentence(move, sentence):
    assert str(move) == sentence


def test_exception_of_a_function_is_the_problem():
    """A scenario in which the function raises has failed, whatever was sent."""

    def raising(sender, receiver):
        raise PieceError("it raises ZeroDivisionError (line 3)\nTraceback")

    case = _Case(None, (_Move(6, "ann", 0.0, False), _Move(6, "bob", 0.0, False)))
    assert _play(raising, case).problem == "it raises ZeroDivisionError (line 3)"

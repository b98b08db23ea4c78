"""The judge of chapter 02 tells a right predicate from each mistake that is likely, by one reader."""

from __future__ import annotations

import pytest
from judged import accepted, most_telling, rejected

from mudkit.exercises import judge

CHAPTER = "02_writer_predicates"
PARTS = {
    "min_age": "receiver.age >= :min_age",
    "place": "within_km(receiver.loc, :place, :km)",
    "users": "auth.user IN :users",
    "apps": "auth.app IN :apps",
}


def made(parts, joined=" AND ", nobody="TRUE"):
    def piece(who):
        return joined.join(text for name, text in parts.items() if who[name] is not None) or nobody

    return piece


def formatted(who):
    """Names put into the text by hand, without a thought for quotes."""
    text = made(PARTS)(who)
    names = ", ".join(f"'{name}'" for name in who["users"] or [])
    return text.replace(":users", f"({names})")


def solution(who):
    parts = ["receiver.age >= :min_age"] if who["min_age"] is not None else []
    parts += ["distance_km(receiver.loc, :place) <= :km"] if who["place"] is not None else []
    parts += ["auth.user IN :users"] if who["users"] is not None else []
    parts += ["auth.app IN :apps"] if who["apps"] is not None else []
    return " AND ".join(parts) or "TRUE"


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    "piece", [solution, made(PARTS), made(PARTS | {"min_age": "NOT receiver.age < :min_age"})]
)
def test_judge_accepts(piece):
    accepted(CHAPTER, piece)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    most_telling(
        [
        (made(PARTS | {"users": "receiver.user IN :users"}), "users=['bob']", "record is for it"),
        (made(PARTS | {"users": "coalesce(auth.user, receiver.user) IN :users"}), "has no token", "sees the record"),
        (made(PARTS | {"apps": "auth.app IS NOT NULL"}), "app 'news'", "sees the record"),
        (made(PARTS | {"min_age": "receiver.age > :min_age"}), "says age=", "does not see"),
        (made(PARTS | {"min_age": "coalesce(receiver.age, 99) >= :min_age"}), "min_age=", "sees the record"),
        (made(PARTS | {"place": "receiver.loc IS NULL OR within_km(receiver.loc, :place, :km)"}), "km=", "sees"),
        (made(PARTS | {"place": "receiver.loc IS NOT NULL"}), "km=", "sees the record"),
        (made(PARTS, joined=" OR "), "=", "sees the record"),
        (made(PARTS, nobody=""), "for everybody", "The predicate is empty"),
        (lambda who: " AND ".join(PARTS.values()), "for everybody", "does not see"),
        (lambda who: "TRUE", "=", "sees the record"),
        (formatted, "o'hara", "it is rejected"),
        (lambda who: 'auth.user IN ("bob")', "for everybody", "is a name in SQL"),
        (lambda who: None, "for everybody", "returned None; expected the text of a predicate"),
        (lambda who: 3, "for everybody", "a predicate is a string, not int"),
        (lambda who: who["age"], "for everybody", "it raises KeyError: 'age' (line"),
        ]
    ),
)  # fmt: skip
def test_judge_rejects(piece, smallest, problem):
    verdict = rejected(CHAPTER, piece, problem, smallest)
    assert str(judge(CHAPTER, piece)) == str(verdict)
    conditions = verdict.failure.scenario.split(";")[0].count("=")
    assert conditions <= 2, "all that does not matter is left out"


def test_the_messages_of_the_smallest_are_drawn():
    figure = judge(CHAPTER, made(PARTS | {"min_age": "receiver.age > :min_age"})).diagram()
    assert "smallest scenario" in figure.layout.title.text
    assert [f"<b>{name}</b>" for name in ("jane", "mud-gateway-1", "reader")] == list(
        figure.layout.xaxis.ticktext[:3]
    )


def test_a_piece_that_raises_has_no_messages():
    assert judge(CHAPTER, lambda who: who["age"]).diagram() is None

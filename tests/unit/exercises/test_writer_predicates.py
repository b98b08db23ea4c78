"""Judge of chapter 02: correct predicates are accepted and likely mistakes rejected."""

from __future__ import annotations

import pytest
from judged import check_accepted, check_rejected, mark_soak

from mudkit.exercises import judge

CHAPTER = "02_writer_predicates"
PARTS = {
    "min_age": "receiver.age >= :min_age",
    "place": "within_km(receiver.loc, :place, :km)",
    "users": "auth.user IN :users",
    "apps": "auth.app IN :apps",
}


def make_piece(parts, separator=" AND ", default="TRUE"):
    def piece(who):
        return separator.join(text for name, text in parts.items() if who[name] is not None) or default

    return piece


def format_users(who):
    """Insert names into the text without escaping quotes."""
    text = make_piece(PARTS)(who)
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
    "piece", [solution, make_piece(PARTS), make_piece(PARTS | {"min_age": "NOT receiver.age < :min_age"})]
)
def test_judge_accepts(piece):
    check_accepted(CHAPTER, piece)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    mark_soak(
        [
        (make_piece(PARTS | {"place": "distance_km(receiver.loc, :place) < :km"}), "km=0.0", "does not see"),
        (make_piece(PARTS | {"place": "within_km(receiver.loc, :place, :km + 0.05)"}), "km=", "sees the record"),
        (make_piece(PARTS | {"place": "within_km(receiver.loc, point(30.27, -97.74), :km)"}), "km=", "does not see"),
        (make_piece(PARTS | {"min_age": "receiver.age >= :min_age - 0.5"}), "min_age=", "sees the record"),
        (make_piece(PARTS | {"users": "receiver.user IN :users"}), "users=['bob']", "record is for it"),
        (make_piece(PARTS | {"users": "coalesce(auth.user, receiver.user) IN :users"}), "has no token", "sees the record"),
        (make_piece(PARTS | {"apps": "auth.app IS NOT NULL"}), "app 'news'", "sees the record"),
        (make_piece(PARTS | {"min_age": "receiver.age > :min_age"}), "says age=", "does not see"),
        (make_piece(PARTS | {"min_age": "coalesce(receiver.age, 99) >= :min_age"}), "min_age=", "sees the record"),
        (make_piece(PARTS | {"place": "receiver.loc IS NULL OR within_km(receiver.loc, :place, :km)"}), "km=", "sees"),
        (make_piece(PARTS | {"place": "receiver.loc IS NOT NULL"}), "km=", "sees the record"),
        (make_piece(PARTS, separator=" OR "), "=", "sees the record"),
        (make_piece(PARTS, default=""), "for everybody", "The predicate is empty"),
        (lambda who: " AND ".join(PARTS.values()), "for everybody", "does not see"),
        (lambda who: "TRUE", "=", "sees the record"),
        (format_users, "o'hara", "it is rejected"),
        (lambda who: 'auth.user IN ("bob")', "for everybody", "is a name in SQL"),
        (lambda who: None, "for everybody", "returned None; expected the text of a predicate"),
        (lambda who: 3, "for everybody", "a predicate is a string, not int"),
        (lambda who: who["age"], "for everybody", "it raises KeyError: 'age' (line"),
        ]
    ),
)  # fmt: skip
def test_judge_rejects(piece, smallest, problem):
    verdict = check_rejected(CHAPTER, piece, problem, smallest)
    assert str(judge(CHAPTER, piece)) == str(verdict)
    conditions = verdict.failure.scenario.split(";")[0].count("=")
    assert conditions <= 2, "all that does not matter is left out"


def test_messages_of_the_smallest_scenario_are_drawn():
    figure = judge(CHAPTER, make_piece(PARTS | {"min_age": "receiver.age > :min_age"})).diagram()
    assert "smallest scenario" in figure.layout.title.text
    assert [f"<b>{name}</b>" for name in ("jane", "mud-gateway-1", "reader")] == list(
        figure.layout.xaxis.ticktext
    )


def test_diagram_has_only_requests_and_their_answers():
    figure = judge(CHAPTER, lambda who: "TRUE").diagram()
    labels = {label.text.split()[0] for label in figure.layout.annotations}
    assert labels == {"ask", "outcome", "part"}


def test_piece_that_raises_has_no_diagram():
    assert judge(CHAPTER, lambda who: who["age"]).diagram() is None

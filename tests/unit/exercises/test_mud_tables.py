"""Judge of chapter 01: correct merges are accepted and likely mistakes rejected."""

from __future__ import annotations

from collections import Counter

import pytest
from judged import check_accepted, check_rejected, mark_soak

from mudkit.exercises.mud_tables import EXERCISE, _Edit, _Scenario

CHAPTER = "01_mud_tables"
ADD, DELETE_FIRST, DELETE_LAST = "adds", "deletes the first", "deletes the last"
NOTHING_LOST = "no message is lost"


def solution(store, local, base):
    return (store - (base - local)) | (local - base)


def merge_common_and_new(store, local, base):
    return (store & local) | ((store | local) - base)


def merge_in_place(store, local, base):
    store -= base - local
    store |= local - base
    return store


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("piece", [solution, merge_common_and_new, merge_in_place])
def test_judge_accepts(piece):
    check_accepted(CHAPTER, piece)


ADDS_ADDS = "the tablet adds c, the phone adds d;"
ADDS_DELETES = "the tablet adds c, the phone deletes a;"
DELETES_ADDS = "the tablet deletes a, the phone adds c;"


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    mark_soak(
        [
        (lambda store, local, base: store, ADDS_ADDS, "entry c, which the tablet added, is lost. The page: a, b, d."),
        (lambda store, local, base: local, ADDS_ADDS, "entry d, which the phone added, is lost. The page: a, b, c."),
        (lambda store, local, base: store | local, ADDS_DELETES, "entry a, which the phone deleted, came back."),
        (lambda store, local, base: base, ADDS_ADDS, "entry c, which the tablet added, is lost; entry d, which the phone"),
        (lambda store, local, base: store & local, ADDS_ADDS, "The page: a, b."),
        (lambda store, local, base: (store | local) - base, ADDS_ADDS, "The page: c, d."),
        (lambda store, local, base: store | (local - base), DELETES_ADDS, "entry a, which the tablet deleted, came"),
        (lambda store, local, base: local | (store - base), ADDS_DELETES, "entry a, which the phone deleted, came"),
        (lambda store, local, base: solution(store, local, base) | {"z"}, ADDS_ADDS, "'z' was never added."),
        (lambda store, local, base: sorted(store), ADDS_ADDS, "['a', 'b', 'd']; expected a set of entries"),
        (lambda store, local, base: store.update(local), ADDS_ADDS, "Your function returned None; expected a set of entries"),
        (lambda store, local, base: {1}, ADDS_ADDS, "{1}; expected a set of entries"),
        (lambda store, local: store, ADDS_ADDS, "it raises TypeError"),
        ]
    ),
)  # fmt: skip
def test_judge_rejects(piece, smallest, problem):
    verdict = check_rejected(CHAPTER, piece, problem, smallest)
    assert NOTHING_LOST in verdict.failure.scenario
    figure = verdict.diagram()
    assert "smallest scenario" in figure.layout.title.text
    assert list(figure.layout.xaxis.ticktext) == [
        f"<b>{name}</b>" for name in ("phone", "mud-gateway-1", "tablet")
    ]


def play_edits(*edits, deliveries=(), piece=solution):
    calls = []

    def record(store, local, base):
        calls.append((sorted(store), sorted(local), sorted(base)))
        return piece(store, local, base)

    result = EXERCISE.play(record, _Scenario([[_Edit(*edit) for edit in edits]], deliveries))
    return result, calls


def test_merge_receives_three_pages_in_a_conflict():
    result, calls = play_edits(("tablet", ADD), ("tablet", DELETE_FIRST), ("phone", DELETE_LAST))
    assert result.problem is None
    assert calls[0] == (["a"], ["a", "b", "c"], ["a", "b"])
    assert calls[-1] == (["a"], ["b", "c"], ["a", "b"]), "the last update holds all that was changed"


def test_merge_is_not_called_without_a_conflict():
    for edits in (
        [("tablet", ADD)],
        [("phone", DELETE_FIRST), ("phone", ADD)],
        [("phone", DELETE_FIRST)] * 3,
    ):
        result, calls = play_edits(*edits)
        assert result.problem is None
        assert calls == []


def test_faults_are_described_and_tolerated():
    for deliveries in (["lost"] * 5, ["twice"] * 5, ["late"] * 5, ["well", "well", "lost", "late", "twice"]):
        result, calls = play_edits(("tablet", ADD), ("phone", DELETE_FIRST), deliveries=deliveries)
        assert result.problem is None
        assert calls
        assert NOTHING_LOST not in result.scenario
        fates = Counter(result.lab.frame("messages")["fate"])
        assert fates["lost"] == deliveries.count("lost")
        assert (fates["repeated"] > 0) == ("twice" in deliveries)
    assert "message 3 about a write is lost, message 4 about a write comes late" in result.scenario

"""Incarnations, hellos, and lineages of logs."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.delivery.session import (
    Follower,
    HelloVerdict,
    Incarnation,
    Lineage,
    Peer,
    continue_lineage,
    incarnation_at,
    last_incarnation,
    last_lsn_of,
    resume_lsn,
    rollback_incident,
    shared_lsn,
    store_id,
    taken_by_incarnation,
)
from mudkit.events import Ports
from mudkit.fleet.store import MemoryStore


def test_store_incarnation_is_drawn_once_per_store() -> None:
    draws = iter((b"abcd", b"efgh"))
    store = MemoryStore()
    ports = Ports(store, lambda n: next(draws)[:n], "ann/sf")
    assert store_id(ports) == store_id(ports) == b"abcd".hex()
    store.commit()
    store.wipe()
    assert store_id(ports) == b"efgh".hex()


def test_hello_is_news_stale_or_of_a_stranger() -> None:
    peer = Peer()
    assert peer.judge_hello("0a", 5) is HelloVerdict.NEWS
    peer.accept_hello("0a", 5)
    assert [peer.judge_hello("0a", seq) for seq in (4, 5, 6)] == [
        HelloVerdict.STALE,
        HelloVerdict.STALE,
        HelloVerdict.NEWS,
    ]
    assert peer.judge_hello("0b", 1) is HelloVerdict.STRANGER
    assert peer.judge_hello("0b", 1, "no nonce was given") is HelloVerdict.STRANGER


def test_new_incarnation_is_accepted_only_with_the_nonce() -> None:
    draws = iter((b"1111", b"2222"))
    peer = Peer("0a", 5)
    nonce = peer.open_question(lambda n: next(draws)[:n])
    assert peer.open_question(lambda n: next(draws)[:n]) == nonce  # the same until it is answered
    assert peer.judge_hello("0b", 1, "3131") is HelloVerdict.STRANGER
    assert peer.judge_hello("0b", 1, nonce) is HelloVerdict.NEWS
    peer.accept_hello("0b", 1)
    assert peer.judge_hello("0a", 6, nonce) is HelloVerdict.STRANGER  # a late copy of the former incarnation
    assert peer.nonce is None


def test_first_hello_after_a_question_needs_the_nonce() -> None:
    peer = Peer()
    assert peer.judge_hello("0a", 1) is HelloVerdict.NEWS
    nonce = peer.open_question(lambda count: bytes(count))
    assert peer.open_question(lambda count: b"\1" * count) == nonce  # one question at a time
    assert peer.judge_hello("0a", 1) is HelloVerdict.STRANGER
    assert peer.judge_hello("0a", 1, "another") is HelloVerdict.STRANGER
    assert peer.judge_hello("0a", 1, nonce) is HelloVerdict.NEWS
    peer.accept_hello("0a", 1)
    assert peer.nonce is None
    assert peer.judge_hello("0a", 1, nonce) is HelloVerdict.STALE
    assert peer.judge_hello("0a", 2) is HelloVerdict.NEWS
    assert peer.judge_hello("0b", 3, nonce) is HelloVerdict.STRANGER


def test_each_start_has_a_new_incarnation_independent_of_the_store() -> None:
    draws = iter((b"abcd", b"efgh"))
    ports = Ports(MemoryStore(), lambda n: next(draws)[:n], "ann/sf")
    first, second = Incarnation(ports), Incarnation(ports)
    assert (first.id, first.id, second.id) == (b"abcd".hex(), b"abcd".hex(), b"efgh".hex())
    assert not ports.store.keys()


@pytest.mark.parametrize(
    ("mine", "last", "theirs", "their_last", "shared"),
    [
        ({}, 5, {}, 5, 5),
        ({}, 5, {}, 3, 3),  # a late copy, or the same start
        ({}, 3, {}, 5, 3),
        ({}, 9, {"0b": 5}, 4, 4),  # restored, and nothing added since
        ({}, 9, {"0b": 5}, 12, 4),
        ({}, 3, {"0b": 5}, 12, 3),
        ({"0b": 5}, 9, {"0b": 5, "0c": 7}, 12, 6),
        ({"0b": 5, "0c": 7}, 9, {"0b": 5, "0d": 8}, 12, 6),
        ({"0b": 5}, 9, {"0d": 3}, 12, 2),  # restored to an older backup
        ({"0d": 3}, 9, {"0b": 5}, 12, 2),
        ({"0b": 5, "0c": 7}, 9, {}, 20, 4),
        (
            {"0b": 5},
            7,
            {"0b": 5, "0c": 5},
            6,
            4,
        ),  # restored to a backup from before the first entry of a start
    ],
)
def test_shared_seq_of_two_copies_of_a_log(
    mine: Lineage, last: int, theirs: Lineage, their_last: int, shared: int
) -> None:
    assert shared_lsn(mine, last, theirs, their_last) == shared


@given(st.data())
def test_shared_seq_is_the_length_of_the_equal_prefix(data: st.DataObject) -> None:
    """Compare logs that are copied, restored and continued with their entries."""
    logs: list[tuple[list[int], Lineage]] = [([], {})]
    for number in range(data.draw(st.integers(1, 8))):
        entries, lineage = logs[data.draw(st.integers(0, len(logs) - 1))]
        added = [100 * number + offset for offset in range(data.draw(st.integers(0, 4)))]
        new_lineage = lineage if number == 0 else continue_lineage(lineage, len(entries), f"{number}")
        logs.append(([*entries, *added], new_lineage))
    for mine, lineage in logs:
        for theirs, their_lineage in logs:
            equal = [one == other for one, other in zip(mine, theirs, strict=False)]
            shared = equal.index(False) if False in equal else len(equal)
            assert shared_lsn(lineage, len(mine), their_lineage, len(theirs)) == shared
            start = last_incarnation(their_lineage)
            known = shared if start == "" or start in lineage else 0
            assert min(len(theirs), last_lsn_of(lineage, start, len(mine))) == known


def test_start_without_entries_remains_in_the_lineage() -> None:
    """Check that a client that knows this start loses nothing at the next one."""
    lineage = continue_lineage(continue_lineage({}, 2, "0b"), 2, "0c")
    assert last_lsn_of(lineage, "0b", 2) == 2


def test_rolled_back_store_is_an_incident() -> None:
    record = rollback_incident("ann", "messages 3 to 5 are gone")
    assert (record.table, record.row["incident"]) == ("incidents", "rolled back")
    assert record.row["detail"] == "ann: messages 3 to 5 are gone"


@pytest.mark.parametrize(("start", "shared"), [("", 4), ("b", 7), ("c", 9), ("unknown", 0)])
def test_shared_since_returns_the_last_number_of_a_start(start: str, shared: int) -> None:
    assert last_lsn_of({"b": 5, "c": 8}, start, 9) == shared


def test_log_without_restarts_is_shared_completely() -> None:
    assert (last_lsn_of({}, "", 9), last_lsn_of({}, "b", 9)) == (9, 0)


def test_follower_tracks_a_growing_log() -> None:
    follower = Follower()
    assert follower.last_lsn is None
    assert follower.accept_lineage({}, 0)
    assert follower.last_lsn == 0
    assert follower.accept_lineage({}, 7)
    assert follower.accept_lineage({}, 3)  # a late message of this start
    assert follower.last_lsn == 7


def test_follower_accepts_another_start_only_in_the_answer_to_its_question() -> None:
    draws = iter((b"1111", b"2222"))

    def entropy(count: int) -> bytes:
        return next(draws)[:count]

    follower = Follower()
    assert follower.accept_lineage({"a": 5}, 9)  # the first one
    assert not follower.accept_lineage({"c": 3}, 2)
    nonce = follower.open_question(entropy)
    assert follower.open_question(entropy) == nonce  # the same until it is answered
    assert not follower.accept_lineage({"b": 4}, 7, "another")
    assert not follower.accept_lineage({"c": 3}, 2)
    assert (follower.lineage, follower.last_lsn) == ({"a": 5}, 9)
    assert follower.accept_lineage({"c": 3}, 2, nonce)
    assert (follower.lineage, follower.last_lsn) == ({"c": 3}, 2)
    assert not follower.accept_lineage({"b": 4}, 7, nonce)  # a late copy of the answer of another start
    assert follower.open_question(entropy) != nonce


def test_follower_that_knows_a_lineage_asks_after_its_restart() -> None:
    follower = Follower({"a": 5})
    assert not follower.accept_lineage({"b": 3}, 2)
    assert not follower.accept_lineage({}, 2)
    assert follower.accept_lineage({"a": 5}, 7)
    assert not follower.accept_lineage({"b": 3}, 2, None)
    assert follower.accept_lineage({}, 3, follower.open_question(bytes))  # a wiped store
    assert follower.lineage == {}


def test_answered_question_is_closed_also_if_nothing_has_changed() -> None:
    follower = Follower({"a": 5}, 7)
    assert follower.accept_lineage({"a": 5}, 8, follower.open_question(bytes))
    assert follower.nonce is None
    assert not follower.accept_lineage({"b": 5}, 9, bytes(4).hex())


@given(st.data())
def test_follower_finds_the_present_log_after_any_restores_and_late_copies(data: st.DataObject) -> None:
    """Restore any backup at any time; deliver all messages of all starts in any order, twice, or never."""
    entropy = count(1)
    logs: list[Lineage] = [{}]
    """Lineage of each start, the present one last; each is a backup, too."""
    questions: list[tuple[int, str]] = []
    messages: list[tuple[int, str | None]] = [(0, None)]
    """Start and nonce of what was sent."""
    follower = Follower()

    def deliver(start: int, nonce: str | None) -> None:
        if not follower.accept_lineage(logs[start], 7, nonce):
            question = follower.open_question(lambda size: next(entropy).to_bytes(size, "big"))
            questions.append((len(logs) - 1, question))

    for _ in range(data.draw(st.integers(0, 30))):
        match data.draw(st.sampled_from(["restore", "answer", "deliver"])):
            case "restore":
                backup = data.draw(st.sampled_from(logs))
                logs.append(continue_lineage(backup, 7, f"start {len(logs)}"))
                messages.append((len(logs) - 1, None))
            case "answer" if questions:
                begun, nonce = data.draw(st.sampled_from(questions))
                messages.append((data.draw(st.integers(begun, len(logs) - 1)), nonce))
            case "deliver":
                deliver(*data.draw(st.sampled_from(messages)))
    # What the present start sends until it is acknowledged: at most two rounds.
    for _ in range(2):
        deliver(len(logs) - 1, None)
        deliver(len(logs) - 1, follower.nonce)
    assert follower.accept_lineage(logs[-1], 7)
    for start, nonce in messages:
        assert follower.accept_lineage(logs[start], 7, nonce) == (
            start == len(logs) - 1 or logs[start] == logs[-1]
        )
    assert follower.lineage == logs[-1]


def test_lineage_keeps_the_last_64_starts() -> None:
    lineage: dict[str, int] = {}
    for number in range(70):
        lineage = continue_lineage(lineage, number, f"{number}")
    assert list(lineage) == [f"{number}" for number in range(6, 70)]


@pytest.mark.parametrize(
    ("before", "last", "lineage", "its_last", "resumed"),
    [
        ({}, 5, {"a": 3}, 4, 2),
        ({"a": 3}, 4, {"b": 6}, 7, 5),  # restored from an older, and then from a newer backup
        ({"a": 3}, 4, {"a": 3, "b": 5}, 6, 4),
        ({"a": 6}, 3, {"b": 4}, 9, 3),  # it had not taken all of the first start
        ({"a": 1}, 4, {"b": 3}, 2, 0),  # the log began anew after an empty backup
    ],
)
def test_follower_resumes_after_what_it_has_taken_in_any_lineage(before, last, lineage, its_last, resumed):
    taken = taken_by_incarnation({}, 5, {}) if before == {"a": 3} else {}
    taken = taken_by_incarnation(before, last, taken)
    shared = shared_lsn(before, last, lineage, its_last)
    assert resume_lsn(shared, taken, lineage, its_last) == resumed


def test_follower_resumes_at_the_first_entry_that_it_lacks():
    """Later entries do not count (`resume_lsn`): entry 3 is lacking, whatever was taken of the next start."""
    assert resume_lsn(0, {"": 2, "a": 5}, {"a": 4}, 6) == 2


def test_starts_of_a_log_by_number():
    lineage = {"a": 3, "b": 3, "c": 7}
    assert [incarnation_at(lineage, seq) for seq in (1, 2, 3, 6, 7)] == ["", "", "b", "b", "c"]


def test_nothing_is_taken_of_an_incarnation_that_begins_after_the_last_position():
    assert taken_by_incarnation({"a": 4, "b": 7}, 2, {}) == {"": 2}
    assert taken_by_incarnation({"a": 4, "b": 7}, 5, {"a": 6}) == {"": 3, "a": 6}

"""Submissions message by message: what a publisher and a server send, complete and store."""

from __future__ import annotations

from itertools import count
from typing import Any

from submitting import PendingText, Text

from mudkit.delivery.submission import (
    Refusal,
    Submission,
    Submissions,
    SubmitAck,
    SubmitHello,
    Submitter,
    SubmitWelcome,
)
from mudkit.errors import MessageExpired, ParameterError
from mudkit.events import Complete, LinkUp, Ports, Record, Send, SetTimer, TimerFired
from mudkit.fleet.store import MemoryStore

S = 1_000_000
_DRAWS = count(1)
"""Shared by all starts, so that entropy never repeats."""


def create_ports(store: MemoryStore, address: str) -> Ports:
    return Ports(store, lambda n: next(_DRAWS).to_bytes(n, "big"), address)


def start_publisher(store: MemoryStore | None = None) -> Submitter[Text]:
    ports = create_ports(MemoryStore() if store is None else store, "ann/x")
    return Submitter(ports, "ann", "bob/x", PendingText)


def submit(publisher: Submitter[Text], now_us: int, number: int, expires_us: int | None = None) -> list[Any]:
    """Submit a text as the operation of a number, with a result that names the operation."""
    body = Text(f"text {number}", expires_us)
    return list(publisher.submit(now_us, number, body, f"done {number}", expires_us))


def exchange(publisher: Submitter[Text], server: Submissions, effects: Any) -> list[Any]:
    """Deliver messages at once, at most 50; return the other effects. Texts with a 3 are refused."""
    others: list[Any] = []
    waiting = list(effects)
    for _ in range(50):
        if not waiting:
            break
        effect = waiting.pop(0)
        message: Any = getattr(effect, "message", None)
        if not isinstance(effect, Send):
            others.append(effect)
        elif isinstance(message, SubmitHello | Submission):
            answer, is_new = server.receive("ann/x", message)
            waiting += answer
            if is_new:
                refusal = Refusal("It is odd.") if "3" in message.body.text else None
                waiting += server.settle("ann/x", message, refusal)
        else:
            waiting += publisher.receive(S, message)
    return others


def completed(effects: list[Any]) -> list[tuple[int, Any]]:
    """Return the operations that effects complete, each with its result or the type of its error."""
    done = [effect for effect in effects if isinstance(effect, Complete)]
    return [(effect.op_id, type(effect.error) if effect.error else effect.result) for effect in done]


def test_operation_is_completed_when_the_server_has_settled_its_submission() -> None:
    """See `Submitter.submit`."""
    publisher, server = start_publisher(), Submissions(create_ports(MemoryStore(), "bob/x"))
    waiting = [effect for number in (1, 2, 3) for effect in submit(publisher, 0, number)]
    assert not completed(waiting)
    effects = exchange(publisher, server, publisher.handle(S, LinkUp("ann/x", "lte")))
    assert completed(effects) == [(1, "done 1"), (2, "done 2"), (3, ParameterError)]


def test_nothing_is_sent_before_the_link_is_up() -> None:
    """A device without a link sends nothing: see `mudkit.events.Send`."""
    publisher = start_publisher()
    assert not submit(publisher, 0, 1)
    assert [
        type(effect.message)
        for effect in publisher.handle(S, LinkUp("ann/x", "lte"))
        if isinstance(effect, Send)
    ] == [SubmitHello]


def test_submission_that_expires_is_withdrawn_on_time_and_fails() -> None:
    """One timer is set for the submission that expires first; see the module's documentation."""
    publisher = start_publisher()
    assert submit(publisher, 10 * S, 1, 50 * S) == [SetTimer("submission expires", 40 * S)]
    assert submit(publisher, 20 * S, 2, 30 * S) == [SetTimer("submission expires", 10 * S)]
    effects = publisher.handle(30 * S, TimerFired("submission expires"))
    assert completed(list(effects)) == [(2, MessageExpired)]
    assert [effect for effect in effects if isinstance(effect, SetTimer)] == [
        SetTimer("submission expires", 20 * S)
    ]


def test_refused_and_expired_submissions_are_counted_over_restarts() -> None:
    """`Submitter.counts` counts since the store was created, and what is pending now."""
    store = MemoryStore()
    publisher, server = start_publisher(store), Submissions(create_ports(MemoryStore(), "bob/x"))
    submit(publisher, 0, 1, 5 * S)
    publisher.handle(5 * S, TimerFired("submission expires"))
    for number in (2, 3, 33):
        submit(publisher, 6 * S, number)
    exchange(publisher, server, publisher.handle(7 * S, LinkUp("ann/x", "lte")))
    store.commit()
    publisher = start_publisher(store)
    submit(publisher, 9 * S, 4)
    assert publisher.counts() == {"pending": 1, "refused": 2, "expired": 1}


def test_server_that_lost_submissions_reports_it_once_and_takes_none_of_them_again() -> None:
    """`SubmitHello.acked` names what the server has acknowledged: a store without it was rolled back."""
    server = Submissions(create_ports(MemoryStore(), "bob/x"))
    reported: list[str] = []
    for incarnation in ("0000000b", "0000000c"):  # two starts of the publisher
        (welcome,), _ = server.receive("ann/x", SubmitHello("ann", incarnation, ("0000000a", 5)))
        assert isinstance(welcome, Send)
        assert isinstance(welcome.message, SubmitWelcome)
        for number in (5, 6):
            late = Submission(
                device="ann", session=welcome.message.session, number=number, after=0,
                incarnation="0000000a", body=Text(f"{number}", None),
            )  # fmt: skip
            effects, is_new = server.receive("ann/x", late)
            assert is_new == (number == 6 and incarnation == "0000000b")
            assert (
                any(isinstance(effect, Send) and isinstance(effect.message, SubmitAck) for effect in effects)
                != is_new
            )
            reported += [effect.row["detail"] for effect in effects if isinstance(effect, Record)]
    assert reported == ["bob/x: submissions of ann from number 1 to 5 are gone"]


def test_refusal_has_all_parts_of_its_error() -> None:
    """See `Refusal.of` and `Refusal.error`."""
    error = ParameterError("It is odd.", where="text", found="3", expected="an even text", remedy="change it")
    assert str(Refusal.of(error).error()) == str(error)


def sent(effects: Any) -> list[tuple[int, int]]:
    """Return the submissions that effects send, each with the number of the one before it."""
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    return [(message.number, message.after) for message in messages if isinstance(message, Submission)]


def test_submission_names_the_pending_one_before_it() -> None:
    """See `Submission.after`: the number of the pending submission before it, or 0 if all are settled."""
    publisher = start_publisher()
    for number in (1, 2, 3):
        submit(publisher, 0, number)
    hello, timer = publisher.handle(S, LinkUp("ann/x", "lte"))
    assert isinstance(hello, Send)
    assert isinstance(timer, SetTimer)
    welcome = SubmitWelcome(hello.message.incarnation, "5e55")
    assert sent(publisher.receive(S, welcome)) == [(1, 0), (2, 1), (3, 2)]
    publisher.receive(S, SubmitAck(session="5e55", number=2))
    assert sent(submit(publisher, 2 * S, 4)) == [(4, 3)]
    late = publisher.handle(600 * S, TimerFired(timer.name))
    assert sent(late) == [(1, 0), (3, 1), (4, 3)]


def test_server_keeps_no_submission_before_the_one_that_it_names() -> None:
    server = Submissions(create_ports(MemoryStore(), "bob/x"))
    (welcome,), _ = server.receive("ann/x", SubmitHello("ann", "0000000a", None))
    assert isinstance(welcome, Send)
    are_new = []
    for number, after in ((2, 1), (1, 0), (2, 1), (4, 3), (4, 2)):
        message = Submission(
            device="ann", session=welcome.message.session, number=number, after=after, body=Text("a", None)
        )
        _, is_new = server.receive("ann/x", message)
        are_new.append(is_new)
        if is_new:
            server.settle("ann/x", message, None)
    assert are_new == [False, True, True, False, True]


def test_server_that_has_all_that_it_acknowledged_reports_nothing() -> None:
    """`SubmitHello.acked` names the last one that was acknowledged, which a server has if it lost nothing."""
    server = Submissions(create_ports(MemoryStore(), "bob/x"))
    effects: list[Any] = []
    for incarnation, acked in (("0000000a", None), ("0000000b", ("0000000a", 1))):
        (welcome,), _ = server.receive("ann/x", SubmitHello("ann", incarnation, acked))
        assert isinstance(welcome, Send)
        message = Submission(
            device="ann", session=welcome.message.session, number=1, after=0, body=Text("a", None)
        )
        effects += server.receive("ann/x", message)[0]
        effects += server.settle("ann/x", message, None)
    assert not [effect for effect in effects if isinstance(effect, Record)]

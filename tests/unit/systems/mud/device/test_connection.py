"""A client's way to its gateways."""

from __future__ import annotations

import pytest
from mud_machines import sent

from mudkit.events import CancelTimer, SetTimer
from mudkit.systems.mud.device.connection import RETRY, Connection


@pytest.fixture
def answers():
    return []


@pytest.fixture
def connection(answers):
    connection = Connection("jane/news", "token", ["one", "two"], 0)
    connection.up()
    return connection


def ask(connection, answers, what="read"):
    effects = connection.ask(lambda: {"op": what}, lambda last, parts: answers.append((last, parts)) or ())
    return sent(effects)[0] if effects else None


def test_it_is_asked_again_at_another_gateway_when_the_first_cannot_be_reached(connection, answers):
    assert connection.failed("one") == ()  # nothing is asked
    to, _ = ask(connection, answers)
    assert to == "one"
    assert connection.failed("two") == ()  # that is not who was asked
    (timer,) = connection.failed("one")
    assert isinstance(timer, SetTimer)
    assert [to for to, _ in sent(connection.up())] == ["two"]
    assert connection.failed("one") == ()  # late news
    assert [to for to, _ in sent(connection.up())] == ["two"]


def test_without_a_link_it_waits(connection, answers):
    connection.down()
    assert ask(connection, answers) is None
    assert connection.failed("one") == ()
    (said,) = sent(connection.up())
    assert said[1]["what"] == {"op": "read"}


@pytest.mark.parametrize("kind", ["part", "registered"])
def test_parts_are_collected_until_the_answer_is_whole(connection, answers, kind):
    _, message = ask(connection, answers)
    identity = message["id"]
    assert connection.take({"kind": kind, "id": identity, "place": 0}) == ()
    assert connection.take({"kind": kind, "id": "another", "place": 1}) == ()
    assert answers == []
    effects = connection.take({"kind": "complete", "id": identity})
    assert [type(each) for each in effects] == [CancelTimer]
    ((last, parts),) = answers
    assert (last["kind"], list(parts)) == ("complete", [0])
    assert connection.take({"kind": "complete", "id": identity}) == ()
    assert len(answers) == 1


def test_parts_that_came_before_it_is_asked_again_do_not_count(connection, answers):
    _, message = ask(connection, answers)
    connection.take({"kind": "part", "id": message["id"], "place": 0})
    connection.up()
    connection.take({"kind": "complete", "id": message["id"]})
    assert answers[0][1] == {}


def test_an_error_instead_of_a_part_ends_it(connection, answers):
    _, message = ask(connection, answers)
    connection.take({"kind": "part", "id": message["id"], "place": 0, "error": {}})
    assert len(answers) == 1


def test_the_timer_goes_on_while_something_is_asked(connection, answers):
    _, first = ask(connection, answers)
    ask(connection, answers)
    effects = connection.take({"kind": "complete", "id": first["id"]})
    assert CancelTimer(RETRY) not in effects


TABLE, OTHER = {"name": "t"}, {"name": "u"}
FITTING = {
    "read": [
        {"kind": "part", "rows": []},
        {"kind": "part", "error": {}},
        {"kind": "complete", "table": TABLE},
    ],
    "sum": [
        {"kind": "part", "state": []},
        {"kind": "part", "error": {}},
        {"kind": "complete", "table": TABLE},
    ],
    "write": [{"kind": "outcome", "key": "a"}],
    "create": [{"kind": "administered", "error": {}}, {"kind": "administered", "table": TABLE}],
    "drop": [{"kind": "administered", "table": None}],
    "register": [{"kind": "registered"}, {"kind": "complete", "table": TABLE}],
    "unregister": [{"kind": "registered"}, {"kind": "complete", "table": TABLE}],
}
NEVER = [
    {"kind": "outcome", "key": "b"},
    {"kind": "complete", "table": OTHER},
    {"kind": "administered", "table": OTHER},
]


@pytest.mark.parametrize("op", FITTING)
def test_what_is_no_answer_to_what_was_asked_does_not_fit(connection, op):
    asked = {
        "op": "read" if op == "sum" else op,
        "name": "t",
        "key": "a",
        "aggregate": "sum(n)" if op == "sum" else None,
    }
    ((_, message),) = sent(connection.ask(lambda: asked, lambda last, parts: ()))

    def fits(answer, identity=message["id"]):
        return connection.fits({"id": identity, **answer})

    every = [*NEVER, *(each for answers in FITTING.values() for each in answers)]
    for answer in every:
        is_own = answer in FITTING[op] or (answer["kind"] == "administered" and op in ("create", "drop"))
        assert fits(answer) == (is_own and answer not in NEVER)
        assert fits(answer, "another")  # nobody waits for it
    assert fits({"kind": "refused"})

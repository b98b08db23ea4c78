"""Requests of a client to its gateways: deadlines, window of writes, and parts of answers."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from mudkit import Lab
from mudkit.events import CancelTimer, Send, SetTimer, size_bytes
from mudkit.systems.mud.device.attachment import SERVICE
from mudkit.systems.mud.device.connection import (
    MAX_BATCH_BYTES,
    MAX_IN_FLIGHT_BYTES,
    RETRY,
    Administering,
    Connection,
    Writing,
)
from mudkit.systems.mud.messages.requests import (
    SERVICE_FROM_GATEWAY,
    AskBatch,
    CreateRequest,
    DropRequest,
    ReadRequest,
    RegisterRequest,
    UnregisterRequest,
    WriteRequest,
)
from mudkit.systems.mud.tables.records import SentPredicate

SECOND_US = 1_000_000
READ = ReadRequest(
    name="t", table=None, predicate=None, keys=None, reader={}, aggregate=None, latest=False, seen_lsns={}
)
SUM = ReadRequest(
    name="t", table=None, predicate=None, keys=None, reader={}, aggregate="sum(n)", latest=False, seen_lsns={}
)
WORK = Administering(1, CreateRequest("t", {}))
OF_CONTINUOUS = {"name": "t", "handle": "first 1", "reader": {}, "data_seq": 1}
TABLE = {
    "name": "t", "owner": "news", "acl": "public", "apps": None, "split": [], "schema": None, "removed": {},
    "number": 1, "lsn": 1,
}  # fmt: skip
OTHER = {**TABLE, "name": "u"}
ERROR = {"kind": "AccessDenied", "summary": "no"}


def make_write(number, size=1):
    return WriteRequest(
        name="t", table=None, key="a", type="blind", data={"x": "x" * size}, predicate=None, reader={},
        replaces=0, number=number, first=1, incarnation="first",
    )  # fmt: skip


@pytest.fixture
def connection():
    connection = Connection("jane/news", "token")
    connection.link_up()
    return connection


def sent(effects):
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]


def ask(connection, request=READ, work=WORK, now_us=0):
    """Add a request; return the receiver and the message, None if it was not sent."""
    messages = sent(connection.send_request(now_us, work, request))
    return messages[0] if messages else None


def answer(kind, identity, **fields):
    defaults = {
        "part": {"partition": fields.get("place", 0), "place": 0, "lsn": 1},
        "registered": {"place": "p", "of": "0", "life": 1, "lsn": 1, "data_seq": 1},
        "complete": {"claims": None, "places": [], "table": TABLE},
        "outcome": {"claims": None},
        "administered": {"claims": None},
    }
    if kind == "outcome" and "error" not in fields:
        fields = {"ver": 1, "lsn": 1, "partition": 0, "table": 1, **fields}
    decoded = SERVICE_FROM_GATEWAY.decode({"kind": kind, "id": identity, **defaults.get(kind, {}), **fields})
    assert decoded is not None
    return decoded


def resend(connection, asks, now_us=0):
    ready = filter(connection.admit_or_queue, asks)
    return sent([effect for pending in ready for effect in connection.send(now_us, pending)])


def test_requests_go_over_the_service_and_are_soon_sent_again_if_their_gateway_is_lost(connection):
    assert connection.expedite(0) == []  # no request is in flight
    to, _ = ask(connection)
    assert to == SERVICE
    assert connection.expedite(0) == [SetTimer(RETRY, SECOND_US)]
    assert len(connection.overdue_asks(SECOND_US)) == 1


def test_requests_wait_for_a_link(connection):
    connection.link_down()
    assert ask(connection) is None
    assert connection.expedite(0) == []
    _, asks = connection.link_up()
    ((_, message),) = resend(connection, asks)
    assert message.what == READ


def test_parts_are_collected_until_the_answer_is_complete(connection):
    _, message = ask(connection)
    assert connection.receive_answer(answer("part", message.id, rows=[])) is None
    assert connection.receive_answer(answer("part", "another", place=1, rows=[])) is None
    completed = connection.receive_answer(answer("complete", message.id))
    assert (completed.work, list(completed.parts)) == (WORK, [0])
    assert [type(effect) for effect in connection.settle_request(0, completed)] == [CancelTimer]
    assert connection.receive_answer(answer("complete", message.id)) is None


def test_parts_before_a_retransmission_are_discarded(connection):
    _, message = ask(connection)
    connection.receive_answer(answer("part", message.id, rows=[]))
    connection.receive_answer(answer("registered", message.id))
    resend(connection, connection.link_up()[1])
    completed = connection.receive_answer(answer("complete", message.id))
    assert (completed.parts, completed.registered) == ({}, {})


@pytest.mark.parametrize("kind", ["part", "registered"])
def test_error_instead_of_a_part_completes_the_request(connection, kind):
    _, message = ask(connection)
    assert connection.receive_answer(answer(kind, message.id, error=ERROR)) is not None


def test_each_request_has_its_own_deadline(connection):
    _, first = ask(connection)
    for now_us in range(SECOND_US, 10 * SECOND_US, SECOND_US):
        ask(connection, now_us=now_us)
    overdue = connection.overdue_asks(11 * SECOND_US)
    assert [pending.identity for pending in overdue] == [first.id]
    effects = connection.settle_request(11 * SECOND_US, overdue[0])
    assert CancelTimer(RETRY) not in effects  # other requests are in flight
    assert len(connection.overdue_asks(20 * SECOND_US + SECOND_US)) == 9


def test_writes_are_sent_within_the_window(connection):
    size = MAX_IN_FLIGHT_BYTES // 4
    messages = [ask(connection, make_write(number, size), Writing(number)) for number in range(1, 9)]
    sent_at_once = [message for message in messages if message is not None]
    assert len(sent_at_once) == 4
    assert ask(connection) is not None  # a read does not wait for them
    queued = []
    for _, message in sent_at_once[:3]:
        assert queued == []
        connection.settle_request(0, connection.receive_answer(answer("outcome", message.id, key="a")))
        queued = [ask.work for ask in connection.take_queued()]
    assert queued == [Writing(number) for number in (5, 6, 7, 8)]  # once half of the window is free
    assert connection.take_queued() == ()
    # Over another link all are sent again, in order, within the window.
    _, asks = connection.link_up()
    numbers = [message.what.number for _, message in resend(connection, asks) if message.what is not READ]
    assert numbers == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("in_flight", "is_sent"), [(MAX_IN_FLIGHT_BYTES - 1, True), (MAX_IN_FLIGHT_BYTES, False)]
)
def test_exactly_full_window_has_no_room(connection, in_flight, is_sent):
    connection.timer.start(0, "hello", MAX_IN_FLIGHT_BYTES)
    assert ask(connection, make_write(1), Writing(1)) is None
    connection.timer.start(0, "hello", in_flight)
    assert (ask(connection, make_write(2), Writing(2)) is not None) is is_sent


def test_token_has_expired_from_its_expiry_time_on():
    lab = Lab(seed=1)
    connection = Connection("jane/news", lab.token("jane", "news", hours=1))
    end_us = round(connection.claimed.expires_s * 1e6)
    assert [connection.has_expired(now_us) for now_us in (end_us - 1, end_us, end_us + 1)] == [
        False,
        True,
        True,
    ]
    connection.use_token(None)
    assert not connection.has_expired(end_us)


def send_writes(connection, count, size):
    """Send writes at once; return the messages."""
    asks = [connection.add_request(Writing(number)) for number in range(1, count + 1)]
    return [
        message
        for _, message in sent(connection.send_writes(0, asks, lambda ask: make_write(ask.work.seq, size)))
    ]


def test_writes_are_sent_in_as_few_messages_as_fit_the_window(connection):
    """Four writes fit a message, and nineteen leave room in the window for another one."""
    messages = send_writes(connection, 24, MAX_BATCH_BYTES // 5)
    assert [[request.what.number for request in message.asks] for message in messages] == [
        [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16], [17, 18, 19, 20],
    ]  # fmt: skip
    assert {type(message) for message in messages} == {AskBatch}


def test_message_of_writes_is_filled_up_to_its_limit():
    """It has the token once, however many writes there are."""
    connection = Connection("jane/news", "x" * 300)
    connection.link_up()
    first, then, *_ = send_writes(connection, 200, 300)
    more_bytes = size_bytes(then.asks[0]) + 1  # a comma
    assert size_bytes(first) <= MAX_BATCH_BYTES < size_bytes(first) + more_bytes


def test_single_write_is_no_batch(connection):
    (message,) = send_writes(connection, 1, 10)
    assert message.what.number == 1
    alone = Connection("jane/news", "token")
    assert send_writes(alone, 1, 10) == []  # there is no link


def test_writes_of_one_message_are_overdue_together(connection):
    """A message is lost as a whole: what was in it is repeated in one, too."""
    send_writes(connection, 4, 1000)
    times_us = [
        now_us for now_us in range(0, 20 * SECOND_US, SECOND_US // 10) if connection.overdue_asks(now_us)
    ]
    assert len(connection.overdue_asks(times_us[0])) == 4


def test_withdrawn_request_is_not_repeated(connection):
    _, message = ask(connection)
    (pending,) = connection.overdue_asks(100 * SECOND_US)
    assert CancelTimer(RETRY) in connection.withdraw(0, pending)
    assert connection.overdue_asks(100 * SECOND_US) == []
    assert connection.receive_answer(answer("refused", message.id, error=ERROR)) is None
    assert connection.withdraw(0, pending) == ()  # it was answered, or withdrawn before


REQUESTS = {
    "read": READ,
    "sum": SUM,
    "write": make_write(1),
    "create": CreateRequest("t", {}),
    "drop": DropRequest("t", {}),
    "register": RegisterRequest(
        request=1, session="s", predicate=SentPredicate("TRUE", [True]), since_lsns={}, delivered=[], sync_us=None,
        table=None, **OF_CONTINUOUS,
    ),
    "unregister": UnregisterRequest(**OF_CONTINUOUS),
}  # fmt: skip
FITTING = {
    "read": [("part", {"rows": []}), ("part", {"error": ERROR}), ("complete", {"table": TABLE})],
    "sum": [("part", {"state": []}), ("part", {"error": ERROR}), ("complete", {"table": TABLE})],
    "write": [("outcome", {"key": "a"})],
    "create": [("administered", {"error": ERROR}), ("administered", {"table": TABLE})],
    "drop": [("administered", {"table": None, "dropped": 1})],
    "register": [("registered", {}), ("complete", {"table": TABLE})],
    "unregister": [("registered", {}), ("complete", {"table": TABLE})],
}
UNFITTING = [("outcome", {"key": "b"}), ("complete", {"table": OTHER}), ("administered", {"table": OTHER})]


@pytest.mark.parametrize("op", FITTING)
def test_only_answers_to_the_request_fit(connection, op):
    _, message = ask(connection, REQUESTS[op])
    every = [*UNFITTING, *(fitting for answers in FITTING.values() for fitting in answers)]
    for kind, fields in every:
        is_administered = kind == "administered" and op in ("create", "drop")
        is_own = (kind, fields) in FITTING[op] or is_administered
        fits = connection.can_answer(answer(kind, message.id, **fields))
        assert fits == (is_own and (kind, fields) not in UNFITTING), (kind, fields)
        assert connection.can_answer(answer(kind, "another", **fields))  # late answers always fit
    assert connection.can_answer(answer("refused", message.id, error=ERROR))


def test_resent_requests_get_new_identities_except_table_requests(connection):
    connection.send_request(0, Writing(1), make_write(1))
    connection.send_request(0, WORK, WORK.request)
    connection.link_down()
    connection.send_request(0, Writing(2), make_write(2))  # not in flight
    connection.link_up()
    before = [ask.identity for ask in connection.link_up()[1]]
    for ask in connection.link_up()[1][:2]:
        connection.send(0, ask)
    effects, asks = connection.rename_in_flight(1)
    assert [type(ask.work) for ask in asks] == [Writing, Administering]
    assert asks[0].identity not in before
    assert asks[1].identity == before[1]
    assert [connection.is_unanswered(identity) for identity in before] == [False, True, True]
    assert connection.is_unanswered(asks[0].identity)
    assert not list(connection.timer)
    assert not sent(effects)


def test_administration_acknowledges_the_results_of_earlier_ones(connection):
    """The back end keeps a result until its client has received it."""
    identities = []
    for expected in (None, None, 1, 3):
        _, message = ask(connection, CreateRequest("t", {}))
        first = getattr(message.what, "first", None)
        assert (None if first is UNSET else first) == expected
        identities.append(message.id)
        if len(identities) in (2, 3):  # of the second, then of the first
            done = connection.receive_answer(
                answer("administered", identities[3 - len(identities)], table=TABLE)
            )
            connection.settle_request(0, done)

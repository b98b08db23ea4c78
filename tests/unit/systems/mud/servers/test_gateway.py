"""Gateway machine: access, routing, and completion of requests."""

from __future__ import annotations

import pytest
from mud_machines import build_request as build_ask
from mud_machines import handle_event, is_dropped, op_of, ports, sent

from mudkit.events import LinkUp, Received, SendFailed, SetTimer, TimerFired
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud.messages.requests import RequestRefused
from mudkit.systems.mud.servers import gateway
from mudkit.systems.mud.servers.confirmed_tables import CONFIRMED_US, UNANSWERED_US
from mudkit.systems.mud.servers.gateway import Gateway
from mudkit.systems.mud.servers.log_follower import MAX_QUESTIONS, QUESTIONS_US
from mudkit.tokens import Authority

TABLE = {
    "name": "t", "owner": "news", "acl": "app", "apps": None, "split": ["g"], "schema": None, "removed": {}, "number": 3,
    "lsn": 7,
}  # fmt: skip
CLAIMS = {"app": "news", "user": "jane", "device": None, "expires_s": 100.0}


@pytest.fixture
def authority():
    return Authority(bytes(32))


@pytest.fixture
def started(authority):
    """Return a gateway that has no tables yet."""
    return Gateway(ports("me"), authority, ["master"], ["p0", "p1"], ["r"], ["server"], "naming", "policies")


@pytest.fixture
def machine(started):
    """Return a gateway whose tables are confirmed."""
    send_tables(started, TABLE)
    confirm(started)
    return started


@pytest.fixture
def token(authority):
    return authority.issue("news", "jane", expires_s=100.0)


def ask(machine, token, identity="1", now_us=0, **what):
    return handle_event(
        machine, source="jane", now_us=now_us, **build_ask(identity, token=token, **{"op": "read", **what})
    )


def id_of(identity):
    return f"jane/news {identity}"


def read_fields(**fields):
    return {"table": 3, **fields}


def send_tables(machine, *tables, now_us=0, lsn=7, **fields):
    state = {"turn": "", "lsn": lsn, "tables": list(tables), "rows": [], **fields}
    return handle_event(machine, "state", "master", now_us, **state)


def confirm(machine, now_us=0, lsn=None, **fields):
    """Ask for the tables of a gateway, and answer."""
    machine._tables.ask(now_us)
    return answer_question(machine, now_us, lsn, **fields)


def answer_question(machine, now_us=0, lsn=None, entries=(), after=None, **fields):
    """Answer the open question, with entries of tables and all before a position."""
    nonce, position = machine._tables._history.nonce, machine._tables.lsn
    positions = {"after": position if after is None else after, "through": position if lsn is None else lsn}
    return handle_event(
        machine, "log", "master", now_us, nonce=nonce, entries=list(entries), **positions, **fields
    )


def change_tables(machine, *tables, drop=()):
    """Send a gateway the entries of tables, the last of which is at position 20."""
    entries = [{"op": "drop", "lsn": 18, "name": name} for name in drop]
    entries += [{"op": "table", "lsn": 19, "table": table} for table in tables]
    return handle_event(machine, "log", "master", entries=entries, after=7, through=20)


def test_read_goes_to_each_partition_and_completes_after_the_last(machine, token):
    routed = ask(machine, token, **read_fields(seen={"0": 5, "1": 9}))
    assert [
        (to, message["route"]["table"], message["route"]["partitions"], message["route"]["least"])
        for to, message in routed
    ] == [("p1", 3, [0], 7), ("p0", 3, [1], 9)]
    assert [
        message["kind"] for _, message in handle_event(machine, "part", "r", id=id_of("1"), partition=1)
    ] == ["part"]
    assert handle_event(machine, "part", "r", id=id_of("1"), partition=1) == []  # a duplicate
    (_, part), (to, last) = handle_event(machine, "part", "r", id=id_of("1"), partition=0)
    assert part["place"] == 0
    assert (to, last["kind"], last["places"], last["claims"]["user"]) == ("jane", "complete", [0, 1], "jane")
    assert handle_event(machine, "part", "r", id=id_of("1"), partition=0) == []


def test_positions_seen_of_another_table_of_the_name_are_ignored(machine, token):
    routed = ask(machine, token, **read_fields(seen={"0": 50}, table=2))
    assert [message["route"]["least"] for _, message in routed] == [7, 7]


def test_read_of_named_keys_goes_only_to_their_partitions(machine, token):
    routed = ask(machine, token, **read_fields(keys=["h", "z"]))
    assert [message["route"]["partitions"] for _, message in routed] == [[1]]
    answered = ask(machine, token, "2", **read_fields(keys=[]))
    assert [message["kind"] for _, message in answered] == ["complete"]


JOINS = to_json(
    Predicate("lookup('people', by, 'n') = lookup('cities', city, 'n') AND lookup('people', 'a', 'n') = 1")
)


def joined_tables(**properties):
    """Return the joined tables, the last one with other properties."""
    return [
        {**TABLE, "name": "people", "number": 8, "lsn": 8},
        {**TABLE, "name": "cities", "number": 9, "lsn": 9, **properties},
    ]


def test_joining_read_requires_the_latest_records(machine, token):
    change_tables(machine, *joined_tables())
    routed = ask(machine, token, **read_fields(predicate=JOINS))
    assert [message["route"]["latest"] for _, message in routed] == [True, True]
    routed = ask(machine, token, "2", **read_fields(predicate=to_json(Predicate("a = 'lookup'"))))
    assert [message["route"]["latest"] for _, message in routed] == [False, False]
    routed = ask(machine, token, "3", **read_fields(latest=True))
    assert [message["route"]["latest"] for _, message in routed] == [True, True]


def test_continuous_read_requires_the_log_position_of_its_tables(machine, token):
    change_tables(machine, *joined_tables())
    routed = ask(machine, token, op="register", predicate=JOINS)
    assert {message["route"]["least"] for _, message in routed} == {9}
    send_tables(machine, {**TABLE, "lsn": 12}, *joined_tables(), lsn=21)
    routed = ask(machine, token, "2", op="register", predicate=JOINS)
    assert {message["route"]["least"] for _, message in routed} == {12}


@pytest.mark.parametrize("op", ["read", "register"])
def test_join_requires_access_to_the_joined_tables(machine, token, op):
    change_tables(machine, *joined_tables(apps=["bank"]))
    ((to, message),) = ask(machine, token, op=op, predicate=JOINS)
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "AccessDenied")


@pytest.mark.parametrize("op", ["read", "register"])
def test_join_with_an_unknown_table_is_refused(machine, token, op):
    change_tables(machine, joined_tables()[0])
    ((_, message),) = ask(machine, token, op=op, predicate=JOINS)
    assert (message["error"]["kind"], message["error"]["found"]) == ("TableProblem", "'cities'")


def test_read_with_a_lookup_in_an_unnamed_table_is_refused(machine, token):
    hidden = to_json(Predicate("lookup(by, 'a', 'n') = 1"))
    ((to, message),) = ask(machine, token, **read_fields(predicate=hidden))
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "PredicateError")


def test_read_of_an_unknown_table_is_refused(machine, token):
    ((to, message),) = ask(machine, token, **read_fields(name="u"))
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "TableProblem")
    assert machine._open == {}, "the request is closed"


def test_client_without_access_is_refused(machine, authority):
    change_tables(machine, {**TABLE, "acl": "user"})
    ((_, message),) = ask(machine, authority.issue("news", None, expires_s=100.0), **read_fields())
    assert message["error"]["kind"] == "AccessDenied"
    send_tables(machine, {**TABLE, "acl": "public"}, lsn=21)
    assert [op_of(message) for _, message in ask(machine, None, "2", **read_fields())] == ["read", "read"]


# -- the entries of tables


def test_gateway_without_tables_keeps_requests_until_it_has_them(started, token):
    ((to, message),) = sent(started.handle(0, LinkUp("me", "server")))
    assert (to, message["kind"]) == ("master", "follow")
    assert ask(started, token, **read_fields()) == []
    assert ask(started, token, "2", op="write", key="h") == [], "it is asking"
    acknowledged, question = send_tables(started, TABLE)
    assert (acknowledged[1]["kind"], question[1]["kind"]) == ("has", "has")
    routed = answer_question(started)
    assert [(to, op_of(message)) for to, message in routed] == [
        ("p1", "read"),
        ("p0", "read"),
        ("p0", "write"),
    ]
    assert started._waiting == {}


def test_tables_are_asked_for_again_while_requests_wait(started, token):
    effects = started.handle(0, LinkUp("me", "server"))
    assert not any(isinstance(effect, SetTimer) for effect in effects), "no request waits"
    ask(started, token, **read_fields())
    for now_us in range(200_000, 10_000_000, 200_000):
        effects = started.handle(now_us, TimerFired("tables"))
        assert [message["kind"] for _, message in sent(effects)] == ["follow"]
        assert effects[-1] == SetTimer("tables", 200_000)
    assert started.handle(10_000_000, TimerFired("tables")) == (), "its client sends it again"
    assert started._open == started._waiting == {}


def test_tables_are_used_for_a_while_without_asking(machine, token):
    routed = ask(machine, token, now_us=CONFIRMED_US - 1, **read_fields())
    assert [to for to, _ in routed] == ["p1", "p0"]
    ((to, question),) = ask(machine, token, "2", now_us=CONFIRMED_US, **read_fields())
    assert (to, question["kind"], question["lsn"]) == ("master", "has", 7)
    assert ask(machine, token, "3", now_us=CONFIRMED_US + 5, **read_fields()) == []
    routed = answer_question(machine, CONFIRMED_US + 10, 30)
    assert [to for to, _ in routed] == ["p1", "p0"] * 2
    assert machine._tables.lsn == 30
    assert ask(machine, token, "4", now_us=2 * CONFIRMED_US - 1, **read_fields())[0][0] == "p1"
    ((to, _),) = ask(machine, token, "5", now_us=2 * CONFIRMED_US, **read_fields())
    assert to == "master", "from when the question was sent, not from when it was answered"


def test_answer_with_an_alteration_comes_before_the_requests_that_wait(machine, authority):
    ask(machine, authority.issue("news", None, expires_s=100.0), now_us=CONFIRMED_US, **read_fields())
    altered = {"op": "table", "lsn": 19, "table": {**TABLE, "acl": "user", "lsn": 19}}
    acknowledged, refused = answer_question(machine, CONFIRMED_US, 19, [altered])
    assert (acknowledged[1]["kind"], acknowledged[1]["lsn"]) == ("has", 19)
    assert (refused[1]["kind"], refused[1]["error"]["kind"]) == ("refused", "AccessDenied")


def test_late_answer_confirms_nothing(machine, token):
    ask(machine, token, now_us=CONFIRMED_US, **read_fields())
    late = {"nonce": "of a former question", "after": 7, "through": 7}
    assert handle_event(machine, "log", "master", CONFIRMED_US, entries=[], **late) == [
        ("master", {"kind": "has", "lsn": 7, "nonce": "00000000"})
    ]
    assert len(machine._waiting) == 1
    gap = answer_question(machine, CONFIRMED_US, 40, after=9)
    assert [message["kind"] for _, message in gap] == ["follow"], "entries are missing: it takes all tables"
    assert len(machine._waiting) == 1


def test_gateway_with_a_position_that_the_log_does_not_have_takes_all_tables(machine, token):
    """It would ask again and again without an answer."""
    handle_event(machine, "log", "master", entries=[], after=7, through=1 << 40)
    ask(machine, token, now_us=CONFIRMED_US, **read_fields())
    unanswered = {"entries": [], "nonce": "00000000"}
    (follow,) = handle_event(machine, "log", "master", CONFIRMED_US, **unanswered)
    assert follow[1]["kind"] == "follow"
    send_tables(machine, TABLE, now_us=CONFIRMED_US)
    assert [op_of(message) for _, message in answer_question(machine, CONFIRMED_US)] == ["read", "read"]


def test_reads_go_on_while_the_back_end_does_not_answer(machine, token, authority):
    """Only what is admitted is passed on: an outdated table may refuse what a later one admits."""
    at_us = CONFIRMED_US
    ask(machine, token, now_us=at_us, **read_fields())
    ask(machine, token, "2", now_us=at_us, name="created since", op="read")
    ask(machine, None, "3", now_us=at_us, **read_fields())
    ask(machine, token, "4", now_us=at_us, op="write", key="h")
    for past_us in range(200_000, UNANSWERED_US, 200_000):
        ((to, _),) = sent(machine.handle(at_us + past_us, TimerFired("tables")))
        assert to == "master"
    routed = sent(machine.handle(at_us + UNANSWERED_US, TimerFired("tables")))
    assert [(to, message["kind"]) for to, message in routed] == [
        ("p1", "routed"), ("p0", "routed"), ("p0", "routed"), ("master", "has"),
    ]  # fmt: skip
    created = {"op": "table", "lsn": 19, "table": {**TABLE, "name": "created since", "number": 19}}
    answered = answer_question(machine, at_us + UNANSWERED_US, 19, [created])
    assert [message["kind"] for _, message in answered] == ["has", "routed", "routed", "refused"]


def test_dropped_table_is_unknown(machine, token):
    ((_, acknowledged),) = change_tables(machine, drop=["t"])
    assert (acknowledged["kind"], acknowledged["lsn"]) == ("has", 20)
    ((_, refused),) = ask(machine, token, **read_fields())
    assert refused["error"]["kind"] == "TableProblem"
    assert change_tables(machine, TABLE)[0][1]["lsn"] == 20, "a late copy"
    assert machine._tables.tables == {}


def test_other_incarnation_of_the_log_ends_the_confirmation(machine, token):
    """A restored back end may have other tables; a late copy of a former one cannot answer the question."""
    lineage = {"later": 5}
    ((_, question),) = handle_event(machine, "log", "master", entries=[], lineage=lineage)
    assert question == {"kind": "has", "lsn": 7, "nonce": "00000000"}
    assert ask(machine, token, start="later", **read_fields()) == []
    assert machine._tables.tables
    (follow,) = (
        message for _, message in handle_event(
            machine, "log", "master", entries=[], lineage=lineage, nonce="00000000"
        ) if message["kind"] == "follow"
    )  # fmt: skip
    assert machine._tables.tables == {}, "what the restored log does not have"
    assert follow["turn"]
    acknowledged, question = send_tables(machine, TABLE, lineage=lineage, lsn=6)
    assert ("nonce" in acknowledged[1], "nonce" in question[1]) == (False, True)
    assert [op_of(message) for _, message in answer_question(machine, lineage=lineage)] == ["read", "read"]


def test_client_of_a_former_incarnation_is_told_by_an_answer_that_was_asked_for_since(started, token):
    send_tables(started, TABLE, lineage={"a": 3, "b": 6})
    confirm(started, lineage={"a": 3, "b": 6})
    for number, (start, shared) in enumerate([("", 2), ("a", 5), ("unknown", 0)], 1):
        known, identity = {"start": start} if start else {}, str(number)
        ((to, question),) = ask(started, token, identity, now_us=number * 100, **known, **read_fields())
        assert (to, question["kind"], question["start"]) == ("master", "has", "b")
        ((to, restarted),) = answer_question(started, number * 100 + 1, lineage={"a": 3, "b": 6})
        assert (to, restarted) == ("jane", {
            "kind": "restarted", "id": id_of(identity), "start": "b", "before": start, "shared": shared,
        })  # fmt: skip


def test_back_end_that_was_wiped_hears_which_incarnation_a_client_knows(machine, token):
    ((_, question),) = ask(machine, token, start="theirs", now_us=10, **read_fields())
    assert question == {"kind": "has", "lsn": 7, "start": "theirs", "nonce": "00000000"}
    lineage = {"own": 5}
    again = handle_event(machine, "log", "master", 20, entries=[], lineage=lineage, nonce="00000000")
    assert [message["kind"] for _, message in again] == ["follow"], "the tables are lost"
    send_tables(machine, lsn=4, lineage=lineage, now_us=20)
    ((_, restarted),) = answer_question(machine, 30, lineage=lineage)
    assert (restarted["kind"], restarted["start"], restarted["before"]) == ("restarted", "own", "theirs")


@pytest.mark.parametrize("op", ["read", "write", "create", "register"])
def test_forged_token_is_refused_at_once(machine, op):
    forged = Authority(bytes(31) + b"x").issue("news", "jane", expires_s=100.0)
    ((to, message),) = ask(machine, forged, op=op)
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "AccessDenied")


def test_write_with_an_expired_token_is_passed_to_the_back_end(machine, token):
    ((_, message),) = ask(machine, token, now_us=100_000_000, **read_fields())
    assert message["error"]["kind"] == "TokenExpired"
    confirm(machine, 100_000_000)
    ((to, message),) = ask(machine, token, op="write", key="h", now_us=100_000_000)
    assert (to, op_of(message), message["verified"]["refused"]["kind"]) == ("p0", "write", "TokenExpired")
    ((_, message),) = ask(machine, token, "2", op="write", key="h", now_us=99_999_999)
    assert message["verified"]["refused"] is None


def test_write_to_an_unknown_or_closed_table_is_passed_on(machine, token):
    ((to, message),) = ask(machine, token, op="write", name="u", key="h")
    assert (to, op_of(message)) == ("p0", "write")
    ((to, message),) = ask(machine, None, "2", op="write", key="h")
    assert (to, message["verified"]["claims"]) == ("p0", None)


def test_continuous_read_keeps_the_number_of_a_dropped_table(machine, token):
    for identity, known, expected in (("1", None, TABLE["number"]), ("2", 1, 1)):
        routed = ask(machine, token, identity, op="register", table=known)
        assert {message["route"]["table"] for _, message in routed} == {expected}


def test_continuous_read_of_a_dropped_table_goes_to_the_processor_of_its_number(machine, token):
    """Another processor does not serve its partitions, and never answered."""
    for identity, known in (("1", 1), ("2", 2), ("3", 3)):
        routes = {
            to: message["route"] for to, message in ask(machine, token, identity, op="register", table=known)
        }
        assert {route["table"] for route in routes.values()} == {known}
        assert [routes[f"p{(known + partition) % 2}"]["partitions"] for partition in (0, 1)] == [[0], [1]]


def test_continuous_read_goes_to_each_processor_of_the_table(machine, token):
    change_tables(machine, {**TABLE, "split": ["g", "p"]})
    routed = ask(machine, token, op="register")
    assert {to: message["route"]["partitions"] for to, message in routed} == {"p1": [0, 2], "p0": [1]}
    assert {message["verified"]["claims"]["expires_s"] for _, message in routed} == {100.0}
    assert [
        message["kind"] for _, message in handle_event(machine, "registered", "p0", id=id_of("1"), of="1")
    ] == ["registered"]
    assert is_dropped(machine, "registered", "elsewhere", id=id_of("1"))
    assert [
        message["kind"] for _, message in handle_event(machine, "registered", "p1", id=id_of("1"), of="0 2")
    ] == [
        "registered",
        "complete",
    ]
    send_tables(machine, {**TABLE, "acl": "public"}, lsn=21)
    routed = ask(machine, None, "2", op="register")
    assert {message["verified"]["claims"] for _, message in routed} == {None}


def assign(machine, epoch, *moved, source="naming", processors=("p0", "p1")):
    """Send a gateway assignments, also of partitions that have moved; return what it sends."""
    return handle_event(
        machine, "assignments", source, epoch=epoch, servers=["server"], processors=[*processors] * 12,
        moved=[list(one) for one in moved],
    )  # fmt: skip


def list_partitions(messages):
    """Return the partitions that each processor is asked for."""
    return {to: message["route"]["partitions"] for to, message in messages if message["kind"] == "routed"}


def test_requests_go_to_the_processor_that_a_partition_has_moved_to(machine, token):
    change_tables(machine, {**TABLE, "split": ["g", "p"]})
    assert assign(machine, 2, (3, "0", "p0")) == [("naming", {"kind": "assigned", "epoch": 2})]
    assert list_partitions(ask(machine, token, "1", op="register")) == {"p0": [0, 1], "p1": [2]}
    assert list_partitions(ask(machine, token, "2", op="write", key="a")) == {"p0": []}
    ((_, late),) = assign(machine, 1)
    assert (late["epoch"], late["moved"]) == (2, [[3, "0", "p0"]])
    assert list_partitions(ask(machine, token, "3", op="register")) == {"p0": [0, 1], "p1": [2]}
    for odd in ({"source": "master"}, {"moved": [[3, "0", "nobody"]]}, {"processors": ["p0"]}):
        message = {
            "servers": ["server"],
            "processors": ["p0", "p1"] * 12,
            "moved": [],
            "source": "naming",
        } | odd
        assert is_dropped(machine, "assignments", epoch=3, **message)
    assign(machine, 3)
    assert list_partitions(ask(machine, token, "4", op="register")) == {"p1": [0, 2], "p0": [1]}


@pytest.mark.parametrize("op", ["read", "write", "register", "update_data", "unregister"])
def test_open_requests_go_to_the_processor_that_serves_the_partition_now(machine, token, op):
    change_tables(machine, {**TABLE, "split": ["g"]})
    routed = list_partitions(ask(machine, token, op=op))
    assert routed == ({"p1": []} if op == "write" else {"p1": [0], "p0": [1]})
    if op != "write":
        answer = {"read": ("part", {"partition": 1}), "write": None}.get(op, ("registered", {"of": "1"}))
        handle_event(machine, answer[0], "r" if op == "read" else "p0", id="jane/news 1", **answer[1])
    moved = assign(machine, 1, processors=("p0", "p0"))
    # A processor registers all that it has of a continuous read together.
    assert list_partitions(moved) == {"p0": {"write": [], "read": [0]}.get(op, [0, 1])}
    assert [message["what"]["op"] for _, message in moved if message["kind"] == "routed"] == [op]
    assert list_partitions(assign(machine, 2, processors=("p0", "p0"))) == {}


def test_processor_that_knows_less_gets_the_assignments_and_the_registration_again(machine, token):
    assign(machine, 2, processors=("p1", "p0"))
    routed = list_partitions(ask(machine, token, op="register"))
    answered = assign(machine, 1, source="p0")
    assert answered[0][1]["kind"] == "assignments"
    assert list_partitions(answered) == {"p0": routed["p0"]}
    assert list_partitions(assign(machine, 2, source="p0", processors=("p1", "p0"))) == {}


def list_suspected(messages):
    return [(to, message["address"]) for to, message in messages if message["kind"] == "suspect"]


def test_processor_that_does_not_answer_a_request_that_comes_again_is_reported(machine, token):
    for at_us, expected in ((0, []), (9_000_000, []), (10_000_000, ["p1", "p0"]), (10_500_000, [])):
        confirm(machine, at_us)
        messages = ask(machine, token, op="register", now_us=at_us)
        assert list_suspected(messages) == [("naming", processor) for processor in expected]


def test_processor_that_is_not_there_is_reported_at_once(machine):
    for to, expected in (("p1", [("naming", "p1")]), ("r", []), ("jane/mud", [])):
        assert list_suspected(sent(machine.handle(0, SendFailed(to, None)))) == expected


OUTCOME = {"kind": "outcome", "key": "a", "ver": 1, "lsn": 1, "partition": 0, "table": 3}
ANSWERS = {
    "read": ("r", {"kind": "part", "partition": 0}),
    "write": ("master", OUTCOME),
    "create": ("master", {"kind": "administered", "table": TABLE}),
    "register": ("p1", {"kind": "registered"}),
}


@pytest.mark.parametrize("op", ANSWERS)
def test_answers_that_do_not_fit_the_request_are_dropped(machine, token, op):
    ask(machine, token, op=op)
    for other, (source, answer) in ANSWERS.items():
        if other != op:
            assert is_dropped(machine, source=source, id=id_of("1"), **answer)
    source, answer = ANSWERS[op]
    assert handle_event(machine, source=source, id=id_of("1"), **answer) != []


@pytest.mark.parametrize(("client", "source"), [
    ("bob/news", "jane"), ("jane", "jane"), ("jane/b/news", "jane"), ("/news", "jane"), ("jane/news\n", "jane"),
])  # fmt: skip
def test_request_in_the_name_of_another_client_is_dropped(machine, client, source):
    assert is_dropped(machine, source=source, **build_ask("1", client, op="read"))
    assert is_dropped(machine, source=source, **{**build_ask("1", op="read"), "id": f"{client} 1"})


def test_request_id_must_begin_with_exactly_its_client(machine):
    """Distinguish clients although names of apps and devices may contain blanks."""
    genuine = build_ask("1", "jane/a b/news", op="read")
    (refused,) = machine.handle(0, Received("x/mud", genuine, "jane/a b"))
    assert refused.message.id == "jane/a b/news 1"
    forged = {**genuine, "client": "jane/a"}
    assert machine.handle(0, Received("jane/mud", forged, "jane"))[0].row["incident"] == "dropped"


def test_device_may_have_a_slash_in_its_name(machine):
    message = build_ask("1", "jane/b/news", op="read")
    (refused,) = machine.handle(0, Received("jane/b/mud", message, "jane/b"))
    assert isinstance(refused.message, RequestRefused)
    assert machine.handle(0, Received("jane/mud", message, "jane"))[0].row["incident"] == "dropped"


@pytest.mark.parametrize("op", ["create", "alter", "drop"])
def test_table_requests_go_to_the_back_end(machine, token, op):
    ((to, message),) = ask(machine, token, op=op, known=4)
    assert (to, op_of(message), message["verified"]["claims"]["app"]) == ("master", op, "news")
    assert message["what"]["known"] == 4, "of earlier ones the client has the results"
    assert is_dropped(machine, "administered", "master", id=id_of("1"), table=None), "a drop names the number"
    ((to, message),) = handle_event(
        machine, "administered", "master", id=id_of("1"), table=None, dropped=3, claims=CLAIMS
    )
    assert (to, message["claims"]["user"]) == ("jane", "jane")
    assert handle_event(machine, "administered", "master", id=id_of("1"), table=None, dropped=3) == []


def test_oldest_open_request_is_evicted(started, token, monkeypatch):
    monkeypatch.setattr(gateway, "_MAX_OPEN", 2)
    for identity in ("1", "2", "1", "3"):  # the first is repeated
        ask(started, token, identity, **read_fields())
    send_tables(started, TABLE)
    assert [message["id"] for _, message in answer_question(started)] == [id_of(name) for name in "1133"]


@pytest.mark.parametrize("source", ["jane/rogue", "jane/mud-news", "jane"])
def test_only_the_service_of_a_device_asks(machine, source):
    """Another program of the phone cannot: the phone vouches for the name of the service's machine."""
    (effect,) = machine.handle(0, Received(source, build_ask(op="read"), "jane"))
    assert effect.row["incident"] == "dropped"


@pytest.mark.parametrize("op", ["read", "write", "create", "register"])
def test_token_of_another_app_is_refused(machine, authority, op):
    """A token proves one app; without this check an app would ask under the name of another one."""
    token = authority.issue("chat", "jane", expires_s=100.0)
    ((_, refused),) = ask(machine, token=token, op=op)
    assert (refused["kind"], refused["error"]["kind"]) == ("refused", "AccessDenied")
    assert refused["error"]["summary"] == "The token is of another app."


def test_gateway_answers_what_it_knows_of_a_table_when_its_tables_are_confirmed(started):
    question = {"name": "t", "sent_us": 3}
    handle_event(started, "table?", "naming", **question)
    send_tables(started, TABLE)
    assert [to for to, _ in handle_event(started, "table?", "naming", **question)] == ["master"]
    answer_question(started)
    ((to, answer),) = handle_event(started, "table?", "naming", **question)
    assert (to, answer) == ("naming", {"kind": "table", **question, "number": 3, "partitions": 2})
    ((_, answer),) = handle_event(started, "table?", "naming", name="u", sent_us=4)
    assert answer["error"]["summary"] == "There is no such table."


def test_request_that_waits_and_comes_again_waits_no_more_when_it_is_passed_on(machine, token):
    """Its client has heard of the log's incarnation from the answer to another request in between."""
    ((to, question),) = ask(machine, token, start="theirs", now_us=10, **read_fields())
    assert (to, question["kind"]) == ("master", "has")
    passed = ask(machine, token, now_us=20, **read_fields())
    assert [op_of(message) for _, message in passed] == ["read", "read"]
    for _, routed in passed:
        (partition,) = routed["route"]["partitions"]
        answer = handle_event(machine, "part", "r", 30, id=routed["id"], partition=partition)
    assert [message["kind"] for _, message in answer] == ["part", "complete"]
    assert sent(machine.handle(10**6, TimerFired("tables"))) == []


def test_messages_of_other_incarnations_open_some_questions_at_a_time(machine):
    """Damaged copies may open a question each, whose answers open others, without an end."""

    def count_questions(now_us):
        messages = [
            handle_event(machine, "log", "master", now_us, entries=[], lineage={f"{number}": 5})
            for number in range(3 * MAX_QUESTIONS)
        ]
        assert [message["lsn"] for ((_, message),) in messages] == [7] * len(messages)
        return sum("nonce" in message for ((_, message),) in messages)

    assert count_questions(QUESTIONS_US) == MAX_QUESTIONS
    assert count_questions(2 * QUESTIONS_US - 1) == 0
    assert count_questions(2 * QUESTIONS_US) == MAX_QUESTIONS

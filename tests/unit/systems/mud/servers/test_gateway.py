"""Gateway machine: access, routing, and completion of requests."""

from __future__ import annotations

import pytest
from mud_machines import build_request as build_ask
from mud_machines import handle_event, is_dropped, op_of, ports

from mudkit.events import Received
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud.messages.servers import Describe
from mudkit.systems.mud.servers import gateway
from mudkit.systems.mud.servers.gateway import Gateway
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
def machine(authority):
    return Gateway(ports("me"), authority, "master", ["p0", "p1"], ["r"])


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


def describe(machine, identity="1", table=TABLE, joined=(), **properties):
    table = None if table is None else {**table, **properties}
    return handle_event(
        machine,
        "described",
        "master",
        id=id_of(identity),
        table=table,
        joined=joined,
        error={"kind": "TableProblem", "summary": "no"} if table is None else None,
    )


def test_read_goes_to_each_partition_and_completes_after_the_last(machine, token):
    assert ask(machine, token, **read_fields(seen={"0": 5, "1": 9}))[0] == (
        "master",
        {"kind": "describe", "id": id_of("1"), "name": "t", "claims": CLAIMS},
    )
    routed = describe(machine)
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
    ask(machine, token, **read_fields(seen={"0": 50}, table=2))
    assert [message["route"]["least"] for _, message in describe(machine)] == [7, 7]


def test_read_of_named_keys_goes_only_to_their_partitions(machine, token):
    ask(machine, token, **read_fields(keys=["h", "z"]))
    assert [message["route"]["partitions"] for _, message in describe(machine)] == [[1]]
    ask(machine, token, "2", **read_fields(keys=[]))
    assert [message["kind"] for _, message in describe(machine, "2")] == ["complete"]


JOINS = to_json(
    Predicate("lookup('people', by, 'n') = lookup('cities', city, 'n') AND lookup('people', 'a', 'n') = 1")
)


def joined_tables(**properties):
    """Return descriptions of the joined tables, the last one with other properties."""
    return [{**TABLE, "name": "people", "lsn": 8}, {**TABLE, "name": "cities", "lsn": 9, **properties}]


def test_joining_read_requests_its_tables_and_the_latest_records(machine, token):
    assert ask(machine, token, **read_fields(predicate=JOINS)) == [
        ("master", {
            "kind": "describe", "id": id_of("1"), "name": "t", "claims": CLAIMS, "joined": ["people", "cities"],
        }),
    ]  # fmt: skip
    routed = describe(machine, joined=joined_tables())
    assert [message["route"]["latest"] for _, message in routed] == [True, True]
    ask(machine, token, "2", **read_fields(predicate=to_json(Predicate("a = 'lookup'"))))
    assert [message["route"]["latest"] for _, message in describe(machine, "2")] == [False, False]
    ask(machine, token, "3", **read_fields(latest=True))
    assert [message["route"]["latest"] for _, message in describe(machine, "3")] == [True, True]


def test_continuous_read_requires_the_log_position_of_its_tables(machine, token):
    ask(machine, token, op="register", predicate=JOINS)
    assert {message["route"]["least"] for _, message in describe(machine, joined=joined_tables())} == {9}
    ask(machine, token, "2", op="register", predicate=JOINS)
    routed = describe(machine, "2", joined=joined_tables(), lsn=12)
    assert {message["route"]["least"] for _, message in routed} == {12}


@pytest.mark.parametrize("op", ["read", "register"])
def test_join_requires_access_to_the_joined_tables(machine, token, op):
    ask(machine, token, op=op, predicate=JOINS)
    ((to, message),) = describe(machine, joined=joined_tables(apps=["bank"]))
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "AccessDenied")


def test_read_with_a_lookup_in_an_unnamed_table_is_refused(machine, token):
    hidden = to_json(Predicate("lookup(by, 'a', 'n') = 1"))
    ((to, message),) = ask(machine, token, **read_fields(predicate=hidden))
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "PredicateError")
    assert describe(machine) == []


def test_duplicate_and_unknown_descriptions_are_ignored(machine, token):
    ask(machine, token, **read_fields())
    assert describe(machine)
    assert describe(machine) == []
    assert describe(machine, "another") == []


def test_read_of_an_unknown_table_is_refused(machine, token):
    ask(machine, token, **read_fields())
    ((to, message),) = describe(machine, table=None)
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "TableProblem")
    assert describe(machine) == []  # the request is closed


def test_client_without_access_is_refused(machine, authority):
    ask(machine, authority.issue("news", None, expires_s=100.0), **read_fields())
    ((_, message),) = describe(machine, acl="user")
    assert message["error"]["kind"] == "AccessDenied"
    ask(machine, None, "2", **read_fields())
    assert [op_of(message) for _, message in describe(machine, "2", acl="public")] == ["read", "read"]


@pytest.mark.parametrize("op", ["read", "write", "create", "register"])
def test_forged_token_is_refused_at_once(machine, op):
    forged = Authority(bytes(31) + b"x").issue("news", "jane", expires_s=100.0)
    ((to, message),) = ask(machine, forged, op=op)
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "AccessDenied")


def test_write_with_an_expired_token_is_passed_to_the_back_end(machine, token):
    ((_, message),) = ask(machine, token, now_us=100_000_000, **read_fields())
    assert message["error"]["kind"] == "TokenExpired"
    ((to, _),) = ask(machine, token, op="write", key="h", now_us=100_000_000)
    assert to == "master"
    ((to, message),) = describe(machine)
    assert (to, op_of(message), message["verified"]["refused"]["kind"]) == ("p0", "write", "TokenExpired")
    ask(machine, token, "2", op="write", key="h", now_us=99_999_999)
    ((_, message),) = describe(machine, "2")
    assert message["verified"]["refused"] is None


def test_write_to_an_unknown_or_closed_table_is_passed_on(machine, token):
    ask(machine, token, op="write", key="h")
    ((to, message),) = describe(machine, table=None)
    assert (to, op_of(message)) == ("p0", "write")
    ask(machine, None, "2", op="write", key="h")
    ((to, message),) = describe(machine, "2")
    assert (to, message["verified"]["claims"]) == ("p0", None)


def test_continuous_read_keeps_the_number_of_a_dropped_table(machine, token):
    for identity, known, expected in (("1", None, TABLE["number"]), ("2", 1, 1)):
        ask(machine, token, identity, op="register", table=known)
        assert {message["route"]["table"] for _, message in describe(machine, identity)} == {expected}


def test_continuous_read_goes_to_each_processor_of_the_table(machine, token):
    ask(machine, token, op="register")
    routed = describe(machine, split=["g", "p"])
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
    ask(machine, None, "2", op="register")
    routed = describe(machine, "2", acl="public")
    assert {message["verified"]["claims"] for _, message in routed} == {None}


def test_requests_go_to_the_processor_that_a_partition_has_moved_to(machine, token):
    def list_partitions(identity, **what):
        ask(machine, token, identity, **what)
        return {
            to: message["route"]["partitions"]
            for to, message in describe(machine, identity, split=["g", "p"])
        }

    assert handle_event(machine, "partitions moved", "master", epoch=2, moved=[[3, "0", "p0"]]) == []
    assert list_partitions("1", op="register") == {"p0": [0, 1], "p1": [2]}
    assert list_partitions("2", op="write", key="a") == {"p0": []}
    assert handle_event(machine, "partitions moved", "master", epoch=1, moved=[]) == []  # a late copy
    assert list_partitions("3", op="register") == {"p0": [0, 1], "p1": [2]}
    assert is_dropped(machine, "partitions moved", "p0", epoch=3, moved=[])
    assert handle_event(machine, "partitions moved", "master", epoch=3, moved=[]) == []
    assert list_partitions("4", op="register") == {"p1": [0, 2], "p0": [1]}


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
    error = {"kind": "TableProblem", "summary": "no"}
    for table, table_error in ((TABLE, error), (None, None), ({**TABLE, "name": "u"}, None)):
        assert is_dropped(machine, "described", "master", id=id_of("1"), table=table, error=table_error)
    if op == "create":
        assert is_dropped(machine, "described", "master", id=id_of("1"), table=TABLE)
    else:
        describe(machine)
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
    assert isinstance(machine.handle(0, Received("x/mud", genuine, "jane/a b"))[0].message, Describe)
    forged = {**genuine, "client": "jane/a"}
    assert machine.handle(0, Received("jane/mud", forged, "jane"))[0].row["incident"] == "dropped"


def test_device_may_have_a_slash_in_its_name(machine):
    message = build_ask("1", "jane/b/news", op="read")
    effects = machine.handle(0, Received("jane/b/mud", message, "jane/b"))
    assert [type(effect.message) for effect in effects] == [Describe]
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


def test_oldest_open_request_is_evicted(machine, token, monkeypatch):
    monkeypatch.setattr(gateway, "_MAX_OPEN", 2)
    for identity in ("1", "2", "1", "3"):  # the first is repeated
        ask(machine, token, identity, **read_fields())
    assert describe(machine, "2") == []
    assert describe(machine, "1")
    assert describe(machine, "3")


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

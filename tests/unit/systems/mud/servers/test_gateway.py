"""A gateway by itself: who may ask, and whom it asks."""

from __future__ import annotations

import pytest
from mud_machines import ask as asked_by
from mud_machines import is_dropped, ports, told

from mudkit.events import Received
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud.messages import Describe
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
    return told(
        machine, source="jane", now_us=now_us, **asked_by(identity, token=token, **{"op": "read", **what})
    )


def id_of(identity):
    return f"jane/news {identity}"


def read(**more):
    return {"table": 3, **more}


def described(machine, identity="1", table=TABLE, joined=(), **changed):
    table = None if table is None else {**table, **changed}
    return told(
        machine,
        "described",
        "master",
        id=id_of(identity),
        table=table,
        joined=joined,
        error={"kind": "TableProblem", "summary": "no"} if table is None else None,
    )


def test_a_read_goes_to_each_partition_and_is_complete_after_the_last(machine, token):
    assert ask(machine, token, **read(seen={"0": 5, "1": 9}))[0] == (
        "master",
        {"kind": "describe", "id": id_of("1"), "name": "t", "claims": CLAIMS},
    )
    asked = described(machine)
    assert [(to, message["partition"], message["least"]) for to, message in asked] == [
        ("p1", 0, 7),
        ("p0", 1, 9),
    ]
    assert [m["kind"] for _, m in told(machine, "part", "r", id=id_of("1"), partition=1)] == ["part"]
    assert told(machine, "part", "r", id=id_of("1"), partition=1) == []  # again
    (_, part), (to, last) = told(machine, "part", "r", id=id_of("1"), partition=0)
    assert part["place"] == 0
    assert (to, last["kind"], last["places"], last["claims"]["user"]) == ("jane", "complete", [0, 1], "jane")
    assert told(machine, "part", "r", id=id_of("1"), partition=0) == []


def test_what_was_seen_of_another_table_of_that_name_does_not_count(machine, token):
    ask(machine, token, **read(seen={"0": 50}, table=2))
    assert [message["least"] for _, message in described(machine)] == [7, 7]


def test_only_the_partitions_of_named_keys_are_asked(machine, token):
    ask(machine, token, **read(keys=["h", "z"]))
    assert [message["partition"] for _, message in described(machine)] == [1]
    ask(machine, token, "2", **read(keys=[]))
    assert [message["kind"] for _, message in described(machine, "2")] == ["complete"]


JOINS = to_json(
    Predicate("lookup('people', by, 'n') = lookup('cities', city, 'n') AND lookup('people', 'a', 'n') = 1")
)


def joined(**changed):
    """The tables that a read looks into, as they are described: the last one as is given."""
    return [{**TABLE, "name": "people", "lsn": 8}, {**TABLE, "name": "cities", "lsn": 9, **changed}]


def test_a_read_that_looks_into_other_tables_asks_for_them_too_and_the_master_for_its_records(machine, token):
    assert ask(machine, token, **read(predicate=JOINS)) == [
        ("master", {
            "kind": "describe", "id": id_of("1"), "name": "t", "claims": CLAIMS, "joined": ["people", "cities"],
        }),
    ]  # fmt: skip
    assert [message["latest"] for _, message in described(machine, joined=joined())] == [True, True]
    ask(machine, token, "2", **read(predicate=to_json(Predicate("a = 'lookup'"))))
    assert [message["latest"] for _, message in described(machine, "2")] == [False, False]


def test_a_continuous_read_waits_until_a_processor_knows_what_it_looks_into(machine, token):
    ask(machine, token, op="register", predicate=JOINS)
    assert {message["least"] for _, message in described(machine, joined=joined())} == {9}
    ask(machine, token, "2", op="register", predicate=JOINS)
    assert {message["least"] for _, message in described(machine, "2", joined=joined(), lsn=12)} == {12}


@pytest.mark.parametrize("op", ["read", "register"])
def test_who_may_not_come_into_a_table_may_not_look_into_it(machine, token, op):
    ask(machine, token, op=op, predicate=JOINS)
    ((to, message),) = described(machine, joined=joined(apps=["bank"]))
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "AccessDenied")


def test_a_read_that_does_not_name_what_it_looks_into_is_refused(machine, token):
    hidden = to_json(Predicate("lookup(by, 'a', 'n') = 1"))
    ((to, message),) = ask(machine, token, **read(predicate=hidden))
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "PredicateError")
    assert described(machine) == []


def test_a_table_is_described_once(machine, token):
    ask(machine, token, **read())
    assert described(machine)
    assert described(machine) == []
    assert described(machine, "another") == []


def test_without_a_table_there_is_nothing_to_read(machine, token):
    ask(machine, token, **read())
    ((to, message),) = described(machine, table=None)
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "TableProblem")
    assert described(machine) == []  # it is over


def test_who_may_not_come_in_is_told_so(machine, authority):
    ask(machine, authority.issue("news", None, expires_s=100.0), **read())
    ((_, message),) = described(machine, acl="user")
    assert message["error"]["kind"] == "AccessDenied"
    ask(machine, None, "2", **read())
    assert [message["kind"] for _, message in described(machine, "2", acl="public")] == ["read", "read"]


@pytest.mark.parametrize("op", ["read", "write", "create", "register"])
def test_a_forged_token_is_refused_at_once(machine, op):
    forged = Authority(bytes(31) + b"x").issue("news", "jane", expires_s=100.0)
    ((to, message),) = ask(machine, forged, op=op)
    assert (to, message["kind"], message["error"]["kind"]) == ("jane", "refused", "AccessDenied")


def test_whether_a_write_was_applied_before_its_token_expired_is_for_the_back_end(machine, token):
    ((_, message),) = ask(machine, token, now_us=100_000_000, **read())
    assert message["error"]["kind"] == "TokenExpired"
    ((to, _),) = ask(machine, token, op="write", key="h", now_us=100_000_000)
    assert to == "master"
    ((to, message),) = described(machine)
    assert (to, message["kind"], message["refused"]["kind"]) == ("p0", "write", "TokenExpired")
    ask(machine, token, "2", op="write", key="h", now_us=99_999_999)
    ((_, message),) = described(machine, "2")
    assert message["refused"] is None


def test_a_write_goes_on_though_its_table_is_gone_or_closed(machine, token):
    ask(machine, token, op="write", key="h")
    ((to, message),) = described(machine, table=None)
    assert (to, message["kind"]) == ("p0", "write")
    ask(machine, None, "2", op="write", key="h")
    ((to, message),) = described(machine, "2")
    assert (to, message["claims"]) == ("p0", None)


def test_a_continuous_read_of_a_table_that_was_dropped_is_not_of_another_of_its_name(machine, token):
    for identity, known, asked in (("1", None, TABLE["number"]), ("2", 1, 1)):
        ask(machine, token, identity, op="register", table=known)
        assert {message["table"] for _, message in described(machine, identity)} == {asked}


def test_a_continuous_read_goes_to_each_processor_of_the_table(machine, token):
    ask(machine, token, op="register")
    asked = described(machine, split=["g", "p"])
    assert {to: message["partitions"] for to, message in asked} == {"p1": [0, 2], "p0": [1]}
    assert {message["claims"]["expires_s"] for _, message in asked} == {100.0}
    assert [m["kind"] for _, m in told(machine, "registered", "p0", id=id_of("1"))] == ["registered"]
    assert is_dropped(machine, "registered", "elsewhere", id=id_of("1"))
    assert [m["kind"] for _, m in told(machine, "registered", "p1", id=id_of("1"))] == [
        "registered",
        "complete",
    ]
    ask(machine, None, "2", op="register")
    assert {message["claims"] for _, message in described(machine, "2", acl="public")} == {None}


OUTCOME = {"kind": "outcome", "key": "a", "ver": 1, "lsn": 1, "partition": 0, "table": 3}
ANSWERS = {
    "read": ("r", {"kind": "part", "partition": 0}),
    "write": ("master", OUTCOME),
    "create": ("master", {"kind": "administered", "table": TABLE}),
    "register": ("p1", {"kind": "registered"}),
}


@pytest.mark.parametrize("op", ANSWERS)
def test_what_is_no_answer_to_what_was_asked_is_odd(machine, token, op):
    ask(machine, token, op=op)
    for other, (source, answer) in ANSWERS.items():
        if other != op:
            assert is_dropped(machine, source=source, id=id_of("1"), **answer)
    error = {"kind": "TableProblem", "summary": "no"}
    for table, why in ((TABLE, error), (None, None), ({**TABLE, "name": "u"}, None)):
        assert is_dropped(machine, "described", "master", id=id_of("1"), table=table, error=why)
    if op == "create":
        assert is_dropped(machine, "described", "master", id=id_of("1"), table=TABLE)
    else:
        described(machine)
    source, answer = ANSWERS[op]
    assert told(machine, source=source, id=id_of("1"), **answer) != []


@pytest.mark.parametrize(("client", "source"), [
    ("bob/news", "jane"), ("jane", "jane"), ("jane/b/news", "jane"), ("/news", "jane"), ("jane/news\n", "jane"),
])  # fmt: skip
def test_who_asks_in_anothers_name_is_not_heard(machine, client, source):
    assert is_dropped(machine, source=source, **asked_by("1", client, op="read"))
    assert is_dropped(machine, source=source, **{**asked_by("1", op="read"), "id": f"{client} 1"})


def test_an_ask_is_of_the_client_that_its_name_begins_with_and_no_longer_one(machine):
    """An app may have a blank in its name, and so may a device."""
    theirs = asked_by("1", "jane/a b/news", op="read")
    assert isinstance(machine.handle(0, Received("x/mud-news", theirs, "jane/a b"))[0].message, Describe)
    mine = {**theirs, "client": "jane/a"}
    assert machine.handle(0, Received("jane/mud-a", mine, "jane"))[0].row["incident"] == "dropped"


def test_a_device_may_have_a_slash_in_its_name(machine):
    message = asked_by("1", "jane/b/news", op="read")
    effects = machine.handle(0, Received("jane/b/mud-news", message, "jane/b"))
    assert [type(each.message) for each in effects] == [Describe]
    assert machine.handle(0, Received("jane/mud-news", message, "jane"))[0].row["incident"] == "dropped"


@pytest.mark.parametrize("op", ["create", "alter", "drop"])
def test_requests_of_tables_go_to_the_back_end(machine, token, op):
    ((to, message),) = ask(machine, token, op=op)
    assert (to, message["kind"], message["claims"]["app"]) == ("master", "admin", "news")
    ((to, message),) = told(machine, "administered", "master", id=id_of("1"), table=None, dropped=3)
    assert (to, message["claims"]["user"]) == ("jane", "jane")
    assert told(machine, "administered", "master", id=id_of("1"), table=None, dropped=3) == []


def test_of_too_many_the_one_asked_longest_ago_is_forgotten(machine, token, monkeypatch):
    monkeypatch.setattr(gateway, "_MAX_OPEN", 2)
    for identity in ("1", "2", "1", "3"):  # the first is asked again
        ask(machine, token, identity, **read())
    assert described(machine, "2") == []
    assert described(machine, "1")
    assert described(machine, "3")

"""Servers that pass a message on: as it has come, with the sender that a gateway has verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET, inspect
from mud_machines import build_request, build_routed, list_sent_structs, ports

from mudkit.events import LinkUp, Received, Record
from mudkit.predicates import Predicate
from mudkit.systems.mud.messages.requests import (
    Administered,
    AdministrationRequest,
    AppsBatch,
    Ask,
    AskBatch,
    ContinuousReadAck,
    IdentifiedRequest,
    LogRestarted,
    Part,
    ReadRequest,
    Request,
    UsageTaken,
    WriteOutcome,
    WriteRequest,
)
from mudkit.systems.mud.messages.servers import FollowLog, Log, LogAck, Route, Routed, TablesState, Verified
from mudkit.systems.mud.messages.usage import UsageReport
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.committed_log import BEFORE_FIRST
from mudkit.systems.mud.servers.gateway import Gateway
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.servers.replica import Replica
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Authority, Claims
from mudkit.wire import as_wire

AUTHORITY = Authority(bytes(32))
TOKEN = AUTHORITY.issue("news", "jane", expires_s=100.0)
CLAIMS = Claims("news", "jane", None, 100.0)
SENDER = Verified(endpoint="jane/news", address="jane/mud", claims=CLAIMS)
TABLE = Table("t", "news", acl="app", split=["g", "p"], number=3, lsn=7)
PREDICATES = [SentPredicate.of(Predicate(text)) for text in ("n = 1", "lookup('t', key, 'n') = 2")]
PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3)


def draw_value(info: Any) -> st.SearchStrategy[Any]:
    """Return a strategy of the values of a type of messages."""
    match info:
        case inspect.StructType(cls=kind) if kind is SentPredicate:
            return st.sampled_from(PREDICATES)
        case inspect.StructType(cls=kind):
            return st.deferred(lambda: draw_struct(kind))
        case inspect.UnionType(types=types):
            return st.one_of([draw_value(part) for part in types])
        case inspect.Metadata(type=inner):
            return draw_value(inner)
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(0, 9)
        case inspect.FloatType():
            return st.floats(0, 9)
        case inspect.StrType():
            return st.text("ahz", min_size=1, max_size=3)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.ListType(item_type=inner):
            return st.lists(draw_value(inner), max_size=3)
        case inspect.TupleType(item_types=types):
            return st.tuples(*map(draw_value, types))
        case inspect.DictType() | inspect.MappingType():
            return st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 9), max_size=2)
    return PLAIN


@st.composite
def draw_struct(draw: st.DrawFn, kind: type[Any], **fixed: Any) -> Any:
    """Draw a struct whose fields are consistent; those that may be absent are, at times."""
    fields = dict(fixed)
    for field in inspect.type_info(kind).fields:
        if field.name in fixed:
            continue
        if field.required or draw(st.booleans()):
            fields[field.name] = draw(draw_value(field.type))
    try:
        return kind(**fields)
    except ValueError:
        assume(False)


def gateway(tables: Sequence[Table] = (), log_incarnation: str = "") -> Gateway:
    """Return a gateway whose tables are confirmed, in an incarnation of the log."""
    machine = Gateway(
        ports("gateway"), AUTHORITY, ["master"], ["p0", "p1"], ["r"], ["server"], "naming", "policies"
    )
    lineage = {log_incarnation: 1} if log_incarnation else UNSET
    machine.handle(0, Received("master", TablesState("", 7, [TABLE, *tables], [], lineage)))
    question, *_ = machine._tables.ask(0)
    machine.handle(0, Received("master", Log([], lineage, question.message.nonce, 7, 7)))
    return machine


def processor() -> Processor:
    machine = Processor(ports("p0"), ["p0"], ["master"], ["r"], ["gateway"], ["server"], "naming")
    machine.handle(0, LinkUp("p0", "server"))
    machine.handle(0, Received("master", TablesState(bytes(8).hex(), 7, [TABLE], [])))
    return machine


def handle(machine: Any, source: str, message: Any, host: str = "") -> list[tuple[str, Any]]:
    """Handle a message that is not dropped; return the sent structs."""
    effects = machine.handle(0, Received(source, message, host))
    assert not any(isinstance(effect, Record) for effect in effects), message
    return list_sent_structs(effects)


def passed_by(machine: Gateway, ask: Any) -> list[Routed[Request]]:
    """Return the messages by which a gateway passes on a request that has come alone or with others."""
    return [message for _, message in handle(machine, "jane/mud", ask, "jane")]


@pytest.mark.parametrize("kind", get_args(Request))
@examples(25)
@given(st.data())
def test_gateway_passes_a_request_on_as_its_client_has_sent_it(kind, data):
    """Alone, in a batch, or with those of other apps: nothing of it is declared or built again."""
    known = {"name": "t", "reader": {"age": 3}}
    fixed = {name: value for name, value in known.items() if name in kind.__struct_fields__}
    if kind is ReadRequest:
        fixed["keys"] = data.draw(st.none() | st.lists(st.sampled_from("ahz"), min_size=1))
    request = data.draw(draw_struct(kind, **fixed))
    alone = Ask("jane/news 1", "jane/news", TOKEN, request, data.draw(st.sampled_from([UNSET, "theirs"])))
    batch = AskBatch("jane/news", TOKEN, [IdentifiedRequest(alone.id, request)], alone.log_incarnation)
    for ask in (alone, batch, AppsBatch([alone])):
        passed = passed_by(gateway(log_incarnation=alone.log_incarnation or ""), ask)
        if kind is UsageReport:
            assert passed.pop() == UsageTaken("jane/news 1")
        assert passed
        for routed in passed:
            assert routed.what is request
            assert (routed.id, routed.verified) == ("jane/news 1", SENDER)
            assert routed.route.reply == "gateway"
            assert kind is UsageReport or routed.route.log_incarnation == alone.log_incarnation


@examples(25)
@given(st.data())
def test_processor_passes_a_read_on_as_it_is(data):
    request = data.draw(draw_struct(ReadRequest, name="t"))
    route = Route(reply="gateway", table=3, partitions=[0], is_latest=data.draw(st.booleans()))
    routed = Routed("jane/news 1", request, route, SENDER)
    ((to, passed),) = handle(processor(), "gateway", routed)
    assert to == ("master" if route.is_latest else "r")
    assert passed is routed


@examples(25)
@given(st.data())
def test_processor_adds_nothing_to_a_write_but_the_interval_that_it_asks_for(data):
    request = data.draw(draw_struct(WriteRequest, name=data.draw(st.sampled_from(["t", "u"]))))
    route = Route(reply="gateway", log_incarnation=data.draw(st.sampled_from([UNSET, "theirs"])))
    ((to, passed),) = handle(processor(), "gateway", Routed("jane/news 1", request, route, SENDER))
    has_interval = request.asks_read_interval is not UNSET and request.name == "t"
    assert (to, passed.id, passed.verified) == ("master", "jane/news 1", SENDER)
    assert passed.what is request
    assert passed.route == msgspec.structs.replace(
        route, read_interval_ms=passed.route.read_interval_ms if has_interval else UNSET
    )
    assert (passed.route.read_interval_ms is not UNSET) is has_interval


@examples(25)
@given(st.data())
def test_replica_that_is_behind_passes_a_read_on_as_it_is(data):
    replica = Replica(ports("r"), ["master"], ["p0"], "naming", 0)
    routed = Routed(
        "i", data.draw(draw_struct(ReadRequest)), Route(reply="gateway", table=3, partitions=[0]), SENDER
    )
    ((to, passed),) = handle(replica, "p0", routed)
    assert to == "master"
    assert passed is routed


ANSWERS: dict[str, tuple[str, Any, Any]] = {
    "part": ("r", Part(id="jane/news 1", partition=0, lsn=7, rows=[], place=0), build_request(op="read")),
    "registered": (
        "p0",
        ContinuousReadAck(id="jane/news 1", generation=1, lsn=7, data_seq=1, processor="p0", partitions="0"),
        build_request(op="register"),
    ),
    "outcome": (
        "master",
        WriteOutcome(id="jane/news 1", key="a", ver=1, lsn=7, partition=0, table=3, claims=None),
        build_request(op="write"),
    ),
    "administered": (
        "master",
        Administered(id="jane/news 1", table=TABLE, claims=CLAIMS),
        build_request(op="create"),
    ),
    "restarted": (
        "master",
        LogRestarted(id="jane/news 1", log_incarnation="b", former_log_incarnation="a", shared_lsn=3),
        build_request(op="write"),
    ),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_gateway_passes_an_answer_back_as_it_has_come(kind):
    """Place and claims are those that the server has put in."""
    machine, (source, answer, ask) = gateway(), ANSWERS[kind]
    handle(machine, "jane/mud", {**ask, "token": TOKEN}, "jane")
    (to, passed), *_ = handle(machine, source, answer)
    assert to == "jane/mud"
    assert passed is answer


def test_answers_have_the_place_and_the_claims_that_their_device_is_to_know():
    """The gateway adds neither: an acknowledgement names its processor, a result the claims of its request."""
    back_end = servers()["back end"]
    claims = as_wire(CLAIMS)
    create = build_routed("create", id="jane/news a.1", claims=claims)
    acknowledge = LogAck(BEFORE_FIRST + 1)
    handle(back_end, "gateway", FollowLog("now"))
    handle(back_end, "gateway", create)
    ((_, created),) = handle(back_end, "gateway", acknowledge)
    (_, again), *_ = handle(back_end, "gateway", build_routed("create", id="jane/news a.1"))
    assert (created.claims, again.claims) == (CLAIMS, None), "those of the copy that is answered"
    (_, outcome), *_ = handle(back_end, "p0", build_routed("write", claims=claims))
    assert outcome.claims == CLAIMS
    (_, part), *_ = handle(back_end, "p0", build_routed("read", table=created.table.number))
    assert (part.place, part.partition) == (0, 0)
    ((_, ack),) = handle(processor(), "gateway", build_routed("unregister"))
    assert (ack.processor, ack.partitions) == ("p0", "0")


def test_part_in_the_place_of_another_partition_is_dropped():
    """A device counts the parts of an answer by their places."""
    machine, (source, answer, ask) = gateway(), ANSWERS["part"]
    handle(machine, "jane/mud", {**ask, "token": TOKEN}, "jane")
    (effect,) = machine.handle(0, Received(source, {**as_wire(answer), "place": 1}))
    assert effect.row["incident"] == "dropped"


def test_acknowledgement_in_the_place_of_another_processor_is_dropped():
    """A gateway counts the processors that have answered by their own addresses."""
    machine, (source, answer, ask) = gateway(), ANSWERS["registered"]
    handle(machine, "jane/mud", {**ask, "token": TOKEN}, "jane")
    (effect,) = machine.handle(0, Received("p1", answer))
    assert effect.row["incident"] == "dropped"
    assert handle(machine, source, answer)


def servers() -> dict[str, Any]:
    return {
        "gateway": gateway(),
        "processor": processor(),
        "replica": Replica(ports("r"), ["master"], ["p0"], "naming", 0),
        "back end": BackEnd(
            ports("master"), ["gateway"], ["p0"], ["r"], ["server"], "naming", keep_deleted_us=1
        ),
    }


@pytest.mark.parametrize("op", ["read", "write", "create", "register"])
@pytest.mark.parametrize("source", ["jane/mud", "jane/x"])
def test_device_that_sends_a_verified_request_itself_is_refused_and_counted(op, source):
    """A device cannot forge what a gateway alone verifies: no server accepts the message from it."""
    forged = build_routed(op, claims=as_wire(CLAIMS))
    struct = msgspec.convert(forged, Routed[Request])
    for name, machine in servers().items():
        for message in (forged, struct):
            (effect,) = machine.handle(0, Received(source, message, "jane"))
            assert (effect.table, effect.row["incident"]) == ("incidents", "dropped"), name


def test_claims_of_a_device_beside_its_request_are_not_passed_on():
    ask = build_request(op="create")
    claimed = {"verified": as_wire(SENDER), "claims": as_wire(CLAIMS), "address": "eve/mud"}
    forged = {**ask, **claimed, "what": {**ask["what"], **claimed}}
    ((_, routed),) = handle(gateway(), "jane/mud", forged, "jane")
    assert routed.verified == Verified(endpoint="jane/news", address="jane/mud", claims=None)
    assert "claims" not in as_wire(routed.what)


ROLES = {
    "gateway": ("back end", [*get_args(AdministrationRequest)]),
    "p0": ("back end", [ReadRequest, WriteRequest]),
    "r": ("back end", [ReadRequest]),
}


@pytest.mark.parametrize("source", ROLES)
@pytest.mark.parametrize(
    "op", ["read", "write", "create", "alter", "drop", "register", "update_data", "unregister"]
)
def test_back_end_accepts_of_each_server_what_its_role_sends(source, op):
    forged = build_routed(op)
    struct = msgspec.convert(forged, Routed[Request])
    is_accepted = type(struct.what) in ROLES[source][1]
    for message in (forged, struct):
        effects = servers()["back end"].handle(0, Received(source, message))
        is_dropped = any(isinstance(effect, Record) for effect in effects)
        assert is_dropped is not is_accepted


def test_processor_and_replica_accept_no_administration_and_replicas_no_write():
    for name, source, ops in (
        ("processor", "gateway", ["create", "alter", "drop"]),
        ("replica", "p0", ["create", "write", "register", "unregister", "update_data"]),
    ):
        for op in ops:
            struct = msgspec.convert(build_routed(op), Routed[Request])
            (effect,) = servers()[name].handle(0, Received(source, struct))
            assert effect.row["incident"] == "dropped", op

"""Processor machine: registrations, matching of changes, routing, and restarts."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mud_machines import (
    answer_request,
    build_message,
    choose_for,
    handle_event,
    is_dropped,
    op_of,
    ports,
    sent,
)

from mudkit.delivery.stream import StreamItem
from mudkit.events import LinkUp, Received, Send, SendFailed, SetTimer, TimerFired
from mudkit.predicates import Predicate, function
from mudkit.predicates.exchange import to_json
from mudkit.predicates.functions import remove
from mudkit.systems.mud.messages.parts import Row, partition_range_index
from mudkit.systems.mud.servers.matching import Matching
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.tables.records import SentPredicate, keys_digest
from mudkit.systems.mud.tables.replica import TableReplica, is_visible, record_of
from mudkit.systems.mud.tables.table import Table
from mudkit.worlds.matching import MatchingLoad

TABLE = {"name": "t", "owner": "news", "acl": "public", "split": ["g"], "number": 1, "lsn": 1}
REST = {"apps": None, "schema": None, "removed": {}}
TURN = bytes(8).hex()
CLAIMS = {"app": "news", "user": "jane", "device": None, "expires_s": 100.0}


def create_processor(ports_, number=0, processors=1, replicas=()):
    addresses = ["me" if other == number else f"p{other}" for other in range(processors)]
    return Processor(ports_, addresses, ["master"], list(replicas), ["gateway"], ["server"], "naming")


def row(key, ver, lsn, data=None, predicate=None, ts_us=0):
    return {"key": key, "ver": ver, "data": data, "predicate": predicate, "ts_us": ts_us, "lsn": lsn}


class Harness:
    """Started processor with the log that it follows."""

    def __init__(self, rows=(), number=0, processors=1, replicas=("r1", "r2"), store=None):
        self.ports = store or ports("me")
        self.processor = create_processor(self.ports, number, processors, replicas)
        begun = sent(self.processor.handle(0, LinkUp("me", "server")))
        self.lsn = 5
        self.rows = [("t", row_) for row_ in rows]
        self.answer_requests(begun)
        self.requests = 0

    def answer_requests(self, messages):
        """Answer the requests among messages for rows of the log; return what is sent then."""
        return [
            answer
            for _, message in messages
            if message["kind"] == "follow"
            for answer in answer_request(self.processor, message, self.lsn, [{**TABLE, **REST}], self.rows)
        ]

    def commit(self, key, ver, data=None, predicate=None, now_us=0):
        self.lsn += 1
        entry = {"lsn": self.lsn, "op": "row", "name": "t", "row": row(key, ver, self.lsn, data, predicate)}
        return self.receive_log(entry, now_us=now_us)

    def receive_log(self, *entries, now_us=0):
        chosen = choose_for(self.processor, self.lsn)
        received = handle_event(self.processor, "log", "master", now_us, entries=list(entries), **chosen)
        return list_notices(received)

    def register(self, handle=1, text="TRUE", now_us=0, **fields):
        """Register a read whose question the back end answers at once; return what is sent to others.

        The answer to the client comes last.
        """
        first = self.request_registration(handle, text, now_us, **fields)
        others = [
            message for message in first + self.answer_questions(first, now_us) if message[0] != "master"
        ]
        return sorted(others, key=lambda message: message[0] == "gateway")

    def answer_questions(self, messages, now_us=0):
        """Answer the questions among messages for the position of the log; return what is sent then."""
        return [
            message
            for to, question in messages
            if to == "master" and "nonce" in question
            for message in self.answer_question(question, now_us)
        ]

    def answer_question(self, question, now_us=0, entries=()):
        """Answer a question for the position of the log, with entries; return what is sent then."""
        positions = {"after": question["lsn"], "through": question["lsn"] + len(entries)}
        answer = {"entries": list(entries), "nonce": question["nonce"], **positions}
        return handle_event(self.processor, "log", "master", now_us, **answer)

    def request_registration(self, handle=1, text="TRUE", now_us=0, **fields):
        """Register a read; its question is not answered."""
        self.requests += 1
        message = {
            "id": f"i{handle}", "handle": encode_handle(handle), "request": self.requests,
            "predicate": to_json(Predicate(text)), "table": 1, "partitions": [0, 1], "least": 5,
        }  # fmt: skip
        return handle_event(self.processor, "register", "gateway", now_us, **{**message, **fields})


def encode_handle(handle):
    return f"first {handle}"


def parse_handle(body):
    return int(body["handle"].removeprefix("first ")) if "handle" in body else None


def list_notices(messages):
    """Return what readers are sent: handle, and operation, key and version, or the kind of notice."""
    notices = []
    for _, message in messages:
        if message["kind"] == "stream":
            body = message["body"]
            change = body.get("change")
            if change is None:
                kinds = [kind for kind in ("synced", "ended", "life") if body.get(kind)]
                notices += [(parse_handle(body), kind) for kind in kinds[:1]]
            else:
                changes = [change, *body.get("also", [])]
                notices += [(parse_handle(body), one["op"], one["key"], one["ver"]) for one in changes]
    return notices


@pytest.fixture
def harness():
    return Harness()


def test_changes_are_sent_as_upserts_and_removes(harness):
    assert list_notices(harness.register(text="n = 1")) == [(1, "synced")]
    assert harness.commit("a", 1, {"n": 1}) == [(1, "upsert", "a", 1)]
    assert harness.commit("h", 1, {"n": 2}) == []
    assert harness.commit("a", 2, {"n": 2}) == [(1, "remove", "a", 2)]
    assert harness.commit("a", 3, {"n": 3}) == []  # already removed
    assert harness.commit("a", 4, {"n": 1}) == [(1, "upsert", "a", 4)]
    assert harness.commit("a", 5) == [(1, "remove", "a", 5)]


def test_each_reader_is_sent_its_own_matches(harness):
    harness.register(1, "n = 1")
    harness.register(2, "n >= 1")
    assert harness.commit("a", 1, {"n": 1}) == [(1, "upsert", "a", 1), (2, "upsert", "a", 1)]
    assert harness.commit("a", 2, {"n": 2}) == [(2, "upsert", "a", 2), (1, "remove", "a", 2)]


@pytest.mark.parametrize(
    ("records", "keys", "share"),
    [
        ("", "a", 1.0),
        ("a", "a", 1.0),
        ("abhi", "a", 0.5),
        ("abhi", "ah", 0.5),
        ("abhi", "abc", 1.0),
        ("abhi", None, 1.0),
    ],
)
def test_read_by_keys_counts_for_its_share_of_a_partition(records, keys, share):
    """See `Processor._record_read`: two partitions have half of the records each, on average."""
    harness = Harness([row(key, 1, 1, {}) for key in records])
    shares = []
    harness.processor._read_rates = SimpleNamespace(
        record_read=lambda now_us, partition, part: shares.append(part)
    )
    handle_event(harness.processor, "read", "gateway", keys=None if keys is None else [*keys])
    assert shares == [share]


def test_only_the_processor_of_a_partition_sends_its_changes():
    for number in (0, 1):
        harness = Harness(number=number, processors=2)
        own = {key: part for part, key in enumerate("ah") if partition_range_index(1, part, 2) == number}
        harness.register(partitions=[*own.values()])
        notices = harness.commit("a", 1, {}) + harness.commit("h", 1, {})
        assert [notice[2] for notice in notices] == [*own]


def test_late_duplicate_of_a_registration_is_ignored(harness):
    first = harness.register(text="n = 1")
    assert list_notices(harness.register(text="n = 1", request=1)) == []
    assert list_notices(harness.register(text="n = 2", request=0)) == []
    assert harness.commit("a", 1, {"n": 1}) == [(1, "upsert", "a", 1)]
    assert list_notices(harness.register(text="n = 2")) == [(1, "remove", "a", 1), (1, "synced")]
    assert harness.commit("h", 1, {"n": 2}) == [(1, "upsert", "h", 1)]
    assert harness.commit("b", 1, {"n": 1}) == []
    assert first[-1][1]["kind"] == "registered"


def test_repeated_registration_keeps_records_sent_before(harness):
    harness.register(text="n = 1")
    assert harness.commit("a", 1, {"n": 1}) == [(1, "upsert", "a", 1)]
    assert list_notices(harness.register(text="n = 1")) == [(1, "synced")]
    assert harness.commit("a", 2, {"n": 2}) == [(1, "remove", "a", 2)]
    # A record that has left was removed from the cache: another registration does not remove it again.
    assert list_notices(harness.register(text="n = 1")) == [(1, "synced")]


def test_late_duplicate_is_answered_with_the_original_log_position(harness):
    assert harness.register()[-1][1]["lsn"] == 5
    harness.commit("a", 1, {})
    assert harness.register(request=1)[-1][1]["lsn"] == 5


def unregister(harness, handle=1):
    return handle_event(harness.processor, "unregister", "gateway", handle=encode_handle(handle))


def test_unregistered_read_stays_ended(harness):
    harness.register()
    assert unregister(harness)[0][1]["kind"] == "registered"
    assert harness.commit("a", 1, {}) == []
    assert harness.register() == []
    assert harness.commit("a", 2, {}) == []
    harness.register(2)
    assert harness.commit("a", 3, {}) == [(2, "upsert", "a", 3)]


def test_registration_waits_for_its_log_position(harness):
    assert harness.register(least=6) == []
    harness.commit("a", 1, {})
    assert harness.register(least=6) != []


@pytest.mark.parametrize("fields", [{"name": "u"}, {"table": 9}])
def test_registration_for_an_unknown_table_is_refused(harness, fields):
    ((_, answer),) = harness.register(**fields)
    assert answer["error"]["kind"] == "TableProblem"


def test_registration_for_a_table_closed_meanwhile_is_refused(harness):
    """Refuse a registration that the gateway admitted before."""
    harness.receive_log({"lsn": 6, "op": "table", "table": {**TABLE, **REST, "acl": "user", "lsn": 6}})
    ((_, answer),) = harness.register()
    assert answer["error"]["kind"] == "AccessDenied"
    assert harness.commit("a", 1, {}) == []
    assert harness.register(claims=CLAIMS)[-1][1].get("error") is None


def test_token_that_expires_in_transit_is_refused():
    harness = Harness([row("a", 1, 3, {})])
    fields = {"claims": CLAIMS, "sync_us": 0}
    assert len(list_notices(harness.register(now_us=99_999_999, **fields))) == 2
    for handle in (1, 2):
        ((_, answer),) = harness.register(handle, now_us=100_000_000, **fields)
        assert answer["error"]["kind"] == "TokenExpired"


def test_read_ends_when_its_token_expires(harness):
    harness.register(claims=CLAIMS)
    assert harness.commit("a", 1, {}, now_us=99_999_999) == [(1, "upsert", "a", 1)]
    assert harness.commit("a", 2, {}, now_us=100_000_000) == [(1, "ended")]
    assert harness.commit("a", 3, {}, now_us=100_000_001) == []


@pytest.fixture
def populated():
    return Harness(
        [row("a", 1, 3, {"n": 1}, ts_us=10), row("h", 4, 4, {"n": 2}, ts_us=20), row("q", 2, 5, ts_us=30)]
    )


@pytest.mark.parametrize(
    ("sync_us", "keys"), [(None, ""), (0, "ah"), (10, "ah"), (11, "h"), (20, "h"), (21, "")]
)
def test_existing_records_are_sent_from_the_requested_time(populated, sync_us, keys):
    notices = list_notices(populated.register(sync_us=sync_us))
    assert "".join(notice[2] for notice in notices[:-1]) == keys
    assert notices[-1] == (1, "synced")


@pytest.mark.parametrize(("since", "keys"), [(2, "ah"), (3, "h"), (4, "")])
def test_reregistered_read_is_sent_later_changes(populated, since, keys):
    notices = list_notices(populated.register(since={"0 1": since}, held=["a", "h"]))
    assert "".join(notice[2] for notice in notices[:-1]) == keys


def test_reregistered_read_is_sent_in_one_message_what_it_missed(populated):
    """A batch is seen as a whole; the first state of a read comes record by record."""

    def list_tells(**fields):
        sent = [message["body"] for _, message in populated.register(**fields) if message["kind"] == "stream"]
        return [[body["change"]["key"], *(one["key"] for one in body.get("also", []))] for body in sent[:-1]]

    assert list_tells(since={"0 1": 0}, held=["a", "h"]) == [["a", "h"]]
    assert list_tells(handle=2, sync_us=0) == [["a"], ["h"]]


def test_reregistered_read_is_sent_later_removals(populated):
    def reregister(handle, since, **fields):
        return list_notices(
            populated.register(handle, since=since, held=["a", "h", "q"], text="n = 1", **fields)
        )[:-1]

    assert reregister(1, {"0 1": 3}) == [(1, "remove", "h", 4), (1, "remove", "q", 2)]
    assert reregister(2, {"0 1": 4}) == [(2, "remove", "q", 2)]
    assert reregister(3, {"0 1": 5}) == []
    assert reregister(4, {}) == [(4, "remove", "h", 4), (4, "remove", "q", 2)]
    assert reregister(5, {}, partitions=[0]) == []


def test_record_that_was_sent_and_never_came_is_sent_again_to_a_window(harness):
    """The change that pulled an old record in may be lost with its session."""
    window = {"selection": {"columns": ["n"], "order": "n", "limit": 1}}
    harness.commit("a", 1, {"n": 1})
    harness.commit("h", 1, {"n": 2})
    harness.register(**window, sync_us=0)
    received = harness.lsn
    assert harness.commit("a", 2, {"n": 3}) == [(1, "remove", "a", 2), (1, "upsert", "h", 1)]
    again = harness.register(**window, held=["a"], since={"0 1": received})
    assert list_notices(again) == [(1, "upsert", "h", 1), (1, "remove", "a", 2), (1, "synced")]


def test_delivered_record_is_removed_when_deleted_later(populated):
    assert list_notices(populated.register(since={"0 1": 5}, held=["a", "h"])) == [(1, "synced")]
    assert populated.commit("a", 2) == [(1, "remove", "a", 2)]
    assert populated.commit("h", 5) == [(1, "remove", "h", 5)]


def test_delivered_unknown_keys_are_removed_like_hidden_records():
    secret = to_json(Predicate("receiver.age >= 21"))
    populated = Harness([row("b", 4, 4, {"n": 1}, secret), row("c", 4, 4, None, secret)])
    for since in ({"0 1": 5}, {}):
        notices = list_notices(populated.register(since=since, held=["b", "c", "never"]))
        assert notices == [*((1, "remove", key, None) for key in ("b", "c", "never")), (1, "synced")]


@pytest.fixture
def inverse():
    @function("inverse", returns="number")
    def inverse(x: float) -> float:
        return 1 / x

    yield
    remove("inverse")


def test_read_whose_predicate_fails_ends_and_others_continue(harness, inverse):
    harness.register(1, "n >= 0")
    harness.register(2, "inverse(n) > 0")
    harness.register(3, "inverse(n - 1) < 0")
    assert harness.commit("a", 1, {"n": 0}) == [(2, "ended"), (1, "upsert", "a", 1), (3, "upsert", "a", 1)]
    assert harness.commit("a", 2, {"n": -1}) == [(3, "upsert", "a", 2), (1, "remove", "a", 2)]
    assert list_notices(harness.register(2, "inverse(n) < 0")) == [(2, "synced")]
    assert harness.commit("a", 3, {"n": 1}) == [(3, "ended"), (1, "upsert", "a", 3)]


def test_read_that_fails_is_not_sent_a_remove(harness, inverse):
    harness.register(1, "inverse(n) > 0")
    assert harness.commit("a", 1, {"n": 1}) == [(1, "upsert", "a", 1)]
    assert harness.commit("a", 2, {"n": 0}) == [(1, "ended")]
    assert harness.commit("a", 3) == []


def test_registration_that_fails_on_an_existing_record_is_refused(inverse):
    harness = Harness([row("a", 1, 3, {"n": 1}), row("h", 1, 4, {"n": 0})])
    ((to, answer),) = harness.register(text="inverse(n) > 0", sync_us=0)
    assert (to, answer["kind"], answer["error"]["kind"]) == ("gateway", "registered", "PredicateError")
    assert harness.commit("a", 2, {"n": 2}) == []
    assert sent(harness.processor.handle(10_000_000, TimerFired("again server")))[1:] == []


def test_registration_with_an_unknown_function_is_refused(harness, inverse):
    predicate = to_json(Predicate("inverse(n) > 0"))
    remove("inverse")
    try:
        ((_, answer),) = harness.register(predicate=predicate)
    finally:
        function("inverse", returns="number", argument_kinds=("number",))(lambda x: 1 / x)
    assert answer["error"]["kind"] == "PredicateError"


def create_table_entry(harness, **properties):
    harness.lsn += 1
    table = {**TABLE, "apps": None, "schema": None, "removed": {}, "lsn": harness.lsn, **properties}
    return {"lsn": harness.lsn, "op": "table", "table": table}


def test_closed_or_dropped_table_ends_its_reads(harness):
    harness.register(1)
    harness.register(2, claims=CLAIMS)
    assert harness.receive_log(create_table_entry(harness, name="u", number=9, acl="user")) == []
    assert harness.receive_log(create_table_entry(harness, acl="user")) == [(1, "ended")]
    assert harness.commit("a", 1, {}) == [(2, "upsert", "a", 1)]
    harness.lsn += 1
    assert harness.receive_log({"lsn": harness.lsn, "op": "drop", "name": "u"}) == []
    harness.lsn += 1
    assert harness.receive_log({"lsn": harness.lsn, "op": "drop", "name": "t"}) == [(2, "ended")]


def test_reader_is_not_sent_removed_columns(harness):
    harness.register(claims=CLAIMS)
    harness.receive_log(create_table_entry(harness, removed={"n": None}))
    harness.lsn += 1
    entry = {"lsn": harness.lsn, "op": "row", "name": "t", "row": row("a", 1, harness.lsn, {"n": 1, "m": 2})}
    ((_, message), _) = handle_event(harness.processor, "log", "master", entries=[entry])
    assert message["body"]["change"]["data"] == {"m": 2}


def test_updated_reader_data_apply_to_later_changes(harness):
    secret = to_json(Predicate("receiver.age >= 21"))
    harness.register()
    assert harness.commit("a", 1, {}, secret) == []
    for handle in (1, 7):  # the second does not exist
        handle_event(
            harness.processor,
            "update_data",
            "gateway",
            handle=encode_handle(handle),
            data_seq=2,
            reader={"age": 30},
        )
    assert harness.commit("a", 2, {}, secret) == [(1, "upsert", "a", 2)]


ADULTS_ONLY = to_json(Predicate("receiver.age >= 21"))


def update(harness, data_seq, age):
    """Send an update of the reader's data; return the number that is acknowledged."""
    message = {"handle": encode_handle(1), "data_seq": data_seq, "reader": {"age": age}}
    return handle_event(harness.processor, "update_data", "gateway", **message)[0][1]["data_seq"]


@pytest.mark.parametrize("late_seq", [1, 2])
@pytest.mark.parametrize(("age", "expected"), [(30, [(1, "upsert", "a", 1)]), (10, [])])
def test_late_duplicate_of_a_data_update_is_ignored(harness, late_seq, age, expected):
    harness.register(data_seq=1, reader={"age": 40 - age})
    assert update(harness, 2, age) == 2
    assert update(harness, late_seq, 40 - age) == 2
    assert harness.commit("a", 1, {}, ADULTS_ONLY) == expected


@pytest.mark.parametrize("late_seq", [1, 2])
@pytest.mark.parametrize(("age", "expected"), [(30, [(1, "upsert", "a", 1)]), (10, [])])
def test_newest_data_update_before_the_registration_applies(harness, late_seq, age, expected):
    assert update(harness, 2, age) == 2
    assert update(harness, late_seq, 40 - age) == late_seq
    assert harness.register(data_seq=1, reader={"age": 40 - age})[-1][1]["data_seq"] == 2
    assert harness.commit("a", 1, {}, ADULTS_ONLY) == expected


@pytest.mark.parametrize(("age", "expected"), [(30, [(1, "upsert", "a", 1)]), (10, [])])
def test_registration_overtaken_by_a_data_update_keeps_newer_data(harness, age, expected):
    harness.register(data_seq=1, reader={"age": 40 - age})
    assert update(harness, 2, age) == 2
    assert harness.register(data_seq=1, reader={"age": 40 - age})[-1][1]["data_seq"] == 2
    assert harness.register(data_seq=1, reader={"age": 40 - age})[-1][1]["data_seq"] == 2
    assert harness.commit("a", 1, {}, ADULTS_ONLY) == expected
    assert update(harness, 3, 40 - age) == 3


def test_session_given_up_by_the_server_ends_only_its_reads(harness):
    harness.register(1)
    harness.register(2, session="another")
    handle_event(harness.processor, "gone", "server", session="s")
    assert harness.commit("a", 1, {}) == [(2, "upsert", "a", 1)]


@pytest.mark.parametrize("down", [(), ("r1",), ("r2", "r3"), ("r1", "r2", "r3")])
def test_read_goes_on_to_a_replica_that_is_reached(down):
    """At once: on a slow link the client repeats it after a minute. If none is reached, the client decides."""
    processor = Harness(replicas=("r1", "r2", "r3")).processor
    for number in range(3):
        (effect,) = processor.handle(0, Received("gateway", build_message("read", id=f"read {number}")))
        tried = [effect.to]
        while tried[-1] in down:
            effects = processor.handle(0, SendFailed(tried[-1], effect.message))
            if not effects:
                break
            (effect,) = effects
            tried.append(effect.to)
        assert len(set(tried)) == len(tried)
        assert (tried[-1] in down) is (len(down) == 3)
        assert len(down) < 3 or len(tried) == 3


def test_reads_go_to_replicas_in_turn_and_latest_reads_to_the_master(harness):
    def route(latest):
        return handle_event(harness.processor, "read", "gateway", latest=latest)[0][0]

    assert [route(False) for _ in range(4)] in (["r1", "r2"] * 2, ["r2", "r1"] * 2)
    assert route(True) == "master"
    without_replicas = Harness(replicas=())
    assert handle_event(without_replicas.processor, "read", "gateway", latest=False)[0][0] == "master"


def read_interval_ms(harness, now_us=0, key="a", client="jane/news", **fields):
    """Return the interval between reads that the processor adds to a write."""
    message = {"name": "t", "key": key, "endpoint": client, "asks_read_interval": True, **fields}
    ((to, passed),) = handle_event(harness.processor, "write", "gateway", now_us, **message)
    assert (to, op_of(passed)) == ("master", "write")
    return passed["route"].get("read_interval_ms")


def count_reads(harness, count, partition=0, **fields):
    for _ in range(count):
        handle_event(harness.processor, "read", "gateway", partitions=[partition], **fields)


def test_write_that_asks_gets_the_interval_between_reads_of_its_partition(harness):
    count_reads(harness, 9)
    count_reads(harness, 1, partition=1)
    assert [read_interval_ms(harness, key=key) for key in "ah"] == [60_000, 300_000]


def test_write_that_does_not_ask_has_no_interval(harness):
    """Its bill is that of before."""
    count_reads(harness, 9)
    ((_, passed),) = handle_event(harness.processor, "write", "gateway", name="t", key="a")
    assert "read_interval_ms" not in passed["route"]


def test_write_to_an_unknown_table_has_no_interval(harness):
    assert read_interval_ms(harness, name="other") is None


def test_reads_by_keys_count_for_their_share_of_the_partition():
    """Half of eight records are in each partition."""
    harness = Harness([row(key, 1, 2, {}) for key in "abcdhijk"])
    count_reads(harness, 8, keys=["a", "h"])
    assert read_interval_ms(harness) == 200_000


def test_continuous_read_of_others_is_a_reader_at_once(harness):
    harness.register(endpoint="jane/news")
    assert read_interval_ms(harness) == 600_000  # its own one shows what it has written, without a delay
    harness.register(endpoint="bob/news")
    assert read_interval_ms(harness) == 0


def test_continuous_read_with_a_lookup_is_a_reader_at_once(harness):
    harness.register(text="lookup('t', key, 'n') IS NOT NULL", endpoint="bob/news")
    assert read_interval_ms(harness) == 0


def test_rates_of_reads_begin_again_with_the_processor(harness):
    count_reads(harness, 9)
    assert read_interval_ms(Harness(store=harness.ports)) == 600_000


def test_life_begins_once_per_start_and_is_numbered(harness):
    assert harness.processor.handle(0, LinkUp("me", "server")) == ()
    restarted = Harness(store=harness.ports)
    messages = sent(restarted.processor.handle(1_000_000, TimerFired("again server")))
    assert [message["body"]["life"] for _, message in messages] == [2]


def test_items_are_retransmitted_until_acknowledged_in_this_life(harness):
    harness.register()
    harness.commit("a", 1, {})

    def retransmit(at_us=1_000_000):
        messages = sent(harness.processor.handle(at_us, TimerFired("again server")))
        return [message["number"] for _, message in messages]

    assert retransmit(999_999) == []
    assert retransmit() == [1, 2, 3]  # life, synced, change
    handle_event(harness.processor, "confirmed", "server", stream="me 0", number=3)
    assert is_dropped(harness.processor, "confirmed", "nobody", stream="me 1", number=3)
    assert retransmit(1_000_001) == []
    assert retransmit(3_000_001) == [1, 2, 3]
    handle_event(harness.processor, "confirmed", "server", stream="me 1", number=2)
    assert retransmit(10_000_000) == [3]


def test_processor_without_state_requests_it():
    processor = create_processor(ports("me"))
    assert handle_event(processor, "log", "master", entries=[]) == [
        ("master", {"kind": "follow", "turn": TURN})
    ]
    messages = sent(processor.handle(1_000_000, TimerFired("begin")))
    assert messages == [("master", {"kind": "follow", "turn": TURN})]


@pytest.mark.parametrize("claims", [None, CLAIMS])
def test_whereabouts_name_the_new_address_of_a_moved_client(harness, claims):
    harness.register(claims=claims)
    moved = {"session": "s", "endpoint": "jane/news", "address": "away"}
    assert handle_event(harness.processor, "moved", "server", **moved) == [
        ("server", {"kind": "moved", **moved})
    ]
    messages = handle_event(harness.processor, "gone", "server", session="s", endpoint="jane/news")
    whereabouts = {"what": "whereabouts", "endpoint": "jane/news", "address": "away"}
    whereabouts["is_proven"] = claims is not None
    assert [message["body"] for _, message in messages] == [whereabouts]


def test_client_cannot_move_the_reads_of_another(harness):
    harness.register()
    moved = {"session": "s", "endpoint": "mallory/news", "address": "away"}
    handle_event(harness.processor, "moved", "server", **moved)
    messages = handle_event(harness.processor, "gone", "server", session="s", endpoint="jane/news")
    assert messages[0][1]["body"]["address"] != "away"


MATCHED_TABLE = Table("t", "news", number=1)


@pytest.fixture(scope="module", autouse=True)
def brittle():
    @function("brittle", returns="boolean")
    def brittle(x: float) -> bool:
        return 1 / x > 0

    yield
    remove("brittle")


def version(predicate=None, **data):
    return Row("a", 1, data, None if predicate is None else SentPredicate.of(Predicate(predicate)), 0, 1)


def create_handle(number):
    return ("bob/news", number)


def create_matching(*readers, copy=None):
    matching = Matching(copy or TableReplica())
    for number, (text, data) in enumerate(readers):
        matching.add(create_handle(number), Predicate(text), data, {"user": "bob"})
    return matching


def match(matching, row, table=MATCHED_TABLE):
    reached, failed = matching.match(row, table)
    return [number for _, number in reached], [number for _, number in failed]


def test_match_separates_reached_and_failing_reads():
    matching = create_matching(("brittle(n)", {}), ("n = 0", {}), ("n = 1", {}))
    assert match(matching, version(n=1)) == ([0, 2], [])
    assert match(matching, version(n=0)) == ([1], [0])
    assert "ZeroDivisionError" in matching.match(version(n=0), MATCHED_TABLE)[1][create_handle(0)].summary
    matching.remove(create_handle(0))
    assert match(matching, version(n=0)) == ([1], [])


def test_failing_writer_predicate_hides_the_record_and_ends_no_read():
    matching = create_matching(("TRUE", {"n": 0}), ("TRUE", {"n": 1}), ("brittle(n)", {"n": 1}))
    assert match(matching, version("brittle(receiver.n)", n=1)) == ([1, 2], [])
    assert match(matching, version("brittle(receiver.n)", n=0)) == ([1], [2])


def test_latest_reader_data_apply_when_a_predicate_fails():
    matching = create_matching(("n = receiver.n", {"n": 1}), ("brittle(n)", {"n": 1}))
    for number in (0, 1):
        matching.replace_reader_data(create_handle(number), {"n": 0})
    assert match(matching, version("receiver.n = 0", n=0)) == ([0], [1])


def test_removed_columns_are_hidden_when_a_predicate_fails():
    matching = create_matching(("m IS NULL", {}), ("brittle(n)", {}))
    table = MATCHED_TABLE.alter({"remove": ["m"]}, 2)
    assert match(matching, version("m IS NULL", n=0, m=1), table) == ([0], [1])


read_predicates = st.sampled_from(
    ["TRUE", "n = 0", "n >= receiver.n", "brittle(n)", "brittle(receiver.n)", "auth.user = 'bob'"]
)
writer_predicates = st.none() | st.sampled_from(
    ["receiver.n = 0", "brittle(receiver.n)", "brittle(n)", "n = receiver.n"]
)


@given(
    st.lists(st.tuples(read_predicates, st.integers(-1, 1)), max_size=5),
    writer_predicates,
    st.integers(-1, 1),
)
def test_match_equals_evaluating_each_read_alone(readers, writer, n):
    row = version(writer, n=n)
    expected, failing = [], []
    for number, (text, data) in enumerate(readers):
        auth, reader = {"user": "bob"}, {"n": data}
        if not is_visible(row, reader, auth):
            continue
        try:
            is_match = Predicate(text)(record_of(row), receiver=reader, auth=auth) is True
        except ValueError:
            failing.append(number)
            continue
        if is_match:
            expected.append(number)
    matching = create_matching(*((text, {"n": data}) for text, data in readers))
    assert match(matching, row) == (expected, failing)


PEOPLE = Table("people", "app", apps=["news"], number=2)
LOOKUP = "lookup('people', by, 'n') = 1"


def create_people_copy(**numbers):
    copy = TableReplica()
    rows = [("people", replace(version(n=n), key=key)) for key, n in numbers.items()]
    copy.load(1, [PEOPLE], rows)
    return copy


def join_people(*readers, app="news", **numbers):
    matching = Matching(create_people_copy(**numbers))
    for number, (text, data) in enumerate(readers):
        matching.add(create_handle(number), Predicate(text), data, {"app": app, "user": "bob"})
    return matching


def test_joining_reads_follow_the_others_in_a_match():
    matching = join_people(
        (LOOKUP, {}), ("by = 'x'", {}), (LOOKUP + " AND n > receiver.n", {"n": 0}), x=1, y=2
    )
    assert match(matching, version(by="x", n=1)) == ([1, 0, 2], [])
    assert match(matching, version(by="y", n=1)) == ([], [])
    for number, data in ((0, {"n": 9}), (1, {"n": 9}), (2, {"n": 1})):
        matching.replace_reader_data(create_handle(number), data)
    assert match(matching, version(by="x", n=1)) == ([1, 0], [])
    for number in range(3):
        matching.remove(create_handle(number))
        assert match(matching, version(by="x", n=2)) == ([[1, 2], [2], []][number], [])


def test_writer_predicate_may_look_up_another_table():
    matching = join_people(
        ("TRUE", {"as": "x"}), ("TRUE", {"as": "y"}), (LOOKUP, {"as": "x"}), ("n = 0", {"as": "x"}), x=1, y=2
    )
    row = version("lookup('people', receiver.as, 'n') = 1", by="x", n=1)
    assert match(matching, row) == ([0, 2], [])


@pytest.mark.parametrize(("app", "reached"), [("news", [0]), ("bank", [])])
def test_read_that_joins_a_closed_table_fails(app, reached):
    matching = join_people((LOOKUP, {}), ("NOT " + LOOKUP, {}), ("FALSE AND " + LOOKUP, {}), app=app, x=1)
    assert match(matching, version(by="x")) == (reached, [] if reached else [0, 1])


@given(
    st.lists(st.tuples(st.sampled_from([LOOKUP, "n = 0", "brittle(n)"]), st.integers(0, 1)), max_size=4),
    st.integers(0, 1),
)
def test_removed_reads_are_not_matched(readers, n):
    matching = join_people(*((text, {"n": data}) for text, data in readers), x=1)
    for number in range(len(readers)):
        matching.remove(create_handle(number))
    assert match(matching, version(by="x", n=n)) == ([], [])


# -- digests in place of the keys of delivered records

_KEYS = st.sampled_from("abcdefghijkl")
_HISTORY = st.lists(st.tuples(_KEYS, st.sampled_from([None, {"n": 1}, {"n": 2}])), max_size=30)


def split_delivered(keys, named_buckets=()):
    """Return the keys that a registration names, and the digests of the others."""
    buckets = Table(name="t", owner="news", split=["g"]).buckets_of(keys)
    named = [key for bucket in sorted(named_buckets) for key in buckets.pop(bucket, ())]
    return {"held": named, "digests": [(bucket, keys_digest(of)) for bucket, of in sorted(buckets.items())]}


def acknowledgements(messages):
    return [message for _, message in messages if message["kind"] == "registered"]


def test_keys_are_asked_for_only_in_the_partitions_of_the_route(populated):
    """Another processor knows the records of the other partitions."""
    ((bucket, _),) = split_delivered(["h"])["digests"]  # in the second partition
    fields = {"since": {"0 1": 5}, "digests": [(bucket, "of other keys")]}
    ((_, ack),) = populated.register(1, partitions=[0, 1], **fields)
    assert ack["unknown"] == [bucket]
    (registered,) = acknowledgements(populated.register(2, partitions=[0], **fields))
    assert "unknown" not in registered


@given(
    history=_HISTORY,
    delivered=st.sets(_KEYS),
    position=st.integers(4, 40),
    sync_us=st.sampled_from([None, 0]),
    begun=st.integers(4, 40),
    has_read=st.booleans(),
)
def test_digests_have_the_effect_of_the_keys(history, delivered, position, sync_us, begun, has_read):
    """Whatever the reader was sent, it hears of the same changes, once it has named what is not known."""
    versions = {}
    notices = []
    for is_digested in (False, True):
        harness = Harness()
        if has_read:  # it has sent what the device may not have received
            harness.register(text="n = 1")
        versions.clear()
        for key, data in history:
            versions[key] = versions.get(key, 0) + 1
            harness.commit(key, versions[key], data)
        fields = {"since": {"0 1": min(position, harness.lsn)}, "sync_us": sync_us, "text": "n = 1"}
        if not is_digested:
            notices.append(list_notices(harness.register(held=sorted(delivered), **fields)))
            continue
        fields["begun"] = {"0 1": begun}
        effects = harness.register(**split_delivered(delivered), **fields)
        (answer,) = acknowledgements(effects)
        if "unknown" in answer:
            assert list_notices(effects) == []
            effects = harness.register(**split_delivered(delivered, answer["unknown"]), **fields)
            (answer,) = acknowledgements(effects)
            assert "unknown" not in answer
        notices.append(list_notices(effects))
    assert notices[0] == notices[1]


def test_position_and_digests_suffice_if_nothing_delivered_has_changed():
    harness = Harness(rows=[row("a", 1, 2, {"n": 1}), row("h", 1, 4, {"n": 1}), row("b", 1, 3, {"n": 2})])
    fields = {"since": {"0 1": 4}, "sync_us": 0, "text": "n = 1"}
    effects = harness.register(**split_delivered(["a", "h"]), **fields)
    assert "unknown" not in acknowledgements(effects)[0]
    assert list_notices(effects) == [(1, "synced")]
    refused = harness.register(2, **split_delivered(["a", "b"]), **fields)  # b does not match any more
    buckets = Table(name="t", owner="news", split=["g"]).buckets_of(["b"])
    assert (acknowledgements(refused)[0]["unknown"], list_notices(refused)) == (list(buckets), [])
    assert harness.commit("c", 1, {"n": 1}) == [(1, "upsert", "c", 1)]  # the second is not registered


# -- partitions that move


def move(harness, epoch, *moved):
    """Send a processor the partitions that have moved; return what it sends but the acknowledgement."""
    *messages, acknowledgement = handle_event(
        harness.processor, "assignments", "naming", epoch=epoch, servers=["server"],
        processors=harness.processor._ranges.present.processors, moved=[list(one) for one in moved],
    )  # fmt: skip
    assert acknowledgement == ("naming", {"kind": "assigned", "epoch": epoch})
    harness.answer_requests(messages)
    return [message for message in messages if message[0] != "master"]


def bodies(messages):
    return [message["body"] for _, message in messages if message["kind"] == "stream"]


def test_processor_that_loses_a_partition_ends_its_reads_and_tells_their_readers():
    harness = Harness(processors=2, number=0)  # it has the second partition
    for handle, partitions in ((1, [1]), (2, [1])):
        harness.register(handle, partitions=partitions, sync_us=0)
    ends = bodies(move(harness, 1, (1, "1", "p1")))
    assert [(parse_handle(body), body["moved"]) for body in ends] == [(1, True), (2, True)]
    assert harness.commit("h", 1, {}) == []
    ((to, answer),) = harness.register(1, partitions=[1])  # by a gateway that does not know it yet
    assert (to, answer["kind"], answer["epoch"]) == ("gateway", "assignments", 1)
    assert move(harness, 1, (1, "0", "me")) == []  # of an epoch that is known


def test_processor_that_gains_a_partition_has_no_reads_of_it_before_they_are_registered():
    harness = Harness(processors=2, number=0)
    harness.register(1, partitions=[1])
    ((to, answer),) = harness.register(2, partitions=[0, 1])
    assert (to, answer["kind"], answer["epoch"]) == ("gateway", "assignments", 0)
    assert move(harness, 1, (1, "0", "me")) == []
    assert harness.commit("a", 1, {}) == []
    assert harness.commit("h", 1, {}) == [(1, "upsert", "h", 1)]
    assert list_notices(harness.register(2, partitions=[0, 1])) == [(2, "synced")]
    assert harness.commit("a", 2, {}) == [(2, "upsert", "a", 2)]
    assert move(harness, 2) != []  # each partition is in its place again
    assert harness.commit("h", 2, {}) == [(1, "upsert", "h", 2)]


def test_same_registration_for_more_partitions_is_not_one_that_is_known():
    """The processor of the others died before it has answered."""
    harness = Harness(processors=2, number=0)
    harness.register(1, partitions=[1], request=7)
    assert acknowledgements(harness.register(1, partitions=[1], request=7))[0]["of"] == "1"
    move(harness, 1, (1, "0", "me"))
    effects = harness.register(1, partitions=[0, 1], request=7)
    assert acknowledgements(effects)[0]["of"] == "0 1"
    assert bodies(effects)[0]["of"] == acknowledgements(effects)[0]["of"]
    assert harness.commit("a", 1, {}) == [(1, "upsert", "a", 1)]


def test_predicate_that_fails_on_a_record_of_another_partition_does_not_end_a_read(inverse):
    harness = Harness(processors=2, number=0)
    harness.register(1, text="inverse(n) = 1", partitions=[1])
    move(harness, 1, (1, "0", "me"))
    assert harness.commit("a", 1, {"n": 0}) == []
    assert harness.commit("h", 1, {"n": 1}) == [(1, "upsert", "h", 1)]


def test_assignments_with_a_processor_that_does_not_exist_are_dropped():
    processor = Harness(processors=2, number=0).processor
    moved = {"processors": ["me", "p1"] * 12, "moved": [[1, "1", "nobody"]]}
    assert is_dropped(processor, "assignments", "naming", epoch=1, servers=["server"], **moved)


def test_registration_waits_for_what_the_former_processor_has_told_of():
    """Else the reader would be told that a record which the log has not yet is gone."""
    harness = Harness()
    since = {"since": {"0": 7, "1": 3}, "held": ["a"]}
    assert harness.register(**since) == []
    harness.commit("b", 1, {})
    assert harness.register(**since) == []
    assert harness.commit("a", 1, {"n": 1}) == []
    assert harness.commit("a", 2, {"n": 2}) == [(1, "upsert", "a", 2)]


def test_registration_that_is_ahead_of_the_log_begins_once_the_log_is_there():
    """Its client would repeat it after ten seconds only. The newest one counts, and none after its end."""
    harness = Harness()
    assert harness.register(1, "n = 1", least=7) == []
    assert harness.register(1, "n = 2", least=7) == []
    assert harness.register(1, "n = 3", least=7, request=1) == []
    assert harness.register(2, "TRUE", least=7) == []
    unregister(harness, 2)
    assert harness.commit("a", 1, {"n": 2}) == []
    lsn = harness.lsn + 1
    entry = {"lsn": lsn, "op": "row", "name": "t", "row": row("b", 1, lsn, {"n": 2})}
    messages = handle_event(harness.processor, "log", "master", entries=[entry])
    assert [(to, message["id"], message["lsn"]) for to, message in messages if to == "gateway"] == [
        ("gateway", "i1", 7)
    ]
    assert list_notices(harness.answer_questions(messages)) == [(1, "synced")]
    harness.lsn = lsn
    assert harness.commit("c", 1, {"n": 3}) == []
    assert harness.commit("d", 1, {"n": 2}) == [(1, "upsert", "d", 1)]


def questions_of(messages):
    """Return the questions for the position of the log among messages."""
    return [message for to, message in messages if to == "master" and "nonce" in message]


def test_read_is_synced_when_the_back_end_has_confirmed_what_was_committed_before(harness):
    """The back end may be down, or its message lost: what the log lacks is no part of the first state yet."""
    first = harness.request_registration(1, sync_us=0, now_us=10)
    assert list_notices(first) == []
    (question,) = questions_of(first)
    entry = {"lsn": 6, "op": "row", "name": "t", "row": row("a", 1, 6, {"n": 1})}
    answered = harness.answer_question(question, 20, [entry])
    assert list_notices(answered) == [(1, "upsert", "a", 1), (1, "synced")]
    assert not questions_of(answered)


def test_answer_to_an_earlier_question_does_not_confirm_a_later_registration(harness):
    """It may have been sent before what was committed just before the call."""
    (question,) = questions_of(harness.request_registration(1, now_us=10))
    assert not questions_of(harness.request_registration(2, now_us=20))
    answered = harness.answer_question(question, 30)
    assert list_notices(answered) == [(1, "synced")]
    (question,) = questions_of(answered)
    assert list_notices(harness.answer_question(question, 40)) == [(2, "synced")]


def test_question_is_repeated_at_growing_intervals_while_a_read_waits(harness):
    harness.request_registration(1, now_us=0)
    now_us, asked_us = 0, []
    while now_us < 600_000_000:
        effects = harness.processor.handle(now_us, TimerFired("position"))
        asked_us += [now_us] * len(questions_of(sent(effects)))
        (timer,) = [effect for effect in effects if isinstance(effect, SetTimer)]
        now_us += timer.delay_us
    between_us = [later - earlier for earlier, later in pairwise(asked_us)]
    assert between_us == sorted(between_us)
    assert (asked_us[0], between_us[-1]) == (200_000, 60_000_000)
    unregister(harness, 1)
    effects = harness.processor.handle(now_us, TimerFired("position"))
    assert not any(isinstance(effect, Send | SetTimer) for effect in effects)


def test_answer_that_does_not_fit_confirms_nothing(harness):
    """Entries are missing before those that it has: they are on their way."""
    (question,) = questions_of(harness.request_registration(1, now_us=10))
    entry = {"lsn": 7, "op": "row", "name": "t", "row": row("b", 1, 7, {"n": 1})}
    answer = {"entries": [entry], "nonce": question["nonce"], "after": 6, "through": 7}
    assert list_notices(handle_event(harness.processor, "log", "master", 20, **answer)) == []


def test_back_end_that_has_restarted_is_asked_at_once(harness):
    """Its lineage is confirmed first; the question after that has its position in the present log."""
    harness.request_registration(1, now_us=10)
    lineage = {"second": 6}
    (question,) = questions_of(
        handle_event(harness.processor, "log", "master", 20, entries=[], lineage=lineage)
    )
    answer = {"entries": [], "nonce": question["nonce"], "lineage": lineage}
    (question,) = questions_of(handle_event(harness.processor, "log", "master", 30, **answer))
    answer = {**answer, "nonce": question["nonce"], "after": 5, "through": 5}
    assert list_notices(handle_event(harness.processor, "log", "master", 40, **answer)) == [(1, "synced")]


def test_registration_waits_for_the_log_that_its_client_knows():
    """The former processor has followed a log that was restored, of which this one has not heard yet."""
    since = {"since": {"0": 3}, "held": ["a"], "starts": {"0": "restored"}}
    assert Harness().register(**since, start="restored") == []
    assert Harness().register(**since) != []  # the client knows that this log is gone


def test_partitions_have_their_own_positions(populated):
    """After a move, one processor has partitions of which different ones have told so far."""
    since = {"since": {"0": 3, "1": 3}, "held": ["a", "h"]}
    assert list_notices(populated.register(1, **since)) == [(1, "upsert", "h", 4), (1, "synced")]
    since["since"] = {"0": 2, "1": 5}
    assert list_notices(populated.register(2, **since)) == [(2, "upsert", "a", 1), (2, "synced")]
    since = {"since": {"1": 5}, "held": ["h"], "sync_us": 0}
    assert list_notices(populated.register(3, **since)) == [(3, "upsert", "a", 1), (3, "synced")]


def test_first_message_of_each_registration_names_its_partitions(populated):
    """A device knows by it whose positions the later ones are."""
    for fields in ({"sync_us": 0}, {}, {"aggregate": "count(*)"}):
        first, *others = bodies(populated.register(**fields))
        assert (first["of"], [body.get("of") for body in others]) == (
            "0 1",
            [None] * len(others),
        )
    (_, ack) = populated.register(partitions=[1])[-1]
    assert (ack["place"], ack["of"]) == ("me", "1")


def test_reader_of_a_record_is_forgotten_when_it_has_left_the_read(harness):
    harness.register(1, "n = 1")
    harness.register(2, "n = 1")
    harness.commit("a", 1, {"n": 1})
    harness.commit("h", 1, {"n": 1})
    harness.commit("a", 2, {"n": 2})
    assert list(harness.processor._served._shown_to) == [(1, "h")]
    for handle in (1, 2):
        unregister(harness, handle)
    assert not harness.processor._served._shown_to
    assert not harness.processor._served.of_sessions._keys


def test_processor_keeps_little_of_a_subscription():
    """At most twice of what the index keeps of it: 643 bytes, with the data and the user of its reader."""
    count, harness = 1500, Harness()
    subscriptions = list(MatchingLoad(count + 100, 20).draw())
    messages = [
        msgspec.json.encode(
            build_message(
                "register", id=f"i{number}", handle=f"{number:016x} 1", request=1, predicate=to_json(predicate),
                reader=data, session=f"mud-notifications-1/mud 1764522000000000.{number}", table=1,
                partitions=[0, 1], least=5, endpoint=f"phone-{number}/news", address=f"phone-{number}@1/mud",
                claims={**CLAIMS, "user": auth["user"]},
            )
        )
        for number, (_, predicate, data, auth) in enumerate(subscriptions)
    ]  # fmt: skip
    del subscriptions

    def acknowledge(effects):
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, StreamItem):
                item = effect.message
                handle_event(harness.processor, "confirmed", "server", stream=item.stream, number=item.seq)

    def register(some):
        for message in some:
            effects = harness.processor.handle(0, Received("gateway", message))
            acknowledge(effects)
            for question in questions_of(sent(effects)):
                positions = {"after": 5, "through": 5}
                answer = build_message("log", entries=[], nonce=question["nonce"], **positions)
                acknowledge(harness.processor.handle(0, Received("master", answer)))

    register(messages[:100])
    gc.collect()
    tracemalloc.start()
    try:
        register(messages[100:])
        gc.collect()
        kept_bytes = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert len(harness.processor._served.reads) == count + 100
    assert kept_bytes <= 2 * 643

"""A processor by itself: continuous reads over what changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mud_machines import is_dropped, ports, sent, told

from mudkit.events import LinkUp, TimerFired
from mudkit.predicates import Predicate, function
from mudkit.predicates.exchange import to_json
from mudkit.predicates.functions import remove
from mudkit.systems.mud.messages import Row, processor_of
from mudkit.systems.mud.servers.processor import Matching, Processor
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import TableReplica, is_visible, record_of
from mudkit.systems.mud.tables.table import Table

TABLE = {"name": "t", "owner": "news", "acl": "public", "split": ["g"], "number": 1, "lsn": 1}
REST = {"apps": None, "schema": None, "removed": {}}
TURN = bytes(8).hex()
CLAIMS = {"app": "news", "user": "jane", "device": None, "expires_s": 100.0}


def begun(ports_, number=0, processors=1, replicas=()):
    return Processor(ports_, number, processors, "master", list(replicas), ["gateway"], ["server"])


def row(key, ver, lsn, data=None, predicate=None, ts_us=0):
    return {"key": key, "ver": ver, "data": data, "predicate": predicate, "ts_us": ts_us, "lsn": lsn}


class Cell:
    """A processor that has begun, and the log that it is told."""

    def __init__(self, rows=(), number=0, processors=1, replicas=("r1", "r2"), store=None):
        self.ports = store or ports("me")
        self.processor = begun(self.ports, number, processors, replicas)
        self.processor.handle(0, LinkUp("me", "server"))
        self.lsn = 5
        state = {"lsn": 5, "tables": [{**TABLE, **REST}], "rows": [("t", each) for each in rows]}
        told(self.processor, "state", "master", turn=TURN, **state)
        self.requests = 0

    def change(self, key, ver, data=None, predicate=None, now_us=0):
        self.lsn += 1
        entry = {"lsn": self.lsn, "op": "row", "name": "t", "row": row(key, ver, self.lsn, data, predicate)}
        return self.log(entry, now_us=now_us)

    def log(self, *entries, now_us=0):
        return bodies(told(self.processor, "log", "master", now_us, entries=list(entries)))

    def register(self, handle=1, text="TRUE", now_us=0, **more):
        self.requests += 1
        message = {
            "id": f"i{handle}", "handle": wire(handle), "request": self.requests,
            "predicate": to_json(Predicate(text)), "table": 1, "partitions": [0, 1], "least": 5,
        }  # fmt: skip
        return told(self.processor, "register", "gateway", now_us, **{**message, **more})


def wire(handle):
    return f"first {handle}"


def handle_of(body):
    return int(body["handle"].removeprefix("first ")) if "handle" in body else None


def bodies(said):
    """Give what readers are told: handle, and key and version, or what else."""
    found = []
    for _, message in said:
        if message["kind"] == "stream":
            body = message["body"]
            change = body.get("change")
            if change is None:
                what = [each for each in ("synced", "ended", "life") if body.get(each)]
                found += [(handle_of(body), each) for each in what[:1]]
            else:
                found.append((handle_of(body), change["op"], change["key"], change["ver"]))
    return found


@pytest.fixture
def cell():
    return Cell()


def test_what_matches_is_told_and_what_no_longer_does_is_taken_away(cell):
    assert bodies(cell.register(text="n = 1")) == [(1, "synced")]
    assert cell.change("a", 1, {"n": 1}) == [(1, "upsert", "a", 1)]
    assert cell.change("h", 1, {"n": 2}) == []
    assert cell.change("a", 2, {"n": 2}) == [(1, "remove", "a", 2)]
    assert cell.change("a", 3, {"n": 3}) == []  # told already
    assert cell.change("a", 4, {"n": 1}) == [(1, "upsert", "a", 4)]
    assert cell.change("a", 5) == [(1, "remove", "a", 5)]


def test_each_reader_is_told_of_his_own(cell):
    cell.register(1, "n = 1")
    cell.register(2, "n >= 1")
    assert cell.change("a", 1, {"n": 1}) == [(1, "upsert", "a", 1), (2, "upsert", "a", 1)]
    assert cell.change("a", 2, {"n": 2}) == [(2, "upsert", "a", 2), (1, "remove", "a", 2)]


def test_only_the_processor_of_a_partition_tells_of_it():
    for number in (0, 1):
        cell = Cell(number=number, processors=2)
        cell.register()
        mine = [key for place, key in enumerate("ah") if processor_of(1, place, 2) == number]
        assert [each[2] for each in cell.change("a", 1, {}) + cell.change("h", 1, {})] == mine


def test_a_late_copy_of_a_registration_changes_nothing(cell):
    first = cell.register(text="n = 1")
    assert bodies(cell.register(text="n = 1", request=1)) == []
    assert bodies(cell.register(text="n = 2", request=0)) == []
    assert cell.change("a", 1, {"n": 1}) == [(1, "upsert", "a", 1)]
    assert bodies(cell.register(text="n = 2")) == [(1, "remove", "a", 1), (1, "synced")]
    assert cell.change("h", 1, {"n": 2}) == [(1, "upsert", "h", 1)]
    assert cell.change("b", 1, {"n": 1}) == []
    assert first[-1][1]["kind"] == "registered"


def test_a_registration_that_was_sent_before_a_change_arrived_keeps_the_record(cell):
    cell.register(text="n = 1")
    assert cell.change("a", 1, {"n": 1}) == [(1, "upsert", "a", 1)]
    assert bodies(cell.register(text="n = 1")) == [(1, "synced")]
    assert cell.change("a", 2, {"n": 2}) == [(1, "remove", "a", 2)]


def test_a_late_copy_is_answered_with_where_the_read_has_begun(cell):
    assert cell.register()[-1][1]["lsn"] == 5
    cell.change("a", 1, {})
    assert cell.register(request=1)[-1][1]["lsn"] == 5


def end(cell, handle=1):
    return told(cell.processor, "unregister", "gateway", handle=wire(handle))


def test_what_is_ended_stays_ended(cell):
    cell.register()
    assert end(cell)[0][1]["kind"] == "registered"
    assert cell.change("a", 1, {}) == []
    assert cell.register() == []
    assert cell.change("a", 2, {}) == []
    cell.register(2)
    assert cell.change("a", 3, {}) == [(2, "upsert", "a", 3)]


def test_a_registration_waits_until_the_log_is_there(cell):
    assert cell.register(least=6) == []
    cell.change("a", 1, {})
    assert cell.register(least=6) != []


@pytest.mark.parametrize("other", [{"name": "u"}, {"table": 9}])
def test_a_registration_for_a_table_that_is_not_there_is_refused(cell, other):
    ((_, answer),) = cell.register(**other)
    assert answer["error"]["kind"] == "TableProblem"


def test_a_registration_that_comes_after_its_table_was_closed_is_refused(cell):
    """The gateway had let it in before."""
    cell.log({"lsn": 6, "op": "table", "table": {**TABLE, **REST, "acl": "user", "lsn": 6}})
    ((_, answer),) = cell.register()
    assert answer["error"]["kind"] == "AccessDenied"
    assert cell.change("a", 1, {}) == []
    assert cell.register(claims=CLAIMS, expires_s=100.0)[-1][1].get("error") is None


def test_a_token_that_expires_on_the_way_is_refused():
    cell = Cell([row("a", 1, 3, {})])
    more = {"claims": CLAIMS, "expires_s": 100.0, "sync_us": 0}
    assert len(bodies(cell.register(now_us=99_999_999, **more))) == 2
    for handle in (1, 2):
        ((_, answer),) = cell.register(handle, now_us=100_000_000, **more)
        assert answer["error"]["kind"] == "TokenExpired"


def test_a_reader_whose_token_expires_is_told_so_and_nothing_more(cell):
    cell.register(claims=CLAIMS, expires_s=100.0)
    assert cell.change("a", 1, {}, now_us=99_999_999) == [(1, "upsert", "a", 1)]
    assert cell.change("a", 2, {}, now_us=100_000_000) == [(1, "ended")]
    assert cell.change("a", 3, {}, now_us=100_000_001) == []


@pytest.fixture
def old():
    return Cell(
        [row("a", 1, 3, {"n": 1}, ts_us=10), row("h", 4, 4, {"n": 2}, ts_us=20), row("q", 2, 5, ts_us=30)]
    )


@pytest.mark.parametrize(
    ("sync_us", "keys"), [(None, ""), (0, "ah"), (10, "ah"), (11, "h"), (20, "h"), (21, "")]
)
def test_what_was_there_is_told_as_far_as_it_is_asked_for(old, sync_us, keys):
    said = bodies(old.register(sync_us=sync_us))
    assert "".join(each[2] for each in said[:-1]) == keys
    assert said[-1] == (1, "synced")


@pytest.mark.parametrize(("since", "keys"), [(2, "ah"), (3, "h"), (4, "")])
def test_who_registers_again_is_told_what_came_since(old, since, keys):
    said = bodies(old.register(since={"me": since}, held=["a", "h"]))
    assert "".join(each[2] for each in said[:-1]) == keys


def test_who_registers_again_is_told_what_is_gone_since(old):
    def again(handle, since, **more):
        return bodies(old.register(handle, since=since, held=["a", "h", "q"], text="n = 1", **more))[:-1]

    assert again(1, {"me": 3}) == [(1, "remove", "h", 4), (1, "remove", "q", 2)]
    assert again(2, {"me": 4}) == [(2, "remove", "q", 2)]
    assert again(3, {"me": 5}) == []
    assert again(4, {}) == [(4, "remove", "h", 4), (4, "remove", "q", 2)]
    assert again(5, {}, partitions=[0]) == []


def test_what_a_reader_holds_is_taken_away_when_it_goes_later(old):
    assert bodies(old.register(since={"me": 5}, held=["a", "h"])) == [(1, "synced")]
    assert old.change("a", 2) == [(1, "remove", "a", 2)]
    assert old.change("h", 5) == [(1, "remove", "h", 5)]


def test_what_is_held_and_was_never_there_is_taken_away_as_if_it_were_hidden():
    secret = to_json(Predicate("receiver.age >= 21"))
    old = Cell([row("b", 4, 4, {"n": 1}, secret), row("c", 4, 4, None, secret)])
    for since in ({"me": 5}, {}):
        said = bodies(old.register(since=since, held=["b", "c", "never"]))
        assert said == [*((1, "remove", key, None) for key in ("b", "c", "never")), (1, "synced")]


@pytest.fixture
def inverse():
    @function("inverse", returns="number")
    def inverse(x: float) -> float:
        return 1 / x

    yield
    remove("inverse")


def test_one_whose_predicate_fails_is_ended_and_the_others_are_told(cell, inverse):
    cell.register(1, "n >= 0")
    cell.register(2, "inverse(n) > 0")
    cell.register(3, "inverse(n - 1) < 0")
    assert cell.change("a", 1, {"n": 0}) == [(2, "ended"), (1, "upsert", "a", 1), (3, "upsert", "a", 1)]
    assert cell.change("a", 2, {"n": -1}) == [(3, "upsert", "a", 2), (1, "remove", "a", 2)]
    assert bodies(cell.register(2, "inverse(n) < 0")) == [(2, "synced")]
    assert cell.change("a", 3, {"n": 1}) == [(3, "ended"), (1, "upsert", "a", 3)]


def test_one_that_was_told_and_fails_is_not_told_that_it_is_gone(cell, inverse):
    cell.register(1, "inverse(n) > 0")
    assert cell.change("a", 1, {"n": 1}) == [(1, "upsert", "a", 1)]
    assert cell.change("a", 2, {"n": 0}) == [(1, "ended")]
    assert cell.change("a", 3) == []


def test_one_whose_predicate_fails_on_what_is_there_is_told_nothing_of_it(inverse):
    cell = Cell([row("a", 1, 3, {"n": 1}), row("h", 1, 4, {"n": 0})])
    ((to, answer),) = cell.register(text="inverse(n) > 0", sync_us=0)
    assert (to, answer["kind"], answer["error"]["kind"]) == ("gateway", "registered", "PredicateError")
    assert cell.change("a", 2, {"n": 2}) == []
    assert sent(cell.processor.handle(10_000_000, TimerFired("again server")))[1:] == []


def test_a_registration_whose_function_is_gone_is_refused(cell, inverse):
    predicate = to_json(Predicate("inverse(n) > 0"))
    remove("inverse")
    try:
        ((_, answer),) = cell.register(predicate=predicate)
    finally:
        function("inverse", returns="number", argument_kinds=("number",))(lambda x: 1 / x)
    assert answer["error"]["kind"] == "PredicateError"


def table_entry(cell, **changed):
    cell.lsn += 1
    table = {**TABLE, "apps": None, "schema": None, "removed": {}, "lsn": cell.lsn, **changed}
    return {"lsn": cell.lsn, "op": "table", "table": table}


def test_a_table_that_is_closed_or_dropped_ends_what_is_read_of_it(cell):
    cell.register(1)
    cell.register(2, claims=CLAIMS, expires_s=100.0)
    assert cell.log(table_entry(cell, name="u", number=9, acl="user")) == []
    assert cell.log(table_entry(cell, acl="user")) == [(1, "ended")]
    assert cell.change("a", 1, {}) == [(2, "upsert", "a", 1)]
    cell.lsn += 1
    assert cell.log({"lsn": cell.lsn, "op": "drop", "name": "u"}) == []
    cell.lsn += 1
    assert cell.log({"lsn": cell.lsn, "op": "drop", "name": "t"}) == [(2, "ended")]


def test_a_reader_sees_the_columns_that_there_are(cell):
    cell.register(claims=CLAIMS, expires_s=100.0)
    cell.log(table_entry(cell, removed={"n": None}))
    cell.lsn += 1
    entry = {"lsn": cell.lsn, "op": "row", "name": "t", "row": row("a", 1, cell.lsn, {"n": 1, "m": 2})}
    ((_, message), _) = told(cell.processor, "log", "master", entries=[entry])
    assert message["body"]["change"]["data"] == {"m": 2}


def test_other_reader_data_count_from_then_on(cell):
    secret = to_json(Predicate("receiver.age >= 21"))
    cell.register()
    assert cell.change("a", 1, {}, secret) == []
    for handle in (1, 7):  # the latter is none
        told(cell.processor, "update_data", "gateway", handle=wire(handle), data_seq=2, reader={"age": 30})
    assert cell.change("a", 2, {}, secret) == [(1, "upsert", "a", 2)]


OF_ADULTS = to_json(Predicate("receiver.age >= 21"))


def update(cell, data_seq, age):
    """Send an update of the reader's data; return the number that is acknowledged."""
    message = {"handle": wire(1), "data_seq": data_seq, "reader": {"age": age}}
    return told(cell.processor, "update_data", "gateway", **message)[0][1]["data_seq"]


@pytest.mark.parametrize("late_seq", [1, 2])
@pytest.mark.parametrize(("age", "expected"), [(30, [(1, "upsert", "a", 1)]), (10, [])])
def test_a_late_copy_of_an_update_changes_nothing(cell, late_seq, age, expected):
    cell.register(data_seq=1, reader={"age": 40 - age})
    assert update(cell, 2, age) == 2
    assert update(cell, late_seq, 40 - age) == 2
    assert cell.change("a", 1, {}, OF_ADULTS) == expected


@pytest.mark.parametrize("late_seq", [1, 2])
@pytest.mark.parametrize(("age", "expected"), [(30, [(1, "upsert", "a", 1)]), (10, [])])
def test_of_updates_before_the_registration_the_first_with_the_highest_number_counts(
    cell, late_seq, age, expected
):
    assert update(cell, 2, age) == 2
    assert update(cell, late_seq, 40 - age) == late_seq
    assert cell.register(data_seq=1, reader={"age": 40 - age})[-1][1]["data_seq"] == 2
    assert cell.change("a", 1, {}, OF_ADULTS) == expected


@pytest.mark.parametrize(("age", "expected"), [(30, [(1, "upsert", "a", 1)]), (10, [])])
def test_a_later_registration_that_an_update_has_overtaken_keeps_the_newer_data(cell, age, expected):
    cell.register(data_seq=1, reader={"age": 40 - age})
    assert update(cell, 2, age) == 2
    assert cell.register(data_seq=1, reader={"age": 40 - age})[-1][1]["data_seq"] == 2
    assert cell.register(data_seq=1, reader={"age": 40 - age})[-1][1]["data_seq"] == 2
    assert cell.change("a", 1, {}, OF_ADULTS) == expected
    assert update(cell, 3, 40 - age) == 3


def test_a_server_that_gives_a_session_up_ends_its_reads_and_no_others(cell):
    cell.register(1)
    cell.register(2, session="another")
    told(cell.processor, "gone", "server", session="s")
    assert cell.change("a", 1, {}) == [(2, "upsert", "a", 1)]


def test_reads_go_to_the_replicas_in_turn_and_the_latest_to_the_master(cell):
    def asked(latest):
        return told(cell.processor, "read", "gateway", latest=latest)[0][0]

    assert [asked(False) for _ in range(4)] in (["r1", "r2"] * 2, ["r2", "r1"] * 2)
    assert asked(True) == "master"
    alone = Cell(replicas=())
    assert told(alone.processor, "read", "gateway", latest=False)[0][0] == "master"


def test_a_life_is_begun_once_and_counted(cell):
    assert cell.processor.handle(0, LinkUp("me", "server")) == ()
    again = Cell(store=cell.ports)
    said = sent(again.processor.handle(1_000_000, TimerFired("again server")))
    assert [message["body"]["life"] for _, message in said] == [2]


def test_what_is_told_is_told_again_until_it_is_confirmed_in_this_life(cell):
    cell.register()
    cell.change("a", 1, {})

    def again(at_us=1_000_000):
        said = sent(cell.processor.handle(at_us, TimerFired("again server")))
        return [message["number"] for _, message in said]

    assert again(999_999) == []
    assert again() == [1, 2, 3]  # its life, that it has synced, the change
    told(cell.processor, "confirmed", "server", stream="me 0", number=3)
    assert is_dropped(cell.processor, "confirmed", "nobody", stream="me 1", number=3)
    assert again(1_000_001) == []
    assert again(3_000_001) == [1, 2, 3]
    told(cell.processor, "confirmed", "server", stream="me 1", number=2)
    assert again(10_000_000) == [3]


def test_without_a_state_it_asks_for_it():
    processor = begun(ports("me"))
    assert told(processor, "log", "master", entries=[]) == [("master", {"kind": "follow", "turn": TURN})]
    said = sent(processor.handle(1_000_000, TimerFired("begin")))
    assert said == [("master", {"kind": "follow", "turn": TURN})]


def test_a_client_that_has_moved_is_named_with_its_new_address(cell):
    cell.register()
    note = {"session": "s", "endpoint": "jane/news", "address": "away"}
    assert told(cell.processor, "moved", "server", **note) == [("server", {"kind": "moved", **note})]
    said = told(cell.processor, "gone", "server", session="s", endpoint="jane/news")
    whereabouts = {"what": "whereabouts", "endpoint": "jane/news", "address": "away"}
    assert [each["body"] for _, each in said] == [whereabouts]


def test_nobody_moves_the_reads_of_another(cell):
    cell.register()
    note = {"session": "s", "endpoint": "mallory/news", "address": "away"}
    told(cell.processor, "moved", "server", **note)
    said = told(cell.processor, "gone", "server", session="s", endpoint="jane/news")
    assert said[0][1]["body"]["address"] != "away"


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


def handle(number):
    return ("bob/news", number)


def matching(*readers, copy=None):
    made = Matching(copy or TableReplica())
    for number, (text, data) in enumerate(readers):
        made.add(handle(number), Predicate(text), data, {"user": "bob"})
    return made


def found(made, row, table=MATCHED_TABLE):
    reached, failed = made.match(row, table)
    return [number for _, number in reached], [number for _, number in failed]


def test_one_that_fails_is_told_apart():
    made = matching(("brittle(n)", {}), ("n = 0", {}), ("n = 1", {}))
    assert found(made, version(n=1)) == ([0, 2], [])
    assert found(made, version(n=0)) == ([1], [0])
    assert "ZeroDivisionError" in made.match(version(n=0), MATCHED_TABLE)[1][handle(0)].summary
    made.remove(handle(0))
    assert found(made, version(n=0)) == ([1], [])


def test_a_writers_predicate_that_fails_hides_and_ends_nothing():
    made = matching(("TRUE", {"n": 0}), ("TRUE", {"n": 1}), ("brittle(n)", {"n": 1}))
    assert found(made, version("brittle(receiver.n)", n=1)) == ([1, 2], [])
    assert found(made, version("brittle(receiver.n)", n=0)) == ([1], [2])


def test_what_a_reader_says_last_counts_where_something_fails():
    made = matching(("n = receiver.n", {"n": 1}), ("brittle(n)", {"n": 1}))
    for number in (0, 1):
        made.update(handle(number), {"n": 0})
    assert found(made, version("receiver.n = 0", n=0)) == ([0], [1])


def test_columns_that_were_taken_out_are_not_seen_where_something_fails():
    made = matching(("m IS NULL", {}), ("brittle(n)", {}))
    table = MATCHED_TABLE.altered({"remove": ["m"]}, 2)
    assert found(made, version("m IS NULL", n=0, m=1), table) == ([0], [1])


READS = st.sampled_from(
    ["TRUE", "n = 0", "n >= receiver.n", "brittle(n)", "brittle(receiver.n)", "auth.user = 'bob'"]
)
WRITERS = st.none() | st.sampled_from(
    ["receiver.n = 0", "brittle(receiver.n)", "brittle(n)", "n = receiver.n"]
)


@given(st.lists(st.tuples(READS, st.integers(-1, 1)), max_size=5), WRITERS, st.integers(-1, 1))
def test_it_is_as_if_each_was_asked_by_itself(readers, writer, n):
    row = version(writer, n=n)
    expected, failing = [], []
    for number, (text, data) in enumerate(readers):
        auth, said = {"user": "bob"}, {"n": data}
        if not is_visible(row, said, auth):
            continue
        try:
            is_wanted = Predicate(text)(record_of(row), receiver=said, auth=auth) is True
        except ValueError:
            failing.append(number)
            continue
        if is_wanted:
            expected.append(number)
    made = matching(*((text, {"n": data}) for text, data in readers))
    assert found(made, row) == (expected, failing)


PEOPLE = Table("people", "app", apps=["news"], number=2)
BY = "lookup('people', by, 'n') = 1"


def people(**numbers):
    copy = TableReplica()
    rows = [("people", replace(version(n=n), key=key)) for key, n in numbers.items()]
    copy.load(1, [PEOPLE], rows)
    return copy


def joining(*readers, app="news", **numbers):
    made = Matching(people(**numbers))
    for number, (text, data) in enumerate(readers):
        made.add(handle(number), Predicate(text), data, {"app": app, "user": "bob"})
    return made


def test_those_that_join_come_after_the_others():
    made = joining((BY, {}), ("by = 'x'", {}), (BY + " AND n > receiver.n", {"n": 0}), x=1, y=2)
    assert found(made, version(by="x", n=1)) == ([1, 0, 2], [])
    assert found(made, version(by="y", n=1)) == ([], [])
    for number, data in ((0, {"n": 9}), (1, {"n": 9}), (2, {"n": 1})):
        made.update(handle(number), data)
    assert found(made, version(by="x", n=1)) == ([1, 0], [])
    for number in range(3):
        made.remove(handle(number))
        assert found(made, version(by="x", n=2)) == ([[1, 2], [2], []][number], [])


def test_a_writer_shows_a_record_by_another_table():
    made = joining(
        ("TRUE", {"as": "x"}), ("TRUE", {"as": "y"}), (BY, {"as": "x"}), ("n = 0", {"as": "x"}), x=1, y=2
    )
    row = version("lookup('people', receiver.as, 'n') = 1", by="x", n=1)
    assert found(made, row) == ([0, 2], [])


@pytest.mark.parametrize(("app", "reached"), [("news", [0]), ("bank", [])])
def test_who_may_not_come_into_a_table_is_ended_that_joins_it(app, reached):
    made = joining((BY, {}), ("NOT " + BY, {}), ("FALSE AND " + BY, {}), app=app, x=1)
    assert found(made, version(by="x")) == (reached, [] if reached else [0, 1])


@given(
    st.lists(st.tuples(st.sampled_from([BY, "n = 0", "brittle(n)"]), st.integers(0, 1)), max_size=4),
    st.integers(0, 1),
)
def test_who_has_ended_is_found_no_more(readers, n):
    made = joining(*((text, {"n": data}) for text, data in readers), x=1)
    for number in range(len(readers)):
        made.remove(handle(number))
    assert found(made, version(by="x", n=n)) == ([], [])

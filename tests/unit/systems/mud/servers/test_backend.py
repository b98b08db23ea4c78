"""The back end by itself: its log, and who follows it."""

from __future__ import annotations

import pytest
from mud_machines import is_dropped, ports, sent, told

from mudkit.events import LinkUp, TimerFired
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud.servers.backend import BEFORE_FIRST, BackEnd


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def master(store):
    return begun(store)


def begun(store):
    return BackEnd(ports(store=store), ["gateway"], ["processor"], ["replica"])


LATE_US = 1_000_000
"""After the retransmission timeout."""
OWNER = {"app": "news", "user": None, "device": None, "expires_s": 1e9}
SECRET = to_json(Predicate("receiver.age >= 21"))


def administer(master, op, name, identity, **properties):
    return told(
        master, "admin", "gateway", id=identity, op=op, name=name, properties=properties, claims=OWNER
    )


def create(master, name="t", identity="1"):
    return administer(master, "create", name, identity, split=["g"])


def write(master, number, known=1, **more):
    message = {"id": f"w{number}", "number": number, "known": known, "data": {"n": number}}
    return told(master, "write", "processor", **{**message, **more})


def has(master, follower, lsn, **start):
    """Let a follower say up to which entry it has the log; they are counted from 1 here."""
    return told(master, "has", follower, lsn=BEFORE_FIRST + lsn, **start)


def log(said):
    """Give the followers that were sent entries, with their numbers."""
    return {
        to: [each["lsn"] - BEFORE_FIRST for each in message["entries"]]
        for to, message in said
        if message["kind"] == "log"
    }


def kept(store):
    return [int(key.removeprefix("log ")) - BEFORE_FIRST for key, _ in store.items("log ")]


def public(master):
    create(master)
    administer(master, "alter", "t", "2", acl="public")


def follow(master, follower="replica"):
    """Let a follower begin, and say that it has the state; give that."""
    ((to, state),) = told(master, "follow", follower, turn="now")
    assert (to, state["kind"], state["turn"]) == (follower, "state", "now")
    assert told(master, "has", follower, lsn=state["lsn"]) == []
    return state


def begin(master):
    for each in ("replica", "processor"):
        follow(master, each)


def test_who_begins_is_sent_the_state_and_then_what_comes(master):
    create(master)
    assert follow(master)["lsn"] == BEFORE_FIRST + 1
    assert log(create(master, "u", "2")) == {"replica": [2]}


def test_what_a_follower_has_is_not_sent_when_it_says_so_again(master):
    create(master)
    follow(master)
    assert has(master, "replica", 1) == []
    create(master, "u", "2")
    assert has(master, "replica", 1) == []  # it is under way
    assert has(master, "replica", 2) == []


def test_of_two_states_that_are_under_way_the_older_may_come_first(store, master):
    create(master)
    follow(master, "processor")
    told(master, "follow", "replica", turn="now")
    create(master, "u", "2")
    has(master, "processor", 2)
    told(master, "follow", "replica", turn="now")
    assert kept(store) == [1, 2]  # nobody knows what the replica has
    assert log(sent(master.handle(LATE_US, TimerFired("again")))) == {"replica": []}
    assert log(has(master, "replica", 1)) == {"replica": [2]}


def test_a_life_that_begins_asks_its_followers_and_sends_what_they_lack(store, master):
    public(master)
    again = begun(store)
    asked = sent(again.handle(0, LinkUp("here", "server")))
    assert log(asked) == {"replica": [], "processor": []}
    ((start, first),) = asked[0][1]["lineage"].items()
    assert first == BEFORE_FIRST + 3
    # It has not heard of this start: another log may have had this entry.
    assert has(again, "replica", 2) == []
    assert log(has(again, "replica", 1, start=start)) == {"replica": [2]}
    assert has(again, "processor", 2, start=start) == []


def test_a_client_that_knows_another_start_learns_what_is_gone(store, master):
    public(master)
    again = begun(store)
    create(master, "u", "3")  # the backup had not seen it
    ((to, told_so),) = told(again, "describe", "gateway", id="1", name="u", claims=None)
    start = told_so["start"]
    assert (to, told_so["kind"], told_so["before"]) == ("gateway", "restarted", "")
    assert told_so["shared"] == BEFORE_FIRST + 2
    ((_, table),) = told(again, "describe", "gateway", id="1", name="t", claims=None, start=start)
    assert table["kind"] == "described"
    ((_, told_so),) = told(again, "describe", "gateway", id="1", name="t", claims=None, start="never")
    assert (told_so["kind"], told_so["shared"]) == ("restarted", 0)
    assert write(again, 1) == []  # the gateway asks again, and learns of the start


def test_a_follower_that_has_nothing_of_the_log_yet_has_said_so(master):
    begin(master)  # at entry 0
    assert has(master, "replica", 0) == []
    assert log(create(master)) == {"replica": [1], "processor": [1]}
    assert has(master, "replica", 0) == []


def test_entries_are_sent_again_until_they_have_come_and_only_then_forgotten(store, master):
    begin(master)
    create(master)
    create(master, "u", "2")
    assert log(sent(master.handle(LATE_US, TimerFired("again")))) == {"replica": [1, 2], "processor": [1, 2]}
    has(master, "replica", 2)
    assert kept(store) == [1, 2]
    has(master, "processor", 1)
    assert kept(store) == [2]
    assert log(sent(master.handle(2 * LATE_US, TimerFired("again")))) == {"processor": [2]}
    has(master, "processor", 2)
    assert kept(store) == []
    assert master.handle(3 * LATE_US, TimerFired("again")) == []


def test_old_news_of_a_follower_takes_nothing_back(master):
    begin(master)
    create(master)
    has(master, "replica", 1)
    has(master, "processor", 1)
    has(master, "replica", 0)
    assert master.handle(LATE_US, TimerFired("again")) == []


def test_the_same_write_has_the_same_outcome(master):
    public(master)
    begin(master)
    (_, first), *pushed = write(master, 1)
    assert first["ver"] == 1
    assert log(pushed) == {"replica": [3], "processor": [3]}
    assert write(master, 1) == [("gateway", first)]
    assert write(master, 2)[0][1]["ver"] == 2


def test_what_its_client_knows_is_forgotten_and_a_late_copy_is_not_applied(store, master):
    public(master)
    write(master, 1)
    write(master, 2, known=2)
    assert list(store.get("applied jane/news\nfirst\nNone\nNone")) == ["2"]
    write(master, 3, known=1)  # an older message
    ((_, outcome),) = write(master, 1)
    assert outcome["error"]["summary"] == "The result of this write is not known any more."
    assert write(master, 2)[0][1]["ver"] == 2
    assert write(master, 4, known=4)[0][1]["ver"] == 4


def test_a_refusal_holds_for_an_earlier_copy_that_comes_late(master):
    create(master)
    error = write(master, 1)[0][1]["error"]
    assert error["kind"] == "AccessDenied"
    administer(master, "alter", "t", "2", acl="public")
    ((_, late),) = write(master, 1)
    assert late["error"] == error
    assert "ver" not in late
    assert write(master, 2)[0][1]["ver"] == 1


def test_of_an_expired_token_nothing_comes_so_the_write_can_be_sent_with_another(master):
    public(master)
    error = {"kind": "TokenExpired", "summary": "This token has expired."}
    for _ in range(2):
        assert write(master, 1, refused=error)[0][1]["error"] == error
    (_, first), *_ = write(master, 1)
    assert first["ver"] == 1
    assert write(master, 1) == [("gateway", first)]


def test_a_write_that_was_applied_before_its_token_expired_has_succeeded(master):
    public(master)
    (_, first), *_ = write(master, 1)
    assert write(master, 1, refused={"kind": "TokenExpired", "summary": "no"}) == [("gateway", first)]


def test_a_write_that_changes_nothing_sends_nobody_anything(master):
    public(master)
    begin(master)
    ((_, answer),) = write(master, 1, type="conditional", replaces=7)
    assert answer["conflict"] is None
    ((_, answer),) = write(master, 2, table=99)
    assert answer["error"]["kind"] == "TableProblem"


def test_a_request_of_tables_is_carried_out_once(master):
    (first,) = create(master)
    assert create(master) == [first]
    (_, refused), *_ = create(master, identity="another")
    assert refused["error"]["kind"] == "TableProblem"


def test_a_table_that_is_dropped_leaves_no_row(store, master):
    public(master)
    write(master, 1)
    administer(master, "drop", "t", "3")
    assert store.items("row") == []
    assert store.items("table") == []
    create(master, "t", "4")
    administer(master, "alter", "t", "5", acl="public")
    assert write(master, 2)[0][1]["ver"] == 1


def test_what_a_deleted_record_was_hidden_by_hides_that_it_is_gone(master):
    public(master)
    write(master, 1, predicate=SECRET)
    write(master, 2, data=None, reader={"age": 30})
    for age, shown in ((30, 2), (3, None)):
        ((_, answer),) = write(master, 2 + age, type="conditional", replaces=7, reader={"age": age})
        assert (answer["conflict"] or {"ver": None})["ver"] == shown
    ((_, answer), *_) = write(master, 99, type="conditional", replaces=0)  # nobody is there: it is an insert
    assert answer["ver"] == answer["lsn"] == BEFORE_FIRST + 5  # how often that was written is not for him


def test_an_unknown_table_is_described_by_an_error(master):
    create(master)
    ((_, known),) = told(master, "describe", "gateway", id="9", name="t")
    assert (known["table"]["name"], known["error"]) == ("t", None)
    ((_, unknown),) = told(master, "describe", "gateway", id="9", name="x")
    assert (unknown["table"], unknown["error"]["kind"]) == (None, "TableProblem")


def test_a_table_is_described_with_those_that_a_read_looks_into(master):
    create(master)
    create(master, "people", "2")

    def described(name, **more):
        ((to, answer),) = told(master, "describe", "gateway", id="d", name=name, **more)
        assert (to, answer.pop("kind"), answer.pop("id")) == ("gateway", "described", "d")
        return answer

    alone, both = described("t"), described("t", joined=["people", "t"])
    assert (alone.keys(), alone["table"]["name"], alone["error"]) == ({"table", "error"}, "t", None)
    assert ([each["name"] for each in both["joined"]], both["table"]) == (["people", "t"], alone["table"])
    for name, joined in (("u", ["t"]), ("t", ["people", "u"])):
        answer = described(name, joined=joined)
        assert (answer["table"], answer["error"]["found"], answer.get("joined")) == (None, "'u'", None)


def test_a_writer_predicate_that_looks_into_no_table_is_refused(master):
    public(master)

    def written(number, text):
        ((_, answer), *_) = write(master, number, predicate=to_json(Predicate(text)))
        return answer["error"]["kind"] if "error" in answer else answer["ver"]

    assert written(1, "lookup('t', 'a', 'n') = 1 AND lookup('u', 'a', 'n') = 1") == "TableProblem"
    assert written(2, "lookup('t', 'a', 'n') = 1") == 1
    assert written(3, "lookup(u, 'a', 'n') = 1") == "PredicateError"


def test_a_conflict_shows_a_record_to_whom_its_writer_does_by_another_table(master):
    public(master)
    write(master, 1, key="people", data={"n": 1}, predicate=SECRET)
    write(master, 2, predicate=to_json(Predicate("lookup('t', 'people', 'n') = 1")))
    for number, (age, is_shown) in enumerate(((20, False), (21, True)), 3):
        ((_, answer), *_) = write(master, number, type="conditional", reader={"age": age})
        assert (answer["conflict"] is not None) == is_shown


def test_a_follower_has_no_entry_that_there_is_not(master):
    begin(master)
    create(master)
    for lsn in (-2, 0, 7, BEFORE_FIRST - 1, BEFORE_FIRST + 2, 1 << 62):  # looking each up would take for ever
        assert is_dropped(master, "has", "replica", lsn=lsn)
    assert log(sent(master.handle(LATE_US, TimerFired("again")))) == {"replica": [1], "processor": [1]}


def test_of_a_writer_predicate_nothing_else_is_kept(store, master):
    public(master)
    odd = {**SECRET, "more": float("nan")}
    assert write(master, 1, predicate=odd)[0][1]["ver"] == 1
    assert store.get("row\nt\na")["predicate"] == SECRET
    nan, large = float("nan"), 1 << 70
    odd = [
        nan,
        large,
        {"in": [large]},
        [],
        b"x",
        {"point": [nan, 0]},
        {"struct": {"a": nan}},
        {"struct": [large]},
    ]
    for number, constant in enumerate(odd, 2):
        ((_, answer),) = write(master, number, predicate={**SECRET, "constants": [constant]}, key="b")
        assert answer["error"]["kind"] == "PredicateError"


def test_a_store_older_than_what_its_reader_has_seen_refuses_the_read(master):
    public(master)
    read = {"table": BEFORE_FIRST + 1, "latest": True}
    ((_, part),) = told(master, "read", "processor", **read, least=BEFORE_FIRST + 2)
    assert part["rows"] == []
    ((_, part),) = told(master, "read", "processor", **read, least=BEFORE_FIRST + 3)
    assert part["error"]["kind"] == "TableProblem"
    assert "older" in part["error"]["summary"]

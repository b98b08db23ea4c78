"""Back end machine: log, followers, writes, tables, and restarts."""

from __future__ import annotations

import pytest
from mud_machines import handle_event, is_dropped, ports, sent

from mudkit.events import LinkUp, SetTimer, TimerFired
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.committed_log import BEFORE_FIRST
from mudkit.systems.mud.servers.confirmed_tables import ALONE_US


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def master(store):
    return create_back_end(store)


def create_back_end(store):
    return BackEnd(
        ports(store=store),
        ["gateway"],
        ["processor"],
        ["replica"],
        ["server"],
        "naming",
        keep_deleted_us=KEEP_US,
    )


KEEP_US = 70_000_000
"""Time for which tombstones are kept."""
LATE_US = 1_000_000
"""After the retransmission timeout."""
OWNER = {"app": "news", "user": None, "device": None, "expires_s": 1e9}
SECRET = to_json(Predicate("receiver.age >= 21"))


def administer(master, op, name, identity, **properties):
    """Create, alter or drop a table, and acknowledge it as the gateway; return what others are sent."""
    handle_event(master, "follow", "gateway", turn="now")
    messages = handle_event(
        master, op, "gateway", id=identity, name=name, properties=properties, claims=OWNER
    )
    answers = [message for message in messages if message[1]["kind"] == "administered"]
    to_others = [message for message in messages if message[0] != "gateway"]
    return [*answers, *acknowledge_tables(master), *to_others]


def acknowledge_tables(master, gateway="gateway", lsn=None, **fields):
    """Acknowledge the tables up to a position, counted from 1, or all."""
    start = {"start": start} if (start := next(reversed(master._lineage), None)) else {}
    position = master._copy.lsn if lsn is None else BEFORE_FIRST + lsn
    return handle_event(master, "has", gateway, lsn=position, **start, **fields)


def create(master, name="t", identity="1"):
    return administer(master, "create", name, identity, split=["g"])


def write(master, number, known=1, **fields):
    message = {"id": f"w{number}", "number": number, "known": known, "data": {"n": number}}
    return handle_event(master, "write", "processor", **{**message, **fields})


def administer_alone(master, op, name, identity, now_us=0, **fields):
    """Create, alter or drop a table; no gateway acknowledges it."""
    message = {"id": identity, "name": name, "properties": {}, "claims": OWNER, **fields}
    return handle_event(master, op, "gateway", now_us, **message)


def acknowledge(master, follower, lsn, **start):
    """Acknowledge the log up to an entry, here counted from 1."""
    return handle_event(master, "has", follower, lsn=BEFORE_FIRST + lsn, **start)


def list_sent(messages):
    """Return the numbers of the entries sent to each follower."""
    return {
        to: [entry["lsn"] - BEFORE_FIRST for entry in message["entries"]]
        for to, message in messages
        if message["kind"] == "log"
    }


def list_stored(store):
    return [int(key.removeprefix("log ")) - BEFORE_FIRST for key, _ in store.items("log ")]


def create_public_table(master):
    create(master)
    administer(master, "alter", "t", "2", acl="public")


def follow(master, follower="replica"):
    """Send a follower the state, acknowledge it, and return it."""
    ((to, state),) = handle_event(master, "follow", follower, turn="now")
    assert (to, state["kind"], state["turn"]) == (follower, "state", "now")
    assert handle_event(master, "has", follower, lsn=state["lsn"]) == []
    return state


def start_followers(master):
    for follower in ("replica", "processor"):
        follow(master, follower)


def test_new_follower_is_sent_the_state_and_then_new_entries(master):
    create(master)
    assert follow(master)["lsn"] == BEFORE_FIRST + 1
    assert list_sent(create(master, "u", "2")) == {"replica": [2]}


def test_question_of_a_follower_is_answered_with_all_that_it_lacks(master):
    """It knows then that it has what was committed before it asked."""
    create_public_table(master)
    start_followers(master)
    known, last = 2, BEFORE_FIRST + 2
    ((_, answer),) = acknowledge(master, "replica", known, nonce="n")
    assert (answer["entries"], answer["after"], answer["through"]) == ([], last, last)
    write(master, 1)
    ((_, answer),) = acknowledge(master, "replica", known, nonce="n")
    assert [entry["lsn"] for entry in answer["entries"]] == [last + 1]
    assert (answer["nonce"], answer["after"], answer["through"]) == ("n", last, last + 1)
    messages = acknowledge(master, "processor", known, start="other", nonce="n")
    (answer,) = (message for _, message in messages if message.get("nonce") == "n")
    assert "through" not in answer, "only the lineage counts for one that knows another incarnation"


def test_duplicate_acknowledgement_triggers_no_retransmission(master):
    create(master)
    follow(master)
    assert acknowledge(master, "replica", 1) == []
    create(master, "u", "2")
    assert acknowledge(master, "replica", 1) == []  # in flight
    assert acknowledge(master, "replica", 2) == []


def test_older_state_in_flight_may_arrive_first(store, master):
    create(master)
    follow(master, "processor")
    handle_event(master, "follow", "replica", turn="now")
    create(master, "u", "2")
    acknowledge(master, "processor", 2)
    handle_event(master, "follow", "replica", turn="now")
    assert list_stored(store) == [1, 2]  # the position of the replica is unknown
    assert list_sent(sent(master.handle(LATE_US, TimerFired("again")))) == {"replica": []}
    assert list_sent(acknowledge(master, "replica", 1)) == {"replica": [2]}


def test_follower_that_starts_again_is_sent_new_entries_after_its_state(master):
    """The comment in `_receive`: before the state it could not apply them, and they would be sent twice."""
    start_followers(master)
    handle_event(master, "follow", "replica", turn="another")
    assert list_sent(create(master)) == {"processor": [1]}
    assert list_sent(sent(master.handle(LATE_US, TimerFired("again"))))["replica"] == []
    assert list_sent(acknowledge(master, "replica", 0)) == {"replica": [1]}


def test_restarted_back_end_asks_followers_and_sends_missing_entries(store, master):
    create_public_table(master)
    restarted = create_back_end(store)
    messages = sent(restarted.handle(0, LinkUp("here", "server")))
    assert list_sent(messages) == {"gateway": [], "replica": [], "processor": []}
    ((start, first),) = messages[0][1]["lineage"].items()
    assert first == BEFORE_FIRST + 3
    # Without this start, the acknowledged entry may be of another log.
    assert acknowledge(restarted, "replica", 2) == []
    assert list_sent(acknowledge(restarted, "replica", 1, start=start)) == {"replica": [2]}
    assert acknowledge(restarted, "processor", 2, start=start) == []


def test_incarnation_after_a_wipe_is_durable(store, master):
    """See `_begin_own_lineage`: a client knows an incarnation that this store does not."""
    handle_event(master, "has", "gateway", lsn=-1, start="theirs")
    (start,) = store.get("lineage")
    messages = sent(create_back_end(store).handle(0, LinkUp("here", "server")))
    assert start in messages[0][1]["lineage"]


def test_client_of_another_start_is_sent_the_shared_log_position(store, master):
    create_public_table(master)
    restarted = create_back_end(store)
    create(master, "u", "3")  # not in the restored log
    ((to, answer),) = administer_alone(restarted, "drop", "t", "7")
    start = answer["start"]
    assert (to, answer["kind"], answer["before"]) == ("gateway", "restarted", "")
    assert answer["shared"] == BEFORE_FIRST + 2
    ((_, answer),) = administer_alone(restarted, "drop", "t", "7", start="never")
    assert (answer["kind"], answer["shared"]) == ("restarted", 0)
    assert write(restarted, 1) == []  # its client repeats it, and its gateway knows the start then
    assert [message["kind"] for _, message in administer_alone(restarted, "drop", "t", "7", start=start)] == [
        "log"
    ]


def test_follower_that_acknowledged_an_empty_log_is_sent_new_entries(master):
    start_followers(master)  # at entry 0
    assert acknowledge(master, "replica", 0) == []
    assert list_sent(create(master)) == {"replica": [1], "processor": [1]}
    assert acknowledge(master, "replica", 0) == []


def test_entries_are_retransmitted_and_stored_until_all_acknowledge(store, master):
    start_followers(master)
    create(master)
    create(master, "u", "2")
    assert list_sent(sent(master.handle(LATE_US, TimerFired("again")))) == {
        "replica": [1, 2],
        "processor": [1, 2],
    }
    acknowledge(master, "replica", 2)
    assert list_stored(store) == [1, 2]
    acknowledge(master, "processor", 1)
    assert list_stored(store) == [2]
    assert list_sent(sent(master.handle(2 * LATE_US, TimerFired("again")))) == {"processor": [2]}
    acknowledge(master, "processor", 2)
    assert list_stored(store) == []
    assert master.handle(3 * LATE_US, TimerFired("again")) == []


def test_late_acknowledgement_does_not_lower_the_position(master):
    start_followers(master)
    create(master)
    acknowledge(master, "replica", 1)
    acknowledge(master, "processor", 1)
    acknowledge(master, "replica", 0)
    assert master.handle(LATE_US, TimerFired("again")) == []


def test_duplicate_write_has_the_same_outcome(master):
    create_public_table(master)
    start_followers(master)
    (_, first), *pushed = write(master, 1)
    assert first["ver"] == 1
    assert list_sent(pushed) == {"replica": [3], "processor": [3]}
    assert write(master, 1) == [("gateway", first)]
    assert write(master, 2)[0][1]["ver"] == 2


def test_acknowledged_results_are_removed_and_late_duplicates_refused(store, master):
    create_public_table(master)
    write(master, 1)
    write(master, 2, known=2)
    assert list(store.get("applied jane/news\nfirst\nNone\nNone")) == ["2"]
    write(master, 3, known=1)  # late duplicate, which acknowledges less
    ((_, outcome),) = write(master, 1)
    assert outcome["error"]["summary"] == "The result of this write is not known any more."
    assert write(master, 2)[0][1]["ver"] == 2
    assert write(master, 4, known=4)[0][1]["ver"] == 4


def test_refusal_applies_to_late_duplicates(master):
    create(master)
    error = write(master, 1)[0][1]["error"]
    assert error["kind"] == "AccessDenied"
    administer(master, "alter", "t", "2", acl="public")
    ((_, late),) = write(master, 1)
    assert late["error"] == error
    assert "ver" not in late
    assert write(master, 2)[0][1]["ver"] == 1


def test_write_that_follows_another_waits_for_it(master):
    """Mobius 4.2: writes of a record are applied in order, also where the network has lost the first."""
    create_public_table(master)
    following = {"type": "conditional", "replaces": 0, "follows": 1}
    assert write(master, 2, **following) == []
    assert write(master, 2, type="blind", follows=1) == []
    assert write(master, 1)[0][1]["ver"] == 1
    assert write(master, 2, **following)[0][1]["ver"] == 2
    assert write(master, 2, **following)[0][1]["ver"] == 2  # once


def test_write_that_follows_a_failed_one_replaces_nothing(master):
    create_public_table(master)
    write(master, 1)
    (_, failed), *_ = write(master, 2, type="conditional", replaces=7)
    assert failed["conflict"]["ver"] == 1
    (_, conflict), *_ = write(master, 3, type="conditional", replaces=1, follows=2)
    assert conflict["conflict"]["ver"] == 1
    assert write(master, 4, type="blind", follows=3)[0][1]["ver"] == 2


def test_write_follows_one_whose_result_is_acknowledged(master):
    """A blind one is next in any case; a conditional one comes again with the version."""
    create_public_table(master)
    write(master, 1)
    write(master, 4, known=2, key="b")  # acknowledges the result of the first
    assert write(master, 2, known=1, type="conditional", replaces=0, follows=1) == []
    assert write(master, 3, known=1, type="blind", follows=1)[0][1]["ver"] == 2


def test_write_is_not_next_in_a_later_table_of_the_name(master):
    create_public_table(master)
    write(master, 1)
    administer(master, "drop", "t", "3")
    administer(master, "create", "t", "4", acl="public")
    ((_, outcome),) = write(master, 2, type="conditional", replaces=0, follows=1)
    assert outcome["error"]["kind"] == "TableProblem"


def test_write_that_was_absorbed_is_refused_if_a_restored_client_sends_it(master):
    """Its number was used with the content of the one that absorbed it."""
    create_public_table(master)
    (_, first), *_ = write(master, 1, absorbed=2)
    assert write(master, 1, absorbed=2) == [("gateway", first)]
    for absorbed in ({}, {"absorbed": 1}):
        ((_, outcome),) = write(master, 1, **absorbed)
        assert outcome["error"]["summary"] == "The result of this write is not known any more."


def test_write_with_an_expired_token_can_be_sent_with_another(master):
    create_public_table(master)
    error = {"kind": "TokenExpired", "summary": "This token has expired."}
    for _ in range(2):
        assert write(master, 1, refused=error)[0][1]["error"] == error
    (_, first), *_ = write(master, 1)
    assert first["ver"] == 1
    assert write(master, 1) == [("gateway", first)]


def test_write_applied_before_its_token_expired_succeeds(master):
    create_public_table(master)
    (_, first), *_ = write(master, 1)
    assert write(master, 1, refused={"kind": "TokenExpired", "summary": "no"}) == [("gateway", first)]


def test_write_without_effect_sends_no_log_entries(master):
    create_public_table(master)
    start_followers(master)
    ((_, answer),) = write(master, 1, type="conditional", replaces=7)
    assert answer["conflict"] is None
    ((_, answer),) = write(master, 2, table=99)
    assert answer["error"]["kind"] == "TableProblem"


def test_duplicate_table_request_is_carried_out_once(master):
    (first,) = create(master)
    assert create(master) == [first]
    (_, refused), *_ = create(master, identity="another")
    assert refused["error"]["kind"] == "TableProblem"


def test_dropped_table_leaves_no_rows(store, master):
    create_public_table(master)
    write(master, 1)
    administer(master, "drop", "t", "3")
    assert store.items("row") == []
    assert store.items("table") == []
    create(master, "t", "4")
    administer(master, "alter", "t", "5", acl="public")
    assert write(master, 2)[0][1]["ver"] == 1


def test_writer_predicate_of_a_deleted_record_hides_the_deletion(master):
    create_public_table(master)
    write(master, 1, predicate=SECRET)
    write(master, 2, data=None, reader={"age": 30})
    for age, version in ((30, 2), (3, None)):
        ((_, answer),) = write(master, 2 + age, type="conditional", replaces=7, reader={"age": age})
        assert (answer["conflict"] or {"ver": None})["ver"] == version
    ((_, answer), *_) = write(master, 99, type="conditional", replaces=0)  # no record exists: an insert
    assert answer["ver"] == answer["lsn"] == BEFORE_FIRST + 5  # does not reveal the number of versions


def test_writer_predicate_with_an_unusable_lookup_is_refused(master):
    create_public_table(master)

    def try_write(number, text):
        ((_, answer), *_) = write(master, number, predicate=to_json(Predicate(text)))
        return answer["error"]["kind"] if "error" in answer else answer["ver"]

    assert try_write(1, "lookup('t', 'a', 'n') = 1 AND lookup('u', 'a', 'n') = 1") == "TableProblem"
    assert try_write(2, "lookup('t', 'a', 'n') = 1") == 1
    assert try_write(3, "lookup(u, 'a', 'n') = 1") == "PredicateError"


def test_conflict_respects_writer_predicates_with_lookups(master):
    create_public_table(master)
    write(master, 1, key="people", data={"n": 1}, predicate=SECRET)
    write(master, 2, predicate=to_json(Predicate("lookup('t', 'people', 'n') = 1")))
    for number, (age, is_shown) in enumerate(((20, False), (21, True)), 3):
        ((_, answer), *_) = write(master, number, type="conditional", reader={"age": age})
        assert (answer["conflict"] is not None) == is_shown


def test_acknowledgement_of_an_impossible_position_is_dropped(master):
    start_followers(master)
    create(master)
    for lsn in (-2, 0, 7, BEFORE_FIRST - 1, BEFORE_FIRST + 2, 1 << 62):  # a loop up to the last would not end
        assert is_dropped(master, "has", "replica", lsn=lsn)
    assert list_sent(sent(master.handle(LATE_US, TimerFired("again")))) == {"replica": [1], "processor": [1]}


def test_writer_predicates_are_normalised_and_malformed_ones_refused(store, master):
    create_public_table(master)
    extended = {**SECRET, "more": float("nan")}
    assert write(master, 1, predicate=extended)[0][1]["ver"] == 1
    assert store.get("row\nt\na")["predicate"] == SECRET
    nan, large = float("nan"), 1 << 70
    constants = [
        nan,
        large,
        {"in": [large]},
        [],
        b"x",
        {"point": [nan, 0]},
        {"struct": {"a": nan}},
        {"struct": [large]},
    ]
    for number, constant in enumerate(constants, 2):
        ((_, answer),) = write(master, number, predicate={**SECRET, "constants": [constant]}, key="b")
        assert answer["error"]["kind"] == "PredicateError"


def test_read_is_refused_if_the_store_is_older_than_seen_versions(master):
    create_public_table(master)
    read = {"table": BEFORE_FIRST + 1, "latest": True}
    ((_, part),) = handle_event(master, "read", "processor", **read, least=BEFORE_FIRST + 2)
    assert part["rows"] == []
    ((_, part),) = handle_event(master, "read", "processor", **read, least=BEFORE_FIRST + 3)
    assert part["error"]["kind"] == "TableProblem"
    assert "older" in part["error"]["summary"]


# -- tombstones (Mobius 4.1: collected "when the back-end indicates that all replicas are up to date")


def list_rows(store):
    return [key.split("\n")[2] for key, _ in store.items("row\n")]


def delete_a_record(master):
    """Write two records, delete one, and return the position of the delete, counted from 1."""
    create_public_table(master)
    start_followers(master)
    for number, fields in enumerate([{"key": "a"}, {"key": "h"}, {"key": "a", "data": None}], 1):
        write(master, number, **fields)
    return 5


def test_tombstone_is_removed_when_it_is_old_and_all_followers_have_it(store, master):
    last = delete_a_record(master)
    for follower in ("replica", "processor"):
        acknowledge(master, follower, last)
    acknowledge(master, "replica", last, now_us=KEEP_US)
    assert list_rows(store) == ["a", "h"]  # not older than that
    collected = acknowledge(master, "replica", last, now_us=2 * KEEP_US)
    assert list_rows(store) == ["h"]
    assert list_sent(collected) == {"processor": [last + 1], "replica": [last + 1]}
    entry = collected[0][1]["entries"][0]
    assert (entry["op"], entry["name"], entry["until"]) == ("collect", "t", BEFORE_FIRST + last)
    restarted = create_back_end(store)
    assert restarted.overview().tables[0].rows[0][4] == 1


def test_tombstone_is_kept_while_a_follower_may_lack_it(store, master):
    last = delete_a_record(master)
    acknowledge(master, "replica", last)
    acknowledge(master, "replica", last, now_us=2 * KEEP_US)
    assert list_rows(store) == ["a", "h"]
    acknowledge(master, "processor", last, now_us=2 * KEEP_US + 1)
    acknowledge(master, "processor", last, now_us=3 * KEEP_US)
    assert list_rows(store) == ["h"]


def collect(master):
    last = delete_a_record(master)
    for number, now_us in ((last, 0), (last, 2 * KEEP_US), (last + 1, 2 * KEEP_US)):
        for follower in ("replica", "processor"):
            acknowledge(master, follower, number, now_us=now_us)


def outcome(messages):
    return next(message for _, message in messages if message["kind"] == "outcome")


def test_record_inserted_after_its_tombstone_was_removed_has_a_greater_version(store, master):
    collect(master)
    assert outcome(write(master, 4, key="a"))["ver"] == BEFORE_FIRST + 7
    assert outcome(write(master, 5, key="a"))["ver"] == BEFORE_FIRST + 8
    restarted = create_back_end(store)
    restarted.handle(0, LinkUp("here", "server"))
    (start,) = store.get("lineage")
    assert outcome(write(restarted, 6, key="b", start=start))["ver"] == BEFORE_FIRST + 9


@pytest.mark.parametrize("replaces", [1, 2])
def test_conditional_write_of_a_collected_version_is_a_conflict(master, replaces):
    """Neither a device that has not heard of the delete nor a late copy brings the record back."""
    collect(master)
    assert "conflict" in outcome(write(master, 4, key="a", type="conditional", replaces=replaces))
    assert outcome(write(master, 5, key="a", type="conditional", replaces=0))["ver"] > 2


def test_late_copy_of_an_acknowledged_write_is_refused_without_a_tombstone(store, master):
    collect(master)
    write(master, 4, known=4, key="h")
    assert "error" in outcome(write(master, 1, key="a"))
    assert list_rows(store) == ["h"]


def test_new_table_of_the_name_counts_versions_from_1(master):
    collect(master)
    administer(master, "drop", "t", "3")
    create(master, identity="4")
    administer(master, "alter", "t", "5", acl="public")
    assert outcome(write(master, 4, key="a"))["ver"] == 1


# -- results of administrations


def list_results(store):
    return [key for key, _ in store.items("done ") if not key.startswith("done before")]


def request(master, number, op="create", name="t", incarnation="first", **fields):
    handle_event(master, "follow", "gateway", turn="now")
    identity = f"jane/news {incarnation}.{number}"
    messages = administer_alone(master, op, name, identity, **fields)
    answers = [message for message in messages if message[1]["kind"] == "administered"]
    return [*answers, *acknowledge_tables(master)]


def test_results_that_the_client_has_are_removed_and_late_copies_have_no_effect(store, master):
    request(master, 3)
    request(master, 5, "drop")
    request(master, 9, "create", known=9)
    assert list_results(store) == ["done jane/news first.9"]
    assert request(master, 5, "drop") == []  # a late copy does not drop the new table
    assert master.overview().facts == {"tables": 1}
    (again,) = request(master, 9, "create", known=9)
    assert again[1]["table"]["number"] == BEFORE_FIRST + 3


def test_unanswered_results_are_kept(store, master):
    request(master, 3)
    request(master, 12, name="u", known=3)
    assert list_results(store) == ["done jane/news first.12", "done jane/news first.3"]
    assert "error" not in request(master, 3, known=3)[0][1]


def test_results_of_the_last_incarnations_are_kept(store, master):
    for number in range(70):
        request(master, 1, name=f"t{number}", incarnation=f"i{number:02d}")
    assert len(list_results(store)) == 64
    request(master, 2, name="u", incarnation="i69", known=2)
    assert len(list_results(store)) == 64


def test_outcome_has_the_interval_between_reads_that_the_processor_has_added(master):
    create_public_table(master)
    ((_, outcome), *_) = write(master, 1, name="t", key="a", asks_read_interval=True, read_interval_ms=5)
    assert outcome["read_interval_ms"] == 5
    ((_, again), *_) = write(master, 1, name="t", key="a", asks_read_interval=True, read_interval_ms=7)
    assert (again["ver"], again["read_interval_ms"]) == (outcome["ver"], 7)
    ((_, unasked), *_) = write(master, 2, name="t", key="a")
    assert "read_interval_ms" not in unasked


def test_refused_write_does_not_learn_how_often_others_read(master):
    create(master)
    ((_, outcome), *_) = write(master, 1, name="t", key="a", claims=None, read_interval_ms=5)
    assert outcome["error"]["kind"] == "AccessDenied"
    assert "read_interval_ms" not in outcome


# -- gateways, which follow the entries of tables


GATEWAYS = ["gateway", "other"]


@pytest.fixture
def followed(store):
    """Return a back end with two gateways that have its tables: none yet."""
    master = BackEnd(
        ports(store=store),
        GATEWAYS,
        ["processor"],
        ["replica"],
        ["server"],
        "naming",
        keep_deleted_us=KEEP_US,
    )
    for gateway in GATEWAYS:
        ((to, state),) = handle_event(master, "follow", gateway, turn="now")
        assert (to, state["tables"], state["rows"]) == (gateway, [], [])
        assert acknowledge_tables(master, gateway) == []
    return master


def kinds(messages):
    return [(to, message["kind"]) for to, message in messages]


def test_alteration_is_answered_when_all_gateways_have_it(followed):
    """Mobius 3.1: who is not admitted any more reads nothing after the alteration was answered."""
    pushed = administer_alone(followed, "create", "t", "1")
    assert kinds(pushed) == [("gateway", "log"), ("other", "log")]
    for _, log in pushed:
        assert [entry["op"] for entry in log["entries"]] == ["table"]
        assert (log["after"], log["through"]) == (BEFORE_FIRST, BEFORE_FIRST + 1)
    assert acknowledge_tables(followed, "other") == []
    assert kinds(administer_alone(followed, "create", "t", "1")) == [("gateway", "log")], "a duplicate"
    assert kinds(acknowledge_tables(followed)) == [("gateway", "administered")]
    assert acknowledge_tables(followed) == [], "once"
    assert kinds(administer_alone(followed, "create", "t", "1")) == [("gateway", "administered")]
    assert kinds(administer_alone(followed, "create", "t", "2")) == [("gateway", "administered")], "refused"


def test_alteration_is_answered_without_a_gateway_that_is_down(followed):
    administer_alone(followed, "create", "t", "1")
    acknowledge_tables(followed, "other")
    for now_us in range(200_000, ALONE_US, 200_000):
        effects = followed.handle(now_us, TimerFired("tables"))
        assert kinds(sent(effects)) == [("gateway", "log")]
        assert effects[-1] == SetTimer("tables", 200_000)
    effects = followed.handle(ALONE_US, TimerFired("tables"))
    assert kinds(sent(effects)) == [("gateway", "administered")]
    assert not any(isinstance(effect, SetTimer) for effect in effects)
    assert kinds(administer_alone(followed, "drop", "t", "2", ALONE_US)) == [("other", "log")]
    assert kinds(acknowledge_tables(followed, "other")) == [("gateway", "administered")], (
        "nothing waits for it"
    )
    handle_event(followed, "follow", "gateway", turn="another")
    assert kinds(administer_alone(followed, "create", "t", "3")) == [("gateway", "log"), ("other", "log")]
    acknowledge_tables(followed, "other")
    assert kinds(acknowledge_tables(followed)) == [("gateway", "administered")], "it is waited for again"


def test_gateway_is_sent_no_rows_and_what_it_lacks_when_it_asks(followed):
    administer_alone(followed, "create", "t", "1", properties={"acl": "public"})
    for gateway in GATEWAYS:
        acknowledge_tables(followed, gateway)
    start_followers(followed)
    assert {to for to, message in write(followed, 1) if message["kind"] == "log"} == {"replica", "processor"}
    ((to, log),) = acknowledge_tables(followed, lsn=1, nonce="n")
    assert (to, log["entries"], log["after"], log["through"]) == (
        "gateway", [], BEFORE_FIRST + 1, BEFORE_FIRST + 2,
    )  # fmt: skip
    administer_alone(followed, "alter", "t", "2", properties={"acl": "user"})
    ((_, log),) = acknowledge_tables(followed, lsn=1, nonce="n")
    assert [(entry["op"], entry["lsn"] - BEFORE_FIRST) for entry in log["entries"]] == [("table", 3)]
    assert (log["nonce"], log["through"]) == ("n", BEFORE_FIRST + 3)


def test_gateway_that_lacks_more_than_is_kept_is_sent_all_tables(followed, store):
    for number in range(101):
        administer_alone(followed, "create", f"t{number}", str(number))
    ((_, log),) = acknowledge_tables(followed, lsn=1, nonce="n")
    assert len(log["entries"]) == 100
    ((_, state),) = acknowledge_tables(followed, "other", lsn=0, nonce="n")
    assert (state["kind"], len(state["tables"]), state["lsn"]) == ("state", 101, BEFORE_FIRST + 101)
    restarted = create_back_end(store)
    assert kinds(sent(restarted.handle(0, LinkUp("here", "server"))))[0] == ("gateway", "log")
    ((_, state),) = acknowledge_tables(restarted, lsn=100, nonce="n")
    assert state["kind"] == "state", "a restarted back end does not know which entries were of tables"
    ((_, log),) = acknowledge_tables(restarted, lsn=101, nonce="n")
    assert (log["entries"], log["through"]) == ([], BEFORE_FIRST + 101)


def test_restarted_back_end_asks_the_gateways_before_it_answers_again(followed, store):
    administer_alone(followed, "create", "t", "1")
    restarted = create_back_end(store)
    restarted.handle(0, LinkUp("here", "server"))
    (start,) = store.get("lineage")
    ((to, log),) = administer_alone(restarted, "create", "t", "1", start=start)
    assert (to, log["entries"], "through" in log) == ("gateway", [], False), "its position is unknown"
    ((_, state),) = acknowledge_tables(restarted, lsn=0)
    assert state["kind"] == "state"
    assert kinds(acknowledge_tables(restarted)) == [("gateway", "administered")]

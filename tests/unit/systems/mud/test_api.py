"""MUD tables as an application sees them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import msgspec
import pytest
from mud_place import listen

from mudkit import Lab
from mudkit.errors import AccessDenied, OperationTimeout, ParameterError, PredicateError, TableProblem
from mudkit.events import Call, Complete, Received, Send
from mudkit.systems.mud import (
    BlockingClient,
    Change,
    Client,
    Cloud,
    Conflict,
    Freshness,
    NearAndRecent,
    PubSub,
    completeness,
    freshness,
    latency,
)
from mudkit.systems.mud.policies.policies import NEVER
from mudkit.tokens import Authority
from mudkit.wire import as_wire


@pytest.fixture
def jane(place):
    client = place.client("jane")
    client.create("news", acl="app", split=["g", "p"]).result()
    return client


@pytest.fixture
def bob(place, jane):
    return place.client("bob")


def test_what_is_written_is_read_elsewhere(jane, bob):
    assert jane.write("news", "a", {"topic": "arts"}).result() == 1
    result = bob.read("news", "topic = 'arts'", latest=True).result()
    assert result.records == {"a": {"topic": "arts"}}
    assert result.source == {"a": "remote"}
    assert result.versions == {"a": 1}


def test_when_a_write_returns_it_is_in_the_local_store(place, tmp_path):
    device = place.lab.device("ann", storage=tmp_path)
    ann = place.client("ann")
    for key in ("a", "b"):
        ann.write("news", key, {"topic": "arts"})  # nobody lets time go on
        [file] = tmp_path.glob("*.db")
        with closing(sqlite3.connect(file)) as connection:
            result = connection.execute("SELECT value FROM store WHERE key GLOB 'write *' ORDER BY key")
            kept = [msgspec.msgpack.decode(value) for (value,) in result]
        assert kept[-1]["key"] == key
    assert device.storage == tmp_path
    assert len(place.lab.history()["value_hash"].dropna()) == 2


def test_records_lie_in_partitions_and_are_found_in_all(jane, bob):
    for key in ("a", "g", "h", "p", "z"):
        jane.write("news", key, {"n": 1}).result()
    assert list(bob.read("news", "n = 1", latest=True).result().records) == ["a", "g", "h", "p", "z"]
    assert list(bob.read("news", "key IN ('g', 'z')", latest=True).result().records) == ["g", "z"]


def test_aggregates_are_put_together_over_partitions(jane, bob):
    for key, n in (("a", 1), ("h", 2), ("z", 6)):
        jane.write("news", key, {"n": n}).result()
    result = bob.read("news", aggregate="count(*), avg(n)", latest=True).result()
    assert result.aggregates == {"count(*)": 3, "avg(n)": 3.0}


def test_a_writer_says_who_sees_its_record(jane, bob):
    jane.write("news", "a", {"x": 1}, predicate="receiver.age >= 21").result()
    assert len(bob.read("news", data={"age": 20}, latest=True).result()) == 0
    assert len(bob.read("news", data={"age": 21}, latest=True).result()) == 1
    assert len(bob.read("news", latest=True).result()) == 0


def test_what_a_token_proves_a_reader_cannot_make_up(jane, bob):
    jane.write("news", "a", {"x": 1}, predicate="auth.user = 'jane'").result()
    assert len(bob.read("news", data={"user": "jane"}, latest=True).result()) == 0
    assert len(jane.read("news", latest=True).result()) == 1


def test_a_writer_predicate_knows_where_the_writer_is(place, jane, bob):
    near = place.lab.device("near", at=(30.27, -97.74))
    writer = Client(near, place.cloud, app="news", token=place.lab.token(user="near", app="news"))
    writer.write("news", "a", {"x": 1}, predicate="within_km(receiver.loc, sender.loc, 1)").result()
    assert len(bob.read("news", data={"loc": (30.271, -97.74)}, latest=True).result()) == 1
    assert len(bob.read("news", data={"loc": (31.0, -97.74)}, latest=True).result()) == 0


def test_a_conditional_write_replaces_what_is_held(jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    bob.read("news", "key = 'a'", latest=True).result()
    assert bob.write("news", "a", {"x": 2}, "conditional").result() == 2


def test_a_conflict_has_three_records(jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    bob.read("news", "key = 'a'", latest=True).result()
    jane.write("news", "a", {"x": 2}).result()
    with pytest.raises(Conflict) as caught:
        bob.write("news", "a", {"x": 3}, "conditional").result()
    conflict = caught.value
    assert [each["data"]["x"] for each in (conflict.store, conflict.local, conflict.base)] == [2, 3, 1]
    result = bob.read("news", "key = 'a'", "uncommitted", utility=freshness(60)).result()
    assert result.records == {"a": {"x": 2}}
    assert result.source == {"a": "local"}


def test_a_conflict_shows_nothing_that_its_writer_hides(jane, bob):
    jane.write("news", "a", {"secret": 1}, predicate="receiver.group = 'friends'").result()
    with pytest.raises(Conflict) as caught:
        bob.write("news", "a", {"x": 3}, "conditional").result()
    assert caught.value.store is None
    assert "secret" not in str(caught.value)
    assert len(bob.read("news", "key = 'a'", "uncommitted", utility=freshness(600)).result()) == 0
    with pytest.raises(Conflict) as caught:
        bob.write("news", "a", {"x": 4}, "conditional", data={"group": "friends"}).result()
    assert caught.value.store["data"] == {"secret": 1}


def test_conditional_writes_stand_on_each_other_and_fall_together(place, jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.faults.cut("bob", minutes=5)
    chain = [bob.write("news", "a", {"y": n}, "conditional") for n in range(3)]
    blind = bob.write("news", "a", {"z": 1})
    for each in chain:
        with pytest.raises(Conflict):
            each.result()
    assert blind.result() == 2


def test_a_local_version_stands_for_the_global_one_that_it_got(place, jane, bob):
    place.lab.faults.cut("bob", minutes=5)
    chain = [bob.write("news", "new", {"y": n}, "conditional") for n in range(3)]
    assert [each.result() for each in chain] == [1, 2, 3]


def test_the_base_of_a_conflict_is_what_the_write_stands_on(place, jane, bob):
    """Else a merge takes an entry that bob wrote and jane deleted for a new one of bob's."""
    place.lab.faults.cut("bob", minutes=5)
    chain = [bob.write("news", "a", {"entries": names}, "conditional") for names in (["b"], ["b", "c"])]
    assert chain[0].result() == 1
    place.lab.faults.cut("bob", minutes=5)  # his second write is on its way
    jane.write("news", "a", {"entries": []}).result()
    with pytest.raises(Conflict) as caught:
        chain[1].result()
    conflict = caught.value
    entries = [each["data"]["entries"] for each in (conflict.store, conflict.local, conflict.base)]
    assert entries == [[], ["b", "c"], ["b"]]


def test_what_an_application_does_with_a_record_is_its_own_business(place, jane, bob):
    answer = listen(bob)
    record = {"tags": ["a"], "more": {"n": [1]}}
    jane.write("news", "a", record)
    record["tags"].append("after")
    for client, kind in ((jane, "uncommitted"), (jane, "committed"), (bob, "committed"), (bob, "committed")):
        result = client.read("news", "key = 'a'", kind, utility=freshness(600)).result().records["a"]
        result["tags"].append("changed")
        result["more"]["n"].append(2)
        place.lab.run(seconds=10)
    answer[0].record["tags"].append("changed")
    jane.write("news", "a", {"tags": ["b"]}).result()
    with pytest.raises(Conflict) as caught:
        bob.write("news", "a", {"tags": ["c"]}, "conditional").result()
    caught.value.store["data"]["tags"].append("changed")
    caught.value.base["data"]["tags"].append("changed")
    assert bob.read("news", "key = 'a'", utility=freshness(600)).result().records == {"a": {"tags": ["b"]}}
    assert caught.value.base["data"] == {"tags": ["a", "changed"], "more": {"n": [1]}}
    carl = place.client("carl")
    assert carl.read("news", latest=True).result().records == {"a": {"tags": ["b"]}}


def test_versions_go_on_through_a_delete(jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    assert jane.delete("news", "a").result() == 2
    assert len(bob.read("news", "key = 'a'", latest=True).result()) == 0
    assert bob.write("news", "a", {"x": 2}, "conditional").result() == 3


def test_pending_writes_are_read_at_once_and_only_uncommitted(place, jane):
    place.lab.faults.cut("jane", minutes=5)
    written = jane.write("news", "a", {"x": 1})
    result = jane.read("news", "key = 'a'", "uncommitted").result()
    assert result.records == {"a": {"x": 1}}
    assert result.versions == {"a": None}
    assert place.lab.world.now_us < 60_000_000
    assert [each["key"] for each in jane.pending().result()] == ["a"]
    with pytest.raises(OperationTimeout):
        jane.read("news", "key = 'a'", "committed").result(timeout_s=60)
    assert written.result() == 1
    assert jane.pending().result() == []


def test_what_a_device_holds_is_listed_with_what_a_reader_would_be_shown(place, jane, bob):
    jane.write("news", "a", {"x": 1}, predicate="receiver.age >= 21").result()
    jane.write("news", "b", {"x": 1}, predicate="auth.user = 'bob'").result()
    jane.delete("news", "gone").result()
    assert bob.holdings("news").result() == []
    bob.read("news", data={"age": 34}, latest=True).result()
    place.lab.faults.cut("bob", minutes=5)
    place.lab.run(seconds=30)
    bob.write("news", "a", {"x": 2}, "conditional", predicate="receiver.age >= 40")
    bob.delete("news", "c")
    began_us = place.lab.world.now_us
    shown = {age: bob.holdings("news", {"age": age}).result() for age in (34, 40)}
    assert place.lab.world.now_us == began_us
    assert [(each["key"], each["version"], each["record"], each["type"]) for each in shown[34]] == [
        ("a", 1, {"x": 1}, None),
        ("a", None, {"x": 2}, "conditional"),
        ("b", 1, {"x": 1}, None),
        ("c", None, None, "blind"),
    ]
    assert [each["visible"] for each in shown[34]] == [True, False, True, True]
    assert [each["visible"] for each in shown[40]] == [True, True, True, True]
    assert [each["visible"] for each in bob.holdings("news").result()] == [False, False, True, True]
    assert shown[34][0]["predicate"] == "receiver.age >= 21"
    assert [each["age_s"] > 29 for each in shown[34]] == [True, False, True, False]
    assert [each["key"] for each in jane.holdings("news").result()] == ["a", "b", "gone"]
    assert [each["visible"] for each in jane.holdings("news").result()] == [False, False, True]


def test_reads_in_write_order_wait_for_writes(place, jane):
    place.lab.faults.cut("jane", minutes=5)
    jane.write("news", "a", {"x": 1})
    result = jane.read("news", "key = 'a'", "committed_wio")
    jane.write("news", "a", {"x": 2})
    assert result.result().versions == {"a": 1}


def test_a_read_in_write_order_sends_what_is_held(place, jane):
    class Never:
        def delay(self, write, context):
            return NEVER

    lazy = place.client("lazy", write_policy=Never())
    written = lazy.write("news", "a", {"x": 1})
    place.lab.run(hours=1)
    assert not written.done()
    assert [each["due_us"] for each in lazy.pending().result()] == [NEVER]
    assert lazy.read("news", "key = 'a'", "committed_wio").result().versions == {"a": 1}
    assert written.result() == 1


def test_a_read_of_named_keys_tells_of_no_other_key(place, jane):
    """What an earlier read has told is complete: so is the answer, and a record of another key that is gone
    is no part of it."""
    jane.write("news", "a", {"x": 1}).result()
    jane.read("news").result()
    jane.delete("news", "z").result()
    result = jane.read("news", "key IN ('a', 'b')", utility=freshness(600)).result()
    assert result.source == {"a": "local"}
    answer = place.lab.frame("operations").query("op == 'read'").groupby("op_id")["key"].agg(list)
    assert answer.iloc[-1] == ["a"]


def test_who_could_not_see_a_record_does_not_see_that_it_is_gone(place, jane):
    jane.write("news", "a", {"x": 1}, predicate="receiver.age >= 21").result()
    jane.delete("news", "a").result()
    for age in (34, 20):
        jane.read("news", "key = 'a'", data={"age": age}, utility=freshness(600)).result()
    answer = place.lab.frame("operations").query("op == 'read'")["key"].tolist()
    assert [each if isinstance(each, str) else None for each in answer] == ["a", None]


def test_part_of_an_answer_now_may_be_worth_more_than_all_of_it_later(place, jane):
    for key in "ab":
        jane.write("news", key, {"x": 1}).result()
    place.lab.faults.cut("jane", minutes=10)
    asked = "key IN ('a', 'b', 'c')"
    hurried = jane.read("news", asked, utility=latency() + completeness(30.0))
    assert hurried.result().records == {"a": {"x": 1}, "b": {"x": 1}}
    assert hurried.responded_us == hurried.invoked_us
    patient = jane.read("news", asked, utility=latency() + completeness(3000.0))
    assert patient.result().records == {"a": {"x": 1}, "b": {"x": 1}}
    assert patient.responded_us - patient.invoked_us > 500e6


def test_a_write_policy_sees_what_the_write_is_worth(place, jane):
    seen = []

    class Looks:
        def delay(self, write, context):
            seen.append((write["key"], write["utility"]))

    worth = freshness(60)
    looker = place.client("looker", write_policy=Looks())
    looker.write("news", "a", {"x": 1}, utility=worth).result()
    assert seen == [("a", worth)]


def test_writes_are_sent_after_the_delay_of_the_policy(place, jane):
    class Later:
        def delay(self, write, context):
            return 600.0

    late = place.client("late", write_policy=Later())
    began_us = place.lab.world.now_us
    late.write("news", "a", {"x": 1}).result()
    assert 600_000_000 < place.lab.world.now_us - began_us < 610_000_000


def test_what_is_fresh_is_answered_here(place, jane):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    assert jane.read("news", "key = 'a'", utility=freshness(61)).result().source == {"a": "local"}
    assert jane.read("news", "key = 'a'", utility=freshness(59)).result().source == {"a": "remote"}
    assert jane.read("news", "key = 'a'").result().source == {"a": "remote"}


def test_a_query_within_an_earlier_one_is_complete_here(place, jane, bob):
    jane.write("news", "a", {"topic": "arts", "n": 1}).result()
    place.lab.run(minutes=1)
    bob.read("news", "topic = 'arts'").result()
    result = bob.read("news", "topic = 'arts' AND n = 1", utility=freshness(600)).result()
    assert result.source == {"a": "local"}
    assert bob.read("news", "n = 1", utility=freshness(600)).result().source == {"a": "remote"}
    other = bob.read("news", "topic = 'arts'", data={"age": 3}, utility=freshness(600)).result()
    assert other.source == {"a": "remote"}


def test_what_was_let_go_makes_an_answer_incomplete(place, jane):
    for key in "abc":
        jane.write("news", key, {"x": 1}).result()
    place.lab.run(minutes=1)
    small = place.client("small", max_rows=2)
    for _ in range(2):
        assert len(small.read("news", utility=freshness(600)).result()) == 3


def test_a_record_that_left_one_query_is_still_in_a_larger_one(place, jane, bob):
    jane.write("news", "a", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert len(bob.read("news").result()) == 1
    jane.write("news", "a", {"n": 2}).result()
    place.lab.run(minutes=1)
    assert len(bob.read("news", "n = 1").result()) == 0
    assert len(bob.read("news", utility=freshness(600)).result()) == 1


@pytest.mark.parametrize("policy", [Freshness(600.0), NearAndRecent()])
def test_a_policy_decides_where_a_read_is_answered(place, jane, policy):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    reader = place.client("reader", read_policy=policy)
    here = {"loc": (30.27, -97.74)}
    assert reader.read("news", "x = 1", data=here).result().source == {"a": "remote"}
    place.lab.run(minutes=5)
    assert reader.read("news", "x >= 1", data=here).result().source == {"a": "local"}
    place.lab.run(minutes=10)
    assert reader.read("news", "x >= 0", data=here).result().source == {"a": "remote"}


# -- continuous reads


def test_a_continuous_read_hears_what_comes_and_what_goes(place, jane, bob):
    answer = listen(bob, "topic = 'arts'")
    jane.write("news", "a", {"topic": "arts"}).result()
    jane.write("news", "b", {"topic": "sports"}).result()
    jane.write("news", "a", {"topic": "sports"}).result()
    jane.write("news", "a", {"topic": "arts"}).result()
    jane.delete("news", "a").result()
    place.lab.run(minutes=1)
    assert [(each.kind, each.key, each.version) for each in answer] == [
        ("upsert", "a", 1),
        ("remove", "a", 2),
        ("upsert", "a", 3),
        ("remove", "a", 4),
    ]
    assert answer[0] == Change("upsert", "a", {"topic": "arts"}, 1)
    assert answer[1].record is None


def test_the_sync_timestamp_says_what_is_told_of_what_was_there(place, jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=10)
    jane.write("news", "b", {"x": 1}).result()
    heard = {}
    for sync in (None, 0.0, 300.0):
        heard[sync] = listen(bob, sync_timestamp=sync)
    place.lab.run(minutes=1)
    told = {sync: sorted(each.key for each in answer) for sync, answer in heard.items()}
    assert told == {None: [], 0.0: ["a", "b"], 300.0: ["b"]}


def test_other_reader_data_count_for_what_is_written_later(place, jane, bob):
    answer = []
    near = "within_km(receiver.loc, point(30.27, -97.74), 1)"
    here = (30.27, -97.74)
    handle = bob.read("news", None, "continuous", data={"loc": (0, 0)}, callback=answer.append).result()
    jane.write("news", "a", {"x": 1}, predicate=near).result()
    bob.update_data(handle, {"loc": here}).result()
    place.lab.run(minutes=1)
    assert answer == []
    jane.write("news", "a", {"x": 2}, predicate=near).result()
    place.lab.run(minutes=1)
    assert [each.version for each in answer] == [2]


def test_an_ended_continuous_read_hears_nothing(place, jane, bob):
    answer = []
    handle = bob.read("news", None, "continuous", callback=answer.append).result()
    bob.unregister(handle).result()
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    assert answer == []
    with pytest.raises(ParameterError, match="no such continuous read"):
        bob.unregister(handle).result()


def test_who_was_away_hears_the_latest_when_it_is_back(place, jane, bob):
    answer = listen(bob)
    place.lab.faults.cut("bob", minutes=180)
    for n in range(3):
        jane.write("news", "a", {"n": n}).result()
    place.lab.run(hours=4)
    assert answer[-1].version == 3
    assert [each.version for each in answer] == sorted({each.version for each in answer})


@pytest.mark.parametrize("way", ["mud-store", "mud-processor", "mud-notifications"])
def test_what_is_lost_comes_again_though_traffic_goes_on(place, jane, bob, way):
    """A message is lost on its way to bob, and others follow it without a pause."""
    answer, lost = listen(bob), []
    place.lab.run(seconds=5)

    def lose(transfer):
        is_it = as_wire(transfer.message)["kind"] in ("log", "stream") and transfer.source.startswith(way)
        if is_it and not lost and as_wire(transfer.message).get("entries") != []:
            lost.append(transfer)
            return ()
        return (0,)

    place.lab.world.fault_hook = lose
    for number in range(200):
        jane.write("news", "a", {"n": number})
        place.lab.run(seconds=0.15)
    assert lost
    assert answer[-1].record["n"] > 190


def test_a_continuous_read_ends_with_its_token(place, jane):
    answer = listen(place.client("short", token=place.lab.token(user="short", app="news", hours=1)))
    place.lab.run(hours=2)
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    assert answer == [{"ended": "its token has expired"}]


def test_a_continuous_read_ends_when_the_table_is_closed_to_it(place, jane):
    answer = listen(place.client("anyone", app="other"))
    jane.alter("news", acl="user").result()
    place.lab.run(minutes=1)
    assert answer == []  # anyone is a user
    jane.drop("news").result()
    place.lab.run(minutes=1)
    assert answer == [{"ended": "the table was dropped"}]


# -- who may


def test_without_a_token_only_public_tables_are_open(place, jane):
    nobody = place.client("nobody", token=None)
    with pytest.raises(AccessDenied, match="no token"):
        nobody.read("news").result()
    with pytest.raises(AccessDenied):
        nobody.write("news", "a", {"x": 1}).result()
    jane.create("open", acl="public").result()
    assert nobody.write("open", "a", {"x": 1}).result() == 1


def test_levels_are_checked(place, jane):
    app = Client(place.lab.device("app"), place.cloud, app="news", token=place.lab.token(app="news"))
    jane.create("mine", acl="user").result()
    assert len(app.read("news").result()) == 0
    with pytest.raises(AccessDenied, match="token of a user"):
        app.read("mine").result()
    jane.create("ours", acl="app", apps=["news"]).result()
    with pytest.raises(AccessDenied, match="one of news"):
        place.client("other", app="other").read("ours").result()


def test_forged_foreign_and_borrowed_tokens_are_refused(place, jane):
    forged = Authority(b"x" * 32).issue("news", "eve", expires_s=1e9)
    foreign = Lab(seed=8).token(user="eve", app="news")
    borrowed = place.lab.token(user="jane", app="news", device="jane")
    for number, token in enumerate((forged, foreign, borrowed, "no token at all")):
        eve = place.client(f"eve-{number}", token=token)
        with pytest.raises(AccessDenied):
            eve.write("news", "a", {"x": 1}).result()
        with pytest.raises(AccessDenied):
            eve.read("news").result()
        with pytest.raises(AccessDenied):
            eve.read("news", None, "continuous").result()
    assert len(jane.read("news", latest=True).result()) == 0


def test_what_was_overheard_is_of_no_use_to_others(place, jane):
    """Eve sends again, from her own device, each message that Jane's client has sent."""
    jane.write("news", "a", {"x": 1}).result()
    overheard = []
    place.lab.world.fault_hook = lambda transfer: overheard.append(transfer) or (0,)
    jane.read("news", None, "continuous", callback=print).result()
    jane.write("news", "b", {"x": 2}).result()
    jane.read("news", latest=True).result()
    mine = [each for each in overheard if each.source == jane.installed.address]
    assert {as_wire(each.message)["kind"] for each in mine} >= {"ask", "hello"}
    heard = []

    class Eve:
        def handle(self, now_us, event):
            match event:
                case Call(op_id=op_id):
                    return [*(Send(each.to, each.message) for each in mine), Complete(op_id)]
                case Received(message=message):
                    heard.append(message)
            return ()

    place.lab.device("eve").install("eve", lambda ports: Eve()).call("replay").result()
    jane.write("news", "c", {"x": 3}).result()
    place.lab.run(minutes=5)
    assert heard == []
    incidents = place.lab.frame("incidents")
    assert (incidents["incident"] == "dropped").sum() == len(mine)
    assert jane.read("news", latest=True).result().versions == {"a": 1, "b": 1, "c": 1}


def test_a_device_may_have_a_slash_in_its_name(place, jane):
    other = place.client("jane/b")
    answer = listen(other)
    other.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    assert [each.key for each in answer] == ["a"]


def test_an_expired_token_reads_nothing_not_even_here(place, jane):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(hours=25)
    with pytest.raises(AccessDenied, match="expired"):
        jane.read("news", "key = 'a'", utility=freshness(1e8)).result()
    with pytest.raises(AccessDenied, match="expired"):
        jane.write("news", "a", {"x": 2}).result()


def test_only_its_app_alters_and_drops_a_table(place, jane):
    other = place.client("other", app="other")
    for attempt in (lambda: other.drop("news"), lambda: other.alter("news", acl="public")):
        with pytest.raises(AccessDenied, match="created"):
            attempt().result()
    jane.alter("news", acl="public").result()
    jane.drop("news").result()
    with pytest.raises(TableProblem):
        jane.read("news").result()


# -- tables and what does not fit


def test_columns_come_and_go(place, bob, jane):
    jane.create("typed", schema={"topic": "text", "n": "number"}).result()
    jane.write("typed", "a", {"topic": "arts", "n": 1}).result()
    jane.alter("typed", add={"city": "text"}, remove=["n"]).result()
    jane.write("typed", "b", {"topic": "arts", "city": "Austin"}).result()
    result = bob.read("typed", latest=True).result().records
    assert result == {"a": {"topic": "arts"}, "b": {"topic": "arts", "city": "Austin"}}
    assert len(bob.read("typed", "n IS NULL", latest=True).result()) == 2


REFUSED_AT_ONCE = [
    (lambda jane: jane.write("news", "a", {"x": 1}, predicate="receiver.age >="), PredicateError, "."),
    (lambda jane: jane.read("news", "topic = "), PredicateError, "."),
    (lambda jane: jane.write("news", 7, {"x": 1}), ParameterError, "a text or None"),
    (lambda jane: jane.write("news", "a", {1: 2}), ParameterError, "a mapping of columns to values"),
    (lambda jane: jane.write("news", "a", {}, "blnd"), ParameterError, "'blnd'"),
    (lambda jane: jane.write("news", "a", {}, "hopeful"), ParameterError, "'blind' or 'conditional'"),
    (lambda jane: jane.read("news", type="comitted"), ParameterError, "did you mean 'committed'"),
    (lambda jane: PubSub(jane, "chat").publish("friends", topic="family"), ParameterError, "one topic"),
]
REFUSED = [
    (lambda jane, bob: jane.write("news", "", {"x": 1}), ParameterError, "primary key is not usable"),
    (lambda jane, bob: jane.write("news", "a\nb", {"x": 1}), ParameterError, "primary key is not usable"),
    (lambda jane, bob: jane.write("news", "x" * 600, {"x": 1}), ParameterError, "primary key is not usable"),
    (lambda jane, bob: jane.write("news", "a", {"x": "y" * 70_000}), ParameterError, "record is not usable"),
    (lambda jane, bob: jane.write("news", "a", {"key": 1}), ParameterError, "record is not usable"),
    (lambda jane, bob: jane.write("news", "a", {"x": object()}), ParameterError, "record is not usable"),
    (lambda jane, bob: jane.write("typed", "a", {"n": "many"}), ParameterError, "does not fit"),
    (lambda jane, bob: bob.write("typed", "a", {"m": 1}), ParameterError, "no such column"),
    (lambda jane, bob: bob.read("newz"), TableProblem, "did you mean 'news'"),
    (lambda jane, bob: bob.write("newz", "a", {"x": 1}), TableProblem, "."),
    (lambda jane, bob: bob.create("news"), TableProblem, "already"),
    (lambda jane, bob: bob.create("other", split=["p", "g"]), ParameterError, "must ascend"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED_AT_ONCE)
def test_refused_before_anything_is_queued(jane, call, error, words):
    with pytest.raises(error, match=words):
        call(jane)
    assert jane.pending().result() == []


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refused_in_words(jane, bob, call, error, words):
    jane.create("typed", schema={"n": "number"}).result()
    with pytest.raises(error, match=words):
        call(jane, bob).result()
    assert jane.pending().result() == []


def test_a_write_to_a_table_that_was_dropped_meanwhile_fails_and_others_go_on(place, jane, bob):
    jane.create("other").result()
    bob.read("news").result()
    bob.read("other").result()
    place.lab.faults.cut("bob", minutes=5)
    lost, kept = bob.write("news", "a", {"x": 1}), bob.write("other", "a", {"x": 1})
    jane.drop("news").result()
    jane.create("news").result()
    with pytest.raises(TableProblem):
        lost.result()
    assert kept.result() == 1
    assert len(jane.read("news", latest=True).result()) == 0


def test_a_result_is_a_table_in_notebooks_and_a_frame(jane):
    jane.write("news", "a", {"topic": "<arts>"}).result()
    result = jane.read("news", latest=True).result()
    assert result.to_pandas().loc["a", "topic"] == "<arts>"
    assert "&lt;arts&gt;" in result._repr_html_()


@pytest.fixture
def blocking():
    lab = Lab(seed=7)
    client = Client(lab.device("ann"), Cloud(lab), app="app", token=lab.token(user="ann", app="app"))
    return lab, BlockingClient(client, timeout_s=60)


def test_calls_return_what_operations_give(blocking):
    lab, ann = blocking
    ann.create("t", schema={"n": "number"})
    assert ann.write("t", "a", {"n": 1}) == 1
    assert ann.read("t", "n = 1", latest=True).records == {"a": {"n": 1}}
    ann.alter("t", add={"m": "number"})
    answer = []
    handle = ann.read("t", None, "continuous", callback=answer.append)
    ann.update_data(handle, {"age": 3})
    assert ann.delete("t", "a") == 2
    lab.run(minutes=1)
    ann.unregister(handle)
    ann.drop("t")
    assert answer == []  # it was told of nothing, so nothing is taken back


def test_calls_raise_what_operations_raise_and_wait_no_longer_than_they_may(blocking):
    lab, ann = blocking
    ann.create("t")
    with pytest.raises(TableProblem, match="already"):
        ann.create("t")
    lab.faults.cut("ann", minutes=5)
    with pytest.raises(OperationTimeout):
        ann.write("t", "b", {"n": 1})


@pytest.fixture
def chats():
    lab = Lab(seed=7)
    cloud = Cloud(lab)
    clients = [
        Client(lab.device(name), cloud, app="chat", token=lab.token(user=name, app="chat"))
        for name in ("ann", "bob")
    ]
    clients[0].create("chat").result()
    return lab, *(PubSub(client, "chat") for client in clients)


def test_a_message_reaches_who_subscribed_to_its_topic(chats):
    lab, ann, bob = chats
    heard = []
    bob.subscribe("friends", heard.append).result()
    for topic, text in (("friends", "lunch?"), ("family", "dinner?"), ("friends", "lunch?")):
        ann.publish(topic, text=text).result()
    lab.run(minutes=1)
    assert heard == [{"topic": "friends", "text": "lunch?"}] * 2


def test_a_publisher_says_whom_it_means(chats):
    lab, ann, bob = chats
    heard = []
    bob.subscribe("friends", heard.append, data={"age": 20}).result()
    ann.publish("friends", predicate="receiver.age >= 21", text="beer?").result()
    ann.publish("friends", predicate="receiver.age < 21", text="juice?").result()
    lab.run(minutes=1)
    assert [each["text"] for each in heard] == ["juice?"]


def test_who_comes_later_may_ask_for_what_was_before_and_may_leave(chats):
    lab, ann, bob = chats
    heard = []
    ann.publish("friends", text="early").result()
    handle = bob.subscribe("friends", heard.append, sync_timestamp=0.0).result()
    lab.run(minutes=1)
    bob.unsubscribe(handle).result()
    ann.publish("friends", text="late").result()
    lab.run(minutes=1)
    assert [each["text"] for each in heard] == ["early"]

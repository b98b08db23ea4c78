"""Public interface of MUD tables: Client, BlockingClient, and PubSub."""

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


def test_write_is_visible_to_another_client(jane, bob):
    assert jane.write("news", "a", {"topic": "arts"}).result() == 1
    result = bob.read("news", "topic = 'arts'", latest=True).result()
    assert result.records == {"a": {"topic": "arts"}}
    assert result.source == {"a": "remote"}
    assert result.versions == {"a": 1}


def test_write_is_in_local_store_when_call_returns(place, tmp_path):
    device = place.lab.device("ann", storage=tmp_path)
    ann = place.client("ann")
    for key in ("a", "b"):
        ann.write("news", key, {"topic": "arts"})  # simulated time does not advance
        file = tmp_path / "mud-news.db"
        with closing(sqlite3.connect(file)) as connection:
            result = connection.execute("SELECT value FROM store WHERE key GLOB 'write *' ORDER BY key")
            stored = [msgspec.msgpack.decode(value) for (value,) in result]
        assert stored[-1]["key"] == key
    assert device.storage == tmp_path
    assert len(place.lab.history()["value_hash"].dropna()) == 2


def test_read_returns_records_of_all_partitions(jane, bob):
    for key in ("a", "g", "h", "p", "z"):
        jane.write("news", key, {"n": 1}).result()
    assert list(bob.read("news", "n = 1", latest=True).result().records) == ["a", "g", "h", "p", "z"]
    assert list(bob.read("news", "key IN ('g', 'z')", latest=True).result().records) == ["g", "z"]


def test_aggregates_combine_partitions(jane, bob):
    for key, n in (("a", 1), ("h", 2), ("z", 6)):
        jane.write("news", key, {"n": n}).result()
    result = bob.read("news", aggregate="count(*), avg(n)", latest=True).result()
    assert result.aggregates == {"count(*)": 3, "avg(n)": 3.0}


def test_writer_predicate_selects_readers(jane, bob):
    jane.write("news", "a", {"x": 1}, predicate="receiver.age >= 21").result()
    assert len(bob.read("news", data={"age": 20}, latest=True).result()) == 0
    assert len(bob.read("news", data={"age": 21}, latest=True).result()) == 1
    assert len(bob.read("news", latest=True).result()) == 0


def test_reader_data_cannot_override_token_claims(jane, bob):
    jane.write("news", "a", {"x": 1}, predicate="auth.user = 'jane'").result()
    assert len(bob.read("news", data={"user": "jane"}, latest=True).result()) == 0
    assert len(jane.read("news", latest=True).result()) == 1


def test_writer_predicate_binds_location_of_sender(place, jane, bob):
    near = place.lab.device("near", at=(30.27, -97.74))
    writer = Client(near, place.cloud, app="news", token=place.lab.token(user="near", app="news"))
    writer.write("news", "a", {"x": 1}, predicate="within_km(receiver.loc, sender.loc, 1)").result()
    assert len(bob.read("news", data={"loc": (30.271, -97.74)}, latest=True).result()) == 1
    assert len(bob.read("news", data={"loc": (31.0, -97.74)}, latest=True).result()) == 0


def test_conditional_write_replaces_version_read_before(jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    bob.read("news", "key = 'a'", latest=True).result()
    assert bob.write("news", "a", {"x": 2}, "conditional").result() == 2


def test_conflict_has_store_local_and_base_records(jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    bob.read("news", "key = 'a'", latest=True).result()
    jane.write("news", "a", {"x": 2}).result()
    with pytest.raises(Conflict) as caught:
        bob.write("news", "a", {"x": 3}, "conditional").result()
    conflict = caught.value
    assert [record["data"]["x"] for record in (conflict.store, conflict.local, conflict.base)] == [2, 3, 1]
    result = bob.read("news", "key = 'a'", "uncommitted", utility=freshness(60)).result()
    assert result.records == {"a": {"x": 2}}
    assert result.source == {"a": "local"}


def test_conflict_omits_record_hidden_from_writer(jane, bob):
    jane.write("news", "a", {"secret": 1}, predicate="receiver.group = 'friends'").result()
    with pytest.raises(Conflict) as caught:
        bob.write("news", "a", {"x": 3}, "conditional").result()
    assert caught.value.store is None
    assert "secret" not in str(caught.value)
    assert len(bob.read("news", "key = 'a'", "uncommitted", utility=freshness(600)).result()) == 0
    with pytest.raises(Conflict) as caught:
        bob.write("news", "a", {"x": 4}, "conditional", data={"group": "friends"}).result()
    assert caught.value.store["data"] == {"secret": 1}


def test_chained_conditional_writes_fail_together(place, jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.faults.cut("bob", minutes=5)
    chain = [bob.write("news", "a", {"y": n}, "conditional") for n in range(3)]
    blind = bob.write("news", "a", {"z": 1})
    for write in chain:
        with pytest.raises(Conflict):
            write.result()
    assert blind.result() == 2


def test_chained_conditional_writes_use_committed_versions(place, jane, bob):
    place.lab.faults.cut("bob", minutes=5)
    chain = [bob.write("news", "new", {"y": n}, "conditional") for n in range(3)]
    assert [write.result() for write in chain] == [1, 2, 3]


def test_conflict_base_is_own_preceding_write(place, jane, bob):
    """Return the base that tells a merge that bob's entry was deleted, and is not new."""
    chain = [bob.write("news", "a", {"entries": names}, "conditional") for names in (["b"], ["b", "c"])]
    assert chain[0].result() == 1
    place.lab.faults.cut("bob", minutes=5)  # his second write is in flight
    jane.write("news", "a", {"entries": []}).result()
    with pytest.raises(Conflict) as caught:
        chain[1].result()
    conflict = caught.value
    entries = [record["data"]["entries"] for record in (conflict.store, conflict.local, conflict.base)]
    assert entries == [[], ["b", "c"], ["b"]]


def test_mutating_records_changes_no_stored_state(place, jane, bob):
    changes = listen(bob)
    record = {"tags": ["a"], "more": {"n": [1]}}
    jane.write("news", "a", record)
    record["tags"].append("after")
    for client, kind in ((jane, "uncommitted"), (jane, "committed"), (bob, "committed"), (bob, "committed")):
        result = client.read("news", "key = 'a'", kind, utility=freshness(600)).result().records["a"]
        result["tags"].append("changed")
        result["more"]["n"].append(2)
        place.lab.run(seconds=10)
    changes[0].record["tags"].append("changed")
    jane.write("news", "a", {"tags": ["b"]}).result()
    with pytest.raises(Conflict) as caught:
        bob.write("news", "a", {"tags": ["c"]}, "conditional").result()
    caught.value.store["data"]["tags"].append("changed")
    caught.value.base["data"]["tags"].append("changed")
    assert bob.read("news", "key = 'a'", utility=freshness(600)).result().records == {"a": {"tags": ["b"]}}
    assert caught.value.base["data"] == {"tags": ["a", "changed"], "more": {"n": [1]}}
    carl = place.client("carl")
    assert carl.read("news", latest=True).result().records == {"a": {"tags": ["b"]}}


def test_versions_continue_after_a_delete(jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    assert jane.delete("news", "a").result() == 2
    assert len(bob.read("news", "key = 'a'", latest=True).result()) == 0
    assert bob.write("news", "a", {"x": 2}, "conditional").result() == 3


def test_only_uncommitted_reads_see_pending_writes(place, jane):
    place.lab.faults.cut("jane", minutes=5)
    written = jane.write("news", "a", {"x": 1})
    result = jane.read("news", "key = 'a'", "uncommitted").result()
    assert result.records == {"a": {"x": 1}}
    assert result.versions == {"a": None}
    assert place.lab.world.now_us < 60_000_000
    assert [write["key"] for write in jane.pending().result()] == ["a"]
    with pytest.raises(OperationTimeout):
        jane.read("news", "key = 'a'", "committed", offline="wait").result(timeout_s=60)
    assert written.result() == 1
    assert jane.pending().result() == []


def test_holdings_lists_stored_records_and_their_visibility(place, jane, bob):
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
    assert [(row["key"], row["version"], row["record"], row["type"]) for row in shown[34]] == [
        ("a", 1, {"x": 1}, None),
        ("a", None, {"x": 2}, "conditional"),
        ("b", 1, {"x": 1}, None),
        ("c", None, None, "blind"),
    ]
    assert [row["visible"] for row in shown[34]] == [True, False, True, True]
    assert [row["visible"] for row in shown[40]] == [True, True, True, True]
    assert [row["visible"] for row in bob.holdings("news").result()] == [False, False, True, True]
    assert shown[34][0]["predicate"] == "receiver.age >= 21"
    assert [row["age_s"] > 29 for row in shown[34]] == [True, False, True, False]
    assert [row["key"] for row in jane.holdings("news").result()] == ["a", "b", "gone"]
    assert [row["visible"] for row in jane.holdings("news").result()] == [False, False, True]


def test_committed_wio_read_waits_for_earlier_writes(place, jane):
    place.lab.faults.cut("jane", minutes=5)
    jane.write("news", "a", {"x": 1})
    result = jane.read("news", "key = 'a'", "committed_wio")
    jane.write("news", "a", {"x": 2})
    assert result.result().versions == {"a": 1}


def test_committed_wio_read_releases_delayed_write(place, jane):
    class Never:
        def delay(self, write, context):
            return NEVER

    lazy = place.client("lazy", write_policy=Never())
    written = lazy.write("news", "a", {"x": 1})
    place.lab.run(hours=1)
    assert not written.done()
    assert [write["due_us"] for write in lazy.pending().result()] == [NEVER]
    assert lazy.read("news", "key = 'a'", "committed_wio").result().versions == {"a": 1}
    assert written.result() == 1


def test_read_by_key_returns_no_other_key(place, jane):
    """Read a complete local answer after the deletion of another key."""
    jane.write("news", "a", {"x": 1}).result()
    jane.read("news").result()
    jane.delete("news", "z").result()
    result = jane.read("news", "key IN ('a', 'b')", utility=freshness(600)).result()
    assert result.source == {"a": "local"}
    keys = place.lab.frame("operations").query("op == 'read'").groupby("op_id")["key"].agg(list)
    assert keys.iloc[-1] == ["a"]


def test_deletion_of_hidden_record_is_hidden(place, jane):
    jane.write("news", "a", {"x": 1}, predicate="receiver.age >= 21").result()
    jane.delete("news", "a").result()
    for age in (34, 20):
        jane.read("news", "key = 'a'", data={"age": age}, utility=freshness(600)).result()
    keys = place.lab.frame("operations").query("op == 'read'")["key"].tolist()
    assert [key if isinstance(key, str) else None for key in keys] == ["a", None]


def test_utility_weighs_latency_against_completeness(place, jane):
    for key in "ab":
        jane.write("news", key, {"x": 1}).result()
    place.lab.faults.cut("jane", minutes=10)
    predicate = "key IN ('a', 'b', 'c')"
    hurried = jane.read("news", predicate, utility=latency() + completeness(30.0))
    assert hurried.result().records == {"a": {"x": 1}, "b": {"x": 1}}
    assert hurried.responded_us == hurried.invoked_us
    patient = jane.read("news", predicate, utility=latency() + completeness(3000.0), offline="wait")
    assert patient.result().records == {"a": {"x": 1}, "b": {"x": 1}}
    assert patient.responded_us - patient.invoked_us > 500e6


def test_write_policy_receives_utility(place, jane):
    seen = []

    class Recorder:
        def delay(self, write, context):
            seen.append((write["key"], write["utility"]))

    utility = freshness(60)
    client = place.client("looker", write_policy=Recorder())
    client.write("news", "a", {"x": 1}, utility=utility).result()
    assert seen == [("a", utility)]


def test_writes_are_sent_after_the_delay_of_the_policy(place, jane):
    class Later:
        def delay(self, write, context):
            return 600.0

    late = place.client("late", write_policy=Later())
    began_us = place.lab.world.now_us
    late.write("news", "a", {"x": 1}).result()
    assert 600_000_000 < place.lab.world.now_us - began_us < 610_000_000


def test_fresh_record_is_answered_locally(place, jane):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    assert jane.read("news", "key = 'a'", utility=freshness(61)).result().source == {"a": "local"}
    assert jane.read("news", "key = 'a'", utility=freshness(59)).result().source == {"a": "remote"}
    assert jane.read("news", "key = 'a'").result().source == {"a": "remote"}


def test_query_contained_in_answered_query_is_answered_locally(place, jane, bob):
    jane.write("news", "a", {"topic": "arts", "n": 1}).result()
    place.lab.run(minutes=1)
    bob.read("news", "topic = 'arts'").result()
    result = bob.read("news", "topic = 'arts' AND n = 1", utility=freshness(600)).result()
    assert result.source == {"a": "local"}
    assert bob.read("news", "n = 1").result().source == {"a": "remote"}
    other = bob.read("news", "topic = 'arts'", data={"age": 3}, utility=freshness(600)).result()
    assert other.source == {"a": "remote"}


def test_evicted_records_are_fetched_again(place, jane):
    for key in "abc":
        jane.write("news", key, {"x": 1}).result()
    place.lab.run(minutes=1)
    small = place.client("small", max_rows=2)
    for _ in range(2):
        assert len(small.read("news", utility=freshness(600)).result()) == 3


def test_record_that_left_a_query_remains_in_a_larger_one(place, jane, bob):
    jane.write("news", "a", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert len(bob.read("news").result()) == 1
    jane.write("news", "a", {"n": 2}).result()
    place.lab.run(minutes=1)
    assert len(bob.read("news", "n = 1").result()) == 0
    assert len(bob.read("news", utility=freshness(600)).result()) == 1


@pytest.mark.parametrize("policy", [Freshness(600.0), NearAndRecent()])
def test_read_policy_decides_where_a_read_is_answered(place, jane, policy):
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


def test_continuous_read_delivers_upserts_and_removes(place, jane, bob):
    changes = listen(bob, "topic = 'arts'")
    jane.write("news", "a", {"topic": "arts"}).result()
    jane.write("news", "b", {"topic": "sports"}).result()
    jane.write("news", "a", {"topic": "sports"}).result()
    jane.write("news", "a", {"topic": "arts"}).result()
    jane.delete("news", "a").result()
    place.lab.run(minutes=1)
    assert [(change.kind, change.key, change.version) for change in changes] == [
        ("upsert", "a", 1),
        ("remove", "a", 2),
        ("upsert", "a", 3),
        ("remove", "a", 4),
    ]
    assert changes[0] == Change("upsert", "a", {"topic": "arts"}, 1, is_new=True)
    assert changes[1].record is None


def test_sync_timestamp_selects_existing_records(place, jane, bob):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=10)
    jane.write("news", "b", {"x": 1}).result()
    changes_by_sync = {}
    for sync in (None, 0.0, 300.0):
        changes_by_sync[sync] = listen(bob, sync_timestamp=sync)
    place.lab.run(minutes=1)
    heard = {
        sync: [(change.kind, change.key) for change in changes] for sync, changes in changes_by_sync.items()
    }
    a, b = ("upsert", "a"), ("upsert", "b")
    assert heard == {None: [], 0.0: [a, b], 300.0: [b]}


def test_updated_reader_data_apply_to_later_writes(place, jane, bob):
    changes = []
    near = "within_km(receiver.loc, point(30.27, -97.74), 1)"
    here = (30.27, -97.74)
    handle = bob.read("news", None, "continuous", data={"loc": (0, 0)}, callback=changes.append).result()
    jane.write("news", "a", {"x": 1}, predicate=near).result()
    bob.update_data(handle, {"loc": here}).result()
    place.lab.run(minutes=1)
    assert changes == []
    jane.write("news", "a", {"x": 2}, predicate=near).result()
    place.lab.run(minutes=1)
    assert [change.version for change in changes] == [2]


def test_unregistered_continuous_read_receives_nothing(place, jane, bob):
    changes = []
    handle = bob.read("news", None, "continuous", callback=changes.append).result()
    bob.unregister(handle).result()
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    assert changes == []
    with pytest.raises(ParameterError, match="has ended"):
        bob.unregister(handle).result()


def test_latest_version_is_delivered_after_an_outage(place, jane, bob):
    changes = listen(bob)
    place.lab.faults.cut("bob", minutes=180)
    for n in range(3):
        jane.write("news", "a", {"n": n}).result()
    place.lab.run(hours=4)
    assert changes[-1].version == 3
    assert [change.version for change in changes] == sorted({change.version for change in changes})


@pytest.mark.parametrize("host", ["mud-store", "mud-processor", "mud-notifications"])
def test_lost_message_is_retransmitted_under_steady_traffic(place, jane, bob, host):
    """Lose one message to bob while others follow it without a pause."""
    changes, lost = listen(bob), []
    place.lab.run(seconds=5)

    def lose(transfer):
        is_data = as_wire(transfer.message)["kind"] in ("log", "stream") and transfer.source.startswith(host)
        if is_data and not lost and as_wire(transfer.message).get("entries") != []:
            lost.append(transfer)
            return ()
        return (0,)

    place.lab.world.fault_hook = lose
    for number in range(200):
        jane.write("news", "a", {"n": number})
        place.lab.run(seconds=0.15)
    assert lost
    assert changes[-1].record["n"] > 190


def test_continuous_read_ends_when_its_token_expires(place, jane):
    changes = listen(place.client("short", token=place.lab.token(user="short", app="news", hours=1)))
    place.lab.run(hours=2)
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    assert changes == [{"ended": "its token has expired"}]


def test_continuous_read_ends_when_its_table_is_dropped(place, jane):
    changes = listen(place.client("anyone", app="other"))
    jane.alter("news", acl="user").result()
    place.lab.run(minutes=1)
    assert changes == []  # anyone is a user
    jane.drop("news").result()
    place.lab.run(minutes=1)
    assert changes == [{"ended": "the table was dropped"}]


# -- access control


def test_only_public_tables_are_open_without_a_token(place, jane):
    nobody = place.client("nobody", token=None)
    with pytest.raises(AccessDenied, match="no token"):
        nobody.read("news").result()
    with pytest.raises(AccessDenied):
        nobody.write("news", "a", {"x": 1}).result()
    jane.create("open", acl="public").result()
    assert nobody.write("open", "a", {"x": 1}).result() == 1


def test_access_levels_are_checked(place, jane):
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


def test_replayed_messages_of_another_device_are_dropped(place, jane):
    """Replay, from Eve's device, each message that Jane's client has sent."""
    jane.write("news", "a", {"x": 1}).result()
    overheard = []
    place.lab.world.fault_hook = lambda transfer: overheard.append(transfer) or (0,)
    jane.read("news", None, "continuous", callback=print).result()
    jane.write("news", "b", {"x": 2}).result()
    jane.read("news", latest=True).result()
    of_jane = [transfer for transfer in overheard if transfer.source == f"{jane.device.address}/mud"]
    assert {as_wire(transfer.message)["kind"] for transfer in of_jane} >= {"ask", "hello"}
    received = []

    class Eve:
        def handle(self, now_us, event):
            match event:
                case Call(op_id=op_id):
                    return [*(Send(transfer.to, transfer.message) for transfer in of_jane), Complete(op_id)]
                case Received(message=message):
                    received.append(message)
            return ()

    place.lab.device("eve").install("eve", lambda ports: Eve(), name="mud").call("replay").result()
    jane.write("news", "c", {"x": 3}).result()
    place.lab.run(minutes=5)
    assert received == []
    incidents = place.lab.frame("incidents")
    assert (incidents["incident"] == "dropped").sum() == len(of_jane)
    assert jane.read("news", latest=True).result().versions == {"a": 1, "b": 1, "c": 1}


def test_device_name_may_contain_a_slash(place, jane):
    other = place.client("jane/b")
    changes = listen(other)
    other.write("news", "a", {"x": 1}).result()
    place.lab.run(minutes=1)
    assert [change.key for change in changes if not change.is_pending] == ["a"]


def test_expired_token_reads_nothing_not_even_locally(place, jane):
    jane.write("news", "a", {"x": 1}).result()
    place.lab.run(hours=25)
    with pytest.raises(AccessDenied, match="expired"):
        jane.read("news", "key = 'a'", utility=freshness(1e8)).result()
    with pytest.raises(AccessDenied, match="expired"):
        jane.write("news", "a", {"x": 2}).result()


def test_only_creating_app_alters_and_drops_a_table(place, jane):
    other = place.client("other", app="other")
    for attempt in (lambda: other.drop("news"), lambda: other.alter("news", acl="public")):
        with pytest.raises(AccessDenied, match="created"):
            attempt().result()
    jane.alter("news", acl="public").result()
    jane.drop("news").result()
    with pytest.raises(TableProblem):
        jane.read("news").result()


# -- tables, and refused calls


def test_alter_adds_and_removes_columns(place, bob, jane):
    jane.create("typed", schema={"topic": "text", "n": "number"}).result()
    jane.write("typed", "a", {"topic": "arts", "n": 1}).result()
    jane.alter("typed", add={"city": "text"}, remove=["n"]).result()
    jane.write("typed", "b", {"topic": "arts", "city": "Austin"}).result()
    result = bob.read("typed", latest=True).result().records
    assert result == {"a": {"topic": "arts"}, "b": {"topic": "arts", "city": "Austin"}}
    assert len(bob.read("typed", "n IS NULL", latest=True).result()) == 2


MALFORMED = [
    (
        lambda jane: jane.read("news", type="continuous", utility=freshness(60.0)),
        ParameterError,
        "A continuous read has no utility",
    ),
    (lambda jane: jane.write("news", "a", {"x": 1}, predicate="receiver.age >="), PredicateError, "."),
    (lambda jane: jane.read("news", "topic = "), PredicateError, "."),
    (lambda jane: jane.write("news", 7, {"x": 1}), ParameterError, "a text or None"),
    (lambda jane: jane.write("news", "a", {1: 2}), ParameterError, "a mapping of columns to values"),
    (lambda jane: jane.write("news", "a", {}, "blnd"), ParameterError, "'blnd'"),
    (lambda jane: jane.write("news", "a", {}, "hopeful"), ParameterError, "'blind' or 'conditional'"),
    (lambda jane: jane.read("news", type="comitted"), ParameterError, "did you mean 'committed'"),
    (lambda jane: PubSub(jane, "chat").publish("friends", topic="family"), ParameterError, "one topic"),
]
UNUSABLE = [
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
    (
        lambda jane, bob: bob.read("news", type="uncommitted", aggregate="count(*)"),
        ParameterError,
        "need a committed read",
    ),
]


@pytest.mark.parametrize(("call", "error", "pattern"), MALFORMED)
def test_malformed_arguments_are_refused_before_queueing(jane, call, error, pattern):
    with pytest.raises(error, match=pattern):
        call(jane)
    assert jane.pending().result() == []


@pytest.mark.parametrize(("call", "error", "pattern"), UNUSABLE)
def test_unusable_requests_raise_errors(jane, bob, call, error, pattern):
    jane.create("typed", schema={"n": "number"}).result()
    with pytest.raises(error, match=pattern):
        call(jane, bob).result()
    assert jane.pending().result() == []


def test_callback_of_a_write_is_called_with_the_accepted_operation(place, jane):
    done = []
    operation = jane.write("news", "a", {"x": 1}, callback=done.append)
    assert done == []
    operation.result()
    assert done == [operation]


def test_pending_write_to_a_dropped_table_fails_alone(place, jane, bob):
    jane.create("other").result()
    bob.read("news").result()
    bob.read("other").result()
    place.lab.faults.cut("bob", minutes=5)
    failing, other = bob.write("news", "a", {"x": 1}), bob.write("other", "a", {"x": 1})
    jane.drop("news").result()
    jane.create("news").result()
    with pytest.raises(TableProblem):
        failing.result()
    assert other.result() == 1
    assert len(jane.read("news", latest=True).result()) == 0


def test_result_converts_to_html_and_data_frame(jane):
    jane.write("news", "a", {"topic": "<arts>"}).result()
    result = jane.read("news", latest=True).result()
    assert result.to_pandas().loc["a", "topic"] == "<arts>"
    assert "&lt;arts&gt;" in result._repr_html_()


@pytest.fixture
def blocking():
    lab = Lab(seed=7)
    client = Client(lab.device("ann"), Cloud(lab), app="app", token=lab.token(user="ann", app="app"))
    return lab, BlockingClient(client, timeout_s=60)


def test_blocking_calls_return_results_of_operations(blocking):
    lab, ann = blocking
    ann.create("t", schema={"n": "number"})
    assert ann.write("t", "a", {"n": 1}) == 1
    assert ann.read("t", "n = 1", latest=True).records == {"a": {"n": 1}}
    ann.alter("t", add={"m": "number"})
    changes = []
    handle = ann.read("t", None, "continuous", callback=changes.append)
    ann.update_data(handle, {"age": 3})
    assert ann.delete("t", "a") == 2
    lab.run(minutes=1)
    ann.unregister(handle)
    ann.drop("t")
    assert changes == []  # no upsert was delivered, so no remove is


def test_blocking_calls_raise_errors_and_time_out(blocking):
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


def test_message_reaches_subscribers_of_its_topic(chats):
    lab, ann, bob = chats
    received = []
    bob.subscribe("friends", received.append).result()
    for topic, text in (("friends", "lunch?"), ("family", "dinner?"), ("friends", "lunch?")):
        ann.publish(topic, text=text).result()
    lab.run(minutes=1)
    assert received == [{"topic": "friends", "text": "lunch?"}] * 2


def test_publisher_predicate_selects_subscribers(chats):
    lab, ann, bob = chats
    received = []
    bob.subscribe("friends", received.append, data={"age": 20}).result()
    ann.publish("friends", predicate="receiver.age >= 21", text="beer?").result()
    ann.publish("friends", predicate="receiver.age < 21", text="juice?").result()
    lab.run(minutes=1)
    assert [message["text"] for message in received] == ["juice?"]


def test_late_subscriber_receives_earlier_messages_until_it_unsubscribes(chats):
    lab, ann, bob = chats
    received = []
    ann.publish("friends", text="early").result()
    handle = bob.subscribe("friends", received.append, sync_timestamp=0.0).result()
    lab.run(minutes=1)
    bob.unsubscribe(handle).result()
    ann.publish("friends", text="late").result()
    lab.run(minutes=1)
    assert [message["text"] for message in received] == ["early"]

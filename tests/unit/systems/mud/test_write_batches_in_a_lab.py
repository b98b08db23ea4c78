"""Batches of writes of one partition: all or none, in the store, on the device and for every reader.

The rules are those of ``WriteBatch`` and of the guide: the back end judges all parts before it stores any, and nobody
sees some of them without the others.
"""

from __future__ import annotations

import pytest
from mud_place import listen

from mudkit import consistency
from mudkit.errors import AccessDenied, OperationCancelled, ParameterError, TableProblem
from mudkit.fleet.kernel import World
from mudkit.systems import mud
from mudkit.systems.mud.messages.notifications import Tell
from mudkit.systems.mud.messages.parts import PORT, Row
from mudkit.systems.mud.policies.policies import NEVER, Later


@pytest.fixture
def pair(place):
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("t", split=["m"]).result()
    ann.write("t", "a", {"n": 10}).result()
    return ann, bob


def latest(client):
    return client.read("t", latest=True).result().records


def shown(client):
    return client.read("t", type="uncommitted", utility=mud.freshness(1e6)).result().records


def test_parts_of_all_kinds_are_committed_together(place, pair):
    ann, bob = pair
    ann.write("t", "d", {"n": 1}).result()
    batch = ann.batch("t")
    batch.increment("a", "n", -4).write("b", {"n": 4}, "conditional", version=0).delete("d")
    batch.update("c", {"who": "ann"}, create=True).union("e", "tags", ["x"], create=True)
    assert batch.commit().result() == [2, 1, 2, 1, 1]
    assert latest(bob) == {"a": {"n": 6}, "b": {"n": 4}, "c": {"who": "ann"}, "e": {"tags": ["x"]}}
    store = place.lab.world.at_address[place.cloud.back_end].store
    lsns = sorted(row.lsn for _, row in store.items("row\nt\n", Row))
    assert lsns == list(range(lsns[0], lsns[0] + 5)), "the entries of the log are consecutive"


def test_with_block_commits_unless_it_raises(place, pair):
    ann, _ = pair
    with ann.batch("t") as batch:
        batch.write("b", {"n": 1})
    assert batch.operation.result() == [1]
    failed = ann.batch("t")
    with pytest.raises(ZeroDivisionError), failed:
        failed.write("c", {"n": 1 // 0})
    assert failed.operation is None
    place.lab.run(seconds=5)
    assert latest(ann).keys() == {"a", "b"}


def test_batch_is_an_operation_with_a_callback_and_a_result(pair):
    ann, _ = pair
    heard = []
    operation = ann.batch("t").write("b", {"n": 1}).write(None, {"n": 2}).commit(callback=heard.append)
    assert operation.exception() is None
    assert operation.result() == [1, 1]
    assert heard == [operation]
    assert {"a", "b"} < latest(ann).keys()
    assert len(latest(ann)) == 3


REFUSED = {
    "conflict": (lambda b: b.write("a", {"n": 0}, "conditional", version=7), mud.Conflict, "part 2 of 3"),
    "gone": (lambda b: b.increment("gone", "n"), TableProblem, "part 2 of 3"),
    "kind": (lambda b: b.increment("l", "n"), ParameterError, "part 2 of 3"),
    "key": (lambda b: b.write("k" * 600, {}), ParameterError, "part 2 of 3"),
    "partition": (lambda b: b.write("zz", {}), ParameterError, "a batch of the table 't'"),
}


@pytest.mark.parametrize("is_known", [True, False], ids=["table known", "table unknown"])
@pytest.mark.parametrize(("spoil", "error", "where"), REFUSED.values(), ids=REFUSED)
def test_one_part_that_is_refused_refuses_all_and_says_which(place, pair, spoil, error, where, is_known):
    ann, bob = pair
    ann.write("t", "l", {"n": "a"}).result()
    writer = ann if is_known else place.client("cy")
    before = latest(bob)
    batch = writer.batch("t").write("b", {"n": 1})
    spoil(batch)
    operation = batch.delete("c").commit()
    with pytest.raises(error) as caught:
        operation.result()
    assert where in caught.value.where
    assert latest(bob) == before
    assert writer.pending().result() == []
    assert "b" not in shown(writer)
    place.lab.run(minutes=1)
    assert latest(bob) == before


def test_conflict_has_the_records_of_its_part(pair):
    ann, bob = pair
    bob.write("t", "a", {"n": 11}).result()
    operation = ann.batch("t").write("b", {"n": 1}).write("a", {"n": 12}, "conditional").commit()
    with pytest.raises(mud.Conflict) as caught:
        operation.result()
    error = caught.value
    assert (error.local["key"], error.store["data"], error.base["data"]) == ("a", {"n": 11}, {"n": 10})
    assert "part 2 of 2" in error.where


def test_rule_that_refuses_one_part_refuses_all(place):
    ann, eve = place.client("ann"), place.client("eve")
    ann.create("t", acl="user", write_rule="old IS NULL OR auth.user = old.owner").result()
    ann.write("t", "a", {"owner": "ann"}).result()
    ann.write("t", "b", {"owner": "all"}, may_write="auth.user = 'ann'").result()
    for key in "ab":
        operation = eve.batch("t").write("c", {"owner": "eve"}).delete(key).commit()
        with pytest.raises(AccessDenied, match=f"part 2 of 2, table 't', key '{key}'"):
            operation.result()
    assert latest(ann).keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (lambda ann: ann.batch("t"), "no writes"),
        (lambda ann: ann.batch("t").write("b", {}).delete("b"), "'b'"),
        (lambda ann: ann.batch("t").write("t2", "b", {}), "'b'"),
        (lambda ann: ann.batch("t").write("b", {}, version=1), "version=1"),
        (lambda ann: ann.batch("t").increment("b", "n", by="x"), "'x'"),
        (lambda ann: ann.batch("t").update("b", {}), "{}"),
    ],
    ids=["empty", "key twice", "other table", "version", "no number", "no columns"],
)
def test_arguments_are_refused_at_the_call(pair, build, found):
    ann, _ = pair
    with pytest.raises(ParameterError) as caught:
        build(ann).commit()
    assert found in caught.value.found
    assert ann.pending().result() == []


def test_batch_that_is_larger_than_a_message_is_refused(pair):
    ann, _ = pair
    batch = ann.batch("t")
    for number in range(5):
        batch.write(f"b{number}", {"text": "x" * 8000})
    with pytest.raises(ParameterError, match="too large for a message"):
        batch.commit().result()
    assert ann.pending().result() == []


def test_committed_batch_takes_nothing_more(pair):
    ann, _ = pair
    batch = ann.batch("t").write("b", {"n": 1})
    batch.commit()
    for call in (lambda: batch.write("c", {}), batch.commit):
        with pytest.raises(ParameterError, match="was committed"):
            call()


def test_batch_without_a_network_is_pending_cancelled_and_sent_as_one(place, pair):
    ann, bob = pair
    ann.read("t").result()
    place.lab.faults.cut("ann", minutes=5)
    first = ann.batch("t").increment("a", "n").write("b", {"n": 1}).commit()
    second = ann.batch("t").increment("a", "n", 5).write("c", {"n": 1}).commit()
    assert shown(ann) == {"a": {"n": 16}, "b": {"n": 1}, "c": {"n": 1}}
    assert [write["key"] for write in ann.pending().result()] == ["a", "b", "a", "c"]
    assert not first.cancel(), "a write of one of its records follows"
    assert second.cancel()
    with pytest.raises(OperationCancelled):
        second.result()
    assert shown(ann) == {"a": {"n": 11}, "b": {"n": 1}}
    place.lab.run(minutes=6)
    assert first.result() == [2, 1]
    assert latest(bob) == {"a": {"n": 11}, "b": {"n": 1}}


def test_writes_before_and_after_a_batch_keep_their_order_and_join_it_never(place, pair):
    ann, bob = pair
    place.lab.faults.cut("ann", minutes=5)
    calls = [
        ann.write("t", "a", {"n": 1}),
        ann.batch("t").write("a", {"n": 2}, "conditional").write("b", {"n": 2}).commit(),
        ann.write("t", "b", {"n": 3}),
        ann.batch("t").increment("b", "n").write("c", {"n": 4}).commit(),
        ann.increment("t", "c", "n"),
    ]
    place.lab.run(minutes=6)
    assert [call.result() for call in calls] == [2, [3, 1], 2, [3, 1], 2]
    assert latest(bob) == {"a": {"n": 2}, "b": {"n": 4}, "c": {"n": 5}}


def test_batch_based_on_a_write_that_fails_fails_as_a_whole_and_frees_what_follows(place, pair):
    ann, bob = pair
    place.lab.faults.cut("ann", minutes=5)
    bob.write("t", "a", {"n": 99}).result()
    first = ann.write("t", "a", {"n": 1}, "conditional")
    batch = ann.batch("t").write("b", {"n": 2}).write("a", {"n": 2}, "conditional").commit()
    after = ann.write("t", "b", {"n": 3})
    place.lab.run(minutes=6)
    with pytest.raises(mud.Conflict):
        first.result()
    with pytest.raises(mud.Conflict, match="part 2 of 2"):
        batch.result()
    assert after.result() == 1
    assert latest(bob) == {"a": {"n": 99}, "b": {"n": 3}}


class ByColumn:
    """Write policy that reads the delay from a column."""

    def delay(self, write, context):
        return write["data"]["wait"]


@pytest.mark.parametrize(("waits", "after_s"), [((60.0, 600.0), 60), ((None, 600.0), 0), ((NEVER, 60.0), 60)])
def test_batch_waits_as_one_for_the_shortest_delay_of_its_parts(place, waits, after_s):
    ann = place.client("ann", write_policy=ByColumn())
    ann.create("t").result()
    batch = ann.batch("t")
    for key, wait in zip("ab", waits, strict=True):
        batch.write(key, {"wait": wait})
    operation = batch.commit()
    assert operation.result() == [1, 1]
    assert round((operation.responded_us - operation.invoked_us) / 10e6) == after_s / 10


def test_batch_that_a_policy_withholds_is_sent_when_a_read_needs_it(place):
    ann = place.client("ann", write_policy=Later(3600))
    ann.create("t").result()
    batch = ann.batch("t").write("a", {"n": 1}).write("b", {"n": 1}).commit()
    read = ann.read("t", "key = 'b'", "committed_wio").result()
    assert read.records == {"b": {"n": 1}}
    assert batch.result() == [1, 1]


def test_batch_whose_token_has_expired_waits_for_another(place):
    lab = place.lab
    ann = place.client("ann", token=lab.token("ann", "news", hours=0.1))
    ann.create("t").result()
    lab.faults.cut("ann", minutes=10)
    batch = ann.batch("t").write("a", {"n": 1}).write("b", {"n": 1}).commit()
    lab.run(minutes=11)
    assert [write["held"] for write in ann.pending().result()] == ["token", "token"]
    ann.renew(lab.token("ann", "news")).result()
    assert batch.result() == [1, 1]


def test_reads_of_ones_own_app_show_all_parts_and_correct_them_together(place, pair):
    ann, bob = pair
    changes = []
    read = ann.read("t", None, "continuous", sync_timestamp=0, callback=changes.append).result()
    ann.await_synced(read).result()
    for call in (ann, bob):
        call.read("t").result()
    bob.write("t", "a", {"n": 20}).result()
    place.lab.run(seconds=2)
    changes.clear()
    batch = ann.batch("t").write("b", {"n": 1}).write("a", {"n": 0}, "conditional", version=1).commit()
    assert read.snapshot().records == {"a": {"n": 0}, "b": {"n": 1}}
    place.lab.run(seconds=5)
    with pytest.raises(mud.Conflict):
        batch.result()
    assert read.snapshot().records == {"a": {"n": 20}}
    assert [(change.kind, change.key, change.is_pending) for change in changes] == [
        ("upsert", "b", True), ("upsert", "a", True), ("remove", "b", False), ("upsert", "a", False)
    ]  # fmt: skip


@pytest.fixture
def tells(monkeypatch):
    """Record the changes that bob's device is sent."""
    bodies = []
    handle = World._handle

    def record_and_handle(self, process, event):
        body = getattr(getattr(event, "message", None), "body", None)
        if isinstance(body, Tell) and process.host.name == "bob" and process.name == PORT:
            bodies.append(body)
        handle(self, process, event)

    monkeypatch.setattr(World, "_handle", record_and_handle)
    return bodies


def test_continuous_read_is_told_of_a_batch_in_one_message(place, pair, tells):
    ann, bob = pair
    read = bob.read("t", "n > 0", "continuous", sync_timestamp=0).result()
    window = bob.read("t", None, "continuous", order="n DESC", limit=2).result()
    total = bob.read("t", None, "continuous", aggregate="sum(n), count(*)", sync_timestamp=0).result()
    place.lab.run(seconds=5)
    tells.clear()
    ann.batch("t").increment("a", "n", -10).write("b", {"n": 4}).write("c", {"n": 6}).commit().result()
    place.lab.run(seconds=2)
    assert read.snapshot().records == {"b": {"n": 4}, "c": {"n": 6}}
    assert window.snapshot().records == {"c": {"n": 6}, "b": {"n": 4}}
    assert total.snapshot().aggregates == {"sum(n)": 10, "count(*)": 3}
    assert len(tells) == 3, "one for each read"


def test_table_on_the_device_takes_a_batch_at_once_or_not_at_all(place):
    ann = place.client("ann")
    ann.create("drafts", where="device").result()
    changes = listen(ann, table="drafts")
    total = ann.read("drafts", None, "continuous", aggregate="sum(n)", sync_timestamp=0).result()
    place.lab.faults.cut("ann")
    assert ann.batch("drafts").write("a", {"n": 1}).increment("b", "n", 2, create=True).commit().result() == [
        1,
        1,
    ]
    assert [change.key for change in changes] == ["a", "b"]
    assert total.snapshot().aggregates == {"sum(n)": 3}
    with pytest.raises(TableProblem, match="part 2 of 2"):
        ann.batch("drafts").delete("a").increment("gone", "n").commit().result()
    assert ann.read("drafts").result().records == {"a": {"n": 1}, "b": {"n": 2}}


@pytest.mark.parametrize("faults", [{"loss_share": 0.4}, {"repeat_share": 0.5}])
def test_batches_are_applied_once_despite_faults_and_kills(place, pair, faults):
    ann, bob = pair
    place.lab.faults.messages(**faults)
    hosts = ["ann", place.cloud.back_end.split("/")[0]]
    for number in range(12):
        client = ann if number % 2 else bob
        client.batch("t").increment("a", "n", 1).increment("b", "n", -1, create=True).commit()
        if number % 3 == 0:
            place.lab.faults.kill(hosts[number % 2])
            place.lab.run(seconds=1)
            place.lab.faults.restart(hosts[number % 2])
        place.lab.run(seconds=9)
    place.lab.faults.messages()
    place.lab.run(minutes=5)
    assert ann.pending().result() == bob.pending().result() == []
    assert latest(ann) == {"a": {"n": 22}, "b": {"n": -12}}


def test_history_has_an_operation_for_each_part(place, pair):
    ann, bob = pair
    bob.write("t", "b", {"n": 0}).result()
    ann.batch("t").increment("a", "n").write("b", {"n": 1}).delete("c").commit().result()
    refused = ann.batch("t").write("c", {"n": 2}).write("b", {"n": 2}, "conditional", version=1).commit()
    bob.read("t", latest=True).result()
    place.lab.run(seconds=2)
    assert isinstance(refused.exception(), mud.Conflict)
    history = place.lab.history()
    own = history[(history["client"] == "ann") & history["op"].isin(["write", "update", "delete"])]
    rows = own[["op", "key", "version", "status"]].astype(object).values.tolist()
    assert [tuple(row[:2]) for row in rows[1:]] == [
        ("update", "a"), ("write", "b"), ("delete", "c"), ("write", "c"), ("write", "b")
    ]  # fmt: skip
    assert [row[3] for row in rows[1:]] == ["ok"] * 3 + ["failed"] * 2
    operations = consistency.History.from_table(history)
    assert consistency.check(operations, "sequential").status is consistency.Status.OK

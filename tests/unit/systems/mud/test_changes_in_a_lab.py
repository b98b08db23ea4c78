"""Changes of columns: applied by the store to the record that it has, once, and shown on the device before."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit import consistency
from mudkit.errors import AccessDenied, ParameterError, TableProblem
from mudkit.events import Received
from mudkit.fleet.kernel import World
from mudkit.systems import mud
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.requests import Ask, WriteOutcome
from mudkit.systems.mud.messages.servers import Routed


@pytest.fixture
def pair(place):
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("t").result()
    ann.write("t", "k", {"likes": 1, "city": "Oslo"}).result()
    return ann, bob


class Never:
    """Write policy that keeps each write until a read needs it."""

    def delay(self, write, context):
        return "never"


def latest(client, key="k"):
    return client.read("t", latest=True).result().records.get(key)


def shown(client, **more):
    return client.read("t", type="uncommitted", **more).result().records.get("k")


@pytest.fixture
def received(monkeypatch):
    """Record the messages that machines receive."""
    messages = []
    handle = World._handle

    def record_and_handle(self, process, event):
        if type(event) is Received:
            messages.append(event.message)
        handle(self, process, event)

    monkeypatch.setattr(World, "_handle", record_and_handle)
    return messages


def test_changes_of_two_clients_at_once_are_both_in_the_record(place, pair):
    ann, bob = pair
    operations = [
        ann.update("t", "k", {"city": "Rome"}),
        bob.increment("t", "k", "likes", 2),
        ann.increment("t", "k", "likes", -1),
        bob.union("t", "k", "tags", ["a", "b"]),
        ann.union("t", "k", "tags", ["b", "c"]),
        bob.update("t", "k", {"title": "new"}),
    ]
    versions = [operation.result() for operation in operations]
    record = latest(ann)
    assert sorted(record.pop("tags")) == ["a", "b", "c"]
    assert record == {"likes": 2, "city": "Rome", "title": "new"}
    assert max(versions) == ann.read("t", latest=True).result().versions["k"]
    bob.remove("t", "k", "tags", ["c", "z"]).result()
    assert sorted(latest(bob)["tags"]) == ["a", "b"]


def test_increments_count_once_over_lost_and_repeated_messages_and_kills(place, pair):
    ann, bob = pair
    place.lab.faults.messages(loss_share=0.3, repeat_share=0.3)
    for number in range(10):
        (ann if number % 2 else bob).increment("t", "k", "likes")
        if number % 3 == 0:
            place.lab.faults.kill("bob")
            place.lab.faults.restart("bob")
        place.lab.run(seconds=7)
    place.lab.faults.messages()
    place.lab.run(minutes=5)
    assert not ann.pending().result()
    assert not bob.pending().result()
    assert latest(ann)["likes"] == 11


def test_pending_changes_are_shown_on_what_the_device_has_and_again_on_what_it_learns(place, pair):
    _, bob = pair
    ann = place.client("cy", write_policy=Never())
    ann.read("t").result()
    ann.increment("t", "k", "likes")
    assert shown(ann, utility=mud.freshness(600)) == {"likes": 2, "city": "Oslo"}
    bob.increment("t", "k", "likes", 10).result()
    bob.update("t", "k", {"city": "Rome"}).result()
    place.lab.run(seconds=2)
    assert shown(ann) == {"likes": 12, "city": "Rome"}
    assert ann.holdings("t").result()[-1]["record"] == {"likes": 12, "city": "Rome"}
    read = ann.read("t", type="committed").result()
    assert read.records["k"] == {"likes": 11, "city": "Rome"}


def test_committed_part_below_a_pending_change_is_as_old_as_it_is(place, pair):
    """Only a pending write of a whole record is the latest version: a record that is changed may be newer."""
    _, bob = pair
    ann = place.client("cy", write_policy=Never())
    ann.read("t").result()
    bob.update("t", "k", {"city": "Rome"}).result()
    place.lab.run(seconds=60)
    ann.increment("t", "k", "likes")
    read = ann.read("t", "key = 'k'", "uncommitted").result()
    assert read.records == {"k": {"likes": 2, "city": "Rome"}}
    assert ann.read("t", "key = 'k'", "uncommitted", latest=True).result().records == read.records


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost outcome", "all messages"])
def test_increment_counts_twice_only_between_a_version_with_it_and_its_outcome(place, pair, is_lost):
    """Guide, own writes are shown at once: the device cannot know that a version contains its pending change."""
    ann, bob = pair
    ann.read("t").result()
    changes = []
    ann.read("t", type="continuous", callback=changes.append).result()
    lose = [is_lost]

    def lose_outcomes(transfer):
        return () if lose[0] and isinstance(transfer.message, WriteOutcome) else (0,)

    place.lab.world.fault_hook = lose_outcomes
    operation = ann.increment("t", "k", "likes")
    place.lab.run(seconds=0)
    assert (changes[-1].record["likes"], changes[-1].is_pending) == (2, True), "no version contains it yet"
    place.lab.run(seconds=5)
    assert operation.done() is not is_lost
    assert changes[-1].record["likes"] == (3 if is_lost else 2)
    assert shown(ann, latest=True)["likes"] == (3 if is_lost else 2)
    assert ann.read("t", latest=True).result().records["k"]["likes"] == 2
    assert latest(bob)["likes"] == 2
    lose[0] = False
    assert operation.result() == 2
    place.lab.run(seconds=5)
    assert (shown(ann)["likes"], changes[-1].record["likes"], changes[-1].is_pending) == (2, 2, False)
    assert all(change.record["likes"] == 2 for change in changes) is not is_lost


def test_pending_change_follows_ones_own_pending_record(place, pair):
    ann, _ = pair
    place.lab.faults.cut("ann", minutes=5)
    ann.write("t", "k", {"likes": 5}, "conditional")
    change = ann.increment("t", "k", "likes")
    assert shown(ann) == {"likes": 6}
    assert len(ann.pending().result()) == 2
    assert change.result() == 3
    assert latest(ann) == {"likes": 6}


def test_changes_that_were_never_sent_become_one(place, pair):
    ann, _ = pair
    place.lab.faults.cut("ann", minutes=5)
    operations = [ann.increment("t", "k", "likes") for _ in range(5)]
    operations += [ann.update("t", "k", {"city": "Rome"}), ann.union("t", "k", "tags", ["a"])]
    (pending,) = ann.pending().result()
    assert pending["changes"]["add"] == {"likes": 5}
    assert {operation.result() for operation in operations} == {2}
    assert latest(ann) == {"likes": 6, "city": "Rome", "tags": ["a"]}


def test_change_joins_the_record_before_it_that_was_never_sent(place, pair):
    ann, _ = pair
    place.lab.faults.cut("ann", minutes=5)
    ann.write("t", "k", {"likes": 5}, predicate="auth.user = 'ann'")
    ann.increment("t", "k", "likes")
    (pending,) = ann.pending().result()
    assert (pending["data"], pending["changes"]) == ({"likes": 6}, None)
    place.lab.run(minutes=6)
    assert latest(ann) == {"likes": 6}
    assert latest(pair[1]) is None, "the predicate stays"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (lambda c: c.increment("t", "k", "likes"), lambda c: c.write("t", "k", {"likes": 0})),
        (lambda c: c.increment("t", "k", "likes"), lambda c: c.update("t", "k", {"likes": 0})),
        (lambda c: c.delete("t", "k"), lambda c: c.increment("t", "k", "likes", create=True)),
        (lambda c: c.write("t", "k", {"likes": "x"}), lambda c: c.increment("t", "k", "likes")),
        (lambda c: c.increment("t", "k", "likes", data={"age": 3}), lambda c: c.increment("t", "k", "likes")),
    ],
    ids=["record after change", "value after increment", "create after delete", "text", "other reader"],
)
def test_writes_that_may_be_refused_alone_are_not_joined(place, pair, first, then):
    place.lab.faults.cut("ann", minutes=5)
    first(pair[0])
    then(pair[0])
    assert len(pair[0].pending().result()) == 2


def test_committed_wio_read_between_keeps_changes_apart(place, pair):
    ann, _ = pair
    place.lab.faults.cut("ann", minutes=5)
    ann.increment("t", "k", "likes")
    between = ann.read("t", type="committed_wio", offline="wait")
    ann.increment("t", "k", "likes")
    assert between.result().records["k"]["likes"] == 2
    place.lab.run(seconds=10)
    assert latest(ann)["likes"] == 3


def test_rule_of_the_table_sees_the_record_before_and_after_each_change(place):
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("t", acl="user", write_rule="old IS NULL OR new.n = old.n + 1").result()
    ann.write("t", "k", {"n": 1, "owner": "ann"}).result()
    place.lab.faults.cut("ann", minutes=5)
    operations = [ann.increment("t", "k", "n") for _ in range(2)]
    assert [operation.result() for operation in operations] == [2, 3], "they are not joined"
    for refused in (bob.increment("t", "k", "n", 2), bob.update("t", "k", {"owner": "bob"})):
        with pytest.raises(AccessDenied, match="may not write"):
            refused.result()
    assert latest(ann) == {"n": 3, "owner": "ann"}


def test_rule_and_predicate_of_a_record_stay(place, pair):
    ann, bob = pair
    eve = place.client("eve")
    ann.write(
        "t", "k", {"n": 1}, predicate="auth.user IN ('ann', 'bob')", may_write="auth.user <> 'eve'"
    ).result()
    bob.increment("t", "k", "n").result()
    assert latest(ann) == {"n": 2}
    assert latest(eve) is None
    with pytest.raises(AccessDenied):
        eve.delete("t", "k").result()


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "never written"])
def test_changes_of_a_record_that_is_gone_are_refused_unless_they_create(pair, is_deleted):
    ann, bob = pair
    key = "k" if is_deleted else "other"
    bob.read("t").result()
    if is_deleted:
        ann.delete("t", "k").result()
    for call in (
        lambda: bob.update("t", key, {"city": "Rome"}),
        lambda: bob.increment("t", key, "likes"),
        lambda: bob.union("t", key, "tags", ["a"]),
        lambda: bob.remove("t", key, "tags", ["a"]),
    ):
        with pytest.raises(TableProblem, match=r"found:    no record(.|\n)*create=True"):
            call().result()
    assert latest(ann, key) is None
    bob.increment("t", key, "likes", create=True).result()
    assert latest(ann, key) == {"likes": 1}, "nothing of the record before"


def test_hidden_records_look_like_none_and_cannot_be_changed(place, pair):
    ann, bob = pair
    ann.write("t", "k", {"n": 1, "text": "x"}, predicate="receiver.age >= 21").result()
    errors = []
    for key in ("k", "none"):
        with pytest.raises(TableProblem) as refused:
            bob.increment("t", key, "text").result()
        errors.append(str(refused.value).replace(repr(key), "…"))
    assert errors[0] == errors[1], "neither its text nor that it is there"
    with pytest.raises(TableProblem, match="may not see"):
        bob.increment("t", "k", "n", create=True).result()
    bob.increment("t", "k", "n", data={"age": 34}).result()
    assert ann.read("t", data={"age": 30}, latest=True).result().records["k"]["n"] == 2


def test_increment_of_a_text_is_refused_by_the_store_and_by_a_schema_at_the_call(place, pair):
    ann, _ = pair
    with pytest.raises(ParameterError, match="Only a number can be incremented") as refused:
        ann.increment("t", "k", "city").result()
    assert (refused.value.found, refused.value.expected) == ("str: 'Oslo'", "a number, or NULL")
    ann.create("typed", schema={"name": "text", "n": "number"}).result()
    ann.write("typed", "k", {"name": "x"}).result()
    place.lab.faults.cut("ann")
    refusal = ann.increment("typed", "k", "name")
    assert refusal.done(), "without asking the cloud"
    with pytest.raises(ParameterError, match="found:    a column of the type text"):
        refusal.result()


def test_column_that_was_removed_counts_as_null(pair):
    ann, bob = pair
    bob.read("t").result()
    ann.alter("t", remove=["likes"]).result()
    ann.alter("t", add={"likes": "number"}).result()
    bob.increment("t", "k", "likes").result()
    assert latest(ann) == {"likes": 1, "city": "Oslo"}
    assert bob.holdings("t").result()[0]["record"] == latest(ann)


def test_outcome_has_the_record_only_if_the_device_does_not_know_it(pair, received):
    ann, bob = pair
    ann.increment("t", "k", "likes").result()
    bob.increment("t", "k", "likes").result()
    ann.increment("t", "k", "likes").result()
    rows = {message.row for message in received if isinstance(message, WriteOutcome) and message.ver == 2}
    assert not any(isinstance(row, Row) for row in rows)
    for ver, likes in ((3, 3), (4, 4)):
        (data,) = {
            str(message.row.data)
            for message in received
            if isinstance(message, WriteOutcome) and message.ver == ver
        }
        assert f"'likes': {likes}" in data
    for client, likes in ((ann, 4), (bob, 3)):
        assert client.holdings("t").result()[0]["record"]["likes"] == likes


def test_messages_of_whole_records_have_no_new_field(pair, received):
    from mudkit.wire import as_wire

    pair[0].write("t", "k", {"n": 1}).result()
    fields = [
        as_wire(message.what if isinstance(message, Routed | Ask) else message)
        for message in received
        if isinstance(message, Routed | WriteOutcome | Ask)
    ]
    assert fields
    assert not any({"changes", "row"} & set(message) for message in fields)


def test_history_with_changes_is_checked_as_writes_of_the_merged_records(place, pair):
    ann, bob = pair
    place.lab.faults.cut("ann", minutes=2)
    for _ in range(3):
        ann.increment("t", "k", "likes")
        ann.read("t", type="uncommitted")
    bob.union("t", "k", "tags", ["a"]).result()
    bob.read("t", latest=True).result()
    place.lab.run(minutes=3)
    place.lab.faults.kill("ann")
    place.lab.faults.restart("ann")
    ann.read("t", latest=True)
    place.lab.run(minutes=3)
    bob.read("t").result()
    history = place.lab.history()
    for model in ("sequential", "fork-sequential", "monotonic-reads", "linearizable"):
        verdict = consistency.check(history, model=model, key="k")
        assert verdict.status is not consistency.Status.ILLEGAL, (model, verdict.explanation)


def test_reads_of_an_update_without_an_answer_are_no_contradiction(place, pair):
    """Test a device that is killed after its message has left: no outcome names the value."""
    ann, bob = pair
    lost = ann.increment("t", "k", "likes")
    place.lab.faults.kill("ann")
    place.lab.run(seconds=10)
    assert latest(bob)["likes"] == 2
    assert lost.status == "open"
    for model in ("sequential", "linearizable"):
        verdict = consistency.check(place.lab.history(), model=model, key="k")
        assert verdict.status is not consistency.Status.ILLEGAL, verdict.explanation


def test_table_on_a_device_has_the_same_changes():
    place = Place()
    ann = place.client("ann")
    ann.create("t", where="device", schema={"n": "number", "tags": "any", "name": "text"}).result()
    with pytest.raises(TableProblem):
        ann.increment("t", "k", "n").result()
    assert ann.increment("t", "k", "n", create=True).result() == 1
    ann.union("t", "k", "tags", ["a", "b"]).result()
    ann.remove("t", "k", "tags", ["a"]).result()
    ann.update("t", "k", {"name": "x"}).result()
    with pytest.raises(ParameterError):
        ann.increment("t", "k", "name").result()
    assert ann.read("t").result().records == {"k": {"n": 1, "tags": ["b"], "name": "x"}}
    ann.delete("t", "k").result()
    with pytest.raises(TableProblem):
        ann.update("t", "k", {"name": "y"}).result()


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.update("t", "k", {}),
        lambda c: c.update("t", "k", {"key": 1}),
        lambda c: c.increment("t", "k", "n", by="1"),
        lambda c: c.increment("t", "k", "n", by=True),
        lambda c: c.increment("t", "k", "n", by=float("inf")),
        lambda c: c.increment("t", "k", "key"),
        lambda c: c.union("t", "k", "tags", "abc"),
        lambda c: c.union("t", "k", "tags", {"a", "b"}),
        lambda c: c.remove("t", "k", "tags", [object()]),
    ],
)
def test_unusable_changes_are_refused_at_the_call(pair, call):
    with pytest.raises(ParameterError):
        call(pair[0])

"""Tables on the device alone (Mobius 3), and their joins with tables of the cloud (3.1)."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit import Lab
from mudkit.errors import NoNetwork, ParameterError, PredicateError, TableProblem
from mudkit.systems.mud import Client, Cloud, freshness

LENGTHS = {"a": 10, "b": 20, "c": 30}


@pytest.fixture
def place():
    return Place()


@pytest.fixture
def ann(place):
    """Return a client with a table of drafts on its device, which has no network."""
    ann = place.client("ann")
    place.lab.faults.cut("ann")
    ann.create("drafts", where="device").result(1)
    for key, words in LENGTHS.items():
        ann.write("drafts", key, {"words": words}).result(1)
    return ann


def count_messages(place):
    return int(place.lab.bill()["messages"].sum())


@pytest.mark.parametrize("kind", ["uncommitted", "committed", "committed_wio"])
@pytest.mark.parametrize("options", [{}, {"latest": True}, {"utility": freshness(0)}, {"offline": "fail"}])
def test_reads_of_all_types_return_the_latest_version(place, ann, kind, options):
    result = ann.read("drafts", "words > 10", kind, **options).result(1)
    assert result.records == {"b": {"words": 20}, "c": {"words": 30}}
    assert (result.versions, result.source) == ({"b": 1, "c": 1}, {"b": "local", "c": "local"})
    assert set(result.age_s.values()) == {0.0}
    assert result.is_complete
    assert count_messages(place) == 0


def test_versions_count_through_deletions(ann):
    assert ann.write("drafts", "a", {"words": 11}).result(1) == 2
    assert ann.delete("drafts", "a").result(1) == 3
    assert ann.read("drafts", "key = 'a'").result(1).records == {}
    assert ann.write("drafts", "a", {"words": 1}, type="conditional").result(1) == 4
    assert ann.pending().result(1) == []
    ann.write("drafts", None, {"words": 0}).result(1)
    assert len(ann.read("drafts").result(1)) == 4


def test_aggregates_and_selections(ann):
    result = ann.read("drafts", aggregate="count(*), max(words)").result(1)
    assert result.aggregates == {"count(*)": 3, "max(words)": 30}
    assert list(ann.read("drafts", order="words DESC", limit=2).result(1).records) == ["c", "b"]
    with pytest.raises(ParameterError, match="selection"):
        ann.read("drafts", aggregate="count(*)", limit=1).result(1)


def test_tables_outlive_a_kill_and_end_when_they_are_dropped(place, ann):
    place.lab.faults.kill("ann")
    place.lab.faults.restart("ann")
    place.lab.run(seconds=1)
    assert len(ann.read("drafts").result(1)) == 3
    assert [row["key"] for row in ann.holdings("drafts").result(1)] == [*"abc"]
    ann.drop("drafts").result(1)
    ann.create("drafts", where="device").result(1)
    assert len(ann.read("drafts").result(1)) == 0
    assert ann.write("drafts", "a", {}).result(1) == 1


def test_schema_and_its_changes(ann):
    ann.create("settings", where="device", schema={"muted": "boolean"}).result(1)
    with pytest.raises(ParameterError, match="boolean"):
        ann.write("settings", "arts", {"muted": "yes"}).result(1)
    with pytest.raises(PredicateError, match="mutde"):
        ann.read("settings", "mutde").result(1)
    ann.write("settings", "arts", {"muted": True}).result(1)
    ann.alter("settings", add={"volume": "number"}, remove=["muted"]).result(1)
    assert ann.read("settings").result(1).records == {"arts": {}}
    with pytest.raises(ParameterError, match="acl"):
        ann.alter("settings", acl="user").result(1)


def test_writer_predicates_hide_records_from_other_readers(ann):
    ann.write("drafts", "d", {"words": 1}, predicate="receiver.is_alone").result(1)
    assert len(ann.read("drafts").result(1)) == 3
    assert len(ann.read("drafts", data={"is_alone": True}).result(1)) == 4


@pytest.mark.parametrize("option", [{"acl": "user"}, {"apps": ["news"]}, {"split": ["g"]}])
def test_properties_of_the_cloud_are_refused(ann, option):
    with pytest.raises(ParameterError, match=next(iter(option))):
        ann.create("others", where="device", **option).result(1)


def test_one_name_is_one_table(place, ann):
    bob = place.client("bob")
    bob.create("news").result()
    place.lab.faults.mend("ann")
    assert len(ann.read("news").result()) == 0
    with pytest.raises(TableProblem, match="in the cloud"):
        ann.create("news", where="device").result(1)
    for where in ("device", "cloud"):
        with pytest.raises(TableProblem, match="on this device"):
            ann.create("drafts", where=where).result(1)
    with pytest.raises(TableProblem):
        bob.read("drafts").result()  # of another device


# -- joins


@pytest.fixture
def joined(place, ann):
    """Return Ann, with settings on her device and a table of news in the cloud."""
    bob = place.client("bob")
    bob.create("news").result()
    for key, topic in (("n1", "arts"), ("n2", "sports"), ("n3", "arts"), ("n4", "chess")):
        bob.write("news", key, {"topic": topic, "ts": int(key[1])}).result()
    ann.create("topics", where="device").result(1)
    ann.write("topics", "arts", {"muted": False}).result(1)
    ann.write("topics", "sports", {"muted": True}).result(1)
    place.lab.faults.mend("ann")
    place.lab.run(minutes=1)
    return ann


def test_records_of_the_cloud_are_joined_with_those_on_the_device(place, joined):
    condition = "lookup('topics', topic, 'muted') = FALSE AND ts > 1"
    result = joined.read("news", condition).result()
    assert result.records == {"n3": {"topic": "arts", "ts": 3}}
    assert result.source == {"n3": "remote"}
    messages = place.lab.frame("messages")["content"].astype(str)
    assert not messages.str.contains("topics").any()
    assert messages.str.contains("ts > ").any()  # what the cloud can evaluate, it does
    assert joined.read("news", condition, aggregate="count(*)").result().aggregates == {"count(*)": 1}
    first = joined.read("news", "lookup('topics', topic, 'muted') IS NOT NULL", order="ts", limit=2)
    assert list(first.result().records) == ["n1", "n2"]


def test_records_on_the_device_are_joined_with_those_of_the_cloud(place, joined):
    joined.write("drafts", "d", {"words": 5, "reply_to": "n1"}).result()
    joined.write("drafts", "e", {"words": 5, "reply_to": "n2"}).result()
    joined.write("drafts", "f", {"words": 5, "reply_to": "nothing"}).result()
    result = joined.read("drafts", "lookup('news', reply_to, 'topic') = 'arts'").result()
    assert result.records == {"d": {"words": 5, "reply_to": "n1"}}
    nested = "lookup('topics', lookup('news', reply_to, 'topic'), 'muted')"
    assert set(joined.read("drafts", nested).result().records) == {"e"}
    place.lab.faults.cut("ann")
    place.lab.run(seconds=1)
    local = joined.read("drafts", nested).result(1)
    assert (set(local.records), local.is_complete) == ({"e"}, True)  # its keys are on the device
    with pytest.raises(NoNetwork):
        joined.read("drafts", nested, offline="fail").result(1)
    waiting = joined.read("drafts", nested, offline="wait")
    place.lab.run(minutes=1)
    assert not waiting.done()
    place.lab.faults.mend("ann")
    assert set(waiting.result().records) == {"e"}


def test_joins_without_a_network_say_what_may_be_missing(place, joined):
    joined.write("drafts", "d", {"words": 5, "reply_to": "n1"}).result()
    joined.read("news", "key = 'n2'").result()  # the cloud has verified the token
    place.lab.faults.cut("ann")
    place.lab.run(seconds=1)
    result = joined.read("drafts", "lookup('news', reply_to, 'topic') = 'arts'").result(1)
    assert (result.records, result.is_complete) == ({}, False)


@pytest.mark.parametrize(
    ("table", "condition", "dropped"),
    [
        ("news", "lookup('topics', topic, 'muted') = FALSE", "topics"),
        ("drafts", "lookup('news', key, 'topic') = 'arts'", "drafts"),
    ],
)
def test_read_of_a_table_that_is_dropped_meanwhile_fails_on_the_device(
    place, joined, table, condition, dropped
):
    """The cloud hears of no table on the device, and an answer is not of a table that is gone."""
    read = joined.read(table, condition, latest=True)
    joined.drop(dropped).result(1)
    with pytest.raises(TableProblem, match="dropped") as caught:
        read.result()
    assert dropped in caught.value.where
    place.lab.run(minutes=1)
    assert not place.lab.frame("messages")["content"].astype(str).str.contains(dropped).any()


def test_errors_of_joins_reach_the_caller(joined):
    with pytest.raises(TableProblem, match="nowhere"):
        joined.read("drafts", "lookup('nowhere', key, 'x') = 1").result()
    with pytest.raises(ParameterError, match="order of writes"):
        joined.read("news", "lookup('topics', topic, 'muted') = FALSE", "committed_wio").result()


# -- continuous reads


def listen(client, predicate=None, **options):
    """Begin a continuous read of the drafts; return the list of what its callback is called with."""
    heard = []
    client.read("drafts", predicate, type="continuous", callback=heard.append, **options).result(1)
    client.device.world.run(client.device.world.now_us + 1)  # callbacks are called after the operation
    return heard


def kinds_and_keys(heard):
    return [(change.kind, change.key) for change in heard]


def test_changes_are_delivered_at_once_and_without_a_message(place, ann):
    heard = listen(ann, "words > 10")
    ann.write("drafts", "a", {"words": 50}).result(1)
    ann.write("drafts", "b", {"words": 1}).result(1)  # it was not delivered, so its loss is not either
    ann.write("drafts", "a", {"words": 60}).result(1)
    ann.write("drafts", "z", {"words": 5}).result(1)
    ann.delete("drafts", "a").result(1)
    place.lab.run(seconds=1)
    assert [(change.kind, change.key, change.version) for change in heard] == [
        ("upsert", "a", 2),
        ("upsert", "a", 3),
        ("remove", "a", 4),
    ]
    assert heard[1].record == {"words": 60}
    assert count_messages(place) == 0


def test_existing_records_come_first(place, ann):
    place.lab.run(minutes=1)
    ann.write("drafts", "d", {"words": 40}).result(1)
    assert kinds_and_keys(listen(ann, sync_timestamp=0.0)) == [
        ("upsert", "a"), ("upsert", "b"), ("upsert", "c"), ("upsert", "d"),
    ]  # fmt: skip
    assert kinds_and_keys(listen(ann, sync_timestamp=30.0)) == [("upsert", "d")]


def test_delivered_changes_do_not_come_again_after_a_kill(place, ann):
    heard = listen(ann, sync_timestamp=0.0)
    ann.write("drafts", "a", {"words": 50}).result(1)
    place.lab.run(seconds=1)
    assert kinds_and_keys(heard) == [("upsert", key) for key in "abca"]
    place.lab.faults.kill("ann")
    place.lab.faults.restart("ann")
    (read,) = ann.continuous_reads().result(1)
    again = []
    ann.listen(read["handle"], again.append).result(1)
    ann.write("drafts", "b", {"words": 60}).result(1)
    place.lab.run(seconds=1)
    assert kinds_and_keys(again) == [("upsert", "b")]


def test_reads_end_with_the_call_or_the_table(place, ann):
    heard, others = listen(ann), listen(ann)
    handle = ann.continuous_reads().result(1)[0]["handle"]
    ann.unregister(handle).result(1)
    ann.write("drafts", "d", {}).result(1)
    ann.drop("drafts").result(1)
    place.lab.run(seconds=1)
    assert heard == []
    assert kinds_and_keys(others[:1]) == [("upsert", "d")]
    assert others[1:] == [{"ended": "the table was dropped"}]


def test_aggregates_are_delivered_when_they_change(place, ann):
    heard = listen(ann, "words > 10", aggregate="count(*)", sync_timestamp=0.0)
    ann.write("drafts", "z", {"words": 1}).result(1)
    ann.write("drafts", "a", {"words": 11}).result(1)
    place.lab.run(seconds=1)
    assert heard == [{"count(*)": 2}, {"count(*)": 3}]


@pytest.mark.parametrize(("max_waiting", "versions"), [(10, [2, 3, 4, 5, 6]), (2, [2, 3, 6])])
def test_changes_wait_for_the_next_run_of_the_application(tmp_path, max_waiting, versions):
    """Beyond the bound, only the last version of a record comes."""
    lab = Lab(seed=1)
    ann = Client(lab.device("ann", storage=tmp_path), Cloud(lab), app="news", max_waiting=max_waiting)
    ann.create("drafts", where="device").result(1)
    ann.write("drafts", "a", {"words": 1}).result(1)
    assert listen(ann) == []
    for process in lab.devices["ann"].processes:
        process.store.close()
    lab = Lab(seed=1)
    ann = Client(lab.device("ann", storage=tmp_path), Cloud(lab), app="news", max_waiting=max_waiting)
    for words in (2, 3, 4, 5, 6):
        ann.write("drafts", "a", {"words": words}).result(1)
    (read,) = ann.continuous_reads().result(1)
    heard = []
    ann.listen(read["handle"], heard.append).result(1)
    lab.run(seconds=1)
    assert [change.version for change in heard] == versions
    ann.write("drafts", "a", {"words": 7}).result(1)
    lab.run(seconds=1)
    assert heard[-1].version == 7
    for process in lab.devices["ann"].processes:
        process.store.close()


def test_reader_data_concern_later_writes(place, ann):
    ann.write("drafts", "d", {"words": 1}, predicate="receiver.is_alone").result(1)
    heard = []
    read = ann.read(
        "drafts", type="continuous", data={"is_alone": True}, sync_timestamp=0.0, callback=heard.append
    )
    handle = read.result(1)
    ann.update_data(handle, {"is_alone": False}).result(1)
    ann.write("drafts", "a", {"words": 2}).result(1)
    place.lab.run(seconds=1)
    assert kinds_and_keys(heard[4:]) == [("upsert", "a")]
    ann.write("drafts", "d", {"words": 2}, predicate="receiver.is_alone").result(1)
    place.lab.run(seconds=1)
    assert kinds_and_keys(heard[5:]) == [("remove", "d")]


def test_joins_with_the_cloud_are_refused(joined):
    for table, other in (("drafts", "news"), ("news", "topics")):
        with pytest.raises(ParameterError, match="cannot join"):
            joined.read(table, f"lookup('{other}', key, 'x') = 1", type="continuous").result()

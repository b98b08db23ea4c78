"""Pushed records in the local store, and the queries of continuous reads that they answer (Mobius 2 and 6)."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit.errors import ParameterError
from mudkit.systems.mud import freshness

HOUR = freshness(3600)


@pytest.fixture
def place():
    return Place()


@pytest.fixture
def ann(place):
    ann = place.client("ann")
    ann.create("news").result()
    return ann


def follow(client, predicate=None, sync=0.0):
    """Begin a continuous read; return the list of its changes."""
    changes = []
    client.read("news", predicate, type="continuous", sync_timestamp=sync, callback=changes.append).result()
    return changes


def answer(client, predicate=None, utility=HOUR, **options):
    """Return keys, the places that answered, and whether the answer is complete."""
    result = client.read("news", predicate, utility=utility, **options).result()
    return sorted(result.records), set(result.source.values()), result.is_complete


def test_application_hears_when_the_first_state_is_there(place, ann):
    """After the callbacks of all existing records, in the run that began the read and in later ones."""
    bob = place.client("bob")
    for key in "abc":
        ann.write("news", key, {"n": 1}).result()
    place.lab.faults.cut("bob")
    changes, counts = [], []
    read = bob.read("news", type="continuous", sync_timestamp=0.0, callback=changes.append)
    read.add_done_callback(
        lambda done: bob.await_synced(done.result()).add_done_callback(lambda _: counts.append(len(changes)))
    )
    place.lab.run(minutes=1)
    assert counts == []
    place.lab.faults.mend("bob")
    place.lab.run(minutes=1)
    assert counts == [3]
    place.lab.faults.kill("bob")
    place.lab.faults.restart("bob")
    bob.await_synced(read.result()).result(0.1)


def test_first_state_of_an_ended_read_never_comes(place, ann):
    bob = place.client("bob")
    place.lab.faults.cut("bob")
    bob.read("news", type="continuous", sync_timestamp=0.0)
    ((handle, *_),) = (read.values() for read in bob.continuous_reads().result(1))
    waiting = bob.await_synced(handle)
    bob.unregister(handle)
    with pytest.raises(ParameterError, match="has ended"):
        waiting.result()
    with pytest.raises(ParameterError, match="has ended"):
        bob.await_synced(handle).result()


def test_query_of_a_live_read_is_answered_by_the_device(place, ann):
    """While the session is greeted, each change would have been told: its age is 0."""
    bob = place.client("bob")
    ann.write("news", "a", {"n": 1}).result()
    follow(bob, "n > 0")
    place.lab.run(hours=5)
    ann.write("news", "b", {"n": 2}).result()
    place.lab.run(minutes=1)
    for predicate, keys in (("n > 0", ["a", "b"]), ("n > 0 AND n = 2", ["b"]), ("key = 'a'", ["a"])):
        result = bob.read("news", predicate, utility=freshness(1)).result()
        assert sorted(result.records) == keys
        assert set(result.source.values()) == {"local"}
        assert set(result.age_s.values()) == {0.0}
        assert result.is_complete
    everything = bob.read("news", utility=freshness(1))
    assert len(everything.result()) == 2
    assert everything.responded_us > everything.invoked_us  # not contained: other records may match


def test_age_counts_from_the_loss_of_the_network(place, ann):
    bob = place.client("bob")
    ann.write("news", "a", {"n": 1}).result()
    follow(bob)
    place.lab.run(hours=2)
    place.lab.faults.cut("bob")
    place.lab.run(minutes=30)
    result = bob.read("news").result()
    assert result.is_complete
    assert 1790 <= result.age_s["a"] <= 1810


def test_restarted_device_knows_that_its_first_state_was_there(place, ann):
    bob = place.client("bob")
    ann.write("news", "a", {"n": 1}).result()
    follow(bob)
    place.lab.run(hours=1)
    place.lab.faults.cut("bob")
    place.lab.faults.kill("bob")
    place.lab.run(minutes=10)
    place.lab.faults.restart("bob")
    place.lab.run(minutes=1)
    assert answer(bob) == (["a"], {"local"}, True)


@pytest.mark.parametrize("sync", [None, 1e6])
def test_read_that_asked_for_no_existing_records_answers_no_query(place, ann, sync):
    bob = place.client("bob")
    ann.write("news", "a", {"n": 1}).result()
    follow(bob, sync=sync)
    ann.write("news", "b", {"n": 2}).result()
    place.lab.run(minutes=1)
    assert answer(bob) == (["a", "b"], {"remote"}, True)
    place.lab.faults.cut("bob")
    place.lab.run(minutes=1)
    assert answer(bob, "n = 2", offline="answer") == (["b"], {"local"}, True)  # within the answer of before


def test_record_that_leaves_the_read_is_removed(place, ann):
    bob = place.client("bob")
    ann.write("news", "a", {"n": 1}).result()
    follow(bob, "n = 1")
    place.lab.run(minutes=1)
    ann.write("news", "a", {"n": 2}).result()
    ann.write("news", "b", {"n": 1}).result()
    ann.delete("news", "b").result()
    place.lab.run(minutes=1)
    assert bob.holdings("news").result() == []
    assert answer(bob, "n = 1") == ([], set(), True)


def test_version_of_another_read_is_kept_when_a_record_leaves_one(place, ann):
    """One of two reads loses the record by a change that the other one hears of."""
    bob = place.client("bob")
    ann.write("news", "a", {"n": 1}).result()
    follow(bob, "n = 1")
    follow(bob, "n > 0")
    place.lab.run(minutes=1)
    ann.write("news", "a", {"n": 2}).result()
    place.lab.run(minutes=1)
    assert answer(bob, "n > 0") == (["a"], {"local"}, True)
    assert answer(bob, "n = 1") == ([], set(), True)


def test_evicted_records_are_missing_from_the_query(place, ann):
    bob = place.client("bob", max_rows=2)
    for key in "abc":
        ann.write("news", key, {"n": 1}).result()
    follow(bob)
    place.lab.run(minutes=1)
    assert answer(bob) == (["a", "b", "c"], {"remote"}, True)
    place.lab.faults.cut("bob")
    place.lab.run(minutes=1)
    keys, sources, is_complete = answer(bob)
    assert (len(keys), sources, is_complete) == (2, {"local"}, False)


def test_new_reader_data_answer_no_query(place, ann):
    """They concern later writes only (Mobius 3.1): records that matched them before were not delivered."""
    bob = place.client("bob")
    ann.write("news", "a", {"n": 1}, predicate="receiver.age >= 21").result()
    changes = []
    read = bob.read("news", type="continuous", data={"age": 20}, sync_timestamp=0.0, callback=changes.append)
    handle = read.result()
    place.lab.run(minutes=1)
    bob.update_data(handle, {"age": 30}).result()
    bob.await_synced(handle).result()
    assert changes == []
    assert answer(bob, data={"age": 30}) == (["a"], {"remote"}, True)


def test_pushed_version_is_never_followed_by_an_older_one(place, ann):
    """A committed read shows versions of a record in order (Mobius 4.1), whatever replica answers it."""
    bob = place.client("bob")
    follow(bob, "n = 2", sync=None)
    ann.write("news", "a", {"n": 1}).result()
    bob.read("news", "key = 'a'").result()
    ann.write("news", "a", {"n": 2}).result()
    place.lab.run(seconds=0.2)  # less than the lag of a replica
    read = bob.read("news", "key = 'a'").result()
    assert read.versions == {"a": 2}


def test_ended_read_answers_no_query(place, ann):
    bob = place.client("bob")
    ann.write("news", "a", {"n": 1}).result()
    handle = bob.read("news", type="continuous", sync_timestamp=0.0, callback=lambda change: None).result()
    place.lab.run(minutes=1)
    assert answer(bob)[1] == {"local"}
    bob.unregister(handle).result()
    ann.write("news", "b", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert answer(bob) == (["a", "b"], {"remote"}, True)

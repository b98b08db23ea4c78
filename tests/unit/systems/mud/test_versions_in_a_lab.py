"""Versions that an application has: reads never go back behind them, conditional writes are based on them."""

from __future__ import annotations

import pytest
from mud_place import listen

from mudkit.errors import ParameterError
from mudkit.systems import mud
from mudkit.wire import as_wire


@pytest.fixture
def pair(place):
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("t").result()
    return ann, bob


def test_conditional_write_is_based_on_a_version_that_was_told(place, pair):
    ann, bob = pair
    first = ann.write("t", "k", {"n": 1}).result()
    bob.write("t", "k", {"n": 2}).result()
    bob.read("t", latest=True).result()
    with pytest.raises(mud.Conflict, match=rf"expected: version {first}") as caught:
        bob.write("t", "k", {"n": 3}, "conditional", version=first).result()
    assert caught.value.store["data"] == {"n": 2}
    second = caught.value.store["ver"]
    assert ann.write("t", "k", {"n": 4}, "conditional", version=second).result() == second + 1
    with pytest.raises(mud.Conflict):
        ann.delete("t", "k", "conditional", version=second).result()
    ann.delete("t", "k", "conditional", version=second + 1).result()


def test_version_0_expects_no_record(pair):
    ann, bob = pair
    bob.write("t", "k", {"n": 1}).result()
    ann.read("t", latest=True).result()
    with pytest.raises(mud.Conflict, match="expected: no record"):
        ann.write("t", "k", {"n": 2}, "conditional", version=0).result()
    ann.write("t", "other", {"n": 2}, "conditional", version=0).result()


def test_version_counts_for_the_store_also_behind_ones_own_pending_write(place, pair):
    """A pending write is of another version: the write that is based on the one before it is in conflict."""
    ann, _ = pair
    known = ann.write("t", "k", {"n": 1}).result()
    place.lab.faults.cut("ann", minutes=5)
    blind = ann.write("t", "k", {"n": 2})
    based = ann.write("t", "k", {"n": 3}, "conditional", version=known)
    chained = ann.write("t", "k", {"n": 4}, "conditional")
    assert blind.result() == known + 1
    for late in (based, chained):
        with pytest.raises(mud.Conflict):
            late.result()
    assert ann.read("t", latest=True).result().records == {"k": {"n": 2}}


@pytest.mark.parametrize(
    ("version", "kind"),
    [(1, "blind"), (-1, "conditional"), (True, "conditional"), ("1", "conditional"), (1.0, "conditional")],
)
def test_unusable_versions_are_refused_at_the_call(pair, version, kind):
    with pytest.raises(ParameterError, match="version"):
        pair[0].write("t", "k", {"n": 1}, kind, version=version)


def test_table_on_a_device_compares_versions(place):
    ann = place.client("ann")
    ann.create("t", where="device").result()
    known = ann.write("t", "k", {"n": 1}).result()
    assert ann.write("t", "k", {"n": 2}, "conditional", version=known).result() == known + 1
    with pytest.raises(mud.Conflict, match=f"found:    version {known + 1}"):
        ann.write("t", "k", {"n": 3}, "conditional", version=known).result()
    with pytest.raises(mud.Conflict, match="expected: no record"):
        ann.delete("t", "k", "conditional", version=0).result()


READS = [{"type": "uncommitted"}, {"type": "committed"}, {"type": "committed_wio"}, {}]


@pytest.mark.parametrize(
    "told_by", ["own write", "read", "latest read", "continuous read", "conflict", "other type"]
)
@pytest.mark.parametrize("lag_s", [0.0, 120.0], ids=["no lag", "replicas lag"])
def test_reads_return_what_was_told_or_later_whatever_their_type(told_by, lag_s):
    """Test every way to learn a version, with replicas that lag, and with rows evicted from the device."""
    from mud_place import Place

    place = Place(replicas=2, replica_lag_s=lag_s)
    ann, bob = place.client("ann", max_rows=1), place.client("bob")
    ann.create("t").result()
    ann.write("t", "k", {"n": 0}).result()
    ann.read("t").result()
    newest = bob.write("t", "k", {"n": 1}).result()
    match told_by:
        case "own write":
            newest = ann.write("t", "k", {"n": 2}).result()
        case "read" | "latest read":
            newest = ann.read("t", latest=told_by == "latest read").result().versions["k"]
        case "continuous read":
            changes = []
            ann.read("t", None, "continuous", callback=changes.append, sync_timestamp=0).result()
            newest = bob.write("t", "k", {"n": 3}).result()
            place.lab.run(seconds=10)
            assert changes[-1].version == newest
        case "conflict":
            with pytest.raises(mud.Conflict) as caught:
                ann.write("t", "k", {"n": 2}, "conditional", version=1).result()
            newest = caught.value.store["ver"]
        case "other type":
            newest = ann.read("t", type="uncommitted", latest=True).result().versions["k"]
    for _ in range(2):
        for options in READS:
            assert ann.read("t", **options).result().versions["k"] >= newest, options
        ann.read("t", "key = 'other'").result()  # evicts nothing that was told


def test_own_version_whose_answer_is_late_is_not_missing_in_complete_answers(place):
    """The answer to a later write has shown the log further, so the device does not hold it (Mobius 4.1)."""
    ann = place.client("ann")
    ann.create("t").result()
    ann.read("t").result()
    place.lab.world.fault_hook = delay_outcomes_of(place, "k", minutes=1)
    writes = [ann.write("t", key, {"n": 1}) for key in ("k", "other")]
    place.lab.run(minutes=2)
    assert [write.status for write in writes] == ["ok", "ok"]
    assert ann.read("t", utility=mud.freshness(1e6)).result().versions == {"k": 1, "other": 1}


@pytest.mark.parametrize("is_continuous", [False, True])
def test_record_that_came_with_some_columns_is_not_missing_in_complete_answers(place, is_continuous):
    """The application was told of it, and the device does not hold its other columns (Mobius 4.1)."""
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("t").result()
    ann.read("t").result()
    changes = []
    if is_continuous:
        ann.read("t", None, "continuous", columns=["n"], callback=changes.append).result()
    bob.write("t", "k", {"n": 1, "v": "whole"}).result()
    place.lab.run(minutes=1)
    if is_continuous:
        assert [change.key for change in changes] == ["k"]
    else:
        assert ann.read("t", columns=["n"], latest=True).result().versions == {"k": 1}
    assert ann.read("t", utility=mud.freshness(1e6)).result().versions == {"k": 1}


def make_late_changes(place):
    """Return a client that holds one record, whose continuous read hears of each change a minute late."""
    ann = place.client("ann", max_rows=1)
    ann.create("t").result()
    changes = listen(ann, table="t", sync_timestamp=0)
    place.lab.run(minutes=1)
    place.lab.world.fault_hook = lambda transfer: (
        60_000_000 * (as_wire(transfer.message)["kind"] == "stream"),
    )
    return ann, changes


def test_own_version_that_was_evicted_is_not_missing_in_answers_of_a_live_read(place):
    """The read has shown it, before its processor told of it (Mobius 4.1)."""
    ann, changes = make_late_changes(place)
    for key in ("k", "other"):
        ann.write("t", key, {"n": 1}).result()
    place.lab.run(seconds=1)
    assert [change.version for change in changes] == [None, 1, None, 1]
    assert ann.read("t", utility=mud.freshness(1e6)).result().versions == {"k": 1, "other": 1}


def test_part_of_a_batch_that_was_evicted_is_not_missing_in_answers_of_a_live_read(place):
    """The application has the outcome of the batch, and the device has room for one of its records."""
    ann, _ = make_late_changes(place)
    batch = ann.batch("t")
    for key in ("k", "other"):
        batch.write(key, {"n": 1})
    batch.commit().result()
    assert ann.read("t", utility=mud.freshness(1e6)).result().versions == {"k": 1, "other": 1}


@pytest.mark.parametrize("told_by", ["read", "read of columns", "conflict"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_version_that_was_evicted_is_not_missing_in_answers_of_a_live_read(place, told_by, is_killed):
    """The application was told of it by other means than the read, which lags behind (Mobius 4.1)."""
    ann, _ = make_late_changes(place)
    bob = place.client("bob")
    for key in ("k", "other"):
        bob.write("t", key, {"n": 1}).result()
    match told_by:
        case "read":
            assert ann.read("t", "key = 'k'", latest=True).result().versions == {"k": 1}
        case "read of columns":
            assert ann.read("t", "key = 'k'", latest=True, columns=["n"]).result().versions == {"k": 1}
        case "conflict":
            with pytest.raises(mud.Conflict) as caught:
                ann.write("t", "k", {"n": 2}, "conditional", version=7).result()
            assert caught.value.store["ver"] == 1
    assert ann.read("t", "key = 'other'", latest=True).result().versions == {"other": 1}
    if is_killed:
        place.lab.faults.kill("ann")
        place.lab.faults.restart("ann")
    else:
        assert ann.read("t", utility=mud.freshness(1e6)).result().versions == {"k": 1, "other": 1}
        assert ann.read("t", "key = 'k'", utility=mud.freshness(1e6)).result().versions == {"k": 1}
    place.lab.faults.cut("ann")
    assert not ann.read("t").result().is_complete


@pytest.mark.parametrize("told_by", ["outcome", "continuous read"])
def test_version_that_an_answer_no_longer_had_does_not_come_back(place, told_by):
    """The record was deleted since, and the answer without it came first (Mobius 4.1)."""
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("t").result()
    if told_by == "outcome":
        place.lab.world.fault_hook = delay_outcomes_of(place, "k", minutes=1)
        ann.write("t", "k", {"n": 1})
        place.lab.run(seconds=10)
    else:
        ann.read("t", "n = 1", "continuous", callback=print).result()
        place.lab.world.fault_hook = lambda transfer: (
            60_000_000 * (as_wire(transfer.message)["kind"] == "stream"),
        )
        bob.write("t", "k", {"n": 1}).result()
        place.lab.run(seconds=10)
    bob.delete("t", "k").result()
    assert ann.read("t", latest=True).result().versions == {}
    place.lab.run(seconds=115)
    place.lab.faults.cut("ann")
    assert ann.read("t", "key = 'k'").result().versions == {}


def delay_outcomes_of(place, key, minutes):
    """Return a hook that delays the first answer to a write of a key."""
    delayed = []

    def fault_hook(transfer):
        message = as_wire(transfer.message)
        if message["kind"] == "outcome" and message["key"] == key and transfer.to.startswith("ann"):
            delayed.append(message)
            return (minutes * 60_000_000 * (len(delayed) == 1),)
        return (0,)

    return fault_hook

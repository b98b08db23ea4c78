"""Versions that an application has: reads never go back behind them, conditional writes are based on them."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.systems import mud


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

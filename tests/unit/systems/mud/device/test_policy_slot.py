"""Policies that the cloud ships to clients."""

from __future__ import annotations

import copy

import pytest
from msgspec.structs import replace

from mudkit.errors import ParameterError
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud import AlwaysRemote, Artefact, ShippedPolicy, freshness
from mudkit.systems.mud.device.policy_slot import PolicySlot, ShippedReads, ShippedWrites
from mudkit.systems.mud.messages import Policy
from mudkit.systems.mud.policies.artefact import Density
from mudkit.systems.mud.policies.policies import Cached, Query

LOCAL_FOR_AN_HOUR = [[0, 3600.0, 1, 2, 2], [0], [1]]


def reads(version, nodes=LOCAL_FOR_AN_HOUR):
    return Artefact.create("read", version, ["age"], nodes, ["local", "remote"])


def writes(version, delay):
    return Artefact.create("write", version, ["lat"], [[0]], [delay])


def damaged(artefact):
    document = copy.deepcopy(dict(artefact.document))
    document["nodes"][0][1] = 36_000.0
    return document


class TestShelf:
    def test_a_newer_version_takes_effect(self):
        slot = PolicySlot(MemoryStore(), "read")
        for version in (1, 3):
            slot.accept(reads(version).document)
            assert slot.version == version
        assert slot.refused == []

    @pytest.mark.parametrize(
        ("document", "why"),
        [
            (damaged(reads(3)), "sha256"),
            (reads(1, [[1]]).document, "more than 2"),
            (reads(2, [[1]]).document, "more than 2"),
            (writes(3, 60).document, "kind"),
            ({"format": 3}, "format"),
            ("nonsense", "document"),
            (Artefact.create("read", 3, [], [[0]], ["local"], manifest={"n": 1 << 64}).document, "stored"),
        ],
    )
    def test_what_is_wrong_changes_nothing(self, document, why):
        store = MemoryStore()
        slot = PolicySlot(store, "read")
        slot.accept(reads(2).document)
        slot.accept(document)
        assert slot.version == 2
        assert why in slot.refused[0]
        assert PolicySlot(store, "read").version == 2

    def test_the_same_again_is_no_mistake(self):
        slot = PolicySlot(MemoryStore(), "read")
        for _ in range(2):
            slot.accept(reads(1).document)
        assert (slot.version, slot.refused) == (1, [])

    def test_when_what_is_kept_is_damaged_the_one_before_counts(self):
        store = MemoryStore()
        slot = PolicySlot(store, "read")
        slot.accept(reads(1).document)
        slot.accept(reads(2).document)
        store.put("policy read in use", damaged(reads(2)))
        again = PolicySlot(store, "read")
        assert again.version == 1
        assert "sha256" in again.refused[0]
        store.put("policy read before", damaged(reads(1)))
        assert PolicySlot(store, "read").in_use is None


@pytest.mark.parametrize(
    ("here", "there", "decided"),
    [
        ((30.0, -97.0), (30.005, -97.0), "local"),
        ((30.0, -97.0), (30.5, -97.0), "remote"),
        (None, (30.0, -97.0), "remote"),
        ((30.0, -97.0), None, "remote"),
        (None, None, "remote"),
    ],
)
def test_a_read_is_as_far_from_one_before_as_the_two_places(here, there, decided):
    near = Artefact.create("read", 1, ["distance"], [[0, 1.0, 1, 2, 2], [0], [1]], ["local", "remote"])
    slot = PolicySlot(MemoryStore(), "read")
    slot.accept(near.document)
    now, before = ({} if loc is None else {"loc": loc} for loc in (here, there))
    asked, answered = (Query("news", None, "committed", reader, None) for reader in (now, before))
    for query, where in ((answered, decided), (replace(answered, table="t"), "remote")):
        assert ShippedReads(slot, None).decide(asked, {}, [Cached(query, 5.0, {})]) == where


MONDAY_NOON_US = 1_795_435_200_000_000
"""23 November 2026, 12:00 UTC, as the clock of a device."""
RATES = tuple(float(hour) for hour in range(24))


@pytest.mark.parametrize(("feature", "threshold", "context", "is_at_most"), [
    ("hour", 11.9, {"loc": (30.0, 0.1)}, False), ("hour", 12.1, {"loc": (30.0, 0.1)}, True),
    ("hour", 4.1, {"loc": (30.0, -120.0)}, True), ("weekday", 0.0, {"loc": (30.0, 0.1)}, True),
    ("weekday", 0.0, {"loc": (30.0, 179.9), "now_us": 10**11}, False), ("hour", 24.0, {}, None),
    ("hour", 24.0, {"loc": (30.0, 0.1), "clock_us": None}, None),
    ("density", 11.0, {"loc": (30.5, 0.1)}, False), ("density", 12.0, {"loc": (30.5, 0.1)}, True),
    ("density", 0.0, {"loc": (31.5, 0.1)}, True), ("density", 99.0, {}, None),
    ("density", 99.0, {"loc": (30.5, 0.1), "clock_us": None}, None),
])  # fmt: skip
def test_a_write_is_delayed_by_the_place_and_the_time_of_the_device(feature, threshold, context, is_at_most):
    """Where neither is known, the tree goes right, as its node says."""
    table = Density(1.0, {(30, 0): RATES}) if feature == "density" else None
    nodes = [[0, threshold, 1, 2, 2], [0], [1]]
    slot = PolicySlot(MemoryStore(), "write")
    slot.accept(Artefact.create("write", 1, [feature], nodes, [60, "never"], density=table).document)
    context = {"clock_us": MONDAY_NOON_US, "now_us": 0, **context}
    assert ShippedWrites(slot, None).delay({}, context) == (60 if is_at_most else "never")


def news(place, name="ann", **client):
    reader = place.client(name, **client)
    reader.create("news").result()
    reader.write("news", "a", {"x": 1}).result()
    return reader


def source(place, client):
    """Say where a read of half an hour later is answered."""
    client.read("news").result()
    place.lab.run(minutes=30)
    return client.read("news").result().source["a"]


def test_a_shipped_policy_decides_where_reads_are_answered(place):
    ann = news(place, read_policy=ShippedPolicy(fallback=AlwaysRemote()))
    assert source(place, ann) == "remote"
    place.cloud.ship(reads(1), app="news").result()
    assert source(place, ann) == "local"
    place.cloud.ship(reads(2, [[1]]), app="news").result()
    place.lab.run(seconds=10)
    assert source(place, ann) == "remote"
    assert ann.policies().result()["read"]["version"] == 2


def test_until_one_has_come_the_utility_decides(place):
    ann = news(place, read_policy=ShippedPolicy())
    assert ann.read("news", "key = 'a'", utility=freshness(60)).result().source == {"a": "local"}


def test_writes_are_delayed_as_shipped(place):
    ann = news(place, write_policy=ShippedPolicy())
    place.cloud.ship(writes(1, 600), app="news").result()
    place.lab.run(seconds=10)
    written = ann.write("news", "b", {"x": 2})
    written.result()
    assert 600e6 <= written.responded_us - written.invoked_us < 610e6


def test_who_is_not_there_gets_it_when_he_is(place):
    ann = news(place, read_policy=ShippedPolicy())
    place.lab.faults.cut("ann", minutes=300)
    place.cloud.ship(reads(1), app="news").result()
    place.lab.run(hours=4.9)
    assert ann.policies().result()["read"]["version"] == 0
    place.lab.run(hours=0.2)
    assert ann.policies().result()["read"]["version"] == 1


def test_a_new_client_gets_what_was_shipped_before(place):
    place.cloud.ship(reads(1), app="news").result()
    place.lab.run(hours=1)
    ann = news(place, read_policy=ShippedPolicy())
    place.lab.run(seconds=10)
    assert ann.policies().result()["read"]["version"] == 1


def test_only_clients_of_the_app_that_follow_policies_are_told(place):
    news(place, read_policy=ShippedPolicy())
    other = place.client("bob", app="games", read_policy=ShippedPolicy())
    place.client("cem")
    place.lab.run(minutes=1)
    before = place.lab.bill()
    place.cloud.ship(reads(1), app="news").result()
    place.lab.run(minutes=1)
    after = place.lab.bill()
    answer = after.merge(before, on=["system", "device", "direction"], suffixes=("", "_before"), how="left")
    changed = answer[answer["bytes"] > answer["bytes_before"].fillna(0)]
    assert set(changed["device"]) & {"ann", "bob", "cem"} == {"ann"}
    assert other.policies().result()["read"]["version"] == 0


@pytest.mark.parametrize("who", ["mud-policies", "mud-notifications-1", "mud-notifications-2", "ann"])
def test_it_arrives_though_somebody_is_killed(place, who):
    ann = news(place, read_policy=ShippedPolicy(), write_policy=ShippedPolicy())
    place.lab.run(minutes=1)
    place.cloud.ship(reads(1), app="news").result()
    place.lab.faults.kill(who)
    place.lab.run(minutes=1)
    place.lab.faults.restart(who)
    place.lab.run(minutes=30)
    place.cloud.ship(writes(1, 60), app="news").result()
    place.lab.run(minutes=30)
    result = ann.policies().result()
    assert (result["read"]["version"], result["write"]["version"]) == (1, 1)
    assert result["read"]["refused"] == result["write"]["refused"] == []


def test_lost_late_and_repeated_messages_do_not_matter(place):
    ann = news(place, read_policy=ShippedPolicy())
    place.lab.faults.messages(loss_share=0.3, repeat_share=0.3, delay_share=0.3, delay_s=20.0)
    for version in range(1, 6):
        place.cloud.ship(reads(version), app="news").result()
        place.lab.run(minutes=2)
    place.lab.faults.messages()
    place.lab.run(hours=1)
    digest = reads(5).document["sha256"]
    assert ann.policies().result()["read"] == {"version": 5, "sha256": digest, "refused": []}


def test_a_document_that_was_damaged_on_its_way_is_not_used(place):
    ann = news(place, read_policy=ShippedPolicy())
    place.cloud.ship(reads(1), app="news").result()
    place.lab.run(seconds=10)

    def damage(item):
        is_policy = isinstance(item.body, Policy)
        return replace(item, body=replace(item.body, document=damaged(reads(2)))) if is_policy else item

    (process,) = place.lab.world.hosts["ann"].processes
    stream = process.machine._watching.stream
    process.machine._watching.stream = lambda now_us, source, item: stream(now_us, source, damage(item))
    place.cloud.ship(reads(2), app="news").result()
    place.lab.run(seconds=10)
    result = ann.policies().result()["read"]
    assert result["version"] == 1
    assert "sha256" in result["refused"][0]
    assert source(place, ann) == "local"


@pytest.mark.parametrize("document", [damaged(reads(1)), {}, None])
def test_what_cannot_be_used_is_not_shipped(place, document):
    with pytest.raises(ParameterError, match="not usable"):
        place.cloud.ship(document, app="news").result()


def test_a_version_is_shipped_once(place):
    place.cloud.ship(reads(2), app="news").result()
    with pytest.raises(ParameterError, match="shipped already"):
        place.cloud.ship(reads(2), app="news").result()
    place.cloud.ship(reads(2), app="games").result()

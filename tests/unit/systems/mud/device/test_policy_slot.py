"""Policies shipped to clients: slots, decisions by shipped policies, and delivery."""

from __future__ import annotations

import copy

import pytest
from msgspec.structs import replace

from mudkit.errors import ParameterError
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate
from mudkit.systems.mud import AlwaysRemote, Artefact, Habits, ShippedPolicy, freshness
from mudkit.systems.mud.device.policy_slot import (
    PolicySlot,
    PolicySlots,
    ShippedPrefetches,
    ShippedReads,
    ShippedWrites,
)
from mudkit.systems.mud.messages.notifications import Policy
from mudkit.systems.mud.policies.artefact import Density, sha256
from mudkit.systems.mud.policies.policies import Cached, Expected
from mudkit.systems.mud.policies.utility import Query

LOCAL_FOR_AN_HOUR = [[0, 3600.0, 1, 2, 2], [0], [1]]


def make_reads(version, nodes=LOCAL_FOR_AN_HOUR):
    return Artefact.create("read", version, ["age"], nodes, ["local", "remote"])


def make_writes(version, delay):
    return Artefact.create("write", version, ["lat"], [[0]], [delay])


def corrupt(artefact):
    document = copy.deepcopy(dict(artefact.document))
    document["nodes"][0][1] = 36_000.0
    return document


def follow(kind, *artefacts, store=None):
    """Return the slots of an app that follows the policies of a kind, and has been sent some."""
    slots = PolicySlots(store or MemoryStore())
    slots.follow(kind)
    for artefact in artefacts:
        slots.accept(artefact.slot, artefact.document)
    return slots


class TestPolicySlot:
    def test_a_newer_version_takes_effect(self):
        slot = PolicySlot(MemoryStore(), "read")
        for version in (1, 3):
            slot.accept(make_reads(version).document)
            assert slot.version == version
        assert slot.refused == []

    @pytest.mark.parametrize(
        ("document", "reason"),
        [
            (corrupt(make_reads(3)), "sha256"),
            (make_reads(1, [[1]]).document, "more than 2"),
            (make_reads(2, [[1]]).document, "more than 2"),
            (make_writes(3, 60).document, "kind"),
            ({"format": 4}, "format"),
            (Artefact.create("read", 3, [], [[0]], ["local"], table="news").document, "read of news"),
            ("nonsense", "document"),
            (Artefact.create("read", 3, [], [[0]], ["local"], manifest={"n": 1 << 64}).document, "stored"),
        ],
    )
    def test_invalid_documents_are_refused(self, document, reason):
        store = MemoryStore()
        slot = PolicySlot(store, "read")
        slot.accept(make_reads(2).document)
        slot.accept(document)
        assert slot.version == 2
        assert reason in slot.refused[0]
        assert PolicySlot(store, "read").version == 2

    @pytest.mark.parametrize(
        ("number", "remedy"),
        [(1, "export it again with mudkit.learning.export_policy"), (4, "install the mudkit that wrote it")],
    )
    def test_file_of_another_format_is_refused_with_what_to_do(self, number, remedy):
        document = {**make_reads(3).document, "format": number}
        document["sha256"] = sha256(document)
        slot = PolicySlot(MemoryStore(), "read")
        slot.accept(document)
        assert slot.version == 0
        assert remedy in slot.refused[0]

    def test_repeated_document_is_not_refused(self):
        slot = PolicySlot(MemoryStore(), "read")
        for _ in range(2):
            slot.accept(make_reads(1).document)
        assert (slot.version, slot.refused) == (1, [])

    def test_damaged_stored_policy_is_replaced_by_the_previous_one(self):
        store = MemoryStore()
        slot = PolicySlot(store, "read")
        slot.accept(make_reads(1).document)
        slot.accept(make_reads(2).document)
        store.put("policy read in use", corrupt(make_reads(2)))
        reopened = PolicySlot(store, "read")
        assert reopened.version == 1
        assert "sha256" in reopened.refused[0]
        store.put("policy read before", corrupt(make_reads(1)))
        assert PolicySlot(store, "read").in_use is None


@pytest.mark.parametrize(
    ("feature", "threshold", "expected"),
    [("box", 2.5, "local"), ("box", 2.3, "remote"), ("covered", 0.37, "local"), ("covered", 0.35, "remote"),
     ("window", 61.0, "local"), ("window", 59.0, "remote")],
)  # fmt: skip
def test_tree_sees_the_size_of_the_query_and_what_the_cached_one_covers(feature, threshold, expected):
    """A square of 2.4 km of which a cached one in its middle, of 1.44 km, covers 0.36."""
    around = "lat BETWEEN {0} AND {1} AND lon BETWEEN {0} AND {1} AND at_s > 40"
    half = 1.2 / 111.195
    query, cached = (
        Query("t", Predicate(around.format(-side, side)), "committed", {}, None)
        for side in (half, 0.6 * half)
    )
    nodes = [[0, threshold, 1, 2, 2], [0], [1]]
    slots = follow("read", Artefact.create("read", 1, [feature], nodes, ["local", "remote"]))
    context = {"now_us": 100_000_000}
    assert ShippedReads(slots, None).decide(query, context, [Cached(cached, 5.0, {})]) == expected


def test_size_of_a_query_without_an_area_is_unknown():
    nodes = [[0, 1e9, 1, 2, 2], [0], [1]]
    slots = follow("read", Artefact.create("read", 1, ["box"], nodes, ["local", "remote"]))
    query = Query("t", Predicate("topic = 'arts'"), "committed", {}, None)
    assert ShippedReads(slots, None).decide(query, {}, [Cached(query, 5.0, {})]) == "remote"


def test_policy_of_covered_queries_takes_the_last_answer_that_has_all_records():
    """A later answer to another query is no reason to ask; without one that covers it, the query goes to the cloud."""
    nodes = [[0, 60.0, 1, 2, 2], [0], [1]]
    artefact = Artefact.create("read", 1, ["age"], nodes, ["local", "remote"]).if_covered()
    reads = ShippedReads(follow("read", artefact), None)
    texts = ("topic = 'arts'", "topic = 'arts' AND n > 3", "topic = 'news'")
    larger, query, other = (Query("t", Predicate(text), "committed", {}, None) for text in texts)
    assert reads.decide(query, {}, [Cached(larger, 50.0, {}), Cached(other, 5.0, {})]) == "local"
    assert reads.decide(query, {}, [Cached(larger, 70.0, {}), Cached(other, 5.0, {})]) == "remote"
    assert reads.decide(larger, {}, [Cached(query, 50.0, {})]) == "remote"


MENU = Query("menus", Predicate("place = 'canteen'"), "committed", {}, None)


def fetch_at_noon(version=1, **more):
    """Return a policy that fetches its first query from 12:00 on, and before 13:00."""
    nodes = [[0, 0.0, 1, 5, 5], [1, 12.0, 5, 2, 5], [1, 13.0, 4, 3, 3], [1], [0], [1]]
    more = {"queries": ["place = 'canteen'"], "table": "menus"} | more
    return Artefact.create("prefetch", version, ["query", "hour"], nodes, ["fetch", "skip"], **more)


@pytest.mark.parametrize(("hour", "is_fetched"), [(11.9, False), (12.5, True), (13.5, False)])
def test_shipped_prefetch_policy_decides_by_query_and_hour(hour, is_fetched):
    """Without a place, hours are those of UTC."""
    prefetches = ShippedPrefetches(follow("prefetch", fetch_at_noon()), None)
    context = {"clock_us": 0, "now_us": int(hour * 3.6e9)}
    other = replace(MENU, predicate=Predicate("place = 'bar'"))
    expected = [Expected(query, 3, 0.0, 1.0) for query in (MENU, other)]
    assert prefetches.select(expected, context) == ([MENU] if is_fetched else [])
    assert prefetches.select(expected, {"now_us": 0}) == []  # the device knows no calendar


def test_prefetch_policy_of_the_device_decides_about_other_tables():
    """And about all of them, once the shipped one was taken back."""
    expected = [Expected(MENU, 9, 0.0, 1.0), Expected(replace(MENU, table="news"), 9, 0.0, 1.0)]
    slots = follow("prefetch", fetch_at_noon())
    prefetches, context = ShippedPrefetches(slots, Habits()), {"clock_us": 0, "now_us": 0}
    assert [query.table for query in prefetches.select(expected, context)] == ["news"]
    assert prefetches.every_s == 60.0
    taken_back = Artefact.create("prefetch", 2, [], [[0]], ["own"], table="menus")
    slots.accept(taken_back.slot, taken_back.document)
    assert [query.table for query in prefetches.select(expected, context)] == ["menus", "news"]
    assert ShippedPrefetches(slots, None).select(expected, context) == []


@pytest.mark.parametrize(
    ("given", "where"),
    [({"table": None}, "table"), ({"queries": ["a", "a"]}, "queries"), ({"queries": [1]}, "queries")],
)
def test_unusable_prefetch_policies_are_refused(given, where):
    with pytest.raises(ParameterError, match=where):
        fetch_at_noon(**given)


def decide_for(table, action, version=1):
    return Artefact.create("read", version, [], [[0]], [action], table=table)


def test_policy_of_a_table_decides_its_reads_alone():
    """Policies are keyed by app, table and kind; one of a table is not replaced by one for all tables."""
    slots = follow("read", decide_for("news", "local"), decide_for(None, "remote", 2))
    answered = [Cached(Query(table, None, "committed", {}, None), 5.0, {}) for table in ("news", "maps")]
    reads = ShippedReads(slots, None)
    decided = [reads.decide(cached.query, {}, answered) for cached in answered]
    assert decided == ["local", "remote"]
    assert slots.versions() == {"read": 2, "read of news": 1}


def test_policies_of_tables_survive_a_restart():
    store = MemoryStore()
    follow("read", decide_for("of in use", "local"), decide_for("of in use", "remote", 5), store=store)
    again = follow("read", store=store)
    assert again.versions() == {"read": 0, "read of of in use": 5}
    assert again.in_use("read", "of in use").root == "remote"
    assert again.in_use("read", "maps") is None


def test_policy_of_a_kind_that_is_not_followed_is_not_kept():
    slots = follow("read", Artefact.create("write", 1, [], [[0]], [60], table="news"))
    assert slots.versions() == {"read": 0}


@pytest.mark.parametrize("version", [2, 3])
def test_device_decides_for_a_tree_that_leaves_it_open(version):
    """A leaf, or the whole tree, of a policy that was taken back."""
    nodes = [[0, 60.0, 1, 2, 2], [0], [1]] if version == 2 else [[1]]
    features = ["age"] if version == 2 else []
    slots = follow("read", Artefact.create("read", version, features, nodes, ["local", "own"]))
    query = Query("news", None, "committed", {}, None)
    reads, alone = ShippedReads(slots, AlwaysRemote()), ShippedReads(slots, None)
    assert reads.decide(query, {}, [Cached(query, 61.0, {})]) == "remote"
    assert alone.decide(query, {}, [Cached(query, 61.0, {})]) is None
    if version == 2:
        assert alone.decide(query, {}, [Cached(query, 60.0, {})]) == "local"


@pytest.mark.parametrize(
    ("location", "earlier_location", "expected"),
    [
        ((30.0, -97.0), (30.005, -97.0), "local"),
        ((30.0, -97.0), (30.5, -97.0), "remote"),
        (None, (30.0, -97.0), "remote"),
        ((30.0, -97.0), None, "remote"),
        (None, None, "remote"),
    ],
)
def test_distance_feature_compares_locations_of_two_reads(location, earlier_location, expected):
    near = Artefact.create("read", 1, ["distance"], [[0, 1.0, 1, 2, 2], [0], [1]], ["local", "remote"])
    slots = follow("read", near)
    now, before = ({} if loc is None else {"loc": loc} for loc in (location, earlier_location))
    current, answered = (Query("news", None, "committed", reader, None) for reader in (now, before))
    for query, source in ((answered, expected), (replace(answered, table="t"), "remote")):
        assert ShippedReads(slots, None).decide(current, {}, [Cached(query, 5.0, {})]) == source


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
def test_write_delay_depends_on_location_and_time(feature, threshold, context, is_at_most):
    """Follow the branch for missing values if a feature is unknown."""
    table = Density(1.0, {(30, 0): RATES}) if feature == "density" else None
    nodes = [[0, threshold, 1, 2, 2], [0], [1]]
    slots = follow("write", Artefact.create("write", 1, [feature], nodes, [60, "never"], density=table))
    context = {"clock_us": MONDAY_NOON_US, "now_us": 0, **context}
    assert ShippedWrites(slots, None).delay({}, context) == (60 if is_at_most else "never")


def create_news(place, name="ann", **client):
    reader = place.client(name, **client)
    reader.create("news").result()
    reader.write("news", "a", {"x": 1}).result()
    return reader


def read_later(place, client):
    """Return the source of a read half an hour after the first one."""
    client.read("news").result()
    place.lab.run(minutes=30)
    return client.read("news").result().source["a"]


def test_a_shipped_policy_decides_where_reads_are_answered(place):
    ann = create_news(place, read_policy=ShippedPolicy(fallback=AlwaysRemote()))
    assert read_later(place, ann) == "remote"
    place.cloud.ship(make_reads(1), app="news").result()
    assert read_later(place, ann) == "local"
    place.cloud.ship(make_reads(2, [[1]]), app="news").result()
    place.lab.run(seconds=10)
    assert read_later(place, ann) == "remote"
    assert ann.policies().result()["read"]["version"] == 2


def test_utility_decides_before_a_policy_arrives(place):
    ann = create_news(place, read_policy=ShippedPolicy())
    assert ann.read("news", "key = 'a'", utility=freshness(60)).result().source == {"a": "local"}


def test_shipped_policy_delays_writes(place):
    ann = create_news(place, write_policy=ShippedPolicy())
    place.cloud.ship(make_writes(1, 600), app="news").result()
    place.lab.run(seconds=10)
    written = ann.write("news", "b", {"x": 2})
    written.result()
    assert 600e6 <= written.responded_us - written.invoked_us < 610e6


def test_policy_is_delivered_after_an_outage(place):
    ann = create_news(place, read_policy=ShippedPolicy())
    place.lab.faults.cut("ann", minutes=300)
    place.cloud.ship(make_reads(1), app="news").result()
    place.lab.run(hours=4.9)
    assert ann.policies().result()["read"]["version"] == 0
    place.lab.run(hours=0.2)
    assert ann.policies().result()["read"]["version"] == 1


def test_new_client_receives_policy_shipped_before(place):
    place.cloud.ship(make_reads(1), app="news").result()
    place.lab.run(hours=1)
    ann = create_news(place, read_policy=ShippedPolicy())
    place.lab.run(seconds=10)
    assert ann.policies().result()["read"]["version"] == 1


def test_policy_is_sent_only_to_following_clients_of_its_app(place):
    create_news(place, read_policy=ShippedPolicy())
    other = place.client("bob", app="games", read_policy=ShippedPolicy())
    place.client("cem")
    place.lab.run(minutes=1)
    before = place.lab.bill()
    place.cloud.ship(make_reads(1), app="news").result()
    place.lab.run(minutes=1)
    after = place.lab.bill()
    bills = after.merge(before, on=["system", "device", "direction"], suffixes=("", "_before"), how="left")
    changed = bills[bills["bytes"] > bills["bytes_before"].fillna(0)]
    assert set(changed["device"]) & {"ann", "bob", "cem"} == {"ann"}
    assert other.policies().result()["read"]["version"] == 0


@pytest.mark.parametrize("host", ["mud-policies", "mud-notifications-1", "mud-notifications-2", "ann"])
def test_policies_arrive_although_a_host_is_killed(place, host):
    ann = create_news(place, read_policy=ShippedPolicy(), write_policy=ShippedPolicy())
    place.lab.run(minutes=1)
    place.cloud.ship(make_reads(1), app="news").result()
    place.lab.faults.kill(host)
    place.lab.run(minutes=1)
    place.lab.faults.restart(host)
    place.lab.run(minutes=30)
    place.cloud.ship(make_writes(1, 60), app="news").result()
    place.lab.run(minutes=30)
    result = ann.policies().result()
    assert (result["read"]["version"], result["write"]["version"]) == (1, 1)
    assert result["read"]["refused"] == result["write"]["refused"] == []


def test_policies_tolerate_lost_late_and_repeated_messages(place):
    ann = create_news(place, read_policy=ShippedPolicy())
    place.lab.faults.messages(loss_share=0.3, repeat_share=0.3, delay_share=0.3, delay_s=20.0)
    for version in range(1, 6):
        place.cloud.ship(make_reads(version), app="news").result()
        place.lab.run(minutes=2)
    place.lab.faults.messages()
    place.lab.run(hours=1)
    digest = make_reads(5).document["sha256"]
    assert ann.policies().result()["read"] == {"version": 5, "sha256": digest, "refused": []}


def test_document_damaged_in_transit_is_refused(place):
    ann = create_news(place, read_policy=ShippedPolicy())
    place.cloud.ship(make_reads(1), app="news").result()
    place.lab.run(seconds=10)

    def damage(body):
        return replace(body, document=corrupt(make_reads(2))) if isinstance(body, Policy) else body

    process, *_ = place.lab.world.hosts["ann"].processes
    reads = process.machine.continuous_reads
    receive = reads.receive_notification
    reads.receive_notification = lambda now_us, body: receive(now_us, damage(body))
    place.cloud.ship(make_reads(2), app="news").result()
    place.lab.run(seconds=10)
    result = ann.policies().result()["read"]
    assert result["version"] == 1
    assert "sha256" in result["refused"][0]
    assert read_later(place, ann) == "local"


@pytest.mark.parametrize("document", [corrupt(make_reads(1)), {}, None])
def test_unusable_document_is_not_shipped(place, document):
    with pytest.raises(ParameterError, match="not usable"):
        place.cloud.ship(document, app="news").result()


def test_a_version_is_shipped_once(place):
    place.cloud.ship(make_reads(2), app="news").result()
    with pytest.raises(ParameterError, match="shipped already"):
        place.cloud.ship(make_reads(2), app="news").result()
    place.cloud.ship(make_reads(2), app="games").result()

"""Prefetch policies: habits that were planted are found, and none where there is none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mudkit.learning import Learner
from mudkit.learning.fetching import build_examples
from mudkit.systems.mud.policies.artefact import OWN, PREFETCH_EVERY_S
from mudkit.trace.schema import USAGE
from mudkit.trace.usage import KNOWN_DEVICES, REPEATED_READS, Repeated, ReportedUsage, count_intervals

DAY_US = 86_400_000_000
START_US = 1_267_401_600_000_000
"""1 March 2010, 00:00 UTC, a Monday."""
MENU, NEWS = "place = 'canteen'", "topic = 'arts'"


def row(device, t_us, query, op="read"):
    return {"device": device, "app": "menus", "ts": t_us, "table": "menus", "op": op, "query": query,
            "source": "remote" if op == "read" else None}  # fmt: skip


def build_usage(*, devices=10, days=7, hours=((12.1, MENU),), jitter_h=0.1, other_share=0.0, seed=1):
    """Return the usage of devices that read queries at the same hours each day.

    ``jitter_h`` is the largest deviation from the hour, and ``other_share`` the share of the reads that come
    at any time of the day instead.
    """
    rng = np.random.default_rng(seed)
    rows = [row(f"phone-{number}", START_US + days * DAY_US, None, "write") for number in range(devices)]
    for number, day in np.ndindex(devices, days):
        for hour, query in hours:
            at_h = (
                rng.uniform(0, 24) if rng.random() < other_share else hour + rng.uniform(-jitter_h, jitter_h)
            )
            rows.append(row(f"phone-{number}", START_US + day * DAY_US + int(at_h * 3.6e9), query))
    return pa.Table.from_pylist(sorted(rows, key=lambda one: one["ts"]), USAGE)


def judge(usage, **more):
    """Return the verdict on prefetches, of the only table."""
    options = {"min_devices": 5, "min_hit_share": 0.5} | more
    (verdict,) = [one for one in Learner(**options).judge(ReportedUsage(usage), 1) if one.kind == "prefetch"]
    return verdict


def learn(usage, **more):
    return judge(usage, **more).artefact


def fetches(artefact, query=MENU, *, weekday=2.0, last_h=12.1):
    """Return the beginnings of the intervals, in hours, before which a query is fetched that is read daily."""
    known = {"query": float(artefact.queries.index(query)), "weekday": weekday, "lat": None, "lon": None}
    fetched = []
    for hour in np.arange(0, 24, 0.25).tolist():
        values = known | {"hour": hour, "since": 3600.0 * ((hour - last_h) % 24)}
        if artefact.decide([values[name] for name in artefact.features]) == "fetch":
            fetched.append(hour)
    return fetched


@pytest.mark.parametrize(("jitter_h", "other_share"), [(0.05, 0.0), (0.1, 0.1), (0.1, 0.3)])
def test_planted_hour_is_found(jitter_h, other_share):
    """Everybody looks at the menu at about 12:06: it is fetched at noon, and at no other time."""
    artefact = learn(build_usage(jitter_h=jitter_h, other_share=other_share))
    assert (artefact.kind, artefact.table, artefact.queries) == ("prefetch", "menus", (MENU,))
    assert fetches(artefact) == [12.0]


def test_queries_have_hours_of_their_own():
    usage = build_usage(hours=((12.1, MENU), (18.1, NEWS)), jitter_h=0.05)
    artefact = learn(usage)
    assert fetches(artefact, MENU) == [12.0]
    assert fetches(artefact, NEWS, last_h=18.1) == [18.0]


def test_weekends_differ():
    usage = build_usage(days=21, hours=((12.1, MENU),), jitter_h=0.05)
    day = (np.array(usage["ts"].cast(pa.int64()).to_pylist()) - START_US) // DAY_US % 7
    artefact = learn(usage.filter(pa.array(day < 5)))
    assert fetches(artefact, weekday=2.0) == [12.0]
    assert fetches(artefact, weekday=6.0) == []


def test_nothing_is_fetched_where_times_are_shuffled():
    assert learn(build_usage(other_share=1.0)).root == OWN


def test_policy_is_taken_back_within_a_day_of_another_habit():
    """For ten days everybody reads at noon, and yesterday nobody: most fetches of all days were read."""
    before = build_usage(days=10)
    later = [row(f"phone-{number}", START_US + 11 * DAY_US, None, "write") for number in range(10)]
    taken_back = judge(pa.concat_tables([before, pa.Table.from_pylist(later, USAGE)]))
    assert fetches(learn(before)) == [12.0]
    assert taken_back.artefact.root == OWN
    assert taken_back.why.startswith("On the last day 0 % to ")


def test_tree_that_never_fetches_leaves_it_to_the_devices():
    """Folds fetch a little on one day in which nobody had a habit; the tree of all does not."""
    before = build_usage(days=10, devices=40)
    after = build_usage(days=11, devices=40, other_share=1.0)
    last = pa.compute.greater_equal(after["ts"], pa.scalar(START_US + 10 * DAY_US, after["ts"].type))
    assert learn(pa.concat_tables([before, after.filter(last)])).root == OWN


def test_same_usage_gives_the_same_policy():
    first, second = (learn(build_usage()).document for _ in range(2))
    assert first == second


@pytest.mark.parametrize("devices", [4, 5])
def test_query_of_few_devices_is_never_named(devices):
    artefact = learn(build_usage(devices=devices))
    assert (artefact is None) is (devices < 5)


def test_query_of_one_device_is_not_named_beside_others():
    usage = build_usage()
    secret = [row("phone-0", START_US + day * DAY_US, "name = 'secret'") for day in range(7)]
    artefact = learn(pa.concat_tables([usage, pa.Table.from_pylist(secret, USAGE)]))
    assert artefact.queries == (MENU,)
    assert "secret" not in str(artefact.document)


def test_intervals_by_hand():
    """Reads at 10:05 and 11:00 and a last report at 11:20: four quarters, of which one has a read.

    What is read in the quarter of the report may be reported later.
    """
    times = [START_US + int(minutes * 60e6) for minutes in (605, 660)]
    reads = pa.Table.from_pylist(
        [{"device": "a", "query": 0, "t_us": t_us} for t_us in times], REPEATED_READS
    )
    last = {"device": "a", "t_us": START_US + int(680 * 60e6), "lat": None, "lon": None}
    examples = build_examples(Repeated(reads, pa.Table.from_pylist([last], KNOWN_DEVICES)))
    hour = examples.features[:, 1].tolist()
    assert hour == [10.25, 10.5, 10.75, 11.0]
    assert examples.is_read.tolist() == [False, False, False, True]
    assert (examples.features[:, 5] / 60).tolist() == pytest.approx([10, 25, 40, 55])
    assert PREFETCH_EVERY_S == 900.0


def test_learner_has_a_prefetch_policy_beside_others():
    learnt = {one.artefact.slot: one for one in Learner().learn(build_usage(), 1)}
    assert set(learnt) == {"prefetch of menus"}
    assert learnt["prefetch of menus"].app == "menus"


def test_verdicts_say_why():
    habit, nothing = judge(build_usage()), judge(build_usage(other_share=1.0))
    assert habit.ships
    assert "are read on other devices" in habit.why
    assert not nothing.ships
    assert nothing.artefact.root == OWN
    few = judge(build_usage(devices=4))
    assert (few.artefact, few.ships, few.why) == (None, False, "No query is read repeatedly by 5 devices.")


def test_sample_of_devices_is_drawn_by_the_seed():
    usage, (of,) = ReportedUsage(build_usage(devices=60)), ReportedUsage(build_usage(devices=60)).surveys(5)
    every_us = 900_000_000
    whole = usage.repeated(of, every_us, 1 << 40, 1)
    first, again, other = (usage.repeated(of, every_us, 15_000, seed) for seed in (1, 1, 2))
    assert len(whole.devices) == 60
    assert (
        len(first.devices) == len(other.devices) == 60 * 15_000 // count_intervals(*tables(whole), every_us)
    )
    assert first.devices.equals(again.devices)
    assert not first.devices.equals(other.devices)
    assert set(first.reads["device"].to_pylist()) == set(first.devices["device"].to_pylist())


def tables(repeated):
    return repeated.reads, repeated.devices


def test_clock_that_was_never_set_hides_no_habit():
    """A device first says that it is 1970: forty years of intervals without a read are not learnt from."""
    wrong = pa.Table.from_pylist([row("phone-0", 0, MENU)], USAGE)
    artefact = learn(pa.concat_tables([wrong, build_usage()]))
    assert fetches(artefact) == [12.0]
    assert artefact.document["manifest"] == learn(build_usage()).document["manifest"]

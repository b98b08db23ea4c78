"""Learner of the policy generator: habits that were planted are found, and none where there is none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from learning_traces import to_usage

from mudkit import intervals, trace, work_folder
from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning import Learner
from mudkit.learning.features import FEATURE_SETS, read_features
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import replay, stale_answers
from mudkit.pipeline.coverage import read_labels
from mudkit.systems.mud.policies.artefact import OWN
from mudkit.trace.folder import read_table
from mudkit.trace.schema import USAGE

DAY_US = 86_400_000_000
START_US = 1_267_401_600_000_000
"""1 March 2010, 00:00 UTC."""
LON = 0.1
"""On the meridian of Greenwich, so that hours of mean solar time are those of UTC."""


def build_usage(
    *, devices=12, days=3, seed=1, written=(8, 18), noise_h=0.0, app="maps", table="cars", shuffled=False
):
    """Return the usage of devices that write while it is day, and ask for what is around them at any time.

    ``written`` are the hours between which each device writes every ten minutes; ``noise_h`` is how far these
    vary from device to device and day to day, in hours. Each device asks every half hour.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(devices):
        for day in range(days):
            at = START_US + day * DAY_US
            first, last = np.clip(np.array(written) + rng.uniform(-noise_h, noise_h, 2), 0, 24)
            hours = np.arange(first, last, 1 / 6)
            rows += [(number, at + int(hour * 3.6e9), "write", None, None) for hour in hours]
            moments = np.arange(0, 24, 0.5) + rng.uniform(0, 0.5, 48)
            rows += [(number, at + int(hour * 3.6e9), "read", 20.0, "remote") for hour in moments]
    if shuffled:
        times = rng.permutation([row[1] for row in rows]).tolist()
        rows = [(number, t_us, *rest) for (number, _, *rest), t_us in zip(rows, times, strict=True)]
    rows.sort(key=lambda row: row[1])
    records = [
        {
            "device": f"car-{number}", "app": app, "ts": t_us, "table": table, "op": op, "box_km": box_km,
            "lat": 51.5 + 0.001 * number, "lon": LON, "source": source, "window_s": None,
        }
        for number, t_us, op, box_km, source in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(records, USAGE)


def decide(artefact, *, age_s, hour, weekday=0):
    values = {
        "age": age_s,
        "hour": hour,
        "distance": 0.0,
        "weekday": weekday,
        "held": 10,
        "lat": 51.5,
        "lon": LON,
    }
    values |= {f"cached_{name}": value for name, value in values.items()}
    values["cached_hour"] = (hour - age_s / 3600) % 24
    return artefact.decide([values[name] for name in artefact.features])


def learn(usage, seed=1, **more):
    """Return the policies for reads and prefetches; :mod:`test_waiting` has those for writes."""
    learnt = Learner(**{"completeness": 1.0, "max_stale": 0.05} | more).learn(usage, seed)
    return [one for one in learnt if one.artefact.kind != "write"]


@pytest.mark.parametrize("noise_h", [0.0, 0.5, 1.5])
def test_planted_hours_are_found(noise_h):
    """At night nothing is written: an answer of 50 minutes is fresh then, and stale by day."""
    (learnt,) = learn(build_usage(noise_h=noise_h))
    assert (learnt.app, learnt.artefact.table, learnt.artefact.kind) == ("maps", "cars", "read")
    hours = np.arange(0.5, 24)
    decided = np.array([decide(learnt.artefact, age_s=3000.0, hour=hour) == "local" for hour in hours])
    is_quiet = (hours < 8 - noise_h) | (hours > 18 + noise_h + 3000 / 3600)
    right = decided & is_quiet
    assert right.sum() / decided.sum() >= 0.9  # precision
    assert right.sum() / is_quiet.sum() >= 0.8  # recall


def test_no_policy_where_times_are_shuffled():
    """Writes at any time make each answer of half an hour stale."""
    (learnt,) = learn(build_usage(written=(0, 24), shuffled=True))
    assert learnt.artefact.root == OWN


def test_same_usage_and_seed_give_the_same_policy():
    usage = build_usage()
    first, second = (learn(usage, 5)[0].artefact.document for _ in range(2))
    assert first == second


def test_policy_does_not_answer_what_is_older_than_it_has_seen():
    (learnt,) = learn(build_usage(written=(8, 9)), window_s=7200.0)
    assert decide(learnt.artefact, age_s=7199.0, hour=23.0) == "local"
    assert decide(learnt.artefact, age_s=7201.0, hour=23.0) == "remote"


def test_nothing_is_learnt_of_few_devices():
    """A policy would show what these few have done."""
    usage = build_usage(devices=4)
    assert learn(usage, min_devices=5) == []
    assert len(learn(usage)) == 1


def test_nothing_is_learnt_without_areas_or_repeated_queries():
    usage = build_usage(devices=6)
    at = usage.schema.get_field_index("box_km")
    assert learn(usage.set_column(at, USAGE.field("box_km"), pa.nulls(len(usage), pa.float64()))) == []
    assert learn(USAGE.empty_table()) == []


def test_age_is_learnt_for_a_query_without_an_area():
    """A record is read each quarter, and written once a day: an hour misses it for a twentieth of the day."""
    rows = []
    for day, quarter, number in np.ndindex(6, 96, 4):
        t_us = START_US + day * DAY_US + quarter * 900_000_000 + number * 1_000_000
        of_all = {"device": f"phone-{number}", "app": "n", "table": "t", "ts": t_us, "lat": None, "lon": None}
        rows.append({**of_all, "op": "read", "query": "key = 'k'"})
        if number == 0 and quarter == 40:
            rows.append({**of_all, "op": "write", "ts": t_us + 1})
    (learnt,) = [one for one in learn(pa.Table.from_pylist(rows, USAGE)) if one.artefact.kind == "read"]
    known = {"age": 1800.0, "hour": 12.0, "weekday": 1.0, "distance": 0.0, "held": 1.0, "covered": 1.0}
    known |= {f"cached_{name}": value for name, value in known.items()}

    def decide_by(**changed):
        return learnt.artefact.decide([(known | changed).get(name) for name in learnt.artefact.features])

    assert decide_by() == "local"
    assert decide_by(age=7201.0) == "remote"
    assert decide_by(covered=0.0) == "remote"


def build_query_usage(*, changed_min, written_min, days=4):
    """Return the usage of phones that read a record each quarter of an hour.

    A processor watches it from noon of the first day, and reports a change each ``changed_min``; a device
    that reports writes to the table each ``written_min``. None: never.
    """
    rows = []
    for day, quarter, number in np.ndindex(days, 96, 4):
        t_us = START_US + day * DAY_US + quarter * 900_000_000 + number * 1_000_000
        rows.append({"device": f"phone-{number}", "app": "n", "ts": t_us, "op": "read", "query": "key = 'k'"})
    of_processor = {"device": "mud-processor", "app": "", "op": "change", "query": "key = 'k'"}
    begun_us, past_us = START_US + DAY_US // 2, START_US + days * DAY_US
    rows.append({**of_processor, "ts": begun_us, "records": 0})
    if changed_min is not None:
        times = range(begun_us, past_us, round(changed_min * 60e6))
        rows += [{**of_processor, "ts": t_us + 7, "records": 1} for t_us in times]
    if written_min is not None:
        times = range(START_US, past_us, round(written_min * 60e6))
        rows += [{"device": "writer", "app": "n", "ts": t_us + 3, "op": "write"} for t_us in times]
    return pa.Table.from_pylist(
        sorted(({"table": "t"} | row for row in rows), key=lambda row: row["ts"]), USAGE
    )


@pytest.mark.parametrize(
    ("changed_min", "written_min", "is_learnt"), [(1440, 10, True), (10, None, False), (10, 1440, False)]
)
def test_age_is_learnt_from_the_changes_that_processors_report(changed_min, written_min, is_learnt):
    """Devices have seen too many writes, of other records; or none, those of others."""
    usage = build_query_usage(changed_min=changed_min, written_min=written_min)
    (learnt,) = [one for one in learn(usage) if one.artefact.kind == "read"]
    assert (learnt.artefact.root != OWN) is is_learnt
    without = usage.filter(pa.compute.not_equal(usage["op"], "change"))
    (learnt,) = [one for one in learn(without) if one.artefact.kind == "read"]
    assert (learnt.artefact.root != OWN) is not is_learnt


def test_changes_of_a_few_hours_are_too_few_to_learn_from():
    """All writes count until there are enough reads since the query is watched."""
    usage = build_query_usage(changed_min=None, written_min=10)
    is_late = pa.compute.less(
        usage["ts"], pa.scalar(START_US + DAY_US // 2 + 3_600_000_000, usage["ts"].type)
    )
    (learnt,) = [one for one in learn(usage.filter(is_late)) if one.artefact.kind == "read"]
    assert learnt.artefact.root == OWN


def test_each_table_and_app_has_a_policy_of_its_own():
    quiet = build_usage(devices=6, table="parks", written=(8, 8.2))
    busy = build_usage(devices=6, table="cars", written=(0, 24))
    other = build_usage(devices=6, app="news", table="parks", written=(8, 8.2))
    by_table = {(app, one.table): one for app, one in learn(pa.concat_tables([quiet, busy, other]))}
    assert set(by_table) == {("maps", "cars"), ("maps", "parks"), ("news", "parks")}
    assert by_table["maps", "cars"].root == OWN
    assert decide(by_table["maps", "parks"], age_s=3000.0, hour=20.0) == "local"


def test_policy_is_taken_back_within_a_day_of_another_behaviour():
    """Until yesterday nothing was written at night; since then all is written at night."""
    before, after = build_usage(days=4), build_usage(days=5, written=(0, 8))
    last = pa.compute.greater_equal(after["ts"], pa.scalar(START_US + 4 * DAY_US, USAGE.field("ts").type))
    (kept,), (taken_back,) = learn(before), learn(pa.concat_tables([before, after.filter(last)]))
    assert decide(kept.artefact, age_s=3000.0, hour=4.0, weekday=4) == "local"
    for weekday in range(7):  # the night of one Friday says nothing of Fridays alone
        assert (
            taken_back.artefact.root == OWN
            or decide(taken_back.artefact, age_s=3000.0, hour=4.0, weekday=weekday) == "remote"
        )


def test_tree_sees_the_size_of_what_is_asked():
    """In the small area nobody ever writes, in the town somebody always does.

    Both are asked about in turn: only the size of the query tells them apart.
    """
    records = []
    for number, day in np.ndindex(12, 2):
        for slot in range(72):
            t_us = START_US + day * DAY_US + slot * 1_200_000_000 + number * 1_000_000
            of_all = {"device": f"car-{number}", "app": "maps", "table": "cars", "lat": 51.5, "lon": LON}
            is_town = bool((slot // 3 + number) % 2)
            box_km = 40.0 if is_town else 1.0
            records.append({**of_all, "ts": t_us, "op": "read", "box_km": box_km, "window_s": 7200.0})
            records.append({**of_all, "ts": t_us + 1, "op": "write", "lat": 51.6})
    records.sort(key=lambda row: row["ts"])
    (learnt,) = learn(pa.Table.from_pylist(records, USAGE))
    assert "box" in learnt.artefact.features
    values = {"age": 1200.0, "hour": 12.0, "weekday": 1, "distance": 0.0, "held": 0, "lat": 51.5, "lon": LON}
    values |= {f"cached_{name}": value for name, value in values.items()} | {"window": 7200.0, "covered": 1.0}
    decided = [
        learnt.artefact.decide([(values | {"box": box_km})[name] for name in learnt.artefact.features])
        for box_km in (1.0, 40.0)
    ]
    assert decided == ["local", "remote"]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(20))
def test_held_out_devices_keep_the_limit_of_stale_answers(seed):
    """Never worse than without a policy by more than the interval: of fleets that commute, half is learnt from.

    Without a policy everything is asked, and nothing stale. A policy may send less; of the stale answers of the
    other half the interval reaches below the limit.
    """
    trace.generate(
        40, 5, seed, towns=1 + seed % 3, interval_s=120, path=(folder := work_folder() / "drivers")
    )
    positions, reads = (read_table(folder, name) for name in ("positions", "reads"))
    names = pa.array(sorted(set(reads["device"].to_pylist()))[::2])
    is_learnt = pa.compute.is_in(reads["device"], names)
    learnt = learn(to_usage(positions, reads.filter(is_learnt)), completeness=0.9, max_stale=0.1)
    others = reads.filter(pa.compute.invert(is_learnt))
    pairs = Pairs.of(read_labels(positions, others, 7200.0), others)
    values = dict(zip(FEATURE_SETS["asked"], read_features(pairs, "asked").T, strict=True))
    (artefact,) = (one.artefact for one in learnt)
    columns = np.column_stack([values[name] for name in artefact.features]) if artefact.features else None
    decided = [
        "own" if columns is None else artefact.decide(columns[pair].tolist())
        for pair in range(len(pairs.read))
    ]
    served = replay(pairs, np.array(decided) == "local")
    stale = stale_answers(pairs.are_stale(0.9), served)
    assert intervals.share(stale, len(served)).low <= 0.1


def test_other_tables_are_refused_in_words():
    with pytest.raises(TraceContentError, match="no table of usage"):
        Learner().learn(pa.table({"device": ["a"]}), 1)


@pytest.mark.parametrize(
    "given", [{"max_stale": 2.0}, {"completeness": 0.0}, {"min_devices": 1}, {"window_s": 0}]
)
def test_unusable_parameters_are_refused(given):
    with pytest.raises(ParameterError, match=next(iter(given))):
        Learner(**given)

"""Write policies of the policy generator: writes wait where no reader loses by it, and nowhere else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from learning_traces import to_usage

from mudkit import intervals, trace, work_folder
from mudkit.learning import Learner
from mudkit.learning.features import WRITE_FEATURES, write_features
from mudkit.learning.writes import ReadRequests, Writes, batches, missed
from mudkit.systems.mud.policies.artefact import OWN
from mudkit.trace.folder import read_table
from mudkit.trace.schema import USAGE
from mudkit.trace.usage import ReportedUsage

DAY_US = 86_400_000_000
START_US = 1_267_401_600_000_000
"""1 March 2010, 00:00 UTC."""
LON = 0.1
"""On the meridian of Greenwich, so that hours of mean solar time are those of UTC."""


def build_usage(
    *, devices=12, days=4, read=(8.0, 10.0), reads=6, noise_h=0.0, seed=1, written=(0, 24), shuffled=False
):
    """Return the usage of cars that write every 12 minutes at some hours, and are asked for between two hours.

    Each device asks ``reads`` times a day, for what all have written in the last half hour around it.
    ``noise_h``: how far the hours vary from day to day.
    """
    rng = np.random.default_rng(seed)
    records = []
    for number, day in np.ndindex(devices, days):
        at = START_US + day * DAY_US
        of_all = {"device": f"car-{number}", "app": "maps", "table": "cars", "lat": 51.5, "lon": LON}
        first, last = (0.0, 24.0) if shuffled else np.add(read, rng.uniform(-noise_h, noise_h))
        times = rng.uniform(first, last, reads)
        records += [
            {**of_all, "ts": at + int(hour * 3.6e9), "op": "read", "box_km": 20.0, "window_s": 1800.0}
            for hour in times
        ]
        hours = np.arange(*written, 0.2) + rng.uniform(0, 0.2)
        records += [{**of_all, "ts": at + int(hour * 3.6e9), "op": "write"} for hour in hours if hour < 24]
    return pa.Table.from_pylist(sorted(records, key=lambda row: row["ts"]), USAGE)


def judge(usage, seed=1, **options):
    """Return the verdict on writes of the only table."""
    verdicts = Learner(**{"completeness": 0.9, "max_stale": 0.05} | options).judge(ReportedUsage(usage), seed)
    (of_writes,) = (one for one in verdicts if one.kind == "write")
    return of_writes


def delay_min(artefact, hour, weekday=0):
    """Return the minutes that a write waits at an hour."""
    values = {"hour": hour, "lat": 51.5, "lon": LON, "weekday": weekday}
    return artefact.decide([values[name] for name in artefact.features]) / 60


@pytest.mark.parametrize("noise_h", [0.0, 0.5, 1.0])
def test_writes_wait_at_the_hours_when_nobody_asks(noise_h):
    """At three levels of noise precision and recall are 0.9 and 0.7 at least, by hours of the day."""
    verdict = judge(build_usage(noise_h=noise_h))
    assert verdict.ships, verdict.why
    hours = np.arange(0.5, 24)
    waits = np.array([delay_min(verdict.artefact, hour) for hour in hours]) >= 30
    is_quiet = (hours < 8 - noise_h - 1) | (hours > 10 + noise_h)
    right = waits & is_quiet
    assert right.sum() / waits.sum() >= 0.9  # precision
    assert right.sum() / is_quiet.sum() >= 0.7  # recall
    assert "of the messages are saved" in verdict.why


def test_no_delay_where_somebody_asks_at_any_time():
    verdict = judge(build_usage(reads=96, shuffled=True))
    assert (verdict.ships, verdict.artefact.root) == (False, OWN)
    assert "No delay saves enough messages" in verdict.why


def test_a_fixed_delay_is_learnt_where_writes_have_no_place():
    """Writes of 10 to 20 o'clock are read from 8 on, with all others of two days."""
    usage = build_usage(written=(10, 20))
    for name in ("lat", "lon", "box_km", "window_s"):
        at = USAGE.get_field_index(name)
        usage = usage.set_column(at, USAGE.field(name), pa.nulls(len(usage), pa.float64()))
    verdict = judge(usage)
    assert verdict.ships, verdict.why
    assert verdict.artefact.features == ()
    assert 2 * 3600 <= verdict.artefact.root <= 12 * 3600
    assert verdict.why.startswith("Writes wait ")


def test_no_write_waits_for_good():
    """From nine on nobody asks: a write of the evening waits for hours, and is sent all the same."""
    artefact = judge(build_usage(read=(8.0, 9.0))).artefact
    decided = {node for node in artefact.nodes if not isinstance(node, tuple)}
    assert len(decided) > 1
    assert "never" not in decided


def test_continuous_readers_are_not_kept_waiting():
    usage = build_usage()
    register = {"device": "car-1", "app": "other", "ts": START_US, "table": "cars", "op": "register"}
    verdict = judge_of_maps(pa.concat_tables([usage, pa.Table.from_pylist([register], USAGE)]))
    assert verdict.artefact.root == OWN
    assert "read continuously" in verdict.why


def judge_of_maps(usage):
    """Return the verdict on writes of the app ``maps``."""
    verdicts = Learner(completeness=0.9).judge(ReportedUsage(usage), 1)
    (of_writes,) = (one for one in verdicts if (one.app, one.kind) == ("maps", "write"))
    return of_writes


def test_readers_of_another_app_count():
    """The app that writes does not read; another one reads what it has written, at any time."""
    usage = build_usage(reads=96, shuffled=True)
    is_read = pa.compute.equal(usage["op"], "read")
    app = pa.compute.if_else(is_read, "viewer", "maps")
    usage = usage.set_column(usage.schema.get_field_index("app"), USAGE.field("app"), app)
    assert judge_of_maps(usage).artefact.root == OWN


def test_policy_is_taken_back_within_a_day_of_another_behaviour():
    """Until yesterday nobody asked at night; since then everybody does."""
    before, after = build_usage(days=5), build_usage(days=6, read=(0.0, 6.0), reads=24)
    last = pa.compute.greater_equal(after["ts"], pa.scalar(START_US + 5 * DAY_US, USAGE.field("ts").type))
    assert judge(before).ships
    assert delay_min(judge(before).artefact, 3.0) >= 30
    taken_back = judge(pa.concat_tables([before, after.filter(last)]))
    for weekday in range(7):  # the night of one Saturday says nothing of Saturdays alone
        assert taken_back.artefact.root == OWN or delay_min(taken_back.artefact, 3.0, weekday) < 10


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(20))
def test_held_out_readers_keep_the_limit_of_stale_reads(seed):
    """Never worse than without a policy by more than the interval: of fleets that commute, half is learnt from.

    Without a policy each write is sent at once, and no read is stale by it. Of the reads of the other half the
    interval of those that become stale reaches below the limit, and messages are never more.
    """
    trace.generate(
        40, 5, seed, towns=1 + seed % 3, interval_s=300, path=(folder := work_folder() / "drivers")
    )
    positions, reads = (read_table(folder, name) for name in ("positions", "reads"))
    names = pa.array(sorted(set(reads["device"].to_pylist()))[::2])
    is_learnt = pa.compute.is_in(reads["device"], names)
    verdict = judge(to_usage(positions, reads.filter(is_learnt)), completeness=0.9, max_stale=0.1)
    if not verdict.ships:
        return
    writes = Writes.unread(positions)
    columns = dict(
        zip(WRITE_FEATURES, write_features(writes.t_us, writes.lat, writes.lon).T.tolist(), strict=True)
    )
    of_tree = [columns[name] for name in verdict.artefact.features]
    delay_s = [verdict.artefact.decide([of[row] for of in of_tree]) for row in range(len(writes.t_us))]
    others = ReadRequests.of(reads.filter(pa.compute.invert(is_learnt)))
    seen = writes.seen_by(others)
    sent = batches(seen, seen.t_us + np.rint(np.array(delay_s) * 1e6).astype(np.int64))
    stale = missed(seen, sent.sent_us, others, 0.9)
    assert intervals.share(int(stale.sum()), len(stale)).low <= 0.1
    assert sent.messages <= len(seen.t_us)


def test_few_devices_writes_or_reads_give_no_policy():
    usage = build_usage(devices=4)
    few = judge(usage, min_devices=5)
    assert (few.artefact, few.why) == (
        None, "It is written by 4 devices, and read by 4; there have to be 5 of each."
    )  # fmt: skip
    seldom = judge(build_usage(devices=3, days=2, reads=2))
    assert seldom.artefact is None
    assert seldom.why == "It is written 720 times, and read 12 times; 100 are needed."


def test_several_writes_of_one_moment_are_one_message():
    usage = build_usage()
    twice = pa.concat_tables([usage, usage])
    assert judge(twice).ships

"""Mining of usage on Spark: what a learner says of the same rows here, and queries that follow others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit import Lab, learning, pipeline
from mudkit.errors import InputMissing, ParameterError, TraceContentError
from mudkit.pipeline import usage as spark_usage
from mudkit.pipeline.mining import Mined
from mudkit.trace import usage as trace_usage
from mudkit.trace.schema import SCHEMAS, USAGE
from mudkit.trace.usage import ReportedUsage

pytestmark = pytest.mark.spark
START_US = 1_267_401_600_000_000
"""1 March 2010, 00:00 UTC."""
DAY_US = 86_400_000_000
MENU, PRICE, NEWS, SPORT = "place = 'canteen'", "place = 'cashier'", "topic = 'arts'", "topic = 'sport'"


def build_habits(*, devices=16, days=7, share=1.0, shuffled=False, seed=1, app="menus"):
    """Return the usage of devices that look at the menu at noon, and, with a chance, at the price after it.

    News and sport are read at any time, on their own. ``shuffled``: all is read at any time.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number, day in np.ndindex(devices, days):
        at = START_US + day * DAY_US
        noon_h = 12.02 + rng.uniform(0, 0.1)
        reads = [(noon_h, MENU), (rng.uniform(0, 24), NEWS), (rng.uniform(0, 24), SPORT)]
        follows = rng.random() < share
        reads.append((noon_h + 0.05 if follows else rng.uniform(0, 24), PRICE))
        if shuffled:
            reads = [(rng.uniform(0, 24), query) for _, query in reads]
        rows += [(number, at + int(hour * 3.6e9), query) for hour, query in reads]
    records = [
        {"device": f"phone-{number}", "app": app, "ts": t_us, "table": "menus", "op": "read", "query": query}
        for number, t_us, query in rows
    ]
    return pa.Table.from_pylist(sorted(records, key=lambda row: row["ts"]), USAGE)


def build_cars(*, devices=8, days=2):
    """Return the usage of cars that write while it is day, and ask for what is around them at any time."""
    rng = np.random.default_rng(2)
    records = []
    for number, day in np.ndindex(devices, days):
        of_all = {"device": f"car-{number}", "app": "maps", "table": "cars", "lat": 51.5, "lon": 0.1}
        writes = [(hour, {"op": "write"}) for hour in np.arange(8, 18, 1 / 6)]
        reads = [
            (hour, {"op": "read", "box_km": 20.0}) for hour in np.arange(0, 24, 0.5) + rng.uniform(0, 0.5, 48)
        ]
        records += [
            {**of_all, **more, "ts": START_US + day * DAY_US + int(hour * 3.6e9)}
            for hour, more in [*writes, *reads]
        ]
    return pa.Table.from_pylist(sorted(records, key=lambda row: row["ts"]), USAGE)


def build_parks(*, devices=12, days=3):
    """Return the usage of cars that write all day, in an app that asks for what is around them from 8 to 10."""
    rng = np.random.default_rng(3)
    records = []
    for number, day in np.ndindex(devices, days):
        of_all = {"device": f"car-{number}", "app": "parks", "table": "parks", "lat": 51.5, "lon": 0.1}
        moments = [(hour, {"op": "write"}) for hour in np.arange(0, 24, 0.2)]
        area = {"op": "read", "box_km": 20.0, "window_s": 1800.0}
        moments += [(hour, area) for hour in rng.uniform(8, 10, 8)]
        records += [
            {**of_all, **more, "ts": START_US + day * DAY_US + int(hour * 3.6e9)} for hour, more in moments
        ]
    records += [{**row, "lat": 51.6} for row in records[:20]]  # at two places at once
    return pa.Table.from_pylist(sorted(records, key=lambda row: row["ts"]), USAGE)


def build_watched(*, devices=4, days=3):
    """Return the usage of phones that read a record each quarter of an hour, and that processors watch.

    It changes once a day; other records of the table are written each quarter of an hour.
    """
    records = []
    for day, quarter, number in np.ndindex(days, 96, devices):
        at = START_US + day * DAY_US + quarter * 900_000_000
        of_all = {"app": "news", "table": "news", "ts": at + number}
        query = {"op": "read", "query": "key = 'k'"}
        records.append({**of_all, **query, "device": f"phone-{number}"})
        if number < 2:
            changes = {"app": "", "op": "change", "device": f"processor-{number}", "records": int(day > 0)}
            records.append({**of_all, "device": f"phone-{number}", "op": "write"})
            records += [{**of_all, **query, **changes}] if quarter == 40 else []
    return pa.Table.from_pylist(sorted(records, key=lambda row: row["ts"]), USAGE)


def documents(policies):
    return [(policy.app, dict(policy.artefact.document)) for policy in policies]


def frame_of(spark, folder, table):
    pq.write_table(table, folder / "usage.parquet")
    return spark.read.parquet(str(folder / "usage.parquet"))


@pytest.fixture(scope="module")
def rows():
    return pa.concat_tables([build_cars(), build_habits(), build_parks(), build_watched()])


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    """Return a trace folder of a lab with this usage, and 3 rows without an op that is known."""
    lab = Lab(seed=1, start="2010-03-01")
    lab.device("phone-0")
    for row in rows.to_pylist():
        lab.trace.add("usage", tuple(_since_start(row)[name] for name in SCHEMAS["usage"].names))
    for _ in range(3):
        odd = _since_start(rows.slice(0, 1).to_pylist()[0]) | {"op": "shout"}
        lab.trace.add("usage", tuple(odd[name] for name in SCHEMAS["usage"].names))
    return lab.trace.to_parquet(tmp_path_factory.mktemp("mined") / "run")


def _since_start(row):
    return row | {"ts": round(row["ts"].timestamp() * 1e6) - START_US}


@pytest.fixture(scope="module")
def mined(spark, folder):
    return pipeline.mine(spark, folder, learning.Learner(), seed=1)


def test_policies_and_verdicts_are_those_of_the_learner(mined, rows):
    """Compare documents to the byte, of areas, of the query that is read most, and of prefetching."""
    here = learning.Learner().judge(ReportedUsage(rows), 1)
    assert documents(mined.policies) == documents(one.policy for one in here if one.policy is not None)
    assert [(one.app, one.kind, one.ships, one.why) for one in mined.verdicts] == [
        (one.app, one.kind, one.ships, one.why) for one in here
    ]
    assert {(one.app, one.kind) for one in here if one.ships} == {
        ("maps", "read"), ("menus", "prefetch"), ("news", "read"), ("parks", "read"), ("parks", "write")
    }  # fmt: skip
    assert (mined.rows, mined.devices, mined.set_aside) == (len(rows), 28, {"an unknown op": 3})


def test_planted_sequence_is_found_and_no_other(mined):
    """The price is looked at after the menu; news and sport are read on their own."""
    (pattern,) = mined.patterns
    assert (pattern.app, pattern.query, pattern.then_query, pattern.devices) == ("menus", MENU, PRICE, 16)
    assert pattern.confidence == 1.0
    assert pattern.support == 112 / (mined.sessions - 4), "four sessions are of another app"
    assert pattern.by_chance < pattern.low < 1.0


def test_display_shows_verdicts_and_patterns(mined):
    html = mined._repr_html_()
    assert all(text in html for text in ("menus", "Of the fetches", "by chance", "with an unknown op"))
    assert repr(mined).startswith("<Mined: rows ")
    assert "policies that pay 0" in repr(Mined((), (), 0, 0, 0, {}, ()))


def test_mined_policies_are_shipped(mined):
    from mudkit.systems import mud

    assert mud.Cloud(Lab(seed=1)).ship(mined).result() == 5  # those that pay


@pytest.mark.soak
@pytest.mark.parametrize("share", [0.6, 0.75, 0.9])
def test_sequence_is_found_in_noise_and_not_where_times_are_shuffled(spark, tmp_path, share):
    """At three levels of noise precision and recall are 1; shuffled times give nothing."""
    learner = learning.Learner()
    noisy = pa.concat_tables(
        [build_habits(share=share, devices=30), build_habits(shuffled=True, devices=30, app="chance")]
    )
    patterns = pipeline.mine(spark, frame_of(spark, tmp_path, noisy), learner).patterns
    assert [(one.app, one.query, one.then_query) for one in patterns] == [("menus", MENU, PRICE)]
    assert patterns[0].low <= share <= patterns[0].high


@pytest.mark.soak
def test_large_tables_give_the_same_in_tasks(spark, tmp_path, rows, monkeypatch):
    """Reads are labelled and replayed in tasks; of the devices some are drawn, the same as here."""
    wrong = build_habits(devices=1, days=1).to_pylist()[0] | {"ts": 0}  # a clock that was not set
    rows = pa.concat_tables([rows, pa.Table.from_pylist([wrong], USAGE)])
    learner = learning.Learner()
    monkeypatch.setattr(spark_usage, "GATHERED_ROWS", 0)
    monkeypatch.setattr(trace_usage, "_MIN_DEVICES", 5)
    monkeypatch.setattr("mudkit.learning.learner._MAX_READS", 600)
    monkeypatch.setattr("mudkit.learning.fetching._MAX_EXAMPLES", 10_000)
    for seed in (1, 2):
        mined = pipeline.mine(spark, frame_of(spark, tmp_path, rows), learner, seed=seed)
        here = learner.learn(rows, seed)
        assert documents(mined.policies) == documents(here)
        assert here[0].artefact.document["manifest"]["learnt from"].endswith("of 6 devices")


def test_other_tables_are_refused(spark, folder, tmp_path, rows):
    learner = learning.Learner()
    frame = frame_of(spark, tmp_path, rows.slice(0, 10))
    with pytest.raises(TraceContentError, match="columns are missing"):
        pipeline.mine(spark, frame.drop("app"), learner)
    with pytest.raises(TraceContentError, match="another type"):
        pipeline.mine(spark, frame.withColumn("lat", F.lit("north")), learner)
    with pytest.raises(TraceContentError, match="no zone"):
        pipeline.mine(spark, frame.withColumn("ts", F.lit("noon")), learner)
    with pytest.raises(InputMissing):
        pipeline.mine(spark, tmp_path / "nowhere", learner)
    with pytest.raises(ParameterError, match="min_support"):
        pipeline.mine(spark, frame, learner, min_support=0.0)


def test_older_clients_few_devices_and_odd_rows_are_counted_in_words(spark, tmp_path, rows):
    """Columns that older clients did not send count as unknown; impossible rows are set aside."""
    older = build_habits(devices=2, days=1).drop_columns(["box_km", "window_s", "waited_s"]).to_pylist()
    odd = [older[0] | {name: None} for name in ("device", "ts")]
    odd += [older[0] | {"lat": float("nan"), "lon": 1.0}, older[0] | {"lat": 91.0, "lon": 1.0}]
    schema = pa.schema([field.with_nullable(True) for field in USAGE if field.name in older[0]])
    table = pa.Table.from_pylist(older + odd, schema)
    mined = pipeline.mine(spark, frame_of(spark, tmp_path, table), learning.Learner())
    assert (mined.rows, mined.devices, mined.policies, mined.patterns) == (8, 2, (), ())
    assert mined.set_aside == {"an impossible place": 2, "no device": 1, "no ts": 1}
    assert mined.missing == ("box_km", "window_s", "waited_s")
    assert [one.why for one in mined.verdicts] == [
        "It is read by too few devices: 2; there have to be 3.",
        "It is written by 0 devices, and read by 2; there have to be 3 of each.",
        "No query is read repeatedly by 3 devices.",
    ]
    empty = pipeline.mine(spark, frame_of(spark, tmp_path, USAGE.empty_table()), learning.Learner())
    assert (empty.rows, empty.verdicts, empty.patterns) == (0, (), ())

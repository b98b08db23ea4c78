"""Streamed pending queues: equal to one engine in one process, also after a kill and restart."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import radiator_streams
from killing import kill
from pyspark import cloudpickle
from pyspark.sql import functions
from radiator_streams import (
    FUNCTIONS,
    RETENTION_S,
    ClientEvent,
    S,
    Worlds,
    build_events,
    random_steps,
    release_by_one_engine,
)

from mudkit.errors import OutputExists, ParameterError, TraceContentError
from mudkit.pipeline import commits, streaming
from mudkit.reproduce import radiator_scale
from mudkit.systems.radiator import ClientLists, Groups
from mudkit.trace.schema import epoch_us

pytestmark = pytest.mark.spark

T0 = 1_700_000_000 * S
DELAY_S = 30
FILES = 5


@pytest.fixture(scope="module")
def stories():
    """Return random stories, two for each function, and the time at which they end."""
    chance = random.Random("stories")
    event_lists = [build_events(random_steps(chance, 120)) for _ in range(2 * len(FUNCTIONS))]
    return event_lists, max(events[-1].t_us for events in event_lists) + round(2 * RETENTION_S * S)


@pytest.fixture(scope="module")
def expected(stories):
    event_lists, until_us = stories
    receipts = Counter()
    for world, events in enumerate(event_lists):
        function = FUNCTIONS[world % len(FUNCTIONS)]
        sent, _ = release_by_one_engine(function, events, until_us, ClientLists)
        assert release_by_one_engine(function, events, until_us, Groups)[0] == sent
        assert len(sent) > 30
        receipts.update(
            {(t_us, f"{world}/{client}", numbers): n for (t_us, client, numbers), n in sent.items()}
        )
    assert set(receipts.values()) == {1}
    return receipts


def write_events(folder, files):
    """Write events as files, each a second younger than the previous one."""
    folder.mkdir(parents=True)
    schema = pa.schema(
        [
            ("ts", pa.timestamp("us", "UTC")),
            ("number", pa.int64()),
            ("client", pa.string()),
            ("kind", pa.string()),
            ("text", pa.string()),
        ]
    )
    for number, events in enumerate(files):
        rows = [
            {"ts": None if event.t_us is None else T0 + event.t_us, **event._asdict()} for event in events
        ]
        file = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
        os.utime(file, (T0 // S + number, T0 // S + number))
    return folder


@pytest.fixture(scope="module")
def folder(stories, tmp_path_factory):
    """Write the stories as files, out of order by up to 25 s and with unusable events.

    Two of the files are so small that events arrive after those of a later time two files before.
    """
    event_lists, until_us = stories
    chance = random.Random("disorder")
    events = [
        event._replace(client=f"{world}/{event.client}")
        for world, story_events in enumerate(event_lists)
        for event in story_events
    ]
    events.sort(key=lambda event: event.t_us + chance.random() * 25 * S)
    ends = [len(events) // 4, len(events) // 2, len(events) // 2 + 8, len(events) // 2 + 16, len(events)]
    files = [events[start:end] for start, end in pairwise([0, *ends])]
    files[1].append(
        ClientEvent(
            files[1][0].t_us, 20_000, "8/gus", "context", '{"people": [], "span_us": null, "attributes": {}}'
        )
    )
    files[2].append(ClientEvent(files[2][-1].t_us, 20_001, "8/gus", "context", '{"people'))
    files[3].append(ClientEvent(None, 20_002, "8/gus", "tick", None))
    files[4].append(ClientEvent(0, 20_003, "0/ann", "unregister", None))
    files[4].append(ClientEvent(until_us + DELAY_S * S, 20_004, "8/gus", "tick", None))
    return write_events(tmp_path_factory.mktemp("stream") / "events", files)


@pytest.fixture(scope="module")
def worlds():
    cloudpickle.register_pickle_by_value(radiator_streams)
    yield Worlds(FUNCTIONS)
    cloudpickle.unregister_pickle_by_value(radiator_streams)


def count_receipts(streamed):
    """Return how often each (µs, receiver, numbers) was sent."""
    rows = streamed.aggregates.withColumn("t_us", functions.unix_micros("ts")).toArrow().to_pylist()
    for row in rows:
        assert row["recipients"] == sorted(row["recipients"])
        assert set(json.loads(row["aggregate"])) == {"people", "span_us", "attributes"}
        assert row["watermark_ts"] >= row["ts"]
    return Counter(
        (row["t_us"] - T0, client, tuple(row["numbers"])) for row in rows for client in row["recipients"]
    )


def test_stream_sends_what_one_engine_sends(spark, folder, worlds, expected, tmp_path):
    events = streaming.event_stream(spark, folder)
    streamed = streaming.aggregate_stream(events, worlds, tmp_path / "out", delay_s=DELAY_S)
    assert count_receipts(streamed) == expected
    assert streamed.aggregates.schema.names == ["ts", "numbers", "recipients", "aggregate", "watermark_ts"]
    batches = streamed.batches
    assert [batch.number for batch in batches] == list(range(FILES + 1))
    # A batch processes events up to the delay before the latest of those that have arrived before it.
    latest = [datetime.fromisoformat(batch.latest_ts) for batch in batches[:-1]]
    watermarks = [datetime.fromisoformat(batch.watermark_ts) for batch in batches[1:]]
    assert watermarks == [latest_ts - timedelta(seconds=DELAY_S) for latest_ts in accumulate(latest, max)]
    assert (streamed.late, [batch.unusable for batch in batches]) == (1, [0, 0, 0, 1, 0, 0])
    problems = Counter(row.problem.splitlines()[0] for row in streamed.problems.collect())
    assert problems["An event cannot be used: There is no such client."] > 1  # of clients that have left
    for function, sender in (("by_cell", "bob"), ("failing", "ann")):
        message = f"The aggregability function {function} has failed: A context has no attribute 'cell'."
        assert problems[message] > 1, sender
    assert problems["The aggregability function failing has failed: ZeroDivisionError: three"] > 1
    # The output exists already: no batch is repeated.
    again = streaming.aggregate_stream(events, worlds, tmp_path / "out", delay_s=DELAY_S)
    assert (again.batches, count_receipts(again)) == ((), expected)
    with pytest.raises(ParameterError, match="other settings"):
        streaming.aggregate_stream(events, worlds, tmp_path / "out", delay_s=DELAY_S, shares=3)


def test_batch_is_written_once_however_often_it_is_repeated(spark, tmp_path, monkeypatch):
    """Stop between the files of a batch and its manifest; then repeat it, and once more when it is complete."""

    def batch(aggregate):
        rows = [(1, [7], ["ann", "bob"], aggregate, None, 2), (1, [8], ["cy"], aggregate, None, 2)]
        return spark.createDataFrame(rows, streaming.WRITTEN)

    def released():
        return sorted(streaming.Streamed(spark, tmp_path, ()).aggregates.toArrow()["aggregate"].to_pylist())

    def stop(job, name, part):
        raise KeyboardInterrupt

    job = streaming._job(tmp_path)
    job.begin("{}")
    with monkeypatch.context() as stopped, pytest.raises(KeyboardInterrupt):
        stopped.setattr(commits.Job, "finish", stop)
        streaming._write_batch(job, batch("1"), 3)
    assert list(tmp_path.rglob("*.parquet"))
    assert released() == []
    streaming._write_batch(streaming._job(tmp_path), batch("2"), 3)
    assert released() == ["2", "2"]
    streaming._write_batch(streaming._job(tmp_path), batch("3"), 3)
    assert released() == ["2", "2"]
    streaming._write_batch(job, batch("4"), 4)
    assert released() == ["2", "2", "4", "4"]


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["before the manifest", "behind the manifest"])
def test_batch_that_is_repeated_after_a_kill_is_there_once(spark, folder, worlds, expected, tmp_path, moment):
    """Kill a query with SIGKILL between the files of a batch and its manifest, or between this and Spark's record."""
    code = """
        import os, sys
        import radiator_streams
        from pyspark import cloudpickle
        from mudkit import pipeline
        from mudkit.pipeline import commits, streaming
        cloudpickle.register_pickle_by_value(radiator_streams)
        finish = commits.Job.finish

        def die_at_third(job, name, part):
            if sys.argv[3] == "behind the manifest" or not name.endswith("2"):
                finish(job, name, part)
            if name.endswith("2"):
                os.kill(os.getpid(), 9)

        commits.Job.finish = die_at_third
        events = streaming.event_stream(pipeline.session(), sys.argv[1])
        worlds = radiator_streams.Worlds(radiator_streams.FUNCTIONS)
        streaming.aggregate_stream(events, worlds, sys.argv[2], delay_s=30)
        """
    out, support = tmp_path / "out", Path(radiator_streams.__file__).parent
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(folder), str(out), moment],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(support), *filter(None, sys.path)])},
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert not (out / "checkpoint" / "commits" / "2").exists()
    manifests = sorted(file.name for file in (out / "_job-stream" / "done").iterdir())
    assert len(manifests) == (2 if moment == "before the manifest" else 3)
    before = count_receipts(streaming.Streamed(spark, out, ()))
    assert 0 < before.total() < expected.total()
    streamed = streaming.aggregate_stream(streaming.event_stream(spark, folder), worlds, out, delay_s=DELAY_S)
    assert [batch.number for batch in streamed.batches] == list(range(2, FILES + 1))
    assert count_receipts(streamed) == expected


@pytest.mark.soak
def test_stream_continues_after_a_kill_within_a_batch(spark, folder, worlds, expected, tmp_path):
    code = """
        import signal, sys
        import radiator_streams
        from pyspark import cloudpickle
        from mudkit import pipeline
        from mudkit.pipeline import streaming
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
        cloudpickle.register_pickle_by_value(radiator_streams)
        events = streaming.event_stream(pipeline.session(remote="local[2]"), sys.argv[1])
        worlds = radiator_streams.Worlds(radiator_streams.FUNCTIONS)
        streaming.aggregate_stream(events, worlds, sys.argv[2], delay_s=30)
        """
    out, support = tmp_path / "out", Path(radiator_streams.__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(folder), str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(support), *filter(None, sys.path)])},
    )
    batch_file = out / "checkpoint" / "offsets" / "2"
    try:
        while process.poll() is None and not batch_file.exists():
            time.sleep(0.01)
        was_alive = process.poll() is None
    finally:
        kill(process)
    _, stderr = process.communicate()
    assert was_alive, stderr
    assert not (out / "checkpoint" / "commits" / "2").exists()
    assert 0 < count_receipts(streaming.Streamed(spark, out, ())).total() < expected.total()
    # The restart uses the other kind of session.
    streamed = streaming.aggregate_stream(streaming.event_stream(spark, folder), worlds, out, delay_s=DELAY_S)
    assert [batch.number for batch in streamed.batches] == list(range(2, FILES + 1))
    assert count_receipts(streamed) == expected


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "is_stopped"), [("master", True), ("remote", False)])
def test_workers_print_nothing(tmp_path, kind, is_stopped):
    """Run a query to its end through Spark Connect, or stop one with Ctrl-C."""
    code = """
        import signal, sys
        import radiator_streams
        from pyspark import cloudpickle
        from mudkit import pipeline
        from mudkit.pipeline import streaming
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
        cloudpickle.register_pickle_by_value(radiator_streams)
        spark = pipeline.session(**{sys.argv[3]: "local[2]"})
        worlds = radiator_streams.Worlds(radiator_streams.FUNCTIONS)
        try:
            found = streaming.aggregate_stream(streaming.event_stream(spark, sys.argv[1]), worlds, sys.argv[2], delay_s=30)
            print(len(found.batches), found.aggregates.count() > 0)
        except KeyboardInterrupt:
            print("stopped")
        """
    events_of_story = build_events(random_steps(random.Random("quiet"), 200))
    parts = 40 if is_stopped else 3  # enough that the last is far away when it is stopped
    size = -(-len(events_of_story) // parts)
    events = [event._replace(client=f"0/{event.client}") for event in events_of_story]
    folder = write_events(
        tmp_path / "events", [events[start : start + size] for start in range(0, len(events), size)]
    )
    support = Path(radiator_streams.__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(folder), str(tmp_path / "out"), kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(support), *filter(None, sys.path)]), "MUDKIT_PROGRESS": "0"},
    )
    try:
        batch_file = tmp_path / "out" / "checkpoint" / "offsets" / "1"
        while is_stopped and process.poll() is None and not batch_file.exists():
            time.sleep(0.01)
        if is_stopped:
            os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        kill(process)
    assert (out, err) == ("stopped\n" if is_stopped else "4 True\n", "")


def test_lag_behind_a_trace_is_bounded(spark, cabspotting, tmp_path):
    """Play 15 minutes of sixty recorded taxis: the next file at the latest writes each aggregate."""
    rows = pyarrow.csv.read_csv(cabspotting)
    first_s = pc.min(rows["t"]).as_py() + 12 * 3600
    is_sampled = pc.field("cab").isin(pc.unique(rows["cab"])[:60])
    rows = rows.filter(is_sampled & (pc.field("t") >= first_s) & (pc.field("t") < first_s + 900))
    ts = pc.cast(pc.multiply(rows["t"], S), pa.timestamp("us", "UTC"))
    positions = pa.table({"device": rows["cab"], "ts": ts, "lat": rows["lat"], "lon": rows["lon"]})
    events = radiator_scale.events_of(positions)
    played = radiator_scale.play(spark, events, tmp_path, every_s=300, speed=1)
    assert len(played.durations_s) == 4
    assert played.events == len(events) > 300
    assert len(played.lags_s) == len(played.behind_s) > 100
    assert played.behind_s.min() >= 0
    assert played.behind_s.max() <= 2 * 300
    assert played.lags_s.min() > 0
    # Equal to one process until the last event.
    columns = [events[name].to_pylist() for name in ("number", "client", "kind", "text")]
    event_list = [
        ClientEvent(*event) for event in zip(epoch_us(events["ts"]).tolist(), *columns, strict=True)
    ]
    function = radiator_scale.by_distance
    sent, _ = release_by_one_engine(function, event_list, event_list[-1].t_us, Groups, echo=True)
    assert played.receipts == sent.total()


def test_invalid_input_is_refused(spark, folder, worlds, tmp_path):
    events = streaming.event_stream(spark, folder)
    with pytest.raises(ParameterError, match="no stream"):
        streaming.aggregate_stream(spark.read.parquet(str(folder)), worlds, tmp_path / "out")
    with pytest.raises(TraceContentError, match="text"):
        streaming.aggregate_stream(events.drop("text"), worlds, tmp_path / "out")
    for wrong in ({"shares": 0}, {"shares": 2.5}, {"delay_s": -1.0}, {"delay_s": float("nan")}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            streaming.aggregate_stream(events, worlds, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()
    (tmp_path / "letters").write_text("to my aunt")
    with pytest.raises(OutputExists):
        streaming.aggregate_stream(events, worlds, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["letters"]

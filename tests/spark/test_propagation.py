"""Propagation jobs: compared with queues simulated message by message."""

import math
from collections import defaultdict

import numpy as np
import pytest
from spark_frames import T0, US, build_positions, frame

from mudkit import pipeline
from mudkit.errors import ParameterError, TraceContentError

pytestmark = pytest.mark.spark


def compute_tile(lat, lon, zoom):
    n = 2**zoom
    phi = math.radians(lat)
    return int((lon + 180) / 360 * n), int(
        (1 - math.log(math.tan(phi) + 1 / math.cos(phi)) / math.pi) / 2 * n
    )


class Queue:
    def __init__(self, threshold):
        self.threshold, self.pending, self.sizes, self.devices = threshold, 0, [], set()

    def add(self, device):
        self.devices.add(device)
        self.pending += 1
        if self.pending == self.threshold:
            self.release()

    def release(self):
        if self.pending:
            self.sizes.append(self.pending)
        self.pending = 0


def test_propagation_matches_simulated_queues(spark, tmp_path):
    rng = np.random.default_rng(5)
    points = list(
        zip(rng.integers(0, 3000, 900), rng.normal(37, 0.03, 900), rng.normal(-122, 0.03, 900), strict=True)
    )
    positions = build_positions(points, devices="abcdefg")
    options = {"zooms": (10, 13), "thresholds": (1, 2, 7, 1000), "interval_s": 600}
    positions_frame = frame(spark, positions, tmp_path / "p")
    result = (
        pipeline.propagation(positions_frame, **options, message_bytes=400, aggregate_bytes=90)
        .toArrow()
        .to_pylist()
    )
    queues = {}
    for row in sorted(positions.to_pylist(), key=lambda row: row["ts"]):
        for zoom in options["zooms"]:
            start = int(row["ts"].timestamp()) // 600 * 600
            for threshold in options["thresholds"]:
                key = (zoom, *compute_tile(row["lat"], row["lon"], zoom), start, threshold)
                queues.setdefault(key, Queue(threshold)).add(row["device"])
    assert len(result) == len(queues)
    released = defaultdict(int)
    for row in result:
        queue = queues[row["zoom"], row["x"], row["y"], int(row["interval_ts"].timestamp()), row["threshold"]]
        queue.release()
        assert row["messages_in"] == sum(queue.sizes)
        assert row["aggregates_out"] == len(queue.sizes)
        assert row["bytes_in"] == 400 * sum(queue.sizes)
        assert row["bytes_out"] == sum(400 if size == 1 else 90 for size in queue.sizes)
        assert row["devices"] == len(queue.devices)
        released[row["threshold"]] += row["aggregates_out"]
    assert released[1] == 2 * 900
    assert released[1] > released[2] > released[7] > released[1000]


def test_propagation_columns_do_not_depend_on_partitions(spark, tmp_path):
    positions_frame = frame(spark, build_positions([(0, 1, 1), (1, 1, 1)]), tmp_path / "p")
    narrow = positions_frame.select("device", "ts", "lat", "lon")
    rows = pipeline.propagation(narrow, thresholds=[2, 2]).toArrow()
    assert rows.column_names == [
        "zoom", "x", "y", "interval_ts", "lat", "lon", "threshold", "messages_in", "aggregates_out", "bytes_in",
        "bytes_out", "devices",
    ]  # fmt: skip
    assert len(rows) == 1
    assert rows["interval_ts"][0].as_py().timestamp() * US == T0
    assert pipeline.propagation(narrow.repartition(4), thresholds=[2]).toArrow().equals(rows)
    # The smallest values that the docstring allows.
    pipeline.propagation(narrow, thresholds=[1], interval_s=1, message_bytes=1, aggregate_bytes=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thresholds": []}, "thresholds"),
        ({"thresholds": [0]}, "thresholds"),
        ({"thresholds": [2.5]}, "thresholds"),
        ({"interval_s": 0}, "interval_s"),
        ({"message_bytes": -1}, "message_bytes"),
        ({"aggregate_bytes": True}, "aggregate_bytes"),
        ({"zooms": [23]}, "zoom"),
    ],
)
def test_invalid_options_are_refused(spark, tmp_path, options, message):
    positions_frame = frame(spark, build_positions([(0, 1, 1)]), tmp_path / "p")
    with pytest.raises(ParameterError, match=message):
        pipeline.propagation(positions_frame, **options)
    with pytest.raises(TraceContentError, match="lat"):
        pipeline.propagation(positions_frame.drop("lat"))

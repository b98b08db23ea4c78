"""Spark's ingest of one sample of each format: the rows and reasons of trace.load."""

import pytest
from trace_samples import SAMPLES

from mudkit import pipeline, trace

pytestmark = pytest.mark.spark


@pytest.mark.soak(keep=4)
@pytest.mark.parametrize("kind", SAMPLES)
def test_ingest_of_a_sample_equals_load(spark, tmp_path, kind):
    sample = SAMPLES[kind]
    path = sample.write(tmp_path / "sample")
    loaded = trace.load(path, **sample.options)
    report = pipeline.ingest(spark, path, tmp_path / "out", **sample.options)
    assert (report.rows, report.rejected) == (sample.rows, sample.aside)
    stored = trace.load(tmp_path / "out")
    assert stored.positions.equals(loaded.positions)
    assert stored.reads.sort_by("read_id").equals(loaded.reads.sort_by("read_id"))
    key = [("source", "ascending"), ("row", "ascending")]
    assert stored.rejected.sort_by(key).equals(loaded.rejected.sort_by(key))

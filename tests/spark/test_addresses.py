"""Traces in a store that is no POSIX folder, as Spark reads them."""

from __future__ import annotations

import pytest
from trace_samples import SAMPLES

from mudkit import pipeline, trace
from mudkit.errors import EnvironmentProblem, TraceFormatError
from mudkit.files import spark_place
from mudkit.trace.folder import table_files

pytestmark = pytest.mark.spark


def test_spark_reads_the_rows_that_python_has_put(spark, webhdfs, tmp_path):
    """Hadoop's client and fsspec's know a store by one address; only named files are read."""
    loaded = trace.load(SAMPLES["cabspotting"].write(tmp_path))
    path = loaded.save(f"{webhdfs.address}/spark/trace")
    (first, *_) = table_files(path, "positions")
    webhdfs.put(f"{first.parent.path}/part-other-00000.parquet", first.read_bytes())
    for name in ("positions", "reads", "rejected"):
        rows = pipeline.read(spark, path, name).toArrow()
        keys = [(key, "ascending") for key in (("source", "row") if name == "rejected" else ("device", "ts"))]
        assert rows.sort_by(keys).to_pylist() == trace.read_table(path, name).sort_by(keys).to_pylist()
    assert not {"RENAME", "APPEND"} & {*webhdfs.operations}
    first.unlink()
    with pytest.raises(TraceFormatError, match="is missing"):
        pipeline.read(spark, path, "positions")


@pytest.mark.parametrize(
    ("address", "for_spark"),
    [
        ("s3://bucket/trace", "s3a://bucket/trace"),
        ("s3a://bucket/trace", "s3a://bucket/trace"),
        ("webhdfs://host:9870/trace/a=b", "webhdfs://host:9870/trace/a=b"),
        ("hdfs://host:8020/trace", "hdfs://host:8020/trace"),
        ("hdfs:///trace", "hdfs:///trace"),
        ("file:///trace", "/trace"),
    ],
)
def test_spark_has_the_address_by_its_own_scheme(address, for_spark):
    assert spark_place(address) == for_spark


def test_address_for_which_spark_has_no_client_is_named(spark, s3_bucket, tmp_path):
    """pyspark's jars have no client for S3, nor for what is in the memory of Python."""
    loaded = trace.load(SAMPLES["cabspotting"].write(tmp_path))
    for folder, scheme, needs in (
        (f"{s3_bucket}/{tmp_path.name}", "s3a", "hadoop-aws"),
        (f"memory://{tmp_path.name}", "memory", "file system of Hadoop"),
    ):
        with pytest.raises(EnvironmentProblem, match=f"no client for addresses with {scheme}://") as caught:
            pipeline.read(spark, loaded.save(folder), "positions")
        assert needs in caught.value.expected

"""Files of a source in the tasks of an ingest: they must stay as the driver saw them."""

import pyarrow.parquet as pq
import pytest

from mudkit.errors import InputMissing, TraceContentError
from mudkit.pipeline import inputs
from mudkit.pipeline._ingest import TRACE, IngestWork
from mudkit.pipeline.commits import Job, Part
from mudkit.pipeline.inputs import FileInput, SourceFile
from mudkit.trace.formats import Segment, segments
from mudkit.trace.options import Options
from mudkit.trace.schema import device_buckets

ROWS = [f"{cab},{1_211_100_000 + 60 * i},{37 + i / 1000},-122.4" for cab in "abcdef" for i in range(20)]


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "cabs.csv"
    file.write_text("\n".join(["cab,t,lat,lon", *ROWS, "f,x,37,-122", ""]))
    return file


@pytest.fixture
def work(source, tmp_path):
    return IngestWork(
        Options().plan(source), Job(tmp_path / "out", TRACE, "0" * 16, "abcdef01"), 3, "parquet"
    )


def parse(work, seen):
    """Parse a file as a task does."""
    return work.write("files-00000", inputs._parsed(work.plan, {seen.path: seen}, [Segment(seen.path)]))


def test_parsed_rows_are_grouped_by_the_bucket_of_their_device(work, source):
    part = parse(work, SourceFile.of(source))
    rows, rejected = part.files
    file = pq.ParquetFile(work.job.path / rows.name)
    assert (rows.rows, rejected.rows, part.counted["tally"]["parsed"]) == (120, 1, 120)
    buckets = []
    for number in range(file.num_row_groups):
        group = file.read_row_group(number)
        (bucket,) = set(group["bucket"].to_pylist())
        assert set(device_buckets(group["device"], 3).tolist()) == {bucket}
        buckets.append(bucket)
    assert sorted(set(buckets)) == buckets


def test_file_that_grows_while_it_is_read_is_named(work, source, monkeypatch):
    """A growing file is noticed."""
    seen = SourceFile.of(source)
    batches = inputs.parsed_batches

    def grow_while_parsing(plan, files):
        yield from batches(plan, files)
        with source.open("a") as more:
            more.write(ROWS[0] + "\n")

    monkeypatch.setattr(inputs, "parsed_batches", grow_while_parsing)
    with pytest.raises(TraceContentError, match=r"cabs\.csv changed while it was read") as caught:
        parse(work, seen)
    assert "bytes, where there were" in caught.value.found


def test_file_that_another_machine_has_in_another_form_is_named(work, source):
    seen = SourceFile.of(source)
    source.write_text("cab,t,lat,lon\n" + ROWS[0] + "\n")
    with pytest.raises(TraceContentError, match="changed while it was read"):
        parse(work, seen)
    source.unlink()
    with pytest.raises(InputMissing, match="A worker does not see the file"):
        parse(work, seen)


def test_driver_parses_no_more_than_the_first_lines(work, source, monkeypatch):
    """Arrow reads a file ahead of the batches that are taken from it."""
    monkeypatch.setattr(inputs, "_MIN_BYTES", 400)
    monkeypatch.setattr(segments, "_LOOK_BYTES", 100)
    monkeypatch.setattr(inputs, "run_tasks", run_here)
    parsed: list = []
    batches = inputs.parsed_batches

    def note(plan, parts=None):
        parsed.append(parts)
        return batches(plan, parts)

    monkeypatch.setattr(inputs, "parsed_batches", note)
    FileInput.of(work.plan).parse(None, work.job, lambda name, rows: Part(None, ()))
    ((first,),) = parsed
    assert (first.begin, first.rows_before) == (0, 0)
    assert 50 < first.end <= 100 < source.stat().st_size
    assert source.read_bytes()[: first.end].endswith(b"\n")


def run_here(spark, job, work, items):
    return {name: work(name, item) for name, item in items.items()}

"""Compaction of a trace: files and their rows, for any distribution of rows over buckets, dates and times."""

from collections import Counter
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.pipeline import compaction, tasks
from mudkit.pipeline.commits import Job, Layout
from mudkit.pipeline.compaction import group_rows, merge, plan_merges, read_where, spans, write_by_date
from mudkit.pipeline.tasks import PartWriter
from mudkit.trace.schema import POSITIONS, READS, SCHEMAS, timestamps, with_read_ids

DAY_US = 86_400_000_000
TRACE = Layout("trace.json", tuple(SCHEMAS))


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path, TRACE, "0" * 16, "abcdef01")


def positions(t_us, device):
    t_us = np.asarray(t_us, dtype=np.int64)
    lat = np.linspace(-80.0, 80.0, len(t_us)) if len(t_us) else np.zeros(0)
    columns = [pa.array(np.asarray(device, dtype=np.str_), pa.string()), timestamps(t_us), lat, lat, lat]
    return pa.table(columns, schema=POSITIONS)


def compact(job, tables, max_rows=100, table="positions", undated=None):
    """Write the tables, one of each bucket, and merge them; return the files by name."""
    files = [
        file
        for number, rows in enumerate(tables)
        for file in write_by_date(job, table, rows, f"{number:05d}", max_rows)
    ]
    actual = [span for file in files for span in spans(job, file)]
    parts = plan_merges({table: actual}, undated or {})
    return [file for merges in parts.values() for file in merge(job, merges)]


def rows_of(job, files):
    return [
        row for file in files for row in pq.read_table(job.path / file.name, partitioning=None).to_pylist()
    ]


def test_each_date_is_one_file_sorted_by_time_and_device(job):
    rng = np.random.default_rng(3)
    tables = [
        positions(
            rng.integers(0, 5 * DAY_US, 1000) + 14_017 * DAY_US, [f"{bucket}-{i % 7}" for i in range(1000)]
        )
        for bucket in range(3)
    ]
    files = compact(job, tables)
    assert [file.name.split("/")[:2] for file in files] == [
        ["positions", f"date=2008-05-{day}"] for day in range(18, 23)
    ]
    for file in files:
        table = pq.read_table(job.path / file.name, partitioning=None)
        assert table.schema.equals(POSITIONS)
        assert table.equals(table.sort_by([("ts", "ascending"), ("device", "ascending")]))
        assert set(table["ts"].cast(pa.date32()).cast(pa.string()).to_pylist()) == {file.name[15:25]}
        assert file.rows == len(table)
        assert file.bytes == (job.path / file.name).stat().st_size
    every = pa.concat_tables(tables).sort_by([("ts", "ascending"), ("device", "ascending")])
    assert rows_of(job, files) == every.to_pylist()


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.sampled_from("abc")), max_size=60),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 20),
    st.integers(1, 30),
    st.integers(300, 5000),
)
def test_all_rows_are_there_in_order_for_any_sizes(
    tmp_path_factory, buckets, max_rows, rows_a_group, file_bytes
):
    """No row is lost or doubled at a midnight, or where rows of one time are many."""
    job = Job(tmp_path_factory.mktemp("job"), TRACE, "0" * 16, "abcdef01")
    tables = [
        positions(
            [day * DAY_US + (step * DAY_US - 1 if step == 6 else step) % DAY_US for day, step, _ in rows],
            [f"{number}{name}" for _, _, name in rows],
        )
        for number, rows in enumerate(buckets)
    ]
    with pytest.MonkeyPatch.context() as patch:
        for module in (compaction, tasks):
            patch.setattr(module, "GROUP_ROWS", rows_a_group)
            patch.setattr(module, "FILE_BYTES", file_bytes)
        files = compact(job, tables, max_rows)
    actual = rows_of(job, files)
    expected = [row for table in tables for row in table.to_pylist()]
    assert Counter(map(str, actual)) == Counter(map(str, expected))
    order = [(row["ts"], row["device"]) for row in actual]
    assert order == sorted(order)
    assert len({file.name for file in files}) == len(files)


def test_date_with_half_of_all_rows_is_several_files(job, monkeypatch):
    """A date with half of all rows; files of about the same size."""
    monkeypatch.setattr(compaction, "FILE_BYTES", 20_000)
    monkeypatch.setattr(compaction, "GROUP_ROWS", 500)
    rng = np.random.default_rng(5)
    busy = np.append(rng.integers(0, DAY_US, 4000), rng.integers(0, DAY_US // 1000, 4000))
    calm = rng.integers(DAY_US, 9 * DAY_US, 8000)
    tables = [positions(t_us[number::4], [f"{number}-{i % 5}" for i in range(len(t_us[number::4]))])
              for t_us in (np.append(busy, calm),) for number in range(4)]  # fmt: skip
    files = compact(job, tables, max_rows=1000)
    by_date = Counter(file.name.split("/")[1] for file in files)
    assert by_date["date=1970-01-01"] > 4
    assert max(count for date, count in by_date.items() if date != "date=1970-01-01") <= 2
    of_busy = [file.rows for file in files if "1970-01-01" in file.name]
    assert sum(of_busy) == 8000
    assert max(of_busy) < 3 * 8000 / len(of_busy)


def test_reads_of_one_moment_are_in_the_order_of_their_ids(job):
    columns = {"device": ["a"] * 6, "ts": timestamps(np.zeros(6, dtype=np.int64)), "lat": np.arange(6.0),
               "lon": np.zeros(6), "box_km": np.ones(6), "window_s": np.ones(6), "origin": ["recorded"] * 6}  # fmt: skip
    reads = with_read_ids(pa.table(columns))
    assert reads.schema.equals(READS)
    files = compact(job, [reads.slice(0, 3), reads.slice(3)], table="reads")
    ids = [row["read_id"] for row in rows_of(job, files)]
    assert ids == sorted(reads["read_id"].to_pylist())


def test_rows_without_a_date_keep_the_order_of_their_files(job):
    written = []
    for number in range(3):
        with PartWriter(job, f"{job.work}/rejected", f"{number:05d}") as writer:
            writer.write(pa.table({"row": [number, number + 10]}))
        written += writer.files
    (file,) = compact(job, [], undated={"rejected": written})
    assert file.name.startswith("rejected/part-00000-")
    assert [row["row"] for row in rows_of(job, [file])] == [0, 10, 1, 11, 2, 12]


def test_writer_ends_a_file_at_its_size_and_where_columns_change(job):
    with PartWriter(job, "rejected", "x", file_bytes=1000) as writer:
        writer.begin_file(pa.schema([("a", pa.int64())]))
        for _ in range(3):
            writer.write(pa.table({"a": np.random.default_rng(1).integers(0, 1 << 60, 200)}))
            writer.end_group()
        writer.write(pa.table({"b": ["z"]}))
    assert [file.rows for file in writer.files] == [200, 200, 200, 1]
    assert [file.name.rpartition("/")[2][:12] for file in writer.files] == [
        f"part-x-0000{n}" for n in range(4)
    ]
    with PartWriter(job, "rejected", "y") as empty:
        pass
    assert empty.files == []


class Sized:
    """Something with rows that counts how often it is asked for its size."""

    requests = 0

    def __len__(self):
        return 1

    @property
    def nbytes(self):
        Sized.requests += 1
        return 8


def test_writer_asks_each_table_for_its_size_once(job):
    """A task may parse thousands of small files into one row group."""
    with suppress(StopIteration), PartWriter(job, "rejected", "x") as writer:
        for _ in range(200):
            writer.write(Sized())
        raise StopIteration
    assert Sized.requests == 200


def test_intermediate_files_have_the_names_of_their_own_rows_only(job):
    names = pa.DictionaryArray.from_arrays(pa.array([0, 7, 0, 9], pa.int32()), [f"d{n}" for n in range(1000)])
    with PartWriter(job, "rejected", "x", is_scratch=True) as writer:
        writer.write(pa.table({"device": names, "t_us": [1, 2, 3, 4]}))
    rows = pq.read_table(job.path / writer.files[0].name)
    assert rows["device"].to_pylist() == ["d0", "d7", "d0", "d9"]
    assert rows["device"].chunk(0).dictionary.to_pylist() == ["d0", "d7", "d9"]


def test_only_the_row_groups_of_a_bucket_are_read(job):
    with PartWriter(job, "rejected", "x") as writer:
        for bucket in (0, 2, 2, 5):
            writer.write(pa.table({"a": [bucket * 10], "bucket": pa.array([bucket], pa.int32())}))
            writer.end_group()
    place = job.path / writer.files[0].name
    assert read_where(place, "bucket", 2).to_pydict() == {"a": [20, 20]}
    assert read_where(place, "bucket", 1) is None


@pytest.mark.parametrize("buckets", [2, 266, 1024])
def test_one_row_group_of_each_bucket_fits_a_tasks_memory(buckets):
    """A merging task holds at most one row group of each bucket: 4 million rows of 45 bytes are 190 MB."""
    assert group_rows(buckets) * buckets <= 1 << 22


def test_merged_rows_have_the_types_of_the_table_and_each_file_is_opened_once(job, monkeypatch):
    read: list = []
    read_metadata = compaction._metadata
    tables = [
        positions(np.arange(600) * DAY_US // 200, [f"{n}-{i % 3}" for i in range(600)]) for n in range(2)
    ]
    files = [
        file for n, rows in enumerate(tables) for file in write_by_date(job, "positions", rows, str(n), 9)
    ]
    actual = [span for file in files for span in spans(job, file)]
    merges = [one for part in plan_merges({"positions": actual}, {}).values() for one in part]
    monkeypatch.setattr(compaction, "_metadata", lambda place: read.append(place) or read_metadata(place))
    merged = merge(job, merges)
    assert len(merged) == len(merges) == 3
    assert len(read) == len(set(read)) == 2
    for file in merged:
        assert pq.read_schema(job.path / file.name).equals(POSITIONS)
    assert [row["ts"] for row in rows_of(job, merged)] == sorted(row["ts"] for row in rows_of(job, merged))


def test_times_and_places_have_no_dictionary(job):
    (file,) = compact(job, [positions(np.arange(99) * 1000, ["a", "b", "c"] * 33)])
    group = pq.read_metadata(job.path / file.name).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    encoded = {column.path_in_schema: "RLE_DICTIONARY" in column.encodings for column in columns}
    assert encoded == {"device": True, "ts": False, "lat": False, "lon": False, "speed_mps": False}

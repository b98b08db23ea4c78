"""Folders that other programs write: what is not complete is refused, and files beside the rows are no rows."""

import pytest

from mudkit import trace
from mudkit.errors import TraceFormatError

T0 = 1_211_100_000
ROWS = "cab,t,lat,lon,occ\n" + "".join(f"a,{T0 + 60 * i},{37 + i / 1000},-122.4,{i % 2}\n" for i in range(20))


def write(folder, names):
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(ROWS if name.endswith(".csv") else "")


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("_temporary/0/part-1.csv", "not complete", "wait for the job"),
        ("date=2008-05-18/_temporary/0/part-1.csv", "not complete", "wait for the job"),
        (".spark-staging-1/part-1.csv", "not complete", "wait for the job"),
        ("_job-0123456789abcdef/work/part-1.csv", "not complete", "wait for the job"),
        ("_delta_log/0.json", "a table of Delta", r"spark.read.format('delta')"),
        ("_spark_metadata/0", "the output of a stream", "spark.read.parquet"),
        (".hoodie/hoodie.properties", "a table of Hudi", r"spark.read.format('hudi')"),
        ("metadata/v1.metadata.json", "a table of Iceberg", r"spark.read.format('iceberg')"),
    ],
)
def test_folder_in_which_not_every_file_counts_is_refused(tmp_path, webhdfs, name, text, remedy):
    """A half-written folder of somebody else is no trace of half the rows."""
    write(tmp_path / "cabs", ["part-0.csv", name])
    at = f"/{tmp_path.name}"
    for file in (tmp_path / "cabs").rglob("*"):
        if file.is_file():
            webhdfs.put(f"{at}/{file.relative_to(tmp_path / 'cabs').as_posix()}", file.read_bytes())
    for source in (tmp_path / "cabs", webhdfs.address + at):
        with pytest.raises(TraceFormatError, match=text) as caught:
            trace.load(source)
        assert remedy in caught.value.remedy
        assert caught.value.found


def test_marks_of_a_complete_folder_are_no_rows(tmp_path):
    write(tmp_path, ["part-0.csv", "_SUCCESS", ".part-0.csv.crc", "metadata/about.txt"])
    (tmp_path / "_manifest.json").write_text("{}")
    loaded = trace.load(tmp_path)
    assert len(loaded.positions) == 20
    assert loaded.source["passed_over"] == {".txt": 1}

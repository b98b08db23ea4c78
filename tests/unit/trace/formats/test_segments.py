"""Segments of large files: read one by one they have the rows of the file, with their numbers."""

import gzip

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.trace.formats import Segment, number_rows
from mudkit.trace.options import Options
from mudkit.trace.parse import parsed_batches

T0 = 1_700_000_000
HEADER = "device,ts,lat,lon"
_rows = st.one_of(
    st.builds(
        "{},{},{},8.5".format,
        st.sampled_from(["ann", "bö", "cyd"]),
        st.integers(T0, T0 + 99),
        st.integers(0, 80),
    ),
    st.sampled_from(["", "ann,1700000000,47", "ann,soon,47,8", "ann,1700000000,99,8"]),
)


def tables(plan, segments=None):
    """Return the good rows, and those set aside in the order of the file."""
    parsed = list(parsed_batches(plan, segments))
    good = pa.concat_tables([with_texts(batch.good) for batch in parsed])
    return good, pa.concat_tables([batch.bad for batch in parsed]).sort_by("row")


def with_texts(rows):
    """Return rows with texts instead of dictionaries."""
    for name in ("source", "device"):
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.string()))
    return rows


def numbered(source, max_bytes):
    """Return the segments of a source with the numbers of their rows."""
    segments = source.segments(max_bytes)
    return number_rows(segments, [source.count_rows(part) for part in segments])


@given(
    titles=st.sampled_from([[], ["# cabs"], ["# cabs", "", "sep=,"]]),
    rows=st.lists(_rows, min_size=1, max_size=60),
    line_end=st.sampled_from(["\n", "\r\n"]),
    is_ended=st.booleans(),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    max_bytes=st.integers(60, 1500),
)
def test_segments_of_a_text_have_its_rows(
    tmp_path_factory, titles, rows, line_end, is_ended, mark, max_bytes
):
    file = tmp_path_factory.mktemp("segments") / "a.csv"
    lines = [*titles, HEADER, "ann,1700000000,47,8", *rows]
    file.write_bytes(mark + (line_end.join(lines) + line_end * is_ended).encode())
    plan = Options().plan(file)
    segments = numbered(plan.source, max_bytes)
    assert sum(part.end - part.begin for part in segments if part.begin is not None) in (
        0,
        file.stat().st_size,
    )
    assert tables(plan, segments) == tables(plan)


def test_text_with_quotation_marks_is_whole(tmp_path):
    """A quoted text may hold line ends, so nobody knows what is a row without what stands before it."""
    file = tmp_path / "a.csv"
    row = 'ann,1700000000,47,8,"two\nlines"\n'
    file.write_text(f"{HEADER},note\n" + row * 99)
    source = Options().plan(file).source
    assert len(source.segments(1000)) > 2
    assert numbered(source, 1000) == [Segment(file)]


def test_text_with_a_quoted_header_is_split(tmp_path):
    """R and pyarrow quote the header, too: only rows may hold line ends."""
    file = tmp_path / "a.csv"
    rows = [f"ann,{T0 + n},47,8" for n in range(300)]
    file.write_text("\n".join(['"device","ts","lat","lon"', *rows]))
    plan = Options().plan(file)
    segments = numbered(plan.source, 1000)
    assert [part.rows_before for part in segments][:2] == [0, 49]
    assert tables(plan, segments) == tables(plan)


@pytest.mark.parametrize("change", ["packed", "utf-16", "old line ends", "blanks"])
def test_files_that_cannot_be_split_are_whole(tmp_path, change):
    text = "\n".join([HEADER, *(f"ann,{T0 + n},47,8" for n in range(300))])
    content = {
        "packed": gzip.compress(text.encode(), 0),
        "utf-16": text.encode("utf-16"),
        "old line ends": text.replace("\n", "\r").encode(),
        "blanks": text.replace(",", " ").encode(),
    }[change]
    (tmp_path / "a.csv").write_bytes(content)
    plan = Options().plan(tmp_path / "a.csv")
    assert numbered(plan.source, 1000) == [Segment(tmp_path / "a.csv")]


def test_only_files_that_cannot_be_split_are_whole(tmp_path):
    for name, note in (("a", ""), ("b", '"x"'), ("c", "")):
        rows = [f"ann,{T0 + n},47,8,{note}" for n in range(100)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"{HEADER},note", *rows]))
    plan = Options().plan(tmp_path)
    segments = numbered(plan.source, 1000)
    assert [part.file.name for part in segments if part.begin is None] == ["b.csv"]
    assert len(segments) > 5
    assert len(tables(plan, segments)[0]) == 300


@pytest.mark.parametrize("max_bytes", [1, 4000, 1 << 20])
def test_segments_of_parquet_are_row_groups(tmp_path, max_bytes):
    places = [99.0 if n % 50 == 7 else 47.0 for n in range(1000)]
    frame = pd.DataFrame({"device": "ann", "ts": range(T0, T0 + 1000), "lat": places, "lon": 8.0})
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=100)
    plan = Options().plan(tmp_path / "a.parquet")
    segments = plan.source.segments(max_bytes)
    assert len(segments) == {1: 10, 4000: 3, 1 << 20: 1}[max_bytes]
    good, bad = tables(plan, segments)
    assert (good, bad) == tables(plan)
    assert bad["row"].to_pylist() == [n + 1 for n in range(1000) if n % 50 == 7]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 64, 1 << 20])
def test_rows_are_counted_block_by_block(tmp_path, monkeypatch, line_end, block_bytes):
    monkeypatch.setattr("mudkit.trace.formats.segments._COUNT_BYTES", block_bytes)
    file = tmp_path / "a.csv"
    lines = ["", "# cabs", HEADER, "", "ann,1700000000,47,8", "", "", "ann,1700000060,47,8", "", "bob,1,2,3"]
    file.write_bytes(line_end.join(lines).encode())
    source = Options().plan(file).source
    assert source.count_rows(Segment(file)) == 3

"""Sources given as lists, patterns and tables: the same rows as those of a file."""

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import trace
from mudkit.errors import InputMissing, ParameterError, TraceFormatError
from mudkit.files import place
from mudkit.trace.formats import Files, find
from mudkit.trace.schema import REJECTED

T0 = 1_700_000_000
ROWS = [
    (device, T0 + 60 * minute, 47.0 + 0.001 * minute, 8.0 + 0.001 * number)
    for number, device in enumerate(("ann", "bob", "cyd"))
    for minute in range(20)
] + [("ann", T0, 95.0, 170.0), ("", T0, 47.0, 8.0), ("bob", T0 + 60, 47.001, 8.001)]
NAMES = ["device", "ts", "lat", "lon"]


@pytest.fixture
def folder(tmp_path):
    """A folder with all rows in three files."""
    for number in range(3):
        frame = pd.DataFrame(ROWS[number::3], columns=NAMES)
        frame.to_csv(tmp_path / f"part-{number}.csv", index=False)
    return tmp_path


def tables(loaded):
    """Return the tables of a trace; rejected rows without their places in files."""
    names = [name for name in REJECTED.names if name not in ("source", "row", "raw")]
    rejected = loaded.rejected.select(names).sort_by([("reason", "ascending"), ("device", "ascending")])
    return loaded.positions, loaded.reads, rejected


def test_list_and_patterns_have_the_rows_of_the_folder(folder, monkeypatch):
    expected = tables(trace.load(folder))
    assert len(expected[0]) == 60
    assert sorted(expected[2]["reason"].to_pylist()) == [
        "coordinates out of range", "duplicate", "no device",
    ]  # fmt: skip
    files = sorted(folder.glob("*.csv"))
    monkeypatch.chdir(folder)
    for given in (
        files,
        files[::-1],
        [*files, files[0]],
        folder / "part-*.csv",
        "part-?.csv",
        ["part-[01].csv", files[2]],
    ):
        assert tables(trace.load(given)) == expected
        with trace.scan(given) as pieces:
            assert sum(len(piece.positions) for piece in pieces) == 60


def test_lists_and_patterns_of_addresses(folder):
    store = place("memory://given/2024")
    expected = tables(trace.load(folder))
    for file in folder.glob("*.csv"):
        (store / file.name).write_bytes(file.read_bytes())
    names = [f"memory://given/2024/{file.name}" for file in sorted(folder.glob("*.csv"))]
    for given in (names, "memory://given/2024/*.csv", "memory://given/*/part-?.csv", ["memory://given/2024"]):
        assert tables(trace.load(given)) == expected
    with pytest.raises(InputMissing, match="No file fits the pattern memory://given/2024/"):
        trace.load("memory://given/2024/*.gpx")
    with pytest.raises(ParameterError, match="in several stores"):
        trace.load([*names, folder / "part-0.csv"])


def test_checksum_is_that_of_the_files_and_their_names(folder):
    whole = trace.load(folder).source["sha256"]
    assert trace.load(folder / "*.csv").source["sha256"] == whole
    (folder / "notes.txt").write_text("of another day")
    assert trace.load(folder).source["sha256"] == whole
    (folder / "part-0.csv").rename(folder / "part-9.csv")
    assert trace.load(folder).source["sha256"] != whole


def test_columns_in_paths_are_found_behind_a_pattern(tmp_path):
    for device in ("ann", "bob"):
        (tmp_path / f"device={device}").mkdir()
        rows = [row[1:] for row in ROWS if row[0] == device]
        pd.DataFrame(rows, columns=NAMES[1:]).to_csv(tmp_path / f"device={device}" / "a.csv", index=False)
    expected = tables(trace.load(tmp_path))
    assert set(expected[0]["device"].to_pylist()) == {"ann", "bob"}
    for given in ("*/a.csv", "**/*.csv", "device=*"):
        assert tables(trace.load(tmp_path / given)) == expected
    alone = trace.load(tmp_path / "device=ann" / "*.csv")
    assert set(alone.positions["device"].to_pylist()) == {"ann"}


def test_hidden_files_and_brackets_in_names(folder):
    (folder / ".part-3.csv").write_text("not a table")
    assert find(folder / "*.csv") == Files(folder, ("part-0.csv", "part-1.csv", "part-2.csv"))
    plain = folder / "part-[0].csv"
    (folder / "part-1.csv").rename(plain)
    assert find(plain) == plain


def test_table_in_memory_has_the_rows_of_a_file(tmp_path):
    frame = pd.DataFrame(ROWS, columns=NAMES)
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    expected = tables(trace.load(tmp_path / "a.parquet"))
    table = pq.read_table(tmp_path / "a.parquet")
    nested = pa.table({"device": table["device"].dictionary_encode(), "ts": table["ts"],
                       "place": pa.StructArray.from_arrays([table["lat"].combine_chunks(), table["lon"].combine_chunks()],
                                                           names=["lat", "lon"])})  # fmt: skip
    pairs = table.select(["device", "ts"]).append_column(
        "location", pa.array([[lon, lat] for _, _, lat, lon in ROWS])
    )
    mapped = {"columns": {"lat": "place.lat", "lon": "place.lon"}}
    for given, options in ((frame, {}), (table, {}), (nested, mapped), (pairs, {})):
        assert tables(trace.load(given, **options)) == expected
    with trace.scan(table, batch_rows=7) as pieces:
        assert pa.concat_tables([piece.positions for piece in pieces]) == expected[0]
    assert trace.load(table).source["sha256"] == trace.load(frame).source["sha256"]
    assert trace.load(table.slice(1)).source["sha256"] != trace.load(table).source["sha256"]


def test_times_of_a_table_are_read_as_those_of_a_file(tmp_path):
    local = pd.DataFrame(
        [("ann", f"2024-07-01 08:{minute:02}:00", 47.0 + minute / 1000, 8.0) for minute in range(30)],
        columns=NAMES,
    )
    local.to_csv(tmp_path / "a.csv", index=False)
    expected = trace.load(tmp_path / "a.csv", tz="Europe/Zurich").positions
    for ts in (
        local["ts"],
        pd.to_datetime(local["ts"]),
        pd.to_datetime(local["ts"]).dt.tz_localize("Europe/Zurich"),
    ):
        assert trace.load(local.assign(ts=ts), tz="Europe/Zurich").positions == expected


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([], InputMissing, "list of files of the trace is empty"),
        ("*.gpx", InputMissing, r"No file fits the pattern .*\*\.gpx"),
        ("nowhere/*.csv", InputMissing, "nowhere"),
        (["none.csv"], InputMissing, "There is no trace at none.csv"),
        ([7], ParameterError, "named by a path"),
        (7, ParameterError, "named by a path"),
        (pd.DataFrame({"device": ["a"], "ts": [T0], "lat": [1.0]}), TraceFormatError, "lacks columns"),
        (pd.DataFrame({"device": [b"a", 1], "ts": [T0, T0], "lat": [1.0, 2.0], "lon": 1.0}), TraceFormatError, "several kinds"),
    ],
)  # fmt: skip
def test_sources_that_cannot_be_found_are_refused(given, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        trace.load(given)


def test_table_in_memory_has_no_format(tmp_path):
    with pytest.raises(ParameterError, match="has no format"):
        trace.load(pa.table({name: [1] for name in NAMES}), format="gpx")


def test_trace_folder_in_a_list_is_refused(tmp_path):
    trace.load(pd.DataFrame(ROWS, columns=NAMES)).save(tmp_path / "trace")
    (tmp_path / "a.csv").write_text("device,ts,lat,lon\n")
    with pytest.raises(ParameterError, match="is a trace folder already"):
        trace.load([tmp_path / "trace", tmp_path / "a.csv"])

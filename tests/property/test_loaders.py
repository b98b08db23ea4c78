"""Loaders on damaged and split files: every row is kept, or rejected with a reason."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit import trace
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.derive import Rule, derive_reads

T0 = 1_211_100_000  # 2008-05-18T08:40:00Z
PLT = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
PLACE = st.sampled_from([0, 1, 2, 3, 0, 1, 2, 3, 40])  # kilometres; 37 km within minutes is implausible
ROW = st.tuples(st.integers(0, 2), st.integers(0, 40), PLACE)  # device, minutes, place


def sort_nearly(rows, swaps):
    """Sort rows by time and exchange a few: a file most of whose rows are wrong is refused as a whole."""
    rows = sorted(rows, key=lambda row: row[1])
    for i in swaps:
        rows[i % len(rows)], rows[-1 - i % len(rows)] = rows[-1 - i % len(rows)], rows[i % len(rows)]
    return rows


ROWS = st.builds(
    sort_nearly, st.lists(ROW, min_size=2, max_size=30), st.lists(st.integers(0, 29), max_size=2)
)
DAMAGE = st.sampled_from([""] * 20 + ["cut", "more", "noise", "far", "text", "early", "untimed"])
SORT_KEYS = {"source": "ascending", "row": "ascending"}


def iso(minute, sep="T"):
    return str(np.datetime64(T0 + 60 * minute, "s")).replace("T", sep)


def format_fields(kind, row, damage=""):
    """Return the fields of a row in a format, optionally damaged."""
    device, minute, place = row
    lat, lon, t = f"{37 + place / 111.195:.6f}", "-122.4", str(T0 + 60 * minute)
    lat = {"far": "95.5", "text": "north"}.get(damage, lat)
    if damage == "early":
        t = "7"
    if damage == "untimed":
        t = ""
    iso_time = {"early": "1970-01-01T00:00:07", "untimed": ""}.get(damage, iso(minute))
    return {
        "cabspotting": [f"c{device}", t, lat, lon, "1"],
        "cabspotting-txt": [lat, lon, "1", t],
        "geolife": [lat, lon, "0", "-777", "39744.1", *(iso_time.split("T") if iso_time else ["", ""])],
        "gtfs-rt": [f"c{device}", t, lat, lon, "3.5", "route"],
        "gowalla": [f"c{device}", iso_time + "Z", lat, lon, "22847"],
        "csv": [f"c{device}", t, lat, lon],
        "gpx": [iso_time, lat, lon],
        "parquet": [f"c{device}", t, lat, lon],
    }[kind]


HEADERS = {
    "cabspotting": "cab,t,lat,lon,occ\n",
    "gtfs-rt": "vehicle_id,timestamp,latitude,longitude,speed,route_id\n",
    "csv": "device,t,lat,lon\n",
    "geolife": PLT,
}
DELIMITERS = {"cabspotting-txt": " ", "gowalla": "\t"}


def format_lines(kind, rows, damages):
    delimiter, written = DELIMITERS.get(kind, ","), []
    for row, damage in zip(rows, damages, strict=True):
        values = format_fields(kind, row, damage)
        values = {"cut": values[:-1], "more": [*values, "9"], "noise": ["§$%&"]}.get(damage, values)
        written.append(delimiter.join(values))
    return HEADERS.get(kind, "") + "".join(line + "\n" for line in written)


def format_gpx(rows, damages):
    points = []
    for row, damage in zip(rows, damages, strict=True):
        iso_time, lat, lon = format_fields("gpx", row, damage)
        time = "" if damage == "untimed" else f"<time>{iso_time}Z</time>"
        place = f'lat="{lat}" lon="{lon}"'
        place = {"cut": f'lat="{lat}"', "more": place + ' x="1"', "noise": 'lat="§" lon="%"'}.get(
            damage, place
        )
        points.append(f"<trkpt {place}>{time}</trkpt>")
    return f"<gpx><trk><trkseg>{''.join(points)}</trkseg></trk></gpx>"


def write_trace(folder, kind, rows, damages):
    """Write a trace in a format and return its file or folder."""
    folder = Path(folder)
    if kind in ("cabspotting-txt", "geolife", "gpx"):  # one file or folder per device
        for device in sorted({row[0] for row in rows}):
            selected = [(row, damage) for row, damage in zip(rows, damages, strict=True) if row[0] == device]
            name = {"cabspotting-txt": "new_c{}.txt", "geolife": "c{}/Trajectory/1.plt", "gpx": "c{}.gpx"}[
                kind
            ]
            file = folder / name.format(device)
            file.parent.mkdir(parents=True, exist_ok=True)
            text = (
                format_gpx(*zip(*selected, strict=True))
                if kind == "gpx"
                else format_lines(kind, *zip(*selected, strict=True))
            )
            file.write_text(text, encoding="utf-8")
        return folder
    if kind == "parquet":
        table = [format_fields(kind, row, damage) for row, damage in zip(rows, damages, strict=True)]
        columns = [[value or None for value in column] for column in zip(*table, strict=True)]
        pq.write_table(
            pa.table(dict(zip(["device", "ts", "lat", "lon"], columns, strict=True))), folder / "t.parquet"
        )
        return folder / "t.parquet"
    (folder / "trace.txt").write_text(format_lines(kind, rows, damages), encoding="utf-8")
    return folder / "trace.txt"


KINDS = ["cabspotting", "cabspotting-txt", "csv", "geolife", "gowalla", "gpx", "gtfs-rt", "parquet"]


def load_or_none(path, **options):
    """Load a trace; return None if the file as a whole is refused."""
    try:
        return trace.load(path, **options)
    except (TraceFormatError, TraceContentError):
        return None


def sort_by_row(rejected):
    return rejected.sort_by(list(SORT_KEYS.items()))


@pytest.mark.soak(keep=3)
@pytest.mark.parametrize("kind", KINDS)
@examples(40)
@given(rows=ROWS, data=st.data(), batch_rows=st.integers(1, 40))
def test_every_row_is_kept_or_rejected_and_scan_equals_load(kind, rows, data, batch_rows):
    damages = data.draw(st.lists(DAMAGE, min_size=len(rows), max_size=len(rows)))
    rule = data.draw(st.sampled_from([None, "poisson(per_day=500)"]))
    with tempfile.TemporaryDirectory() as folder:
        path = write_trace(folder, kind, rows, damages)
        loaded = load_or_none(path, format=kind, rule=None if kind == "gowalla" else rule)
        if loaded is None:
            with (
                pytest.raises((TraceFormatError, TraceContentError)),
                trace.scan(path, format=kind) as pieces,
            ):
                list(pieces)
            return
        assert loaded.source["format"] == kind
        kept = len(loaded.reads) if kind == "gowalla" else len(loaded.positions)
        assert kept + len(loaded.rejected) == len(rows)
        assert all(loaded.rejected["reason"].to_pylist())
        places = [(row["source"], row["row"]) for row in loaded.rejected.to_pylist()]
        assert len(set(places)) == len(places)
        with trace.scan(
            path, format=kind, rule=None if kind == "gowalla" else rule, batch_rows=batch_rows
        ) as pieces:
            parts = list(pieces)
    assert pa.concat_tables(p.positions for p in parts).equals(loaded.positions)
    reads = pa.concat_tables(p.reads for p in parts)
    assert reads.sort_by("read_id").equals(loaded.reads.sort_by("read_id"))
    assert sort_by_row(pa.concat_tables(p.rejected for p in parts)).equals(sort_by_row(loaded.rejected))


FORM = st.fixed_dictionaries(
    {
        "separator": st.sampled_from(",;\t|"),
        "above": st.lists(st.sampled_from(["# of ann", "Fleet report", ""]), max_size=3),
        "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"]),
        "end": st.sampled_from(["\n", "\r\n"]),
        "field": st.sampled_from(["{}", '"{}"', ' "{}"', " {}"]),
        "last": st.sampled_from(["", "{separator}"]),
        "names": st.booleans(),
        "mark": st.sampled_from(".,"),
    }
)


def format_table(lines, form):
    """Write a table, the first line of which is its header, in some form."""
    separator, last = form["separator"], form["last"].format(**form)
    texts = [[name.replace(".", form["mark"]) for name in line] for line in lines]
    if form["mark"] == separator and '"' not in form["field"]:
        texts = lines
    written = [separator.join(form["field"].format(text) for text in line) + last for line in texts[1:]]
    above = [f"sep={separator}"] if form["names"] else form["above"]
    return form["end"].join([*above, separator.join(lines[0]), *written, ""]).encode(form["encoding"])


@examples(80)
@given(rows=ROWS, form=FORM, data=st.data())
def test_form_of_a_table_does_not_matter(rows, form, data):
    damage = st.sampled_from([""] * 9 + ["far", "text", "early", "untimed"])
    fields = [format_fields("csv", row, data.draw(damage)) for row in rows]
    lines = [HEADERS["csv"].strip().split(","), *fields]
    loads = []
    for content in ("".join(",".join(line) + "\n" for line in lines).encode(), format_table(lines, form)):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "t.csv")
            file.write_bytes(content)
            loads.append(load_or_none(file))
    plain, other = loads
    assert (plain is None) == (other is None)
    if plain is not None:
        assert other.positions.equals(plain.positions)
        assert other.rejected.drop("raw").equals(plain.rejected.drop("raw"))
        assert len(plain.positions) + len(plain.rejected) == len(rows)


@pytest.mark.parametrize("kind", KINDS)
@examples(40)
@given(rows=ROWS)
def test_format_of_undamaged_files_is_recognised(kind, rows):
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_or_none(write_trace(folder, kind, rows, [""] * len(rows)))
    assert loaded is None or loaded.source["format"] == kind


def write_split(folder, kind, rows, file_numbers, names):
    """Write each row into one of several files, in the order of the rows."""
    for number, name in enumerate(names):
        for device in range(3):
            selected = [
                row
                for row, file in zip(rows, file_numbers, strict=True)
                if file == number and row[0] == device
            ]
            if kind == "geolife" and selected:
                file = Path(folder, f"c{device}", "Trajectory", f"{name}.plt")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(format_lines(kind, selected, [""] * len(selected)))
        selected = [row for row, file in zip(rows, file_numbers, strict=True) if file == number]
        if kind == "csv" and selected:
            Path(folder, f"{name}.csv").write_text(format_lines(kind, selected, [""] * len(selected)))


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("kind", ["geolife", "csv"])
@examples(60)
@given(rows=st.lists(ROW, min_size=2, max_size=25), data=st.data())
def test_file_names_row_order_and_split_do_not_matter(kind, rows, data):
    """Include rows that are out of order."""
    numbers = st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))
    names = st.permutations(["a", "b", "c"])
    loads = []
    for file_numbers in (data.draw(numbers), data.draw(numbers), [0] * len(rows)):
        with tempfile.TemporaryDirectory() as folder:
            write_split(folder, kind, data.draw(st.permutations(rows)), file_numbers, data.draw(names))
            loads.append(load_or_none(folder, rule="trip_start"))
    assert len({loaded is None for loaded in loads}) == 1
    if loads[0] is not None:
        for other in loads[1:]:
            assert other.positions.equals(loads[0].positions)
            assert other.reads.equals(loads[0].reads)
            assert other.rejected_by_reason() == loads[0].rejected_by_reason()


@examples(60)
@given(
    rows=st.lists(
        st.tuples(ROW, st.sampled_from(["", "3.5", "9"]), st.sampled_from(["", "0", "1"])),
        min_size=2,
        max_size=25,
    ),
    data=st.data(),
)
def test_same_duplicate_is_kept_in_any_row_order(rows, data):
    """Draw duplicates with different speeds and occupancies."""
    loads = []
    for _ in range(2):
        texts = [[], []]
        for row, speed, fare in data.draw(st.permutations(rows)):
            texts[data.draw(st.integers(0, 1))].append(
                ",".join([*format_fields("csv", row), speed, fare]) + "\n"
            )
        with tempfile.TemporaryDirectory() as folder:
            for name, text in zip("ab", texts, strict=True):
                if text:
                    header = "device,t,lat,lon,speed_mps,occupied\n"
                    Path(folder, f"{name}.csv").write_text(header + "".join(text))
            loads.append(load_or_none(folder, rule="occupancy"))
    one, other = loads
    assert (one is None) == (other is None)
    if one is not None:
        assert other.positions.equals(one.positions)
        assert other.reads.equals(one.reads)
        assert other.rejected_by_reason() == one.rejected_by_reason()


@examples(40)
@given(rows=st.lists(ROW, min_size=1, max_size=25), data=st.data())
def test_access_log_is_independent_of_row_order_and_files(rows, data):
    loads = []
    for _ in range(2):
        texts = [[], []]
        for row in data.draw(st.permutations(rows)):
            texts[data.draw(st.integers(0, 1))].append(",".join(format_fields("csv", row)) + "\n")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in zip("ab", texts, strict=True):
                if text:
                    Path(folder, f"{name}.csv").write_text("device,t,lat,lon\n" + "".join(text))
            loads.append(trace.load(folder, table="reads"))
    assert loads[1].reads.equals(loads[0].reads)
    assert loads[1].rejected_by_reason() == loads[0].rejected_by_reason()


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("kind", KINDS)
@examples(40)
@given(rows=ROWS, data=st.data())
def test_loads_of_a_trace_split_by_device_equal_one_load(kind, rows, data):
    cut = data.draw(st.integers(1, 2))
    parts = [rows, [row for row in rows if row[0] < cut], [row for row in rows if row[0] >= cut]]
    loads = []
    for part in parts:
        if not part:
            return
        with tempfile.TemporaryDirectory() as folder:
            loads.append(load_or_none(write_trace(folder, kind, part, [""] * len(part)), format=kind))
    if any(loaded is None for loaded in loads):
        return
    whole, *halves = loads
    assert pa.concat_tables(half.positions for half in halves).equals(whole.positions)
    reads = pa.concat_tables(half.reads for half in halves)
    assert reads.sort_by("read_id").equals(whole.reads.sort_by("read_id"))
    assert sum(len(half.rejected) for half in halves) == len(whole.rejected)


def build_positions(rows):
    """Build positions ordered by device and time, without duplicate times of a device."""
    rows = sorted({(row[0], row[1]): row for row in rows}.values())
    return pa.table(
        {
            "device": [f"c{row[0]}" for row in rows],
            "ts": pa.array([(T0 + 60 * row[1]) * 1_000_000 for row in rows], pa.timestamp("us", tz="UTC")),
            "lat": [37 + row[2] / 100 for row in rows],
            "lon": [-122.4] * len(rows),
        }
    )


def derive_poisson(positions, per_day=1440.0, seed=3):
    rule = Rule("poisson", per_day=per_day, seed=seed)
    return derive_reads(positions, rule, box_km=1, window_s=60)


@given(rows=st.lists(ROW, min_size=1, max_size=60), per_day=st.sampled_from([3.0, 1440.0, 20_000.0]))
def test_poisson_reads_are_independent_of_other_devices(rows, per_day):
    table = build_positions(rows)
    together = derive_poisson(table, per_day).to_pylist()
    for device in set(table["device"].to_pylist()):
        alone = table.filter(pa.array([name == device for name in table["device"].to_pylist()]))
        assert derive_poisson(alone, per_day).to_pylist() == [
            row for row in together if row["device"] == device
        ]


@given(rows=st.lists(ROW, min_size=1, max_size=60), minute=st.integers(0, 40))
def test_split_in_time_loses_only_poisson_reads_at_the_cut(rows, minute):
    """Check that only reads between the last position before the cut and the first one after are lost."""
    table = build_positions(rows)
    t_min = [int(t.timestamp() - T0) // 60 for t in table["ts"].to_pylist()]
    parts = [table.filter(pa.array([(t < minute) == early for t in t_min])) for early in (True, False)]
    cut = {row["read_id"] for part in parts for row in derive_poisson(part).to_pylist()}
    whole = {row["read_id"]: row for row in derive_poisson(table).to_pylist()}
    assert cut <= set(whole)
    for lost in set(whole) - cut:
        row = whole[lost]
        around = [
            t for t, name in zip(t_min, table["device"].to_pylist(), strict=True) if name == row["device"]
        ]
        at_min = (row["ts"].timestamp() - T0) / 60
        assert max(t for t in around if t < minute) <= at_min < min(t for t in around if t >= minute)

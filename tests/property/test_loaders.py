"""Whatever a file holds: every row is kept or set aside with a reason, however it is read, cut and named."""

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
PLACE = st.sampled_from([0, 1, 2, 3, 0, 1, 2, 3, 40])  # kilometres; nobody is 37 km away within minutes
ROW = st.tuples(st.integers(0, 2), st.integers(0, 40), PLACE)  # device, minutes, place


def nearly_in_order(rows, swaps):
    """Sort rows by time and exchange a few: a file most of whose rows are wrong is refused as a whole."""
    rows = sorted(rows, key=lambda row: row[1])
    for i in swaps:
        rows[i % len(rows)], rows[-1 - i % len(rows)] = rows[-1 - i % len(rows)], rows[i % len(rows)]
    return rows


ROWS = st.builds(
    nearly_in_order, st.lists(ROW, min_size=2, max_size=30), st.lists(st.integers(0, 29), max_size=2)
)
DAMAGE = st.sampled_from([""] * 20 + ["cut", "more", "noise", "far", "text", "early", "untimed"])
BOTH = {"source": "ascending", "row": "ascending"}


def iso(minute, sep="T"):
    return str(np.datetime64(T0 + 60 * minute, "s")).replace("T", sep)


def fields(kind, row, damage=""):
    """Write the fields of a row as the format has them, perhaps damaged."""
    device, minute, place = row
    lat, lon, t = f"{37 + place / 111.195:.6f}", "-122.4", str(T0 + 60 * minute)
    lat = {"far": "95.5", "text": "north"}.get(damage, lat)
    if damage == "early":
        t = "7"
    if damage == "untimed":
        t = ""
    when = {"early": "1970-01-01T00:00:07", "untimed": ""}.get(damage, iso(minute))
    return {
        "cabspotting": [f"c{device}", t, lat, lon, "1"],
        "cabspotting-txt": [lat, lon, "1", t],
        "geolife": [lat, lon, "0", "-777", "39744.1", *(when.split("T") if when else ["", ""])],
        "gtfs-rt": [f"c{device}", t, lat, lon, "3.5", "route"],
        "gowalla": [f"c{device}", when + "Z", lat, lon, "22847"],
        "csv": [f"c{device}", t, lat, lon],
        "gpx": [when, lat, lon],
        "parquet": [f"c{device}", t, lat, lon],
    }[kind]


HEADERS = {
    "cabspotting": "cab,t,lat,lon,occ\n",
    "gtfs-rt": "vehicle_id,timestamp,latitude,longitude,speed,route_id\n",
    "csv": "device,t,lat,lon\n",
    "geolife": PLT,
}
DELIMITERS = {"cabspotting-txt": " ", "gowalla": "\t"}


def lines(kind, rows, damages):
    delimiter, written = DELIMITERS.get(kind, ","), []
    for row, damage in zip(rows, damages, strict=True):
        values = fields(kind, row, damage)
        values = {"cut": values[:-1], "more": [*values, "9"], "noise": ["§$%&"]}.get(damage, values)
        written.append(delimiter.join(values))
    return HEADERS.get(kind, "") + "".join(line + "\n" for line in written)


def gpx(rows, damages):
    points = []
    for row, damage in zip(rows, damages, strict=True):
        when, lat, lon = fields("gpx", row, damage)
        time = "" if damage == "untimed" else f"<time>{when}Z</time>"
        place = f'lat="{lat}" lon="{lon}"'
        place = {"cut": f'lat="{lat}"', "more": place + ' x="1"', "noise": 'lat="§" lon="%"'}.get(
            damage, place
        )
        points.append(f"<trkpt {place}>{time}</trkpt>")
    return f"<gpx><trk><trkseg>{''.join(points)}</trkseg></trk></gpx>"


def write(folder, kind, rows, damages):
    """Write a trace of one format and name its file or folder."""
    folder = Path(folder)
    if kind in ("cabspotting-txt", "geolife", "gpx"):  # a file or folder a device
        for device in sorted({row[0] for row in rows}):
            mine = [(row, damage) for row, damage in zip(rows, damages, strict=True) if row[0] == device]
            name = {"cabspotting-txt": "new_c{}.txt", "geolife": "c{}/Trajectory/1.plt", "gpx": "c{}.gpx"}[
                kind
            ]
            file = folder / name.format(device)
            file.parent.mkdir(parents=True, exist_ok=True)
            text = gpx(*zip(*mine, strict=True)) if kind == "gpx" else lines(kind, *zip(*mine, strict=True))
            file.write_text(text, encoding="utf-8")
        return folder
    if kind == "parquet":
        table = [fields(kind, row, damage) for row, damage in zip(rows, damages, strict=True)]
        columns = [[value or None for value in column] for column in zip(*table, strict=True)]
        pq.write_table(
            pa.table(dict(zip(["device", "ts", "lat", "lon"], columns, strict=True))), folder / "t.parquet"
        )
        return folder / "t.parquet"
    (folder / "trace.txt").write_text(lines(kind, rows, damages), encoding="utf-8")
    return folder / "trace.txt"


KINDS = ["cabspotting", "cabspotting-txt", "csv", "geolife", "gowalla", "gpx", "gtfs-rt", "parquet"]


def loaded_or_none(path, **options):
    """Load; None when the file as a whole is refused."""
    try:
        return trace.load(path, **options)
    except (TraceFormatError, TraceContentError):
        return None


def by_place(rejected):
    return rejected.sort_by(list(BOTH.items()))


@pytest.mark.soak(keep=3)
@pytest.mark.parametrize("kind", KINDS)
@examples(40)
@given(rows=ROWS, data=st.data(), batch_rows=st.integers(1, 40))
def test_every_row_is_kept_or_set_aside_and_scan_is_load(kind, rows, data, batch_rows):
    damages = data.draw(st.lists(DAMAGE, min_size=len(rows), max_size=len(rows)))
    rule = data.draw(st.sampled_from([None, "poisson(per_day=500)"]))
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, kind, rows, damages)
        loaded = loaded_or_none(path, format=kind, rule=None if kind == "gowalla" else rule)
        if loaded is None:
            with pytest.raises((TraceFormatError, TraceContentError)), trace.scan(path, kind) as pieces:
                list(pieces)
            return
        assert loaded.source["format"] == kind
        kept = len(loaded.reads) if kind == "gowalla" else len(loaded.positions)
        assert kept + len(loaded.rejected) == len(rows)
        assert all(loaded.rejected["reason"].to_pylist())
        places = [(row["source"], row["row"]) for row in loaded.rejected.to_pylist()]
        assert len(set(places)) == len(places)
        with trace.scan(
            path, kind, rule=None if kind == "gowalla" else rule, batch_rows=batch_rows
        ) as pieces:
            parts = list(pieces)
    assert pa.concat_tables(p.positions for p in parts).equals(loaded.positions)
    reads = pa.concat_tables(p.reads for p in parts)
    assert reads.sort_by("read_id").equals(loaded.reads.sort_by("read_id"))
    assert by_place(pa.concat_tables(p.rejected for p in parts)).equals(by_place(loaded.rejected))


@pytest.mark.parametrize("kind", KINDS)
@examples(40)
@given(rows=ROWS)
def test_auto_recognises_what_is_whole(kind, rows):
    with tempfile.TemporaryDirectory() as folder:
        loaded = loaded_or_none(write(folder, kind, rows, [""] * len(rows)))
    assert loaded is None or loaded.source["format"] == kind


def spread(folder, kind, rows, of, names):
    """Write each row into one of several files, in the order of the rows."""
    for number, name in enumerate(names):
        for device in range(3):
            mine = [row for row, file in zip(rows, of, strict=True) if file == number and row[0] == device]
            if kind == "geolife" and mine:
                file = Path(folder, f"c{device}", "Trajectory", f"{name}.plt")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(lines(kind, mine, [""] * len(mine)))
        mine = [row for row, file in zip(rows, of, strict=True) if file == number]
        if kind == "csv" and mine:
            Path(folder, f"{name}.csv").write_text(lines(kind, mine, [""] * len(mine)))


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("kind", ["geolife", "csv"])
@examples(60)
@given(rows=st.lists(ROW, min_size=2, max_size=25), data=st.data())
def test_neither_names_of_files_nor_order_nor_how_rows_are_spread_matters(kind, rows, data):
    """Also of rows that come late."""
    of = st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))
    names = st.permutations(["a", "b", "c"])
    loads = []
    for where in (data.draw(of), data.draw(of), [0] * len(rows)):
        with tempfile.TemporaryDirectory() as folder:
            spread(folder, kind, data.draw(st.permutations(rows)), where, data.draw(names))
            loads.append(loaded_or_none(folder, rule="trip_start"))
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
def test_of_rows_at_one_place_and_time_the_same_one_is_kept_however_they_come(rows, data):
    """They say different speeds and fares."""
    loads = []
    for _ in range(2):
        texts = [[], []]
        for row, speed, fare in data.draw(st.permutations(rows)):
            texts[data.draw(st.integers(0, 1))].append(",".join([*fields("csv", row), speed, fare]) + "\n")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in zip("ab", texts, strict=True):
                if text:
                    header = "device,t,lat,lon,speed_mps,occupied\n"
                    Path(folder, f"{name}.csv").write_text(header + "".join(text))
            loads.append(loaded_or_none(folder, rule="occupancy"))
    one, other = loads
    assert (one is None) == (other is None)
    if one is not None:
        assert other.positions.equals(one.positions)
        assert other.reads.equals(one.reads)
        assert other.rejected_by_reason() == one.rejected_by_reason()


@examples(40)
@given(rows=st.lists(ROW, min_size=1, max_size=25), data=st.data())
def test_neither_order_nor_files_matter_to_an_access_log(rows, data):
    loads = []
    for _ in range(2):
        texts = [[], []]
        for row in data.draw(st.permutations(rows)):
            texts[data.draw(st.integers(0, 1))].append(",".join(fields("csv", row)) + "\n")
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
def test_two_loads_of_a_trace_cut_between_devices_are_one(kind, rows, data):
    cut = data.draw(st.integers(1, 2))
    parts = [rows, [row for row in rows if row[0] < cut], [row for row in rows if row[0] >= cut]]
    loads = []
    for part in parts:
        if not part:
            return
        with tempfile.TemporaryDirectory() as folder:
            loads.append(loaded_or_none(write(folder, kind, part, [""] * len(part)), format=kind))
    if any(loaded is None for loaded in loads):
        return
    whole, *halves = loads
    assert pa.concat_tables(half.positions for half in halves).equals(whole.positions)
    reads = pa.concat_tables(half.reads for half in halves)
    assert reads.sort_by("read_id").equals(whole.reads.sort_by("read_id"))
    assert sum(len(half.rejected) for half in halves) == len(whole.rejected)


def a_trace(rows):
    """Positions every few minutes, ordered by device and time, each device's times once."""
    rows = sorted({(row[0], row[1]): row for row in rows}.values())
    return pa.table(
        {
            "device": [f"c{row[0]}" for row in rows],
            "ts": pa.array([(T0 + 60 * row[1]) * 1_000_000 for row in rows], pa.timestamp("us", tz="UTC")),
            "lat": [37 + row[2] / 100 for row in rows],
            "lon": [-122.4] * len(rows),
        }
    )


def poisson(positions, per_day=1440.0, seed=3):
    rule = Rule("poisson", per_day=per_day, seed=seed)
    return derive_reads(positions, rule, box_km=1, window_s=60)


@given(rows=st.lists(ROW, min_size=1, max_size=60), per_day=st.sampled_from([3.0, 1440.0, 20_000.0]))
def test_poisson_reads_of_a_device_are_its_own(rows, per_day):
    table = a_trace(rows)
    together = poisson(table, per_day).to_pylist()
    for device in set(table["device"].to_pylist()):
        alone = table.filter(pa.array([name == device for name in table["device"].to_pylist()]))
        assert poisson(alone, per_day).to_pylist() == [row for row in together if row["device"] == device]


@given(rows=st.lists(ROW, min_size=1, max_size=60), minute=st.integers(0, 40))
def test_poisson_reads_of_a_trace_cut_in_time(rows, minute):
    """A cut loses the reads between the last position before it and the first one after, and no others."""
    table = a_trace(rows)
    t_min = [int(t.timestamp() - T0) // 60 for t in table["ts"].to_pylist()]
    parts = [table.filter(pa.array([(t < minute) == early for t in t_min])) for early in (True, False)]
    cut = {row["read_id"] for part in parts for row in poisson(part).to_pylist()}
    whole = {row["read_id"]: row for row in poisson(table).to_pylist()}
    assert cut <= set(whole)
    for lost in set(whole) - cut:
        row = whole[lost]
        around = [
            t for t, name in zip(t_min, table["device"].to_pylist(), strict=True) if name == row["device"]
        ]
        at = (row["ts"].timestamp() - T0) / 60
        assert max(t for t in around if t < minute) <= at < min(t for t in around if t >= minute)

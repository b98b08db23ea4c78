"""Errors of the loaders for invalid files and options."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import trace
from mudkit.errors import InputMissing, ParameterError, TraceContentError, TraceFormatError
from mudkit.trace.derive import Rule
from mudkit.trace.schema import LINKS

T0 = 1_211_100_000
FOLDER = object()
GPX = '<gpx><trkpt lat="1" lon="2"><time>2020-01-01T00:00:00Z</time></trkpt></gpx>'
PLT = "Geolife trajectory\n" + "x\n" * 5 + "39.98,116.3,0,492,39744.1,2008-10-23,02:53:04\n"
ENTITIES = "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
LAUGHS = (
    f'<?xml version="1.0"?><!DOCTYPE gpx [<!ENTITY a "ha">{ENTITIES}]><gpx><trk><name>&j;</name></trk></gpx>'
)
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE gpx [<!ENTITY x SYSTEM "file:///etc/passwd">]><gpx>&x;</gpx>'
ROUTE = "".join(f'<rtept lat="47.{i}" lon="8.5"></rtept>' for i in range(9))


def build_table(*rows, header="device,t,lat,lon"):
    return "\n".join([header, *rows, ""])


def build_points(row, count=5, start=T0):
    return build_table(*(row.format(start + i, i % 3) for i in range(count)))


def encode_parquet(columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def defer_load(**options):
    return lambda file: trace.load(file, **options)


def defer_links(**options):
    return lambda file: trace.load_links(file, **options)


A = build_points("a,{},1,2", 90).splitlines()[1:]
CABS = build_table(
    *(f"{cab},{T0 + 60 * i},37.7{i},-122.4,0" for cab in "ab" for i in range(5)), header="cab,t,lat,lon,occ"
)
COLUMNS = {"device": ["a"] * 3, "t": [T0, T0 + 1, T0 + 2], "lat": [1.0] * 3, "lon": [2.0] * 3}
DRIVING = "network,test,time_local,mbps,mph,lat,lon,area_type"
DRIVEN = "att,TCP,2023-04-04 09:49:{} CDT,{},3,44,-93,x"
DIVVY = "ride_id,started_at,ended_at,start_lat,start_lng,end_lat,end_lng"
UP = build_table("a,1704067200,1", header="device,ts,up")
AWARE = "time,screen_status"

FORMATS = [
    ("Latin-1", trace.load, build_points("café,{},1,2").encode("latin-1"), "UTF-8"),
    ("Latin-1 in a short line", trace.load, build_table("café", *A).encode("latin-1"), "UTF-8"),
    ("quotation marks that are not closed", trace.load, build_table(*(f'"{row}' for row in A)), "quotation mark that is not closed"),
    ("a header without a line end", trace.load, "device,t,lat,lon", "no rows"),
    ("an empty file", trace.load, "", "is empty"),
    ("blank lines", trace.load, "\n\n", "is empty"),
    ("blank lines of CSV", defer_load(format="csv"), "\n\n  \n", "is empty"),
    ("a folder without a trace", lambda file: trace.read_table(file, "positions"), FOLDER, "is not a trace"),
    ("a picture", trace.load, b"\x89PNG\r\n\x1a\n" + bytes(100), "not a file of a known format"),
    ("a document", trace.load, "%PDF-1.4\n%abc\n", "is a PDF document"),
    ("JSON", trace.load, '{"device": "a", "t": 3}\n', "lacks columns"),
    ("starts and ends", trace.load, f"{DIVVY}\n1,2023-11-14 22:13:20,x,1,2,3,4\n", r"trips, each with a start[\s\S]*'lat': 'start_lat'[\s\S]*--column ts=started_at"),
    ("stations", trace.load, "trip_id,start_time,end_time,from_station_id,to_station_id\n1,2,3,4,5\n", "trips between stations"),
    ("eastings", trace.load, f"id,time,UTM_Easting,UTM_Northing\na,{T0},465123,5247000\n", r"metres of a projection[\s\S]*pyproj"),
    ("metres", trace.load, build_points("a,{},5247000.5,46512{}.5"), r"5 coordinates in metres of a projection[\s\S]*pyproj"),
    ("whole metres", trace.load, build_points("a,{},5247000,46512{}"), r"5 coordinates in millionths[\s\S]*divide[\s\S]*pyproj"),
    ("degrees and minutes", trace.load, build_points("a,{},4722.50{},-830.0"), r"5 coordinates in degrees and minutes[\s\S]*47\.375"),
    ("missing columns", trace.load, "device,t,speed\na,1,2\n", "lat, lon"),
    ("missing columns of GTFS", defer_load(format="gtfs-rt"), "trip_id,vehicle_id,timestamp\n1,2,3\n", "lat, lon"),
    ("times in ms", defer_load(time_unit="s"), build_points("a,{}000,1,2"), "time_unit='auto'"),
    ("times of another clock", trace.load, build_points("a,1{},1,2"), "before 1980 or after 2100"),
    ("microdegrees", trace.load, build_points("a,{},37700000,-122400000"), r"5 coordinates in millionths of a degree[\s\S]*divide"),
    ("exchanged coordinates", trace.load, build_points("a,{},-122,37"), "exchanged"),
    ("no numbers", trace.load, build_table("a,x,y,z", "b,x,y,z"), "cannot be read"),
    ("three devices of one name", trace.load, build_points("a,{},{},2", 1000), "which column is the device"),
    ("truncated Parquet", trace.load, b"PAR1" + bytes(50), "cannot be read"),
    ("a device of another type", trace.load, encode_parquet(COLUMNS | {"device": [{"a": 1}] * 3}), "not what they should be"),
    ("a latitude of another type", trace.load, encode_parquet(COLUMNS | {"lat": [[1.0]] * 3}), "not what they should be"),
    ("a time of another type", trace.load, encode_parquet(COLUMNS | {"t": pa.array([1, 2, 3], pa.time32("s"))}), "not what they should be"),
    ("a device that is no text", trace.load, encode_parquet(COLUMNS | {"device": [b"\xff"] * 3}), "not what they should be"),
    *(
        (f"no {kind}", defer_load(format=kind), build_table(*A), "not a file of a known format")
        for kind in ("geolife", "gowalla", "gpx")
    ),
    ("a folder of no format", trace.load, FOLDER, "folder of no known format"),
    ("a mapped column that is missing", defer_load(columns={"device": "no_such"}), CABS, "no_such"),
    ("a misspelled column", defer_load(columns={"device": "vehicl"}), "vehicle,t,lat,lon\na,1,2,3\n", r"vehicl \(perhaps vehicle\)"),
    ("no folder of a trace", trace.read_manifest, CABS, r"mudkit trace load .*\.csv --out FOLDER first"),
    ("GPX with entities", trace.load, LAUGHS, "declares entities"),
    ("GPX with an outside entity", trace.load, OUTSIDE, "entities"),
    ("KML of another root", defer_load(format="kml"), '<?xml version="1.0"?><gpx><kml></kml></gpx>', "but no KML"),
    ("GPX that is cut", trace.load, "<gpx><trk><trkseg>", r"cut short[\s\S]*get the file again"),
    ("GPX with a wrong tag", trace.load, "<gpx><trk></gpx>", r"mismatched tag[\s\S]*check the file"),
    ("GPX with a control character", trace.load, "<gpx>\x01</gpx>", "cannot be read"),
    ("GPX without times", trace.load, f"<gpx><rte>{ROUTE}</rte></gpx>", "have no time"),
    ("links: a folder", trace.load_links, FOLDER, "is a folder"),
    ("links: other columns", trace.load_links, "a,b\n1,2\n", "lacks columns"),
    ("links: a column missing", defer_links(format="driving-throughput"), "network,test,time_local\n1,2,3\n", "mbps"),
    ("links: no Parquet", defer_links(format="parquet"), "a,b\n1,2\n", "not a Parquet"),
    ("links: bad rows", trace.load_links, build_table(DRIVEN.format(13, "x"), DRIVEN.format(14, -1), DRIVEN.format(15, 2), header=DRIVING), r"Most rows .* cannot be used"),
    ("links: contradictions", trace.load_links, build_table(*(DRIVEN.format(13, i) for i in range(3)), header=DRIVING), "contradict"),
    ("links: another zone", defer_links(tz="Europe/Berlin"), build_table(DRIVEN.format(13, 5), header=DRIVING), "time zone"),
    ("links: an empty file", trace.load_links, "", "is empty"),
    ("links: truncated Parquet", defer_links(format="parquet"), b"PAR1 and no more", "cannot be read"),
    ("links: other types", trace.load_links, encode_parquet({"device": ["a"], "ts": [[1]], "up": [True]}), "not what they should be"),
    ("unlocks: a folder", trace.load_unlocks, FOLDER, "is a folder"),
    ("unlocks: another log", trace.load_unlocks, "time,battery_level,battery_status\n1,2,3\n", r"not a log of AWARE's screen[\s\S]*battery_level"),
    ("unlocks: another clock", trace.load_unlocks, f"{AWARE}\n1{T0},3\n", "1 time before 1980"),
    ("unlocks: an empty file", trace.load_unlocks, "", "is empty"),
]  # fmt: skip
CONTENTS = [
    (
        "rows that are numbered",
        trace.load,
        build_table(*(f"{i},{T0 + i},47,8" for i in range(9)), header="id,t,lat,lon"),
        r"'id' numbers the rows[\s\S]*--device ann",
    ),
    ("only a header", trace.load, build_table(), "no rows"),
    ("one position", trace.load, build_points("a,{},1,2", 1), "more than one position"),
    (
        "one position twice",
        trace.load,
        build_table(A[0], A[0]),
        "1 row of 1 device; 1 row set aside: duplicate",
    ),
    ("GPX without points", trace.load, "<gpx></gpx>", "no rows"),
    ("links: no rows", trace.load_links, build_table(header=DRIVING), "holds no rows"),
    ("links: Parquet without rows", trace.load_links, encode_parquet(LINKS.empty_table()), "holds no rows"),
    ("unlocks: no rows", trace.load_unlocks, build_table(header=AWARE), "holds no rows"),
    (
        "unlocks: none",
        trace.load_unlocks,
        f"{AWARE}\n{T0},0\n{T0 + 1},1\n",
        r"holds no unlock[\s\S]*1 off, 1 on",
    ),
]
OPTIONS = [
    ("format", defer_load(format="gpx2"), CABS, "no such format"),
    ("columns", defer_load(columns={"latitude": "x"}), CABS, "columns that a trace does not have"),
    *((f"columns {columns!r}", defer_load(columns=columns), CABS, "names of columns") for columns in (3, "lat", ["lat"])),
    ("table", defer_load(table="rows"), CABS, "positions or reads"),
    ("tz", defer_load(tz="Mars/Olympus"), CABS, "a time zone"),
    ("time_unit", defer_load(time_unit="min"), CABS, "auto, s, ms"),
    ("box_km of 0", defer_load(box_km=0), CABS, "side over 0"),
    ("box_km that is no number", defer_load(box_km=float("nan")), CABS, "side over 0"),
    ("window_s below 0", defer_load(window_s=-1), CABS, "seconds over 0"),
    ("window_s of ages", defer_load(window_s=1e13), CABS, "up to 3.2e9"),
    ("rule", defer_load(rule="often"), CABS, "no such rule"),
    ("a misspelled rule", defer_load(rule="poison"), CABS, "did you mean 'poisson'"),
    ("a misspelled rule of trips", defer_load(rule="trip_strat(still_s=3)"), CABS, "did you mean 'trip_start'"),
    ("columns of GeoLife", defer_load(columns={"device": "x"}), PLT, "columns of its own"),
    ("columns of GPX", defer_load(columns={"device": "x"}), GPX, "columns of its own"),
    ("links: format", defer_links(format="xml"), "a,b\n1,2\n", "no such format"),
    ("links: tz", defer_links(tz="Minneapolis"), build_table(DRIVEN.format(13, 5), header=DRIVING), "tz"),
    ("links: outage of recorded states", defer_links(outage_s=5), UP, "says itself"),
    *(
        (f"links: {name} of {value!r}", defer_links(**{name: value}), build_table(DRIVEN.format(13, 5), header=DRIVING), "number over 0")
        for name, value in (("outage_kbps", 0), ("outage_kbps", "100"), ("outage_s", -1), ("outage_s", float("nan")))
    ),
    *(
        (f"batch_rows={rows!r}", lambda file, rows=rows: trace.scan(file, batch_rows=rows), CABS, "batch_rows")
        for rows in (0, -1, 1.5, True, "many")
    ),
    *(
        (f"the rule {rule!r}", lambda _, rule=rule: Rule.parse(rule), None, "rule")
        for rule in (
            "", "poisson", "poisson()", "poisson(seed=1)", "poisson(per_day=0)", "poisson(per_day=-1)", "poisson(per_day=1e9)",
            "poisson(per_day=inf)", "poisson(per_day=24, seed=1.5)", "poisson(per_day=24, per_day=24)", "poisson(24)",
            "occupancy(still_s=3)", "trip_start(3)", "trip_start(still_s=1.2.3)", "trip_start(still_s=-1)", "trip_start(still_s=600",
        )
    ),
    ("a rule of rate 0", lambda _: Rule("poisson", per_day=0.0), None, "READS a day"),
    ("a rule of no rate", lambda _: Rule("poisson", per_day=float("nan")), None, "READS a day"),
    ("a rule of negative rest", lambda _: Rule("poisson", still_s=-1.0), None, "SECONDS are not negative"),
    ("a rule of another name", lambda _: Rule("often"), None, "rule"),
    ("a number as a path", lambda _: trace.load(3), "", "named by a path"),
]  # fmt: skip
MISSING = [
    ("trace", trace.load, None, "no trace at"),
    ("scan", trace.scan, None, "no trace at"),
    ("links", trace.load_links, None, "There is no file of links at"),
    ("unlocks", trace.load_unlocks, None, "no phone log at"),
]
REFUSED = {
    f"{error.__name__}: {name}": (error, *case)
    for error, cases in (
        (TraceFormatError, FORMATS),
        (TraceContentError, CONTENTS),
        (ParameterError, OPTIONS),
        (InputMissing, MISSING),
    )
    for name, *case in cases
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_input_raises_error(tmp_path, case):
    error, call, content, pattern = REFUSED[case]
    is_gpx, is_plt = "GPX" in case, "GeoLife" in case
    file = tmp_path / ("ride.gpx" if is_gpx else "a.plt" if is_plt else "trace.csv")
    if content is FOLDER:
        file.mkdir()
    elif content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=pattern) as caught:
        call(file)
    assert caught.value.found
    assert caught.value.expected
    assert file.name in str(caught.value) or error is ParameterError


def test_trace_of_another_version_is_refused(tmp_path):
    trace.generate(2, 1, path=tmp_path / "run")
    manifest = tmp_path / "run" / "trace.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format_version": 99}))
    with pytest.raises(TraceFormatError, match=r"another format version(.|\n)*99(.|\n)*make it again"):
        trace.load(tmp_path / "run")

"""A small sample of each format of traces, made by hand: its files, its rows, and what is set aside."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import shapely
from google.transit import gtfs_realtime_pb2

from mudkit.trace.parse import FIELDS, UNPLACED, UNREADABLE

T0 = 1_211_100_000  # 2008-05-18T08:40:00Z
MINUTES = [f"2008-05-18T{8 + (40 + i) // 60:02d}:{(40 + i) % 60:02d}:00Z" for i in range(30)]


@dataclass(frozen=True)
class Sample:
    """Files of a trace.

    Attributes
    ----------
    files : dict
        Content by name; several files are loaded as a folder.
    rows : int
        Rows in all files.
    aside : dict
        Rows set aside, by reason.
    nearly, error : dict, str
        Files that are nearly right, and a part of the error that they raise.
    """

    files: dict[str, bytes]
    rows: int
    aside: dict[str, int]
    nearly: dict[str, bytes]
    error: str
    options: dict[str, object] = field(default_factory=dict)

    def write(self, folder: Path, files: dict[str, bytes] | None = None) -> Path:
        """Write the files, and return the file or the folder to load."""
        files = self.files if files is None else files
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder / next(iter(files)) if len(files) == 1 else folder


def lines(*texts: str) -> bytes:
    return "".join(text + "\n" for text in texts).encode()


def cab_lines(pattern: str, devices: str = "ab", count: int = 10) -> list[str]:
    """Fill a pattern with device, number, time, ISO time, latitude and longitude."""
    return [
        pattern.format(d=d, n=n, t=T0 + 60 * n, iso=MINUTES[n], lat=round(37 + n / 1000, 3), lon=-122.4)
        for d in devices
        for n in range(count)
    ]


def gpx(*inner: str) -> bytes:
    space = 'xmlns="http://www.topografix.com/GPX/1/1"'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<gpx version="1.1" {space}>{"".join(inner)}</gpx>'.encode()
    )


def gpx_track(name: str, *points: str) -> str:
    return f"<trk><name>{name}</name><trkseg>{''.join(points)}</trkseg></trk>"


TRKPT = '<trkpt lat="{lat}" lon="{lon}"><time>{iso}</time></trkpt>'
WAYPOINT = '<wpt lat="46" lon="7"><time>2020-01-01T00:00:00Z</time><name>hut</name></wpt>'
PLT = [
    "Geolife trajectory",
    "WGS 84",
    "Altitude is in Feet",
    "Reserved 3",
    "0,2,255,My Track,0,0,2,8421376",
    "0",
]
PLT_ROWS = [f"39.98{n},116.3,0,492,39744.1,2008-10-23,02:53:{n:02d}" for n in range(9)]
CHECK_INS = [f"{n % 3}\t2010-10-19T23:{n:02d}:27Z\t30.2359\t-97.79{n}\t{n}" for n in range(9)]


def parquet(columns: dict[str, list[object]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


CABS = {
    "device": ["a"] * 10 + ["b"] * 10,
    "ts": [T0 + 60 * n for n in range(10)] * 2,
    "lat": [37 + n / 1000 for n in range(10)] * 2,
    "lon": [-122.4] * 19 + [None],
}

TCX_POINT = (
    "<Trackpoint><Time>{iso}</Time><Position><LatitudeDegrees>{lat}</LatitudeDegrees>"
    "<LongitudeDegrees>{lon}</LongitudeDegrees></Position><Extensions><ns3:TPX><ns3:Speed>3.5</ns3:Speed>"
    "</ns3:TPX></Extensions></Trackpoint>"
)


def tcx(*points: str, name: str = "TrainingCenterDatabase") -> bytes:
    return (
        f'<?xml version="1.0"?>\n<{name} xmlns="http://www.garmin.com/xmlschemas/TrainingCenterDatabase/v2">'
        "<Activities>"
        + "".join(
            f'<Activity Sport="Running"><Id>{day}</Id><Lap><Track>{"".join(points)}</Track></Lap></Activity>'
            for day in ("one", "two")
        )
        + f"</Activities></{name}>"
    ).encode()


def kml(*inner: str) -> bytes:
    spaces = 'xmlns="http://www.opengis.net/kml/2.2" xmlns:gx="http://www.google.com/kml/ext/2.2"'
    text = f"<kml {spaces}><Document><name>day</name>{''.join(inner)}</Document></kml>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()


def kml_track(name: str, points: list[str]) -> str:
    whens = "".join(f"<when>{when}</when>" for when in MINUTES[: len(points)])
    coords = "".join(f"<gx:coord>{point}</gx:coord>" for point in points)
    return f"<Placemark><name>{name}</name><gx:Track>{whens}{coords}</gx:Track></Placemark>"


KML_POINT = "<Placemark><name>p{n}</name><TimeStamp><when>{iso}</when></TimeStamp><Point><coordinates>{lon},{lat},0</coordinates></Point></Placemark>"
KML_LINE = "<Placemark><LineString><coordinates>8,47 8,48</coordinates></LineString></Placemark>"

VISITS = [
    f"{n % 3}\t{n:024x}\t{n % 2:024x}\tCafé\t40.7{n}\t-74\t-240\tTue Apr 03 18:00:{n:02d} +0000 2012"
    for n in range(9)
]
GLOBAL_VISITS = [f"{n}\t{n:024x}\tTue Apr 03 18:00:{n:02d} +0000 2012\t240" for n in range(9)]
PORTO_HEADER = '"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING_DATA","POLYLINE"'


def porto_trip(taxi: int, start: int, points: list[list[float]], missing: bool = False) -> str:
    return f'"1","A","","","{taxi}","{start}","A","{missing}","{points}"'


def nmea_sentence(body: str) -> str:
    return f"${body}*{reduce(xor, body.encode()):02X}"


def rmc(n: int, status: str = "A") -> str:
    place = f"37{n / 100:07.4f},N,12224.0000,W" if status == "A" else ",,,"
    return nmea_sentence(f"GPRMC,08{40 + n:02d}00,{status},{place},6.0,0,180508,,")


def feature(geometry: dict[str, object] | None, **properties: object) -> dict[str, object]:
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def geojson_point(n: int, device: str = "a") -> dict[str, object]:
    geometry = {"type": "Point", "coordinates": [-122.4, round(37 + n / 1000, 3)]}
    return feature(geometry, device=device, time=MINUTES[n])


def dump(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


def feed(*vehicles: tuple[str, int], place: bool = True, position: bool = True) -> bytes:
    message = gtfs_realtime_pb2.FeedMessage()
    message.header.gtfs_realtime_version = "2.0"
    message.header.timestamp = T0
    for name, n in vehicles:
        entity = message.entity.add(id=name)
        if not position:
            entity.trip_update.trip.trip_id = name
            continue
        entity.vehicle.vehicle.id = name
        entity.vehicle.timestamp = T0 + 60 * n
        if place:
            entity.vehicle.position.latitude = 37 + n / 1000
            entity.vehicle.position.longitude = -122.4
    return bytes(message.SerializeToString())


def geopackage(crs: str = "EPSG:4326") -> bytes:
    points = [shapely.Point(-122.4, 37 + n / 1000) for n in range(10)]
    geometry = shapely.to_wkb([*points, *points[:9], shapely.LineString([(0, 0), (1, 1)])])
    moments = pa.array([(T0 + 60 * n) * 1000 for n in range(10)] * 2, pa.timestamp("ms", tz="UTC"))
    table = pa.table({"device": CABS["device"], "time": moments, "geom": pa.array(geometry, pa.binary())})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cabs.gpkg")
        pyogrio.raw.write_arrow(
            table, file, layer="cabs", geometry_name="geom", geometry_type="Unknown", crs=crs
        )
        return file.read_bytes()


SAMPLES = {
    "cabspotting": Sample(
        {
            "cabs.csv": lines(
                "cab,t,lat,lon,occ", *cab_lines("{d},{t},{lat},{lon},1"), f"a,{T0},north,8,0", "a,1"
            )
        },
        22,
        {UNPLACED: 1, FIELDS: 1},
        {"cabs.csv": lines("cab,t,lat,occ", *cab_lines("{d},{t},{lat},1"))},
        "lacks columns",
    ),
    "cabspotting-txt": Sample(
        {
            "new_a.txt": lines(*cab_lines("{lat} {lon} 0 {t}", "a"), "x"),
            "new_b.txt": lines(*cab_lines("{lat} {lon} 1 {t}", "b"), f"95 -122.4 0 {T0}"),
        },
        22,
        {FIELDS: 1, "coordinates out of range": 1},
        {"new_a.txt": lines(*cab_lines("{lon} {lat} 0 {t}", "a"))},
        "look exchanged",
    ),
    "geolife": Sample(
        {
            "Data/000/Trajectory/1.plt": lines(*PLT, *PLT_ROWS, "39.98,116.3"),
            "Data/001/Trajectory/1.plt": lines(*PLT, *PLT_ROWS),
        },
        19,
        {FIELDS: 1},
        {"1.plt": lines(*PLT)},
        "holds no rows",
    ),
    "gtfs-rt": Sample(
        {
            "feed.csv": lines(
                "vehicle_id,timestamp,latitude,longitude,trip_id",
                *cab_lines("{d},{t},{lat},{lon},7"),
                f"a,{T0},37,-122.4,7",
            )
        },
        21,
        {"duplicate": 1},
        {"feed.csv": lines("vehicle_id,timestamp,latitude,trip_id", *cab_lines("{d},{t},{lat},7"))},
        "lacks columns",
    ),
    "gowalla": Sample(
        {"checkins.txt": lines(*CHECK_INS, CHECK_INS[0], "0\t\t30\t-97\t1")},
        11,
        {"duplicate": 1, "no time": 1},
        {"checkins.txt": lines(*(line.replace("\t30.", "\t130.") for line in CHECK_INS))},
        "cannot be read",
    ),
    "gpx": Sample(
        {
            "ride.gpx": gpx(
                *[WAYPOINT] * 30,
                gpx_track("one", *cab_lines(TRKPT, "a"), '<trkpt lat="37" lon="8"></trkpt>'),
                gpx_track("two", *cab_lines(TRKPT, "a")),
            )
        },
        51,
        {"waypoint": 30, "no time": 1},
        {"ride.gpx": gpx(gpx_track("one", *cab_lines('<trkpt lat="{lat}" lon="{lon}"/>', "a")))},
        "have no time",
    ),
    "kml": Sample(
        {
            "tour.kml": kml(
                KML_LINE,
                kml_track("one", [f"8 {47 + n / 1000} 400" for n in range(10)]),
                kml_track("two", [*(f"8 {47 + n / 1000} 400" for n in range(9)), "8"]),
                *cab_lines(KML_POINT, "a"),
            )
        },
        31,
        {"no place": 1, UNPLACED: 1},
        {"tour.kml": kml(KML_LINE, KML_LINE)},
        "holds no positions",
    ),
    "tcx": Sample(
        {
            "run.tcx": tcx(
                *cab_lines(TCX_POINT, "a"),
                *["<Trackpoint><Time>2008-05-18T09:00:00Z</Time></Trackpoint>"] * 12,
            )
        },
        44,
        {"no place": 24},
        {"run.tcx": tcx(name="TrainingCentre")},
        "not a file of a known format",
    ),
    "t-drive": Sample(
        {
            "release/1.txt": lines(
                *(f"1,2008-02-02 15:{n:02d}:08,116.5,39.9{n}" for n in range(9)), "1,2008"
            ),
            "release/2.txt": lines(*(f"2,2008-02-02 15:{n:02d}:08,116.5,39.9{n}" for n in range(9))),
            "release/3.txt": b"",
        },
        20,
        {FIELDS: 1, "file without rows": 1},
        {"1.txt": lines(*(f"1,2008-02-02 15:{n:02d}:08,39.9{n},116.5" for n in range(9)))},
        "has no header",
        {"tz": "Asia/Shanghai"},
    ),
    "porto": Sample(
        {
            "train.csv": lines(
                PORTO_HEADER,
                porto_trip(1, T0, [[-8.6, 41.1], [-8.6, 41.101], [-8.6, 41.102]]),
                porto_trip(2, T0, [[-8.6, 41.1], [-8.6, 41.101], [-8.6, 41.102]]),
                porto_trip(2, T0 + 900, [[-8.6, 41.1]] * 4, missing=True),
                porto_trip(3, T0, []),
                '"1","A"',
                '"1","A","","","4","5","A","False","[[1,2"',
            )
        },
        13,
        {"places missing in the trip": 4, "no place": 1, "unparsable": 1, FIELDS: 1},
        {"train.csv": lines(PORTO_HEADER, porto_trip(1, T0, [[-8.6, 41.1]] * 3, missing=True))},
        "holds no positions",
    ),
    "foursquare": Sample(
        {
            "dataset_TSMC2014_NYC.txt": b"".join(
                line.encode("latin-1") + b"\n" for line in [*VISITS, VISITS[0], "1\tv"]
            )
        },
        11,
        {"duplicate": 1, FIELDS: 1},
        {"dataset_TIST2015_Checkins.txt": lines(*GLOBAL_VISITS)},
        "check-ins without places",
    ),
    "nmea": Sample(
        {
            "log.nmea": lines(
                "$GPGGA,084000,3700.00,N,12224.00,W,1,8,1,500,M,,M,,*47",
                *map(rmc, range(10)),
                rmc(10, "V"),
                rmc(11)[:-1] + "X",
            )
        },
        12,
        {"no fix": 1, "unparsable": 1},
        {"log.nmea": lines(*["$GPGGA,084000,3700.00,N,12224.00,W,1,8,1,500,M,,M,,*47"] * 9)},
        "holds no RMC sentences",
    ),
    "takeout": Sample(
        {
            "Records.json": dump(
                {
                    "locations": [
                        {
                            "latitudeE7": 370000000 + 10000 * n,
                            "longitudeE7": -1224000000,
                            "deviceTag": -7,
                            **when,
                        }
                        for n in range(10)
                        for when in [
                            {"timestampMs": str((T0 + 60 * n) * 1000)} if n < 5 else {"timestamp": MINUTES[n]}
                        ]
                    ]
                    + [{"timestamp": MINUTES[11]}]
                }
            )
        },
        11,
        {UNPLACED: 1},
        {"Records.json": dump({"locations": []})},
        "holds no rows",
    ),
    "geojson": Sample(
        {
            "cabs.geojson": dump(
                {
                    "type": "FeatureCollection",
                    "features": [
                        *map(geojson_point, range(10)),
                        feature(
                            {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}, device="a"
                        ),
                        feature(
                            {
                                "type": "LineString",
                                "coordinates": [[8, 47], [8, 47.001], [8, 47.002], ["x", 47]],
                            },
                            device="b",
                            coordTimes=MINUTES[:4],
                        ),
                        feature(None),
                    ],
                }
            )
        },
        16,
        {"no place": 2, UNPLACED: 1},
        {"cabs.geojson": dump({"type": "FeatureCollection", "features": [feature(None, name="hut")]})},
        "lacks columns",
    ),
    "json": Sample(
        {
            "cabs.jsonl": lines(
                *(
                    json.dumps({"device": {"id": "a"}, "t": T0 + 60 * n, "lat": 37 + n / 1000, "lon": -122.4})
                    for n in range(10)
                ),
                '{"device":',
                "[1]",
            )
        },
        12,
        {"unparsable": 2},
        {"cabs.jsonl": b'{"device": "a", "t": 3}\n'},
        "lacks columns",
        {"columns": {"device": "device.id"}},
    ),
    "gtfs-rt-pb": Sample(
        {f"{n}.pb": feed(("a", n), ("b", n), *[("c", 9)] * (n == 9)) for n in range(10)}
        | {"10.pb": feed(("d", 1), place=False)},
        22,
        {"no place": 1},
        {"trips.pb": feed(("a", 1), position=False)},
        "holds no vehicle positions",
    ),
    "geopackage": Sample(
        {"cabs.gpkg": geopackage()},
        20,
        {UNPLACED: 1},
        {"cabs.gpkg": geopackage("EPSG:3857")},
        "not in degrees",
    ),
    "csv": Sample(
        {
            "cabs.csv": lines(
                "device;time;lat;lon", *cab_lines("{d};{iso};{lat};{lon}"), "a;;37;8", '"a";x;37;8'
            )
        },
        22,
        {"no time": 1, UNREADABLE: 1},
        {"cabs.csv": lines("device;time;lat", *cab_lines("{d};{iso};{lat}"))},
        "lacks columns",
    ),
    "parquet": Sample(
        {"cabs.parquet": parquet(CABS)},
        20,
        {UNPLACED: 1},
        {"cabs.parquet": parquet({name: column for name, column in CABS.items() if name != "lon"})},
        "lacks columns",
    ),
}

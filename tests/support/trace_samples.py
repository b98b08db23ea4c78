"""A small sample of each format of traces, made by hand: its files, its rows, and what is set aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

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

SAMPLES = {
    "cabspotting": Sample(
        {
            "cabs.csv": lines(
                "cab,t,lat,lon,occ", *cab_lines("{d},{t},{lat},{lon},1"), f"a,{T0},north,8,0", "a,1"
            )
        },
        22,
        {"unparsable": 2},
        {"cabs.csv": lines("cab,t,lat,occ", *cab_lines("{d},{t},{lat},1"))},
        "lacks columns",
    ),
    "cabspotting-txt": Sample(
        {
            "new_a.txt": lines(*cab_lines("{lat} {lon} 0 {t}", "a"), "x"),
            "new_b.txt": lines(*cab_lines("{lat} {lon} 1 {t}", "b"), f"95 -122.4 0 {T0}"),
        },
        22,
        {"unparsable": 1, "coordinates out of range": 1},
        {"new_a.txt": lines(*cab_lines("{lon} {lat} 0 {t}", "a"))},
        "look exchanged",
    ),
    "geolife": Sample(
        {
            "Data/000/Trajectory/1.plt": lines(*PLT, *PLT_ROWS, "39.98,116.3"),
            "Data/001/Trajectory/1.plt": lines(*PLT, *PLT_ROWS),
        },
        19,
        {"unparsable": 1},
        {"1.plt": lines(*PLT[:1], *PLT_ROWS[:2])},
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
        {"duplicate": 1, "unparsable": 1},
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
        {"no place": 1, "unparsable": 1},
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
    "csv": Sample(
        {
            "cabs.csv": lines(
                "device;time;lat;lon", *cab_lines("{d};{iso};{lat};{lon}"), "a;;37;8", '"a";x;37;8'
            )
        },
        22,
        {"unparsable": 2},
        {"cabs.csv": lines("device;time;lat", *cab_lines("{d};{iso};{lat}"))},
        "lacks columns",
    ),
    "parquet": Sample(
        {"cabs.parquet": parquet(CABS)},
        20,
        {"unparsable": 1},
        {"cabs.parquet": parquet({name: column for name, column in CABS.items() if name != "lon"})},
        "lacks columns",
    ),
}

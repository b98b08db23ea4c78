"""Tables of GTFS-realtime vehicle positions, with the column names of several exporters."""

import pytest

from mudkit import trace
from mudkit.errors import TraceFormatError
from mudkit.trace.formats.columns import gtfs_rt, resolve
from mudkit.trace.parse import CONTRARY, UNPLACED

T0 = 1_425_708_931
AUSTIN = "day,vehicle_id,t,latitude,longitude,speed,route_id,trip_id"
BUSES = [
    f"2015-03-07,{bus},{T0 + 60 * i},30.26{i},-97.73,{10 * i}.5,550,1392169"
    for bus in (7, 8)
    for i in range(3)
]


@pytest.mark.parametrize("name", ["vehicle_positions.csv", "vehicle_positions.csv.gz"])
def test_austin_export_is_loaded(csv_file, name):
    loaded = trace.load(csv_file(AUSTIN, BUSES, name))
    assert loaded.source["format"] == "gtfs-rt"
    assert loaded.positions["device"].to_pylist() == ["7"] * 3 + ["8"] * 3
    assert [t.timestamp() for t in loaded.positions["ts"].to_pylist()[:3]] == [T0, T0 + 60, T0 + 120]
    assert loaded.positions["speed_mps"].null_count == 6  # of unknown unit


def test_mapped_speeds_are_loaded(csv_file):
    loaded = trace.load(csv_file(AUSTIN, BUSES), format="gtfs-rt", columns={"speed_mps": "speed"})
    assert loaded.source["format"] == "gtfs-rt"
    assert loaded.positions["speed_mps"].to_pylist()[:3] == [0.5, 10.5, 20.5]


@pytest.mark.parametrize(
    "header",
    [
        "id,vehicle.vehicle.id,vehicle.timestamp,vehicle.position.latitude,vehicle.position.longitude",
        "entity.id,entity.vehicle.vehicle.id,entity.vehicle.timestamp,entity.vehicle.position.latitude,"
        "entity.vehicle.position.longitude",
        "x,vehicle.id,timestamp,position.latitude,position.longitude",
        "trip_id,Vehicle_ID,Timestamp,Latitude,Longitude",
        "trip.route_id,vehicle/id,timestamp,position/latitude,position/longitude",
    ],
)
def test_column_names_of_exports_are_recognised(csv_file, header):
    rows = [f"e,{bus},{T0 + 60 * i},30.26{i},-97.73" for bus in (7, 8) for i in range(3)]
    loaded = trace.load(csv_file(header, rows))
    assert loaded.source["format"] == "gtfs-rt"
    assert sorted(set(loaded.positions["device"].to_pylist())) == ["7", "8"]
    assert loaded.positions["lat"].to_pylist()[:3] == [30.26, 30.261, 30.262]


@pytest.mark.parametrize(
    "names",
    [
        ["vehicle_id", "timestamp", "latitude", "longitude", "speed_mps"],  # any table of vehicles
        ["trip_id", "timestamp", "latitude", "longitude"],
        ["user", "time", "lat", "lon", "route_id"],
    ],
)
def test_other_tables_are_not_recognised(names):
    assert gtfs_rt(names) is None


def test_folder_of_daily_files(csv_file, tmp_path):
    """Load daily files, as CapMetrics publishes them; a bus continues from one to the next."""
    days = tmp_path / "days"
    days.mkdir()
    for day in range(2):
        rows = [f"d,7,{T0 + 86_400 * day + 60 * i},30.26{i},-97.73,1,550,1" for i in range(3)]
        csv_file(AUSTIN, rows, f"days/2015-03-0{8 - day}.csv")  # names in reverse order
    loaded = trace.load(days)
    assert loaded.source["format"] == "gtfs-rt"
    assert len(loaded.positions) == 6
    csv_file("vehicle_id,timestamp,latitude,longitude,trip_id", ["7,1,1,1,1"], "days/2015-03-09.csv")
    with pytest.raises(TraceFormatError, match="different columns"):
        trace.load(days)


def test_recorded_buses_are_loaded(capmetrics):
    loaded = trace.load(capmetrics)
    assert loaded.source["format"] == "gtfs-rt"
    assert len(loaded.positions) == 581_814
    assert loaded.rejected_by_reason() == {"speed over 70 m/s": 32}
    assert loaded.positions["speed_mps"].null_count == 581_814
    assert loaded.summary().set_index("what").loc["devices", "value"] == "484"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("id,vehicleId,timestamp,lat,lng", {"device": "vehicleId", "ts": "timestamp"}),
        ("ID,DeviceID,Time,Latitude,Longitude", {"device": "DeviceID", "ts": "Time"}),
        ("id,TRIP_ID,t,lat,lon", {"device": "TRIP_ID", "ts": "t"}),
        ("id,User Id,time,lat,lon", {"device": "User Id", "ts": "time"}),
        ("id,ts,lat,lon", {"device": "id", "ts": "ts"}),
        ("car,time,timestamp,lat,lon", {"device": "car", "ts": "timestamp"}),
        ("car,date,time,lat,lon", {"device": "car", "ts": "time", "date": "date"}),
        ("car,Date,UTC,lat,lon", {"device": "car", "ts": "UTC", "date": "Date"}),
        ("car,date,timestamp,lat,lon", {"device": "car", "ts": "timestamp"}),
    ],
)
def test_device_and_time_are_found_in_any_spelling(tmp_path, names, expected):
    mapping = resolve(tmp_path / "t.csv", names.split(","), {})
    assert {name: given for name, given in mapping.items() if name not in ("lat", "lon")} == expected


def test_table_without_a_device_is_of_the_named_one(csv_file, tmp_path):
    rows = [f"{T0 + 60 * i},47.00{i},8.5" for i in range(5)]
    with pytest.raises(TraceFormatError, match=r"no column that names a device(?s:.)*device='ann'"):
        trace.load(csv_file("time,lat,lon", rows))
    loaded = trace.load(csv_file("time,lat,lon", [*rows, "x,47,8.5"]), device="ann")
    assert set(loaded.positions["device"].to_pylist()) == {"ann"}
    assert loaded.rejected["raw"].to_pylist() == ["x,47,8.5"]
    assert loaded.source["options"]["device"] == "ann"
    named = [f"{i % 2},{row}" for i, row in enumerate(rows)]
    joined = trace.load(csv_file("device,time,lat,lon", named, "named.csv"), device="ann")
    assert joined.positions.equals(loaded.positions)


@pytest.mark.parametrize(
    ("names", "letters"),
    [
        ("lat,ns,lon,ew", "S,W"),
        ("lat,lat_dir,lon,lon_dir", "s,West"),
        ("LATITUDE,N/S,LONGITUDE,E/W", "S,W"),
        ("latitude,lat_hemisphere,longitude,lon_hemisphere", "South,W"),
    ],
)
def test_letters_beside_coordinates_are_their_signs(csv_file, names, letters):
    south, west = letters.split(",")
    rows = [f"a,{T0 + 60 * i},33.800{i},{south},151.2,{west}" for i in range(9)]
    contrary = [f"a,{T0},-33.8,N,151.2,E", f"a,{T0},33.8,,151.2,E", f"a,{T0},33.8,x,151.2,E"]
    loaded = trace.load(csv_file(f"id,time,{names}", [*rows, *contrary]))
    assert loaded.positions["lat"].to_pylist() == [float(f"-33.800{i}") for i in range(9)]
    assert set(loaded.positions["lon"].to_pylist()) == {-151.2}
    assert loaded.rejected_by_reason() == {CONTRARY: 3}


PAIRS = {
    "WKT": ("geometry", "POINT ({lon} {lat})"),
    "WKT with height": ("the_geom", "SRID=4326;POINT Z({lon} {lat} 400)"),
    "GeoJSON": ("coordinates", '"[{lon}, {lat}]"'),
    "latitude first": ("Location", '"{lat}, {lon}"'),
    "latitude first, in brackets": ("lat_lon", '"({lat}, {lon})"'),
    "longitude first": ("lon_lat", "{lon} {lat}"),
}


@pytest.mark.parametrize("layout", PAIRS)
def test_both_coordinates_may_be_in_one_column(csv_file, layout):
    name, place = PAIRS[layout]
    rows = [f"a,{T0 + 60 * n}," + place.format(lat=47 + n / 10**3, lon=-8.5) for n in range(5)]
    loaded = trace.load(csv_file(f"device,time,{name}", [*rows, f"a,{T0},somewhere", f"a,{T0},"]))
    assert loaded.positions["lat"].to_pylist() == [47 + n / 10**3 for n in range(5)]
    assert set(loaded.positions["lon"].to_pylist()) == {-8.5}
    assert loaded.rejected_by_reason() == {UNPLACED: 2}
    assert loaded.rejected["raw"][0].as_py().startswith(f"a,{T0},somewhere")
    named = trace.load(csv_file(f"device,time,{name}", rows), columns={"lat": name, "lon": name})
    assert named.positions.equals(loaded.positions)


def test_column_that_may_be_a_coordinate_is_no_pair(csv_file):
    rows = [f"a,{T0 + 60 * n},home,47.{n},8.5" for n in range(5)]
    for names in ("gps_latitude_deg,gps_longitude_deg", "Lat (WGS84),Lon (WGS84)", "easting,northing"):
        with pytest.raises(TraceFormatError, match=r"lacks columns|metres"):
            trace.load(csv_file(f"device,time,location,{names}", rows))


def test_columns_of_coordinates_come_before_a_pair(csv_file):
    rows = [f'a,{T0 + 60 * n},"somewhere",47.{n},8.5' for n in range(5)]
    assert len(trace.load(csv_file("device,time,location,lat,lon", rows)).positions) == 5


def test_nanoseconds_are_no_hemisphere(csv_file):
    rows = [f"a,{T0 + 60 * i},{i},33.800{i},151.2" for i in range(9)]
    assert len(trace.load(csv_file("id,time,ns,lat,lon", rows)).positions) == 9

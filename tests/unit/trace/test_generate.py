import datetime as dt
import gzip
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mudkit.errors import OutputExists, ParameterError
from mudkit.sources.city import CommuterTown
from mudkit.sources.phones import PhoneUse
from mudkit.trace import _generate
from mudkit.trace._generate import generate
from mudkit.trace._load import load
from mudkit.trace.folder import read_manifest, read_table
from mudkit.trace.loaded import Loaded
from mudkit.trace.plausible import judge
from mudkit.trace.schema import POSITIONS, READS, epoch_us, with_read_ids
from mudkit.units import distance_km

ROOT = Path(__file__).resolve().parents[3]
SMALL = {"cars": 12, "days": 3, "seed": 5}
# Long evenings: trips cross midnight in local time and in UTC.
LATE = {
    "outing_hours": (10.0, 18.0, 22.0),
    "outing_shares": (0.5, 0.9, 0.9),
    "commuter_share": 0.0,
    "errand_stay_h": 1.5,
}


@pytest.fixture(scope="module")
def small():
    return generate(**SMALL)


def sort_by_device(table):
    return table.sort_by([("device", "ascending"), ("ts", "ascending")])


def select_devices(table, *devices):
    return table.filter(pc.is_in(table["device"], pa.array(devices)))


def compute_checksums(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_tables_have_their_schema_and_order(small):
    assert isinstance(small, Loaded)
    assert small.positions.schema == POSITIONS
    assert small.reads.schema == READS
    assert len(small.rejected) == 0
    assert small.positions.equals(sort_by_device(small.positions))
    assert small.reads.equals(small.reads.sort_by([("ts", "ascending"), ("device", "ascending")]))
    for table in (small.positions, small.reads):
        assert all(column.null_count == 0 for column in table.columns)


def test_size_matches_the_paper_and_simultaneous_reads_are_ordered():
    trace = generate(cars=60, days=30, seed=1)
    assert len(trace.positions) == pytest.approx(370_000, rel=0.10)  # a tenth of the cars: more variance
    assert len(trace.reads) == pytest.approx(5_000, rel=0.15)
    assert trace.reads.equals(trace.reads.sort_by([("ts", "ascending"), ("device", "ascending")]))
    assert np.any(np.diff(epoch_us(trace.reads["ts"])) == 0)


def test_reads_have_boxes_of_20_km_and_windows_of_two_hours(small):
    assert set(small.reads["box_km"].to_pylist()) == {20.0}
    assert set(small.reads["window_s"].to_pylist()) == {7200.0}
    (origin,) = set(small.reads["origin"].to_pylist())
    assert origin.startswith("derived: generate(")
    assert "seed=5" in origin
    assert small.reads.equals(with_read_ids(small.reads))
    assert len(pc.unique(small.reads["read_id"])) == len(small.reads)


def test_some_reads_are_repeated_nearby_within_ten_minutes():
    reads = sort_by_device(generate(cars=60, days=7, seed=3).reads)
    is_same_device = np.diff(pc.dictionary_encode(reads["device"]).combine_chunks().indices.to_numpy()) == 0
    is_recent = np.diff(epoch_us(reads["ts"])) <= 600_000_000
    lat, lon = reads["lat"].to_numpy(), reads["lon"].to_numpy()
    is_near = distance_km(lat[:-1], lon[:-1], lat[1:], lon[1:]) <= 1.0
    assert 0.05 < np.mean(is_same_device & is_recent & is_near) < 0.4


@pytest.mark.parametrize("rates", [{}, LATE, {"lon": 180.0}, {"interval_s": 2}])
def test_every_position_is_plausible(rates):
    positions = generate(**SMALL, **rates).positions
    device = positions["device"].combine_chunks().dictionary_encode().indices.to_numpy()
    columns = (epoch_us(positions["ts"]), positions["lat"].to_numpy(), positions["lon"].to_numpy())
    assert not judge(device, *columns).verdict.any()
    assert np.all(np.diff(columns[0])[np.diff(device) == 0] > 0)


@pytest.mark.parametrize("rates", [{}, LATE])
def test_rows_of_a_car_do_not_depend_on_other_cars(rates):
    many = generate(cars=15, days=2, seed=5, towns=2, **rates)
    few = generate(cars=4, days=2, seed=5, towns=2, **rates)
    devices = [f"car-{i:05d}" for i in range(4)]
    assert few.positions.equals(select_devices(many.positions, *devices))
    assert few.reads.equals(select_devices(many.reads, *devices))
    assert len(few.reads) > 0


@pytest.mark.parametrize("rates", [{}, LATE])
def test_rows_of_a_day_do_not_depend_on_other_days(rates):
    three = generate(**SMALL, **rates)
    days = [
        generate(cars=12, days=1, seed=5, start=dt.date(2010, 3, 1) + dt.timedelta(days=i), **rates)
        for i in range(3)
    ]
    for name in ("positions", "reads"):
        pieces = pa.concat_tables([getattr(day, name) for day in days])
        assert sort_by_device(pieces).equals(sort_by_device(getattr(three, name)))


def test_every_row_is_written_once_under_its_utc_date(tmp_path):
    whole = generate(**SMALL, **LATE)
    manifest = generate(**SMALL, **LATE, path=tmp_path / "trace")
    positions = sort_by_device(read_table(tmp_path / "trace", "positions"))
    assert positions.equals(whole.positions)
    assert read_table(tmp_path / "trace", "reads").equals(whole.reads)
    assert manifest["rows"] == {"positions": len(whole.positions), "reads": len(whole.reads), "rejected": 0}
    for folder in (tmp_path / "trace" / "positions").iterdir():
        (part,) = folder.iterdir()
        written = pq.read_table(part, partitioning=None)
        assert {str(ts.date()) for ts in written["ts"].to_pylist()} == {folder.name.removeprefix("date=")}
    # Some trip crosses midnight in UTC, and some in local time.
    t_s = epoch_us(positions["ts"]) // 1_000_000
    same = np.diff(positions["device"].combine_chunks().dictionary_encode().indices.to_numpy()) == 0
    moving = same & (np.diff(t_s) == 15)
    for offset_s in (0, 6 * 3600):
        dates = (t_s - offset_s) // 86_400
        assert np.any(moving & (np.diff(dates) == 1))


def test_row_at_midnight_is_written_once(tmp_path):
    rates = {"cars": 40, "days": 2, "interval_s": 1, "gps_error_m": 4.0}
    whole = generate(**rates)
    assert np.any(epoch_us(whole.positions["ts"]) % 86_400_000_000 == 0)
    generate(**rates, path=tmp_path / "trace")
    assert sort_by_device(read_table(tmp_path / "trace", "positions")).equals(whole.positions)


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("offset_h", [-12.0, -6.0, 0.0, 4.5, 14.0])
def test_streamed_rows_match_in_every_zone_and_in_blocks_of_cars(tmp_path, monkeypatch, offset_h):
    whole = generate(**SMALL, **LATE, towns=2, utc_offset_h=offset_h)
    monkeypatch.setattr(_generate, "_CARS_AT_ONCE", 5)
    generate(**SMALL, **LATE, towns=2, utc_offset_h=offset_h, path=tmp_path / "trace")
    for name in ("positions", "reads"):
        assert sort_by_device(read_table(tmp_path / "trace", name)).equals(
            sort_by_device(getattr(whole, name))
        )
        parts = [len(list(folder.iterdir())) for folder in (tmp_path / "trace" / name).iterdir()]
        assert max(parts) == 3


def test_saved_and_streamed_traces_are_identical(tmp_path, small):
    small.save(tmp_path / "saved")
    generate(**SMALL, path=tmp_path / "streamed")
    assert compute_checksums(tmp_path / "saved") == compute_checksums(tmp_path / "streamed")
    loaded = load(tmp_path / "streamed")
    assert loaded.positions.equals(small.positions)
    assert loaded.reads.equals(small.reads)


@pytest.mark.process
def test_same_seed_yields_the_same_bytes_in_another_process(tmp_path):
    generate(**SMALL, path=tmp_path / "here")
    code = (
        f"from mudkit.trace._generate import generate; generate(**{SMALL}, path={str(tmp_path / 'there')!r})"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "77"}
    )
    assert compute_checksums(tmp_path / "here") == compute_checksums(tmp_path / "there")
    generate(**{**SMALL, "seed": 6}, path=tmp_path / "other")
    assert compute_checksums(tmp_path / "other") != compute_checksums(tmp_path / "here")


def test_model_is_unchanged_without_a_new_version(small):
    """Compare with golden rows; for an intended change, raise GENERATOR_VERSION and rebuild the sample."""
    assert _generate.GENERATOR_VERSION == 1
    first = select_devices(small.positions, "car-00003").slice(0, 2).to_pylist()
    reads = select_devices(small.reads, "car-00003").slice(0, 1).to_pylist()
    assert [
        (row["ts"].isoformat(), row["lat"], row["lon"], row["speed_mps"]) for row in first
    ] == GOLDEN_POSITIONS
    assert [(row["ts"].isoformat(), row["lat"], row["lon"], row["read_id"]) for row in reads] == GOLDEN_READS
    assert (len(small.positions), len(small.reads)) == GOLDEN_COUNTS


GOLDEN_POSITIONS = [
    ("2010-03-01T15:37:45+00:00", 35.401606, -97.538694, 6.1),
    ("2010-03-01T15:38:00+00:00", 35.400706, -97.53884, 8.2),
]
GOLDEN_READS = [("2010-03-01T16:34:01+00:00", 35.321406, -97.476915, 947460121498056963)]
GOLDEN_COUNTS = (6103, 73)


def test_manifest_options_reproduce_the_trace(tmp_path):
    manifest = generate(
        cars=3, days=2, seed=-4, towns=2, start="2011-07-02", interval_s=30, path=tmp_path / "trace"
    )
    assert manifest == read_manifest(tmp_path / "trace")
    assert manifest["generator"] == "mudkit.trace.generate"
    assert manifest["time_zone"].startswith("local time is UTC-06:00 all year")
    options = json.loads(json.dumps(manifest["options"]))
    town, phone = CommuterTown(**options.pop("town")), PhoneUse(**options.pop("phone"))
    assert options == {"cars": 3, "days": 2, "seed": -4, "towns": 2, "start": "2011-07-02"}
    assert phone == PhoneUse(interval_s=30)
    generate(**options, town=town, phone=phone, path=tmp_path / "again")
    assert compute_checksums(tmp_path / "again") == compute_checksums(tmp_path / "trace")


def test_towns_are_far_apart():
    trace = generate(cars=6, days=1, seed=2, towns=3)
    town = np.array([int(name[-5:]) % 3 for name in trace.positions["device"].to_pylist()])
    lat, lon = trace.positions["lat"].to_numpy(), trace.positions["lon"].to_numpy()
    centres = [(lat[town == i].mean(), lon[town == i].mean()) for i in range(3)]
    for i in range(3):
        for j in range(i):
            assert distance_km(*centres[i], *centres[j]) > 100


def test_existing_trace_is_overwritten_only_on_request(tmp_path):
    generate(cars=1, days=1, path=tmp_path / "trace")
    before = compute_checksums(tmp_path)
    with pytest.raises(OutputExists):
        generate(cars=2, days=1, path=tmp_path / "trace")
    assert compute_checksums(tmp_path) == before
    assert generate(cars=2, days=1, path=tmp_path / "trace", overwrite=True)["options"]["cars"] == 2


def test_interrupted_generation_leaves_no_files(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_generate, "queries", fail)
    with pytest.raises(KeyboardInterrupt):
        generate(cars=1, days=1, path=tmp_path / "trace")
    assert list(tmp_path.iterdir()) == []


def test_town_without_trips_or_queries_yields_empty_tables(tmp_path):
    still = {"commuter_share": 0.0, "outing_shares": (0.0, 0.0, 0.0)}
    trace = generate(cars=3, days=2, **still)
    assert (len(trace.positions), len(trace.reads)) == (0, 0)
    assert generate(cars=3, days=2, **still, path=tmp_path / "trace")["rows"] == {
        "positions": 0,
        "reads": 0,
        "rejected": 0,
    }
    assert len(generate(cars=3, days=2, query_share_low=0.0, query_share_high=0.0).reads) == 0


def test_progress_is_shown(capsys):
    generate(cars=1, days=2, progress=True)
    assert "generate: 100%" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"cars": 0}, "cars"),
        ({"cars": 100_001}, "cars"),
        ({"cars": 2.5}, "cars"),
        ({"days": 0}, "days"),
        ({"days": True}, "days"),
        ({"towns": 0}, "towns"),
        ({"seed": 1.0}, "seed"),
        ({"seed": None}, "seed"),
        ({"start": "1.3.2010"}, "start"),
        ({"start": "1980-01-01"}, "start"),
        ({"start": "2089-01-02"}, "start"),
        ({"start": 20100301}, "start"),
        ({"start": None}, "start"),
        ({"box_km": 0}, "box_km"),
        ({"intervall_s": 5}, "intervall_s"),
        ({"interval_s": 1}, "gps_error_m"),
        ({"town": CommuterTown(), "lat": 3.0}, "town"),
        ({"phone": PhoneUse(), "box_km": 3.0}, "phone"),
    ],
)
def test_invalid_parameters_are_refused_before_writing(tmp_path, given, where):
    with pytest.raises(ParameterError) as caught:
        generate(**{"cars": 2, "days": 1, **given}, path=tmp_path / "trace")
    assert caught.value.where == where
    assert caught.value.found is not None
    assert caught.value.expected is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("start", ["1980-01-02", "2089-01-01"])
def test_first_and_last_date_that_the_refusal_names_are_taken(start):
    days = generate(cars=5, days=1, start=start).positions["ts"].cast("timestamp[s]").cast("date64")
    assert start in map(str, days.cast("date32").unique().to_pylist())


def test_start_may_be_text_date_or_datetime():
    text, date, time = (
        generate(cars=1, days=1, start=start)
        for start in ("2010-03-05", dt.date(2010, 3, 5), dt.datetime(2010, 3, 5, 23, 59, tzinfo=dt.UTC))
    )
    assert text.positions.equals(date.positions)
    assert text.positions.equals(time.positions)


@pytest.fixture(scope="module")
def make_sample():
    spec = importlib.util.spec_from_file_location("make_sample", ROOT / "tools" / "make_sample.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_sample_in_git_matches_the_generator(make_sample):
    tables = make_sample.sample_tables(generate(**make_sample.SAMPLE))
    for folder, folder_tables in (("sample", tables), ("commute", make_sample.commute_tables())):
        for name, table in folder_tables.items():
            packed = (ROOT / "data" / folder / f"{name}.csv.gz").read_bytes()
            assert gzip.decompress(packed) == make_sample.csv_text(table)


def test_sample_is_small_and_matches_the_readme_checksums():
    for folder in ("sample", "commute"):
        files = sorted((ROOT / "data" / folder).glob("*.csv.gz"))
        assert sum(file.stat().st_size for file in files) < 1_000_000
        readme = (ROOT / "data/README.md").read_text()
        stated = re.findall(rf"\| `({folder}/\S+)` .* `([0-9a-f]{{64}})` \|", readme)
        assert stated == [(f"{folder}/{f.name}", hashlib.sha256(f.read_bytes()).hexdigest()) for f in files]


def test_sample_is_loaded_without_rejected_rows(make_sample):
    trace = generate(**make_sample.SAMPLE)
    positions = load(ROOT / "data/sample/positions.csv.gz", rule="none")
    reads = load(ROOT / "data/sample/reads.csv.gz", table="reads")
    assert len(positions.rejected) == len(reads.rejected) == 0
    assert positions.positions.equals(trace.positions)
    assert reads.reads.drop(["origin"]).equals(trace.reads.drop(["origin"]))


def test_sample_can_be_rebuilt(make_sample, tmp_path, monkeypatch):
    monkeypatch.setattr(make_sample, "COMMUTE", make_sample.COMMUTE | {"cars": 2, "days": 1})
    monkeypatch.setattr(make_sample, "SAMPLE", {"cars": 2, "days": 1, "seed": 7, "interval_s": 30})
    make_sample.main(tmp_path)
    first = compute_checksums(tmp_path)
    packed = [
        f"data/{folder}/{name}.csv.gz" for folder in ("commute", "sample") for name in ("positions", "reads")
    ]
    assert sorted(first) == ["data/README.md", *packed]
    make_sample.main(tmp_path)
    assert compute_checksums(tmp_path) == first
    assert "generate(cars=2, days=1, seed=7, interval_s=30)" in (tmp_path / "data/README.md").read_text()

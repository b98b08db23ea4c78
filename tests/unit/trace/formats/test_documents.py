"""Files of other kinds: each is named, and the commands that its error gives make a file that is read."""

import json
import re
import subprocess

import pytest
from trace_samples import T0, cab_lines, lines

from mudkit import trace
from mudkit.errors import TraceFormatError

FIX = "Provider,LatitudeDegrees,LongitudeDegrees,AltitudeMeters,SpeedMps,UnixTimeMillis"
LOCATION = '{{"_type":"location","tid":"ja","tst":{t},"lat":{lat},"lon":{lon}}}'
CONVERTED = {
    "GnssLogger": lines(
        "# ",
        "# Header Description:",
        "# ",
        "# Version: v3.0.6.4 Platform: 13",
        "# Raw,utcTimeMillis,TimeNanos",
        f"# Fix,{FIX}",
        *cab_lines("Raw,,1\nFix,GPS,{lat},{lon},400,1.0,{t}000", "a"),
    ),
    "OwnTracks' recorder": lines(
        *cab_lines("{iso}\t*                 \t" + LOCATION, "a"),
        '2008-05-18T09:40:00Z\t*                 \t{"_type":"lwt","tst":1211100000}',
    ),
    "MQTT messages": lines(
        *cab_lines("owntracks/jane/phone " + LOCATION, "a"), 'owntracks/jo/phone {"_type":"lwt"}'
    ),
}


@pytest.mark.parametrize("kind", CONVERTED)
def test_command_of_the_error_makes_a_file_that_is_read(tmp_path, kind):
    (tmp_path / "log.txt").write_bytes(CONVERTED[kind])
    with pytest.raises(TraceFormatError, match=kind) as caught:
        trace.load(tmp_path / "log.txt")
    command, output = re.search(r": (\w.* > (\S+)), and load", caught.value.remedy).groups()
    command = command.replace("FILE", "log.txt").replace("TOPIC", "owntracks/jane/phone")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    columns = dict(re.findall(r"--column (\w+)=(\w+)", caught.value.remedy))
    loaded = trace.load(tmp_path / output, device="phone", columns=columns)
    assert loaded.positions["lat"].to_pylist() == [round(37 + n / 1000, 3) for n in range(10)]
    assert [ts.timestamp() for ts in loaded.positions["ts"].to_pylist()] == [T0 + 60 * n for n in range(10)]


POINT = 'gps,device=a,host=b\\ c lat={lat},lon={lon},name="x, y" {t}000000000'
NAMED = {
    "the broker mosquitto": lines(*cab_lines("{t}: New connection from 10.0.0.{n}:51234 on port 1883.")),
    "InfluxDB's line protocol": lines(*cab_lines(POINT)),
    "InfluxDB": lines("# DDL", "CREATE DATABASE x", "# DML", "# CONTEXT-DATABASE: x", *cab_lines(POINT)),
    "a dump of an SQL database": b"-- MySQL dump 10.13\n--\n/*!40101 SET x */;\nDROP TABLE IF EXISTS `gps`;\n",
    "an SQL database": b"--\n-- PostgreSQL database dump\n--\n\nSET x = 0;\nCOPY public.gps (id) FROM stdin;\n",
    "dump of an SQL": b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE gps(id int);\n",
    "of an SQL": b"INSERT INTO gps (device,ts,lat,lon) VALUES\n('a',1700000000,47.1,8.5);\n",
}


@pytest.mark.parametrize("kind", NAMED)
def test_kind_of_file_is_named(tmp_path, kind):
    (tmp_path / "log.txt").write_bytes(NAMED[kind])
    with pytest.raises(TraceFormatError, match=kind):
        trace.load(tmp_path / "log.txt")


@pytest.mark.parametrize(
    "content",
    [b"/*" * 10_000, b"/* a */" * 3_000, b"\n" * 20_000 + b"x", b"a=b," * 5_000, b"a,b=c" * 4_000],
)
def test_long_beginnings_are_refused_in_time(tmp_path, content):
    """Bound the work of the patterns: they neither try each part again nor all ways to divide a text."""
    (tmp_path / "log.txt").write_bytes(content)
    with pytest.raises(TraceFormatError):
        trace.load(tmp_path / "log.txt")


def test_words_of_sql_in_a_header_are_columns(tmp_path):
    rows = [json.dumps({"device": "a", "t": T0 + 60 * n, "lat": 37, "lon": 8}) for n in range(3)]
    (tmp_path / "a.jsonl").write_bytes(lines(*rows))
    table = lines("Set,Use,Copy,device,time,lat,lon", *cab_lines("1,2,3,{d},{t},{lat},{lon}"))
    (tmp_path / "a.csv").write_bytes(table)
    assert len(trace.load(tmp_path / "a.jsonl").positions) == 3
    assert len(trace.load(tmp_path / "a.csv").positions) == 20

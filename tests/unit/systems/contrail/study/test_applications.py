"""The applications of the paper do what it says, and cost what it says."""

from __future__ import annotations

import pytest
from contrail_place import Place

from mudkit.systems.contrail.study.applications import (
    TABLE_1,
    Aggregator,
    Alarm,
    Chat,
    Photos,
    Sensor,
    SharedLocation,
    Video,
)


def test_chat(place):
    there = place("ann bob cyd")
    said = {name: [] for name in ("ann", "bob", "cyd")}
    chats = {
        name: Chat(
            there.modules[name], set(said) - {name}, lambda who, text, heard=heard: heard.append((who, text))
        )
        for name, heard in said.items()
    }
    there.run(15)
    there.secrets |= {"lunch?", "yes, at noon"}
    chats["ann"].send("bob", "lunch?").result()
    there.run(7)  # Table 1: every 5 s
    chats["bob"].send("ann", "yes, at noon").result()
    there.run(7)
    assert said == {"ann": [("bob", "yes, at noon")], "bob": [("ann", "lunch?")], "cyd": []}


def test_video_shows_the_latest_frame_only(place):
    there = place("ann bob")
    frames = []
    Video(there.modules["bob"], "ann", frames.append)
    show = Video(there.modules["ann"], "bob", lambda frame: None).send
    there.run(15)
    show(b"first").result()
    there.run(0.9)
    assert frames == [b"first"]
    there.lab.faults.cut("bob")
    for number in range(5):
        show(f"frame {number}".encode()).result()
    there.lab.faults.mend("bob")
    there.run(0.9)
    assert frames == [b"first", b"frame 4"]
    there.lab.faults.cut("bob")
    show(b"too old soon").result()
    there.run(2)
    there.lab.faults.mend("bob")
    there.run(5)
    assert len(frames) == 2


def test_the_alarm_is_for_leaving_and_costs_nothing_before(place):
    there = place("child alice")
    away = []
    child = SharedLocation(there.modules["child"])
    alarm = Alarm(there.modules["alice"], "child", (37.35, -122.12, 37.43, -122.04), away.append)
    there.run(1210)
    before = there.bytes_up("child")
    for _ in range(5):
        child.update(37.4, -122.1).result()
    assert there.bytes_up("child") == before
    for lat in (37.5, 37.6):
        child.update(lat, -122.1).result()
    there.run(610)
    assert away == [[37.6, -122.1]]
    alarm.watch((37.0, -123.0, 38.0, -122.0)).result()
    there.run(1210)
    assert child.update(37.5, -122.1).result().destinations == ()


def test_photographs_are_found_among_friends_of_friends(place):
    there = place()
    friends = {"ann": ["bob"], "bob": ["ann", "cyd"], "cyd": ["bob", "dan"], "dan": ["cyd"]}
    result, photos = [], {}
    for name, others in friends.items():
        there.module(name, others)
    for name, others in friends.items():
        heard = (lambda *photo: result.append(photo)) if name == "ann" else (lambda *photo: None)
        photos[name] = Photos(there.modules[name], others, heard)
    for name in ("bob", "cyd", "dan"):
        there.secrets.add(f"a picture by {name}".encode())
        photos[name].share("beach", f"a picture by {name}".encode(), place="Mountain View, CA")
        photos[name].share("office", b"a desk", place="elsewhere")
    photos["ann"].search("place = 'Mountain View, CA'", hops=1)
    there.run(600)
    assert sorted(result) == [("bob", "beach", b"a picture by bob"), ("cyd", "beach", b"a picture by cyd")]
    photos["ann"].search("place = 'Mountain View, CA'", hops=2)
    there.run(900)
    assert sorted(result)[2:] == [("dan", "beach", b"a picture by dan")]
    photos["bob"].share("lake", b"a picture of a lake", place="Mountain View, CA")
    there.run(130)
    assert result[-1] == ("bob", "lake", b"a picture of a lake")


def test_an_aggregation_tree_shows_means_and_no_readings(place):
    there = place()
    tree = {
        "phone 1": ["site"],
        "phone 2": ["site"],
        "phone 3": ["site"],
        "site": ["phone 1", "phone 2", "phone 3", "public"],
        "public": ["site"],
    }
    for name, others in tree.items():
        there.module(name, others)
    sensors = [Sensor(there.modules[f"phone {number}"]) for number in (1, 2, 3)]
    site = Aggregator(there.modules["site"], ["phone 1", "phone 2", "phone 3"], "value > 0")
    public = Aggregator(there.modules["public"], ["site"])
    there.run(1210)
    for sensor, value in zip(sensors, (10.0, 20.0, 60.0), strict=True):
        sensor.read(value).result()
    there.run(60)
    assert site.mean == public.mean == (30.0, 3)
    assert sensors[0].read(-1.0).result().destinations == ()  # it does not even leave the phone
    sensors[0].read(40.0).result()
    there.run(60)
    assert public.mean == (40.0, 3)


@pytest.mark.parametrize(
    ("name", "interval", "idle"), [("chat", 5, 0), ("photos", 60, 0), ("location", 600, 0), ("video", 0, 10)]
)
def test_parameters_are_those_of_table_1(name, interval, idle):
    assert TABLE_1[name] == {"polling_interval_ms": interval * 1000, "idle_timeout_ms": idle * 1000}


def test_without_encryption_a_relay_reads_along():
    there = Place("ann bob", encrypted=False)
    heard = []
    Chat(there.modules["bob"], ["ann"], lambda who, text: heard.append(text))
    ann = Chat(there.modules["ann"], ["bob"], lambda who, text: None)
    there.run(15)
    there.secrets.add("between us")
    ann.send("bob", "between us").result()
    there.run(10)
    assert heard == ["between us"]
    assert there.seen_by_relays() == {"between us"}

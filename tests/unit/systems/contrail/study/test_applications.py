"""Applications of the paper: behaviour, traffic, and parameters."""

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


def test_chat_delivers_messages_to_their_receiver(make_place):
    place = make_place("ann bob cyd")
    inboxes = {name: [] for name in ("ann", "bob", "cyd")}
    chats = {
        name: Chat(
            place.modules[name],
            set(inboxes) - {name},
            lambda sender, text, inbox=inbox: inbox.append((sender, text)),
        )
        for name, inbox in inboxes.items()
    }
    place.run(15)
    place.secrets |= {"lunch?", "yes, at noon"}
    chats["ann"].send("bob", "lunch?").result()
    place.run(7)  # Table 1: every 5 s
    chats["bob"].send("ann", "yes, at noon").result()
    place.run(7)
    assert inboxes == {"ann": [("bob", "yes, at noon")], "bob": [("ann", "lunch?")], "cyd": []}


def test_video_shows_the_latest_frame_only(make_place):
    place = make_place("ann bob")
    frames = []
    Video(place.modules["bob"], "ann", frames.append)
    send_frame = Video(place.modules["ann"], "bob", lambda frame: None).send
    place.run(15)
    send_frame(b"first").result()
    place.run(0.9)
    assert frames == [b"first"]
    place.lab.faults.cut("bob")
    for number in range(5):
        send_frame(f"frame {number}".encode()).result()
    place.lab.faults.mend("bob")
    place.run(0.9)
    assert frames == [b"first", b"frame 4"]
    place.lab.faults.cut("bob")
    send_frame(b"too old soon").result()
    place.run(2)
    place.lab.faults.mend("bob")
    place.run(5)
    assert len(frames) == 2


def test_alarm_reports_leaving_and_costs_nothing_before(make_place):
    place = make_place("child alice")
    locations = []
    child = SharedLocation(place.modules["child"])
    alarm = Alarm(place.modules["alice"], "child", (37.35, -122.12, 37.43, -122.04), locations.append)
    place.run(1210)
    before = place.bytes_up("child")
    for _ in range(5):
        child.update(37.4, -122.1).result()
    assert place.bytes_up("child") == before
    for lat in (37.5, 37.6):
        child.update(lat, -122.1).result()
    place.run(610)
    assert locations == [[37.6, -122.1]]
    alarm.watch((37.0, -123.0, 38.0, -122.0)).result()
    place.run(1210)
    assert child.update(37.5, -122.1).result().destinations == ()


def test_photos_are_found_among_friends_of_friends(make_place):
    place = make_place()
    friends = {"ann": ["bob"], "bob": ["ann", "cyd"], "cyd": ["bob", "dan"], "dan": ["cyd"]}
    found_photos, photos = [], {}
    for name, neighbours in friends.items():
        place.module(name, neighbours)
    for name, neighbours in friends.items():
        callback = (lambda *photo: found_photos.append(photo)) if name == "ann" else (lambda *photo: None)
        photos[name] = Photos(place.modules[name], neighbours, callback)
    for name in ("bob", "cyd", "dan"):
        place.secrets.add(f"a picture by {name}".encode())
        photos[name].share("beach", f"a picture by {name}".encode(), place="Mountain View, CA")
        photos[name].share("office", b"a desk", place="elsewhere")
    photos["ann"].search("place = 'Mountain View, CA'", hops=1)
    place.run(600)
    assert sorted(found_photos) == [
        ("bob", "beach", b"a picture by bob"),
        ("cyd", "beach", b"a picture by cyd"),
    ]
    photos["ann"].search("place = 'Mountain View, CA'", hops=2)
    place.run(900)
    assert sorted(found_photos)[2:] == [("dan", "beach", b"a picture by dan")]
    photos["bob"].share("lake", b"a picture of a lake", place="Mountain View, CA")
    place.run(130)
    assert found_photos[-1] == ("bob", "lake", b"a picture of a lake")


def test_search_with_more_hops_than_a_friend_forwards_finds_nothing(make_place):
    """See :class:`Photos`: `max_hops` is the maximum number of friends that forward a search."""
    place, found_photos = make_place("ann bob"), []
    ann = Photos(place.modules["ann"], ["bob"], lambda *photo: found_photos.append(photo))
    Photos(place.modules["bob"], ["ann"], lambda *photo: None, max_hops=1).share("beach", b"a picture", n=1)
    ann.search("n = 1", hops=2)
    place.run(600)
    assert found_photos == []
    ann.search("n = 1", hops=1)
    place.run(600)
    assert found_photos == [("bob", "beach", b"a picture")]


def test_aggregation_tree_shows_means_and_no_readings(make_place):
    place = make_place()
    tree = {
        "phone 1": ["site"],
        "phone 2": ["site"],
        "phone 3": ["site"],
        "site": ["phone 1", "phone 2", "phone 3", "public"],
        "public": ["site"],
    }
    for name, neighbours in tree.items():
        place.module(name, neighbours)
    sensors = [Sensor(place.modules[f"phone {number}"]) for number in (1, 2, 3)]
    site = Aggregator(place.modules["site"], ["phone 1", "phone 2", "phone 3"], "value > 0")
    public = Aggregator(place.modules["public"], ["site"])
    place.run(1210)
    for sensor, value in zip(sensors, (10.0, 20.0, 60.0), strict=True):
        sensor.read(value).result()
    place.run(60)
    assert site.mean == public.mean == (30.0, 3)
    assert sensors[0].read(-1.0).result().destinations == ()  # it does not leave the phone
    sensors[0].read(40.0).result()
    place.run(60)
    assert public.mean == (40.0, 3)


@pytest.mark.parametrize(
    ("name", "interval", "idle"), [("chat", 5, 0), ("photos", 60, 0), ("location", 600, 0), ("video", 0, 10)]
)
def test_parameters_match_table_1(name, interval, idle):
    assert TABLE_1[name] == {"polling_interval_ms": interval * 1000, "idle_timeout_ms": idle * 1000}


def test_relay_reads_messages_without_encryption():
    place = Place("ann bob", encrypted=False)
    inbox = []
    Chat(place.modules["bob"], ["ann"], lambda sender, text: inbox.append(text))
    ann = Chat(place.modules["ann"], ["bob"], lambda sender, text: None)
    place.run(15)
    place.secrets.add("between us")
    ann.send("bob", "between us").result()
    place.run(10)
    assert inbox == ["between us"]
    assert place.seen_by_relays() == {"between us"}

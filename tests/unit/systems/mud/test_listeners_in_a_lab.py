"""Continuous reads outlive the application that began them (Mobius 3.1: their handles unregister and modify them)."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.mud import Client, Cloud, PubSub

SERVERS = ("mud-store", "mud-processor-1", "mud-processor-2", "mud-notifications-1", "mud-notifications-2")


class World:
    """Lab whose hosts keep their stores in files, so that it can be built again."""

    def __init__(self, folder, max_waiting=1000):
        self.lab = Lab(seed=1)
        for name in SERVERS:
            self.lab.server(name, storage=folder / name)
        cloud = Cloud(self.lab)
        devices = [self.lab.device(name, storage=folder / name) for name in ("jane", "writer")]
        self.jane, self.writer = (
            Client(device, cloud, app="n", token=self.lab.token(device.name, "n"), max_waiting=max_waiting)
            for device in devices
        )
        self.other = Client(devices[0], cloud, app="o", token=self.lab.token("jane", "o"))

    def end(self):
        """Close the stores: the applications and the lab are gone."""
        for host in self.lab.world.hosts.values():
            for process in host.processes if host.storage is not None else ():
                process.store.close()


@pytest.fixture
def build(tmp_path):
    worlds = []

    def build(**options):
        for world in worlds:
            world.end()
        worlds[:] = [World(tmp_path, **options)]
        return worlds[0]

    yield build
    for world in worlds:
        world.end()


def keys(changes):
    return [(change.kind, change.key) for change in changes]


@pytest.mark.parametrize("max_waiting", [1000, 1])
def test_restarted_application_gets_every_change_once(build, max_waiting):
    first, second, other = [], [], []
    world = build(max_waiting=max_waiting)
    world.jane.create("t").result()
    world.jane.create("u").result()
    handle = world.jane.read("t", "n > 0", "continuous", {"age": 3}, callback=first.append).result()
    world.writer.write("t", "before", {"n": 1}).result()
    world.lab.run(minutes=1)
    assert keys(first) == [("upsert", "before")]

    world = build(max_waiting=max_waiting)
    another = world.jane.read("u", "n > 0", "continuous", callback=other.append).result()
    for number in range(3):
        world.writer.write("t", f"during {number}", {"n": 1}).result()
        world.lab.run(minutes=1)
    world.writer.delete("t", "before").result()
    world.lab.run(minutes=1)
    assert another != handle
    assert other == []

    world = build(max_waiting=max_waiting)
    listed = {read["handle"]: read for read in world.jane.continuous_reads().result()}
    assert sorted(listed) == sorted((handle, another))
    read = listed[handle]
    assert (read["table"], read["predicate"], read["data"]) == ("t", "n > 0", {"age": 3})
    assert (read["synced"], read["ended"]) == (True, None)
    assert (read["waiting"], read["paused"]) == ((1, True) if max_waiting == 1 else (4, False))
    world.jane.listen(handle, second.append).result()
    world.jane.listen(another, other.append).result()
    world.lab.run(minutes=1)
    world.writer.write("t", "after", {"n": 1}).result()
    world.writer.write("u", "of u", {"n": 1}).result()
    world.lab.run(minutes=1)
    expected = [("upsert", f"during {number}") for number in range(3)]
    assert sorted(keys(second)) == sorted([*expected, ("remove", "before"), ("upsert", "after")])
    assert keys(other) == [("upsert", "of u")]
    assert len({change.id for change in (*first, *second)}) == 6
    assert world.jane.continuous_reads().result()[0]["waiting"] == 0


def test_new_callback_replaces_the_earlier_one_also_after_a_kill(build):
    first, second = [], []
    world = build()
    world.jane.create("t").result()
    handle = world.jane.read("t", None, "continuous", callback=first.append).result()
    world.jane.listen(handle, second.append).result()
    world.lab.faults.kill("jane")
    world.lab.faults.restart("jane")
    world.lab.run(minutes=1)
    world.writer.write("t", "a", {"n": 1}).result()
    world.lab.run(minutes=1)
    assert (keys(first), keys(second)) == ([], [("upsert", "a")])


def test_handles_of_ended_reads_and_of_other_apps_are_refused(build):
    world = build()
    world.jane.create("t").result()
    handle = world.jane.read("t", None, "continuous", callback=print).result()
    with pytest.raises(ParameterError, match="no such continuous read"):
        world.other.listen(handle, print).result()
    assert world.other.continuous_reads().result() == []
    world.jane.unregister(handle).result()
    with pytest.raises(ParameterError, match=r"has ended[\s\S]*begin another one"):
        world.jane.listen(handle, print).result()


def test_subscription_gets_its_messages_after_a_restart_of_the_application(build):
    world = build()
    world.jane.create("t").result()
    handle = PubSub(world.jane, "t").subscribe("friends", print).result()
    world = build()
    PubSub(world.writer, "t").publish("friends", text="lunch?").result()
    world.lab.run(minutes=1)
    (listed,) = world.jane.continuous_reads().result()
    assert (listed["handle"], listed["predicate"], listed["constants"]) == (
        handle,
        "topic = :topic",
        ["friends"],
    )
    messages = []
    PubSub(world.jane, "t").listen(handle, messages.append).result()
    world.lab.run(minutes=1)
    assert [message["text"] for message in messages] == ["lunch?"]


def test_callback_of_a_continuous_read_has_one_listener(build):
    """The listener that receives the handle stayed for ever, one for each read that was begun."""
    world = build()
    world.jane.create("t").result()
    handles = [world.jane.read("t", type="continuous", callback=print).result() for _ in range(3)]
    assert len(world.jane.installed._listeners) == len(handles)

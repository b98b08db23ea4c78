"""A message that is nested very deeply is dropped like any other odd one: no role raises, and no run ends."""

from __future__ import annotations

import gzip
import warnings

import msgspec
import pytest
from odd_messages import overhear

from mudkit import Lab
from mudkit.errors import brief
from mudkit.events import Call, Complete, Received, Record, Send
from mudkit.systems import contrail, lasthop, mud, radiator, sublim
from mudkit.systems import store_and_forward as sf
from mudkit.systems.receiving import dropped
from mudkit.wire import MAX_MESSAGE_DEPTH, as_wire, is_too_deep

DEPTHS = [MAX_MESSAGE_DEPTH + 1, 978, 100_000]
MORE_DEPTHS = [500, *range(960, 1000, 3)]


def nested(depth, value=1):
    for _ in range(depth):
        value = [value]
    return value


class Evil:
    def __init__(self, ports):
        pass

    def handle(self, now_us, event):
        if isinstance(event, Call):
            return [Complete(event.op_id), Send(event.arguments["to"], event.arguments["message"])]
        return ()


def store_and_forward_world(lab):
    relay = sf.Relay(lab)
    ann, _ = (sf.Client(lab.device(name), relay) for name in ("ann", "bob"))
    return lambda: ann.send("bob", "x")


def radiator_world(lab):
    server = radiator.Server(lab, lambda a, b: radiator.Volume(1))
    ann, _ = (radiator.Client(lab.device(name), server, receive=lambda _: None) for name in ("ann", "bob"))
    return lambda: ann.propagate_context(radiator.Context({"ann"}, {"a": 1}))


def contrail_world(lab):
    relay = contrail.Relay(lab)
    modules = [contrail.Module(lab.device(name), relay, friends=["ann", "bob"]) for name in ("ann", "bob")]
    ann, bob = (module.open_port("p") for module in modules)
    bob.install_filter("TRUE", to=("ann", "p"))
    return lambda: ann.publish(contrail.Item({"a": 1}, b""))


def sublim_world(lab):
    net = sublim.PublishServer(lab)
    sublim.AccessPoint(lab, net)
    sublim.AccessPoint(lab, net, stateful=False)
    sublim.Subscriber(lab.device("ann", link="wifi"), net)
    sublim.PlainSubscriber(lab.device("bob", link="wifi"), net, "TRUE")
    return lambda: net.publish({"a": 1})


def lasthop_world(lab):
    server = lasthop.Publications(lab)
    reader = lasthop.Subscriber(lab.device("ann"), server)
    reader.subscribe("news")
    return lambda: server.topic("news").publish("x", rank=1.0)


def mud_world(lab):
    cloud = mud.Cloud(lab)
    ann = mud.Client(lab.device("ann"), cloud, app="a", token=lab.token(user="ann", app="a"))
    ann.create("t").result()
    ann.read("t", type="continuous", callback=lambda _: None).result()
    return lambda: ann.write("t", "k", {"n": 1})


WORLDS = {
    "sf": store_and_forward_world,
    "radiator": radiator_world,
    "contrail": contrail_world,
    "sublim": sublim_world,
    "lasthop": lasthop_world,
    "mud": mud_world,
}


@pytest.fixture(params=WORLDS)
def world(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lab = Lab(seed=1)
        with overhear(lab) as heard:
            act = WORLDS[request.param](lab)
            lab.run(minutes=1)
            act()
            lab.run(minutes=1)
        yield lab, heard, act


def deep_copies(message, depth):
    """Yield a message that was heard with each of its fields in turn nested deeply."""
    fields = as_wire(message)
    for name, value in fields.items() if isinstance(fields, dict) else ():
        yield {**fields, name: nested(depth, value)}
        if isinstance(value, dict):
            yield {**fields, name: {**value, "deep": nested(depth)}}


def test_every_role_drops_what_is_nested_deeply(world, scaled):
    lab, heard, act = world
    for depth in scaled([*DEPTHS, *MORE_DEPTHS], DEPTHS):
        text, value = b"[" * depth + b"]" * depth, nested(depth)
        odd = [{"kind": value}, value, text, b'{"kind":' + text + b"}", gzip.compress(text)]
        # In `make test` fields are as deep as Python can recurse; the soak nests each of them deeper than C can.
        in_fields = depth in scaled([*DEPTHS, *MORE_DEPTHS], DEPTHS[:2])
        for process, events in heard.items():
            for message in (*odd, *(deep_copies(events[-1].message, depth) if in_fields else ())):
                effects = process.machine.handle(
                    lab.world.now_us, Received(events[-1].source, message, events[-1].host)
                )
                assert any(type(each) is Record and each.row["incident"] == "dropped" for each in effects)
                assert not process.store.is_dirty
    act()
    lab.run(minutes=1)
    assert lab.problems.empty


def test_no_run_ends_by_what_the_network_carries(world):
    lab, heard, act = world
    system = next(iter(heard)).system
    evil = lab.device("evil").install(system, Evil, name="evil")
    lab.run(minutes=1)
    for to in [process.address for process in heard]:
        for depth in range(940, 1000, 4):
            for message in (
                {"kind": nested(depth)},
                {"kind": "x", "key": nested(depth)},
                b"\x91" * depth + b"\xa2ab",
            ):
                evil.call("x", to=to, message=message)
        lab.run(seconds=5)
    act()
    lab.run(minutes=1)
    problems = lab.problems[lab.problems["device"] != "evil"]
    assert problems.empty, problems["detail"].iloc[0]
    incidents = lab.trace.table("incidents").to_pandas()
    assert (incidents["incident"] == "dropped").sum() > 0


@pytest.mark.parametrize("depth", [3, 900, 990, 100_000])
def test_what_is_odd_is_written_down_whatever_it_is(depth):
    (record,) = dropped(Received("eve/x", {"kind": nested(depth)}, "eve"))
    assert record.row["incident"] == "dropped"
    assert len(record.row["detail"]) <= 120


@pytest.mark.soak
def test_the_depth_of_a_message_is_found_without_recursion():
    assert not is_too_deep(nested(MAX_MESSAGE_DEPTH))
    assert is_too_deep(nested(MAX_MESSAGE_DEPTH + 1))
    assert is_too_deep({"a": nested(1_000_000)})
    assert not is_too_deep([{"a": [1] * 10_000}] * 100)

    class Boxed(msgspec.Struct):
        inner: object

    assert is_too_deep(Boxed(nested(MAX_MESSAGE_DEPTH)))


def test_what_cannot_be_written_is_named_by_its_type():
    class Mute:
        def __repr__(self):
            raise ZeroDivisionError

    assert brief(nested(100_000)) == "a value of type list that cannot be printed"
    assert brief(Mute()) == "a value of type Mute that cannot be printed"
    assert brief("x" * 500, 10) == "'xxxxxxxxx"
    assert brief(10**5000) == "a value of type int that cannot be printed"

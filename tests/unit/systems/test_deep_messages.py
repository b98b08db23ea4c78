"""Deeply nested messages: dropped like other malformed ones, without an error or the end of a run."""

from __future__ import annotations

import gzip
import warnings

import msgspec
import pytest
from odd_messages import record_received

from mudkit import Lab
from mudkit.errors import brief
from mudkit.events import Call, Complete, Received, Record, Send
from mudkit.systems import contrail, lasthop, mud, radiator, sublim
from mudkit.systems import store_and_forward as sf
from mudkit.systems.receiving import record_dropped
from mudkit.wire import MAX_MESSAGE_DEPTH, as_wire, is_too_deep

DEPTHS = [MAX_MESSAGE_DEPTH + 1, 978, 100_000]
MORE_DEPTHS = [500, *range(960, 1000, 3)]


def nest(depth, value=1):
    for _ in range(depth):
        value = [value]
    return value


class ForeignMachine:
    def __init__(self, ports):
        pass

    def handle(self, now_us, event):
        if isinstance(event, Call):
            return [Complete(event.op_id), Send(event.arguments["to"], event.arguments["message"])]
        return ()


def build_store_and_forward(lab):
    relay = sf.Relay(lab)
    ann, _ = (sf.Client(lab.device(name), relay) for name in ("ann", "bob"))
    return lambda: ann.send("bob", "x")


def build_radiator(lab):
    server = radiator.Server(lab, lambda a, b: radiator.Volume(1))
    ann, _ = (radiator.Client(lab.device(name), server, receive=lambda _: None) for name in ("ann", "bob"))
    return lambda: ann.propagate_context(radiator.Context({"ann"}, {"a": 1}))


def build_contrail(lab):
    relay = contrail.Relay(lab)
    modules = [contrail.Module(lab.device(name), relay, friends=["ann", "bob"]) for name in ("ann", "bob")]
    ann, bob = (module.open_port("p") for module in modules)
    bob.install_filter("TRUE", to=("ann", "p"))
    return lambda: ann.publish(contrail.Item({"a": 1}, b""))


def build_sublim(lab):
    net = sublim.PublishServer(lab)
    sublim.AccessPoint(lab, net)
    sublim.AccessPoint(lab, net, stateful=False)
    sublim.Subscriber(lab.device("ann", link="wifi"), net)
    sublim.PlainSubscriber(lab.device("bob", link="wifi"), net, "TRUE")
    return lambda: net.publish({"a": 1})


def build_lasthop(lab):
    server = lasthop.Publications(lab)
    reader = lasthop.Subscriber(lab.device("ann"), server)
    reader.subscribe("news")
    return lambda: server.topic("news").publish("x", rank=1.0)


def build_mud(lab):
    cloud = mud.Cloud(lab)
    ann = mud.Client(lab.device("ann"), cloud, app="a", token=lab.token(user="ann", app="a"))
    ann.create("t").result()
    ann.read("t", type="continuous", callback=lambda _: None).result()
    return lambda: ann.write("t", "k", {"n": 1})


BUILDERS = {
    "sf": build_store_and_forward,
    "radiator": build_radiator,
    "contrail": build_contrail,
    "sublim": build_sublim,
    "lasthop": build_lasthop,
    "mud": build_mud,
}


@pytest.fixture(params=BUILDERS)
def world(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lab = Lab(seed=1)
        with record_received(lab) as received:
            act = BUILDERS[request.param](lab)
            lab.run(minutes=1)
            act()
            lab.run(minutes=1)
        yield lab, received, act


def nest_fields(message, depth):
    """Yield copies of a message in which one field is deeply nested."""
    fields = as_wire(message)
    for name, value in fields.items() if isinstance(fields, dict) else ():
        yield {**fields, name: nest(depth, value)}
        if isinstance(value, dict):
            yield {**fields, name: {**value, "deep": nest(depth)}}


def test_every_role_drops_deeply_nested_messages(world, scaled):
    lab, received, act = world
    for depth in scaled([*DEPTHS, *MORE_DEPTHS], DEPTHS):
        text, value = b"[" * depth + b"]" * depth, nest(depth)
        malformed = [{"kind": value}, value, text, b'{"kind":' + text + b"}", gzip.compress(text)]
        # In `make test` fields are as deep as Python can recurse; in the soak deeper than C can.
        in_fields = depth in scaled([*DEPTHS, *MORE_DEPTHS], DEPTHS[:2])
        for process, events in received.items():
            for message in (*malformed, *(nest_fields(events[-1].message, depth) if in_fields else ())):
                effects = process.machine.handle(
                    lab.world.now_us, Received(events[-1].source, message, events[-1].host)
                )
                assert any(
                    type(effect) is Record and effect.row["incident"] == "dropped" for effect in effects
                )
                assert not process.store.is_dirty
    act()
    lab.run(minutes=1)
    assert lab.problems.empty


def test_deeply_nested_messages_end_no_run(world):
    lab, received, act = world
    system = next(iter(received)).system
    evil = lab.device("evil").install(system, ForeignMachine, name="evil")
    lab.run(minutes=1)
    for to in [process.address for process in received]:
        for depth in range(940, 1000, 4):
            for message in (
                {"kind": nest(depth)},
                {"kind": "x", "key": nest(depth)},
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
def test_dropped_deep_message_is_recorded_briefly(depth):
    (record,) = record_dropped(Received("eve/x", {"kind": nest(depth)}, "eve"))
    assert record.row["incident"] == "dropped"
    assert len(record.row["detail"]) <= 120


@pytest.mark.soak
def test_depth_of_a_message_is_measured_without_recursion():
    assert not is_too_deep(nest(MAX_MESSAGE_DEPTH))
    assert is_too_deep(nest(MAX_MESSAGE_DEPTH + 1))
    assert is_too_deep({"a": nest(1_000_000)})
    assert not is_too_deep([{"a": [1] * 10_000}] * 100)

    class Boxed(msgspec.Struct):
        inner: object

    assert is_too_deep(Boxed(nest(MAX_MESSAGE_DEPTH)))


def test_unprintable_value_is_described_by_its_type():
    class Mute:
        def __repr__(self):
            raise ZeroDivisionError

    assert brief(nest(100_000)) == "a value of type list that cannot be printed"
    assert brief(Mute()) == "a value of type Mute that cannot be printed"
    assert brief("x" * 500, 10) == "'xxxxxxxxx"
    assert brief(10**5000) == "a value of type int that cannot be printed"

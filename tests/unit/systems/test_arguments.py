"""Arguments of the wrong kind in each system's API: refused at the call, by name."""

from __future__ import annotations

import contextlib

import pytest

from mudkit import Lab
from mudkit.errors import AccessDenied, MudkitError, ParameterError, TableProblem
from mudkit.systems import contrail, lasthop, mud, radiator, sublim
from mudkit.systems import store_and_forward as sf


def wait_one(sender, receiver):
    return radiator.Volume(1)


@pytest.fixture
def lab():
    new_lab = Lab(seed=7)
    new_lab.device("p")
    return new_lab


MISPLACED = {
    "sf, a lab for the relay": (lambda lab, p: sf.Client(p, lab), "relay", "Relay(lab)"),
    "sf, a name for the device": (lambda lab, p: sf.Client("p", sf.Relay(lab)), "device", "lab.device(name)"),
    "sf, a device for the lab": (lambda lab, p: sf.Relay(p), "lab", "Lab(seed=7)"),
    "radiator, a lab for the server": (lambda lab, p: radiator.Client(p, lab), "server", "Server(lab"),
    "radiator, a name": (lambda lab, p: radiator.Client("p", radiator.Server(lab, wait_one)), "device", "lab.device"),
    "radiator, a device for the lab": (lambda lab, p: radiator.Server(p, wait_one), "lab", "Lab(seed=7)"),
    "radiator, attributes": (
        lambda lab, p: radiator.Client(p, radiator.Server(lab, wait_one), attributes=3), "attributes", "p2p_enabled",
    ),
    "last hop, a lab": (lambda lab, p: lasthop.Subscriber(p, lab), "publications", "Publications(lab)"),
    "last hop, a name": (
        lambda lab, p: lasthop.Subscriber("p", lasthop.Publications(lab)), "device", "lab.device",
    ),
    "last hop, a device for the lab": (lambda lab, p: lasthop.Publications(p), "lab", "Lab(seed=7)"),
    "contrail, a lab": (lambda lab, p: contrail.Module(p, lab), "relay", "Relay(lab)"),
    "contrail, a name": (lambda lab, p: contrail.Module("p", contrail.Relay(lab)), "device", "lab.device"),
    "contrail, a number of friends": (
        lambda lab, p: contrail.Module(p, contrail.Relay(lab), 3), "friends", "a sequence, each a text",
    ),
    "contrail, a device for the lab": (lambda lab, p: contrail.Relay(p), "lab", "Lab(seed=7)"),
    "sublim, a lab": (lambda lab, p: sublim.Subscriber(p, lab), "net", "PublishServer(lab)"),
    "sublim, a name": (lambda lab, p: sublim.Subscriber("p", sublim.PublishServer(lab)), "device", "lab.device"),
    "sublim, a lab, plain": (lambda lab, p: sublim.PlainSubscriber(p, lab, "TRUE"), "net", "PublishServer(lab)"),
    "sublim, a lab at an access point": (lambda lab, p: sublim.AccessPoint(lab, lab), "net", "PublishServer(lab)"),
    "sublim, no place": (
        lambda lab, p: sublim.AccessPoint(lab, sublim.PublishServer(lab), at=3), "at", "(lat, lon)",
    ),
    "sublim, a device for the lab": (lambda lab, p: sublim.PublishServer(p), "lab", "Lab(seed=7)"),
    "mud, a lab": (lambda lab, p: mud.Client(p, lab, app="news"), "cloud", "Cloud(lab)"),
    "mud, a name": (lambda lab, p: mud.Client("p", mud.Cloud(lab), app="news"), "device", "lab.device"),
    "mud, a number for the app": (lambda lab, p: mud.Client(p, mud.Cloud(lab), app=3), "app", "a text"),
    "mud, a device for the lab": (lambda lab, p: mud.Cloud(p), "lab", "Lab(seed=7)"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISPLACED)
def test_misplaced_argument_is_refused_by_name(lab, case):
    call, where, message = MISPLACED[case]
    with pytest.raises(ParameterError) as raised:
        call(lab, lab.devices["p"])
    assert raised.value.where == where
    assert message in str(raised.value)


ODD_VALUES = (
    3, "\ud800", object(), 3.5, None, "", "x" * 5000, b"x", [1], {}, {"a": 1}, True, float("nan"), float("inf"), -1,
    1 << 70, "\n", "a\nb", "\0", ("a",), [[]], lambda: 1,
)  # fmt: skip


def build_calls():
    """Yield labs, and calls of each system's API that take one odd value."""
    lab = Lab(seed=1)
    relay = sf.Relay(lab)
    ann = sf.Client(lab.device("ann"), relay)
    yield lab, [lambda v: ann.send(v, "x"), lambda v: ann.send("bob", v), lambda v: ann.send("bob", "x", v)]
    news = lasthop.Publications(lab).topic("news")
    reader = lasthop.Subscriber(lab.device("reader"), lasthop.Publications(lab, "second"))
    settings = ("max", "threshold", "mode", "policy", "quiet_h", "interrupt", "at_h", "per_day")
    yield (
        lab,
        [
            news.publish,
            lambda v: news.publish("x", rank=v),
            lambda v: news.publish("x", expires_s=v),
            lambda v: news.publish("x", a=v),
            lambda v: news.publish("x", item=v),
            lambda v: news.rerank(v, 1.0),
            lambda v: news.rerank("news 1", v),
            reader.subscribe,
            reader.unsubscribe,
            reader.read,
            lambda v: reader.follow(v, {"a": (1.0, 1.0, 1.0)}),
            lambda v: reader.follow("n{place}", v),
            lambda v: reader.follow("n{place}", {"a": v}),
            *(lambda v, name=name: reader.subscribe("news", **{name: v}) for name in settings),
        ],
    )
    cloud = contrail.Relay(lab)
    modules = [contrail.Module(lab.device(name), cloud, friends=["c1", "c2"]) for name in ("c1", "c2")]
    port, other = (module.open_port("p") for module in modules)
    other.install_filter("TRUE", to=("c1", "p")).result()
    lab.run(minutes=2)
    item = contrail.Item({"a": 1}, b"")
    yield (
        lab,
        [
            modules[0].open_port,
            modules[0].befriend,
            modules[1].unfriend,
            modules[0].join,
            modules[0].leave,
            lambda v: modules[0].join(contrail.Group(v)),
            lambda v: modules[0].join(contrail.Group("g", rule=v)),
            lambda v: port.install_filter(v, to=("c2", "p")),
            lambda v: port.install_filter("TRUE", to=v),
            lambda v: port.install_filter("TRUE", to=(v, "p")),
            lambda v: port.install_filter("TRUE", to=("c2", v)),
            lambda v: port.install_filter("TRUE", to=("c2", "p"), item_expires_s=v),
            lambda v: port.install_filter("TRUE", to=("c2", "p"), lifetime_s=v),
            lambda v: port.install_filter("TRUE", to=("c2", "p"), replaces=v),
            port.remove_filter,
            port.publish,
            lambda v: port.publish(contrail.Item({"a": v}, b"")),
            lambda v: port.publish(contrail.Item(v, b"")),
            lambda v: port.publish(contrail.Item({}, v)),
            lambda v: port.publish(item, v),
            lambda v: port.publish(item, "x", v),
            lambda v: port.publish(item, only=v),
            lambda v: port.publish(item, delivery_name=v),
        ],
    )
    server = radiator.Server(lab, wait_one)
    receiver = radiator.Client(lab.device("told"), server, receive=lambda _: None)
    lab.run(seconds=10)
    yield (
        lab,
        [
            receiver.propagate_context,
            lambda v: receiver.propagate_context(radiator.Context(v, {})),
            lambda v: receiver.propagate_context(radiator.Context({"a"}, v)),
            receiver.register,
            lambda v: receiver.propagate_context(radiator.Context({"a"}, {"b": v})),
            lambda v: receiver.register({"p2p_enabled": v}),
        ],
    )
    client = mud.Client(lab.device("tables"), mud.Cloud(lab), app="a", token=lab.token(user="u", app="a"))
    client.create("t").result()
    handle = client.read("t", type="continuous", callback=lambda _: None).result()
    yield lab, [
        client.create, lambda v: client.create("u", acl=v), lambda v: client.create("u", apps=v),
        lambda v: client.create("u", split=v), lambda v: client.create("u", split=[v]),
        lambda v: client.create("u", schema=v), lambda v: client.create("u", schema={"a": v}), client.drop,
        lambda v: client.alter(v, acl="app"), lambda v: client.alter("t", acl=v),
        lambda v: client.alter("t", add=v), lambda v: client.alter("t", remove=v),
        lambda v: client.write(v, "k", {}), lambda v: client.write("t", v, {}), lambda v: client.write("t", "k", v),
        lambda v: client.write("t", "k", {"n": v}), lambda v: client.write("t", "k", {}, v),
        lambda v: client.write("t", "k", {}, predicate=v), lambda v: client.write("t", "k", {}, data=v),
        lambda v: client.delete(v, "k"), lambda v: client.delete("t", v), client.read, client.holdings,
        lambda v: client.read("t", v), lambda v: client.read("t", type=v), lambda v: client.read("t", data=v),
        lambda v: client.read("t", data={"a": v}), lambda v: client.read("t", aggregate=v),
        lambda v: client.read("t", latest=v), lambda v: client.read(v, type="continuous"),
        lambda v: client.read("t", type="continuous", sync_timestamp=v), client.renew,
        lambda v: client.update_data(v, {}), lambda v: client.update_data(handle, v), client.unregister,
    ]  # fmt: skip


def test_odd_arguments_are_refused_or_answered_and_stop_nothing():
    for lab, calls in build_calls():
        pending = []
        for number, call in enumerate(calls):
            for odd in ODD_VALUES:
                try:
                    result = call(odd)
                except MudkitError:
                    continue
                if hasattr(result, "done"):
                    pending.append((number, odd, result))
        lab.run(minutes=30)
        assert [(number, odd) for number, odd, result in pending if not result.done()] == []
        for _, _, result in pending:
            with contextlib.suppress(MudkitError):
                result.result()
        assert lab.problems.empty


def test_store_and_forward_sends_texts_only(lab):
    ann = sf.Client(lab.devices["p"], sf.Relay(lab))
    for to, text, item, where in (
        ("bob", None, None, "text"),
        ("bob", b"x", None, "text"),
        (lab.devices["p"], "x", None, "to"),
        ("", "x", None, "to"),
        ("bob", "x", 3, "item"),
    ):
        with pytest.raises(ParameterError) as raised:
            ann.send(to, text, item)
        assert raised.value.where == where
    assert ann.send("bob", "").result() == 1


def test_store_and_forward_queues_messages_for_a_device_added_later(lab):
    relay = sf.Relay(lab)
    assert sf.Client(lab.devices["p"], relay).send("late", "x").result() == 1
    lab.run(hours=1)
    late = sf.Client(lab.device("late"), relay)
    lab.run(seconds=10)
    assert late.read().result() == [{"from": "p", "text": "x"}]


def test_mud_client_refuses_a_token_of_another_app(lab):
    cloud, phone = mud.Cloud(lab), lab.devices["p"]
    with pytest.raises(ParameterError, match=r"another app(.|\n)*'other'(.|\n)*app='news'") as raised:
        mud.Client(phone, cloud, app="news", token=lab.token(user="jane", app="other"))
    assert raised.value.where == "token"
    forged = mud.Client(phone, cloud, app="news", token="junk")
    with pytest.raises(AccessDenied, match="no token of this authority"):  # refused by the cloud
        forged.read("news").result()


def test_unusable_records_are_refused_before_they_are_queued(lab):
    client = mud.Client(lab.devices["p"], mud.Cloud(lab), app="news", token=lab.token(app="news"))
    for record in ([1, 2], None, "x", 3):
        with pytest.raises(ParameterError, match="a mapping of columns to values, such as") as raised:
            client.write("news", "a", record)
        assert raised.value.where == "record"
    assert client.pending().result() == []
    for call in (client.read, client.drop, client.holdings, lambda table: client.write(table, "a", {})):
        for table in (3, "\ud800", None, ["news"]):
            with pytest.raises(ParameterError, match="expected: a text"):
                call(table)
        for table in ("", "x" * 1000):
            with pytest.raises(TableProblem, match="no such table"):
                call(table).result()

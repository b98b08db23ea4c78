"""What is given in a wrong place is refused by name where it is given: each front, each mix-up."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import AccessDenied, ParameterError, TableProblem
from mudkit.systems import contrail, lasthop, mud, radiator, sublim
from mudkit.systems import store_and_forward as sf


def _one(sender, receiver):
    return radiator.Volume(1)


@pytest.fixture
def lab():
    made = Lab(seed=7)
    made.device("p")
    return made


WRONG = {
    "sf, a lab for the relay": (lambda lab, p: sf.Client(p, lab), "relay", "Relay(lab)"),
    "sf, a name for the device": (lambda lab, p: sf.Client("p", sf.Relay(lab)), "device", "lab.device(name)"),
    "sf, a device for the lab": (lambda lab, p: sf.Relay(p), "lab", "Lab(seed=7)"),
    "radiator, a lab for the server": (lambda lab, p: radiator.Client(p, lab), "server", "Server(lab"),
    "radiator, a name": (lambda lab, p: radiator.Client("p", radiator.Server(lab, _one)), "device", "lab.device"),
    "radiator, a device for the lab": (lambda lab, p: radiator.Server(p, _one), "lab", "Lab(seed=7)"),
    "radiator, attributes": (
        lambda lab, p: radiator.Client(p, radiator.Server(lab, _one), attributes=3), "attributes", "p2p_enabled",
    ),
    "last hop, a lab": (lambda lab, p: lasthop.Subscriber(p, lab), "publications", "Publications(lab)"),
    "last hop, a name": (
        lambda lab, p: lasthop.Subscriber("p", lasthop.Publications(lab)), "device", "lab.device",
    ),
    "last hop, a device for the lab": (lambda lab, p: lasthop.Publications(p), "lab", "Lab(seed=7)"),
    "contrail, a lab": (lambda lab, p: contrail.Module(p, lab), "relay, friends", "Relay(lab)"),
    "contrail, a name": (lambda lab, p: contrail.Module("p", contrail.Relay(lab)), "device", "lab.device"),
    "contrail, a number of friends": (
        lambda lab, p: contrail.Module(p, contrail.Relay(lab), 3), "relay, friends", "list of names",
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


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_in_a_wrong_place_is_refused_there(lab, wrong):
    call, where, told = WRONG[wrong]
    with pytest.raises(ParameterError) as caught:
        call(lab, lab.devices["p"])
    assert caught.value.where == where
    assert told in str(caught.value)


def test_store_and_forward_sends_texts_only(lab):
    ann = sf.Client(lab.devices["p"], sf.Relay(lab))
    for to, text, item, where in (
        ("bob", None, None, "text"),
        ("bob", b"x", None, "text"),
        (lab.devices["p"], "x", None, "to"),
        ("", "x", None, "to"),
        ("bob", "x", 3, "item"),
    ):
        with pytest.raises(ParameterError) as caught:
            ann.send(to, text, item)
        assert caught.value.where == where
    assert ann.send("bob", "").result() == 1


def test_store_and_forward_keeps_what_is_for_a_device_that_comes_later(lab):
    relay = sf.Relay(lab)
    assert sf.Client(lab.devices["p"], relay).send("late", "x").result() == 1
    lab.run(hours=1)
    late = sf.Client(lab.device("late"), relay)
    lab.run(seconds=10)
    assert late.read().result() == [{"from": "p", "text": "x"}]


def test_a_client_of_tables_refuses_a_token_of_another_app(lab):
    cloud, phone = mud.Cloud(lab), lab.devices["p"]
    with pytest.raises(ParameterError, match=r"another app(.|\n)*'other'(.|\n)*app='news'") as caught:
        mud.Client(phone, cloud, app="news", token=lab.token(user="jane", app="other"))
    assert caught.value.where == "token"
    forged = mud.Client(phone, cloud, app="news", token="junk")
    with pytest.raises(AccessDenied, match="no token of this authority"):  # the cloud says what is wrong
        forged.read("news").result()


def test_what_is_no_record_is_refused_before_anything_is_queued(lab):
    client = mud.Client(lab.devices["p"], mud.Cloud(lab), app="news", token=lab.token(app="news"))
    for record in ([1, 2], None, "x", 3):
        with pytest.raises(ParameterError, match="a mapping of columns to values") as caught:
            client.write("news", "a", record)
        assert caught.value.where == "record"
    assert client.pending().result() == []
    with pytest.raises(TableProblem, match=r"found: +3"):
        client.read(3).result()

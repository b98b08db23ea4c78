"""Knowledge of the parties, computed from what they held."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import zlib

import msgspec
import numpy as np
import pandas as pd
import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Call, Ciphertext, Complete, Send
from mudkit.experiment import (
    ADAPTERS,
    COMPOSITIONS,
    FRIENDS_NEARBY,
    NEWS,
    PHOTOS,
    cleartext_fields,
    contacts,
    disclosures,
    knowledge,
    own_machine,
    party_knowledge,
    run,
)
from mudkit.fleet.exposure import Mention
from mudkit.systems import radiator
from mudkit.systems.contrail import Group, Item, Module, Relay
from mudkit.systems.store_and_forward import Client
from mudkit.systems.store_and_forward import Relay as Forwarder


@pytest.fixture(scope="module")
def lab():
    lab = Lab(seed=7, record_exposure=True)
    relay = Relay(lab)
    friends = {"ann": ["bob", "cyd"], "bob": ["ann"], "cyd": ["ann", "dan"], "dan": ["cyd"]}
    modules = {
        name: Module(lab.device(name), relay, friends=others, shows_friends=name == "cyd")
        for name, others in friends.items()
    }
    ports = {name: module.open_port("app") for name, module in modules.items()}
    modules["ann"].join(Group("club")).result()
    lab.run(seconds=5)
    ports["bob"].install_filter("x > 0", to=(Group("club"), "app")).result()
    ports["cyd"].install_filter("x > 0", to=("ann", "app")).result()
    lab.run(minutes=1)
    ports["ann"].publish(Item({"x": 1}, b"the secret " * 50), "the name of it").result()
    lab.run(minutes=1)
    return lab


def test_relay_learns_communication_pairs_times_and_sizes(lab):
    result = contacts(lab)
    assert list(result.columns) == [
        "party", "system", "source", "destination", "field", "ts", "clear_bytes", "ciphertext_bytes",
    ]  # fmt: skip
    relay = result[result.party == "contrail-gateway"]
    items = relay[(relay.field == "message.to[].device") & (relay.source == "ann")]
    assert set(items.destination) == {"bob", "cyd"}
    assert items.ciphertext_bytes.max() > len(b"the secret " * 50)
    assert items.ts.is_monotonic_increasing
    assert str(items.ts.dt.tz) == "UTC"
    # White-list disclosed to the relay.
    assert set(relay[relay.field == "friends[]"].destination) == {"ann", "dan"}
    pairs = set(zip(relay.source, relay.destination, strict=True))
    assert pairs == {("ann", "bob"), ("ann", "cyd"), ("bob", "ann"), ("cyd", "ann"), ("cyd", "dan")}
    assert set(result[result.party == "bob"].source) == {"ann"}  # but not that cyd is a receiver, too


def test_server_knows_whom_it_names_to_a_device_and_no_device_what_it_sends():
    """See :func:`contacts`: a row for who received a message, and for a server that sent it to a device."""
    lab = Lab(record_exposure=True)
    lab.device("ann"), lab.device("bob")
    sent = [
        ("server", "other", "ann"),
        ("ann", "server", "bob"),
        ("server", "bob", "ann"),
        ("ann", "bob", "ann"),
    ]
    lab.trace.exposure.mentions += [
        Mention(party, "chat", sender, named, "from", second * 1_000_000, 10, 0)
        for second, (sender, party, named) in enumerate(sent)
    ]
    result = contacts(lab)
    second = (result["ts"] - pd.Timestamp(lab.start_us, unit="us", tz="UTC")).dt.total_seconds()
    assert list(zip(second, result["party"], result["source"], result["destination"], strict=True)) == [
        (1, "server", "ann", "bob"),
        (2, "bob", "ann", "bob"),
        (2, "server", "ann", "bob"),
        (3, "bob", "ann", "bob"),
    ]


def test_party_knowledge_summarizes_contacts(lab):
    table = party_knowledge(lab).set_index("party")
    assert set(table.index) == {"servers", "ann", "bob", "cyd", "dan"}
    servers = table.loc["servers"]
    assert (servers.devices, servers.pairs) == (4, 3)
    assert (table.loc[["bob", "dan"]].pairs == [1, 0]).all()
    assert table.loc["ann"].devices == 2
    assert servers.ciphertext_bytes > 550
    assert servers.stored_bytes > servers.ciphertext_bytes
    assert servers["first"] < servers["last"]


def test_relay_cleartext_has_groups_and_names_but_no_content(lab):
    table = cleartext_fields(lab)
    gateway = table[table.party == "contrail-gateway"].set_index("field")
    assert gateway.loc["group"].examples == "club"
    assert gateway.loc["message.item"].examples == "the name of it"
    assert gateway.loc["friends[]"]["values"] == 2
    assert set(gateway.loc[["message.port", "message.to[].port"]].examples) == {"app"}
    assert not table.examples.str.contains("secret|x > 0").any()


def test_devices_send_the_relay_only_listed_cleartext_fields(lab):
    table = cleartext_fields(lab)
    fields = set(table[table.party == "contrail-gateway"].field)
    from_devices = {field for field in fields if not field.startswith(("message.page", "message.results"))}
    assert from_devices == {
        "device", "kind", "number", "visit", "got[]", "hold", "group", "joins", "friends", "friends[]",
        "message.kind", "message.from", "message.port", "message.number", "message.slot", "message.group",
        "message.expires_us", "message.to[].device", "message.to[].port", "message.to[].expires_us",
        "message.item", "message.seq", "message.epoch", "to", "message.visit", "message.more",
    }  # fmt: skip


def test_store_and_forward_shows_content_in_cleartext():
    lab = Lab(seed=7, record_exposure=True)
    relay = Forwarder(lab)
    ann, _ = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    ann.send("bob", "the secret").result()
    lab.run(minutes=1)
    table = party_knowledge(lab).set_index("party")
    assert table.loc["servers"].pairs == 1
    assert table.loc["servers"].ciphertext_bytes == 0
    assert "the secret" in set(cleartext_fields(lab).examples)


def _propagate(compress):
    lab = Lab(seed=1, record_exposure=True)
    server = radiator.Server(lab, lambda sender, receiver: radiator.Volume(1), compress=compress)
    clients = [radiator.Client(device, server, receive=lambda context: None) for device in lab.fleet(3)]
    lab.run(minutes=1)
    clients[0].propagate_context(radiator.Context({"phone-00002"}, {"secret": "SECRETWORD"}))
    lab.run(minutes=1)
    return lab


def test_compression_does_not_change_party_knowledge():
    packed, plain = _propagate(True), _propagate(False)
    result = [{party for party, _, _ in lab.trace.exposure.find("SECRETWORD")} for lab in (packed, plain)]
    assert result[0] == result[1] == {"phone-00000", "phone-00001", "phone-00002", "radiator"}
    contact_columns = ["party", "source", "destination", "field", "clear_bytes"]
    assert len(contacts(packed)) > 0
    assert contacts(packed)[contact_columns].equals(contacts(plain)[contact_columns])
    knowledge_columns = ["system", "party", "devices", "pairs", "messages", "clear_bytes"]
    assert party_knowledge(packed)[knowledge_columns].equals(party_knowledge(plain)[knowledge_columns])
    assert cleartext_fields(packed).equals(cleartext_fields(plain))


def test_encrypted_and_clear_systems_disclose_the_same_pairs():
    names = ("ann", "bob", "cyd", "dan")
    lab = Lab(1, record_exposure=True)
    relay = Forwarder(lab)
    clients = [Client(lab.device(name), relay) for name in names]
    for client in clients:
        for to in names:
            client.send(to, "x" * 200)
    lab.run(minutes=10)
    clear = party_knowledge(lab).set_index("party").loc["servers"]
    lab = Lab(1, record_exposure=True)
    relay = Relay(lab)
    ports = [Module(lab.device(name), relay, friends=names).open_port("chat") for name in names]
    for port in ports:
        for to in names:
            port.install_filter("TRUE", to=(to, "chat"))
    lab.run(minutes=10)
    for port in ports:
        port.publish(Item({"kind": "text"}, b"x" * 200))
    lab.run(minutes=10)
    sealed = party_knowledge(lab).set_index("party").loc["servers"]
    assert sealed.pairs == clear.pairs > 4
    assert sealed.ciphertext_bytes > clear.ciphertext_bytes == 0


_FEW = PHOTOS.over(devices=5, hours=6.0, size_bytes=200, outage=0.0)


@pytest.fixture(scope="module")
def known():
    """Return run and knowledge table of the same task, by system."""
    entries = {name: run(_FEW, make, seed=6, name=name) for name, make in ADAPTERS.items()}
    return {name: (entry, knowledge(entry).set_index("party")) for name, entry in entries.items()}


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("system", ["to everyone", "MUD", "Last hop", "Radiator", "SUBLIM"])
def test_servers_read_all_items_sent_in_clear(known, system):
    entry, table = known[system]
    assert table.loc["servers", "items_read"] == len(entry.testbed.items) > 0
    assert table.loc["servers", "ciphertext_kb"] == 0


def test_contrail_relay_reads_no_items(known):
    _, table = known["Contrail"]
    assert (table.loc[["servers", "relay"], "items_read"] == 0).all()
    assert "relay" not in known["MUD"][1].index
    assert table.loc["servers", "ciphertext_kb"] > 0


def test_servers_know_sender_receiver_pairs(known):
    for system in ("MUD", "Last hop", "Contrail", "SUBLIM"):
        entry, table = known[system]
        pairs = {
            frozenset((row.item.rsplit(" ", 1)[0], row.receiver))
            for row in entry.deliveries[entry.deliveries["delivered"].notna()].itertuples()
        }
        assert len(pairs) > 0
        assert table.loc["servers", "pairs"] >= len(pairs), system


_PACKED = {
    "as the name of a field": lambda item: {json.dumps(item): 1},
    "zlib": lambda item: zlib.compress(json.dumps(item).encode()),
    "gzip in base64": lambda item: {"b": base64.b64encode(gzip.compress(json.dumps(item).encode())).decode()},
    "base64": lambda item: base64.b64encode(json.dumps(item).encode()).decode(),
    "hex": lambda item: {"x": item["content"].encode().hex()},
    "MessagePack in xz": lambda item: lzma.compress(msgspec.msgpack.encode(item)),
    "as if it were sealed": lambda item: {"box": Ciphertext(item["content"].encode())},
    "packed, as if it were sealed": lambda item: {"box": Ciphertext(bz2.compress(item["content"].encode()))},
}


@pytest.mark.parametrize("packing", _PACKED)
def test_packed_items_count_as_read_by_servers(packing):
    pack = _PACKED[packing]

    def handle(here, now_us, event):
        match event:
            case Call(op_id=op_id, operation="publish", arguments={"item": item}):
                return [Send(here.relay, pack(item)), Complete(op_id)]
            case Call(op_id=op_id):
                return [Complete(op_id)]
        return []

    entry = run(_FEW, own_machine(handle), seed=6, name="mine")
    assert knowledge(entry).set_index("party").loc["servers", "items_read"] == len(entry.testbed.items) > 0


def test_relay_and_other_servers_are_distinguished():
    make = COMPOSITIONS["MUD, then Contrail"]
    table = knowledge(run(_FEW, make, seed=6, name="both")).set_index("party")
    assert table.loc["servers", "items_read"] > 0
    assert table.loc["relay", "items_read"] == 0
    assert table.loc["relay", "ciphertext_kb"] > 0


def test_phones_read_items_for_others_only_in_broadcast_systems(known):
    for system in ("to everyone", "Radiator"):
        assert known[system][1].loc["a phone", "items_not_for_it"] > 0
    for system in ("MUD", "Last hop", "Contrail", "SUBLIM"):
        assert known[system][1].loc["a phone", "items_not_for_it"] == 0


def test_phones_read_at_most_all_items_on_average(known):
    """The docstring of `knowledge`: means over the phones."""
    for system, (entry, table) in known.items():
        phone = table.loc["a phone"]
        assert 0 <= phone["items_not_for_it"] <= phone["items_read"] <= len(entry.testbed.items), system
        assert phone["items_read"] > 0
        assert 0 <= phone["devices"] <= len(entry.testbed.phones)


def test_knowledge_without_recorded_exposure_is_refused():
    with pytest.raises(ParameterError, match="does not keep"):
        knowledge(run(_FEW.over(hours=0.1), ADAPTERS["MUD"], seed=1, record_exposure=False))


NEAR = FRIENDS_NEARBY.over(devices=6, hours=0.5)
COLUMNS = ["places", "interests"]


def get_shares(entry):
    return disclosures(entry).set_index("party")


@pytest.fixture(scope="module")
def contrail():
    return run(NEAR, ADAPTERS["Contrail"], 1, name="Contrail")


@pytest.mark.parametrize("name", ["MUD", "Last hop", "Radiator", "SUBLIM"])
def test_servers_that_filter_know_places_and_interests(name):
    result = get_shares(run(NEAR, ADAPTERS[name], 1, name=name))
    assert (result.loc["servers", COLUMNS] == 1.0).all()
    assert (result.loc["another device", COLUMNS] == 0.0).all()


def test_senders_that_filter_know_places_and_interests(contrail):
    result = get_shares(contrail)
    assert (result.loc["servers", COLUMNS] == 0.0).all()
    assert (result.loc["another device", COLUMNS] == 1.0).all()


def test_disclosures_detect_data_held_by_a_relay(contrail):
    exposure, testbed = contrail.lab.trace.exposure, contrail.testbed
    rows = contrail.lab.frame("positions").query("device == @testbed.phones[0]")
    lat, lon = rows[["lat", "lon"]].iloc[0]
    friends = [testbed.profile(phone)["friends"] for phone in testbed.phones]
    longest = max(friends, key=len)
    exposure.record("contrail-gateway", "contrail", "received", {"loc": (lat, lon)}, 0)
    exposure.record("contrail-gateway", "contrail", "stored", gzip.compress(longest.encode()), 0)
    result = get_shares(contrail).loc["servers"]
    assert result["places"] == pytest.approx(1 / 6)
    assert result["interests"] == sum(names in longest for names in friends) / 6 < 1.0


def test_broadcast_discloses_no_interests():
    result = get_shares(run(NEWS.over(devices=4, hours=3.0), ADAPTERS["to everyone"], 1, name="all"))
    assert (result["interests"] == 0.0).all()
    assert np.isnan(result["places"]).all()


def test_filtering_feed_knows_interests_of_readers():
    result = get_shares(run(NEWS.over(devices=3, hours=2.0), ADAPTERS["Contrail"], 1, name="Contrail"))
    assert result.loc["another device", "interests"] == 1.0


def test_disclosures_without_recorded_exposure_are_refused():
    entry = run(NEAR, ADAPTERS["to everyone"], 1, name="all", record_exposure=False)
    with pytest.raises(ParameterError, match="record_exposure=True"):
        disclosures(entry)

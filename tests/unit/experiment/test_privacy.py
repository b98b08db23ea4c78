"""What parties party_knowledge, from what they held."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import zlib

import msgspec
import numpy as np
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
    Contrail,
    Scenario,
    StoreAndForward,
    cleartext_fields,
    contacts,
    disclosures,
    knowledge,
    own_machine,
    party_knowledge,
    run,
)
from mudkit.sources.workloads import Poisson
from mudkit.systems import radiator
from mudkit.systems.contrail import Group, Item, Module, Relay
from mudkit.systems.store_and_forward import Client
from mudkit.systems.store_and_forward import Relay as Forwarder


@pytest.fixture(scope="module")
def lab():
    made = Lab(seed=7, record_exposure=True)
    relay = Relay(made)
    friends = {"ann": ["bob", "cyd"], "bob": ["ann"], "cyd": ["ann", "dan"], "dan": ["cyd"]}
    modules = {
        name: Module(made.device(name), relay, friends=others, shows_friends=name == "cyd")
        for name, others in friends.items()
    }
    ports = {name: module.open_port("app") for name, module in modules.items()}
    modules["ann"].join(Group("club")).result()
    made.run(seconds=5)
    ports["bob"].install_filter("x > 0", to=(Group("club"), "app")).result()
    ports["cyd"].install_filter("x > 0", to=("ann", "app")).result()
    made.run(minutes=1)
    ports["ann"].publish(Item({"x": 1}, b"the secret " * 50), "the name of it").result()
    made.run(minutes=1)
    return made


def test_a_relay_learns_who_talks_to_whom_when_and_how_much(lab):
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
    # The white-list that was shown.
    assert set(relay[relay.field == "friends[]"].destination) == {"ann", "dan"}
    pairs = set(zip(relay.source, relay.destination, strict=True))
    assert pairs == {("ann", "bob"), ("ann", "cyd"), ("bob", "ann"), ("cyd", "ann"), ("cyd", "dan")}
    assert set(result[result.party == "bob"].source) == {"ann"}  # not that cyd gets it, too


def test_the_summary_counts_what_the_contacts_say(lab):
    table = party_knowledge(lab).set_index("party")
    assert set(table.index) == {"servers", "ann", "bob", "cyd", "dan"}
    servers = table.loc["servers"]
    assert (servers.devices, servers.pairs) == (4, 3)
    assert (table.loc[["bob", "dan"]].pairs == [1, 0]).all()
    assert table.loc["ann"].devices == 2
    assert servers.ciphertext_bytes > 550
    assert servers.stored_bytes > servers.ciphertext_bytes
    assert servers["first"] < servers["last"]


def test_what_a_relay_is_shown_has_groups_and_names_and_no_content(lab):
    table = cleartext_fields(lab)
    gateway = table[table.party == "contrail-gateway"].set_index("field")
    assert gateway.loc["group"].examples == "club"
    assert gateway.loc["message.item"].examples == "the name of it"
    assert gateway.loc["friends[]"]["values"] == 2
    assert set(gateway.loc[["message.port", "message.to[].port"]].examples) == {"app"}
    assert not table.examples.str.contains("secret|x > 0").any()


def test_a_relay_is_shown_nothing_else_by_devices(lab):
    table = cleartext_fields(lab)
    fields = set(table[table.party == "contrail-gateway"].field)
    from_devices = {each for each in fields if not each.startswith(("message.page", "message.results"))}
    assert from_devices == {
        "device", "kind", "number", "visit", "got[]", "hold", "group", "joins", "friends", "friends[]",
        "message.kind", "message.from", "message.port", "message.number", "message.slot", "message.group",
        "message.expires_us", "message.to[].device", "message.to[].port", "message.to[].expires_us",
        "message.item", "message.seq", "message.epoch", "to", "message.visit", "message.more",
    }  # fmt: skip


def test_another_system_shows_all_of_it():
    made = Lab(seed=7, record_exposure=True)
    relay = Forwarder(made)
    ann, _ = (Client(made.device(name), relay) for name in ("ann", "bob"))
    ann.send("bob", "the secret").result()
    made.run(minutes=1)
    table = party_knowledge(made).set_index("party")
    assert table.loc["servers"].pairs == 1
    assert table.loc["servers"].ciphertext_bytes == 0
    assert "the secret" in set(cleartext_fields(made).examples)


def _told(compress):
    made = Lab(seed=1, record_exposure=True)
    server = radiator.Server(made, lambda sender, receiver: radiator.Volume(1), compress=compress)
    clients = [radiator.Client(device, server, receive=lambda context: None) for device in made.fleet(3)]
    made.run(minutes=1)
    clients[0].propagate_context(radiator.Context({"phone-00002"}, {"secret": "SECRETWORD"}))
    made.run(minutes=1)
    return made


def test_what_is_only_packed_changes_nothing_in_who_knows_what():
    packed, plain = _told(True), _told(False)
    result = [{party for party, _, _ in made.trace.exposure.find("SECRETWORD")} for made in (packed, plain)]
    assert result[0] == result[1] == {"phone-00000", "phone-00001", "phone-00002", "radiator"}
    answer = ["party", "source", "destination", "field", "clear_bytes"]
    assert len(contacts(packed)) > 0
    assert contacts(packed)[answer].equals(contacts(plain)[answer])
    columns = ["system", "party", "devices", "pairs", "messages", "clear_bytes"]
    assert party_knowledge(packed)[columns].equals(party_knowledge(plain)[columns])
    assert cleartext_fields(packed).equals(cleartext_fields(plain))


def test_runs_of_two_systems_are_compared():
    scenario = Scenario(devices=4, hours=2.0, items=Poisson(per_day=100), size_bytes=200)
    tables = {}
    for system in (Contrail, StoreAndForward):
        done = run(scenario, system, seed=1)
        assert len(done.lab.exposure()) > 10
        tables[done.system] = party_knowledge(done.lab).set_index("party").loc["servers"]
    sealed, clear = tables["contrail"], tables["store and forward"]
    assert sealed.pairs == clear.pairs > 4  # who talks to whom is the same
    assert sealed.ciphertext_bytes > clear.ciphertext_bytes == 0


_FEW = PHOTOS.over(devices=5, hours=6.0, size_bytes=200, outage=0.0)


@pytest.fixture(scope="module")
def known():
    """What is known after the same task, by system."""
    entries = {name: run(_FEW, make, seed=6, name=name) for name, make in ADAPTERS.items()}
    return {name: (entry, knowledge(entry).set_index("party")) for name, entry in entries.items()}


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("system", ["to everyone", "MUD", "Last hop", "Radiator", "SUBLIM"])
def test_servers_read_everything_that_is_sent_in_clear(known, system):
    entry, table = known[system]
    assert table.loc["servers", "items_read"] == len(entry.testbed.items) > 0
    assert table.loc["servers", "ciphertext_kb"] == 0


def test_contrails_relay_reads_nothing(known):
    _, table = known["Contrail"]
    assert (table.loc[["servers", "relay"], "items_read"] == 0).all()
    assert "relay" not in known["MUD"][1].index
    assert table.loc["servers", "ciphertext_kb"] > 0


def test_servers_know_whose_items_they_pass_to_whom(known):
    for system in ("MUD", "Last hop", "Contrail", "SUBLIM"):
        entry, table = known[system]
        passed = {
            frozenset((row.item.rsplit(" ", 1)[0], row.receiver))
            for row in entry.deliveries[entry.deliveries["delivered"].notna()].itertuples()
        }
        assert len(passed) > 0
        assert table.loc["servers", "pairs"] >= len(passed), system


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
def test_what_is_only_packed_is_read(packing):
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


def test_a_relay_is_told_apart_from_other_servers():
    make = COMPOSITIONS["MUD, then Contrail"]
    table = knowledge(run(_FEW, make, seed=6, name="both")).set_index("party")
    assert table.loc["servers", "items_read"] > 0
    assert table.loc["relay", "items_read"] == 0
    assert table.loc["relay", "ciphertext_kb"] > 0


def test_phones_read_what_is_not_for_them_where_all_get_everything(known):
    for system in ("to everyone", "Radiator"):
        assert known[system][1].loc["a phone", "items_not_for_it"] > 0
    for system in ("MUD", "Last hop", "Contrail", "SUBLIM"):
        assert known[system][1].loc["a phone", "items_not_for_it"] == 0


def test_a_run_that_has_not_kept_it():
    with pytest.raises(ParameterError, match="does not keep"):
        knowledge(run(_FEW.over(hours=0.1), ADAPTERS["MUD"], seed=1, record_exposure=False))


NEAR = FRIENDS_NEARBY.over(devices=6, hours=0.5)
BOTH = ["places", "interests"]


def shares(entry):
    return disclosures(entry).set_index("party")


@pytest.fixture(scope="module")
def contrail():
    return run(NEAR, ADAPTERS["Contrail"], 1, name="Contrail")


@pytest.mark.parametrize("name", ["MUD", "Last hop", "Radiator", "SUBLIM"])
def test_where_servers_choose_they_know_and_devices_do_not(name):
    result = shares(run(NEAR, ADAPTERS[name], 1, name=name))
    assert (result.loc["servers", BOTH] == 1.0).all()
    assert (result.loc["another device", BOTH] == 0.0).all()


def test_where_senders_choose_they_know_and_servers_do_not(contrail):
    result = shares(contrail)
    assert (result.loc["servers", BOTH] == 0.0).all()
    assert (result.loc["another device", BOTH] == 1.0).all()


def test_the_same_search_finds_what_a_relay_holds(contrail):
    held, testbed = contrail.lab.trace.exposure, contrail.testbed
    rows = contrail.lab.frame("positions").query("device == @testbed.phones[0]")
    lat, lon = rows[["lat", "lon"]].iloc[0]
    friends = [testbed.profile(phone)["friends"] for phone in testbed.phones]
    longest = max(friends, key=len)
    held.record("contrail-gateway", "contrail", "received", {"loc": (lat, lon)}, 0)
    held.record("contrail-gateway", "contrail", "stored", gzip.compress(longest.encode()), 0)
    result = shares(contrail).loc["servers"]
    assert result["places"] == pytest.approx(1 / 6)
    assert result["interests"] == sum(each in longest for each in friends) / 6 < 1.0


def test_who_sends_to_everyone_needs_to_know_nothing():
    result = shares(run(NEWS.over(devices=4, hours=3.0), ADAPTERS["to everyone"], 1, name="all"))
    assert (result["interests"] == 0.0).all()
    assert np.isnan(result["places"]).all()


def test_a_feed_that_filters_knows_what_its_readers_want():
    result = shares(run(NEWS.over(devices=3, hours=2.0), ADAPTERS["Contrail"], 1, name="Contrail"))
    assert result.loc["another device", "interests"] == 1.0


def test_an_entry_that_keeps_nothing_says_so():
    entry = run(NEAR, ADAPTERS["to everyone"], 1, name="all", record_exposure=False)
    with pytest.raises(ParameterError, match="record_exposure=True"):
        disclosures(entry)

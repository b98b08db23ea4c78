"""What parties learnt, computed from what they held."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.experiment import Scenario, contacts, learnt, run, shown
from mudkit.experiment.adapters import Contrail, StoreAndForward
from mudkit.sources.workloads import Poisson
from mudkit.systems import radiator
from mudkit.systems.contrail import Group, Item, Module, Relay
from mudkit.systems.store_and_forward import Client
from mudkit.systems.store_and_forward import Relay as Forwarder


@pytest.fixture(scope="module")
def lab():
    made = Lab(seed=7, record_held=True)
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
    assert set(relay[relay.field == "friends[]"].destination) == {
        "ann",
        "dan",
    }  # the white-list that was shown
    assert set(zip(relay.source, relay.destination, strict=True)) == {
        ("ann", "bob"),
        ("ann", "cyd"),
        ("bob", "ann"),
        ("cyd", "ann"),
        ("cyd", "dan"),
    }
    assert set(result[result.party == "bob"].source) == {"ann"}  # not that cyd gets it, too


def test_the_summary_counts_what_the_contacts_say(lab):
    table = learnt(lab).set_index("party")
    assert set(table.index) == {"servers", "ann", "bob", "cyd", "dan"}
    servers = table.loc["servers"]
    assert (servers.devices, servers.pairs) == (4, 3)
    assert (table.loc[["bob", "dan"]].pairs == [1, 0]).all()
    assert table.loc["ann"].devices == 2
    assert servers.ciphertext_bytes > 550
    assert servers.stored_bytes > servers.ciphertext_bytes
    assert servers["first"] < servers["last"]


def test_what_a_relay_is_shown_has_groups_and_names_and_no_content(lab):
    table = shown(lab, "contrail")
    gateway = table[table.party == "contrail-gateway"].set_index("field")
    assert gateway.loc["group"].examples == "club"
    assert gateway.loc["message.item"].examples == "the name of it"
    assert gateway.loc["friends[]"]["values"] == 2
    assert set(gateway.loc[["message.port", "message.to[].port"]].examples) == {"app"}
    assert not table.examples.str.contains("secret|x > 0").any()
    assert shown(lab, "mud").empty


def test_a_relay_is_shown_nothing_else_by_devices(lab):
    table = shown(lab, "contrail")
    fields = set(table[table.party == "contrail-gateway"].field)
    from_devices = {each for each in fields if not each.startswith(("message.page", "message.results"))}
    assert from_devices == {
        "device", "kind", "number", "visit", "got[]", "hold", "group", "joins", "friends", "friends[]",
        "message.kind", "message.from", "message.port", "message.number", "message.slot", "message.group",
        "message.expires_us", "message.to[].device", "message.to[].port", "message.to[].expires_us",
        "message.item", "message.seq", "message.epoch", "to", "message.visit", "message.more",
    }  # fmt: skip


def test_another_system_shows_all_of_it():
    made = Lab(seed=7, record_held=True)
    relay = Forwarder(made)
    ann, _ = (Client(made.device(name), relay) for name in ("ann", "bob"))
    ann.send("bob", "the secret").result()
    made.run(minutes=1)
    table = learnt(made).set_index("party")
    assert table.loc["servers"].pairs == 1
    assert table.loc["servers"].ciphertext_bytes == 0
    assert "the secret" in set(shown(made).examples)


def _told(compress):
    made = Lab(seed=1, record_held=True)
    server = radiator.Server(made, lambda sender, receiver: radiator.Volume(1), compress=compress)
    clients = [radiator.Client(device, server, receive=lambda context: None) for device in made.fleet(3)]
    made.run(minutes=1)
    clients[0].propagate_context(radiator.Context({"phone-00002"}, {"secret": "SECRETWORD"}))
    made.run(minutes=1)
    return made


def test_what_is_only_packed_changes_nothing_in_who_knows_what():
    packed, plain = _told(True), _told(False)
    result = [{party for party, _, _ in made.trace.held.find("SECRETWORD")} for made in (packed, plain)]
    assert result[0] == result[1] == {"phone-00000", "phone-00001", "phone-00002", "radiator"}
    answer = ["party", "source", "destination", "field", "clear_bytes"]
    assert len(contacts(packed)) > 0
    assert contacts(packed)[answer].equals(contacts(plain)[answer])
    columns = ["system", "party", "devices", "pairs", "messages", "clear_bytes"]
    assert learnt(packed)[columns].equals(learnt(plain)[columns])
    assert shown(packed).equals(shown(plain))


def test_runs_of_two_systems_are_compared():
    scenario = Scenario(devices=4, hours=2.0, items=Poisson(per_day=100), size_bytes=200)
    tables = {}
    for system in (Contrail, StoreAndForward):
        done = run(scenario, system, seed=1)
        assert len(done.held) > 10
        tables[done.system] = learnt(done.lab).set_index("party").loc["servers"]
    sealed, clear = tables["contrail"], tables["store and forward"]
    assert sealed.pairs == clear.pairs > 4  # who talks to whom is the same
    assert sealed.ciphertext_bytes > clear.ciphertext_bytes == 0


def test_a_lab_that_keeps_nothing_says_so():
    with pytest.raises(ParameterError, match="held=True"):
        contacts(Lab())

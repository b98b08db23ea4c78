"""Standbys in the campaign: whose log counts, what a backup may lose, and how long nobody answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud
from mudkit.verify.campaign import campaign
from mudkit.verify.campaign.campaign import Campaign
from mudkit.verify.campaign.stores import Stores


class Place:
    """Cloud with standbys, a client, and the stores as the campaign observes them."""

    def __init__(self, standbys=1):
        self.lab = Lab(1)
        self.cloud = Cloud(self.lab, standbys=standbys)
        self.log = {}
        self.faults = []
        self.stores = Stores(self.lab, self.cloud, self.log, lambda: self.faults)
        world = self.lab.world
        before = world.on_incident

        def record_incident(host, incident, detail):
            self.stores.record_incident(host.name, incident)
            before(host, incident, detail)

        world.on_incident = record_incident
        token = self.lab.token("u", "n", hours=99)
        self.client = Client(self.lab.device("phone"), self.cloud, app="n", token=token)
        self.client.create("t").result()

    def write(self, number=1):
        self.client.write("t", "a", {"n": number}).result()

    def host(self, number):
        return self.stores.addresses[number].split("/")[0]


@pytest.fixture
def place():
    return Place()


def test_log_is_that_of_the_present_master(place):
    place.write()
    place.lab.run(seconds=1)
    assert [entry["op"] for _, entry in sorted(place.log.items())] == ["table", "row"]
    known = dict(place.log)
    lost = max(known) + 1
    place.log[lost] = {"op": "row"}  # nobody has heard of it
    place.lab.faults.kill(place.host(0))
    place.client.read("t", latest=True)
    place.lab.run(minutes=1)
    assert place.stores.master == place.cloud.standbys[0]
    assert place.log == known
    place.write(2)
    assert place.log[lost]["row"]["data"] == {"n": 2}
    assert place.stores.store.get("lsn") == lost
    assert (place.stores.rolled_back_us, place.stores.problems) == (None, [])


def test_store_that_comes_back_is_complete_when_it_has_all(place):
    complete = place.stores.list_complete
    assert complete() == place.stores.addresses
    backup = place.lab.faults.backup(place.host(1))
    place.write()
    place.lab.faults.kill(place.host(1))
    assert complete() == [place.cloud.back_end]
    place.lab.faults.restore(place.host(1), backup)
    assert complete() == [place.cloud.back_end]
    place.lab.run(minutes=1)
    assert complete() == place.stores.addresses


def test_back_end_without_standbys_goes_back_with_its_backup():
    place = Place(standbys=0)
    backup = place.lab.faults.backup(place.host(0))
    place.lab.faults.restore(place.host(0), backup)
    assert place.stores.rolled_back_us == place.lab.world.now_us


def test_master_from_a_backup_is_replaced_and_nothing_goes_back(place):
    backup = place.lab.faults.backup(place.host(0))
    place.write()
    place.lab.faults.restore(place.host(0), backup)
    place.lab.run(minutes=1)
    assert place.stores.master == place.cloud.standbys[0]
    assert (place.stores.rolled_back_us, place.stores.problems) == (None, [])


@pytest.mark.parametrize("is_alone", [False, True])
def test_election_of_an_old_copy_is_a_problem_if_another_store_had_all(place, monkeypatch, is_alone):
    elections = place.lab.world.at_address[place.cloud.naming].machine.elections
    backup = place.lab.faults.backup(place.host(0))
    place.write()
    if is_alone:
        place.lab.faults.kill(place.host(1))
    else:  # the restored store is elected, whatever the other one has
        elect = type(elections)._elect
        monkeypatch.setattr(
            type(elections), "_elect", lambda self, now_us, live: elect(self, now_us, [self.master.address])
        )
    place.lab.faults.restore(place.host(0), backup)
    place.lab.run(minutes=1)
    assert place.stores.master == place.cloud.back_end
    assert place.stores.rolled_back_us is not None
    assert [words.partition(" was elected")[0] for words in place.stores.problems] == (
        [] if is_alone else [place.cloud.back_end]
    )


def test_write_without_an_answer_after_the_death_of_a_master_is_a_problem(monkeypatch):
    monkeypatch.setattr(campaign, "STANDBYS_WEIGHTS", (0, 1, 0))
    one_run = Campaign(1)
    one_run.clients["ann-phone"].create("t").result()
    faults = one_run.standby_faults
    monkeypatch.setattr(faults, "_is_well", lambda name: True)
    monkeypatch.setattr(faults, "_writers", ["ann-phone"])
    monkeypatch.setattr(
        faults, "_draw", SimpleNamespace(random=lambda: 0.0, choice=lambda options: options[0])
    )
    one_run.lab.faults.kill("mud-names")  # nobody takes over
    faults._replace("mud-store", is_master=True)
    assert "has no answer, mud-store died 60 s before" in faults.problems[0]
    assert faults.counts["take-overs, judged"] == 1

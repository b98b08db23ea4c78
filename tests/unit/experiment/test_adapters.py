"""Adapters: Contrail delivers what phones want, its relays hold only ciphertext; whose predicate a want of MUD is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mudkit.experiment import ADAPTERS, FRIENDS_NEARBY, NEWS, PHOTOS, Contrail, StoreAndForward, run
from mudkit.experiment.adapters import mud
from mudkit.experiment.testbed import not_hers
from mudkit.sources.workloads import Poisson, WakingReads

TASK = PHOTOS.over(
    devices=4, hours=3.0, link="umts_3g", outage=0.2, items=Poisson(per_day=100), size_bytes=1_000,
    reads=WakingReads(per_day=200), expires_s=7200.0, loss_share=0.05,
)  # fmt: skip


@pytest.fixture(scope="module")
def entry():
    return run(TASK, Contrail, seed=1)


def test_contrail_delivers_what_phones_want(entry):
    other = run(TASK, StoreAndForward, seed=1)
    columns = ["item", "receiver", "created", "expired"]
    is_for = [entry.testbed.is_for(*pair) for pair in other.deliveries[["item", "receiver"]].to_numpy()]
    expected = other.deliveries[is_for].reset_index(drop=True)
    assert entry.deliveries[columns].equals(expected[columns])
    status = entry.deliveries["status"].value_counts()
    assert status["read"] > 0.8 * len(entry.deliveries)
    assert set(status.index) <= {"read", "unread", "lost", "expired"}
    delivered = entry.deliveries.dropna(subset=["read"])
    assert (delivered.read > delivered.delivered).mean() > 0.9  # at the user's next look
    assert entry.measures()["latency_s"] > other.measures()["latency_s"]  # Contrail polls
    assert (entry.bill["bytes"] > 0).all()
    assert set(entry.bill["system"]) == {"contrail"}
    assert set(entry.deliveries["receiver"]) == set(entry.testbed.phones)


@pytest.mark.soak
def test_runs_with_same_seed_are_identical(entry):
    again = run(TASK, Contrail, seed=1)
    assert again.bill.equals(entry.bill)
    assert again.deliveries.equals(entry.deliveries)


def test_relays_hold_items_only_as_ciphertext(entry):
    exposure = entry.lab.exposure()
    assert (
        exposure[exposure.party.str.startswith("contrail-") & (exposure.form == "ciphertext")].bytes.sum()
        > 100_000
    )
    contents = [item.content for item in entry.testbed.items.values()]
    assert len(contents) > 30
    for private in (*contents, "called"):
        assert not [
            party for party, *_ in entry.trace.exposure.find(private) if party.startswith("contrail-")
        ]


@pytest.mark.parametrize(("task", "by_place"), [(NEWS, False), (FRIENDS_NEARBY, True)])
def test_want_is_the_readers_of_mud_unless_it_depends_on_her_place(task, by_place, monkeypatch):
    """The head of `mudkit.experiment.adapters.mud`: what depends on a place is the writer's."""
    predicates = {}
    monkeypatch.setattr(
        mud, "_begin_read", lambda _, phone, predicate, *__: predicates.update({phone: predicate})
    )
    phones = run(task.over(devices=3, hours=0.02), ADAPTERS["MUD"]).testbed.phones
    assert predicates.keys() == {*phones}
    assert [text == not_hers(phone) for phone, text in predicates.items()] == [by_place] * 3


def test_reader_data_follows_a_phone_that_reads():
    """See :meth:`MudPart.on_move`; a phone whose read does not stand yet begins it with where it is then."""
    updates = []
    part = object.__new__(mud.MudPart)
    reader = SimpleNamespace(update_data=lambda handle, data: updates.append((handle, data)))
    part._handles, part._readers = {"phone-0": 7}, {"phone-0": reader, "phone-1": reader}
    for phone in part._readers:
        part.on_move(phone, {"loc": (30.0, -97.0)})
    assert updates == [(7, {"loc": (30.0, -97.0), "name": "phone-0"})]


def test_reader_whose_first_filter_comes_gets_what_has_not_expired(monkeypatch):
    """The head of `mudkit.experiment.adapters.contrail`; an item of which half a second is left has not expired."""
    sent = []
    adapter = object.__new__(Contrail)
    adapter._readers, adapter._lab = {"ann": set()}, SimpleNamespace(world=SimpleNamespace(now_us=10_000_000))
    items = [
        SimpleNamespace(name=str(expires_s), expires_s=expires_s) for expires_s in (None, 9.9, 10.0, 10.5)
    ]
    adapter._published = {"ann": [(0, item) for item in items]}
    monkeypatch.setattr(
        adapter, "_send_wanted", lambda item, left_s, only: sent.append((item.name, left_s, only))
    )
    for _ in range(2):
        adapter._accept("ann", None, "bob")
    assert sent == [("None", None, ["bob"]), ("10.5", 0.5, ["bob"])]

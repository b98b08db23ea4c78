"""The testbed: who wants what, what has come, and who is shown it."""

from __future__ import annotations

import pytest
from couriers import Nobody, on_each

from mudkit.errors import ParameterError
from mudkit.experiment.scenario import Scenario
from mudkit.experiment.tasks import APP, Item, Task, Testbed
from mudkit.lab import Lab


def _says(seed, phones, senders):
    return [{"least": float(row)} for row, _ in enumerate(phones)]


def _testbed(**changes):
    settings = {"wants": "item.rank >= me.least", "says": _says, "is_shown": False, **changes}
    task = Task("test", "A test.", tells=lambda *given: {}, scenario=Scenario(devices=3), **settings)
    lab = Lab(1)
    lab.fleet(3, link="ideal")
    testbed = Testbed(task, lab)
    testbed.enter(Nobody())
    testbed.couriers = on_each(lab.devices.values())
    return testbed


def _send(testbed, message, to, sender="phone-00000"):
    """Have a message come to a phone, now."""
    testbed.couriers[sender].call("send", to=to, message=message)
    testbed.lab.run(seconds=0)


def _bring(testbed, name, *phones):
    for phone in phones:
        if phone != testbed.items[name].sender:
            _send(testbed, [testbed.items[name].content], phone)
        testbed.arrived(phone, name)


def _item(name, rank=5.0, sender="phone-00000", expires_s=None):
    return Item(name, sender, {"who": sender, "rank": rank}, 10, expires_s)


def _rows(testbed):
    table = testbed.lab.deliveries()
    return {(row.item, row.receiver): row for row in table[table["system"] == APP].itertuples()}


def test_who_wants_an_item_is_not_its_sender():
    testbed = _testbed()
    testbed.publish(_item("one", rank=1.0))
    assert list(_rows(testbed)) == [("one", "phone-00001")]
    assert testbed.wanted == 1


def test_what_comes_and_is_not_wanted_is_there_without_being_read():
    testbed = _testbed()
    testbed.publish(_item("one", rank=1.0, expires_s=5.0))
    _bring(testbed, "one", *testbed.phones)
    for phone in testbed.phones:
        testbed.show(phone)
    testbed.lab.run(seconds=10)
    assert {key: row.status for key, row in _rows(testbed).items()} == {
        ("one", "phone-00001"): "read",
        ("one", "phone-00002"): "unread",
    }


def test_the_best_are_shown_first_and_what_is_over_never():
    testbed = _testbed(most=1)
    for name, rank, expires_s in (("low", 3.0, None), ("high", 4.0, None), ("over", 5.0, 1.0)):
        testbed.publish(_item(name, rank, expires_s=expires_s))
        _bring(testbed, name, "phone-00002")
    testbed.lab.run(seconds=2)
    testbed.show("phone-00002")
    status = {name: row.status for (name, phone), row in _rows(testbed).items() if phone == "phone-00002"}
    assert status == {"low": "unread", "high": "read", "over": "expired"}
    testbed.show("phone-00002")
    assert _rows(testbed)["low", "phone-00002"].status == "read"


def test_what_is_seen_as_it_comes_is_read_at_once_and_once():
    testbed = _testbed(is_shown=True)
    testbed.publish(_item("one"))
    testbed.lab.run(seconds=3)
    _bring(testbed, "one", "phone-00001")
    testbed.lab.run(seconds=3)
    testbed.arrived("phone-00001", "one")
    row = _rows(testbed)["one", "phone-00001"]
    assert (row.status, row.latency_s, row.staleness_s) == ("read", 3.0, 3.0)


@pytest.mark.parametrize(("phone", "item"), [("phone-00001", "two"), ("nobody", "one")])
def test_nothing_comes_that_nobody_has_published(phone, item):
    testbed = _testbed()
    testbed.publish(_item("one"))
    with pytest.raises(ParameterError, match="nobody has published"):
        testbed.arrived(phone, item)


def test_who_moves_far_enough_says_so():
    task = Task(
        "near",
        "A test.",
        "within_km(item.loc, me.loc, 1)",
        Scenario(devices=4, mobility="manhattan"),
        tells=lambda *given: {},
        says=lambda seed, phones, senders: [{} for _ in phones],
        renew_km=0.2,
    )
    lab = Lab(3)
    lab.fleet(4, mobility="manhattan")
    testbed, nobody = Testbed(task, lab), Nobody()
    answer = {phone: testbed.about(phone)["loc"] for phone in testbed.phones}
    testbed.enter(nobody)
    assert nobody.moves == []
    lab.run(hours=1)
    assert set(nobody.moves) == set(testbed.phones)
    assert all(testbed.about(phone)["loc"] != answer[phone] for phone in testbed.phones)


def test_a_want_with_a_place_needs_places():
    with pytest.raises(ParameterError, match="phones have none"):
        _testbed(wants="within_km(item.loc, me.loc, 1)")

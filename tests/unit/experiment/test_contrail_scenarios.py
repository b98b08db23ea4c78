"""Scenarios of Contrail: what each party sees of an item, bytes of one direction, and power by link."""

from __future__ import annotations

import re

import pytest

from mudkit.experiment import ContrailPair, party_views, receiver_radio_mw
from mudkit.systems.contrail import Item


@pytest.fixture(scope="module")
def views():
    return party_views(Item({"destination": "school"}, b"secret payload"), "destination = 'school'")


def test_relay_sees_the_ports_of_sender_and_receiver_in_clear(views):
    """Contrail 3.3: a relay passes a message on by the names of devices and ports, and has nothing else."""
    rows = {row.field: row for row in views.rows}
    expected = {"from": "child, port location", "to": "alice, port alarm", "name": "item"}
    for field, text in expected.items():
        assert {(sight.form, sight.text) for sight in rows[field][1:]} == {("clear", text)}
    assert {rows[field].relay.form for field in ("destination", "payload", "key", "filter")} == {"ciphertext"}
    assert {rows[field].receiver.form for field in ("destination", "payload", "key", "filter")} == {"clear"}


def test_moments_are_in_order_and_have_tenths_of_a_second(views):
    (row,) = (row for row in views.rows if row.field == "when")
    texts = [sight.text for sight in row[1:]]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d", text) for text in texts)
    assert texts == sorted(texts)


def test_bytes_of_a_pair_are_those_of_one_device_and_direction():
    pair = ContrailPair(1, polling_s=2.0, idle_s=0.0, receivers=2)
    pair.publish(b"x" * 5_000)
    pair.lab.run(seconds=20)
    bill = {(row.device, row.direction): row.bytes for row in pair.lab.bill().itertuples()}
    assert {pair_: pair.bytes_of(*pair_) for pair_ in bill} == bill
    assert pair.bytes_of("sender", "up") > 5_000 > pair.bytes_of("sender", "down")


def test_power_of_the_receiver_depends_on_its_link():
    """A radio of 3G stays in its high-power states for seconds after each item (Contrail 7.3); an ideal one has none."""
    power_mw = {link: receiver_radio_mw(1, 10.0, 0.0, 0.003, link) for link in ("umts_3g", "ideal")}
    assert power_mw["umts_3g"] > 100
    assert power_mw["ideal"] < 10

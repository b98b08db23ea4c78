"""Bills by reason: each byte and joule of the bill has one reason, for every kind of message of every system."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import get_args

import busy_labs
import contrail_place
import mud_place
import numpy as np
import pandas as pd
import pytest
from busy_labs import BUSY

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Reason
from mudkit.systems import mud, reasons, store_and_forward
from mudkit.systems.store_and_forward.device import DIRECT

ACCOUNT = ["system", "device", "direction"]
EXACT = ["messages", "bytes", "wakeups"]


def sums_of(lab: Lab) -> pd.DataFrame:
    split = lab.bill(by="reason")
    assert set(split["reason"]) <= set(get_args(Reason))
    assert not split.duplicated([*ACCOUNT, "reason"]).any()
    return split.groupby(ACCOUNT, as_index=False)[[*EXACT, "radio_mj"]].sum()


def assert_same_bill(bill: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(bill[[*ACCOUNT, *EXACT]], expected[[*ACCOUNT, *EXACT]])
    np.testing.assert_allclose(bill["radio_mj"], expected["radio_mj"], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("name", BUSY)
def test_reasons_add_up_to_the_bill_that_a_lab_without_them_has(name, monkeypatch):
    """Under lost messages, cuts, kills and messages under way; recording the reasons changes nothing else."""
    plain = BUSY[name]()
    plain.run()
    for module in (busy_labs, contrail_place, mud_place):
        monkeypatch.setattr(module, "Lab", partial(Lab, record_reasons=True))
    split = BUSY[name]()
    split.run()
    assert plain.lab.world.now_us == split.lab.world.now_us
    assert_same_bill(split.lab.bill(), plain.lab.bill())
    assert_same_bill(sums_of(split.lab), split.lab.bill())
    assert {"payload", "acknowledgement"} <= set(split.lab.bill(by="reason")["reason"])


@pytest.mark.parametrize("transport", ["https", "mqtt"])
def test_reasons_add_up_with_connections_and_short_range_links(transport):
    lab = Lab(seed=7, transport=transport, record_reasons=True)
    ann, _ = (
        store_and_forward.DirectClient(
            lab.device(name, at=(30.27, -97.74), short_range="bluetooth", inbound=True)
        )
        for name in ("ann", "bob")
    )
    relay = store_and_forward.Relay(lab)
    cy = store_and_forward.Client(lab.device("cy"), relay)
    ann.send("bob", "near")
    cy.send("dora", "far")
    lab.run(hours=1)
    ann.send("bob", "under way")
    assert_same_bill(sums_of(lab), lab.bill())
    rows = lab.bill(by="reason").set_index(["device", "direction", "reason"])
    assert rows.loc[("ann", "near up", "payload"), "messages"] == 2
    assert rows.loc[("cy", "up", "administration"), "bytes"] > 390  # the handshake: 60 and 330 bytes
    assert (("cy", "up", "heartbeat") in rows.index) is (transport == "mqtt")  # its pings


@pytest.mark.parametrize("moves", [False, True])
def test_repeated_numbers_are_retransmissions_on_both_links(moves):
    """The sender repeats the number of a message that is not acknowledged (:mod:`mudkit.delivery.outbox`)."""
    lab = Lab(seed=7, record_reasons=True)
    relay = store_and_forward.Relay(lab)
    ann, _ = (store_and_forward.Client(lab.device(name), relay) for name in ("ann", "bob"))
    lab.run(seconds=5)
    lab.faults.messages(loss_share=1.0)
    operation = ann.send("bob", "lunch?")
    lab.run(seconds=1)
    lab.faults.messages()
    if moves:
        lab.faults.change_address("ann")
    operation.result()
    lab.run(seconds=30)
    sent = lab.frame("messages").query("kind == 'send'")
    rows = lab.bill(by="reason").set_index(["device", "direction", "reason"])
    assert rows.loc[("ann", "up", "payload"), "messages"] == 1
    assert rows.loc[("ann", "up", "retransmission"), "messages"] == len(sent) - 1 == 1
    assert rows.loc[("ann", "up", "retransmission"), "bytes"] == rows.loc[("ann", "up", "payload"), "bytes"]
    assert rows.loc[("bob", "down", "payload"), "messages"] == 1  # delivered once
    assert ("bob", "down", "retransmission") not in rows.index


def test_heartbeats_and_policies_of_mud_are_billed_as_such():
    """Mobius 5 and 6: signs of life while nothing happens; policies are pushed to the devices that use them."""
    lab = Lab(seed=7, record_reasons=True)
    cloud = mud.Cloud(lab)
    token = lab.token("ann", "news")
    ann = mud.Client(
        lab.device("ann"),
        cloud,
        app="news",
        token=token,
        read_policy=mud.ShippedPolicy(lambda plan: "remote"),
    )
    ann.create("news").result()
    ann.read("news", type="continuous").result()
    lab.run(minutes=1)
    before = lab.bill(by="reason").groupby("reason")["bytes"].sum()
    lab.run(hours=2)
    idle = lab.bill(by="reason").groupby("reason")["bytes"].sum()
    assert set(idle.index[idle.subtract(before, fill_value=0) > 0]) == {"heartbeat", "acknowledgement"}
    cloud.ship(busy_labs.POLICY, app="news").result()
    lab.run(minutes=1)
    after = lab.bill(by="reason").groupby("reason")["bytes"].sum()
    assert set(after.index[after.subtract(idle, fill_value=0) > 0]) == {"policy", "acknowledgement"}
    assert after["policy"] > len(str(busy_labs.POLICY.document)) / 2


def test_all_systems_are_sorted():
    """A system whose name is not known there is billed as payload altogether."""
    names = {import_module(f"mudkit.systems.{package}.api").NAME for package in BUSY}
    assert names | {DIRECT} == set(reasons._SORTERS)


def test_a_lab_without_reasons_refuses_to_split_its_bill():
    with pytest.raises(ParameterError, match="record_reasons=True"):
        Lab().bill(by="reason")
    with pytest.raises(ParameterError, match="colour"):
        Lab(record_reasons=True).bill(by="colour")
    assert list(Lab(record_reasons=True).bill(by="reason").columns) == [
        "system", "device", "direction", "reason", "messages", "bytes", "radio_mj", "wakeups",
    ]  # fmt: skip

"""Bills by reason: each byte and joule of the bill has one reason, for every kind of message of every system."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import get_args

import busy_labs
import contrail_place
import msgspec
import mud_place
import numpy as np
import pandas as pd
import pytest
from busy_labs import BUSY

from mudkit import Lab
from mudkit.delivery import stream
from mudkit.errors import ParameterError
from mudkit.events import Reason
from mudkit.systems import contrail, lasthop, mud, reasons, store_and_forward
from mudkit.systems.mud.messages import notifications, requests
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


def build(kind: type[msgspec.Struct], **fields: object) -> msgspec.Struct:
    """Return a message with some fields; the others that it must have are None."""
    required = {field.name: None for field in msgspec.structs.fields(kind) if field.required}
    given = {"since_lsns": {}} if kind is requests.RegisterRequest else {}
    return kind(**required | given | fields)


TELL = partial(build, notifications.Tell)
CHANGED = TELL(change=build(notifications.LeftRead), lsn=1)
ITEM, SEALED = partial(build, contrail.messages.Data), partial(build, contrail.messages.Filter)
READ, SUBSCRIBED = (build(kind) for kind in (lasthop.messages.HasRead, lasthop.messages.Subscribed))
REQUESTS = [
    *((kind, "payload") for kind in (requests.ReadRequest, requests.WriteRequest)),
    *((kind, "administration") for kind in (requests.CreateRequest, requests.RegisterRequest)),
]


@pytest.mark.parametrize(("request_kind", "reason"), REQUESTS)
def test_requests_of_mud_are_payload_where_one_reads_or_writes(request_kind, reason):
    """See :data:`mudkit.events.Reason`: data, and requests for them; tables and subscriptions administrate."""
    one = build(requests.Ask, id="1", what=build(request_kind))
    assert reasons.reason_of("mud", one) == (reason, ["1"])
    asks = [
        build(requests.IdentifiedRequest, id=str(number), what=build(kind))
        for number, kind in enumerate((requests.DropRequest, request_kind))
    ]
    assert reasons.reason_of("mud", build(requests.AskBatch, asks=asks)) == (reason, ["0", "1"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (CHANGED, "payload"),
        (TELL(state=[1]), "payload"),
        (TELL(synced_lsn=1), "administration"),
        (TELL(ended="the table is gone"), "administration"),
        (build(notifications.Policy, document={"version": 1}), "policy"),
        (build(notifications.NewGeneration), "administration"),
    ],
)
def test_notifications_of_mud_are_payload_where_they_carry_records_or_aggregates(body, reason):
    """See :data:`mudkit.events.Reason`: data of applications; rules; the rest administrates."""
    item = build(stream.StreamItem, stream="ann", seq=3, body=body)
    assert reasons.reason_of("mud", item) == (reason, [("ann", 3)])


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ([SUBSCRIBED], "administration"),
        ([READ], "payload"),
        ([SUBSCRIBED, READ], "payload"),
        ([], "administration"),
    ],
)
def test_facts_of_the_last_hop_are_payload_unless_all_are_subscriptions(facts, reason):
    """See :data:`mudkit.events.Reason`; another store or number is another fact, another session is not."""
    facts_sent = build(lasthop.messages.DeviceFacts, session=("store", 1, 2), facts=list(enumerate(facts, 5)))
    identities = [("store", number) for number, _ in enumerate(facts, 5)]
    assert reasons.reason_of("last hop", facts_sent) == (reason, identities)


def test_reads_of_the_last_hop_are_the_same_in_all_sessions_of_an_incarnation():
    for count in (2, 3):
        read = build(lasthop.messages.ReadRequest, session=("store", 1, count), topic="news", number=4)
        assert reasons.reason_of("last hop", read) == ("payload", [(("store", 1), "news", 4)])


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([ITEM()], "payload"), ([SEALED(), ITEM()], "payload"), ([SEALED()], "policy"),
        ([build(contrail.messages.ChannelKey), SEALED()], "policy"), ([build(contrail.messages.ChannelKey)], "administration"),
    ],
)  # fmt: skip
def test_messages_between_devices_of_contrail_are_billed_for_the_best_they_carry(entries, reason):
    """Items before filters, which decide at the sender, before keys (see :data:`mudkit.events.Reason`)."""
    page = list(enumerate(entries, 5))
    delivered = build(contrail.messages.Deliver, page=page, storage_incarnation="s")
    assert reasons.reason_of("contrail", delivered) == (reason, [("s", number) for number, _ in page])
    if len(entries) == 1:
        pushed = build(contrail.messages.Push, number=9, message=entries[0])
        is_named = isinstance(entries[0], contrail.messages.Data)
        assert reasons.reason_of("contrail", pushed) == (reason, [(9, is_named)])


def test_item_of_contrail_is_no_retransmission_of_its_name():
    """Contrail 3.4.1: a name is pushed first, and the body where the storage does not have it."""
    name, body = (build(contrail.messages.Push, number=9, message=ITEM(body=body)) for body in (None, b"x"))
    assert reasons.reason_of("contrail", name)[1] != reasons.reason_of("contrail", body)[1]


@pytest.mark.parametrize(
    ("got", "reason"), [([], "heartbeat"), ([1], "acknowledgement"), ([1, 2], "acknowledgement")]
)
def test_requests_for_pages_of_contrail_are_acknowledgements_or_polls(got, reason):
    """See :data:`mudkit.events.Reason`: polls are signs of life, unless they acknowledge entries."""
    pull = build(contrail.messages.Pull, got=got)
    assert reasons.reason_of("contrail", pull) == (reason, ())
    empty = build(contrail.messages.Deliver, page=[])
    assert reasons.reason_of("contrail", empty) == ("acknowledgement", ())

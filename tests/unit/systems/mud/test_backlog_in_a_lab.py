"""Backlogs of writes queued during an outage: time until they are answered, and cost."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from mud_place import Place

from mudkit.fleet.link import Curve, profile_of
from mudkit.wire import as_wire

LATE_S = 180
"""The three minutes of docs/how-a-message-travels.md."""


def queue_writes(count, link):
    """Queue writes during an outage; return the lab and the writes."""
    place = Place()
    place.lab.device("ann", link=link)
    ann = place.client("ann")
    ann.create("news").result()
    place.lab.run(minutes=1)
    place.lab.faults.cut("ann")
    return place.lab, [ann.write("news", f"k{number}", {"n": number}) for number in range(count)]


def test_writes_lost_in_a_burst_are_answered_within_three_minutes(scaled):
    lab, writes = queue_writes(scaled(2_000, 500), "lte")
    lab.faults.messages(loss_share=1.0)
    lab.faults.mend("ann")
    lab.run(seconds=2)
    lab.faults.messages()
    lab.run(seconds=LATE_S)
    assert all(write.done() for write in writes)


GUIDE = Path(__file__).parents[4] / "docs/guides/mud.md"


def measure_outage(records, kind):
    """Run 1,000 writes in an outage of an hour; return what follows: messages up, joules, seconds."""
    place = Place()
    place.lab.device("ann", link="lte")
    ann = place.client("ann")
    ann.create("news").result()
    place.lab.run(minutes=5)
    place.lab.faults.cut("ann")
    writes = []
    for number in range(1000):
        writes.append(ann.write("news", f"k{number % records}", {"n": number, "text": "x" * 100}, kind))
        place.lab.run(seconds=3.6)

    def measure_bill():
        bill = place.lab.bill()
        bill = bill[bill["device"] == "ann"]
        return bill[bill["direction"] == "up"]["messages"].sum(), bill["radio_mj"].sum() / 1000

    before, began_us = measure_bill(), place.lab.world.now_us
    place.lab.faults.mend("ann")
    place.lab.run(minutes=30)
    messages, energy_j = (after - then for after, then in zip(measure_bill(), before, strict=True))
    took_s = (max(write.responded_us for write in writes) - began_us) / 1e6
    return f"{messages} | {energy_j:.1f} | {took_s:.1f}"


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("row", "records", "kind"),
    [
        ("of 50 records, blind", 50, "blind"),
        ("of 1,000 records", 1000, "blind"),
        ("of 50 records, conditional", 50, "conditional"),
    ],
)
def test_outage_of_an_hour_costs_what_the_guide_says(row, records, kind):
    assert f"| {row} | {measure_outage(records, kind)} |" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("link", ["lte", "umts_3g"])
def test_backlog_is_answered_within_twice_the_transmission_time(link):
    lab, writes = queue_writes(1_000, link)
    lab.faults.mend("ann")
    began_us = lab.world.now_us
    lab.run(minutes=5)
    assert all(write.done() for write in writes)
    bill = lab.bill()
    carried = bill[bill["device"] == "ann"].groupby("direction")["bytes"].sum()
    profile = profile_of(link)
    radio_s = 2.0  # waking up, and a round trip
    needed_s = radio_s + carried["up"] * 8 / 1000 / profile.up_kbps
    assert max(write.responded_us for write in writes) - began_us < 2 * needed_s * 1e6


@pytest.mark.soak
def test_device_work_grows_linearly_with_the_backlog():
    def count_calls(count):
        lab, writes = queue_writes(count, "lte")
        lab.faults.mend("ann")
        calls = 0

        def profile(frame, event, _):
            nonlocal calls
            calls += event == "call" and "systems/mud/device" in frame.f_code.co_filename

        sys.setprofile(profile)
        try:
            lab.run(minutes=2)
        finally:
            sys.setprofile(None)
        assert all(write.done() for write in writes)
        return calls

    assert count_calls(300) < 2.5 * count_calls(150)


@pytest.mark.parametrize(
    "device", ["phone", "bob"]
)  # the second and the first notification server are theirs
@pytest.mark.parametrize("is_redirected", [False, True])
def test_reads_registered_at_once_take_one_message_each(device, is_redirected):
    """Register before the first hello is answered, or redirected."""
    place, count = Place(), 20
    place.client("ann").create("news").result()
    reader = place.client(device)
    if not is_redirected:
        reader.read("news", "n > 100", type="continuous").result()
    kinds = Counter()

    def record_kind(transfer):
        if transfer.sender.host.name == device:
            kinds[as_wire(transfer.message)["kind"]] += 1
        return (0,)

    place.lab.world.fault_hook = record_kind
    reads = [reader.read("news", f"n > {number}", type="continuous") for number in range(count)]
    place.lab.run(minutes=10)
    assert all(read.done() for read in reads)
    assert kinds["ask"] == count
    assert kinds["hello"] <= 2
    place.lab.faults.kill(device)
    place.lab.faults.restart(device)
    kinds.clear()
    place.lab.run(minutes=10)
    assert kinds["ask"] == count + (not is_redirected)
    assert kinds["hello"] <= 3


def test_reads_registered_over_a_slow_link_keep_their_session():
    """Fill a link of 1 kB/s with registrations for longer than a notification may wait."""
    place, count = Place(max_wait_s=10.0), 24
    place.client("ann").create("news").result()
    bob = place.client("bob")
    bob.read("news", "n > 100", type="continuous").result()
    link, now_us = place.lab.world.hosts["bob"].link, place.lab.world.now_us
    for direction, kbps in ((link.up, link.up_kbps), (link.down, link.down_kbps)):
        direction.curve = Curve([now_us], now_us + 3600 * 10**6, [8.0], kbps)
    registrations = Counter()

    def record_registration(transfer):
        fields = as_wire(transfer.message)
        if transfer.sender.host.name == "bob" and fields["kind"] == "ask":
            registrations[fields["what"]["session"]] += 1
        return (0,)

    place.lab.world.fault_hook = record_registration
    reads = [bob.read("news", f"n > {number}", type="continuous") for number in range(count)]
    place.lab.run(minutes=10)
    assert all(read.done() for read in reads)
    assert len(registrations) == 1
    assert registrations.total() <= 2 * count


def test_registration_of_a_former_session_is_not_sent_again():
    """Lose a registration, and the session that it names, then end the read: the cloud answers it no more."""
    place = Place()
    place.client("ann").create("news").result()
    bob = place.client("bob")
    bob.read("news", "n > 100", type="continuous").result()
    asks = Counter()

    def lose_first_ask(transfer):
        fields = as_wire(transfer.message)
        is_ask = transfer.sender.host.name == "bob" and fields["kind"] == "ask"
        asks.update([fields["id"]] if is_ask else [])
        return () if is_ask and asks.total() == 1 else (0,)

    place.lab.world.fault_hook = lose_first_ask
    read = bob.read("news", "n > 0", type="continuous")
    for address in place.cloud.notification_servers:
        place.lab.faults.kill(address.split("/")[0])
        place.lab.faults.restart(address.split("/")[0])
    bob.unregister(read.result()).result()
    asks.clear()
    place.lab.run(minutes=30)
    assert not asks

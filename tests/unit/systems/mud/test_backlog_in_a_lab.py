"""Writes that were queued without a network: when they are answered, and what that costs."""

from __future__ import annotations

import sys

import pytest
from mud_place import Place

from mudkit.fleet.link import profile_of

LATE_S = 180
"""The three minutes of docs/how-a-message-travels.md."""


def queued(count, link):
    """Queue writes without a network; give the lab and the writes."""
    place = Place()
    place.lab.device("ann", link=link)
    ann = place.client("ann")
    ann.create("news").result()
    place.lab.run(minutes=1)
    place.lab.faults.cut("ann")
    return place.lab, [ann.write("news", f"k{number}", {"n": number}) for number in range(count)]


def test_writes_that_are_lost_in_a_burst_are_answered_soon_after(scaled):
    lab, writes = queued(scaled(2_000, 500), "lte")
    lab.faults.messages(loss_share=1.0)
    lab.faults.mend("ann")
    lab.run(seconds=2)
    lab.faults.messages()
    lab.run(seconds=LATE_S)
    assert all(each.done() for each in writes)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("link", ["lte", "umts_3g"])
def test_a_backlog_is_answered_within_twice_the_time_that_the_link_needs(link):
    lab, writes = queued(1_000, link)
    lab.faults.mend("ann")
    began_us = lab.world.now_us
    lab.run(minutes=5)
    assert all(each.done() for each in writes)
    bill = lab.bill()
    mine = bill[bill["device"] == "ann"].groupby("direction")["bytes"].sum()
    profile = profile_of(link)
    radio_s = 2.0  # waking up, and a round trip
    needed_s = radio_s + mine["up"] * 8 / 1000 / profile.up_kbps
    assert max(each.responded_us for each in writes) - began_us < 2 * needed_s * 1e6


@pytest.mark.soak
def test_what_a_backlog_costs_a_device_is_in_proportion_to_it():
    def cost(count):
        lab, writes = queued(count, "lte")
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
        assert all(each.done() for each in writes)
        return calls

    assert cost(300) < 2.5 * cost(150)

"""Radio of a device to the microsecond: promotions, tails, and the accounts charged."""

from __future__ import annotations

import pytest
from fleet_machines import Stage

from mudkit.events import Received, Send
from mudkit.fleet.bill import Account
from mudkit.fleet.energy import MJ_PER_MW_US, RADIOS, Radio

LTE = RADIOS["lte"]
S = 1_000_000
PROMOTION_MJ = LTE.promotion_us * LTE.promotion_mw * MJ_PER_MW_US


def carry(radio: Radio, start_us: int, account: Account, duration_us: int = 1_000) -> int:
    """Carry a transfer from a time on, and return its end."""
    ready_us = radio.open(start_us, account)
    radio.active_until_us = max(ready_us, start_us) + duration_us
    radio.last = account
    return radio.active_until_us


@pytest.mark.parametrize(("late_us", "wakeups"), [(-1, 0), (0, 0), (1, 1)])
def test_radio_is_open_exactly_until_the_end_of_its_tail(late_us, wakeups):
    radio, first, second = Radio(LTE), Account("mud", "ann", "up"), Account("mud", "ann", "down")
    end_us = carry(radio, 0, first)
    start_us = end_us + LTE.tail_us + late_us
    assert radio.open(start_us, second) == start_us + wakeups * LTE.promotion_us or not wakeups
    assert (first.wakeups, second.wakeups) == (1, wakeups)
    tail_us = min(start_us - end_us, LTE.tail_us)
    assert first.radio_mj == pytest.approx(PROMOTION_MJ + tail_us * LTE.tail_mw * MJ_PER_MW_US)
    assert second.radio_mj == pytest.approx(wakeups * PROMOTION_MJ)


@pytest.mark.parametrize("after_us", [-1, 0, 1, LTE.tail_us - 1, LTE.tail_us, LTE.tail_us + 1])
def test_running_tail_is_charged_for_its_elapsed_time(after_us):
    radio, account = Radio(LTE), Account("mud", "ann", "up")
    end_us = carry(radio, 0, account)
    expected = min(max(after_us, 0), LTE.tail_us) * LTE.tail_mw * MJ_PER_MW_US
    assert sum(radio_mj for _, radio_mj in radio.corrections(end_us + after_us)) == pytest.approx(expected)


@pytest.mark.parametrize("at_us", [0, 1, LTE.promotion_us - 1, LTE.promotion_us, LTE.promotion_us + 1])
def test_cut_promotion_is_charged_for_its_elapsed_time(at_us):
    radio, account = Radio(LTE), Account("mud", "ann", "up")
    radio.open(0, account)
    radio.active_until_us, radio.last = 1 << 40, account  # a long transfer
    radio.cut(at_us)
    assert account.radio_mj == pytest.approx(min(at_us, LTE.promotion_us) * LTE.promotion_mw * MJ_PER_MW_US)
    assert list(radio.corrections(at_us)) == []  # no second refund, and no tail
    assert radio.active_until_us < at_us
    assert radio.open(at_us, account) == at_us + LTE.promotion_us  # opens immediately
    assert account.wakeups == 2


def test_radio_cut_during_a_transfer_opens_again():
    stage = Stage()
    stage.do("ann", Send("server", "x" * 1_000_000))
    stage.world.run(S)
    stage.world.hosts["ann"].link_down()
    stage.world.hosts["ann"].link_up()
    stage.do("ann", Send("server", "x"))
    stage.world.run(60 * S)
    assert [event.message for event in stage.puppets["server"].of(Received)] == ["x"]
    assert stage.account("ann", "up").wakeups == 2


def test_first_opening_of_a_radio_is_charged():
    account = Account("mud", "ann", "up")
    Radio(LTE).open(0, account)
    assert (account.wakeups, account.radio_mj) == (1, pytest.approx(PROMOTION_MJ))

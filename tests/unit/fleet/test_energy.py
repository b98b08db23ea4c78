"""The radio of a device to the microsecond: when it opens anew, how long its tail is, and who pays."""

from __future__ import annotations

import pytest
from fleet_machines import Stage

from mudkit.events import Received, Send
from mudkit.fleet.bill import Account
from mudkit.fleet.energy import MJ_PER_MW_US, RADIOS, Radio

LTE = RADIOS["lte"]
S = 1_000_000
PROMOTION_MJ = LTE.promotion_us * LTE.promotion_mw * MJ_PER_MW_US


def carried(radio: Radio, begin_us: int, account: Account, length_us: int = 1_000) -> int:
    """Let something be carried from a time on, and give when it ends."""
    ready_us = radio.open(begin_us, account)
    radio.active_until_us = max(ready_us, begin_us) + length_us
    radio.last = account
    return radio.active_until_us


@pytest.mark.parametrize(("late_us", "wakeups"), [(-1, 0), (0, 0), (1, 1)])
def test_it_is_open_until_the_end_of_its_tail_and_not_a_microsecond_longer(late_us, wakeups):
    radio, first, second = Radio(LTE), Account("mud", "ann", "up"), Account("mud", "ann", "down")
    end_us = carried(radio, 0, first)
    begin_us = end_us + LTE.tail_us + late_us
    assert radio.open(begin_us, second) == begin_us + wakeups * LTE.promotion_us or not wakeups
    assert (first.wakeups, second.wakeups) == (1, wakeups)
    tail_us = min(begin_us - end_us, LTE.tail_us)
    assert first.radio_mj == pytest.approx(PROMOTION_MJ + tail_us * LTE.tail_mw * MJ_PER_MW_US)
    assert second.radio_mj == pytest.approx(wakeups * PROMOTION_MJ)


@pytest.mark.parametrize("after_us", [-1, 0, 1, LTE.tail_us - 1, LTE.tail_us, LTE.tail_us + 1])
def test_the_tail_that_runs_is_what_has_run_of_it(after_us):
    radio, account = Radio(LTE), Account("mud", "ann", "up")
    end_us = carried(radio, 0, account)
    expected = min(max(after_us, 0), LTE.tail_us) * LTE.tail_mw * MJ_PER_MW_US
    assert sum(radio_mj for _, radio_mj in radio.corrections(end_us + after_us)) == pytest.approx(expected)


@pytest.mark.parametrize("at_us", [0, 1, LTE.promotion_us - 1, LTE.promotion_us, LTE.promotion_us + 1])
def test_a_promotion_that_is_cut_costs_what_has_run_of_it(at_us):
    radio, account = Radio(LTE), Account("mud", "ann", "up")
    radio.open(0, account)
    radio.active_until_us, radio.last = 1 << 40, account  # it is carried for long
    radio.cut(at_us)
    assert account.radio_mj == pytest.approx(min(at_us, LTE.promotion_us) * LTE.promotion_mw * MJ_PER_MW_US)
    assert (
        list(radio.corrections(at_us)) == []
    )  # that was all: neither is it given back twice, nor has it a tail
    assert radio.active_until_us < at_us
    assert radio.open(at_us, account) == at_us + LTE.promotion_us  # at once
    assert account.wakeups == 2


def test_what_was_cut_while_it_carried_opens_and_pays_anew_in_the_same_microsecond():
    stage = Stage()
    stage.do("ann", Send("server", "x" * 1_000_000))
    stage.world.run(S)
    stage.world.hosts["ann"].link_down()
    stage.world.hosts["ann"].link_up()
    stage.do("ann", Send("server", "x"))
    stage.world.run(60 * S)
    assert [event.message for event in stage.puppets["server"].of(Received)] == ["x"]
    assert stage.account("ann", "up").wakeups == 2


def test_a_radio_that_was_never_open_opens():
    account = Account("mud", "ann", "up")
    Radio(LTE).open(0, account)
    assert (account.wakeups, account.radio_mj) == (1, pytest.approx(PROMOTION_MJ))

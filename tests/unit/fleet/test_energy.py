"""Radio of a device to the microsecond: promotions, tails, and the accounts charged."""

from __future__ import annotations

import pytest
from fleet_machines import Stage

from mudkit.events import Received, Send
from mudkit.fleet.bill import Account
from mudkit.fleet.energy import MJ_PER_MW_US, RADIOS, CarriedTransfer, Radio, RadioProfile, timeline

LTE = RADIOS["lte"]
S = 1_000_000
PROMOTION_MJ = LTE.promotion_us * LTE.promotion_mw * MJ_PER_MW_US


def carry(radio: Radio, start_us: int, account: Account, duration_us: int = 1_000) -> int:
    """Carry a transfer from a time on, and return its end."""
    ready_us = radio.open(start_us, account)
    radio.active_until_us = max(ready_us, start_us) + duration_us
    radio.last = account
    return radio.active_until_us


@pytest.mark.parametrize(("late_us", "wakeups"), [(-S, 0), (-1, 0), (0, 0), (1, 1), (S, 1)])
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


# Opened for 10 µs, and a tail of 20 µs. A byte sent within 5 µs takes 400 mW above the active 50, one received 800.
PLAIN = RadioProfile("plain", 10, 100.0, 50.0, 2.0, 4.0, 20, 30.0)
UP = CarriedTransfer("up", 5, 15, 20, 1)
OPENED = [(0, 5, "idle", 0), (5, 15, "promotion", 100)]
SENT = [*OPENED, (15, 20, "active", 450)]


@pytest.mark.parametrize(
    ("carried", "downs_us", "expected"),
    [
        pytest.param([], [3], [(0, 60, "idle", 0)], id="nothing is carried"),
        pytest.param([UP], [], [*SENT, (20, 40, "tail", 30), (40, 60, "idle", 0)], id="tail after the last"),
        pytest.param(
            [CarriedTransfer("down", 5, 15, 20, 1)],
            [],
            [*OPENED, (15, 20, "active", 850), (20, 40, "tail", 30), (40, 60, "idle", 0)],
            id="a received byte",
        ),
        pytest.param(
            [UP, CarriedTransfer("down", 6, 18, 28, 2)],
            [],
            [
                *OPENED,
                (15, 18, "active", 450),
                (18, 20, "active", 1250),
                (20, 28, "active", 850),
                (28, 48, "tail", 30),
                (48, 60, "idle", 0),
            ],
            id="active once for two transfers, and the energy of the bytes of each",
        ),
        pytest.param(
            [CarriedTransfer("up", 40, 40, 45, 1), UP],
            [],
            [*SENT, (20, 40, "tail", 30), (40, 45, "active", 450), (45, 60, "tail", 30)],
            id="tail until the next, which may come at its very end",
        ),
        pytest.param(
            [UP, CarriedTransfer("up", 41, 51, 56, 1)],
            [],
            [
                *SENT,
                (20, 40, "tail", 30),
                (40, 41, "idle", 0),
                (41, 51, "promotion", 100),
                (51, 56, "active", 450),
                (56, 60, "tail", 30),
            ],
            id="opened again after the tail",
        ),
        pytest.param(
            [UP, CarriedTransfer("down", 7, 15, 17, 0), CarriedTransfer("up", 38, 38, 43, 1)],
            [],
            [
                *OPENED,
                (15, 17, "active", 450),
                (17, 20, "active", 450),
                (20, 38, "tail", 30),
                (38, 43, "active", 450),
                (43, 60, "tail", 30),
            ],
            id="the tail follows the last to end, not the last to begin",
        ),
        pytest.param(
            [UP], [30, 25], [*SENT, (20, 25, "tail", 30), (25, 60, "idle", 0)], id="outage ends tail"
        ),
        pytest.param(
            [UP, CarriedTransfer("up", 25, 35, 40, 1)],
            [25],
            [
                *SENT,
                (20, 25, "tail", 30),
                (25, 35, "promotion", 100),
                (35, 40, "active", 450),
                (40, 60, "tail", 30),
            ],
            id="opened again after an outage in the tail",
        ),
        pytest.param(
            [CarriedTransfer("up", 5, 15, 12, 0)],
            [12],
            [(0, 5, "idle", 0), (5, 12, "promotion", 100), (12, 60, "idle", 0)],
            id="outage during the promotion",
        ),
        pytest.param(
            [CarriedTransfer("up", 5, 15, 18, 1)],
            [18],
            [*OPENED, (15, 18, "active", 50 + 2000 / 3), (18, 60, "idle", 0)],
            id="outage during a transfer",
        ),
        pytest.param(
            [UP],
            [5],
            [*SENT, (20, 40, "tail", 30), (40, 60, "idle", 0)],
            id="a loss of the network at its begin was before",
        ),
        pytest.param(
            [CarriedTransfer("up", 5, 5, 5, 0)], [5], [(0, 60, "idle", 0)], id="unless it ended the transfer"
        ),
    ],
)
def test_states_of_a_radio_follow_its_rules(carried, downs_us, expected):
    """The rules at the head of `mudkit.fleet.energy`: promotion, active, tail, and off without a network."""
    stretches = timeline(PLAIN, carried, downs_us, 60)
    assert [tuple(stretch[:3]) for stretch in stretches] == [row[:3] for row in expected]
    assert [stretch.power_mw for stretch in stretches] == pytest.approx([row[3] for row in expected])


def test_states_of_a_radio_lie_between_the_two_times_asked_for():
    assert [tuple(stretch) for stretch in timeline(PLAIN, [UP], [], 12, 2)] == [
        (2, 5, "idle", 0.0),
        (5, 12, "promotion", 100.0),
    ]
    assert [stretch.to_us for stretch in timeline(PLAIN, [UP], [], 30)] == [5, 15, 20, 30]
    assert timeline(RADIOS["ideal"], [CarriedTransfer("up", 5, 5, 5, 1)], [], 12) == [(0, 12, "idle", 0.0)]
    states = timeline(RADIOS["ideal"], [CarriedTransfer("up", 5, 5, 9, 1)], [], 12)
    assert [stretch.state for stretch in states] == ["idle", "active", "idle"], "no promotion, no tail"
